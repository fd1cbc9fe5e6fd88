/*
 * A simulated swarm from its first peer to its summary: starts, samples, faults and their ends.
 * The loop goes by slices of virtual time; what happens inside one is the simulated world's.
 */
#include "testnet/simulation.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/floats.h"
#include "base/mem.h"
#include "replica/learners/quadratic.h"

#include <math.h>
#include <stdlib.h>

enum { COMPLETE_PEERS_MAX = 256, BOOTSTRAPS = 3, SLOWER = 10 };
static const uint64_t slice_ns = 50 * NS_PER_MS;
enum { ROUNDS_TO_SETTLE = 10000 }; /* at most */
static const uint64_t settle_ns = 500 * NS_PER_MS;

/* A fault under way, of one peer. */
struct injury {
    bool is_down, is_frozen, is_slow;
    uint64_t down_until_ns, frozen_until_ns, slow_until_ns;
    uint64_t rounds_ok, rounds_aborted; /* of lives that ended */
};

struct simulation {
    const struct simulation_options *options;
    struct cluster *cluster;
    struct chaos chaos;
    struct rng rng;
    struct injury *injuries; /* [peers] */
    bool *sides;             /* [peers] of the partition */
    uint64_t partition_until_ns;
    uint64_t faults;
    uint64_t settled_ns;     /* still: all know each other then, 0: they do not average yet */
    bool is_apart;           /* the peers were put apart */
    double apart;            /* and how far */
    bool has_begun;          /* and each had a round since: from here on it is measured */
    double distance, rounds; /* then */
    double begun_s;          /* the last slice before the first step */
    double *optimum;         /* [values] mean of all centres */
    double *mean;            /* [values] */
    float *plane;            /* [values] */
};

static uint64_t now_of(const struct simulation *simulation)
{
    return sim_now_ns(cluster_world(simulation->cluster));
}

/* ---- life ---- */

static void start_peer(struct simulation *simulation, uint32_t peer)
{
    uint32_t bootstrap[BOOTSTRAPS];
    size_t count = 0;

    for (int tries = 0; tries < 8 * BOOTSTRAPS && count < BOOTSTRAPS; tries++) {
        uint32_t other = (uint32_t)rng_below(&simulation->rng, simulation->options->peers);

        if (other != peer && cluster_is_up(simulation->cluster, other)) bootstrap[count++] = other;
    }
    cluster_start(simulation->cluster, peer, bootstrap, count);
}

static bool create(struct simulation *simulation, const struct simulation_options *options)
{
    struct cluster_options cluster = {
        .peers = options->peers,
        .seed = options->seed,
        .strategy = options->strategy,
        .values = options->values,
        .step_cost_ns = options->step_ns,
        .speeds = options->speeds,
        .trace = options->trace,
        .sites = options->sites,
        .latency_ns = options->link.latency_ns,
        .jitter_ns = options->link.jitter_ns,
        .bytes_per_s = options->link.bytes_per_s,
        .loss = options->link.loss,
        .start_with = options->target_loss > 0 ? options->peers : 0,
        .noise = options->noise > 0 ? options->noise : 0.1,
        .centre_spread = options->centre_spread,
        .learning_rate = options->learning_rate > 0 ? options->learning_rate : 0.05,
        .is_quiet = options->is_still};

    *simulation = (struct simulation){.options = options, .chaos = options->chaos};
    rng_init(&simulation->rng, options->seed, 4711);
    simulation->cluster = cluster_create(&cluster);
    simulation->injuries = mem_array(options->peers, sizeof *simulation->injuries);
    simulation->sides = mem_array(options->peers, sizeof *simulation->sides);
    simulation->optimum = mem_array(options->values, sizeof *simulation->optimum);
    simulation->mean = mem_array(options->values, sizeof *simulation->mean);
    simulation->plane = mem_array(options->values, sizeof *simulation->plane);
    return simulation->cluster != NULL && simulation->injuries != NULL &&
           simulation->sides != NULL && simulation->optimum != NULL && simulation->mean != NULL &&
           simulation->plane != NULL;
}

