/*
 * One peer of the averaging benchmark: a whole node over sockets, and a learner that only holds a
 * plane. Its steps take a millisecond of waiting, as steps on another device would, and count one
 * sample a round, so that all peers weigh the same. Loop thread, but for the learner's operations,
 * which are jobs of the training lane; they meet in two atomics.
 */
#include "peer/bench/averaging.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/cpu.h"
#include "base/mem.h"
#include "base/rng.h"
#include "peer/node/node.h"
#include "peer/watch/usage.h"

#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { STEP_MS = 1, POLL_MS = 20, PATH_BYTES = 256 };

struct held {
    struct learner learner; /* first: learners are cast back */
    const struct bench_averaging_options *options;
    struct schema schema;
    float *plane;
    uint32_t number;
    uint64_t step;
    const char *go; /* path of the file that lets rounds begin */
    bool has_begun;
    uint64_t taken_ns;              /* when the last snapshot began */
    uint64_t *took_ns;              /* [rounds] from there until the difference was applied */
    double start_mean, mean, error; /* all of these are written before `mixed` says so */
    atomic_uint mixed;              /* differences applied */
};

static struct held *held_of(struct learner *learner)
{
    return (struct held *)(void *)learner;
}

static float uniform(uint64_t number, size_t i) /* in [-1, 1) */
{
    return (float)(rng_mix(number, i) >> 40) * 0x1p-23f - 1.0f;
}

/* What peer `number` begins with: near the others, as replicas are; from farther away, guards
 * against liars would take less of it than the mean does. */
static float start_value(uint32_t number, size_t i)
{
    return uniform(0, i) + uniform(number + 1, i) / 16;
}

static double plane_mean(const struct held *held)
{
    double sum = 0.0;

    for (size_t i = 0; i < held->options->values; i++) {
        sum += (double)held->plane[i];
    }
    return sum / (double)held->options->values;
}

/* All peers' mean: of one group, or on a full grid once each dimension has had its round (Ryabinin
 * et al. 2021, arXiv:2103.03239). */
static bool reaches_mean(const struct bench_averaging_options *options)
{
    uint64_t side = 1;
    uint32_t dimensions = 0;

    if (options->group >= options->peers) return true;
    while (side < options->peers) {
        side *= options->group;
        dimensions++;
    }
    return options->is_grid && side == options->peers && options->rounds >= dimensions;
}

/* Of our plane against the mean of all starts, where that is reached. */
static double plane_error(const struct held *held)
{
    double worst = 0.0;

    if (!reaches_mean(held->options)) return (double)NAN;
    for (size_t i = 0; i < held->options->values; i++) {
        double sum = 0.0, error;

        for (uint32_t number = 0; number < held->options->peers; number++) {
            sum += (double)start_value(number, i);
        }
        error = fabs((double)held->plane[i] - sum / held->options->peers);
        if (error > worst) worst = error;
    }
    return worst;
}

/* ---- the learner ---- */

static void held_destroy(struct learner *learner)
{
    struct held *held = held_of(learner);

    schema_deinit(&held->schema);
    mem_free(held->plane);
    mem_free(held->took_ns);
    mem_free(held);
}

static const struct schema *held_schema(const struct learner *learner)
{
    return &((const struct held *)(const void *)learner)->schema;
}

static enum rc held_train(struct learner *learner, uint32_t steps, const atomic_bool *stop,
                          struct train_report *report)
{
    struct held *held = held_of(learner);
    bool may_begin = held->has_begun || access(held->go, F_OK) == 0;

    (void)stop;
    *report = (struct train_report){.loss_sum = 0.0, .correct_share = (double)NAN};
    if (may_begin && !held->has_begun) {
        for (size_t i = 0; i < held->options->values; i++) {
            held->plane[i] = start_value(held->number, i);
        }
        held->start_mean = plane_mean(held);
        held->has_begun = true;
    } else if (steps > 0) {
        (void)poll(NULL, 0, STEP_MS);
    }
    if (may_begin && steps > 0) {
        held->step++;
        report->steps = 1;
    }
    report->step = held->step;
    report->samples = held->has_begun ? 1 + atomic_load(&held->mixed) : 0;
    return RC_OK;
}

/* There are only parameters, so what rounds mix is the same. */
static bool is_held(const struct held *held, enum section section, size_t count)
{
    return (section == SECTION_PARAMETERS || section == SECTION_MIXED) &&
           count == held->options->values;
}

static enum rc held_export(struct learner *learner, enum section section, float *out, size_t count)
{
    CHECK(is_held(held_of(learner), section, count));
    if (section == SECTION_MIXED) held_of(learner)->taken_ns = uv_clock_ns();
    memcpy(out, held_of(learner)->plane, count * sizeof *out);
    return RC_OK;
}

