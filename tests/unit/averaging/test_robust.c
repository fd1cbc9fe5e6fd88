/* Gates and clipping: golden values, what one peer can do at most, what counts as usual. */
#include "tests/check.h"

#include "averaging/core/robust.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "gossip/wire/limits.h"

#include <float.h>
#include <math.h>

enum { VALUES = 100 };

static struct peer_id peer(uint8_t number)
{
    struct peer_id id = {{number}};

    return id;
}

static void close_to(float value, double wanted)
{
    if (fabs((double)value - wanted) > 1e-5) fail_msg("%.8f, not %.8f", (double)value, wanted);
}

static void drawing_near_has_its_golden_values(void **state)
{
    (void)state;
    /* At (1, 1), weights 1/3, radius 5, neighbours (10, -10) and (1, 1). */
    const float own[2] = {1, 1};
    float far[2] = {10, -10}, near[2] = {1, 1}, distance = robust_distance(far, own, 2);

    close_to(distance, sqrt(81 + 121));
    robust_draw_near(own, far, 2, robust_weight(distance, 5), far);
    robust_draw_near(own, near, 2, robust_weight(0, 5), near);
    close_to((own[0] + far[0] + near[0]) / 3, 1.1306184);
    close_to((own[1] + far[1] + near[1]) / 3, 0.8403553);
    close_to(robust_distance(far, own, 2), 125.0 / 202);
}

static void a_difference_shows_what_is_not_finite(void **state)
{
    (void)state;
    /* One way through the values gives the weighted difference, the distance, and whether all of
     * them are numbers: the largest ones are. */
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    float own[VALUES], in[VALUES], out[VALUES], large = 3.4e38f;
    struct rng rng;

    rng_init(&rng, 1, 0);
    for (int i = 0; i < VALUES; i++) {
        own[i] = (float)rng_normal(&rng);
        in[i] = (float)rng_normal(&rng);
    }
    for (size_t count = VALUES - 20; count <= VALUES; count++) {
        double squared = robust_apart(in, own, count, 0.375f, out, count % 2 != 0);

        assert_true((float)sqrt(squared) == robust_distance(in, own, count));
        for (size_t i = 0; i < count; i++) {
            assert_true(out[i] == 0.375f * (in[i] - own[i]));
        }
    }
    for (int i = 0; i < VALUES; i++) {
        float kept = in[i];

        in[i] = large;
        own[i] = -large;
        assert_true(isfinite(robust_apart(in, own, VALUES, 1, out, false)) != 0);
        for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
            in[i] = bad[k];
            assert_true(isfinite(robust_apart(in, own, VALUES, 1, out, false)) == 0);
        }
        in[i] = kept;
        own[i] = 1;
    }
}

static void nobody_moves_anyone_farther_than_the_radius(void **state)
{
    (void)state;
    /* T13, at any distance; inside the radius nothing changes, and beyond it the less the farther:
     * a hundred radii away it is next to nothing. */
    float last = INFINITY;

    for (float distance = 1e-4f; distance < 1e9f; distance *= 1.1f) {
        float weight = robust_weight(distance, 3), moves = weight * distance;

        assert_true(moves <= 3 && weight >= 0 && weight <= 1);
        assert_true(distance > 3 ? moves < last : weight == 1);
        last = distance > 3 ? moves : INFINITY;
    }
    close_to(robust_weight(6, 3), 0.125);
    assert_true(300 * robust_weight(300, 3) < 0.001f);
}

