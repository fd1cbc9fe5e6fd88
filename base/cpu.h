/*
 * cpu: how many cores the process may use, the instruction set, and loops built for each. The set
 * is the best of the processor, or what GRAPEVINE_CPU limits it to, so that each is tested and
 * measured wherever the machine has it: our loops and kernels ask cpu_has(), oneDNN and OpenBLAS
 * their own variables.
 */
#ifndef GRAPEVINE_BASE_CPU_H
#define GRAPEVINE_BASE_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CPU_VARIABLE "GRAPEVINE_CPU"

/* Each includes those before it: the compiler's default, which is all there is but on x86-64; AVX2
 * with FMA and F16C; AVX-512F, and its bfloat16 where the processor has it; AMX. */
enum cpu_set { CPU_BASELINE, CPU_AVX2, CPU_AVX512, CPU_AMX, CPU_SETS };

/** What is used. Chosen before main(), which a wrong GRAPEVINE_CPU keeps from running; only tests
 *  write it, to go down and back while nothing else runs. */
extern enum cpu_set cpu_used;

static inline bool cpu_has(enum cpu_set set)
{
    return cpu_used >= set;
}

/** Cores that the process may use: those of its affinity, or fewer where a container's quota of
 *  processor time is less than theirs; at least 1. */
uint32_t cpu_cores(void);
/** What the processor has. */
enum cpu_set cpu_best(void);
const char *cpu_name(enum cpu_set set);
/** "avx2", or "avx2 by GRAPEVINE_CPU, of amx". */
void cpu_describe(char *text, size_t cap);
/** Which processor it is, in its own words, as libraries choose their loops and blocks by it;
 * false: it does not say. */
bool cpu_model(char *text, size_t cap);
/** Limit oneDNN and OpenBLAS as GRAPEVINE_CPU limits us, by their variables, which they read when
 *  they are loaded. True: these were not set yet, so the program has to begin again. */
bool cpu_limit_libraries(void);

/*
 * FOR_EACH_CPU(static, void, add, (float *to, const float *x, size_t n), (to, x, n)) { ... }
 *
 * defines the function add(), its body compiled for each instruction set; `extern` in place of
 * `static` for one that a header declares. Each variant gives the same bits: nothing is contracted
 * (-ffp-contract=off), and sums are written in the order they are taken in. The body is inlined in
 * its variants, and so are the inline functions it calls; others are compiled for the least.
 */
#define CPU_LOOP static inline __attribute__((always_inline))
/* Before a loop of at most 16 turns that are known when it is compiled: taken apart before arrays
 * that it indexes get their places, so that they are registers. gcc's words mean to clang what it
 * does last, with the arrays in memory. */
#if defined(__clang__)
#define UNROLLED _Pragma("clang loop unroll(full)")
#else
#define UNROLLED _Pragma("GCC unroll 16")
#endif
#if defined(__x86_64__)
#define FOR_EACH_CPU(linkage, type, name, parameters, arguments)                                   \
    CPU_LOOP type name##_loop parameters;                                                          \
    __attribute__((target("avx512f"))) static type name##_avx512 parameters                        \
    {                                                                                              \
        return name##_loop arguments;                                                              \
    }                                                                                              \
    __attribute__((target("avx2"))) static type name##_avx2 parameters                             \
    {                                                                                              \
        return name##_loop arguments;                                                              \
    }                                                                                              \
    linkage type name parameters                                                                   \
    {                                                                                              \
        if (cpu_has(CPU_AVX512)) return name##_avx512 arguments;                                   \
        if (cpu_has(CPU_AVX2)) return name##_avx2 arguments;                                       \
        return name##_loop arguments;                                                              \
    }                                                                                              \
    CPU_LOOP type name##_loop parameters
#else
#define FOR_EACH_CPU(linkage, type, name, parameters, arguments) linkage type name parameters
#endif

#endif
