/*
 * Dense layers whose products take bfloat16 operands and sum in float32, by oneDNN's matmul (AMX
 * tiles or AVX512-BF16). Weights are packed once a step, activations and gradients as they come;
 * biases, activation functions and what leaves a layer are float32. A primitive is made for
 * rows_max rows: for fewer, rows of zeros are added, and results go by way of scratch memory.
 */
#include "kernels/cpu/linear_internal.h"

#ifndef GRAPEVINE_HAS_DNNL

enum rc linear_bf16_create(struct cpu_backend *backend, const struct linear_options *options,
                           struct linear **linear)
{
    (void)backend;
    (void)options;
    (void)linear;
    return RC_UNSUPPORTED;
}

#else

#include "base/check.h"
#include "base/mem.h"
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/split.h"

#include <string.h>

/* From libgomp; <omp.h> comes with gcc only. */
void omp_set_num_threads(int threads);
int omp_get_max_threads(void);

enum {
    PAIR_ROWS = 32,             /* rows of B come in multiples of it */
    PASS_VALUES = 1 << 15,      /* of a conversion, for each thread */
    SPLIT_OPERATIONS = 48 << 20 /* of a product that is worth more than one thread */
};

/* C [rows][columns] = A B, or C += A B; A: [rows][inner], or stored the other way round. */
struct shape {
    size_t rows, columns, inner;
    bool is_a_transposed, adds;
};

struct product {
    dnnl_primitive_t primitive;
    dnnl_memory_t a, b, c, scratch;
    struct bf16_form form; /* of B */
    size_t scratch_bytes;
};

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

