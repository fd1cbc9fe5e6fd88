/*
 * The learner of --hogwild: several threads of one peer take steps of plain SGD on the same
 * parameters without locks, each with batches of its own (Niu, Recht, Re, Wright 2011,
 * arXiv:1106.5730). A thread copies the shared values, computes a gradient there, and applies
 * x -= rate g value by value; what two write at the same time may be lost, never torn. One thread
 * is sequential SGD to the bit. Running statistics of batch normalisation are each thread's own;
 * those of the first are kept.
 *
 * The shared values are 32-bit atomics that hold the bits of floats, read and written in relaxed
 * order, which costs nothing on common processors: C leaves plain races of floats undefined. Each
 * thread's copy is a plane of its own, so that the model computes on memory that nobody else
 * writes. A value whose gradient is 0 is left alone: with sparse gradients threads seldom meet,
 * which is what the method lives on. Thread: the training lane's; the others are its own.
 */
#include "replica/learners/replica_internal.h"

#include "base/check.h"
#include "base/floats.h"
#include "base/mem.h"
#include "replica/learners/workers.h"

#include <math.h>
#include <string.h>

/* One thread with all it needs. */
struct lane {
    struct backend *backend; /* the first has the leader's */
    struct model *model;
    struct task task;
    struct batch batch;
    struct train_report done; /* steps and loss */
    struct task_score score;  /* hits and count */
    enum rc rc;
};

struct hogwild {
    struct replica
        replica; /* first: a learner is cast back to it; its model is the first thread's */
    struct learner_ops ops;
    struct workers *workers;
    struct lane *lanes;
    uint32_t lanes_count;
    size_t values; /* parameters */
    _Atomic(uint32_t) *shared;
    /* Of the stretch in hand: */
    const atomic_bool *stop; /* no new step once it is raised; NULL: nobody can */
    uint64_t passes;         /* of dropout, before it */
    uint32_t steps, taken;   /* of all threads together; begun, one thread at a time */
    atomic_bool has_failed;
};

static enum rc make_lane(struct hogwild *h, uint32_t number, const struct replica_options *options,
                         struct fault *why)
{
    struct replica *r = &h->replica;
    struct lane *lane = &h->lanes[number];
    const struct dataset_info *info = dataset_info(r->dataset);
    enum rc rc = RC_OK;

    lane->backend = r->backend;
    lane->model = r->model;
    if (number > 0) {
        struct model_options model = replica_model_options(r, options);
        lane->model = NULL;
        lane->backend = r->backend->ops->sibling(r->backend);
        if (lane->backend == NULL) return fault_set(why, RC_NOMEM, "--hogwild: out of memory");
        rc = model_create(lane->backend, &model, &lane->model, why);
    }
    if (rc == RC_OK) rc = task_init(&lane->task, info, lane->model, r->batch, why);
    if (rc != RC_OK) return rc;
    rc = batch_init(&lane->batch, info, r->batch);
    if (rc == RC_OK) return RC_OK;
    return fault_set(why, RC_NOMEM, "--hogwild %u: out of memory; use fewer threads",
                     options->hogwild);
}

static enum rc make_lanes(struct hogwild *h, const struct replica_options *options,
                          struct fault *why)
{
    enum rc rc = RC_OK;

    h->values = model_schema(h->replica.model)->values[SECTION_PARAMETERS];
    h->lanes = mem_array(options->hogwild, sizeof(*h->lanes));
    h->shared = mem_array(h->values, sizeof(*h->shared));
    if (h->lanes == NULL || h->shared == NULL ||
        workers_create(options->hogwild, &h->workers) != RC_OK) {
        return fault_set(why, RC_NOMEM, "--hogwild %u: no memory or no thread; use fewer",
                         options->hogwild);
    }
    for (uint32_t l = 0; rc == RC_OK && l < options->hogwild; l++) {
        h->lanes_count++;
        rc = make_lane(h, l, options, why);
    }
    return rc;
}

static void destroy(struct learner *learner)
{
    struct hogwild *h = (struct hogwild *)learner;

    workers_destroy(h->workers);
    for (uint32_t l = 0; l < h->lanes_count; l++) {
        struct lane *lane = &h->lanes[l];
        task_deinit(&lane->task);
        batch_deinit(&lane->batch);
        if (l == 0) continue;
        model_destroy(lane->model);
        backend_destroy(lane->backend);
    }
    mem_free(h->lanes);
    mem_free(h->shared);
    replica_ops.destroy(learner);
}

