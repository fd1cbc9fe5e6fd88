/* A simulated swarm: hosts, identities, nodes, and questions to ask of them. One thread. */
#include "testnet/cluster.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "gossip/secure/agreed.h"
#include "replica/learners/quadratic.h"
#include "testnet/hetero_spec.h"

#include <math.h>
#include <stdio.h>

enum { VALUES_DEFAULT = 1000, BATCH = 1, GUESTS_MAX = 4 };

struct cluster_peer {
    struct cluster *cluster;
    uint32_t host;
    bool is_up, was_started, has_result, is_keeper;
    bool is_lost; /* what its store holds is of another life */
    struct env *env;
    struct learner *learner;
    struct node *node;
    struct identity identity;
    struct checkpoint checkpoint;
    struct log log;
    uint64_t incarnation;
    uint64_t seed; /* of its initial model; 0: the cluster's */
    struct strategy strategy;
    uint64_t warnings;
    char addresses[CLUSTER_BOOTSTRAPS_MAX][ADDRESS_BYTES_MAX];
    struct node_result result;
    char site[SITE_BYTES];
};

struct cluster {
    struct cluster_options options;
    struct sim_world *world;
    struct swarm_secret swarm;
    struct strategy strategy;
    bool is_verbose;
    struct cluster_peer *peers;
    struct env *guests[GUESTS_MAX];
    struct verified *verified; /* shared by all peers */
};

static void on_line(void *context, enum log_level level, const char *line)
{
    struct cluster_peer *peer = context;

    peer->warnings += level == LOG_WARN;
    if (!peer->cluster->is_verbose) return;
    fprintf(stderr, "%10.4f  peer %u: %s\n", (double)sim_now_ns(peer->cluster->world) / 1e9,
            peer->host - 1, line);
}

static void make_identity(uint64_t seed, uint32_t peer, struct identity *identity)
{
    uint8_t bytes[SECRET_BYTES] = {0};

    store_le64(bytes, rng_mix(seed, peer));
    identity_from_seed(bytes, identity);
}

void cluster_ids(uint32_t peers, uint64_t seed, struct peer_id *ids, struct swarm_secret *swarm)
{
    CHECK(secure_start() == RC_OK);
    swarm_secret_derive("cluster", NULL, swarm);
    for (uint32_t i = 0; i < peers; i++) {
        struct identity identity;

        make_identity(seed, i, &identity);
        ids[i] = identity_peer_id(identity.public_key);
    }
}

/* For a few signatures and handshakes of each peer. */
static uint32_t slots_for(uint32_t peers)
{
    uint32_t slots = 256;

    while (slots < 64 * peers) {
        slots *= 2;
    }
    return slots;
}

static void name_trace(const struct cluster_peer *peer)
{
    char id[PEER_ID_TEXT], name[48];

    peer_id_format(identity_peer_id(peer->identity.public_key), id);
    snprintf(name, sizeof name, "peer %u, %.8s", peer->host, id);
    trace_name(peer->env->tracer, name);
}

struct cluster *cluster_create(const struct cluster_options *options)
{
    struct sim_options sim = {.seed = options->seed,
                              .latency_ns = options->latency_ns,
                              .jitter_ns = options->jitter_ns,
                              .bytes_per_s = options->bytes_per_s,
                              .loss = options->loss,
                              .trace = options->trace,
                              .hosts_max = options->peers + options->guests + 1};
    struct strategy_specs specs = {.averaging = options->averaging,
                                   .exchange = options->exchange,
                                   .codec = options->codec,
                                   .topology = options->topology,
                                   .robust = options->robust != NULL ? options->robust : "none",
                                   .moments = options->moments,
                                   .rule = options->rule,
                                   .pace = options->pace};
    struct cluster *cluster = mem_alloc(sizeof *cluster);
    struct fault why = {""};
    uint32_t unused;

