/*
 * The real learner. A step: a batch from the share, forward, loss, backward (several times where
 * gradients are accumulated), clipping, one fused update. The rate follows the shared step counter;
 * Adam's bias correction counts this replica's own updates. Thread: the training lane's.
 */
#include "replica/replica.h"

#include "base/check.h"
#include "base/mem.h"
#include "kernels/backend.h"
#include "replica/dataset.h"
#include "replica/layers.h"
#include "replica/mixture.h"
#include "replica/optimizer.h"
#include "replica/schedule.h"
#include "replica/share.h"
#include "replica/store_safetensors.h"
#include "replica/task.h"
#include "replica/team.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TEST_SAMPLES_KEPT = 1000 };

/* Words of "replica.state". */
enum state_word {
    STATE_STEP,
    STATE_UPDATES,
    STATE_SAMPLES,
    STATE_SCHEDULE,
    STATE_PASSES,
    STATE_SHARE
};
enum { STATE_WORDS = STATE_SHARE + SHARE_STATE_WORDS };

struct replica {
    struct learner learner; /* first: a learner is cast back to its replica */
    struct backend *backend;
    struct dataset *dataset;
    struct share *share;
    struct team *team;
    struct model *model; /* the team's */
    struct task task;
    struct optimizer optimizer;
    struct schedule schedule;
    char schedule_text[128];
    char data[256];
    double epochs_total;
    double clip;
    uint32_t accumulate;
    uint64_t stream_seed; /* of dropout, too */
    float *accumulated;   /* sum of a step's earlier gradients; NULL without accumulation */
    float *workspace;     /* the optimizer's, on the backend */
    bool has_schedule;    /* false: its end follows from the share, once that is known */
    uint32_t batch;
    uint64_t step, updates, samples_seen;
    struct samples test;             /* the first of the test part, kept */
    struct batch next;               /* on the host */
    float *input;                    /* its values on the backend; NULL: they are there already */
    float *logits, *logits_gradient; /* [batch][classes], host */
};

static struct replica *replica_of(struct learner *learner)
{
    return (struct replica *)learner;
}

static void replica_destroy(struct learner *learner)
{
    struct replica *r = replica_of(learner);

    if (r == NULL) return;
    team_destroy(r->team);
    task_deinit(&r->task);
    r->backend->ops->free(r->backend, r->input);
    r->backend->ops->free(r->backend, r->accumulated);
    r->backend->ops->free(r->backend, r->workspace);
    mem_free(r->logits);
    mem_free(r->logits_gradient);
    batch_deinit(&r->next);
    samples_deinit(&r->test);
    share_destroy(r->share);
    dataset_close(r->dataset);
    mem_free(r);
}

static const struct schema *replica_schema(const struct learner *learner)
{
    return model_schema(((const struct replica *)learner)->model);
}

static double step_samples(const struct replica *r)
{
    return (double)r->batch * (double)r->accumulate;
}

/* Everything a step needs is there; the schedule's end, too. */
static enum rc make_ready(struct replica *r)
{
    enum rc rc = share_ensure(r->share, NULL);
    double steps;

    if (rc != RC_OK || r->has_schedule) return rc;
    steps = ceil(r->epochs_total * (double)share_samples(r->share) / step_samples(r));
    rc = schedule_parse(r->schedule_text, steps < 1.0 ? 1 : (uint64_t)steps, &r->schedule, NULL);
    r->has_schedule = rc == RC_OK;
    return rc;
}

/* Logits of the batch in `next`. */
static enum rc forward(struct replica *r, bool is_training)
{
    const struct batch *batch = &r->next;
    size_t values = batch->rows * dataset_values(dataset_info(r->dataset));
    const float *input = r->input != NULL ? r->input : batch->values;
    enum rc rc = RC_OK;

    if (r->input != NULL) {
        rc = r->backend->ops->upload(r->backend, r->input, batch->values, values * sizeof(float));
    }
    return rc == RC_OK ? team_forward(r->team, input, batch->rows, is_training, r->logits) : rc;
}

/* The gradient of one batch into the gradient plane. */
static enum rc batch_gradient(struct replica *r, struct task_score *score)
{
    enum rc rc;

    share_batch(r->share, &r->next);
    rc = forward(r, true);
    if (rc != RC_OK) return rc;
    *score = task_loss(&r->task, &r->next, r->logits, r->logits_gradient);
    if (!isfinite(score->loss)) return RC_NONFINITE;
    return team_backward(r->team, r->logits_gradient);
}

