/* bf16: bfloat16 values (Wang, Kanwar 2019: float32's upper half), and the forms that products of
 * them want their operands in. Needs AVX-512, as all that multiplies them does. */
#ifndef GRAPEVINE_KERNELS_CPU_BF16_H
#define GRAPEVINE_KERNELS_CPU_BF16_H

#include "kernels/cpu/internal.h"

/** Rounded to nearest even; NaN stays NaN. */
void bf16_from_float(const float *x, uint16_t *y, size_t n);

/* B [inner][columns] in blocks of `block` columns, in each pairs of rows side by side, value by
 * value: [columns / block][pairs][block][2]; what is behind the last row or column is zero. */
struct bf16_form {
    size_t inner, columns, block, pairs;
};

/** Blocks [from, to) of B, which is stored as it is named. */
void bf16_pack(const struct bf16_form *form, const float *b, size_t from, size_t to,
               uint16_t *packed);
/** The same of B stored as [columns][inner]. */
void bf16_pack_turned(const struct bf16_form *form, const float *b, size_t from, size_t to,
                      uint16_t *packed);

/** Decide whether this backend multiplies bfloat16, and say why: see cpu_backend_options. */
void bf16_decide(struct cpu_backend *backend);

#endif
