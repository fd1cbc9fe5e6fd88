/*
 * trim and median: value by value, the k largest and the k smallest are dropped, and what is left
 * is averaged (Yin, Chen, Ramchandran, Bartlett 2018, arXiv:1803.01498). With at most k liars among
 * m > 2k members each value lies between two honest ones. The median is what is left when as many
 * are dropped as can be: the middle value, or the mean of the two in the middle.
 *
 * Each member counts once, whatever it says of its samples. Values are sorted in blocks, all
 * columns of a block at once, by a network of comparisons (Batcher's merge exchange: Knuth, volume
 * 3, algorithm 5.2.2M), which takes any number of rows and has no branch that depends on a value.
 *
 * What this costs: k members on each side are left out of every value whether anybody lies or not,
 * so where data are unlike it is what few know that goes, first of all.
 */
#include "averaging/aggregate/aggregate.h"

#include "base/check.h"
#include "base/cpu.h"

enum { BLOCK = 64 };

/* a: the smaller of each two. */
CPU_LOOP void order(float *restrict a, float *restrict b)
{
    for (size_t i = 0; i < BLOCK; i++) {
        float low = a[i] < b[i] ? a[i] : b[i], high = a[i] < b[i] ? b[i] : a[i];

        a[i] = low;
        b[i] = high;
    }
}

CPU_LOOP void sort_rows(float rows[][BLOCK], uint32_t n)
{
    uint32_t top = 1;

    while (2 * top < n) {
        top *= 2;
    }
    for (uint32_t p = top; p > 0; p /= 2) {
        uint32_t q = top, r = 0, d = p;

        for (;;) {
            for (uint32_t i = 0; i + d < n; i++) {
                if ((i & p) == r) order(rows[i], rows[i + d]);
            }
            if (q == p) break;
            d = q - p;
            q /= 2;
            r = p;
        }
    }
}

/* The last block may be short: what stands behind its end is sorted along and not looked at. */
FOR_EACH_CPU(static, void, trimmed, (const struct aggregate_rows *rows, uint32_t drop, float *out),
             (rows, drop, out))
{
    float block[AGGREGATE_ROWS_MAX][BLOCK] = {{0}};
    uint32_t n = rows->members, left = n - 2 * drop;

    for (size_t first = 0; first < rows->count; first += BLOCK) {
        size_t width = rows->count - first < BLOCK ? rows->count - first : BLOCK;

        for (uint32_t k = 0; k < n; k++) {
            for (size_t i = 0; i < width; i++) {
                block[k][i] = rows->values[k][first + i];
            }
        }
        sort_rows(block, n);
        for (uint32_t k = drop + 1; k < drop + left; k++) {
            for (size_t i = 0; i < BLOCK; i++) {
                block[drop][i] += block[k][i];
            }
        }
        for (size_t i = 0; i < width; i++) {
            out[first + i] = block[drop][i] / (float)left;
        }
    }
}

static uint32_t combine(const struct aggregate_rows *rows, uint32_t faults, float *out)
{
    uint32_t most = (rows->members - 1) / 2, drop = faults < most ? faults : most;

    CHECK(rows->members > 0 && rows->members <= AGGREGATE_ROWS_MAX);
    trimmed(rows, drop, out);
    return 2 * drop;
}

const struct aggregate_ops aggregate_trim = {.name = "trim",
                                             .takes_faults = true,
                                             .needs_faults = true,
                                             .is_by_value = true,
                                             .combine = combine};

const struct aggregate_ops aggregate_median = {
    .name = "median", .is_by_value = true, .combine = combine};
