/*
 * assignment: the linear assignment problem, each row to a column of its own such that the sum is
 * greatest. Shortest augmenting paths with potentials (Kuhn 1955, Munkres 1957; in the form of
 * Jonker and Volgenant 1987, without their starting heuristics): exact, O(n^3). Pure; any thread.
 */
#ifndef GRAPEVINE_DISTILL_ASSIGNMENT_H
#define GRAPEVINE_DISTILL_ASSIGNMENT_H

#include "base/rc.h"

#include <stdint.h>

/** columns[row] of the assignment that maximises sum gains[row * n + columns[row]]; all gains are
 *  finite. The same input gives the same answer. RC_NOMEM. */
MUST_USE enum rc assignment_solve(const double *gains, uint32_t n, uint32_t *columns);

#endif
