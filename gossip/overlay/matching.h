/*
 * matching: a graph split into matchings, sets of edges of which no two meet. In each round every
 * matching is active or not, by a coin that all members toss alike, and a round is of the edges of
 * the active ones: so the edges that hold the graph together are used more often than the others,
 * and all together as often as a budget says (MATCHA: Wang, Sahu, Yang, Joshi, Kar 2019,
 * arXiv:1905.09435).
 *
 *  matchings  by Misra and Gries (1992, "A constructive proof of Vizing's theorem"), as in the
 *             paper: at most one more than the largest degree.
 *  chances    of the M matchings, p_k in [floor, 1] with sum p_k = budget M. The paper's are those
 *             for which the second smallest eigenvalue of sum p_k L_k is largest, from a
 *             semidefinite program; ours climb to it by supergradients from equal ones, and stay
 *             equal where that gains less than a thousandth, or with more than 24 members.
 *  weights    the paper's are one constant for all rounds; ours are those that any other graph has
 *             (graph.h), of the round's edges: 1/(1 + the larger number of active edges of both
 *             ends), halved if the topology is lazy. Every W is symmetric and doubly stochastic,
 *             and no weight is negative, which the constant cannot say.
 */
#ifndef GRAPEVINE_GOSSIP_OVERLAY_MATCHING_H
#define GRAPEVINE_GOSSIP_OVERLAY_MATCHING_H

#include "gossip/overlay/graph.h"

enum { MATCHINGS_MAX = TOPOLOGY_DEGREE_MAX + 1, MATCHING_WORDS = (MATCHINGS_MAX + 63) / 64 };

/* A bit a matching. */
struct matching_set {
    uint64_t words[MATCHING_WORDS];
};

/* The same at all members of one graph. */
struct matchings {
    uint64_t seed;  /* of the coins: the run's */
    uint32_t count; /* 0: every edge is in every round */
    float chances[MATCHINGS_MAX];
    float share; /* of the weights: 1, or 0.5 of a lazy graph */
};

/* One edge of a member. */
struct matching_edge {
    uint32_t matching;
    struct matching_set own, theirs; /* those in which either end has an edge */
};

/**
 * The matchings of the graph of `topology` over `members`, and the edges of member `members->self`
 * among them, in the order of its graph_row(): `edges` [GRAPH_EDGES_MAX]. `budget` in (0, 1].
 * Errors  RC_NOMEM: a row of each member is needed. RC_LIMIT: a member has more than
 *         TOPOLOGY_DEGREE_MAX neighbours. RC_USAGE: as for graph_row().
 */
MUST_USE enum rc matchings_find(const struct topology *topology,
                                const struct graph_members *members, double budget,
                                struct matchings *matchings, struct matching_edge *edges);
/** Is `matching` active in `round`? */
bool matching_is_active(const struct matchings *matchings, uint64_t round, uint32_t matching);
/** What `edge` weighs in `round` at both ends; 0: it is not in it. */
float matching_weight(const struct matchings *matchings, uint64_t round,
                      const struct matching_edge *edge);

#endif
