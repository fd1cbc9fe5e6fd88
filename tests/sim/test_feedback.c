/*
 * Rounds of differences with error feedback in complete peers whose links are cut, who freeze,
 * crash and come back from checkpoints: at rest all hold the same anchor to the bit, whatever
 * happened. SEEDS=N for more than a few.
 */
#include "tests/check.h"

#include "base/check.h"
#include "peer/node/internal.h"
#include "peer/round/internal.h"
#include "tests/sim/swarm.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PEERS = 5, VALUES = CHUNK_VALUES + 700, MANY = 4 * CHUNK_VALUES };

static const char *const methods[][2] = {{"sparseloco:H=4,lr=0.4", "topk:0.05"},
                                         {"diloco:H=4,lr=0.5", "int8+ef:0.9"},
                                         {"local-sgd:H=4", "topk:0.25+ef:0.9"},
                                         {"allreduce", "lowrank:8|int8+ef"}};

static struct cluster *start_with(uint64_t seed, uint32_t peers, const char *const method[2],
                                  size_t values)
{
    struct cluster_options options = {.peers = peers,
                                      .seed = seed,
                                      .latency_ns = 2 * NS_PER_MS,
                                      .jitter_ns = NS_PER_MS,
                                      .bytes_per_s = 4000000,
                                      .values = values,
                                      .learning_rate = 0.02,
                                      .centre_spread = 1,
                                      .step_cost_ns = 50 * NS_PER_MS,
                                      .averaging = method[0],
                                      .codec = method[1]};
    struct cluster *cluster = cluster_create(&options);

    swarm_start(cluster, peers);
    check_seed(seed, cluster_run_until(cluster, cluster_is_whole, NULL, 20 * NS_PER_S));
    return cluster;
}

static struct cluster *start(uint64_t seed, uint32_t peers, const char *const method[2])
{
    return start_with(seed, peers, method, VALUES);
}

static const float *anchor_of(struct cluster *cluster, uint32_t peer)
{
    const float *planes[RULE_STATE_MAX];
    struct round *round = cluster_node(cluster, peer)->round;

    return round_rule_state(round, planes) == 0 ? NULL : planes[0];
}

/* All are through the same round, and nothing of it is under way. */
static bool are_alike(struct cluster *cluster, void *context)
{
    const uint32_t peers = *(const uint32_t *)context;
    const float *first = NULL;

    for (uint32_t i = 0; i < peers; i++) {
        const struct node *node = cluster_node(cluster, i);
        const float *anchor;

        if (node == NULL || node->round == NULL || round_is_settling(node->round)) return false;
        anchor = anchor_of(cluster, i);
        if (anchor == NULL) return false;
        if (first == NULL) first = anchor;
        if (memcmp(first, anchor, VALUES * sizeof(float)) != 0) return false;
    }
    return true;
}

/* Links are cut at random moments, a peer freezes, and now and then one crashes. */
static void disturb(struct cluster *cluster, uint64_t seed)
{
    const uint32_t first = 0;
    struct rng rng;

    rng_init(&rng, seed, 4);
    for (int i = 0; i < 16; i++) {
        uint32_t a = (uint32_t)rng_below(&rng, PEERS), b = (uint32_t)rng_below(&rng, PEERS - 1);

        cluster_run(cluster, rng_below(&rng, 500) * NS_PER_MS);
        if (b >= a) b++;
        if (i % 8 == 7 && a != 0) {
            cluster_crash(cluster, a);
            cluster_run(cluster, NS_PER_S);
            cluster_start(cluster, a, &first, 1);
        } else {
            sim_cut(cluster_world(cluster), a + 1, b + 1);
        }
    }
}

