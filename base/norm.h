/* norm: sums of squares of float32, fast and to the same bit on every processor. Any thread. */
#ifndef GRAPEVINE_BASE_NORM_H
#define GRAPEVINE_BASE_NORM_H

#include <stddef.h>

/** Of `values`; as all of these in float64, so finite if the values are. */
double norm_squared(const float *values, size_t count);
/** Of a - b. */
double norm_squared_apart(const float *a, const float *b, size_t count);

#endif
