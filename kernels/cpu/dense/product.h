/*
 * product: oneDNN's matmul bound to a shape, with a factor B that we pack ourselves: into the form
 * the library's kernels read it in, several times as fast as the library does. Only on processors
 * with AVX-512, which packing needs, and where the library has such kernels.
 */
#ifndef GRAPEVINE_KERNELS_CPU_DENSE_PRODUCT_H
#define GRAPEVINE_KERNELS_CPU_DENSE_PRODUCT_H

#include "kernels/cpu/internal.h"

/* C [rows][columns] = A B, or C += A B; A: [rows][inner], or stored the other way round. */
struct product_shape {
    size_t rows, columns, inner;
    bool is_a_transposed, adds;
    bool is_bf16; /* A and B; C is float32 always */
};

/* B [inner][columns] in blocks of `block` columns, in each row after row (of bfloat16: pairs of
 * rows, value by value) as words of 32 bits: [columns / block][words][block]. What is behind the
 * last row or column is zero. */
struct product_form {
    size_t inner, columns, block, words;
};

struct product {
    void *primitive, *a, *b, *c, *scratch; /* the library's */
    struct product_form form;
    size_t scratch_bytes;
};

/** RC_UNSUPPORTED: the library has nothing fast, or wants B in a form that we do not know. Deinit
 *  is due in any case. */
MUST_USE enum rc product_init(struct product *product, const struct cpu_backend *backend,
                              const struct product_shape *shape);
/** All zeros are fine. */
void product_deinit(struct product *product);
/** a, b: of the shape's type, b in the form; scratch: scratch_bytes. */
MUST_USE enum rc product_run(const struct product *product, const struct cpu_backend *backend,
                             const void *a, const void *b, float *c, void *scratch);

size_t product_form_blocks(const struct product_form *form);
size_t product_form_bytes(const struct product_form *form);

#endif
