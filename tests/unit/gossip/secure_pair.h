/* secure_pair: both ends of a session in one process, with fixed keys, for the tests of secure. */
#ifndef GRAPEVINE_TESTS_UNIT_GOSSIP_SECURE_PAIR_H
#define GRAPEVINE_TESTS_UNIT_GOSSIP_SECURE_PAIR_H

#include "tests/check.h"

#include "gossip/secure/secure.h"

struct end {
    struct swarm_secret swarm;
    struct static_key key;
    struct secure *secure;
    const char *payload;
};

struct pair {
    struct end initiator, responder;
    uint8_t h1[HANDSHAKE_BYTES_MAX], h2[HANDSHAKE_BYTES_MAX], h3[HANDSHAKE_BYTES_MAX];
    size_t h1_count, h2_count, h3_count;
};

static const uint8_t swarm_key[SECRET_BYTES] = "thirty-two bytes shared by all..";

static inline void end_create(struct end *end, bool is_initiator, uint8_t seed,
                              uint64_t records_max)
{
    uint8_t bytes[SECRET_BYTES];
    struct secure_options options = {.is_initiator = is_initiator,
                                     .swarm = &end->swarm,
                                     .key = &end->key,
                                     .payload = (const uint8_t *)end->payload,
                                     .payload_bytes = strlen(end->payload),
                                     .records_max = records_max};

    memset(bytes, seed, sizeof bytes);
    static_key_from_seed(bytes, &end->key);
    memset(options.ephemeral_seed, seed + 1, SECRET_BYTES);
    end->secure = secure_create(&options);
    assert_non_null(end->secure);
}

/* Two ends of one swarm, nothing said yet. */
static inline void pair_init(struct pair *pair)
{
    memset(pair, 0, sizeof *pair);
    swarm_secret_derive("test", swarm_key, &pair->initiator.swarm);
    swarm_secret_derive("test", swarm_key, &pair->responder.swarm);
    pair->initiator.payload = "I am the initiator";
    pair->responder.payload = "responder";
}

static inline void pair_create(struct pair *pair)
{
    end_create(&pair->initiator, true, 10, 0);
    end_create(&pair->responder, false, 20, 0);
}

static inline void pair_destroy(struct pair *pair)
{
    secure_destroy(pair->initiator.secure);
    secure_destroy(pair->responder.secure);
    pair->initiator.secure = pair->responder.secure = NULL;
}

static inline void greet(struct pair *pair)
{
    assert_int_equal(secure_greet(pair->initiator.secure, pair->h1, &pair->h1_count), RC_OK);
}

static inline enum rc answer(struct end *end, const uint8_t *frame, size_t count, uint8_t *out,
                             size_t *out_count)
{
    enum rc rc = secure_answer(end->secure, frame, count, out, out_count);

    if (rc != RC_OK) {
        assert_int_equal(secure_session(end->secure)->state, SECURE_FAILED);
        assert_int_equal(*out_count, 0);
    }
    return rc;
}

/* The handshake as far as message `messages`. */
static inline void advance(struct pair *pair, int messages)
{
    uint8_t out[HANDSHAKE_BYTES_MAX];
    size_t none = 1;

    greet(pair);
    if (messages >= 2) {
        assert_int_equal(
            answer(&pair->responder, pair->h1, pair->h1_count, pair->h2, &pair->h2_count), RC_OK);
    }
    if (messages >= 3) {
        assert_int_equal(
            answer(&pair->initiator, pair->h2, pair->h2_count, pair->h3, &pair->h3_count), RC_OK);
        assert_int_equal(secure_session(pair->initiator.secure)->state, SECURE_OPEN);
        assert_int_equal(secure_session(pair->responder.secure)->state, SECURE_WAITING);
        assert_int_equal(answer(&pair->responder, pair->h3, pair->h3_count, out, &none), RC_OK);
        assert_int_equal(none, 0);
        assert_int_equal(secure_session(pair->responder.secure)->state, SECURE_OPEN);
    }
}

static inline void open_with(struct pair *pair, uint32_t suites)
{
    pair_create(pair);
    advance(pair, 3);
    secure_choose_suite(pair->initiator.secure, suites);
    secure_choose_suite(pair->responder.secure, suites);
}

/* The suites of this machine, one at a time. */
static inline size_t suites_here(uint32_t suites[2])
{
    suites[0] = SUITE_CHACHA20POLY1305;
    suites[1] = SUITE_CHACHA20POLY1305 | SUITE_AES256GCM;
    return (secure_suites() & SUITE_AES256GCM) != 0 ? 2 : 1;
}

static inline void seal(struct end *end, const void *inner, size_t count, uint8_t *out)
{
    size_t head = count < INNER_HEADER_BYTES ? count : INNER_HEADER_BYTES;

    assert_int_equal(
        secure_seal(end->secure, inner, head, (const uint8_t *)inner + head, count - head, out),
        RC_OK);
}

static inline enum rc opened(struct end *end, uint8_t *frame, size_t count)
{
    const uint8_t *inner;
    size_t inner_count;
    enum rc rc = secure_open(end->secure, frame, count, &inner, &inner_count);

    if (rc != RC_OK) assert_int_equal(secure_session(end->secure)->state, SECURE_FAILED);
    return rc;
}

#endif
