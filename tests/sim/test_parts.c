/*
 * Rounds that carry a part of the model (averaging/codec/mask.h), by complete peers: which values
 * they move, at whom, and what is left of the others. A spy sees each difference before it is
 * added: -0 is where the round was not.
 */
#include "tests/check.h"

#include "base/bytes.h"
#include "base/hash.h"
#include "base/mem.h"
#include "tests/sim/spy.h"
#include "tests/sim/swarm.h"

#include <math.h>

enum { VALUES = 600, PEERS = 4, SEEN_MAX = 4096 };

static struct spy spy;

/* Masks, by what they hold. */
static struct {
    struct digest mask;
    uint32_t carried;
    uint32_t times[PEERS];
} seen[SEEN_MAX];
static uint32_t seen_count;
static uint32_t carried_of[PEERS][VALUES]; /* how often each value was */
static uint64_t touched;                   /* values outside a mask that changed */

static void note(uint32_t peer, const float *difference)
{
    uint8_t holds[VALUES];
    struct digest mask;
    uint32_t carried = 0, i = 0;

    for (size_t k = 0; k < VALUES; k++) {
        const float nothing = -0.0f;

        holds[k] = memcmp(&difference[k], &nothing, sizeof nothing) != 0;
        carried += holds[k];
        carried_of[peer][k] += holds[k];
    }
    mask = hash_of(holds, sizeof holds);
    while (i < seen_count && !digest_is_equal(seen[i].mask, mask))
        i++;
    assert_true(i < SEEN_MAX);
    if (i == seen_count) seen_count++;
    seen[i].mask = mask;
    seen[i].carried = carried;
    seen[i].times[peer]++;
}

static enum rc spy_import(struct learner *learner, enum section section, const float *difference,
                          size_t count)
{
    float before[VALUES], after[VALUES];
    enum rc rc;

    assert_int_equal(count, VALUES);
    assert_int_equal(spy.originals.export_section(learner, section, before, count), RC_OK);
    rc = spy.originals.import_section(learner, section, difference, count);
    assert_int_equal(spy.originals.export_section(learner, section, after, count), RC_OK);
    for (size_t k = 0; k < VALUES; k++) {
        const float nothing = -0.0f;

        if (memcmp(&difference[k], &nothing, sizeof nothing) != 0) continue;
        touched += memcmp(&before[k], &after[k], sizeof(float)) != 0;
    }
    note(spy_number(&spy, learner), difference);
    return rc;
}

static struct learner *spied_learner(void *context, uint32_t peer)
{
    struct learner *learner = spy_on_toy(&spy, peer, VALUES, 0.01);

    (void)context;
    spy.ops.import_section = spy_import;
    return learner;
}

static void forget(void)
{
    memset(seen, 0, sizeof seen);
    memset(carried_of, 0, sizeof carried_of);
    seen_count = 0;
    touched = 0;
}

static struct cluster *start(const char *averaging, uint64_t seed, bool is_spied)
{
    struct cluster_options options = {.peers = PEERS,
                                      .seed = seed,
                                      .averaging = averaging,
                                      .latency_ns = NS_PER_MS,
                                      .values = VALUES,
                                      .noise = 0.1,
                                      .learning_rate = 0.02,
                                      .centre_spread = 1,
                                      .learner = is_spied ? spied_learner : NULL};
    struct cluster *cluster = cluster_create(&options);

    forget();
    swarm_start(cluster, PEERS);
    check_seed(seed, cluster_run_until(cluster, cluster_is_whole, NULL, 20 * NS_PER_S));
    return cluster;
}

/* Fragments: there are P masks and no other, all members have each of them, together they hold each
 * value once, and what a round does not carry stays as it was to the bit. Also by who was killed in
 * the middle of a round and goes on from its checkpoint. */
