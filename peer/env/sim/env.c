/*
 * sim_env: a host of the simulated world as its node sees it: clock, chance, wake-ups, jobs, and
 * its crashes and freezes. Links are net.c, files store.c.
 *
 * Jobs cost modelled time, and lanes are in order. When the work is really done is decided by a
 * seeded coin: at once when submitted (with all before it in its lane), or when it is due. A node
 * whose result depends on that would depend on thread timing in the real world.
 */
#include "peer/env/sim/world.h"

#include "base/check.h"
#include "base/mem.h"
#include "gossip/wire/address.h"

#include <stdio.h>
#include <string.h>

static uint64_t env_now_ns(struct env *env)
{
    return sim_clock_show(&sim_env_host(env)->clock, sim_env_of(env)->world->now_ns);
}

static void env_entropy(struct env *env, void *out, size_t count)
{
    struct rng *rng = &sim_env_host(env)->entropy;
    uint8_t *bytes = out;

    for (size_t i = 0; i < count; i += sizeof(uint64_t)) {
        uint8_t draw[sizeof(uint64_t)];

        store_le64(draw, rng_u64(rng));
        memcpy(bytes + i, draw, count - i < sizeof draw ? count - i : sizeof draw);
    }
}

static void env_set_events(struct env *env, const struct env_events *events)
{
    if (sim_env_of(env)->is_alive) sim_env_host(env)->events = *events;
}

static enum rc env_listen(struct env *env, const char *text, char *bound, size_t cap,
                          struct fault *why)
{
    struct sim_host *host = sim_env_host(env);
    struct address address;

    if (!sim_env_of(env)->is_alive) return fault_set(why, RC_CLOSED, "this host is off");
    if (host->is_listening) return fault_set(why, RC_BUSY, "already listening");
    if (address_parse(text, &address) != RC_OK) {
        return fault_set(why, RC_PARSE,
                         "cannot listen on '%.100s': not an address; write host:port", text);
    }
    host->is_listening = true;
    (void)snprintf(bound, cap, "sim:%u", host->number);
    return RC_OK;
}

static void env_wake_at(struct env *env, uint64_t at_ns)
{
    struct sim_host *host = sim_env_host(env);
    uint64_t due_ns;

    if (!sim_env_of(env)->is_alive) return;
    host->wake_at_ns = at_ns;
    if (at_ns == UINT64_MAX) return;
    due_ns = sim_clock_due(&host->clock, at_ns);
    /* A wake-up that is already in the heap and early enough does: it will look again. */
    if (host->wake_pending_ns <= due_ns) return;
    host->wake_pending_ns = due_ns;
    sim_push(sim_env_of(env)->world, due_ns,
             (struct sim_event){.kind = SIM_WAKE,
                                .host = host->number,
                                .life = host->life,
                                .number = ++host->wake_generation});
}

void sim_env_rearm(struct sim_host *host)
{
    if (host->env == NULL) return;
    host->wake_pending_ns = UINT64_MAX;
    env_wake_at(&host->env->env, host->wake_at_ns);
}

/* ---- jobs ---- */

/* Run the lane's jobs up to and with `job`. */
static void lane_run(struct sim_lane *lane, const struct job *job)
{
    struct job *first;

    do {
        first = lane->first;
        CHECK(first != NULL);
        lane->first = first->next;
        if (lane->first == NULL) lane->last = &lane->first;
        first->next = NULL;
        first->run(first);
    } while (first != job);
}

static void env_submit(struct env *env, enum lane number, struct job *job)
{
    struct sim_host *host = sim_env_host(env);
    struct sim_world *world = sim_env_of(env)->world;
    struct sim_lane *lane = &host->lanes[number];
    uint64_t start_ns = world->now_ns;

    CHECK(number < LANE_COUNT && job->run != NULL && job->done != NULL);
    if (!sim_env_of(env)->is_alive) return;
    if (lane->busy_until_ns > start_ns) start_ns = lane->busy_until_ns;
    lane->busy_until_ns = start_ns + (uint64_t)((double)job->cost_ns * host->faults.slow);
    if (job->name != NULL) {
        trace_span(env->tracer, TRACE_LOOP, TRACE_LANES + number,
                   &(struct trace_span){.name = job->name,
                                        .begin_ns = sim_clock_show(&host->clock, start_ns),
                                        .end_ns = sim_clock_show(&host->clock, lane->busy_until_ns),
                                        .round = host->tracer.round,
                                        .partner = job->partner});
    }
    world->counts.jobs++;
    job->next = NULL;
    *lane->last = job;
    lane->last = &job->next;
    sim_push(world, lane->busy_until_ns,
             (struct sim_event){.kind = SIM_JOB,
                                .host = host->number,
                                .life = host->life,
                                .link = (uint64_t)number,
                                .job = job});
    if (rng_below(&host->coin, 2) == 0) lane_run(lane, job);
}

static void on_job_due(struct sim_world *world, struct sim_host *host, struct sim_event *event)
{
    struct sim_lane *lane = &host->lanes[event->link];

    if (lane->first == event->job) lane_run(lane, event->job); /* else it has run */
    world->counts.jobs_done++;
    event->job->done(event->job);
}

