/*
 * sim_path: how long bytes take from host to host. A frame first passes the sender's own line, the
 * way to the receiver (both carry one frame after another, whichever connection it is of), then
 * flies for the latency, then passes the receiver's line. What loss costs is in peer/env/loss.h.
 */
#include "peer/env/sim/world.h"

#include "base/check.h"
#include "base/mem.h"
#include "peer/env/loss.h"

#include <string.h>

static struct sim_way *way_of(const struct sim_world *world, uint32_t from, uint32_t to)
{
    return world->ways == NULL ? NULL : world->ways[(size_t)from * world->options.hosts_max + to];
}

void sim_path_set(struct sim_world *world, uint32_t from, uint32_t to, const struct sim_path *path)
{
    size_t count = (size_t)world->options.hosts_max * world->options.hosts_max;
    size_t at = (size_t)from * world->options.hosts_max + to;

    CHECK(from < world->hosts_count && to < world->hosts_count);
    CHECK(world->options.hosts_max <= SIM_PATH_HOSTS_MAX);
    CHECK(path == NULL || (path->loss >= 0.0 && path->loss < 1.0));
    if (world->ways == NULL) {
        if (path == NULL) return;
        world->ways = sim_grow(NULL, count * sizeof(struct sim_way *));
        memset(world->ways, 0, count * sizeof(struct sim_way *));
    }
    if (path == NULL) {
        mem_free(world->ways[at]);
        world->ways[at] = NULL;
        return;
    }
    if (world->ways[at] == NULL) {
        world->ways[at] = sim_grow(NULL, sizeof **world->ways);
        memset(world->ways[at], 0, sizeof **world->ways);
    }
    world->ways[at]->path = *path;
    world->ways[at]->line.bytes_per_s = path->bytes_per_s;
}

void sim_path_deinit(struct sim_world *world)
{
    size_t count = (size_t)world->options.hosts_max * world->options.hosts_max;

    if (world->ways == NULL) return;
    for (size_t i = 0; i < count; i++) {
        mem_free(world->ways[i]);
    }
    mem_free(world->ways);
}

void sim_host_rate(struct sim_world *world, uint32_t number, uint64_t up_bytes_per_s,
                   uint64_t down_bytes_per_s)
{
    struct sim_host *host = sim_host_at(world, number);

    host->up.bytes_per_s = up_bytes_per_s;
    host->down.bytes_per_s = down_bytes_per_s;
}

static uint64_t duration_ns(size_t count, double bytes_per_s)
{
    return (uint64_t)((double)count * (double)NS_PER_S / bytes_per_s);
}

static uint64_t line_pass(struct sim_line *line, uint64_t at_ns, size_t count)
{
    if (line->bytes_per_s == 0) return at_ns;
    if (line->free_ns > at_ns) at_ns = line->free_ns;
    line->free_ns = at_ns + duration_ns(count, (double)line->bytes_per_s);
    return line->free_ns;
}

uint64_t sim_round_trip_ns(const struct sim_world *world, uint32_t from, uint32_t to)
{
    const struct sim_way *there = way_of(world, from, to), *back = way_of(world, to, from);
    uint64_t latency_ns = world->options.latency_ns;

    return (there == NULL ? latency_ns : there->path.latency_ns) +
           (back == NULL ? latency_ns : back->path.latency_ns);
}

uint64_t sim_draw_latency(struct sim_world *world, struct sim_host *from, uint32_t to)
{
    const struct sim_way *way = way_of(world, from->number, to);
    uint64_t latency_ns = way == NULL ? world->options.latency_ns : way->path.latency_ns;
    uint64_t jitter_ns = way == NULL ? world->options.jitter_ns : way->path.jitter_ns;

    return latency_ns + (jitter_ns == 0 ? 0 : rng_below(&from->network, jitter_ns + 1));
}

uint64_t sim_draw_loss(struct sim_world *world, struct sim_host *from, uint32_t to, size_t count)
{
    const struct sim_way *way = way_of(world, from->number, to);
    double loss = way == NULL ? world->options.loss : way->path.loss;

    return loss_draw_ns(&from->network, loss, sim_round_trip_ns(world, from->number, to), count);
}

uint64_t sim_departure_ns(struct sim_world *world, struct sim_host *from, uint32_t to, size_t count)
{
    struct sim_way *way = way_of(world, from->number, to);
    uint64_t at_ns = line_pass(&from->up, world->now_ns, count);

    double loss = way == NULL ? world->options.loss : way->path.loss, rate = 0.0;

    if (loss > 0.0) {
        double round_s = (double)sim_round_trip_ns(world, from->number, to) / (double)NS_PER_S;

        rate = loss_rate(loss, fmax(round_s, 1e-4));
    }
    if (way == NULL) {
        double line = (double)world->options.bytes_per_s;

        if (rate == 0.0 || (line > 0.0 && line < rate)) rate = line;
        return rate == 0.0 ? at_ns : at_ns + duration_ns(count, rate);
    }
    if (loss > 0.0) {
        if (way->line.bytes_per_s == 0 || rate < (double)way->line.bytes_per_s) {
            uint64_t lossy_ns = at_ns + duration_ns(count, rate);

            at_ns = line_pass(&way->line, at_ns, count);
            return at_ns > lossy_ns ? at_ns : lossy_ns;
        }
    }
    return line_pass(&way->line, at_ns, count);
}

uint64_t sim_landing_ns(struct sim_host *host, uint64_t at_ns, size_t count)
{
    return line_pass(&host->down, at_ns, count);
}
