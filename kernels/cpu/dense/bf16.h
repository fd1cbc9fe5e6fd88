/* bf16: bfloat16 values (Wang, Kanwar 2019: float32's upper half), and the forms that products of
 * them want their operands in. Needs AVX-512, as all that multiplies them does. */
#ifndef GRAPEVINE_KERNELS_CPU_DENSE_BF16_H
#define GRAPEVINE_KERNELS_CPU_DENSE_BF16_H

#include "kernels/cpu/dense/product.h"

/** Rounded to nearest even; NaN stays NaN. */
void bf16_from_float(const float *x, uint16_t *y, size_t n);

/** Blocks [from, to) of B, which is stored as it is named. */
void bf16_pack(const struct product_form *form, const float *b, size_t from, size_t to,
               uint16_t *packed);
/** The same of B stored as [columns][inner]. */
void bf16_pack_transposed(const struct product_form *form, const float *b, size_t from, size_t to,
                          uint16_t *packed);
/** The same in float32. */
void float_pack_transposed(const struct product_form *form, const float *b, size_t from, size_t to,
                           float *packed);

/** Decide whether this backend multiplies bfloat16, and say why: see cpu_backend_options. */
void bf16_decide(struct cpu_backend *backend);

#endif
