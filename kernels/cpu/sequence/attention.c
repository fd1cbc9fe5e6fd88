/*
 * Attention forward, by blocks of SIDE queries against tiles of KEYS_MAX keys with a running
 * max and sum (Milakov, Gimelshein 2018, arXiv:1805.02867; Dao et al. 2022, arXiv:2205.14135).
 * Scores are kept the other way round, [key][query], so that a vector holds one key's scores of a
 * panel of LANES queries: maxima and sums then run down the keys without crossing lanes. A causal
 * panel ends at its own diagonal. Heads are packed first: their rows of a wide qkv would fall into
 * a few sets of the first cache only.
 */
#include "kernels/cpu/sequence/attention_product.h"

#include "base/check.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/reference/sequence.h"

#include <math.h>
#include <string.h>

enum { KEYS_MAX = 2 * SIDE };

_Static_assert(KEYS_MAX % SIDE == 0, "a tile never begins behind a query of the block");

/* Where things lie in scratch memory, in values from its begin. */
struct forward_layout {
    size_t rotation, keys, values, queries, transposed, scores, sums, total;
};

struct forward {
    const struct attention *attention;
    struct head_rows queries, keys, values;
    float *k, *v;                 /* [steps][padded] */
    float *block, *transposed;    /* its queries: [SIDE][padded], and of each panel
                                     [padded][LANES] */
    float *scores;                /* [KEYS_MAX][SIDE] */
    float *sums;                  /* [SIDE][padded]: of weights times values */
    float max[SIDE], total[SIDE]; /* running max, running sum of weights */
    float factor[SIDE];           /* what earlier sums are worth after a tile */
};

static struct forward_layout forward_layout(const struct attention *attention)
{
    size_t width = attention->width / attention->heads, padded = round_up(width, LANES);
    size_t rows = round_up(attention->steps, ROWS), at = 0;
    struct forward_layout layout;

    layout.rotation = scratch_take(&at, attention->is_rotary ? attention->steps * width : 0);
    layout.keys = scratch_take(&at, rows * padded);
    layout.values = scratch_take(&at, rows * padded);
    layout.queries = scratch_take(&at, SIDE * padded);
    layout.transposed = scratch_take(&at, SIDE * padded);
    layout.scores = scratch_take(&at, KEYS_MAX * SIDE);
    layout.sums = scratch_take(&at, SIDE * padded);
    layout.total = at;
    return layout;
}

/* A panel's scores to weights relative to the largest score so far. */
FOR_EACH_CPU(static, void, softmax,
             (float *restrict scores, size_t rows, float *restrict max, float *restrict total,
              float *restrict factor),
             (scores, rows, max, total, factor))
{
    const float least = cpu_exp_least();
    float high[LANES], sum[LANES];

    memcpy(high, max, sizeof(high));
    for (size_t k = 0; k < rows; k++) {
#pragma GCC unroll 1
        for (size_t l = 0; l < LANES; l++) {
            float score = scores[k * SIDE + l];
            high[l] = score > high[l] ? score : high[l];
        }
    }
    for (size_t l = 0; l < LANES; l++) {
        sum[l] = 0.0F;
    }
    for (size_t k = 0; k < rows; k++) {
#pragma GCC unroll 1
        for (size_t l = 0; l < LANES; l++) {
            float weight = cpu_exp_shifted(scores[k * SIDE + l] - high[l], least);
            scores[k * SIDE + l] = weight;
            sum[l] += weight;
        }
    }
    for (size_t l = 0; l < LANES; l++) {
        factor[l] = cpu_exp_shifted(max[l] - high[l], least);
        total[l] = total[l] * factor[l] + sum[l];
        max[l] = high[l];
    }
}

/* Keys [first, first + keys) for the block of `queries` queries that begins at `query`. */
struct tile {
    size_t first, keys, query, queries;
};

/* Of the tile's keys, those up to number `seen` of the block's. */
static size_t keys_seen(const struct forward *f, const struct tile *tile, size_t seen)
{
    size_t keys = tile->query + seen - tile->first;

    return f->attention->is_causal && keys < tile->keys ? keys : tile->keys;
}

static void weigh_tile(struct forward *f, const struct tile *tile)
{
    size_t padded = f->keys.padded;

    for (size_t q = 0; q < tile->queries; q += LANES) {
        size_t keys = keys_seen(f, tile, panel_keys(q));

        tile_product(&(struct tile_product){.rows = round_up(keys, ROWS),
                                            .columns = LANES,
                                            .inner = f->keys.width,
                                            .a = f->k + tile->first * padded,
                                            .a_row = padded,
                                            .a_inner = 1,
                                            .b = f->transposed + q * padded,
                                            .b_stride = LANES,
                                            .c = f->scores + q,
                                            .c_stride = SIDE});
        if (f->attention->is_causal) {
            mask_scores(f->scores + q, keys, tile->first, tile->query + q);
        }
        softmax(f->scores + q, keys, f->max + q, f->total + q, f->factor + q);
    }
}

