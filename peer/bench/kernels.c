/* Speed of single operations: see kernels.h. Runs on the calling thread. */
#include "peer/bench/kernels.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "kernels/cpu/cpu_backend.h"

#include <stdio.h>

enum { RUNS_MAX = 1000, RUNS_MIN = 5, KERNEL = 3, BLOCK = 16, NAME_CAP = 32 };

/* What runs fastest on the processors measured: small images need company, large ones the cache. */
enum { PIXELS_PER_SLICE = 8192, IMAGES_MAX = 64 };

enum bench_kind {
    BENCH_GEMM,
    BENCH_CONV_FORWARD,
    BENCH_CONV_DATA,
    BENCH_CONV_WEIGHTS,
    BENCH_UPDATE
};

struct bench {
    char name[NAME_CAP];
    enum bench_kind kind;
    enum cpu_convolution by;
    bool is_a_transposed, is_b_transposed;
    uint32_t rows, columns, inner; /* gemm; update: columns values */
    uint32_t in, out, side;        /* convolution 3x3 */
    uint32_t stride, images;
};

static const struct bench benches[] = {
    {.name = "gemm forward",
     .kind = BENCH_GEMM,
     .is_b_transposed = true,
     .rows = 64,
     .columns = 256,
     .inner = 784},
    {.name = "gemm weights",
     .kind = BENCH_GEMM,
     .is_a_transposed = true,
     .rows = 256,
     .columns = 784,
     .inner = 64},
    {.name = "gemm data", .kind = BENCH_GEMM, .rows = 64, .columns = 784, .inner = 256},
    {.name = "gemm square", .kind = BENCH_GEMM, .rows = 1024, .columns = 1024, .inner = 1024},
    {.name = "update momentum", .kind = BENCH_UPDATE, .columns = 1 << 21},
};

/* Each in its three passes: the `cnn` preset both ways, residual nets of 16 to 64 channels on 28x28
 * images and of 64 to 512 on 32x32. */
struct conv_shape {
    uint32_t in, out, side, stride;
    enum cpu_convolution by;
};

static const struct conv_shape convolutions[] = {
    {32, 64, 28, 1, CPU_CONVOLUTION_AUTO},  {32, 64, 28, 1, CPU_CONVOLUTION_IM2COL},
    {1, 16, 28, 1, CPU_CONVOLUTION_AUTO},   {16, 16, 28, 1, CPU_CONVOLUTION_AUTO},
    {16, 32, 28, 2, CPU_CONVOLUTION_AUTO},  {32, 32, 14, 1, CPU_CONVOLUTION_AUTO},
    {32, 64, 14, 2, CPU_CONVOLUTION_AUTO},  {64, 64, 7, 1, CPU_CONVOLUTION_AUTO},
    {3, 64, 32, 1, CPU_CONVOLUTION_AUTO},   {64, 64, 32, 1, CPU_CONVOLUTION_AUTO},
    {64, 128, 32, 2, CPU_CONVOLUTION_AUTO}, {128, 128, 16, 1, CPU_CONVOLUTION_AUTO},
    {256, 256, 8, 1, CPU_CONVOLUTION_AUTO}, {512, 512, 4, 1, CPU_CONVOLUTION_AUTO},
};

enum { PASSES = 3, BENCHES = ARRAY_COUNT(benches) + PASSES * ARRAY_COUNT(convolutions) };

static struct bench bench_at(size_t i)
{
    static const enum bench_kind kinds[PASSES] = {BENCH_CONV_FORWARD, BENCH_CONV_DATA,
                                                  BENCH_CONV_WEIGHTS};
    static const char *const names[PASSES] = {"conv forward", "conv data", "conv weights"};
    const struct conv_shape *shape;
    struct bench bench = {.kind = BENCH_GEMM};

    CHECK(i < BENCHES);
    if (i < ARRAY_COUNT(benches)) return benches[i];
    i -= ARRAY_COUNT(benches);
    shape = &convolutions[i / PASSES];
    bench.kind = kinds[i % PASSES];
    bench.by = shape->by;
    bench.in = shape->in;
    bench.out = shape->out;
    bench.side = shape->side;
    bench.stride = shape->stride;
    bench.images = images_of_pixels((struct image_shape){shape->in, shape->side, shape->side, 1},
                                    PIXELS_PER_SLICE);
    if (bench.images > IMAGES_MAX) bench.images = IMAGES_MAX;
    snprintf(bench.name, sizeof(bench.name), "%s", names[i % PASSES]);
    return bench;
}

