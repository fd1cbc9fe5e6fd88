/* framer: any cutting of a stream gives the same frames, and memory stays within its bounds. */
#include "tests/check.h"
#include "tests/framer.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "gossip/secure/secure.h"

enum { STREAM_BYTES_MAX = 1 << 20, FRAME_MAX = 200000 };

static size_t put_record(uint8_t *at, size_t inner, uint8_t fill)
{
    memset(at, 0, RECORD_HEADER_BYTES);
    store_le32(at, (uint32_t)inner);
    memset(at + RECORD_HEADER_BYTES, fill, inner + RECORD_TAG_BYTES);
    return secure_record_bytes(inner);
}

/* Bytes in as the framer asks for them, at most `step` at a time; frames out, checked by the
 * caller. */
static size_t feed(struct framer *framer, const uint8_t *bytes, size_t count, size_t step)
{
    uint8_t *room;
    size_t room_bytes;

    assert_int_equal(framer_room(framer, &room, &room_bytes), RC_OK);
    assert_true(room_bytes > 0);
    if (step > room_bytes) step = room_bytes;
    if (step > count) step = count;
    memcpy(room, bytes, step);
    framer_fill(framer, step);
    return step;
}

static void any_cutting_of_the_stream_gives_the_same_frames(void **state)
{
    /* Frames of random sizes, cut at random places, come out whole, in order, once; the buffer
     * never exceeds one frame and one read. */
    uint8_t *stream = malloc(STREAM_BYTES_MAX);

    (void)state;
    assert_non_null(stream);
    FOR_EACH_SEED (seed, 60) {
        struct framer framer;
        struct rng rng;
        size_t sizes[64], total = 0, frames = 0, next = 0;

        rng_init(&rng, seed, 1);
        framer_init(&framer, FRAME_MAX);
        while (frames < 64) {
            size_t inner = rng_below(&rng, rng_below(&rng, 4) == 0 ? 150000 : 300);

            if (total + secure_record_bytes(inner) > STREAM_BYTES_MAX) break;
            sizes[frames] = put_record(stream + total, inner, (uint8_t)frames);
            total += sizes[frames++];
        }
        for (size_t at = 0; at < total;) {
            uint8_t *frame;
            size_t count;

            at += feed(&framer, stream + at, total - at, 1 + rng_below(&rng, 100000));
            for (;;) {
                assert_int_equal(framer_next(&framer, &frame, &count), RC_OK);
                if (frame == NULL) break;
                check_seed(seed, next < frames && count == sizes[next]);
                check_seed(seed, frame[count - 1] == (uint8_t)next);
                check_seed(seed, load_le32(frame) == sizes[next] - secure_record_bytes(0));
                memset(frame, 0xff, count); /* the reader may write there */
                next++;
            }
            check_seed(seed, framer_capacity(&framer) <= FRAME_MAX + FRAMER_BYTES_SMALL);
        }
        check_seed(seed, next == frames);
        assert_int_equal(framer_held(&framer), 0);
        framer_deinit(&framer);
    }
    free(stream);
    assert_int_equal(mem_blocks(), 0);
}

static void a_frame_at_the_limit_passes_and_one_above_ends_the_stream(void **state)
{
    /* frame_max counts the whole frame. */
    uint8_t bytes[2048];
    uint8_t *frame;
    size_t count;

    (void)state;
    for (int excess = 0; excess < 2; excess++) {
        struct framer framer;

        framer_init(&framer, HANDSHAKE_BYTES_MAX);
        put_record(bytes, HANDSHAKE_BYTES_MAX - secure_record_bytes(0) + (size_t)excess, 1);
        (void)feed(&framer, bytes, sizeof bytes, HANDSHAKE_BYTES_MAX);
        assert_int_equal(framer_next(&framer, &frame, &count), excess == 0 ? RC_OK : RC_LIMIT);
        if (excess == 0) {
            assert_int_equal(count, HANDSHAKE_BYTES_MAX);
        } else {
            assert_null(frame);
            assert_int_equal(framer_next(&framer, &frame, &count), RC_LIMIT); /* and stays so */
        }
        framer_deinit(&framer);
    }
}

static void claims_alone_cost_no_memory(void **state)
{
    /* A header that claims more than frame_max leaves the small buffer small. */
    static const uint8_t claim[PREFIX_BYTES] = {0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 0};
    struct framer framer;
    uint8_t *frame, *room;
    size_t count;

    (void)state;
    framer_init(&framer, FRAME_MAX);
    (void)feed(&framer, claim, sizeof claim, sizeof claim);
    assert_int_equal(framer_next(&framer, &frame, &count), RC_LIMIT);
    assert_int_equal(framer_room(&framer, &room, &count), RC_OK);
    assert_int_equal(framer_capacity(&framer), FRAMER_BYTES_SMALL);
    framer_deinit(&framer);
}