static void fragments_are_the_same_at_all_members(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 3) {
        struct cluster *cluster = start("streaming-diloco:H=8,P=4,tau=1", seed, true);
        const uint32_t first = 0;
        uint32_t carried = 0;

        cluster_run(cluster, 4 * NS_PER_S);
        for (int kill = 0; kill < 5; kill++) {
            cluster_crash(cluster, 2);
            cluster_run(cluster, NS_PER_S + 7 * NS_PER_MS);
            cluster_start(cluster, 2, &first, 1);
            cluster_run(cluster, 2 * NS_PER_S + 3 * NS_PER_MS);
        }
        check_seed(seed, seen_count == 4 && touched == 0);
        for (uint32_t i = 0; i < seen_count; i++) {
            carried += seen[i].carried;
            for (uint32_t peer = 0; peer < PEERS; peer++) {
                check_seed(seed, seen[i].times[peer] > 3);
            }
        }
        check_seed(seed, carried == VALUES);
        cluster_destroy(cluster);
    }
}

/* Slots: a round carries one value in so many at all its members, and each value is carried as
 * often as any other, give or take the cycle that runs. */
static void slots_are_the_same_at_all_members(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 3) {
        struct cluster *cluster = start("sparta:H=2,p=0.1", seed, true);
        uint32_t shared = 0, rounds = 0;

        cluster_run(cluster, 10 * NS_PER_S);
        check_seed(seed, touched == 0 && seen_count > 50);
        for (uint32_t i = 0; i < seen_count; i++) {
            uint32_t members = 0;

            check_seed(seed, seen[i].carried == VALUES / 10);
            for (uint32_t peer = 0; peer < PEERS; peer++) {
                check_seed(seed, seen[i].times[peer] <= 1);
                members += seen[i].times[peer];
            }
            rounds++;
            shared += members > 1;
        }
        check_seed(seed, shared >= rounds - 4); /* the last may be under way, some one was late */
        for (uint32_t peer = 0; peer < PEERS; peer++) {
            uint32_t least = UINT32_MAX, most = 0;

            for (size_t k = 0; k < VALUES; k++) {
                if (carried_of[peer][k] < least) least = carried_of[peer][k];
                if (carried_of[peer][k] > most) most = carried_of[peer][k];
            }
            check_seed(seed, least > 2 && most <= least + 2);
        }
        cluster_destroy(cluster);
    }
}

/* Pairs have masks of their own: each of the two moves what the other does. */
static void two_that_meet_have_one_mask(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 3) {
        struct cluster_options options = {.peers = PEERS,
                                          .seed = seed,
                                          .averaging = "sparta:H=2,p=0.1",
                                          .exchange = "pair",
                                          .latency_ns = NS_PER_MS,
                                          .values = VALUES,
                                          .learner = spied_learner};
        struct cluster *cluster = cluster_create(&options);
        uint32_t alone = 0;

        forget();
        swarm_start(cluster, PEERS);
        cluster_run(cluster, 10 * NS_PER_S);
        check_seed(seed, touched == 0 && seen_count > 50);
        for (uint32_t i = 0; i < seen_count; i++) {
            uint32_t members = 0;

            check_seed(seed, seen[i].carried == VALUES / 10);
            for (uint32_t peer = 0; peer < PEERS; peer++) {
                members += seen[i].times[peer];
            }
            alone += members != 2;
        }
        check_seed(seed, alone <= 2); /* under way */
        cluster_destroy(cluster);
    }
}

/* Nothing moves but by rounds, and these leave the mean where it is: of a group with equal weights
 * as of two that meet half way. */
