/*
 * sim_clock: each host's own monotonic clock: it begins anywhere, runs a little too fast or too
 * slow, and may leap forward, as that of a machine does which was asleep.
 */
#include "peer/env/sim/world.h"

#include "base/check.h"

#define MILLION INT64_C(1000000)

uint64_t sim_clock_show(const struct sim_clock *clock, uint64_t world_ns)
{
    int64_t past = (int64_t)(world_ns - clock->world_ns), drift;

    if (clock->ppm == 0) return clock->local_ns + (uint64_t)past;
    drift = past / MILLION * clock->ppm + past % MILLION * clock->ppm / MILLION;
    return clock->local_ns + (uint64_t)(past + drift);
}

uint64_t sim_clock_due(const struct sim_clock *clock, uint64_t local_ns)
{
    int64_t rate = MILLION + clock->ppm, wait;
    uint64_t world_ns;

    if (local_ns <= clock->local_ns) return clock->world_ns;
    if (clock->ppm == 0) return clock->world_ns + (local_ns - clock->local_ns);
    wait = (int64_t)(local_ns - clock->local_ns);
    if (wait < 0) return UINT64_MAX; /* in 292 years */
    world_ns = clock->world_ns + (uint64_t)(wait / rate * MILLION + wait % rate * MILLION / rate);
    while (sim_clock_show(clock, world_ns) < local_ns) { /* what the divisions left over */
        world_ns++;
    }
    return world_ns;
}

void sim_clock_set(struct sim_world *world, uint32_t number, uint64_t now_ns, int32_t ppm)
{
    struct sim_host *host = sim_host_at(world, number);

    CHECK(ppm > -MILLION / 2 && ppm < MILLION);
    CHECK(now_ns >= sim_clock_show(&host->clock, world->now_ns));
    host->clock = (struct sim_clock){world->now_ns, now_ns, ppm};
    sim_env_rearm(host);
}

uint64_t sim_clock_ns(const struct sim_world *world, uint32_t number)
{
    CHECK(number < world->hosts_count);
    return sim_clock_show(&world->hosts[number]->clock, world->now_ns);
}
