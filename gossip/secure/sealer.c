/*
 * Record ciphers: AES-256-GCM and ChaCha20-Poly1305-IETF of libsodium (the former of libipsec-mb
 * where there is one, see aes_gcm.h; the bytes are the same), with counter nonces: the derived IV
 * with the record's number XORed into its last 8 bytes. The number is implicit, so a record
 * replayed, dropped, reordered or reflected fails its tag. Any thread: a sealer that has its key is
 * only read.
 */
#include "gossip/secure/sealer.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"

#include <sodium.h>

enum { NONCE_BYTES = 12, CONTEXT_MAX = 160 };

_Static_assert(RECORD_TAG_BYTES == crypto_aead_aes256gcm_ABYTES &&
                   RECORD_TAG_BYTES == crypto_aead_chacha20poly1305_ietf_ABYTES &&
                   NONCE_BYTES == crypto_aead_aes256gcm_NPUBBYTES &&
                   NONCE_BYTES == crypto_aead_chacha20poly1305_ietf_NPUBBYTES &&
                   SEALER_ROOT_BYTES == crypto_aead_aes256gcm_KEYBYTES &&
                   SEALER_ROOT_BYTES == crypto_aead_chacha20poly1305_ietf_KEYBYTES,
               "the suites have equal sizes");
_Static_assert(sizeof(crypto_aead_aes256gcm_state) <= sizeof(struct aes_gcm_schedule) &&
                   AES_GCM_KEY_BYTES == crypto_aead_aes256gcm_KEYBYTES &&
                   AES_GCM_NONCE_BYTES == crypto_aead_aes256gcm_NPUBBYTES &&
                   AES_GCM_TAG_BYTES == crypto_aead_aes256gcm_ABYTES,
               "either library's key fits");

struct sealer {
    struct aes_gcm_schedule aes; /* the key expanded, by `fast` or by libsodium; first: aligned */
    const struct aes_gcm *fast;  /* borrowed; NULL: libsodium */
    uint8_t key[SEALER_ROOT_BYTES]; /* of ChaCha20 */
    uint8_t iv[NONCE_BYTES];
    uint32_t suite; /* 0: no key */
    uint8_t epoch;
};

void sealer_derive(const uint8_t key[SEALER_ROOT_BYTES], const char *label, const void *context,
                   size_t count, uint8_t *out, size_t out_count)
{
    crypto_generichash_state state;

    CHECK(out_count >= crypto_generichash_BYTES_MIN && out_count <= SEALER_ROOT_BYTES);
    CHECK(count <= CONTEXT_MAX);
    CHECK(crypto_generichash_init(&state, key, SEALER_ROOT_BYTES, out_count) == 0);
    CHECK(crypto_generichash_update(&state, (const uint8_t *)label, strlen(label)) == 0);
    if (count > 0) CHECK(crypto_generichash_update(&state, context, count) == 0);
    CHECK(crypto_generichash_final(&state, out, out_count) == 0);
    sodium_memzero(&state, sizeof state);
}

struct sealer *sealer_create(const struct aes_gcm *fast)
{
    struct sealer *sealer = mem_aligned(sizeof *sealer);

    if (sealer != NULL) sealer->fast = fast;
    return sealer;
}

void sealer_wipe(struct sealer *sealer)
{
    const struct aes_gcm *fast = sealer->fast;

    sodium_memzero(sealer, sizeof *sealer);
    sealer->fast = fast;
}

void sealer_destroy(struct sealer *sealer)
{
    if (sealer == NULL) return;
    sealer_wipe(sealer);
    mem_free(sealer);
}

static crypto_aead_aes256gcm_state *state_of(struct sealer *sealer)
{
    return (crypto_aead_aes256gcm_state *)(void *)sealer->aes.bytes;
}

static const crypto_aead_aes256gcm_state *state_seen_of(const struct sealer *sealer)
{
    return (const crypto_aead_aes256gcm_state *)(const void *)sealer->aes.bytes;
}

void sealer_set(struct sealer *sealer, uint32_t suite, const uint8_t root[SEALER_ROOT_BYTES],
                uint8_t epoch)
{
    bool is_aes = suite == SUITE_AES256GCM;
    uint8_t iv[SEALER_ROOT_BYTES];

    CHECK(is_aes || suite == SUITE_CHACHA20POLY1305 || suite == SUITE_CLEAR);
    sealer_derive(root, is_aes ? "record/1 aes256gcm key" : "record/1 chacha20poly1305 key", NULL,
                  0, sealer->key, sizeof sealer->key);
    sealer_derive(root, is_aes ? "record/1 aes256gcm iv" : "record/1 chacha20poly1305 iv", NULL, 0,
                  iv, sizeof iv);
    memcpy(sealer->iv, iv, NONCE_BYTES);
    sodium_memzero(iv, sizeof iv);
    if (is_aes) {
        if (sealer->fast != NULL) {
            aes_gcm_expand(sealer->fast, sealer->key, &sealer->aes);
        } else {
            CHECK(crypto_aead_aes256gcm_beforenm(state_of(sealer), sealer->key) == 0);
        }
        sodium_memzero(sealer->key, sizeof sealer->key);
    }
    sealer->suite = suite;
    sealer->epoch = epoch;
}

