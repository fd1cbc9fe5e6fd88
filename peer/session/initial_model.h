/*
 * initial_model: `peer --init FILE`: a run begins from the values of a model file, ours or one of
 * GPT-2's form, in place of drawn ones. They are the run's initial plane, so its lineage is theirs:
 * peers that begin from equal files average with each other. Blocking: before the loop runs.
 */
#ifndef GRAPEVINE_PEER_SESSION_INITIAL_MODEL_H
#define GRAPEVINE_PEER_SESSION_INITIAL_MODEL_H

#include "base/log.h"
#include "peer/cli/options.h"
#include "replica/learners/learner.h"

struct backend;

/** Where --init is given and --model is not, the file's layers are the model. */
MUST_USE enum rc initial_model_spec(struct options *options, struct fault *why);
/** Put the values of --init, if it is given, into a learner that has not taken a step. RC_MISMATCH
 *  and what does not fit: the data, or --model. */
MUST_USE enum rc initial_model_load(const struct options *options, struct backend *backend,
                                    struct learner *learner, const struct log *log,
                                    struct fault *why);

#endif
