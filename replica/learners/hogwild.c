/*
 * Hogwild: see hogwild.h. The shared values are 32-bit atomics that hold the bits of floats, read
 * and written in relaxed order, which costs nothing on common processors: C leaves plain races of
 * floats undefined. Each thread's copy is a plane of its own, so that the model computes on memory
 * that nobody else writes. A value whose gradient is 0 is left alone: with sparse gradients threads
 * seldom meet, which is what the method lives on.
 */
#include "replica/learners/hogwild.h"

#include "base/check.h"
#include "base/mem.h"
#include "kernels/backend.h"
#include "replica/learners/task.h"
#include "replica/learners/workers.h"

#include <math.h>
#include <string.h>

/* One thread with all it needs. */
struct lane {
    struct backend *backend; /* the first has the leader's */
    struct model *model;
    struct task task;
    struct batch batch;
    float *logits, *logits_gradient;
    struct hogwild_report done;
    enum rc rc;
};

struct hogwild {
    struct workers *workers;
    struct lane *lanes;
    uint32_t lanes_count;
    size_t values; /* parameters */
    _Atomic(uint32_t) *shared;
    /* Of the stretch in hand: */
    const struct hogwild_run *run;
    uint64_t passes; /* of dropout, before it */
    uint32_t taken;  /* steps begun; one thread at a time */
    atomic_bool has_failed;
};

static uint32_t bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

static enum rc make_lane(struct hogwild *h, uint32_t number, const struct hogwild_options *options,
                         struct fault *why)
{
    struct lane *lane = &h->lanes[number];
    struct backend *backend = model_backend(options->leader);
    struct model_options model = *options->model;
    size_t logits;
    enum rc rc = RC_OK;

    lane->backend = backend;
    lane->model = options->leader;
    if (number > 0) {
        lane->model = NULL;
        lane->backend = backend->ops->sibling(backend);
        if (lane->backend == NULL) return fault_set(why, RC_NOMEM, "--hogwild: out of memory");
        model.leader = NULL;
        model.meeting = NULL;
        rc = model_create(lane->backend, &model, &lane->model, why);
    }
    if (rc == RC_OK) rc = task_init(&lane->task, options->info, lane->model, model.batch_max, why);
    if (rc != RC_OK) return rc;
    logits = task_logits(&lane->task, model.batch_max);
    lane->logits = mem_array(logits, sizeof(float));
    lane->logits_gradient = mem_array(logits, sizeof(float));
    rc = batch_init(&lane->batch, options->info, model.batch_max);
    if (rc == RC_OK && lane->logits != NULL && lane->logits_gradient != NULL) return RC_OK;
    return fault_set(why, RC_NOMEM, "--hogwild %u: out of memory; use fewer threads",
                     options->threads);
}

enum rc hogwild_create(const struct hogwild_options *options, struct hogwild **hogwild,
                       struct fault *why)
{
    struct backend *backend = model_backend(options->leader);
    struct hogwild *h;
    enum rc rc = RC_OK;

    CHECK(options->threads > 0 && options->threads <= WORKERS_MAX);
    if (!backend->is_host || backend->ops->sibling == NULL) {
        return fault_set(why, RC_UNSUPPORTED, "--hogwild needs --device cpu");
    }
    h = mem_alloc(sizeof(*h));
    if (h == NULL) return fault_set(why, RC_NOMEM, "--hogwild: out of memory");
    h->values = model_schema(options->leader)->values[SECTION_PARAMETERS];
    h->lanes_count = options->threads;
    h->lanes = mem_array(options->threads, sizeof(*h->lanes));
    h->shared = mem_array(h->values, sizeof(*h->shared));
    if (h->lanes == NULL || h->shared == NULL ||
        workers_create(options->threads, &h->workers) != RC_OK) {
        hogwild_destroy(h);
        return fault_set(why, RC_NOMEM, "--hogwild %u: no memory or no thread; use fewer",
                         options->threads);
    }
    for (uint32_t l = 0; rc == RC_OK && l < h->lanes_count; l++) {
        rc = make_lane(h, l, options, why);
    }
    if (rc != RC_OK) {
        hogwild_destroy(h);
        return rc;
    }
    *hogwild = h;
    return RC_OK;
}

void hogwild_destroy(struct hogwild *hogwild)
{
    if (hogwild == NULL) return;
    workers_destroy(hogwild->workers);
    for (uint32_t l = 0; hogwild->lanes != NULL && l < hogwild->lanes_count; l++) {
        struct lane *lane = &hogwild->lanes[l];
        task_deinit(&lane->task);
        batch_deinit(&lane->batch);
        mem_free(lane->logits);
        mem_free(lane->logits_gradient);
        if (l == 0) continue;
        model_destroy(lane->model);
        backend_destroy(lane->backend);
    }
    mem_free(hogwild->lanes);
    mem_free(hogwild->shared);
    mem_free(hogwild);
}

/* --- a step -------------------------------------------------------------------------------------
 */

/* The next step and its batch, unless there is none left. */
static bool take_step(struct hogwild *h, struct lane *lane, uint32_t *ticket)
{
    const struct hogwild_run *run = h->run;
    bool is_left;

    workers_enter(h->workers);
    is_left = h->taken < run->steps && !atomic_load(&h->has_failed) &&
              !(run->stop != NULL && atomic_load(run->stop));
    if (is_left) {
        *ticket = h->taken++;
        share_batch(run->share, &lane->batch);
    }
    workers_leave(h->workers);
    return is_left;
}

