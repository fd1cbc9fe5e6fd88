/*
 * Complete peers under random accidents, seed by seed: tests/sim/chaos.h says what must hold.
 *   SEED=17 TRACE=1   one seed, and everything that happens in it
 *   HEAL=1   how long each seed took to heal
 *   FIRST=1 SEEDS=2000   a campaign; tests/bench/chaos_campaign.sh spreads it over the cores
 */
#include "tests/sim/chaos.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SEEDS_GATE = 30 };
#else
enum { SEEDS_GATE = 200 };
#endif
enum { REPLAYS_EVERY = 20 };

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text == NULL ? otherwise : strtoull(text, NULL, 10);
}

static void whatever_happens_models_stay_whole_and_the_swarm_heals(void **state)
{
    uint64_t first = number_of("SEED", number_of("FIRST", 1));
    uint64_t count = getenv("SEED") != NULL ? 1 : number_of("SEEDS", SEEDS_GATE);
    uint64_t events = 0, failures = 0;

    (void)state;
    for (uint64_t seed = first; seed < first + count; seed++) {
        struct sim_counts counts;
        uint64_t trace = chaos_live(seed, &counts);

        events += counts.events;
        if (seed % REPLAYS_EVERY == 0 && getenv("TRACE") == NULL) {
            failures += chaos_live(seed, NULL) != trace;
            check_seed(seed, failures == 0);
        }
    }
    printf("%llu seeds from %llu, %llu events\n", (unsigned long long)count,
           (unsigned long long)first, (unsigned long long)events);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_happens_models_stay_whole_and_the_swarm_heals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
