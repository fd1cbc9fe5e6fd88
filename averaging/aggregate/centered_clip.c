/*
 * centered-clip: from what all held before, a step towards the mean of what members say, of whom
 * none pulls farther than a radius (Karimireddy, He, Jaggi 2021, arXiv:2012.10333):
 *
 *   c = c + sum_i w_i (v_i - c) min(1, tau / |v_i - c|),   sum_i w_i = 1
 *
 * three times over. One liar of weight w moves the result by 3 w tau at most, wherever it is. tau
 * is the radius of clip (core/robust.h): some times the distance that is usual around the centre.
 *
 * clip beside it lets weight fall with the third power of the distance, so what is far away moves
 * nothing in the end; here it pulls for ever with the strength of the radius, and three liars that
 * pull one way lead the rest along.
 */
#include "averaging/aggregate/aggregate.h"

#include "base/check.h"
#include "base/cpu.h"
#include "base/norm.h"

#include <math.h>
#include <string.h>

enum { ROUNDS = 3 };

FOR_EACH_CPU(static, void, step,
             (const struct aggregate_rows *rows, const float *pulls, float *centre),
             (rows, pulls, centre))
{
    enum { BLOCK = 64 };

    for (size_t first = 0; first < rows->count; first += BLOCK) {
        size_t width = rows->count - first < BLOCK ? rows->count - first : BLOCK;
        float moved[BLOCK] = {0};

        for (uint32_t k = 0; k < rows->members; k++) {
            for (size_t i = 0; i < width; i++) {
                moved[i] += pulls[k] * (rows->values[k][first + i] - centre[first + i]);
            }
        }
        for (size_t i = 0; i < width; i++) {
            centre[first + i] += moved[i];
        }
    }
}

/* Returns how many are beyond the radius. */
static uint32_t pulls_of(const struct aggregate_rows *rows, const float *centre, float *pulls)
{
    float total = 0;
    uint32_t beyond = 0;

    for (uint32_t k = 0; k < rows->members; k++) {
        total += rows->weights[k];
    }
    for (uint32_t k = 0; k < rows->members; k++) {
        float distance = (float)sqrt(norm_squared_apart(rows->values[k], centre, rows->count));

        pulls[k] = rows->weights[k] / total;
        if (distance <= rows->radius) continue;
        pulls[k] *= rows->radius / distance;
        beyond++;
    }
    return beyond;
}

static uint32_t combine(const struct aggregate_rows *rows, uint32_t faults, float *out)
{
    float pulls[AGGREGATE_ROWS_MAX];
    uint32_t beyond = 0;

    (void)faults;
    CHECK(rows->centre != NULL && rows->radius >= 0);
    memcpy(out, rows->centre, rows->count * sizeof(float));
    for (int i = 0; i < ROUNDS; i++) {
        beyond = pulls_of(rows, out, pulls);
        step(rows, pulls, out);
    }
    return beyond;
}

const struct aggregate_ops aggregate_centered_clip = {
    .name = "centered-clip", .wants_usual = true, .combine = combine};
