/* weights: see weights.h. */
#include "averaging/core/weights.h"

/* The lower of two in the middle, of the values from `least` on; 0: there are none. */
static uint64_t median(const uint64_t *values, size_t count, uint64_t least)
{
    size_t known = 0;

    for (size_t i = 0; i < count; i++) {
        known += values[i] >= least;
    }
    for (size_t i = 0; i < count; i++) {
        size_t below = 0, same = 0;

        if (values[i] < least) continue;
        for (size_t j = 0; j < count; j++) {
            below += values[j] >= least && values[j] < values[i];
            same += values[j] == values[i];
        }
        if (below <= (known - 1) / 2 && below + same > (known - 1) / 2) return values[i];
    }
    return 0;
}

/* The power of two nearest to value / middle, on a scale of ratios. */
static uint8_t weight_of(uint64_t value, uint64_t middle)
{
    double ratio = (double)value / (double)middle, weight = WEIGHT_ONE;

    while (weight > WEIGHT_MIN && ratio < 0.70710678) {
        weight /= 2;
        ratio *= 2;
    }
    while (weight < WEIGHT_MAX && ratio > 1.41421357) {
        weight *= 2;
        ratio /= 2;
    }
    return (uint8_t)weight;
}

static void weights_fill(const uint64_t *values, size_t count, uint64_t middle, uint64_t unknown,
                         uint8_t *weights)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t value = values[i] == 0 ? unknown : values[i];

        weights[i] = middle == 0 ? WEIGHT_ONE : weight_of(value, middle);
    }
    /* It has chosen with whom it is compared. */
    if (count > 0 && weights[0] > WEIGHT_ONE) weights[0] = WEIGHT_ONE;
}

void weights_of_samples(const uint64_t *samples, size_t count, uint8_t *weights)
{
    weights_fill(samples, count, median(samples, count, 0), 0, weights);
}

void weights_of_rates(const uint64_t *rates, size_t count, uint8_t *weights)
{
    uint64_t middle = median(rates, count, 1);

    weights_fill(rates, count, middle, middle, weights);
}