/* The mean gradient of the next `accumulate` batches into the gradient plane: all but the last are
 * summed up beside it, as each backward pass overwrites it. */
static enum rc next_gradient(struct replica *r, struct task_score *score)
{
    const struct backend_ops *ops = r->backend->ops;
    float *gradient = model_plane(r->model, SECTION_GRADIENT);
    size_t count = model_schema(r->model)->values[SECTION_GRADIENT];
    float share = 1.0F / (float)r->accumulate;
    double sum = 0.0;
    enum rc rc = RC_OK;

    if (r->accumulate > 1) rc = ops->zero(r->backend, r->accumulated, count * sizeof(float));
    for (uint32_t i = 0; rc == RC_OK && i < r->accumulate; i++) {
        struct task_score batch = {0.0, 0, 0};
        rc = batch_gradient(r, &batch);
        sum += batch.loss;
        score->hits += batch.hits;
        score->count += batch.count;
        if (rc == RC_OK && i + 1 < r->accumulate) {
            rc = ops->axpy(r->backend, share, gradient, r->accumulated, count);
        }
    }
    if (rc != RC_OK) return rc;
    score->loss = sum / (double)r->accumulate;
    if (r->accumulate == 1) return RC_OK;
    rc = ops->scale(r->backend, share, gradient, count);
    return rc == RC_OK ? ops->axpy(r->backend, 1.0F, r->accumulated, gradient, count) : rc;
}

/* One optimizer step from the gradient plane. */
static enum rc apply_gradient(struct replica *r)
{
    const struct schema *schema = model_schema(r->model);
    const struct optimizer_step step = {
        .gradient = model_plane(r->model, SECTION_GRADIENT),
        .moments = model_plane(r->model, SECTION_MOMENTS),
        .values = model_plane(r->model, SECTION_PARAMETERS),
        .workspace = r->workspace,
        .factor = schedule_factor(&r->schedule, r->step),
        .count = r->updates + 1,
    };
    enum rc rc = optimizer_clip(r->backend, r->clip, model_plane(r->model, SECTION_GRADIENT),
                                schema->values[SECTION_GRADIENT]);

    if (rc == RC_OK) rc = optimizer_step(&r->optimizer, r->backend, schema, &step);
    if (rc != RC_OK) return rc;
    r->updates++;
    r->step++;
    return RC_OK;
}

static enum rc check_parameters(struct replica *r)
{
    bool is_finite = false;
    enum rc rc =
        r->backend->ops->is_finite(r->backend, model_plane(r->model, SECTION_PARAMETERS),
                                   model_schema(r->model)->values[SECTION_PARAMETERS], &is_finite);

    if (rc != RC_OK) return rc;
    return is_finite ? RC_OK : RC_NONFINITE;
}

static enum rc replica_train(struct learner *learner, uint32_t steps, const atomic_bool *stop,
                             struct train_report *report)
{
    struct replica *r = replica_of(learner);
    struct train_report done = {0};
    uint64_t hits = 0, count = 0;
    enum rc rc = RC_OK;

    backend_bind_thread(r->backend);
    if (steps > 0) rc = make_ready(r);
    while (rc == RC_OK && done.steps < steps) {
        struct task_score score = {0.0, 0, 0};
        if (stop != NULL && atomic_load(stop)) break;
        rc = next_gradient(r, &score);
        if (rc == RC_OK) rc = apply_gradient(r);
        if (rc != RC_OK) break;
        r->samples_seen += (uint64_t)r->batch * r->accumulate;
        done.steps++;
        done.loss_sum += score.loss;
        hits += score.hits;
        count += score.count;
    }
    if (rc == RC_OK && done.steps > 0) rc = check_parameters(r);
    if (rc != RC_OK) return rc;
    done.step = r->step;
    done.samples = r->samples_seen;
    if (done.steps > 0) done.correct_share = task_accuracy(&r->task, hits, count);
    *report = done;
    return RC_OK;
}

static enum rc replica_gradient(struct learner *learner, float *out, struct train_report *report)
{
    struct replica *r = replica_of(learner);
    size_t count = model_schema(r->model)->values[SECTION_PARAMETERS];
    struct task_score score = {0.0, 0, 0};
    enum rc rc;