/* Hosts are peers and one more in front of them. */
static void part_sites(const struct simulation *simulation)
{
    const struct simulation_options *options = simulation->options;

    for (uint32_t a = 0; a < options->peers && options->sites > 1; a++) {
        for (uint32_t b = 0; b < options->peers; b++) {
            if (a % options->sites == b % options->sites) continue;
            sim_path_set(cluster_world(simulation->cluster), a + 1, b + 1, &options->across);
        }
    }
}

static void destroy(struct simulation *simulation)
{
    cluster_destroy(simulation->cluster);
    mem_free(simulation->injuries);
    mem_free(simulation->sides);
    mem_free(simulation->optimum);
    mem_free(simulation->mean);
    mem_free(simulation->plane);
}

/* The first peer starts the swarm, the others know of some that are up: all within a slice. */
static void start_all(struct simulation *simulation)
{
    double share = 1.0 / simulation->options->peers;

    for (uint32_t i = 0; i < simulation->options->peers; i++) {
        const float *centre;

        start_peer(simulation, i);
        centre = quadratic_centre(cluster_learner(simulation->cluster, i));
        for (size_t k = 0; k < simulation->options->values; k++) {
            simulation->optimum[k] += share * (double)centre[k];
        }
    }
}

/* ---- faults ---- */

static void add_rounds(struct simulation *simulation, uint32_t peer, uint64_t *ok,
                       uint64_t *aborted)
{
    struct node_report report;

    node_report(cluster_node(simulation->cluster, peer), &report);
    *ok += report.rounds_ok;
    *aborted += report.rounds_aborted;
}

static void set_partition(struct simulation *simulation, bool is_cut)
{
    struct sim_world *world = cluster_world(simulation->cluster);
    uint32_t peers = simulation->options->peers;

    if (is_cut) {
        for (uint32_t i = 0; i < peers; i++) {
            simulation->sides[i] = rng_below(&simulation->rng, 2) == 0;
        }
    }
    for (uint32_t a = 0; a < peers; a++) {
        for (uint32_t b = a + 1; b < peers; b++) {
            if (simulation->sides[a] == simulation->sides[b]) continue;
            sim_block(world, a + 1, b + 1, is_cut); /* hosts count from 1 */
            sim_block(world, b + 1, a + 1, is_cut);
        }
    }
}

static void strike(struct simulation *simulation, const struct chaos_rule *rule, uint32_t peer,
                   uint64_t until_ns)
{
    struct sim_world *world = cluster_world(simulation->cluster);
    struct injury *injury = &simulation->injuries[peer];

    simulation->faults++;
    switch (rule->kind) {
    case CHAOS_KILL:
        add_rounds(simulation, peer, &injury->rounds_ok, &injury->rounds_aborted);
        cluster_crash(simulation->cluster, peer);
        injury->is_down = true;
        injury->is_frozen = injury->is_slow = false; /* another process comes back */
        injury->down_until_ns = until_ns;
        break;
    case CHAOS_FREEZE:
        sim_host_freeze(world, peer + 1, true);
        injury->is_frozen = true;
        injury->frozen_until_ns = until_ns;
        break;
    case CHAOS_SLOW:
        sim_host_faults(world, peer + 1)->slow = SLOWER;
        injury->is_slow = true;
        injury->slow_until_ns = until_ns;
        break;
    case CHAOS_PARTITION:
    case CHAOS_KIND_COUNT:
        break;
    }
}

static void cause_faults(struct simulation *simulation, uint64_t now_ns)
{
    uint32_t peers = simulation->options->peers;
    size_t index;

    while (chaos_due(&simulation->chaos, now_ns, &index)) {
        const struct chaos_rule *rule = &simulation->chaos.rules[index];
        uint32_t count = 0, chosen;

        if (rule->kind == CHAOS_PARTITION) {
            if (simulation->partition_until_ns != 0) continue; /* one at a time */
            simulation->faults++;
            simulation->partition_until_ns = now_ns + rule->after_ns;
            set_partition(simulation, true);
            continue;
        }
        for (uint32_t i = 0; i < peers; i++) {
            const struct injury *injury = &simulation->injuries[i];

            count += !injury->is_down && !injury->is_frozen && !injury->is_slow;
        }
        if (count < 2) continue; /* somebody must be left to go on */
        chosen = chaos_pick(&simulation->chaos, index, count);
        for (uint32_t i = 0; i < peers; i++) {
            const struct injury *injury = &simulation->injuries[i];

            if (injury->is_down || injury->is_frozen || injury->is_slow || chosen-- > 0) continue;
            strike(simulation, rule, i, now_ns + rule->after_ns);
            break;
        }
    }
}

