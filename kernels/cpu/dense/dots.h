/*
 * dots: products of very few rows, C = A B^T, where B lies as [columns][inner], as weights do: a
 * text that is written word by word. Each value of B is read once and used at most three times, so
 * that the memory's speed is all there is, and what packs B first takes twice as long. Any thread.
 */
#ifndef GRAPEVINE_KERNELS_CPU_DENSE_DOTS_H
#define GRAPEVINE_KERNELS_CPU_DENSE_DOTS_H

#include "kernels/backend.h"

#include <stdbool.h>
#include <stddef.h>

enum { DOTS_ROWS_MAX = 3 };

/** Whether dots_multiply() serves this product on this processor: few rows, B transposed, A not,
 *  alpha 1, beta 0 or 1. */
bool dots_serve(const struct gemm *gemm);
/** Columns [from, to) of C. What a value is does not depend on the cut. */
void dots_multiply(const struct gemm *gemm, size_t from, size_t to);

#endif
