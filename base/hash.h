/*
 * hash: BLAKE2b-256 (RFC 7693) for names, lineages, manifests and files. Not for secrets: keyed
 * hashing lives in gossip/secure/secure.c.
 */
#ifndef GRAPEVINE_BASE_HASH_H
#define GRAPEVINE_BASE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { DIGEST_BYTES = 32, DIGEST_TEXT = 65 };

struct digest {
    uint8_t bytes[DIGEST_BYTES];
};

struct hash {
    uint8_t state[384] __attribute__((aligned(64))); /* the library's state, opaque here */
};

void hash_init(struct hash *hash);
void hash_update(struct hash *hash, const void *bytes, size_t count);
struct digest hash_final(struct hash *hash);
struct digest hash_of(const void *bytes, size_t count);

static inline bool digest_is_equal(struct digest a, struct digest b)
{
    return memcmp(a.bytes, b.bytes, DIGEST_BYTES) == 0;
}

/** Lower-case hexadecimal, and NUL. */
void digest_format(struct digest digest, char text[DIGEST_TEXT]);
/** False unless `text` is exactly 64 hexadecimal digits. */
bool digest_parse(const char *text, struct digest *digest);

#endif