    CHECK(cluster != NULL && options->peers > 0 && options->peers <= CLUSTER_PEERS_MAX);
    CHECK(options->guests <= GUESTS_MAX);
    CHECK(secure_start() == RC_OK);
    cluster->options = *options;
    if (cluster->options.values == 0) cluster->options.values = VALUES_DEFAULT;
    if (cluster->options.step_cost_ns == 0) cluster->options.step_cost_ns = 10 * NS_PER_MS;
    if (cluster->options.report_every_ns == 0) cluster->options.report_every_ns = 5 * NS_PER_S;
    cluster->world = sim_world_create(&sim);
    cluster->verified = verified_create(slots_for(options->peers));
    cluster->peers = mem_array(options->peers, sizeof *cluster->peers);
    CHECK(cluster->world != NULL && cluster->peers != NULL && cluster->verified != NULL);
    if (options->strategy != NULL) {
        cluster->strategy = *options->strategy;
    } else {
        CHECK(strategy_parse(&specs, &cluster->strategy, &why) == RC_OK);
    }
    swarm_secret_derive("cluster", NULL, &cluster->swarm);
    cluster->swarm.agreed = agreed_create(slots_for(options->peers));
    CHECK(sim_host_create(cluster->world, &unused) != NULL); /* "sim:0" is no address: no port 0 */
    for (uint32_t i = 0; i < options->peers; i++) {
        struct cluster_peer *peer = &cluster->peers[i];

        make_identity(options->seed, i, &peer->identity);
        peer->cluster = cluster;
        peer->strategy = cluster->strategy;
        peer->log = (struct log){LOG_DEBUG, on_line, peer};
        peer->env = sim_host_create(cluster->world, &peer->host);
        CHECK(peer->env != NULL && peer->host == i + 1);
        name_trace(peer);
        if (options->sites > 1) {
            sim_host_site(cluster->world, peer->host, i % options->sites);
            cluster_set_site(cluster, i, i % options->sites);
        }
    }
    for (uint32_t i = 0; i < options->guests; i++) {
        cluster->guests[i] = sim_host_create(cluster->world, &unused);
        CHECK(cluster->guests[i] != NULL);
    }
    return cluster;
}

static void peer_down(struct cluster_peer *peer)
{
    if (!peer->is_up) return;
    peer->is_up = false;
    node_destroy(peer->node);
    peer->node = NULL;
    peer->learner->ops->destroy(peer->learner);
    checkpoint_deinit(&peer->checkpoint);
}

void cluster_destroy(struct cluster *cluster)
{
    if (cluster == NULL) return;
    for (uint32_t i = 0; i < cluster->options.peers; i++) {
        if (cluster->peers[i].is_up) cluster_crash(cluster, i);
    }
    sim_world_destroy(cluster->world);
    verified_destroy(cluster->verified);
    agreed_destroy(cluster->swarm.agreed);
    mem_free(cluster->peers);
    mem_free(cluster);
}

static void on_listening(void *context, const char *address)
{
    (void)context;
    (void)address;
}

static void on_report(void *context, const struct node_report *report)
{
    (void)context;
    (void)report;
}

static void on_ended(void *context, const struct node_result *result)
{
    struct cluster_peer *peer = context;

    peer->result = *result;
    peer->has_result = true;
    peer->env->ops->stop(peer->env);
}

static void create_learner(struct cluster_peer *peer)
{
    const struct cluster_options *options = &peer->cluster->options;
    struct quadratic_options quadratic = {
        .values = options->values,
        .curvature = 1.0,
        .noise = options->noise,
        .learning_rate = options->learning_rate > 0 ? options->learning_rate : 0.05,
        .seed = options->seed,
        .stream_seed = rng_mix(options->seed, peer->host),
        .centre_spread = options->centre_spread};
    const struct strategy *strategy = &peer->strategy;
    const struct strategy_answers *answers = &strategy->answers;
    const struct mutual_options mutual = {.relabels = answers->relabels,
                                          .weight = (double)answers->weight,
                                          .burn_steps = answers->burn_steps,
                                          .compress_steps = answers->compress_steps,
                                          .every_steps = strategy->every_steps};

    if (strategy->mixes_answers) quadratic.mutual = &mutual;
    if (options->learner != NULL) {
        peer->learner = options->learner(options->learner_context, peer->host - 1);
        CHECK(peer->learner != NULL);
        return;
    }
    if (options->is_quiet) quadratic.learning_rate = 1e-30; /* too small to change a float */
    if (peer->seed != 0) quadratic.seed = peer->seed;
    CHECK(quadratic_create(&quadratic, &peer->learner) == RC_OK);
}

static uint64_t step_cost_ns(const struct cluster *cluster, uint32_t number)
{
    uint64_t cost_ns = cluster->options.step_cost_ns;

    return cluster->options.speeds == NULL
               ? cost_ns
               : hetero_step_ns(cost_ns, cluster->options.speeds[number]);
}

