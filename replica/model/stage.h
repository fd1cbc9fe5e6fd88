/*
 * stage: one step of a model's forward and backward pass, and the contract of those who compute
 * them (replica/layers, one table each). Internal to replica.
 *
 * A model is a list of stages in the order of computing. A stage reads one or more values and makes
 * one; a value is what flows between stages: images, or rows of sequences, for each sample of the
 * batch. Consecutive stages that like slices of the batch of the same size form a segment, which
 * runs slice by slice: what lies between two stages stays in the cache, and only what is read
 * across segments or in the backward pass exists for the whole batch (memory.c).
 *
 * To add a stage: `create` checks the input's shape, sets stage->out, names its tensors by
 * stage_tensor(), reserves what it keeps for the way back (saved_bytes), says by the flags what the
 * backward pass reads, and makes its kernels; the engine does the rest.
 */
#ifndef GRAPEVINE_REPLICA_MODEL_STAGE_H
#define GRAPEVINE_REPLICA_MODEL_STAGE_H

#include "base/fault.h"
#include "kernels/backend.h"
#include "replica/model/layers.h"
#include "replica/model/model.h"
#include "replica/plane/plane.h"

enum { NO_STAGE = UINT32_MAX };
enum { STAGE_INPUTS_MAX = 16, STAGE_TENSORS_MAX = 5, STAGE_COPIES_MAX = 2, STAGE_SHAPE_BYTES = 48 };
#define STAGE_VALUES_MAX                                                                           \
    (UINT64_C(1) << 32) /* parameters, or values of an activation of a batch                       \
                         */

/* Of a value, per sample: images (steps 0), or `steps` rows of image.channels values (1 x 1). A
 * vector is an image of 1 x 1. */
struct shape {
    struct image_shape image;
    uint32_t steps;
    bool is_vector; /* no image any more, even of one pixel */
};

static inline size_t shape_rows(struct shape shape)
{
    return shape.steps == 0 ? 1 : shape.steps;
}

static inline size_t shape_values(struct shape shape)
{
    return shape_rows(shape) * image_values(shape.image);
}

static inline bool shape_is_flat(struct shape shape)
{
    return shape.image.height == 1 && shape.image.width == 1;
}

/* Initial values of a tensor. */
enum init_kind { INIT_UNIFORM, INIT_NORMAL, INIT_CONSTANT };
struct init {
    enum init_kind kind;
    float size; /* bound of U(-size, size), deviation of N(0, size^2), or the constant */
};

/* What the engine hands over for one slice. Pointers are at the slice's first sample. */
struct stage_pass {
    uint32_t first;       /* sample of this model's batch */
    uint32_t batch_first; /* sample of the whole batch with which that begins */
    uint32_t samples;     /* in this slice */
    uint32_t batch;       /* samples in all */
    bool is_training;     /* a backward pass follows */
    bool is_first;        /* backward: the slice that overwrites gradients of parameters; there may
                             be none, where a step adds up several batches */
    const float *x[STAGE_INPUTS_MAX];
    const void *terms[2]; /* of x[0], where this stage is to add it up; NULL: it is there */
    float *y;
    void *saved;                 /* saved_bytes a sample; NULL in evaluation */
    const void *joined;          /* what stage->joins saved; NULL: it joins none */
    float *dy;                   /* may be overwritten */
    float *dx[STAGE_INPUTS_MAX]; /* NULL: not wanted */
    bool adds[STAGE_INPUTS_MAX]; /* dx += instead of dx = */
    float *scratch;              /* room for dx[0], for padded stages that cannot add */
};

struct stage {
    const struct stage_ops *ops;
    struct layer layer;
    char name[TENSOR_NAME_BYTES / 2]; /* "conv1" */
    uint32_t number;                  /* its 1: among layers of its kind, whatever the layout */
    uint32_t inputs[STAGE_INPUTS_MAX];
    uint32_t inputs_count;
    uint32_t output;                     /* value */
    struct shape in, out;                /* of the first input, of the output */
    bool has_input_gradient;             /* some input depends on parameters */
    uint32_t tensors[STAGE_TENSORS_MAX]; /* numbers in the schema, in order of stage_tensor() */
    uint32_t tensors_count;
    uint32_t partner; /* stage number of the other half: batch normalisation, tied embeddings */
    struct activation activation; /* of the next layer, which this stage computes too */
    uint32_t joins; /* stage whose gelu made the input, and which leaves it to this one to go back
                       through it; NO_STAGE */
    bool is_joined; /* its activation is such a one */
    bool is_left;   /* a sum whose forward pass is left to the stage behind it ... */
    bool adds_up;   /* ... which is this one */
    bool is_late;   /* gradients of parameters are not whole before close_backward() */
    bool has_bias;
    bool is_last;   /* its output is the model's */
    void *state;    /* of the implementation */
    uint64_t flops; /* forward, a sample */

    /* Set by create(): */
    uint32_t slice;      /* samples it likes at a time: stage_slice() */
    uint32_t out_stride; /* values from row to row of an output that no stage reads; 0: no more than
                            there are */
    size_t saved_bytes;  /* a sample, from the forward to the backward pass; multiple of 4 */
    bool keeps_input;    /* the backward pass reads x */
    bool keeps_output;   /* the backward pass reads y */
    bool is_in_place;    /* y may be the memory of x[0] */
    bool is_identity;    /* y is x[0], always */
    bool is_in_place_back; /* dx of an input may be the memory of dy */
    bool leaves_dy;        /* as it is */
    bool is_padded;        /* computes whole slices: rows behind the last sample are zeroed */
    bool uses_scratch;     /* backward wants stage_pass.scratch where it must add to dx[0] */
    bool ends_segment;     /* what follows needs all slices of this */

