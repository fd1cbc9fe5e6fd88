/*
 * Steps on devices whose memory is not the host's. The host only queues: a batch goes up, forward,
 * loss, backward and update follow, and the next step is queued while this one runs; the losses are
 * added up on the device and read when train() ends. A loss that is no number therefore shows at
 * the end of train() and not at its step; the caller rolls back either way.
 *
 * Several devices (backend->is_apart) each have their own planes and their part of the batch.
 * Gradients are summed up beside the backward pass, part by part, so that all take the same step
 * and stay equal to the bit; running statistics, which each device keeps of its own part, become
 * their mean when train() or gradient() ends (as the buffers of one replica they are read then).
 * Thread: the training lane's, and one for each further device inside of steps.
 */
#include "replica/learners/replica_internal.h"

#include "base/check.h"
#include "base/mem.h"
#include "replica/learners/workers.h"

#include <math.h>

/* One batch of a step on every device. */
struct device_step {
    struct replica *r;
    struct model_feed feed;  /* of the whole batch; its mean over all the step's batches */
    uint32_t batch, batches; /* this one of how many */
    bool updates;
};

static enum rc create_lane(void *context, const struct team_lane *lane)
{
    struct replica *r = context;
    const struct schema *schema = model_schema(lane->model);
    const struct backend_ops *ops = lane->backend->ops;
    size_t workspace = optimizer_workspace(&r->optimizer, schema);

    if (workspace > 0) {
        r->device->workspaces[lane->number] = ops->alloc(lane->backend, workspace * sizeof(float));
        if (r->device->workspaces[lane->number] == NULL) return RC_NOMEM;
    }
    if (lane->number == 0) return RC_OK; /* has its moments */
    return model_reserve_moments(lane->model, optimizer_planes(r->optimizer.kind));
}

enum rc replica_device_create(struct replica *r, struct fault *why)
{
    uint32_t devices = team_threads(r->team);
    const char *reason;
    enum rc rc = RC_NOMEM;

    r->device = mem_alloc(sizeof(*r->device));
    if (r->device != NULL) {
        r->device->workspaces = mem_array(devices, sizeof(*r->device->workspaces));
        if (r->device->workspaces != NULL) rc = team_run(r->team, devices, create_lane, r);
    }
    if (rc == RC_OK) return RC_OK;
    reason = team_why(r->team);
    return fault_set(why, rc, "cannot set up training: %s; try a smaller --batch or --model",
                     reason[0] == '\0' ? rc_text(rc) : reason);
}

static enum rc destroy_lane(void *context, const struct team_lane *lane)
{
    const struct replica_device *device = context;

    lane->backend->ops->free(lane->backend, device->workspaces[lane->number]);
    return RC_OK;
}

void replica_device_destroy(struct replica *r)
{
    struct replica_device *device = r->device;

    if (device == NULL) return;
    if (device->workspaces != NULL) {
        enum rc rc = team_run(r->team, team_threads(r->team), destroy_lane, device);
        CHECK(rc == RC_OK); /* releasing cannot fail */
    }
    for (int s = 0; s < SECTION_COUNT; s++) {
        r->backend->ops->free(r->backend, device->kept[s]);
    }
    mem_free(device->workspaces);
    mem_free(device);
    r->device = NULL;
}

/* The lane's samples of a batch. */
static struct model_feed part_of(const struct replica *r, const struct model_feed *whole,
                                 const struct team_lane *lane)
{
    size_t values = dataset_values(dataset_info(r->dataset)), rows = r->task.rows;
    struct model_feed mine = *whole;

    mine.batch = lane->samples;
    mine.input += lane->first * values;
    if (mine.labels != NULL) {
        mine.labels += lane->first * rows * r->task.heads;
    } else {
        mine.targets += lane->first * rows * r->task.outputs;
    }
    return mine;
}

