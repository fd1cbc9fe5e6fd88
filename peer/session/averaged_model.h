/*
 * averaged_model: the exponential mean of --ema as a model file beside the peer's own. It is nobody
 * who was trained, so its statistics of normalisation are estimated anew from the peer's --data
 * (distill/statistics.h).
 */
#ifndef GRAPEVINE_PEER_SESSION_AVERAGED_MODEL_H
#define GRAPEVINE_PEER_SESSION_AVERAGED_MODEL_H

#include "base/fault.h"
#include "base/rc.h"
#include "kernels/backend.h"
#include "peer/cli/options.h"
#include "replica/learners/learner.h"

#define AVERAGED_MODEL_FILE "ema.safetensors"

/** At the end of a run, when nothing is trained any more: write --out/ema.safetensors. Nothing
 *  happens without --ema or --out, or before the first step. The learner is only read. */
MUST_USE enum rc averaged_model_save(const struct options *options, struct backend *backend,
                                     struct learner *learner, struct fault *why);

#endif