static void each_peer_counts_once(void **state)
{
    (void)state;
    /* One that speaks a hundred times is one of three; the latest word counts; no numbers do not.
     */
    struct robust_history history = {.count = 0};

    assert_true(robust_median(&history) == 0 && robust_radius(&history, NULL) == 0);
    robust_note(&history, peer(1), 1);
    for (int i = 0; i < 5; i++) {
        robust_note(&history, peer(2), 1e6f);
    }
    robust_note(&history, peer(2), NAN);
    robust_note(&history, peer(2), -1);
    assert_false(robust_is_learned(&history));
    robust_note(&history, peer(3), 2);
    assert_true(robust_is_learned(&history));
    close_to(robust_median(&history), 2);
    close_to(robust_radius(&history, NULL), 3);
    robust_note(&history, peer(1), 3);
    robust_note(&history, peer(2), 1);
    close_to(robust_median(&history), 2);
    for (uint8_t i = 10; i < 10 + ROBUST_PEERS; i++) { /* the oldest make room */
        robust_note(&history, peer(i), 7);
    }
    close_to(robust_median(&history), 7);
}

static void two_peers_learn_from_each_other(void **state)
{
    (void)state;
    /* With one partner only, eight rounds are enough. */
    struct robust_history history = {.count = 0};

    for (int i = 0; i < 7; i++) {
        robust_note(&history, peer(1), 2);
        assert_false(robust_is_learned(&history));
    }
    robust_note(&history, peer(1), 4);
    close_to(robust_radius(&history, NULL), 6);
}

enum came { SHARE, CONTRIBUTION, MEAN };

/* At `distance` from what was held before, of norm 10; what the gate says, and what is let in. */
static enum rc comes(struct robust *robust, uint8_t from, float distance, enum came what,
                     struct robust_verdict *verdict, float *moved)
{
    float own[VALUES], in[VALUES];
    struct robust_chunk chunk = {.from = peer(from),
                                 .chunk = 1,
                                 .own = own,
                                 .in = in,
                                 .count = VALUES,
                                 .is_centred = what != SHARE,
                                 .is_mean = what == MEAN,
                                 .may_clip = true};
    enum rc rc;

    for (int i = 0; i < VALUES; i++) {
        own[i] = 1;
        in[i] = 1 + distance / 10;
    }
    rc = robust_check(robust, &chunk, verdict);
    *moved = rc == RC_REFUSED ? 0 : verdict->weight * distance;
    return rc;
}

static enum rc at_distance(struct robust *robust, uint8_t from, float distance,
                           struct robust_verdict *verdict, float *moved)
{
    return comes(robust, from, distance, SHARE, verdict, moved);
}

static void absurd_values_are_refused(void **state)
{
    (void)state;
    struct robust *robust = robust_create(2, false);
    struct robust_verdict verdict;
    float moved;

    assert_int_equal(at_distance(robust, 1, 149, &verdict, &moved), RC_OK); /* nothing known */
    close_to(verdict.distance / 149, 1);
    assert_int_equal(at_distance(robust, 1, 151, &verdict, &moved), RC_LIMIT);
    assert_int_equal(at_distance(robust, 1, 1e30f, &verdict, &moved), RC_LIMIT);
    for (uint8_t i = 1; i <= 3; i++) {
        assert_int_equal(at_distance(robust, i, 0.1f, &verdict, &moved), RC_OK);
    }
    assert_int_equal(at_distance(robust, 4, 14.2f, &verdict, &moved), RC_OK); /* unrelated */
    assert_int_equal(at_distance(robust, 4, 20, &verdict, &moved), RC_LIMIT); /* signs turned */
    assert_true(verdict.weight == 1);
    for (uint8_t i = 1; i <= 3; i++) { /* where such distances are usual they are none of that */
        assert_int_equal(at_distance(robust, i, 5, &verdict, &moved), RC_OK);
    }
    assert_int_equal(at_distance(robust, 4, 20, &verdict, &moved), RC_OK);
    assert_int_equal(at_distance(robust, 4, 51, &verdict, &moved), RC_LIMIT);
    robust_destroy(robust);
}

/* ---- trackers of gradients ---- */

enum { TAIL = 60 };

/* A chunk of a model's last TAIL values, all 1, and of a tracker, ours all 0.01: what comes are
 * both times as large. */