static void the_mean_of_what_is_carried_stays(void **state)
{
    (void)state;
    static const struct {
        const char *averaging, *exchange;
    } cases[] = {{"sparta:p=0.1", NULL},
                 {"sparta:p=0.1", "pair"},
                 {"loscar:H=4,p=0.25,tau=4", NULL},
                 {"streaming-diloco:H=8,P=4,tau=1,lr=1,momentum=0", NULL}};

    for (size_t c = 0; c < ARRAY_COUNT(cases); c++) {
        struct cluster_options options = {.peers = PEERS,
                                          .seed = c + 1,
                                          .averaging = cases[c].averaging,
                                          .exchange = cases[c].exchange,
                                          .latency_ns = NS_PER_MS,
                                          .values = VALUES,
                                          .is_quiet = true};
        struct cluster *cluster = cluster_create(&options);
        float plane[VALUES];
        double sums[VALUES] = {0}, after[VALUES] = {0}, before;
        struct rng rng;

        swarm_start(cluster, PEERS);
        assert_true(cluster_run_until(cluster, cluster_is_whole, NULL, 20 * NS_PER_S));
        rng_init(&rng, c, 3);
        for (uint32_t i = 0; i < PEERS; i++) {
            for (size_t k = 0; k < VALUES; k++) {
                plane[k] = (float)rng_normal(&rng);
                sums[k] += (double)plane[k];
            }
            cluster_assign(cluster, i, plane);
        }
        before = cluster_distance(cluster);
        cluster_run(cluster, 10 * NS_PER_S);
        if (!(cluster_distance(cluster) < 1e-3 * before)) {
            fail_msg("%s: %g apart, then %g", cases[c].averaging, before,
                     cluster_distance(cluster));
        }
        for (uint32_t i = 0; i < PEERS; i++) {
            cluster_plane(cluster, i, plane);
            for (size_t k = 0; k < VALUES; k++) {
                after[k] += (double)plane[k];
            }
        }
        if (cases[c].exchange != NULL) { /* exact negatives, whoever was there */
            for (size_t k = 0; k < VALUES; k++) {
                if (fabs(after[k] - sums[k]) > 1e-4) {
                    fail_msg("%s: value %zu: %g, then %g", cases[c].averaging, k, sums[k],
                             after[k]);
                }
            }
        }
        cluster_destroy(cluster);
    }
}

/* With one fragment, nothing beside a round and nothing of it kept it is diloco, to the bit. */
static void one_fragment_without_overlap_is_diloco(void **state)
{
    (void)state;
    static const char *const names[] = {"diloco:H=8,lr=0.4",
                                        "streaming-diloco:H=8,P=1,tau=0,a=0,lr=0.4"};
    float planes[2][PEERS][VALUES];
    uint64_t steps[2][PEERS];

    for (int i = 0; i < 2; i++) {
        struct cluster *cluster = start(names[i], 3, false);

        cluster_run(cluster, 5 * NS_PER_S);
        for (uint32_t peer = 0; peer < PEERS; peer++) {
            cluster_plane(cluster, peer, planes[i][peer]);
            steps[i][peer] = swarm_report(cluster, peer).step;
            assert_true(swarm_report(cluster, peer).rounds_ok > 20);
        }
        cluster_destroy(cluster);
    }
    assert_memory_equal(planes[0], planes[1], sizeof planes[0]);
    assert_memory_equal(steps[0], steps[1], sizeof steps[0]);
}

/* Training goes on while rounds run over slow lines, and not where it waits for them. */
static void steps_go_on_beside_rounds(void **state)
{
    (void)state;
    static const char *const names[] = {"none", "streaming-diloco:H=40,P=4,tau=8",
                                        "diloco:H=40,tau=30", "diloco:H=10"};
    uint64_t steps[ARRAY_COUNT(names)];

    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        struct cluster_options options = {.peers = PEERS,
                                          .seed = 1,
                                          .averaging = names[i],
                                          .latency_ns = 50 * NS_PER_MS,
                                          .values = VALUES,
                                          .step_cost_ns = 50 * NS_PER_MS};
        struct cluster *cluster = cluster_create(&options);

        swarm_start(cluster, PEERS);
        assert_true(cluster_run_until(cluster, cluster_is_whole, NULL, 20 * NS_PER_S));
        cluster_run(cluster, 10 * NS_PER_S);
        steps[i] = swarm_report(cluster, 1).step;
        cluster_run(cluster, 60 * NS_PER_S);
        steps[i] = swarm_report(cluster, 1).step - steps[i];
        cluster_destroy(cluster);
    }
    if (getenv("VERBOSE") != NULL) {
        for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
            printf("%s: %llu steps\n", names[i], (unsigned long long)steps[i]);
        }
    }
    assert_true(steps[1] >= steps[0] * 945 / 1000);
    assert_true(steps[2] >= steps[0] * 945 / 1000);
    assert_true(steps[3] < steps[0] * 80 / 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fragments_are_the_same_at_all_members),
        cmocka_unit_test(slots_are_the_same_at_all_members),
        cmocka_unit_test(two_that_meet_have_one_mask),
        cmocka_unit_test(the_mean_of_what_is_carried_stays),
        cmocka_unit_test(one_fragment_without_overlap_is_diloco),
        cmocka_unit_test(steps_go_on_beside_rounds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