/* What one bench runs on. */
struct ground {
    struct backend *backend;
    struct conv *conv;
    float *a, *b, *c;
    double work;    /* of one run: operations or bytes, in units of 1e9 */
    const char *by; /* who does it */
};

static void ground_end(struct ground *g)
{
    if (g->conv != NULL) g->conv->ops->destroy(g->conv);
    mem_free(g->a);
    mem_free(g->b);
    mem_free(g->c);
    backend_destroy(g->backend);
}

static float *fresh(size_t count)
{
    float *values = mem_aligned(count * sizeof(*values));

    for (size_t i = 0; values != NULL && i < count; i++) {
        values[i] = (float)(i % 61) / 61.0F - 0.5F;
    }
    return values;
}

static enum rc ground_begin_conv(struct ground *g, const struct bench *bench)
{
    uint32_t block = bench->by == CPU_CONVOLUTION_AUTO && bench->in % BLOCK == 0 ? BLOCK : 1;
    struct conv_options options = {
        .in = {bench->in, bench->side, bench->side, block},
        .out_channels = bench->out,
        .kernel_height = KERNEL,
        .kernel_width = KERNEL,
        .padding_height = KERNEL / 2,
        .padding_width = KERNEL / 2,
        .stride = bench->stride,
        .dilation = 1,
        .groups = 1,
        .with_bias = true,
        .images = bench->images,
        .with_gradients = true,
        .with_input_gradient = bench->kind == BENCH_CONV_DATA,
    };
    size_t weights = conv_weight_values(&options);
    enum rc rc = g->backend->ops->conv_create(g->backend, &options, &g->conv);

    if (rc != RC_OK) return rc;
    g->a = fresh(bench->images * image_values(options.in));
    g->b = fresh(weights + bench->out);
    g->c = fresh(bench->images * image_values(g->conv->out));
    g->work = 2e-9 * bench->images * (double)image_values(g->conv->out) *
              (double)conv_filter_values(&options);
    g->by = g->conv->ops->name;
    if (g->a == NULL || g->b == NULL || g->c == NULL) return RC_NOMEM;
    return g->conv->ops->prepare(g->conv, g->b, g->b + weights);
}

static enum rc ground_begin(struct ground *g, const struct bench *bench, uint32_t threads)
{
    struct cpu_backend_options options = {.threads = threads, .convolution = bench->by};

    g->backend = cpu_backend_create(&options);
    if (g->backend == NULL) return RC_NOMEM;
    backend_bind_thread(g->backend);
    g->by = "cpu";
    if (bench->kind == BENCH_UPDATE) {
        g->a = fresh(bench->columns);
        g->b = fresh(bench->columns);
        g->c = fresh(bench->columns);
        g->work = 1e-9 * 5.0 * sizeof(float) * bench->columns; /* three reads, two writes */
        return g->a == NULL || g->b == NULL || g->c == NULL ? RC_NOMEM : RC_OK;
    }
    if (bench->kind != BENCH_GEMM) return ground_begin_conv(g, bench);
    g->a = fresh((size_t)bench->rows * bench->inner);
    g->b = fresh((size_t)bench->inner * bench->columns);
    g->c = fresh((size_t)bench->rows * bench->columns);
    g->work = 2e-9 * bench->rows * (double)bench->columns * bench->inner;
    return g->a == NULL || g->b == NULL || g->c == NULL ? RC_NOMEM : RC_OK;
}

static enum rc run_gemm(struct ground *g, const struct bench *bench)
{
    struct gemm gemm = {
        .is_a_transposed = bench->is_a_transposed,
        .is_b_transposed = bench->is_b_transposed,
        .rows = bench->rows,
        .columns = bench->columns,
        .inner = bench->inner,
        .alpha = 1.0F,
        .a = g->a,
        .b = g->b,
        .c = g->c,
        .a_stride = bench->is_a_transposed ? bench->rows : bench->inner,
        .b_stride = bench->is_b_transposed ? bench->inner : bench->columns,
        .c_stride = bench->columns,
    };

    return g->backend->ops->gemm(g->backend, &gemm);
}

static enum rc run_once(struct ground *g, const struct bench *bench)
{
    const struct update update = {.kind = UPDATE_MOMENTUM, .rate = 0.01F, .beta = 0.9F};
    float *dbias = g->b == NULL ? NULL : g->b + (size_t)bench->in * bench->out * KERNEL * KERNEL;

