/* On busy machines peers are late at their ends, and still have their last round together. */
#include "tests/sim/finish.h"

enum { PAUSES = 3 };

/* A host that is busy with other things stands still for a while, again and again. */
struct pause {
    uint64_t at_ns, until_ns;
    bool is_on;
};

static void pauses_draw(struct rng *rng, struct pause *pauses, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        pauses[i] = (struct pause){.at_ns = 2500 * NS_PER_MS + rng_below(rng, 4000) * NS_PER_MS};
        pauses[i].until_ns = pauses[i].at_ns + (50 + rng_below(rng, 1450)) * NS_PER_MS;
    }
}

/* True: one of them is on. */
static bool pauses_play(struct pause pauses[][PAUSES], uint32_t peers)
{
    const uint64_t now_ns = sim_now_ns(cluster_world(seen.cluster));
    bool is_any = false;

    for (uint32_t i = 0; i < peers; i++) {
        bool is_on = false, was_on = false;

        for (uint32_t k = 0; k < PAUSES; k++) {
            struct pause *pause = &pauses[i][k];

            was_on = was_on || pause->is_on;
            pause->is_on = now_ns >= pause->at_ns && now_ns < pause->until_ns;
            is_on = is_on || pause->is_on;
        }
        if (is_on != was_on && cluster_is_up(seen.cluster, i)) {
            sim_host_freeze(cluster_world(seen.cluster), i + 1, is_on);
        }
        is_any = is_any || is_on;
    }
    return is_any;
}

/* Three peers whose hosts pause at the end. False: one of them came to its goal, or was itself
 * again, later than the others have to wait. */
static bool three_pause(uint64_t seed, const double *speeds)
{
    struct pause pauses[3][PAUSES];
    uint64_t first_ns = UINT64_MAX, last_ns = 0, paused_ns = 0;
    struct rng rng;

    rng_init(&rng, seed, 13);
    finish_create(seed, "local-sgd:H=16", speeds);
    swarm_start(seen.cluster, 3);
    for (uint32_t i = 0; i < 3; i++) {
        pauses_draw(&rng, pauses[i], PAUSES);
    }
    while (!finish_is_done(seen.cluster, NULL)) {
        check_seed(seed, sim_now_ns(cluster_world(seen.cluster)) < 60 * NS_PER_S);
        cluster_run(seen.cluster, 10 * NS_PER_MS);
        if (pauses_play(pauses, 3)) paused_ns = sim_now_ns(cluster_world(seen.cluster));
    }
    for (uint32_t i = 0; i < 3; i++) {
        if (seen.goal_ns[i] < first_ns) first_ns = seen.goal_ns[i];
        if (seen.goal_ns[i] > last_ns) last_ns = seen.goal_ns[i];
    }
    if (last_ns < paused_ns) last_ns = paused_ns;
    if (getenv("VERBOSE") != NULL) {
        printf("%d: %g apart, then %g; at goals %.2f s after the first\n", (int)seed,
               finish_spread(seen.at_goal, 3), finish_spread(seen.last, 3),
               (double)(last_ns - first_ns) / NS_PER_S);
    }
    return last_ns - first_ns < 9 * NS_PER_S / 2; /* of six seconds */
}

/* Seeds that end apart, of those in which all came in time. */
static void few_end_apart(const char *robust, uint32_t share)
{
    double speeds[PEERS] = {1, 1, 1, 1};
    uint32_t in_time = 0, apart = 0, seeds = 0;

    seen.robust = robust;
    seen.peers = 3;
    FOR_EACH_SEED (seed, 200) {
        speeds[1] = 1 - 0.01 * (double)(seed % 16);
        speeds[2] = 1 - 0.02 * (double)(seed % 8);
        seeds++;
        if (three_pause(seed, speeds)) {
            in_time++;
            apart += !(finish_spread(seen.last, 3) < 1e-4);
        }
        cluster_destroy(seen.cluster);
    }
    /* Rounds fail for reasons of their own, and a late peer may have time for one try only. */
    printf("%s: %u of %u ended apart\n", robust, apart, in_time);
    assert_true(apart <= (in_time + share - 1) / share); /* of few seeds one may, too */
    assert_true(in_time > seeds / 2 || getenv("SEED") != NULL);
}

/* On busy machines everything is late, also the words and the rounds of the end: a peer that comes
 * in the time that is given still ends with the same model as the others. Of seeds 1 to 1,000 6 of
 * 994 do not; where each left after a round of its own, 12 of the first 31 did not. */
static void who_pauses_ends_with_the_same_model(void **state)
{
    (void)state;
    few_end_apart("none", 100);
}

/* The guard does not take a mean that is farther away than missed rounds explain: 12 of the same
 * 994 end apart. */
static void who_pauses_and_clips_nearly_always_does(void **state)
{
    (void)state;
    few_end_apart("auto", 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_pauses_ends_with_the_same_model),
        cmocka_unit_test(who_pauses_and_clips_nearly_always_does),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
