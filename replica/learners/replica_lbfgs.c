/*
 * The learner of --optimizer lbfgs: a replica whose steps read its whole shard. The loss is the
 * mean over all samples and, with wd, half of wd |x|^2; its gradient is gathered batch by batch in
 * the order in which samples lie in memory, so that equal parameters give equal bits. Thread: the
 * training lane's.
 */
#include "replica/learners/replica_internal.h"

#include "base/check.h"
#include "replica/optimizer/lbfgs.h"

#include <math.h>
#include <string.h>

enum { FULL_SAMPLES_MAX = 1 << 20 };

struct replica_lbfgs {
    struct replica replica; /* first: a learner is cast back to it */
    struct learner_ops ops;
    struct lbfgs *lbfgs;
    float *gradient; /* of the loss over all samples */
};

static struct lbfgs *lbfgs_of(struct learner *learner)
{
    return ((struct replica_lbfgs *)learner)->lbfgs;
}

/* One evaluation; the last one's score stays. */
struct evaluating {
    struct replica *r;
    float *gradient; /* the sum */
    float weight;    /* of the batch in hand in the mean */
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
    float *sum = e->gradient + part->begin;
    size_t count = part->end - part->begin;
    enum rc rc = RC_OK;

    if (e->is_first) rc = ops->zero(part->backend, sum, count * sizeof(float));
    if (rc == RC_OK) rc = ops->axpy(part->backend, e->weight, gradient, sum, count);
    model_profiler_add_inside(profiler, PROFILE_OPTIMIZER, begin);
    return rc;
}

/* wd / 2 |x|^2 and its gradient. */
static enum rc add_decay(struct replica *r, float *gradient, double *loss)
{
    const struct backend_ops *ops = r->backend->ops;
    const float *values = model_plane(r->model, SECTION_PARAMETERS);
    size_t count = model_schema(r->model)->values[SECTION_PARAMETERS];
    double decay = r->optimizer.decay, squares = 0.0;
    enum rc rc;

    if (!(decay > 0.0)) return RC_OK;
    rc = ops->squared_norm(r->backend, values, count, &squares);
    *loss += 0.5 * decay * squares;
    return rc == RC_OK ? ops->axpy(r->backend, (float)decay, values, gradient, count) : rc;
}

static enum rc evaluate(void *context, double *loss)
{
    struct evaluating *e = context;
    struct replica *r = e->r;
    size_t total = (size_t)shard_samples(r->shard);
    struct task_score all = {0.0, 0, 0};

    model_profiler_add(r->profiler, PROFILE_OPTIMIZER, e->mark);
    e->is_first = true;
    for (size_t first = 0; first < total; first += r->batch) {
        uint32_t rows = total - first < r->batch ? (uint32_t)(total - first) : r->batch;
        uint64_t begin = model_profiler_now(r->profiler);
        struct task_score score = {0.0, 0, 0};
        enum rc rc;

        rc = shard_gather(r->shard, first, rows, &r->next);
        model_profiler_add(r->profiler, PROFILE_DATA, begin);
        if (rc != RC_OK) return rc;
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
    return add_decay(r, e->gradient, loss);
}

static enum rc run(struct replica *r, uint32_t steps, const atomic_bool *stop,
                   struct train_report *done, struct task_score *total)
{
    float *gradient = ((struct replica_lbfgs *)r)->gradient;

