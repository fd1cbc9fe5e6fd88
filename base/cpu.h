/*
 * cpu: a loop built for several instruction sets, chosen at load time. Every variant gives the same
 * bits: -std=c11 forbids contraction, and sums are written in the order they are taken in. Not
 * under TSan, whose runtime is not up yet when the choice is made.
 */
#ifndef GRAPEVINE_BASE_CPU_H
#define GRAPEVINE_BASE_CPU_H

#include <stdbool.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define FOR_EACH_CPU __attribute__((target_clones("avx512f", "avx2", "default")))
/* Whether one that is better than the default was chosen. */
#define CPU_IS_WIDE (__builtin_cpu_supports("avx2") != 0)
#else
#define FOR_EACH_CPU
#define CPU_IS_WIDE false
#endif

#endif