void cluster_start(struct cluster *cluster, uint32_t number, const uint32_t *bootstrap,
                   size_t bootstrap_count)
{
    struct cluster_peer *peer = &cluster->peers[number];
    const char *addresses[CLUSTER_BOOTSTRAPS_MAX];
    char listen[ADDRESS_BYTES_MAX];
    struct node_options options = {.identity = &peer->identity,
                                   .start_with = cluster->options.start_with,
                                   .swarm = &cluster->swarm,
                                   .strategy = &peer->strategy,
                                   .log = &peer->log,
                                   .listen = listen,
                                   .bootstrap = addresses,
                                   .bootstrap_count = bootstrap_count,
                                   .spec = "quadratic",
                                   .seed = cluster->options.seed,
                                   .goal.steps = cluster->options.steps,
                                   .verify = cluster->options.verify,
                                   .batch = BATCH,
                                   .rate_scaling = cluster->options.rate_scaling,
                                   .report_every_ns = cluster->options.report_every_ns,
                                   .evaluate_samples = cluster->options.evaluate_cost_ns > 0,
                                   .evaluates_sparingly = cluster->options.evaluates_sparingly,
                                   .evaluate_cost_ns = cluster->options.evaluate_cost_ns,
                                   .checkpoint_every_ns = 5 * NS_PER_S,
                                   .join_timeout_ns = 30 * NS_PER_S,
                                   .relay_bytes_per_s = 2500 * 1000,
                                   .keeps_files = true,
                                   .verified = cluster->verified,
                                   .step_cost_ns = step_cost_ns(cluster, number)};
    struct node_events events = {.context = peer,
                                 .on_listening = on_listening,
                                 .on_report = on_report,
                                 .on_ended = on_ended};
    struct fault why = {""};
    enum rc rc;

    CHECK(!peer->is_up && bootstrap_count <= CLUSTER_BOOTSTRAPS_MAX);
    memcpy(options.site, peer->site, SITE_BYTES);
    options.is_keeper = peer->is_keeper;
    if (peer->is_keeper) options.goal.steps = 0;
    if (peer->was_started) peer->env = sim_host_restart(cluster->world, peer->host);
    peer->was_started = true;
    peer->has_result = false;
    snprintf(listen, sizeof listen, "sim:%u", peer->host);
    for (size_t i = 0; i < bootstrap_count; i++) {
        snprintf(peer->addresses[i], sizeof peer->addresses[i], "sim:%u", bootstrap[i] + 1);
        addresses[i] = peer->addresses[i];
    }
    create_learner(peer);
    rc = peer->is_lost ? RC_NOT_FOUND
                       : checkpoint_load(peer->env, peer->learner, &peer->checkpoint, &why);
    CHECK(rc == RC_OK || rc == RC_NOT_FOUND);
    peer->is_lost = false;
    options.resume = rc == RC_OK ? &peer->checkpoint : NULL;
    options.incarnation = ++peer->incarnation;
    peer->env->ops->entropy(peer->env, options.boot.bytes, sizeof options.boot.bytes);
    rc = node_create(peer->env, peer->learner, &options, &events, &peer->node, &why);
    CHECK(rc == RC_OK);
    peer->is_up = true;
}

void cluster_crash(struct cluster *cluster, uint32_t number)
{
    struct cluster_peer *peer = &cluster->peers[number];

    CHECK(peer->is_up);
    sim_host_crash(cluster->world, peer->host);
    peer_down(peer);
}

void cluster_lose(struct cluster *cluster, uint32_t number)
{
    struct cluster_peer *peer = &cluster->peers[number];

    CHECK(!peer->is_up);
    peer->is_lost = true;
    make_identity(~cluster->options.seed, number, &peer->identity);
}

void cluster_stop(struct cluster *cluster, uint32_t number)
{
    CHECK(cluster->peers[number].is_up);
    sim_signal(cluster->world, cluster->peers[number].host, 2);
}

void cluster_set_model_seed(struct cluster *cluster, uint32_t number, uint64_t seed)
{
    cluster->peers[number].seed = seed;
}

void cluster_set_keeper(struct cluster *cluster, uint32_t number)
{
    cluster->peers[number].is_keeper = true;
}

void cluster_set_averaging(struct cluster *cluster, uint32_t number, const char *averaging)
{
    struct strategy_specs specs = {.averaging = averaging, .robust = "none"};
    struct fault why = {""};

    CHECK(!cluster->peers[number].is_up);
    CHECK(strategy_parse(&specs, &cluster->peers[number].strategy, &why) == RC_OK);
}

void cluster_set_site(struct cluster *cluster, uint32_t number, uint32_t site)
{
    snprintf(cluster->peers[number].site, SITE_BYTES, "site-%u", site);
}

uint64_t cluster_warnings(const struct cluster *cluster, uint32_t number)
{
    return cluster->peers[number].warnings;
}

struct sim_world *cluster_world(struct cluster *cluster)
{
    return cluster->world;
}

struct env *cluster_guest(struct cluster *cluster, uint32_t guest)
{
    CHECK(guest < cluster->options.guests);
    return cluster->guests[guest];
}

const struct strategy *cluster_strategy(const struct cluster *cluster)
{
    return &cluster->strategy;
}

const struct swarm_secret *cluster_swarm(const struct cluster *cluster)
{
    return &cluster->swarm;
}

/* A peer that ended leaves the world like a process that exits. */
static void reap(struct cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->options.peers; i++) {
        if (cluster->peers[i].is_up && cluster->peers[i].has_result) cluster_crash(cluster, i);
    }
}

