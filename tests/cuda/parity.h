/*
 * parity: operators of the CUDA backend against their twins on the processor. Inputs are fresh and
 * random, outputs are poisoned with NaN bits before each run, and results are compared by the
 * normalised error |got - wanted| / |wanted| (Euclidean norms). Every test runs in float32 and in
 * bfloat16; in the latter inputs are rounded first, so that both sides begin with equal values.
 */
#ifndef GRAPEVINE_TESTS_CUDA_PARITY_H
#define GRAPEVINE_TESTS_CUDA_PARITY_H

#include "tests/check.h"

#include "base/fault.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"

#include <math.h>
#include <stdlib.h>

enum { PARITY_BLOCKS_MAX = 256 };

/* device_cuda.c, device_virtual.c: a new backend on `count` devices, from number 0 on. NULL: there
 * is none, and `why` says so. */
struct backend *parity_device(uint32_t count, bool is_bf16, struct fault *why);
const char *parity_device_name(void); /* "virtual device", or the module's path */

struct parity {
    struct backend *device, *host; /* host: the plain C twins */
    bool is_bf16;
    struct rng rng;
    void *blocks[PARITY_BLOCKS_MAX]; /* memory of the device, freed with it */
    void *kept[PARITY_BLOCKS_MAX];   /* of the host */
    uint32_t blocks_count, kept_count;
    uint64_t checks; /* made */
};

/* The checks of all tests of a program, for the line it ends with. */
extern uint64_t parity_checks;

static inline struct parity *parity_begin(bool is_bf16, uint64_t seed)
{
    const struct cpu_backend_options host = {.threads = 1, .is_reference = true};
    struct parity *p = calloc(1, sizeof(*p));
    struct fault why = {0};

    assert_non_null(p);
    p->is_bf16 = is_bf16;
    rng_init(&p->rng, seed, 0x70617269);
    p->device = parity_device(1, is_bf16, &why);
    if (p->device == NULL) fail_msg("%s", why.text);
    p->host = cpu_backend_create(&host);
    assert_non_null(p->host);
    return p;
}

static inline void parity_end(struct parity *p)
{
    for (uint32_t i = 0; i < p->blocks_count; i++) {
        p->device->ops->free(p->device, p->blocks[i]);
    }
    for (uint32_t i = 0; i < p->kept_count; i++) {
        free(p->kept[i]);
    }
    parity_checks += p->checks;
    backend_destroy(p->device);
    backend_destroy(p->host);
    free(p);
}

#define parity_ok(p, call)                                                                         \
    do {                                                                                           \
        enum rc rc_ = (call);                                                                      \
        if (rc_ != RC_OK)                                                                          \
            fail_msg("%s:%d: %s: %s: %s", __FILE__, __LINE__, #call, rc_text(rc_),                 \
                     (p)->device->ops->why((p)->device));                                          \
    } while (0)

/* --- memory of the host, released by parity_end() ----------------------------------------------*/

static inline void *parity_host(struct parity *p, size_t bytes)
{
    void *block = malloc(bytes > 0 ? bytes : 1);

    assert_non_null(block);
    assert_true(p->kept_count < PARITY_BLOCKS_MAX);
    memset(block, 0xFF, bytes); /* NaN */
    p->kept[p->kept_count++] = block;
    return block;
}

