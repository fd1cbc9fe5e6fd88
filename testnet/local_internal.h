/* local_internal: what the files of local.h share. Everything on the one loop thread. */
#ifndef GRAPEVINE_TESTNET_LOCAL_INTERNAL_H
#define GRAPEVINE_TESTNET_LOCAL_INTERNAL_H

#include "testnet/local.h"

struct json;
struct process_host;
struct proxy;

enum { LOCAL_PATH_BYTES = 1024, LOCAL_NO_CHILD = -1 };

/* A peer as the loop sees it, around what others may see. */
struct runner {
    struct local_peer seen;
    int64_t child;        /* of this start */
    bool is_ours_to_kill; /* we sent SIGKILL to make a fault */
    bool has_bootstrap;   /* somebody was there when it was started */
    uint64_t heard_ns, restart_ns, thaw_ns, quick_ns;
    bool is_held;             /* slowed, and not let run just now */
    uint64_t killed_samples;  /* had when killed, as far as can be told */
    struct local_peer before; /* totals of the earlier starts */
};

struct local {
    const struct local_options *options;
    struct process_host *host;
    struct runner *runners; /* [options->peers] */
    struct chaos chaos;
    struct proxy *lines; /* NULL: peers reach each other directly */
    struct rng rng;      /* of partitions */
    uint64_t whole_ns;   /* when the partition ends; 0: there is none */
    uint64_t ticks;
    uint64_t begin_ns, stop_ns; /* when stopping began */
    int signal;
    bool is_stopping;
    uint32_t faults, faults_due; /* that struck; that would have, had there been a victim */
    double target_s;
    char events_path[LOCAL_PATH_BYTES];
};

static inline bool runner_is_running(const struct runner *runner)
{
    return runner->seen.state == LOCAL_STARTING || runner->seen.state == LOCAL_TRAINING;
}

/** The one place where a state changes. */
void local_become(struct runner *runner, enum local_state next);
void local_note(struct local *local, bool is_error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/** Seconds on the run's clock. */
double local_clock(struct local *local);
/** Begin a line of events.jsonl; local_record() takes it. A full disk does not stop the run. */
struct json *local_event(struct local *local, const char *kind, uint32_t peer);
void local_record(struct local *local, struct json *event);
/** Start a WAITING peer. */
MUST_USE enum rc local_start(struct local *local, uint32_t peer, struct fault *why);
/** How long a peer that listens may say nothing. */
uint64_t local_silence_limit_ns(const struct local_options *options);
void local_fail(struct local *local, uint32_t peer, const char *how);

/** A line of a child's standard output (local_hear.c). */
void local_hear(void *context, uint32_t child, const char *line);
/** Strike where a fault is due; never the last peer that trains: a swarm needs someone to come back
 *  to (local_faults.c). */
void local_cause_faults(struct local *local, uint64_t now_ns);
/** At the end: were faults asked for, and did none strike? */
void local_tell_spared(struct local *local);
/** Let slowed peers run for their share of ticks, and the others all the time (local_faults.c). */
void local_pace_slow(struct local *local, uint64_t now_ns);

/* local_lines.c */
/** Gates for all peers, if lines are asked for. */
MUST_USE enum rc local_lines_open(struct local *local, struct fault *why);
/** What others dial to reach `peer`. */
const char *local_dial_address(const struct local *local, uint32_t peer);
/** It has said where it listens. */
void local_lines_up(struct local *local, uint32_t peer);
/** Cut the swarm in two, and make it whole again when it is time. */
void local_part(struct local *local, const struct chaos_rule *rule, uint64_t now_ns);
void local_heal(struct local *local, uint64_t now_ns);

/** Samples in the checkpoint that a peer will go on from (local_kept.c). */
uint64_t local_samples_kept(struct local *local, uint32_t peer);
/** The lineage of its last checkpoint, if it has one (local_kept.c). */
void local_read_lineage(struct local *local, uint32_t peer);

#endif
