/*
 * Attention backward (Dao 2023, arXiv:2307.08691, Algorithm 2): tiles of SIDE keys x SIDE queries.
 * With the weights P again from the scores and the forward pass's statistics, D = rowsum(dy y):
 *     dV = P' dY     dP = dY V'     dS = P (dP - D)     dK = dS' Q     dQ = dS K / sqrt(width)
 * where Q is already scaled. As forward, P and dS are kept as [key][query]. On the diagonal tile
 * every product stops where the mask begins.
 */
#include "kernels/cpu/sequence/attention_product.h"

#include "base/check.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/reference/sequence.h"

#include <math.h>
#include <string.h>

struct backward_layout {
    size_t rotation;
    size_t queries, dy, dqueries;             /* [steps][padded] */
    size_t queries_transposed, dy_transposed; /* per panel [padded][LANES] */
    size_t statistics, products;              /* [steps] */
    size_t keys, values, dkeys, dvalues;      /* [SIDE][padded] */
    size_t weights, dscores;                  /* [SIDE][SIDE] */
    size_t total;
};

struct backward {
    const struct attention *attention;
    struct head_rows queries, keys, values, y, dy;
    float *dqueries, *dkeys, *dvalues; /* rows of the same strides in dqkv */
    const float *statistics;           /* [steps] */
    struct backward_layout at;
    float *scratch;
};

/* Keys [key, key + keys) against queries [query, query + queries). */
struct tile {
    size_t key, keys, query, queries;
    bool is_diagonal;
};

static struct backward_layout backward_layout(const struct attention *attention)
{
    size_t width = attention->width / attention->heads, padded = round_up(width, LANES);
    size_t rows = round_up(attention->steps, SIDE), at = 0;
    struct backward_layout layout;

    layout.rotation = scratch_take(&at, attention->is_rotary ? attention->steps * width : 0);
    layout.queries = scratch_take(&at, rows * padded);
    layout.dy = scratch_take(&at, rows * padded);
    layout.dqueries = scratch_take(&at, rows * padded);
    layout.queries_transposed = scratch_take(&at, rows * padded);
    layout.dy_transposed = scratch_take(&at, rows * padded);
    layout.statistics = scratch_take(&at, rows);
    layout.products = scratch_take(&at, rows);
    layout.keys = scratch_take(&at, SIDE * padded);
    layout.values = scratch_take(&at, SIDE * padded);
    layout.dkeys = scratch_take(&at, SIDE * padded);
    layout.dvalues = scratch_take(&at, SIDE * padded);
    layout.weights = scratch_take(&at, SIDE * SIDE);
    layout.dscores = scratch_take(&at, SIDE * SIDE);
    layout.total = at;
    return layout;
}

size_t attention_backward_scratch(const struct attention *attention)
{
    return backward_layout(attention).total;
}

/* All queries of a head; those past the end get statistics that make their weights 0. */
static void pack_queries(const struct backward *b)
{
    size_t steps = b->attention->steps, padded = b->queries.padded;
    size_t rows = round_up(steps, LANES);
    float *queries = b->scratch + b->at.queries, *dy = b->scratch + b->at.dy;
    float *statistics = b->scratch + b->at.statistics, *products = b->scratch + b->at.products;

    head_pack(&b->queries, 0, rows, 1.0F / sqrtf((float)b->queries.width), queries);
    head_pack(&b->dy, 0, rows, 1.0F, dy);
    for (size_t at = 0; at < rows * padded; at += LANES * padded) {
        head_transpose(queries + at, padded, b->scratch + b->at.queries_transposed + at);
        head_transpose(dy + at, padded, b->scratch + b->at.dy_transposed + at);
    }
    head_dot(&b->dy, &b->y, 0, steps, products);
    memcpy(statistics, b->statistics, steps * sizeof(float));
    for (size_t t = steps; t < rows; t++) {
        statistics[t] = INFINITY;
        products[t] = 0.0F;
    }
}

/* Scores and d(weights) of a panel become weights and d(scores). */
FOR_EACH_CPU(static, void, weigh_again,
             (float *restrict scores, float *restrict gradient, size_t rows,
              const float *restrict statistics, const float *restrict products),
             (scores, gradient, rows, statistics, products))
{
    const float least = cpu_exp_least();

    for (size_t k = 0; k < rows; k++) {
#pragma GCC unroll 1
        for (size_t l = 0; l < LANES; l++) {
            float weight = cpu_exp_shifted(scores[k * SIDE + l] - statistics[l], least);
            scores[k * SIDE + l] = weight;
            gradient[k * SIDE + l] = weight * (gradient[k * SIDE + l] - products[l]);
        }
    }
}

/* Weights and d(scores) of a tile, panel by panel. */
static void recompute(const struct backward *b, const struct tile *tile)
{
    size_t width = b->keys.width, padded = b->keys.padded;

    for (size_t q = 0; q < tile->queries; q += LANES) {
        size_t query = tile->query + q;
        bool is_cut = tile->is_diagonal && panel_keys(q) < tile->keys;
        size_t keys = is_cut ? panel_keys(q) : tile->keys;
        float *weights = b->scratch + b->at.weights + q;
        float *dscores = b->scratch + b->at.dscores + q;
        struct tile_product product = {
            .rows = round_up(keys, ROWS),
            .columns = LANES,
            .inner = width,
            .a = b->scratch + b->at.keys,
            .a_row = padded,
            .a_inner = 1,
            .b = b->scratch + b->at.queries_transposed + query * padded,
            .b_stride = LANES,
            .c = weights,
            .c_stride = SIDE,
        };

        tile_product(&product);
        product.a = b->scratch + b->at.values;
        product.b = b->scratch + b->at.dy_transposed + query * padded;
        product.c = dscores;
        tile_product(&product);
        if (tile->is_diagonal) mask_scores(weights, keys, 0, q);
        weigh_again(weights, dscores, keys, b->scratch + b->at.statistics + query,
                    b->scratch + b->at.products + query);
    }
}

