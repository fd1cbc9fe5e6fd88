/*
 * model_plan: the inside of a model: its stages, the values between them, and their memory.
 * build.c makes stages from layers, memory.c cuts segments and places buffers,
 * model.c runs them. Internal to replica/model and replica/layers.
 */
#ifndef GRAPEVINE_REPLICA_MODEL_PLAN_H
#define GRAPEVINE_REPLICA_MODEL_PLAN_H

#include "replica/model/stage.h"

enum { STAGES_MAX = 1024 };

struct value {
    struct shape shape;
    uint32_t producer;      /* stage; NO_STAGE: the model's input */
    uint32_t consumers;     /* how many stages read it */
    uint32_t last_consumer; /* stage */
    uint32_t home;          /* the value whose memory it has: itself, or another */
    uint32_t gradient_home; /* the same for gradients */
    bool has_gradient;      /* it depends on parameters, and gradients are wanted */

    /* Of homes: */
    bool is_whole, is_gradient_whole; /* the batch in memory, not just a slice */
    float *data, *gradient;
};

enum buffer_kind { BUFFER_VALUE, BUFFER_GRADIENT, BUFFER_SAVED };

/* One piece of an arena, and when it is needed. Stage i computes forward at time i and backward at
 * 2 n - 1 - i, for n stages. */
struct buffer {
    enum buffer_kind kind;
    uint32_t owner;       /* value (a home) or stage */
    bool is_whole;        /* in the arena of whole batches, not of slices */
    uint32_t from, to;    /* times, both included */
    size_t bytes, offset; /* 0 bytes: there is none */
};

/* Consecutive stages that run slice by slice. */
struct segment {
    uint32_t first, count; /* stages */
    uint32_t slice;        /* samples */
};

struct model {
    struct backend *backend;
    struct schema schema;
    struct init *inits; /* by tensor */
    uint32_t inits_max;
    struct layer_list layers;
    char spec[LAYERS_TEXT_BYTES];
    struct shape input;
    enum model_input input_kind;
    uint32_t classes, symbols, batch_max;
    uint64_t seed;
    uint64_t file_values; /* model_options.file_values */
    bool with_gradients;
    uint32_t context;  /* stepwise: positions of a text that it remembers; 0: it is not */
    uint32_t position; /* the next one */
    uint32_t heads;    /* of the last layer; 1 unless it is a block of heads */

    struct stage *stages; /* [STAGES_MAX] */
    uint32_t stages_count;
    struct value *values; /* [STAGES_MAX + 1]; 0 is the input */
    uint32_t values_count;
    struct segment *segments; /* [STAGES_MAX] */
    uint32_t segments_count;
    void **saved; /* by stage */
    struct buffer *buffers;
    uint32_t buffers_count;
    bool is_unshared; /* every value has memory of its own: what sharing must agree with */
    char *whole_arena, *slice_arena;
    size_t whole_bytes, slice_bytes, unshared_bytes;
    float *tail;                  /* last slice of the input, padded with zeros */
    float *scratch;               /* a slice's gradient, where a stage cannot add */
    float *merged;                /* logits of all heads of a device, on the host; or NULL */
    float *mean, *scale;          /* of the input, [channels], on the host */
    float *planes[SECTION_COUNT]; /* on the backend */

    struct model *leader;                /* NULL: it has planes of its own */
    _Atomic(uint64_t) version;           /* of its own planes' values: see model_plane() */
    uint64_t prepared;                   /* for evaluation, at this version; 0: not */
    _Atomic(uint64_t) written;           /* times that its own parameters may have been written */
    uint64_t copied;                     /* copies of them are as of this time; 0: of none */
    const struct model_meeting *meeting; /* NULL: it has the whole batch */
    uint32_t lane;
    uint32_t first;          /* sample of the whole batch that its batch begins with */
    const atomic_bool *stop; /* of training passes; NULL: none */
    uint32_t closed;         /* stages of the pass that have been closed, with their meetings */

