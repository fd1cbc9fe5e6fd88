/*
 * Neighbours in the graph of the topology. Every peer derives its own row of the mixing matrix from
 * all members to reckon with (membership_likely(): who was only told of and never found does not
 * count); where two see others, they see unlike edges or weights, and then the exchange takes an
 * edge that both see, with the smaller weight. In a large swarm, where news of members spreads for
 * a while, the row is made anew no more than five times a second, but at once while the swarm is
 * still being discovered. Links to neighbours are asked for. Loop thread.
 */
#include "peer/node/rounds/internal.h"

enum { SMALL = 128 }; /* members; their news spreads at once, and rows cost little */

static bool is_due(const struct own_row *own, const struct node *node, uint64_t now_ns)
{
    struct membership_counts counts;

    if (own->changes == membership_changes(node->membership)) return false;
    if (now_ns >= own->made_ns + NODE_GRAPH_NS) return true;
    membership_counts(node->membership, &counts);
    return counts.likely < SMALL || counts.likely + 1 >= 2 * own->members;
}

/* People asked for a graph in which there are more neighbours than a round can have. */
static void tell_of(struct own_row *own, const struct node *node, const struct topology *topology,
                    uint32_t members)
{
    char text[TOPOLOGY_TEXT];

    if (topology->kind == node->options.strategy->topology.kind || own->is_large_told) return;
    own->is_large_told = true;
    topology_format(topology, text);
    log_warn(node->options.log,
             "%u peers are too many for --topology complete: a peer averages with at most %d "
             "neighbours, so the graph is %s; --topology random:8 costs an eighth",
             members, TOPOLOGY_DEGREE_MAX, text);
}

static enum rc make(struct own_row *own, const struct node *node,
                    const struct graph_members *members, struct graph_row *row)
{
    struct topology topology = strategy_topology(node->options.strategy, members->count);
    const double budget = node->options.strategy->budget;
    enum rc rc = graph_row(&topology, members, row);

    if (rc == RC_OK && budget > 0) {
        rc = matchings_find(&topology, members, budget, &own->matchings, own->matched);
    }
    if (rc != RC_OK) return rc;
    tell_of(own, node, &topology, members->count);
    own->members = members->count;
    own->epoch = graph_epoch(members->run_id, members->ids, members->count);
    own->count = row->count;
    for (uint32_t i = 0; i < row->count; i++) {
        own->ids[i] = members->ids[row->edges[i].member];
        own->weights[i] = row->edges[i].weight;
    }
    return RC_OK;
}

void own_row_refresh(struct own_row *own, struct node *node)
{
    uint64_t now_ns = node_now(node);
    struct graph_members members = {.run_id = node->options.swarm->run_id};
    struct graph_row *row;
    struct peer_id *ids;
    size_t count = 0;

    if (!is_due(own, node, now_ns)) return;
    members.ids = ids = door_everyone(node, &count);
    members.count = (uint32_t)count;
    while (members.self < count && !peer_id_is_equal(ids[members.self], node->self)) {
        members.self++;
    }
    row = mem_alloc(sizeof *row);
    if (ids != NULL && row != NULL && make(own, node, &members, row) == RC_OK) {
        own->changes = membership_changes(node->membership);
        membership_keep(node->membership, own->ids, own->count, now_ns);
    }
    own->made_ns = now_ns;
    mem_free(ids);
    mem_free(row);
}

bool rounds_has_id(const struct peer_id *ids, size_t count, struct peer_id id)
{
    for (size_t i = 0; i < count; i++) {
        if (peer_id_is_equal(ids[i], id)) return true;
    }
    return false;
}