    backend_bind_thread(r->backend);
    rc = make_ready(r);
    if (rc == RC_OK) rc = next_gradient(r, &score);
    if (rc == RC_OK) {
        rc = r->backend->ops->download(r->backend, out, model_plane(r->model, SECTION_GRADIENT),
                                       count * sizeof(float));
    }
    if (rc != RC_OK) return rc;
    r->samples_seen += (uint64_t)r->batch * r->accumulate;
    *report =
        (struct train_report){.steps = 0,
                              .step = r->step,
                              .samples = r->samples_seen,
                              .loss_sum = score.loss,
                              .correct_share = task_accuracy(&r->task, score.hits, score.count)};
    return RC_OK;
}

static enum rc replica_step(struct learner *learner, const float *gradient)
{
    struct replica *r = replica_of(learner);
    size_t count = model_schema(r->model)->values[SECTION_PARAMETERS];
    enum rc rc;

    backend_bind_thread(r->backend);
    rc = make_ready(r);
    if (rc == RC_OK) {
        rc = r->backend->ops->upload(r->backend, model_plane(r->model, SECTION_GRADIENT), gradient,
                                     count * sizeof(float));
    }
    if (rc == RC_OK) rc = apply_gradient(r);
    return rc == RC_OK ? check_parameters(r) : rc;
}

/* What rounds mix: parameters, then buffers as replica/mixture.h has them. */
static enum rc export_mixed(struct replica *r, float *out)
{
    const struct schema *schema = model_schema(r->model);
    const struct backend_ops *ops = r->backend->ops;
    size_t values = schema->values[SECTION_PARAMETERS], buffers = schema->values[SECTION_BUFFERS];
    enum rc rc = ops->download(r->backend, out, model_plane(r->model, SECTION_PARAMETERS),
                               values * sizeof(float));

    if (rc != RC_OK || buffers == 0) return rc;
    rc = ops->download(r->backend, out + values, model_plane(r->model, SECTION_BUFFERS),
                       buffers * sizeof(float));
    if (rc == RC_OK) mixture_fill(schema, out);
    return rc;
}

static enum rc import_mixed(struct replica *r, const float *difference)
{
    const struct schema *schema = model_schema(r->model);
    const struct backend_ops *ops = r->backend->ops;
    size_t values = schema->values[SECTION_PARAMETERS];
    size_t bytes = schema->values[SECTION_BUFFERS] * sizeof(float);
    float *live = model_plane(r->model, SECTION_BUFFERS), *buffers = NULL;
    enum rc rc = RC_OK;

    if (bytes > 0) {
        buffers = mem_aligned(bytes);
        rc = buffers != NULL ? ops->download(r->backend, buffers, live, bytes) : RC_NOMEM;
    }
    if (rc == RC_OK && bytes > 0) {
        mixture_apply(schema, difference, buffers);
        rc = ops->upload(r->backend, live, buffers, bytes);
    }
    mem_free(buffers);
    if (rc != RC_OK) return rc;
    return ops->axpy(r->backend, 1.0F, difference, model_plane(r->model, SECTION_PARAMETERS),
                     values);
}

static float *section_of(struct replica *r, enum section section, size_t count)
{
    CHECK(section < SECTION_MIXED && count == model_schema(r->model)->values[section]);
    return model_plane(r->model, section);
}

static enum rc replica_export(struct learner *learner, enum section section, float *out,
                              size_t count)
{
    struct replica *r = replica_of(learner);
    const float *plane;

    if (section == SECTION_MIXED) {
        CHECK(count == model_schema(r->model)->values[SECTION_MIXED]);
        return export_mixed(r, out);
    }
    plane = section_of(r, section, count);
    if (count == 0) return RC_OK;
    return r->backend->ops->download(r->backend, out, plane, count * sizeof(float));
}

static enum rc replica_import(struct learner *learner, enum section section,
                              const float *difference, size_t count)
{
    struct replica *r = replica_of(learner);
    float *plane;

    if (section == SECTION_MIXED) {
        CHECK(count == model_schema(r->model)->values[SECTION_MIXED]);
        return import_mixed(r, difference);
    }
    plane = section_of(r, section, count);
    if (count == 0) return RC_OK;
    return r->backend->ops->axpy(r->backend, 1.0F, difference, plane, count);
}

static enum rc replica_assign(struct learner *learner, enum section section, const float *values,
                              size_t count)
{
    struct replica *r = replica_of(learner);
    float *plane = section_of(r, section, count);

    if (count == 0) return RC_OK;
    return r->backend->ops->upload(r->backend, plane, values, count * sizeof(float));
}

