/*
 * Convolutions and sgemm by oneDNN 2.x. Activations flow in the library's blocked layouts; weights
 * live plain in the plane, are rewritten into the library's form once a step, and their gradients
 * are rewritten back. Winograd's algorithm (Lavin, Gray 2015, arXiv:1509.09308) is asked for by
 * name for 3x3 filters on blocked inputs: left to itself the library declines it for few images,
 * and slices of few images are what keeps a training step in the cache. Scratch memory is one
 * buffer of the backend, shared by all primitives.
 */
#include "kernels/cpu/internal.h"

#include "base/check.h"
#include "base/mem.h"

#ifndef GRAPEVINE_HAS_DNNL

struct onednn *onednn_create(void)
{
    return NULL;
}

void onednn_destroy(struct onednn *onednn)
{
    (void)onednn;
}

enum rc onednn_gemm(const struct gemm *gemm)
{
    (void)gemm;
    return RC_UNSUPPORTED;
}

const char *onednn_version(void)
{
    return NULL;
}

enum rc conv_onednn_create(struct cpu_backend *backend, const struct conv_options *options,
                           struct conv **conv)
{
    (void)backend;
    (void)options;
    (void)conv;
    return RC_UNSUPPORTED;
}

#else

#include <stdio.h>
#include <string.h>

#include <oneapi/dnnl/dnnl.h>

_Static_assert(DNNL_VERSION_MAJOR == 2, "the 3.x interface has no operation descriptors");
#define TEXT_OF(x)            #x
#define VERSION_TEXT(a, b, c) TEXT_OF(a) "." TEXT_OF(b) "." TEXT_OF(c)

enum { WINOGRAD_KERNEL = 3, PIXELS_FOR_WINOGRAD = 512 };

struct onednn {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
};

/* A primitive with the form its weights must have. */
struct pass {
    dnnl_primitive_desc_t description;
    dnnl_primitive_t primitive;
    dnnl_memory_t weights;  /* in the form of this pass, over `values` */
    dnnl_primitive_t order; /* rewrites plain weights to that form, or gradients back */
    float *values;
};

struct conv_onednn {
    struct conv base;
    struct cpu_backend *backend;
    struct conv_options options;
    dnnl_memory_desc_t x, y, plain, bias; /* forms of images, weights [out][in][k][k], bias */
    struct pass forward, data, weights;
    dnnl_memory_t x_memory, y_memory, plain_memory, bias_memory, scratch;
    float *gradient; /* plain: one slice's weight gradient, then its bias gradient */
};

struct onednn *onednn_create(void)
{
    struct onednn *onednn = mem_alloc(sizeof(*onednn));

    if (onednn == NULL) return NULL;
    if (dnnl_engine_create(&onednn->engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&onednn->stream, onednn->engine, dnnl_stream_default_flags) !=
            dnnl_success) {
        onednn_destroy(onednn);
        return NULL;
    }
    return onednn;
}

void onednn_destroy(struct onednn *onednn)
{
    if (onednn == NULL) return;
    if (onednn->stream != NULL) dnnl_stream_destroy(onednn->stream);
    if (onednn->engine != NULL) dnnl_engine_destroy(onednn->engine);
    mem_free(onednn);
}

const char *onednn_version(void)
{
    return VERSION_TEXT(DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, DNNL_VERSION_PATCH);
}

static enum rc rc_from_dnnl(dnnl_status_t status)
{
    switch (status) {
    case dnnl_success:
        return RC_OK;
    case dnnl_out_of_memory:
        return RC_NOMEM;
    case dnnl_unimplemented:
    case dnnl_invalid_arguments:
        return RC_UNSUPPORTED;
    case dnnl_iterator_ends:
    case dnnl_runtime_error:
    case dnnl_not_required:
    default:
        return RC_DEVICE;
    }
}

enum rc onednn_gemm(const struct gemm *g)
{
    return rc_from_dnnl(dnnl_sgemm(
        g->is_a_transposed ? 'T' : 'N', g->is_b_transposed ? 'T' : 'N', (dnnl_dim_t)g->rows,
        (dnnl_dim_t)g->columns, (dnnl_dim_t)g->inner, g->alpha, g->a, (dnnl_dim_t)g->a_stride, g->b,
        (dnnl_dim_t)g->b_stride, g->beta, g->c, (dnnl_dim_t)g->c_stride));
}

