/*
 * rfa: the geometric median, the point from which the sum of all distances is least, smoothed
 * (Pillutla, Kakade, Harchaoui 2019, arXiv:1912.13445; Weiszfeld's iteration):
 *
 *   c = sum_k b_k v_k / sum_k b_k,   b_k = w_k / max(|v_k - c|, nu)
 *
 * It stays among the honest as long as these have more than half of the weight, and needs neither
 * the number of liars nor a usual distance. nu is a tenth of the median distance from where it
 * begins: within that a member pulls as in the mean. It begins at what all held before, as the mean
 * of some wild values is far from all; without that at the value-wise median, and ends when a step
 * is a thousandth of the median distance, or after 32.
 */
#include "averaging/aggregate/aggregate.h"

#include "base/check.h"
#include "base/cpu.h"
#include "base/norm.h"

#include <math.h>
#include <string.h>

enum { STEPS_MOST = 32 };
static const float smoothing = 0.1f, settled = 1e-3f;
/* Who is so many times farther away than the median member counts for less than a quarter of it. */
static const float far_factor = 4;

struct distances {
    float of[AGGREGATE_ROWS_MAX];
};

static void measure(const struct aggregate_rows *rows, const float *from, struct distances *to)
{
    for (uint32_t k = 0; k < rows->members; k++) {
        to->of[k] = (float)sqrt(norm_squared_apart(rows->values[k], from, rows->count));
    }
}

/* The upper one of two: in either of two camps of one size half of the distances are 0, and it
 * would stay there for ever. */
static float median(const struct distances *distances, uint32_t count)
{
    float sorted[AGGREGATE_ROWS_MAX];

    CHECK(count > 0 && count <= AGGREGATE_ROWS_MAX);
    for (uint32_t k = 0; k < count; k++) {
        uint32_t at = k;

        for (; at > 0 && sorted[at - 1] > distances->of[k]; at--) {
            sorted[at] = sorted[at - 1];
        }
        sorted[at] = distances->of[k];
    }
    return sorted[count / 2];
}

/* `centre` becomes the mean by `shares`, which add up to 1. Returns how far it moved, squared. */
FOR_EACH_CPU(static, double, step,
             (const struct aggregate_rows *rows, const float *shares, float *centre),
             (rows, shares, centre))
{
    enum { BLOCK = 64 };
    double sums[BLOCK] = {0}, moved = 0;

    for (size_t first = 0; first < rows->count; first += BLOCK) {
        size_t width = rows->count - first < BLOCK ? rows->count - first : BLOCK;
        float mean[BLOCK] = {0};

        for (uint32_t k = 0; k < rows->members; k++) {
            for (size_t i = 0; i < width; i++) {
                mean[i] += shares[k] * rows->values[k][first + i];
            }
        }
        for (size_t i = 0; i < width; i++) {
            double apart = (double)mean[i] - (double)centre[first + i];

            sums[i] += apart * apart;
            centre[first + i] = mean[i];
        }
    }
    for (size_t i = 0; i < BLOCK; i++) {
        moved += sums[i];
    }
    return moved;
}

static void shares_of(const struct aggregate_rows *rows, const struct distances *distances,
                      float least, float *shares)
{
    double total = 0;

    for (uint32_t k = 0; k < rows->members; k++) {
        total += (double)rows->weights[k] / (double)fmaxf(distances->of[k], least);
    }
    for (uint32_t k = 0; k < rows->members; k++) {
        shares[k] =
            (float)((double)rows->weights[k] / (double)fmaxf(distances->of[k], least) / total);
    }
}

static uint32_t combine(const struct aggregate_rows *rows, uint32_t faults, float *out)
{
    struct distances distances;
    float shares[AGGREGATE_ROWS_MAX], usual;
    uint32_t outlying = 0;

    if (rows->centre != NULL) {
        memcpy(out, rows->centre, rows->count * sizeof(float));
    } else {
        (void)aggregate_median.combine(rows, faults, out);
    }
    measure(rows, out, &distances);
    usual = median(&distances, rows->members);
    for (int i = 0; i < STEPS_MOST && usual > 0; i++) {
        shares_of(rows, &distances, smoothing * usual, shares);
        if (sqrt(step(rows, shares, out)) <= (double)(settled * usual)) break;
        measure(rows, out, &distances);
    }
    measure(rows, out, &distances);
    usual = median(&distances, rows->members);
    for (uint32_t k = 0; k < rows->members; k++) {
        outlying += distances.of[k] > far_factor * usual;
    }
    return outlying;
}

const struct aggregate_ops aggregate_rfa = {.name = "rfa", .combine = combine};
