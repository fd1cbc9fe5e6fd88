/*
 * chaos: a plan carried out on complete peers in the simulated world, and what must hold.
 *
 * Safety, at any moment, whatever happens: models change by whole steps of averaging alone. Every
 * peer's plane has one value in all places when the run begins (learning is off), so a round that
 * was applied in part, twice to a chunk, or from damaged bytes shows as a plane that is not even;
 * for group rounds, whose unit is the part, as a chunk that is not even. No value leaves the range
 * of the first ones. Queues keep their caps, and the whole run takes a bounded number of events.
 *
 * Liveness, once the faults have ended: within CHAOS_HEAL_NS all peers are linked, know each other,
 * and have met at one model. Where pairs average and nobody died, that model is the mean of all
 * that began: no round counted on one side only. Asked to stop, all end; no job is left without an
 * answer and no memory is left.
 */
#ifndef GRAPEVINE_TESTS_SIM_CHAOS_H
#define GRAPEVINE_TESTS_SIM_CHAOS_H

#include "tests/sim/chaos_plan.h"

#include "base/mem.h"
#include "gossip/wire/limits.h"
#include "peer/node/models/internal.h"
#include "replica/learners/quadratic.h"

#include <math.h>

#define CHAOS_FORM_NS         (40 * NS_PER_S)
#define CHAOS_HEAL_NS         (120 * NS_PER_S) /* who was slow for long has learned long patience */
#define CHAOS_HEAL_METHODS_NS (300 * NS_PER_S)
#define CHAOS_HEAL_STEPS      UINT64_C(4000)
#define CHAOS_SETTLE_NS       (40 * NS_PER_S) /* a round in doubt is waited for 30 s */
#define CHAOS_DRIFT           1e-5
#define CHAOS_SLICE_NS        (250 * NS_PER_MS)
#define CHAOS_LEAVE_NS        (10 * NS_PER_S)
#define CHAOS_EVENTS          UINT64_C(20000000)
#define CHAOS_LOWEST          1.0
#define CHAOS_SPREAD          1.0 /* first values lie in [lowest, lowest + spread] */

struct chaos {
    struct chaos_plan plan;
    struct cluster *cluster;
    struct sim_world *world;
    struct rng rng; /* of storms */
    float *plane;
    uint64_t begin_ns, trace;
    uint64_t heal_ns; /* from the end of the faults until all was well */
    double mean;      /* of the first values */
    bool is_apart;    /* they were given out */
    bool was_anyone_killed;
    uint64_t rounds[CHAOS_PEERS_MAX];
    struct sim_counts counts;
    bool prints;
    const struct strategy *strategy; /* NULL: local-sgd, as the plan has it */
    const char *program;             /* to see a failure happen */
    const struct chaos_liar *liar;   /* NULL: all are honest */
};

/* One of the peers lies (tests/sim/test_chaos_liars.c). No fault ends it, what becomes of its own
 * model is not looked at, and nobody needs it to be well. */
struct chaos_liar {
    uint32_t peer;
    bool is_of_values; /* what its lies make of the others' values is theirs: finite, and no more */
    void (*begin)(struct node *node);
    void (*end)(void); /* before it is stopped */
};

