/* Sessions between two ends in one process: handshake, records, framing, and every way to spoil
 * them. Crypto is real; keys come from fixed seeds. */
#include "tests/check.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "gossip/wire/secure.h"
#include "tests/golden.h"

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

static void end_create(struct end *end, bool is_initiator, uint8_t seed, uint64_t records_max)
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
static void pair_init(struct pair *pair)
{
    memset(pair, 0, sizeof *pair);
    swarm_secret_derive("test", swarm_key, &pair->initiator.swarm);
    swarm_secret_derive("test", swarm_key, &pair->responder.swarm);
    pair->initiator.payload = "I am the initiator";
    pair->responder.payload = "responder";
}

static void pair_create(struct pair *pair)
{
    end_create(&pair->initiator, true, 10, 0);
    end_create(&pair->responder, false, 20, 0);
}

static void pair_destroy(struct pair *pair)
{
    secure_destroy(pair->initiator.secure);
    secure_destroy(pair->responder.secure);
    pair->initiator.secure = pair->responder.secure = NULL;
}

static void greet(struct pair *pair)
{
    assert_int_equal(secure_greet(pair->initiator.secure, pair->h1, &pair->h1_count), RC_OK);
}

static enum rc answer(struct end *end, const uint8_t *frame, size_t count, uint8_t *out,
                      size_t *out_count)
{
    enum rc rc = secure_answer(end->secure, frame, count, out, out_count);

    if (rc != RC_OK) {
        assert_int_equal(secure_state(end->secure), SECURE_FAILED);
        assert_int_equal(*out_count, 0);
    }
    return rc;
}

/* The handshake as far as message `messages`. */
static void advance(struct pair *pair, int messages)
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
        assert_int_equal(secure_state(pair->initiator.secure), SECURE_OPEN);
        assert_int_equal(secure_state(pair->responder.secure), SECURE_WAITING);
        assert_int_equal(answer(&pair->responder, pair->h3, pair->h3_count, out, &none), RC_OK);
        assert_int_equal(none, 0);
        assert_int_equal(secure_state(pair->responder.secure), SECURE_OPEN);
    }
}

static void open_with(struct pair *pair, uint32_t suites)
{
    pair_create(pair);
    advance(pair, 3);
    secure_choose_suite(pair->initiator.secure, suites);
    secure_choose_suite(pair->responder.secure, suites);
}

/* The suites of this machine, one at a time. */
static size_t suites_here(uint32_t suites[2])
{
    suites[0] = SUITE_CHACHA20POLY1305;
    suites[1] = SUITE_CHACHA20POLY1305 | SUITE_AES256GCM;
    return (secure_suites() & SUITE_AES256GCM) != 0 ? 2 : 1;
}

