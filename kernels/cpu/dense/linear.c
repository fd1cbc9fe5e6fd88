/*
 * Dense layers in float32. With AVX2 the forward product and that to the inputs are those of
 * panels.h, with weights that are packed once a step; of few rows the forward one is
 * linear_tile.c's. With AVX-512 forward products are linear_tile.c's for few rows, for many
 * oneDNN's with weights packed once a step (product.c), which are faster than its sgemm. All others
 * are cpu_gemm()'s. Equal calls give equal bits.
 */
#include "kernels/cpu/dense/linear_internal.h"

#include "base/check.h"
#include "base/mem.h"
#include "kernels/cpu/dense/bf16.h"
#include "kernels/cpu/dense/panels.h"
#include "kernels/cpu/dense/product.h"
#include "kernels/cpu/reference/dense.h"
#include "kernels/cpu/split.h"

#include <string.h>

enum {
    NARROW = 16,
    TILE_ROWS_MAX = 128,         /* the library's own packing pays from there on */
    PACKED_VALUES_MAX = 1 << 20, /* larger weights are not kept twice */
    SPLIT_VALUES = 1 << 15,      /* of a pass over rows, for each thread */
    PACKED_ROWS_MIN = 16,        /* of a pass: for fewer the weights are not packed */
    CACHED_ROWS = 96,            /* whose activations follow while they are in the cache */
};

struct finish {
    const struct linear_options *options;
    const float *bias;
    float *pre, *y;
};

static void finish_part(void *data, size_t part, size_t from, size_t to)
{
    const struct finish *f = data;
    size_t out = f->options->out;

    (void)part;
    cpu_bias_activation(f->options->activation, f->bias, (struct activation_rows){to - from, out},
                        f->pre != NULL ? f->pre + from * out : NULL, f->y + from * out);
}

void linear_finish(struct backend *backend, const struct linear_options *options, size_t rows,
                   const float *bias, float *pre, float *y)
{
    struct finish finish = {options, bias, pre, y};

    if (bias == NULL && options->activation.kind == ACTIVATION_NONE && pre == NULL) return;
    cpu_split(backend, rows, SPLIT_VALUES / options->out + 1, finish_part, &finish);
}

struct start_back {
    const struct linear_options *options;
    const struct linear_backward *pass;
    float *sums; /* NULL: without bias */
};

static void start_back_part(void *data, size_t part, size_t from, size_t to)
{
    const struct start_back *s = data;
    size_t out = s->options->out;
    struct activation f = s->options->activation;
    const float *values = activation_needs_input(f.kind) ? s->pass->pre : s->pass->y;
    float *sums = s->sums != NULL ? s->sums + part * out : NULL;

    if (sums != NULL) memset(sums, 0, out * sizeof(*sums));
    cpu_activation_bias_backward(f, values != NULL ? values + from * out : NULL,
                                 (struct activation_rows){to - from, out},
                                 (float *)s->pass->dy + from * out, sums);
}

void linear_start_back(struct backend *backend, const struct linear_options *options,
                       const struct linear_backward *pass, float *sums)
{
    struct start_back start = {options, pass, pass->dbias != NULL ? sums : NULL};
    size_t grain = SPLIT_VALUES / options->out + 1;

    CHECK((pass->dbias != NULL) == options->with_bias);
    if (start.sums == NULL && options->activation.kind == ACTIVATION_NONE) return;
    cpu_split(backend, pass->rows, grain, start_back_part, &start);
    if (start.sums == NULL) return;
    if (pass->is_first) memset(pass->dbias, 0, options->out * sizeof(float));
    cpu_add_rows(sums, cpu_split_parts(backend, pass->rows, grain), options->out, pass->dbias);
}

/* The weights for panels.h, packed when they are first needed since they changed. */
struct packed_weights {
    struct panels panels; /* no values: not packed */
    bool is_current;
};

struct linear_plain {
    struct linear base;
    struct backend *backend;
    struct linear_options options;
    bool has_tiles;
    struct product forward; /* of rows_max rows; not made where that is no use */
    float *packed;          /* the weights in its form */
    struct packed_weights own_forward, own_backward;
    const float *weight, *bias; /* borrowed */
};