static enum rc of_both(struct robust *robust, uint8_t from, float model, float tracker)
{
    float own[VALUES], in[VALUES];
    struct robust_chunk chunk = {
        .from = peer(from), .chunk = 1, .own = own, .in = in, .count = VALUES};
    struct robust_verdict verdict;
    enum rc rc;

    for (int i = 0; i < VALUES; i++) {
        own[i] = i < TAIL ? 1 : 0.01f;
        in[i] = own[i] * (i < TAIL ? model : tracker);
    }
    rc = robust_check(robust, &chunk, &verdict);
    assert_true(isnan(tracker) || verdict.distance == robust_distance(in, own, VALUES));
    return rc;
}

static void a_model_and_a_tracker_in_a_chunk_are_held_each_against_its_own_kind(void **state)
{
    (void)state;
    struct robust *robust = robust_create(2, false);

    robust_set_trackers(robust, CHUNK_VALUES + TAIL);
    robust_note_gradient(robust, 0.01f * sqrtf(VALUES - TAIL));
    for (uint8_t i = 1; i <= 3; i++) {
        assert_int_equal(of_both(robust, i, 1.01f, 2), RC_OK);
    }
    assert_int_equal(of_both(robust, 4, 1, -9.9f), RC_OK); /* peers' data may be unlike */
    assert_int_equal(of_both(robust, 4, 1, 10.1f), RC_LIMIT);
    assert_int_equal(of_both(robust, 4, 1, 60),
                     RC_LIMIT); /* no more than the model, but too much */
    assert_int_equal(of_both(robust, 4, -1, 1), RC_LIMIT);
    assert_int_equal(of_both(robust, 4, 10, 1), RC_LIMIT);
    assert_int_equal(of_both(robust, 4, 1, NAN), RC_LIMIT);
    robust_destroy(robust);
}

/* What we hold ourselves, and what is usual, were others' to choose: a limit of those would grow.
 */
static void trackers_that_grow_stop_at_a_bound(void **state)
{
    (void)state;
    struct robust *robust = robust_create(1, false);
    float own[VALUES], in[VALUES], lie = 1;
    struct robust_chunk chunk = {.from = peer(1), .own = own, .in = in, .count = VALUES};
    struct robust_verdict verdict;

    robust_set_trackers(robust, 0);
    for (int i = 0; i < VALUES; i++) {
        own[i] = 1;
    }
    for (int round = 0; round < 40; round++) {
        robust_note_gradient(robust, sqrtf(VALUES));
        lie = fminf(lie * 5, 1e18f);
        for (int i = 0; i < VALUES; i++) {
            in[i] = lie;
        }
        if (robust_check(robust, &chunk, &verdict) != RC_OK) continue;
        for (int i = 0; i < VALUES; i++) {
            own[i] += (in[i] - own[i]) / 3;
        }
    }
    assert_true(own[0] > 2 && own[0] <= 10);
    robust_destroy(robust);
}

/* Who knows nothing answers alike for all classes, far from who is certain, and hears that all the
 * same; what is no distribution is still refused. */
static void distributions_are_held_against_certainty(void **state)
{
    enum { OUTPUTS = 10, ROWS = 50, ANSWERS = OUTPUTS * ROWS };
    float own[ANSWERS], in[ANSWERS];
    struct robust_chunk chunk = {.own = own, .in = in, .count = ANSWERS, .may_clip = true};
    struct robust_verdict verdict;

    (void)state;
    for (int is_told = 0; is_told < 2; is_told++) {
        struct robust *robust = robust_create(1, true);

        if (is_told) robust_set_distributions(robust, OUTPUTS);
        for (int i = 0; i < ANSWERS; i++) {
            own[i] = 1.0F / OUTPUTS;
        }
        for (uint8_t round = 0; round < 12; round++) { /* all are alike at first */
            robust_begin(robust, 1, false);
            chunk.from = peer((uint8_t)(1 + round % 4));
            memcpy(in, own, sizeof in);
            in[0] += 0.01F;
            assert_int_equal(robust_check(robust, &chunk, &verdict), RC_OK);
        }
        for (int i = 0; i < ANSWERS; i++) {
            in[i] = i % OUTPUTS == 0;
        }
        assert_int_equal(robust_check(robust, &chunk, &verdict), is_told ? RC_OK : RC_LIMIT);
        if (is_told) assert_true(verdict.weight > 0 && verdict.weight < 1);
        for (int i = 0; i < ANSWERS; i++) {
            in[i] = i % OUTPUTS == 0 ? 2.5F : 0;
        }
        assert_int_equal(robust_check(robust, &chunk, &verdict), RC_LIMIT);
        robust_destroy(robust);
    }
}

