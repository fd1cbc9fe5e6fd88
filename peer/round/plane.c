/* Norms in several sums side by side, which a processor can add up at once. Any thread. */
#include "peer/round/plane.h"

#include "base/check.h"
#include "base/cpu.h"

#include <math.h>

FOR_EACH_CPU double plane_squared_norm(const float *values, size_t count)
{
    double sums[16] = {0.0}, total = 0.0;
    size_t whole = count - count % ARRAY_COUNT(sums);

    for (size_t i = 0; i < whole; i += ARRAY_COUNT(sums)) {
        for (size_t j = 0; j < ARRAY_COUNT(sums); j++) {
            sums[j] += (double)values[i + j] * (double)values[i + j];
        }
    }
    for (size_t i = whole; i < count; i++) {
        sums[0] += (double)values[i] * (double)values[i];
    }
    for (size_t j = 0; j < ARRAY_COUNT(sums); j++) {
        total += sums[j];
    }
    return total;
}

FOR_EACH_CPU double plane_distance(const float *a, const float *b, size_t count)
{
    double sums[16] = {0.0}, total = 0.0;
    size_t whole = count - count % ARRAY_COUNT(sums);

    for (size_t i = 0; i < whole; i += ARRAY_COUNT(sums)) {
        for (size_t j = 0; j < ARRAY_COUNT(sums); j++) {
            double apart = (double)a[i + j] - (double)b[i + j];

            sums[j] += apart * apart;
        }
    }
    for (size_t i = whole; i < count; i++) {
        double apart = (double)a[i] - (double)b[i];

        sums[0] += apart * apart;
    }
    for (size_t j = 0; j < ARRAY_COUNT(sums); j++) {
        total += sums[j];
    }
    return sqrt(total);
}