static const float *held_export_view(struct learner *learner, float *out, size_t *count)
{
    (void)out;
    held_of(learner)->taken_ns = uv_clock_ns();
    *count = held_of(learner)->options->values;
    return held_of(learner)->plane;
}

FOR_EACH_CPU(static, void, add, (float *plane, const float *difference, size_t count),
             (plane, difference, count))
{
    for (size_t i = 0; i < count; i++) {
        plane[i] += difference[i];
    }
}

static enum rc held_import(struct learner *learner, enum section section, const float *difference,
                           size_t count)
{
    struct held *held = held_of(learner);

    CHECK(is_held(held, section, count));
    add(held->plane, difference, count);
    if (atomic_load(&held->mixed) < held->options->rounds) {
        held->took_ns[atomic_load(&held->mixed)] = uv_clock_ns() - held->taken_ns;
    }
    if (atomic_load(&held->mixed) + 1 == held->options->rounds) {
        held->mean = plane_mean(held);
        held->error = plane_error(held);
    }
    atomic_fetch_add(&held->mixed, 1);
    return RC_OK;
}

static enum rc held_assign(struct learner *learner, enum section section, const float *values,
                           size_t count)
{
    CHECK(is_held(held_of(learner), section, count));
    memcpy(held_of(learner)->plane, values, count * sizeof *values);
    return RC_OK;
}

static void held_set_step(struct learner *learner, uint64_t step)
{
    held_of(learner)->step = step;
}

static enum rc held_reshard(struct learner *learner, struct peer_id self,
                            const struct peer_id *members, size_t members_count, struct fault *why)
{
    (void)learner, (void)self, (void)members, (void)members_count, (void)why;
    return RC_OK;
}

static uint64_t held_shard_samples(const struct learner *learner)
{
    (void)learner;
    return 1;
}

/* Gradients, evaluation, save and load are left out: nothing that runs here asks for them. */
static const struct learner_ops held_ops = {
    .name = "held",
    .destroy = held_destroy,
    .schema = held_schema,
    .train = held_train,
    .export_section = held_export,
    .export_view = held_export_view,
    .import_section = held_import,
    .assign_section = held_assign,
    .set_step = held_set_step,
    .reshard = held_reshard,
    .shard_samples = held_shard_samples,
};

static struct held *held_create(const struct bench_averaging_options *options, uint32_t number,
                                const char *go)
{
    struct held *held = mem_alloc(sizeof *held);
    uint32_t shape = (uint32_t)options->values;

    if (held == NULL) return NULL;
    held->learner.ops = &held_ops;
    held->options = options;
    held->number = number;
    held->go = go;
    atomic_init(&held->mixed, 0);
    schema_init(&held->schema);
    held->plane = mem_aligned(options->values * sizeof(float)); /* equal for all: one lineage */
    held->took_ns = mem_array(options->rounds, sizeof *held->took_ns);
    if (held->plane != NULL && held->took_ns != NULL &&
        schema_add(&held->schema, "x", SECTION_PARAMETERS, &shape, 1) == RC_OK) {
        return held;
    }
    held_destroy(&held->learner);
    return NULL;
}

/* ---- what the parent is told ---- */

struct bench_peer {
    struct env *env;
    struct held *held;
    struct node *node;
    uint32_t rounds; /* told so far */
    bool is_formed, has_begun, is_ended;
    uint64_t bytes_begun;
};

static void on_listening(void *context, const char *address)
{
    (void)context;
    printf("address %s\n", address);
    (void)fflush(stdout);
}

static void on_report(void *context, const struct node_report *report)
{
    (void)context, (void)report;
}

static void on_ended(void *context, const struct node_result *result)
{
    struct bench_peer *peer = context;

    (void)result;
    peer->is_ended = true;
}

static void tell_done(const struct bench_peer *peer, const struct node_report *report)
{
    const struct held *held = peer->held;
    struct json *json = json_object_create();
    char *text;

    json_set_count(json, "rounds_ok", peer->rounds);
    json_set_count(json, "rounds_aborted", report->rounds_aborted);
    json_set_count(json, "bytes", report->bytes_sent - peer->bytes_begun);
    json_set_count(json, "rss_bytes", usage_peak_rss_bytes());
    json_set_real(json, "start_mean", held->start_mean);
    json_set_real(json, "mean", held->mean);
    json_set_real(json, "error", held->error);
    text = json_format(json);
    printf("done %s\n", text == NULL ? "{}" : text);
    mem_free(text);
    json_destroy(json);
}