static void copy_values(const struct hogwild *h, float *values)
{
    for (size_t i = 0; i < h->values; i++) {
        values[i] = float_of(atomic_load_explicit(&h->shared[i], memory_order_relaxed));
    }
}

/* The arithmetic of UPDATE_SGD, on what the values are by now. */
static void apply(struct hogwild *h, const struct update *update, const float *gradient)
{
    for (size_t i = 0; i < h->values; i++) {
        _Atomic(uint32_t) *at = &h->shared[i];
        float value;

        if (bits_of(gradient[i]) == 0 && !(update->decay > 0.0F)) continue;
        value = float_of(atomic_load_explicit(at, memory_order_relaxed));
        value -= update->rate * (gradient[i] + update->decay * value);
        atomic_store_explicit(at, bits_of(value), memory_order_relaxed);
    }
}

static enum rc gradient_of(struct hogwild *h, struct lane *lane, struct model_profiler *profiler,
                           struct task_score *score)
{
    uint64_t begin = model_profiler_now(profiler);
    enum rc rc =
        model_forward(lane->model, lane->batch.values, lane->batch.rows, true, lane->logits);

    model_profiler_add(profiler, PROFILE_PASSES, begin);
    if (rc != RC_OK) return rc;
    begin = model_profiler_now(profiler);
    *score = task_loss(&lane->task, &lane->batch, lane->logits, lane->logits_gradient);
    model_profiler_add(profiler, PROFILE_LOSS, begin);
    if (!isfinite(score->loss)) return RC_NONFINITE;
    begin = model_profiler_now(profiler);
    rc = model_backward(lane->model, lane->logits_gradient);
    model_profiler_add(profiler, PROFILE_PASSES, begin);
    if (rc != RC_OK) return rc;
    return optimizer_clip(lane->backend, h->run->clip, model_plane(lane->model, SECTION_GRADIENT),
                          h->values);
}

static enum rc step(struct hogwild *h, struct lane *lane, uint32_t ticket,
                    struct model_profiler *profiler)
{
    const struct hogwild_run *run = h->run;
    double rate =
        run->optimizer->lr * run->rate_factor * schedule_factor(run->schedule, run->step + ticket);
    struct update update = optimizer_update(run->optimizer, rate, 1);
    struct task_score score = {0.0, 0, 0};
    uint64_t begin = model_profiler_now(profiler);
    enum rc rc;

    copy_values(h, model_plane(lane->model, SECTION_PARAMETERS));
    model_profiler_add(profiler, PROFILE_OPTIMIZER, begin);
    model_set_stream(lane->model, run->stream, h->passes + ticket);
    rc = gradient_of(h, lane, profiler, &score);
    if (rc != RC_OK) return rc;
    begin = model_profiler_now(profiler);
    apply(h, &update, model_plane(lane->model, SECTION_GRADIENT));
    model_profiler_add(profiler, PROFILE_OPTIMIZER, begin);
    model_profiler_step(profiler, 1);
    lane->done.steps++;
    lane->done.loss_sum += score.loss;
    lane->done.hits += score.hits;
    lane->done.count += score.count;
    return RC_OK;
}

static void take_steps(void *context, uint32_t number)
{
    struct hogwild *h = context;
    struct lane *lane = &h->lanes[number];
    struct model_profiler *profiler = number == 0 ? h->run->profiler : NULL;
    uint64_t begin = model_profiler_now(profiler);
    uint32_t ticket;

    lane->done = (struct hogwild_report){0};
    lane->rc = RC_OK;
    while (lane->rc == RC_OK && take_step(h, lane, &ticket)) {
        model_profiler_add(profiler, PROFILE_DATA, begin);
        lane->rc = step(h, lane, ticket, profiler);
        begin = model_profiler_now(profiler);
    }
    if (lane->rc != RC_OK) atomic_store(&h->has_failed, true);
}

enum rc hogwild_train(struct hogwild *hogwild, const struct hogwild_run *run,
                      struct hogwild_report *report)
{
    struct hogwild *h = hogwild;
    struct model *leader = h->lanes[0].model;
    float *values = model_plane(leader, SECTION_PARAMETERS);
    size_t buffers = model_schema(leader)->values[SECTION_BUFFERS];
    struct hogwild_report done = {0};
    enum rc rc = RC_OK;

    CHECK(run->optimizer->kind == UPDATE_SGD);
    h->run = run;
    h->taken = 0;
    h->passes = model_passes(leader);
    atomic_store(&h->has_failed, false);
    for (size_t i = 0; i < h->values; i++) {
        atomic_store_explicit(&h->shared[i], bits_of(values[i]), memory_order_relaxed);
    }
    for (uint32_t l = 1; buffers > 0 && l < h->lanes_count; l++) {
        memcpy(model_plane(h->lanes[l].model, SECTION_BUFFERS),
               model_plane(leader, SECTION_BUFFERS), buffers * sizeof(float));
    }
    workers_run(h->workers, take_steps, h);
    copy_values(h, values);
    model_set_stream(leader, run->stream, h->passes + h->taken);
    for (uint32_t l = 0; l < h->lanes_count; l++) {
        const struct lane *lane = &h->lanes[l];
        if (rc == RC_OK) rc = lane->rc;
        done.steps += lane->done.steps;
        done.loss_sum += lane->done.loss_sum;
        done.hits += lane->done.hits;
        done.count += lane->done.count;
    }
    if (rc == RC_OK) *report = done;
    return rc;
}
