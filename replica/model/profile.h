/*
 * model_profile: where the time of training goes: to each stage of the model, forward and backward,
 * and to what is no stage. The clock comes from outside. With several threads it is the time of the
 * first, which waits for the others at the end of each pass. Thread: the training lane's.
 */
#ifndef GRAPEVINE_REPLICA_MODEL_PROFILE_H
#define GRAPEVINE_REPLICA_MODEL_PROFILE_H

#include "replica/model/model.h"

struct json;
struct model_profiler;

/* What takes time besides stages. */
enum profile_part {
    PROFILE_PASSES, /* forward and backward as a whole; told without their stages. By add_pass() */
    PROFILE_DATA,
    PROFILE_LOSS,
    PROFILE_OPTIMIZER, /* accumulating, clipping and the update */
    PROFILE_CHECKS,
    PROFILE_SNAPSHOTS, /* reading and changing the planes for averaging and checkpoints */
    PROFILE_EVALUATION,
    PROFILE_PARTS
};

enum profile_pass { PASS_FORWARD, PASS_BACKWARD, PASS_BOTH };

/* Nanoseconds that never go back; NULL: no profile. */
struct profile_clock {
    uint64_t (*now_ns)(void *context);
    void *context;
    /** Each part as it ends, by a name that is a literal, for a trace; NULL: only sums are wanted.
     */
    void (*on_part)(void *context, const char *part, uint64_t begin_ns, uint64_t end_ns);
    bool is_coarse; /* stages are not timed */
};

/** Begins to watch `model`, of whose batch of `samples` it computes itself what the first of
 *  `threads` does. Keeps `model` until destroyed. NULL when out of memory. */
struct model_profiler *model_profiler_create(struct model *model, struct profile_clock clock,
                                             uint32_t samples, uint32_t threads);
/** NULL is fine, here and below: then nothing is done. */
void model_profiler_destroy(struct model_profiler *profiler);
/** Forget what was seen so far. */
void model_profiler_reset(struct model_profiler *profiler);
/** While false, passes are not added to stages: evaluation. */
void model_profiler_watch(struct model_profiler *profiler, bool is_watching);
/** When something begins; 0 without a profiler. */
uint64_t model_profiler_now(const struct model_profiler *profiler);
/** ... and has ended: it took since `begin`. */
void model_profiler_add_pass(struct model_profiler *profiler, enum profile_pass pass,
                             uint64_t begin);
void model_profiler_add(struct model_profiler *profiler, enum profile_part part, uint64_t begin);
/** The same, inside of a pass, from whose time it is taken. */
void model_profiler_add_inside(struct model_profiler *profiler, enum profile_part part,
                               uint64_t begin);
/** A step has ended that made so many training passes. */
void model_profiler_step(struct model_profiler *profiler, uint32_t passes);
/** An array of rows {layer, spec, out, forward_us, backward_us, us, share, gflops}: a stage each,
 *  then the other parts, their sum, and the time `wall_ns` in which all that happened. Times are
 *  means over steps, shares those of wall_ns. `event` (NULL: none) goes in front of each. Fresh;
 *  NULL without a profiler or a step. */
struct json *model_profiler_rows(const struct model_profiler *profiler, uint64_t wall_ns,
                                 const char *event);

#endif
