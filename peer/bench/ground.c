/* See ground.h. Runs on the calling thread. */
#include "peer/bench/ground.h"

#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"

enum { TILE = 1 << 20 };

void ground_deinit(struct ground *g)
{
    if (g->linear != NULL) g->linear->ops->destroy(g->linear);
    if (g->conv != NULL) g->conv->ops->destroy(g->conv);
    if (g->recurrent != NULL) g->recurrent->ops->destroy(g->recurrent);
    if (g->snapshot != NULL) g->snapshot->ops->destroy(g->snapshot);
    for (uint32_t i = 0; i < g->blocks_count; i++) {
        g->backend->ops->free(g->backend, g->blocks[i]);
    }
}

void *ground_block(struct ground *g, size_t bytes)
{
    void *memory = g->backend->ops->alloc(g->backend, bytes);

    CHECK(g->blocks_count < GROUND_BLOCKS_MAX);
    if (memory != NULL) g->blocks[g->blocks_count++] = memory;
    g->is_short |= memory == NULL;
    return memory;
}

/* Random numbers up to 0.5, a tile that is repeated. */
static enum rc fill(struct ground *g, float *to, size_t n)
{
    const struct backend_ops *ops = g->backend->ops;
    size_t tile = n < TILE ? n : TILE;
    float *values = mem_array(tile, sizeof(*values));
    struct rng rng;
    enum rc rc;

    if (values == NULL) return RC_NOMEM;
    rng_init(&rng, 1, n);
    for (size_t i = 0; i < tile; i++) {
        values[i] = (float)(rng_unit(&rng) - 0.5);
    }
    rc = ops->upload(g->backend, to, values, tile * sizeof(float));
    for (size_t at = tile; rc == RC_OK && at < n; at += tile) {
        size_t count = n - at < tile ? n - at : tile;
        rc = ops->copy(g->backend, to + at, to, count * sizeof(float));
    }
    mem_free(values);
    return rc;
}

float *ground_values(struct ground *g, size_t n)
{
    float *memory = ground_block(g, n * sizeof(float));

    g->is_short |= memory == NULL || fill(g, memory, n) != RC_OK;
    return memory;
}

float *ground_activations(struct ground *g, size_t n)
{
    const struct backend_ops *ops = g->backend->ops;
    float *memory = ground_block(g, n * g->backend->value_bytes);
    size_t each = n < TILE ? n : TILE;
    float *tile = memory != NULL ? ops->alloc(g->backend, each * sizeof(float)) : NULL;
    enum rc rc = tile != NULL ? fill(g, tile, each) : RC_NOMEM;

    for (size_t at = 0; rc == RC_OK && at < n; at += each) {
        size_t count = n - at < each ? n - at : each;
        rc = ops->to_activations(g->backend, tile, backend_at(g->backend, memory, at), count);
    }
    ops->free(g->backend, tile);
    g->is_short |= rc != RC_OK;
    return memory;
}

enum rc ground_conv_forward(struct ground *g)
{
    return g->conv->ops->forward(g->conv, g->x, g->y);
}

enum rc ground_conv_data(struct ground *g)
{
    return g->conv->ops->backward_data(g->conv, g->y, g->x);
}

enum rc ground_conv_weights(struct ground *g)
{
    return g->conv->ops->backward_weights(g->conv, g->x, g->y, true, g->dweight, g->dbias);
}

enum rc ground_gemm(struct ground *g)
{
    return g->backend->ops->gemm(g->backend, &g->gemm);
}

enum rc ground_update(struct ground *g)
{
    return g->backend->ops->update(g->backend, &g->update, g->x, g->y, g->weight, g->n);
}

uint32_t ground_less(const struct ground *g, uint32_t n)
{
    return n / g->shrink > 0 ? n / g->shrink : 1;
}

double ground_giga(const struct ground *g, double activations)
{
    return 1e-9 * activations * g->backend->value_bytes;
}
