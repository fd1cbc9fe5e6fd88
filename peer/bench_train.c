/* Training speed: see bench_train.h. Runs on the calling thread. */
#include "peer/bench_train.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernels/cpu/cpu_backend.h"
#include "peer/command.h"
#include "peer/usage.h"
#include "replica/json.h"
#include "replica/layers.h"
#include "replica/model.h"
#include "replica/model_profile.h"
#include "replica/optimizer.h"
#include "replica/task.h"
#include "replica/team.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The made-up text: as long as the model likes, or 64; the King James Bible has 73 symbols. */
enum { CHUNKS_MAX = 4096, CHUNKS_WANTED = 20, WARM_STEPS = 3, TEXT_STEPS = 64, TEXT_SYMBOLS = 73 };

struct course {
    struct backend *backend;
    struct team *team;
    struct model *model; /* the team's */
    struct optimizer optimizer;
    struct dataset_info info;
    struct task task;
    struct batch batch;
    float *input; /* on the backend */
    float *workspace;
    float *logits, *gradient;
    uint64_t updates;
    struct model_profiler *profiler; /* NULL: not wanted */
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
    model_profiler_destroy(c->profiler);
    task_deinit(&c->task);
    team_destroy(c->team);
    batch_deinit(&c->batch);
    if (c->backend != NULL) {
        c->backend->ops->free(c->backend, c->input);
        c->backend->ops->free(c->backend, c->workspace);
    }
    mem_free(c->logits);
    mem_free(c->gradient);
    backend_destroy(c->backend);
}

static uint32_t or_default(uint32_t value, uint32_t otherwise)
{
    return value == 0 ? otherwise : value;
}

/* The data that the model would be trained on. */
static void describe(const struct bench_train_options *options, const char *spec,
                     struct dataset_info *info)
{
    if (layers_read_tokens(spec)) {
        uint32_t steps = or_default(options->width, or_default(task_context(spec), TEXT_STEPS));
        uint32_t symbols = or_default(options->classes, TEXT_SYMBOLS);
        *info = (struct dataset_info){.input = DATA_TOKENS,
                                      .target = DATA_NEXT_TOKEN,
                                      .channels = 1,
                                      .height = 1,
                                      .width = steps,
                                      .symbols = symbols,
                                      .classes = symbols,
                                      .outputs = symbols,
                                      .labels_per_sample = steps};
        return;
    }
    *info = (struct dataset_info){.input = DATA_IMAGES,
                                  .target = DATA_CLASS,
                                  .channels = or_default(options->channels, 1),
                                  .height = or_default(options->height, 28),
                                  .width = or_default(options->width, 28),
                                  .classes = or_default(options->classes, 10),
                                  .outputs = or_default(options->classes, 10),
                                  .labels_per_sample = 1};
}

static void make_up(struct course *c)
{
    size_t values = c->batch.rows_max * dataset_values(&c->info);
    size_t labels = (size_t)c->batch.rows_max * c->info.labels_per_sample;
    bool is_text = c->info.input == DATA_TOKENS;
    struct rng rng;

    c->batch.rows = c->batch.rows_max;
    rng_init(&rng, 1, 0);
    for (size_t i = 0; i < values; i++) {
        c->batch.values[i] =
            is_text ? (float)rng_below(&rng, c->info.symbols) : (float)(rng_unit(&rng) * 2.0 - 1.0);
    }
    for (size_t i = 0; i < labels; i++) {
        c->batch.labels[i] = (uint32_t)rng_below(&rng, c->info.classes);
    }
}

static enum rc take_memory(struct course *c, uint32_t batch)
{
    const struct backend_ops *ops = c->backend->ops;
    size_t values = batch * dataset_values(&c->info), logits = task_logits(&c->task, batch);
    size_t workspace = optimizer_workspace(&c->optimizer, model_schema(c->model));
    enum rc rc = model_reserve_moments(c->model, optimizer_planes(c->optimizer.kind));

