/*
 * graph: a topology as a mixing matrix W. Every member derives its own row from what all know, the
 * sorted list of live members, without a word; the rows of all together are doubly stochastic, so
 * that mixing leaves the mean alone.
 *
 * Rows are of two kinds. graph_row(): x_i <- sum_j w_ij x_j with w_ij = w_ji, for exchanges in
 * which both ends of an edge take part. graph_out() and graph_in(): shares that i pushes to others
 * and that others push to it.
 *
 * Epochs. Rows belong to one set of members, and graph_epoch() names it. Two ends whose lists
 * differ have rows that do not fit each other. Ends do not compare epochs: each finds out for
 * itself who is there, so that lists are unlike for minutes in a large swarm, and no edge would
 * count. An edge counts where both ends see it, with the smaller of its two weights. What an epoch
 * is for: a peer sees that its own list changed.
 */
#ifndef GRAPEVINE_GOSSIP_OVERLAY_GRAPH_H
#define GRAPEVINE_GOSSIP_OVERLAY_GRAPH_H

#include "gossip/overlay/topology.h"

enum { GRAPH_EDGES_MAX = 255 };

struct graph_members {
    const struct peer_id *ids; /* ascending (peer_id_compare), no id twice */
    uint32_t count;            /* 1 to MEMBERS_MAX */
    uint32_t self;             /* place of the peer whose row is asked for */
    struct digest run_id;
    uint64_t round; /* for graphs that change with the round; others ignore it */
};

struct graph_edge {
    uint32_t member; /* its place in ids */
    float weight;
};

/* sum of the edges' weights + self_weight = 1; ascending by member, self not among them. */
struct graph_row {
    uint32_t count;
    float self_weight;
    struct graph_edge edges[GRAPH_EDGES_MAX];
};

/**
 * Row `members->self` of the symmetric W of `topology`: Metropolis-Hastings weights
 * w_ij = 1/(1 + max(d_i, d_j)), w_ii the rest; halved towards the identity if the topology is lazy.
 *
 *  ring, torus, hypercube, exponential, random: their edges at any number of members, see
 *      topology.h. `complete`: everybody; above 256 members the 254 nearest by place, as a ring.
 *  groups, grid, pairs: 1/m for each member of the group of `round`, this one included.
 *  one-peer-exponential and dissemination have no symmetric W: RC_USAGE.
 *
 * Errors  RC_NOMEM: `random` needs scratch memory of some bytes a member and edge.
 * Source  Metropolis-Hastings weights: Xiao, Boyd 2004, "Fast linear iterations for distributed
 *         averaging". A row that is not stochastic is a mistake of ours and aborts.
 */
MUST_USE enum rc graph_row(const struct topology *topology, const struct graph_members *members,
                           struct graph_row *row);
/** The same for all members at once, rows[0..count): what a simulation asks. `members->self` is not
 *  looked at. */
MUST_USE enum rc graph_rows(const struct topology *topology, const struct graph_members *members,
                            struct graph_row *rows);
/**
 * To whom `members->self` gives shares of what it has in `round`, and what it keeps. Columns sum to
 * 1 by construction.
 *
 *  exponential: to (i + 2^k) mod n for each k, 1/(out-degree + 1) each.
 *  one-peer-exponential: to (i + 2^(round mod T)) mod n alone, a half, T = ceil(log2 n) (Ying et
 * al. 2021, arXiv:2110.13363): the exact mean after T rounds if n is a power of two.
 *  dissemination: the same, i being the place in an order drawn by (run id, round div T, ids)
 * (GossipGraD: Daily et al. 2018, arXiv:1803.05880). Errors  RC_NOMEM: for that order. pairs: a
 * half to one other, drawn uniformly by (run id, round, id). all others: 1/(degree + 1) to each
 * neighbour of graph_row().
 */
MUST_USE enum rc graph_out(const struct topology *topology, const struct graph_members *members,
                           struct graph_row *row);
/** Who pushes to `members->self` in `round`, and with what share of theirs; self_weight: what it
 *  keeps of its own. With a kind that draws receivers at random (pairs): RC_USAGE, it is for the
 *  senders to know. */
MUST_USE enum rc graph_in(const struct topology *topology, const struct graph_members *members,
                          struct graph_row *row);
/** Name of a set of members: BLAKE2b of the run and the ids in order. */
struct digest graph_epoch(struct digest run_id, const struct peer_id *ids, uint32_t count);

#endif
