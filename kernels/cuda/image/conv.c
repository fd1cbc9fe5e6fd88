/*
 * Convolutions by cuDNN (its calls cudnnConvolution*, deprecated in version 9 but whole: they ask
 * for no graph of operations and leave the choice of algorithms to the caller).
 *
 * Layouts  float32: plain images, multiplied as such (CUDNN_FMA_MATH: never as TF32). bfloat16:
 *          channels last, on tensor cores, with filters [out][height][width][in] that prepare()
 *          makes; gradients of filters come as bfloat16 and are added up in float32. Inputs of
 *          another layout are rewritten on the way, and so are their gradients.
 * Choice   For each pass the library lists its algorithms, best first, by a heuristic; the first
 *          that is deterministic, fits into a workspace of WORKSPACE_BYTES_MAX and runs, is taken.
 *          It is tried at creation, in memory of its own. Bias and relu follow by a kernel of ours:
 *          the library's relu makes 0 of a NaN, which then nobody would notice.
 *          The list depends on shape and device alone, so that equal calls give equal bits;
 *          measuring would not, and takes seconds for a net of fifty layers.
 * Others   What cuDNN has nothing for, and locally connected layers, conv_local.cu computes.
 */
#include "base/check.h"
#include "base/mem.h"
#include "kernels/cuda/internal.h"

#include <limits.h>
#include <stdio.h>

enum { CHOICES_MAX = 16, SCRATCH_ALIGNMENT = 256, OPERAND_ALIGNMENT = 16 };
#define WORKSPACE_BYTES_MAX ((size_t)256 << 20)

enum pass_kind { PASS_FORWARD, PASS_DATA, PASS_WEIGHTS, PASSES };

/* A line of the library's list. */
struct choice {
    int algorithm;
    cudnnStatus_t status;
    size_t workspace_bytes;
    cudnnDeterminism_t determinism;
    cudnnMathType_t math;
};

struct pass {
    cudnnConvolutionDescriptor_t conv;
    int algorithm, rank; /* the library's number, and its place in the library's list */
    size_t workspace_bytes;
};

/* What a pass reads and writes, in the library's layouts. */
struct operands {
    void *x, *filters, *y;
    bool adds; /* to the gradient of the filters */
};

struct conv_cuda {
    struct conv base;
    struct cuda_backend *cuda;
    struct conv_options options;
    struct image_shape in; /* as the library reads it */
    bool is_last;          /* images and filters have their channels last there */
    bool rewrites;         /* options.in is of another layout */
    cudnnTensorDescriptor_t x, y;
    cudnnFilterDescriptor_t filter;
    struct pass passes[PASSES];
    void *filters;     /* in the library's layout and type */
    const float *bias; /* borrowed from prepare() */
    size_t x_bytes, filters_bytes;
    size_t filters_at, workspace_at; /* in the scratch memory, behind images rewritten */
};

static struct conv_cuda *conv_of(struct conv *conv)
{
    return (struct conv_cuda *)conv;
}

static size_t rounded_up(size_t bytes)
{
    return (bytes + SCRATCH_ALIGNMENT - 1) / SCRATCH_ALIGNMENT * SCRATCH_ALIGNMENT;
}

static void *scratch_at(const struct conv_cuda *c, size_t at)
{
    return (char *)c->cuda->scratch + at;
}

/* --- calls -------------------------------------------------------------------------------------*/

static cudnnStatus_t run_forward(const struct conv_cuda *c, const struct operands *o)
{
    const struct pass *pass = &c->passes[PASS_FORWARD];
    const float one = 1.0F, zero = 0.0F;

    return cudnnConvolutionForward(c->cuda->dnn, &one, c->x, o->x, c->filter, o->filters,
                                   pass->conv, (cudnnConvolutionFwdAlgo_t)pass->algorithm,
                                   scratch_at(c, c->workspace_at), pass->workspace_bytes, &zero,
                                   c->y, o->y);
}

