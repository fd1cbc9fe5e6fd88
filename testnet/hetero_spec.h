/*
 * hetero_spec: how fast the peers of a testnet are beside each other, as `--hetero` says it:
 *
 *   uniform                all alike
 *   lognormal:0.5          speeds exp(0.5 N(0, 1)), drawn by the seed
 *   list:1,1,0.5,0.1       one after the other; peers beyond the list run at speed 1
 *
 * A peer of speed s takes 1/s times as long for a step as one of speed 1.
 */
#ifndef GRAPEVINE_TESTNET_HETERO_SPEC_H
#define GRAPEVINE_TESTNET_HETERO_SPEC_H

#include "base/fault.h"
#include "base/rc.h"

#include <stddef.h>
#include <stdint.h>

#define HETERO_SPEED_MIN 1e-4
#define HETERO_SPEED_MAX 1e4

/** Parse `spec` into speeds: [peers]; NULL or "": uniform. RC_PARSE: what is wrong, and what is
 *  known; RC_USAGE: more speeds than peers. Nothing is written then. */
MUST_USE enum rc hetero_spec_parse(const char *spec, uint64_t seed, double *speeds, size_t peers,
                                   struct fault *why);
/** What a step takes at `speed`; at least 1. */
uint64_t hetero_step_ns(uint64_t step_ns, double speed);

#endif
