/*
 * Dense layers whose products take bfloat16 operands and sum in float32, by oneDNN's matmul (AMX
 * tiles or AVX512-BF16). Weights are packed once a step, activations and gradients as they come;
 * biases, activation functions and what leaves a layer are float32. A primitive is made for
 * rows_max rows: for fewer, rows of zeros are added, and results go by way of scratch memory.
 */
#include "kernels/cpu/dense/linear_internal.h"

#include "base/check.h"
#include "base/mem.h"
#include "kernels/cpu/dense/bf16.h"
#include "kernels/cpu/dense/product.h"
#include "kernels/cpu/split.h"

#include <string.h>

enum { PASS_VALUES = 1 << 15 }; /* of a conversion, for each thread */

struct linear_bf16 {
    struct linear base;
    struct cpu_backend *cpu;
    struct linear_options options;
    struct product forward, data, weights, weights_more; /* the last adds */
    uint16_t *forward_weight, *data_weight;              /* packed */
    const float *bias;                                   /* borrowed */
    /* Where things begin in the scratch memory of the backend, in bytes. */
    size_t rows_at, packed_at, float_at, library_at;
};

static struct linear_bf16 *bf16_of(struct linear *linear)
{
    return (struct linear_bf16 *)linear;
}

static void *scratch_at(const struct linear_bf16 *l, size_t at)
{
    return (char *)l->cpu->scratch + at;
}

static void linear_destroy(struct linear *linear)
{
    struct linear_bf16 *l = bf16_of(linear);

    product_deinit(&l->forward);
    product_deinit(&l->data);
    product_deinit(&l->weights);
    product_deinit(&l->weights_more);
    mem_free(l->forward_weight);
    mem_free(l->data_weight);
    mem_free(l);
}

struct packing {
    const struct product_form *form;
    bool is_transposed;
    const float *from;
    uint16_t *to;
};

static void pack_part(void *data, size_t part, size_t from, size_t to)
{
    const struct packing *p = data;

    (void)part;
    if (p->is_transposed) {
        bf16_pack_transposed(p->form, p->from, from, to, p->to);
    } else {
        bf16_pack(p->form, p->from, from, to, p->to);
    }
}

static void pack(const struct linear_bf16 *l, struct packing packing)
{
    size_t block_values = packing.form->block * packing.form->words * 2;

    cpu_split(&l->cpu->base, product_form_blocks(packing.form), PASS_VALUES / block_values + 1,
              pack_part, &packing);
}

static void convert_part(void *data, size_t part, size_t from, size_t to)
{
    const struct packing *p = data;

    (void)part;
    bf16_from_float(p->from + from, p->to + from, to - from);
}

/* `rows` rows and zeros up to rows_max; in scratch memory. */
static uint16_t *convert(const struct linear_bf16 *l, const float *x, size_t rows, size_t columns)
{
    uint16_t *to = scratch_at(l, l->rows_at);
    struct packing packing = {.from = x, .to = to};
    size_t n = rows * columns;

    cpu_split(&l->cpu->base, n, PASS_VALUES, convert_part, &packing);
    memset(to + n, 0, (l->options.rows_max - rows) * columns * sizeof(*to));
    return to;
}

static enum rc linear_prepare(struct linear *linear, const float *weight, const float *bias)
{
    struct linear_bf16 *l = bf16_of(linear);

    CHECK((bias != NULL) == l->options.with_bias);
    l->bias = bias;
    pack(l, (struct packing){&l->forward.form, true, weight, l->forward_weight});
    if (l->options.with_input_gradient) {
        pack(l, (struct packing){&l->data.form, false, weight, l->data_weight});
    }
    return RC_OK;
}

static enum rc linear_forward(struct linear *linear, size_t rows, const void *x, void *pre, void *y)
{
    struct linear_bf16 *l = bf16_of(linear);
    const struct linear_options *o = &l->options;
    bool is_whole = rows == o->rows_max;
    float *to = pre != NULL ? pre : y;
    float *out = is_whole ? to : scratch_at(l, l->float_at);
    enum rc rc;

    CHECK(rows <= o->rows_max);
    CHECK(pre == NULL || activation_needs_input(o->activation.kind));
    rc = product_run(&l->forward, l->cpu, convert(l, x, rows, o->in), l->forward_weight, out,
                     scratch_at(l, l->library_at));
    if (rc != RC_OK) return rc;
    if (!is_whole) memcpy(to, out, rows * o->out * sizeof(*to));
    linear_finish(&l->cpu->base, o, rows, l->bias, pre, y);
    return RC_OK;
}

