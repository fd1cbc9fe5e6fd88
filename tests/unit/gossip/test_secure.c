/* The handshake and its gate, and every way to spoil them. Crypto is real; keys come from seeds. */
#include "tests/unit/gossip/secure_pair.h"

#include "base/bytes.h"
#include "base/mem.h"

/* Both ends open, and know each other's payload, static key and session id. */
static void a_handshake_opens_both_ends(void **state)
{
    const struct secure_session *initiator, *responder;
    struct pair pair;

    (void)state;
    pair_init(&pair);
    pair_create(&pair);
    assert_int_equal(secure_session(pair.initiator.secure)->state, SECURE_START);
    advance(&pair, 3);
    initiator = secure_session(pair.initiator.secure);
    responder = secure_session(pair.responder.secure);
    assert_int_equal(responder->remote_payload_bytes, strlen(pair.initiator.payload));
    assert_memory_equal(responder->remote_payload, pair.initiator.payload,
                        responder->remote_payload_bytes);
    assert_int_equal(initiator->remote_payload_bytes, strlen(pair.responder.payload));
    assert_memory_equal(initiator->remote_payload, pair.responder.payload,
                        initiator->remote_payload_bytes);
    assert_memory_equal(initiator->remote_key, pair.responder.key.public_key, PUBLIC_KEY_BYTES);
    assert_memory_equal(responder->remote_key, pair.initiator.key.public_key, PUBLIC_KEY_BYTES);
    assert_memory_equal(initiator->session_id, responder->session_id, SESSION_ID_BYTES);
    pair_destroy(&pair);
}

/* H1 has 72 bytes whatever the payload, H2 and H3 what the table of the protocol says. */
static void handshake_messages_have_the_documented_sizes(void **state)
{
    char full[HELLO_BYTES_MAX + 1];
    struct pair pair;

    (void)state;
    pair_init(&pair);
    memset(full, 'x', HELLO_BYTES_MAX);
    full[HELLO_BYTES_MAX] = '\0';
    pair.initiator.payload = full;
    pair.responder.payload = "";
    pair_create(&pair);
    advance(&pair, 2);
    assert_int_equal(pair.h1_count, 72);
    assert_int_equal(pair.h2_count, 8 + 32 + 48 + 16);
    assert_memory_equal(pair.h1, "GRPV\x01\x01\x40\x00", 8);
    assert_int_equal(answer(&pair.initiator, pair.h2, pair.h2_count, pair.h3, &pair.h3_count),
                     RC_OK);
    assert_int_equal(pair.h3_count, 8 + 48 + 16 + HELLO_BYTES_MAX);
    assert_true(pair.h3_count <= HANDSHAKE_BYTES_MAX);
    pair_destroy(&pair);
}

/* Feed message `number` of a fresh handshake after `spoil` changed it; it must not get through. */
static enum rc spoilt(int number, size_t at, uint8_t flip, size_t cut)
{
    uint8_t out[HANDSHAKE_BYTES_MAX];
    size_t out_count = 0;
    struct pair pair;
    enum rc rc;

    pair_init(&pair);
    pair_create(&pair);
    advance(&pair, number >= 2 ? 2 : 1);
    if (number == 3) {
        assert_int_equal(answer(&pair.initiator, pair.h2, pair.h2_count, pair.h3, &pair.h3_count),
                         RC_OK);
    }
    uint8_t *frame = number == 1 ? pair.h1 : number == 2 ? pair.h2 : pair.h3;
    size_t count = number == 1 ? pair.h1_count : number == 2 ? pair.h2_count : pair.h3_count;

    if (at < count) frame[at] ^= flip;
    rc = answer(number == 2 ? &pair.initiator : &pair.responder, frame, cut < count ? cut : count,
                out, &out_count);
    pair_destroy(&pair);
    return rc;
}

static size_t message_bytes(int number)
{
    struct pair pair;

    pair_init(&pair);
    pair_create(&pair);
    advance(&pair, 3);
    pair_destroy(&pair);
    return number == 1 ? pair.h1_count : number == 2 ? pair.h2_count : pair.h3_count;
}