/* Until there was a gradient only zeros pass; large ones are forgotten, within a thousand rounds.
 */
static void the_scale_of_trackers_is_our_largest_gradient_lately(void **state)
{
    (void)state;
    struct robust *robust = robust_create(2, false);
    int rounds = 0;

    robust_set_trackers(robust, CHUNK_VALUES + TAIL);
    assert_int_equal(of_both(robust, 1, 1, 1), RC_LIMIT);
    assert_int_equal(of_both(robust, 1, 1, 0), RC_OK);
    robust_note_gradient(robust, 1);
    assert_int_equal(of_both(robust, 1, 1, 150), RC_OK);
    robust_note_gradient(robust, NAN);
    robust_note_gradient(robust, INFINITY);
    assert_int_equal(of_both(robust, 1, 1, 160), RC_LIMIT);
    while (of_both(robust, 1, 1, 79) == RC_OK) {
        robust_note_gradient(robust, 0.001f);
        rounds++;
    }
    assert_in_range(rounds, 500, 1000);
    robust_destroy(robust);
}

static void the_largest_chunk_is_one_of_the_plane(void **state)
{
    enum { MANY = 2 * CHUNK_VALUES + 10 };
    float *values = mem_array(MANY, sizeof *values);

    (void)state;
    assert_non_null(values);
    close_to(robust_largest_chunk(values, 7, MANY), 0);
    values[99] = 3;
    values[100] = -4;
    close_to(robust_largest_chunk(values, 0, MANY), 5);
    close_to(robust_largest_chunk(values, CHUNK_VALUES - 99, MANY), 5);
    close_to(robust_largest_chunk(values, CHUNK_VALUES - 100, MANY), 4); /* between the two */
    close_to(robust_largest_chunk(values, 0, 100), 3);
    values[MANY - 1] = 12;
    close_to(robust_largest_chunk(values, 0, MANY), 12);
    close_to(robust_largest_chunk(values, 0, 0), 0);
    mem_free(values);
}

static void clipping_follows_what_is_usual(void **state)
{
    (void)state;
    struct robust *robust = robust_create(2, true);
    struct robust_verdict verdict;
    float moved;

    assert_int_equal(at_distance(robust, 1, 10, &verdict, &moved), RC_OK); /* nothing known */
    close_to(verdict.weight, 1.0 / 27); /* a third of our norm; the farther, the less */
    assert_int_equal(at_distance(robust, 1, 18, &verdict, &moved), RC_LIMIT);
    for (uint8_t i = 1; i <= 3; i++) {
        assert_int_equal(at_distance(robust, i, 0.1f, &verdict, &moved), RC_OK);
        assert_true(verdict.weight == 1);
    }
    assert_int_equal(at_distance(robust, 4, 1.2f, &verdict, &moved), RC_OK);
    assert_true(verdict.weight == 1); /* the radius of those that are near is 1/8 of our norm */
    assert_int_equal(at_distance(robust, 4, 10, &verdict, &moved), RC_OK);
    close_to(verdict.distance, 10);
    close_to(moved, 10 * 0.125 * 0.125 * 0.125);
    robust_destroy(robust);
}

/* Those that are equal leave some room for one that is not, and those that are far apart no more
 * than some: as much before anything is known. */
