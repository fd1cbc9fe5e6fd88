/*
 * Speed of single operations: see kernels.h. On the processor each call is timed by itself. A
 * device computes later than a call returns, so several calls are queued, enough for some
 * milliseconds, and a small download behind them says when they are done. Runs on the calling
 * thread.
 */
#include "peer/bench/kernels.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "kernels/cpu/cpu_backend.h"
#include "peer/bench/ground.h"

#include <stdio.h>

enum { SAMPLES_MAX = 1000, DEVICE_SAMPLES_MAX = 200, SAMPLES_MIN = 5, QUEUED_MAX = 500 };
static const double SAMPLE_NS = 3e6;

/* --- what is measured on the processor ---------------------------------------------------------*/

enum { KERNEL = 3, BLOCK = 16 };

/* What runs fastest on the processors measured: small images need company, large ones the cache. */
enum { PIXELS_PER_SLICE = 8192, IMAGES_MAX = 64 };

static enum rc begin_host(struct ground *g, enum cpu_convolution convolution)
{
    struct cpu_backend_options options = {.threads = g->threads, .convolution = convolution};

    g->backend = cpu_backend_create(&options);
    if (g->backend == NULL) return RC_NOMEM;
    backend_bind_thread(g->backend);
    g->by = "cpu";
    return RC_OK;
}

/* rows, columns, inner; 1: a is transposed, 2: b is */
static enum rc begin_gemm(struct ground *g, const uint32_t *n)
{
    bool is_a = n[3] == 1, is_b = n[3] == 2;
    enum rc rc = begin_host(g, CPU_CONVOLUTION_AUTO);

    if (rc != RC_OK) return rc;
    g->gemm = (struct gemm){.is_a_transposed = is_a,
                            .is_b_transposed = is_b,
                            .rows = n[0],
                            .columns = n[1],
                            .inner = n[2],
                            .alpha = 1.0F,
                            .a = ground_values(g, (size_t)n[0] * n[2]),
                            .b = ground_values(g, (size_t)n[2] * n[1]),
                            .c = ground_values(g, (size_t)n[0] * n[1]),
                            .a_stride = is_a ? n[0] : n[2],
                            .b_stride = is_b ? n[2] : n[1],
                            .c_stride = n[1]};
    g->work = 2e-9 * n[0] * (double)n[1] * n[2];
    snprintf(g->shape, sizeof(g->shape), "%ux%ux%u", n[0], n[1], n[2]);
    return g->is_short ? RC_NOMEM : RC_OK;
}

/* values */
static enum rc begin_update(struct ground *g, const uint32_t *n)
{
    enum rc rc = begin_host(g, CPU_CONVOLUTION_AUTO);

    if (rc != RC_OK) return rc;
    g->n = n[0];
    g->x = ground_values(g, g->n);
    g->y = ground_values(g, g->n);
    g->weight = ground_values(g, g->n);
    g->update = (struct update){.kind = UPDATE_MOMENTUM, .rate = 0.01F, .beta = 0.9F};
    g->work = 1e-9 * 5.0 * sizeof(float) * n[0]; /* three reads, two writes */
    snprintf(g->shape, sizeof(g->shape), "%u", n[0]);
    return g->is_short ? RC_NOMEM : RC_OK;
}

/* 3x3: in, out, side, stride */
static enum rc begin_convolution(struct ground *g, const uint32_t *n, enum cpu_convolution by,
                                 bool is_data)
{
    uint32_t block = by == CPU_CONVOLUTION_AUTO && n[0] % BLOCK == 0 ? BLOCK : 1;
    uint32_t images = images_of_pixels((struct image_shape){n[0], n[2], n[2], 1}, PIXELS_PER_SLICE);
    struct conv_options options = {
        .in = {n[0], n[2], n[2], block},
        .out_channels = n[1],
        .kernel_height = KERNEL,
        .kernel_width = KERNEL,
        .padding_height = KERNEL / 2,
        .padding_width = KERNEL / 2,
        .stride = n[3],
        .dilation = 1,
        .groups = 1,
        .with_bias = true,
        .images = images < IMAGES_MAX ? images : IMAGES_MAX,
        .with_gradients = true,
        .with_input_gradient = is_data,
    };
    enum rc rc = begin_host(g, by);

    if (rc == RC_OK) rc = g->backend->ops->conv_create(g->backend, &options, &g->conv);
    if (rc != RC_OK) return rc;
    g->x = ground_values(g, options.images * image_values(options.in));
    g->y = ground_values(g, options.images * image_values(g->conv->out));
    g->weight = ground_values(g, conv_weight_values(&options));
    g->dweight = ground_values(g, conv_weight_values(&options));
    g->bias = ground_values(g, n[1]);
    g->dbias = ground_values(g, n[1]);
    g->work = 2e-9 * options.images * (double)image_values(g->conv->out) *
              (double)conv_filter_values(&options);
    g->by = g->conv->ops->name;
    snprintf(g->shape, sizeof(g->shape), "3x3%s %u->%u %ux%u n%u", n[3] == 2 ? "/2" : "", n[0],
             n[1], n[2], n[2], options.images);
    return g->is_short ? RC_NOMEM : g->conv->ops->prepare(g->conv, g->weight, g->bias);
}