static void watch(struct bench_peer *peer)
{
    const struct bench_averaging_options *options = peer->held->options;
    struct node_report report;
    uint64_t now_ns = peer->env->ops->now_ns(peer->env);
    uint32_t mixed = atomic_load(&peer->held->mixed);

    if (!peer->is_formed && node_state(peer->node) == NODE_TRAINING &&
        node_neighbours(peer->node) + 1 == options->peers) {
        peer->is_formed = true;
        printf("formed\n");
    }
    if (!peer->has_begun && node_step(peer->node) > 0) {
        peer->has_begun = true;
        node_report(peer->node, &report);
        peer->bytes_begun = report.bytes_sent;
        printf("round %llu\n", (unsigned long long)now_ns);
    }
    while (peer->rounds < mixed && peer->rounds < options->rounds) {
        printf("round %llu %llu\n", (unsigned long long)now_ns,
               (unsigned long long)peer->held->took_ns[peer->rounds]);
        if (++peer->rounds < options->rounds) continue;
        node_report(peer->node, &report);
        tell_done(peer, &report);
    }
    (void)fflush(stdout);
}

/* ---- life ---- */

static enum rc peer_run(struct bench_peer *peer, const struct strategy *strategy,
                        const char *address, struct fault *why)
{
    struct identity identity;
    struct swarm_secret swarm;
    uint8_t seed[SECRET_BYTES];
    const char *bootstrap[] = {address};
    struct node_options options = {.identity = &identity,
                                   .swarm = &swarm,
                                   .strategy = strategy,
                                   .incarnation = 1,
                                   .listen = "127.0.0.1:0",
                                   .bootstrap = bootstrap,
                                   .bootstrap_count = strcmp(address, "-") == 0 ? 0 : 1,
                                   .spec = "held",
                                   .quick_bytes = links_quick_bytes(),
                                   .is_clear = peer->held->options->is_clear,
                                   .seed = 1,
                                   .batch = 1,
                                   .report_every_ns = 3600 * NS_PER_S,
                                   .checkpoint_every_ns = 3600 * NS_PER_S,
                                   .join_timeout_ns = 60 * NS_PER_S};
    struct node_events events = {.context = peer,
                                 .on_listening = on_listening,
                                 .on_report = on_report,
                                 .on_ended = on_ended};
    enum rc rc;

    peer->env->ops->entropy(peer->env, seed, sizeof seed);
    identity_from_seed(seed, &identity);
    swarm_secret_derive("bench", NULL, &swarm);
    peer->env->ops->entropy(peer->env, options.boot.bytes, sizeof options.boot.bytes);
    rc = node_create(peer->env, &peer->held->learner, &options, &events, &peer->node, why);
    while (rc == RC_OK && !peer->is_ended) {
        uv_env_poll(peer->env, POLL_MS * NS_PER_MS);
        watch(peer);
    }
    if (rc == RC_OK) peer->env->ops->stop(peer->env);
    return rc;
}

enum rc bench_averaging_peer(const struct bench_averaging_options *options, const char *role,
                             struct fault *why)
{
    const struct uv_env_options env_options = {.folder = NULL};
    struct bench_peer peer = {.env = NULL};
    char folder[PATH_BYTES - 8], address[ADDRESS_BYTES_MAX], go[PATH_BYTES], topology[32];
    struct strategy_specs specs = {.averaging = "local-sgd:H=1",
                                   .topology = topology,
                                   .codec = options->codec,
                                   .exchange = options->exchange};
    struct strategy strategy;
    uint32_t number;
    enum rc rc;

    if (sscanf(role, "%u %247s %63s", &number, folder, address) != 3) {
        return fault_set(why, RC_USAGE, "%s is for the benchmark's own use: unset it",
                         BENCH_PEER_VARIABLE);
    }
    snprintf(go, sizeof go, "%s/go", folder);
    snprintf(topology, sizeof topology, "%s:%u", options->is_grid ? "grid" : "groups",
             options->group);
    if (options->group >= options->peers) snprintf(topology, sizeof topology, "complete");
    if (strcmp(options->exchange, "pair") == 0) snprintf(topology, sizeof topology, "pairs");
    rc = strategy_parse(&specs, &strategy, why);
    if (rc == RC_OK) rc = secure_start();
    if (rc == RC_OK) rc = uv_env_create(&env_options, &peer.env, why);
    if (rc != RC_OK) return rc;
    peer.held = held_create(options, number, go);
    rc = peer.held == NULL ? fault_set(why, RC_NOMEM, "cannot start the peer: out of memory")
                           : peer_run(&peer, &strategy, address, why);
    uv_env_destroy(peer.env);
    node_destroy(peer.node);
    if (peer.held != NULL) held_destroy(&peer.held->learner);
    return rc;
}
