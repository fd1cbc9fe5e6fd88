/* mixture: see mixture.h. Sums in float64: a square may be much larger than the variance. */
#include "replica/plane/mixture.h"

#include "base/check.h"

void mixture_fill(const struct schema *schema, float *mixed)
{
    const float *buffers = mixed + schema->shared_parameters;
    float *square = mixed + schema->shared_parameters + schema->shared_buffers;

    for (uint32_t t = 0; t < schema->shared_tensors; t++) {
        const struct tensor *mean = &schema->tensors[t];

        if (!schema_is_mean(schema, t)) continue;
        for (size_t i = 0; i < mean->count; i++) {
            *square++ = buffers[mean->offset + i] * buffers[mean->offset + i];
        }
    }
    CHECK(square == mixed + schema->values[SECTION_MIXED]);
}

/* Means and variances, from those before and what the round adds to each. */
static void pool(size_t count, const float *difference[3], float *means, float *variances)
{
    for (size_t i = 0; i < count; i++) {
        const double old = means[i], mean = old + difference[0][i];
        const double variance = (double)variances[i] + difference[1][i];

        means[i] = (float)mean;
        variances[i] = (float)mixture_pool(variance, mean, old * old + difference[2][i]);
    }
}

void mixture_apply(const struct schema *schema, const float *difference, float *buffers)
{
    const float *added = difference + schema->shared_parameters;
    const float *square = added + schema->shared_buffers;

    for (uint32_t t = 0; t < schema->shared_tensors; t++) {
        const struct tensor *tensor = &schema->tensors[t];
        const size_t at = tensor->offset;

        if (tensor->section != SECTION_BUFFERS) continue;
        if (schema_is_mean(schema, t)) {
            const size_t variance = tensor[1].offset;
            const float *parts[3] = {added + at, added + variance, square};

            pool(tensor->count, parts, buffers + at, buffers + variance);
            square += tensor->count;
            t++; /* its variance is done */
            continue;
        }
        for (size_t i = 0; i < tensor->count; i++) {
            buffers[at + i] += added[at + i];
        }
    }
    CHECK(square == difference + schema->values[SECTION_MIXED]);
}
