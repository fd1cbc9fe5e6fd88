/*
 * Attention forward, by panels of LANES queries against tiles of KEYS_MAX keys with a running
 * max and sum (Milakov, Gimelshein 2018, arXiv:1805.02867; Dao et al. 2022, arXiv:2205.14135).
 * Scores are kept the other way round, [key][query], so that a vector holds one key's scores of
 * LANES queries: maxima and sums then run down the keys without crossing lanes. A causal panel ends
 * at its own diagonal. Heads are packed first: their rows of a wide qkv would fall into a few sets
 * of the first cache only.
 */
#include "kernels/cpu/sequence/attention_product.h"

#include "base/check.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/reference/sequence.h"

#include <math.h>
#include <string.h>

enum { KEYS_MAX = 256 };

/* Where things lie in scratch memory, in values from its begin. */
struct forward_layout {
    size_t rotation, keys, values, queries, transposed, scores, sums, total;
};

struct forward {
    const struct attention *attention;
    struct head_rows queries, keys, values;
    float *k, *v;                   /* [steps][padded] */
    float *panel, *transposed;      /* the panel's queries: [LANES][padded], [padded][LANES] */
    float *scores;                  /* [KEYS_MAX][LANES] */
    float *sums;                    /* [LANES][padded]: of weights times values */
    float max[LANES], total[LANES]; /* running max, running sum of weights */
    float factor[LANES];            /* what earlier sums are worth after a tile */
};

static struct forward_layout forward_layout(const struct attention *attention)
{
    size_t width = attention->width / attention->heads, padded = round_up(width, LANES);
    size_t rows = round_up(attention->steps, ROWS), at = 0;
    struct forward_layout layout;

    layout.rotation = scratch_take(&at, attention->is_rotary ? attention->steps * width : 0);
    layout.keys = scratch_take(&at, rows * padded);
    layout.values = scratch_take(&at, rows * padded);
    layout.queries = scratch_take(&at, LANES * padded);
    layout.transposed = scratch_take(&at, padded * LANES);
    layout.scores = scratch_take(&at, KEYS_MAX * LANES);
    layout.sums = scratch_take(&at, LANES * padded);
    layout.total = at;
    return layout;
}

/* Key `first` + k of the tile lies behind query `query` + l where k > l + query - first. */
static void mask_scores(float *scores, size_t rows, size_t first, size_t query)
{
    for (size_t k = query + 1 > first ? query + 1 - first : 0; k < rows; k++) {
        size_t hidden = first + k - query;
        for (size_t l = 0; l < hidden && l < LANES; l++) {
            scores[k * LANES + l] = -INFINITY;
        }
    }
}

/* Scores to weights relative to the largest score so far. */
FOR_EACH_CPU(static, void, softmax,
             (float *restrict scores, size_t rows, float *restrict max, float *restrict total,
              float *restrict factor),
             (scores, rows, max, total, factor))
{
    float high[LANES], sum[LANES];

    memcpy(high, max, sizeof(high));
    for (size_t k = 0; k < rows; k++) {
#pragma GCC unroll 1
        for (size_t l = 0; l < LANES; l++) {
            float score = scores[k * LANES + l];
            high[l] = score > high[l] ? score : high[l];
        }
    }
    for (size_t l = 0; l < LANES; l++) {
        sum[l] = 0.0F;
    }
    for (size_t k = 0; k < rows; k++) {
#pragma GCC unroll 1
        for (size_t l = 0; l < LANES; l++) {
            float weight = cpu_exp(scores[k * LANES + l] - high[l]);
            scores[k * LANES + l] = weight;
            sum[l] += weight;
        }
    }
    for (size_t l = 0; l < LANES; l++) {
        factor[l] = cpu_exp(max[l] - high[l]);
        total[l] = total[l] * factor[l] + sum[l];
        max[l] = high[l];
    }
}

/* One tile: keys [first, first + rows) for the panel that begins at `query`. */
static void absorb_tile(struct forward *f, size_t first, size_t rows, size_t query)
{
    size_t padded = f->keys.padded;

    tile_product(&(struct tile_product){.rows = round_up(rows, ROWS),
                                        .columns = LANES,
                                        .inner = f->keys.width,
                                        .a = f->k + first * padded,
                                        .a_row = padded,
                                        .a_inner = 1,
                                        .b = f->transposed,
                                        .b_stride = LANES,
                                        .c = f->scores,
                                        .c_stride = LANES});
    if (f->attention->is_causal) mask_scores(f->scores, rows, first, query);
    softmax(f->scores, rows, f->max, f->total, f->factor);
    for (size_t q = 0; q < LANES && first > 0; q++) {
        for (size_t d = 0; d < padded; d++) {
            f->sums[q * padded + d] *= f->factor[q];
        }
    }
    for (size_t q = 0; q < LANES; q += ROWS) {
        size_t seen = query + q + ROWS - first;
        tile_product(&(struct tile_product){
            .rows = ROWS,
            .columns = padded,
            .inner = f->attention->is_causal && seen < rows ? seen : rows,
            .a = f->scores + q,
            .a_row = 1,
            .a_inner = LANES,
            .b = f->v + first * padded,
            .b_stride = padded,
            .c = f->sums + q * padded,
            .c_stride = padded,
            .adds = first > 0,
        });
    }
}

static void forward_panel(struct forward *f, size_t query, float *y, float *statistics)
{
    const struct attention *attention = f->attention;
    size_t width = f->queries.width, padded = f->queries.padded;
    size_t end =
        attention->is_causal && query + LANES < attention->steps ? query + LANES : attention->steps;

    head_pack(&f->queries, query, LANES, 1.0F / sqrtf((float)width), f->panel);
    head_transpose(f->panel, padded, f->transposed);
    for (size_t l = 0; l < LANES; l++) {
        f->max[l] = -INFINITY;
        f->total[l] = 0.0F;
    }
    for (size_t first = 0; first < end; first += KEYS_MAX) {
        absorb_tile(f, first, end - first < KEYS_MAX ? end - first : KEYS_MAX, query);
    }
    for (size_t q = 0; q < LANES && query + q < attention->steps; q++) {
        float *row = y + (query + q) * attention->width;
        float share = 1.0F / f->total[q];
        for (size_t d = 0; d < width; d++) {
            row[d] = f->sums[q * padded + d] * share;
        }
        if (statistics != NULL) statistics[query + q] = f->max[q] + logf(f->total[q]);
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
    for (size_t query = 0; query < f->attention->steps; query += LANES) {
        forward_panel(f, query, y, statistics);
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
        .panel = scratch + layout.queries,
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
