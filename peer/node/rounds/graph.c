/*
 * graph: once a period a round with all neighbours in the topology's graph, each by the weight of
 * its edge. It runs when they have come to it (averaging/edge). With a budget the graph is split
 * into matchings, and which of its edges are in a round follows from its number. Loop thread.
 */
#include "peer/node/rounds/internal.h"

struct graph_state {
    struct own_row row;
    bool is_limit_told; /* that springs were weakened */
};

/* What the springs or weights of the strategy make of the graph's. Springs whose sum at a peer is 1
 * or more can drive peers apart: nobody offers more than its part, and the weaker of two counts, so
 * no eigenvalue of the Laplacian gets to 2. */
static float edge_weight(const struct node *node, float weight)
{
    static const float most = 0.95f;
    const struct strategy *strategy = node->options.strategy;
    struct graph_state *graph = node->rounds->inner_state;
    float limit = most / (float)graph->row.count;

    if (strategy->alpha <= 0) return strategy->beta * weight;
    if (strategy->alpha <= limit) return strategy->alpha;
    if (!graph->is_limit_told) {
        graph->is_limit_told = true;
        log_warn(
            node->options.log,
            "an elastic coupling of %g to each of %u neighbours could drive peers apart: %.3g is "
            "used",
            (double)strategy->alpha, graph->row.count, (double)limit);
    }
    return limit;
}

/* Those that are linked and hold the same model. */
static uint32_t find_neighbours(struct node *node, struct peer_id ids[GROUP_MEMBERS_MAX],
                                float weights[GROUP_MEMBERS_MAX],
                                struct matching_edge matched[GROUP_MEMBERS_MAX])
{
    struct graph_state *graph = node->rounds->inner_state;
    uint32_t count = 0;

    own_row_refresh(&graph->row, node);
    for (uint32_t i = 0; i < graph->row.count && count < GROUP_MEMBERS_MAX; i++) {
        const struct neighbour *other = door_neighbour(node, graph->row.ids[i]);

        if (other == NULL || !rounds_may_mix(node, other)) continue;
        ids[count] = other->id;
        matched[count] = graph->row.matched[i];
        weights[count++] = edge_weight(node, graph->row.weights[i]);
    }
    return count;
}

static void begin(struct node *node, struct peer_id *ids, size_t count)
{
    const struct graph_state *graph = node->rounds->inner_state;
    struct peer_id neighbours[GROUP_MEMBERS_MAX];
    float weights[GROUP_MEMBERS_MAX];
    struct matching_edge matched[GROUP_MEMBERS_MAX];
    struct round_members members = {.ids = neighbours, .weights = weights, .matched = matched};

    (void)ids; /* whom it is with does not go by them */
    (void)count;
    members.count = find_neighbours(node, neighbours, weights, matched);
    members.epoch = graph->row.epoch;
    if (node->options.strategy->budget > 0) members.matchings = &graph->row.matchings;
    pace_begin_period(node);
    if (members.count > 0) (void)pace_begin_with(node, members);
}

const struct pace_ops pace_graph = {
    .bytes = sizeof(struct graph_state),
    .lies_open = true,
    .due = pace_is_over,
    .begin = begin,
    .snapshot = pace_begin_period,
    .waits = pace_waits,
    .steps_until = pace_steps_left,
};
