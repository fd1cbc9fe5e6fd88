/*
 * predictions: what a model says of samples as it travels and is kept: of each prediction the
 * logarithms of its probabilities as float16, of all classes or of the likeliest `top` with their
 * numbers, where what is left to 1 is spread evenly over the others; real values as float32.
 * Logarithms, because a temperature divides them: a probability below 6e-8 has no float16, and
 * still says something. The size follows from the shape, so that foreign bytes can claim nothing.
 * Pure.
 */
#ifndef GRAPEVINE_DISTILL_PREDICTIONS_H
#define GRAPEVINE_DISTILL_PREDICTIONS_H

#include "base/rc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct predictions_shape {
    uint32_t rows, outputs; /* a sample: predictions, and values of each */
    uint32_t top;           /* classes told of each; 0, or no fewer than there are: all */
    bool is_real;
};

/** Bytes of a sample. */
size_t predictions_bytes(const struct predictions_shape *shape);
/** Of `samples` samples: probabilities (real values) [samples][rows][outputs], finite and >= 0. */
void predictions_encode(const struct predictions_shape *shape, const float *values, size_t samples,
                        uint8_t *out);
/** Back, each prediction of a class as a distribution at `temperature` (1: as it was said).
 *  RC_NONFINITE, RC_FORMAT: bytes that no honest model leads to: no probabilities, or not of this
 *  many classes, or numbers of none or of one twice. `values` is then unspecified. */
MUST_USE enum rc predictions_decode(const struct predictions_shape *shape, const uint8_t *bytes,
                                    size_t samples, double temperature, float *values);

#endif
