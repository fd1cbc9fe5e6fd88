/*
 * Training speed: see train.h. Runs on the calling thread. On a device a batch goes up from
 * host memory at every step, as in training, and the clock is only read when all that was queued
 * is done.
 */
#include "peer/bench/train.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernels/device/device.h"
#include "peer/watch/usage.h"
#include "replica/learners/task.h"
#include "replica/learners/team.h"
#include "replica/learners/workers.h"
#include "replica/model/layers.h"
#include "replica/model/model.h"
#include "replica/model/profile.h"
#include "replica/optimizer/optimizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNKS_MAX = 4096, CHUNKS_WANTED = 20, WARM_STEPS = 5 };

/* The made-up text: as long as the model likes, or 64; the King James Bible has 73 symbols. */
enum { TEXT_STEPS = 64, TEXT_SYMBOLS = 73 };

/* Models that were made for other data than 28x28 images of ten classes, or that text. */
static const struct usual_data {
    const char *model;
    uint32_t channels, side, classes;
} usual_data[] = {
    {"resnet20", 3, 32, 10}, /* CIFAR-10 */
    {"resnet18", 3, 32, 10},
    {"gpt2-small", 1, 0, 50257}, /* GPT-2's vocabulary */
};

struct course {
    struct backend *backend;
    struct team *team;
    struct model *model; /* the team's */
    struct optimizer optimizer;
    struct dataset_info info;
    struct task task;
    struct batch batch;
    struct model_feed feed; /* the batch, for a device */
    float *
        workspaces[WORKERS_MAX]; /* of each device; on the processor the first is for all threads */
    uint64_t updates;
    bool is_forward;                 /* passes forward in evaluation mode are all there is */
    float *logits;                   /* of these; otherwise NULL */
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

static enum rc free_lane(void *context, const struct team_lane *lane)
{
    struct course *c = context;

    lane->backend->ops->free(lane->backend, c->workspaces[lane->number]);
    return RC_OK;
}

static void course_end(struct course *c)
{
    model_profiler_destroy(c->profiler);
    task_deinit(&c->task);
    if (c->team != NULL) {
        enum rc rc = team_run(c->team, team_threads(c->team), free_lane, c);
        CHECK(rc == RC_OK); /* releasing cannot fail */
    }
    team_destroy(c->team);
    mem_free(c->logits);
    batch_deinit(&c->batch);
}

static uint32_t or_default(uint32_t value, uint32_t otherwise)
{
    return value == 0 ? otherwise : value;
}

/* The data that the model would be trained on. */
static void describe(const struct bench_train_options *options, const char *spec,
                     struct dataset_info *info)
{
    struct usual_data usual = {spec, 1, 28, 10};

