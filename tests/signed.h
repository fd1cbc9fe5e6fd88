/* signed: hellos and records in one go, of which a peer takes each step when it may. */
#ifndef GRAPEVINE_TESTS_SIGNED_H
#define GRAPEVINE_TESTS_SIGNED_H

#include "gossip/signed/hello.h"
#include "gossip/signed/record.h"

static inline enum rc hello_encode(const struct hello *hello, const struct identity *identity,
                                   struct digest run_id, const uint8_t key[PUBLIC_KEY_BYTES],
                                   uint8_t *out, size_t cap, size_t *count)
{
    uint8_t signature[SIGNATURE_BYTES];

    hello_sign(hello, identity, run_id, key, signature);
    return hello_write(hello, signature, out, cap, count);
}

static inline enum rc record_open(const uint8_t *bytes, size_t count, struct digest run_id,
                                  struct member_record *record)
{
    struct member_record parsed;
    enum rc rc = record_peek(bytes, count, &parsed);

    if (rc == RC_OK) rc = record_verify(bytes, count, run_id, parsed.public_key);
    if (rc == RC_OK) *record = parsed;
    return rc;
}

#endif