/* The library's name for a block size, or dnnl_format_tag_undef. */
static dnnl_format_tag_t tag_of(struct image_shape shape)
{
    if (shape.block == 1) return dnnl_nchw;
    if (shape.block == 8) return dnnl_nChw8c;
    if (shape.block == 16) return dnnl_nChw16c;
    return shape.block == shape.channels ? dnnl_nhwc : dnnl_format_tag_undef;
}

static enum rc images_describe(dnnl_memory_desc_t *out, struct image_shape shape, uint32_t images,
                               dnnl_format_tag_t tag)
{
    dnnl_dims_t dims = {images, shape.channels, shape.height, shape.width};

    if (tag == dnnl_format_tag_undef) return RC_UNSUPPORTED;
    return rc_from_dnnl(dnnl_memory_desc_init_by_tag(out, 4, dims, dnnl_f32, tag));
}

/* Which of our block sizes the library chose for its output. */
static bool block_of(const dnnl_memory_desc_t *chosen, uint32_t images, struct image_shape *shape)
{
    const uint32_t blocks[] = {16, 8, 1, shape->channels};

    for (size_t i = 0; i < ARRAY_COUNT(blocks); i++) {
        dnnl_memory_desc_t candidate;
        shape->block = blocks[i];
        if (shape->channels % blocks[i] != 0) continue;
        if (images_describe(&candidate, *shape, images, tag_of(*shape)) != RC_OK) continue;
        if (dnnl_memory_desc_equal(&candidate, chosen)) return true;
    }
    return false;
}

/* Relu after the sum, and scratch memory from us. */
static enum rc attributes_create(bool with_relu, dnnl_primitive_attr_t *attributes)
{
    dnnl_post_ops_t after = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(attributes);

    if (status != dnnl_success) return rc_from_dnnl(status);
    status = dnnl_primitive_attr_set_scratchpad_mode(*attributes, dnnl_scratchpad_mode_user);
    if (status == dnnl_success && with_relu) {
        status = dnnl_post_ops_create(&after);
        if (status == dnnl_success) {
            status = dnnl_post_ops_append_eltwise(after, 1.0F, dnnl_eltwise_relu, 0.0F, 0.0F);
        }
        if (status == dnnl_success) status = dnnl_primitive_attr_set_post_ops(*attributes, after);
        if (after != NULL) dnnl_post_ops_destroy(after);
    }
    return rc_from_dnnl(status);
}

/* True for the library's portable loops, which lose to im2col by far. */
static bool is_slow(dnnl_primitive_desc_t description)
{
    const char *name = NULL;

    if (dnnl_primitive_desc_query(description, dnnl_query_impl_info_str, 0, &name) !=
        dnnl_success) {
        return true;
    }
    return strstr(name, "ref") != NULL;
}

/* Descriptor of one direction with one algorithm. */
static dnnl_status_t describe(const struct conv_onednn *c, dnnl_prop_kind_t direction,
                              dnnl_alg_kind_t algorithm, dnnl_convolution_desc_t *out)
{
    const struct conv_options *o = &c->options;
    dnnl_dims_t strides = {1, 1}, padding = {o->padding_height, o->padding_height};
    dnnl_dims_t dims = {o->out_channels, o->in.channels, o->kernel_height, o->kernel_height};
    dnnl_memory_desc_t any;
    dnnl_status_t status =
        dnnl_memory_desc_init_by_tag(&any, 4, dims, dnnl_f32, dnnl_format_tag_any);

    if (status != dnnl_success) return status;
    if (direction == dnnl_backward_data) {
        return dnnl_convolution_backward_data_desc_init(out, algorithm, &c->x, &any, &c->y, strides,
                                                        padding, padding);
    }
    if (direction == dnnl_backward_weights) {
        return dnnl_convolution_backward_weights_desc_init(out, algorithm, &c->x, &any, &c->bias,
                                                           &c->y, strides, padding, padding);
    }
    return dnnl_convolution_forward_desc_init(out, direction, algorithm, &c->x, &any, &c->bias,
                                              &c->y, strides, padding, padding);
}

/* Winograd where it pays, otherwise what the library thinks best. */
static enum rc pass_choose(struct conv_onednn *c, dnnl_prop_kind_t direction, struct pass *pass)
{
    const struct conv_options *o = &c->options;
    bool is_winograd = o->kernel_height == WINOGRAD_KERNEL && o->in.block > 1 &&
                       (uint64_t)o->images * o->in.height * o->in.width >= PIXELS_FOR_WINOGRAD;
    const dnnl_alg_kind_t algorithms[] = {
        is_winograd ? dnnl_convolution_winograd : dnnl_convolution_direct,
        dnnl_convolution_direct,
    };
    dnnl_primitive_attr_t attributes = NULL;
    bool with_relu = direction == dnnl_forward_training && o->with_relu;
    enum rc rc = attributes_create(with_relu, &attributes);