static enum rc begin_conv(struct ground *g, const uint32_t *n)
{
    return begin_convolution(g, n, CPU_CONVOLUTION_AUTO, false);
}

static enum rc begin_conv_data(struct ground *g, const uint32_t *n)
{
    return begin_convolution(g, n, CPU_CONVOLUTION_AUTO, true);
}

static enum rc begin_im2col(struct ground *g, const uint32_t *n)
{
    return begin_convolution(g, n, CPU_CONVOLUTION_IM2COL, false);
}

static enum rc begin_im2col_data(struct ground *g, const uint32_t *n)
{
    return begin_convolution(g, n, CPU_CONVOLUTION_IM2COL, true);
}

/* The `cnn` preset both ways, residual nets of 16 to 64 channels on 28x28 images and of 64 to 512
 * on 32x32; a first layer has no pass to its data. */
#define FIRST_LAYER(...)                                                                           \
    {"conv forward", "GFLOP", {__VA_ARGS__}, begin_conv, ground_conv_forward},                     \
    {                                                                                              \
        "conv weights", "GFLOP", {__VA_ARGS__}, begin_conv, ground_conv_weights                    \
    }
#define LAYER_BY(begin, begin_data, ...)                                                           \
    {"conv forward", "GFLOP", {__VA_ARGS__}, begin, ground_conv_forward},                          \
        {"conv data", "GFLOP", {__VA_ARGS__}, begin_data, ground_conv_data},                       \
    {                                                                                              \
        "conv weights", "GFLOP", {__VA_ARGS__}, begin, ground_conv_weights                         \
    }
#define LAYER(...) LAYER_BY(begin_conv, begin_conv_data, __VA_ARGS__)

static const struct device_bench host_benches[] = {
    {"gemm forward", "GFLOP", {64, 256, 784, 2}, begin_gemm, ground_gemm},
    {"gemm weights", "GFLOP", {256, 784, 64, 1}, begin_gemm, ground_gemm},
    {"gemm data", "GFLOP", {64, 784, 256}, begin_gemm, ground_gemm},
    {"gemm square", "GFLOP", {1024, 1024, 1024}, begin_gemm, ground_gemm},
    {"update momentum", "GB", {1 << 21}, begin_update, ground_update},
    LAYER(32, 64, 28, 1),
    LAYER_BY(begin_im2col, begin_im2col_data, 32, 64, 28, 1),
    FIRST_LAYER(1, 16, 28, 1),
    LAYER(16, 16, 28, 1),
    LAYER(16, 32, 28, 2),
    LAYER(32, 32, 14, 1),
    LAYER(32, 64, 14, 2),
    LAYER(64, 64, 7, 1),
    FIRST_LAYER(3, 64, 32, 1),
    LAYER(64, 64, 32, 1),
    LAYER(64, 128, 32, 2),
    LAYER(128, 128, 16, 1),
    LAYER(256, 256, 8, 1),
    LAYER(512, 512, 4, 1),
};

/* --- measuring ---------------------------------------------------------------------------------*/

/* `queued` runs, from the first call to the end of the last; in nanoseconds. `small`: of a device,
 * what is downloaded to wait for it. */
static enum rc time_runs(struct ground *g, const struct device_bench *bench, const void *small,
                         const struct bench_clock *clock, uint32_t queued, double *ns)
{
    uint64_t begin_ns = clock->now_ns(clock->context), end_ns;
    uint32_t word;
    enum rc rc = RC_OK;

    for (uint32_t i = 0; rc == RC_OK && i < queued; i++) {
        rc = bench->run(g);
    }
    if (rc == RC_OK && small != NULL) {
        rc = g->backend->ops->download(g->backend, &word, small, sizeof(word));
    }
    end_ns = clock->now_ns(clock->context);
    *ns = end_ns > begin_ns ? (double)(end_ns - begin_ns) : 1.0;
    return rc;
}