/* sums[key] += matrix[key][query] rows[query]: dV and dK. */
static void add_to_keys(const struct backward *b, const struct tile *tile, size_t matrix,
                        size_t rows, size_t sums)
{
    size_t padded = b->keys.padded;
    size_t step = tile->is_diagonal ? ROWS : round_up(tile->keys, ROWS);
    size_t queries = round_up(tile->queries, LANES);

    for (size_t k = 0; k < tile->keys; k += step) {
        size_t first = tile->is_diagonal ? k : 0; /* queries before see none of these keys */
        tile_product(&(struct tile_product){
            .rows = step,
            .columns = padded,
            .inner = queries - first,
            .a = b->scratch + matrix + k * SIDE + first,
            .a_row = SIDE,
            .a_inner = 1,
            .b = b->scratch + rows + (tile->query + first) * padded,
            .b_stride = padded,
            .c = b->scratch + sums + k * padded,
            .c_stride = padded,
            .adds = true,
        });
    }
}

static void add_to_queries(const struct backward *b, const struct tile *tile)
{
    size_t padded = b->keys.padded, queries = round_up(tile->queries, ROWS);
    size_t step = tile->is_diagonal ? ROWS : queries;

    for (size_t q = 0; q < queries; q += step) {
        bool is_cut = tile->is_diagonal && q + ROWS < tile->keys;
        tile_product(&(struct tile_product){
            .rows = step,
            .columns = padded,
            .inner = is_cut ? q + ROWS : tile->keys,
            .a = b->scratch + b->at.dscores + q,
            .a_row = 1,
            .a_inner = SIDE,
            .b = b->scratch + b->at.keys,
            .b_stride = padded,
            .c = b->scratch + b->at.dqueries + (tile->query + q) * padded,
            .c_stride = padded,
            .adds = tile->key > 0,
        });
    }
}

static void backward_head(const struct backward *b)
{
    size_t steps = b->attention->steps, padded = b->keys.padded;

    pack_queries(b);
    for (size_t key = 0; key < steps; key += SIDE) {
        size_t keys = steps - key < SIDE ? steps - key : SIDE;

        head_pack(&b->keys, key, round_up(keys, ROWS), 1.0F, b->scratch + b->at.keys);
        head_pack(&b->values, key, round_up(keys, ROWS), 1.0F, b->scratch + b->at.values);
        memset(b->scratch + b->at.dkeys, 0, SIDE * padded * sizeof(float));
        memset(b->scratch + b->at.dvalues, 0, SIDE * padded * sizeof(float));
        for (size_t query = b->attention->is_causal ? key : 0; query < steps; query += SIDE) {
            struct tile tile = {.key = key, .keys = keys, .query = query};
            tile.queries = steps - query < SIDE ? steps - query : SIDE;
            tile.is_diagonal = b->attention->is_causal && query == key;
            recompute(b, &tile);
            add_to_keys(b, &tile, b->at.weights, b->at.dy, b->at.dvalues);
            add_to_keys(b, &tile, b->at.dscores, b->at.queries, b->at.dkeys);
            add_to_queries(b, &tile);
        }
        head_unpack(&b->keys, key, keys, 1.0F, b->scratch + b->at.dkeys, b->dkeys);
        head_unpack(&b->values, key, keys, 1.0F, b->scratch + b->at.dvalues, b->dvalues);
    }
    head_unpack(&b->queries, 0, steps, 1.0F / sqrtf((float)b->queries.width),
                b->scratch + b->at.dqueries, b->dqueries);
}

enum rc cpu_attention_backward(struct backend *backend, const struct attention *attention,
                               const struct attention_backward *pass)
{
    struct cpu_backend *cpu = cpu_of(backend);
    size_t wide = attention->width, width = wide / attention->heads;
    struct backward b = {.attention = attention, .scratch = cpu->scratch};

    attention_check(attention);
    if (cpu->options.is_reference) return reference_attention_backward(attention, pass);
    b.at = backward_layout(attention);
    CHECK(cpu->scratch_bytes >= b.at.total * sizeof(float)); /* attention_reserve() was called */
    b.y = (struct head_rows){.stride = wide,
                             .steps = attention->steps,
                             .width = width,
                             .padded = round_up(width, LANES)};
    b.dy = b.values = b.y;
    b.values.stride = 3 * wide;
    b.queries = b.values;
    if (attention->is_rotary) {
        head_rotation(attention->steps, width, b.scratch + b.at.rotation);
        b.queries.rotation = b.scratch + b.at.rotation;
    }
    b.keys = b.queries;
    for (size_t i = 0; i < (size_t)attention->samples * attention->heads; i++) {
        size_t row = i / attention->heads * attention->steps, column = i % attention->heads * width;
        float *dqkv = (float *)pass->dqkv + row * 3 * wide + column;

        b.queries.from = (const float *)pass->qkv + row * 3 * wide + column;
        b.keys.from = b.queries.from + wide;
        b.values.from = b.keys.from + wide;
        b.y.from = (const float *)pass->y + row * wide + column;
        b.dy.from = (const float *)pass->dy + row * wide + column;
        b.statistics = pass->statistics + i * attention->steps;
        b.dqueries = dqkv;
        b.dkeys = dqkv + wide;
        b.dvalues = dqkv + 2 * wide;
        backward_head(&b);
    }
    return RC_OK;
}
