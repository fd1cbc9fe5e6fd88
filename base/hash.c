/* BLAKE2b by libsodium. */
#include "base/hash.h"

#include "base/check.h"

#include <sodium.h>

_Static_assert(sizeof(crypto_generichash_state) <= sizeof(((struct hash *)0)->state),
               "the library's state fits");

static crypto_generichash_state *inner(struct hash *hash)
{
    return (crypto_generichash_state *)(void *)hash->state;
}

void hash_init(struct hash *hash)
{
    CHECK(crypto_generichash_init(inner(hash), NULL, 0, DIGEST_BYTES) == 0);
}

void hash_update(struct hash *hash, const void *bytes, size_t count)
{
    if (count == 0) return;
    CHECK(crypto_generichash_update(inner(hash), bytes, count) == 0);
}

struct digest hash_final(struct hash *hash)
{
    struct digest digest;

    CHECK(crypto_generichash_final(inner(hash), digest.bytes, DIGEST_BYTES) == 0);
    return digest;
}

struct digest hash_of(const void *bytes, size_t count)
{
    struct digest digest;

    CHECK(crypto_generichash(digest.bytes, DIGEST_BYTES, bytes, count, NULL, 0) == 0);
    return digest;
}

void digest_format(struct digest digest, char text[DIGEST_TEXT])
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < DIGEST_BYTES; i++) {
        text[2 * i] = digits[digest.bytes[i] >> 4];
        text[2 * i + 1] = digits[digest.bytes[i] & 15];
    }
    text[DIGEST_TEXT - 1] = '\0';
}

static int digit_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

bool digest_parse(const char *text, struct digest *digest)
{
    struct digest parsed;

    for (size_t i = 0; i < DIGEST_BYTES; i++) {
        int high = digit_value(text[2 * i]);
        int low = high < 0 ? -1 : digit_value(text[2 * i + 1]);

        if (low < 0) return false;
        parsed.bytes[i] = (uint8_t)(high << 4 | low);
    }
    if (text[DIGEST_TEXT - 1] != '\0') return false;
    *digest = parsed;
    return true;
}
