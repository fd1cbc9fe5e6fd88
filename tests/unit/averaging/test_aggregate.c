/* Rules in place of the mean where members may lie: golden values, breakdown points, ties, names.
 */
#include "tests/check.h"

#include "averaging/aggregate/aggregate.h"
#include "base/check.h"
#include "base/norm.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

enum { VALUES_MAX = 200 };

static struct {
    float values[AGGREGATE_ROWS_MAX][VALUES_MAX];
} table;

static void close_to(float value, double wanted)
{
    if (fabs((double)value - wanted) > 1e-5) fail_msg("%.8f, not %.8f", (double)value, wanted);
}

static struct aggregate_rows rows_of(uint32_t members, size_t count)
{
    struct aggregate_rows rows = {.members = members, .count = count};

    for (uint32_t k = 0; k < members; k++) {
        rows.values[k] = table.values[k];
        rows.weights[k] = 1;
    }
    return rows;
}

/* (1, 1), (1.2, 0.8), (0.9, 1.1), (10, -10), (1.1, 1). */
static struct aggregate_rows golden(void)
{
    static const float values[5][2] = {{1, 1}, {1.2f, 0.8f}, {0.9f, 1.1f}, {10, -10}, {1.1f, 1}};

    for (uint32_t k = 0; k < 5; k++) {
        memcpy(table.values[k], values[k], sizeof values[k]);
    }
    return rows_of(5, 2);
}

static void draw(struct rng *rng, uint32_t members, size_t count)
{
    for (uint32_t k = 0; k < members; k++) {
        for (size_t i = 0; i < count; i++) {
            table.values[k][i] = (float)rng_normal(rng);
        }
    }
}

static void each_rule_has_its_golden_values(void **state)
{
    (void)state;
    struct aggregate_rows rows = golden();
    float out[2];

    assert_int_equal(aggregate_median.combine(&rows, UINT32_MAX, out), 4);
    close_to(out[0], 1.1);
    close_to(out[1], 1.0);
    assert_int_equal(aggregate_trim.combine(&rows, 1, out), 2);
    close_to(out[0], 1.1);
    close_to(out[1], 2.8 / 3);
    /* Scores 0.03, 0.13, 0.07, 394.29 and 0.06: the first is the least, and all but the fourth. */
    assert_int_equal(aggregate_krum.combine(&rows, 1, out), 4);
    close_to(out[0], 1);
    close_to(out[1], 1);
    assert_int_equal(aggregate_multi_krum.combine(&rows, 1, out), 1);
    close_to(out[0], 4.2 / 4);
    close_to(out[1], 3.9 / 4);
}