static inline float parity_to_bf16(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    bits = (bits + 0x7FFFu + ((bits >> 16) & 1u)) & 0xFFFF0000u;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/** n values of N(0, size^2), float32 parameters and the like. */
static inline float *parity_values(struct parity *p, size_t n, double size)
{
    float *values = parity_host(p, n * sizeof(float));

    for (size_t i = 0; i < n; i++) {
        values[i] = (float)(size * rng_normal(&p->rng));
    }
    return values;
}

/** The same for activations: representable in the device's form. */
static inline float *parity_activations(struct parity *p, size_t n, double size)
{
    float *values = parity_values(p, n, size);

    for (size_t i = 0; p->is_bf16 && i < n; i++) {
        values[i] = parity_to_bf16(values[i]);
    }
    return values;
}

static inline float *parity_copy(struct parity *p, const float *values, size_t n)
{
    float *copy = parity_host(p, n * sizeof(float));

    memcpy(copy, values, n * sizeof(float));
    return copy;
}

/* --- memory of the device, released by parity_end() --------------------------------------------*/

/** Poisoned with 0xFF. */
static inline void *parity_block(struct parity *p, size_t bytes)
{
    void *block = p->device->ops->alloc(p->device, bytes);
    uint8_t *poison = malloc(bytes);

    assert_non_null(block);
    assert_non_null(poison);
    assert_true(p->blocks_count < PARITY_BLOCKS_MAX);
    p->blocks[p->blocks_count++] = block;
    memset(poison, 0xFF, bytes);
    parity_ok(p, p->device->ops->upload(p->device, block, poison, bytes));
    free(poison);
    return block;
}

static inline void *parity_put(struct parity *p, const void *from, size_t bytes)
{
    void *block = parity_block(p, bytes);

    parity_ok(p, p->device->ops->upload(p->device, block, from, bytes));
    return block;
}

static inline float *parity_put_values(struct parity *p, const float *from, size_t n)
{
    return parity_put(p, from, n * sizeof(float));
}

/** Of n activations, poisoned. */
static inline float *parity_room(struct parity *p, size_t n)
{
    return parity_block(p, n * p->device->value_bytes);
}

static inline float *parity_put_activations(struct parity *p, const float *from, size_t n)
{
    float *values = parity_put_values(p, from, n), *to = parity_room(p, n);

    parity_ok(p, p->device->ops->to_activations(p->device, values, to, n));
    return to;
}

static inline float *parity_get_values(struct parity *p, const float *from, size_t n)
{
    float *to = parity_host(p, n * sizeof(float));

    parity_ok(p, p->device->ops->download(p->device, to, from, n * sizeof(float)));
    return to;
}

static inline float *parity_get_activations(struct parity *p, const float *from, size_t n)
{
    float *values = parity_host(p, n * sizeof(float));

    parity_ok(p, p->device->ops->download(p->device, values, from, n * p->device->value_bytes));
    for (size_t i = p->is_bf16 ? n : 0; i-- > 0;) { /* from the last on: they grow where they are */
        uint16_t half;
        uint32_t bits;
        memcpy(&half, (const char *)values + i * sizeof(half), sizeof(half));
        bits = (uint32_t)half << 16;
        memcpy(&values[i], &bits, sizeof(bits));
    }
    return values;
}

/* --- comparing ---------------------------------------------------------------------------------*/

static inline double parity_error(const float *got, const float *wanted, size_t n)
{
    double difference = 0.0, size = 0.0;

    for (size_t i = 0; i < n; i++) {
        double d = (double)got[i] - (double)wanted[i];
        difference += d * d;
        size += (double)wanted[i] * (double)wanted[i];
    }
    return size > 0.0 ? sqrt(difference / size) : sqrt(difference);
}

/* NaN is above every limit. */
static inline void parity_compare(struct parity *p, uint64_t seed, const char *what,
                                  const float *got, const float *wanted, size_t n, double limit)
{
    double error = parity_error(got, wanted, n);

    p->checks++;
    if (error <= limit) return;
    fail_msg("SEED=%llu %s%s: normalised error %.3g is above %.3g", (unsigned long long)seed, what,
             p->is_bf16 ? " (bf16)" : "", error, limit);
}

/** Values of the device against float32 ones; limits for either form of activations. */
static inline void parity_check_values(struct parity *p, uint64_t seed, const char *what,
                                       const float *device, const float *wanted, size_t n,
                                       double limit, double limit_bf16)
{
    parity_compare(p, seed, what, parity_get_values(p, device, n), wanted, n,
                   p->is_bf16 ? limit_bf16 : limit);
}

/** Activations of the device; bf16 results are rounded, which alone is an error of about 2e-3. */
static inline void parity_check_activations(struct parity *p, uint64_t seed, const char *what,
                                            const float *device, const float *wanted, size_t n,
                                            double limit, double limit_bf16)
{
    parity_compare(p, seed, what, parity_get_activations(p, device, n), wanted, n,
                   p->is_bf16 ? limit_bf16 : limit);
}

/** In main(): exit 77 without a device, otherwise the tests, and how many checks they made. */
static inline int parity_main(const char *name, const struct CMUnitTest *tests, size_t count)
{
    struct fault why = {0};
    struct backend *device = parity_device(1, false, &why);
    int failures;

    if (device == NULL) {
        printf("%s: skipped: no CUDA device (%s)\n", name, why.text);
        return 77;
    }
    backend_destroy(device);
    failures = _cmocka_run_group_tests(name, tests, count, NULL, NULL);
    printf("%s: %zu tests with %llu comparisons ran on %s, %d failed\n", name, count,
           (unsigned long long)parity_checks, parity_device_name(), failures);
    return failures > 0 ? 1 : 0;
}

#define PARITY_MAIN(name, tests)                                                                   \
    uint64_t parity_checks;                                                                        \
    int main(void)                                                                                 \
    {                                                                                              \
        return parity_main(name, tests, ARRAY_COUNT(tests));                                       \
    }

/* In a test that this device cannot run: say why, and leave it. */
#define parity_leave_out(...)                                                                      \
    do {                                                                                           \
        printf("left out: " __VA_ARGS__);                                                          \
        printf("\n");                                                                              \
        skip();                                                                                    \
    } while (0)

/* A test in both forms: PARITY_TEST(f) runs f(is_bf16, seed) for a few seeds of each. */
#define PARITY_TEST(f)                                                                             \
    static void f##_f32(void **state)                                                              \
    {                                                                                              \
        (void)state;                                                                               \
        FOR_EACH_SEED (seed, 2)                                                                    \
            f(false, seed);                                                                        \
    }                                                                                              \
    static void f##_bf16(void **state)                                                             \
    {                                                                                              \
        (void)state;                                                                               \
        FOR_EACH_SEED (seed, 2)                                                                    \
            f(true, seed);                                                                         \
    }
#define PARITY_BOTH(f) cmocka_unit_test(f##_f32), cmocka_unit_test(f##_bf16)

#endif
