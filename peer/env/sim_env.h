/*
 * sim_env: the simulated world: one thread, one heap of events ordered by (time, sequence), a clock
 * that jumps to the next event. Same seed, same run.
 */
#ifndef GRAPEVINE_PEER_ENV_SIM_ENV_H
#define GRAPEVINE_PEER_ENV_SIM_ENV_H

#include "peer/env/env.h"

struct sim_world;

struct sim_options {
    uint64_t seed;
    uint64_t latency_ns;  /* one way, of every link */
    uint64_t jitter_ns;   /* uniform extra */
    uint64_t bytes_per_s; /* per direction of a link; 0: no limit */
    uint32_t hosts_max;
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
/** Between a and b nothing passes from `from` to `to` while blocked (half-open, one-way). */
void sim_block(struct sim_world *world, uint32_t from, uint32_t to, bool is_blocked);
/** Behind a NAT or firewall: it can dial, and nobody can dial it (dials time out). */
void sim_host_refuse_inbound(struct sim_world *world, uint32_t host, bool refuses);
/** Multiply the modelled job time of a host: a slow machine. */
void sim_host_slow(struct sim_world *world, uint32_t host, double factor);
/** The next `count` store_put calls of a host fail with `rc`. */
void sim_store_fail(struct sim_world *world, uint32_t host, uint32_t count, enum rc rc);
/** Deliver a signal event. */
void sim_signal(struct sim_world *world, uint32_t host, int signal);

uint64_t sim_now_ns(const struct sim_world *world);
/** Process events until virtual time `until_ns`; false once nothing is left to do. */
bool sim_run(struct sim_world *world, uint64_t until_ns);
/** Process one event; false if there is none. */
bool sim_step(struct sim_world *world);
/** A hash over all events delivered so far: equal for equal seeds. */
uint64_t sim_trace(const struct sim_world *world);

#endif
