/* To whom pair rounds are offered. */
#include "tests/check.h"

#include "base/bytes.h"
#include "gossip/overlay/topology.h"
#include "peer/node/partners.h"

#include <math.h>

enum { PEERS = 16 };

static const struct digest run = {{7}};

static const uint8_t *rarity; /* of the next draws */

static bool draw(struct partners *partners, struct digest run_id, uint64_t period,
                 struct peer_id self, const struct peer_id *ids, size_t count, uint64_t now_ns,
                 struct peer_id *partner)
{
    const struct partner_list list = {run_id, self, ids, rarity, count};

    return partners_draw(partners, &list, period, now_ns, partner);
}

static void make_ids(struct peer_id *ids, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        ids[i] = (struct peer_id){{(uint8_t)(i + 1), (uint8_t)(7 * i)}};
    }
}

/* Whoever refuses is passed over at once; everybody is asked before anybody is asked again, and
 * each period begins anew. */
static void all_are_asked_before_anyone_is_asked_again(void **state)
{
    struct partners partners = {.period = 0};
    struct peer_id ids[PEERS], partner;

    (void)state;
    make_ids(ids, PEERS);
    for (uint64_t period = 0; period < 50; period++) {
        uint32_t asked = 0, first = 0;

        for (int i = 0; i < PEERS; i++) {
            uint64_t now_ns = (period * PEERS + (uint64_t)i + 1) * 10 * NS_PER_S;

            assert_true(draw(&partners, run, period, ids[3], ids, PEERS, now_ns, &partner));
            assert_false(peer_id_is_equal(partner, ids[3]));
            if (i == PEERS - 1) {
                assert_int_equal(partner.bytes[0], first); /* all over again */
                break;
            }
            if (i == 0) first = partner.bytes[0];
            assert_false(asked >> partner.bytes[0] & 1);
            asked |= 1u << partner.bytes[0];
            partners_failed(&partners, 0, now_ns);
        }
    }
    assert_false(draw(&partners, run, 99, ids[3], ids + 3, 1, NS_PER_S << 20, &partner));
    assert_false(draw(&partners, run, 99, ids[3], ids, 0, NS_PER_S << 20, &partner));
}

/* Three refusals in a row, and it waits until the first of the three may be free; not less than a
 * moment, and no longer than a second, whatever they say; and up to twice as long, by chance. */
static void refusals_in_a_row_are_waited_out(void **state)
{
    static const uint64_t said_ns[][2] = {/* the earliest that was said, and what it makes of it */
                                          {0, 10 * NS_PER_MS},
                                          {300 * NS_PER_MS, 300 * NS_PER_MS},
                                          {3000 * NS_PER_S, NS_PER_S}};
    struct peer_id ids[PEERS], partner;

    (void)state;
    make_ids(ids, PEERS);
    for (size_t i = 0; i < 3; i++) {
        struct partners partners = {.period = 0};
        uint64_t now_ns = 50 * NS_PER_S, until_ns = now_ns + said_ns[i][1];

        for (uint64_t k = 0; k < 3; k++) {
            assert_true(draw(&partners, run, 1, ids[0], ids, PEERS, now_ns, &partner));
            partners_failed(&partners, now_ns + said_ns[i][0] + (k == 1 ? 0 : NS_PER_MS), now_ns);
        }
        assert_false(draw(&partners, run, 2, ids[0], ids, PEERS, until_ns - 1, &partner));
        assert_in_range(partners.wait_ns, until_ns, until_ns + said_ns[i][1]);
        until_ns = partners.wait_ns;
        assert_false(draw(&partners, run, 2, ids[0], ids, PEERS, until_ns - 1, &partner));
        assert_true(draw(&partners, run, 2, ids[0], ids, PEERS, until_ns, &partner));
        partners_failed(&partners, 0, until_ns);
        partners_met(&partners);
        partners_failed(&partners, 0, until_ns);
        partners_failed(&partners, 0, until_ns);
        assert_true(draw(&partners, run, 2, ids[0], ids, PEERS, until_ns, &partner));
    }
}

/* One exchange of offers and answers among those who have nobody yet: two who want each other meet,
 * who waits takes the first that comes, who has offered refuses. */
static int offers(struct partners *partners, const struct peer_id *ids, uint64_t period,
                  uint64_t now_ns, int *with)
{
    int wants[PEERS], met = 0;

    for (int i = 0; i < PEERS; i++) {
        struct peer_id partner;

        wants[i] = -1;
        if (with[i] >= 0) continue;
        if (draw(&partners[i], run, period, ids[i], ids, PEERS, now_ns, &partner)) {
            wants[i] = partner.bytes[0] - 1;
        }
    }
    for (int i = 0; i < PEERS; i++) {
        int other = wants[i];

        if (other < 0 || with[i] >= 0) continue;
        if (with[other] < 0 && (wants[other] == i || wants[other] < 0)) {
            with[i] = other;
            with[other] = i;
            met += 2;
        } else {
            uint64_t busy_ns = (with[other] < 0 ? 10 : 300) * NS_PER_MS;

            partners_failed(&partners[i], now_ns + busy_ns, now_ns);
        }
    }
    return met;
}

/* All offer at once, again and again: soon everybody has somebody, and over the
 * periods everybody has been with everybody as often. */