static void anchors_are_alike_again_after_faults(void **state)
{
    uint32_t peers = PEERS;

    (void)state;
    FOR_EACH_SEED (seed, 2) {
        for (size_t m = 0; m < ARRAY_COUNT(methods); m++) {
            struct cluster *cluster = start(seed, PEERS, methods[m]);
            uint64_t before;

            disturb(cluster, seed);
            check_seed(seed, cluster_run_until(cluster, cluster_is_whole, NULL, 60 * NS_PER_S));
            cluster_run(cluster, 10 * NS_PER_S);
            before = swarm_report(cluster, 1).rounds_ok;
            if (!cluster_run_until(cluster, are_alike, &peers, 60 * NS_PER_S)) {
                fail_msg("SEED=%llu: %s, %s: anchors are still unlike", (unsigned long long)seed,
                         methods[m][0], methods[m][1]);
            }
            cluster_run(cluster, 10 * NS_PER_S);
            check_seed(seed, cluster_run_until(cluster, are_alike, &peers, 10 * NS_PER_S));
            check_seed(seed, swarm_report(cluster, 1).rounds_ok > before + 5);
            check_seed(seed, cluster_distance(cluster) < 60);
            cluster_destroy(cluster);
        }
    }
}

/* One whose anchor is another than most have gets theirs, and they do not get its. */
static void who_is_astray_is_brought_back(void **state)
{
    uint32_t peers = PEERS;

    (void)state;
    for (size_t m = 0; m < ARRAY_COUNT(methods); m++) {
        struct cluster *cluster = start(m + 3, PEERS, methods[m]);
        float *anchor, begun[2];

        cluster_run(cluster, 5 * NS_PER_S);
        assert_true(cluster_run_until(cluster, are_alike, &peers, 10 * NS_PER_S));
        anchor = (float *)(uintptr_t)anchor_of(cluster, 2);
        begun[0] = anchor[3];
        begun[1] = anchor[CHUNK_VALUES + 20];
        anchor[3] += 5;
        anchor[CHUNK_VALUES + 20] -= 5;
        assert_false(are_alike(cluster, &peers));
        assert_true(cluster_run_until(cluster, are_alike, &peers, 30 * NS_PER_S));
        for (uint32_t i = 0; i < PEERS; i++) {
            assert_true(anchor_of(cluster, i)[3] < begun[0] + 4);
            assert_true(anchor_of(cluster, i)[CHUNK_VALUES + 20] > begun[1] - 4);
        }
        cluster_destroy(cluster);
    }
}

static double far_from(const float *a, const float *b, size_t count)
{
    double squared = 0;

    for (size_t i = 0; i < count; i++) {
        squared += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    }
    return sqrt(squared / (double)count);
}

/* One that is so far away that it refuses what the others hold leads them nowhere, though it says
 * how far it is in each round, and comes back in the end. */
static void who_refuses_what_others_hold_leads_nobody(void **state)
{
    uint32_t peers = 3;
    static float before[CHUNK_VALUES];

    (void)state;
    for (size_t m = 0; m < ARRAY_COUNT(methods); m++) {
        struct cluster *cluster = start(m + 7, peers, methods[m]);
        float *anchor;
        double led = 0;
        int waited = 0;

        cluster_run(cluster, 5 * NS_PER_S);
        assert_true(cluster_run_until(cluster, are_alike, &peers, 10 * NS_PER_S));
        anchor = (float *)(uintptr_t)anchor_of(cluster, 2);
        memcpy(before, anchor, sizeof before);
        for (size_t i = 0; i < CHUNK_VALUES; i++) {
            anchor[i] += i % 2 == 0 ? 4 : -4;
        }
        while (!cluster_run_until(cluster, are_alike, &peers, NS_PER_S)) {
            led = fmax(led, far_from(anchor_of(cluster, 0), before, CHUNK_VALUES));
            assert_true(++waited < 40);
        }
        led = fmax(led, far_from(anchor_of(cluster, 0), before, CHUNK_VALUES));
        printf("%s, %s: after %d s all are alike; the others were led %.2f away\n", methods[m][0],
               methods[m][1], waited, led);
        assert_true(led < 1);
        cluster_destroy(cluster);
    }
}