static struct linear_plain *plain_of(struct linear *linear)
{
    return (struct linear_plain *)linear;
}

static void linear_destroy(struct linear *linear)
{
    struct linear_plain *l = plain_of(linear);

    product_deinit(&l->forward);
    mem_free(l->packed);
    panels_deinit(&l->own_forward.panels);
    panels_deinit(&l->own_backward.panels);
    mem_free(l);
}

static void pack_part(void *data, size_t part, size_t from, size_t to)
{
    const struct linear_plain *l = data;

    (void)part;
    float_pack_transposed(&l->forward.form, l->weight, from, to, l->packed);
}

static enum rc linear_prepare(struct linear *linear, const float *weight, const float *bias)
{
    struct linear_plain *l = plain_of(linear);

    CHECK((bias != NULL) == l->options.with_bias);
    l->weight = weight;
    l->bias = bias;
    l->own_forward.is_current = l->own_backward.is_current = false;
    if (l->packed != NULL) {
        size_t block_values = l->forward.form.block * l->forward.form.words;
        cpu_split(l->backend, product_form_blocks(&l->forward.form),
                  SPLIT_VALUES / block_values + 1, pack_part, l);
    }
    return RC_OK;
}

struct forward {
    struct linear_tile tile;
    float *scratch;
};

static void forward_part(void *data, size_t part, size_t from, size_t to)
{
    const struct forward *f = data;
    size_t first = from * LINEAR_TILE_OUTPUTS, last = to * LINEAR_TILE_OUTPUTS;

    linear_tile_forward(&f->tile, first, last < f->tile.out ? last : f->tile.out,
                        f->scratch + part * linear_tile_scratch(f->tile.in));
}

/* Bias and relu on the way. */
static void forward_tiles(struct linear_plain *l, size_t rows, const float *x, float *to)
{
    const struct linear_options *o = &l->options;
    size_t blocks = (o->out + LINEAR_TILE_OUTPUTS - 1) / LINEAR_TILE_OUTPUTS;
    struct forward forward = {
        .tile = {rows, o->in, o->out, x, l->weight, l->bias, o->activation.kind == ACTIVATION_RELU,
                 to},
        .scratch = cpu_of(l->backend)->scratch,
    };

    cpu_split(l->backend, blocks, gemm_is_small(rows, o->out, o->in) ? blocks : 1, forward_part,
              &forward);
}

struct pack {
    const struct panels *panels;
    struct panels_source source;
};

static void pack_panels(void *data, size_t part, size_t from, size_t to)
{
    const struct pack *pack = data;

    (void)part;
    panels_pack(pack->panels, &pack->source, from, to);
}

struct rows_product {
    const struct panels *panels;
    struct panels_product product;
    const struct finish *finish; /* NULL: the product is all */
};

static void multiply_rows(void *data, size_t part, size_t from, size_t to)
{
    const struct rows_product *all = data;
    size_t end = to * GEMM_ROWS_UNIT, last = end < all->product.rows ? end : all->product.rows;

    for (size_t row = from * GEMM_ROWS_UNIT; row < last; row += CACHED_ROWS) {
        struct panels_product product = all->product;

        product.rows = last - row < CACHED_ROWS ? last - row : CACHED_ROWS;
        product.a += row * product.a_stride;
        product.c += row * product.c_stride;
        panels_multiply_all(all->panels, &product);
        if (all->finish != NULL) finish_part((void *)all->finish, part, row, row + product.rows);
    }
}

/* With the weights as B, or their transpose (forward). */
static void multiply_packed(const struct linear_plain *l, struct packed_weights *weights,
                            bool is_transposed, const struct panels_product *product,
                            const struct finish *finish)
{
    const struct panels *panels = &weights->panels;
    struct rows_product all = {panels, *product, finish};
    size_t units = (product->rows + GEMM_ROWS_UNIT - 1) / GEMM_ROWS_UNIT;

    if (!weights->is_current) {
        struct pack pack = {panels, {l->weight, l->options.in, is_transposed, .rotation = 0}};
        cpu_split(l->backend, panels_count(panels),
                  SPLIT_VALUES / (panels->width * panels->inner) + 1, pack_panels, &pack);
        weights->is_current = true;
    }
    cpu_split(l->backend, units,
              gemm_is_small(product->rows, l->options.out, l->options.in) ? units : 1,
              multiply_rows, &all);
}

