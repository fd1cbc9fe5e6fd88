/* swarm: what nearly every scenario begins with. VERBOSE=1 prints what the peers log. */
#ifndef GRAPEVINE_TESTS_SIM_SWARM_H
#define GRAPEVINE_TESTS_SIM_SWARM_H

#include "tests/check.h"

#include "testnet/cluster.h"

/** Peers 0 to count - 1: the first on its own, the others by its address. */
static inline void swarm_start(struct cluster *cluster, uint32_t count)
{
    const uint32_t first = 0;

    if (getenv("VERBOSE") != NULL) cluster_set_verbose(cluster, true);
    for (uint32_t i = 0; i < count; i++) {
        cluster_start(cluster, i, &first, i == 0 ? 0 : 1);
    }
}

static inline struct node_report swarm_report(struct cluster *cluster, uint32_t peer)
{
    struct node_report report;

    node_report(cluster_node(cluster, peer), &report);
    return report;
}

#endif
