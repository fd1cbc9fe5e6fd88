/*
 * repeat: steps of a replica as another may take them again, to see whether they were taken at all.
 * The state is copied out where an interval begins; who has the same data and the same recipe puts
 * it in, takes the steps, and has the same state to the bit, or the steps were others. Its own
 * state is as before afterwards, to the bit.
 *
 * An interval goes from one snapshot for a round to the next. What the round before came to is
 * added on the way, as it was there, after as many steps: it is no secret, all members have it.
 *
 * Only what is equal to the bit is compared: the recipe has all that the bits of a step depend on
 * beside its beginning, the instruction set, the libraries and the number of threads among it.
 * Where they differ nothing is said, rather than something about a tolerance that a liar may fill.
 *
 * Thread: the training lane's.
 */
#ifndef GRAPEVINE_REPLICA_LEARNERS_REPEAT_REPEAT_H
#define GRAPEVINE_REPLICA_LEARNERS_REPEAT_REPEAT_H

#include "base/hash.h"
#include "base/rc.h"
#include "replica/data/shard.h"
#include "replica/plane/plane.h"

struct learner;

enum { REPEAT_SAMPLES_MAX = 65536, REPEAT_STEPS_MAX = 4096 }; /* of an interval */

/* A replica between two steps. All zero: none. */
struct repeat_state {
    struct digest recipe;              /* see repeat_recipe() */
    uint64_t step;                     /* the shared counter */
    uint64_t updates;                  /* that the moments are of */
    uint64_t passes;                   /* that dropout counts, and its stream */
    uint64_t stream;                   /* the peer's own */
    uint64_t place[SHARD_STATE_WORDS]; /* in the peer's shard; means nothing to others */
    float *planes[SECTION_COUNT];      /* PARAMETERS, MOMENTS, BUFFERS, whole; owned */
    size_t values[SECTION_COUNT];      /* of these; of other sections 0 */
};

/* From a state to another one. */
struct repeat_way {
    uint32_t steps;          /* 1 to REPEAT_STEPS_MAX */
    uint32_t before;         /* of these, before `agreed` came in: at most `steps` */
    const float *agreed;     /* [MIXED] that the round came to: its difference to the state, as that
                                was told, was added; NULL: nothing was */
    const uint32_t *numbers; /* [samples]: in file order, as the batches had them */
    uint32_t samples;        /* at most REPEAT_SAMPLES_MAX */
};

void repeat_state_deinit(struct repeat_state *state);
/** Of the learner's kind: it takes its steps on the host, with locks, from the next samples of its
 *  shard as they are, and learns of nobody's answers; and the processor says which one it is. */
bool repeat_is_possible(const struct learner *learner);
/** What a step's bits depend on beside its beginning: the program's arithmetic, the threads, the
 *  model, the optimizer, its numbers and its schedule, clipping, the batch, and the data, of which
 *  some samples are looked at once. States of unequal recipes cannot be compared. RC_UNSUPPORTED:
 *  steps of this learner cannot be repeated. RC_NOMEM, RC_IO. */
MUST_USE enum rc repeat_recipe(struct learner *learner, struct digest *recipe);
/** Copy the state out; `state` is replaced, and its memory used again. On an error it is none.
 *  Fails as repeat_recipe(). */
MUST_USE enum rc repeat_take(struct learner *learner, struct repeat_state *state);
/** Of all of it but the place in the shard. */
struct digest repeat_digest(const struct repeat_state *state);
/** Numbers in file order of the samples that were taken from `from` to `to`, two states of this
 *  learner, into `numbers` [REPEAT_SAMPLES_MAX]. RC_STALE: the shard is another by now, or was
 *  between them; RC_LIMIT: they are more. RC_NOMEM. */
MUST_USE enum rc repeat_samples(struct learner *learner, const struct repeat_state *from,
                                const struct repeat_state *to, uint32_t *numbers, uint32_t *count);
/** Take another's steps: `end` is what repeat_digest() said of the state there, if they were taken.
 *  RC_MISMATCH: of another recipe, so nothing can be said. RC_FORMAT: no replica of this recipe
 *  could have been so, or gone that way. RC_NONFINITE: the way leads to no model. RC_NOMEM, RC_IO:
 *  as the data say, and nothing can be said. */
MUST_USE enum rc repeat_again(struct learner *learner, const struct repeat_state *from,
                              const struct repeat_way *way, struct digest *end);

#endif