static void on_wake_due(struct sim_world *world, struct sim_host *host,
                        const struct sim_event *event)
{
    if (event->number != host->wake_generation) return; /* an earlier one took its place */
    host->wake_pending_ns = UINT64_MAX;
    if (host->wake_at_ns > sim_clock_show(&host->clock, world->now_ns)) {
        env_wake_at(&host->env->env, host->wake_at_ns); /* put off meanwhile */
        return;
    }
    host->wake_at_ns = UINT64_MAX;
    sim_note(world, event, NULL, 0);
    host->events.on_wake(host->events.context);
}

void sim_host_on_event(struct sim_world *world, struct sim_host *host, struct sim_event *event)
{
    if (!sim_host_hears(host)) return;
    if (event->kind == SIM_WAKE) {
        on_wake_due(world, host, event);
        return;
    }
    sim_note(world, event, NULL, 0);
    if (event->kind == SIM_JOB) {
        on_job_due(world, host, event);
    } else {
        CHECK(event->kind == SIM_SIGNAL);
        if (host->events.on_signal != NULL) {
            host->events.on_signal(host->events.context, (int)event->number);
        }
    }
}

static void env_stop(struct env *env)
{
    struct sim_env *self = sim_env_of(env);

    if (!self->is_alive || self->is_stopped) return;
    self->is_stopped = true;
    sim_env_host(env)->is_listening = false;
    sim_net_stop(self->world, sim_env_host(env));
}

static const struct env_ops sim_env_ops = {
    .name = "sim",
    .now_ns = env_now_ns,
    .entropy = env_entropy,
    .set_events = env_set_events,
    .listen = env_listen,
    .dial = sim_env_dial,
    .send = sim_env_send,
    .hangup = sim_env_hangup,
    .link_set_frame_max = sim_env_set_frame_max,
    .link_pause = sim_env_pause,
    .link_set_bulk = sim_env_set_bulk,
    .link_set_partner = sim_env_set_partner,
    .link_gains_by_more = sim_env_gains_by_more,
    .frame_spent_ns = sim_env_frame_spent_ns,
    .link_bytes = sim_env_link_bytes,
    .wake_at = env_wake_at,
    .submit = env_submit,
    .store_put = sim_env_store_put,
    .store_get = sim_env_store_get,
    .store_append = sim_env_store_append,
    .stop = env_stop,
};

/* ---- hosts ---- */

static struct env *host_start(struct sim_world *world, struct sim_host *host)
{
    struct sim_env *env = sim_grow(NULL, sizeof *env);
    uint64_t self = (uint64_t)++host->life << 32 | host->number;

    memset(env, 0, sizeof *env);
    env->env.ops = &sim_env_ops;
    if (world->options.trace != NULL) env->env.tracer = &host->tracer;
    env->world = world;
    env->host = host->number;
    env->is_alive = true;
    TAILQ_INSERT_TAIL(&world->envs, env, entry);
    host->env = env;
    rng_init(&host->entropy, rng_mix(world->options.seed, self), 1);
    rng_init(&host->network, rng_mix(world->options.seed, self), 2);
    rng_init(&host->coin, rng_mix(world->options.seed, self), 3);
    memset(&host->events, 0, sizeof host->events);
    memset(host->lanes, 0, sizeof host->lanes);
    for (int i = 0; i < LANE_COUNT; i++) {
        host->lanes[i].last = &host->lanes[i].first;
    }
    host->wake_at_ns = host->wake_pending_ns = UINT64_MAX;
    host->is_listening = false;
    return &env->env;
}

struct env *sim_host_create(struct sim_world *world, uint32_t *number)
{
    struct sim_host *host;

    CHECK(world->hosts_count < world->options.hosts_max);
    host = sim_grow(NULL, sizeof *host);
    memset(host, 0, sizeof *host);
    host->number = world->hosts_count;
    host->faults.slow = 1.0;
    host->tracer = (struct tracer){.trace = world->options.trace, .process = host->number};
    TAILQ_INIT(&host->ends);
    TAILQ_INIT(&host->files);
    world->hosts[world->hosts_count++] = host;
    *number = host->number;
    return host_start(world, host);
}

void sim_host_crash(struct sim_world *world, uint32_t number)
{
    struct sim_host *host = sim_host_at(world, number);

    if (host->env == NULL) return;
    host->env->is_alive = false;
    host->env = NULL;
    host->life++; /* what is in the heap for it means nothing now */
    host->is_listening = false;
    sim_host_freeze(world, number, false);
    sim_net_host_off(world, host);
}

struct env *sim_host_restart(struct sim_world *world, uint32_t number)
{
    struct sim_host *host = sim_host_at(world, number);

    sim_host_crash(world, number); /* also what was stopped, or still runs */
    return host_start(world, host);
}

void sim_host_freeze(struct sim_world *world, uint32_t number, bool is_frozen)
{
    struct sim_host *host = sim_host_at(world, number);

    host->is_frozen = is_frozen;
    if (is_frozen) return;
    for (size_t i = 0; i < host->frozen_count; i++) {
        sim_push(world, world->now_ns, host->frozen[i]);
    }
    host->frozen_count = 0;
}

struct sim_faults *sim_host_faults(struct sim_world *world, uint32_t number)
{
    return &sim_host_at(world, number)->faults;
}

void sim_host_site(struct sim_world *world, uint32_t number, uint32_t site)
{
    sim_host_at(world, number)->site = site;
}

void sim_signal(struct sim_world *world, uint32_t number, int signal)
{
    struct sim_host *host = sim_host_at(world, number);

    sim_push(
        world, world->now_ns,
        (struct sim_event){
            .kind = SIM_SIGNAL, .host = number, .life = host->life, .number = (uint64_t)signal});
}
