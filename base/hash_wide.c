/*
 * hash_wide: see hash_wide.h. BLAKE2b (RFC 7693) with each word of its state a vector of eight
 * lanes. Lengths that fill all lanes equally, as those of whole chunks do, go this way; the rest
 * are few. Without wide vectors the library is faster.
 */
#include "base/hash_wide.h"

#include "base/bytes.h"
#include "base/cpu.h"

enum { LANES = 8, BLOCK_BYTES = 128, WORDS = 16, STATE_WORDS = 8 };
enum { STRIPE_BYTES = LANES * BLOCK_BYTES };

static const uint64_t initial[STATE_WORDS] = {
    0x6a09e667f3bcc908u, 0xbb67ae8584caa73bu, 0x3c6ef372fe94f82bu, 0xa54ff53a5f1d36f1u,
    0x510e527fade682d1u, 0x9b05688c2b3e6c1fu, 0x1f83d9abfb41bd6bu, 0x5be0cd19137e2179u};

static struct digest join(struct digest leaves[LANES], uint64_t count)
{
    uint8_t length[sizeof count];
    struct hash root;

    store_le64(length, count);
    hash_init(&root);
    hash_update(&root, leaves, LANES * sizeof *leaves);
    hash_update(&root, length, sizeof length);
    return hash_final(&root);
}

struct digest hash_wide_plain(const void *bytes, size_t count)
{
    const uint8_t *from = bytes;
    struct digest leaves[LANES];

    for (size_t lane = 0; lane < LANES; lane++) {
        struct hash leaf;

        hash_init(&leaf);
        for (size_t at = lane * BLOCK_BYTES; at < count; at += STRIPE_BYTES) {
            hash_update(&leaf, from + at, count - at < BLOCK_BYTES ? count - at : BLOCK_BYTES);
        }
        leaves[lane] = hash_final(&leaf);
    }
    return join(leaves, count);
}

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
typedef uint64_t lanes_u64 __attribute__((vector_size(LANES * sizeof(uint64_t))));

#define ROTATED(x, by) (((x) >> (by)) | ((x) << (64 - (by))))
#define MIX(a, b, c, d, x, y)                                                                      \
    do {                                                                                           \
        (a) += (b) + (x);                                                                          \
        (d) = ROTATED((d) ^ (a), 32);                                                              \
        (c) += (d);                                                                                \
        (b) = ROTATED((b) ^ (c), 24);                                                              \
        (a) += (b) + (y);                                                                          \
        (d) = ROTATED((d) ^ (a), 16);                                                              \
        (c) += (d);                                                                                \
        (b) = ROTATED((b) ^ (c), 63);                                                              \
    } while (0)
/* The order of the message's words in a round (RFC 7693, 2.7), as constants of the loop unrolled by
 * hand: looked up they would be loads. */
#define ROUND(s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15)                \
    do {                                                                                           \
        MIX(v[0], v[4], v[8], v[12], m[s0], m[s1]);                                                \
        MIX(v[1], v[5], v[9], v[13], m[s2], m[s3]);                                                \
        MIX(v[2], v[6], v[10], v[14], m[s4], m[s5]);                                               \
        MIX(v[3], v[7], v[11], v[15], m[s6], m[s7]);                                               \
        MIX(v[0], v[5], v[10], v[15], m[s8], m[s9]);                                               \
        MIX(v[1], v[6], v[11], v[12], m[s10], m[s11]);                                             \
        MIX(v[2], v[7], v[8], v[13], m[s12], m[s13]);                                              \
        MIX(v[3], v[4], v[9], v[14], m[s14], m[s15]);                                              \
    } while (0)

/* All leaves of `stripes` > 0 whole stripes: h[word] of each lane. */
FOR_EACH_CPU(static, void, compress,
             (const uint8_t *from, size_t stripes, uint64_t out[STATE_WORDS][LANES]),
             (from, stripes, out))
{
    lanes_u64 h[STATE_WORDS], v[WORDS], m[WORDS];

    for (int i = 0; i < STATE_WORDS; i++) {
        h[i] = (lanes_u64){0} + initial[i];
    }
    h[0] ^= 0x01010000u ^ DIGEST_BYTES; /* no key, one node */
    for (size_t s = 0; s < stripes; s++, from += STRIPE_BYTES) {
        for (int w = 0; w < WORDS; w++) {
            for (int lane = 0; lane < LANES; lane++) {
                uint64_t word;

                memcpy(&word, from + lane * BLOCK_BYTES + w * (int)sizeof word, sizeof word);
                m[w][lane] = word;
            }
        }
        for (int i = 0; i < STATE_WORDS; i++) {
            v[i] = h[i];
            v[i + STATE_WORDS] = (lanes_u64){0} + initial[i];
        }
        v[12] ^= (uint64_t)(s + 1) * BLOCK_BYTES;
        if (s + 1 == stripes) v[14] = ~v[14];
        ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        ROUND(14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3);
        ROUND(11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4);
        ROUND(7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8);
        ROUND(9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13);
        ROUND(2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9);
        ROUND(12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11);
        ROUND(13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10);
        ROUND(6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5);
        ROUND(10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0);
        ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        ROUND(14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3);
        for (int i = 0; i < STATE_WORDS; i++) {
            h[i] ^= v[i] ^ v[i + STATE_WORDS];
        }
    }
    memcpy(out, h, sizeof h);
}

struct digest hash_wide_of(const void *bytes, size_t count)
{
    uint64_t h[STATE_WORDS][LANES];
    struct digest leaves[LANES];

    if (!cpu_has(CPU_AVX2) || count == 0 || count % STRIPE_BYTES != 0) {
        return hash_wide_plain(bytes, count);
    }
    compress(bytes, count / STRIPE_BYTES, h);
    for (size_t lane = 0; lane < LANES; lane++) {
        for (size_t i = 0; i < DIGEST_BYTES / sizeof(uint64_t); i++) {
            store_le64(leaves[lane].bytes + i * sizeof(uint64_t), h[i][lane]);
        }
    }
    return join(leaves, count);
}
#else
struct digest hash_wide_of(const void *bytes, size_t count)
{
    return hash_wide_plain(bytes, count);
}
#endif
