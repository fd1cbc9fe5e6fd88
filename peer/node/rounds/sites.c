/*
 * Two levels of averaging: members that say they are at the same site (--site) meet in most rounds,
 * and all of them in one of a few. Who is at which site stands in signed member records, so all who
 * know the same members agree without a word. Nobody can check what a member says: who claims
 * another site takes part in its rounds, as it would in those of all, and no more comes of it.
 *
 * At the goal rounds are of all: the last ones are to bring all models together. Loop thread.
 */
#include "peer/node/rounds/internal.h"

static uint32_t sites_every(const struct node *node)
{
    uint32_t every = node->options.strategy->topology.sites_every;

    if (every == 0 && node->options.site[0] != '\0') every = TOPOLOGY_SITES;
    return node->rounds->is_done ? 0 : every;
}

struct topology_level rounds_level(const struct node *node, uint64_t round)
{
    return topology_level(sites_every(node), round);
}

size_t rounds_keep_near(const struct node *node, struct peer_id *ids, size_t count)
{
    size_t kept = 0;

    for (size_t i = 0; i < count; i++) {
        if (membership_is_near(node->membership, ids[i])) ids[kept++] = ids[i];
    }
    return kept;
}
