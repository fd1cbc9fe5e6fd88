/*
 * Convolutions by oneDNN. Activations flow in the library's blocked layouts; weights live plain
 * in the plane, are rewritten into the library's form once a step, and their gradients are
 * rewritten back. Each pass tries forms in a fixed order and takes the first that the library is
 * fast at, so the choice depends on shape and processor only:
 *   - bfloat16 operands, where the backend wants them and they win;
 *   - the layout the images have, with a channels-last output where the channels fill no blocks,
 *     and at last rewritten images.
 * Its Winograd algorithm is not asked for: ours is faster (conv_winograd.c).
 */
#include "kernels/cpu/onednn.h"

#include "base/check.h"
#include "base/mem.h"
#include "kernels/cpu/internal.h"

#ifndef GRAPEVINE_HAS_DNNL

enum rc conv_onednn_create(struct cpu_backend *backend, const struct conv_options *options,
                           struct conv **conv)
{
    (void)backend;
    (void)options;
    (void)conv;
    return RC_UNSUPPORTED;
}

#else

#include <string.h>

enum {
    BF16_CHANNELS_MIN = 3, /* fewer do not fill the pairs that bfloat16 multiplies */
    SCRATCH_ALIGN = 64,
};

/* Images as the library wants them, and as the caller has them where that is another form. */
struct operand {
    dnnl_memory_t memory;
    dnnl_memory_t given;      /* NULL: the same form */
    dnnl_primitive_t rewrite; /* before the pass for an input, after it for an output */
    bool is_output;
    size_t offset; /* of the rewritten values in scratch memory, bytes */
};

struct pass {
    dnnl_primitive_desc_t description;
    dnnl_primitive_t primitive;
    struct operand x, y;
    dnnl_memory_t weights;    /* in the form of this pass, over `values` */
    dnnl_primitive_t rewrite; /* plain weights to that form, or gradients back */
    dnnl_primitive_t add;     /* gradients back, added */
    dnnl_memory_t scratch;
    float *values;
};

struct conv_onednn {
    struct conv base;
    struct cpu_backend *backend;
    struct conv_options options;
    const_dnnl_memory_desc_t x, y, plain, bias; /* the caller's forms */
    struct pass forward, data, weights;
    dnnl_memory_t plain_memory, bias_memory;
    const float *bias_values; /* borrowed from prepare() */
    float *bias_gradient;     /* of one slice */
};

/* One thing to try. */
struct attempt {
    dnnl_data_type_t type; /* of what the library reads, but for biases */
    bool chooses_x, chooses_y;
    bool is_last;  /* channels-last output */
    bool is_final; /* the library's own im2col will do */
};

enum { ATTEMPTS_MAX = 5 };

static struct conv_onednn *onednn_of(struct conv *conv)
{
    return (struct conv_onednn *)conv;
}

/* The library's name for a block size, or dnnl_format_tag_undef. */
static dnnl_format_tag_t tag_of(struct image_shape shape)
{
    if (shape.block == 1) return dnnl_nchw;
    if (shape.block == 8) return dnnl_nChw8c;
    if (shape.block == 16) return dnnl_nChw16c;
    return shape.block == shape.channels ? dnnl_nhwc : dnnl_format_tag_undef;
}

static enum rc images_describe(struct image_shape shape, uint32_t images, dnnl_data_type_t type,
                               dnnl_format_tag_t tag, const_dnnl_memory_desc_t *out)
{
    dnnl_dims_t dims = {images, shape.channels, shape.height, shape.width};

    if (tag == dnnl_format_tag_undef) return RC_UNSUPPORTED;
    return onednn_form_create(4, dims, type, tag, out);
}

