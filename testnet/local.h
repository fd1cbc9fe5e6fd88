/*
 * local: a swarm of real peer processes on loopback. The first starts alone and says its address,
 * the others join through it; faults are injected as `--chaos` says; it is over once every peer has
 * reached its goal, failed, or been stopped.
 *
 *   WAITING --spawn--> STARTING --listening--> TRAINING --goal, exit 0--> DONE
 *      ^                   |                      |
 *      '--restart due-- DOWN <----our SIGKILL-----+--exit, silence--> FAILED
 *                                                 '----stopping-----> STOPPED
 *
 * Thread: local_run() runs the event loop of the calling thread; the callbacks come from inside it.
 */
#ifndef GRAPEVINE_TESTNET_LOCAL_H
#define GRAPEVINE_TESTNET_LOCAL_H

#include "base/bytes.h"
#include "base/fault.h"
#include "base/rc.h"
#include "peer/env/sim/env.h"
#include "testnet/chaos.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* With --time: so long before the end a fault must be over, and whom it hit be back. */
#define LOCAL_COME_BACK_NS (2 * NS_PER_S)

enum local_state {
    LOCAL_WAITING,  /* not started, or due to be started again */
    LOCAL_STARTING, /* running, has not said its address */
    LOCAL_TRAINING,
    LOCAL_DOWN,    /* killed by us */
    LOCAL_DONE,    /* reached its goal */
    LOCAL_FAILED,  /* ended otherwise; `failure` says how */
    LOCAL_STOPPED, /* on request */
    LOCAL_STATE_COUNT
};

/* What a peer has done, over all its starts but for what stands there. */
struct local_peer {
    enum local_state state;
    bool is_frozen, is_slow;
    bool has_finished; /* said its last line; its end is only a matter of time */
    uint32_t starts;
    char address[64];
    char lineage[72]; /* of its last checkpoint or report; "": not known */
    uint64_t step, own_steps, samples, round, neighbours;
    double loss, accuracy, samples_per_s; /* NaN: not said yet */
    double
        goal_s; /* when it will be at its goal, on the run's clock, by its pace; NaN: not known */
    uint64_t bytes_sent, bytes_received, rounds_ok, rounds_aborted;
    uint64_t rss_bytes, peak_rss_bytes; /* the first of this start */
    uint64_t samples_lost;              /* trained since the checkpoint a kill threw it back to */
    int exit_code;                      /* of its last end; -1 for a signal */
    char failure[320];
};

struct local_options {
    uint32_t peers;
    const char *executable;
    const char *const *words; /* flags every peer gets */
    size_t words_count;
    uint32_t start_with;      /* nobody takes a step before so many are there; 0: as they come */
    const char *out;          /* exists */
    bool is_verbose;          /* the logs of the peers */
    bool gives_shards;        /* --shard-of I/N */
    const double *speeds;     /* [peers] of --hetero */
    uint64_t step_ns;         /* --step-time at speed 1; 0: as it comes */
    bool has_link;            /* else peers reach each other directly */
    struct sim_path link;     /* the lines between them */
    struct chaos chaos;       /* parsed; its clock is started here */
    uint64_t seed;            /* of the chaos */
    double target_accuracy;   /* 0: none; for time_to_target_s */
    uint64_t goal_ns;         /* --time of the run; 0: none */
    uint64_t report_every_ns; /* of the peers: so long they may say nothing */
    double started_s; /* time already on the run's clock: a resumed run goes on from there */
    void *context;
    /** After each report of a peer. */
    void (*on_report)(void *context, uint32_t peer, const struct local_peer *state);
    /** A line for people: a fault we caused, or (an error) a peer that failed. */
    void (*on_note)(void *context, bool is_error, const char *line);
    /** Several times a second. */
    void (*on_tick)(void *context, const struct local_peer *peers, uint32_t count,
                    double elapsed_s);
};

struct local_result {
    struct local_peer *peers; /* [count], owned */
    uint32_t count;
    double wall_s;                  /* of this run, not counting earlier ones it resumed */
    double time_to_target_s;        /* mean accuracy of all peers' last reports; NaN: not reached */
    uint32_t faults, faults_spared; /* that struck; that were due and found nobody to strike */
    int signal;                     /* that stopped it, or 0 */
};

/** RC_OK also when peers failed: see their states. Errors: nothing could be started. Appends what
 *  was heard to OUT/events.jsonl. On an error nothing needs to be released. */
MUST_USE enum rc local_run(const struct local_options *options, struct local_result *result,
                           struct fault *why);
void local_result_deinit(struct local_result *result);
const char *local_state_name(const struct local_peer *peer);

#endif
