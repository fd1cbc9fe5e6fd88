/* prune: see prune.h. */
#include "distill/prune.h"

#include "base/check.h"
#include "base/mem.h"
#include "replica/formats/packed.h"

#include <stdlib.h>
#include <string.h>

enum { HALF_BITS = 16, HALF_VALUES = 1 << HALF_BITS };

struct ranked {
    float square;
    uint32_t index; /* in its tensor */
};

uint64_t prune_weights(const struct schema *schema)
{
    uint64_t count = 0;

    for (uint32_t t = 0; t < schema->tensors_count; t++) {
        if (packed_may(&schema->tensors[t])) count += schema->tensors[t].count;
    }
    return count;
}

static int compare_ranked(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    if (x->square < y->square || x->square > y->square) return x->square < y->square ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* The scores of one tensor. Squares are of values over the largest, so that none overflows. */
static void score_tensor(const float *values, size_t count, struct ranked *ranked, float *scores)
{
    float most = 0.0F;
    double larger = 0.0;

    for (size_t i = 0; i < count; i++) {
        const float size = values[i] < 0.0F ? -values[i] : values[i];
        if (size > most) most = size;
    }
    for (size_t i = 0; i < count; i++) {
        const float part = most > 0.0F ? values[i] / most : 0.0F;
        ranked[i] = (struct ranked){part * part, (uint32_t)i};
    }
    qsort(ranked, count, sizeof *ranked, compare_ranked);
    for (size_t i = count; i-- > 0;) {
        larger += (double)ranked[i].square;
        scores[ranked[i].index] = larger > 0.0 ? (float)(ranked[i].square / larger) : 0.0F;
    }
}

static uint32_t bits_of(float score)
{
    uint32_t bits;

    memcpy(&bits, &score, sizeof bits);
    return bits; /* in the order of the scores, which are not negative */
}

/* The half of its bits that a score of rank `*rank` has, among those whose upper half is `upper`
 * (is_lower) or among all; `*rank` becomes the rank among those. */
static uint32_t find_half(const float *scores, size_t count, bool is_lower, uint32_t upper,
                          uint64_t *rank, uint64_t *counts)
{
    uint32_t half = 0;

    memset(counts, 0, HALF_VALUES * sizeof *counts);
    for (size_t i = 0; i < count; i++) {
        const uint32_t bits = bits_of(scores[i]);
        if (is_lower && bits >> HALF_BITS != upper) continue;
        counts[is_lower ? bits & (HALF_VALUES - 1) : bits >> HALF_BITS]++;
    }
    while (*rank >= counts[half]) {
        *rank -= counts[half++];
        CHECK(half < HALF_VALUES);
    }
    return half;
}

/* Drop `drop` of the weights: all below the score of that rank, and of those equal to it the first.
 */
static void drop_least(const struct schema *schema, const float *scores, uint64_t drop,
                       uint64_t *counts, uint8_t *keeps)
{
    const size_t weights = (size_t)prune_weights(schema);
    uint64_t rank = drop;
    const uint32_t upper = find_half(scores, weights, false, 0, &rank, counts);
    const uint32_t lower = find_half(scores, weights, true, upper, &rank, counts);
    const uint32_t border = upper << HALF_BITS | lower;

    for (uint32_t t = 0; t < schema->tensors_count; t++) {
        const struct tensor *tensor = &schema->tensors[t];
        if (!packed_may(tensor)) continue;
        for (size_t i = 0; i < tensor->count; i++) {
            const uint32_t bits = bits_of(*scores++);
            if (bits > border || (bits == border && rank == 0)) continue;
            if (bits == border) rank--;
            keeps[tensor->offset + i] = 0;
        }
    }
}

enum rc prune_choose(const struct schema *schema, const float *parameters, double share,
                     uint8_t *keeps)
{
    const size_t weights = (size_t)prune_weights(schema);
    const uint64_t drop = (uint64_t)(share * (double)weights);
    size_t largest = 1, at = 0;
    struct ranked *ranked;
    uint64_t *counts;
    float *scores;
    enum rc rc = RC_NOMEM;

    CHECK(share >= 0.0 && share < 1.0);
    memset(keeps, 1, schema->values[SECTION_PARAMETERS]);
    if (drop == 0) return RC_OK;
    for (uint32_t t = 0; t < schema->tensors_count; t++) {
        const struct tensor *tensor = &schema->tensors[t];
        if (packed_may(tensor) && tensor->count > largest) largest = tensor->count;
    }
    CHECK(largest <= UINT32_MAX); /* STAGE_VALUES_MAX */
    ranked = mem_array(largest, sizeof *ranked);
    scores = mem_array(weights, sizeof *scores);
    counts = mem_array(HALF_VALUES, sizeof *counts);
    if (ranked == NULL || scores == NULL || counts == NULL) goto out;
    for (uint32_t t = 0; t < schema->tensors_count; t++) {
        const struct tensor *tensor = &schema->tensors[t];
        if (!packed_may(tensor)) continue;
        score_tensor(parameters + tensor->offset, tensor->count, ranked, scores + at);
        at += tensor->count;
    }
    drop_least(schema, scores, drop, counts, keeps);
    rc = RC_OK;
out:
    mem_free(ranked);
    mem_free(scores);
    mem_free(counts);
    return rc;
}

void prune_apply(const uint8_t *keeps, float *parameters, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (keeps[i] == 0) parameters[i] = 0.0F;
    }
}

double prune_share(double share, double at)
{
    const double left = at < 1.0 ? 1.0 - at : 0.0;

    return share * (1.0 - left * left * left);
}
