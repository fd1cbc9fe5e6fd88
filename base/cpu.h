/*
 * cpu: a loop built for several instruction sets, chosen at load time. Every variant gives the same
 * bits: -std=c11 forbids contraction, and sums are written in the order they are taken in. Not
 * under TSan, whose runtime is not up yet when the choice is made.
 */
#ifndef GRAPEVINE_BASE_CPU_H
#define GRAPEVINE_BASE_CPU_H

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define FOR_EACH_CPU __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_EACH_CPU
#endif

#endif