/* --- a step -------------------------------------------------------------------------------------
 */

/* The next step and its batch, unless there is none left. */
static bool take_step(struct hogwild *h, struct lane *lane, uint32_t *ticket)
{
    bool is_left;

    workers_enter(h->workers);
    is_left = h->taken < h->steps && !atomic_load(&h->has_failed) &&
              !(h->stop != NULL && atomic_load(h->stop));
    if (is_left) {
        lane->rc = shard_batch(h->replica.shard, &lane->batch);
        is_left = lane->rc == RC_OK;
        if (is_left) *ticket = h->taken++;
    }
    workers_leave(h->workers);
    return is_left;
}

static void copy_values(const struct hogwild *h, float *values)
{
    for (size_t i = 0; i < h->values; i++) {
        values[i] = float_of_bits(atomic_load_explicit(&h->shared[i], memory_order_relaxed));
    }
}

/* The arithmetic of UPDATE_SGD, on what the values are by now. */
static void apply(struct hogwild *h, const struct update *update, const float *gradient)
{
    for (size_t i = 0; i < h->values; i++) {
        _Atomic(uint32_t) *at = &h->shared[i];
        float value;

        if (float_bits(gradient[i]) == 0 && !(update->decay > 0.0F)) continue;
        value = float_of_bits(atomic_load_explicit(at, memory_order_relaxed));
        value -= update->rate * (gradient[i] + update->decay * value);
        atomic_store_explicit(at, float_bits(value), memory_order_relaxed);
    }
}

static enum rc gradient_of(struct hogwild *h, struct lane *lane, struct model_profiler *profiler,
                           struct task_score *score)
{
    uint64_t begin = model_profiler_now(profiler);
    enum rc rc = model_forward(lane->model, lane->batch.values, lane->batch.rows, true, NULL);

    model_profiler_add_pass(profiler, PASS_FORWARD, begin);
    if (rc != RC_OK) return rc;
    begin = model_profiler_now(profiler);
    *score = task_loss(&lane->task, &lane->batch, model_logits(lane->model),
                       model_logits_gradient(lane->model));
    model_profiler_add(profiler, PROFILE_LOSS, begin);
    if (!isfinite(score->loss)) return RC_NONFINITE;
    begin = model_profiler_now(profiler);
    rc = model_backward(lane->model, NULL);
    model_profiler_add_pass(profiler, PASS_BACKWARD, begin);
    if (rc != RC_OK) return rc;
    return optimizer_clip(lane->backend, h->replica.clip,
                          model_plane(lane->model, SECTION_GRADIENT), h->values);
}

static enum rc step(struct hogwild *h, struct lane *lane, uint32_t ticket,
                    struct model_profiler *profiler)
{
    const struct replica *r = &h->replica;
    double rate =
        r->optimizer.lr * r->rate_factor * schedule_factor(&r->schedule, r->step + ticket);
    struct update update = optimizer_update(&r->optimizer, rate, 1);
    struct task_score score = {0.0, 0, 0};
    uint64_t begin = model_profiler_now(profiler);
    enum rc rc;

    copy_values(h, model_plane(lane->model, SECTION_PARAMETERS));
    model_profiler_add(profiler, PROFILE_OPTIMIZER, begin);
    model_set_stream(lane->model, r->stream_seed, h->passes + ticket);
    rc = gradient_of(h, lane, profiler, &score);
    if (rc != RC_OK) return rc;
    begin = model_profiler_now(profiler);
    apply(h, &update, model_plane(lane->model, SECTION_GRADIENT));
    model_profiler_add(profiler, PROFILE_OPTIMIZER, begin);
    model_profiler_step(profiler, 1);
    lane->done.steps++;
    lane->done.loss_sum += score.loss;
    lane->score.hits += score.hits;
    lane->score.count += score.count;
    return RC_OK;
}

