/*
 * repeat: one step of a replica as another may take it again, to see whether it was taken at all.
 * What the step begins with is copied out before it; who has the same data and the same recipe puts
 * it in, takes the step, and has the same state to the bit, or the step was another one. Its own
 * state is as before afterwards, to the bit.
 *
 * Only what is equal to the bit is compared: the recipe has all that the bits of a step depend on
 * beside its beginning, the instruction set and the number of threads among it. Where they differ
 * nothing is said, rather than something about a tolerance that a liar may fill.
 *
 * Thread: the training lane's.
 */
#ifndef GRAPEVINE_REPLICA_LEARNERS_REPEAT_REPEAT_H
#define GRAPEVINE_REPLICA_LEARNERS_REPEAT_REPEAT_H

#include "base/hash.h"
#include "base/rc.h"
#include "replica/plane/plane.h"

struct learner;

enum { REPEAT_SAMPLES_MAX = 65536 }; /* of a step */

/* What a step begins with. All zero: of none. */
struct repeat_step {
    struct digest recipe; /* see repeat_recipe() */
    uint64_t step;        /* the shared counter before it */
    uint64_t updates;     /* likewise, of the moments */
    uint64_t passes;      /* that dropout counts, and its stream */
    uint64_t stream;      /* the peer's own */
    double factor;        /* of the learning rate, in [0, 1e6]: whether it is one that an honest
                             peer would have is the caller's to judge */
    uint32_t *numbers;    /* [samples]: in file order, as the batches have them; owned */
    uint32_t samples;     /* a whole number of batches, at most REPEAT_SAMPLES_MAX */
    float *planes[SECTION_COUNT]; /* PARAMETERS, MOMENTS, BUFFERS, INPUT, whole; owned */
    size_t values[SECTION_COUNT]; /* of these; of other sections 0 */
};

void repeat_step_deinit(struct repeat_step *step);
/** What a step's bits depend on beside its beginning: the program's arithmetic, the threads, the
 *  model, the optimizer and its numbers, clipping, the batch, the data's name and size. Steps of
 *  unequal recipes cannot be compared. RC_UNSUPPORTED: steps of this learner cannot be repeated: it
 *  computes on a device, without locks, from the whole shard, on samples changed at random, or
 *  learns of others' answers. */
MUST_USE enum rc repeat_recipe(const struct learner *learner, struct digest *recipe);
/** Copy out what the next step begins with; `step` is replaced. RC_UNSUPPORTED, RC_NOMEM; RC_LIMIT:
 *  a step is of more than REPEAT_SAMPLES_MAX samples. */
MUST_USE enum rc repeat_take(struct learner *learner, struct repeat_step *step);
/** Of all of it. */
struct digest repeat_begin(const struct repeat_step *step);
/** Of the learner's state as it is now, which is what a step has left. */
MUST_USE enum rc repeat_end(struct learner *learner, struct digest *end);
/** Take another's step: `end` is what repeat_end() said behind it there, if it was taken there.
 *  RC_MISMATCH: of another recipe, or the input is normalised otherwise, so nothing can be said.
 *  RC_FORMAT: no replica of this recipe could begin a step so. RC_NONFINITE: the step leads to no
 *  model. RC_NOMEM, RC_IO: as the data say, and nothing can be said of the step. */
MUST_USE enum rc repeat_again(struct learner *learner, const struct repeat_step *step,
                              struct digest *end);

#endif