/* dy is converted already. */
static enum rc input_gradient(struct linear_bf16 *l, const struct linear_backward *pass,
                              const uint16_t *dy)
{
    const struct linear_options *o = &l->options;
    bool is_direct = pass->rows == o->rows_max && !pass->adds_to_dx;
    float *to = is_direct ? pass->dx : scratch_at(l, l->float_at);
    enum rc rc =
        product_run(&l->data, l->cpu, dy, l->data_weight, to, scratch_at(l, l->library_at));
    size_t n = pass->rows * o->in;

    if (rc != RC_OK || is_direct) return rc;
    if (pass->adds_to_dx) return cpu_axpy(&l->cpu->base, 1.0F, to, pass->dx, n);
    memcpy(pass->dx, to, n * sizeof(*to));
    return RC_OK;
}

static enum rc linear_backward(struct linear *linear, const struct linear_backward *pass)
{
    struct linear_bf16 *l = bf16_of(linear);
    const struct linear_options *o = &l->options;
    struct product *weights = pass->is_first ? &l->weights : &l->weights_more;
    struct product_form form = weights->form;
    uint16_t *x = scratch_at(l, l->packed_at);
    const uint16_t *dy;
    enum rc rc;

    CHECK(pass->rows <= o->rows_max && o->with_gradients);
    CHECK(pass->dx == NULL || o->with_input_gradient);
    linear_start_back(&l->cpu->base, o, pass, scratch_at(l, l->float_at));
    dy = convert(l, pass->dy, pass->rows, o->out);
    form.inner = pass->rows; /* zeros from there on */
    pack(l, (struct packing){&form, false, pass->x, x});
    rc = product_run(weights, l->cpu, dy, x, pass->dweight, scratch_at(l, l->library_at));
    if (rc == RC_OK && pass->dx != NULL) rc = input_gradient(l, pass, dy); /* dx may be x */
    return rc;
}

static const struct linear_ops linear_bf16_ops = {
    .name = "bfloat16",
    .destroy = linear_destroy,
    .prepare = linear_prepare,
    .forward = linear_forward,
    .backward = linear_backward,
};

static enum rc products_init(struct linear_bf16 *l)
{
    const struct linear_options *o = &l->options;
    struct product_shape forward = {o->rows_max, o->out, o->in, .is_bf16 = true};
    struct product_shape data = {o->rows_max, o->in, o->out, .is_bf16 = true};
    struct product_shape weights = {o->out, o->in, o->rows_max, .is_a_transposed = true,
                                    .is_bf16 = true};
    enum rc rc = product_init(&l->forward, l->cpu, &forward);

    if (rc == RC_OK && o->with_input_gradient) rc = product_init(&l->data, l->cpu, &data);
    if (rc == RC_OK && o->with_gradients) rc = product_init(&l->weights, l->cpu, &weights);
    weights.adds = true;
    if (rc == RC_OK && o->with_gradients) rc = product_init(&l->weights_more, l->cpu, &weights);
    return rc;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Lines of the cache for each part of the scratch memory. */
static size_t take(size_t *at, size_t bytes)
{
    size_t here = *at;

    *at += (bytes + 63) / 64 * 64;
    return here;
}

static enum rc memory_init(struct linear_bf16 *l)
{
    const struct linear_options *o = &l->options;
    size_t wide = larger(o->in, o->out), library = l->forward.scratch_bytes, end = 0;

    l->forward_weight = mem_aligned(product_form_bytes(&l->forward.form));
    if (l->forward_weight == NULL) return RC_NOMEM;
    if (o->with_input_gradient) {
        l->data_weight = mem_aligned(product_form_bytes(&l->data.form));
        if (l->data_weight == NULL) return RC_NOMEM;
        library = larger(library, l->data.scratch_bytes);
    }
    library = larger(library, larger(l->weights.scratch_bytes, l->weights_more.scratch_bytes));
    l->rows_at = take(&end, o->rows_max * wide * sizeof(uint16_t));
    l->packed_at = take(&end, o->with_gradients ? product_form_bytes(&l->weights.form) : 0);
    l->float_at = take(&end, larger(o->rows_max, l->cpu->base.threads) * wide * sizeof(float));
    l->library_at = take(&end, library);
    return cpu_scratch_reserve(l->cpu, end);
}

enum rc linear_bf16_create(struct cpu_backend *backend, const struct linear_options *options,
                           struct linear **linear)
{
    struct linear_bf16 *l = mem_alloc(sizeof(*l));
    enum rc rc;

    if (l == NULL) return RC_NOMEM;
    l->base.ops = &linear_bf16_ops;
    l->cpu = backend;
    l->options = *options;
    rc = products_init(l);
    if (rc == RC_OK) rc = memory_init(l);
    if (rc != RC_OK) {
        linear_destroy(&l->base);
        return rc;
    }
    *linear = &l->base;
    return RC_OK;
}
