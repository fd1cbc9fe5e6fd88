/*
 * krum: the one member that has the others nearest (Blanchard, El Mhamdi, Guerraoui, Stainer 2017,
 * arXiv:1703.02757). With at most f liars among m >= 2f + 3 members, each is scored with the sum of
 * its m - f - 2 smallest squared distances from others, and the least score wins; of two with the
 * same score the one with the smaller id. multi-krum averages the m - f with the least scores, so
 * it leaves out those that stand apart, and no others.
 *
 * With fewer members than 2f + 3 the f is the largest that they allow, (m - 3) / 2.
 */
#include "averaging/aggregate/aggregate.h"

#include "base/check.h"
#include "base/norm.h"

#include <string.h>

struct scores {
    double of[AGGREGATE_ROWS_MAX];
};

static uint32_t most_faults(uint32_t members, uint32_t faults)
{
    uint32_t most = (members - 3) / 2;

    CHECK(members >= AGGREGATE_ROWS_LEAST && members <= AGGREGATE_ROWS_MAX);
    return faults < most ? faults : most;
}

/* The sum of the `count` smallest of `apart` [members], but for that from itself. */
static double score(const double *apart, uint32_t self, uint32_t members, uint32_t count)
{
    double nearest[AGGREGATE_ROWS_MAX], sum = 0;
    uint32_t known = 0;

    for (uint32_t k = 0; k < members; k++) {
        uint32_t at = known++;

        if (k == self) {
            known--;
            continue;
        }
        for (; at > 0 && nearest[at - 1] > apart[k]; at--) {
            nearest[at] = nearest[at - 1];
        }
        nearest[at] = apart[k];
    }
    for (uint32_t k = 0; k < count; k++) {
        sum += nearest[k];
    }
    return sum;
}

static void measure(const struct aggregate_rows *rows, uint32_t faults, struct scores *scores)
{
    double apart[AGGREGATE_ROWS_MAX][AGGREGATE_ROWS_MAX];
    uint32_t n = rows->members;

    for (uint32_t a = 0; a < n; a++) {
        apart[a][a] = 0;
        for (uint32_t b = a + 1; b < n; b++) {
            apart[a][b] = apart[b][a] =
                norm_squared_apart(rows->values[a], rows->values[b], rows->count);
        }
    }
    for (uint32_t a = 0; a < n; a++) {
        scores->of[a] = score(apart[a], a, n, n - faults - 2);
    }
}

/* Of those with a weight: the one with the least score, the first of equal ones. */
static uint32_t best_of(const struct scores *scores, const struct aggregate_rows *rows,
                        const bool *is_taken)
{
    uint32_t best = UINT32_MAX;

    for (uint32_t k = 0; k < rows->members; k++) {
        if (is_taken[k]) continue;
        if (best == UINT32_MAX || scores->of[k] < scores->of[best]) best = k;
    }
    CHECK(best != UINT32_MAX);
    return best;
}

static uint32_t best(const struct aggregate_rows *rows, uint32_t faults, uint32_t count, float *out)
{
    bool is_taken[AGGREGATE_ROWS_MAX] = {false};
    struct aggregate_rows chosen = {.count = rows->count};
    struct scores scores;

    measure(rows, faults, &scores);
    for (uint32_t i = 0; i < count; i++) {
        is_taken[best_of(&scores, rows, is_taken)] = true;
    }
    for (uint32_t k = 0; k < rows->members; k++) {
        if (!is_taken[k]) continue;
        chosen.values[chosen.members] = rows->values[k];
        chosen.weights[chosen.members++] = rows->weights[k];
    }
    if (count == 1) {
        memcpy(out, chosen.values[0], rows->count * sizeof(float));
    } else {
        aggregate_mean(&chosen, out);
    }
    return rows->members - count;
}

static uint32_t combine_krum(const struct aggregate_rows *rows, uint32_t faults, float *out)
{
    return best(rows, most_faults(rows->members, faults), 1, out);
}

static uint32_t combine_multi(const struct aggregate_rows *rows, uint32_t faults, float *out)
{
    uint32_t f = most_faults(rows->members, faults);

    return best(rows, f, rows->members - f, out);
}

const struct aggregate_ops aggregate_krum = {
    .name = "krum", .takes_faults = true, .combine = combine_krum};

const struct aggregate_ops aggregate_multi_krum = {
    .name = "multi-krum", .takes_faults = true, .combine = combine_multi};
