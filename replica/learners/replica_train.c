/*
 * Steps of a replica: a batch from the shard, forward, loss, backward (several times where
 * gradients are accumulated), clipping, one fused update. The rate, and with `grow` the number of
 * batches, follow the shared step counter; Adam's bias correction counts this replica's own
 * updates. What is done with the gradient plane is done by all threads of the team, each on its
 * part. Thread: the training lane's.
 */
#include "replica/learners/replica_internal.h"

#include "base/check.h"

#include <math.h>

/* What becomes of the gradient of one of a step's batches. */
struct gathering {
    struct replica *r;
    uint32_t batch, batches; /* this one of how many */
    bool updates;            /* the parameters after the last */
    float share;             /* of this one in the step's gradient */
};

/* Batches of so many passes over the shard, one at least. */
static uint64_t batches_of(const struct replica *r, double epochs)
{
    double batches =
        ceil(epochs * (double)shard_samples(r->shard) / ((double)r->batch * (double)r->accumulate));

    return batches < 1.0 ? 1 : (uint64_t)batches;
}

enum rc replica_make_ready(struct replica *r)
{
    enum rc rc = shard_ensure(r->shard, NULL);

    if (rc != RC_OK || r->has_schedule) return rc;
    rc = schedule_parse_batches(r->schedule_text, batches_of(r, r->epochs_total), &r->schedule,
                                NULL);
    r->has_schedule = rc == RC_OK;
    return rc;
}

uint64_t replica_steps_of(const struct learner *learner, double epochs)
{
    const struct replica *r = (const struct replica *)learner;
    struct schedule schedule = r->schedule;

    if (!r->has_schedule && schedule_parse_batches(r->schedule_text, batches_of(r, r->epochs_total),
                                                   &schedule, NULL) != RC_OK) {
        return batches_of(r, epochs); /* the text was read before, so this does not happen */
    }
    return schedule_steps(&schedule, batches_of(r, epochs));
}

enum rc replica_forward(struct replica *r, bool is_training, struct task_score *score)
{
    const struct task_pass pass = {.team = r->team,
                                   .batch = &r->next,
                                   .is_training = is_training,
                                   .objective = r->objective,
                                   .logits = r->logits,
                                   .gradient = r->logits_gradient,
                                   .profiler = is_training ? r->profiler : NULL};

    return task_forward(&r->task, &pass, score);
}

/* Shorten this part of a gradient that is too long as a whole. Every thread comes here, and none
 * leaves with RC_OK before whole tensors are ready. */
static enum rc clip_part(struct replica *r, const struct team_part *part, float *gradient)
{
    const struct backend_ops *ops = part->backend->ops;
    size_t count = part->end - part->begin;
    double sums[2] = {0.0, 0.0}; /* squares, failures */
    enum rc rc = RC_OK;

    if (r->clip > 0.0) rc = ops->squared_norm(part->backend, gradient, count, &sums[0]);
    if (rc != RC_OK) sums[1] = 1.0;
    team_sum(r->team, part->lane, sums, 2);
    if (sums[1] > 0.0 || !(r->clip > 0.0) || sums[0] <= r->clip * r->clip) return rc;
    rc = ops->scale(part->backend, (float)(r->clip / sqrt(sums[0])), gradient, count);
    if (optimizer_is_layerwise(&r->optimizer)) team_sum(r->team, part->lane, sums, 2);
    return rc;
}

/* One optimizer step from the gradient plane: a thread's part of it. */
static enum rc update_part(void *context, const struct team_part *part)
{
    struct replica *r = context;
    float *gradient = model_plane(r->model, SECTION_GRADIENT);
    const struct optimizer_step step = {
        .gradient = gradient,
        .moments = model_plane(r->model, SECTION_MOMENTS),
        .values = model_plane(r->model, SECTION_PARAMETERS),
        .workspace = r->workspace,
        .factor = r->rate_factor * schedule_factor(&r->schedule, r->step),
        .count = r->updates + 1,
    };
    const struct optimizer_part mine = {part->backend, part->lane, part->lanes, part->begin,
                                        part->end};
    enum rc rc = RC_OK;

    /* Whole tensors need the parts of others. */
    if (r->clip > 0.0 || optimizer_is_layerwise(&r->optimizer)) {
        rc = clip_part(r, part, gradient + part->begin);
    }
    if (rc != RC_OK) return rc;
    return optimizer_step_part(&r->optimizer, model_schema(r->model), &step, &mine);
}

/* Each backward pass overwrites the gradient plane, so all but the last are summed up beside it. */
static enum rc gather_part(const struct gathering *gathering, const struct team_part *part)
{
    struct replica *r = gathering->r;
    const struct backend_ops *ops = part->backend->ops;
    size_t count = part->end - part->begin;
    float *gradient = model_plane(r->model, SECTION_GRADIENT) + part->begin;
    float *sum = r->accumulated + part->begin;
    enum rc rc = RC_OK;