    if (rc == RC_OK) rc = batch_init(&c->batch, &c->info, batch);
    c->input = ops->alloc(c->backend, values * sizeof(float));
    c->workspace = ops->alloc(c->backend, (workspace * team_threads(c->team) + 1) * sizeof(float));
    c->logits = mem_aligned(logits * sizeof(float));
    c->gradient = mem_aligned(logits * sizeof(float));
    if (c->input == NULL || c->workspace == NULL || c->logits == NULL || c->gradient == NULL) {
        rc = RC_NOMEM;
    }
    if (rc == RC_OK) make_up(c);
    if (rc != RC_OK) return rc;
    return ops->upload(c->backend, c->input, c->batch.values, values * sizeof(float));
}

static bool wants_bf16(const struct bench_train_options *options)
{
    return options->precision != NULL && strcmp(options->precision, "bf16") == 0;
}

static enum rc course_begin(struct course *c, const struct bench_train_options *options,
                            const char *spec, struct fault *why)
{
    struct layers_training usual = layers_training(spec);
    struct cpu_backend_options backend = {.threads = or_default(options->threads, 1),
                                          .now_ns = options->now_ns};
    struct model_options shape = {.spec = spec, .seed = 1, .with_gradients = true};
    enum rc rc;

    if (wants_bf16(options)) backend.precision = PRECISION_BF16;
    c->backend = cpu_backend_create(&backend);
    if (c->backend == NULL) return fault_set(why, RC_NOMEM, "bench train: out of memory");
    if (wants_bf16(options) && options->log != NULL) {
        command_tell_precision(c->backend, options->log);
    }
    describe(options, spec, &c->info);
    task_describe(&c->info, &shape);
    shape.batch_max = or_default(options->batch, usual.batch);
    rc = optimizer_parse(usual.optimizer, &c->optimizer, why);
    if (rc == RC_OK) rc = team_create(c->backend, &shape, &c->team, why);
    if (rc == RC_OK) c->model = team_model(c->team);
    if (rc == RC_OK) rc = task_init(&c->task, &c->info, c->model, shape.batch_max, why);
    if (rc != RC_OK) return rc;
    rc = take_memory(c, shape.batch_max);
    if (rc == RC_OK) return RC_OK;
    return fault_set(why, rc, "bench train: %s; try a smaller --batch", rc_text(rc));
}

/* The update of one thread's part. */
static enum rc update_part(void *context, const struct team_part *part)
{
    struct course *c = context;
    struct model_profiler *profiler = part->lane == 0 ? c->profiler : NULL;
    uint64_t begin = model_profiler_now(profiler);
    double none = 0.0;
    const struct optimizer_step step = {
        .gradient = model_plane(c->model, SECTION_GRADIENT),
        .moments = model_plane(c->model, SECTION_MOMENTS),
        .values = model_plane(c->model, SECTION_PARAMETERS),
        .workspace = c->workspace,
        .factor = 1.0,
        .count = c->updates,
    };
    const struct optimizer_part mine = {part->backend, part->lane, part->lanes, part->begin,
                                        part->end};
    enum rc rc;

    if (optimizer_is_layerwise(&c->optimizer)) team_sum(c->team, part->lane, &none, 1);
    rc = optimizer_step_part(&c->optimizer, model_schema(c->model), &step, &mine);
    model_profiler_add_inside(profiler, PROFILE_OPTIMIZER, begin);
    return rc;
}

static enum rc course_step(struct course *c)
{
    uint64_t begin = model_profiler_now(c->profiler);
    struct task_score score;
    enum rc rc = team_forward(c->team, c->input, c->batch.rows, true, c->logits);

    model_profiler_add(c->profiler, PROFILE_PASSES, begin);
    if (rc != RC_OK) return rc;
    begin = model_profiler_now(c->profiler);
    score = task_loss(&c->task, &c->batch, c->logits, c->gradient);
    model_profiler_add(c->profiler, PROFILE_LOSS, begin);
    if (!isfinite(score.loss)) return RC_NONFINITE;
    c->updates++;
    begin = model_profiler_now(c->profiler);
    rc = team_backward_each(c->team, c->gradient, update_part, c);
    model_profiler_add(c->profiler, PROFILE_PASSES, begin);
    model_profiler_step(c->profiler, 1);
    return rc;
}