bool cluster_run_until(struct cluster *cluster, bool (*is_true)(struct cluster *, void *),
                       void *context, uint64_t limit_ns)
{
    uint64_t end_ns = sim_now_ns(cluster->world) + limit_ns;
    uint64_t slice_ns = 20 * NS_PER_MS;

    for (;;) {
        uint64_t now_ns = sim_now_ns(cluster->world);

        reap(cluster);
        if (is_true != NULL && is_true(cluster, context)) return true;
        if (now_ns >= end_ns) return false;
        (void)sim_run(cluster->world, now_ns + slice_ns < end_ns ? now_ns + slice_ns : end_ns);
    }
}

void cluster_run(struct cluster *cluster, uint64_t duration_ns)
{
    (void)cluster_run_until(cluster, NULL, NULL, duration_ns);
}

bool cluster_is_up(const struct cluster *cluster, uint32_t peer)
{
    return cluster->peers[peer].is_up;
}

struct node *cluster_node(struct cluster *cluster, uint32_t peer)
{
    return cluster->peers[peer].node;
}

const struct node_result *cluster_result(const struct cluster *cluster, uint32_t peer)
{
    return cluster->peers[peer].has_result ? &cluster->peers[peer].result : NULL;
}

struct learner *cluster_learner(struct cluster *cluster, uint32_t number)
{
    CHECK(cluster->peers[number].is_up);
    return cluster->peers[number].learner;
}

void cluster_plane(struct cluster *cluster, uint32_t peer, float *out)
{
    struct learner *learner = cluster->peers[peer].learner;
    const size_t values = cluster->options.values;

    CHECK(cluster->peers[peer].is_up);
    if (cluster->peers[peer].strategy.mixes_answers && cluster->options.learner == NULL) {
        memcpy(out, quadratic_point(learner), values * sizeof *out);
        return;
    }
    CHECK(learner->ops->export_section(learner, SECTION_PARAMETERS, out, values) == RC_OK);
}

void cluster_assign(struct cluster *cluster, uint32_t peer, const float *values)
{
    struct learner *learner = cluster->peers[peer].learner;

    CHECK(cluster->peers[peer].is_up);
    CHECK(learner->ops->assign_section(learner, SECTION_PARAMETERS, values,
                                       cluster->options.values) == RC_OK);
}

double cluster_distance(struct cluster *cluster)
{
    size_t values = cluster->options.values;
    float *plane = mem_array(values, sizeof *plane);
    double *sum = mem_array(values, sizeof *sum), squares = 0.0, of_mean = 0.0;
    uint32_t live = 0;

    CHECK(plane != NULL && sum != NULL);
    for (uint32_t i = 0; i < cluster->options.peers; i++) {
        if (!cluster->peers[i].is_up) continue;
        cluster_plane(cluster, i, plane);
        live++;
        for (size_t k = 0; k < values; k++) {
            sum[k] += (double)plane[k];
            squares += (double)plane[k] * (double)plane[k];
        }
    }
    for (size_t k = 0; k < values && live > 0; k++) {
        of_mean += sum[k] / live * (sum[k] / live);
    }
    mem_free(plane);
    mem_free(sum);
    if (live == 0) return 0.0;
    return sqrt(fmax(0.0, squares / live - of_mean));
}

double cluster_mean(struct cluster *cluster)
{
    size_t values = cluster->options.values;
    float *plane = mem_array(values, sizeof *plane);
    double sum = 0.0;
    uint32_t live = 0;

    CHECK(plane != NULL);
    for (uint32_t i = 0; i < cluster->options.peers; i++) {
        if (!cluster->peers[i].is_up) continue;
        cluster_plane(cluster, i, plane);
        live++;
        for (size_t k = 0; k < values; k++) {
            sum += (double)plane[k];
        }
    }
    mem_free(plane);
    return live == 0 ? 0.0 : sum / live / (double)values;
}

bool cluster_is_whole(struct cluster *cluster, void *unused)
{
    size_t live = 0;

    (void)unused;
    for (uint32_t i = 0; i < cluster->options.peers; i++) {
        if (cluster->peers[i].is_up) live++;
    }
    for (uint32_t i = 0; i < cluster->options.peers; i++) {
        if (!cluster->peers[i].is_up) continue;
        if (node_state(cluster->peers[i].node) != NODE_TRAINING ||
            node_neighbours(cluster->peers[i].node) + 1 < live) {
            return false;
        }
    }
    return live > 0;
}

bool cluster_is_done(struct cluster *cluster, void *unused)
{
    (void)unused;
    for (uint32_t i = 0; i < cluster->options.peers; i++) {
        if (cluster->peers[i].is_up) return false;
    }
    return true;
}

void cluster_set_verbose(struct cluster *cluster, bool is_verbose)
{
    cluster->is_verbose = is_verbose;
}