static struct json *row_create(const struct device_bench *bench, const struct ground *g,
                               const char *device, double *rates, uint32_t samples)
{
    struct bench_spread spread = bench_spread_of(rates, samples);
    struct json *row = json_object_create();
    bool is_host = g->backend->is_host;

    json_set_text(row, "kernel", bench->kernel);
    json_set_text(row, "shape", g->shape);
    json_set_text(row, "by", g->by);
    json_set_count(row, "threads", is_host ? g->backend->threads : 1);
    json_set_text(row, "device", is_host ? "cpu" : device == NULL ? "" : device);
    json_set_text(row, "unit", bench->unit);
    json_set_real(row, "per_s", spread.median);
    json_set_real(row, "q1", spread.q1);
    json_set_real(row, "q3", spread.q3);
    return row;
}

/* What a device has no memory for, or no code, is left out. */
static enum rc measure(const struct device_bench *bench,
                       const struct bench_kernels_options *options, double share_ns, double *rates,
                       struct json *rows)
{
    bool is_host = options->backend->is_host;
    struct ground g = {.backend = options->backend,
                       .threads = options->backend->threads,
                       .shrink = options->shrink > 0 ? options->shrink : 1};
    const void *small = is_host ? NULL : ground_block(&g, sizeof(uint32_t));
    uint32_t samples = 0, max = is_host ? SAMPLES_MAX : DEVICE_SAMPLES_MAX;
    double ns = 0.0, spent_ns = 0.0, queued = 1.0;
    enum rc rc = g.is_short ? RC_NOMEM : bench->begin(&g, bench->n);
    bool is_left_out = !is_host && (rc == RC_NOMEM || rc == RC_UNSUPPORTED);

    for (int i = 0; rc == RC_OK && i < (is_host ? 1 : 3); i++) { /* warm */
        rc = time_runs(&g, bench, small, &options->clock, 1, &ns);
    }
    if (!is_host && SAMPLE_NS / ns > 1.0) queued = SAMPLE_NS / ns;
    if (queued > QUEUED_MAX) queued = QUEUED_MAX;
    while (rc == RC_OK && samples < max && (samples < SAMPLES_MIN || spent_ns < share_ns)) {
        rc = time_runs(&g, bench, small, &options->clock, (uint32_t)queued, &ns);
        rates[samples++] = g.work * 1e9 * (double)(uint32_t)queued / ns;
        spent_ns += ns;
    }
    if (rc == RC_OK) json_append(rows, row_create(bench, &g, options->device, rates, samples));
    ground_deinit(&g);
    if (g.backend != options->backend) backend_destroy(g.backend);
    return is_left_out ? RC_OK : rc;
}

enum rc bench_kernels(const struct bench_kernels_options *options, struct json **rows,
                      struct fault *why)
{
    struct {
        const struct device_bench *rows;
        size_t count;
    } tables[2] = {{host_benches, ARRAY_COUNT(host_benches)}, {NULL, 0}};
    double seconds = options->seconds > 0.0 ? options->seconds : 5.0, share_ns;
    double *rates = mem_array(SAMPLES_MAX, sizeof(*rates));
    struct json *measured;
    enum rc rc = RC_OK;

    CHECK(options->clock.now_ns != NULL && options->backend != NULL);
    if (rates == NULL) return fault_set(why, RC_NOMEM, "bench kernels: out of memory");
    if (!options->backend->is_host) {
        tables[0].rows = bench_layers(&tables[0].count);
        tables[1].rows = bench_vectors(&tables[1].count);
        backend_bind_thread(options->backend);
    }
    measured = json_array_create();
    share_ns = seconds * 1e9 / (double)(tables[0].count + tables[1].count);
    for (size_t i = 0; rc == RC_OK && i < tables[0].count + tables[1].count; i++) {
        rc =
            measure(i < tables[0].count ? &tables[0].rows[i] : &tables[1].rows[i - tables[0].count],
                    options, share_ns, rates, measured);
    }
    mem_free(rates);
    if (rc != RC_OK) {
        json_destroy(measured);
        return fault_set(why, rc, "bench kernels: %s",
                         rc == RC_DEVICE && !options->backend->is_host
                             ? options->backend->ops->why(options->backend)
                             : rc_text(rc));
    }
    *rows = measured;
    return RC_OK;
}
