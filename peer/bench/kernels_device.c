/*
 * Speed of single operations on a device: see kernels.h. A device computes later than a call
 * returns, so several calls are queued, enough for some milliseconds, and a small download behind
 * them says when they are done. What is not a layer is here: losses, updates, copies, snapshots.
 * Runs on the calling thread.
 */
#include "peer/bench/kernels.h"

#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "gossip/wire/limits.h"
#include "peer/bench/ground.h"

#include <stdio.h>

enum { SAMPLES_MAX = 200, SAMPLES_MIN = 5, QUEUED_MAX = 500 };
static const double SAMPLE_NS = 3e6;

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
    if (g->x == NULL || g->y == NULL || g->loss.sums == NULL) return RC_NOMEM;
    return rc;
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
    return rc != RC_OK || g->x == NULL || g->y == NULL || g->weight == NULL ? RC_NOMEM : RC_OK;
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
    if (g->x == NULL || g->y == NULL || g->weight == NULL) return RC_NOMEM;
    return g->backend->ops->zero(g->backend, g->y, 2 * g->n * sizeof(float));
}

static enum rc run_update(struct ground *g)
{
    const struct update update = {.kind = UPDATE_ADAMW,
                                  .rate = 1e-4F,
                                  .beta = 0.9F,
                                  .beta2 = 0.95F,
                                  .epsilon = 1e-8F,
                                  .decay = 1e-5F};

    return g->backend->ops->update(g->backend, &update, g->x, g->y, g->weight, g->n);
}

static enum rc begin_add(struct ground *g, const uint32_t *n)
{
    g->n = ground_less(g, n[0]);
    g->x = ground_activations(g, g->n);
    g->y = ground_activations(g, g->n);
    g->by = g->backend->ops->name;
    g->work = ground_giga(g, 3.0 * (double)g->n);
    snprintf(g->shape, sizeof(g->shape), "%zu relu", g->n);
    return g->x == NULL || g->y == NULL ? RC_NOMEM : RC_OK;
}

static enum rc run_add(struct ground *g)
{
    return g->backend->ops->add(g->backend, g->x, g->y, true, g->y, g->n);
}

static enum rc begin_gemm(struct ground *g, const uint32_t *n)
{
    size_t side = ground_less(g, n[0]);

    g->n = side;
    g->x = ground_values(g, side * side);
    g->y = ground_values(g, side * side);
    g->dy = ground_values(g, side * side);
    g->by = g->backend->ops->name;
    g->work = 2e-9 * (double)side * (double)side * (double)side;
    snprintf(g->shape, sizeof(g->shape), "%zux%zux%zu float32", side, side, side);
    return g->x == NULL || g->y == NULL || g->dy == NULL ? RC_NOMEM : RC_OK;
}

static enum rc run_gemm(struct ground *g)
{
    const struct gemm gemm = {.rows = g->n,
                              .columns = g->n,
                              .inner = g->n,
                              .alpha = 1.0F,
                              .a = g->x,
                              .b = g->y,
                              .c = g->dy,
                              .a_stride = g->n,
                              .b_stride = g->n,
                              .c_stride = g->n};

    return g->backend->ops->gemm(g->backend, &gemm);
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
    return g->x == NULL || g->y == NULL ? RC_NOMEM : RC_OK;
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
    if (g->x == NULL) return RC_NOMEM;
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
    {"gemm", "GFLOP", {4096}, begin_gemm, run_gemm},
    {"update adamw", "GB", {124439808}, begin_update, run_update},
    {"copy on the device", "GB", {PLANE}, begin_copy, run_copy},
    {"copy to page-locked memory", "GB", {PLANE}, begin_fetch, run_fetch},
    {"snapshot", "GB", {PLANE, CODEC_F32}, begin_snapshot, run_snapshot},
    {"snapshot", "GB", {PLANE, CODEC_F16}, begin_snapshot, run_snapshot},
    {"snapshot", "GB", {PLANE, CODEC_BF16}, begin_snapshot, run_snapshot},
    {"snapshot", "GB", {PLANE, CODEC_INT8}, begin_snapshot, run_snapshot},
};

/* --- measuring ---------------------------------------------------------------------------------*/

static enum rc ground_wait(struct ground *g, const void *small)
{
    uint32_t word;

