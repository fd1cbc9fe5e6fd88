/*
 * cluster: many complete peers (the shipping node, exchanges, links and cryptography) in one
 * simulated world, with the toy learner `quadratic`. What tests and campaigns run scenarios on.
 * Same seed, same run.
 */
#ifndef GRAPEVINE_TESTNET_CLUSTER_H
#define GRAPEVINE_TESTNET_CLUSTER_H

#include "averaging/strategy/strategy.h"
#include "peer/env/sim/env.h"
#include "peer/node/node.h"

enum { CLUSTER_PEERS_MAX = 4096, CLUSTER_BOOTSTRAPS_MAX = 64 };

struct cluster_options {
    uint32_t peers;
    uint64_t seed;
    const char *averaging, *exchange, *codec, *topology, *rule, *pace,
        *moments;       /* as on the command line; NULL: default */
    const char *robust; /* the same; NULL: none, as many put planes apart and look how they mix */
    const struct strategy *strategy; /* not NULL: in place of these */
    size_t values;                   /* of the plane; 0: 1,000 */
    uint64_t steps;                  /* goal; 0: run for ever */
    uint64_t step_cost_ns;           /* 0: 10 ms */
    uint64_t report_every_ns;        /* 0: 5 s */
    uint64_t evaluate_cost_ns;       /* of each report's evaluation; 0: there is none */
    bool evaluates_sparingly;        /* see struct node_options */
    const double *speeds;            /* [peers] that divide it; NULL: all 1 */
    double verify;                   /* see struct node_options */
    uint32_t start_with;             /* peers before the first step */
    enum rate_scaling rate_scaling;
    uint64_t latency_ns, jitter_ns, bytes_per_s;
    double loss;                                /* of a segment */
    double noise, centre_spread, learning_rate; /* of the toy; 0: its default */
    struct trace *trace; /* see struct sim_options; peer N is process N + 1 */
    bool is_quiet;       /* learning rate 0: nothing moves but by averaging */
    uint32_t sites;      /* peer N is at site N modulo this, and says so; 0 or 1: nobody says */
    uint32_t guests;     /* hosts beside the peers, for who is no peer: an attacker */
    /** Another learner than the toy, for peer number `peer`; NULL: the toy. `values` are then its
     *  parameters. */
    struct learner *(*learner)(void *context, uint32_t peer);
    void *learner_context;
};

struct cluster;

/** Who the peers of such a cluster are, by number: a function of their number and the seed. */
void cluster_ids(uint32_t peers, uint64_t seed, struct peer_id *ids, struct swarm_secret *swarm);
/** Hosts and identities; nobody is started. */
struct cluster *cluster_create(const struct cluster_options *options);
void cluster_destroy(struct cluster *cluster);
/** Start (or restart after a crash) a peer; `bootstrap`: numbers of peers to try, in order. */
void cluster_start(struct cluster *cluster, uint32_t peer, const uint32_t *bootstrap,
                   size_t bootstrap_count);
/** Power off. What its store holds survives. */
void cluster_crash(struct cluster *cluster, uint32_t peer);
/** Before it is started again: its folder is lost, so it begins as somebody else, with nothing. */
void cluster_lose(struct cluster *cluster, uint32_t peer);
/** Ask it to stop, as SIGINT does. */
void cluster_stop(struct cluster *cluster, uint32_t peer);
/** Before a start: give this peer an unrelated initial model. */
void cluster_set_model_seed(struct cluster *cluster, uint32_t peer, uint64_t seed);
/** Before a start: another method, as in options->averaging, for this peer alone. */
void cluster_set_averaging(struct cluster *cluster, uint32_t peer, const char *averaging);
/** Before a start: it keeps the model and does not train; it has no goal. */
void cluster_set_keeper(struct cluster *cluster, uint32_t peer);
/** Before a start: it says that it is at site `site`, wherever it is. */
void cluster_set_site(struct cluster *cluster, uint32_t peer, uint32_t site);
/** Lines of warning it has logged, in all its lives. */
uint64_t cluster_warnings(const struct cluster *cluster, uint32_t peer);
struct sim_world *cluster_world(struct cluster *cluster);
/** An empty host, its address "sim:N" with N = peers + 1 + guest. */
struct env *cluster_guest(struct cluster *cluster, uint32_t guest);
const struct swarm_secret *cluster_swarm(const struct cluster *cluster);
/** What all peers began with. */
const struct strategy *cluster_strategy(const struct cluster *cluster);
/** For `duration_ns` of virtual time. */
void cluster_run(struct cluster *cluster, uint64_t duration_ns);
/** Until `is_true(cluster, context)` or `limit_ns` have passed; true if it became true. */
bool cluster_run_until(struct cluster *cluster, bool (*is_true)(struct cluster *, void *),
                       void *context, uint64_t limit_ns);

bool cluster_is_up(const struct cluster *cluster, uint32_t peer);
struct node *cluster_node(struct cluster *cluster, uint32_t peer); /* NULL: down */
/** How the last life of a peer ended; NULL while it runs or if it crashed. */
const struct node_result *cluster_result(const struct cluster *cluster, uint32_t peer);
/** Of a live peer; the peer's own, and only to be touched while the world stands still. */
struct learner *cluster_learner(struct cluster *cluster, uint32_t peer);
/** Parameters of a live peer into out: [values]. */
void cluster_plane(struct cluster *cluster, uint32_t peer, float *out);
void cluster_assign(struct cluster *cluster, uint32_t peer, const float *values);
/** sqrt(1/n sum ||x_i - mean||^2) over live peers. */
double cluster_distance(struct cluster *cluster);
/** Mean over live peers and values. */
double cluster_mean(struct cluster *cluster);
/** All live peers are linked with each other and train. */
bool cluster_is_whole(struct cluster *cluster, void *unused);
/** Every live peer has reached its goal and ended. */
bool cluster_is_done(struct cluster *cluster, void *unused);
/** Print every log line to stderr with peer and time, to look into a failing seed. */
void cluster_set_verbose(struct cluster *cluster, bool is_verbose);

#endif