static void end_faults(struct simulation *simulation, uint64_t now_ns)
{
    struct sim_world *world = cluster_world(simulation->cluster);

    if (simulation->partition_until_ns != 0 && now_ns >= simulation->partition_until_ns) {
        simulation->partition_until_ns = 0;
        set_partition(simulation, false);
    }
    for (uint32_t i = 0; i < simulation->options->peers; i++) {
        struct injury *injury = &simulation->injuries[i];

        if (injury->is_down && now_ns >= injury->down_until_ns) {
            injury->is_down = false;
            start_peer(simulation, i);
        }
        if (injury->is_frozen && now_ns >= injury->frozen_until_ns) {
            injury->is_frozen = false;
            sim_host_freeze(world, i + 1, false);
        }
        if (injury->is_slow && now_ns >= injury->slow_until_ns) {
            injury->is_slow = false;
            sim_host_faults(world, i + 1)->slow = 1;
        }
    }
}

/* ---- samples ---- */

static double loss_of(const struct simulation *simulation, const double *x)
{
    double total = 0;

    for (size_t k = 0; k < simulation->options->values; k++) {
        double apart = x[k] - simulation->optimum[k];

        total += apart * apart;
    }
    return total / 2 / (double)simulation->options->values;
}

static void measure_models(struct simulation *simulation, struct simulation_sample *sample)
{
    size_t values = simulation->options->values;
    double from_optimum = 0;

    memset(simulation->mean, 0, values * sizeof(double));
    for (uint32_t i = 0; i < simulation->options->peers; i++) {
        if (!cluster_is_up(simulation->cluster, i)) continue;
        cluster_plane(simulation->cluster, i, simulation->plane);
        for (size_t k = 0; k < values; k++) {
            double apart = (double)simulation->plane[k] - simulation->optimum[k];

            simulation->mean[k] += (double)simulation->plane[k];
            from_optimum += apart * apart;
        }
        sample->steps += node_step(cluster_node(simulation->cluster, i));
        sample->live++;
    }
    if (sample->live == 0) return;
    for (size_t k = 0; k < values; k++) {
        simulation->mean[k] /= sample->live;
    }
    sample->loss = from_optimum / 2 / (double)values / sample->live;
    sample->loss_of_average = loss_of(simulation, simulation->mean);
    sample->distance = cluster_distance(simulation->cluster);
}

static void count_rounds(struct simulation *simulation, struct simulation_sample *sample)
{
    for (uint32_t i = 0; i < simulation->options->peers; i++) {
        const struct injury *injury = &simulation->injuries[i];

        sample->rounds_ok += injury->rounds_ok;
        sample->rounds_aborted += injury->rounds_aborted;
        if (!cluster_is_up(simulation->cluster, i)) continue;
        add_rounds(simulation, i, &sample->rounds_ok, &sample->rounds_aborted);
    }
    sample->rounds_per_peer = (double)sample->rounds_ok / simulation->options->peers;
}

static struct simulation_sample take_sample(struct simulation *simulation)
{
    struct simulation_sample sample = {.t_s = (double)now_of(simulation) / (double)NS_PER_S,
                                       .faults = simulation->faults};
    struct sim_counts counts;

    sim_counts(cluster_world(simulation->cluster), &counts);
    sample.bytes = counts.bytes;
    sample.bytes_across = counts.bytes_across;
    count_rounds(simulation, &sample);
    measure_models(simulation, &sample);
    return sample;
}

/* ---- nobody trains ---- */

static bool all_average(struct simulation *simulation)
{
    for (uint32_t i = 0; i < simulation->options->peers; i++) {
        struct node_report report;

        if (!cluster_is_up(simulation->cluster, i)) continue;
        node_report(cluster_node(simulation->cluster, i), &report);
        if (report.rounds_ok < 2) return false;
    }
    return true;
}

/* Around what they hold, by half its size: strangers to each other would meet the gates of
 * averaging/core/robust.h. */
