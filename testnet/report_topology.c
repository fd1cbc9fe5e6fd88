/*
 * report_topology: see report_topology.h. Groups and pairs change with each round: over time that
 * is everyone with everyone. Which place on a graph a peer has follows from its key, which the page
 * does not know: places have no numbers there, and a random graph is one of its kind. Of more than
 * DRAWN_PEERS_MAX peers, the same with so many is drawn. The caption says either.
 */
#include "testnet/report_topology.h"

#include "base/bytes.h"
#include "gossip/overlay/graph.h"

#include <math.h>

enum { DRAWN_PEERS_MAX = 64, COLOURS = 8 };

struct circle {
    size_t count;
    double x[DRAWN_PEERS_MAX], y[DRAWN_PEERS_MAX];
};

static struct circle circle_of(size_t count)
{
    const double middle = 130, radius = count > 1 ? 96 : 0;
    struct circle circle = {.count = count};

    for (size_t i = 0; i < count; i++) {
        const double angle = 2 * acos(-1) * (double)i / (double)count;
        circle.x[i] = middle + radius * sin(angle);
        circle.y[i] = middle - radius * cos(angle);
    }
    return circle;
}

static void add_line(struct text *text, const struct circle *circle, size_t i, size_t j)
{
    text_add(text, "<line class=\"edge\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n",
             circle->x[i], circle->y[i], circle->x[j], circle->y[j]);
}

/* False: it is none, and nothing was drawn. */
static bool add_graph(struct text *text, const struct circle *circle, const char *name)
{
    struct topology topology;
    struct peer_id ids[DRAWN_PEERS_MAX] = {{{0}}};
    struct graph_members members = {.ids = ids, .count = (uint32_t)circle->count};
    struct graph_row row;

    if (name == NULL || topology_parse(name, &topology, NULL) != RC_OK) return false;
    if (!topology_is_graph(&topology) || circle->count == 0) return false;
    if (topology.kind == TOPOLOGY_DISSEMINATION) topology.kind = TOPOLOGY_COMPLETE; /* all rounds */
    if (topology_is_directed(&topology)) topology.kind = TOPOLOGY_EXPONENTIAL;
    for (size_t i = 0; i < circle->count; i++) {
        ids[i].bytes[0] = (uint8_t)i;
    }
    for (members.self = 0; members.self < members.count; members.self++) {
        if (graph_row(&topology, &members, &row) != RC_OK) return false;
        for (uint32_t e = 0; e < row.count; e++) {
            if (row.edges[e].member < members.self) {
                add_line(text, circle, members.self, row.edges[e].member);
            }
        }
    }
    return true;
}

/* What is not to be taken as it is drawn. */
static void add_caption(struct text *text, const char *name, uint64_t peers)
{
    struct topology topology;

    text_add_escaped(text, name);
    if (name == NULL || topology_parse(name, &topology, NULL) != RC_OK) return;
    if (topology.kind == TOPOLOGY_RANDOM) text_add(text, ", a graph like this one");
    if (peers > DRAWN_PEERS_MAX) text_add(text, ", drawn for %d peers", DRAWN_PEERS_MAX);
}

void report_add_topology(struct text *text, const char *topology, uint64_t peers)
{
    const struct circle circle =
        circle_of(peers < DRAWN_PEERS_MAX ? (size_t)peers : DRAWN_PEERS_MAX);

    text_add(text, "<figure><figcaption>Topology: ");
    add_caption(text, topology, peers);
    text_add(text, "</figcaption>\n<svg viewBox=\"0 0 560 260\" role=\"img\" "
                   "aria-label=\"Topology\"><g transform=\"translate(150 0)\">\n");
    const bool is_graph = add_graph(text, &circle, topology);
    for (size_t i = 0; i < circle.count && !is_graph; i++) {
        for (size_t j = 0; j < i; j++) {
            add_line(text, &circle, i, j);
        }
    }
    for (size_t i = 0; i < circle.count; i++) {
        const double x = circle.x[i], y = circle.y[i];
        if (is_graph) {
            text_add(text, "<circle class=\"s0\" cx=\"%.1f\" cy=\"%.1f\" r=\"6\"/>\n", x, y);
            continue;
        }
        text_add(text,
                 "<circle class=\"s%zu\" cx=\"%.1f\" cy=\"%.1f\" r=\"%d\"/>"
                 "<text class=\"node\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%zu</text>\n",
                 i % COLOURS, x, y, circle.count > 24 ? 9 : 15, x, y + 4, i);
    }
    text_add(text, "</g></svg></figure>\n");
}