static void offers_at_once_pair_everybody_off(void **state)
{
    static uint32_t met[PEERS][PEERS];
    struct partners partners[PEERS];
    struct peer_id ids[PEERS];
    uint64_t now_ns = NS_PER_S;

    (void)state;
    make_ids(ids, PEERS);
    memset(met, 0, sizeof met);
    memset(partners, 0, sizeof partners);
    for (uint64_t period = 0; period < 3000; period++) {
        int with[PEERS], count = 0;
        uint64_t begin_ns = now_ns;

        memset(with, -1, sizeof with);
        for (; count < PEERS; now_ns += 10 * NS_PER_MS) {
            count += offers(partners, ids, period, now_ns, with);
            assert_true(now_ns < begin_ns + 10 * NS_PER_S);
        }
        for (int i = 0; i < PEERS; i++) {
            met[i][with[i]]++;
            partners_met(&partners[i]);
        }
    }
    for (int i = 0; i < PEERS; i++) {
        for (int k = 0; k < PEERS; k++) { /* 200 expected, give or take 14 */
            if (i != k) assert_in_range(met[i][k], 130, 270);
        }
    }
}

/* Lines that are alike, whatever they carry: the draws are those of before, in their order. */
static void lines_that_are_alike_change_no_draw(void **state)
{
    static const uint8_t alike[PEERS] = {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2};
    struct partners plain = {.period = 0}, weighed = {.period = 0};
    struct peer_id ids[PEERS], partner, same;

    (void)state;
    make_ids(ids, PEERS);
    for (uint64_t i = 0; i < 3000; i++) {
        rarity = NULL;
        assert_true(draw(&plain, run, i / 9, ids[4], ids, PEERS, i, &partner));
        rarity = alike;
        assert_true(draw(&weighed, run, i / 9, ids[4], ids, PEERS, i, &same));
        assert_true(peer_id_is_equal(partner, same));
    }
    rarity = NULL;
}

static bool is_far(int a, int b)
{
    return (a < PEERS / 2) != (b < PEERS / 2);
}

/* The second largest eigenvalue of the mean of I - (e_i - e_j)(e_i - e_j)' / 2 over the pairs that
 * were drawn, by power iteration. */
static double second_eigenvalue(uint32_t (*drawn)[PEERS], double draws)
{
    double x[PEERS], y[PEERS], norm = 0;

    for (int i = 0; i < PEERS; i++) {
        x[i] = (i < PEERS / 2 ? 1 : -1) + 0.01 * i - 0.075;
    }
    for (int turn = 0; turn < 500; turn++) {
        norm = 0;
        for (int i = 0; i < PEERS; i++) {
            y[i] = x[i];
            for (int k = 0; k < PEERS; k++) {
                y[i] -= (x[i] - x[k]) / 2 * (drawn[i][k] + drawn[k][i]) / draws;
            }
            norm += y[i] * y[i];
        }
        norm = sqrt(norm);
        for (int i = 0; i < PEERS; i++) {
            x[i] = y[i] / norm;
        }
    }
    return norm;
}

/* Two halves with a slow line between them: the first offers that cross it are fewer by the factor
 * that the odds say, a quarter of the equal draws' and more are left, each partner of a kind is met
 * as often, and the spectral gap of the pairs' mixing matrix is at least a quarter of that of equal
 * draws. */
static void slow_lines_are_drawn_less_and_still_drawn(void **state)
{
    static uint32_t drawn[2][PEERS][PEERS];
    enum { PERIODS = 8000 };
    struct peer_id ids[PEERS], partner;
    double far[2] = {0}, gap[2];

    (void)state;
    make_ids(ids, PEERS);
    memset(drawn, 0, sizeof drawn);
    for (int is_preferring = 0; is_preferring < 2; is_preferring++) {
        for (int i = 0; i < PEERS; i++) {
            struct partners partners = {.period = 0};
            uint8_t odds[PEERS];

            for (int k = 0; k < PEERS; k++) {
                odds[k] = is_far(i, k) ? 3 : 1;
            }
            rarity = is_preferring ? odds : NULL;
            for (uint64_t period = 0; period < PERIODS; period++) {
                int with;

                assert_true(draw(&partners, run, period, ids[i], ids, PEERS, period, &partner));
                with = partner.bytes[0] - 1;
                drawn[is_preferring][i][with]++;
                far[is_preferring] += is_far(i, with) ? 1.0 / PERIODS / PEERS : 0;
            }
        }
        gap[is_preferring] = 1 - second_eigenvalue(drawn[is_preferring], (double)PERIODS * PEERS);
    }
    rarity = NULL;
    /* 8/15; and 1/4 of that with 3/4 of (8/16) / (7 + 8/16) */
    assert_true(fabs(far[0] - 0.533) < 0.01 && fabs(far[1] - 0.183) < 0.01);
    for (int i = 0; i < PEERS; i++) {
        for (int k = 0; k < PEERS; k++) { /* 187 and 911 expected */
            if (i != k) {
                assert_in_range(drawn[1][i][k], is_far(i, k) ? 120 : 780,
                                is_far(i, k) ? 260 : 1040);
            }
        }
    }
    printf("of first offers %.3f cross the line, %.3f without preference; spectral gap %.4f, "
           "%.4f\n",
           far[1], far[0], gap[1], gap[0]);
    assert_true(gap[1] > gap[0] / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_are_asked_before_anyone_is_asked_again),
        cmocka_unit_test(refusals_in_a_row_are_waited_out),
        cmocka_unit_test(offers_at_once_pair_everybody_off),
        cmocka_unit_test(lines_that_are_alike_change_no_draw),
        cmocka_unit_test(slow_lines_are_drawn_less_and_still_drawn),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