/* Which of our block sizes the library chose for its output, and that form. */
static bool block_of(const_dnnl_memory_desc_t chosen, uint32_t images, struct image_shape *shape,
                     const_dnnl_memory_desc_t *form)
{
    const uint32_t blocks[] = {16, 8, 1, shape->channels};

    for (size_t i = 0; i < ARRAY_COUNT(blocks); i++) {
        const_dnnl_memory_desc_t candidate;
        shape->block = blocks[i];
        if (shape->channels % blocks[i] != 0) continue;
        if (images_describe(*shape, images, dnnl_f32, tag_of(*shape), &candidate) != RC_OK) {
            continue;
        }
        if (dnnl_memory_desc_equal(candidate, chosen)) {
            *form = candidate;
            return true;
        }
        onednn_form_destroy(candidate);
    }
    return false;
}

/* Weights, in groups where there are any. */
static enum rc weights_describe(const struct conv_options *o, dnnl_data_type_t type, bool is_plain,
                                const_dnnl_memory_desc_t *out)
{
    dnnl_dim_t outs = o->out_channels, ins = o->in.channels / o->groups;
    dnnl_dims_t whole = {outs, ins, o->kernel_height, o->kernel_width};
    dnnl_dims_t parts = {o->groups, outs / o->groups, ins, o->kernel_height, o->kernel_width};
    bool is_whole = o->groups == 1;
    dnnl_format_tag_t tag = is_whole ? dnnl_oihw : dnnl_goihw;

    return onednn_form_create(is_whole ? 4 : 5, is_whole ? whole : parts, type,
                              is_plain ? tag : dnnl_format_tag_any, out);
}

/* What the library makes of one attempt at one direction. */
static enum rc attempt_describe(const struct conv_onednn *c, dnnl_prop_kind_t direction,
                                const struct attempt *attempt, dnnl_primitive_desc_t *out)
{
    const struct conv_options *o = &c->options;
    bool is_forward = direction == dnnl_forward_training;
    struct onednn_convolution convolution = {
        .direction = direction,
        .algorithm = dnnl_convolution_direct,
        .bias = o->with_bias && direction != dnnl_backward_data ? c->bias : NULL,
        .strides = {o->stride, o->stride},
        .padding = {o->padding_height, o->padding_width},
        .gaps = {o->dilation - 1, o->dilation - 1},
        .forward = c->forward.description,
    };
    dnnl_format_tag_t x_tag = attempt->chooses_x ? dnnl_format_tag_any : tag_of(o->in);
    dnnl_format_tag_t y_tag = attempt->is_last     ? dnnl_nhwc
                              : attempt->chooses_y ? dnnl_format_tag_any
                                                   : tag_of(c->base.out);
    dnnl_data_type_t x_type = direction == dnnl_backward_data ? dnnl_f32 : attempt->type;
    dnnl_data_type_t y_type = is_forward ? dnnl_f32 : attempt->type;
    dnnl_data_type_t type = direction == dnnl_backward_weights ? dnnl_f32 : attempt->type;
    dnnl_primitive_attr_t attributes = NULL;
    enum rc rc = images_describe(o->in, o->images, x_type, x_tag, &convolution.x);

    if (rc == RC_OK) rc = images_describe(c->base.out, o->images, y_type, y_tag, &convolution.y);
    if (rc == RC_OK) rc = weights_describe(o, type, false, &convolution.weights);
    if (rc == RC_OK) {
        rc = onednn_attributes_create(is_forward && o->with_relu ? ONEDNN_RELU : ONEDNN_NOTHING,
                                      &attributes);
    }
    if (rc == RC_OK) {
        rc = onednn_convolution_describe(c->backend->onednn, &convolution, attributes, out);
    }
    if (attributes != NULL) dnnl_primitive_attr_destroy(attributes);
    onednn_form_destroy(convolution.x);
    onednn_form_destroy(convolution.y);
    onednn_form_destroy(convolution.weights);
    return rc;
}

/* False for the library's portable loops, which lose to im2col by far, and, unless nothing else is
 * left, for its own im2col. */
static bool is_fast(dnnl_primitive_desc_t description, const struct attempt *attempt)
{
    const char *name = NULL;
    dnnl_status_t status =
        dnnl_primitive_desc_query(description, dnnl_query_impl_info_str, 0, &name);

    if (status != dnnl_success || strstr(name, "ref") != NULL) return false;
    return attempt->is_final || strstr(name, "gemm") == NULL;
}