static void centred_clipping_goes_its_golden_way(void **state)
{
    (void)state;
    /* Radius 0.5 from (1, 1): (1.10332, 0.902604), (1.12389, 0.883043), and once more. */
    static const double way[2][2] = {{1.10332, 0.902604}, {1.12389, 0.883043}};
    static const float from[2] = {1, 1};
    struct aggregate_rows rows = golden();
    double at[2] = {1, 1};
    float out[2];

    for (int step = 0; step < 3; step++) {
        double moved[2] = {0, 0};

        for (uint32_t k = 0; k < 5; k++) {
            double a = (double)rows.values[k][0] - at[0], b = (double)rows.values[k][1] - at[1];
            double pull = fmin(1, 0.5 / fmax(sqrt(a * a + b * b), 1e-30)) / 5;

            moved[0] += pull * a;
            moved[1] += pull * b;
        }
        at[0] += moved[0];
        at[1] += moved[1];
        if (step == 2) continue;
        assert_true(fabs(at[0] - way[step][0]) < 1e-5 && fabs(at[1] - way[step][1]) < 1e-5);
    }
    rows.centre = from;
    rows.radius = 0.5f;
    assert_int_equal(aggregate_centered_clip.combine(&rows, 0, out), 1);
    close_to(out[0], at[0]);
    close_to(out[1], at[1]);
    rows.radius = 1e30f; /* the mean, after one step */
    assert_int_equal(aggregate_centered_clip.combine(&rows, 0, out), 0);
    close_to(out[0], 14.2 / 5);
    close_to(out[1], -6.1 / 5);
    rows.radius = 0;
    (void)aggregate_centered_clip.combine(&rows, 0, out);
    assert_memory_equal(out, from, sizeof out);
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

static void values_are_ranked_whatever_their_number(void **state)
{
    (void)state;
    /* Every number of members, lengths around a block's, every number of liars, against a sort. */
    static const size_t counts[] = {1, 63, 64, 65, VALUES_MAX};
    struct rng rng;
    float out[VALUES_MAX];

    rng_init(&rng, 1, 0);
    for (uint32_t members = 1; members <= AGGREGATE_ROWS_MAX; members++) {
        size_t count = counts[members % ARRAY_COUNT(counts)];
        uint32_t drop = (uint32_t)rng_below(&rng, members), left;
        struct aggregate_rows rows;

        draw(&rng, members, count);
        rows = rows_of(members, count);
        assert_int_equal(aggregate_trim.combine(&rows, drop, out) % 2, 0);
        if (drop > (members - 1) / 2) drop = (members - 1) / 2; /* as many as they allow */
        left = members - 2 * drop;
        for (size_t i = 0; i < count; i++) {
            float sorted[AGGREGATE_ROWS_MAX];
            double sum = 0;

            for (uint32_t k = 0; k < members; k++) {
                sorted[k] = table.values[k][i];
            }
            qsort(sorted, members, sizeof sorted[0], by_value);
            for (uint32_t k = drop; k < drop + left; k++) {
                sum += (double)sorted[k];
            }
            close_to(out[i], sum / left);
        }
    }
}

static void the_mean_is_a_limit(void **state)
{
    (void)state;
    /* Nobody is left out: the mean; of multi-krum and rfa with the weights of samples. */
    struct aggregate_rows rows;
    struct rng rng;
    float out[VALUES_MAX], mean[VALUES_MAX];

    rng_init(&rng, 2, 0);
    draw(&rng, 5, 100);
    rows = rows_of(5, 100);
    aggregate_mean(&rows, mean);
    assert_int_equal(aggregate_trim.combine(&rows, 0, out), 0);
    for (size_t i = 0; i < 100; i++) {
        close_to(out[i], (double)mean[i]);
    }
    rows.weights[1] = 2;
    rows.weights[4] = 0.25f;
    aggregate_mean(&rows, mean);
    assert_int_equal(aggregate_multi_krum.combine(&rows, 0, out), 0);
    for (size_t i = 0; i < 100; i++) {
        close_to(out[i], (double)mean[i]);
    }
}

/* The last `liars` of the table say something enormous. */
static void corrupt(struct rng *rng, uint32_t members, uint32_t liars, size_t count)
{
    for (uint32_t k = members - liars; k < members; k++) {
        float size = (float)pow(10, 2 + 20 * rng_unit(rng)) * (rng_below(rng, 2) == 0 ? 1 : -1);

        for (size_t i = 0; i < count; i++) {
            table.values[k][i] = size * (1 + (float)(i % 3));
        }
    }
}

static void ranks_stay_among_the_honest(void **state)
{
    (void)state;
    /* As many liars as there may be: each value lies between two that honest members said. */
    FOR_EACH_SEED (seed, 50) {
        struct aggregate_rows rows;
        struct rng rng;
        float outs[2][VALUES_MAX];
        uint32_t members, liars;

        rng_init(&rng, seed, 0);
        members = 3 + (uint32_t)rng_below(&rng, 20);
        liars = 1 + (uint32_t)rng_below(&rng, (members - 1) / 2);
        draw(&rng, members, 70);
        corrupt(&rng, members, liars, 70);
        rows = rows_of(members, 70);
        (void)aggregate_trim.combine(&rows, liars, outs[0]);
        (void)aggregate_median.combine(&rows, UINT32_MAX, outs[1]);
        for (size_t i = 0; i < 70; i++) {
            float least = table.values[0][i], most = least;

            for (uint32_t k = 1; k < members - liars; k++) {
                least = fminf(least, table.values[k][i]);
                most = fmaxf(most, table.values[k][i]);
            }
            for (int r = 0; r < 2; r++) {
                check_seed(seed, outs[r][i] >= least - 1e-6f && outs[r][i] <= most + 1e-6f);
            }
        }
    }
}

static void votes_go_to_the_honest(void **state)
{
    (void)state;
    /* m >= 2f + 3: krum takes one of the honest as it is, multi-krum none of the liars. */
    FOR_EACH_SEED (seed, 50) {
        struct aggregate_rows rows;
        struct rng rng;
        float one[VALUES_MAX], many[VALUES_MAX];
        uint32_t members, liars;
        bool is_honest = false;

        rng_init(&rng, seed, 0);
        members = 5 + (uint32_t)rng_below(&rng, 16);
        liars = 1 + (uint32_t)rng_below(&rng, (members - 3) / 2);
        draw(&rng, members, 30);
        corrupt(&rng, members, liars, 30);
        rows = rows_of(members, 30);
        (void)aggregate_krum.combine(&rows, liars, one);
        assert_int_equal(aggregate_multi_krum.combine(&rows, UINT32_MAX, many), (members - 3) / 2);
        for (uint32_t k = 0; k < members - liars; k++) {
            is_honest |= memcmp(one, table.values[k], 30 * sizeof(float)) == 0;
        }
        check_seed(seed, is_honest);
        check_seed(seed, norm_squared(many, 30) < 30 * 4);
    }
}

static void one_liar_has_a_bound(void **state)
{
    (void)state;
    /* It moves centred clipping by three times its weight times the radius, wherever it is; and the
     * geometric median by no more than a few of the honest's own distances. */
    FOR_EACH_SEED (seed, 50) {
        struct aggregate_rows rows, rest;
        struct rng rng;
        float with[VALUES_MAX], without[VALUES_MAX], centre[VALUES_MAX] = {0};
        uint32_t members;

        rng_init(&rng, seed, 0);
        members = 4 + (uint32_t)rng_below(&rng, 16);
        draw(&rng, members, 50);
        memcpy(table.values[members - 1], centre, sizeof centre); /* says what all held before */
        rest = rows_of(members, 50);
        rest.centre = centre;
        rest.radius = 0.5f;
        (void)aggregate_centered_clip.combine(&rest, 0, without);
        corrupt(&rng, members, 1, 50);
        rows = rest;
        (void)aggregate_centered_clip.combine(&rows, 0, with);
        check_seed(seed, sqrt(norm_squared_apart(with, without, 50)) <
                             3 * 0.5 * 2 / (double)members + 1e-4);
        rows.members--;
        (void)aggregate_rfa.combine(&rows, 0, without);
        rows.members++;
        check_seed(seed, aggregate_rfa.combine(&rows, 0, with) >= 1);
        check_seed(seed, sqrt(norm_squared_apart(with, without, 50)) < sqrt(50));
    }
}

static double distances_from(const struct aggregate_rows *rows, const float *point)
{
    double sum = 0;

    for (uint32_t k = 0; k < rows->members; k++) {
        sum += (double)rows->weights[k] *
               sqrt(norm_squared_apart(rows->values[k], point, rows->count));
    }
    return sum;
}

static void the_geometric_median_has_the_least_distances(void **state)
{
    (void)state;
    /* ...wherever it begins: no member, no mean and no step from it has less. */
    FOR_EACH_SEED (seed, 20) {
        struct aggregate_rows rows;
        struct rng rng;
        float out[VALUES_MAX], other[VALUES_MAX], centre[VALUES_MAX];
        double least;

        rng_init(&rng, seed, 0);
        draw(&rng, 10, 40);
        rows = rows_of(9, 40);
        rows.weights[3] = 2;
        memcpy(centre, table.values[9], sizeof centre);
        if (seed % 2 == 0) rows.centre = centre;
        (void)aggregate_rfa.combine(&rows, 0, out);
        least = distances_from(&rows, out);
        for (uint32_t k = 0; k < 9; k++) {
            check_seed(seed, distances_from(&rows, table.values[k]) >= least);
        }
        aggregate_mean(&rows, other);
        check_seed(seed, distances_from(&rows, other) >= least * (1 - 1e-4));
        for (size_t i = 0; i < 40; i++) {
            other[i] = out[i] + 0.3f * (float)rng_normal(&rng);
        }
        check_seed(seed, distances_from(&rows, other) >= least);
    }
}

static void two_camps_come_together(void **state)
{
    (void)state;
    /* Of two that are as large as each other each moves towards the other, wherever one begins. */
    struct aggregate_rows rows = rows_of(6, 3);
    float out[3];

    for (uint32_t k = 0; k < 6; k++) {
        for (int i = 0; i < 3; i++) {
            table.values[k][i] = k < 3 ? 1 : 2;
        }
    }
    for (uint32_t camp = 0; camp < 6; camp += 3) {
        rows.centre = table.values[camp];
        (void)aggregate_rfa.combine(&rows, 0, out);
        assert_true(fabsf(out[0] - table.values[camp][0]) > 0.05f);
        assert_true(out[0] > 1 && out[0] < 2);
    }
}

static void members_that_agree_are_believed(void **state)
{
    (void)state;
    /* Identical models, one of them the centre, too: a fixed point of all, to the bit, with nothing
     * divided by zero. Of two that score alike krum takes the first. */
    static const float usual[3] = {0.1f, -3, 1e-20f}, other[3] = {5, 5, 5};
    struct aggregate_rows rows = rows_of(6, 3);
    const struct aggregate_ops *ops;
    float out[3];

    for (uint32_t k = 0; k < 6; k++) {
        memcpy(table.values[k], usual, sizeof usual);
    }
    rows.centre = usual;
    rows.radius = 1;
    for (size_t i = 0; (ops = aggregate_at(i)) != NULL; i++) {
        (void)ops->combine(&rows, ops->needs_faults ? 1 : UINT32_MAX, out);
        for (int k = 0; k < 3; k++) {
            if (fabsf(out[k] - usual[k]) > 1e-6f * fabsf(usual[k])) fail_msg("%s", ops->name);
        }
    }
    for (uint32_t k = 3; k < 6; k++) {
        memcpy(table.values[k], other, sizeof other);
    }
    (void)aggregate_krum.combine(&rows, 0, out);
    assert_memory_equal(out, usual, sizeof out);
}

static void names_and_numbers_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *spec, *words; /* NULL: it is fine */
    } cases[] = {{"trim:2", NULL},
                 {"median", NULL},
                 {"krum", NULL},
                 {"krum:3", NULL},
                 {"multi-krum:1", NULL},
                 {"centered-clip", NULL},
                 {"rfa", NULL},
                 {"trim", "as in trim:2"},
                 {"trim:", "column 6"},
                 {"trim:0", "from 1 to 31"},
                 {"trim:32", "from 1 to 31"},
                 {"krum:-1", "column 6"},
                 {"trim:2x", "not a number"},
                 {"median:2", "takes no number"},
                 {"rfa:1", "takes no number"}};
    struct aggregate aggregate;
    enum rc rc;

    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct fault why = {""};
        char text[32];

        assert_true(aggregate_parse(cases[i].spec, &aggregate, &rc, &why));
        assert_int_equal(rc, cases[i].words == NULL ? RC_OK : RC_PARSE);
        if (rc != RC_OK && strstr(why.text, cases[i].words) == NULL) fail_msg("%s", why.text);
        if (rc != RC_OK) continue;
        aggregate_format(&aggregate, text, sizeof text);
        assert_string_equal(text, cases[i].spec);
    }
    assert_false(aggregate_parse("clip", &aggregate, &rc, NULL));
    assert_false(aggregate_parse("medians", &aggregate, &rc, NULL));
    assert_false(aggregate_parse("", &aggregate, &rc, NULL));
}

