/* See norm.h: several sums side by side, for a processor that adds up many. */
#include "base/norm.h"

#include "base/cpu.h"

enum { SUMS = 16 };

static double total_of(const double sums[SUMS])
{
    double total = 0.0;

    for (size_t j = 0; j < SUMS; j++) {
        total += sums[j];
    }
    return total;
}

FOR_EACH_CPU(extern, double, norm_squared, (const float *values, size_t count), (values, count))
{
    double sums[SUMS] = {0.0};
    size_t whole = count - count % SUMS;

    for (size_t i = 0; i < whole; i += SUMS) {
        for (size_t j = 0; j < SUMS; j++) {
            sums[j] += (double)values[i + j] * (double)values[i + j];
        }
    }
    for (size_t j = 0; whole + j < count; j++) {
        sums[j] += (double)values[whole + j] * (double)values[whole + j];
    }
    return total_of(sums);
}

FOR_EACH_CPU(extern, double, norm_squared_apart, (const float *a, const float *b, size_t count),
             (a, b, count))
{
    double sums[SUMS] = {0.0};
    size_t whole = count - count % SUMS;

    for (size_t i = 0; i < whole; i += SUMS) {
        for (size_t j = 0; j < SUMS; j++) {
            double apart = (double)a[i + j] - (double)b[i + j];

            sums[j] += apart * apart;
        }
    }
    for (size_t j = 0; whole + j < count; j++) {
        double apart = (double)a[whole + j] - (double)b[whole + j];

        sums[j] += apart * apart;
    }
    return total_of(sums);
}
