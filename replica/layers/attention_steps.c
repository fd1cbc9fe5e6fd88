/*
 * Attention of a stepwise model (model.h): the keys and values of all positions so far are kept, so
 * that a new one costs one row of scores and no projection of an old one (the key/value cache of
 * every decoder; Shazeer 2019, arXiv:1911.02150, has the arithmetic). Keys lie the other way round,
 * [head][value][position], so that a vector holds the scores of many positions; values lie
 * [head][position][value]. Rotary keys are kept rotated by their own position.
 */
#include "replica/model/stage.h"

#include "base/check.h"
#include "base/cpu.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

struct cache {
    size_t heads, width, context; /* width: of a head */
    bool is_rotary;
    float *keys, *values;  /* of all heads */
    float *query, *scores; /* [width], [context] */
};

static enum rc cache_create(struct model *model, struct stage *stage, struct fault *why)
{
    const size_t all = stage->in.image.channels / 3, heads = stage->layer.count;
    struct cache *cache;

    CHECK(stage->in.image.channels % 3 == 0 && all % heads == 0);
    stage->out.image.channels = (uint32_t)all;
    stage->slice = stage_slice(model, stage->out);
    stage->flops = 2 * (uint64_t)stage_context(model) * all; /* of the mean position */
    if (stage->layer.keys[LAYER_CAUSAL] != 1) {
        return stage_fault(stage, why, "sees the steps behind, and cannot be computed in order");
    }
    if (!stage_backend(model)->is_host) return RC_UNSUPPORTED;
    stage->state = cache = mem_alloc(sizeof(*cache));
    if (cache == NULL) return RC_NOMEM;
    cache->heads = heads;
    cache->width = all / heads;
    cache->context = stage_context(model);
    cache->is_rotary = stage->layer.keys[LAYER_ROTARY] == 1;
    if (cache->is_rotary && cache->width % 2 != 0) {
        return stage_fault(stage, why, "needs heads of an even width");
    }
    cache->keys = mem_aligned(all * cache->context * sizeof(float));
    cache->values = mem_aligned(all * cache->context * sizeof(float));
    cache->query = mem_array(cache->width, sizeof(float));
    cache->scores = mem_array(cache->context, sizeof(float));
    return cache->keys != NULL && cache->values != NULL && cache->query != NULL &&
                   cache->scores != NULL
               ? RC_OK
               : RC_NOMEM;
}

static void cache_destroy(struct model *model, struct stage *stage)
{
    struct cache *cache = stage->state;

    (void)model;
    if (cache == NULL) return;
    mem_free(cache->keys);
    mem_free(cache->values);
    mem_free(cache->query);
    mem_free(cache->scores);
    mem_free(cache);
}

/* to[d * stride] = scale * row[d], turned by the angles of `position` if it is to be. */
static void place(const struct cache *cache, const float *row, size_t position, float scale,
                  float *to, size_t stride)
{
    const size_t half = cache->width / 2;

    for (size_t d = 0; !cache->is_rotary && d < cache->width; d++) {
        to[d * stride] = scale * row[d];
    }
    for (size_t i = 0; cache->is_rotary && i < half; i++) {
        double angle = pow(10000.0, -2.0 * (double)i / (double)cache->width) * (double)position;
        float cosine = (float)cos(angle), sine = (float)sin(angle);

        to[i * stride] = scale * (row[i] * cosine - row[half + i] * sine);
        to[(half + i) * stride] = scale * (row[half + i] * cosine + row[i] * sine);
    }
}

/* to[i] += a x[i]. */
FOR_EACH_CPU(static, void, add_scaled,
             (float *restrict to, float a, const float *restrict x, size_t n), (to, a, x, n))
{
    for (size_t i = 0; i < n; i++) {
        to[i] += a * x[i];
    }
}

/* Scores to weights; returns 1 / their sum. */
static float weigh(float *scores, size_t n)
{
    float most = scores[0], sum = 0.0F;

    for (size_t i = 1; i < n; i++) {
        if (scores[i] > most) most = scores[i];
    }
    for (size_t i = 0; i < n; i++) {
        scores[i] = expf(scores[i] - most);
        sum += scores[i];
    }
    return 1.0F / sum;
}

/* One head at `position`, whose query, key and value lie one model's width apart. */
static void attend(struct cache *cache, size_t head, size_t position, const float *qkv, float *y)
{
    const size_t width = cache->width, apart = cache->heads * width, seen = position + 1;
    float *keys = cache->keys + head * width * cache->context;
    float *values = cache->values + head * width * cache->context;
    float share;

    place(cache, qkv, position, 1.0F / sqrtf((float)width), cache->query, 1);
    place(cache, qkv + apart, position, 1.0F, keys + position, cache->context);
    memcpy(values + position * width, qkv + 2 * apart, width * sizeof(float));
    memset(cache->scores, 0, seen * sizeof(float));
    for (size_t d = 0; d < width; d++) {
        add_scaled(cache->scores, cache->query[d], keys + d * cache->context, seen);
    }
    share = weigh(cache->scores, seen);
    memset(y, 0, width * sizeof(float));
    for (size_t p = 0; p < seen; p++) {
        add_scaled(y, cache->scores[p] * share, values + p * width, width);
    }
}

static enum rc cache_forward(struct model *model, struct stage *stage,
                             const struct stage_pass *pass)
{
    struct cache *cache = stage->state;
    const size_t all = cache->heads * cache->width;

    for (uint32_t s = 0; s < pass->samples; s++) {
        for (size_t h = 0; h < cache->heads; h++) {
            attend(cache, h, stage_position(model, pass) + s,
                   pass->x[0] + s * 3 * all + h * cache->width,
                   pass->y + s * all + h * cache->width);
        }
    }
    return RC_OK;
}

const struct stage_ops stage_attention_steps_ops = {
    .name = "attention steps",
    .create = cache_create,
    .destroy = cache_destroy,
    .forward = cache_forward,
};