static cudnnStatus_t run_data(const struct conv_cuda *c, const struct operands *o)
{
    const struct pass *pass = &c->passes[PASS_DATA];
    const float one = 1.0F, zero = 0.0F;

    return cudnnConvolutionBackwardData(c->cuda->dnn, &one, c->filter, o->filters, c->y, o->y,
                                        pass->conv, (cudnnConvolutionBwdDataAlgo_t)pass->algorithm,
                                        scratch_at(c, c->workspace_at), pass->workspace_bytes,
                                        &zero, c->x, o->x);
}

static cudnnStatus_t run_weights(const struct conv_cuda *c, const struct operands *o)
{
    const struct pass *pass = &c->passes[PASS_WEIGHTS];
    const float one = 1.0F, beta = o->adds ? 1.0F : 0.0F;

    return cudnnConvolutionBackwardFilter(c->cuda->dnn, &one, c->x, o->x, c->y, o->y, pass->conv,
                                          (cudnnConvolutionBwdFilterAlgo_t)pass->algorithm,
                                          scratch_at(c, c->workspace_at), pass->workspace_bytes,
                                          &beta, c->filter, o->filters);
}

static cudnnStatus_t (*const run_pass[PASSES])(const struct conv_cuda *c,
                                               const struct operands *o) = {
    [PASS_FORWARD] = run_forward,
    [PASS_DATA] = run_data,
    [PASS_WEIGHTS] = run_weights,
};

/* --- choosing algorithms -----------------------------------------------------------------------*/

static enum rc list_forward(const struct conv_cuda *c, struct choice *choices, int *count)
{
    cudnnConvolutionFwdAlgoPerf_t list[CHOICES_MAX];
    enum rc rc;

    DNN_TRY(c->cuda, cudnnGetConvolutionForwardAlgorithm_v7(c->cuda->dnn, c->x, c->filter,
                                                            c->passes[PASS_FORWARD].conv, c->y,
                                                            CHOICES_MAX, count, list));
    for (int i = 0; i < *count; i++) {
        choices[i] = (struct choice){(int)list[i].algo, list[i].status, list[i].memory,
                                     list[i].determinism, list[i].mathType};
    }
out:
    return rc;
}

static enum rc list_data(const struct conv_cuda *c, struct choice *choices, int *count)
{
    cudnnConvolutionBwdDataAlgoPerf_t list[CHOICES_MAX];
    enum rc rc;

    DNN_TRY(c->cuda, cudnnGetConvolutionBackwardDataAlgorithm_v7(c->cuda->dnn, c->filter, c->y,
                                                                 c->passes[PASS_DATA].conv, c->x,
                                                                 CHOICES_MAX, count, list));
    for (int i = 0; i < *count; i++) {
        choices[i] = (struct choice){(int)list[i].algo, list[i].status, list[i].memory,
                                     list[i].determinism, list[i].mathType};
    }
out:
    return rc;
}

static enum rc list_weights(const struct conv_cuda *c, struct choice *choices, int *count)
{
    cudnnConvolutionBwdFilterAlgoPerf_t list[CHOICES_MAX];
    enum rc rc;

    DNN_TRY(c->cuda, cudnnGetConvolutionBackwardFilterAlgorithm_v7(
                         c->cuda->dnn, c->x, c->y, c->passes[PASS_WEIGHTS].conv, c->filter,
                         CHOICES_MAX, count, list));
    for (int i = 0; i < *count; i++) {
        choices[i] = (struct choice){(int)list[i].algo, list[i].status, list[i].memory,
                                     list[i].determinism, list[i].mathType};
    }
out:
    return rc;
}

static enum rc list_choices(const struct conv_cuda *c, enum pass_kind kind, struct choice *choices,
                            int *count)
{
    switch (kind) {
    case PASS_FORWARD:
        return list_forward(c, choices, count);
    case PASS_DATA:
        return list_data(c, choices, count);
    case PASS_WEIGHTS:
    case PASSES:
    default:
        return list_weights(c, choices, count);
    }
}

