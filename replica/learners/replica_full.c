/*
 * Steps of a replica that read its whole share: L-BFGS. The loss is the mean over all samples and,
 * with wd, half of wd |x|^2; its gradient is gathered batch by batch in the order in which samples
 * lie in memory, so that equal parameters give equal bits. Thread: the training lane's.
 */
#include "replica/learners/replica_internal.h"

#include "base/check.h"

#include <math.h>
#include <string.h>

enum { FULL_SAMPLES_MAX = 1 << 20 };

/* One evaluation; the last one's score stays. */
struct evaluating {
    struct replica *r;
    float weight; /* of the batch in hand in the mean */
    bool is_first;
    struct task_score score;
    uint32_t batches;
    uint64_t mark; /* when the method itself went on, for the profile */
};

static enum rc gather_part(void *context, const struct team_part *part)
{
    const struct evaluating *e = context;
    struct model_profiler *profiler = part->lane == 0 ? e->r->profiler : NULL;
    const struct backend_ops *ops = part->backend->ops;
    uint64_t begin = model_profiler_now(profiler);
    const float *gradient = model_plane(e->r->model, SECTION_GRADIENT) + part->begin;
    float *sum = e->r->accumulated + part->begin;
    size_t count = part->end - part->begin;
    enum rc rc = RC_OK;

    if (e->is_first) rc = ops->zero(part->backend, sum, count * sizeof(float));
    if (rc == RC_OK) rc = ops->axpy(part->backend, e->weight, gradient, sum, count);
    model_profiler_add_inside(profiler, PROFILE_OPTIMIZER, begin);
    return rc;
}

/* wd / 2 |x|^2 and its gradient. */
static enum rc add_decay(struct replica *r, double *loss)
{
    const struct backend_ops *ops = r->backend->ops;
    const float *values = model_plane(r->model, SECTION_PARAMETERS);
    size_t count = model_schema(r->model)->values[SECTION_PARAMETERS];
    double decay = r->optimizer.decay, squares = 0.0;
    enum rc rc;

    if (!(decay > 0.0)) return RC_OK;
    rc = ops->squared_norm(r->backend, values, count, &squares);
    *loss += 0.5 * decay * squares;
    return rc == RC_OK ? ops->axpy(r->backend, (float)decay, values, r->accumulated, count) : rc;
}

static enum rc evaluate(void *context, double *loss)
{
    struct evaluating *e = context;
    struct replica *r = e->r;
    size_t total = (size_t)share_samples(r->share);
    struct task_score all = {0.0, 0, 0};

    model_profiler_add(r->profiler, PROFILE_OPTIMIZER, e->mark);
    e->is_first = true;
    for (size_t first = 0; first < total; first += r->batch) {
        uint32_t rows = total - first < r->batch ? (uint32_t)(total - first) : r->batch;
        uint64_t begin = model_profiler_now(r->profiler);
        struct task_score score = {0.0, 0, 0};
        enum rc rc;

        share_gather(r->share, first, rows, &r->next);
        model_profiler_add(r->profiler, PROFILE_DATA, begin);
        e->weight = (float)((double)rows / (double)total);
        rc = replica_pass(r, gather_part, e, &score);
        if (rc != RC_OK) return rc;
        e->is_first = false;
        e->batches++;
        all.loss += score.loss * (double)rows / (double)total;
        all.hits += score.hits;
        all.count += score.count;
    }
    r->samples_seen += total;
    e->score = all;
    e->mark = model_profiler_now(r->profiler);
    *loss = all.loss;
    return add_decay(r, loss);
}

enum rc replica_run_full(struct replica *r, uint32_t steps, const atomic_bool *stop,
                         struct train_report *done, struct task_score *total)
{
    while (done->steps < steps && (stop == NULL || !atomic_load(stop))) {
        struct evaluating e = {.r = r, .mark = model_profiler_now(r->profiler)};
        struct lbfgs_problem problem = {
            .values = model_plane(r->model, SECTION_PARAMETERS),
            .gradient = r->accumulated,
            .evaluate = evaluate,
            .context = &e,
        };
        struct lbfgs_report report;
        enum rc rc = lbfgs_step(r->lbfgs, &problem,
                                r->optimizer.lr * schedule_factor(&r->schedule, r->step), &report);

        if (rc != RC_OK) return rc;
        model_profiler_add(r->profiler, PROFILE_OPTIMIZER, e.mark);
        r->step++;
        r->updates++;
        model_profiler_step(r->profiler, e.batches);
        done->steps++;
        done->loss_sum += report.after;
        total->hits += e.score.hits;
        total->count += e.score.count;
    }
    return RC_OK;
}

static bool has_dropout(const struct model *model)
{
    for (uint32_t i = 0; i < model_stages(model); i++) {
        struct model_stage stage;
        model_stage(model, i, &stage);
        if (strncmp(stage.layer, "dropout", strlen("dropout")) == 0) return true;
    }
    return false;
}

static enum rc check(const struct replica *r, const struct replica_options *options,
                     struct fault *why)
{
    const char *augment = options->augment;
    uint64_t samples = dataset_info(r->dataset)->train_samples;

    if (r->accumulate > 1 || r->clip > 0.0 || r->schedule.kind == SCHEDULE_GROW) {
        return fault_set(why, RC_USAGE,
                         "--optimizer lbfgs reads all data for each step and chooses its length; "
                         "leave --accumulate, --clip and --schedule grow out");
    }
    if (has_dropout(r->model) || (augment != NULL && augment[0] != '\0')) {
        return fault_set(why, RC_USAGE,
                         "--optimizer lbfgs needs a loss that is the same each time; leave "
                         "dropout and --augment out");
    }
    if (!r->backend->is_host) {
        return fault_set(why, RC_UNSUPPORTED, "--optimizer lbfgs needs --device cpu");
    }
    if (samples <= FULL_SAMPLES_MAX) return RC_OK;
    return fault_set(why, RC_LIMIT,
                     "--optimizer lbfgs reads all data for each step, and %llu samples are more "
                     "than %d; use another optimizer",
                     (unsigned long long)samples, FULL_SAMPLES_MAX);
}

enum rc replica_full_create(struct replica *r, const struct replica_options *options,
                            struct fault *why)
{
    const struct lbfgs_options lbfgs = {(uint32_t)r->optimizer.history,
                                        (uint32_t)r->optimizer.tries};
    enum rc rc = check(r, options, why);

    if (rc != RC_OK) return rc;
    return lbfgs_create(&lbfgs, model_schema(r->model)->values[SECTION_PARAMETERS], &r->lbfgs, why);
}
