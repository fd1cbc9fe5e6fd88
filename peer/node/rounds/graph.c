/*
 * Neighbours in the graph of the topology. Every peer derives its own row of the mixing matrix from
 * all members to reckon with (membership_likely(): who was only told of and never found does not
 * count); where two see others, they see unlike edges or weights,
 * and then the exchange takes an edge that both see, with the smaller weight. In a large swarm,
 * where news of members spreads for a while, the row is made anew no more than five times a second,
 * but at once while the swarm is still being discovered. Links to neighbours are asked for. Loop
 * thread.
 */
#include "peer/node/internal.h"

#include "base/mem.h"

enum { SMALL = 128 }; /* members; their news spreads at once, and rows cost little */

static bool is_due(const struct node *node, uint64_t now_ns)
{
    const struct node_graph *graph = &node->graph;
    struct membership_counts counts;

    if (graph->changes == membership_changes(node->membership)) return false;
    if (now_ns >= graph->made_ns + NODE_GRAPH_NS) return true;
    membership_counts(node->membership, &counts);
    return counts.likely < SMALL || counts.likely + 1 >= 2 * graph->members;
}

/* People asked for a graph in which there are more neighbours than a round can have. */
static void tell_of(struct node *node, const struct topology *topology, uint32_t members)
{
    char text[TOPOLOGY_TEXT];

    if (topology->kind == node->options.strategy->topology.kind || node->graph.is_large_told)
        return;
    node->graph.is_large_told = true;
    topology_format(topology, text);
    log_warn(node->options.log,
             "%u peers are too many for --topology complete: a peer averages with at most %d "
             "neighbours, so the graph is %s; --topology random:8 costs an eighth",
             members, TOPOLOGY_DEGREE_MAX, text);
}

/* Into `ids` go up to `max` members and this peer. */
static enum rc make(struct node *node, struct peer_id *ids, uint32_t max, struct graph_row *row)
{
    struct graph_members members = {.ids = ids, .run_id = node->options.swarm->run_id};
    struct topology topology;
    enum rc rc;

    members.count = (uint32_t)membership_likely(node->membership, ids, max);
    while (members.self < members.count && peer_id_compare(ids[members.self], node->self) < 0) {
        members.self++;
    }
    memmove(&ids[members.self + 1], &ids[members.self],
            (members.count - members.self) * sizeof ids[0]);
    ids[members.self] = node->self;
    members.count++;
    topology = strategy_topology(node->options.strategy, members.count);
    rc = graph_row(&topology, &members, row);
    if (rc != RC_OK) return rc;
    tell_of(node, &topology, members.count);
    node->graph.members = members.count;
    node->graph.epoch = graph_epoch(members.run_id, ids, members.count);
    node->graph.self_weight = row->self_weight;
    node->graph.count = row->count;
    for (uint32_t i = 0; i < row->count; i++) {
        node->graph.ids[i] = ids[row->edges[i].member];
        node->graph.weights[i] = row->edges[i].weight;
    }
    return RC_OK;
}

/* Ours as of now; that of before while no memory can be had. */
static const struct node_graph *refresh(struct node *node)
{
    struct node_graph *graph = &node->graph;
    uint64_t now_ns = node_now(node);
    struct membership_counts counts;
    struct graph_row *row;
    struct peer_id *ids;

    if (!is_due(node, now_ns)) return graph;
    membership_counts(node->membership, &counts);
    ids = mem_array(counts.believed + 1, sizeof *ids);
    row = mem_alloc(sizeof *row);
    if (ids != NULL && row != NULL && make(node, ids, counts.believed, row) == RC_OK) {
        graph->changes = membership_changes(node->membership);
        membership_keep(node->membership, graph->ids, graph->count, now_ns);
    }
    graph->made_ns = now_ns;
    mem_free(ids);
    mem_free(row);
    return graph;
}

/* What the springs or weights of the strategy make of the graph's. Springs whose sum at a peer is 1
 * or more can drive peers apart: nobody offers more than its part, and the weaker of two counts, so
 * no eigenvalue of the Laplacian gets to 2. */
static float edge_weight(struct node *node, float weight)
{
    static const float most = 0.95f;
    const struct strategy *strategy = node->options.strategy;
    struct node_graph *graph = &node->graph;
    float limit = most / (float)graph->count;

    if (strategy->alpha <= 0) return strategy->beta * weight;
    if (strategy->alpha <= limit) return strategy->alpha;
    if (!graph->is_limit_told) {
        graph->is_limit_told = true;
        log_warn(
            node->options.log,
            "an elastic coupling of %g to each of %u neighbours could drive peers apart: %.3g is "
            "used",
            (double)strategy->alpha, graph->count, (double)limit);
    }
    return limit;
}

uint32_t node_graph_neighbours(struct node *node, struct peer_id *ids, float *weights, uint32_t max)
{
    const struct node_graph *graph = refresh(node);
    uint32_t count = 0;

    for (uint32_t i = 0; i < graph->count && count < max; i++) {
        const struct neighbour *other = node_neighbour(node, graph->ids[i]);

        if (other == NULL || !other->has_progress || !other->progress.is_serving ||
            !digest_is_equal(other->progress.lineage, node->lineage) ||
            node_standing(node, other->id) == STANDING_OUT) {
            continue;
        }
        ids[count] = other->id;
        weights[count++] = edge_weight(node, graph->weights[i]);
    }
    return count;
}

bool node_graph_is_followed(struct node *node)
{
    const struct topology *topology = &node->options.strategy->topology;

    if (!topology_is_graph(topology) || topology_is_directed(topology)) return false;
    (void)refresh(node);
    return true;
}

bool node_graph_has(const struct node *node, struct peer_id id)
{
    const struct node_graph *graph = &node->graph;
    uint32_t low = 0, high = graph->count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = peer_id_compare(graph->ids[middle], id);

        if (order == 0) return true;
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return false;
}
