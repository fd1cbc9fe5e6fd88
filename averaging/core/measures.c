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

/* What more than half of the members vouch for, and how far one may move the merge from it. */
struct bounds {
    double middle, far; /* the mean, and how far from it */
    double widest;      /* deviation of one member */
    double least, most; /* variance of the merge */
};

/* Of those that are not 0; of none it is 0. */
static double median_of_known(const struct one *ones, size_t count, double *scratch)
{
    size_t known = 0;

    for (size_t i = 0; i < count; i++) {
        if (ones[i].deviation > 0.0) scratch[known++] = ones[i].deviation;
    }
    return known == 0 ? 0.0 : median(scratch, known);
}

/* Sorts `ones`. Where a channel is constant at most members nobody vouches for the deviation of the
 * others: it may make the scale smaller than 1, and never larger. */
static struct bounds bounds_of(struct one *ones, size_t count, double *scratch)
{
    struct bounds bounds;
    double usual;

    qsort(ones, count, sizeof *ones, compare_ones);
    bounds.middle = (ones[(count - 1) / 2].mean + ones[count / 2].mean) / 2.0;
    for (size_t i = 0; i < count; i++) {
        scratch[i] = ones[i].deviation;
    }
    usual = median(scratch, count);
    bounds.widest = MEASURES_WIDE * (usual > 0.0 ? usual : median_of_known(ones, count, scratch));
    for (size_t i = 0; i < count; i++) {
        scratch[i] = fabs(ones[i].mean - bounds.middle);
    }
    bounds.far = MEASURES_FAR * fmax(usual, median(scratch, count));
    bounds.least = usual > 0.0 ? usual * usual / (MEASURES_NARROW * MEASURES_NARROW) : 1.0;
    bounds.most = fmax(bounds.widest * bounds.widest + 4.0 * bounds.far * bounds.far, bounds.least);
    return bounds;
}

static void merge_channel(struct one *ones, size_t count, double *scratch, float *mean,
                          float *scale)
{
    const struct bounds bounds = bounds_of(ones, count, scratch);
    double sum = 0.0, squares = 0.0, weights = 0.0, centre;

    for (size_t i = 0; i < count; i++) {
        ones[i].mean =
            fmin(fmax(ones[i].mean, bounds.middle - bounds.far), bounds.middle + bounds.far) -
            bounds.middle;
        ones[i].deviation = fmin(ones[i].deviation, bounds.widest);
        sum += ones[i].weight * ones[i].mean;
        weights += ones[i].weight;
    }
    centre = sum / weights;
    for (size_t i = 0; i < count; i++) {
        const double off = ones[i].mean - centre;

        squares += ones[i].weight * (ones[i].deviation * ones[i].deviation + off * off);
    }
    *mean = (float)(bounds.middle + centre);
    *scale =
        (float)fmin(1.0 / sqrt(fmax(squares / weights, bounds.least)), (double)MEASURES_VALUE_MAX);
}

/* The members, their medians and their scratch; NULL: no memory. */
struct table {
    struct one *ones;
    double *scratch;
    double weight_most;
};

static void table_deinit(struct table *table)
{
    mem_free(table->ones);
    mem_free(table->scratch);
}

static enum rc table_init(struct table *table, const struct measures *members, size_t count)
{
    CHECK(count > 0);
    *table = (struct table){mem_array(count, sizeof *table->ones),
                            mem_array(count, sizeof *table->scratch), 0.0};
    if (table->ones == NULL || table->scratch == NULL) {
        table_deinit(table);
        return RC_NOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        table->scratch[i] = (double)members[i].samples;
    }
    table->weight_most = MEASURES_WEIGHT_MAX * median(table->scratch, count);
    return RC_OK;
}

static void table_set(struct table *table, const struct measures *members, size_t count,
                      size_t channels, size_t channel)
{
    for (size_t i = 0; i < count; i++) {
        table->ones[i] =
            (struct one){.mean = (double)members[i].values[channel],
                         .deviation = (double)members[i].values[channels + channel],
                         .weight = fmin((double)members[i].samples, table->weight_most)};
    }
}

enum rc measures_merge(const struct measures *members, size_t count, size_t channels, float *mean,
                       float *scale)
{
    struct table table;
    enum rc rc = table_init(&table, members, count);

    if (rc != RC_OK) return rc;
    for (size_t c = 0; c < channels; c++) {
        table_set(&table, members, count, channels, c);
        merge_channel(table.ones, count, table.scratch, &mean[c], &scale[c]);
    }
    table_deinit(&table);
    return RC_OK;
}

enum rc measures_allow(const struct measures *members, size_t count, size_t channels,
                       const float *mean, const float *scale)
{
    const double slack = 1.001; /* for what float32 rounds */
    struct table table;
    enum rc rc = table_init(&table, members, count);

    if (rc != RC_OK) return rc;
    for (size_t c = 0; c < channels && rc == RC_OK; c++) {
        struct bounds bounds;
        double variance, off;

        table_set(&table, members, count, channels, c);
        bounds = bounds_of(table.ones, count, table.scratch);
        variance = 1.0 / ((double)scale[c] * (double)scale[c]);
        off = fabs((double)mean[c] - bounds.middle) - 1e-6 * fabs(bounds.middle);
        if (!(off <= bounds.far * slack) || !(variance >= bounds.least / slack) ||
            !(variance <= bounds.most * slack)) {
            rc = RC_AUTH;
        }
    }
    table_deinit(&table);
    return rc;
}