/* Whether the backend has matrix units for bfloat16, as the library sees it. */
static bool has_matrix_units(dnnl_primitive_desc_t description)
{
    const char *name = NULL;
    dnnl_status_t status =
        dnnl_primitive_desc_query(description, dnnl_query_impl_info_str, 0, &name);

    return status == dnnl_success && strstr(name, "amx") != NULL;
}

static bool bf16_pays(const struct conv_onednn *c, dnnl_primitive_desc_t description)
{
    return has_matrix_units(description) || c->options.in.channels >= BF16_CHANNELS_MIN;
}

/* Try one form; RC_UNSUPPORTED leaves the pass empty. */
static enum rc pass_try(struct conv_onednn *c, dnnl_prop_kind_t direction,
                        const struct attempt *attempt, struct pass *pass)
{
    enum rc rc = attempt_describe(c, direction, attempt, &pass->description);

    if (rc == RC_OK && !is_fast(pass->description, attempt)) rc = RC_UNSUPPORTED;
    if (rc == RC_OK && attempt->type == dnnl_bf16 && !bf16_pays(c, pass->description)) {
        rc = RC_UNSUPPORTED;
    }
    if (rc == RC_OK && direction == dnnl_forward_training &&
        !block_of(dnnl_primitive_desc_query_md(pass->description, dnnl_query_dst_md, 0),
                  c->options.images, &c->base.out, &c->y)) {
        rc = RC_UNSUPPORTED;
    }
    if (rc != RC_OK && pass->description != NULL) {
        dnnl_primitive_desc_destroy(pass->description);
        pass->description = NULL;
    }
    return rc;
}

static enum rc pass_choose(struct conv_onednn *c, dnnl_prop_kind_t direction, struct pass *pass)
{
    bool is_forward = direction == dnnl_forward_training;
    struct attempt attempts[ATTEMPTS_MAX];
    size_t count = 0;
    enum rc rc = RC_UNSUPPORTED;

    if (c->backend->is_bf16) {
        attempts[count++] = (struct attempt){dnnl_bf16, true, true, false, false};
    }
    attempts[count++] = (struct attempt){dnnl_f32, false, is_forward, false, false};
    if (is_forward) {
        attempts[count++] = (struct attempt){dnnl_f32, false, false, true, false};
    }
    attempts[count++] = (struct attempt){dnnl_f32, true, true, false, false};
    attempts[count++] = (struct attempt){dnnl_f32, false, is_forward, false, true};
    CHECK(count <= ATTEMPTS_MAX);
    for (size_t i = 0; rc == RC_UNSUPPORTED && i < count; i++) {
        rc = pass_try(c, direction, &attempts[i], pass);
    }
    return rc;
}

/* Memory in the form of the pass, and the rewriting where the caller's is another. `bytes`: scratch
 * memory so far. */
