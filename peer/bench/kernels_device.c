/* Operations of a device that are no layers, for kernels.c: losses, updates, copies, snapshots.
 * Runs on the calling thread. */
#include "peer/bench/ground.h"

#include "base/check.h"
#include "base/mem.h"
#include "gossip/wire/limits.h"

#include <stdio.h>

/* --- tokens, losses ----------------------------------------------------------------------------*/

/* rows, outputs */
static enum rc begin_loss(struct ground *g, const uint32_t *n)
{
    uint32_t rows = ground_less(g, n[0]);
    uint32_t *labels = mem_array(rows + 1, sizeof(*labels)); /* behind the count of rows */
    uint32_t *there = ground_block(g, (rows + 1) * sizeof(*labels));
    enum rc rc = labels != NULL && there != NULL ? RC_OK : RC_NOMEM;

    g->x = ground_activations(g, (size_t)rows * n[1]);
    g->y = ground_activations(g, (size_t)rows * n[1]);
    if (rc == RC_OK) {
        labels[0] = rows;
        for (uint32_t i = 0; i < rows; i++) {
            labels[i + 1] = (uint32_t)((uint64_t)i * 7919 % n[1]);
        }
        rc = g->backend->ops->upload(g->backend, there, labels, (rows + 1) * sizeof(*labels));
    }
    mem_free(labels);
    g->loss = (struct device_loss){.rows = rows,
                                   .outputs = n[1],
                                   .logits = g->x,
                                   .labels = there + 1,
                                   .counted = there,
                                   .gradient = g->y,
                                   .sums = ground_block(g, sizeof(struct loss_sums))};
    g->work = ground_giga(g, 2.0 * rows * n[1]);
    g->by = g->backend->ops->name;
    snprintf(g->shape, sizeof(g->shape), "%ux%u", rows, n[1]);
    return g->is_short ? RC_NOMEM : rc;
}

static enum rc run_loss(struct ground *g)
{
    return g->backend->ops->cross_entropy(g->backend, &g->loss);
}

/* rows, symbols, width */
static enum rc begin_embedding(struct ground *g, const uint32_t *n)
{
    uint32_t rows = ground_less(g, n[0]);
    float *tokens = mem_array(rows, sizeof(*tokens));
    enum rc rc = tokens != NULL ? RC_OK : RC_NOMEM;

    g->embedding = (struct embedding){ground_less(g, n[1]), n[2]};
    g->n = rows;
    g->x = ground_block(g, rows * sizeof(*tokens));
    g->y = ground_activations(g, (size_t)rows * n[2]);
    g->weight = ground_values(g, (size_t)g->embedding.symbols * n[2]);
    for (uint32_t i = 0; rc == RC_OK && i < rows; i++) {
        tokens[i] = (float)((uint64_t)i * i * 31 % g->embedding.symbols);
    }
    if (rc == RC_OK && g->x != NULL) {
        rc = g->backend->ops->upload(g->backend, g->x, tokens, rows * sizeof(*tokens));
    }
    mem_free(tokens);
    g->work = 1e-9 * rows * n[2] * (sizeof(float) + g->backend->value_bytes);
    g->by = g->backend->ops->name;
    snprintf(g->shape, sizeof(g->shape), "%u of %ux%u", rows, g->embedding.symbols, n[2]);
    return rc != RC_OK || g->is_short ? RC_NOMEM : RC_OK;
}

static enum rc run_embedding_forward(struct ground *g)
{
    return g->backend->ops->embedding_forward(g->backend, &g->embedding, g->n, g->x, g->weight,
                                              g->y);
}

static enum rc run_embedding_backward(struct ground *g)
{
    return g->backend->ops->embedding_backward(g->backend, &g->embedding, g->n, g->x, g->y,
                                               g->weight);
}

/* --- vectors: values ---------------------------------------------------------------------------*/

static enum rc begin_update(struct ground *g, const uint32_t *n)
{
    g->n = ground_less(g, n[0]);
    g->x = ground_values(g, g->n);
    g->y = ground_values(g, 2 * g->n);
    g->weight = ground_values(g, g->n);
    g->by = g->backend->ops->name;
    g->work = 1e-9 * 7.0 * sizeof(float) * (double)g->n; /* four read, three written */
    snprintf(g->shape, sizeof(g->shape), "%zu", g->n);
    g->update = (struct update){.kind = UPDATE_ADAMW,
                                .rate = 1e-4F,
                                .beta = 0.9F,
                                .beta2 = 0.95F,
                                .epsilon = 1e-8F,
                                .decay = 1e-5F};
    if (g->is_short) return RC_NOMEM;
    return g->backend->ops->zero(g->backend, g->y, 2 * g->n * sizeof(float));
}

static enum rc begin_add(struct ground *g, const uint32_t *n)
{
    g->n = ground_less(g, n[0]);
    g->x = ground_activations(g, g->n);
    g->y = ground_activations(g, g->n);
    g->by = g->backend->ops->name;
    g->work = ground_giga(g, 3.0 * (double)g->n);
    snprintf(g->shape, sizeof(g->shape), "%zu relu", g->n);
    return g->is_short ? RC_NOMEM : RC_OK;
}

