/*
 * Copies of neighbours in complete peers whose links are cut, who freeze and crash: a copy that
 * counts is the model it claims to be, to the bit, at every moment looked at; what is not goes out
 * whole, and then blocks again. SEEDS=N for more than a few.
 */
#include "tests/check.h"

#include "averaging/edge/edges.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/hash_wide.h"
#include "peer/node/internal.h"
#include "peer/round/internal.h"
#include "tests/sim/swarm.h"

#include <math.h>

enum { PEERS = 5, VALUES = CHUNK_VALUES + 700, CHUNKS = 2 };

static const struct digest none;

static const struct edges *edges_of(struct cluster *cluster, uint32_t peer)
{
    return (const struct edges *)(const void *)cluster_node(cluster, peer)->round->exchange;
}

static const struct edge_mirror *mirror_of(struct cluster *cluster, uint32_t holder, uint32_t of,
                                           const float **plane)
{
    const struct edges *edges = edges_of(cluster, holder);

    for (uint32_t i = 0; i < MIRRORS_MAX; i++) {
        const struct edge_mirror *mirror = &edges->mirrors[i];

        if (!mirror->is_used || digest_is_equal(mirror->digest, none)) continue;
        if (!peer_id_is_equal(mirror->peer, cluster_node(cluster, of)->self)) continue;
        *plane = cluster_node(cluster, holder)->round->mirrors[i];
        return mirror;
    }
    return NULL;
}

static struct digest digest_of(const float *plane)
{
    struct digest chunks[CHUNKS];

    chunks[0] = hash_wide_of(plane, CHUNK_VALUES * sizeof(float));
    chunks[1] = hash_wide_of(plane + CHUNK_VALUES, (VALUES - CHUNK_VALUES) * sizeof(float));
    return mirror_digest(chunks, CHUNKS);
}

/* Of all pairs, a bit each, which hold the other as it is, or was before the step of this round;
 * and none holds what it is not. */
static uint32_t check_copies(struct cluster *cluster, uint64_t seed)
{
    uint32_t close = 0;

    for (uint32_t i = 0; i < PEERS * PEERS; i++) {
        uint32_t holder = i / PEERS, of = i % PEERS;
        const float *plane = NULL;
        const struct edge_mirror *mirror;
        const struct round *round;

        if (holder == of || !cluster_is_up(cluster, holder) || !cluster_is_up(cluster, of))
            continue;
        mirror = mirror_of(cluster, holder, of, &plane);
        if (mirror == NULL) continue;
        check_seed(seed, digest_is_equal(digest_of(plane), mirror->digest));
        round = cluster_node(cluster, of)->round;
        if (digest_is_equal(mirror->digest, round->mirror_digest)) {
            check_seed(seed, memcmp(plane, round->own, VALUES * sizeof(float)) == 0);
        } else if (!digest_is_equal(mirror->digest, round->mirror_before)) {
            continue;
        }
        close |= UINT32_C(1) << i;
    }
    return close;
}

static struct cluster *start(uint64_t seed, const char *averaging, const char *codec)
{
    struct cluster_options options = {.peers = PEERS,
                                      .seed = seed,
                                      .latency_ns = 2 * NS_PER_MS,
                                      .jitter_ns = NS_PER_MS,
                                      .bytes_per_s = 4000000,
                                      .values = VALUES,
                                      .step_cost_ns = 100 * NS_PER_MS,
                                      .averaging = averaging,
                                      .codec = codec};
    struct cluster *cluster = cluster_create(&options);

    swarm_start(cluster, PEERS);
    check_seed(seed, cluster_run_until(cluster, cluster_is_whole, NULL, 20 * NS_PER_S));
    return cluster;
}

static uint64_t rounds_of(struct cluster *cluster, uint32_t peer)
{
    struct node_report report;

    node_report(cluster_node(cluster, peer), &report);
    return report.rounds_ok;
}

struct seen {
    uint64_t seed;
    uint32_t pairs; /* of which one held the other as it was, at some moment */
};

/* Two neighbours each, on a ring. Not all at one moment: who waits for the last of its neighbours
 * goes on as soon as that has its copy, and the other one is a step behind then. */
static bool does_everybody_follow(struct cluster *cluster, void *context)
{
    struct seen *seen = context;

    seen->pairs |= check_copies(cluster, seen->seed);
    return __builtin_popcount(seen->pairs) == 2 * PEERS;
}