static void absorb_tile(struct forward *f, const struct tile *tile)
{
    size_t padded = f->keys.padded;

    weigh_tile(f, tile);
    for (size_t q = 0; q < tile->queries && tile->first > 0; q++) {
        for (size_t d = 0; d < padded; d++) {
            f->sums[q * padded + d] *= f->factor[q];
        }
    }
    for (size_t q = 0; q < tile->queries; q += ROWS) {
        tile_product(&(struct tile_product){
            .rows = ROWS,
            .columns = padded,
            .inner = keys_seen(f, tile, q + ROWS),
            .a = f->scores + q,
            .a_row = 1,
            .a_inner = SIDE,
            .b = f->v + tile->first * padded,
            .b_stride = padded,
            .c = f->sums + q * padded,
            .c_stride = padded,
            .adds = tile->first > 0,
        });
    }
}

FOR_EACH_CPU(static, void, finish_rows,
             (const struct forward *f, size_t queries, size_t stride, float *restrict y),
             (f, queries, stride, y))
{
    for (size_t q = 0; q < queries; q++, y += stride) {
        const float *restrict sums = f->sums + q * f->queries.padded;
        float share = 1.0F / f->total[q];

        for (size_t d = 0; d < f->queries.width; d++) {
            y[d] = sums[d] * share;
        }
    }
}

static void forward_block(struct forward *f, size_t query, float *y, float *statistics)
{
    const struct attention *attention = f->attention;
    size_t width = f->queries.width, padded = f->queries.padded, left = attention->steps - query;
    size_t queries = left < SIDE ? left : SIDE;
    size_t end = attention->is_causal ? query + queries : attention->steps;

    head_pack(&f->queries, query, round_up(queries, LANES), 1.0F / sqrtf((float)width), f->block);
    for (size_t q = 0; q < queries; q += LANES) {
        head_transpose(f->block + q * padded, padded, f->transposed + q * padded);
    }
    for (size_t q = 0; q < SIDE; q++) {
        f->max[q] = -INFINITY;
        f->total[q] = 0.0F;
    }
    for (size_t first = 0; first < end; first += KEYS_MAX) {
        size_t keys = end - first < KEYS_MAX ? end - first : KEYS_MAX;
        absorb_tile(f, &(struct tile){first, keys, query, queries});
    }
    finish_rows(f, queries, attention->width, y + query * attention->width);
    for (size_t q = 0; q < queries && statistics != NULL; q++) {
        statistics[query + q] = f->max[q] + logf(f->total[q]);
    }
}

static void forward_head(struct forward *f, const float *qkv, float *y, float *statistics)
{
    size_t rows = round_up(f->attention->steps, ROWS);

    f->queries.from = qkv;
    f->keys.from = qkv + f->attention->width;
    f->values.from = qkv + 2 * (size_t)f->attention->width;
    head_pack(&f->keys, 0, rows, 1.0F, f->k);
    head_pack(&f->values, 0, rows, 1.0F, f->v);
    for (size_t query = 0; query < f->attention->steps; query += SIDE) {
        forward_block(f, query, y, statistics);
    }
}

void attention_check(const struct attention *attention)
{
    CHECK(attention->steps > 0 && attention->heads > 0 && attention->width > 0);
    CHECK(attention->width % attention->heads == 0);
    CHECK(!attention->is_rotary || attention->width / attention->heads % 2 == 0);
}

/* Where everything is in the backend's scratch memory. */
static struct forward forward_of(const struct attention *attention, float *scratch)
{
    struct forward_layout layout = forward_layout(attention);
    size_t width = attention->width / attention->heads;
    struct head_rows rows = {
        .stride = 3 * (size_t)attention->width,
        .steps = attention->steps,
        .width = width,
        .padded = round_up(width, LANES),
        .rotation = attention->is_rotary ? scratch + layout.rotation : NULL,
    };
    struct forward f = {
        .attention = attention,
        .queries = rows,
        .keys = rows,
        .values = rows,
        .k = scratch + layout.keys,
        .v = scratch + layout.values,
        .block = scratch + layout.queries,
        .transposed = scratch + layout.transposed,
        .scores = scratch + layout.scores,
        .sums = scratch + layout.sums,
    };

    f.values.rotation = NULL;
    return f;
}

enum rc cpu_attention_forward(struct backend *backend, const struct attention *attention,
                              const void *qkv, void *y, float *statistics)
{
    struct cpu_backend *cpu = cpu_of(backend);
    struct forward_layout layout = forward_layout(attention);
    size_t width = attention->width / attention->heads;
    struct forward f;

    attention_check(attention);
    if (cpu->options.is_reference)
        return reference_attention_forward(attention, qkv, y, statistics);
    CHECK(cpu->scratch_bytes >= layout.total * sizeof(float)); /* attention_reserve() was called */
    f = forward_of(attention, cpu->scratch);
    if (attention->is_rotary) {
        head_rotation(attention->steps, width, cpu->scratch + layout.rotation);
    }
    for (size_t i = 0; i < (size_t)attention->samples * attention->heads; i++) {
        size_t row = i / attention->heads * attention->steps, column = i % attention->heads * width;
        forward_head(&f, (const float *)qkv + row * 3 * attention->width + column,
                     (float *)y + row * attention->width + column,
                     statistics != NULL ? statistics + i * attention->steps : NULL);
    }
    return RC_OK;
}

enum rc cpu_attention_reserve(struct backend *backend, const struct attention *attention)
{
    size_t forward, backward;

    attention_check(attention);
    if (cpu_of(backend)->options.is_reference) return RC_OK;
    forward = forward_layout(attention).total;
    backward = attention_backward_scratch(attention);
    return cpu_scratch_reserve(cpu_of(backend),
                               (forward > backward ? forward : backward) * sizeof(float));
}
