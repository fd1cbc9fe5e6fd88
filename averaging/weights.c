/* weights: see weights.h. */
#include "averaging/weights.h"

/* Of those that trained at all, the lower of two in the middle; 0: nobody did. */
static uint64_t median(const uint64_t *samples, size_t count)
{
    size_t above_zero = 0;

    for (size_t i = 0; i < count; i++) {
        above_zero += samples[i] > 0;
    }
    for (size_t i = 0; i < count; i++) {
        size_t below = 0, same = 0;

        if (samples[i] == 0) continue;
        for (size_t j = 0; j < count; j++) {
            below += samples[j] > 0 && samples[j] < samples[i];
            same += samples[j] == samples[i];
        }
        if (below <= (above_zero - 1) / 2 && below + same > (above_zero - 1) / 2) return samples[i];
    }
    return 0;
}

/* The power of two nearest to samples / middle, on a scale of ratios. */
static uint8_t weight_of(uint64_t samples, uint64_t middle)
{
    double ratio = (double)samples / (double)middle, weight = WEIGHT_ONE;

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

bool weights_of_samples(const uint64_t *samples, size_t count, uint8_t *weights)
{
    uint64_t middle = median(samples, count);
    bool are_alike = true;

    for (size_t i = 0; i < count; i++) {
        weights[i] = middle == 0 ? WEIGHT_ONE : weight_of(samples[i], middle);
        are_alike = are_alike && weights[i] == weights[0];
    }
    return !are_alike;
}
