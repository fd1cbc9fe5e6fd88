/* A direct-mapped table by both public keys, the smaller one first. Loop thread. */
#include "gossip/secure/agreed.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"

#include <sodium.h>
#include <string.h>

struct secret {
    uint8_t keys[2][NOISE_KEY_BYTES]; /* all zero: none */
    uint8_t shared[NOISE_KEY_BYTES];
};

struct agreed {
    uint32_t mask;
    struct secret slots[];
};

struct agreed *agreed_create(uint32_t slots)
{
    struct agreed *agreed = mem_alloc(sizeof *agreed + slots * sizeof agreed->slots[0]);

    CHECK(slots > 0 && (slots & (slots - 1)) == 0);
    if (agreed != NULL) agreed->mask = slots - 1;
    return agreed;
}

void agreed_destroy(struct agreed *agreed)
{
    if (agreed == NULL) return;
    sodium_memzero(agreed->slots, (agreed->mask + (size_t)1) * sizeof agreed->slots[0]);
    mem_free(agreed);
}

enum rc agreed_compute(struct agreed *agreed, const struct noise_pair *own,
                       const uint8_t remote[NOISE_KEY_BYTES], uint8_t shared[NOISE_KEY_BYTES])
{
    bool is_first = memcmp(own->public_key, remote, NOISE_KEY_BYTES) < 0;
    const uint8_t *first = is_first ? own->public_key : remote;
    const uint8_t *second = is_first ? remote : own->public_key;
    struct secret *slot = NULL;

    if (agreed != NULL) {
        slot = &agreed->slots[rng_mix(load_le64(first), load_le64(second)) & agreed->mask];
        if (memcmp(slot->keys[0], first, NOISE_KEY_BYTES) == 0 &&
            memcmp(slot->keys[1], second, NOISE_KEY_BYTES) == 0) {
            memcpy(shared, slot->shared, NOISE_KEY_BYTES);
            return RC_OK;
        }
    }
    if (crypto_scalarmult(shared, own->secret_key, remote) != 0) return RC_AUTH;
    if (slot == NULL) return RC_OK;
    memcpy(slot->keys[0], first, NOISE_KEY_BYTES);
    memcpy(slot->keys[1], second, NOISE_KEY_BYTES);
    memcpy(slot->shared, shared, NOISE_KEY_BYTES);
    return RC_OK;
}
