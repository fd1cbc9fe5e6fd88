/*
 * The weighted sum of neighbours' differences, x_i += sum_j w_ij (x_j - x_i) (Lian et al. 2017,
 * arXiv:1705.09056, the neighbourhood average, written as differences).
 *
 * One term is computed in float32: subtraction rounds symmetrically and the weights are the same
 * bits, so the terms of an edge's two ends are exact negatives. They are added in float64: 64 terms
 * of 24 bits lose next to nothing there, so the order in which neighbours come in does not matter
 * and what is lost of the mean is the last rounding of each peer's sum.
 */
#include "averaging/rule/edge_sum.h"

#include "base/check.h"
#include "base/mem.h"
#include "base/norm.h"

#include <string.h>

void edge_sum_init(struct edge_sum *edges, size_t values)
{
    *edges = (struct edge_sum){.values = values};
}

void edge_sum_deinit(struct edge_sum *edges)
{
    for (size_t i = 0; i < RULE_SLOTS_MAX; i++) {
        mem_free(edges->slots[i]);
    }
    mem_free(edges->sum);
    edge_sum_init(edges, 0);
}

void edge_sum_begin(struct edge_sum *edges, const float *own)
{
    edges->own = own;
    edges->has_sum = false;
}

enum rc edge_sum_stage(struct edge_sum *edges, uint32_t slot, struct range range, const float *in,
                       float *squared)
{
    const float *own = edges->own + range.first;
    float *staged;

    CHECK(edges->own != NULL && slot < RULE_SLOTS_MAX);
    if (range.first > edges->values || range.count > edges->values - range.first) return RC_SHAPE;
    if (edges->slots[slot] == NULL) {
        edges->slots[slot] = mem_aligned(edges->values * sizeof(float));
    }
    if (edges->sum == NULL) edges->sum = mem_aligned(edges->values * sizeof(double));
    if (edges->slots[slot] == NULL || edges->sum == NULL) return RC_NOMEM;
    staged = edges->slots[slot] + range.first;
    memcpy(staged, in, range.count * sizeof(float));
    *squared = (float)norm_squared_apart(staged, own, range.count);
    return RC_OK;
}

void edge_sum_take(struct edge_sum *edges, uint32_t slot, struct range range, float weight)
{
    const float *own = edges->own, *staged = edges->slots[slot];
    double *sum = edges->sum;

    if (edges->values == 0) return; /* nothing was staged */
    CHECK(own != NULL && staged != NULL && sum != NULL);
    CHECK(range.count <= edges->values - range.first);
    if (!edges->has_sum) memset(sum, 0, edges->values * sizeof(double));
    edges->has_sum = true;
    for (size_t i = range.first; i < range.first + range.count; i++) {
        float term = weight * (staged[i] - own[i]);

        sum[i] += (double)term;
    }
}

void edge_sum_add(const struct edge_sum *edges, uint32_t slot, float weight, float *to)
{
    const float *own = edges->own, *staged = edges->slots[slot];

    CHECK(edges->values == 0 || (own != NULL && staged != NULL));
    for (size_t i = 0; i < edges->values; i++) {
        to[i] += weight * (staged[i] - own[i]);
    }
}

void edge_sum_keep(const struct edge_sum *edges, uint32_t slot, float weight, float *difference)
{
    const float *own = edges->own, *staged = edges->slots[slot];

    CHECK(edges->values == 0 || (own != NULL && staged != NULL));
    for (size_t i = 0; i < edges->values; i++) {
        difference[i] = weight * (staged[i] - own[i]);
    }
}

bool edge_sum_settle(const struct edge_sum *edges, float *difference)
{
    if (!edges->has_sum) return false;
    for (size_t i = 0; i < edges->values; i++) {
        difference[i] = (float)edges->sum[i];
    }
    return true;
}
