/* Training speed: see bench_train.h. Runs on the calling thread. */
#include "peer/bench_train.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernels/cpu/cpu_backend.h"
#include "peer/usage.h"
#include "replica/json.h"
#include "replica/model.h"
#include "replica/optimizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNKS_MAX = 4096, CHUNKS_WANTED = 20, WARM_STEPS = 3 };

struct course {
    struct backend *backend;
    struct model *model;
    struct optimizer optimizer;
    uint32_t batch;
    uint64_t updates;
    float *input, *logits, *gradient;
    uint32_t *labels;
};

static int compare_reals(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double quantile(const double *sorted, uint32_t count, double share)
{
    double at = share * (double)(count - 1);
    uint32_t low = (uint32_t)at;
    uint32_t high = low + 1 < count ? low + 1 : low;

    return sorted[low] + (at - (double)low) * (sorted[high] - sorted[low]);
}

struct bench_spread bench_spread_of(double *values, uint32_t count)
{
    CHECK(count > 0);
    qsort(values, count, sizeof(*values), compare_reals);
    return (struct bench_spread){quantile(values, count, 0.25), quantile(values, count, 0.5),
                                 quantile(values, count, 0.75)};
}

static void course_end(struct course *c)
{
    model_destroy(c->model);
    mem_free(c->input);
    mem_free(c->logits);
    mem_free(c->gradient);
    mem_free(c->labels);
    backend_destroy(c->backend);
}

static enum rc course_begin(struct course *c, const struct model_options *shape, uint32_t threads,
                            struct fault *why)
{
    struct cpu_backend_options backend = {.threads = threads};
    size_t inputs = (size_t)shape->batch_max * shape->channels * shape->height * shape->width;
    size_t outputs = (size_t)shape->batch_max * shape->classes;
    struct rng rng;
    enum rc rc;

    c->batch = shape->batch_max;
    c->backend = cpu_backend_create(&backend);
    if (c->backend == NULL) return fault_set(why, RC_NOMEM, "bench train: out of memory");
    rc = optimizer_parse("momentum:lr=0.01,beta=0.9", &c->optimizer, why);
    if (rc == RC_OK) rc = model_create(c->backend, shape, &c->model, why);
    if (rc != RC_OK) return rc;
    rc = model_reserve_moments(c->model, optimizer_planes(c->optimizer.kind));
    c->input = mem_aligned(inputs * sizeof(float));
    c->logits = mem_aligned(outputs * sizeof(float));
    c->gradient = mem_aligned(outputs * sizeof(float));
    c->labels = mem_array(c->batch, sizeof(*c->labels));
    if (rc != RC_OK || c->input == NULL || c->logits == NULL || c->gradient == NULL ||
        c->labels == NULL) {
        return fault_set(why, RC_NOMEM, "bench train: out of memory; try a smaller --batch");
    }
    rng_init(&rng, 1, 0);
    for (size_t i = 0; i < inputs; i++) {
        c->input[i] = (float)(rng_unit(&rng) * 2.0 - 1.0);
    }
    for (uint32_t i = 0; i < c->batch; i++) {
        c->labels[i] = (uint32_t)rng_below(&rng, shape->classes);
    }
    return RC_OK;
}

static enum rc course_step(struct course *c)
{
    struct backend *backend = c->backend;
    struct model *model = c->model;
    struct update update = optimizer_update(&c->optimizer, c->optimizer.lr, ++c->updates);
    uint32_t correct = 0;
    double loss;
    enum rc rc = model_forward(model, c->input, c->batch, true, c->logits);

    if (rc != RC_OK) return rc;
    loss = loss_cross_entropy(c->logits, c->labels, c->batch, model_classes(model), c->gradient,
                              &correct);
    if (!isfinite(loss)) return RC_NONFINITE;
    rc = model_backward(model, c->gradient);
    if (rc != RC_OK) return rc;
    return backend->ops->update(
        backend, &update, model_plane(model, SECTION_GRADIENT), model_plane(model, SECTION_MOMENTS),
        model_plane(model, SECTION_PARAMETERS), model_schema(model)->values[SECTION_PARAMETERS]);
}

/* Samples per second of each chunk until the time is up; at least one chunk. */
static enum rc measure(struct course *c, const struct bench_clock *clock, double seconds,
                       double *rates, uint32_t *chunks)
{
    uint64_t begin_ns = clock->now_ns(clock->context), chunk_ns = begin_ns;
    uint64_t total_ns = (uint64_t)(seconds * (double)NS_PER_S);
    uint64_t each_ns = total_ns / CHUNKS_WANTED;
    uint32_t steps = 0, done = 0;
    enum rc rc = RC_OK;

    while (rc == RC_OK && done < CHUNKS_MAX) {
        uint64_t now_ns;
        rc = course_step(c);
        steps++;
        now_ns = clock->now_ns(clock->context);
        if (now_ns - chunk_ns < each_ns || now_ns == chunk_ns) continue;
        rates[done++] = (double)steps * c->batch * 1e9 / (double)(now_ns - chunk_ns);
        chunk_ns = now_ns;
        steps = 0;
        if (now_ns - begin_ns >= total_ns) break;
    }
    *chunks = done;
    return rc;
}

static enum rc check_options(const struct bench_train_options *options, struct fault *why)
{
    const char *precision = options->precision, *device = options->device;

    CHECK(options->clock.now_ns != NULL);
    if (precision != NULL && strcmp(precision, "f32") != 0) {
        return fault_set(why, RC_UNSUPPORTED, "--precision %s: this build trains in f32 only",
                         precision);
    }
    if (device != NULL && strcmp(device, "auto") != 0 && strcmp(device, "cpu") != 0) {
        return fault_set(why, RC_UNSUPPORTED, "--device %s: this build has the cpu only", device);
    }
    return RC_OK;
}

static uint32_t or_default(uint32_t value, uint32_t otherwise)
{
    return value == 0 ? otherwise : value;
}

static struct json *row_create(const struct course *c, const char *name, uint32_t threads,
                               struct bench_spread spread)
{
    struct json *row = json_object_create();

    json_set_text(row, "model", name);
    json_set_count(row, "batch", c->batch);
    json_set_count(row, "threads", threads);
    json_set_text(row, "precision", "f32");
    json_set_text(row, "device", "cpu");
    json_set_text(row, "unit", "samples");
    json_set_real(row, "per_s", spread.median);
    json_set_real(row, "q1", spread.q1);
    json_set_real(row, "q3", spread.q3);
    json_set_count(row, "parameters", model_schema(c->model)->values[SECTION_PARAMETERS]);
    json_set_count(row, "rss_bytes", usage_peak_rss_bytes());
    return row;
}

enum rc bench_train(const struct bench_train_options *options, struct json **row, struct fault *why)
{
    const char *name = options->model == NULL ? "cnn" : options->model;
    uint32_t threads = or_default(options->threads, 1), chunks = 0;
    struct model_options shape = {
        .spec = name,
        .channels = or_default(options->channels, 1),
        .height = or_default(options->height, 28),
        .width = or_default(options->width, 28),
        .classes = or_default(options->classes, 10),
        .batch_max = or_default(options->batch, 64),
        .seed = 1,
        .with_gradients = true,
    };
    double seconds = options->seconds > 0.0 ? options->seconds : 5.0;
    double *rates = NULL;
    struct course course = {0};
    enum rc rc = check_options(options, why);

    if (rc != RC_OK) return rc;
    rc = course_begin(&course, &shape, threads, why);
    if (rc != RC_OK) goto out;
    rates = mem_array(CHUNKS_MAX, sizeof(*rates));
    rc = rates == NULL ? RC_NOMEM : RC_OK;
    for (int i = 0; rc == RC_OK && i < WARM_STEPS; i++) {
        rc = course_step(&course);
    }
    if (rc == RC_OK) rc = measure(&course, &options->clock, seconds, rates, &chunks);
    if (rc != RC_OK) {
        fault_set(why, rc, "bench train: %s", rc_text(rc));
        goto out;
    }
    *row = row_create(&course, name, threads, bench_spread_of(rates, chunks));
out:
    mem_free(rates);
    course_end(&course);
    return rc;
}
