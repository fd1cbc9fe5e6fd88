/*
 * radial: how far members went and where to, each averaged by itself. With d_m what member m went
 * from the anchor that all hold, and w_m its weight,
 *
 *   length     r = sum w_m |d_m| / sum w_m
 *   direction  e = sum w_m d_m / |d_m|
 *   result     anchor + r e / |e|
 *
 * (radial-directional averaging of Decoupled DiLoCo, arXiv:2604.21428). What members learn beside
 * each other is nearly orthogonal, so the mean of M of them is shorter than each by sqrt(M): outer
 * rates would have to grow with the members, and who learned little in a round would shorten what
 * the others did. Where directions cancel, the plain mean; also without an anchor, in the first
 * round. A member that did not move has a length, and no direction.
 *
 * Where we differ: the paper measures tensor by tensor, and this the chunk at hand, which whoever
 * owns a part has as a whole. Tensors of 32,768 values or more are as in the paper, piece by piece;
 * embeddings are no exception.
 *
 * It is no defence: a member that goes far makes all go farther, as in a mean. So weights are what
 * clip leaves.
 */
#include "averaging/aggregate/aggregate.h"

#include "base/cpu.h"
#include "base/norm.h"

#include <math.h>

/* Of the weight of all: directions whose sum is shorter than this cancel. Those of 64 members that
 * are orthogonal add up to an eighth. */
static const float cancelled = 1e-3f;

/* out = sum_k turns[k] (values_k - centre); the squared length of that. */
FOR_EACH_CPU(static, double, directions,
             (const struct aggregate_rows *rows, const float *turns, float *out),
             (rows, turns, out))
{
    enum { BLOCK = 64 };
    double sums[BLOCK] = {0}, squared = 0;

    for (size_t first = 0; first < rows->count; first += BLOCK) {
        size_t width = rows->count - first < BLOCK ? rows->count - first : BLOCK;
        float turned[BLOCK] = {0};

        for (uint32_t k = 0; k < rows->members; k++) {
            for (size_t i = 0; i < width; i++) {
                turned[i] += turns[k] * (rows->values[k][first + i] - rows->centre[first + i]);
            }
        }
        for (size_t i = 0; i < width; i++) {
            sums[i] += (double)turned[i] * (double)turned[i];
            out[first + i] = turned[i];
        }
    }
    for (size_t i = 0; i < BLOCK; i++) {
        squared += sums[i];
    }
    return squared;
}

static uint32_t combine(const struct aggregate_rows *rows, uint32_t faults, float *out)
{
    float turns[AGGREGATE_ROWS_MAX];
    double length = 0, total = 0, summed;

    (void)faults;
    for (uint32_t k = 0; k < rows->members && rows->centre != NULL; k++) {
        double apart = sqrt(norm_squared_apart(rows->values[k], rows->centre, rows->count));

        turns[k] = apart > 0 ? (float)((double)rows->weights[k] / apart) : 0;
        if (!isfinite(turns[k])) turns[k] = 0;
        length += (double)rows->weights[k] * apart;
        total += (double)rows->weights[k];
    }
    summed = rows->centre == NULL ? 0 : sqrt(directions(rows, turns, out));
    if (!(summed > (double)cancelled * total)) {
        aggregate_mean(rows, out);
        return 0;
    }
    for (size_t i = 0; i < rows->count; i++) {
        out[i] = rows->centre[i] + (float)(length / total / summed) * out[i];
    }
    return 0;
}

const struct aggregate_ops aggregate_radial = {
    .name = "radial", .is_defenceless = true, .combine = combine};