    if (layers_read_tokens(spec)) usual.classes = TEXT_SYMBOLS;
    for (size_t i = 0; i < ARRAY_COUNT(usual_data); i++) {
        if (strcmp(usual_data[i].model, spec) == 0) usual = usual_data[i];
    }
    usual.classes = or_default(options->classes, usual.classes);
    if (layers_read_tokens(spec)) {
        uint32_t steps = or_default(options->width, or_default(task_context(spec), TEXT_STEPS));
        *info = (struct dataset_info){.input = DATA_TOKENS,
                                      .target = DATA_NEXT_TOKEN,
                                      .channels = 1,
                                      .height = 1,
                                      .width = steps,
                                      .symbols = usual.classes,
                                      .classes = usual.classes,
                                      .outputs = usual.classes,
                                      .labels_per_sample = steps};
        return;
    }
    *info = (struct dataset_info){.input = DATA_IMAGES,
                                  .target = DATA_CLASS,
                                  .channels = or_default(options->channels, usual.channels),
                                  .height = or_default(options->height, usual.side),
                                  .width = or_default(options->width, usual.side),
                                  .classes = usual.classes,
                                  .outputs = usual.classes,
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

/* Of one device; the processor's threads share the first. */
static enum rc take_lane(void *context, const struct team_lane *lane)
{
    struct course *c = context;
    const struct backend_ops *ops = lane->backend->ops;
    size_t workspace = optimizer_workspace(&c->optimizer, model_schema(lane->model));

    if (c->is_forward) return RC_OK;
    if (c->backend->is_host) {
        if (lane->number > 0) return RC_OK;
        workspace *= lane->lanes;
    }
    if (workspace > 0) {
        c->workspaces[lane->number] = ops->alloc(lane->backend, workspace * sizeof(float));
        if (c->workspaces[lane->number] == NULL) return RC_NOMEM;
    }
    return model_reserve_moments(lane->model, optimizer_planes(c->optimizer.kind));
}

static enum rc take_memory(struct course *c, uint32_t batch)
{
    enum rc rc = batch_init(&c->batch, &c->info, batch);

    if (rc == RC_OK) rc = team_run(c->team, team_threads(c->team), take_lane, c);
    if (rc != RC_OK) return rc;
    make_up(c);
    task_feed(&c->task, &c->batch, &c->feed);
    if (!c->is_forward) return RC_OK;
    c->logits = mem_aligned(task_logits(&c->task, batch) * sizeof(float));
    return c->logits == NULL ? RC_NOMEM : RC_OK;
}

/* The device's own words, where there are any. */
static enum rc told(const struct course *c, enum rc rc, const char *advice, struct fault *why)
{
    const char *reason = c->backend->is_host ? "" : c->backend->ops->why(c->backend);

    return fault_set(why, rc, "bench train: %s%s", reason[0] == '\0' ? rc_text(rc) : reason,
                     advice);
}

static enum rc course_begin(struct course *c, const struct bench_train_options *options,
                            const char *spec, struct fault *why)
{
    struct layers_training usual = layers_training(spec);
    struct model_options shape = {
        .spec = spec, .seed = 1, .with_gradients = !options->forward_alone};
    enum rc rc;

    c->backend = options->backend;
    c->is_forward = options->forward_alone;
    backend_bind_thread(c->backend);
    describe(options, spec, &c->info);
    task_describe(&c->info, &shape);
    shape.batch_max = or_default(options->batch, usual.batch);
    rc = optimizer_parse(usual.optimizer, &c->optimizer, why);
    if (rc == RC_OK) rc = team_create(c->backend, &shape, &c->team, why);
    if (rc == RC_OK) c->model = team_model(c->team);
    if (rc == RC_OK) rc = task_init(&c->task, &c->info, c->model, shape.batch_max, why);
    if (rc != RC_OK) return rc;
    rc = take_memory(c, shape.batch_max);
    return rc == RC_OK ? RC_OK : told(c, rc, "; try a smaller --batch", why);
}

/* --- steps on the processor --------------------------------------------------------------------*/

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
        .workspace = c->workspaces[0],
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

static enum rc host_step(struct course *c)
{
    uint64_t begin = model_profiler_now(c->profiler);
    const struct task_pass pass = {
        .team = c->team, .batch = &c->batch, .is_training = true, .profiler = c->profiler};
    struct task_score score;
    enum rc rc = task_forward(&c->task, &pass, &score);

    model_profiler_add_pass(c->profiler, PASS_FORWARD, begin);
    if (rc != RC_OK) return rc;
    if (!isfinite(score.loss)) return RC_NONFINITE;
    c->updates++;
    begin = model_profiler_now(c->profiler);
    rc = team_backward(c->team, NULL, update_part, c);
    model_profiler_add_pass(c->profiler, PASS_BACKWARD, begin);
    model_profiler_step(c->profiler, 1);
    return rc;
}

/* --- steps on devices: see replica/learners/replica_device.c ------------------------------- */

static enum rc pass_lane(const struct course *c, const struct team_lane *lane)
{
    struct model_feed mine = c->feed;
    size_t labels = (size_t)c->task.rows * c->task.heads;

    if (lane->samples == 0) return RC_OK; /* more devices than samples are never made */
    mine.batch = lane->samples;
    mine.sums_up = lane->lanes > 1;
    mine.input += lane->first * dataset_values(&c->info);
    mine.labels += lane->first * labels;
    return model_train_pass(lane->model, &mine);
}

static enum rc run_lane(void *context, const struct team_lane *lane)
{
    struct course *c = context;
    struct model_profiler *profiler = lane->number == 0 ? c->profiler : NULL;
    const struct schema *schema = model_schema(lane->model);
    const struct optimizer_step step = {
        .gradient = model_plane(lane->model, SECTION_GRADIENT),
        .moments = model_plane(lane->model, SECTION_MOMENTS),
        .values = model_plane(lane->model, SECTION_PARAMETERS),
        .workspace = c->workspaces[lane->number],
        .copies = model_copies(lane->model),
        .factor = 1.0,
        .count = c->updates,
    };
    double failures = 0.0;
    uint64_t begin;
    enum rc rc = pass_lane(c, lane);

    if (lane->lanes > 1) {
        failures = rc == RC_OK ? 0.0 : 1.0;
        team_sum(c->team, lane->number, &failures, 1);
        if (failures > 0.0) lane->backend->ops->all_reduce_abort(lane->backend);
        if (rc == RC_OK && failures > 0.0) rc = RC_DEVICE;
    }
    if (rc != RC_OK) return rc;
    begin = model_profiler_now(profiler);
    rc = optimizer_step(&c->optimizer, lane->backend, schema, &step);
    model_profiler_add_inside(profiler, PROFILE_OPTIMIZER, begin);
    if (rc != RC_OK) return rc;
    model_copies_written(lane->model);
    return lane->backend->ops->pace(lane->backend);
}

static enum rc device_step(struct course *c)
{
    uint64_t begin = model_profiler_now(c->profiler);
    enum rc rc;

    c->updates++;
    rc = team_run(c->team, c->batch.rows, run_lane, c);
    model_profiler_add_pass(c->profiler, PASS_BOTH, begin);
    model_profiler_step(c->profiler, 1);
    return rc;
}

static enum rc check_lane(void *context, const struct team_lane *lane)
{
    struct loss_sums sums = {0.0, 0};
    enum rc rc = model_take_sums(lane->model, &sums);

    (void)context;
    if (rc != RC_OK) return rc;
    return isfinite(sums.loss) ? RC_OK : RC_NONFINITE;
}

/* --- measuring ---------------------------------------------------------------------------------*/

static enum rc forward_step(struct course *c)
{
    uint64_t begin = model_profiler_now(c->profiler);
    enum rc rc = team_forward(c->team, c->batch.values, c->batch.rows, false, c->logits);

    model_profiler_add_pass(c->profiler, PASS_FORWARD, begin);
    model_profiler_step(c->profiler, 1);
    return rc;
}

static enum rc course_step(struct course *c)
{
    if (c->is_forward) return forward_step(c);
    return c->backend->is_host ? host_step(c) : device_step(c);
}

/* Until all steps are done. */
static enum rc course_wait(struct course *c)
{
    if (c->backend->is_host || c->is_forward) return RC_OK; /* logits come when they are there */
    return team_run(c->team, team_threads(c->team), check_lane, c);
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
        if (rc != RC_OK || now_ns - chunk_ns < each_ns || now_ns == chunk_ns) continue;
        if (!c->backend->is_host) {
            rc = course_wait(c);
            now_ns = clock->now_ns(clock->context);
        }
        rates[done++] = (double)steps * per_step * 1e9 / (double)(now_ns - chunk_ns);
        chunk_ns = now_ns;
        steps = 0;
        if (now_ns - begin_ns >= total_ns) break;
    }
    *chunks = done;
    return rc;
}

static struct json *row_create(const struct course *c, const char *name, const char *device,
                               struct bench_spread spread)
{
    struct json *row = json_object_create();