/* One bit changed anywhere in any handshake message ends it. */
static void a_changed_bit_anywhere_in_the_handshake_is_noticed(void **state)
{
    (void)state;
    for (int number = 1; number <= 3; number++) {
        size_t count = message_bytes(number);

        for (size_t at = 0; at < count; at++) {
            enum rc rc = spoilt(number, at, (uint8_t)(1U << at % 8), SIZE_MAX);

            assert_int_equal(rc, at < PREFIX_BYTES ? RC_FORMAT : RC_AUTH);
        }
        assert_int_equal(spoilt(number, SIZE_MAX, 0, SIZE_MAX), RC_OK); /* the test itself */
    }
}

/* A handshake message cut anywhere is refused. */
static void a_cut_handshake_message_is_refused(void **state)
{
    (void)state;
    for (int number = 1; number <= 3; number++) {
        size_t count = message_bytes(number);

        for (size_t cut = 0; cut < count; cut += cut < 16 ? 1 : 5) {
            assert_int_equal(spoilt(number, SIZE_MAX, 0, cut), RC_FORMAT);
        }
    }
}

/* A payload larger than HELLO_BYTES_MAX is refused although Noise would carry it. */
static void an_oversize_payload_is_refused(void **state)
{
    uint8_t out[HANDSHAKE_BYTES_MAX] = {0};
    size_t out_count = 0;
    struct pair pair;

    (void)state;
    pair_init(&pair);
    pair_create(&pair);
    advance(&pair, 2);
    pair.h2_count = PREFIX_BYTES + 96 + HELLO_BYTES_MAX + 1;
    store_le16(pair.h2 + 6, (uint16_t)(pair.h2_count - PREFIX_BYTES));
    assert_int_equal(answer(&pair.initiator, pair.h2, pair.h2_count, out, &out_count), RC_FORMAT);
    pair_destroy(&pair);
}

/* Another key stops at the gate, another name under the same key in the handshake. */
static void another_swarm_is_kept_out(void **state)
{
    uint8_t other_key[SECRET_BYTES] = "another";
    struct pair pair;

    (void)state;
    for (int i = 0; i < 3; i++) {
        pair_init(&pair);
        if (i == 0) swarm_secret_derive("test", other_key, &pair.initiator.swarm);
        if (i == 1) swarm_secret_derive("other", swarm_key, &pair.initiator.swarm);
        if (i == 2) swarm_secret_derive("test", NULL, &pair.initiator.swarm);
        pair_create(&pair);
        greet(&pair);
        assert_int_equal(secure_gate_check(&pair.responder.swarm, pair.h1, pair.h1_count),
                         i == 1 ? RC_OK : RC_AUTH);
        assert_int_equal(answer(&pair.responder, pair.h1, pair.h1_count, pair.h2, &pair.h2_count),
                         RC_AUTH);
        pair_destroy(&pair);
    }
}

/* The gate takes 72 exact bytes of the right kind and nothing else. */
static void the_gate_wants_exactly_a_first_message(void **state)
{
    struct pair pair;

    (void)state;
    pair_init(&pair);
    pair_create(&pair);
    advance(&pair, 2);
    assert_int_equal(secure_gate_check(&pair.responder.swarm, pair.h1, H1_BYTES), RC_OK);
    assert_int_equal(secure_gate_check(&pair.responder.swarm, pair.h1, H1_BYTES - 1), RC_FORMAT);
    assert_int_equal(secure_gate_check(&pair.responder.swarm, pair.h1, 0), RC_FORMAT);
    assert_int_equal(secure_gate_check(&pair.responder.swarm, pair.h2, pair.h2_count), RC_FORMAT);
    pair.h1[4] = WIRE_MAJOR + 1;
    assert_int_equal(secure_gate_check(&pair.responder.swarm, pair.h1, H1_BYTES), RC_FORMAT);
    pair_destroy(&pair);
}

