/*
 * link_spec: the quality of a network, as `--link` says it:
 *
 *   rate=100mbit,delay=50ms,jitter=5ms,loss=0.1%
 *
 * `delay` is one way; `rate` is of each direction of a link; `loss` of packets, which TCP turns
 * into delay and a lower rate. What is not said is none.
 */
#ifndef GRAPEVINE_TESTNET_LINK_SPEC_H
#define GRAPEVINE_TESTNET_LINK_SPEC_H

#include "base/fault.h"
#include "peer/env/sim/env.h"

/** Parse `spec`, the value of --`flag`; NULL or "": a perfect network. RC_PARSE: the column, and
 * what is known. */
MUST_USE enum rc link_spec_parse(const char *flag, const char *spec, struct sim_path *path,
                                 struct fault *why);

#endif