/* Samples per second of each chunk until the time is up; at least one chunk. */
static enum rc measure(struct course *c, const struct bench_clock *clock, double seconds,
                       double *rates, uint32_t *chunks)
{
    uint64_t begin_ns = clock->now_ns(clock->context), chunk_ns = begin_ns;
    uint64_t total_ns = (uint64_t)(seconds * (double)NS_PER_S);
    uint64_t each_ns = total_ns / CHUNKS_WANTED;
    double per_step = (double)c->batch.rows * c->task.rows; /* samples, or tokens */
    uint32_t steps = 0, done = 0;
    enum rc rc = RC_OK;

    while (rc == RC_OK && done < CHUNKS_MAX) {
        uint64_t now_ns;
        rc = course_step(c);
        steps++;
        now_ns = clock->now_ns(clock->context);
        if (now_ns - chunk_ns < each_ns || now_ns == chunk_ns) continue;
        rates[done++] = (double)steps * per_step * 1e9 / (double)(now_ns - chunk_ns);
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
    if (precision != NULL && strcmp(precision, "f32") != 0 && strcmp(precision, "bf16") != 0) {
        return fault_set(why, RC_UNSUPPORTED, "--precision %s: it is f32 or bf16", precision);
    }
    if (device != NULL && strcmp(device, "auto") != 0 && strcmp(device, "cpu") != 0) {
        return fault_set(why, RC_UNSUPPORTED, "--device %s: this build has the cpu only", device);
    }
    return RC_OK;
}

static struct json *row_create(const struct course *c, const char *name, struct bench_spread spread)
{
    struct json *row = json_object_create();

    json_set_text(row, "model", name);
    json_set_count(row, "batch", c->batch.rows);
    json_set_count(row, "threads", team_threads(c->team));
    json_set_text(row, "precision", cpu_backend_is_bf16(c->backend) ? "bf16" : "f32");
    json_set_text(row, "device", "cpu");
    json_set_text(row, "unit", c->info.input == DATA_TOKENS ? "tokens" : "samples");
    json_set_real(row, "per_s", spread.median);
    json_set_real(row, "q1", spread.q1);
    json_set_real(row, "q3", spread.q3);
    json_set_count(row, "parameters", model_schema(c->model)->values[SECTION_PARAMETERS]);
    json_set_count(row, "rss_bytes", usage_peak_rss_bytes());
    return row;
}

/* The whole of it: some steps to get warm, then those that count. */
static enum rc run(struct course *c, const struct bench_train_options *options, double *rates,
                   uint32_t *chunks)
{
    const struct bench_clock *clock = &options->clock;
    double seconds = options->seconds > 0.0 ? options->seconds : 5.0;
    enum rc rc = RC_OK;
    uint64_t begin;

    for (int i = 0; rc == RC_OK && i < WARM_STEPS; i++) {
        rc = course_step(c);
    }
    if (rc != RC_OK) return rc;
    if (options->profile != NULL) {
        c->profiler =
            model_profiler_create(c->model, (struct profile_clock){clock->now_ns, clock->context},
                                  c->batch.rows, team_threads(c->team));
        if (c->profiler == NULL) return RC_NOMEM;
    }
    begin = clock->now_ns(clock->context);
    rc = measure(c, clock, seconds, rates, chunks);
    if (rc == RC_OK && options->profile != NULL) {
        *options->profile =
            model_profiler_rows(c->profiler, clock->now_ns(clock->context) - begin, NULL);
    }
    return rc;
}

enum rc bench_train(const struct bench_train_options *options, struct json **row, struct fault *why)
{
    const char *name = options->model == NULL ? "cnn" : options->model;
    double *rates = NULL;
    uint32_t chunks = 0;
    struct course course = {0};
    enum rc rc = check_options(options, why);

    if (rc != RC_OK) return rc;
    rc = course_begin(&course, options, name, why);
    if (rc != RC_OK) goto out;
    rates = mem_array(CHUNKS_MAX, sizeof(*rates));
    rc = rates == NULL ? RC_NOMEM : RC_OK;
    if (rc == RC_OK) rc = run(&course, options, rates, &chunks);
    if (rc != RC_OK) {
        fault_set(why, rc, "bench train: %s", rc_text(rc));
        goto out;
    }
    *row = row_create(&course, name, bench_spread_of(rates, chunks));
out:
    mem_free(rates);
    course_end(&course);
    return rc;
}
