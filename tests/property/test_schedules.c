/*
 * The group exchange by ring, halving and tree, with real planes: what holds in peace, and what
 * survives cuts and kills. tests/property/test_group.c asks the same of direct rounds.
 */
#include "tests/property/rounds_chaos.h"

#define FOR_EACH_SCHEDULE(name) for (int name = SCHEDULE_RING; name < SCHEDULE_COUNT; name++)

/* Rounds that did not fall back to direct ones. */
static uint64_t scheduled(struct rounds *r, int schedule)
{
    uint64_t count = 0;

    for (uint32_t i = 0; i < r->peers_count; i++) {
        if (r->peers[i].is_alive) count += rounds_counts(r, i).scheduled[schedule];
    }
    return count;
}

static void every_schedule_gives_the_mean_to_all(void **state)
{
    (void)state;
    /* T1, T9: for every number of members, and fewer chunks than members too: all rounds are of the
     * schedule, the mean stays and models are the same, bit for bit, where the codec is lossless.
     */
    FOR_EACH_SEED (seed, 14) {
        FOR_EACH_SCHEDULE(schedule)
        {
            uint32_t peers = 2 + (uint32_t)(seed % 7), chunks = (uint32_t)(seed % 13);
            const struct codec *codec = seed % 3 == 1 ? &codec_f16 : &codec_f32;
            struct rounds *r = rounds_create_with(&exchange_group, codec, (enum schedule)schedule,
                                                  peers, chunks, seed);
            double before = rounds_sum(r), scale = (double)r->values * peers + 1;
            double drift = codec->traits.is_lossless ? 1e-6 : 2e-3;

            rounds_run(r, 3 * NS_PER_S);
            r->is_learning = false;
            rounds_run(r, 3 * NS_PER_S);
            for (uint32_t i = 0; i < peers && chunks > 0; i++) {
                struct exchange_counts counts = rounds_counts(r, i);

                check_seed(seed, counts.rounds_ok > 0 && counts.rounds_aborted == 0);
                check_seed(seed, counts.scheduled[schedule] == counts.rounds_ok);
            }
            check_seed(seed, fabs(rounds_sum(r) - before) < drift * scale);
            check_seed(seed, rounds_spread(r) < (codec->traits.is_lossless ? 1e-5 : 1e-2));
            check_seed(seed, r->scores == 0);
            rounds_destroy(r);
        }
    }
}

static void kills_and_cuts_never_tear_a_part_of_any_schedule(void **state)
{
    (void)state;
    /* T10: each committed chunk is its owner's mean, whoever passed it on; models stay inside the
     * range they began in; survivors average again, and after a time of peace by their schedule. */
    FOR_EACH_SEED (seed, 10) {
        FOR_EACH_SCHEDULE(schedule)
        {
            uint32_t peers = 3 + (uint32_t)(seed % 6);
            struct rounds *r = rounds_create_with(&exchange_group, &codec_f32,
                                                  (enum schedule)schedule, peers, 9, seed);
            uint64_t before;

            rounds_disturb(r, 40);
            rounds_rest(r, 40 * NS_PER_S); /* whatever is stuck runs into its deadline */
            r->is_learning = true;
            before = scheduled(r, schedule);
            rounds_run(r, 30 * NS_PER_S); /* caution ends */
            check_seed(seed, scheduled(r, schedule) > before);
            check_seed(seed, rounds_is_inside(r, -1e-4, 1 + 1e-4));
            check_seed(seed, rounds_spread(r) < 0.05);
            rounds_destroy(r);
        }
    }
}

static void a_poisoned_member_ends_the_schedule_and_not_the_averaging(void **state)
{
    (void)state;
    /* T19: NaN reaches nobody; who sent it is scored, and the others go on without it. */
    FOR_EACH_SEED (seed, 10) {
        FOR_EACH_SCHEDULE(schedule)
        {
            struct rounds *r = rounds_create_with(&exchange_group, &codec_f32,
                                                  (enum schedule)schedule, 5, 8, seed);

            r->peers[1].poisons = true;
            rounds_run(r, 6 * NS_PER_S);
            check_seed(seed, r->scores > 0);
            check_seed(seed, rounds_is_inside(r, -1e-4, 1 + 1e-4));
            check_seed(seed, rounds_counts(r, 0).rounds_ok > 0);
            rounds_destroy(r);
        }
    }
}

static void a_silent_member_costs_one_deadline_then_rounds_are_direct(void **state)
{
    (void)state;
    /* A member that is frozen with its links up: the round of the schedule runs into its deadline,
     * and the next ones drop that member and average without it. */
    FOR_EACH_SEED (seed, 4) {
        FOR_EACH_SCHEDULE(schedule)
        {
            struct rounds *r = rounds_create_with(&exchange_group, &codec_f32,
                                                  (enum schedule)schedule, 4, 8, seed);
            uint64_t before;

            rounds_run(r, 200 * NS_PER_MS + seed * 7 * NS_PER_MS);
            rounds_freeze(r, 2);
            before = rounds_counts(r, 0).rounds_ok;
            rounds_run(r, 40 * NS_PER_S);
            check_seed(seed, rounds_counts(r, 0).rounds_ok > before);
            check_seed(seed, rounds_is_inside(r, -1e-4, 1 + 1e-4));
            rounds_destroy(r);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_schedule_gives_the_mean_to_all),
        cmocka_unit_test(kills_and_cuts_never_tear_a_part_of_any_schedule),
        cmocka_unit_test(a_poisoned_member_ends_the_schedule_and_not_the_averaging),
        cmocka_unit_test(a_silent_member_costs_one_deadline_then_rounds_are_direct),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