static void put_apart(struct simulation *simulation)
{
    double size = 0;

    for (size_t k = 0; k < simulation->options->values; k++) {
        size += simulation->mean[k] * simulation->mean[k];
    }
    size = 0.5 * sqrt(size / (double)simulation->options->values);
    for (uint32_t i = 0; i < simulation->options->peers; i++) {
        if (!cluster_is_up(simulation->cluster, i)) continue;
        for (size_t k = 0; k < simulation->options->values; k++) {
            simulation->plane[k] =
                (float)(simulation->mean[k] + size * rng_normal(&simulation->rng));
        }
        cluster_assign(simulation->cluster, i, simulation->plane);
    }
}

/* Everyone is to know everyone first, and rounds that ran while the peers were put apart count for
 * nothing: two more, then it begins. */
static void watch_contraction(struct simulation *simulation, struct simulation_result *result)
{
    static const double rounding = 1e-5;
    struct simulation_sample sample = {0};
    double share;

    if (!simulation->options->is_still) return;
    if (!simulation->is_apart && !all_average(simulation)) return;
    if (simulation->settled_ns == 0) simulation->settled_ns = now_of(simulation) + settle_ns;
    if (now_of(simulation) < simulation->settled_ns) return;
    count_rounds(simulation, &sample);
    if (!simulation->is_apart) {
        measure_models(simulation, &sample);
        put_apart(simulation);
        simulation->is_apart = true;
        simulation->apart = cluster_distance(simulation->cluster);
        simulation->rounds = sample.rounds_per_peer;
    }
    if (!simulation->has_begun && sample.rounds_per_peer < simulation->rounds + 2) return;
    measure_models(simulation, &sample);
    if (!simulation->has_begun) {
        simulation->has_begun = true;
        simulation->distance = sample.distance;
        simulation->rounds = sample.rounds_per_peer;
        return;
    }
    if (simulation->distance < rounding * simulation->apart) { /* it took less than two rounds */
        result->contraction = 0;
        return;
    }
    share = sample.distance / simulation->distance;
    if (sample.rounds_per_peer < simulation->rounds + 1) return;
    if (share < rounding) {
        if (isnan(result->contraction)) result->contraction = 0;
        return;
    }
    result->contraction = pow(share, 1 / (sample.rounds_per_peer - simulation->rounds));
}

/* ---- the run ---- */

/* Still: from where it is measured, if that begins at all. */
static bool is_enough(struct simulation *simulation)
{
    double wanted = (double)simulation->options->rounds;
    struct simulation_sample sample = {0};

    if (simulation->options->rounds == 0) return false;
    count_rounds(simulation, &sample);
    if (simulation->options->is_still) {
        wanted += simulation->has_begun ? simulation->rounds : ROUNDS_TO_SETTLE;
    }
    return sample.rounds_per_peer >= wanted;
}

/* Looked at in every slice: what is asked for is a time. */
static bool has_reached_target(struct simulation *simulation, struct simulation_result *result)
{
    struct simulation_sample sample = {0};
    double now_s = (double)now_of(simulation) / (double)NS_PER_S;

    if (simulation->options->target_loss <= 0) return false;
    measure_models(simulation, &sample);
    if (sample.steps == 0) simulation->begun_s = now_s;
    if (sample.live == 0 || sample.loss > simulation->options->target_loss) return false;
    result->time_to_target_s = now_s - simulation->begun_s;
    return true;
}

static void judge(struct simulation *simulation, struct simulation_result *result)
{
    const struct digest *lineage = NULL;
    struct digest first;

    result->is_finite = result->is_one_swarm = true;
    for (uint32_t i = 0; i < simulation->options->peers; i++) {
        if (!cluster_is_up(simulation->cluster, i)) continue;
        cluster_plane(simulation->cluster, i, simulation->plane);
        if (!floats_are_finite(simulation->plane, simulation->options->values)) {
            result->is_finite = false;
        }
        if (lineage == NULL) {
            first = node_lineage(cluster_node(simulation->cluster, i));
            lineage = &first;
        } else if (!digest_is_equal(first, node_lineage(cluster_node(simulation->cluster, i)))) {
            result->is_one_swarm = false;
        }
    }
}

