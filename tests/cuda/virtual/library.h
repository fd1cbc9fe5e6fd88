/*
 * library: what the stand-ins of cuBLAS, cuBLASLt, cuDNN and NCCL share.
 *
 * They are written from the headers and the public documentation of the libraries, not from how
 * kernels/cuda calls them, and are as strict as that allows: what a library may refuse, they refuse
 * with the documented status; what would be undefined on a GPU aborts. Host-side behaviour that the
 * documentation leaves open (descriptors, texts of errors) is that of the real libraries: cuBLAS
 * 13.1, cuDNN 9.19, NCCL 2.28, whose host code runs without a GPU.
 *
 * Numbers  bfloat16 inputs are summed in float32 and rounded once; where a caller allows TF32,
 * inputs are rounded to it, so that a forgotten math mode shows.
 */
#ifndef GRAPEVINE_TESTS_CUDA_VIRTUAL_LIBRARY_H
#define GRAPEVINE_TESTS_CUDA_VIRTUAL_LIBRARY_H

#include "tests/cuda/virtual/runtime.h"

#include <string.h>
#include <vector>

enum value_type { VALUE_F32, VALUE_BF16 };
enum value_rounding { ROUND_NOTHING, ROUND_TF32, ROUND_BF16 }; /* of inputs of products */

static inline size_t value_bytes(enum value_type type)
{
    return type == VALUE_BF16 ? 2 : 4;
}

static inline float value_of_bits(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline uint32_t bits_of_value(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline uint16_t value_to_bf16(float value)
{
    uint32_t bits = bits_of_value(value);

    if (value != value) return 0x7FFF;
    return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

/** Value i behind `block`. */
static inline float value_get(enum value_type type, const void *block, size_t i)
{
    uint16_t half;

    if (type == VALUE_F32) return static_cast<const float *>(block)[i];
    half = static_cast<const uint16_t *>(block)[i];
    return value_of_bits(static_cast<uint32_t>(half) << 16);
}

static inline void value_put(enum value_type type, void *block, size_t i, float value)
{
    if (type == VALUE_F32) {
        static_cast<float *>(block)[i] = value;
    } else {
        static_cast<uint16_t *>(block)[i] = value_to_bf16(value);
    }
}

/** TF32 keeps 10 bits of the fraction (to nearest, ties away from zero: cvt.rna.tf32). */
static inline float value_round(enum value_rounding rounding, float value)
{
    if (rounding == ROUND_NOTHING || value != value) return value;
    if (rounding == ROUND_BF16) {
        return value_of_bits(static_cast<uint32_t>(value_to_bf16(value)) << 16);
    }
    return value_of_bits((bits_of_value(value) + 0x1000u) & 0xFFFFE000u);
}

/* A matrix in memory of the device: value (row, column) is at row * row_stride + column *
 * column_stride. */
struct matrix {
    enum value_type type;
    const void *at;
    size_t rows, columns, row_stride, column_stride;
};

/** Its values, row by row. */
std::vector<float> matrix_values(const struct matrix &matrix, enum value_rounding rounding);
/** c[rows][columns] = a[rows][inner] b[inner][columns], sums in float32 of runs of 128. */
std::vector<float> matrix_product(const std::vector<float> &a, const std::vector<float> &b,
                                  size_t rows, size_t columns, size_t inner);

/** Aborts unless the range is memory of the device: a GPU would stop at an illegal address. */
void library_reach(const char *call, const char *what, const void *block, size_t bytes, int device);
/** Aborts if an output's memory is also that of an input. */
void library_apart(const char *call, const void *output, size_t output_bytes, const void *input,
                   size_t input_bytes);
/** The largest power of two up to 256 that divides the address. */
uint32_t library_alignment(const void *block);
/** Fill with NaN: what a library may have left in a workspace. */
void library_scribble(void *block, size_t bytes);

#endif
