/* The bounded walk over msgpack, against handmade bombs and against msgpack-c's own decoder. */
#include "tests/check.h"

#include "base/check.h"
#include "base/rng.h"
#include "gossip/wire/scan.h"

#include <msgpack.h>

static enum rc scan(const char *bytes, size_t count)
{
    return scan_check((const uint8_t *)bytes, count);
}

#define SCAN(literal) scan("" literal, sizeof(literal) - 1)

/* Every kind of object there is, but extensions, passes when it is whole. */
static void whole_objects_pass(void **state)
{
    (void)state;
    assert_int_equal(SCAN("\x00"), RC_OK);
    assert_int_equal(SCAN("\x7f"), RC_OK);
    assert_int_equal(SCAN("\xe0"), RC_OK);
    assert_int_equal(SCAN("\xc0"), RC_OK);
    assert_int_equal(SCAN("\xc2"), RC_OK);
    assert_int_equal(SCAN("\xc3"), RC_OK);
    assert_int_equal(SCAN("\xcc\x80"), RC_OK);
    assert_int_equal(SCAN("\xcd\x01\x00"), RC_OK);
    assert_int_equal(SCAN("\xce\x00\x01\x00\x00"), RC_OK);
    assert_int_equal(SCAN("\xcf\x00\x00\x00\x01\x00\x00\x00\x00"), RC_OK);
    assert_int_equal(SCAN("\xd0\x80"), RC_OK);
    assert_int_equal(SCAN("\xd1\x80\x00"), RC_OK);
    assert_int_equal(SCAN("\xd2\x80\x00\x00\x00"), RC_OK);
    assert_int_equal(SCAN("\xd3\x80\x00\x00\x00\x00\x00\x00\x00"), RC_OK);
    assert_int_equal(SCAN("\xca\x3f\x80\x00\x00"), RC_OK);
    assert_int_equal(SCAN("\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00"), RC_OK);
    assert_int_equal(SCAN("\xa0"), RC_OK);
    assert_int_equal(SCAN("\xa2hi"), RC_OK);
    assert_int_equal(SCAN("\xd9\x02hi"), RC_OK);
    assert_int_equal(SCAN("\xda\x00\x02hi"), RC_OK);
    assert_int_equal(SCAN("\xdb\x00\x00\x00\x02hi"), RC_OK);
    assert_int_equal(SCAN("\xc4\x02hi"), RC_OK);
    assert_int_equal(SCAN("\xc5\x00\x02hi"), RC_OK);
    assert_int_equal(SCAN("\xc6\x00\x00\x00\x02hi"), RC_OK);
    assert_int_equal(SCAN("\x90"), RC_OK);
    assert_int_equal(SCAN("\x92\x01\xc0"), RC_OK);
    assert_int_equal(SCAN("\xdc\x00\x01\x05"), RC_OK);
    assert_int_equal(SCAN("\xdd\x00\x00\x00\x01\x05"), RC_OK);
    assert_int_equal(SCAN("\x82\x00\x01\x02\x80"), RC_OK);
    assert_int_equal(SCAN("\xde\x00\x01\x05\x06"), RC_OK);
    assert_int_equal(SCAN("\xdf\x00\x00\x00\x01\x05\x06"), RC_OK);
}

/* Values come out with their sign and width. */
static void heads_tell_their_values(void **state)
{
    struct scan_item item;

    (void)state;
    assert_int_equal(scan_head((const uint8_t *)"\xff", 1, &item), RC_OK);
    assert_true(item.kind == SCAN_INT && item.value == UINT64_MAX && item.head_bytes == 1);
    assert_int_equal(scan_head((const uint8_t *)"\xd1\xff\xfe", 3, &item), RC_OK);
    assert_true(item.kind == SCAN_INT && item.value == UINT64_MAX - 1 && item.head_bytes == 3);
    assert_int_equal(scan_head((const uint8_t *)"\xd3\x7f\xff\xff\xff\xff\xff\xff\xff", 9, &item),
                     RC_OK);
    assert_true(item.kind == SCAN_INT && item.value == INT64_MAX);
    assert_int_equal(scan_head((const uint8_t *)"\xcf\xff\xff\xff\xff\xff\xff\xff\xff", 9, &item),
                     RC_OK);
    assert_true(item.kind == SCAN_UINT && item.value == UINT64_MAX);
    assert_int_equal(scan_head((const uint8_t *)"\xc3", 1, &item), RC_OK);
    assert_true(item.kind == SCAN_BOOL && item.value == 1);
    assert_int_equal(scan_head((const uint8_t *)"\xde\x01\x02", 3, &item), RC_OK);
    assert_true(item.kind == SCAN_MAP && item.value == 0x102);
}

/* Bytes missing or left over, codes nobody uses and extensions are refused. */
static void cut_overlong_and_unknown_objects_are_refused(void **state)
{
    (void)state;
    assert_int_equal(SCAN(""), RC_FORMAT);
    assert_int_equal(SCAN("\x00\x00"), RC_FORMAT);
    assert_int_equal(SCAN("\xcd\x01"), RC_FORMAT);
    assert_int_equal(SCAN("\xa2h"), RC_FORMAT);
    assert_int_equal(SCAN("\xc4\x02h"), RC_FORMAT);
    assert_int_equal(SCAN("\xc6\xff\xff\xff\xff"), RC_FORMAT);
    assert_int_equal(SCAN("\x91"), RC_FORMAT);
    assert_int_equal(SCAN("\x81\x01"), RC_FORMAT);
    assert_int_equal(SCAN("\xc1"), RC_FORMAT);
    assert_int_equal(SCAN("\xc7\x01\x05z"), RC_FORMAT);
    assert_int_equal(SCAN("\xc8\x00\x01\x05z"), RC_FORMAT);
    assert_int_equal(SCAN("\xc9\x00\x00\x00\x01\x05z"), RC_FORMAT);
    for (int code = 0xd4; code <= 0xd8; code++) {
        uint8_t fixed[18] = {(uint8_t)code};

        for (size_t count = 1; count <= sizeof fixed; count++) {
            assert_int_equal(scan_check(fixed, count), RC_FORMAT);
        }
    }
}

