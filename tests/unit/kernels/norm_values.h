/* norm_values: random images of any layout and slopes by differences, for the tests of norms. */
#ifndef GRAPEVINE_TESTS_UNIT_KERNELS_NORM_VALUES_H
#define GRAPEVINE_TESTS_UNIT_KERNELS_NORM_VALUES_H

#include "tests/check.h"

#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernels/cpu/cpu_backend.h"

#include <math.h>

/* Fast, and the twins. */
static inline struct backend *backend_of(bool is_reference)
{
    return cpu_backend_create(
        &(struct cpu_backend_options){.threads = 1, .is_reference = is_reference});
}

static inline float *random_values(struct rng *rng, size_t count, double centre, double spread)
{
    float *values = mem_alloc(count * sizeof(*values) + 1);

    assert_non_null(values);
    for (size_t i = 0; i < count; i++) {
        values[i] = (float)(centre + spread * (rng_unit(rng) * 2.0 - 1.0));
    }
    return values;
}

/* Filled with NaN, so that a value nobody writes is found. */
static inline float *poisoned(size_t count)
{
    float *values = mem_alloc(count * sizeof(*values) + 1);

    assert_non_null(values);
    for (size_t i = 0; i < count; i++) {
        values[i] = NAN;
    }
    return values;
}

static inline float *copy_of(const float *values, size_t count)
{
    float *copy = poisoned(count);

    memcpy(copy, values, count * sizeof(*copy));
    return copy;
}

/* |a - b| over |b|, in the 2-norm; NaN if either holds one. */
static inline double distance(const float *a, const float *b, size_t count)
{
    double difference = 0.0, size = 0.0;

    for (size_t i = 0; i < count; i++) {
        double d = (double)a[i] - (double)b[i];
        difference += d * d;
        size += (double)b[i] * (double)b[i];
    }
    return size == 0.0 ? sqrt(difference) : sqrt(difference / size);
}

static inline uint32_t between(struct rng *rng, uint32_t low, uint32_t high)
{
    return low + (uint32_t)rng_below(rng, high - low + 1);
}

/* Plain, channels-last, or any block that divides the channels; rows now and then. */
static inline struct image_shape random_shape(struct rng *rng)
{
    static const uint32_t blocks[] = {1, 1, 2, 3, 4, 5, 8, 8, 12, 16, 16, 20, 24, 33};
    uint32_t block = blocks[rng_below(rng, ARRAY_COUNT(blocks))];
    struct image_shape shape = {.channels = block * between(rng, 1, 5), .block = block};

    shape.height = between(rng, 1, 11);
    shape.width = between(rng, 1, 11);
    if (rng_below(rng, 5) == 0) shape.height = shape.width = 1;
    if (rng_below(rng, 4) == 0) shape.block = shape.channels;
    return shape;
}

/* What a slope is measured of. */
struct slope {
    double (*loss)(void *problem);
    void *problem;
};

/* Whether `gradient` is the slope of the loss in each of the values, by central differences. */
static inline bool slope_is(const struct slope *slope, float *values, const float *gradient,
                            size_t count)
{
    const float step = 0.01F;
    double error = 0.0, size = 0.0;

    for (size_t i = 0; i < count; i++) {
        float kept = values[i], above = kept + step, below = kept - step;
        double difference;
        values[i] = above;
        difference = slope->loss(slope->problem);
        values[i] = below;
        difference -= slope->loss(slope->problem);
        values[i] = kept;
        difference /= (double)above - (double)below;
        error += (difference - (double)gradient[i]) * (difference - (double)gradient[i]);
        size += difference * difference;
    }
    return sqrt(error) <= 2e-3 * (sqrt(size) + 1e-2);
}

#endif