static void replica_set_step(struct learner *learner, uint64_t step)
{
    replica_of(learner)->step = step;
}

static enum rc replica_reshard(struct learner *learner, struct peer_id self,
                               const struct peer_id *members, size_t members_count,
                               struct fault *why)
{
    return share_reshard(replica_of(learner)->share, self, members, members_count, why);
}

static uint64_t replica_shard_samples(const struct learner *learner)
{
    return share_samples(((const struct replica *)learner)->share);
}

/* Loss and hits over `count` samples, batch by batch. */
static enum rc score(struct replica *r, const struct samples *samples, size_t count,
                     struct evaluation *evaluation)
{
    const struct dataset_info *info = dataset_info(r->dataset);
    double loss = 0.0;
    uint64_t hits = 0, predictions = 0;

    for (size_t i = 0; i < count; i += r->batch) {
        uint32_t rows = count - i < r->batch ? (uint32_t)(count - i) : r->batch;
        struct task_score batch;
        enum rc rc;

        samples_gather(samples, info, (struct pick){NULL, i, rows}, &r->next);
        rc = forward(r, false);
        if (rc != RC_OK) return rc;
        batch = task_judge(&r->task, &r->next, r->logits);
        loss += batch.loss * (double)batch.count;
        hits += batch.hits;
        predictions += batch.count;
    }
    *evaluation = (struct evaluation){.samples = count,
                                      .loss = loss / (double)predictions,
                                      .accuracy = task_accuracy(&r->task, hits, predictions)};
    return RC_OK;
}

/* A thousand samples stay in memory; more are loaded for the occasion. */
static enum rc replica_evaluate(struct learner *learner, uint64_t samples_max,
                                struct evaluation *evaluation)
{
    struct replica *r = replica_of(learner);
    uint64_t there = dataset_info(r->dataset)->test_samples;
    uint64_t count = samples_max == 0 || samples_max > there ? there : samples_max;
    struct samples more = {0};
    enum rc rc = RC_OK;

    if (count == 0) return RC_NOT_FOUND;
    backend_bind_thread(r->backend);
    if (count > TEST_SAMPLES_KEPT) {
        rc = dataset_load_test(r->dataset, count, &more, NULL);
        if (rc == RC_OK) rc = score(r, &more, count, evaluation);
        samples_deinit(&more);
        return rc;
    }
    if (r->test.count < count) rc = dataset_load_test(r->dataset, count, &r->test, NULL);
    return rc == RC_OK ? score(r, &r->test, count, evaluation) : rc;
}

static enum rc replica_save(struct learner *learner, struct tensor_file *file)
{
    struct replica *r = replica_of(learner);
    size_t count = model_schema(r->model)->values[SECTION_MOMENTS];
    uint64_t words[STATE_WORDS] = {
        [STATE_STEP] = r->step,
        [STATE_UPDATES] = r->updates,
        [STATE_SAMPLES] = r->samples_seen,
        [STATE_SCHEDULE] = r->has_schedule ? r->schedule.steps_total : 0,
        [STATE_PASSES] = model_passes(r->model),
    };
    enum rc rc = tensor_file_set(file, "optimizer", optimizer_name(r->optimizer.kind));

    share_save(r->share, words + STATE_SHARE);
    if (rc == RC_OK) rc = tensor_file_add_u64_copy(file, "replica.state", words, STATE_WORDS);
    if (rc != RC_OK || count == 0) return rc;
    return tensor_file_add_f32(file, "replica.moments", model_plane(r->model, SECTION_MOMENTS),
                               count);
}

/* The moments entry, or RC_* and why it cannot be used. */
static enum rc find_moments(struct replica *r, const struct tensor_file *file,
                            const struct tensor_view **moments, struct fault *why)
{
    size_t count = model_schema(r->model)->values[SECTION_MOMENTS];
    const char *optimizer = tensor_file_get(file, "optimizer");
    bool is_finite = true;
    enum rc rc = RC_OK;

    *moments = tensor_file_find(file, "replica.moments");
    if (optimizer == NULL || strcmp(optimizer, optimizer_name(r->optimizer.kind)) != 0) {
        return fault_set(why, RC_MISMATCH, "the checkpoint was written with --optimizer %s, not %s",
                         optimizer == NULL ? "unknown" : optimizer,
                         optimizer_name(r->optimizer.kind));
    }
    if (count == 0) return RC_OK;
    if (*moments == NULL || strcmp((*moments)->dtype, "F32") != 0 ||
        (*moments)->bytes_count != count * sizeof(float)) {
        return fault_set(why, RC_SHAPE, "the checkpoint's optimizer state is of another model");
    }
    for (size_t i = 0; is_finite && i < count; i++) {
        float value;
        memcpy(&value, (const uint8_t *)(*moments)->bytes + i * sizeof(value), sizeof(value));
        is_finite = isfinite(value);
    }
    if (!is_finite) rc = RC_NONFINITE;
    return rc == RC_OK ? rc : fault_set(why, rc, "the checkpoint's optimizer state holds a NaN");
}

