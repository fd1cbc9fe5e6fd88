/* oneDNN's matmul with a factor packed by ourselves. See product.h. */
#include "kernels/cpu/dense/product.h"

size_t product_form_blocks(const struct product_form *form)
{
    return (form->columns + form->block - 1) / form->block;
}

size_t product_form_bytes(const struct product_form *form)
{
    return product_form_blocks(form) * form->block * form->words * sizeof(uint32_t);
}

#ifndef GRAPEVINE_HAS_DNNL

enum rc product_init(struct product *product, const struct cpu_backend *backend,
                     const struct product_shape *shape)
{
    (void)backend;
    (void)shape;
    *product = (struct product){0};
    return RC_UNSUPPORTED;
}

void product_deinit(struct product *product)
{
    (void)product;
}

enum rc product_run(const struct product *product, const struct cpu_backend *backend, const void *a,
                    const void *b, float *c, void *scratch)
{
    (void)product;
    (void)backend;
    (void)a;
    (void)b;
    (void)c;
    (void)scratch;
    return RC_UNSUPPORTED;
}

#else

#include "base/check.h"
#include "kernels/cpu/onednn.h"

#include <string.h>

#include <omp.h>

enum {
    BLOCK_ROWS = 16,
    SPLIT_OPERATIONS = 16 << 20 /* of a product that is worth more than one thread; of bf16 twice */
};

void product_deinit(struct product *p)
{
    dnnl_memory_t memories[] = {p->a, p->b, p->c, p->scratch};

    for (size_t i = 0; i < ARRAY_COUNT(memories); i++) {
        if (memories[i] != NULL) dnnl_memory_destroy(memories[i]);
    }
    if (p->primitive != NULL) dnnl_primitive_destroy(p->primitive);
}

/* The library's form of B as ours; RC_UNSUPPORTED if it is another one. Of float32: blocks of
 * rows x columns; of bfloat16: pairs of rows inside. */
static enum rc form_read(const_dnnl_memory_desc_t b, bool is_bf16, struct product_form *form)
{
    struct onednn_blocks blocks;
    size_t height = is_bf16 ? 2 * BLOCK_ROWS : BLOCK_ROWS; /* rows come in multiples of it */
    size_t rows, block;

    if (!onednn_form_blocks(b, &blocks) || blocks.count != (is_bf16 ? 3 : 2) ||
        blocks.axes[0] != 0 || blocks.axes[1] != 1 || blocks.sizes[0] != BLOCK_ROWS) {
        return RC_UNSUPPORTED;
    }
    if (is_bf16 && (blocks.axes[2] != 0 || blocks.sizes[2] != 2)) return RC_UNSUPPORTED;
    rows = (size_t)blocks.padded[0];
    block = (size_t)blocks.sizes[1];
    if (block % BLOCK_ROWS != 0 || rows % height != 0 ||
        (size_t)blocks.strides[0] != block * height || (size_t)blocks.strides[1] != block * rows) {
        return RC_UNSUPPORTED;
    }
    form->inner = (size_t)blocks.dims[0];
    form->columns = (size_t)blocks.dims[1];
    form->block = block;
    form->words = is_bf16 ? rows / 2 : rows;
    return RC_OK;
}

/* The library's choice for a shape; B in any form. */
static enum rc describe(struct onednn *onednn, const struct product_shape *s,
                        dnnl_primitive_desc_t *out)
{
    dnnl_dims_t dims[] = {{(dnnl_dim_t)s->rows, (dnnl_dim_t)s->inner},
                          {(dnnl_dim_t)s->inner, (dnnl_dim_t)s->columns},
                          {(dnnl_dim_t)s->rows, (dnnl_dim_t)s->columns}};
    dnnl_format_tag_t tags[] = {s->is_a_transposed ? dnnl_ba : dnnl_ab, dnnl_format_tag_any,
                                dnnl_ab};
    dnnl_data_type_t type = s->is_bf16 ? dnnl_bf16 : dnnl_f32;
    const_dnnl_memory_desc_t forms[] = {NULL, NULL, NULL};
    dnnl_primitive_attr_t attributes = NULL;
    const char *name = NULL;
    enum rc rc = onednn_attributes_create(s->adds ? ONEDNN_ADD : ONEDNN_NOTHING, &attributes);

    for (size_t i = 0; rc == RC_OK && i < ARRAY_COUNT(forms); i++) {
        rc = onednn_form_create(2, dims[i], i == 2 ? dnnl_f32 : type, tags[i], &forms[i]);
    }
    if (rc == RC_OK) rc = onednn_matmul_describe(onednn, forms, attributes, out);
    for (size_t i = 0; i < ARRAY_COUNT(forms); i++) {
        onednn_form_destroy(forms[i]);
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
        void **memory;
    } all[] = {{dnnl_query_src_md, &p->a},
               {dnnl_query_weights_md, &p->b},
               {dnnl_query_dst_md, &p->c},
               {dnnl_query_scratchpad_md, &p->scratch}};
    enum rc rc = RC_OK;

    for (size_t i = 0; rc == RC_OK && i < ARRAY_COUNT(all); i++) {
        const_dnnl_memory_desc_t form = dnnl_primitive_desc_query_md(description, all[i].query, 0);
        dnnl_memory_t memory = NULL;

        rc = onednn_rc(dnnl_memory_create(&memory, form, engine, DNNL_MEMORY_NONE));
        *all[i].memory = memory;
        p->scratch_bytes = dnnl_memory_desc_get_size(form); /* the last one stays */
    }
    return rc;
}

/* A primitive splits its work among as many threads as there are when it is made. */
enum rc product_init(struct product *p, const struct cpu_backend *cpu,
                     const struct product_shape *s)
{
    double operations = 2.0 * (double)s->rows * (double)s->columns * (double)s->inner;
    double least = (double)SPLIT_OPERATIONS * (s->is_bf16 ? 2.0 : 1.0);
    dnnl_primitive_desc_t description = NULL;
    dnnl_primitive_t primitive = NULL;
    int before = omp_get_max_threads();
    enum rc rc;

    *p = (struct product){0};
    if (cpu->onednn == NULL || !cpu_has(CPU_AVX512)) return RC_UNSUPPORTED; /* packing needs it */
    omp_set_num_threads(operations < least ? 1 : (int)cpu->base.threads);
    rc = describe(cpu->onednn, s, &description);
    if (rc == RC_OK) {
        rc = form_read(dnnl_primitive_desc_query_md(description, dnnl_query_weights_md, 0),
                       s->is_bf16, &p->form);
    }
    if (rc == RC_OK) rc = onednn_rc(dnnl_primitive_create(&primitive, description));
    p->primitive = primitive;
    if (rc == RC_OK) rc = memories_create(p, description, cpu->onednn->engine);
    if (description != NULL) dnnl_primitive_desc_destroy(description);
    omp_set_num_threads(before);
    return rc;
}

enum rc product_run(const struct product *p, const struct cpu_backend *cpu, const void *a,
                    const void *b, float *c, void *scratch)
{
    dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, p->a},
                              {DNNL_ARG_WEIGHTS, p->b},
                              {DNNL_ARG_DST, p->c},
                              {DNNL_ARG_SCRATCHPAD, p->scratch}};

    onednn_point(p->a, a);
    onednn_point(p->b, b);
    onednn_point(p->c, c);
    onednn_point(p->scratch, scratch);
    return onednn_run(cpu->onednn, p->primitive, args, 4);
}

#endif