/* From (1, 1): two that went 3 and 4 at a right angle, with weights 1 and 2. The mean length is
 * (3 + 2 * 4) / 3, the direction (1, 2); the mean would be (2, 3.667). */
static void lengths_and_directions_are_merged_apart(void **state)
{
    (void)state;
    static const float centre[2] = {1, 1}, values[2][2] = {{4, 1}, {1, 5}};
    struct aggregate_rows rows;
    float out[2];

    for (uint32_t k = 0; k < 2; k++) {
        memcpy(table.values[k], values[k], sizeof values[k]);
    }
    rows = rows_of(2, 2);
    rows.weights[1] = 2;
    rows.centre = centre;
    assert_int_equal(aggregate_radial.combine(&rows, UINT32_MAX, out), 0);
    close_to(out[0], 1 + 11.0 / 3 / sqrt(5));
    close_to(out[1], 1 + 11.0 / 3 * 2 / sqrt(5));
}

/* Members at a right angle to each other: the result is as far as each of them, however many there
 * are, where their mean is nearer by the root of their number. */
static void many_go_as_far_as_one(void **state)
{
    (void)state;
    static const float centre[VALUES_MAX];
    float out[VALUES_MAX];

    for (uint32_t members = 1; members <= 16; members *= 4) {
        struct aggregate_rows rows = rows_of(members, VALUES_MAX);

        memset(table.values, 0, sizeof table.values);
        for (uint32_t k = 0; k < members; k++) {
            table.values[k][7 * k] = 0.5f;
        }
        rows.centre = centre;
        (void)aggregate_radial.combine(&rows, UINT32_MAX, out);
        close_to((float)sqrt(norm_squared(out, VALUES_MAX)), 0.5);
        aggregate_mean(&rows, out);
        close_to((float)sqrt(norm_squared(out, VALUES_MAX)), 0.5 / sqrt(members));
    }
}

