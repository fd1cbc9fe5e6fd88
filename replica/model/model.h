/*
 * model: a layer list bound to an input shape, with its parameters: what can be evaluated and
 * distilled. Training state (optimizer, data) is the replica's, not the model's.
 */
#ifndef GRAPEVINE_REPLICA_MODEL_MODEL_H
#define GRAPEVINE_REPLICA_MODEL_MODEL_H

#include "base/fault.h"
#include "base/rc.h"
#include "replica/plane/plane.h"

#include <stdatomic.h>
#include <stdint.h>

struct backend;
struct model;
struct parameter_copies; /* kernels/update.h */

/* How models that compute parts of one batch add up what they know of it. Every one of them calls
 * it equally often, each from its own thread. */
struct model_meeting {
    /** values[i] becomes the sum over all lanes. */
    void (*sum)(void *context, uint32_t lane, double *values, size_t count);
    void *context;
};

/* What a sample is. All inputs are float32; token ids are exact numbers. */
enum { MODEL_CLASSES_MAX = 1 << 20 };

enum model_input {
    MODEL_INPUT_IMAGE, /* or a vector: channels x 1 x 1 */
    MODEL_INPUT_TOKENS /* a sequence of `width` token ids; channels and height are 1 */
};

struct model_options {
    const char *spec; /* preset or layer list: `conv3x3:32 relu ... linear:classes` */
    uint32_t channels, height, width; /* of one sample */
    uint32_t classes;                 /* outputs, where they are real values */
    uint32_t batch_max;               /* largest batch of a forward or backward pass */
    uint64_t seed;                    /* initial weights come from it alone */
    bool with_gradients;              /* false: evaluation only, less memory */
    enum model_input input;
    uint32_t symbols; /* different token ids; 0: as many as classes */
    /* For a model whose values a file has: no more of them are taken, and none are drawn. 0: none.
     */
    uint64_t file_values;
    /* Tokens: a pass in evaluation mode takes up to batch_max next positions of one text, at most
     * `width` since the last model_rewind(), and remembers what later ones need of them (keys and
     * values of attention, states of recurrent layers), so that a position costs one position. */
    bool is_stepwise;
    /* For one of several models that compute one batch together (replica/learners/team.h): */
    struct model *leader;                /* whose parameters and buffers it uses; NULL: its own */
    const struct model_meeting *meeting; /* NULL: it is alone */
    uint32_t lane;                       /* its number among them */
};

/** RC_PARSE / RC_SHAPE with the column of the spec or the layer that does not fit; RC_NOMEM. Keeps
 *  `backend`. Initialisation: U(-1/sqrt(fan_in), 1/sqrt(fan_in)) for weights and biases. */
MUST_USE enum rc model_create(struct backend *backend, const struct model_options *options,
                              struct model **model, struct fault *why);
void model_destroy(struct model *model);
const struct schema *model_schema(const struct model *model);
/** The spec with presets written out, as stored in files. */
const char *model_spec(const struct model *model);
uint32_t model_classes(const struct model *model);
uint32_t model_batch_max(const struct model *model);
/** Rows of logits a sample gives: the steps of a sequence model, otherwise 1. */
uint32_t model_rows(const struct model *model);
/** Heads of a block that ends the list: in training each row of logits is [heads][classes], each
 *  head with the row's label; otherwise they come merged. 1 without such a block. */
uint32_t model_heads(const struct model *model);
/** Floating point operations of a forward pass of one sample. */
uint64_t model_flops(const struct model *model);
/** The live planes: [schema.values[section]] float32 on the backend; NULL without gradients. What
 *  was made of parameters and buffers (packed weights) is made anew after this call, as they may be
 *  written: ask again before each change that a pass in evaluation mode is to see. */
float *model_plane(struct model *model, enum section section);
/** The same to be read only: what was made of it stays. */
const float *model_values(const struct model *model, enum section section);
/** What an update of all parameters is to write as well (optimizer_step.copies), so that the next
 *  pass need not make it; NULL: nothing. Say so when it has: nobody else may have written since the
 *  model_plane() that the update had. */
const struct parameter_copies *model_copies(const struct model *model);
void model_copies_written(struct model *model);
/** The plane in host memory as it is now: itself, or a copy that lasts until the next call for this
 *  section, and no longer than the model. RC_NOMEM, RC_DEVICE. */
MUST_USE enum rc model_host_plane(struct model *model, enum section section, const float **values);
/** Overwrite a whole plane from host memory. */
MUST_USE enum rc model_set_plane(struct model *model, enum section section, const float *values);

struct backend *model_backend(const struct model *model);
/** Give SECTION_MOMENTS room for `planes` planes of the parameters' size, zeroed; once. */
MUST_USE enum rc model_reserve_moments(struct model *model, uint32_t planes);

/** Dropout draws from (stream, number of training passes made); both belong to a checkpoint. */
void model_set_stream(struct model *model, uint64_t stream, uint64_t passes);
uint64_t model_passes(const struct model *model);