static void a_radius_lies_between_bounds(void **state)
{
    (void)state;
    static const struct robust_bounds bounds = {.least = 0.5f, .most = 2.5f};
    struct robust_history history = {.count = 0};

    close_to(robust_radius(&history, &bounds), 0.5);
    for (uint8_t i = 1; i <= 3; i++) {
        robust_note(&history, peer(i), 0);
    }
    close_to(robust_radius(&history, &bounds), 0.5);
    for (uint8_t i = 1; i <= 3; i++) {
        robust_note(&history, peer(i), 1);
    }
    close_to(robust_radius(&history, &bounds), 1.5);
    for (uint8_t i = 1; i <= 3; i++) {
        robust_note(&history, peer(i), 2);
    }
    close_to(robust_radius(&history, &bounds), 2.5);
}

static void bounds_follow_from_norms(void **state)
{
    (void)state;
    static const float zeros[2] = {0, 0}, grown[2] = {12, 16};
    struct robust *robust = robust_create(2, true);
    struct robust_verdict verdict;
    struct robust_bounds bounds = robust_bounds(robust, zeros, 2);
    float moved;

    assert_true(bounds.least == 0 && bounds.most == FLT_MAX);
    bounds = robust_bounds(robust, grown, 2); /* nothing is measured yet */
    close_to(bounds.least, 20.0 / 8);
    assert_int_equal(at_distance(robust, 1, 0.1f, &verdict, &moved), RC_OK); /* our norm is 10 */
    bounds = robust_bounds(robust, grown, 2);
    close_to(bounds.least, 10.0 / 8);
    close_to(bounds.most, 0.4 * 20);
    robust_destroy(robust);
}

/* What moves us of it. */
static float let_in(struct robust *robust, uint8_t from, float distance, enum came what)
{
    struct robust_verdict verdict;
    float moved;
    enum rc rc = comes(robust, from, distance, what, &verdict, &moved);

    assert_true(rc == RC_OK || (rc == RC_REFUSED && what == MEAN));
    return moved;
}

enum { PACE = 16 };

/* Eight rounds: contributions come from a distance of 0.4, means from 0.1. */
static struct robust *with_a_pace(void)
{
    struct robust *robust = robust_create(2, true);

    for (int round = 0; round < 8; round++) {
        robust_begin(robust, PACE, false);
        for (uint8_t i = 1; i <= 3; i++) {
            close_to(let_in(robust, i, 0.4f, CONTRIBUTION), 0.4);
            close_to(let_in(robust, i, 0.1f, MEAN), 0.1);
        }
    }
    return robust;
}

/* 2 times what is usual of members, 4 times of means; these count whole or not at all. */
static void members_and_means_have_radii_of_their_own(void **state)
{
    (void)state;
    struct robust *robust = with_a_pace();

    robust_begin(robust, PACE, false);
    close_to(let_in(robust, 4, 0.79f, CONTRIBUTION), 0.79);
    close_to(let_in(robust, 4, 1.6f, CONTRIBUTION), 0.2);
    close_to(let_in(robust, 4, 0.39f, MEAN), 0.39);
    close_to(let_in(robust, 4, 0.41f, MEAN), 0);
    robust_destroy(robust);
}

/* Where nobody moves any more one that does is far from usual, and welcome: within 1/256 of the
 * norm itself, and with what it taught within 1/32. */
static void those_who_have_learned_all_let_one_come_that_has_not(void **state)
{
    (void)state;
    struct robust *robust = robust_create(2, true);

    for (uint8_t i = 1; i <= 4; i++) {
        (void)let_in(robust, i, 0, CONTRIBUTION);
        (void)let_in(robust, i, 0, MEAN);
    }
    close_to(let_in(robust, 5, 10.0f / 256, CONTRIBUTION), 10.0 / 256);
    close_to(let_in(robust, 5, 20.0f / 256, CONTRIBUTION), 20.0 / 256 / 8);
    close_to(let_in(robust, 5, 0.31f, MEAN), 0.31);
    close_to(let_in(robust, 5, 0.32f, MEAN), 0);
    robust_destroy(robust);
}