static enum rc run_add(struct ground *g)
{
    return g->backend->ops->add(g->backend, g->x, g->y, true, g->y, g->n);
}

static enum rc begin_gemm(struct ground *g, const uint32_t *n)
{
    size_t side = ground_less(g, n[0]);

    g->x = ground_values(g, side * side);
    g->y = ground_values(g, side * side);
    g->dy = ground_values(g, side * side);
    g->by = g->backend->ops->name;
    g->work = 2e-9 * (double)side * (double)side * (double)side;
    snprintf(g->shape, sizeof(g->shape), "%zux%zux%zu float32", side, side, side);
    g->gemm = (struct gemm){.rows = side,
                            .columns = side,
                            .inner = side,
                            .alpha = 1.0F,
                            .a = g->x,
                            .b = g->y,
                            .c = g->dy,
                            .a_stride = side,
                            .b_stride = side,
                            .c_stride = side};
    return g->is_short ? RC_NOMEM : RC_OK;
}

/* --- memory: what it can do, and what snapshots make of it: values -----------------------------*/

static enum rc begin_copy(struct ground *g, const uint32_t *n)
{
    g->n = ground_less(g, n[0]);
    g->x = ground_values(g, g->n);
    g->y = ground_values(g, g->n);
    g->by = g->backend->ops->name;
    g->work = 1e-9 * 2.0 * sizeof(float) * (double)g->n; /* read and written */
    snprintf(g->shape, sizeof(g->shape), "%zu", g->n);
    return g->is_short ? RC_NOMEM : RC_OK;
}

static enum rc run_copy(struct ground *g)
{
    return g->backend->ops->copy(g->backend, g->y, g->x, g->n * sizeof(float));
}

static enum rc run_snapshot(struct ground *g)
{
    const struct snapshot_ops *ops = g->snapshot->ops;
    enum rc rc = ops->take(g->snapshot, 0, g->x, g->n);

    if (rc == RC_OK) rc = ops->seal(g->snapshot);
    return rc == RC_OK ? ops->fetch(g->snapshot) : rc;
}

/* values, codec */
static enum rc begin_snapshot(struct ground *g, const uint32_t *n)
{
    static const char *const names[CODEC_FORMATS] = {"f32", "f16", "bf16", "int8"};
    const struct snapshot_options options = {
        .values = ground_less(g, n[0]),
        .chunk_values = n[2] > 0 ? ground_less(g, n[0]) : CHUNK_VALUES,
        .format = (enum codec_format)n[1],
    };

    g->n = options.values;
    g->x = ground_values(g, g->n);
    g->by = g->backend->ops->name;
    g->work = 1e-9 * sizeof(float) * (double)g->n; /* of the plane, whatever the codec */
    snprintf(g->shape, sizeof(g->shape), "%zu %s", g->n, names[options.format]);
    if (g->is_short) return RC_NOMEM;
    return g->backend->ops->snapshot_create(g->backend, &options, &g->snapshot);
}

/* The rate of the bus: the plane copied as it is to the page-locked memory that a snapshot has. */
static enum rc begin_fetch(struct ground *g, const uint32_t *n)
{
    const uint32_t whole[4] = {n[0], CODEC_F32, 1};
    enum rc rc = begin_snapshot(g, whole);

    snprintf(g->shape, sizeof(g->shape), "%zu", g->n);
    return rc == RC_OK ? run_snapshot(g) : rc;
}

static enum rc run_fetch(struct ground *g)
{
    size_t bytes = 0;
    const uint8_t *locked = g->snapshot->ops->chunk(g->snapshot, 0, &bytes);

    CHECK(bytes == g->n * sizeof(float));
    /* The memory is the snapshot's to write, and nobody reads it here. */
    return g->backend->ops->download(g->backend, (void *)(uintptr_t)locked, g->x, bytes);
}

enum { PLANE = 125000000 }; /* values: 500 MB */

static const struct device_bench benches[] = {
    {"cross entropy", "GB", {4096, 50257}, begin_loss, run_loss},
    {"embedding forward", "GB", {16384, 50257, 768}, begin_embedding, run_embedding_forward},
    {"embedding backward", "GB", {16384, 50257, 768}, begin_embedding, run_embedding_backward},
    {"add", "GB", {1 << 26}, begin_add, run_add},
    {"gemm", "GFLOP", {4096}, begin_gemm, ground_gemm},
    {"update adamw", "GB", {124439808}, begin_update, ground_update},
    {"copy on the device", "GB", {PLANE}, begin_copy, run_copy},
    {"copy to page-locked memory", "GB", {PLANE}, begin_fetch, run_fetch},
    {"snapshot", "GB", {PLANE, CODEC_F32}, begin_snapshot, run_snapshot},
    {"snapshot", "GB", {PLANE, CODEC_F16}, begin_snapshot, run_snapshot},
    {"snapshot", "GB", {PLANE, CODEC_BF16}, begin_snapshot, run_snapshot},
    {"snapshot", "GB", {PLANE, CODEC_INT8}, begin_snapshot, run_snapshot},
};

const struct device_bench *bench_vectors(size_t *count)
{
    *count = ARRAY_COUNT(benches);
    return benches;
}