static enum rc operand_create(struct conv_onednn *c, const_dnnl_memory_desc_t form,
                              const_dnnl_memory_desc_t given, struct operand *operand,
                              size_t *bytes)
{
    struct onednn *onednn = c->backend->onednn;
    enum rc rc = onednn_rc(dnnl_memory_create(&operand->memory, form, onednn->engine, NULL));

    if (rc != RC_OK || dnnl_memory_desc_equal(form, given)) return rc;
    rc = onednn_rc(dnnl_memory_create(&operand->given, given, onednn->engine, NULL));
    if (rc != RC_OK) return rc;
    operand->offset = *bytes;
    *bytes += (dnnl_memory_desc_get_size(form) + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
    return operand->is_output
               ? onednn_reorder_create(onednn, form, given, false, &operand->rewrite)
               : onednn_reorder_create(onednn, given, form, false, &operand->rewrite);
}

static enum rc pass_weights_create(struct conv_onednn *c, struct pass *pass, bool is_gradient)
{
    struct onednn *onednn = c->backend->onednn;
    const_dnnl_memory_desc_t form = dnnl_primitive_desc_query_md(
        pass->description, is_gradient ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
    enum rc rc;

    pass->values = mem_aligned(dnnl_memory_desc_get_size(form));
    if (pass->values == NULL) return RC_NOMEM;
    rc = onednn_rc(dnnl_memory_create(&pass->weights, form, onednn->engine, pass->values));
    if (rc != RC_OK) return rc;
    if (!is_gradient) return onednn_reorder_create(onednn, c->plain, form, false, &pass->rewrite);
    rc = onednn_reorder_create(onednn, form, c->plain, false, &pass->rewrite);
    if (rc != RC_OK) return rc;
    return onednn_reorder_create(onednn, form, c->plain, true, &pass->add);
}

/* Choose a form for one direction and make all that it needs. */
static enum rc pass_create(struct conv_onednn *c, dnnl_prop_kind_t direction, struct pass *pass)
{
    bool is_data = direction == dnnl_backward_data, is_forward = direction == dnnl_forward_training;
    const_dnnl_memory_desc_t scratch, x, y;
    size_t bytes;
    enum rc rc = pass_choose(c, direction, pass);

    if (rc != RC_OK) return rc;
    x = dnnl_primitive_desc_query_md(pass->description,
                                     is_data ? dnnl_query_diff_src_md : dnnl_query_src_md, 0);
    y = dnnl_primitive_desc_query_md(pass->description,
                                     is_forward ? dnnl_query_dst_md : dnnl_query_diff_dst_md, 0);
    scratch = dnnl_primitive_desc_query_md(pass->description, dnnl_query_scratchpad_md, 0);
    bytes = dnnl_memory_desc_get_size(scratch);
    bytes = (bytes + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
    pass->x.is_output = is_data;
    pass->y.is_output = is_forward;
    rc = onednn_rc(dnnl_primitive_create(&pass->primitive, pass->description));
    if (rc == RC_OK) rc = operand_create(c, x, c->x, &pass->x, &bytes);
    if (rc == RC_OK) rc = operand_create(c, y, c->y, &pass->y, &bytes);
    if (rc == RC_OK) {
        rc = onednn_rc(
            dnnl_memory_create(&pass->scratch, scratch, c->backend->onednn->engine, NULL));
    }
    if (rc == RC_OK) rc = pass_weights_create(c, pass, direction == dnnl_backward_weights);
    return rc == RC_OK ? cpu_scratch_reserve(c->backend, bytes) : rc;
}

static void operand_deinit(struct operand *operand)
{
    if (operand->rewrite != NULL) dnnl_primitive_destroy(operand->rewrite);
    if (operand->given != NULL) dnnl_memory_destroy(operand->given);
    if (operand->memory != NULL) dnnl_memory_destroy(operand->memory);
}

static void pass_deinit(struct pass *pass)
{
    operand_deinit(&pass->x);
    operand_deinit(&pass->y);
    if (pass->scratch != NULL) dnnl_memory_destroy(pass->scratch);
    if (pass->add != NULL) dnnl_primitive_destroy(pass->add);
    if (pass->rewrite != NULL) dnnl_primitive_destroy(pass->rewrite);
    if (pass->weights != NULL) dnnl_memory_destroy(pass->weights);
    if (pass->primitive != NULL) dnnl_primitive_destroy(pass->primitive);
    if (pass->description != NULL) dnnl_primitive_desc_destroy(pass->description);
    mem_free(pass->values);
}

static void conv_destroy(struct conv *conv)
{
    struct conv_onednn *c = onednn_of(conv);

    pass_deinit(&c->weights);
    pass_deinit(&c->data);
    pass_deinit(&c->forward); /* last: the others were described with its help */
    if (c->plain_memory != NULL) dnnl_memory_destroy(c->plain_memory);
    if (c->bias_memory != NULL) dnnl_memory_destroy(c->bias_memory);
    onednn_form_destroy(c->x);
    onednn_form_destroy(c->y);
    onednn_form_destroy(c->plain);
    onednn_form_destroy(c->bias);
    mem_free(c->bias_gradient);
    mem_free(c);
}

static enum rc rewrite(struct conv_onednn *c, dnnl_primitive_t primitive, dnnl_memory_t from,
                       dnnl_memory_t to)
{
    dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};

    return onednn_run(c->backend->onednn, primitive, args, 2);
}

/* Put the caller's values under an operand, rewritten where it must be. */
static enum rc operand_begin(struct conv_onednn *c, struct operand *operand, const float *values)
{
    if (operand->given == NULL) {
        onednn_point(operand->memory, values);
        return RC_OK;
    }
    onednn_point(operand->given, values);
    onednn_point(operand->memory, (char *)c->backend->scratch + operand->offset);
    if (operand->is_output) return RC_OK;
    return rewrite(c, operand->rewrite, operand->given, operand->memory);
}

static enum rc operand_end(struct conv_onednn *c, struct operand *operand)
{
    if (operand->given == NULL || !operand->is_output) return RC_OK;
    return rewrite(c, operand->rewrite, operand->memory, operand->given);
}

static enum rc conv_prepare(struct conv *conv, const float *weight, const float *bias)
{
    struct conv_onednn *c = onednn_of(conv);
    struct pass *passes[] = {&c->forward, &c->data};
    enum rc rc = RC_OK;

    c->bias_values = bias;
    onednn_point(c->plain_memory, weight);
    for (size_t i = 0; rc == RC_OK && i < ARRAY_COUNT(passes); i++) {
        if (passes[i]->primitive == NULL) continue;
        rc = rewrite(c, passes[i]->rewrite, c->plain_memory, passes[i]->weights);
    }
    return rc;
}

static enum rc conv_forward(struct conv *conv, const void *x, void *y)
{
    struct conv_onednn *c = onednn_of(conv);
    struct pass *pass = &c->forward;
    dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, pass->x.memory},
                              {DNNL_ARG_WEIGHTS, pass->weights},
                              {DNNL_ARG_DST, pass->y.memory},
                              {DNNL_ARG_SCRATCHPAD, pass->scratch},
                              {DNNL_ARG_BIAS, c->bias_memory}};
    enum rc rc = operand_begin(c, &pass->x, x);

    if (rc == RC_OK) rc = operand_begin(c, &pass->y, y);
    if (rc != RC_OK) return rc;
    if (c->options.with_bias) onednn_point(c->bias_memory, c->bias_values);
    onednn_point(pass->scratch, c->backend->scratch);
    rc = onednn_run(c->backend->onednn, pass->primitive, args, c->options.with_bias ? 5 : 4);
    return rc == RC_OK ? operand_end(c, &pass->y) : rc;
}

