/* recorder and points: what is kept of rounds and curves is bounded, and the newest is there. */
#include "tests/check.h"

#include "base/json.h"
#include "base/mem.h"
#include "peer/round/recorder.h"
#include "peer/watch/points.h"

#include <math.h>
#include <stdio.h>

static void the_last_rounds_are_kept(void **state)
{
    /* Proves: newest first, the oldest go, and reasons are counted by their words. */
    (void)state;
    static const char lost[] = "the link was lost", same[] = "the link was lost";
    struct recorder recorder = {.count = 0};

    assert_null(recorder_at(&recorder, 0));
    for (uint32_t i = 0; i < 3 * RECORDER_ROUNDS; i++) {
        recorder_add(&recorder, (struct round_record){.members = i,
                                                      .reason = i % 3 == 0   ? lost
                                                                : i % 3 == 1 ? same
                                                                             : NULL});
    }
    for (uint32_t i = 0; i < RECORDER_ROUNDS; i++) {
        assert_int_equal(recorder_at(&recorder, i)->members, 3 * RECORDER_ROUNDS - 1 - i);
    }
    assert_null(recorder_at(&recorder, RECORDER_ROUNDS));
    assert_int_equal(recorder.reasons[0].count, 2 * RECORDER_ROUNDS);
    assert_null(recorder.reasons[1].reason);
}

static void more_reasons_than_places_do_no_harm(void **state)
{
    (void)state;
    static char words[RECORDER_REASONS + 3][16];
    struct recorder recorder = {.count = 0};

    for (int i = 0; i < RECORDER_REASONS + 3; i++) {
        (void)snprintf(words[i], sizeof words[i], "r%d", i);
        recorder_add(&recorder, (struct round_record){.reason = words[i]});
    }
    assert_string_equal(recorder.reasons[RECORDER_REASONS - 1].reason, words[RECORDER_REASONS - 1]);
    assert_int_equal(recorder.count, RECORDER_REASONS + 3);
}

static void a_long_run_is_thinned(void **state)
{
    /* Proves: however many reports there are, at most POINTS_MAX points are kept, in order, evenly,
     * from the first on; what is not known is null. */
    (void)state;
    struct points *points = mem_alloc(sizeof *points);
    struct json *json;
    double t, before = -1, step = 0;
    size_t count;

    assert_non_null(points);
    *points = (struct points){.count = 0};
    for (uint32_t i = 0; i < 10 * POINTS_MAX; i++) {
        points_add(points, &(struct node_report){.t_s = i, .loss = (double)NAN, .rounds_ok = i});
    }
    json = points_json(points);
    count = json_count(json_get(json, "t"));
    assert_true(count <= POINTS_MAX && count > POINTS_MAX / 2);
    assert_int_equal(json_count(json_get(json, "rounds_ok")), count);
    for (size_t i = 0; i < count; i++) {
        assert_true(json_real_of(json_at(json_get(json, "t"), i), &t));
        if (i == 1) step = t - before;
        assert_true(i == 0 ? t < 0.5 : t - before > 0.5 && t - before < 2 * step + 0.5);
        before = t;
        assert_false(json_real_of(json_at(json_get(json, "loss"), i), &t));
    }
    assert_true(before > 10 * POINTS_MAX - 2 * step - 1);
    json_destroy(json);
    mem_free(points);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_rounds_are_kept),
        cmocka_unit_test(more_reasons_than_places_do_no_harm),
        cmocka_unit_test(a_long_run_is_thinned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