/* Links are cut at random moments, and now and then somebody crashes. */
static void disturb(struct cluster *cluster, uint64_t seed)
{
    const uint32_t first = 0;
    struct rng rng;

    rng_init(&rng, seed, 4);
    for (int i = 0; i < 20; i++) {
        uint32_t a = (uint32_t)rng_below(&rng, PEERS), b = (uint32_t)rng_below(&rng, PEERS - 1);

        cluster_run(cluster, rng_below(&rng, 300) * NS_PER_MS);
        (void)check_copies(cluster, seed);
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

static void copies_are_never_silently_apart(void **state)
{
    static const char *const codecs[] = {
        "int8", "topk:0.05", "f16", "f32", "randk:0.05", "threshold:0.01", "lowrank:16|int8"};

    (void)state;
    FOR_EACH_SEED (seed, 1) {
        for (uint64_t i = 0; i < ARRAY_COUNT(codecs); i++) {
            struct cluster *cluster;
            struct seen seen = {seed, 0};
            uint64_t before;

            if (is_only_sanitized() && i == 2) continue; /* sim_methods_chaos has it */
            cluster = start(seed, (seed + i) % 2 == 0 ? "choco" : "choco:order=a", codecs[i]);
            disturb(cluster, seed);
            check_seed(seed, cluster_run_until(cluster, cluster_is_whole, NULL, 90 * NS_PER_S));
            cluster_run(cluster, 5 * NS_PER_S);
            before = rounds_of(cluster, 1);
            cluster_run(cluster, 5 * NS_PER_S);
            check_seed(seed, rounds_of(cluster, 1) > before + 5);
            check_seed(seed,
                       cluster_run_until(cluster, does_everybody_follow, &seen, 4 * NS_PER_S));
            cluster_destroy(cluster);
        }
    }
}

/* Whatever a codec of differences leaves out comes later: neighbours come together by its own step,
 * about where they would have met. */
static void neighbours_come_together_with_any_codec(void **state)
{
    static const char *const codecs[] = {"int4",          "int2", "qsgd:16",    "qsgd:1",
                                         "ternary",       "sign", "randk:0.05", "topk:64/4096|int2",
                                         "threshold:0.01"};

    (void)state;
    for (uint64_t i = 0; i < ARRAY_COUNT(codecs); i++) {
        struct cluster_options options = {.peers = PEERS,
                                          .seed = i,
                                          .latency_ns = 2 * NS_PER_MS,
                                          .values = VALUES,
                                          .step_cost_ns = 100 * NS_PER_MS,
                                          .is_quiet = true,
                                          .averaging = "choco:order=a",
                                          .codec = codecs[i]};
        struct cluster *cluster;
        double before, distance;

        if (is_only_sanitized() && i != 8) continue; /* unit/averaging/test_mirror.c has them all */
        cluster = cluster_create(&options);
        swarm_start(cluster, PEERS);
        assert_true(cluster_run_until(cluster, cluster_is_whole, NULL, 20 * NS_PER_S));
        for (uint32_t peer = 0; peer < PEERS; peer++) {
            static float plane[VALUES];

            for (size_t k = 0; k < VALUES; k++) {
                plane[k] = (float)(1 + sin((double)(k * (peer + 1))));
            }
            cluster_assign(cluster, peer, plane);
        }
        before = cluster_mean(cluster);
        distance = cluster_distance(cluster);
        cluster_run(cluster, 15 * NS_PER_S);
        if (!(cluster_distance(cluster) < 0.9 * distance) ||
            fabs(cluster_mean(cluster) - before) > 0.01) {
            fail_msg("%s: from %g to %g, mean from %g to %g", codecs[i], distance,
                     cluster_distance(cluster), before, cluster_mean(cluster));
        }
        cluster_destroy(cluster);
    }
}

/* Bytes a round of one peer takes, once every copy is there. */
static double bytes_a_round(const char *codec)
{
    struct cluster *cluster = start(3, "choco", codec);
    struct sim_counts before, after;
    uint64_t rounds;

    cluster_run(cluster, 3 * NS_PER_S);
    sim_counts(cluster_world(cluster), &before);
    rounds = rounds_of(cluster, 0);
    cluster_run(cluster, 4 * NS_PER_S);
    sim_counts(cluster_world(cluster), &after);
    rounds = rounds_of(cluster, 0) - rounds;
    assert_true(rounds > 20);
    cluster_destroy(cluster);
    return (double)(after.bytes - before.bytes) / (double)(PEERS * rounds);
}

static void what_travels_is_what_the_codec_keeps(void **state)
{
    double plain, eighth, kept, tiles;

    (void)state;
    if (is_only_sanitized()) skip();
    /* On a ring to two neighbours: 8 bytes a value with f32, a quarter with int8, and with topk 6
     * bytes for each that is kept. The rest is what a round costs beside that. */
    plain = bytes_a_round("f32");
    eighth = bytes_a_round("int8");
    kept = bytes_a_round("topk:0.05");
    tiles = bytes_a_round("topk:64/4096|int2");
    if (!(plain > 8.0 * VALUES && plain < 8.5 * VALUES)) fail_msg("f32: %g a round", plain);
    if (!(eighth < 0.27 * plain)) fail_msg("int8: %g a round of %g", eighth, plain);
    if (!(kept < 0.1 * plain)) fail_msg("topk:0.05: %g a round of %g", kept, plain);
    if (!(tiles < 0.03 * plain)) fail_msg("topk:64/4096|int2: %g a round of %g", tiles, plain);
}

/* With more neighbours than a peer keeps copies of: the rest comes whole each round, nobody is
 * refused or made to wait, and all come together. */
static void more_neighbours_than_copies_do_no_harm(void **state)
{
    enum { CROWD = MIRRORS_MAX + 4, FEW = 300 };
    struct cluster_options options = {.peers = CROWD,
                                      .seed = 1,
                                      .latency_ns = NS_PER_MS,
                                      .values = FEW,
                                      .step_cost_ns = 100 * NS_PER_MS,
                                      .is_quiet = true,
                                      .averaging = "choco",
                                      .topology = "complete",
                                      .codec = "int8"};
    struct cluster *cluster = cluster_create(&options);
    uint64_t warnings[CROWD], aborted[CROWD], ok[CROWD];
    double before;

    (void)state;
    swarm_start(cluster, CROWD);
    assert_true(cluster_run_until(cluster, cluster_is_whole, NULL, 20 * NS_PER_S));
    cluster_run(cluster, 4 * NS_PER_S);
    for (uint32_t i = 0; i < CROWD; i++) {
        struct node_report report;
        float plane[FEW];

        node_report(cluster_node(cluster, i), &report);
        aborted[i] = report.rounds_aborted;
        ok[i] = report.rounds_ok;
        warnings[i] = cluster_warnings(cluster, i);
        for (size_t k = 0; k < FEW; k++) {
            plane[k] = (float)((i * 31 + k * 7) % 17);
        }
        cluster_assign(cluster, i, plane);
    }
    before = cluster_distance(cluster);
    cluster_run(cluster, 6 * NS_PER_S);
    for (uint32_t i = 0; i < CROWD; i++) {
        const struct edges *edges = edges_of(cluster, i);
        const struct round *round = cluster_node(cluster, i)->round;
        struct node_report report;
        uint32_t held = 0;

        node_report(cluster_node(cluster, i), &report);
        if (report.rounds_ok < ok[i] + 20) {
            fail_msg("peer %u: %llu rounds", i, (unsigned long long)(report.rounds_ok - ok[i]));
        }
        assert_int_equal(report.rounds_aborted, aborted[i]);
        assert_int_equal(cluster_warnings(cluster, i), warnings[i]);
        assert_int_equal(round->stats.chunks_refused, 0);
        for (uint32_t k = 0; k < MIRRORS_MAX; k++) {
            held += edges->mirrors[k].is_used;
        }
        assert_int_equal(held, MIRRORS_MAX - EDGES_SLOTS);
    }
    if (!(cluster_distance(cluster) < 0.01 * before)) {
        fail_msg("%g apart, then %g", before, cluster_distance(cluster));
    }
    cluster_destroy(cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_are_never_silently_apart),
        cmocka_unit_test(neighbours_come_together_with_any_codec),
        cmocka_unit_test(what_travels_is_what_the_codec_keeps),
        cmocka_unit_test(more_neighbours_than_copies_do_no_harm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