/* Nothing to go by: opposite directions, no anchor, nobody who moved. And one member of three that
 * did not move shortens the way, and does not turn it. */
static void the_mean_stands_in_where_directions_cancel(void **state)
{
    (void)state;
    static const float centre[2] = {1, 1}, opposite[2][2] = {{3, 1}, {-1, 1}};
    struct aggregate_rows rows = golden();
    float out[2], mean[2];

    aggregate_mean(&rows, mean);
    (void)aggregate_radial.combine(&rows, UINT32_MAX, out);
    assert_memory_equal(out, mean, sizeof out);
    for (uint32_t k = 0; k < 2; k++) {
        memcpy(table.values[k], opposite[k], sizeof opposite[k]);
    }
    rows = rows_of(2, 2);
    rows.centre = centre;
    (void)aggregate_radial.combine(&rows, UINT32_MAX, out);
    close_to(out[0], 1);
    close_to(out[1], 1);
    for (uint32_t k = 0; k < 3; k++) {
        memcpy(table.values[k], centre, sizeof centre);
    }
    rows = rows_of(3, 2);
    rows.centre = centre;
    (void)aggregate_radial.combine(&rows, UINT32_MAX, out);
    assert_memory_equal(out, centre, sizeof out);
    table.values[0][0] = 4;
    (void)aggregate_radial.combine(&rows, UINT32_MAX, out);
    close_to(out[0], 1 + 3.0 / 3);
    close_to(out[1], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rule_has_its_golden_values),
        cmocka_unit_test(centred_clipping_goes_its_golden_way),
        cmocka_unit_test(values_are_ranked_whatever_their_number),
        cmocka_unit_test(the_mean_is_a_limit),
        cmocka_unit_test(ranks_stay_among_the_honest),
        cmocka_unit_test(votes_go_to_the_honest),
        cmocka_unit_test(one_liar_has_a_bound),
        cmocka_unit_test(the_geometric_median_has_the_least_distances),
        cmocka_unit_test(two_camps_come_together),
        cmocka_unit_test(members_that_agree_are_believed),
        cmocka_unit_test(lengths_and_directions_are_merged_apart),
        cmocka_unit_test(many_go_as_far_as_one),
        cmocka_unit_test(the_mean_stands_in_where_directions_cancel),
        cmocka_unit_test(names_and_numbers_are_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
