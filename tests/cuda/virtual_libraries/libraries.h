/*
 * libraries: what the tests of the stand-ins for cuBLAS, cuDNN and NCCL share. Results are compared
 * with plain loops in float64; refusals with what the documentation promises.
 */
#ifndef GRAPEVINE_TESTS_CUDA_VIRTUAL_LIBRARIES_LIBRARIES_H
#define GRAPEVINE_TESTS_CUDA_VIRTUAL_LIBRARIES_LIBRARIES_H

#include "tests/cuda/virtual/library.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string>

extern "C" { /* cmocka.h does not say it */
#include "tests/check.h"
}

typedef std::vector<float> floats;
typedef std::vector<double> doubles;

#define ok(call) assert_int_equal((call), 0) /* of all libraries */

struct libraries_tests {
    const struct CMUnitTest *tests;
    size_t count;
};
struct libraries_tests libraries_blas(void);
struct libraries_tests libraries_blas_lt(void);
struct libraries_tests libraries_conv(void);
struct libraries_tests libraries_recurrent(void);
struct libraries_tests libraries_nccl(void);

/** Values in (-1, 1), representable in the type; the same for the same seed. */
floats random_values(uint64_t *seed, size_t n, enum value_type type);
size_t random_below_of(uint64_t *seed, size_t bound);
/** Device memory with these values; of `n` values that are NaN. Freed by release_all(). */
void *put(const floats &values, enum value_type type);
void *room(size_t n, enum value_type type);
void *room_bytes(size_t bytes);
void release_all(void);
/** What is there once all work is done. */
floats get(const void *block, size_t n, enum value_type type);
/** Running it in a child ends with a message that holds `text`, and with abort(). */
void aborts(void (*run)(void), const char *text);
/** |got - wanted| / |wanted| is within what the type allows. */
void compare(const char *what, const floats &got, const doubles &wanted, enum value_type type);

#endif