    switch (bench->kind) {
    case BENCH_GEMM:
        return run_gemm(g, bench);
    case BENCH_CONV_FORWARD:
        return g->conv->ops->forward(g->conv, g->a, g->c);
    case BENCH_CONV_DATA:
        return g->conv->ops->backward_data(g->conv, g->c, g->a);
    case BENCH_CONV_WEIGHTS:
        return g->conv->ops->backward_weights(g->conv, g->a, g->c, true, g->b, dbias);
    case BENCH_UPDATE:
        return g->backend->ops->update(g->backend, &update, g->a, g->b, g->c, bench->columns);
    default:
        CHECK(false); /* a bench of a known kind */
    }
    return RC_DEVICE;
}

static struct json *row_create(const struct bench *bench, const struct ground *g, double *rates,
                               uint32_t runs)
{
    struct json *row = json_object_create();
    struct bench_spread spread = bench_spread_of(rates, runs);
    char shape[64];

    if (bench->kind == BENCH_GEMM) {
        snprintf(shape, sizeof(shape), "%ux%ux%u", bench->rows, bench->columns, bench->inner);
    } else if (bench->kind == BENCH_UPDATE) {
        snprintf(shape, sizeof(shape), "%u", bench->columns);
    } else {
        snprintf(shape, sizeof(shape), "3x3%s %u->%u %ux%u n%u", bench->stride == 2 ? "/2" : "",
                 bench->in, bench->out, bench->side, bench->side, bench->images);
    }
    json_set_text(row, "kernel", bench->name);
    json_set_text(row, "shape", shape);
    json_set_text(row, "by", g->by);
    json_set_count(row, "threads", g->backend->threads);
    json_set_text(row, "device", "cpu");
    json_set_text(row, "unit", bench->kind == BENCH_UPDATE ? "GB" : "GFLOP");
    json_set_real(row, "per_s", spread.median);
    json_set_real(row, "q1", spread.q1);
    json_set_real(row, "q3", spread.q3);
    return row;
}

static enum rc measure(const struct bench *bench, const struct bench_kernels_options *options,
                       double *rates, struct json *rows)
{
    const struct bench_clock *clock = &options->clock;
    double seconds = options->seconds > 0.0 ? options->seconds : 5.0;
    uint64_t share_ns = (uint64_t)(seconds * 1e9 / (double)BENCHES);
    uint32_t runs = 0;
    struct ground g = {0};
    enum rc rc = ground_begin(&g, bench, options->backend->threads);
    uint64_t begin_ns;

    if (rc == RC_OK) rc = run_once(&g, bench); /* warm */
    begin_ns = clock->now_ns(clock->context);
    while (rc == RC_OK && runs < RUNS_MAX) {
        uint64_t before_ns = clock->now_ns(clock->context), after_ns;
        rc = run_once(&g, bench);
        after_ns = clock->now_ns(clock->context);
        rates[runs++] = g.work * 1e9 / (double)(after_ns > before_ns ? after_ns - before_ns : 1);
        if (runs >= RUNS_MIN && after_ns - begin_ns >= share_ns) break;
    }
    if (rc == RC_OK) json_append(rows, row_create(bench, &g, rates, runs));
    ground_end(&g);
    return rc;
}

enum rc bench_kernels(const struct bench_kernels_options *options, struct json **rows,
                      struct fault *why)
{
    double *rates = mem_array(RUNS_MAX, sizeof(*rates));
    struct json *measured;
    enum rc rc = RC_OK;

    CHECK(options->clock.now_ns != NULL && options->backend != NULL);
    if (!options->backend->is_host) {
        mem_free(rates);
        return bench_kernels_device(options, rows, why);
    }
    if (rates == NULL) return fault_set(why, RC_NOMEM, "bench kernels: out of memory");
    measured = json_array_create();
    for (size_t i = 0; rc == RC_OK && i < BENCHES; i++) {
        struct bench bench = bench_at(i);
        if (bench.kind == BENCH_CONV_DATA && bench.in < BLOCK) continue; /* a first layer */
        rc = measure(&bench, options, rates, measured);
    }
    mem_free(rates);
    if (rc != RC_OK) {
        json_destroy(measured);
        return fault_set(why, rc, "bench kernels: %s", rc_text(rc));
    }
    *rows = measured;
    return RC_OK;
}