static enum rc conv_backward_data(struct conv *conv, const void *dy, void *dx)
{
    struct conv_onednn *c = onednn_of(conv);
    struct pass *pass = &c->data;
    dnnl_exec_arg_t args[] = {{DNNL_ARG_DIFF_SRC, pass->x.memory},
                              {DNNL_ARG_WEIGHTS, pass->weights},
                              {DNNL_ARG_DIFF_DST, pass->y.memory},
                              {DNNL_ARG_SCRATCHPAD, pass->scratch}};
    enum rc rc;

    CHECK(pass->primitive != NULL);
    rc = operand_begin(c, &pass->x, dx);
    if (rc == RC_OK) rc = operand_begin(c, &pass->y, dy);
    if (rc != RC_OK) return rc;
    onednn_point(pass->scratch, c->backend->scratch);
    rc = onednn_run(c->backend->onednn, pass->primitive, args, 4);
    return rc == RC_OK ? operand_end(c, &pass->x) : rc;
}

/* The library overwrites, so a later slice's bias gradient goes to memory of its own and is added;
 * weights are added on their way back to the plain form. */
static enum rc conv_backward_weights(struct conv *conv, const void *x, const void *dy,
                                     bool is_first, float *dweight, float *dbias)
{
    struct conv_onednn *c = onednn_of(conv);
    struct pass *pass = &c->weights;
    bool with_bias = c->options.with_bias;
    dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, pass->x.memory},
                              {DNNL_ARG_DIFF_WEIGHTS, pass->weights},
                              {DNNL_ARG_DIFF_DST, pass->y.memory},
                              {DNNL_ARG_SCRATCHPAD, pass->scratch},
                              {DNNL_ARG_DIFF_BIAS, c->bias_memory}};
    enum rc rc;

    if (conv_first_serves(&c->options, c->base.out)) {
        conv_first_weights(c->backend, &c->options,
                           &(struct conv_gradients){c->base.out, x, dy, is_first, dweight, dbias});
        return RC_OK;
    }
    CHECK(pass->primitive != NULL);
    rc = operand_begin(c, &pass->x, x);
    if (rc == RC_OK) rc = operand_begin(c, &pass->y, dy);
    if (rc != RC_OK) return rc;
    if (with_bias) onednn_point(c->bias_memory, is_first ? dbias : c->bias_gradient);
    onednn_point(pass->scratch, c->backend->scratch);
    rc = onednn_run(c->backend->onednn, pass->primitive, args, with_bias ? 5 : 4);
    if (rc != RC_OK) return rc;
    onednn_point(c->plain_memory, dweight);
    rc = rewrite(c, is_first ? pass->rewrite : pass->add, pass->weights, c->plain_memory);
    if (rc != RC_OK || is_first || !with_bias) return rc;
    return cpu_axpy(&c->backend->base, 1.0F, c->bias_gradient, dbias, c->options.out_channels);
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
static enum rc plain_forms_create(struct conv_onednn *c)
{
    const struct conv_options *o = &c->options;
    dnnl_engine_t engine = c->backend->onednn->engine;
    dnnl_dims_t bias = {o->out_channels};
    enum rc rc = images_describe(o->in, o->images, dnnl_f32, tag_of(o->in), &c->x);

