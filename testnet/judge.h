/*
 * judge: what came out of a run of peers. Every model they left is evaluated on the whole test
 * part, and so are the average of their parameters, which is left beside them, and their ensemble.
 * Blocking: commands only, after the peers have gone (it computes on all cores).
 */
#ifndef GRAPEVINE_TESTNET_JUDGE_H
#define GRAPEVINE_TESTNET_JUDGE_H

#include "base/fault.h"
#include "base/rc.h"
#include "testnet/summary.h"

struct json;

/** The summary of the run in the folder `out`, from `about` without its `models` and `peer_of`; it
 *  is written to OUT/summary.json by judge_save(). Always sets `*json`; where models could not be
 *  evaluated it has no scores, and that is the error: RC_NOT_FOUND (there are none), RC_MISMATCH,
 *  RC_IO, RC_NOMEM. */
MUST_USE enum rc judge_run(const char *out, const struct summary *about, struct json **json,
                           struct fault *why);
/** OUT/summary.json, and OUT/report.html made from it and what else is there. */
MUST_USE enum rc judge_save(const char *out, const struct json *json, struct fault *why);

#endif
