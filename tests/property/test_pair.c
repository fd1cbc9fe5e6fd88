/* The pair exchange with real planes: both ends or neither, exact negatives, whatever is cut. */
#include "tests/property/rounds_chaos.h"

static void pairs_come_together_and_keep_the_mean(void **state)
{
    (void)state;
    /* T1, T5: random pairs without faults keep the sum (local updates included) and contract. */
    FOR_EACH_SEED (seed, 60) {
        uint32_t peers = 2 + (uint32_t)(seed % 7);
        bool is_training = seed % 3 == 0;
        struct rounds *r = rounds_create(&exchange_pair, codec_at(seed % CODEC_FORMATS), peers,
                                         (uint32_t)(seed % 40), seed);
        double before = rounds_sum(r), scale = (double)r->values * peers + 1;

        r->trains = is_training ? 0.01 : 0;
        rounds_run(r, 10 * NS_PER_S);
        rounds_rest(r, 60 * NS_PER_S);
        check_seed(seed,
                   !r->is_even || fabs(rounds_sum(r) - before - rounds_local(r)) < 1e-6 * scale);
        check_seed(seed, is_training || r->clips || rounds_spread(r) < 0.05); /* see test_edges.c */
        check_seed(seed, r->scores == 0);
        for (uint32_t i = 0; i < peers; i++) {
            check_seed(seed, rounds_counts(r, i).rounds_aborted == 0);
            check_seed(seed, r->peers[i].committed > 0);
        }
        rounds_destroy(r);
    }
}

static void cuts_that_heal_never_tear_a_round(void **state)
{
    (void)state;
    /* P1 to P3: links are cut at random and come back within T_doubt: each round was applied at
     * both ends, by exact negatives, or at neither, and the mean has not moved. */
    uint64_t doubts = 0;

    FOR_EACH_SEED (seed, 200) {
        uint32_t peers = 2 + (uint32_t)(seed % 3);
        struct rounds *r =
            rounds_create(&exchange_pair, codec_at(seed % CODEC_FORMATS), peers, 5, seed);
        double before = rounds_sum(r);

        r->pace_ns = 60 * NS_PER_MS;
        rounds_cut_often(r, 60);
        rounds_rest(r, 60 * NS_PER_S);
        for (uint32_t i = 0; i < r->traces_count; i++) {
            check_seed(seed, r->traces[i].ends == 2);
        }
        for (uint32_t i = 0; i < peers; i++) {
            check_seed(seed, rounds_counts(r, i).in_doubt_lost == 0);
            doubts += rounds_counts(r, i).in_doubt_resolved;
        }
        check_seed(seed, !r->is_even || fabs(rounds_sum(r) - before) < 1e-6 * before);
        rounds_destroy(r);
    }
    assert_true(getenv("SEED") != NULL || doubts > 20); /* the interesting case did occur */
}

static void kills_leave_survivors_whole(void **state)
{
    (void)state;
    /* T10: peers are killed and started again at any moment; no round is applied twice at an end,
     * every doubt ends, models stay inside the range they began in, and averaging goes on. */
    FOR_EACH_SEED (seed, 150) {
        uint32_t peers = 2 + (uint32_t)(seed % 4);
        struct rounds *r = rounds_create(&exchange_pair, &codec_f32, peers, 7, seed);

        rounds_kill_often(r, 40);
        rounds_run(r, 20 * NS_PER_S);
        rounds_rest(r, 60 * NS_PER_S);
        check_seed(seed, rounds_is_inside(r, -0.001, 1.001));
        check_seed(seed, r->clips || rounds_spread(r) < 0.1);
        rounds_destroy(r);
    }
}

static void a_partner_that_stays_away_costs_one_doubt(void **state)
{
    (void)state;
    /* P4: nobody comes back within T_doubt: the round is presumed aborted and counted as lost. */
    uint64_t lost = 0;

    FOR_EACH_SEED (seed, 100) {
        struct rounds *r = rounds_create(&exchange_pair, &codec_f32, 2, 5, seed);

        r->pace_ns = 40 * NS_PER_MS;
        rounds_run(r, NS_PER_S + seed * NS_PER_MS);
        rounds_cut(r, 0, 1);
        rounds_rest(r, 60 * NS_PER_S);
        lost += rounds_counts(r, 0).in_doubt_lost + rounds_counts(r, 1).in_doubt_lost;
        rounds_destroy(r);
    }
    assert_true(getenv("SEED") != NULL || lost > 0);
}

static void a_poisoned_model_aborts_at_both_ends(void **state)
{
    (void)state;
    /* T19: NaN in what a partner sends changes neither model and is held against it. */
    FOR_EACH_SEED (seed, 40) {
        struct rounds *r =
            rounds_create(&exchange_pair, codec_at(seed % CODEC_FORMATS), 3, 6, seed);

        r->peers[1].poisons = true;
        rounds_run(r, 5 * NS_PER_S);
        rounds_rest(r, 60 * NS_PER_S);
        check_seed(seed, r->scores > 0);
        check_seed(seed, r->peers[1].committed == 0);
        check_seed(seed, r->peers[0].committed > 0);
        check_seed(seed, rounds_is_inside(r, -rounds_loss(r), 1 + rounds_loss(r)));
        rounds_destroy(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_come_together_and_keep_the_mean),
        cmocka_unit_test(cuts_that_heal_never_tear_a_round),
        cmocka_unit_test(kills_leave_survivors_whole),
        cmocka_unit_test(a_partner_that_stays_away_costs_one_doubt),
        cmocka_unit_test(a_poisoned_model_aborts_at_both_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
