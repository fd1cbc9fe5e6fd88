/*
 * sim_env: the simulated world: one thread, one heap of events ordered by (time, sequence), a clock
 * that jumps to the next event. Same seed, same run.
 *
 * What a node meets here: links with latency, jitter, a rate and loss, alike or a way at a time;
 * cuts, clean or in the middle of a frame; one-way and two-way blocks; connections that go dark
 * without a word; hosts that freeze, crash, restart, are slow, or have clocks of their own; disks
 * that are full, broken, or lose power while writing.
 *
 * TCP keeps order, so loss shows as it does above TCP: as delay, and as a lower rate.
 */
#ifndef GRAPEVINE_PEER_ENV_SIM_ENV_H
#define GRAPEVINE_PEER_ENV_SIM_ENV_H

#include "peer/env/env.h"

#include <stdio.h>

struct sim_world;

struct sim_options {
    uint64_t seed;
    uint64_t latency_ns;  /* one way, of every link */
    uint64_t jitter_ns;   /* uniform extra */
    uint64_t bytes_per_s; /* per direction of a link; 0: no limit */
    double loss;          /* of a segment, in [0, 1) */
    uint32_t hosts_max;
    struct trace *trace; /* process N is host N; NULL: nothing is traced. Borrowed */
};

struct sim_world *sim_world_create(const struct sim_options *options);
void sim_world_destroy(struct sim_world *world);
/** A host in the world; its address is "sim:N". Its store survives sim_host_crash(). */
struct env *sim_host_create(struct sim_world *world, uint32_t *host);
/** Power off: links are cut (the others see it after a latency), jobs and timers vanish,
 * undelivered bytes are lost. The env of before is gone; sim_host_restart() gives a new one. */
void sim_host_crash(struct sim_world *world, uint32_t host);
struct env *sim_host_restart(struct sim_world *world, uint32_t host);
/** Stop and go on processing events (SIGSTOP): links stay up, nothing is answered. */
void sim_host_freeze(struct sim_world *world, uint32_t host, bool is_frozen);
/** Cut all links between two hosts now; a dial can make new ones. */
void sim_cut(struct sim_world *world, uint32_t a, uint32_t b);
/** The same as a cable or a router does it: of what is under way either way an arbitrary beginning
 *  still arrives, to any byte, and each end hears of the loss at a time of its own, at most
 *  `notice_ns` from now, so that a new connection may come before the old one is known to be lost.
 */
void sim_cut_torn(struct sim_world *world, uint32_t a, uint32_t b, uint64_t notice_ns);
/** Half-open: the connections that two hosts have now go silent for good, as when a NAT forgets
 *  them; the ends hear of it when TCP gives up. A dial makes new ones. */
void sim_darken(struct sim_world *world, uint32_t a, uint32_t b);
/** Dark connections that an end still believes in. */
uint32_t sim_dark_count(const struct sim_world *world);
/** Between a and b nothing passes from `from` to `to` while blocked (half-open, one-way). */
void sim_block(struct sim_world *world, uint32_t from, uint32_t to, bool is_blocked);

/* What is wrong with a host; all zero but `slow`, which is 1, at first, and kept over crashes. */
struct sim_faults {
    double slow;          /* a slow machine: multiplies the modelled time of jobs */
    bool refuses_inbound; /* behind a NAT or firewall: it can dial, dials to it time out */
    /* Its kernel has no BBR, so bulk over long ways gains by more connections; others are taken to
     * have it as far as they are asked, though what loss costs is the same for all (see path.c). */
    bool refuses_bbr;
    uint32_t store_failures; /* so many next store_put calls fail with `store_failure` */
    enum rc store_failure;
    /* The next store_put or store_append is interrupted: half of a new file lies beside the old
     * one, which stays, or half of the bytes are appended. RC_IO. */
    bool tears_store;
};
/** To be read and changed. */
struct sim_faults *sim_host_faults(struct sim_world *world, uint32_t host);

/* One direction of the way between two hosts; shared by all connections that go there. */
struct sim_path {
    uint64_t latency_ns, jitter_ns;
    uint64_t bytes_per_s; /* 0: no limit */
    double loss;          /* of a segment, in [0, 1) */
};
/** NULL: as the world's options say. For worlds of at most SIM_PATH_HOSTS_MAX hosts. */
enum { SIM_PATH_HOSTS_MAX = 4096 };
void sim_path_set(struct sim_world *world, uint32_t from, uint32_t to, const struct sim_path *path);
/** What a host's own line carries in all, up and down; 0: no limit. */
void sim_host_rate(struct sim_world *world, uint32_t host, uint64_t up_bytes_per_s,
                   uint64_t down_bytes_per_s);

/** From now on the host's clock shows `now_ns` and runs `ppm` parts in a million too fast
 * (negative: too slow; within half and twice its speed). Clocks are monotonic: `now_ns` may not lie
 * in its past. */
void sim_clock_set(struct sim_world *world, uint32_t host, uint64_t now_ns, int32_t ppm);
uint64_t sim_clock_ns(const struct sim_world *world, uint32_t host);

/** The host stands at `site` (0 at first): what passes between sites is counted beside all. */
void sim_host_site(struct sim_world *world, uint32_t host, uint32_t site);

/** Deliver a signal event. */
void sim_signal(struct sim_world *world, uint32_t host, int signal);

uint64_t sim_now_ns(const struct sim_world *world);
/** Process events until virtual time `until_ns`; false once nothing is left to do. */
bool sim_run(struct sim_world *world, uint64_t until_ns);
/** Process one event; false if there is none. */
bool sim_step(struct sim_world *world);
/** A hash over all events delivered so far: equal for equal seeds. */
uint64_t sim_trace(const struct sim_world *world);
/** Print every event delivered from here on, one a line. NULL: no more. */
void sim_trace_print(struct sim_world *world, FILE *out);

struct sim_counts {
    uint64_t events;          /* taken from the heap */
    uint64_t frames, bytes;   /* delivered to nodes */
    uint64_t bytes_across;    /* of them, from another site */
    uint64_t jobs, jobs_done; /* submitted; `done` called */
    size_t queued_bytes_max;  /* in one end of a connection, ever */
    uint32_t connections_max; /* of one host, ever */
};
void sim_counts(const struct sim_world *world, struct sim_counts *counts);

#endif
