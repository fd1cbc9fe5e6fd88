/*
 * Neighbours in a graph. Every peer derives its own row of the mixing matrix from the live members
 * it knows of; where two see others, they see unlike edges or weights, and then the exchange takes
 * an edge that both see, with the smaller weight. Rows are kept until members change. Loop thread.
 */
#include "peer/node_internal.h"

#include "base/check.h"
#include "base/mem.h"
#include "gossip/graph.h"

/* The live members by id, this peer included; NULL: no memory. */
static struct peer_id *live_members(const struct node *node, uint32_t *count, uint32_t *self)
{
    size_t max = membership_count(node->membership) + 1, alive, at = 0;
    struct member_view *views = mem_array(max, sizeof *views);
    struct peer_id *ids = mem_array(max, sizeof *ids);

    if (views == NULL || ids == NULL) {
        mem_free(views);
        mem_free(ids);
        return NULL;
    }
    alive = membership_alive(node->membership, views, max - 1);
    for (; at < alive && peer_id_compare(views[at].id, node->self) < 0; at++) {
        ids[at] = views[at].id;
    }
    *self = (uint32_t)at;
    ids[at] = node->self;
    for (; at < alive; at++) {
        ids[at + 1] = views[at].id;
    }
    mem_free(views);
    *count = (uint32_t)alive + 1;
    return ids;
}

/* What the springs or weights of `strategy` make of the graph's. */
static float edge_weight(const struct strategy *strategy, float weight)
{
    return strategy->alpha > 0 ? strategy->alpha : strategy->beta * weight;
}

static bool graph_learn(struct node *node)
{
    const struct strategy *strategy = node->options.strategy;
    struct topology topology = strategy_topology(strategy, 2);
    struct graph_members members = {.run_id = node->options.swarm->run_id};
    struct node_graph *graph = &node->graph;
    struct peer_id *ids = live_members(node, &members.count, &members.self);
    struct graph_row row;
    enum rc rc = RC_NOMEM;

    if (ids == NULL) return false;
    members.ids = ids;
    if (members.count <= MEMBERS_MAX) rc = graph_row(&topology, &members, &row);
    if (rc == RC_OK) {
        graph->count = row.count < GROUP_MEMBERS_MAX ? row.count : GROUP_MEMBERS_MAX;
        for (uint32_t i = 0; i < graph->count; i++) {
            graph->ids[i] = ids[row.edges[i].member];
            graph->weights[i] = edge_weight(strategy, row.edges[i].weight);
        }
        graph->epoch = membership_epoch(node->membership);
        graph->is_known = true;
    }
    mem_free(ids);
    return rc == RC_OK;
}

uint32_t node_graph_neighbours(struct node *node, struct peer_id *ids, float *weights, uint32_t max)
{
    struct node_graph *graph = &node->graph;
    uint32_t count = 0;

    if (!graph->is_known || graph->epoch != membership_epoch(node->membership)) {
        if (!graph_learn(node)) return 0;
    }
    for (uint32_t i = 0; i < graph->count && count < max; i++) {
        const struct neighbour *other = node_neighbour(node, graph->ids[i]);

        if (other == NULL || !other->has_progress || !other->progress.is_serving ||
            !digest_is_equal(other->progress.lineage, node->lineage) ||
            node_standing(node, other->id) == STANDING_OUT) {
            continue;
        }
        ids[count] = other->id;
        weights[count++] = graph->weights[i];
    }
    return count;
}
