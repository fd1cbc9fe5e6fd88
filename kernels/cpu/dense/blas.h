/* blas: OpenBLAS, whichever threads it was built with: OpenMP's, its own, or none. */
#ifndef GRAPEVINE_KERNELS_CPU_DENSE_BLAS_H
#define GRAPEVINE_KERNELS_CPU_DENSE_BLAS_H

#include "kernels/backend.h"

/** Once before the first product; again is fine. Any thread. */
void blas_begin(void);
/** C = alpha A B + beta C on the backend's threads, or on this one alone. */
void blas_multiply(const struct backend *backend, const struct gemm *gemm, bool is_alone);

#endif