/* Without samples a lane's gradient is 0. */
static enum rc pass_nothing(const struct team_lane *lane, const struct model_feed *mine)
{
    size_t bytes = model_schema(lane->model)->values[SECTION_GRADIENT] * sizeof(float);
    enum rc rc = RC_OK;

    if (!mine->adds) {
        rc = lane->backend->ops->zero(lane->backend, model_plane(lane->model, SECTION_GRADIENT),
                                      bytes);
    }
    return rc == RC_OK && mine->sums_up ? model_sum_up(lane->model) : rc;
}

/* The first pass of a step overwrites the gradient plane, the others add to it: each is a part of
 * the step's mean already. In the last one the lanes' gradients are summed up. */
static enum rc pass_lane(const struct device_step *step, const struct team_lane *lane)
{
    struct model_feed mine = part_of(step->r, &step->feed, lane);

    mine.adds = step->batch > 0;
    mine.sums_up = lane->lanes > 1 && step->batch + 1 == step->batches;
    if (lane->samples == 0) return pass_nothing(lane, &mine);
    return model_train_pass(lane->model, &mine);
}

static enum rc update_lane(const struct replica *r, const struct team_lane *lane)
{
    float *gradient = model_plane(lane->model, SECTION_GRADIENT);
    const struct schema *schema = model_schema(lane->model);
    const struct optimizer_step step = {
        .gradient = gradient,
        .moments = model_plane(lane->model, SECTION_MOMENTS),
        .values = model_plane(lane->model, SECTION_PARAMETERS),
        .workspace = r->device->workspaces[lane->number],
        .copies = model_copies(lane->model),
        .factor = r->rate_factor * schedule_factor(&r->schedule, r->step),
        .count = r->updates + 1,
    };
    enum rc rc = RC_OK;

    if (r->clip > 0.0) {
        rc = lane->backend->ops->clip(lane->backend, (float)r->clip, gradient,
                                      schema->values[SECTION_GRADIENT]);
    }
    if (rc == RC_OK) rc = optimizer_step(&r->optimizer, lane->backend, schema, &step);
    if (rc != RC_OK) return rc;
    model_copies_written(lane->model);
    return lane->backend->ops->pace(lane->backend);
}

/* A device that failed has not come to all the sums, for which the others would wait for ever. */
static enum rc agree(const struct device_step *step, const struct team_lane *lane, enum rc rc)
{
    double failures = rc == RC_OK ? 0.0 : 1.0;

    if (lane->lanes == 1) return rc;
    team_sum(step->r->team, lane->number, &failures, 1);
    if (failures == 0.0) return RC_OK;
    lane->backend->ops->all_reduce_abort(lane->backend);
    return rc == RC_OK ? RC_DEVICE : rc;
}

static enum rc run_lane(void *context, const struct team_lane *lane)
{
    const struct device_step *step = context;
    enum rc rc = pass_lane(step, lane);

    if (step->batch + 1 < step->batches) return rc;
    rc = agree(step, lane, rc);
    return rc == RC_OK && step->updates ? update_lane(step->r, lane) : rc;
}

static enum rc run_batches(struct replica *r, bool updates, struct task_score *total)
{
    struct device_step step = {.r = r, .updates = updates};
    uint64_t begin;
    enum rc rc = RC_OK;

    step.batches = r->accumulate * schedule_batches(&r->schedule, r->step);
    for (; rc == RC_OK && step.batch < step.batches; step.batch++) {
        begin = model_profiler_now(r->profiler);
        rc = shard_batch(r->shard, &r->next);
        model_profiler_add(r->profiler, PROFILE_DATA, begin);
        if (rc != RC_OK) break;
        task_feed(&r->task, &r->next, &step.feed);
        total->count += (uint64_t)r->next.rows * r->task.rows * r->task.heads;
        step.feed.counted *= step.batches;
        begin = model_profiler_now(r->profiler);
        rc = team_run(r->team, r->next.rows, run_lane, &step);
        model_profiler_add_pass(r->profiler, PASS_BOTH, begin);
    }
    if (rc != RC_OK) return rc;
    r->samples_seen += (uint64_t)r->batch * step.batches;
    model_profiler_step(r->profiler, step.batches);
    return RC_OK;
}

