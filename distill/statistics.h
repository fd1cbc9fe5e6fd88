/*
 * statistics: running statistics of batch normalisation for a model that nobody trained. An average
 * of models computes other activations than any of them, so what they counted does not describe it;
 * plain averages over some hundred batches of training data do (Izmailov et al. 2018,
 * arXiv:1803.05407, section 3.2).
 */
#ifndef GRAPEVINE_DISTILL_STATISTICS_H
#define GRAPEVINE_DISTILL_STATISTICS_H

#include "base/fault.h"
#include "base/rc.h"
#include "distill/work.h"
#include "replica/data/dataset.h"
#include "replica/model/model.h"

/* At most so many batches of so many samples, in so many bytes of memory. */
enum { STATISTICS_BATCH = 64, STATISTICS_BATCHES = 256, STATISTICS_BYTES_MAX = 256 << 20 };

/** Replace the running statistics of `model` (made with gradients, for batches of at least one) by
 *  those over the first samples of the data's order, which its seed decides. Nothing happens to a
 *  model that keeps none. RC_NONFINITE where they are no numbers. `work` counts the samples. */
MUST_USE enum rc statistics_estimate(struct model *model, struct dataset *dataset,
                                     struct work *work, struct fault *why);

#endif