/* Bias and activation on the way. */
static void forward_packed(struct linear_plain *l, size_t rows, const float *x, float *pre,
                           float *y)
{
    const struct linear_options *o = &l->options;
    struct finish finish = {o, NULL, pre, y};
    struct panels_product product = {
        .rows = rows,
        .a = x,
        .a_stride = o->in,
        .c = pre != NULL ? pre : y,
        .c_stride = o->out,
        .bias = l->bias,
        .with_relu = o->activation.kind == ACTIVATION_RELU,
    };

    multiply_packed(l, &l->own_forward, true, &product,
                    o->activation.kind > ACTIVATION_RELU ? &finish : NULL);
}

static void backward_packed(struct linear_plain *l, const struct linear_backward *pass)
{
    struct panels_product product = {
        .rows = pass->rows,
        .a = pass->dy,
        .a_stride = l->options.out,
        .c = pass->dx,
        .c_stride = l->options.in,
        .adds = pass->adds_to_dx,
    };

    multiply_packed(l, &l->own_backward, false, &product, NULL);
}

static bool is_packed_for(const struct packed_weights *weights, size_t rows)
{
    return weights->panels.values != NULL && rows >= PACKED_ROWS_MIN;
}

/* Whether to transpose x rather than pack W: with panels.h that depends on which is less. */
static bool takes_tiles(const struct linear_options *o, size_t rows)
{
    if (gemm_is_own()) return rows >= GEMM_OWN_ROWS_MIN && rows * (o->in + o->out) < o->in * o->out;
    return rows <= TILE_ROWS_MAX;
}

static enum rc linear_forward(struct linear *linear, size_t rows, const void *x, void *pre, void *y)
{
    struct linear_plain *l = plain_of(linear);
    const struct linear_options *o = &l->options;
    float *to = pre != NULL ? pre : y;
    struct gemm product = {
        .is_b_transposed = true,
        .rows = rows,
        .columns = o->out,
        .inner = o->in,
        .alpha = 1.0F,
        .a = x,
        .a_stride = o->in,
        .b = l->weight,
        .b_stride = o->in,
        .c = to,
        .c_stride = o->out,
    };
    enum rc rc;

    CHECK(rows <= o->rows_max);
    CHECK(pre == NULL || activation_needs_input(o->activation.kind));
    if (l->has_tiles && takes_tiles(o, rows)) {
        forward_tiles(l, rows, x, to);
        if (o->activation.kind > ACTIVATION_RELU) linear_finish(l->backend, o, rows, NULL, pre, y);
        return RC_OK;
    }
    if (is_packed_for(&l->own_forward, rows)) {
        forward_packed(l, rows, x, pre, y);
        return RC_OK;
    }
    if (l->packed != NULL && rows == o->rows_max) {
        struct cpu_backend *cpu = cpu_of(l->backend);
        rc = product_run(&l->forward, cpu, x, l->packed, to, cpu->scratch);
    } else {
        rc = cpu_gemm(l->backend, &product);
    }
    if (rc == RC_OK) linear_finish(l->backend, o, rows, l->bias, pre, y);
    return rc;
}

static enum rc linear_backward(struct linear *linear, const struct linear_backward *pass)
{
    struct linear_plain *l = plain_of(linear);
    const struct linear_options *o = &l->options;
    struct gemm weight = {
        .is_a_transposed = true,
        .rows = o->out,
        .columns = o->in,
        .inner = pass->rows,
        .alpha = 1.0F,
        .beta = pass->is_first ? 0.0F : 1.0F,
        .a = pass->dy,
        .a_stride = o->out,
        .b = pass->x,
        .b_stride = o->in,
        .c = pass->dweight,
        .c_stride = o->in,
    };
    struct gemm input = {
        .rows = pass->rows,
        .columns = o->in,
        .inner = o->out,
        .alpha = 1.0F,
        .beta = pass->adds_to_dx ? 1.0F : 0.0F,
        .a = pass->dy,
        .a_stride = o->out,
        .b = l->weight,
        .b_stride = o->in,
        .c = pass->dx,
        .c_stride = o->in,
    };
    enum rc rc;