#define CHAOS_CHECK(chaos, condition)                                                              \
    do {                                                                                           \
        if (!(condition)) chaos_fail((chaos), #condition, __FILE__, __LINE__);                     \
    } while (0)

static inline void chaos_fail(struct chaos *chaos, const char *condition, const char *file,
                              int line)
{
    fprintf(stderr, "at %.3f s: %s\n", (double)sim_now_ns(chaos->world) / 1e9, condition);
    plan_print(&chaos->plan, stderr);
    if (chaos->strategy != NULL) fprintf(stderr, "--averaging %s\n", chaos->strategy->text);
    fprintf(stderr, "to see it happen: SEED=%llu TRACE=1 build/release/tests/%s\n",
            (unsigned long long)chaos->plan.seed,
            chaos->program != NULL ? chaos->program : "sim_chaos");
    _assert_true(0, condition, file, line);
}

/* ---- the models ---- */

/* The toy, standing still, with one value in all places. */
static inline struct learner *chaos_learner(void *context, uint32_t peer)
{
    struct chaos *chaos = context;
    struct quadratic_options options = {.values = chaos->plan.values,
                                        .curvature = 1.0,
                                        .learning_rate = 1e-30, /* too small to change a float */
                                        .seed = 1,
                                        .stream_seed = peer};
    struct learner *learner;

    for (size_t i = 0; i < chaos->plan.values; i++) {
        chaos->plane[i] = (float)CHAOS_LOWEST;
    }
    assert_int_equal(quadratic_create(&options, &learner), RC_OK);
    assert_int_equal(
        learner->ops->assign_section(learner, SECTION_PARAMETERS, chaos->plane, chaos->plan.values),
        RC_OK);
    return learner;
}

static inline void chaos_put_apart(struct chaos *chaos)
{
    struct rng rng;
    double sum = 0.0;

    rng_init(&rng, chaos->plan.seed, 0x61706172);
    for (uint32_t i = 0; i < chaos->plan.peers; i++) {
        float value = (float)(CHAOS_LOWEST + CHAOS_SPREAD * rng_unit(&rng));

        for (size_t k = 0; k < chaos->plan.values; k++) {
            chaos->plane[k] = value;
        }
        cluster_assign(chaos->cluster, i, chaos->plane);
        sum += (double)value;
    }
    chaos->mean = sum / chaos->plan.peers;
    chaos->is_apart = true;
}

static inline bool is_even(const float *values, size_t count)
{
    return memcmp(values, values + 1, (count - 1) * sizeof *values) == 0;
}

static inline bool chaos_is_liar(const struct chaos *chaos, uint32_t peer)
{
    return chaos->liar != NULL && chaos->liar->peer == peer;
}

static inline void chaos_check_plane(struct chaos *chaos, uint32_t peer)
{
    const double slack = strcmp(chaos->plan.codec, "int8") == 0 ? 0.05 : 0.02;
    const bool swings = chaos->strategy != NULL &&
                        (chaos->strategy->rule->is_outer || chaos->strategy->quasi_global > 0 ||
                         chaos->strategy->rule_settings.delay > 0);
    /* Momentum goes on beyond the mean. */
    const double reach = swings ? 40 * CHAOS_SPREAD : CHAOS_SPREAD;
    /* Of equal values a sparse codec sends some first. */
    const bool is_sparse = chaos->strategy != NULL && chaos->strategy->codec.traits.kept < 1;
    size_t part = chaos->plan.is_pair ? chaos->plan.values : CHUNK_VALUES;

    /* Each value has met whom it met. */
    if (chaos->strategy != NULL && strategy_has_masks(chaos->strategy)) part = 1;
    cluster_plane(chaos->cluster, peer, chaos->plane);
    for (size_t at = 0; at < chaos->plan.values; at += part) {
        size_t left = chaos->plan.values - at;
        double value = (double)chaos->plane[at];

        CHAOS_CHECK(chaos, isfinite(value));
        if (chaos->liar != NULL && chaos->liar->is_of_values) continue;
        CHAOS_CHECK(chaos, is_sparse || is_even(chaos->plane + at, left < part ? left : part));
        /* A spread more: a round may have been under way when the values were given out. */
        CHAOS_CHECK(chaos, value >= CHAOS_LOWEST - reach - slack);
        CHAOS_CHECK(chaos, value <= CHAOS_LOWEST + CHAOS_SPREAD + reach + slack);
    }
}

static inline void chaos_check_safety(struct chaos *chaos)
{
    for (uint32_t i = 0; i < chaos->plan.peers; i++) {
        if (chaos_is_liar(chaos, i)) continue;
        if (cluster_is_up(chaos->cluster, i)) chaos_check_plane(chaos, i);
    }
    sim_counts(chaos->world, &chaos->counts);
    CHAOS_CHECK(chaos, chaos->counts.events < CHAOS_EVENTS);
    CHAOS_CHECK(chaos, chaos->counts.queued_bytes_max <= LINK_QUEUE_BYTES_MAX);
    CHAOS_CHECK(chaos, chaos->counts.connections_max <= LINKS_MAX);
}

/* ---- the faults ---- */

static inline void chaos_say(const struct chaos *chaos, const struct chaos_fault *fault,
                             const char *what)
{
    if (!chaos->prints) return;
    fprintf(stderr, "%12.6f fault %s %s: a %u, b %u, side %x, amount %llu\n",
            (double)sim_now_ns(chaos->world) / 1e9, chaos_fault_names[fault->kind], what,
            fault->a + 1, fault->b + 1, fault->side << 1, (unsigned long long)fault->amount);
}

/* The founder knows nobody; who is started later knows up to three of those before it, and perhaps
 * one that is not there yet; who is started again knows all. */
static inline void chaos_start(struct chaos *chaos, uint32_t peer, uint32_t before)
{
    uint32_t bootstrap[CHAOS_PEERS_MAX];
    size_t count = 0;
    struct rng rng;

    rng_init(&rng, chaos->plan.seed, 0x626f6f74 + peer);
    for (uint32_t i = 0; i < chaos->plan.peers; i++) {
        if (chaos->plan.order[i] != peer) bootstrap[count++] = chaos->plan.order[i];
    }
    if (before < chaos->plan.peers) {
        bool has_decoy = before > 0 && before + 1 < chaos->plan.peers && rng_below(&rng, 3) == 0;
        uint32_t decoy = bootstrap[count - 1];

        rng_shuffle(&rng, bootstrap, before);
        count = before < 3 ? before : 1 + (size_t)rng_below(&rng, 3);
        if (has_decoy) bootstrap[count++] = decoy;
        /* A liar may turn away who knows nobody else. */
        if (chaos->liar != NULL && before > 0) bootstrap[count++] = chaos->plan.order[0];
    }
    cluster_start(chaos->cluster, peer, bootstrap, count);
    if (chaos_is_liar(chaos, peer)) chaos->liar->begin(cluster_node(chaos->cluster, peer));
}

static inline void chaos_split(struct chaos *chaos, uint32_t side, bool is_on)
{
    for (uint32_t a = 0; a < chaos->plan.peers; a++) {
        for (uint32_t b = 0; b < chaos->plan.peers; b++) {
            if ((side >> a & 1) == (side >> b & 1)) continue;
            sim_block(chaos->world, a + 1, b + 1, is_on);
        }
    }
}

static inline void chaos_disk(struct chaos *chaos, const struct chaos_fault *fault)
{
    if (fault->amount == 0) {
        sim_host_faults(chaos->world, fault->a + 1)->tears_store = true;
    } else {
        sim_host_faults(chaos->world, fault->a + 1)->store_failures = 3;
        sim_host_faults(chaos->world, fault->a + 1)->store_failure =
            fault->amount == 1 ? RC_DISK_FULL : RC_IO;
    }
}

static inline void chaos_kill(struct chaos *chaos, struct chaos_fault *fault, bool is_on)
{
    bool is_up = cluster_is_up(chaos->cluster, fault->a);

    if (chaos_is_liar(chaos, fault->a)) return;
    if (!is_on) {
        if (fault->did_hit && !is_up) chaos_start(chaos, fault->a, UINT32_MAX);
        return;
    }
    fault->did_hit = is_up;
    if (!is_up) return;
    chaos->was_anyone_killed = true;
    if (fault->kind == FAULT_STOP) {
        cluster_stop(chaos->cluster, fault->a);
    } else {
        cluster_crash(chaos->cluster, fault->a);
    }
}

/* Begin a fault (is_on) or end it. Hosts are numbered from 1. */
static inline void chaos_turn(struct chaos *chaos, struct chaos_fault *fault, bool is_on)
{
    struct sim_world *world = chaos->world;
    uint32_t a = fault->a + 1, b = fault->b + 1;
    bool is_up = cluster_is_up(chaos->cluster, fault->a);

    chaos_say(chaos, fault, is_on ? "on" : "off");
    switch (fault->kind) {
    case FAULT_CUT:
        if (is_on) sim_cut(world, a, b);
        break;
    case FAULT_TEAR:
        if (is_on) sim_cut_torn(world, a, b, fault->amount);
        break;
    case FAULT_STORM:
        fault->next_ns = fault->at_ns;
        break;
    case FAULT_DARK:
        if (is_on) sim_darken(world, a, b);
        break;
    case FAULT_ONE_WAY:
        sim_block(world, a, b, is_on);
        break;
    case FAULT_PARTITION:
        chaos_split(chaos, fault->side, is_on);
        break;
    case FAULT_FREEZE:
        if (is_up) sim_host_freeze(world, a, is_on);
        break;
    case FAULT_SLOW:
        sim_host_faults(world, a)->slow = is_on ? (double)fault->amount / 100.0 : 1.0;
        break;
    case FAULT_PATH:
        sim_path_set(world, a, b, is_on ? &fault->path : NULL);
        break;
    case FAULT_LEAP:
        if (is_on) sim_clock_set(world, a, sim_clock_ns(world, a) + fault->amount, 0);
        break;
    case FAULT_DISK:
        if (is_on) chaos_disk(chaos, fault);
        break;
    case FAULT_KILL:
    case FAULT_STOP:
        chaos_kill(chaos, fault, is_on);
        break;
    case FAULT_KIND_COUNT:
        break;
    }
}

/* The next stroke of a storm. */
static inline void chaos_strike(struct chaos *chaos, struct chaos_fault *fault, uint64_t since_ns)
{
    uint32_t a = (uint32_t)rng_below(&chaos->rng, chaos->plan.peers);
    uint32_t b = (a + 1 + (uint32_t)rng_below(&chaos->rng, chaos->plan.peers - 1));

    sim_cut_torn(chaos->world, a + 1, b % chaos->plan.peers + 1, fault->amount);
    fault->next_ns = since_ns + draw_ns(&chaos->rng, NS_PER_MS, 160 * NS_PER_MS);
}

/* What is due at `since_ns` after the faults began; when more is. */
static inline uint64_t chaos_faults_due(struct chaos *chaos, uint64_t since_ns)
{
    uint64_t next_ns = UINT64_MAX;

    for (uint32_t i = 0; i < chaos->plan.faults_count; i++) {
        struct chaos_fault *fault = &chaos->plan.faults[i];
        uint64_t due_ns;

        if (!fault->is_on && !fault->is_over && fault->at_ns <= since_ns) {
            fault->is_on = true;
            chaos_turn(chaos, fault, true);
        }
        if (fault->is_on && fault->until_ns <= since_ns) {
            fault->is_on = false;
            fault->is_over = true;
            chaos_turn(chaos, fault, false);
        }
        due_ns = fault->is_on ? fault->until_ns : fault->at_ns;
        if (fault->is_on && fault->kind == FAULT_STORM) {
            if (fault->next_ns <= since_ns) chaos_strike(chaos, fault, since_ns);
            if (fault->next_ns < due_ns) due_ns = fault->next_ns;
        }
        if (!fault->is_over && due_ns < next_ns) next_ns = due_ns;
    }
    return next_ns;
}

/* ---- the course of a run ---- */

static inline void chaos_run(struct chaos *chaos, uint64_t until_ns)
{
    uint64_t now_ns = sim_now_ns(chaos->world);

    while (now_ns < until_ns) {
        uint64_t left_ns = until_ns - now_ns;

        cluster_run(chaos->cluster, left_ns < CHAOS_SLICE_NS ? left_ns : CHAOS_SLICE_NS);
        chaos_check_safety(chaos);
        now_ns = sim_now_ns(chaos->world);
    }
}

/* Starts that are due, as the plan has them; when the next is. The first one founds the swarm. */
static inline uint64_t chaos_starts_due(struct chaos *chaos, uint32_t *started)
{
    uint64_t since_ns = sim_now_ns(chaos->world) - chaos->begin_ns;

    while (*started < chaos->plan.peers && chaos->plan.start_ns[*started] <= since_ns) {
        chaos_start(chaos, chaos->plan.order[*started], *started);
        (*started)++;
    }
    return *started == chaos->plan.peers ? UINT64_MAX : chaos->plan.start_ns[*started];
}

static inline int compare_times(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static inline void chaos_begin(struct chaos *chaos, uint64_t seed)
{
    struct cluster_options options;
    char averaging[32];
    struct rng rng;

    plan_make(&chaos->plan, seed);
    if (chaos->liar != NULL) chaos->plan.is_rough = false; /* or it alone might hold the model */
    if (chaos->strategy != NULL) {
        chaos->plan.is_pair = strcmp(chaos->strategy->exchange->name, "pair") == 0;
        chaos->plan.codec = chaos->strategy->codec.name;
    }
    rng_init(&chaos->rng, seed, 0x73746f72);
    chaos->prints = getenv("TRACE") != NULL;
    chaos->plane = calloc(chaos->plan.values, sizeof *chaos->plane);
    assert_non_null(chaos->plane);
    snprintf(averaging, sizeof averaging, "local-sgd:H=%u", chaos->plan.steps);
    options = (struct cluster_options){.peers = chaos->plan.peers,
                                       .seed = seed,
                                       .averaging = averaging,
                                       .strategy = chaos->strategy,
                                       .exchange = chaos->plan.is_pair ? "pair" : "group",
                                       .codec = chaos->plan.codec,
                                       .values = chaos->plan.values,
                                       .step_cost_ns = chaos->plan.step_cost_ns,
                                       .latency_ns = chaos->plan.latency_ns,
                                       .jitter_ns = chaos->plan.jitter_ns,
                                       .bytes_per_s = chaos->plan.bytes_per_s,
                                       .learner = chaos_learner,
                                       .learner_context = chaos};
    chaos->cluster = cluster_create(&options);
    chaos->world = cluster_world(chaos->cluster);
    rng_init(&rng, seed, 0x636c6f63);
    for (uint32_t i = 0; i < chaos->plan.peers; i++) {
        sim_clock_set(chaos->world, i + 1, rng_below(&rng, UINT64_C(1) << 60),
                      (int32_t)rng_below(&rng, 401) - 200);
    }
    qsort(chaos->plan.start_ns, chaos->plan.peers, sizeof(uint64_t), compare_times);
    chaos->plan.start_ns[0] = 0;
    if (!chaos->prints) return;
    plan_print(&chaos->plan, stderr);
    cluster_set_verbose(chaos->cluster, true);
    sim_trace_print(chaos->world, stderr);
}

/* All are linked; beside a liar all honest peers train. */
static inline bool chaos_has_formed(struct cluster *cluster, void *context)
{
    struct chaos *chaos = context;

    if (chaos->liar == NULL) return cluster_is_whole(cluster, NULL);
    for (uint32_t i = 0; i < chaos->plan.peers; i++) {
        if (chaos_is_liar(chaos, i)) continue;
        if (!cluster_is_up(cluster, i)) return false;
        if (node_state(cluster_node(cluster, i)) != NODE_TRAINING) return false;
    }
    return true;
}

/* Starts and, when their time has come, faults, until all of both have been. */
static inline void chaos_safety_phase(struct chaos *chaos)
{
    uint64_t faults_begin_ns = chaos->plan.is_rough ? 0 : UINT64_MAX;
    uint32_t started = 0;

    chaos->begin_ns = sim_now_ns(chaos->world);
    for (;;) {
        uint64_t next_ns = chaos_starts_due(chaos, &started), fault_ns, now_ns;

        now_ns = sim_now_ns(chaos->world) - chaos->begin_ns;
        if (started == chaos->plan.peers && faults_begin_ns == UINT64_MAX) {
            CHAOS_CHECK(chaos,
                        cluster_run_until(chaos->cluster, chaos_has_formed, chaos, CHAOS_FORM_NS));
            chaos_put_apart(chaos);
            now_ns = faults_begin_ns = sim_now_ns(chaos->world) - chaos->begin_ns;
        }
        if (faults_begin_ns != UINT64_MAX) {
            fault_ns = chaos_faults_due(chaos, now_ns - faults_begin_ns);
            if (fault_ns != UINT64_MAX && fault_ns + faults_begin_ns < next_ns) {
                next_ns = fault_ns + faults_begin_ns;
            }
        }
        if (next_ns == UINT64_MAX) return;
        chaos_run(chaos, chaos->begin_ns + next_ns);
    }
}

static inline bool knows_all(struct cluster *cluster, uint32_t peer, uint32_t peers)
{
    struct json *status = node_status(cluster_node(cluster, peer), SIZE_MAX);
    const struct json *members = json_get(status, "members");
    uint32_t alive = 0;

    for (size_t i = 0; i < json_count(members); i++) {
        const char *state = json_get_text(json_at(members, i), "state");

        alive += state != NULL && strcmp(state, "alive") == 0;
    }
    json_destroy(status);
    return alive == peers - 1;
}

/* Everybody is back, linked, has averaged again, and all hold about the same. */
static inline bool chaos_is_well(struct cluster *cluster, void *context)
{
    struct chaos *chaos = context;
    double near = strcmp(chaos->plan.codec, "bf16") == 0 ? 0.01 : 0.002; /* steps of 1/128 */
    struct node_report report;

    /* Who keeps a place of its own keeps what a byte of the other's cannot tell, too. */
    if (chaos->strategy != NULL && strcmp(chaos->plan.codec, "int8") == 0) near = 0.03;
    for (uint32_t i = 0; i < chaos->plan.peers; i++) {
        if (!cluster_is_up(cluster, i)) chaos_start(chaos, i, UINT32_MAX);
    }
    if (!cluster_is_whole(cluster, NULL)) return false;
    for (uint32_t i = 0; i < chaos->plan.peers; i++) {
        node_report(cluster_node(cluster, i), &report);
        if (report.rounds_ok <= chaos->rounds[i]) return false;
    }
    if (cluster_distance(cluster) > near * sqrt((double)chaos->plan.values)) return false;
    for (uint32_t i = 0; i < chaos->plan.peers; i++) {
        if (!knows_all(cluster, i, chaos->plan.peers)) return false;
    }
    return true;
}

/* The largest distance of the first value of an honest peer from that of another. */
static inline double chaos_spread(struct chaos *chaos)
{
    double least = HUGE_VAL, most = -HUGE_VAL;

    for (uint32_t i = 0; i < chaos->plan.peers; i++) {
        if (chaos_is_liar(chaos, i)) continue;
        cluster_plane(chaos->cluster, i, chaos->plane);
        least = fmin(least, (double)chaos->plane[0]);
        most = fmax(most, (double)chaos->plane[0]);
    }
    return most - least;
}

/* All honest peers are there and have averaged again; where the liar tells the truth about its
 * values, they hold about the same. */
static inline bool chaos_is_well_beside_liar(struct cluster *cluster, void *context)
{
    struct chaos *chaos = context;
    struct node_report report;

    for (uint32_t i = 0; i < chaos->plan.peers; i++) {
        if (!cluster_is_up(cluster, i)) chaos_start(chaos, i, UINT32_MAX);
        if (chaos_is_liar(chaos, i)) continue;
        if (node_state(cluster_node(cluster, i)) != NODE_TRAINING) return false;
        node_report(cluster_node(cluster, i), &report);
        if (report.rounds_ok <= chaos->rounds[i]) return false;
    }
    return chaos->liar->is_of_values || chaos_spread(chaos) < 0.03;
}

static inline void chaos_print_peers(struct chaos *chaos)
{
    fprintf(stderr, "distance %g\n", cluster_distance(chaos->cluster));
    for (uint32_t i = 0; i < chaos->plan.peers; i++) {
        struct node_report report = {0};

        if (!cluster_is_up(chaos->cluster, i)) continue;
        node_report(cluster_node(chaos->cluster, i), &report);
        cluster_plane(chaos->cluster, i, chaos->plane);
        fprintf(stderr, "%s %u: state %d, %llu rounds, %llu before, value %g\n",
                chaos_is_liar(chaos, i) ? "liar" : "peer", i + 1,
                (int)node_state(cluster_node(chaos->cluster, i)),
                (unsigned long long)report.rounds_ok, (unsigned long long)chaos->rounds[i],
                (double)chaos->plane[0]);
    }
}

/* True as soon as no round is half way: applied by one of two. */
static inline bool mean_is_kept(struct cluster *cluster, void *context)
{
    return fabs(cluster_mean(cluster) - ((const struct chaos *)context)->mean) < CHAOS_DRIFT;
}

/* A peer that comes late to the others takes their model, and its own leaves the mean. */
static inline bool has_anyone_given_up(struct chaos *chaos)
{
    for (uint32_t i = 0; i < chaos->plan.peers; i++) {
        if (!cluster_is_up(chaos->cluster, i)) continue;
        if (cluster_node(chaos->cluster, i)->models->choice.given_up > 0) return true;
    }
    return false;
}

static inline void chaos_liveness_phase(struct chaos *chaos)
{
    uint64_t heal_ns = chaos->strategy == NULL ? CHAOS_HEAL_NS : CHAOS_HEAL_METHODS_NS;

    for (uint32_t i = 0; i < chaos->plan.peers; i++) {
        struct node_report report = {0};

        if (cluster_is_up(chaos->cluster, i)) node_report(cluster_node(chaos->cluster, i), &report);
        chaos->rounds[i] = report.rounds_ok;
        sim_host_faults(chaos->world, i + 1)->store_failures = 0;
        sim_host_faults(chaos->world, i + 1)->store_failure = RC_IO;
    }
    /* Springs pull a part of the way each round, and rounds take some steps. */
    if (chaos->strategy != NULL && heal_ns < CHAOS_HEAL_STEPS * chaos->plan.step_cost_ns) {
        heal_ns = CHAOS_HEAL_STEPS * chaos->plan.step_cost_ns;
    }
    chaos->heal_ns = sim_now_ns(chaos->world);
    if (chaos->liar == NULL) {
        bool is_well = cluster_run_until(chaos->cluster, chaos_is_well, chaos, heal_ns);

        if (!is_well) chaos_print_peers(chaos);
        CHAOS_CHECK(chaos, is_well);
    } else {
        bool is_well = cluster_run_until(chaos->cluster, chaos_is_well_beside_liar, chaos, heal_ns);

        if (!is_well) chaos_print_peers(chaos);
        CHAOS_CHECK(chaos, is_well);
    }
    chaos->heal_ns = sim_now_ns(chaos->world) - chaos->heal_ns;
    chaos_check_safety(chaos);
    /* Only means of pairs leave the mean of all alone: outer steps move it, and ends that clip. */
    if (chaos->liar == NULL && chaos->plan.is_pair && chaos->is_apart &&
        !chaos->was_anyone_killed && !has_anyone_given_up(chaos) &&
        (chaos->strategy == NULL ||
         (chaos->strategy->rule == &rule_mean && !chaos->strategy->clips))) {
        bool is_kept = cluster_run_until(chaos->cluster, mean_is_kept, chaos, CHAOS_SETTLE_NS);

        if (chaos->prints || !is_kept) {
            fprintf(stderr, "mean %.9g, before %.9g\n", cluster_mean(chaos->cluster), chaos->mean);
        }
        CHAOS_CHECK(chaos, is_kept);
    }
}

static inline void chaos_end(struct chaos *chaos)
{
    if (chaos->liar != NULL) chaos->liar->end();
    for (uint32_t i = 0; i < chaos->plan.peers; i++) {
        cluster_stop(chaos->cluster, i);
    }
    CHAOS_CHECK(chaos, cluster_run_until(chaos->cluster, cluster_is_done, NULL, CHAOS_LEAVE_NS));
    for (uint32_t i = 0; i < chaos->plan.peers; i++) {
        const struct node_result *result = cluster_result(chaos->cluster, i);

        CHAOS_CHECK(chaos, chaos_is_liar(chaos, i) || (result != NULL && result->rc == RC_OK));
    }
    sim_counts(chaos->world, &chaos->counts);
    if (!chaos->was_anyone_killed) {
        CHAOS_CHECK(chaos, chaos->counts.jobs == chaos->counts.jobs_done);
    }
    chaos->trace = sim_trace(chaos->world);
}

static inline void chaos_live_as(struct chaos *chaos, uint64_t seed)
{
    chaos_begin(chaos, seed);
    chaos_safety_phase(chaos);
    chaos_liveness_phase(chaos);
    chaos_end(chaos);
}

/* A run of one seed with `strategy` (NULL: as the plan has it), for the test `program`. */
static inline uint64_t chaos_live_by(uint64_t seed, const struct strategy *strategy,
                                     const char *program, struct sim_counts *counts)
{
    uint64_t blocks = mem_blocks();
    struct chaos chaos = {.strategy = strategy, .program = program};

    chaos_live_as(&chaos, seed);
    if (counts != NULL) *counts = chaos.counts;
    if (getenv("HEAL") != NULL) {
        printf("seed %llu healed in %.1f s\n", (unsigned long long)seed,
               (double)chaos.heal_ns / NS_PER_S);
    }
    cluster_destroy(chaos.cluster);
    free(chaos.plane);
    check_seed(seed, mem_blocks() == blocks);
    return chaos.trace;
}

/* A run of one seed; its trace, a hash of all that happened. */
static inline uint64_t chaos_live(uint64_t seed, struct sim_counts *counts)
{
    return chaos_live_by(seed, NULL, NULL, counts);
}

#endif