    if (count == 0) return RC_OK;
    if (gathering->batch + 1 < gathering->batches) {
        if (gathering->batch == 0) rc = ops->zero(part->backend, sum, count * sizeof(float));
        return rc == RC_OK ? ops->axpy(part->backend, gathering->share, gradient, sum, count) : rc;
    }
    rc = ops->scale(part->backend, gathering->share, gradient, count);
    return rc == RC_OK ? ops->axpy(part->backend, 1.0F, sum, gradient, count) : rc;
}

static enum rc work_on_part(void *context, const struct team_part *part)
{
    const struct gathering *gathering = context;
    struct model_profiler *profiler = part->lane == 0 ? gathering->r->profiler : NULL;
    uint64_t begin = model_profiler_now(profiler);
    enum rc rc = gathering->batches > 1 ? gather_part(gathering, part) : RC_OK, rc_update = RC_OK;

    if (gathering->updates && gathering->batch + 1 == gathering->batches) {
        rc_update = update_part(gathering->r, part); /* also after an error: others wait in it */
    }
    model_profiler_add_inside(profiler, PROFILE_OPTIMIZER, begin);
    return rc == RC_OK ? rc_update : rc;
}

enum rc replica_pass(struct replica *r, team_work work, void *context, struct task_score *score)
{
    uint64_t begin = model_profiler_now(r->profiler);
    enum rc rc = replica_forward(r, true, score);

    model_profiler_add_pass(r->profiler, PASS_FORWARD, begin);
    if (rc != RC_OK) return rc;
    if (!isfinite(score->loss)) return RC_NONFINITE;
    begin = model_profiler_now(r->profiler);
    rc = team_backward(r->team, r->logits_gradient, work, context);
    model_profiler_add_pass(r->profiler, PASS_BACKWARD, begin);
    return rc;
}

/* The batch of other samples that a step has beside its own. Its rows are no predictions that are
 * counted. */
static enum rc run_beside(struct replica *r, struct gathering *gathering, double *loss)
{
    const struct task_objective *own = r->objective;
    struct task_score score = {0.0, 0, 0};
    uint64_t begin = model_profiler_now(r->profiler);
    enum rc rc = r->beside->fill(r->beside->context, &r->next);

    model_profiler_add(r->profiler, PROFILE_DATA, begin);
    if (rc != RC_OK) return rc;
    gathering->share = r->beside->weight;
    r->objective = r->beside->objective;
    rc = replica_pass(r, work_on_part, gathering, &score);
    r->objective = own;
    *loss += (double)r->beside->weight * score.loss;
    return rc;
}

static enum rc next_batch(struct replica *r)
{
    struct replica_given *given = r->given;

    if (given == NULL) return shard_batch(r->shard, &r->next);
    const struct pick pick = {given->order, given->taken, r->batch};
    given->taken += r->batch;
    return samples_gather(given->samples, dataset_info(r->dataset), pick, &r->next);
}

/* The mean gradient of the next batches into the gradient plane, and the step it makes if it
 * `updates`. */
static enum rc run_batches(struct replica *r, bool updates, struct task_score *score)
{
    const uint32_t batches = r->accumulate * schedule_batches(&r->schedule, r->step);
    const float share = (r->beside != NULL ? r->beside->own_weight : 1.0F) / (float)batches;
    struct gathering gathering = {r, 0, batches + (r->beside != NULL), updates, share};
    double sum = 0.0;

    for (; gathering.batch < batches; gathering.batch++) {
        struct task_score batch = {0.0, 0, 0};
        uint64_t begin = model_profiler_now(r->profiler);
        enum rc rc;

        rc = next_batch(r);
        model_profiler_add(r->profiler, PROFILE_DATA, begin);
        if (rc == RC_OK) rc = replica_pass(r, work_on_part, &gathering, &batch);
        if (rc != RC_OK) return rc;
        sum += batch.loss;
        score->hits += batch.hits;
        score->count += batch.count;
    }
    score->loss = sum / (double)batches;
    if (r->beside != NULL) {
        score->loss *= (double)r->beside->own_weight;
        const enum rc rc = run_beside(r, &gathering, &score->loss);
        if (rc != RC_OK) return rc;
    }
    r->samples_seen += (uint64_t)r->batch * batches;
    if (updates) {
        r->updates++;
        r->step++;
    }
    model_profiler_step(r->profiler, batches);
    return RC_OK;
}

static enum rc check_parameters(struct replica *r)
{
    bool is_finite = false;
    uint64_t begin = model_profiler_now(r->profiler);
    enum rc rc =
        r->backend->ops->is_finite(r->backend, model_values(r->model, SECTION_PARAMETERS),
                                   model_schema(r->model)->values[SECTION_PARAMETERS], &is_finite);

    model_profiler_add(r->profiler, PROFILE_CHECKS, begin);
    if (rc != RC_OK) return rc;
    return is_finite ? RC_OK : RC_NONFINITE;
}

/* The exponential mean takes in a step's result. */
static enum rc average_step(struct replica *r)
{
    const struct backend_ops *ops = r->backend->ops;
    const size_t count = model_schema(r->model)->values[SECTION_PARAMETERS];
    const float *now = model_values(r->model, SECTION_PARAMETERS);
    const double t = (double)r->averages;
    const double beta = fmin(r->ema, (1 + t) / (10 + t));
    enum rc rc;