/* Both ends open, and know each other's payload, static key and session id. */
static void a_handshake_opens_both_ends(void **state)
{
    struct pair pair;
    const uint8_t *payload;
    size_t bytes = 0;

    (void)state;
    pair_init(&pair);
    pair_create(&pair);
    assert_int_equal(secure_state(pair.initiator.secure), SECURE_START);
    advance(&pair, 3);
    payload = secure_remote_payload(pair.responder.secure, &bytes);
    assert_int_equal(bytes, strlen(pair.initiator.payload));
    assert_memory_equal(payload, pair.initiator.payload, bytes);
    payload = secure_remote_payload(pair.initiator.secure, &bytes);
    assert_int_equal(bytes, strlen(pair.responder.payload));
    assert_memory_equal(payload, pair.responder.payload, bytes);
    assert_memory_equal(secure_remote_key(pair.initiator.secure), pair.responder.key.public_key,
                        PUBLIC_KEY_BYTES);
    assert_memory_equal(secure_remote_key(pair.responder.secure), pair.initiator.key.public_key,
                        PUBLIC_KEY_BYTES);
    assert_memory_equal(secure_session_id(pair.initiator.secure),
                        secure_session_id(pair.responder.secure), SESSION_ID_BYTES);
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
    assert_int_equal(pair.h3_count, 8 + 48 + 16 + 512);
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

static void seal(struct end *end, const void *inner, size_t count, uint8_t *out)
{
    size_t head = count < INNER_HEADER_BYTES ? count : INNER_HEADER_BYTES;

    assert_int_equal(
        secure_seal(end->secure, inner, head, (const uint8_t *)inner + head, count - head, out),
        RC_OK);
}

static enum rc opened(struct end *end, uint8_t *frame, size_t count)
{
    const uint8_t *inner;
    size_t inner_count;
    enum rc rc = secure_open(end->secure, frame, count, &inner, &inner_count);

    if (rc != RC_OK) assert_int_equal(secure_state(end->secure), SECURE_FAILED);
    return rc;
}

/* Records of every size come out as they went in, both ways, with each suite. */
static void records_come_out_as_they_went_in(void **state)
{
    static const size_t sizes[] = {0, 1, 15, 16, 17, 4096, 65536, BULK_BYTES_MAX};
    uint8_t *plain = malloc(BULK_BYTES_MAX);
    uint8_t *frame = malloc(secure_record_bytes(BULK_BYTES_MAX));
    uint32_t suites[2];

    (void)state;
    assert_true(plain != NULL && frame != NULL);
    for (size_t i = 0; i < BULK_BYTES_MAX; i++) {
        plain[i] = (uint8_t)(i * 7 + i / 251);
    }
    for (size_t s = 0; s < suites_here(suites); s++) {
        struct pair pair;

        pair_init(&pair);
        open_with(&pair, suites[s]);
        for (size_t i = 0; i < 2 * ARRAY_COUNT(sizes); i++) {
            struct end *from = i % 2 == 0 ? &pair.initiator : &pair.responder;
            struct end *to = i % 2 == 0 ? &pair.responder : &pair.initiator;
            size_t count = sizes[i / 2], total = 0, inner_count = 0;
            const uint8_t *inner = NULL;

            seal(from, plain, count, frame);
            assert_int_equal(frame_bytes(frame, SIZE_MAX, &total), RC_OK);
            assert_int_equal(total, secure_record_bytes(count));
            assert_int_equal(secure_open(to->secure, frame, total, &inner, &inner_count), RC_OK);
            assert_int_equal(inner_count, count);
            assert_ptr_equal(inner, frame + RECORD_HEADER_BYTES);
            assert_memory_equal(inner, plain, count);
        }
        pair_destroy(&pair);
    }
    free(plain);
    free(frame);
}

/* One bit changed anywhere in a record, header included, ends the session. */
static void a_changed_bit_anywhere_in_a_record_is_noticed(void **state)
{
    uint32_t suites[2];

    (void)state;
    for (size_t s = 0; s < suites_here(suites); s++) {
        for (size_t at = 0; at < secure_record_bytes(20); at++) {
            uint8_t frame[128], plain[20] = "twenty bytes of text";
            struct pair pair;

            pair_init(&pair);
            open_with(&pair, suites[s]);
            seal(&pair.initiator, plain, sizeof plain, frame);
            frame[at] ^= (uint8_t)(1U << at % 8);
            assert_int_equal(opened(&pair.responder, frame, secure_record_bytes(sizeof plain)),
                             at < RECORD_HEADER_BYTES ? RC_FORMAT : RC_AUTH);
            pair_destroy(&pair);
        }
    }
}

enum trick { REPLAY, REORDER, REFLECT, DROP, TRUNCATE, EXTEND, EMPTY, ANOTHER_SESSION, TRICKS };

static enum rc play(enum trick trick, uint32_t suite)
{
    enum { FRAME = 8 + 16 + 16 };
    uint8_t first[FRAME + 1] = {0}, second[FRAME], copy[FRAME], plain[16] = {0};
    struct pair pair, other;
    enum rc rc = RC_OK;

    pair_init(&pair);
    open_with(&pair, suite);
    pair_init(&other);
    end_create(&other.initiator, true, 30, 0); /* another pair of ephemeral keys */
    end_create(&other.responder, false, 20, 0);
    advance(&other, 3);
    secure_choose_suite(other.initiator.secure, suite);
    secure_choose_suite(other.responder.secure, suite);
    seal(&pair.initiator, plain, sizeof plain, first);
    seal(&pair.initiator, plain, sizeof plain, second);
    memcpy(copy, first, FRAME);
    switch (trick) {
    case REPLAY:
        assert_int_equal(opened(&pair.responder, first, FRAME), RC_OK);
        rc = opened(&pair.responder, copy, FRAME);
        break;
    case REORDER:
    case DROP:
        rc = opened(&pair.responder, second, FRAME);
        break;
    case REFLECT:
        rc = opened(&pair.initiator, first, FRAME);
        break;
    case TRUNCATE:
        rc = opened(&pair.responder, first, FRAME - 1);
        break;
    case EXTEND:
        rc = opened(&pair.responder, first, FRAME + 1);
        break;
    case EMPTY:
        rc = opened(&pair.responder, first, 0);
        break;
    default:
        rc = opened(&other.responder, first, FRAME);
    }
    pair_destroy(&pair);
    pair_destroy(&other);
    return rc;
}

/* Records that are replayed, out of order, sent back, missing, cut or of another session fail. */
static void records_out_of_place_are_refused(void **state)
{
    uint32_t suites[2];

    (void)state;
    for (size_t s = 0; s < suites_here(suites); s++) {
        for (int trick = 0; trick < TRICKS; trick++) {
            bool is_form = trick == TRUNCATE || trick == EXTEND || trick == EMPTY;

            assert_int_equal(play((enum trick)trick, suites[s]), is_form ? RC_FORMAT : RC_AUTH);
        }
    }
}

/* A session that failed on one record opens and seals no other. */
static void nothing_passes_after_a_failure(void **state)
{
    uint8_t good[64], bad[64] = {0}, plain[16] = {0};
    struct pair pair;

    (void)state;
    pair_init(&pair);
    open_with(&pair, secure_suites());
    seal(&pair.initiator, plain, sizeof plain, good);
    assert_int_equal(opened(&pair.responder, bad, secure_record_bytes(16)), RC_FORMAT);
    assert_int_equal(opened(&pair.responder, good, secure_record_bytes(16)), RC_FORMAT);
    assert_int_equal(secure_seal(pair.responder.secure, plain, 16, NULL, 0, good), RC_CLOSED);
    pair_destroy(&pair);
}

/* A record before the handshake is over ends it. */
static void a_record_before_the_handshake_is_over_is_refused(void **state)
{
    uint8_t frame[RECORD_HEADER_BYTES + RECORD_TAG_BYTES] = {0};
    struct pair pair;

    (void)state;
    pair_init(&pair);
    pair_create(&pair);
    advance(&pair, 2);
    assert_int_equal(opened(&pair.responder, frame, sizeof frame), RC_FORMAT);
    pair_destroy(&pair);
}

/* Equal plaintexts never give equal records: the nonce moves with each, and differs each way. */
static void equal_plaintexts_never_look_equal(void **state)
{
    enum { RECORDS = 300, SHOWN = 32 };
    static uint8_t seen[2 * RECORDS][SHOWN];
    uint32_t suites[2];

    (void)state;
    for (size_t s = 0; s < suites_here(suites); s++) {
        size_t count = 0;
        struct pair pair;

        pair_init(&pair);
        open_with(&pair, suites[s]);
        for (size_t i = 0; i < RECORDS; i++) {
            uint8_t frame[8 + 16 + 16], plain[16] = {0};

            seal(&pair.initiator, plain, sizeof plain, frame);
            memcpy(seen[count++], frame + RECORD_HEADER_BYTES, SHOWN);
            seal(&pair.responder, plain, sizeof plain, frame);
            memcpy(seen[count++], frame + RECORD_HEADER_BYTES, SHOWN);
        }
        for (size_t i = 0; i < count; i++) {
            for (size_t j = 0; j < i; j++) {
                assert_memory_not_equal(seen[i], seen[j], 16);
                assert_memory_not_equal(seen[i] + 16, seen[j] + 16, 16);
            }
        }
        pair_destroy(&pair);
    }
}

/* A key seals and opens as many records as it may, then says so; the sender's session stays up. */
static void a_key_that_is_used_up_says_so(void **state)
{
    uint8_t frame[8 + 16 + 16], plain[16] = {0};
    struct pair pair;

    (void)state;
    pair_init(&pair);
    end_create(&pair.initiator, true, 10, 4); /* one more than the other end opens */
    end_create(&pair.responder, false, 20, 3);
    advance(&pair, 3);
    secure_choose_suite(pair.initiator.secure, secure_suites());
    secure_choose_suite(pair.responder.secure, secure_suites());
    for (int i = 0; i < 4; i++) {
        seal(&pair.initiator, plain, sizeof plain, frame);
        assert_int_equal(opened(&pair.responder, frame, sizeof frame), i < 3 ? RC_OK : RC_LIMIT);
    }
    assert_int_equal(secure_seal(pair.initiator.secure, plain, 16, NULL, 0, frame), RC_LIMIT);
    assert_int_equal(secure_state(pair.initiator.secure), SECURE_OPEN);
    pair_destroy(&pair);
}

/* An inner record over the cap is refused however it is split, and uses no nonce. */
static void an_oversize_record_is_refused(void **state)
{
    uint8_t frame[64], plain[16] = {0};
    struct pair pair;

    (void)state;
    pair_init(&pair);
    open_with(&pair, secure_suites());
    assert_int_equal(
        secure_seal(pair.initiator.secure, plain, 16, plain, BULK_BYTES_MAX - 15, frame), RC_LIMIT);
    assert_int_equal(secure_seal(pair.initiator.secure, plain, SIZE_MAX, plain, 2, frame),
                     RC_LIMIT);
    seal(&pair.initiator, plain, sizeof plain, frame);
    assert_int_equal(opened(&pair.responder, frame, secure_record_bytes(16)), RC_OK);
    pair_destroy(&pair);
}

/* Each suite has keys of its own: who is told another suite cannot read. */
static void ends_with_different_suites_do_not_understand_each_other(void **state)
{
    uint8_t frame[8 + 16 + 16], plain[16] = {0};
    struct pair pair;

    (void)state;
    if ((secure_suites() & SUITE_AES256GCM) == 0) skip();
    pair_init(&pair);
    pair_create(&pair);
    advance(&pair, 3);
    secure_choose_suite(pair.initiator.secure, SUITE_CHACHA20POLY1305);
    secure_choose_suite(pair.responder.secure, secure_suites());
    seal(&pair.initiator, plain, sizeof plain, frame);
    assert_int_equal(opened(&pair.responder, frame, sizeof frame), RC_AUTH);
    pair_destroy(&pair);
}

/* The framer's one question is answered from eight bytes, and lengths that lie are refused. */
static void the_size_of_a_frame_is_known_from_eight_bytes(void **state)
{
    uint8_t head[PREFIX_BYTES] = {'G', 'R', 'P', 'V', 1, 1, 64, 0};
    size_t count = 0;

    (void)state;
    assert_int_equal(frame_bytes(head, 1024, &count), RC_OK);
    assert_int_equal(count, 72);
    assert_int_equal(frame_bytes(head, 71, &count), RC_LIMIT);
    store_le16(head + 6, HANDSHAKE_BYTES_MAX - PREFIX_BYTES + 1);
    assert_int_equal(frame_bytes(head, SIZE_MAX, &count), RC_LIMIT);

    memset(head, 0, sizeof head);
    assert_int_equal(frame_bytes(head, 1024, &count), RC_OK);
    assert_int_equal(count, 24);
    store_le32(head, BULK_BYTES_MAX);
    assert_int_equal(frame_bytes(head, SIZE_MAX, &count), RC_OK);
    assert_int_equal(count, secure_record_bytes(BULK_BYTES_MAX));
    assert_int_equal(frame_bytes(head, count - 1, &count), RC_LIMIT);
    store_le32(head, BULK_BYTES_MAX + 1);
    assert_int_equal(frame_bytes(head, SIZE_MAX, &count), RC_LIMIT);
    store_le32(head, UINT32_MAX);
    assert_int_equal(frame_bytes(head, SIZE_MAX, &count), RC_LIMIT);
    memcpy(head, "GET / HT", sizeof head);
    assert_int_equal(frame_bytes(head, SIZE_MAX, &count), RC_FORMAT);
    for (size_t i = 5; i < 8; i++) {
        memset(head, 0, sizeof head);
        head[i] = 1;
        assert_int_equal(frame_bytes(head, SIZE_MAX, &count), RC_FORMAT);
    }
}

/* What is signed under one label is not signed under another, nor with a moved border. */
static void signatures_do_not_cross_labels(void **state)
{
    uint8_t seed[SECRET_BYTES] = {5}, signature[SIGNATURE_BYTES], long_text[SIGNED_BYTES_MAX] = {0};
    struct identity identity;

    (void)state;
    identity_from_seed(seed, &identity);
    identity_sign(&identity, "one", "bytes", 5, signature);
    assert_true(identity_verify(identity.public_key, "one", "bytes", 5, signature));
    assert_false(identity_verify(identity.public_key, "two", "bytes", 5, signature));
    assert_false(identity_verify(identity.public_key, "oneb", "ytes", 4, signature));
    assert_false(identity_verify(identity.public_key, "one", "bytes", 4, signature));
    assert_false(
        identity_verify(identity.public_key, "one", long_text, sizeof long_text, signature));
    signature[0] ^= 1;
    assert_false(identity_verify(identity.public_key, "one", "bytes", 5, signature));
    identity_wipe(&identity);
    for (size_t i = 0; i < SIGN_SECRET_BYTES; i++) {
        assert_int_equal(identity.secret_key[i], 0);
    }
}

/* What the key file writes it reads, with one line end of either kind or none. */
static void key_files_are_read_as_they_are_written(void **state)
{
    uint8_t seed[SECRET_BYTES], key[SECRET_BYTES];
    struct identity made, read;
    char text[KEY_TEXT_MAX];

    (void)state;
    for (size_t i = 0; i < SECRET_BYTES; i++) {
        seed[i] = (uint8_t)(i * 11);
    }
    identity_from_seed(seed, &made);
    identity_format(seed, text, sizeof text);
    assert_int_equal(strlen(text), 20 + 1 + 64 + 1);
    assert_int_equal(identity_parse(text, strlen(text), &read, NULL), RC_OK);
    assert_memory_equal(&made, &read, sizeof made);
    assert_int_equal(identity_parse(text, strlen(text) - 1, &read, NULL), RC_OK);
    memcpy(text + strlen(text) - 1, "\r\n", 3);
    assert_int_equal(identity_parse(text, strlen(text), &read, NULL), RC_OK);
    swarm_key_format(seed, text, sizeof text);
    assert_int_equal(swarm_key_parse(text, strlen(text), key, NULL), RC_OK);
    assert_memory_equal(key, seed, sizeof key);
}

/* A key file with anything else in it is refused, with a reason that holds none of the key. */
static void damaged_key_files_are_refused_with_a_reason(void **state)
{
    static const char *const texts[] = {
        "",
        "\n",
        "hello",
        "grapevine-identity-1",
        "grapevine-identity-1 ",
        "grapevine-identity-2 0011223344556677001122334455667700112233445566770011223344556677",
        "grapevine-swarm-key-1 0011223344556677001122334455667700112233445566770011223344556677",
        "grapevine-identity-1 001122334455667700112233445566770011223344556677001122334455667",
        "grapevine-identity-1 00112233445566770011223344556677001122334455667700112233445566771",
        "grapevine-identity-1 0011223344556677001122334455667700112233445566770011223344556677 ",
        "grapevine-identity-1 0011223344556677001122334455667700112233445566770011223344556677\n\n",
        "grapevine-identity-1  01122334455667700112233445566770011223344556677001122334455667",
        "grapevine-identity-1 0x11223344556677001122334455667700112233445566770011223344556677",
        " grapevine-identity-1 0011223344556677001122334455667700112233445566770011223344556677",
    };
    struct identity identity;
    uint8_t key[SECRET_BYTES];

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++) {
        struct fault why = {""};

        assert_int_equal(identity_parse(texts[i], strlen(texts[i]), &identity, &why), RC_PARSE);
        assert_non_null(strstr(why.text, "identity file"));
        assert_null(strstr(why.text, "112233"));
        assert_null(strchr(why.text, '\n'));
        if (i != 6)
            assert_int_equal(swarm_key_parse(texts[i], strlen(texts[i]), key, &why), RC_PARSE);
    }
}

