/* topology: with whom a peer mixes in a round. Pure functions of (sorted members, round, seed). */
#ifndef GRAPEVINE_GOSSIP_TOPOLOGY_H
#define GRAPEVINE_GOSSIP_TOPOLOGY_H

#include "base/fault.h"
#include "base/hash.h"
#include "base/peer_id.h"
#include "base/rc.h"
#include "base/rng.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum topology_kind { TOPOLOGY_COMPLETE, TOPOLOGY_GROUPS, TOPOLOGY_PAIRS, TOPOLOGY_GRID };

struct topology {
    enum topology_kind kind;
    uint32_t group_size; /* of TOPOLOGY_GROUPS; of TOPOLOGY_GRID: the longest side */
};

/** `complete`, `groups:SIZE`, `grid:SIZE`, `pairs`. RC_PARSE names the column and the known names.
 */
MUST_USE enum rc topology_parse(const char *spec, struct topology *topology, struct fault *why);
/** Who forms a group with `self` in round `round`, self included, in the order in which they may
 *  propose: by BLAKE2b(run id, round, id). `members` sorted, includes self. Returns the count
 *  (<= max). COMPLETE: all, as long as they fit `max` and GROUP_MEMBERS_MAX, else groups as large
 *  as fit; GROUPS: consecutive runs of about group_size in that order, [2, group_size + 1] members
 *  each unless there is but one; GRID: the lines of a grid with sides of at most group_size in as
 *  few dimensions as hold everyone, dimension `round` modulo their number; PAIRS: groups of two,
 * one of three if the number is odd. */
size_t topology_group(const struct topology *topology, struct digest run_id, uint64_t round,
                      struct peer_id self, const struct peer_id *members, size_t members_count,
                      struct peer_id *group, size_t max);
/** A partner for a pair round, uniformly among `members` without self; false if alone. */
bool topology_partner(struct peer_id self, const struct peer_id *members, size_t members_count,
                      struct rng *rng, struct peer_id *partner);

#endif
