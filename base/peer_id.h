/* peer_id: who a peer is (from its public key) and which start of it (boot id). */
#ifndef GRAPEVINE_BASE_PEER_ID_H
#define GRAPEVINE_BASE_PEER_ID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { PEER_ID_BYTES = 20, BOOT_ID_BYTES = 16, PEER_ID_TEXT = 33 };

struct peer_id {
    uint8_t bytes[PEER_ID_BYTES]; /* first 20 bytes of BLAKE2b-256(Ed25519 public key) */
};

struct boot_id {
    uint8_t bytes[BOOT_ID_BYTES]; /* random, new at every process start */
};

/* Ids are compared all the time, and nearly all differ in the first bytes: no call for these. */
static inline bool peer_id_is_equal(struct peer_id a, struct peer_id b)
{
    uint64_t left, right;

    memcpy(&left, a.bytes, sizeof left);
    memcpy(&right, b.bytes, sizeof right);
    return left == right && memcmp(a.bytes, b.bytes, PEER_ID_BYTES) == 0;
}

static inline int peer_id_compare(struct peer_id a, struct peer_id b)
{
    int first = (int)a.bytes[0] - b.bytes[0];

    return first != 0 ? first : memcmp(a.bytes, b.bytes, PEER_ID_BYTES);
}

static inline bool boot_id_is_equal(struct boot_id a, struct boot_id b)
{
    return memcmp(a.bytes, b.bytes, BOOT_ID_BYTES) == 0;
}

/** Put `id` into `ids` [count], which are ascending and have room for it, unless it is there. The
 *  new count. */
size_t peer_id_insert(struct peer_id *ids, size_t count, struct peer_id id);
/** Base32 (RFC 4648, lower case, 32 letters) into `text`, and NUL. */
void peer_id_format(struct peer_id id, char text[PEER_ID_TEXT]);

#endif