/* By then one should have come about: links, and a few paces of the slowest peer. */
static uint64_t first_round_ns(const struct simulation_options *options)
{
    enum { PACES = 4 };
    const struct strategy *strategy = options->strategy;
    double pace = (double)strategy->every_ns, slowest = 1;

    if (!strategy->is_averaging) return UINT64_MAX;
    for (uint32_t i = 0; i < options->peers && options->speeds != NULL; i++) {
        if (options->speeds[i] < slowest) slowest = options->speeds[i];
    }
    if (strategy->every_ns == 0) {
        pace = (double)strategy->every_steps * (double)options->step_ns / slowest;
        if (strategy->chance > 0) pace /= strategy->chance;
    }
    return (uint64_t)fmin(PACES * pace + 5e9, 1e18);
}

static void run(struct simulation *simulation, struct simulation_result *result)
{
    const struct simulation_options *options = simulation->options;
    uint64_t end_ns = options->time_ns > 0 ? options->time_ns : 3600 * NS_PER_S, next_ns = 0;
    uint64_t slice = options->target_loss > 0 || options->is_still ? slice_ns / 5 : slice_ns;
    bool is_done = false;

    part_sites(simulation);
    start_all(simulation);
    chaos_begin(&simulation->chaos, options->seed, now_of(simulation));
    while (!is_done && now_of(simulation) < end_ns) {
        uint64_t now_ns = now_of(simulation);

        cause_faults(simulation, now_ns);
        end_faults(simulation, now_ns);
        if (options->on_sample != NULL && now_ns >= next_ns) {
            struct simulation_sample sample = take_sample(simulation);

            options->on_sample(options->context, &sample);
            next_ns += options->report_ns;
        }
        cluster_run(simulation->cluster, end_ns - now_ns < slice ? end_ns - now_ns : slice);
        watch_contraction(simulation, result);
        is_done = is_enough(simulation) || has_reached_target(simulation, result) ||
                  (options->stop != NULL && *options->stop != 0);
    }
    result->last = take_sample(simulation);
    result->has_progress =
        is_done || (options->rounds == 0 && options->target_loss <= 0 &&
                    (result->last.rounds_ok > 0 || end_ns < first_round_ns(options)));
    judge(simulation, result);
}

enum rc simulation_check(const struct simulation_options *options, struct fault *why)
{
    const struct strategy *strategy = options->strategy;

    if (options->peers <= COMPLETE_PEERS_MAX || !strategy->is_averaging) return RC_OK;
    if (strategy_topology(strategy, options->peers).kind != TOPOLOGY_COMPLETE) return RC_OK;
    return fault_set(
        why, RC_USAGE,
        "%u peers cannot form one group: --topology complete is for at most %d; use "
        "--topology groups:8, or pairs (--averaging ad-psgd), which suit a large swarm "
        "better",
        options->peers, (int)COMPLETE_PEERS_MAX);
}

enum rc simulation_run(const struct simulation_options *options, struct simulation_result *result,
                       struct fault *why)
{
    struct simulation simulation;
    struct sim_counts counts;
    enum rc rc = simulation_check(options, why);

    if (rc != RC_OK) return rc;
    *result = (struct simulation_result){.time_to_target_s = NAN, .contraction = NAN};
    if (create(&simulation, options)) {
        run(&simulation, result);
        sim_counts(cluster_world(simulation.cluster), &counts);
        result->events = counts.events;
        result->trace = sim_trace(cluster_world(simulation.cluster));
    } else {
        rc = fault_set(why, RC_NOMEM, "out of memory for %u peers; use fewer", options->peers);
    }
    destroy(&simulation);
    return rc;
}

static int id_compare(const void *a, const void *b)
{
    return memcmp(a, b, PEER_ID_BYTES);
}

enum rc simulation_spectrum(const struct simulation_options *options, struct spectrum *spectrum)
{
    struct topology topology = strategy_topology(options->strategy, options->peers);
    struct peer_id *ids = mem_array(options->peers, sizeof *ids);
    struct swarm_secret swarm;
    enum rc rc;

    if (ids == NULL) return RC_NOMEM;
    cluster_ids(options->peers, options->seed, ids, &swarm);
    qsort(ids, options->peers, sizeof ids[0], id_compare);
    rc = spectrum_of(&topology, strcmp(options->strategy->exchange->name, "pair") == 0,
                     swarm.run_id, ids, options->peers, spectrum);
    mem_free(ids);
    return rc;
}
