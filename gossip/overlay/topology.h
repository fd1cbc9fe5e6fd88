/* topology: with whom a peer mixes in a round. Pure functions of (sorted members, round, seed). */
#ifndef GRAPEVINE_GOSSIP_OVERLAY_TOPOLOGY_H
#define GRAPEVINE_GOSSIP_OVERLAY_TOPOLOGY_H

#include "base/fault.h"
#include "base/hash.h"
#include "base/peer_id.h"
#include "base/rc.h"
#include "base/rng.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The first four say who forms a group in a round. The others are graphs over the members, numbered
 * by their ids' order; rows of their mixing matrices: gossip/overlay/graph.h.
 *
 *  ring         i +- 1
 *  torus        a grid that wraps around: r x c where n has a divisor r with c <= 2 r, else rows of
 *               about sqrt(n) with a shorter last one. A side of two gives one neighbour, not two.
 *  hypercube    i xor 2^b; where n is no power of two the edges to places that nobody has are left
 *               out (the incomplete hypercube of Katseff 1988: connected at any n)
 *  exponential  i +- 2^k; pushed: to i + 2^k
 *  one-peer-exponential  in round t to i + 2^(t mod ceil(log2 n)) alone; directed
 *  dissemination  the same along an order of the members that is drawn anew, by the run's id, every
 *               ceil(log2 n) rounds, so that partners rotate; directed
 *  random:K     K neighbours each, drawn by the run's id: connected, the same at all peers, and
 *               nearly the same after a member came or went. K odd and n odd: one member has K - 1.
 */
enum topology_kind {
    TOPOLOGY_COMPLETE,
    TOPOLOGY_GROUPS,
    TOPOLOGY_PAIRS,
    TOPOLOGY_GRID,
    TOPOLOGY_RING,
    TOPOLOGY_TORUS,
    TOPOLOGY_HYPERCUBE,
    TOPOLOGY_EXPONENTIAL,
    TOPOLOGY_ONE_PEER,
    TOPOLOGY_DISSEMINATION,
    TOPOLOGY_RANDOM
};

enum {
    TOPOLOGY_DEGREE_MAX = 64,
    TOPOLOGY_TEXT = 48,
    TOPOLOGY_TURNS = 8,
    TOPOLOGY_AHEAD_MAX = 8,
    TOPOLOGY_SITES = 4, /* sites_every of a peer that has a site, where it is not said */
    TOPOLOGY_SITES_MAX = 10000,
    TOPOLOGY_RUNS = 112 /* members: as many as are all linked. Of more, groups go by prefixes */
};

struct topology {
    enum topology_kind kind;
    uint32_t group_size;  /* of TOPOLOGY_GROUPS; of TOPOLOGY_GRID: the longest side */
    uint32_t degree;      /* of TOPOLOGY_RANDOM: neighbours of each */
    bool is_uniform;      /* of TOPOLOGY_PAIRS: whatever lines carry, see peer/node/preference.h */
    uint32_t sites_every; /* rounds stay in a site, but for one in so many; 0: not said */
    bool is_lazy; /* of graphs: (I + W)/2 instead of W: no eigenvalue below 0, half the gap */
};

/** `complete`, `groups:SIZE`, `grid:SIZE`, `pairs`, `pairs,uniform`, `ring`, `torus`, `hypercube`,
 * `exponential`, `one-peer-exponential`, `dissemination`, `random:DEGREE`; graphs also as
 * `NAME,lazy`, what is no graph as `NAME,sites:EVERY`. RC_PARSE names the column and the known
 * names. */
MUST_USE enum rc topology_parse(const char *spec, struct topology *topology, struct fault *why);
/** As it is spelt, into `text`. */
void topology_format(const struct topology *topology, char text[TOPOLOGY_TEXT]);
/** It says who forms a group in a round: complete, groups, grid. */
bool topology_is_grouped(const struct topology *topology);
/** It says who is whose neighbour, for longer than a round: ring to random:K. */
bool topology_is_graph(const struct topology *topology);
/** Edges lead one way only: one-peer-exponential, dissemination. */
bool topology_is_directed(const struct topology *topology);
/** Who forms a group with `self` in round `round`, self included, in the order in which they may
 *  propose: by BLAKE2b(run id, round, id). `members` sorted, includes self. Returns the count
 *  (<= max). COMPLETE: all, as long as they fit `max` and GROUP_MEMBERS_MAX, else groups as large
 *  as fit; GROUPS: consecutive runs of about group_size in that order, [2, group_size + 1] members
 *  each unless there is but one; PAIRS: groups of two, one of three if the number is odd; of more
 *  than TOPOLOGY_RUNS members, all whose hashes share a prefix, of two thirds to twice the size
 *  (COMPLETE and sizes above 32: of 21 to 64). GRID: the lines of a grid with sides of at most
 * group_size in as few dimensions as hold everyone, dimension `round` modulo their number. */
size_t topology_group(const struct topology *topology, struct digest run_id, uint64_t round,
                      struct peer_id self, const struct peer_id *members, size_t members_count,
                      struct peer_id *group, size_t max);
/** In a swarm with an active view: the number to give topology_group() in place of `round`. A few
 * draws take turns, and each is drawn anew after TOPOLOGY_TURNS of its turns, one after the other,
 * so that few links serve many rounds and all members still meet. A grid has fixed lines: `round`
 * itself. */
uint64_t topology_draw(const struct topology *topology, uint64_t round);
/** The links to the groups of so many rounds to come are worth having then. */
uint32_t topology_ahead(const struct topology *topology);
/** Into how many groups a round of COMPLETE, GROUPS or PAIRS parts so many members; of more than
 *  TOPOLOGY_RUNS within a tenth. */
size_t topology_groups(const struct topology *topology, size_t members_count);
/* Two levels: most rounds are among the members of one site, and one in `every` among all
 * (hierarchical local SGD: Lin et al. 2018, arXiv:1808.07217, section 5; Castiglia, Das, Patterson
 * 2021, arXiv:2007.13819). */
struct topology_level {
    bool is_near;    /* among the members of the site */
    uint64_t number; /* of its kind, for topology_group() */
};
/** Of `round`; `every` 0: there are no sites, and the number is the round's. */
struct topology_level topology_level(uint32_t every, uint64_t round);
/** How two peers stand to each other in period `period` of pairs: a number drawn for the two, the
 *  same from both ends. Everyone prefers the partner with the smallest one, so offers never wait
 * for each other in a circle, and over the periods all partners come up equally often. */
uint64_t topology_edge(struct digest run_id, uint64_t period, struct peer_id a, struct peer_id b);

#endif