/** While *stop is raised, training passes end early with RC_CANCELLED; NULL: never. Borrowed. */
void model_set_stop(struct model *model, const atomic_bool *stop);
/** Forward pass. input: [batch, channels, height, width] or [batch, width] token ids, float32,
 *  row-major; logits: [batch, rows, classes], both in host memory. `is_training`: batch statistics,
 *  dropout, and keep activations for model_backward(), until which `input` stays borrowed; logits
 *  are then [batch, rows, heads, classes]. RC_NONFINITE: a token id that is none. */
MUST_USE enum rc model_forward(struct model *model, const float *input, uint32_t batch,
                               bool is_training, float *logits);
/** A stepwise model: the next position is the first of a text. */
void model_rewind(struct model *model);
/** Once after a training forward pass: overwrite the gradient plane from d(loss)/d(logits). */
MUST_USE enum rc model_backward(struct model *model, const float *logits_gradient);
/** Where the backend's memory is the host's, both can be had without copies: of a forward pass with
 *  `logits` NULL the logits, until the next pass; and before a backward pass with `logits_gradient`
 *  NULL the place for it, which may be that of the logits. NULL: nothing depends on parameters. */
const float *model_logits(const struct model *model);
float *model_logits_gradient(const struct model *model);

struct loss_sums; /* kernels/loss.h */

/* A training pass that stays on a device whose memory is not the host's. All in host memory. */
struct model_feed {
    const float *input;     /* as of model_forward() */
    const uint32_t *labels; /* of each row and head; NULL: targets */
    const float *targets;   /* [rows][classes] */
    uint32_t batch;
    uint32_t counted; /* rows (and heads) of the whole batch, also on other devices, that count */
    bool adds;        /* to the gradients that are there, instead of overwriting them */
    bool sums_up;     /* gradients over all siblings of the backend, part by part, as they are made;
                         all make such a pass, or model_sum_up() */
};
/** Forward, loss, backward; nothing is waited for. The loss is added to sums on the device. From
 *  the third pass of its kind (samples, `adds`) on it is one launch. RC_NOMEM, RC_DEVICE. */
MUST_USE enum rc model_train_pass(struct model *model, const struct model_feed *feed);
/** To the sums of others' passes, for a model that has no samples: with what gradients it has. */
MUST_USE enum rc model_sum_up(struct model *model);
/** The same for judging: forward as of an evaluation, and the loss. One head only. */
MUST_USE enum rc model_judge_pass(struct model *model, const struct model_feed *feed);
/** The sums since the last call, which are then zero; waits for the passes. */
MUST_USE enum rc model_take_sums(struct model *model, struct loss_sums *sums);

/** Re-estimating running statistics, which a model needs that nobody trained (an average of
 *  others): before training pass `pass` = 1, 2, 3, ... of equal batches, no backward passes
 *  between; they are then plain averages over these passes, and what they were is forgotten. 0:
 *  back to moving averages, as training wants them. */
void model_set_statistics_pass(struct model *model, uint64_t pass);

/* What `inspect` and `--profile` tell of one stage of computing. */
struct model_stage {
    const char *name;           /* "conv1" */
    char layer[96], out[48];    /* "conv3x3:32", "32x28x28" */
    uint64_t parameters, flops; /* flops: forward, a sample */
};
uint32_t model_stages(const struct model *model);
void model_stage(const struct model *model, uint32_t i, struct model_stage *info);

/* Bytes on the backend, by what they are for, at batch_max. */
struct model_memory {
    uint64_t parameters, gradients, moments, buffers;
    uint64_t activations; /* what a pass keeps, and gradients of it: shared where lives allow */
    uint64_t unshared;    /* what the activations would take without sharing */
};
void model_memory(const struct model *model, struct model_memory *memory);

/* Time spent in each stage, forward and backward, from a clock of the caller's. */
struct model_profile {
    uint64_t (*clock)(void *context); /* nanoseconds */
    void *context;
    uint64_t (*ns)[2]; /* [model_stages()]; the caller's, added to */
};
/** NULL: stop. Borrowed. */
void model_set_profile(struct model *model, const struct model_profile *profile);

/** How inputs are normalised, value = (raw - mean) * scale, [channels] each: saved and loaded with
 *  the model. 0 and 1 until set. */
void model_set_normalisation(struct model *model, const float *mean, const float *scale);
/** It is a section of the model, SECTION_INPUT: who takes the model takes it, too. */
void model_keep_normalisation(struct model *model);
uint32_t model_channels(const struct model *model);
/** What its planes mean besides their shapes, for schema_digest(). */
void model_set_meaning(struct model *model, struct digest meaning);
/** See schema_set_trunk(). */
bool model_set_trunk(struct model *model, uint32_t layers);
const float *model_mean(const struct model *model);
const float *model_scale(const struct model *model);

#endif