    return g->backend->ops->download(g->backend, &word, small, sizeof(word));
}

/* `queued` runs, from the first call to the end of the last; in nanoseconds. */
static enum rc time_runs(struct ground *g, const struct device_bench *bench, const void *small,
                         const struct bench_clock *clock, uint32_t queued, double *ns)
{
    uint64_t begin_ns = clock->now_ns(clock->context), end_ns;
    enum rc rc = RC_OK;

    for (uint32_t i = 0; rc == RC_OK && i < queued; i++) {
        rc = bench->run(g);
    }
    if (rc == RC_OK) rc = ground_wait(g, small);
    end_ns = clock->now_ns(clock->context);
    *ns = end_ns > begin_ns ? (double)(end_ns - begin_ns) : 1.0;
    return rc;
}

static struct json *row_create(const struct device_bench *bench, const struct ground *g,
                               const char *device, struct bench_spread spread)
{
    struct json *row = json_object_create();

    json_set_text(row, "kernel", bench->kernel);
    json_set_text(row, "shape", g->shape);
    json_set_text(row, "by", g->by);
    json_set_count(row, "threads", 1);
    json_set_text(row, "device", device == NULL ? "" : device);
    json_set_text(row, "unit", bench->unit);
    json_set_real(row, "per_s", spread.median);
    json_set_real(row, "q1", spread.q1);
    json_set_real(row, "q3", spread.q3);
    return row;
}

/* What there is no memory for, or no code, is left out. */
static enum rc measure(const struct device_bench *bench,
                       const struct bench_kernels_options *options, double share_ns,
                       struct json *rows)
{
    struct ground g = {.backend = options->backend,
                       .shrink = options->shrink > 0 ? options->shrink : 1};
    const void *small = ground_block(&g, sizeof(uint32_t));
    double rates[SAMPLES_MAX], ns = 0.0, spent_ns = 0.0, queued;
    uint32_t samples = 0;
    enum rc rc = small != NULL ? bench->begin(&g, bench->n) : RC_NOMEM;
    bool is_left_out = rc == RC_NOMEM || rc == RC_UNSUPPORTED;

    for (int i = 0; rc == RC_OK && i < 3; i++) { /* warm; the last says how long one takes */
        rc = time_runs(&g, bench, small, &options->clock, 1, &ns);
    }
    queued = SAMPLE_NS / ns < 1.0 ? 1.0 : SAMPLE_NS / ns;
    if (queued > QUEUED_MAX) queued = QUEUED_MAX;
    while (rc == RC_OK && samples < SAMPLES_MAX && (samples < SAMPLES_MIN || spent_ns < share_ns)) {
        rc = time_runs(&g, bench, small, &options->clock, (uint32_t)queued, &ns);
        rates[samples++] = g.work * 1e9 * (double)(uint32_t)queued / ns;
        spent_ns += ns;
    }
    if (rc == RC_OK) {
        json_append(rows, row_create(bench, &g, options->device, bench_spread_of(rates, samples)));
    }
    ground_deinit(&g);
    return is_left_out ? RC_OK : rc;
}

enum rc bench_kernels_device(const struct bench_kernels_options *options, struct json **rows,
                             struct fault *why)
{
    size_t layers;
    const struct device_bench *layer = bench_layers(&layers);
    double seconds = options->seconds > 0.0 ? options->seconds : 5.0;
    double share_ns = seconds * 1e9 / (double)(layers + ARRAY_COUNT(benches));
    struct json *measured = json_array_create();
    enum rc rc = RC_OK;

    CHECK(options->clock.now_ns != NULL && !options->backend->is_host);
    backend_bind_thread(options->backend);
    for (size_t i = 0; rc == RC_OK && i < layers; i++) {
        rc = measure(&layer[i], options, share_ns, measured);
    }
    for (size_t i = 0; rc == RC_OK && i < ARRAY_COUNT(benches); i++) {
        rc = measure(&benches[i], options, share_ns, measured);
    }
    if (rc != RC_OK) {
        json_destroy(measured);
        return fault_set(why, rc, "bench kernels: %s",
                         rc == RC_DEVICE ? options->backend->ops->why(options->backend)
                                         : rc_text(rc));
    }
    *rows = measured;
    return RC_OK;
}
