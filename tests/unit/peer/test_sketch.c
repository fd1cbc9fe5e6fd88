/* Sketches: what is near and what is far, and whom to believe. */
#include "tests/check.h"

#include "base/rng.h"
#include "peer/download/sketch.h"

#include <math.h>
#include <stdlib.h>

enum { VALUES = 20000 };

static float *plane(uint64_t seed, double scale, double noise)
{
    float *values = malloc(VALUES * sizeof *values);
    struct rng model, apart;

    rng_init(&model, 1, 0);
    rng_init(&apart, seed, 1);
    for (size_t i = 0; i < VALUES; i++) {
        values[i] = (float)(scale * rng_normal(&model) + noise * rng_normal(&apart));
    }
    return values;
}

static struct sketch sketch_of(uint64_t seed, double scale, double noise)
{
    float *values = plane(seed, scale, noise);
    struct sketch sketch;

    sketch_make(values, VALUES, 77, &sketch);
    free(values);
    return sketch;
}

static struct sketch_answer member(uint64_t seed, double scale, uint64_t round, double moved)
{
    return (struct sketch_answer){.sketch = sketch_of(seed, scale, 0.01),
                                  .buffers = sketch_of(seed, scale, 0.3),
                                  .round = round,
                                  .moved = moved,
                                  .moments = moved};
}

/* Members 1 % apart that move 2 % of the model's norm a round. */
static enum sketch_verdict judged(double scale, double noise, uint64_t round, size_t answers)
{
    struct sketch own = sketch_of(9, scale, noise);
    struct sketch_answer members[SKETCH_ANSWERS_MAX];

    for (size_t i = 0; i < SKETCH_ANSWERS_MAX; i++) {
        members[i] = member(i + 1, 1, 100, 0.02 * sqrt(VALUES));
    }
    return sketch_judge(&own, round, members, answers).verdict;
}

/* What members hold fits, also if a little older; another model, a flipped sign, another scale, or
 * zeros do not. */
static void only_what_members_hold_fits(void **state)
{
    (void)state;
    assert_int_equal(judged(1, 0.01, 100, 3), SKETCH_FITS);
    assert_int_equal(judged(1, 0.01, 100, 2), SKETCH_FITS);
    assert_int_equal(judged(1, 0.3, 100, 3), SKETCH_REFUSED);
    assert_int_equal(judged(1, 0.3, 80, 3), SKETCH_FITS); /* twenty rounds old */
    assert_int_equal(judged(-1, 0.01, 100, 3), SKETCH_REFUSED);
    assert_int_equal(judged(1.5, 0.01, 100, 3), SKETCH_REFUSED);
    assert_int_equal(judged(1000, 0.01, 100, 3), SKETCH_REFUSED);
    assert_int_equal(judged(0, 0, 100, 3), SKETCH_REFUSED);
    assert_int_equal(judged(0, 1, 100, 3), SKETCH_REFUSED);
    assert_int_equal(judged(-1, 0.01, 100, 1), SKETCH_UNCHECKED);
}

/* One liar among three members convicts nobody and clears nobody. */
static void one_liar_decides_nothing(void **state)
{
    (void)state;
    for (int is_honest = 0; is_honest < 2; is_honest++) {
        struct sketch own = sketch_of(9, is_honest ? 1 : -1, 0.01);
        struct sketch_answer members[] = {member(1, 1, 100, 0.5), member(2, 1, 100, 0.5),
                                          member(3, -1, UINT64_MAX, 1e30)};

        assert_int_equal(sketch_judge(&own, 100, members, 3).verdict,
                         is_honest ? SKETCH_FITS : SKETCH_REFUSED);
        assert_int_equal(sketch_judge_buffers(&own, members, 3).verdict,
                         is_honest ? SKETCH_FITS : SKETCH_REFUSED);
        assert_true(sketch_moments(members, 3) == 0.5);
    }
}

/* Nor does one beside an honest member: both must agree, and what one says of itself widens
 * nothing. */
static void one_of_two_decides_nothing(void **state)
{
    (void)state;
    for (int is_honest = 0; is_honest < 2; is_honest++) {
        struct sketch own = sketch_of(9, is_honest ? 1 : -1, 0.01);
        struct sketch_answer members[] = {member(1, 1, 100, 0.5), member(3, -1, 100, 1e30)};
        struct sketch_opinion opinion = sketch_judge(&own, 100, members, 2);

        assert_int_equal(opinion.verdict, SKETCH_REFUSED);
        assert_int_equal(opinion.agreed, 1);
        assert_int_equal(sketch_judge_buffers(&own, members, 2).verdict, SKETCH_REFUSED);
        assert_true(sketch_moments(members, 2) == 0.5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_members_hold_fits),
        cmocka_unit_test(one_liar_decides_nothing),
        cmocka_unit_test(one_of_two_decides_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
