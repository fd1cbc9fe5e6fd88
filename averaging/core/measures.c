/* measures: see measures.h. */
#include "averaging/core/measures.h"

#include "base/check.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct one {
    double mean, deviation, weight;
};

bool measures_are_sound(const struct measures *member, size_t channels)
{
    if (member->samples == 0 || member->samples > MEASURES_SAMPLES_MAX) return false;
    for (size_t i = 0; i < 2 * channels; i++) {
        const float value = member->values[i];

        if (!isfinite(value) || fabsf(value) > MEASURES_VALUE_MAX) return false;
        if (i >= channels && value < 0.0F) return false;
    }
    return true;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The mean of the two in the middle; sorts. */
static double median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, compare);
    return (values[(count - 1) / 2] + values[count / 2]) / 2.0;
}

/* In an order that is the same for all, whoever told first. */
static int compare_ones(const void *a, const void *b)
{
    const struct one *x = a, *y = b;
    int order = compare(&x->mean, &y->mean);

    if (order == 0) order = compare(&x->deviation, &y->deviation);
    return order != 0 ? order : compare(&x->weight, &y->weight);
}

/* The median of those that are not 0: where a channel is constant at most members, those where it
 * is not are asked. */
static double median_deviation(const struct one *ones, size_t count, double *scratch)
{
    size_t known = 0;

    for (size_t i = 0; i < count; i++) {
        if (ones[i].deviation > 0.0) scratch[known++] = ones[i].deviation;
    }
    return known == 0 ? 0.0 : median(scratch, known);
}

static void merge_channel(struct one *ones, size_t count, double *scratch, float *mean,
                          float *scale)
{
    double middle, spread, widest, far, sum = 0.0, squares = 0.0, weights = 0.0, centre, variance;

    qsort(ones, count, sizeof *ones, compare_ones);
    middle = (ones[(count - 1) / 2].mean + ones[count / 2].mean) / 2.0;
    spread = median_deviation(ones, count, scratch);
    widest = MEASURES_WIDE * spread;
    for (size_t i = 0; i < count; i++) {
        scratch[i] = fabs(ones[i].mean - middle);
    }
    far = MEASURES_FAR * fmax(spread, median(scratch, count));
    for (size_t i = 0; i < count; i++) {
        ones[i].mean = fmin(fmax(ones[i].mean, middle - far), middle + far) - middle;
        ones[i].deviation = fmin(ones[i].deviation, widest);
        sum += ones[i].weight * ones[i].mean;
        weights += ones[i].weight;
    }
    centre = sum / weights;
    for (size_t i = 0; i < count; i++) {
        const double off = ones[i].mean - centre;

        squares += ones[i].weight * (ones[i].deviation * ones[i].deviation + off * off);
    }
    variance = squares / weights;
    *mean = (float)(middle + centre);
    *scale = variance > 0.0 ? (float)fmin(1.0 / sqrt(variance), (double)MEASURES_VALUE_MAX) : 1.0F;
}

enum rc measures_merge(const struct measures *members, size_t count, size_t channels, float *mean,
                       float *scale)
{
    struct one *ones = mem_array(count, sizeof *ones);
    double *scratch = mem_array(count, sizeof *scratch), most;

    CHECK(count > 0);
    if (ones == NULL || scratch == NULL) {
        mem_free(ones);
        mem_free(scratch);
        return RC_NOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        scratch[i] = (double)members[i].samples;
    }
    most = MEASURES_WEIGHT_MAX * median(scratch, count);
    for (size_t c = 0; c < channels; c++) {
        for (size_t i = 0; i < count; i++) {
            ones[i] = (struct one){.mean = (double)members[i].values[c],
                                   .deviation = (double)members[i].values[channels + c],
                                   .weight = fmin((double)members[i].samples, most)};
        }
        merge_channel(ones, count, scratch, &mean[c], &scale[c]);
    }
    mem_free(ones);
    mem_free(scratch);
    return RC_OK;
}
