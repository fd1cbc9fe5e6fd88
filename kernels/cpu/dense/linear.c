/*
 * Matrix products and dense layers in float32. oneDNN's sgemm is 3 to 12 % ahead of OpenBLAS 0.3.21
 * on the shapes of a training step (64 x 256 x 784 and the like), OpenBLAS up to twice as fast
 * where one side is narrow (the last layer). Forward products are faster without either: of few
 * rows by linear_tile.c, of many with weights packed once a step (product.c). The choice depends on
 * the shape and the processor alone: equal calls give equal bits. Small products stay on one
 * thread: waking another takes as long as they do.
 */
#include "kernels/cpu/dense/linear_internal.h"

#include "base/check.h"
#include "base/mem.h"
#include "kernels/cpu/dense/bf16.h"
#include "kernels/cpu/dense/blas.h"
#include "kernels/cpu/dense/product.h"
#include "kernels/cpu/reference/dense.h"
#include "kernels/cpu/reference/reference.h"
#include "kernels/cpu/split.h"

#include <limits.h>
#include <string.h>

#include <omp.h>

enum {
    NARROW = 16,
    TILE_ROWS_MAX = 128,         /* the library's own packing pays from there on */
    PACKED_VALUES_MAX = 1 << 20, /* larger weights are not kept twice */
    SPLIT_VALUES = 1 << 15,      /* of a pass over rows, for each thread */
    SPLIT_OPERATIONS = 12 << 20, /* multiplications and additions of a product, in all */
};

static bool is_narrow(const struct gemm *g)
{
    return g->rows < NARROW || g->columns < NARROW || g->inner < NARROW;
}

static void multiply(const struct cpu_backend *cpu, const struct gemm *g, bool is_alone)
{
    if (cpu->onednn != NULL && !is_narrow(g) && onednn_gemm(g) == RC_OK) return;
    blas_multiply(&cpu->base, g, is_alone);
}

static bool is_small(size_t rows, size_t columns, size_t inner)
{
    return 2.0 * (double)rows * (double)columns * (double)inner < (double)SPLIT_OPERATIONS;
}

enum rc cpu_gemm(struct backend *backend, const struct gemm *g)
{
    const struct cpu_backend *cpu = cpu_of(backend);

    CHECK(g->rows <= INT_MAX && g->columns <= INT_MAX && g->inner <= INT_MAX);
    CHECK(g->a_stride <= INT_MAX && g->b_stride <= INT_MAX && g->c_stride <= INT_MAX);
    if (g->rows == 0 || g->columns == 0) return RC_OK;
    if (cpu->options.is_reference) {
        reference_gemm(g);
    } else if (backend->threads > 1 && is_small(g->rows, g->columns, g->inner)) {
        omp_set_num_threads(1);
        multiply(cpu, g, true);
        omp_set_num_threads((int)backend->threads);
    } else {
        multiply(cpu, g, false);
    }
    return RC_OK;
}

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

struct linear_plain {
    struct linear base;
    struct backend *backend;
    struct linear_options options;
    bool has_tiles;
    struct product forward;     /* of rows_max rows; not made where that is no use */
    float *packed;              /* the weights in its form */
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

    cpu_split(l->backend, blocks, is_small(rows, o->out, o->in) ? blocks : 1, forward_part,
              &forward);
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
    if (l->has_tiles && rows <= TILE_ROWS_MAX) {
        forward_tiles(l, rows, x, to);
        if (o->activation.kind > ACTIVATION_RELU) linear_finish(l->backend, o, rows, NULL, pre, y);
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
    if (rc == RC_OK && pass->dx != NULL) rc = cpu_gemm(l->backend, &input); /* last: dx may be x */
    return rc;
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

/* The forward product of many rows with packed weights, 3 to 10 % ahead of sgemm. */
static enum rc packed_init(struct linear_plain *l)
{
    const struct linear_options *o = &l->options;
    const struct product_shape shape = {o->rows_max, o->out, o->in, .adds = false};
    enum rc rc = RC_UNSUPPORTED;

    if (l->has_tiles && o->rows_max > TILE_ROWS_MAX && o->in * o->out <= PACKED_VALUES_MAX) {
        rc = product_init(&l->forward, cpu_of(l->backend), &shape);
    }
    if (rc == RC_UNSUPPORTED) return RC_OK;
    if (rc != RC_OK) return rc;
    l->packed = mem_aligned(product_form_bytes(&l->forward.form));
    return l->packed != NULL ? RC_OK : RC_NOMEM;
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