/* Steps as long as the model are no measure: beyond a third of its norm a member counts for less,
 * however far most are. */
static void long_steps_make_no_room(void **state)
{
    (void)state;
    struct robust *robust = robust_create(2, true);

    for (int round = 0; round < 3; round++) {
        robust_begin(robust, PACE, false);
        for (uint8_t i = 1; i <= 4; i++) {
            (void)let_in(robust, i, 4, CONTRIBUTION);
        }
    }
    close_to(let_in(robust, 5, 10.0f / 3, CONTRIBUTION), 10.0 / 3);
    close_to(let_in(robust, 5, 20.0f / 3, CONTRIBUTION), 20.0 / 3 / 8);
    robust_destroy(robust);
}

/* What was not taken over is learned from all the same: one that was alone finds all others far,
 * and comes to them. */
static void whoever_was_alone_takes_over_what_all_hold(void **state)
{
    (void)state;
    struct robust *robust = with_a_pace();

    robust_begin(robust, PACE, false);
    close_to(let_in(robust, 1, 5, MEAN), 0);
    close_to(let_in(robust, 2, 5, MEAN), 0);
    close_to(let_in(robust, 3, 5, MEAN), 5);
    robust_destroy(robust);
}

static void whoever_missed_rounds_may_be_as_many_times_as_far(void **state)
{
    (void)state;
    static const struct {
        uint64_t steps;
        float times;
    } rows[] = {{3, 1}, {PACE, 1}, {PACE + 7, 1}, {3 * PACE, 3}, {UINT64_C(1) << 40, 8}};

    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct robust *robust = with_a_pace();
        float radius = fminf(0.8f * rows[i].times, 10.0f / 3), of_means = 0.4f * rows[i].times;

        robust_begin(robust, rows[i].steps, false);
        close_to(let_in(robust, 4, 2 * radius, CONTRIBUTION), (double)radius / 4);
        close_to(let_in(robust, 4, 0.99f * of_means, MEAN), 0.99 * (double)of_means);
        close_to(let_in(robust, 4, 1.01f * of_means, MEAN), 0);
        robust_begin(robust, PACE, false);
        close_to(let_in(robust, 4, 1.6f, CONTRIBUTION), 0.2);
        robust_destroy(robust);
    }
}

/* What others took over led them on: who takes none of it follows in longer steps. */
static void means_that_are_refused_make_room(void **state)
{
    (void)state;
    for (int refused = 0; refused <= 9; refused++) {
        struct robust *robust = with_a_pace();
        const float most = 0.4f * fminf((float)refused + 1, 8);

        for (int i = 0; i < refused; i++) {
            robust_begin(robust, PACE, false);
            close_to(let_in(robust, 4, 5, MEAN), 0);
        }
        robust_begin(robust, PACE, false);
        close_to(let_in(robust, 4, 0.99f * most, MEAN), 0.99 * (double)most);
        close_to(let_in(robust, 4, 0.41f, MEAN), 0); /* taken: from here on as ever */
        robust_destroy(robust);
    }
}

/* Of three owners two are gone: what the third returns is all there is to go by, in the end. */
static void an_owner_that_is_gone_is_no_measure(void **state)
{
    (void)state;
    struct robust *robust = with_a_pace();
    int refused = 0;

    for (;; refused++) {
        robust_begin(robust, PACE, false);
        if (let_in(robust, 1, 9, MEAN) > 0) break;
        assert_true(refused < 24);
    }
    assert_true(refused > 3);
    robust_destroy(robust);
}

/* Those who stand still come to hold one model: that nothing is between them says nothing of one
 * that trained meanwhile, whose mean may be as far as a member. But who makes rounds by the dozen
 * then moves them by four radii in all. */
