/* blas_lt: what the opaque structures of the stand-in for cuBLASLt hold: see blas_lt.cpp. */
#ifndef GRAPEVINE_TESTS_CUDA_VIRTUAL_BLAS_LT_H
#define GRAPEVINE_TESTS_CUDA_VIRTUAL_BLAS_LT_H

#include "tests/cuda/virtual/library.h"

#include <cublasLt.h>

enum { BLAS_LT_HANDLE_MAGIC = 0x424C4C54, BLAS_LT_ALGO_MAGIC = 0x414C474F };

struct cublasLtContext {
    uint32_t magic;
    int device;
};

struct blas_lt_layout {
    uint64_t rows, columns;
    int64_t stride, batch_stride, plane;
    uint32_t type, mode;
    int32_t order, batches;
};

struct blas_lt_operation {
    const void *bias, *aux, *a_scale, *b_scale, *c_scale, *d_scale, *aux_scale, *d_out_scale;
    void *amax, *aux_amax, *emulation;
    int64_t bias_batch_stride, aux_stride, aux_batch_stride, alpha_batch_stride;
    int32_t compute, scale, pointers, transa, transb, transc, fill, multiprocessors, aux_type;
    int32_t bias_type, a_mode, b_mode, c_mode, d_mode, aux_mode, d_out_mode;
    uint32_t epilogue;
    int8_t fast_accumulation;
};

struct blas_lt_preference {
    uint64_t workspace_bytes, implementations;
    uint32_t search, reductions;
    uint32_t a_alignment, b_alignment, c_alignment, d_alignment;
    float waves;
};

struct blas_lt_algo {
    uint32_t magic, id;
    uint64_t problem; /* hash */
    uint64_t workspace_bytes;
    uint32_t a_alignment, b_alignment, c_alignment, d_alignment, bias_alignment, aux_alignment;
};

static_assert(sizeof(struct blas_lt_layout) <= sizeof(cublasLtMatrixLayoutOpaque_t),
              "room for a layout");
static_assert(sizeof(struct blas_lt_operation) <= sizeof(cublasLtMatmulDescOpaque_t),
              "for an operation");
static_assert(sizeof(struct blas_lt_preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t),
              "preference");
static_assert(sizeof(struct blas_lt_algo) <= sizeof(cublasLtMatmulAlgo_t), "room for an algorithm");

#endif
