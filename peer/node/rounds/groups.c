/*
 * Groups in a swarm too large for a full mesh. Below, a group is drawn among those linked, who are
 * all; here among all members believed to be there, the same at all peers that believe the same,
 * and the links to its members are asked for before its round comes (membership_keep()). Whoever
 * is not linked in time, or does not mix, is left out of that round, as anybody silent is. Groups
 * last for several rounds (topology_draw()), or links could not follow. A draw takes a hash of each
 * member; while members come and go, that of the round at hand is made anew up to five times a
 * second, and those that only say which links to make every two seconds. Loop thread.
 */
#include "peer/node/internal.h"

#include "base/mem.h"

enum { KEPT_MAX = 128 };

bool node_groups_are_drawn(const struct node *node)
{
    struct membership_counts counts;

    membership_counts(node->membership, &counts);
    return counts.likely + 1 > MEMBERSHIP_MESH;
}

/* Everyone to reckon with and this peer, sorted by id; NULL: no memory. */
static struct peer_id *everyone(struct node *node, size_t *count)
{
    struct membership_counts counts;
    struct peer_id *ids;
    size_t place = 0;

    membership_counts(node->membership, &counts);
    ids = mem_array(counts.believed + 1, sizeof *ids);
    if (ids == NULL) return NULL;
    *count = membership_likely(node->membership, ids, counts.believed);
    while (place < *count && peer_id_compare(ids[place], node->self) < 0) {
        place++;
    }
    memmove(&ids[place + 1], &ids[place], (*count - place) * sizeof ids[0]);
    ids[place] = node->self;
    (*count)++;
    return ids;
}

static struct node_group *find(struct node_groups *groups, uint64_t draw)
{
    for (size_t i = 0; i < TOPOLOGY_AHEAD_MAX; i++) {
        if (groups->drawn[i].count > 0 && groups->drawn[i].draw == draw) return &groups->drawn[i];
    }
    return NULL;
}

/* A place for a new draw: none of those in `wanted`. */
static struct node_group *place_for(struct node_groups *groups, const uint64_t *wanted,
                                    uint32_t wanted_count)
{
    for (size_t i = 0; i < TOPOLOGY_AHEAD_MAX; i++) {
        struct node_group *group = &groups->drawn[i];
        bool is_wanted = false;

        for (uint32_t k = 0; k < wanted_count && group->count > 0; k++) {
            is_wanted = is_wanted || group->draw == wanted[k];
        }
        if (!is_wanted) return group;
    }
    return NULL;
}

static bool is_due(const struct node *node, const struct node_group *group, bool is_ahead)
{
    uint64_t least_ns = is_ahead ? NODE_AHEAD_NS : NODE_GRAPH_NS;

    if (group == NULL) return true;
    return group->changes != membership_changes(node->membership) &&
           node_now(node) >= group->made_ns + least_ns;
}

/* Drawn are the groups of this round and those ahead of it. True: some were. Without memory, what
 * is missing is tried again the next time. */
static bool draw(struct node *node, const struct topology *topology, const uint64_t *wanted,
                 uint32_t wanted_count)
{
    struct node_groups *groups = &node->groups;
    struct peer_id *ids = NULL;
    size_t count = 0;

    for (uint32_t i = 0; i < wanted_count; i++) {
        struct node_group *group = find(groups, wanted[i]);

        if (!is_due(node, group, wanted[i] != wanted[0])) continue;
        if (ids == NULL) ids = everyone(node, &count);
        if (group == NULL) group = place_for(groups, wanted, wanted_count);
        if (ids == NULL || group == NULL) break;
        group->draw = wanted[i];
        group->changes = membership_changes(node->membership);
        group->made_ns = node_now(node);
        group->count =
            (uint32_t)topology_group(topology, node->options.swarm->run_id, wanted[i], node->self,
                                     ids, count, group->ids, GROUP_MEMBERS_MAX);
    }
    mem_free(ids);
    return ids != NULL;
}

static size_t insert(struct peer_id *ids, size_t count, struct peer_id id)
{
    size_t place = count;

    while (place > 0 && peer_id_compare(ids[place - 1], id) > 0) {
        place--;
    }
    if (count == KEPT_MAX || (place > 0 && peer_id_is_equal(ids[place - 1], id))) return count;
    memmove(&ids[place + 1], &ids[place], (count - place) * sizeof ids[0]);
    ids[place] = id;
    return count + 1;
}

/* The links of these groups, those of the nearest round first if they are too many. */
static void keep(struct node *node, const uint64_t *wanted, uint32_t wanted_count)
{
    struct peer_id ids[KEPT_MAX];
    size_t count = 0;

    for (uint32_t i = 0; i < wanted_count; i++) {
        const struct node_group *group = find(&node->groups, wanted[i]);

        for (uint32_t k = 0; group != NULL && k < group->count; k++) {
            if (peer_id_is_equal(group->ids[k], node->self)) continue;
            count = insert(ids, count, group->ids[k]);
        }
    }
    membership_keep(node->membership, ids, count, node_now(node));
}

size_t node_groups_find(struct node *node, uint64_t round, struct peer_id group[GROUP_MEMBERS_MAX])
{
    struct membership_counts counts;
    const struct node_group *found;
    struct topology topology;
    uint64_t wanted[TOPOLOGY_AHEAD_MAX];
    uint32_t ahead;

    membership_counts(node->membership, &counts);
    topology = strategy_topology(node->options.strategy, counts.likely + 1);
    ahead = topology_ahead(&topology);
    for (uint32_t i = 0; i < ahead; i++) {
        wanted[i] = topology_draw(&topology, round + i);
    }
    if (draw(node, &topology, wanted, ahead)) keep(node, wanted, ahead);
    found = find(&node->groups, wanted[0]);
    if (found == NULL) return 0;
    memcpy(group, found->ids, found->count * sizeof found->ids[0]);
    return found->count;
}