    for (size_t i = 0; rc == RC_OK && i < ARRAY_COUNT(algorithms); i++) {
        dnnl_convolution_desc_t convolution;
        dnnl_status_t status = describe(c, direction, algorithms[i], &convolution);
        if (status == dnnl_success) {
            status = dnnl_primitive_desc_create(&pass->description, &convolution, attributes,
                                                c->backend->onednn->engine, c->forward.description);
        }
        if (status == dnnl_success) break;
        pass->description = NULL;
    }
    if (attributes != NULL) dnnl_primitive_attr_destroy(attributes);
    if (rc != RC_OK) return rc;
    return pass->description == NULL || is_slow(pass->description) ? RC_UNSUPPORTED : RC_OK;
}

/* A rewriting primitive from one form to the other. */
static enum rc order_create(struct conv_onednn *c, const dnnl_memory_desc_t *from,
                            const dnnl_memory_desc_t *to, dnnl_primitive_t *order)
{
    dnnl_engine_t engine = c->backend->onednn->engine;
    dnnl_primitive_desc_t description = NULL;
    dnnl_status_t status =
        dnnl_reorder_primitive_desc_create(&description, from, engine, to, engine, NULL);

    if (status != dnnl_success) return rc_from_dnnl(status);
    status = dnnl_primitive_create(order, description);
    dnnl_primitive_desc_destroy(description);
    return rc_from_dnnl(status);
}

/* The primitive, its weights in the library's form, its share of the scratch memory. */
static enum rc pass_finish(struct conv_onednn *c, struct pass *pass, bool is_gradient)
{
    dnnl_query_t query = is_gradient ? dnnl_query_diff_weights_md : dnnl_query_weights_md;
    const dnnl_memory_desc_t *form = dnnl_primitive_desc_query_md(pass->description, query, 0);
    const dnnl_memory_desc_t *scratch =
        dnnl_primitive_desc_query_md(pass->description, dnnl_query_scratchpad_md, 0);
    size_t bytes = dnnl_memory_desc_get_size(form);
    enum rc rc = rc_from_dnnl(dnnl_primitive_create(&pass->primitive, pass->description));

    if (rc != RC_OK) return rc;
    pass->values = mem_aligned(bytes);
    if (pass->values == NULL) return RC_NOMEM;
    rc = rc_from_dnnl(
        dnnl_memory_create(&pass->weights, form, c->backend->onednn->engine, pass->values));
    if (rc != RC_OK) return rc;
    rc = is_gradient ? order_create(c, form, &c->plain, &pass->order)
                     : order_create(c, &c->plain, form, &pass->order);
    if (rc != RC_OK) return rc;
    return cpu_scratch_reserve(c->backend, dnnl_memory_desc_get_size(scratch));
}

static void pass_deinit(struct pass *pass)
{
    if (pass->order != NULL) dnnl_primitive_destroy(pass->order);
    if (pass->weights != NULL) dnnl_memory_destroy(pass->weights);
    if (pass->primitive != NULL) dnnl_primitive_destroy(pass->primitive);
    if (pass->description != NULL) dnnl_primitive_desc_destroy(pass->description);
    mem_free(pass->values);
}

static void conv_destroy(struct conv *conv)
{
    struct conv_onednn *c = (struct conv_onednn *)conv;
    dnnl_memory_t memories[] = {c->x_memory, c->y_memory, c->plain_memory, c->bias_memory,
                                c->scratch};

    for (size_t i = 0; i < ARRAY_COUNT(memories); i++) {
        if (memories[i] != NULL) dnnl_memory_destroy(memories[i]);
    }
    pass_deinit(&c->weights);
    pass_deinit(&c->data);
    pass_deinit(&c->forward); /* last: the others were described with its help */
    mem_free(c->gradient);
    mem_free(c);
}

static enum rc run(struct conv_onednn *c, dnnl_primitive_t primitive, const dnnl_exec_arg_t *args,
                   int count)
{
    dnnl_stream_t stream = c->backend->onednn->stream;
    dnnl_status_t status = dnnl_primitive_execute(primitive, stream, count, args);

    if (status == dnnl_success) status = dnnl_stream_wait(stream);
    return status == dnnl_success ? RC_OK : RC_DEVICE;
}