    if (r->averaged == NULL) return RC_OK;
    if (r->averages++ == 0) return ops->copy(r->backend, r->averaged, now, count * sizeof *now);
    rc = ops->scale(r->backend, (float)beta, r->averaged, count);
    return rc == RC_OK ? ops->axpy(r->backend, (float)(1 - beta), now, r->averaged, count) : rc;
}

/* Where a step begins: what it changes before its end. */
struct border {
    uint64_t shard[SHARD_STATE_WORDS];
    uint64_t passes;
};

static size_t statistics_bytes(const struct replica *r)
{
    return model_schema(r->model)->values[SECTION_BUFFERS] * sizeof(float);
}

static enum rc remember(struct replica *r, struct border *border)
{
    shard_save(r->shard, border->shard);
    border->passes = model_passes(r->model);
    if (r->statistics == NULL) return RC_OK;
    return r->backend->ops->copy(r->backend, r->statistics, model_plane(r->model, SECTION_BUFFERS),
                                 statistics_bytes(r));
}

/* As if the step had not begun. */
static enum rc take_back(struct replica *r, const struct border *border)
{
    CHECK(shard_load(r->shard, border->shard)); /* this very shard wrote it */
    team_set_stream(r->team, r->stream_seed, border->passes);
    if (r->statistics == NULL) return RC_OK;
    return r->backend->ops->copy(r->backend, model_plane(r->model, SECTION_BUFFERS), r->statistics,
                                 statistics_bytes(r));
}

enum rc replica_host_steps(struct replica *r, uint32_t steps, const atomic_bool *stop,
                           struct train_report *done, struct task_score *total)
{
    while (done->steps < steps && (stop == NULL || !atomic_load(stop))) {
        struct task_score score = {0.0, 0, 0};
        struct border border;
        enum rc rc = remember(r, &border);

        if (rc != RC_OK) return rc;
        team_set_stop(r->team, stop);
        rc = run_batches(r, true, &score);
        team_set_stop(r->team, NULL);
        if (rc == RC_CANCELLED) return take_back(r, &border);
        if (rc == RC_OK) rc = average_step(r);
        if (rc != RC_OK) return rc;
        done->steps++;
        done->loss_sum += score.loss;
        total->hits += score.hits;
        total->count += score.count;
    }
    return RC_OK;
}

enum rc replica_train(struct learner *learner, uint32_t steps, const atomic_bool *stop,
                      struct train_report *report)
{
    struct replica *r = replica_of(learner);
    struct train_report done = {0};
    struct task_score total = {0.0, 0, 0};
    enum rc rc = RC_OK;

    backend_bind_thread(r->backend);
    if (steps > 0) rc = replica_make_ready(r);
    if (rc == RC_OK && steps > 0) rc = r->run(r, steps, stop, &done, &total);
    if (rc == RC_OK && done.steps > 0) rc = check_parameters(r);
    if (rc != RC_OK) return rc;
    done.step = r->step;
    done.samples = r->samples_seen;
    if (done.steps > 0) done.correct_share = task_accuracy(&r->task, total.hits, total.count);
    *report = done;
    return RC_OK;
}

enum rc replica_gradient(struct learner *learner, float *out, struct train_report *report)
{
    struct replica *r = replica_of(learner);
    size_t count = model_schema(r->model)->values[SECTION_PARAMETERS];
    struct task_score score = {0.0, 0, 0};
    enum rc rc;

    backend_bind_thread(r->backend);
    rc = replica_make_ready(r);
    if (rc == RC_OK) {
        rc = r->device != NULL ? replica_device_gradient(r, &score) : run_batches(r, false, &score);
    }
    if (rc == RC_OK) {
        rc = r->backend->ops->download(r->backend, out, model_plane(r->model, SECTION_GRADIENT),
                                       count * sizeof(float));
    }
    if (rc != RC_OK) return rc;
    *report =
        (struct train_report){.steps = 0,
                              .step = r->step,
                              .samples = r->samples_seen,
                              .loss_sum = score.loss,
                              .correct_share = task_accuracy(&r->task, score.hits, score.count)};
    return RC_OK;
}

enum rc replica_step(struct learner *learner, const float *gradient)
{
    struct replica *r = replica_of(learner);
    size_t count = model_schema(r->model)->values[SECTION_PARAMETERS];
    enum rc rc;

    backend_bind_thread(r->backend);
    rc = replica_make_ready(r);
    if (rc == RC_OK) {
        rc = r->backend->ops->upload(r->backend, model_plane(r->model, SECTION_GRADIENT), gradient,
                                     count * sizeof(float));
    }
    if (rc == RC_OK) {
        rc = r->device != NULL ? replica_device_update(r)
                               : team_each(r->team, count, update_part, r);
    }
    if (rc != RC_OK) return rc;
    r->updates++;
    r->step++;
    rc = average_step(r);
    return rc == RC_OK ? check_parameters(r) : rc;
}
