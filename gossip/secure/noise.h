/*
 * noise: the handshake Noise_XXpsk3_25519_ChaChaPoly_SHA512 (Noise Protocol Framework, revision 34)
 * and nothing else: no framing, no labels of ours. Message in, payload out, so that the published
 * test vector can be run through it as it stands. gossip/secure/secure.c gives it our framing.
 */
#ifndef GRAPEVINE_GOSSIP_SECURE_NOISE_H
#define GRAPEVINE_GOSSIP_SECURE_NOISE_H

#include "base/rc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    NOISE_KEY_BYTES = 32,
    NOISE_HASH_BYTES = 64,
    NOISE_TAG_BYTES = 16,
    NOISE_MESSAGES = 3,
    /* what each message is longer than its payload: e, tag / e, sealed s, tag / sealed s, tag */
    NOISE_OVERHEAD_1 = 48,
    NOISE_OVERHEAD_2 = 96,
    NOISE_OVERHEAD_3 = 64
};

struct agreed;

struct noise_pair {
    uint8_t secret_key[NOISE_KEY_BYTES], public_key[NOISE_KEY_BYTES];
};

struct noise_options {
    bool is_initiator;
    const uint8_t *prologue;
    size_t prologue_bytes;
    const uint8_t *psk; /* NOISE_KEY_BYTES, as the next two */
    const uint8_t *static_secret;
    const uint8_t *ephemeral_secret; /* used once, never for a second handshake */
    const uint8_t *static_public;    /* of static_secret; NULL: to be computed */
    struct agreed *agreed;           /* borrowed: gossip/secure/agreed.h; else NULL */
};

/* The caller's storage; the fields are noise.c's. */
struct noise {
    uint8_t chaining_key[NOISE_HASH_BYTES], hash[NOISE_HASH_BYTES];
    uint8_t key[NOISE_KEY_BYTES];
    uint64_t nonce;
    struct noise_pair own_static, own_ephemeral;
    uint8_t remote_static[NOISE_KEY_BYTES], remote_ephemeral[NOISE_KEY_BYTES];
    uint8_t psk[NOISE_KEY_BYTES];
    struct agreed *agreed;
    unsigned messages_done;
    bool is_initiator, is_failed;
};

/** Copies all of `options`. */
void noise_init(struct noise *noise, const struct noise_options *options);
/** Wipes; fine on a wiped or zeroed one. */
void noise_deinit(struct noise *noise);
/** Our next message around `payload` into `out`. CHECKed: it is our turn. RC_LIMIT: `cap` is short;
 *  RC_AUTH: the other side's key is a point of low order. After an error only deinit is left. */
MUST_USE enum rc noise_write(struct noise *noise, const uint8_t *payload, size_t payload_bytes,
                             uint8_t *out, size_t cap, size_t *count);
/** Their next message; `payload` needs cap >= count - overhead. RC_FORMAT: too short; RC_LIMIT;
 *  RC_AUTH. After an error only deinit is left. */
MUST_USE enum rc noise_read(struct noise *noise, const uint8_t *message, size_t count,
                            uint8_t *payload, size_t cap, size_t *payload_bytes);
bool noise_is_done(const struct noise *noise);
/** Once done: the keys of what the initiator sends and of what the responder sends, and, which is
 *  ours, one that other keys may come from: the third output of the same HKDF. */
void noise_split(const struct noise *noise, uint8_t initiator_key[NOISE_KEY_BYTES],
                 uint8_t responder_key[NOISE_KEY_BYTES], uint8_t exporter[NOISE_KEY_BYTES]);

#endif