/* What was left out before a crash is in the checkpoint, and comes after it. */
static void what_is_left_survives_a_crash(void **state)
{
    const uint32_t first = 0;
    uint32_t peers = 3;
    struct cluster *cluster = start(5, peers, methods[0]);
    const float *residual;
    double sum = 0;

    (void)state;
    cluster_run(cluster, 40 * NS_PER_S); /* checkpoints were written */
    cluster_crash(cluster, 2);
    cluster_start(cluster, 2, &first, 1);
    residual = round_residual(cluster_node(cluster, 2)->round);
    assert_non_null(residual);
    for (size_t i = 0; i < VALUES; i++) {
        sum += (double)residual[i] * (double)residual[i];
    }
    assert_true(sum > 0);
    assert_true(cluster_run_until(cluster, are_alike, &peers, 60 * NS_PER_S));
    cluster_destroy(cluster);
}

/* Who joins gets the anchor, and of what others left out nothing. */
static void who_joins_has_the_anchor_and_nothing_left(void **state)
{
    const uint32_t first = 0;
    uint32_t peers = 3;
    struct cluster *cluster = start(6, PEERS, methods[0]);

    (void)state;
    cluster_run(cluster, 10 * NS_PER_S);
    cluster_crash(cluster, 4);
    cluster_lose(cluster, 4);
    cluster_run(cluster, 5 * NS_PER_S);
    cluster_start(cluster, 4, &first, 1);
    peers = PEERS;
    assert_true(cluster_run_until(cluster, are_alike, &peers, 60 * NS_PER_S));
    cluster_destroy(cluster);
}

static double bytes_a_round(uint32_t peers, const char *averaging, const char *codec)
{
    const char *const method[2] = {averaging, codec};
    struct cluster *cluster = start_with(2, peers, method, MANY);
    uint64_t bytes = 0, rounds = 0;

    cluster_run(cluster, 5 * NS_PER_S); /* the first round is of whole models */
    for (uint32_t i = 0; i < peers; i++) {
        bytes -= swarm_report(cluster, i).bytes_sent;
        rounds -= swarm_report(cluster, i).rounds_ok;
    }
    cluster_run(cluster, 40 * NS_PER_S);
    for (uint32_t i = 0; i < peers; i++) {
        bytes += swarm_report(cluster, i).bytes_sent;
        rounds += swarm_report(cluster, i).rounds_ok;
    }
    cluster_destroy(cluster);
    return (double)bytes / (double)rounds;
}

/* All that is sent is counted, also what keeps the swarm together. Of 4,096 values the codec takes
 * 112 bytes and a few, float32 16,384; and it takes n - 1 of them where float32 takes twice
 * (n - 1) / n. */
static void bytes_are_a_small_part_of_those_of_float32(void **state)
{
    static const struct {
        uint32_t peers;
        double least;
    } cases[] = {{8, 30}, {2, 100}};

    (void)state;
    if (is_only_sanitized()) skip();
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        double full = bytes_a_round(cases[i].peers, "diloco:H=30", NULL);
        double sparse = bytes_a_round(cases[i].peers, "sparseloco:H=30", NULL);

        printf("%u peers, %d values: %.0f bytes a round with diloco, %.0f with sparseloco: %.1f "
               "times fewer\n",
               cases[i].peers, MANY, full, sparse, full / sparse);
        assert_true(full / sparse > cases[i].least);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(anchors_are_alike_again_after_faults),
        cmocka_unit_test(who_is_astray_is_brought_back),
        cmocka_unit_test(who_refuses_what_others_hold_leads_nobody),
        cmocka_unit_test(what_is_left_survives_a_crash),
        cmocka_unit_test(who_joins_has_the_anchor_and_nothing_left),
        cmocka_unit_test(bytes_are_a_small_part_of_those_of_float32),
    };

    if (getenv("ONLY") != NULL) cmocka_set_test_filter(getenv("ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
