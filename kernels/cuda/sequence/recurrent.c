/*
 * Recurrent layers by cuDNN's RNN calls (version 8 of their form), in float32 whatever the
 * backend's activations are: with bfloat16 ones the library may multiply on tensor cores as TF32
 * (CUDNN_DEFAULT_MATH), which keeps float32's range, as gradients need it; otherwise it may not
 * (CUDNN_FMA_MATH). Gates stand in the library's order: rnn; gru r, z, n; lstm i, f, g, o.
 *
 * Sequences  The library gets [steps][samples][width], so that a stretch of steps is one block of
 *            memory, aligned. With truncation each `truncate` steps are a call of their own, which
 *            begins with the states the one before ended with; gradients do not pass between them.
 * Saved      For each call the library's reserve space, then the states at borders. How much
 *            the library asks for is no simple function of the samples. `saved_values` is the
 *            share of a sample in a full batch and an eighth more; for fewer samples that may be
 *            too little: then the forward pass is run again before the way back, in memory taken
 *            at creation for the greediest of them.
 * States     Where none is given, or none is wanted, the library still gets memory for it.
 */
#include "kernels/cuda/sequence/recurrent.h"

#include "base/mem.h"

#include <limits.h>
#include <stdio.h>

enum { SHAPES = 8, ALIGNMENT = 256, STEPS_MAX = 65535, ARRAYS = 4, STRETCHES = 2 };

/* What is known of calls for a number of samples: of full stretches of steps, and the last one. */
struct shape {
    uint32_t samples; /* 0: unused */
    cudnnRNNDataDescriptor_t x[STRETCHES], y[STRETCHES];
    cudnnTensorDescriptor_t state;
    size_t reserve_bytes[STRETCHES];
    size_t work_bytes;
};

/* Where a gate's part of a parameter is in the weight space. */
struct place {
    uint32_t array; /* input, hidden, bias_input, bias_hidden */
    size_t at, from, count;
};

struct recurrent_cuda {
    struct recurrent base;
    struct cuda_backend *cuda;
    struct recurrent_options options;
    cudnnRNNDescriptor_t description;
    cudnnDropoutDescriptor_t dropout; /* of rate 0 */
    uint32_t calls;                   /* stretches of steps */
    uint32_t steps[STRETCHES];        /* of each but the last, and of the last */
    int32_t *lengths[STRETCHES];      /* of the host: [samples_max], all the same */
    struct place places[RECURRENT_PIECES_MAX];
    uint32_t places_count;
    size_t space_bytes; /* of parameters, as the library wants them */
    float *weights, *dweights;
    float *zeros;      /* [samples_max][hidden] */
    void *spare;       /* reserve spaces of samples that `saved` has no room for */
    size_t work_bytes; /* the most */
    struct shape shapes[SHAPES];
    uint32_t next;
};

/* Parts of the scratch memory. */
struct work {
    float *x, *y, *dy, *dx;
    float *ends[4];  /* [samples][hidden] each */
    void *workspace; /* the library's */
    size_t bytes;    /* of all but the library's */
};

/* One call. */
struct stretch {
    uint32_t index; /* of the descriptors */
    float *x, *y, *dy, *dx;
    void *reserve;
    size_t reserve_bytes;
    const float *hx, *cx; /* states before and after; cells NULL where there are none */
    float *hy, *cy;
};

static struct recurrent_cuda *recurrent_of(struct recurrent *recurrent)
{
    return (struct recurrent_cuda *)recurrent;
}

static bool is_lstm(const struct recurrent_cuda *l)
{
    return l->options.kind == RECURRENT_LSTM;
}