    json_set_text(row, "model", name);
    json_set_count(row, "batch", c->batch.rows);
    json_set_count(row, "threads", team_threads(c->team));
    json_set_text(row, "precision", device_is_bf16(c->backend) ? "bf16" : "f32");
    json_set_text(row, "device", device == NULL ? "cpu" : device);
    json_set_text(row, "unit", c->info.input == DATA_TOKENS ? "tokens" : "samples");
    json_set_real(row, "per_s", spread.median);
    json_set_real(row, "q1", spread.q1);
    json_set_real(row, "q3", spread.q3);
    json_set_count(row, "parameters", model_schema(c->model)->values[SECTION_PARAMETERS]);
    json_set_count(row, "rss_bytes", usage_peak_rss_bytes());
    return row;
}

/* The whole of it: some steps to get warm, then those that count. A profile is watched from the
 * first step on, as a device would otherwise have steps recorded whose parts cannot be told apart.
 */
static enum rc run(struct course *c, const struct bench_train_options *options, double *rates,
                   uint32_t *chunks)
{
    const struct bench_clock *clock = &options->clock;
    double seconds = options->seconds > 0.0 ? options->seconds : 5.0;
    enum rc rc = RC_OK;
    uint64_t begin;

    if (options->profile != NULL) {
        c->profiler = model_profiler_create(
            c->model, (struct profile_clock){.now_ns = clock->now_ns, .context = clock->context},
            c->batch.rows, team_threads(c->team));
        if (c->profiler == NULL) return RC_NOMEM;
    }
    for (int i = 0; rc == RC_OK && i < WARM_STEPS; i++) {
        rc = course_step(c);
    }
    if (rc == RC_OK) rc = course_wait(c);
    if (rc != RC_OK) return rc;
    if (c->profiler != NULL) model_profiler_reset(c->profiler);
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
    enum rc rc;

    CHECK(options->clock.now_ns != NULL && options->backend != NULL);
    rc = course_begin(&course, options, name, why);
    if (rc != RC_OK) goto out;
    rates = mem_array(CHUNKS_MAX, sizeof(*rates));
    rc = rates == NULL ? RC_NOMEM : RC_OK;
    if (rc == RC_OK) rc = run(&course, options, rates, &chunks);
    if (rc != RC_OK) {
        rc = told(&course, rc, "", why);
        goto out;
    }
    *row = row_create(&course, name, options->device, bench_spread_of(rates, chunks));
out:
    mem_free(rates);
    course_end(&course);
    return rc;
}
