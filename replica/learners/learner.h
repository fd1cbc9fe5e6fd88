/*
 * learner: what the rest of a peer may ask of the model in training. Two implementations: the real
 * replica (replica/learners/replica.h) and `quadratic`, a toy with a known optimum for the
 * simulator.
 *
 * Thread: everything but `schema` and `destroy` is called from jobs of the training lane only, one
 * at a time, so that the live replica is changed by nothing but optimizer steps and apply steps.
 */
#ifndef GRAPEVINE_REPLICA_LEARNERS_LEARNER_H
#define GRAPEVINE_REPLICA_LEARNERS_LEARNER_H

#include "base/fault.h"
#include "base/hash.h"
#include "base/peer_id.h"
#include "base/rc.h"
#include "kernels/snapshot.h"
#include "replica/plane/plane.h"

#include <stdatomic.h>
#include <stdbool.h>

struct learner {
    const struct learner_ops *ops;
};

struct samples;     /* replica/data/samples.h */
struct tensor_file; /* replica/plane/store_safetensors.h */

/* What a stretch of training did. */
struct train_report {
    uint32_t steps;       /* taken; fewer than asked when `stop` was raised */
    uint64_t step;        /* the shared step counter after them (drives the schedule) */
    uint64_t samples;     /* seen by this replica in all, over restarts */
    double loss_sum;      /* over `steps` of mean batch losses */
    double correct_share; /* of the samples of these steps */
};

struct evaluation {
    uint64_t samples;
    double loss;     /* mean cross-entropy, nats */
    double accuracy; /* share in [0, 1]; NaN for losses without classes */
};

/* What of an optimizer may change between two steps. */
struct learner_rates {
    double rate;  /* of learning, > 0, before its schedule and set_rate_factor() */
    double decay; /* of weights, >= 0 */
};

/* A model that is not the learner's: whole sections. */
struct learner_model {
    const float *parameters;
    const float *buffers, *input; /* NULL: there are none */
};

/* What a model answers to a sample of its data. */
struct answer_shape {
    uint64_t samples;       /* in the training part of the data */
    uint32_t rows, outputs; /* a sample: predictions, and values of each */
    bool is_real;           /* real values; else probabilities */
    size_t sample_bytes;    /* that a sample takes in memory, about */
};