    if (rc == RC_OK) rc = weights_describe(o, dnnl_f32, true, &c->plain);
    if (rc != RC_OK) return rc;
    rc = onednn_form_create(1, bias, dnnl_f32, dnnl_a, &c->bias);
    if (rc != RC_OK) return rc;
    rc = onednn_rc(dnnl_memory_create(&c->plain_memory, c->plain, engine, NULL));
    if (rc != RC_OK) return rc;
    rc = onednn_rc(dnnl_memory_create(&c->bias_memory, c->bias, engine, NULL));
    if (rc != RC_OK || !o->with_gradients) return rc;
    c->bias_gradient = mem_aligned(o->out_channels * sizeof(float));
    return c->bias_gradient == NULL ? RC_NOMEM : RC_OK;
}

enum rc conv_onednn_create(struct cpu_backend *backend, const struct conv_options *options,
                           struct conv **conv)
{
    struct conv_onednn *c;
    enum rc rc;

    if (options->is_local) return RC_UNSUPPORTED;
    c = mem_alloc(sizeof(*c));
    if (c == NULL) return RC_NOMEM;
    c->backend = backend;
    c->options = *options;
    c->base.ops = &onednn_ops;
    c->base.out = conv_out_shape(options);
    rc = plain_forms_create(c);
    if (rc == RC_OK) rc = pass_create(c, dnnl_forward_training, &c->forward);
    if (rc == RC_OK && options->with_gradients) {
        rc = conv_first_serves(options, c->base.out)
                 ? cpu_scratch_reserve(backend, conv_first_scratch(backend, options))
                 : pass_create(c, dnnl_backward_weights, &c->weights);
    }
    if (rc == RC_OK && options->with_gradients && options->with_input_gradient) {
        rc = pass_create(c, dnnl_backward_data, &c->data);
    }
    if (rc != RC_OK) {
        conv_destroy(&c->base);
        return rc;
    }
    *conv = &c->base;
    return RC_OK;
}

#endif