/* Messages sent back, sent again, or sent at the wrong time end the session. */
static void reflected_and_repeated_messages_are_refused(void **state)
{
    uint8_t out[HANDSHAKE_BYTES_MAX];
    size_t count = 0;
    struct pair pair;

    (void)state;
    for (int i = 0; i < 6; i++) {
        pair_init(&pair);
        pair_create(&pair);
        if (i == 0) { /* our own H1 back */
            advance(&pair, 1);
            assert_int_equal(answer(&pair.initiator, pair.h1, pair.h1_count, out, &count),
                             RC_FORMAT);
        } else if (i == 1) { /* H1 twice */
            advance(&pair, 2);
            assert_int_equal(answer(&pair.responder, pair.h1, pair.h1_count, out, &count),
                             RC_FORMAT);
        } else if (i == 2) { /* our own H2 back, called H3 */
            advance(&pair, 2);
            pair.h2[5] = 3;
            assert_int_equal(answer(&pair.responder, pair.h2, pair.h2_count, out, &count), RC_AUTH);
        } else if (i == 3) { /* a handshake message once open */
            advance(&pair, 3);
            assert_int_equal(answer(&pair.initiator, pair.h2, pair.h2_count, out, &count),
                             RC_FORMAT);
        } else if (i == 4) { /* an answer before we greeted */
            struct pair other;

            pair_init(&other);
            pair_create(&other);
            advance(&other, 2);
            assert_int_equal(answer(&pair.initiator, other.h2, other.h2_count, out, &count),
                             RC_FORMAT);
            pair_destroy(&other);
        } else { /* failed stays failed */
            advance(&pair, 1);
            assert_int_equal(answer(&pair.responder, pair.h1, 3, out, &count), RC_FORMAT);
            assert_int_equal(answer(&pair.responder, pair.h1, pair.h1_count, out, &count),
                             RC_FORMAT);
        }
        pair_destroy(&pair);
    }
}

/* Somebody else's H1 replayed gets an H2 that the replayer cannot use: the old H3 does not fit. */
static void a_replayed_first_message_leads_nowhere(void **state)
{
    uint8_t out[HANDSHAKE_BYTES_MAX];
    size_t count = 0;
    struct pair pair;

    (void)state;
    pair_init(&pair);
    pair_create(&pair);
    advance(&pair, 3);
    secure_destroy(pair.responder.secure);
    end_create(&pair.responder, false, 99, 0); /* the same peer later: another ephemeral key */
    assert_int_equal(answer(&pair.responder, pair.h1, pair.h1_count, out, &count), RC_OK);
    assert_int_equal(answer(&pair.responder, pair.h3, pair.h3_count, out, &count), RC_AUTH);
    pair_destroy(&pair);
}

/* Without memory there is no session, and nothing is leaked either way. */
static void a_session_that_cannot_be_made_is_null(void **state)
{
    uint64_t blocks = mem_blocks();
    struct pair pair;
    struct secure_options options = {
        .is_initiator = true, .swarm = &pair.initiator.swarm, .key = &pair.initiator.key};

    (void)state;
    pair_init(&pair);
    mem_fail_after(0);
    assert_null(secure_create(&options));
    mem_fail_after(UINT64_MAX);
    open_with(&pair, secure_suites());
    pair_destroy(&pair);
    secure_destroy(NULL);
    assert_int_equal(mem_blocks(), blocks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_handshake_opens_both_ends),
        cmocka_unit_test(handshake_messages_have_the_documented_sizes),
        cmocka_unit_test(a_changed_bit_anywhere_in_the_handshake_is_noticed),
        cmocka_unit_test(a_cut_handshake_message_is_refused),
        cmocka_unit_test(an_oversize_payload_is_refused),
        cmocka_unit_test(another_swarm_is_kept_out),
        cmocka_unit_test(the_gate_wants_exactly_a_first_message),
        cmocka_unit_test(reflected_and_repeated_messages_are_refused),
        cmocka_unit_test(a_replayed_first_message_leads_nowhere),
        cmocka_unit_test(a_session_that_cannot_be_made_is_null),
    };

    if (secure_start() != RC_OK) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