bool sealer_is_clear(const struct sealer *sealer)
{
    return sealer->suite == SUITE_CLEAR;
}

static void nonce_of(const struct sealer *sealer, uint64_t number, uint8_t nonce[NONCE_BYTES])
{
    memcpy(nonce, sealer->iv, NONCE_BYTES);
    store_le64(nonce + 4, load_le64(nonce + 4) ^ number);
}

static void record_header(const struct sealer *sealer, uint8_t *out, size_t inner_count)
{
    memset(out, 0, RECORD_HEADER_BYTES);
    store_le32(out, (uint32_t)inner_count);
    out[4] = sealer->epoch;
}

void sealer_frame_clear(const struct sealer *sealer, size_t inner_count,
                        uint8_t header[RECORD_HEADER_BYTES], uint8_t tag[RECORD_TAG_BYTES])
{
    CHECK(sealer_is_clear(sealer) && inner_count <= BULK_BYTES_MAX);
    record_header(sealer, header, inner_count);
    memset(tag, 0, RECORD_TAG_BYTES);
}

void sealer_seal(const struct sealer *sealer, uint64_t number, const void *head, size_t head_count,
                 const void *tail, size_t tail_count, uint8_t *out)
{
    uint8_t nonce[NONCE_BYTES], *inner = out + RECORD_HEADER_BYTES;
    size_t count = head_count + tail_count;
    int failed = 0;

    CHECK(sealer->suite != 0);
    CHECK(head_count <= BULK_BYTES_MAX && tail_count <= BULK_BYTES_MAX - head_count);
    record_header(sealer, out, count);
    nonce_of(sealer, number, nonce);
    if (sealer->suite == SUITE_AES256GCM && sealer->fast != NULL) {
        aes_gcm_seal(sealer->fast, &sealer->aes, nonce, out, RECORD_HEADER_BYTES, head, head_count,
                     tail, tail_count, inner);
        return;
    }
    if (head_count > 0) memcpy(inner, head, head_count);
    if (tail_count > 0) memcpy(inner + head_count, tail, tail_count);
    if (sealer->suite == SUITE_AES256GCM) {
        failed = crypto_aead_aes256gcm_encrypt_afternm(inner, NULL, inner, count, out,
                                                       RECORD_HEADER_BYTES, NULL, nonce,
                                                       state_seen_of(sealer));
    } else if (sealer->suite == SUITE_CHACHA20POLY1305) {
        failed = crypto_aead_chacha20poly1305_ietf_encrypt(
            inner, NULL, inner, count, out, RECORD_HEADER_BYTES, NULL, nonce, sealer->key);
    } else {
        memset(inner + count, 0, RECORD_TAG_BYTES);
    }
    CHECK(failed == 0);
}

enum rc sealer_open(const struct sealer *sealer, uint64_t number, uint8_t *frame, size_t count,
                    const uint8_t **inner, size_t *inner_count)
{
    uint8_t nonce[NONCE_BYTES], expected[RECORD_HEADER_BYTES];
    uint8_t *sealed = frame + RECORD_HEADER_BYTES;
    size_t sealed_count;
    int failed = 0;

    CHECK(sealer->suite != 0);
    if (count < RECORD_HEADER_BYTES + RECORD_TAG_BYTES ||
        count > RECORD_HEADER_BYTES + BULK_BYTES_MAX + RECORD_TAG_BYTES) {
        return RC_FORMAT;
    }
    sealed_count = count - RECORD_HEADER_BYTES;
    /* The whole header is known from the frame's size, so it is compared, not read. */
    record_header(sealer, expected, sealed_count - RECORD_TAG_BYTES);
    if (memcmp(frame, expected, sizeof expected) != 0) return RC_FORMAT;
    nonce_of(sealer, number, nonce);
    if (sealer->suite == SUITE_AES256GCM && sealer->fast != NULL) {
        failed = !aes_gcm_open(sealer->fast, &sealer->aes, nonce, frame, RECORD_HEADER_BYTES,
                               sealed, sealed_count - RECORD_TAG_BYTES);
    } else if (sealer->suite == SUITE_AES256GCM) {
        failed = crypto_aead_aes256gcm_decrypt_afternm(sealed, NULL, NULL, sealed, sealed_count,
                                                       frame, RECORD_HEADER_BYTES, nonce,
                                                       state_seen_of(sealer));
    } else if (sealer->suite == SUITE_CHACHA20POLY1305) {
        failed = crypto_aead_chacha20poly1305_ietf_decrypt(sealed, NULL, NULL, sealed, sealed_count,
                                                           frame, RECORD_HEADER_BYTES, nonce,
                                                           sealer->key);
    }
    if (failed != 0) return RC_AUTH;
    *inner = sealed;
    *inner_count = sealed_count - RECORD_TAG_BYTES;
    return RC_OK;
}
