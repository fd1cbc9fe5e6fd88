/*
 * hello: the payload of H2 and H3: who I am, what I can do, what I train. Bound to the handshake by
 * an identity signature over the X25519 static key.
 */
#ifndef GRAPEVINE_GOSSIP_SIGNED_HELLO_H
#define GRAPEVINE_GOSSIP_SIGNED_HELLO_H

#include "gossip/secure/secure.h"

enum hello_role { HELLO_PEER = 0, HELLO_OBSERVER = 1 };
enum { HELLO_SPEC_MAX = 128, HELLO_METHOD_MAX = 192 };

struct hello {
    uint8_t public_key[PUBLIC_KEY_BYTES]; /* identity */
    struct boot_id boot;
    uint64_t incarnation;
    uint32_t features; /* bits, intersection counts */
    uint32_t suites;
    uint32_t role;                    /* enum hello_role */
    uint16_t listen_port;             /* where others can dial; 0: does not listen */
    uint64_t dialback;                /* not 0: no link, but the answer to a DIALBACK_REQ */
    char observed[ADDRESS_BYTES_MAX]; /* where we see the other side; may be empty */
    struct digest schema;             /* all zero for observers */
    char spec[HELLO_SPEC_MAX];        /* model spec, cut; for messages to people */
    /* All that peers must have in common to average, in words: strategy_method(). */
    char method[HELLO_METHOD_MAX];
    /* The certificate we show, not looked at here: gossip/signed/certificate.h. */
    uint8_t certificate[CERTIFICATE_BYTES_MAX];
    uint32_t certificate_bytes; /* 0: none */
};

/** The signature in all hellos of one start of a process: `run_id`, `key` (our X25519 public key)
 *  and the boot id of `hello` are signed. A public key that is not ours to say is CHECKed. */
void hello_sign(const struct hello *hello, const struct identity *identity, struct digest run_id,
                const uint8_t key[PUBLIC_KEY_BYTES], uint8_t signature[SIGNATURE_BYTES]);
/** RC_LIMIT if `cap` is short (HELLO_BYTES_MAX is always enough). An `observed` that is no address
 *  is left out. */
MUST_USE enum rc hello_write(const struct hello *hello, const uint8_t signature[SIGNATURE_BYTES],
                             uint8_t *out, size_t cap, size_t *count);
/** Scan and decode: what it claims, with nothing verified. RC_FORMAT. */
MUST_USE enum rc hello_read(const uint8_t *bytes, size_t count, struct hello *hello,
                            uint8_t signature[SIGNATURE_BYTES]);
/** Does the identity of `hello` vouch for `key`, the static key Noise proved? RC_AUTH. */
MUST_USE enum rc hello_verify(const struct hello *hello, struct digest run_id,
                              const uint8_t key[PUBLIC_KEY_BYTES],
                              const uint8_t signature[SIGNATURE_BYTES]);
/** hello_read() and hello_verify(). RC_FORMAT, RC_AUTH. */
MUST_USE enum rc hello_decode(const uint8_t *bytes, size_t count, struct digest run_id,
                              const uint8_t key[PUBLIC_KEY_BYTES], struct hello *hello);

#endif
