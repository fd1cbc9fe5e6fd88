/* conv_cases: one convolution with plain operands by any backend, for the tests of convolutions. */
#ifndef GRAPEVINE_TESTS_UNIT_KERNELS_CONV_CASES_H
#define GRAPEVINE_TESTS_UNIT_KERNELS_CONV_CASES_H

#include "tests/unit/kernels/norm_values.h"

#include "kernels/cpu/reference/reference.h"

static inline struct backend *columns(void)
{
    return cpu_backend_create(
        &(struct cpu_backend_options){.threads = 1, .convolution = CPU_CONVOLUTION_IM2COL});
}

static inline struct backend *fast(void)
{
    return backend_of(false);
}

static inline struct backend *plain(void)
{
    return backend_of(true);
}

/* One convolution with plain operands. */
struct conv_case {
    struct conv_options options;
    float *x, *w, *bias, *dy;
};

static inline size_t ins_of(const struct conv_options *o)
{
    return o->images * image_values(o->in);
}

static inline size_t outs_of(const struct conv_options *o)
{
    return o->images * image_values(conv_out_shape(o));
}

static inline struct conv_case case_create(const struct conv_options *options, struct rng *rng)
{
    struct conv_case c = {.options = *options};

    c.x = random_values(rng, ins_of(options), 0.0, 1.0);
    c.w = random_values(rng, conv_weight_values(options), 0.0, 1.0);
    c.bias = options->with_bias ? random_values(rng, conv_filters(options), 0.0, 1.0) : NULL;
    c.dy = random_values(rng, outs_of(options), 0.0, 1.0);
    return c;
}

static inline void case_destroy(struct conv_case *c)
{
    mem_free(c->x);
    mem_free(c->w);
    mem_free(c->bias);
    mem_free(c->dy);
}

/* Plain outputs and gradients of one convolution by one backend. */
struct conv_results {
    float *y, *dx, *dw, *db;
    char by[16];
};

static inline void results_destroy(struct conv_results *r)
{
    mem_free(r->y);
    mem_free(r->dx);
    mem_free(r->dw);
    mem_free(r->db);
}

/* Twice: the second time is added, so that slices of one batch give one gradient. */
static inline void weights_backward(struct conv *conv, const float *x, const float *dy,
                                    struct conv_results *r)
{
    assert_int_equal(conv->ops->backward_weights(conv, x, dy, true, r->dw, r->db), RC_OK);
    assert_int_equal(conv->ops->backward_weights(conv, x, dy, false, r->dw, r->db), RC_OK);
}

static inline struct conv_results convolve(struct backend *backend, const struct conv_case *c)
{
    const struct conv_options *o = &c->options;
    struct image_shape plain_in = o->in, plain_out = conv_out_shape(o);
    struct conv_results r = {poisoned(outs_of(o)), poisoned(ins_of(o)),
                             poisoned(conv_weight_values(o)),
                             o->with_bias ? poisoned(conv_filters(o)) : NULL, ""};
    float *x = poisoned(ins_of(o)), *dx = poisoned(ins_of(o));
    float *y = poisoned(outs_of(o)), *dy = poisoned(outs_of(o));
    struct conv *conv = NULL;

    plain_in.block = 1;
    reference_relayout(plain_in, o->in.block, o->images, c->x, x);
    assert_int_equal(backend->ops->conv_create(backend, o, &conv), RC_OK);
    assert_int_equal(image_values(conv->out), image_values(plain_out));
    assert_int_equal(conv->out.channels % conv->out.block, 0);
    snprintf(r.by, sizeof(r.by), "%s", conv->ops->name);
    reference_relayout(plain_out, conv->out.block, o->images, c->dy, dy);
    assert_int_equal(conv->ops->prepare(conv, c->w, c->bias), RC_OK);
    assert_int_equal(conv->ops->forward(conv, x, y), RC_OK);
    reference_relayout(conv->out, 1, o->images, y, r.y);
    if (o->with_gradients) weights_backward(conv, x, dy, &r);
    if (o->with_gradients && o->with_input_gradient) {
        assert_int_equal(conv->ops->backward_data(conv, dy, dx), RC_OK);
        reference_relayout(o->in, 1, o->images, dx, r.dx);
    }
    conv->ops->destroy(conv);
    mem_free(x);
    mem_free(dx);
    mem_free(y);
    mem_free(dy);
    return r;
}

static inline void check_case(struct backend *backend, struct backend *oracle,
                              const struct conv_case *c, double tolerance, uint64_t seed)
{
    const struct conv_options *o = &c->options;
    struct conv_results got = convolve(backend, c), twin = convolve(oracle, c);

    check_seed(seed, distance(got.y, twin.y, outs_of(o)) < tolerance);
    if (o->with_gradients) {
        check_seed(seed, distance(got.dw, twin.dw, conv_weight_values(o)) < tolerance);
    }
    if (o->with_gradients && o->with_bias) {
        check_seed(seed, distance(got.db, twin.db, conv_filters(o)) < tolerance);
    }
    if (o->with_gradients && o->with_input_gradient) {
        check_seed(seed, distance(got.dx, twin.dx, ins_of(o)) < tolerance);
    }
    results_destroy(&got);
    results_destroy(&twin);
}

static inline void check_random_values(struct backend *backend, struct backend *oracle,
                                       const struct conv_options *options, double tolerance,
                                       uint64_t seed)
{
    struct rng rng;
    struct conv_case c;

    rng_init(&rng, seed, 20);
    c = case_create(options, &rng);
    check_case(backend, oracle, &c, tolerance, seed);
    case_destroy(&c);
}

/* A 3x3 convolution of `channels` to `out` with padding, the most common kind. */
static inline struct conv_options usual(uint32_t channels, uint32_t out, uint32_t side,
                                        uint32_t images)
{
    return (struct conv_options){
        .in = {channels, side, side, channels % 16 == 0 ? 16 : 1},
        .out_channels = out,
        .kernel_height = 3,
        .kernel_width = 3,
        .padding_height = 1,
        .padding_width = 1,
        .stride = 1,
        .dilation = 1,
        .groups = 1,
        .images = images,
        .with_bias = true,
        .with_relu = true,
        .with_gradients = true,
        .with_input_gradient = true,
    };
}

static inline void check_equal_bits(const struct conv_options *o, const struct conv_results *a,
                                    const struct conv_results *b)
{
    assert_memory_equal(a->y, b->y, outs_of(o) * sizeof(float));
    assert_memory_equal(a->dw, b->dw, conv_weight_values(o) * sizeof(float));
    assert_memory_equal(a->db, b->db, conv_filters(o) * sizeof(float));
    assert_memory_equal(a->dx, b->dx, ins_of(o) * sizeof(float));
}

#endif
