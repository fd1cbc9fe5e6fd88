/*
 * cpu_backend: the backend of the machine's own cores: OpenBLAS and oneDNN for matrix products,
 * oneDNN (or im2col) for convolutions, vectorised C for the rest.
 */
#ifndef GRAPEVINE_KERNELS_CPU_CPU_BACKEND_H
#define GRAPEVINE_KERNELS_CPU_CPU_BACKEND_H

#include "kernels/backend.h"

enum cpu_convolution {
    CPU_CONVOLUTION_AUTO,   /* oneDNN where it is built in and fast, otherwise im2col */
    CPU_CONVOLUTION_IM2COL, /* im2col and gemm */
};

/* Of products and convolutions. Master weights, sums and all else are float32 in both. */
enum precision {
    PRECISION_F32,
    PRECISION_BF16, /* operands rounded to bfloat16, where that is faster here */
};

struct cpu_backend_options {
    uint32_t threads; /* 0: one */
    enum cpu_convolution convolution;
    bool is_reference; /* plain C twins everywhere: slow, for tests and for doubts */
    enum precision precision;
    bool forces_bf16; /* use it wherever the library can, faster or not: for tests */
    /** Without AMX bf16 is used if a measurement of some milliseconds at creation finds it faster.
     *  NULL: no measurement, float32. */
    uint64_t (*now_ns)(void);
};

/** NULL when out of memory. Release with backend_destroy(). */
struct backend *cpu_backend_create(const struct cpu_backend_options *options);
/** Whether bf16 was wanted and is used. */
bool cpu_backend_is_bf16(const struct backend *backend);
/** Why it is used or not, for people: "bf16: this CPU has AMX". Never NULL. */
const char *cpu_backend_precision_reason(const struct backend *backend);
/** "oneDNN 2.6.3 and OpenBLAS ..." for people. */
void cpu_backend_describe(char *text, size_t cap);

#endif