static enum rc replica_load(struct learner *learner, const struct tensor_file *file,
                            struct fault *why)
{
    struct replica *r = replica_of(learner);
    const struct tensor_view *state = tensor_file_find(file, "replica.state"), *moments = NULL;
    size_t count = model_schema(r->model)->values[SECTION_MOMENTS];
    struct schedule schedule = r->schedule;
    uint64_t words[STATE_WORDS];
    enum rc rc;

    if (state == NULL || strcmp(state->dtype, "U64") != 0 || state->bytes_count != sizeof(words)) {
        return fault_set(why, RC_FORMAT, "the checkpoint holds no training state of this program");
    }
    memcpy(words, state->bytes, sizeof(words));
    rc = find_moments(r, file, &moments, why);
    if (rc != RC_OK) return rc;
    if (!r->has_schedule && words[STATE_SCHEDULE] > 0) {
        rc = schedule_parse(r->schedule_text, words[STATE_SCHEDULE], &schedule, why);
        if (rc != RC_OK) return rc;
    }
    if (!share_load(r->share, words + STATE_SHARE)) {
        return fault_set(why, RC_FORMAT, "the checkpoint's place in the data is damaged");
    }
    r->has_schedule = r->has_schedule || words[STATE_SCHEDULE] > 0;
    r->schedule = schedule;
    r->step = words[STATE_STEP];
    r->updates = words[STATE_UPDATES];
    r->samples_seen = words[STATE_SAMPLES];
    team_set_stream(r->team, r->stream_seed, words[STATE_PASSES]);
    if (count == 0) return RC_OK;
    return replica_assign(learner, SECTION_MOMENTS, moments->bytes, count);
}

static const struct learner_ops replica_ops = {
    .name = "replica",
    .destroy = replica_destroy,
    .schema = replica_schema,
    .train = replica_train,
    .gradient = replica_gradient,
    .step = replica_step,
    .export_section = replica_export,
    .import_section = replica_import,
    .assign_section = replica_assign,
    .set_step = replica_set_step,
    .reshard = replica_reshard,
    .shard_samples = replica_shard_samples,
    .evaluate = replica_evaluate,
    .save = replica_save,
    .load = replica_load,
};

/* What the flags say, before anything large is made. */
static enum rc read_options(struct replica *r, const struct replica_options *options,
                            struct fault *why)
{
    struct layers_training usual = layers_training(options->model);
    const char *optimizer = options->optimizer;
    const char *schedule = options->schedule == NULL ? "" : options->schedule;
    uint64_t steps = options->steps_total;
    enum rc rc;

    if (optimizer == NULL || optimizer[0] == '\0') optimizer = usual.optimizer;
    rc = optimizer_parse(optimizer, &r->optimizer, why);
    if (rc != RC_OK) return rc;
    if (options->lr > 0.0) r->optimizer.lr = options->lr;
    r->batch = options->batch == 0 ? usual.batch : options->batch;
    r->accumulate = options->accumulate == 0 ? 1 : options->accumulate;
    r->clip = options->clip;
    r->epochs_total = options->epochs_total;
    r->has_schedule = steps > 0 || !(options->epochs_total > 0.0);
    if (!r->has_schedule) steps = 1; /* enough to check the text */
    rc = schedule_parse(schedule, steps, &r->schedule, why);
    if (rc != RC_OK) return rc;
    if (strlen(schedule) >= sizeof(r->schedule_text) || strlen(options->data) >= sizeof(r->data)) {
        return fault_set(why, RC_LIMIT, "--schedule or --data is too long");
    }
    snprintf(r->schedule_text, sizeof(r->schedule_text), "%s", schedule);
    snprintf(r->data, sizeof(r->data), "%s", options->data);
    return RC_OK;
}