static void at_the_goal_means_move_us_so_far_and_teach_nothing(void **state)
{
    (void)state;
    struct robust *robust = with_a_pace();
    float total = 0;

    for (int round = 0; round < 20; round++) {
        robust_begin(robust, 0, true);
        for (uint8_t i = 1; i <= 3; i++) {
            (void)let_in(robust, i, 0, CONTRIBUTION);
            (void)let_in(robust, i, 0, MEAN);
        }
    }
    close_to(let_in(robust, 4, 1.61f, MEAN), 0); /* of a radius of 0.8 */
    close_to(let_in(robust, 4, 1.59f, MEAN), 1.59);
    for (int round = 0; round < 100; round++) {
        robust_begin(robust, 0, true);
        total += let_in(robust, 4, 0.7f, MEAN);
    }
    total += 1.59f;
    assert_true(total > 2.5f && total <= 3.2f);
    robust_begin(robust, PACE, false);
    close_to(let_in(robust, 4, 0.35f, MEAN), 0.35);
    robust_destroy(robust);
}

static void a_model_of_zeros_says_nothing(void **state)
{
    (void)state;
    /* Zeros at the start, or peers that are all the same: no reason to refuse the first step. */
    float own[2] = {0, 0}, in[2] = {1e-3f, 5};
    struct robust *robust = robust_create(1, true);
    struct robust_chunk chunk = {
        .from = peer(1), .own = own, .in = in, .count = 2, .may_clip = true};
    struct robust_verdict verdict;

    assert_int_equal(robust_check(robust, &chunk, &verdict), RC_OK);
    assert_true(verdict.weight == 1);
    for (uint8_t i = 0; i < 20; i++) {
        in[0] = in[1] = 0;
        chunk.from = peer(i);
        assert_int_equal(robust_check(robust, &chunk, &verdict), RC_OK);
    }
    in[1] = 1;
    assert_int_equal(robust_check(robust, &chunk, &verdict), RC_OK);
    robust_destroy(robust);
}

static void short_memory_gives_no_gate(void **state)
{
    (void)state;
    uint64_t before = mem_blocks();
    struct robust *robust = NULL;

    for (uint64_t n = 0; robust == NULL; n++) {
        mem_fail_after(n);
        robust = robust_create(3, false);
        mem_fail_after(UINT64_MAX);
        assert_true(n < 5);
    }
    robust_destroy(robust);
    assert_int_equal(mem_blocks(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drawing_near_has_its_golden_values),
        cmocka_unit_test(a_difference_shows_what_is_not_finite),
        cmocka_unit_test(nobody_moves_anyone_farther_than_the_radius),
        cmocka_unit_test(each_peer_counts_once),
        cmocka_unit_test(two_peers_learn_from_each_other),
        cmocka_unit_test(absurd_values_are_refused),
        cmocka_unit_test(a_model_and_a_tracker_in_a_chunk_are_held_each_against_its_own_kind),
        cmocka_unit_test(trackers_that_grow_stop_at_a_bound),
        cmocka_unit_test(the_scale_of_trackers_is_our_largest_gradient_lately),
        cmocka_unit_test(the_largest_chunk_is_one_of_the_plane),
        cmocka_unit_test(clipping_follows_what_is_usual),
        cmocka_unit_test(a_radius_lies_between_bounds),
        cmocka_unit_test(bounds_follow_from_norms),
        cmocka_unit_test(members_and_means_have_radii_of_their_own),
        cmocka_unit_test(those_who_have_learned_all_let_one_come_that_has_not),
        cmocka_unit_test(long_steps_make_no_room),
        cmocka_unit_test(whoever_was_alone_takes_over_what_all_hold),
        cmocka_unit_test(whoever_missed_rounds_may_be_as_many_times_as_far),
        cmocka_unit_test(means_that_are_refused_make_room),
        cmocka_unit_test(an_owner_that_is_gone_is_no_measure),
        cmocka_unit_test(at_the_goal_means_move_us_so_far_and_teach_nothing),
        cmocka_unit_test(a_model_of_zeros_says_nothing),
        cmocka_unit_test(short_memory_gives_no_gate),
        cmocka_unit_test(distributions_are_held_against_certainty),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
