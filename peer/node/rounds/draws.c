/*
 * Groups in a swarm too large for a full mesh. Below, a group is drawn among those linked, who are
 * all; here among all members believed to be there, the same at all peers that believe the same,
 * and the links to its members are asked for before its round comes (membership_keep()). Whoever
 * is not linked in time, or does not mix, is left out of that round, as anybody silent is. Groups
 * last for several rounds (topology_draw()), or links could not follow. A draw takes a hash of each
 * member; while members come and go, that of the round at hand is made anew up to five times a
 * second, and those that only say which links to make every two seconds. Loop thread.
 */
#include "peer/node/rounds/internal.h"

enum { KEPT_MAX = 128 };

_Static_assert((int)TOPOLOGY_RUNS == (int)MEMBERSHIP_MESH, "both say where a swarm is large");

bool draws_are_needed(const struct node *node)
{
    struct membership_counts counts;

    membership_counts(node->membership, &counts);
    return counts.likely + 1 > MEMBERSHIP_MESH;
}

static struct draw *find(struct draws *draws, uint64_t number)
{
    for (size_t i = 0; i < TOPOLOGY_AHEAD_MAX; i++) {
        if (draws->drawn[i].count > 0 && draws->drawn[i].number == number) return &draws->drawn[i];
    }
    return NULL;
}

/* A place for a new draw: none of those in `wanted`. */
static struct draw *place_for(struct draws *draws, const uint64_t *wanted, uint32_t wanted_count)
{
    for (size_t i = 0; i < TOPOLOGY_AHEAD_MAX; i++) {
        struct draw *group = &draws->drawn[i];
        bool is_wanted = false;

        for (uint32_t k = 0; k < wanted_count && group->count > 0; k++) {
            is_wanted = is_wanted || group->number == wanted[k];
        }
        if (!is_wanted) return group;
    }
    return NULL;
}

static bool is_due(const struct node *node, const struct draw *group, bool is_ahead)
{
    uint64_t least_ns = is_ahead ? NODE_AHEAD_NS : NODE_GRAPH_NS;

    if (group == NULL) return true;
    return group->changes != membership_changes(node->membership) &&
           node_now(node) >= group->made_ns + least_ns;
}

/* The number of a draw among the members of the site has its highest bit set. */
static bool is_near(uint64_t number)
{
    return number >> 63 != 0;
}

static uint32_t draw(const struct node *node, uint64_t number, const struct peer_id *ids,
                     size_t count, struct peer_id group[GROUP_MEMBERS_MAX])
{
    const struct topology topology = strategy_topology(node->options.strategy, count);

    return (uint32_t)topology_group(&topology, node->options.swarm->run_id, number, node->self, ids,
                                    count, group, GROUP_MEMBERS_MAX);
}

/* Drawn are the groups of this round and those ahead of it. True: some were. Without memory, what
 * is missing is tried again the next time. */
static bool draw_all(struct draws *draws, struct node *node, const uint64_t *wanted,
                     uint32_t wanted_count)
{
    struct peer_id *ids = NULL, *near = NULL;
    size_t count = 0, near_count = 0;

    for (uint32_t i = 0; i < wanted_count; i++) {
        struct draw *group = find(draws, wanted[i]);

        if (!is_due(node, group, wanted[i] != wanted[0])) continue;
        if (ids == NULL) ids = door_everyone(node, &count);
        if (group == NULL) group = place_for(draws, wanted, wanted_count);
        if (ids == NULL || group == NULL) break;
        if (is_near(wanted[i]) && near == NULL) {
            near = mem_array(count, sizeof *near);
            if (near == NULL) break;
            memcpy(near, ids, count * sizeof *near);
            near_count = rounds_keep_near(node, near, count);
        }
        group->number = wanted[i];
        group->changes = membership_changes(node->membership);
        group->made_ns = node_now(node);
        group->count = is_near(wanted[i]) ? draw(node, wanted[i], near, near_count, group->ids)
                                          : draw(node, wanted[i], ids, count, group->ids);
    }
    mem_free(near);
    mem_free(ids);
    return ids != NULL;
}

/* The links of these groups, those of the nearest round first if they are too many. */
static void keep(struct draws *draws, struct node *node, const uint64_t *wanted,
                 uint32_t wanted_count)
{
    struct peer_id ids[KEPT_MAX];
    size_t count = 0;

    for (uint32_t i = 0; i < wanted_count; i++) {
        const struct draw *group = find(draws, wanted[i]);

        for (uint32_t k = 0; group != NULL && k < group->count; k++) {
            if (peer_id_is_equal(group->ids[k], node->self) || count == KEPT_MAX) continue;
            count = peer_id_insert(ids, count, group->ids[k]);
        }
    }
    membership_keep(node->membership, ids, count, node_now(node));
}

size_t draws_find(struct draws *draws, struct node *node, uint64_t round,
                  struct peer_id group[GROUP_MEMBERS_MAX])
{
    struct membership_counts counts;
    const struct draw *found;
    struct topology topology;
    uint64_t wanted[TOPOLOGY_AHEAD_MAX];
    uint32_t ahead;

    membership_counts(node->membership, &counts);
    topology = strategy_topology(node->options.strategy, counts.likely + 1);
    ahead = topology_ahead(&topology);
    for (uint32_t i = 0; i < ahead; i++) {
        const struct topology_level level = rounds_level(node, round + i);

        wanted[i] = topology_draw(&topology, level.number) | (uint64_t)level.is_near << 63;
    }
    if (draw_all(draws, node, wanted, ahead)) keep(draws, node, wanted, ahead);
    found = find(draws, wanted[0]);
    if (found == NULL) return 0;
    memcpy(group, found->ids, found->count * sizeof found->ids[0]);
    return found->count;
}