struct learner_ops {
    const char *name;
    void (*destroy)(struct learner *learner);
    const struct schema *(*schema)(const struct learner *learner);
    /** Up to `steps` optimizer steps. Between steps `stop` (may be NULL) is read. RC_NONFINITE: the
     *  loss or a parameter is no longer finite; the caller rolls back with `assign`. */
    MUST_USE enum rc (*train)(struct learner *learner, uint32_t steps, const atomic_bool *stop,
                              struct train_report *report);
    /** The gradient of the next batch into `out` (PARAMETERS' count), for methods that mix first.
     */
    MUST_USE enum rc (*gradient)(struct learner *learner, float *out, struct train_report *report);
    /** One optimizer step with a given gradient. */
    MUST_USE enum rc (*step)(struct learner *learner, const float *gradient);
    /** Copy a section out; `count` is the schema's. SECTION_MIXED: here and for import only. */
    MUST_USE enum rc (*export_section)(struct learner *learner, enum section section, float *out,
                                       size_t count);
    /** The first *count values of SECTION_MIXED as they lie in the host's memory, valid until the
     *  learner is called again; the rest of them into `out`, which has room for all. NULL, also the
     *  operation itself: they do not lie there, see export_section. */
    const float *(*export_view)(struct learner *learner, float *out, size_t *count);
    /** Apply step: section += difference. */
    MUST_USE enum rc (*import_section)(struct learner *learner, enum section section,
                                       const float *difference, size_t count);
    /** Replace a section outright: joining, resuming, rolling back. */
    MUST_USE enum rc (*assign_section)(struct learner *learner, enum section section,
                                       const float *values, size_t count);
    /** Set the shared step counter (a joiner takes the swarm's). */
    void (*set_step)(struct learner *learner, uint64_t step);
    /** Which method the MOMENTS are of: they mean the same only where this is equal. NULL: any. */
    const char *(*moments_name)(const struct learner *learner);
    /** MOMENTS that another peer sent, before they are assigned: bring into range, in place, what
     * the method could not have made. NULL: nothing to do. */
    void (*bound_moments)(const struct learner *learner, float *moments, size_t count);
    /** The MOMENTS are those of so many updates, by which some methods correct them: fewer than
     *  steps where they were begun anew. NULL: no method does, or steps are updates. */
    uint64_t (*updates)(const struct learner *learner);
    /** ...and those just assigned of so many. NULL: no method corrects them. */
    void (*set_updates)(struct learner *learner, uint64_t updates);
    /** Multiply the learning rate, on top of its schedule, from the next step on; > 0. NULL: there
     *  is none to multiply. */
    void (*set_rate_factor)(struct learner *learner, double factor);
    /** The learning rate of the next step, with its schedule and set_rate_factor(). */
    double (*step_rate)(const struct learner *learner);
    /** The three of population-based training (averaging/core/population.h); NULL: it cannot be
     *  trained so. The rates as they are, and from the next step on. */
    struct learner_rates (*rates)(const struct learner *learner);
    void (*set_rates)(struct learner *learner, const struct learner_rates *rates);
    /** On samples that are kept apart for it, see replica_options.held_out: of `model`, NULL: of
     *  its own, which is as before afterwards, to the bit. `part`: what the samples are known by.
     *  RC_NOT_FOUND: there are none. A loss that is not finite is no error. */
    MUST_USE enum rc (*validate)(struct learner *learner, const struct learner_model *model,
                                 struct evaluation *evaluation, struct digest *part);
    /** Who divides the data now: `members` holds the live peers, this one included, sorted. Blocks
     *  of the data are assigned by rendezvous hashing. No effect under a fixed shard. */
    MUST_USE enum rc (*reshard)(struct learner *learner, struct peer_id self,
                                const struct peer_id *members, size_t members_count,
                                struct fault *why);
    /** Samples of this replica's shard of the data, for epochs. */
    uint64_t (*shard_samples)(const struct learner *learner);
    /** Steps from the first on that make so many passes over the shard, where batches change. NULL:
     *  they all are as large as they were said to be. */
    uint64_t (*steps_of)(const struct learner *learner, double epochs);
    /** On at most `samples_max` fixed test samples (0: all of them); of those with more than eight
     *  labels each, on about 8 samples_max predictions. */
    MUST_USE enum rc (*evaluate)(struct learner *learner, uint64_t samples_max,
                                 struct evaluation *evaluation);
    /** What the model answers to samples of the training part of its data, whatever its shard.
     * NULL, as the two below: it has no such data. */
    void (*answer_shape)(const struct learner *learner, struct answer_shape *shape);
    /** Load the training samples with these numbers (in file order, each once, in any order):
     *  `samples` is replaced, and is the caller's; `digest` is what samples_digest() says of it.
     *  RC_FORMAT: the data have none of that number, or it is listed twice; RC_NOMEM, RC_IO. */
    MUST_USE enum rc (*load_samples)(struct learner *learner, const uint32_t *numbers, size_t count,
                                     struct samples *samples, struct digest *digest);
    /** The live model's answers, in evaluation mode, to those from `first` on of such samples:
     * `out` is [count][rows][outputs]. Training goes on as if nothing had been asked. RC_NONFINITE:
     * the model is broken. */
    MUST_USE enum rc (*answer)(struct learner *learner, const struct samples *samples, size_t first,
                               size_t count, float *out);
    /** Everything needed to go on to the bit: optimizer, random streams, data cursor. Entries are
     *  added to `file`; values stay borrowed until the file is written. */
    MUST_USE enum rc (*save)(struct learner *learner, struct tensor_file *file);
    MUST_USE enum rc (*load)(struct learner *learner, const struct tensor_file *file,
                             struct fault *why);

    /* The rest may be NULL, all of it together, or answer RC_UNSUPPORTED: it is for learners on a
     * device whose memory is not the host's. */

    /** What brings SECTION_MIXED from there, encoded in chunks, and differences back while training
     *  goes on: kernels/snapshot.h. Release by its `destroy`, before the learner. RC_NOMEM. */
    MUST_USE enum rc (*snapshot_create)(struct learner *learner, enum codec_format format,
                                        size_t chunk_values, struct snapshot **snapshot);
    /** Take and seal SECTION_MIXED as it is now; does not wait for the copy. */
    MUST_USE enum rc (*snapshot_take)(struct learner *learner, struct snapshot *snapshot);
    /** Apply step with a difference that was put() before; `difference`: the same, in host memory.
     */
    MUST_USE enum rc (*snapshot_apply)(struct learner *learner, struct snapshot *snapshot,
                                       const float *difference);
    bool keeps_itself; /* keep() and restore() are to be called on a host as well */
    /** Remember parameters and buffers on the device. RC_NONFINITE: they are none to go back to,
     *  and what was remembered before stays. */
    MUST_USE enum rc (*keep)(struct learner *learner);
    /** Go back to them, with moments of zero; there was a successful keep(). */
    MUST_USE enum rc (*restore)(struct learner *learner);
    /** What the last RC_DEVICE or RC_NOMEM was about, for people; "" if there was none. */
    const char *(*why)(const struct learner *learner);
};

#endif