static void take_steps(void *context, uint32_t number)
{
    struct hogwild *h = context;
    struct lane *lane = &h->lanes[number];
    struct model_profiler *profiler = number == 0 ? h->replica.profiler : NULL;
    uint64_t begin = model_profiler_now(profiler);
    uint32_t ticket;

    lane->done = (struct train_report){0};
    lane->score = (struct task_score){0.0, 0, 0};
    lane->rc = RC_OK;
    while (lane->rc == RC_OK && take_step(h, lane, &ticket)) {
        model_profiler_add(profiler, PROFILE_DATA, begin);
        lane->rc = step(h, lane, ticket, profiler);
        begin = model_profiler_now(profiler);
    }
    if (lane->rc != RC_OK) atomic_store(&h->has_failed, true);
}

/* A barrier: the model has the parameters of all steps when it returns. */
static enum rc run(struct replica *r, uint32_t steps, const atomic_bool *stop,
                   struct train_report *done, struct task_score *total)
{
    struct hogwild *h = (struct hogwild *)r;
    float *values = model_plane(r->model, SECTION_PARAMETERS);
    size_t buffers = model_schema(r->model)->values[SECTION_BUFFERS];
    enum rc rc = RC_OK;

    h->stop = stop;
    h->steps = steps;
    h->taken = 0;
    h->passes = model_passes(r->model);
    atomic_store(&h->has_failed, false);
    for (size_t i = 0; i < h->values; i++) {
        atomic_store_explicit(&h->shared[i], float_bits(values[i]), memory_order_relaxed);
    }
    for (uint32_t l = 1; buffers > 0 && l < h->lanes_count; l++) {
        memcpy(model_plane(h->lanes[l].model, SECTION_BUFFERS),
               model_plane(r->model, SECTION_BUFFERS), buffers * sizeof(float));
    }
    workers_run(h->workers, take_steps, h);
    copy_values(h, values);
    model_set_stream(r->model, r->stream_seed, h->passes + h->taken);
    for (uint32_t l = 0; l < h->lanes_count; l++) {
        const struct lane *lane = &h->lanes[l];
        if (rc == RC_OK) rc = lane->rc;
        done->steps += lane->done.steps;
        done->loss_sum += lane->done.loss_sum;
        total->hits += lane->score.hits;
        total->count += lane->score.count;
    }
    if (rc != RC_OK) return rc;
    r->step += done->steps;
    r->updates += done->steps;
    r->samples_seen += (uint64_t)r->batch * done->steps;
    return RC_OK;
}

/* What goes together with --hogwild. */
static enum rc check(const struct replica *r, const struct replica_options *options,
                     struct fault *why)
{
    if (r->optimizer.kind != UPDATE_SGD) {
        return fault_set(why, RC_USAGE,
                         "--hogwild is for plain sgd, as other optimizers keep a state that "
                         "threads would have to share; add --optimizer sgd");
    }
    if (r->accumulate > 1 || r->schedule.kind == SCHEDULE_GROW) {
        return fault_set(why, RC_USAGE,
                         "--hogwild takes a step for each batch; leave --accumulate and "
                         "--schedule grow out");
    }
    if (options->hogwild <= WORKERS_MAX) return RC_OK;
    return fault_set(why, RC_USAGE, "--hogwild must be from 1 to %d", WORKERS_MAX);
}

enum rc replica_hogwild_create(struct backend *backend, const struct replica_options *options,
                               struct learner **learner, struct fault *why)
{
    uint32_t threads = options->threads > 0 ? options->threads : backend->threads;
    struct replica *r = NULL;
    struct hogwild *h;
    enum rc rc;

    if (!backend->is_host || backend->ops->sibling == NULL) {
        return fault_set(why, RC_UNSUPPORTED, "--hogwild needs --device cpu");
    }
    if (threads > 1) {
        return fault_set(why, RC_USAGE,
                         "--hogwild %u runs as many threads, one for each batch; leave --threads "
                         "out",
                         options->hogwild);
    }
    rc = replica_make(sizeof(*h), backend, options, &r, why);
    if (rc != RC_OK) return rc;
    h = (struct hogwild *)r;
    h->ops = replica_ops;
    h->ops.destroy = destroy;
    r->learner.ops = &h->ops;
    r->run = run;
    rc = check(r, options, why);
    if (rc == RC_OK) rc = make_lanes(h, options, why);
    if (rc == RC_OK)
        *learner = &r->learner;
    else
        destroy(&r->learner);
    return rc;
}