static void product_deinit(struct product *p)
{
    dnnl_memory_t memories[] = {p->a, p->b, p->c, p->scratch};

    for (size_t i = 0; i < ARRAY_COUNT(memories); i++) {
        if (memories[i] != NULL) dnnl_memory_destroy(memories[i]);
    }
    if (p->primitive != NULL) dnnl_primitive_destroy(p->primitive);
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

/* The library's form of B as ours; RC_UNSUPPORTED if it is another one. */
static enum rc form_read(const dnnl_memory_desc_t *b, struct bf16_form *form)
{
    const dnnl_blocking_desc_t *blocks = &b->format_desc.blocking;
    size_t block;

    if (b->format_kind != dnnl_blocked || blocks->inner_nblks != 3) return RC_UNSUPPORTED;
    if (blocks->inner_idxs[0] != 0 || blocks->inner_idxs[1] != 1 || blocks->inner_idxs[2] != 0 ||
        blocks->inner_blks[0] * 2 != PAIR_ROWS || blocks->inner_blks[2] != 2) {
        return RC_UNSUPPORTED;
    }
    block = (size_t)blocks->inner_blks[1];
    form->inner = (size_t)b->dims[0];
    form->columns = (size_t)b->dims[1];
    form->block = block;
    form->pairs = (size_t)b->padded_dims[0] / 2;
    if (block % (PAIR_ROWS / 2) != 0 || (size_t)b->padded_dims[0] % PAIR_ROWS != 0 ||
        (size_t)blocks->strides[0] != block * PAIR_ROWS ||
        (size_t)blocks->strides[1] != block * form->pairs * 2) {
        return RC_UNSUPPORTED;
    }
    return RC_OK;
}

static size_t form_blocks(const struct bf16_form *form)
{
    return (form->columns + form->block - 1) / form->block;
}

static size_t form_bytes(const struct bf16_form *form)
{
    return form_blocks(form) * form->block * form->pairs * 2 * sizeof(uint16_t);
}

static enum rc attributes_create(bool adds, dnnl_primitive_attr_t *attributes)
{
    dnnl_post_ops_t after = NULL;
    enum rc rc = onednn_attributes_create(false, attributes);

    if (rc != RC_OK || !adds) return rc;
    rc = onednn_rc(dnnl_post_ops_create(&after));
    if (rc == RC_OK) rc = onednn_rc(dnnl_post_ops_append_sum(after, 1.0F));
    if (rc == RC_OK) rc = onednn_rc(dnnl_primitive_attr_set_post_ops(*attributes, after));
    if (after != NULL) dnnl_post_ops_destroy(after);
    return rc;
}

/* The library's choice for a shape; B in any form. */
static enum rc describe(dnnl_engine_t engine, const struct shape *s, dnnl_primitive_desc_t *out)
{
    dnnl_dims_t a_dims = {(dnnl_dim_t)s->rows, (dnnl_dim_t)s->inner};
    dnnl_dims_t b_dims = {(dnnl_dim_t)s->inner, (dnnl_dim_t)s->columns};
    dnnl_dims_t c_dims = {(dnnl_dim_t)s->rows, (dnnl_dim_t)s->columns};
    dnnl_memory_desc_t a, b, c;
    dnnl_matmul_desc_t matmul;
    dnnl_primitive_attr_t attributes = NULL;
    const char *name = NULL;
    enum rc rc = attributes_create(s->adds, &attributes);

    if (rc == RC_OK) {
        rc = onednn_rc(dnnl_memory_desc_init_by_tag(&a, 2, a_dims, dnnl_bf16,
                                                    s->is_a_transposed ? dnnl_ba : dnnl_ab));
    }
    if (rc == RC_OK) {
        rc = onednn_rc(dnnl_memory_desc_init_by_tag(&b, 2, b_dims, dnnl_bf16, dnnl_format_tag_any));
    }
    if (rc == RC_OK) {
        rc = onednn_rc(dnnl_memory_desc_init_by_tag(&c, 2, c_dims, dnnl_f32, dnnl_ab));
    }
    if (rc == RC_OK) rc = onednn_rc(dnnl_matmul_desc_init(&matmul, &a, &b, NULL, &c));
    if (rc == RC_OK) {
        rc = onednn_rc(dnnl_primitive_desc_create(out, &matmul, attributes, engine, NULL));
    }
    if (attributes != NULL) dnnl_primitive_attr_destroy(attributes);
    if (rc != RC_OK) return rc;
    rc = onednn_rc(dnnl_primitive_desc_query(*out, dnnl_query_impl_info_str, 0, &name));
    return rc == RC_OK && strncmp(name, "brg", 3) != 0 ? RC_UNSUPPORTED : rc;
}

static enum rc memories_create(struct product *p, dnnl_primitive_desc_t description,
                               dnnl_engine_t engine)
{
    const struct {
        dnnl_query_t query;
        dnnl_memory_t *memory;
    } all[] = {{dnnl_query_src_md, &p->a},
               {dnnl_query_weights_md, &p->b},
               {dnnl_query_dst_md, &p->c},
               {dnnl_query_scratchpad_md, &p->scratch}};
    enum rc rc = RC_OK;

    for (size_t i = 0; rc == RC_OK && i < ARRAY_COUNT(all); i++) {
        const dnnl_memory_desc_t *form = dnnl_primitive_desc_query_md(description, all[i].query, 0);
        rc = onednn_rc(dnnl_memory_create(all[i].memory, form, engine, DNNL_MEMORY_NONE));
        p->scratch_bytes = dnnl_memory_desc_get_size(form); /* the last one stays */
    }
    return rc;
}

/* A primitive splits its work among as many threads as there are when it is made. */
static enum rc product_init(struct product *p, const struct cpu_backend *cpu, const struct shape *s)
{
    double operations = 2.0 * (double)s->rows * (double)s->columns * (double)s->inner;
    dnnl_engine_t engine = cpu->onednn->engine;
    dnnl_primitive_desc_t description = NULL;
    int before = omp_get_max_threads();
    enum rc rc;

    omp_set_num_threads(operations < (double)SPLIT_OPERATIONS ? 1 : (int)cpu->base.threads);
    rc = describe(engine, s, &description);
    if (rc == RC_OK) {
        rc = form_read(dnnl_primitive_desc_query_md(description, dnnl_query_weights_md, 0),
                       &p->form);
    }
    if (rc == RC_OK) rc = onednn_rc(dnnl_primitive_create(&p->primitive, description));
    if (rc == RC_OK) rc = memories_create(p, description, engine);
    if (description != NULL) dnnl_primitive_desc_destroy(description);
    omp_set_num_threads(before);
    return rc;
}

static enum rc product_run(const struct linear_bf16 *l, const struct product *p, const uint16_t *a,
                           const uint16_t *b, float *c)
{
    dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, p->a},
                              {DNNL_ARG_WEIGHTS, p->b},
                              {DNNL_ARG_DST, p->c},
                              {DNNL_ARG_SCRATCHPAD, p->scratch}};

    onednn_point(p->a, a);
    onednn_point(p->b, b);
    onednn_point(p->c, c);
    onednn_point(p->scratch, scratch_at(l, l->library_at));
    return onednn_run(l->cpu->onednn, p->primitive, args, 4);
}

