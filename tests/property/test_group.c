/* The group exchange with real planes: what holds in peace, and what survives cuts and kills. */
#include "tests/property/rounds_chaos.h"

static void a_group_round_makes_all_equal_and_keeps_the_mean(void **state)
{
    (void)state;
    /* T1, T9: without faults the mean stays and every full round leaves all peers together. */
    FOR_EACH_SEED (seed, 60) {
        uint32_t peers = 2 + (uint32_t)(seed % 7);
        const struct codec *codec = codec_at(seed % CODEC_FORMATS);
        struct rounds *r =
            rounds_create(&exchange_group, codec, peers, (uint32_t)(seed % 13), seed);
        double before = rounds_sum(r), scale = (double)r->values * peers + 1;
        double loss = rounds_loss(r);
        double drift = codec->traits.is_lossless ? 1e-6 : codec == &codec_f16 ? 1e-4 : loss;

        rounds_run(r, 3 * NS_PER_S);
        r->is_learning = false;
        rounds_run(r, 3 * NS_PER_S);
        for (uint32_t i = 0; i < peers && r->chunks > 0; i++) {
            check_seed(seed, rounds_counts(r, i).rounds_ok > 0);
            check_seed(seed, rounds_counts(r, i).rounds_aborted == 0);
        }
        check_seed(seed, fabs(rounds_sum(r) - before) < drift * scale);
        check_seed(seed, rounds_spread(r) < (codec->traits.is_lossless ? 1e-5 : 2 * loss));
        check_seed(seed, r->scores == 0);
        rounds_destroy(r);
    }
}

static void steps_taken_during_a_round_are_not_lost(void **state)
{
    (void)state;
    /* T5: the sum over peers is the first sum plus every local update ever made. */
    FOR_EACH_SEED (seed, 40) {
        struct rounds *r = rounds_create(&exchange_group, &codec_f32, 4, 6, seed);
        double before = rounds_sum(r);

        r->trains = 0.01;
        rounds_run(r, 3 * NS_PER_S);
        r->is_learning = false;
        rounds_run(r, 3 * NS_PER_S);
        check_seed(seed, fabs(rounds_sum(r) - before - rounds_local(r)) < 1e-5 * before);
        rounds_destroy(r);
    }
}

static void kills_and_cuts_never_tear_a_part(void **state)
{
    (void)state;
    /* T10: whoever dies or is cut off at whatever moment, each committed chunk is its owner's mean,
     * models stay inside the range they began in, and all survivors go on averaging after it. */
    FOR_EACH_SEED (seed, 200) {
        uint32_t peers = 2 + (uint32_t)(seed % 6);
        struct rounds *r =
            rounds_create(&exchange_group, codec_at(seed % CODEC_FORMATS), peers, 9, seed);
        uint64_t before[ROUND_PEERS_MAX];

        rounds_disturb(r, 40);
        r->is_learning = false;
        rounds_run(r, 20 * NS_PER_S); /* whatever is stuck runs into its deadline */
        r->is_learning = true;
        for (uint32_t a = 0; a < peers; a++) {
            before[a] = rounds_counts(r, a).rounds_ok;
        }
        rounds_run(r, 8 * NS_PER_S); /* a restarted peer has its windows still to learn */
        for (uint32_t a = 0; a < peers; a++) {
            check_seed(seed, rounds_counts(r, a).rounds_ok > before[a]);
        }
        check_seed(seed, rounds_is_inside(r, -rounds_loss(r), 1 + rounds_loss(r)));
        check_seed(seed, rounds_spread(r) < 0.05);
        rounds_rest(r, 30 * NS_PER_S);
        rounds_destroy(r);
    }
}

static void a_poisoned_peer_is_dropped_and_nobody_takes_its_values(void **state)
{
    (void)state;
    /* T19: NaN in a contribution reaches nobody; the others go on without the sender. */
    FOR_EACH_SEED (seed, 40) {
        struct rounds *r =
            rounds_create(&exchange_group, codec_at(seed % CODEC_FORMATS), 4, 8, seed);

        r->peers[1].poisons = true;
        rounds_run(r, 5 * NS_PER_S);
        check_seed(seed, r->scores > 0);
        check_seed(seed, rounds_is_inside(r, -rounds_loss(r), 1 + rounds_loss(r)));
        check_seed(seed, rounds_counts(r, 0).rounds_ok > 0);
        rounds_destroy(r);
    }
}

static void a_silent_member_costs_a_deadline_and_no_more(void **state)
{
    (void)state;
    /* A link that loses everything without being reported lost: the round still ends. */
    FOR_EACH_SEED (seed, 40) {
        struct rounds *r = rounds_create(&exchange_group, &codec_f32, 4, 8, seed);

        rounds_run(r, 200 * NS_PER_MS + seed * NS_PER_MS);
        rounds_freeze(r, 2);
        rounds_run(r, 40 * NS_PER_S);
        rounds_rest(r, 40 * NS_PER_S);
        for (uint32_t i = 0; i < 4; i++) {
            check_seed(seed, i == 2 || rounds_counts(r, i).rounds_ok > 10);
        }
        rounds_destroy(r);
    }
}

static void equal_seeds_give_equal_runs(void **state)
{
    (void)state;
    /* The exchange is a function of what it is told. */
    float models[2][3 * ROUND_CHUNK];

    for (int run = 0; run < 2; run++) {
        struct rounds *r = rounds_create(&exchange_group, &codec_f16, 5, 3, 17);

        rounds_run(r, 2 * NS_PER_S);
        rounds_cut(r, 0, 1);
        rounds_kill(r, 2);
        rounds_run(r, 2 * NS_PER_S);
        memset(models[run], 0, sizeof models[run]);
        memcpy(models[run], r->peers[3].model, r->values * sizeof(float));
        rounds_destroy(r);
    }
    assert_memory_equal(models[0], models[1], sizeof models[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_group_round_makes_all_equal_and_keeps_the_mean),
        cmocka_unit_test(steps_taken_during_a_round_are_not_lost),
        cmocka_unit_test(kills_and_cuts_never_tear_a_part),
        cmocka_unit_test(a_poisoned_peer_is_dropped_and_nobody_takes_its_values),
        cmocka_unit_test(a_silent_member_costs_a_deadline_and_no_more),
        cmocka_unit_test(equal_seeds_give_equal_runs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