static enum rc take_lane(void *context, const struct team_lane *lane)
{
    struct loss_sums *sums = context;

    return model_take_sums(lane->model, &sums[lane->number]);
}

/* What the devices have added up since the last time; waits for them. */
static enum rc take_sums(struct replica *r, double *loss, struct task_score *total)
{
    struct loss_sums sums[WORKERS_MAX] = {{0.0, 0}};
    enum rc rc = team_run(r->team, team_threads(r->team), take_lane, sums);

    *loss = 0.0;
    for (uint32_t l = 0; rc == RC_OK && l < team_threads(r->team); l++) {
        *loss += sums[l].loss;
        total->hits += sums[l].hits;
    }
    return rc;
}

static enum rc take_finite_sums(struct replica *r, double *loss, struct task_score *total)
{
    enum rc rc = take_sums(r, loss, total);

    return rc == RC_OK && !isfinite(*loss) ? RC_NONFINITE : rc;
}

/* Of a batch to be judged. */
struct device_judgement {
    const struct replica *r;
    struct model_feed feed;
};

static enum rc judge_lane(void *context, const struct team_lane *lane)
{
    const struct device_judgement *judgement = context;
    const struct model_feed mine = part_of(judgement->r, &judgement->feed, lane);

    return lane->samples == 0 ? RC_OK : model_judge_pass(lane->model, &mine);
}

enum rc replica_device_judge(struct replica *r, struct task_score *score)
{
    struct device_judgement judgement = {.r = r};
    enum rc rc;

    *score = (struct task_score){.count = (uint64_t)r->next.rows * r->task.rows};
    task_feed(&r->task, &r->next, &judgement.feed);
    rc = team_run(r->team, r->next.rows, judge_lane, &judgement);
    return rc == RC_OK ? take_sums(r, &score->loss, score) : rc;
}

static enum rc average_statistics(void *context, const struct team_lane *lane)
{
    size_t count = model_schema(lane->model)->values[SECTION_BUFFERS];
    float *buffers = model_plane(lane->model, SECTION_BUFFERS);
    enum rc rc;

    (void)context;
    if (lane->lanes == 1 || count == 0) return RC_OK;
    rc = lane->backend->ops->all_reduce(lane->backend, buffers, count);
    if (rc != RC_OK) return rc;
    return lane->backend->ops->scale(lane->backend, 1.0F / (float)lane->lanes, buffers, count);
}

enum rc replica_device_steps(struct replica *r, uint32_t steps, const atomic_bool *stop,
                             struct train_report *done, struct task_score *total)
{
    enum rc rc = RC_OK;

    while (rc == RC_OK && done->steps < steps && (stop == NULL || !atomic_load(stop))) {
        rc = run_batches(r, true, total);
        if (rc != RC_OK) break;
        r->updates++;
        r->step++;
        done->steps++;
    }
    if (rc == RC_OK && done->steps > 0) rc = take_finite_sums(r, &done->loss_sum, total);
    if (rc != RC_OK) return rc;
    return team_run(r->team, team_threads(r->team), average_statistics, NULL);
}

enum rc replica_device_gradient(struct replica *r, struct task_score *score)
{
    enum rc rc = run_batches(r, false, score);

    if (rc == RC_OK) rc = take_finite_sums(r, &score->loss, score);
    if (rc != RC_OK) return rc;
    return team_run(r->team, team_threads(r->team), average_statistics, NULL);
}

static enum rc update_only(void *context, const struct team_lane *lane)
{
    return update_lane(context, lane);
}

enum rc replica_device_update(struct replica *r)
{
    enum rc rc = team_spread(r->team, SECTION_GRADIENT);

    return rc == RC_OK ? team_run(r->team, team_threads(r->team), update_only, r) : rc;
}
