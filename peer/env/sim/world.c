/*
 * sim_world: the heap of events, the virtual clock, and the trace. Events are ordered by (time,
 * sequence); the sequence counts every push, so the order never depends on addresses and a run is a
 * function of the seed and of what the nodes do.
 */
#include "peer/env/sim/world.h"

#include "base/check.h"
#include "base/mem.h"

#include <string.h>

enum { HEAP_CAPACITY_FIRST = 1024 };

void *sim_grow(void *block, size_t bytes)
{
    void *grown = mem_resize(block, bytes);

    if (grown == NULL) grown = mem_resize(block, bytes);
    CHECK(grown != NULL);
    return grown;
}

static bool is_before(const struct sim_event *a, const struct sim_event *b)
{
    if (a->time_ns != b->time_ns) return a->time_ns < b->time_ns;
    return a->sequence < b->sequence;
}

void sim_push(struct sim_world *world, uint64_t at_ns, struct sim_event event)
{
    size_t i = world->heap_count;

    if (i == world->heap_capacity) {
        world->heap_capacity = i == 0 ? HEAP_CAPACITY_FIRST : i * 2;
        world->heap = sim_grow(world->heap, world->heap_capacity * sizeof *world->heap);
    }
    event.time_ns = at_ns > world->now_ns ? at_ns : world->now_ns;
    event.sequence = world->sequence++;
    world->heap_count++;
    while (i > 0 && is_before(&event, &world->heap[(i - 1) / 2])) {
        world->heap[i] = world->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    world->heap[i] = event;
}

static struct sim_event heap_pop(struct sim_world *world)
{
    struct sim_event first = world->heap[0];
    const struct sim_event *last = &world->heap[--world->heap_count];
    size_t i = 0;

    for (;;) {
        size_t child = 2 * i + 1;

        if (child >= world->heap_count) break;
        if (child + 1 < world->heap_count &&
            is_before(&world->heap[child + 1], &world->heap[child])) {
            child++;
        }
        if (!is_before(&world->heap[child], last)) break;
        world->heap[i] = world->heap[child];
        i = child;
    }
    world->heap[i] = *last;
    return first;
}

static void note_print(const struct sim_world *world, const struct sim_event *event, size_t count)
{
    static const char *const names[] = {
        [SIM_SYN] = "syn",         [SIM_ACCEPTED] = "accepted", [SIM_CONNECTED] = "connected",
        [SIM_SENT] = "sent",       [SIM_DRAIN] = "drain",       [SIM_ARRIVED] = "frame",
        [SIM_RESUME] = "resume",   [SIM_LOST] = "lost",         [SIM_LATE] = "too late",
        [SIM_STALL] = "timed out", [SIM_WAKE] = "wake",         [SIM_JOB] = "job done",
        [SIM_SIGNAL] = "signal"};

    (void)fprintf(world->trace_out, "%12.6f host %u %s", (double)world->now_ns / 1e9, event->host,
                  names[event->kind]);
    if (event->kind < SIM_WAKE) {
        (void)fprintf(world->trace_out, " link %llx", (unsigned long long)event->link);
    }
    if (event->kind == SIM_JOB) {
        (void)fprintf(world->trace_out, " lane %llu", (unsigned long long)event->link);
    }
    if (event->kind == SIM_ARRIVED) (void)fprintf(world->trace_out, " %zu bytes", count);
    (void)fprintf(world->trace_out, " [%016llx]\n", (unsigned long long)world->trace);
}

/* The ends of the bytes are enough: the last ones are the tag of a sealed record. */
void sim_note(struct sim_world *world, const struct sim_event *event, const void *bytes,
              size_t count)
{
    uint64_t head = 0, tail = 0;
    size_t part = count < sizeof head ? count : sizeof head;

    if (part > 0) {
        memcpy(&head, bytes, part);
        memcpy(&tail, (const uint8_t *)bytes + count - part, part);
    }
    world->trace = rng_mix(world->trace ^ world->now_ns, event->link ^ (uint64_t)event->kind << 56);
    world->trace = rng_mix(world->trace ^ count, event->host);
    if (part > 0) world->trace = rng_mix(world->trace ^ head, tail);
    if (world->trace_out != NULL) note_print(world, event, count);
}

struct sim_world *sim_world_create(const struct sim_options *options)
{
    struct sim_world *world = mem_alloc(sizeof *world);

    CHECK(options->hosts_max > 0 && options->hosts_max <= SIM_HOSTS_MAX);
    if (world == NULL) return NULL;
    world->hosts = mem_array(options->hosts_max, sizeof(struct sim_host *));
    if (world->hosts == NULL) {
        mem_free(world);
        return NULL;
    }
    world->options = *options;
    TAILQ_INIT(&world->envs);
    TAILQ_INIT(&world->graves);
    return world;
}

static void event_release(struct sim_event *event)
{
    if (event->kind == SIM_ARRIVED) blob_unref(event->frame);
}

void sim_world_destroy(struct sim_world *world)
{
    struct sim_env *env;

    if (world == NULL) return;
    for (size_t i = 0; i < world->heap_count; i++) {
        event_release(&world->heap[i]);
    }
    sim_net_deinit(world);
    sim_path_deinit(world);
    for (uint32_t i = 0; i < world->hosts_count; i++) {
        struct sim_host *host = world->hosts[i];

        for (size_t j = 0; j < host->frozen_count; j++) {
            event_release(&host->frozen[j]);
        }
        mem_free(host->frozen);
        sim_store_deinit(host);
        mem_free(host);
    }
    while ((env = TAILQ_FIRST(&world->envs)) != NULL) {
        TAILQ_REMOVE(&world->envs, env, entry);
        mem_free(env);
    }
    mem_free(world->heap);
    mem_free(world->hosts);
    mem_free(world->blocked);
    mem_free(world->scratch);
    mem_free(world);
}

/* A frozen host's kernel goes on sending and answering dials; its process sees nothing. */
static bool is_held_by_freeze(const struct sim_host *host, enum sim_kind kind)
{
    return host->is_frozen && kind != SIM_SENT && kind != SIM_SYN;
}

static void freeze_hold(struct sim_host *host, const struct sim_event *event)
{
    if (host->frozen_count == host->frozen_capacity) {
        host->frozen_capacity = host->frozen_capacity == 0 ? 16 : host->frozen_capacity * 2;
        host->frozen = sim_grow(host->frozen, host->frozen_capacity * sizeof *host->frozen);
    }
    host->frozen[host->frozen_count++] = *event;
}

static void dispatch(struct sim_world *world, struct sim_event *event)
{
    struct sim_host *host = world->hosts[event->host];

    if (event->life != 0 && event->life != host->life) {
        event_release(event);
    } else if (is_held_by_freeze(host, event->kind)) {
        freeze_hold(host, event);
    } else if (event->kind >= SIM_WAKE) {
        sim_host_on_event(world, host, event);
    } else {
        sim_net_on_event(world, event);
    }
}

bool sim_step(struct sim_world *world)
{
    struct sim_event event;

    if (world->heap_count == 0) return false;
    event = heap_pop(world);
    CHECK(event.time_ns >= world->now_ns);
    world->counts.events++;
    world->now_ns = event.time_ns;
    dispatch(world, &event);
    sim_net_bury(world);
    return true;
}

bool sim_run(struct sim_world *world, uint64_t until_ns)
{
    while (world->heap_count > 0 && world->heap[0].time_ns <= until_ns) {
        (void)sim_step(world);
    }
    if (until_ns > world->now_ns && until_ns != UINT64_MAX) world->now_ns = until_ns;
    return world->heap_count > 0;
}

uint64_t sim_now_ns(const struct sim_world *world)
{
    return world->now_ns;
}

uint64_t sim_trace(const struct sim_world *world)
{
    return world->trace;
}

void sim_trace_print(struct sim_world *world, FILE *out)
{
    world->trace_out = out;
}

void sim_counts(const struct sim_world *world, struct sim_counts *counts)
{
    *counts = world->counts;
}