static bool may_be_taken(const struct conv_cuda *c, const struct choice *choice)
{
    bool is_exact = choice->math == CUDNN_FMA_MATH || choice->math == CUDNN_DEFAULT_MATH;

    return choice->status == CUDNN_STATUS_SUCCESS && choice->determinism == CUDNN_DETERMINISTIC &&
           choice->workspace_bytes <= WORKSPACE_BYTES_MAX && (c->cuda->is_bf16 || is_exact);
}

/* RC_UNSUPPORTED: none runs; RC_NOMEM: none fits. A refusal on trial is no failure, so it leaves no
 * text. */
static enum rc choose(struct conv_cuda *c, enum pass_kind kind, const struct operands *trial)
{
    struct pass *pass = &c->passes[kind];
    struct choice choices[CHOICES_MAX];
    int count = 0;
    enum rc rc = list_choices(c, kind, choices, &count), none = RC_UNSUPPORTED;

    if (rc != RC_OK) return rc;
    for (int i = 0; i < count; i++) {
        cudnnMathType_t math = c->cuda->is_bf16 ? choices[i].math : CUDNN_FMA_MATH;

        if (!may_be_taken(c, &choices[i])) continue;
        rc = cuda_scratch_reserve(c->cuda, c->workspace_at + choices[i].workspace_bytes);
        if (rc != RC_OK) {
            none = rc;
            continue;
        }
        DNN_TRY(c->cuda, cudnnSetConvolutionMathType(pass->conv, math));
        pass->algorithm = choices[i].algorithm;
        pass->rank = i + 1;
        pass->workspace_bytes = choices[i].workspace_bytes;
        if (run_pass[kind](c, trial) == CUDNN_STATUS_SUCCESS) return RC_OK;
    }
    return none;
out:
    return rc;
}

static enum rc choose_all(struct conv_cuda *c)
{
    struct backend *backend = &c->cuda->base;
    size_t y_bytes = c->options.images * image_values(c->base.out) * backend->value_bytes;
    struct operands trial = {
        .x = backend->ops->alloc(backend, c->x_bytes),
        .filters = backend->ops->alloc(backend, c->filters_bytes),
        .y = backend->ops->alloc(backend, y_bytes),
    };
    enum rc rc = RC_NOMEM;

    if (trial.x == NULL || trial.filters == NULL || trial.y == NULL) goto out;
    rc = choose(c, PASS_FORWARD, &trial);
    if (rc == RC_OK && c->options.with_gradients) {
        rc = choose(c, PASS_WEIGHTS, &trial);
        if (rc == RC_OK && c->options.with_input_gradient) rc = choose(c, PASS_DATA, &trial);
    }
    if (rc != RC_OK) goto out;
    CUDA_TRY(c->cuda, cudaStreamSynchronize(c->cuda->stream)); /* did they run to their end? */
out:
    backend->ops->free(backend, trial.y);
    backend->ops->free(backend, trial.filters);
    backend->ops->free(backend, trial.x);
    return rc;
}

/* --- descriptions ------------------------------------------------------------------------------*/

static cudnnTensorFormat_t format_of(const struct conv_cuda *c)
{
    return c->is_last ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW;
}