/* A swarm is its name and key; without a key the name alone decides, and says that it is public. */
static void swarms_are_told_apart_by_name_and_key(void **state)
{
    struct swarm_secret a, b, open_a, open_b;

    (void)state;
    swarm_secret_derive("a", swarm_key, &a);
    swarm_secret_derive("b", swarm_key, &b);
    swarm_secret_derive("a", NULL, &open_a);
    swarm_secret_derive("b", NULL, &open_b);
    assert_false(digest_is_equal(a.run_id, b.run_id));
    assert_true(digest_is_equal(a.run_id, open_a.run_id));
    assert_memory_equal(a.secret, swarm_key, SECRET_BYTES);
    assert_memory_not_equal(open_a.secret, open_b.secret, SECRET_BYTES);
    assert_memory_not_equal(open_a.secret, open_a.run_id.bytes, SECRET_BYTES);
    assert_true(open_a.is_public && !a.is_public);
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

static void print_records(struct golden *golden, struct pair *pair)
{
    static const char inner[] = "sixteen of head.and a tail of it";

    for (int i = 0; i < 4; i++) {
        uint8_t frame[8 + 32 + 16];

        seal(i % 2 == 0 ? &pair->responder : &pair->initiator, inner, 32, frame);
        golden_print(golden, "record %d of the %s\n", i / 2,
                     i % 2 == 0 ? "responder" : "initiator");
        golden_hexdump(golden, frame, sizeof frame);
    }
}

/* The bytes of a whole conversation are those this major version has always had. */
static void the_golden_transcript_is_reproduced(void **state)
{
    static const char path[] = "tests/golden/transcript-1.txt";
    static struct golden golden;
    struct pair pair;

    (void)state;
    pair_init(&pair);
    open_with(&pair, SUITE_CHACHA20POLY1305);
    golden_print(&golden, "H1\n");
    golden_hexdump(&golden, pair.h1, pair.h1_count);
    golden_print(&golden, "H2\n");
    golden_hexdump(&golden, pair.h2, pair.h2_count);
    golden_print(&golden, "H3\n");
    golden_hexdump(&golden, pair.h3, pair.h3_count);
    golden_print(&golden, "session id\n");
    golden_hexdump(&golden, secure_session_id(pair.initiator.secure), SESSION_ID_BYTES);
    print_records(&golden, &pair);
    golden_compare(&golden, path, "transcript");
    pair_destroy(&pair);
    if ((secure_suites() & SUITE_AES256GCM) == 0) return;
    memset(&golden, 0, sizeof golden);
    open_with(&pair, secure_suites());
    print_records(&golden, &pair);
    golden_compare(&golden, path, "aes");
    pair_destroy(&pair);
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
        cmocka_unit_test(records_come_out_as_they_went_in),
        cmocka_unit_test(a_changed_bit_anywhere_in_a_record_is_noticed),
        cmocka_unit_test(records_out_of_place_are_refused),
        cmocka_unit_test(nothing_passes_after_a_failure),
        cmocka_unit_test(a_record_before_the_handshake_is_over_is_refused),
        cmocka_unit_test(equal_plaintexts_never_look_equal),
        cmocka_unit_test(a_key_that_is_used_up_says_so),
        cmocka_unit_test(an_oversize_record_is_refused),
        cmocka_unit_test(ends_with_different_suites_do_not_understand_each_other),
        cmocka_unit_test(the_size_of_a_frame_is_known_from_eight_bytes),
        cmocka_unit_test(signatures_do_not_cross_labels),
        cmocka_unit_test(key_files_are_read_as_they_are_written),
        cmocka_unit_test(damaged_key_files_are_refused_with_a_reason),
        cmocka_unit_test(swarms_are_told_apart_by_name_and_key),
        cmocka_unit_test(a_session_that_cannot_be_made_is_null),
        cmocka_unit_test(the_golden_transcript_is_reproduced),
    };

    if (secure_start() != RC_OK) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