struct packing {
    const struct bf16_form *form;
    bool is_turned;
    const float *from;
    uint16_t *to;
};

static void pack_part(void *data, size_t part, size_t from, size_t to)
{
    const struct packing *p = data;

    (void)part;
    if (p->is_turned) {
        bf16_pack_turned(p->form, p->from, from, to, p->to);
    } else {
        bf16_pack(p->form, p->from, from, to, p->to);
    }
}

static void pack(const struct linear_bf16 *l, struct packing packing)
{
    size_t block_values = packing.form->block * packing.form->pairs * 2;

    cpu_split(&l->cpu->base, form_blocks(packing.form), PASS_VALUES / block_values + 1, pack_part,
              &packing);
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
    if (l->data.primitive != NULL) {
        pack(l, (struct packing){&l->data.form, false, weight, l->data_weight});
    }
    return RC_OK;
}

static enum rc linear_forward(struct linear *linear, size_t rows, const float *x, float *pre,
                              float *y)
{
    struct linear_bf16 *l = bf16_of(linear);
    const struct linear_options *o = &l->options;
    bool is_whole = rows == o->rows_max;
    float *to = pre != NULL ? pre : y;
    float *out = is_whole ? to : scratch_at(l, l->float_at);
    enum rc rc;

    CHECK(rows <= o->rows_max);
    CHECK(pre == NULL || activation_needs_input(o->activation.kind));
    rc = product_run(l, &l->forward, convert(l, x, rows, o->in), l->forward_weight, out);
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
    enum rc rc = product_run(l, &l->data, dy, l->data_weight, to);
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
    struct bf16_form form = weights->form;
    uint16_t *x = scratch_at(l, l->packed_at);
    const uint16_t *dy;
    enum rc rc;

    CHECK(pass->rows <= o->rows_max && o->with_gradients);
    CHECK(pass->dx == NULL || o->with_input_gradient);
    linear_start_back(&l->cpu->base, o, pass, scratch_at(l, l->float_at));
    dy = convert(l, pass->dy, pass->rows, o->out);
    form.inner = pass->rows; /* zeros from there on */
    pack(l, (struct packing){&form, false, pass->x, x});
    rc = product_run(l, weights, dy, x, pass->dweight);
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
    struct shape forward = {o->rows_max, o->out, o->in, false, false};
    struct shape data = {o->rows_max, o->in, o->out, false, false};
    struct shape weights = {o->out, o->in, o->rows_max, true, false};
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

    l->forward_weight = mem_aligned(form_bytes(&l->forward.form));
    if (l->forward_weight == NULL) return RC_NOMEM;
    if (o->with_input_gradient) {
        l->data_weight = mem_aligned(form_bytes(&l->data.form));
        if (l->data_weight == NULL) return RC_NOMEM;
        library = larger(library, l->data.scratch_bytes);
    }
    library = larger(library, larger(l->weights.scratch_bytes, l->weights_more.scratch_bytes));
    l->rows_at = take(&end, o->rows_max * wide * sizeof(uint16_t));
    l->packed_at = take(&end, o->with_gradients ? form_bytes(&l->weights.form) : 0);
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

#endif