/* Point a memory object at `values`; the library only reads what it is told to read. */
static void point(dnnl_memory_t memory, const float *values)
{
    CHECK(dnnl_memory_set_data_handle(memory, (void *)(uintptr_t)values) == dnnl_success);
}

static enum rc conv_prepare(struct conv *conv, const float *weight, const float *bias)
{
    struct conv_onednn *c = (struct conv_onednn *)conv;
    enum rc rc = RC_OK;
    struct pass *passes[] = {&c->forward, &c->data};

    point(c->bias_memory, bias);
    point(c->plain_memory, weight);
    for (size_t i = 0; rc == RC_OK && i < ARRAY_COUNT(passes); i++) {
        dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, c->plain_memory},
                                  {DNNL_ARG_TO, passes[i]->weights}};
        if (passes[i]->primitive != NULL) rc = run(c, passes[i]->order, args, 2);
    }
    return rc;
}

static enum rc conv_forward(struct conv *conv, const float *x, float *y)
{
    struct conv_onednn *c = (struct conv_onednn *)conv;
    dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, c->x_memory},
                              {DNNL_ARG_WEIGHTS, c->forward.weights},
                              {DNNL_ARG_BIAS, c->bias_memory},
                              {DNNL_ARG_DST, c->y_memory},
                              {DNNL_ARG_SCRATCHPAD, c->scratch}};

    point(c->x_memory, x);
    point(c->y_memory, y);
    point(c->scratch, c->backend->scratch);
    return run(c, c->forward.primitive, args, 5);
}

static enum rc conv_backward_data(struct conv *conv, const float *dy, float *dx)
{
    struct conv_onednn *c = (struct conv_onednn *)conv;
    dnnl_exec_arg_t args[] = {{DNNL_ARG_DIFF_SRC, c->x_memory},
                              {DNNL_ARG_WEIGHTS, c->data.weights},
                              {DNNL_ARG_DIFF_DST, c->y_memory},
                              {DNNL_ARG_SCRATCHPAD, c->scratch}};

    CHECK(c->data.primitive != NULL);
    point(c->x_memory, dx);
    point(c->y_memory, dy);
    point(c->scratch, c->backend->scratch);
    return run(c, c->data.primitive, args, 4);
}

/* The library overwrites, so a later slice goes to memory of its own and is added. */
static enum rc conv_backward_weights(struct conv *conv, const float *x, const float *dy,
                                     bool is_first, float *dweight, float *dbias)
{
    struct conv_onednn *c = (struct conv_onednn *)conv;
    size_t filters = dnnl_memory_desc_get_size(&c->plain) / sizeof(float);
    float *weight_to = is_first ? dweight : c->gradient;
    float *bias_to = is_first ? dbias : c->gradient + filters;
    dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, c->x_memory},
                              {DNNL_ARG_DIFF_WEIGHTS, c->weights.weights},
                              {DNNL_ARG_DIFF_BIAS, c->bias_memory},
                              {DNNL_ARG_DIFF_DST, c->y_memory},
                              {DNNL_ARG_SCRATCHPAD, c->scratch}};
    dnnl_exec_arg_t back[] = {{DNNL_ARG_FROM, c->weights.weights}, {DNNL_ARG_TO, c->plain_memory}};
    void *bias_before = NULL;
    enum rc rc;

    CHECK(c->weights.primitive != NULL);
    CHECK(dnnl_memory_get_data_handle(c->bias_memory, &bias_before) == dnnl_success);
    point(c->x_memory, x);
    point(c->y_memory, dy);
    point(c->bias_memory, bias_to);
    point(c->plain_memory, weight_to);
    point(c->scratch, c->backend->scratch);
    rc = run(c, c->weights.primitive, args, 5);
    if (rc == RC_OK) rc = run(c, c->weights.order, back, 2);
    point(c->bias_memory, bias_before);
    if (rc != RC_OK || is_first) return rc;
    rc = cpu_axpy(&c->backend->base, 1.0F, weight_to, dweight, filters);
    if (rc != RC_OK) return rc;
    return cpu_axpy(&c->backend->base, 1.0F, bias_to, dbias, c->options.out_channels);
}

static const struct conv_ops onednn_ops = {
    .name = "onednn",
    .destroy = conv_destroy,
    .prepare = conv_prepare,
    .forward = conv_forward,
    .backward_data = conv_backward_data,
    .backward_weights = conv_backward_weights,
};

