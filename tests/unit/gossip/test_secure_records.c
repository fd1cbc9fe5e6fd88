/* Sealed records, their framing, and the golden transcript of a whole conversation. */
#include "tests/unit/gossip/secure_pair.h"

#include "base/bytes.h"
#include "base/check.h"
#include "tests/golden.h"

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
    assert_int_equal(secure_session(pair.initiator.secure)->state, SECURE_OPEN);
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
    if ((secure_suites() & SUITE_AES256GCM) == 0) {
        puts("skipped: this processor has no AES-256-GCM");
        skip();
    }
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
    golden_hexdump(&golden, secure_session(pair.initiator.secure)->session_id, SESSION_ID_BYTES);
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
        cmocka_unit_test(the_golden_transcript_is_reproduced),
    };

    if (secure_start() != RC_OK) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
