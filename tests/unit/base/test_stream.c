/* Copies past the cache are copies. */
#include "tests/check.h"

#include "base/stream.h"

#include <float.h>
#include <math.h>

enum { VALUES = 200 };

static void every_part_is_copied_and_nothing_else(void **state)
{
    (void)state;
    /* Whatever the length and the place: lines are not copied in part by streaming. */
    static _Alignas(64) float from[VALUES + 16], to[VALUES + 16];

    for (size_t i = 0; i < VALUES + 16; i++) {
        from[i] = (float)(i + 1);
    }
    for (size_t at = 0; at < 17; at++) {
        for (size_t count = 0; count + at <= VALUES; count += 7) {
            memset(to, 0, sizeof to);
            stream_copy(to + at, from + 3, count);
            for (size_t i = 0; i < VALUES + 16; i++) {
                bool is_in = i >= at && i < at + count;

                assert_true(to[i] == (is_in ? from[3 + i - at] : 0));
            }
        }
    }
}

static void what_is_not_finite_is_told_of(void **state)
{
    (void)state;
    /* Wherever it is, and all is copied; the largest numbers are finite. */
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    static _Alignas(64) float from[VALUES], to[VALUES];

    for (size_t i = 0; i < VALUES; i++) {
        from[i] = i % 2 == 0 ? FLT_MAX : -FLT_MIN / 2;
    }
    for (int streams = 0; streams < 2; streams++) {
        assert_true(stream_copy_finite(to, from, VALUES, streams != 0));
        for (size_t i = 0; i < VALUES; i++) {
            float kept = from[i];

            from[i] = bad[i % 4];
            assert_false(stream_copy_finite(to, from, VALUES, streams != 0));
            assert_memory_equal(to, from, sizeof to);
            assert_false(stream_copy_finite(to, from, i + 1, streams != 0));
            assert_true(stream_copy_finite(to, from, i, streams != 0));
            from[i] = kept;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_part_is_copied_and_nothing_else),
        cmocka_unit_test(what_is_not_finite_is_told_of),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