    CHECK(pass->rows <= o->rows_max && o->with_gradients);
    CHECK(pass->dx == NULL || o->with_input_gradient);
    linear_start_back(l->backend, o, pass, cpu_of(l->backend)->scratch);
    rc = cpu_gemm(l->backend, &weight);
    if (rc != RC_OK || pass->dx == NULL) return rc;
    /* Last: dx may be x. */
    if (!is_packed_for(&l->own_backward, pass->rows)) return cpu_gemm(l->backend, &input);
    backward_packed(l, pass);
    return RC_OK;
}

static const struct linear_ops linear_plain_ops = {
    .name = "float32",
    .destroy = linear_destroy,
    .prepare = linear_prepare,
    .forward = linear_forward,
    .backward = linear_backward,
};

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* oneDNN's forward product of many rows with packed weights, 3 to 10 % ahead of its sgemm. */
static enum rc library_init(struct linear_plain *l)
{
    const struct linear_options *o = &l->options;
    const struct product_shape shape = {o->rows_max, o->out, o->in, .adds = false};
    enum rc rc = RC_UNSUPPORTED;

    if (l->has_tiles && o->rows_max > TILE_ROWS_MAX) {
        rc = product_init(&l->forward, cpu_of(l->backend), &shape);
    }
    if (rc == RC_UNSUPPORTED) return RC_OK;
    if (rc != RC_OK) return rc;
    l->packed = mem_aligned(product_form_bytes(&l->forward.form));
    return l->packed != NULL ? RC_OK : RC_NOMEM;
}

static enum rc packed_init(struct linear_plain *l)
{
    const struct linear_options *o = &l->options;
    enum panels_form form = panels_best_form();
    enum rc rc = RC_OK;

    if (o->in * o->out > PACKED_VALUES_MAX) return RC_OK;
    if (!gemm_is_own()) return library_init(l);
    if (o->rows_max < PACKED_ROWS_MIN) return RC_OK;
    if (!l->has_tiles || !takes_tiles(o, o->rows_max)) {
        rc = panels_init(&l->own_forward.panels, form, o->in, o->out);
    }
    if (rc == RC_OK && o->with_gradients && o->with_input_gradient) {
        rc = panels_init(&l->own_backward.panels, form, o->out, o->in);
    }
    return rc;
}

static enum rc linear_plain_create(struct backend *backend, const struct linear_options *options,
                                   struct linear **linear)
{
    struct linear_plain *l = mem_alloc(sizeof(*l));
    size_t values = options->out;
    enum rc rc;

    if (l == NULL) return RC_NOMEM;
    l->base.ops = &linear_plain_ops;
    l->backend = backend;
    l->options = *options;
    l->has_tiles = options->in >= NARROW && options->out >= NARROW && linear_tile_is_here();
    if (l->has_tiles) values = larger(values, linear_tile_scratch(options->in));
    rc = packed_init(l);
    if (rc == RC_OK) {
        rc = cpu_scratch_reserve(cpu_of(backend), larger(backend->threads * values * sizeof(float),
                                                         l->forward.scratch_bytes));
    }
    if (rc != RC_OK) {
        linear_destroy(&l->base);
        return rc;
    }
    *linear = &l->base;
    return RC_OK;
}

enum rc cpu_linear_create(struct backend *backend, const struct linear_options *options,
                          struct linear **linear)
{
    struct cpu_backend *cpu = cpu_of(backend);

    CHECK(options->in > 0 && options->out > 0 && options->rows_max > 0);
    CHECK(options->activation.kind < ACTIVATION_COUNT);
    if (cpu->options.is_reference) return reference_linear_create(options, linear);
    /* Narrow layers are faster in float32, and logits are better so. */
    if (cpu->is_bf16 && options->in >= NARROW && options->out >= NARROW) {
        enum rc rc = linear_bf16_create(cpu, options, linear);
        if (rc != RC_UNSUPPORTED) return rc;
    }
    return linear_plain_create(backend, options, linear);
}
