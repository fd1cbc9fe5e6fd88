/*
 * Groups in a swarm that is not linked in full: their members have to find each other first. Nobody
 * trains; what a round leaves of the distance says whether rounds come about and mix everyone. The
 * long forms:
 *   PEERS=1000 build/tests/sim_large_groups   (any number; a minute of processor time for 1,000)
 */
#include "tests/check.h"

#include "testnet/simulation.h"

#include <stdio.h>
#include <math.h>

enum { PEERS = 132, ROUNDS = 5 };

static uint32_t peers(void)
{
    const char *text = getenv("PEERS");

    return text == NULL ? PEERS : (uint32_t)strtoul(text, NULL, 10);
}

static void groups_come_about_beyond_a_full_mesh(void **state)
{
    struct strategy_specs specs = {.averaging = "moshpit", .topology = "groups:8"};
    struct strategy strategy;
    struct simulation_result result;
    struct spectrum spectrum;
    struct fault why = {""};

    (void)state;
    assert_int_equal(strategy_parse(&specs, &strategy, &why), RC_OK);
    const struct simulation_options options = {.peers = peers(),
                                               .seed = seed_first(),
                                               .strategy = &strategy,
                                               .values = 50,
                                               .step_ns = 10 * NS_PER_MS,
                                               .rounds = ROUNDS,
                                               .link = {.latency_ns = NS_PER_MS},
                                               .time_ns = 60 * NS_PER_S,
                                               .is_still = true};
    assert_int_equal(simulation_spectrum(&options, &spectrum), RC_OK);
    assert_int_equal(simulation_run(&options, &result, &why), RC_OK);
    printf("%u peers: %.1f rounds each in %.1f s, %llu aborted; a round left %.3f of the distance, "
           "theory says %.3f\n",
           options.peers, result.last.rounds_per_peer, result.last.t_s,
           (unsigned long long)result.last.rounds_aborted, result.contraction, spectrum.rho);
    assert_true(result.is_finite && result.has_progress && result.is_one_swarm);
    /* Most rounds that begin are committed, and soon: there are six paces in a second. */
    assert_true(20 * result.last.rounds_aborted < result.last.rounds_ok);
    assert_true(result.last.rounds_per_peer > result.last.t_s);
    assert_true(result.contraction < 1.5 * spectrum.rho);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_come_about_beyond_a_full_mesh),
    };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    if (getenv("PEERS") == NULL) {
        puts("skipped: 130 peers' handshakes take minutes under sanitizers; PEERS=132 runs it");
        return 77;
    }
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