static enum rc make_optimizer_buffers(struct replica *r)
{
    const struct schema *schema = model_schema(r->model);
    const struct backend_ops *ops = r->backend->ops;
    size_t workspace = optimizer_workspace(&r->optimizer, schema);

    if (workspace > 0) {
        r->workspace = ops->alloc(r->backend, workspace * sizeof(float));
        if (r->workspace == NULL) return RC_NOMEM;
    }
    if (r->accumulate > 1) {
        r->accumulated = ops->alloc(r->backend, schema->values[SECTION_GRADIENT] * sizeof(float));
        if (r->accumulated == NULL) return RC_NOMEM;
    }
    return RC_OK;
}

static enum rc make_model(struct replica *r, const struct replica_options *options,
                          struct fault *why)
{
    const struct dataset_info *info = dataset_info(r->dataset);
    struct model_options model = {
        .spec = options->model,
        .batch_max = r->batch,
        .seed = options->seed,
        .with_gradients = true,
    };
    bool needs_input = !r->backend->is_host;
    enum rc rc;

    task_describe(info, &model);
    rc = team_create(r->backend, &model, &r->team, why);
    if (rc == RC_OK) r->model = team_model(r->team);
    if (rc == RC_OK) rc = task_init(&r->task, info, r->model, r->batch, why);
    if (rc != RC_OK) return rc;
    model_set_normalisation(r->model, info->mean, info->scale);
    team_set_stream(r->team, options->stream_seed, 0);
    rc = model_reserve_moments(r->model, optimizer_planes(r->optimizer.kind));
    if (rc == RC_OK) rc = batch_init(&r->next, info, r->batch);
    if (needs_input) {
        r->input =
            r->backend->ops->alloc(r->backend, r->batch * dataset_values(info) * sizeof(float));
    }
    r->logits = mem_array(task_logits(&r->task, r->batch), sizeof(float));
    r->logits_gradient = mem_array(task_logits(&r->task, r->batch), sizeof(float));
    if (rc == RC_OK) rc = make_optimizer_buffers(r);
    if (rc == RC_OK && (r->input != NULL || !needs_input) && r->logits != NULL &&
        r->logits_gradient != NULL) {
        return RC_OK;
    }
    return fault_set(why, RC_NOMEM, "cannot set up training: out of memory; try a smaller --batch");
}

enum rc replica_create(struct backend *backend, const struct replica_options *options,
                       struct learner **learner, struct fault *why)
{
    struct replica *r = mem_alloc(sizeof(*r));
    struct dataset_options data = {.seed = options->seed, .context = task_context(options->model)};
    struct share_options share = {.seed = options->seed, .stream_seed = options->stream_seed};
    enum rc rc;

    if (r == NULL) return fault_set(why, RC_NOMEM, "cannot set up training: out of memory");
    r->learner.ops = &replica_ops;
    r->backend = backend;
    r->stream_seed = options->stream_seed;
    if (options->threads > 0) backend->threads = options->threads;
    rc = read_options(r, options, why);
    if (rc == RC_OK) rc = shard_parse(options->shard, options->shard_of, &share.shard, why);
    if (rc == RC_OK) rc = augment_parse(options->augment, &share.augment, why);
    if (rc == RC_OK) rc = dataset_open(options->data, &data, &r->dataset, why);
    if (rc == RC_OK) rc = make_model(r, options, why);
    share.batch = r->batch;
    if (rc == RC_OK) {
        share.with_prefetch = prefetch_is_useful(options->prefetch, dataset_info(r->dataset),
                                                 r->batch, &share.augment, backend->threads);
        rc = share_create(r->dataset, &share, &r->share, why);
    }
    if (rc != RC_OK) {
        replica_destroy(&r->learner);
        return rc;
    }
    *learner = &r->learner;
    return RC_OK;
}

struct model *replica_model(struct learner *learner)
{
    CHECK(learner->ops == &replica_ops);
    return replica_of(learner)->model;
}

void replica_card(struct learner *learner, struct model_card *card)
{
    struct replica *r = replica_of(learner);
    const struct dataset_info *info = dataset_info(r->dataset);

    CHECK(learner->ops == &replica_ops);
    task_card(info, r->model, card);
    card->step = r->step;
    card->samples = r->samples_seen;
    snprintf(card->data, sizeof(card->data), "%s", r->data);
}