static void a_large_frame_may_be_kept_and_is_gone_otherwise(void **state)
{
    /* It has memory of its own, which goes with the next call, unless somebody holds it. */
    uint8_t *bytes = malloc(FRAME_MAX);
    struct framer framer;
    struct blob *kept = NULL;

    (void)state;
    assert_non_null(bytes);
    framer_init(&framer, FRAME_MAX);
    for (int turn = 0; turn < 2; turn++) {
        size_t total = put_record(bytes, 100000, (uint8_t)turn), at = 0, count = 0;
        uint8_t *frame = NULL;

        if (turn == 0) assert_null(framer_keep(&framer));
        while (frame == NULL) {
            at += feed(&framer, bytes + at, total - at, FRAME_MAX);
            assert_int_equal(framer_next(&framer, &frame, &count), RC_OK);
        }
        if (turn == 0) kept = framer_keep(&framer);
        assert_memory_equal(frame, bytes, total);
    }
    assert_true(framer_capacity(&framer) > 100000);
    for (size_t at = 0, count = 0; at < 2; at++) {
        uint8_t *frame;

        assert_int_equal(framer_next(&framer, &frame, &count), RC_OK);
        assert_null(frame);
    }
    assert_int_equal(framer_capacity(&framer), FRAMER_BYTES_SMALL);
    assert_int_equal(kept->count, secure_record_bytes(100000));
    assert_int_equal(kept->bytes[kept->count - 1], 0); /* of the first turn */
    blob_unref(kept);
    framer_deinit(&framer);
    assert_int_equal(mem_blocks(), 0);
    free(bytes);
}

static void a_small_frame_cannot_be_kept(void **state)
{
    uint8_t bytes[600], *frame = NULL;
    size_t total = put_record(bytes, 500, 1), count;
    struct framer framer;

    (void)state;
    framer_init(&framer, FRAME_MAX);
    assert_int_equal(feed(&framer, bytes, total, total), total);
    assert_int_equal(framer_next(&framer, &frame, &count), RC_OK);
    assert_non_null(frame);
    assert_null(framer_keep(&framer));
    framer_deinit(&framer);
}

static void a_lack_of_memory_is_said_and_does_no_harm(void **state)
{
    /* Both the first buffer and its growth may fail; the stream goes on afterwards. */
    uint8_t bytes[40000];
    struct framer framer;
    uint8_t *frame, *room;
    size_t count, at, total = put_record(bytes, 39000, 9);

    (void)state;
    framer_init(&framer, FRAME_MAX);
    mem_fail_after(0);
    assert_int_equal(framer_room(&framer, &room, &count), RC_NOMEM);
    at = feed(&framer, bytes, 100, 100);
    assert_int_equal(framer_next(&framer, &frame, &count), RC_OK);
    mem_fail_after(0);
    assert_int_equal(framer_room(&framer, &room, &count), RC_NOMEM);
    mem_fail_after(UINT64_MAX);
    for (frame = NULL; frame == NULL;) {
        at += feed(&framer, bytes + at, total - at, total);
        assert_int_equal(framer_next(&framer, &frame, &count), RC_OK);
    }
    assert_memory_equal(frame, bytes, total);
    framer_deinit(&framer);
}

/* A stranger holds no more than it may send; once it may send more, what is here stays. */
static void a_stranger_holds_one_kibibyte(void **state)
{
    static const size_t sizes[] = {100, 900, 6000, 40000};
    struct framer framer;
    uint8_t *bytes = malloc(FRAME_MAX), *frame;
    size_t total = 0, at, count;

    (void)state;
    assert_non_null(bytes);
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        total += put_record(bytes + total, sizes[i], (uint8_t)i);
    }
    framer_init(&framer, HANDSHAKE_BYTES_MAX);
    assert_int_equal(framer_capacity(&framer), 0);
    at = feed(&framer, bytes, total, total);
    assert_int_equal(at, HANDSHAKE_BYTES_MAX);
    assert_int_equal(framer_capacity(&framer), HANDSHAKE_BYTES_MAX);
    assert_int_equal(framer_next(&framer, &frame, &count), RC_OK);
    framer.frame_max = FRAME_MAX; /* it has proved who it is */
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        while (i > 0 && framer_next(&framer, &frame, &count) == RC_OK && frame == NULL) {
            assert_true(at < total);
            at += feed(&framer, bytes + at, total - at, total);
        }
        assert_int_equal(count, secure_record_bytes(sizes[i]));
        assert_int_equal(frame[count - 1], i);
    }
    framer_deinit(&framer);
    free(bytes);
    assert_int_equal(mem_blocks(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stranger_holds_one_kibibyte),
        cmocka_unit_test(any_cutting_of_the_stream_gives_the_same_frames),
        cmocka_unit_test(a_frame_at_the_limit_passes_and_one_above_ends_the_stream),
        cmocka_unit_test(claims_alone_cost_no_memory),
        cmocka_unit_test(a_large_frame_may_be_kept_and_is_gone_otherwise),
        cmocka_unit_test(a_small_frame_cannot_be_kept),
        cmocka_unit_test(a_lack_of_memory_is_said_and_does_no_harm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
