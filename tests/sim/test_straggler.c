/*
 * One peer of eight is ten times slower. Methods that wait for nobody, and those paced by time, get
 * to their target nearly as fast as eight equal peers do: fast peers take more steps meanwhile, and
 * what groups merge counts by the samples behind it. Pairs move by opposite differences whatever
 * the samples, as their mean must stay: eight peers of mean speed 7.1/8 cannot do better than 8/7.1
 * = 1.127 then.
 */
#include "tests/check.h"

#include "base/bytes.h"
#include "testnet/simulation.h"

#include <math.h>

enum { PEERS = 8 };

/* Virtual seconds from the first step to the target loss, of all peers' mean. */
static double seconds_to_target(const struct strategy_specs *specs, bool has_straggler,
                                uint64_t seed)
{
    double speeds[PEERS] = {1, 1, 1, 1, 1, 1, 1, has_straggler ? 0.1 : 1};
    struct strategy strategy;
    struct simulation_result result;
    struct fault why = {""};

    assert_int_equal(strategy_parse(specs, &strategy, &why), RC_OK);
    const struct simulation_options options = {.peers = PEERS,
                                               .seed = seed,
                                               .strategy = &strategy,
                                               .values = 1000,
                                               .step_ns = 10 * NS_PER_MS,
                                               .speeds = speeds,
                                               .learning_rate = 0.004,
                                               .noise = 1,
                                               .target_loss = 0.0008,
                                               .time_ns = 120 * NS_PER_S,
                                               .link.latency_ns = NS_PER_MS};
    assert_int_equal(simulation_run(&options, &result, &why), RC_OK);
    check_seed(seed, result.is_finite && result.is_one_swarm && result.has_progress);
    return result.time_to_target_s;
}

/* A guard holds that one, which is behind, for farther than usual: it then helps less. */
static void check_method(const char *averaging, const char *pace, const char *robust, double most)
{
    const struct strategy_specs specs = {.averaging = averaging, .pace = pace, .robust = robust};

    FOR_EACH_SEED (seed, 1) {
        double equal_s = seconds_to_target(&specs, false, seed);
        double straggler_s = seconds_to_target(&specs, true, seed);

        printf("%s%s%s, robust %s: %.2f s with equal peers, %.2f s with a straggler: %.3f\n",
               averaging, pace == NULL ? "" : " --pace ", pace == NULL ? "" : pace, robust, equal_s,
               straggler_s, straggler_s / equal_s);
        check_seed(seed, straggler_s <= most * equal_s);
    }
}

static void pairs_lose_little_to_a_straggler(void **state)
{
    (void)state;
    check_method("ad-psgd:H=4", NULL, "none", 1.15);
    check_method("ad-psgd:H=4", NULL, "auto", 1.3);
}

static void groups_paced_by_time_lose_little_to_a_straggler(void **state)
{
    (void)state;
    check_method("local-sgd", "time=200ms", "auto", 1.15);
    check_method("moshpit", "time=200ms", "auto", 1.15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_lose_little_to_a_straggler),
        cmocka_unit_test(groups_paced_by_time_lose_little_to_a_straggler),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