static size_t rounded_up(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static void *take(char *base, size_t *at, size_t bytes)
{
    void *here = base + *at;

    *at += rounded_up(bytes);
    return here;
}

/* With steps in front, sequences of vectors of `width` values. */
static struct recurrent_batch batch_of(const struct recurrent_cuda *l, size_t samples, size_t width)
{
    size_t each = l->steps[0];

    return (struct recurrent_batch){
        .samples = samples,
        .steps = l->options.steps,
        .width = width,
        .each = each,
        .stride = rounded_up(each * samples * width * sizeof(float)) / sizeof(float),
    };
}

static struct work work_of(const struct recurrent_cuda *l, size_t samples)
{
    const struct recurrent_options *o = &l->options;
    size_t in = l->calls * batch_of(l, samples, o->in).stride * sizeof(float);
    size_t out = l->calls * batch_of(l, samples, o->hidden).stride * sizeof(float);
    char *base = l->cuda->scratch;
    struct work w = {0};

    w.x = take(base, &w.bytes, in);
    w.y = take(base, &w.bytes, out);
    if (o->with_gradients) {
        w.dy = take(base, &w.bytes, out);
        w.dx = take(base, &w.bytes, in);
    }
    for (size_t i = 0; i < ARRAY_COUNT(w.ends); i++) {
        w.ends[i] = take(base, &w.bytes, samples * o->hidden * sizeof(float));
    }
    w.workspace = base + w.bytes;
    return w;
}

/* --- shapes ------------------------------------------------------------------------------------*/

static enum rc describe_stretch(struct recurrent_cuda *l, struct shape *shape, uint32_t i)
{
    const struct recurrent_options *o = &l->options;
    struct cuda_backend *cuda = l->cuda;
    size_t work = 0, reserve = 0;
    float padding = 0.0F;
    enum rc rc;

    DNN_TRY(cuda, cudnnSetRNNDataDescriptor(
                      shape->x[i], CUDNN_DATA_FLOAT, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED,
                      (int)l->steps[i], (int)shape->samples, (int)o->in, l->lengths[i], &padding));
    DNN_TRY(cuda, cudnnSetRNNDataDescriptor(shape->y[i], CUDNN_DATA_FLOAT,
                                            CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED,
                                            (int)l->steps[i], (int)shape->samples, (int)o->hidden,
                                            l->lengths[i], &padding));
    DNN_TRY(cuda, cudnnGetRNNTempSpaceSizes(cuda->dnn, l->description, CUDNN_FWD_MODE_INFERENCE,
                                            shape->x[i], &work, &reserve));
    if (work > shape->work_bytes) shape->work_bytes = work;
    shape->reserve_bytes[i] = 0;
    if (!o->with_gradients) return RC_OK;
    DNN_TRY(cuda, cudnnGetRNNTempSpaceSizes(cuda->dnn, l->description, CUDNN_FWD_MODE_TRAINING,
                                            shape->x[i], &work, &shape->reserve_bytes[i]));
    if (work > shape->work_bytes) shape->work_bytes = work;
out:
    return rc;
}

/* For so many samples from now on. */
static enum rc describe_shape(struct recurrent_cuda *l, struct shape *shape, uint32_t samples)
{
    const int extents[] = {1, (int)samples, (int)l->options.hidden};
    const int strides[] = {extents[1] * extents[2], extents[2], 1};
    enum rc rc;

    shape->samples = samples;
    shape->work_bytes = 0;
    DNN_TRY(l->cuda, cudnnSetTensorNdDescriptor(shape->state, CUDNN_DATA_FLOAT,
                                                ARRAY_COUNT(extents), extents, strides));
    for (uint32_t i = 0; rc == RC_OK && i < STRETCHES; i++) {
        rc = describe_stretch(l, shape, i);
    }
out:
    if (rc != RC_OK) shape->samples = 0;
    return rc;
}

static enum rc find_shape(struct recurrent_cuda *l, uint32_t samples, const struct shape **found)
{
    struct shape *shape = &l->shapes[l->next];
    enum rc rc;

    for (size_t i = 0; i < SHAPES; i++) {
        *found = &l->shapes[i];
        if ((*found)->samples == samples) return RC_OK;
    }
    rc = describe_shape(l, shape, samples);
    if (rc != RC_OK) return rc;
    l->next = (l->next + 1) % SHAPES;
    *found = shape;
    return RC_OK;
}

/* --- what a forward pass leaves ----------------------------------------------------------------*/

static size_t state_bytes(const struct recurrent_cuda *l, const struct shape *shape)
{
    return rounded_up((size_t)shape->samples * l->options.hidden * sizeof(float));
}

static size_t states_at(const struct recurrent_cuda *l, const struct shape *shape)
{
    return (l->calls - 1) * rounded_up(shape->reserve_bytes[0]) +
           rounded_up(shape->reserve_bytes[1]);
}

/* In all, with what it takes to align the begin. */
static size_t kept_bytes(const struct recurrent_cuda *l, const struct shape *shape)
{
    size_t states = is_lstm(l) ? 2 : 1;

    return ALIGNMENT + states_at(l, shape) + (l->calls - 1) * states * state_bytes(l, shape);
}

static bool has_room(const struct recurrent_cuda *l, const struct shape *shape)
{
    return kept_bytes(l, shape) <= shape->samples * l->base.saved_values * sizeof(float);
}

/* Where the reserve spaces begin. */
static char *kept_in(const struct recurrent_cuda *l, const struct shape *shape, const float *saved)
{
    uintptr_t begin = has_room(l, shape) ? (uintptr_t)saved : (uintptr_t)l->spare;

    return (char *)((begin + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
}

/* States after call `i`: the first, or the cells. */
static float *state_after(const struct recurrent_cuda *l, const struct shape *shape,
                          const struct work *w, uint32_t i, char *kept, bool is_cell)
{
    size_t states = is_lstm(l) ? 2 : 1;

    if (kept == NULL || i + 1 == l->calls) return is_cell ? w->ends[2 + i % 2] : w->ends[i % 2];
    return (float *)(void *)(kept + states_at(l, shape) +
                             (i * states + (is_cell ? 1 : 0)) * state_bytes(l, shape));
}

/* Call `i`; `kept` NULL: it leaves nothing. */
static struct stretch stretch_of(const struct recurrent_cuda *l, const struct shape *shape,
                                 const struct work *w, uint32_t i, char *kept)
{
    size_t in = batch_of(l, shape->samples, l->options.in).stride;
    size_t out = batch_of(l, shape->samples, l->options.hidden).stride;
    struct stretch s = {
        .index = i + 1 == l->calls ? 1 : 0,
        .x = w->x + i * in,
        .y = w->y + i * out,
        .hx = i == 0 ? l->zeros : state_after(l, shape, w, i - 1, kept, false),
        .hy = state_after(l, shape, w, i, kept, false),
    };

    if (l->options.with_gradients) {
        s.dy = w->dy + i * out;
        s.dx = w->dx + i * in;
    }
    if (kept != NULL) {
        s.reserve = kept + i * rounded_up(shape->reserve_bytes[0]);
        s.reserve_bytes = shape->reserve_bytes[s.index];
    }
    if (is_lstm(l)) {
        s.cx = i == 0 ? l->zeros : state_after(l, shape, w, i - 1, kept, true);
        s.cy = state_after(l, shape, w, i, kept, true);
    }
    return s;
}

/* --- passes ------------------------------------------------------------------------------------*/

static void recurrent_destroy(struct recurrent *recurrent)
{
    struct recurrent_cuda *l = recurrent_of(recurrent);
    struct backend *backend = &l->cuda->base;
    void *const blocks[] = {l->weights, l->dweights, l->zeros, l->spare};

    for (size_t i = 0; i < SHAPES; i++) {
        struct shape *shape = &l->shapes[i];
        for (size_t k = 0; k < STRETCHES; k++) {
            if (shape->x[k] != NULL) (void)cudnnDestroyRNNDataDescriptor(shape->x[k]);
            if (shape->y[k] != NULL) (void)cudnnDestroyRNNDataDescriptor(shape->y[k]);
        }
        if (shape->state != NULL) (void)cudnnDestroyTensorDescriptor(shape->state);
    }
    if (l->description != NULL) (void)cudnnDestroyRNNDescriptor(l->description);
    if (l->dropout != NULL) (void)cudnnDestroyDropoutDescriptor(l->dropout);
    for (size_t i = 0; i < ARRAY_COUNT(blocks); i++) {
        backend->ops->free(backend, blocks[i]);
    }
    mem_free(l->lengths[0]);
    mem_free(l->lengths[1]);
    mem_free(l);
}

/* Parameters or their gradients, in the order of `struct place`. */
static struct recurrent_pieces pieces_of(const struct recurrent_cuda *l, float *const arrays[])
{
    struct recurrent_pieces pieces = {.count = l->places_count};

    for (uint32_t i = 0; i < l->places_count; i++) {
        const struct place *place = &l->places[i];
        pieces.piece[i].at = place->at;
        pieces.piece[i].count = place->count;
        pieces.piece[i].values = arrays[place->array] + place->from;
    }
    return pieces;
}

static enum rc recurrent_prepare(struct recurrent *recurrent, const struct recurrent_weights *w)
{
    struct recurrent_cuda *l = recurrent_of(recurrent);
    float *const arrays[ARRAYS] = {(float *)(uintptr_t)w->input, (float *)(uintptr_t)w->hidden,
                                   (float *)(uintptr_t)w->bias_input,
                                   (float *)(uintptr_t)w->bias_hidden};
    struct recurrent_pieces pieces = pieces_of(l, arrays);

    return cuda_pieces_in(l->cuda, &pieces, l->weights);
}

/* From w->x to w->y. */
static enum rc run_forward(struct recurrent_cuda *l, const struct shape *shape,
                           const struct work *w, char *kept)
{
    struct cuda_backend *cuda = l->cuda;
    cudnnForwardMode_t mode = kept != NULL ? CUDNN_FWD_MODE_TRAINING : CUDNN_FWD_MODE_INFERENCE;
    cudnnTensorDescriptor_t cells = is_lstm(l) ? shape->state : NULL;
    enum rc rc = RC_OK;

    for (uint32_t i = 0; i < l->calls; i++) {
        struct stretch s = stretch_of(l, shape, w, i, kept);

        DNN_TRY(cuda, cudnnRNNForward(cuda->dnn, l->description, mode, NULL, shape->x[s.index], s.x,
                                      shape->y[s.index], s.y, shape->state, s.hx, s.hy, cells, s.cx,
                                      s.cy, l->space_bytes, l->weights, shape->work_bytes,
                                      w->workspace, s.reserve_bytes, s.reserve));
    }
out:
    return rc;
}

static enum rc recurrent_forward(struct recurrent *recurrent, uint32_t samples, const void *x,
                                 void *y, float *saved)
{
    struct recurrent_cuda *l = recurrent_of(recurrent);
    const struct recurrent_options *o = &l->options;
    struct work w = work_of(l, samples);
    const struct shape *shape;
    enum rc rc;

    CHECK(samples > 0 && samples <= o->samples_max);
    rc = find_shape(l, samples, &shape);
    if (rc == RC_OK) {
        rc = cuda_steps_first(l->cuda, batch_of(l, samples, o->in), x, w.x);
    }
    if (rc == RC_OK) {
        bool is_kept = saved != NULL && o->with_gradients && has_room(l, shape);
        rc = run_forward(l, shape, &w, is_kept ? kept_in(l, shape, saved) : NULL);
    }
    if (rc != RC_OK) return rc;
    return cuda_samples_first(l->cuda, batch_of(l, samples, o->hidden), w.y, false, y);
}

static enum rc run_backward(struct recurrent_cuda *l, const struct shape *shape,
                            const struct work *w, char *kept)
{
    struct cuda_backend *cuda = l->cuda;
    bool has_cells = is_lstm(l);
    cudnnTensorDescriptor_t cells = has_cells ? shape->state : NULL;
    enum rc rc;

    CUDA_TRY(cuda, cudaMemsetAsync(l->dweights, 0, l->space_bytes, cuda->stream));
    for (uint32_t i = l->calls; i-- > 0;) {
        struct stretch s = stretch_of(l, shape, w, i, kept);

        DNN_TRY(cuda,
                cudnnRNNBackwardData_v8(
                    cuda->dnn, l->description, NULL, shape->y[s.index], s.y, s.dy,
                    shape->x[s.index], s.dx, shape->state, s.hx, l->zeros, w->ends[0], cells, s.cx,
                    has_cells ? l->zeros : NULL, has_cells ? w->ends[2] : NULL, l->space_bytes,
                    l->weights, shape->work_bytes, w->workspace, s.reserve_bytes, s.reserve));
        DNN_TRY(cuda, cudnnRNNBackwardWeights_v8(cuda->dnn, l->description, CUDNN_WGRAD_MODE_ADD,
                                                 NULL, shape->x[s.index], s.x, shape->state, s.hx,
                                                 shape->y[s.index], s.y, l->space_bytes,
                                                 l->dweights, shape->work_bytes, w->workspace,
                                                 s.reserve_bytes, s.reserve));
    }
out:
    return rc;
}

static enum rc read_batch(struct recurrent_cuda *l, const struct recurrent_backward *pass,
                          const struct work *w)
{
    struct recurrent_batch in = batch_of(l, pass->samples, l->options.in);
    struct recurrent_batch out = batch_of(l, pass->samples, l->options.hidden);
    enum rc rc = cuda_steps_first(l->cuda, in, pass->x, w->x);

    if (rc == RC_OK) rc = cuda_steps_first(l->cuda, out, pass->y, w->y);
    if (rc == RC_OK) rc = cuda_steps_first(l->cuda, out, pass->dy, w->dy);
    return rc;
}

static enum rc recurrent_backward(struct recurrent *recurrent,
                                  const struct recurrent_backward *pass)
{
    struct recurrent_cuda *l = recurrent_of(recurrent);
    const struct recurrent_options *o = &l->options;
    float *const arrays[ARRAYS] = {pass->dinput, pass->dhidden, pass->dbias_input,
                                   pass->dbias_hidden};
    struct recurrent_pieces pieces = pieces_of(l, arrays);
    struct work w = work_of(l, pass->samples);
    const struct shape *shape;
    char *kept;
    enum rc rc;

    CHECK(pass->samples > 0 && pass->samples <= o->samples_max && o->with_gradients);
    CHECK(pass->saved != NULL && (pass->dx == NULL || o->with_input_gradient));
    rc = find_shape(l, pass->samples, &shape);
    if (rc == RC_OK) rc = read_batch(l, pass, &w);
    if (rc != RC_OK) return rc;
    kept = kept_in(l, shape, pass->saved);
    if (!has_room(l, shape)) rc = run_forward(l, shape, &w, kept);
    if (rc == RC_OK) rc = run_backward(l, shape, &w, kept);
    if (rc == RC_OK) rc = cuda_pieces_out(l->cuda, &pieces, l->dweights, !pass->is_first);
    if (rc != RC_OK || pass->dx == NULL) return rc;
    return cuda_samples_first(l->cuda, batch_of(l, pass->samples, o->in), w.dx, pass->adds_to_dx,
                              pass->dx);
}

static const struct recurrent_ops recurrent_ops = {
    .name = "cudnn",
    .destroy = recurrent_destroy,
    .prepare = recurrent_prepare,
    .forward = recurrent_forward,
    .backward = recurrent_backward,
};

/* --- creation ----------------------------------------------------------------------------------*/

static cudnnRNNMode_t mode_of(enum recurrent_kind kind)
{
    switch (kind) {
    case RECURRENT_GRU:
        return CUDNN_GRU;
    case RECURRENT_LSTM:
        return CUDNN_LSTM;
    case RECURRENT_RNN:
    default:
        return CUDNN_RNN_TANH;
    }
}

static enum rc describe(struct recurrent_cuda *l)
{
    const struct recurrent_options *o = &l->options;
    struct cuda_backend *cuda = l->cuda;
    cudnnMathType_t math = cuda->is_bf16 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH;
    enum rc rc;

    DNN_TRY(cuda, cudnnCreateDropoutDescriptor(&l->dropout));
    DNN_TRY(cuda, cudnnSetDropoutDescriptor(l->dropout, cuda->dnn, 0.0F, NULL, 0, 0));
    DNN_TRY(cuda, cudnnCreateRNNDescriptor(&l->description));
    DNN_TRY(cuda, cudnnSetRNNDescriptor_v8(
                      l->description, CUDNN_RNN_ALGO_STANDARD, mode_of(o->kind),
                      CUDNN_RNN_DOUBLE_BIAS, CUDNN_UNIDIRECTIONAL, CUDNN_LINEAR_INPUT,
                      CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, math, (int32_t)o->in, (int32_t)o->hidden,
                      (int32_t)o->hidden, 1, l->dropout, CUDNN_RNN_PADDED_IO_ENABLED));
    for (size_t i = 0; i < SHAPES; i++) {
        struct shape *shape = &l->shapes[i];
        DNN_TRY(cuda, cudnnCreateTensorDescriptor(&shape->state));
        for (size_t k = 0; k < STRETCHES; k++) {
            DNN_TRY(cuda, cudnnCreateRNNDataDescriptor(&shape->x[k]));
            DNN_TRY(cuda, cudnnCreateRNNDataDescriptor(&shape->y[k]));
        }
    }
out:
    return rc;
}

static void add_place(struct recurrent_cuda *l, struct place place)
{
    struct place *last = &l->places[l->places_count];

    if (l->places_count > 0) {
        last--;
        if (last->array == place.array && last->at + last->count == place.at &&
            last->from + last->count == place.from) {
            last->count += place.count;
            return;
        }
        last++;
    }
    *last = place;
    l->places_count++;
}

/* Where the library wants the parameters, those of a matrix or bias together. */
static enum rc find_places(struct recurrent_cuda *l)
{
    const struct recurrent_options *o = &l->options;
    struct cuda_backend *cuda = l->cuda;
    uint32_t gates = recurrent_gates(o->kind);
    cudnnTensorDescriptor_t matrix = NULL, bias = NULL;
    enum rc rc;

    DNN_TRY(cuda, cudnnCreateTensorDescriptor(&matrix));
    DNN_TRY(cuda, cudnnCreateTensorDescriptor(&bias));
    for (uint32_t i = 0; i < ARRAYS * gates; i++) {
        uint32_t array = i / gates, gate = i % gates;
        bool is_bias = array >= 2, is_hidden = array % 2 == 1;
        void *addresses[2] = {NULL, NULL};
        size_t count = is_bias ? o->hidden : (size_t)o->hidden * (is_hidden ? o->hidden : o->in);
        const float *at;

        DNN_TRY(cuda,
                cudnnGetRNNWeightParams(cuda->dnn, l->description, 0, l->space_bytes, l->weights,
                                        (int32_t)(is_hidden ? gates + gate : gate), matrix,
                                        &addresses[0], bias, &addresses[1]));
        at = addresses[is_bias ? 1 : 0];
        CHECK(at >= l->weights && at + count <= l->weights + l->space_bytes / sizeof(float));
        add_place(l, (struct place){array, (size_t)(at - l->weights), gate * count, count});
    }
out:
    if (bias != NULL) (void)cudnnDestroyTensorDescriptor(bias);
    if (matrix != NULL) (void)cudnnDestroyTensorDescriptor(matrix);
    return rc;
}

static enum rc take_parameters(struct recurrent_cuda *l)
{
    struct backend *backend = &l->cuda->base;
    enum rc rc;

    DNN_TRY(l->cuda, cudnnGetRNNWeightSpaceSize(l->cuda->dnn, l->description, &l->space_bytes));
    l->weights = backend->ops->alloc(backend, l->space_bytes);
    if (l->weights == NULL) return RC_NOMEM;
    if (l->options.with_gradients) {
        l->dweights = backend->ops->alloc(backend, l->space_bytes);
        if (l->dweights == NULL) return RC_NOMEM;
    }
    rc = find_places(l);
out:
    return rc;
}

/* The library takes them from the descriptors; a copy on the device is not wanted since 8.9.1. */
static enum rc take_lengths(struct recurrent_cuda *l)
{
    struct backend *backend = &l->cuda->base;
    size_t count = l->options.samples_max;

    l->zeros = backend->ops->alloc(backend, count * l->options.hidden * sizeof(float));
    if (l->zeros == NULL) return RC_NOMEM;
    for (size_t i = 0; i < STRETCHES; i++) {
        l->lengths[i] = mem_array(count, sizeof(int32_t));
        if (l->lengths[i] == NULL) return RC_NOMEM;
        for (size_t k = 0; k < count; k++) {
            l->lengths[i][k] = (int32_t)l->steps[i];
        }
    }
    return RC_OK;
}

/* Ask for each number of samples; a full batch is asked for last, and remembered. */
static enum rc measure(struct recurrent_cuda *l, size_t *spare_bytes)
{
    struct shape *shape = &l->shapes[0];
    uint32_t most = l->options.samples_max;
    enum rc rc = describe_shape(l, shape, most);

    if (rc == RC_OK && l->options.with_gradients) {
        size_t share = (kept_bytes(l, shape) / sizeof(float) + most - 1) / most;
        l->base.saved_values = share + share / 8 + 1;
    }
    for (uint32_t samples = 1; rc == RC_OK && samples <= most; samples++) {
        rc = describe_shape(l, shape, samples);
        if (rc != RC_OK) break;
        if (shape->work_bytes > l->work_bytes) l->work_bytes = shape->work_bytes;
        if (!l->options.with_gradients || has_room(l, shape)) continue;
        if (kept_bytes(l, shape) > *spare_bytes) *spare_bytes = kept_bytes(l, shape);
    }
    l->next = 1;
    return rc;
}

static enum rc create(struct recurrent_cuda *l)
{
    struct backend *backend = &l->cuda->base;
    size_t spare_bytes = 0;
    enum rc rc = describe(l);

    if (rc == RC_OK) rc = take_parameters(l);
    if (rc == RC_OK) rc = take_lengths(l);
    if (rc == RC_OK) rc = measure(l, &spare_bytes);
    if (rc == RC_OK) {
        size_t bytes = work_of(l, l->options.samples_max).bytes + l->work_bytes;
        rc = cuda_scratch_reserve(l->cuda, bytes);
    }
    if (rc == RC_OK && spare_bytes > 0) {
        l->spare = backend->ops->alloc(backend, spare_bytes);
        if (l->spare == NULL) rc = RC_NOMEM;
    }
    return rc;
}

enum rc cuda_recurrent_create(struct backend *backend, const struct recurrent_options *options,
                              struct recurrent **recurrent)
{
    struct cuda_backend *cuda = cuda_of(backend);
    struct recurrent_cuda *l;
    uint32_t each = options->truncate == 0 || options->truncate > options->steps
                        ? options->steps
                        : options->truncate;
    enum rc rc;

    CHECK(options->in > 0 && options->hidden > 0 && options->steps > 0 && options->samples_max > 0);
    if (options->steps > STEPS_MAX || options->in > INT_MAX ||
        (uint64_t)options->samples_max * options->hidden > INT_MAX) {
        snprintf(cuda->why, sizeof(cuda->why), "GPU %d: cuDNN has no sequences of %u steps of %u",
                 cuda->device, options->steps, options->hidden);
        return RC_UNSUPPORTED;
    }
    l = mem_alloc(sizeof(*l));
    if (l == NULL) return RC_NOMEM;
    l->base.ops = &recurrent_ops;
    l->cuda = cuda;
    l->options = *options;
    l->calls = (options->steps + each - 1) / each;
    l->steps[0] = each;
    l->steps[1] = options->steps - (l->calls - 1) * each;
    rc = create(l);
    if (rc != RC_OK) {
        recurrent_destroy(&l->base);
        return rc;
    }
    *recurrent = &l->base;
    return RC_OK;
}
