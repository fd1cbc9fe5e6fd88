/* check: the test framework (cmocka) in the order it must be included, and seeded loops on top. */
#ifndef GRAPEVINE_TESTS_CHECK_H
#define GRAPEVINE_TESTS_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* In the main() of a group, before it runs: the thread sanitizer takes twenty times as long, and
 * only where there are threads is something for it to find: tests with "threads" in their names. */
static inline void only_threads_for_their_sanitizer(void)
{
#ifdef __SANITIZE_THREAD__
    cmocka_set_test_filter("*threads*");
#endif
}

/* One seed a pass, from 1. The environment variable SEED runs just that one; SEEDS=N runs N of each
 * instead of the few that gate a commit (the long form of a campaign). */
static inline uint64_t seed_first(void)
{
    const char *text = getenv("SEED");
    return text != NULL ? strtoull(text, NULL, 10) : 1;
}

static inline bool is_sanitized(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return true;
#else
    return false;
#endif
}

/* The sanitizers look for other mistakes than the seeds do, and are four times as slow. */
static inline uint64_t sanitized_share(uint64_t count)
{
    if (!is_sanitized()) return count;
    return count < 8 ? (count + 1) / 2 : (count + 3) / 4;
}

/* Sanitizers find nothing in figures, where other tests run the same code. LONG=1: not left out. */
static inline bool is_only_sanitized(void)
{
    return is_sanitized() && getenv("LONG") == NULL;
}

static inline int seed_is_left(uint64_t seed, uint64_t count)
{
    const char *campaign = getenv("SEEDS");

    if (getenv("SEED") != NULL) return seed == seed_first();
    return seed <= (campaign != NULL ? strtoull(campaign, NULL, 10) : sanitized_share(count));
}

#define FOR_EACH_SEED(seed, count)                                                                 \
    for (uint64_t seed = seed_first(); seed_is_left(seed, (count)); seed++)

/* Like assert_true, and says with which seed to run again. */
#define check_seed(seed, condition)                                                                \
    do {                                                                                           \
        int held_ = (condition) ? 1 : 0; /* once: conditions may do things */                      \
        if (!held_) fprintf(stderr, "SEED=%llu: " #condition "\n", (unsigned long long)(seed));    \
        _assert_true((unsigned long)held_, #condition, __FILE__, __LINE__);                        \
    } while (0)

#endif