    bool has_copies; /* copies() gave some: prepare() is called when others than the update have
                        changed parameters */

    uint32_t segment;
};

struct stage_ops {
    const char *name;
    /** RC_SHAPE with the layer and what does not fit; RC_NOMEM, RC_LIMIT. */
    MUST_USE enum rc (*create)(struct model *model, struct stage *stage, struct fault *why);
    void (*destroy)(struct model *model, struct stage *stage); /* NULL: nothing to release */
    /** When initial values have been drawn: what follows from them. NULL: nothing. */
    MUST_USE enum rc (*start)(struct model *model, struct stage *stage);
    /** Before the first slice of a forward pass; parameters may have changed. NULL: nothing. */
    MUST_USE enum rc (*prepare)(struct model *model, struct stage *stage, bool is_training);
    /** Copies that prepare() fills, which an update may fill as well: how many. NULL: none. */
    uint32_t (*copies)(struct model *model, struct stage *stage,
                       struct parameter_copy copies[STAGE_COPIES_MAX]);
    MUST_USE enum rc (*forward)(struct model *model, struct stage *stage,
                                const struct stage_pass *pass);
    /** After the last slice of its segment; NULL: nothing. */
    MUST_USE enum rc (*close)(struct model *model, struct stage *stage,
                              const struct stage_pass *pass);
    MUST_USE enum rc (*backward)(struct model *model, struct stage *stage,
                                 const struct stage_pass *pass);
    MUST_USE enum rc (*close_backward)(struct model *model, struct stage *stage,
                                       const struct stage_pass *pass);
    /** For those who meet other lanes in close() or close_backward(): meet them, having no samples
     *  of a training pass. In the order of stages, backward in reverse. NULL: nothing. */
    void (*attend)(struct model *model, struct stage *stage, bool is_backward);
};

extern const struct stage_ops stage_conv_ops, stage_linear_ops, stage_pool_ops,
    stage_globalpool_ops, stage_shortcut_ops, stage_relayout_ops, stage_activation_ops,
    stage_dropout_ops, stage_sum_ops, stage_concat_ops, stage_batch_collect_ops,
    stage_batch_apply_ops, stage_group_norm_ops, stage_layer_norm_ops, stage_embed_ops,
    stage_positions_ops, stage_attention_ops, stage_attention_steps_ops, stage_recurrent_ops,
    stage_recurrent_steps_ops, stage_rows_ops, stage_last_ops;

/* For create(): */

/** Append a tensor `NAME.suffix` to the schema as the stage's next. RC_NOMEM, RC_LIMIT. */
MUST_USE enum rc stage_tensor(struct model *model, struct stage *stage, enum section section,
                              const char *suffix, const uint32_t *shape, uint32_t rank,
                              struct init init, struct fault *why);
/** RC_SHAPE: "LAYER (column 7) ..."; the layer is named in front of the format's text. */
enum rc stage_fault(const struct stage *stage, struct fault *why, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/** "an image of 3x32x32", "128 steps of 64 values" or "10 values" into `text`, for messages.
 * Returns `text`. */
char *stage_shape_text(struct shape shape, char text[STAGE_SHAPE_BYTES]);
/** RC_SHAPE unless the stage reads images, or sequences. */
MUST_USE enum rc stage_needs_image(const struct stage *stage, struct fault *why);
MUST_USE enum rc stage_needs_sequence(const struct stage *stage, struct fault *why);
/** As many samples of this shape as should be in flight at once. */
uint32_t stage_slice(const struct model *model, struct shape shape);
/** Shape of the stage's input `i`; stage->in is that of input 0. */
struct shape stage_input_shape(const struct model *model, const struct stage *stage, uint32_t i);
/** Default bound 1 / sqrt(fan in). */
struct init init_fan_in(size_t fan_in);

/* For all: */

struct backend *stage_backend(const struct model *model);
bool stage_with_gradients(const struct model *model);
uint32_t stage_batch_max(const struct model *model);
/** Of a stepwise model (model.h), whose samples are positions of a text: how many it may go
 * through, 0 of others, and the one that a pass begins with. */
uint32_t stage_context(const struct model *model);
uint32_t stage_position(const struct model *model, const struct stage_pass *pass);
/** Different token ids of the model's input. */
uint32_t stage_symbols(const struct model *model);
enum model_input stage_input(const struct model *model);
/** Values of the stage's tensor `i`, and the gradient's (parameters only). */
float *stage_values(const struct model *model, const struct stage *stage, uint32_t i);
float *stage_gradient(const struct model *model, const struct stage *stage, uint32_t i);
/** Add up over the lanes of a team; on a team of one, nothing. Host memory. */
void stage_meet(const struct model *model, double *values, size_t count);
bool stage_has_meeting(const struct model *model);
bool stage_is_leader(const struct model *model);
struct stage *stage_partner(struct model *model, const struct stage *stage);
/** For dropout: of the model's stream, and how many training passes it has made. */
uint64_t stage_stream(const struct model *model);
uint64_t stage_passes(const struct model *model);
/** Where the device reads the latter; NULL: it is the host. */
const uint64_t *model_device_passes(const struct model *model);
/** Of model_set_statistics_pass(). */
uint64_t stage_statistics_pass(const struct model *model);

#endif