    while (done->steps < steps && (stop == NULL || !atomic_load(stop))) {
        struct evaluating e = {
            .r = r, .gradient = gradient, .mark = model_profiler_now(r->profiler)};
        struct lbfgs_problem problem = {
            .values = model_plane(r->model, SECTION_PARAMETERS),
            .gradient = gradient,
            .evaluate = evaluate,
            .context = &e,
        };
        struct lbfgs_report report;
        enum rc rc = lbfgs_step(lbfgs_of(&r->learner), &problem,
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

/* A step is more than one gradient. */
static enum rc no_gradient(struct learner *learner, float *out, struct train_report *report)
{
    (void)learner;
    (void)out;
    (void)report;
    return RC_UNSUPPORTED;
}

static enum rc no_step(struct learner *learner, const float *gradient)
{
    (void)learner;
    (void)gradient;
    return RC_UNSUPPORTED;
}

static enum rc import_section(struct learner *learner, enum section section,
                              const float *difference, size_t count)
{
    lbfgs_moved(lbfgs_of(learner));
    return replica_ops.import_section(learner, section, difference, count);
}

static enum rc assign_section(struct learner *learner, enum section section, const float *values,
                              size_t count)
{
    if (section == SECTION_PARAMETERS) lbfgs_forget(lbfgs_of(learner));
    return replica_ops.assign_section(learner, section, values, count);
}

static enum rc reshard(struct learner *learner, struct peer_id self, const struct peer_id *members,
                       size_t members_count, struct fault *why)
{
    const struct shard *shard = replica_of(learner)->shard;
    uint64_t before[SHARD_STATE_WORDS], after[SHARD_STATE_WORDS];
    enum rc rc;

    shard_save(shard, before);
    rc = replica_ops.reshard(learner, self, members, members_count, why);
    shard_save(shard, after);
    if (before[0] != after[0]) lbfgs_moved(lbfgs_of(learner)); /* other samples */
    return rc;
}

/* Each reads all samples. */
static uint64_t steps_in(double epochs)
{
    return epochs > 1.0 ? (uint64_t)ceil(epochs) : 1;
}

static uint64_t steps_of(const struct learner *learner, double epochs)
{
    (void)learner;
    return steps_in(epochs);
}

static enum rc save(struct learner *learner, struct tensor_file *file)
{
    enum rc rc = replica_ops.save(learner, file);

    return rc == RC_OK ? lbfgs_save(lbfgs_of(learner), file) : rc;
}

static enum rc load(struct learner *learner, const struct tensor_file *file, struct fault *why)
{
    enum rc rc = replica_ops.load(learner, file, why);

    return rc == RC_OK ? lbfgs_load(lbfgs_of(learner), file, why) : rc;
}

static void destroy(struct learner *learner)
{
    struct replica_lbfgs *l = (struct replica_lbfgs *)learner;

    lbfgs_destroy(l->lbfgs);
    l->replica.backend->ops->free(l->replica.backend, l->gradient);
    replica_ops.destroy(learner);
}

static void replace_operations(struct replica_lbfgs *l)
{
    l->ops = replica_ops;
    l->ops.destroy = destroy;
    l->ops.gradient = no_gradient;
    l->ops.step = no_step;
    l->ops.import_section = import_section;
    l->ops.assign_section = assign_section;
    l->ops.reshard = reshard;
    l->ops.steps_of = steps_of;
    l->ops.rates = NULL; /* its line search finds its own */
    l->ops.set_rates = NULL;
    l->ops.validate = NULL;
    l->ops.save = save;
    l->ops.load = load;
    l->replica.learner.ops = &l->ops;
    l->replica.run = run;
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
    if (samples <= FULL_SAMPLES_MAX) return RC_OK;
    return fault_set(why, RC_LIMIT,
                     "--optimizer lbfgs reads all data for each step, and %llu samples are more "
                     "than %d; use another optimizer",
                     (unsigned long long)samples, FULL_SAMPLES_MAX);
}

enum rc replica_lbfgs_create(struct backend *backend, const struct replica_options *options,
                             struct learner **learner, struct fault *why)
{
    struct replica_options mine = *options;
    struct replica *r = NULL;
    struct replica_lbfgs *l;
    enum rc rc;

    if (!backend->is_host) {
        return fault_set(why, RC_USAGE, "--optimizer lbfgs runs on the CPU; add --device cpu");
    }
    if (mine.steps_total == 0 && mine.epochs_total > 0.0) {
        mine.steps_total = steps_in(mine.epochs_total);
    }
    rc = replica_make(sizeof(*l), backend, &mine, &r, why);
    if (rc != RC_OK) return rc;
    l = (struct replica_lbfgs *)r;
    replace_operations(l);
    rc = check(r, options, why);
    if (rc == RC_OK) {
        const size_t count = model_schema(r->model)->values[SECTION_PARAMETERS];
        const struct lbfgs_options lbfgs = {(uint32_t)r->optimizer.history,
                                            (uint32_t)r->optimizer.tries};
        rc = lbfgs_create(&lbfgs, count, &l->lbfgs, why);
        l->gradient = backend->ops->alloc(backend, count * sizeof(float));
        if (rc == RC_OK && l->gradient == NULL) {
            rc = fault_set(why, RC_NOMEM, "cannot set up training: out of memory");
        }
    }
    if (rc == RC_OK)
        *learner = &r->learner;
    else
        destroy(&r->learner);
    return rc;
}
