/*
 * ration: a token bucket kept as one time, when it will be full again (the generic cell rate
 * algorithm, ITU-T I.371): taking a token moves that time on by what the token costs, and a bucket
 * that is full has nothing to remember, so zero is a full one. Pure.
 */
#ifndef GRAPEVINE_GOSSIP_FLOW_RATION_H
#define GRAPEVINE_GOSSIP_FLOW_RATION_H

#include <stdbool.h>
#include <stdint.h>

/** Are there tokens worth `cost_ns`? `burst_ns`: what a full bucket holds. */
static inline bool ration_has(uint64_t full_ns, uint64_t now_ns, uint64_t cost_ns,
                              uint64_t burst_ns)
{
    return full_ns + cost_ns <= now_ns + burst_ns;
}

static inline void ration_take(uint64_t *full_ns, uint64_t now_ns, uint64_t cost_ns)
{
    *full_ns = (*full_ns > now_ns ? *full_ns : now_ns) + cost_ns;
}

#endif