/* The five bytes that make the library reserve gigabytes, and the 155 that make it reserve more. */
static void bombs_are_refused(void **state)
{
    uint8_t nested[155];

    (void)state;
    assert_int_equal(SCAN("\xdd\xff\xff\xff\xff"), RC_FORMAT);
    assert_int_equal(SCAN("\xdf\x0f\xff\xff\xff"), RC_FORMAT);
    assert_int_equal(SCAN("\xdf\xff\xff\xff\xff"), RC_FORMAT);
    assert_int_equal(SCAN("\xdc\xff\xff\x00"), RC_FORMAT);
    for (size_t i = 0; i < sizeof nested; i++) {
        nested[i] = i % 5 == 0 ? 0xdd : (uint8_t)(i % 5 == 4 ? 100 : 0);
    }
    assert_int_equal(scan_check(nested, sizeof nested), RC_LIMIT);
}

/* SCAN_DEPTH_MAX containers in one another pass, one more does not; width costs no depth. */
static void depth_is_bounded(void **state)
{
    uint8_t nested[SCAN_DEPTH_MAX + 2];

    (void)state;
    memset(nested, 0x91, sizeof nested);
    nested[SCAN_DEPTH_MAX] = 0xc0;
    assert_int_equal(scan_check(nested, SCAN_DEPTH_MAX + 1), RC_OK);
    nested[SCAN_DEPTH_MAX - 1] = 0x90;
    assert_int_equal(scan_check(nested, SCAN_DEPTH_MAX), RC_OK);
    memset(nested, 0x91, sizeof nested);
    nested[SCAN_DEPTH_MAX + 1] = 0xc0;
    assert_int_equal(scan_check(nested, SCAN_DEPTH_MAX + 2), RC_LIMIT);
    assert_int_equal(SCAN("\x93\x90\x80\x91\x91\x90"), RC_OK);
}

/* SCAN_OBJECTS_MAX objects pass, one more does not. */
static void the_count_of_objects_is_bounded(void **state)
{
    static uint8_t wide[3 + SCAN_OBJECTS_MAX];

    (void)state;
    wide[0] = 0xdc;
    wide[1] = (SCAN_OBJECTS_MAX - 1) >> 8;
    wide[2] = (SCAN_OBJECTS_MAX - 1) & 0xff;
    assert_int_equal(scan_check(wide, 3 + SCAN_OBJECTS_MAX - 1), RC_OK);
    wide[1] = SCAN_OBJECTS_MAX >> 8;
    wide[2] = SCAN_OBJECTS_MAX & 0xff;
    assert_int_equal(scan_check(wide, 3 + SCAN_OBJECTS_MAX), RC_LIMIT);
}

/* One object is stepped over exactly, whatever follows. */
static void skipping_stops_after_one_object(void **state)
{
    size_t bytes = 0;

    (void)state;
    assert_int_equal(scan_skip((const uint8_t *)"\x92\x01\xa1x\x07", 5, &bytes), RC_OK);
    assert_int_equal(bytes, 4);
    assert_int_equal(scan_skip((const uint8_t *)"\x92\x01", 2, &bytes), RC_FORMAT);
}

/* Random bytes that lean towards containers: what passes, msgpack-c decodes to the last byte. */
static void what_passes_the_library_decodes_fully(void **state)
{
    static const uint8_t leaning[] = {0x80, 0x81, 0x82, 0x90, 0x91, 0x93, 0xa1, 0xc4, 0xca,
                                      0xcc, 0xd0, 0xd9, 0xdc, 0xde, 0xc0, 0x01, 0x02, 0x00};
    size_t accepted = 0;

    (void)state;
    FOR_EACH_SEED (seed, 20000) {
        uint8_t bytes[24];
        struct rng rng;
        size_t count;

        rng_init(&rng, seed, 1);
        count = 1 + (size_t)rng_below(&rng, sizeof bytes);
        for (size_t i = 0; i < count; i++) {
            bytes[i] = rng_below(&rng, 3) == 0 ? (uint8_t)rng_u64(&rng)
                                               : leaning[rng_below(&rng, sizeof leaning)];
        }
        if (scan_check(bytes, count) == RC_OK) {
            msgpack_unpacked unpacked;
            msgpack_unpack_return got;
            size_t off = 0;

            msgpack_unpacked_init(&unpacked);
            got = msgpack_unpack_next(&unpacked, (const char *)bytes, count, &off);
            check_seed(seed, got == MSGPACK_UNPACK_SUCCESS);
            check_seed(seed, off == count);
            msgpack_unpacked_destroy(&unpacked);
            accepted++;
        }
    }
    if (getenv("SEED") == NULL) assert_true(accepted > sanitized_share(500));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_objects_pass),
        cmocka_unit_test(heads_tell_their_values),
        cmocka_unit_test(cut_overlong_and_unknown_objects_are_refused),
        cmocka_unit_test(bombs_are_refused),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(the_count_of_objects_is_bounded),
        cmocka_unit_test(skipping_stops_after_one_object),
        cmocka_unit_test(what_passes_the_library_decodes_fully),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