    uint64_t stream, passes;             /* of dropout */
    uint64_t statistics_pass;            /* model_set_statistics_pass() */
    const float *input_values;           /* of the last training pass, borrowed */
    const float *logits;                 /* of the last pass, in host memory; NULL: not there */
    uint32_t batch;                      /* of the last training pass; 0: none to go back from */
    const struct model_profile *profile; /* NULL: not wanted */
    struct model_device *device;         /* NULL: its memory is the host's */
};

/* Whose planes it computes with. */
static inline struct model *model_owner(struct model *model)
{
    return model->leader != NULL ? model->leader : model;
}

struct recorded_pass {
    struct recording *recording; /* NULL: none yet */
    uint32_t equal_passes;       /* so many times in a row, others of the step between */
};

/* What a model has beside its plan where memory is not the host's (device.c). */
struct model_device {
    float *input;          /* [batch_max] samples as the first stages read them */
    float *floats;         /* the same as the host has them; NULL: the stages read them so */
    void *outputs;         /* on the host: of a batch, as the backend has them; NULL until wanted */
    uint32_t *labels;      /* the number of rows that count, then a label for each */
    uint32_t *labels_host; /* the same, on the host */
    float *targets;        /* real values; NULL until wanted */
    uint64_t *passes;      /* training passes so far */
    struct loss_sums *sums;
    struct recorded_pass recorded[4]; /* that overwrite gradients, or add to them, and that sum them
                                         up over devices, or not */
    uint32_t recorded_batch;          /* with so many samples */
    uint32_t recorded_first;          /* from this one of the whole batch on: where dropout draws */
    bool with_targets;                /* of the last pass */
    bool is_unrecordable;             /* some call cannot be recorded */
    float *read[SECTION_COUNT];       /* copies that model_host_plane() handed out */
    struct parameter_copies *copies;  /* which an update writes, too; NULL: there are none */
};

/* device.c */
MUST_USE enum rc model_device_create(struct model *model);
void model_device_destroy(struct model *model);
const char *model_device_why(const struct model *model);
/** The input of a pass to the device. */
MUST_USE enum rc model_device_feed(struct model *model, const float *input, uint32_t batch);
/** `rows` rows of outputs (on the device) to the host, as float32. */
MUST_USE enum rc model_device_fetch(struct model *model, const void *outputs, size_t rows,
                                    float *logits);
/** The other way round: a gradient of the host's as that of the outputs. */
MUST_USE enum rc model_device_give(struct model *model, const float *gradient, size_t rows,
                                   void *to);
/** model_host_plane() here. */
MUST_USE enum rc model_device_read(struct model *model, enum section section, const float **values);
/** Until all that was called is done. */
void model_device_wait(const struct model *model);

/* model.c: the stages alone; all on the backend. */
/** Fill the copies that updates keep, if parameters have been written otherwise since. */
MUST_USE enum rc model_fill_copies(struct model *model);
MUST_USE enum rc model_run_forward(struct model *model, const float *input, uint32_t batch,
                                   bool is_training);
/** `adds`: to the gradients of parameters, instead of overwriting them; `sums_up`: see model_feed.
 */
MUST_USE enum rc model_run_backward(struct model *model, const float *input, uint32_t batch,
                                    bool adds, bool sums_up);
float *model_output(const struct model *model);
/** NULL: nothing depends on parameters. */
float *model_output_gradient(const struct model *model);

/** model_create(), where tests can ask for memory that nothing shares. */
MUST_USE enum rc model_create_unshared(struct backend *backend, const struct model_options *options,
                                       struct model **model, struct fault *why);

/** Stages from layers: order, shapes, fusions, tensors in the schema. RC_SHAPE, RC_LIMIT, RC_NOMEM.
 */
MUST_USE enum rc model_build(struct model *model, struct fault *why);
/** Segments, buffers and planes. RC_NOMEM. */
MUST_USE enum rc model_place(struct model *model, struct fault *why);
void model_release(struct model *model);

/** Whether stage `s` adds to the gradient of its input `i`, rather than writing it first. */
bool model_adds(const struct model *model, uint32_t s, uint32_t i);

/** Take part in what is left of the meetings of a pass, having no samples or having failed. */
void model_attend(struct model *model, bool is_training, bool is_backward);

#endif