static cudnnDataType_t type_of(const struct conv_cuda *c)
{
    return c->cuda->is_bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

static enum rc describe_images(struct conv_cuda *c, struct image_shape shape, uint32_t images,
                               cudnnTensorDescriptor_t *tensor)
{
    enum rc rc;

    DNN_TRY(c->cuda, cudnnCreateTensorDescriptor(tensor));
    DNN_TRY(c->cuda,
            cudnnSetTensor4dDescriptor(*tensor, format_of(c), type_of(c), (int)images,
                                       (int)shape.channels, (int)shape.height, (int)shape.width));
out:
    return rc;
}

static enum rc describe_filter(struct conv_cuda *c)
{
    const struct conv_options *o = &c->options;
    enum rc rc;

    DNN_TRY(c->cuda, cudnnCreateFilterDescriptor(&c->filter));
    DNN_TRY(c->cuda,
            cudnnSetFilter4dDescriptor(c->filter, type_of(c), format_of(c), (int)o->out_channels,
                                       (int)(o->in.channels / o->groups), (int)o->kernel_height,
                                       (int)o->kernel_width));
out:
    return rc;
}

static enum rc describe_pass(struct conv_cuda *c, struct pass *pass)
{
    const struct conv_options *o = &c->options;
    cudnnMathType_t math = c->cuda->is_bf16 ? CUDNN_TENSOR_OP_MATH : CUDNN_FMA_MATH;
    enum rc rc;

    DNN_TRY(c->cuda, cudnnCreateConvolutionDescriptor(&pass->conv));
    DNN_TRY(c->cuda, cudnnSetConvolution2dDescriptor(
                         pass->conv, (int)o->padding_height, (int)o->padding_width, (int)o->stride,
                         (int)o->stride, (int)o->dilation, (int)o->dilation,
                         CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
    DNN_TRY(c->cuda, cudnnSetConvolutionGroupCount(pass->conv, (int)o->groups));
    DNN_TRY(c->cuda, cudnnSetConvolutionMathType(pass->conv, math));
out:
    return rc;
}

static enum rc describe(struct conv_cuda *c)
{
    enum rc rc = describe_images(c, c->in, c->options.images, &c->x);

    if (rc == RC_OK) rc = describe_images(c, c->base.out, c->options.images, &c->y);
    if (rc == RC_OK) rc = describe_filter(c);
    for (size_t i = 0; rc == RC_OK && i < PASSES; i++) {
        rc = describe_pass(c, &c->passes[i]);
    }
    return rc;
}

/* --- the layer ---------------------------------------------------------------------------------*/

static void conv_destroy(struct conv *conv)
{
    struct conv_cuda *c = conv_of(conv);
    struct backend *backend = &c->cuda->base;

    for (size_t i = 0; i < PASSES; i++) {
        if (c->passes[i].conv == NULL) continue;
        (void)cudnnDestroyConvolutionDescriptor(c->passes[i].conv);
    }
    if (c->filter != NULL) (void)cudnnDestroyFilterDescriptor(c->filter);
    if (c->y != NULL) (void)cudnnDestroyTensorDescriptor(c->y);
    if (c->x != NULL) (void)cudnnDestroyTensorDescriptor(c->x);
    backend->ops->free(backend, c->filters);
    mem_free(c);
}

static size_t taps_of(const struct conv_cuda *c)
{
    return (size_t)c->options.kernel_height * c->options.kernel_width;
}

static enum rc conv_prepare(struct conv *conv, const float *weight, const float *bias)
{
    struct conv_cuda *c = conv_of(conv);
    const struct conv_options *o = &c->options;
    struct cuda_backend *cuda = c->cuda;

    CHECK((bias != NULL) == o->with_bias);
    c->bias = bias;
    if (c->is_last) {
        return cuda_filters_to_last(cuda, o->out_channels, o->in.channels / o->groups, taps_of(c),
                                    weight, c->filters);
    }
    return cuda_to_activations(&cuda->base, weight, c->filters, conv_weight_values(o));
}

/* What the library does not do in its forward pass. */
static enum rc finish_forward(struct conv_cuda *c, void *y)
{
    const struct conv_options *o = &c->options;
    struct backend *backend = &c->cuda->base;

    if (o->with_bias) {
        return cuda_channel_bias(c->cuda, c->base.out, o->images, c->bias, o->with_relu, y);
    }
    if (!o->with_relu) return RC_OK;
    return cuda_relu_forward(backend, y, o->images * image_values(c->base.out));
}

/* The caller's images in the library's layout; the scratch memory's first part is for them. */
static enum rc read_input(struct conv_cuda *c, const void *x, void **here)
{
    *here = (void *)(uintptr_t)x;
    if (!c->rewrites) return RC_OK;
    *here = scratch_at(c, 0);
    return cuda_relayout(&c->cuda->base, c->options.in, c->in.block, c->options.images, x, *here);
}

static enum rc conv_forward(struct conv *conv, const void *x, void *y)
{
    struct conv_cuda *c = conv_of(conv);
    struct operands operands = {.filters = c->filters, .y = y};
    enum rc rc = read_input(c, x, &operands.x);

    if (rc != RC_OK) return rc;
    DNN_TRY(c->cuda, run_forward(c, &operands));
    return finish_forward(c, y);
out:
    return rc;
}

static enum rc conv_backward_data(struct conv *conv, const void *dy, void *dx)
{
    struct conv_cuda *c = conv_of(conv);
    const struct operands operands = {
        .x = c->rewrites ? scratch_at(c, 0) : dx,
        .filters = c->filters,
        .y = (void *)(uintptr_t)dy,
    };
    enum rc rc;

    CHECK(c->options.with_input_gradient);
    DNN_TRY(c->cuda, run_data(c, &operands));
    if (!c->rewrites) return RC_OK;
    return cuda_relayout(&c->cuda->base, c->in, c->options.in.block, c->options.images, operands.x,
                         dx);
out:
    return rc;
}

/* Gradients of the library's type and layout, to where they belong. */
static enum rc hand_over(struct conv_cuda *c, const void *gradients, bool adds, float *dweight)
{
    const struct conv_options *o = &c->options;
    size_t values = conv_weight_values(o);
    struct backend *backend = &c->cuda->base;

    if (gradients == dweight) return RC_OK;
    if (c->is_last) {
        return cuda_filters_from_last(c->cuda, o->out_channels, o->in.channels / o->groups,
                                      taps_of(c), gradients, adds, dweight);
    }
    if (c->cuda->is_bf16) return cuda_from_bf16(c->cuda, gradients, adds, dweight, values);
    if (adds) return cuda_axpy(backend, 1.0F, gradients, dweight, values);
    return backend->ops->copy(backend, dweight, gradients, values * sizeof(float));
}

static enum rc conv_backward_weights(struct conv *conv, const void *x, const void *dy,
                                     bool is_first, float *dweight, float *dbias)
{
    struct conv_cuda *c = conv_of(conv);
    bool is_direct = !c->cuda->is_bf16 && (uintptr_t)dweight % OPERAND_ALIGNMENT == 0;
    struct operands operands = {
        .filters = is_direct ? (void *)dweight : scratch_at(c, c->filters_at),
        .y = (void *)(uintptr_t)dy,
        .adds = is_direct && !is_first,
    };
    enum rc rc = read_input(c, x, &operands.x);

    CHECK(c->options.with_gradients && (dbias != NULL) == c->options.with_bias);
    if (rc != RC_OK) goto out;
    DNN_TRY(c->cuda, run_weights(c, &operands));
    rc = hand_over(c, operands.filters, !is_first, dweight);
    if (rc != RC_OK || dbias == NULL) goto out;
    rc = cuda_channel_sums(c->cuda, c->base.out, c->options.images, dy, !is_first, dbias);
out:
    return rc;
}

static const struct conv_ops conv_ops = {
    .name = "cudnn",
    .destroy = conv_destroy,
    .prepare = conv_prepare,
    .forward = conv_forward,
    .backward_data = conv_backward_data,
    .backward_weights = conv_backward_weights,
};

static bool is_same_layout(struct image_shape a, struct image_shape b)
{
    return a.block == b.block || a.channels == 1 || (size_t)a.height * a.width == 1;
}

/* Sums of channels begin in the scratch memory anew, when all else there is done with. */
static enum rc take_memory(struct conv_cuda *c)
{
    struct backend *backend = &c->cuda->base;
    const struct conv_options *o = &c->options;

    c->x_bytes = o->images * image_values(o->in) * backend->value_bytes;
    c->filters_bytes = conv_weight_values(o) * backend->value_bytes;
    c->filters_at = c->rewrites ? rounded_up(c->x_bytes) : 0;
    c->workspace_at = c->filters_at + rounded_up(c->filters_bytes);
    c->filters = backend->ops->alloc(backend, c->filters_bytes);
    if (c->filters == NULL) return RC_NOMEM;
    if (!o->with_gradients) return RC_OK;
    return cuda_scratch_reserve(c->cuda,
                                cuda_channel_sums_scratch(c->cuda, c->base.out, o->images));
}

/* For people: who computes it, by which of the library's algorithms, and why not by its first. */
static void tell(struct cuda_backend *cuda, const struct conv_options *o, const struct conv_cuda *c)
{
    const struct pass *p = c == NULL ? NULL : c->passes;
    char text[256];
    int used = snprintf(text, sizeof(text), "convolution %ux%u, %u to %u channels of %u x %u, by ",
                        o->kernel_height, o->kernel_width, o->in.channels, o->out_channels,
                        o->in.height, o->in.width);

    if (p == NULL) {
        snprintf(text + used, sizeof(text) - (size_t)used, "our own kernel: %.120s",
                 cuda->why[0] != '\0' ? cuda->why
                                      : "cuDNN has none that repeats its bits and fits");
    } else {
        snprintf(text + used, sizeof(text) - (size_t)used,
                 "cuDNN, channels %s; algorithm (place in its list): %d (%d) forward, %d (%d) "
                 "weights, %d (%d) inputs",
                 c->is_last ? "last" : "first", p[PASS_FORWARD].algorithm, p[PASS_FORWARD].rank,
                 p[PASS_WEIGHTS].algorithm, p[PASS_WEIGHTS].rank, p[PASS_DATA].algorithm,
                 p[PASS_DATA].rank);
    }
    cuda_tell(cuda, text);
}

static enum rc library_create(struct cuda_backend *cuda, const struct conv_options *options,
                              bool wants_last, struct conv **conv)
{
    struct conv_cuda *c = mem_alloc(sizeof(*c));
    enum rc rc;

    if (c == NULL) return RC_NOMEM;
    c->base.ops = &conv_ops;
    c->base.out = conv_out_shape(options);
    c->cuda = cuda;
    c->options = *options;
    c->in = options->in;
    c->is_last = wants_last;
    c->in.block = wants_last ? options->in.channels : 1;
    c->base.out.block = wants_last ? options->out_channels : 1;
    c->rewrites = !is_same_layout(options->in, c->in);
    rc = describe(c);
    if (rc == RC_OK) rc = take_memory(c);
    if (rc == RC_OK) rc = choose_all(c);
    if (rc != RC_OK) {
        conv_destroy(&c->base);
        return rc;
    }
    tell(cuda, options, c);
    *conv = &c->base;
    return RC_OK;
}

enum rc cuda_conv_create(struct backend *backend, const struct conv_options *options,
                         struct conv **conv)
{
    struct cuda_backend *cuda = cuda_of(backend);
    enum rc rc = RC_UNSUPPORTED;

    CHECK(options->images > 0 && image_values(conv_out_shape(options)) > 0 && options->groups > 0);
    CHECK(options->in.channels % options->groups == 0);
    CHECK(options->out_channels % options->groups == 0);
    if (options->is_local) return cuda_conv_local_create(cuda, options, conv);
    if (options->images * image_values(options->in) > INT_MAX ||
        options->images * image_values(conv_out_shape(options)) > INT_MAX) {
        snprintf(cuda->why, sizeof(cuda->why),
                 "GPU %d: cuDNN counts no more than 2^31 values, too few for %u images of %u x %u "
                 "in a batch",
                 cuda->device, options->images, options->in.height, options->in.width);
        return RC_UNSUPPORTED;
    }
    rc = library_create(cuda, options, cuda->is_bf16, conv);
    if (rc == RC_UNSUPPORTED && cuda->is_bf16) rc = library_create(cuda, options, false, conv);
    if (rc != RC_UNSUPPORTED || cuda->is_lost) return rc;
    tell(cuda, options, NULL);
    cuda->why[0] = '\0'; /* there is another way */
    return cuda_conv_local_create(cuda, options, conv);
}