/* Forms of everything but the output, which the library chooses. */
static enum rc forms_describe(struct conv_onednn *c)
{
    const struct conv_options *o = &c->options;
    dnnl_dims_t filter = {o->out_channels, o->in.channels, o->kernel_height, o->kernel_height};
    dnnl_dims_t bias = {o->out_channels};
    enum rc rc = images_describe(&c->x, o->in, o->images, tag_of(o->in));

    if (rc == RC_OK) rc = images_describe(&c->y, c->base.out, o->images, dnnl_format_tag_any);
    if (rc != RC_OK) return rc;
    rc = rc_from_dnnl(dnnl_memory_desc_init_by_tag(&c->plain, 4, filter, dnnl_f32, dnnl_oihw));
    if (rc != RC_OK) return rc;
    return rc_from_dnnl(dnnl_memory_desc_init_by_tag(&c->bias, 1, bias, dnnl_f32, dnnl_a));
}

static enum rc passes_create(struct conv_onednn *c)
{
    const struct conv_options *o = &c->options;
    enum rc rc = pass_choose(c, dnnl_forward_training, &c->forward);

    if (rc != RC_OK) return rc;
    c->y = *dnnl_primitive_desc_query_md(c->forward.description, dnnl_query_dst_md, 0);
    if (!block_of(&c->y, o->images, &c->base.out)) return RC_UNSUPPORTED;
    rc = pass_finish(c, &c->forward, false);
    if (rc == RC_OK && o->with_gradients) {
        rc = pass_choose(c, dnnl_backward_weights, &c->weights);
        if (rc == RC_OK) rc = pass_finish(c, &c->weights, true);
    }
    if (rc == RC_OK && o->with_gradients && o->with_input_gradient) {
        rc = pass_choose(c, dnnl_backward_data, &c->data);
        if (rc == RC_OK) rc = pass_finish(c, &c->data, false);
    }
    return rc;
}

static enum rc memories_create(struct conv_onednn *c)
{
    dnnl_engine_t engine = c->backend->onednn->engine;
    dnnl_dims_t dims = {(dnnl_dim_t)c->backend->scratch_bytes};
    dnnl_memory_desc_t scratch;
    size_t filter_bytes = dnnl_memory_desc_get_size(&c->plain);
    dnnl_status_t status = dnnl_memory_desc_init_by_tag(&scratch, 1, dims, dnnl_u8, dnnl_a);

    if (status == dnnl_success) status = dnnl_memory_create(&c->x_memory, &c->x, engine, NULL);
    if (status == dnnl_success) status = dnnl_memory_create(&c->y_memory, &c->y, engine, NULL);
    if (status == dnnl_success) {
        status = dnnl_memory_create(&c->plain_memory, &c->plain, engine, NULL);
    }
    if (status == dnnl_success)
        status = dnnl_memory_create(&c->bias_memory, &c->bias, engine, NULL);
    if (status == dnnl_success) status = dnnl_memory_create(&c->scratch, &scratch, engine, NULL);
    if (status != dnnl_success) return rc_from_dnnl(status);
    if (!c->options.with_gradients) return RC_OK;
    c->gradient = mem_aligned(filter_bytes + c->options.out_channels * sizeof(float));
    return c->gradient == NULL ? RC_NOMEM : RC_OK;
}

enum rc conv_onednn_create(struct cpu_backend *backend, const struct conv_options *options,
                           struct conv **conv)
{
    struct conv_onednn *c = mem_alloc(sizeof(*c));
    uint32_t shrink = options->kernel_height - 1;
    enum rc rc;

    if (c == NULL) return RC_NOMEM;
    if (options->stride != 1 || options->dilation != 1 || options->groups != 1 ||
        !options->with_bias || options->kernel_height != options->kernel_width ||
        options->padding_height != options->padding_width) {
        mem_free(c);
        return RC_UNSUPPORTED;
    }
    c->backend = backend;
    c->options = *options;
    c->base.ops = &onednn_ops;
    c->base.out = (struct image_shape){
        .channels = options->out_channels,
        .height = options->in.height + 2 * options->padding_height - shrink,
        .width = options->in.width + 2 * options->padding_height - shrink,
        .block = 1,
    };
    rc = forms_describe(c);
    if (rc == RC_OK) rc = passes_create(c);
    if (rc == RC_OK) rc = memories_create(c);
    if (rc != RC_OK) {
        conv_destroy(&c->base);
        return rc;
    }
    *conv = &c->base;
    return RC_OK;
}

#endif
