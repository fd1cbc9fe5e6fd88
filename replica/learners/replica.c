/*
 * The real learner: how it is made, and what others may see and change of it. Its steps are in
 * replica_train.c. Thread: the training lane's.
 */
#include "replica/learners/replica_internal.h"

#include "base/check.h"
#include "base/mem.h"
#include "replica/model/layers.h"
#include "replica/plane/mixture.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void replica_destroy(struct learner *learner)
{
    struct replica *r = replica_of(learner);

    if (r == NULL) return;
    model_profiler_destroy(r->profiler);
    replica_device_destroy(r);
    team_destroy(r->team);
    task_deinit(&r->task);
    r->backend->ops->free(r->backend, r->accumulated);
    r->backend->ops->free(r->backend, r->workspace);
    r->backend->ops->free(r->backend, r->statistics);
    r->backend->ops->free(r->backend, r->averaged);
    mem_free(r->logits);
    mem_free(r->logits_gradient);
    batch_deinit(&r->next);
    samples_deinit(&r->test);
    samples_deinit(&r->held_out);
    shard_destroy(r->shard);
    dataset_close(r->dataset);
    mem_free(r);
}

static const struct schema *replica_schema(const struct learner *learner)
{
    return model_schema(((const struct replica *)learner)->model);
}

/* What rounds mix: parameters, then buffers as replica/plane/mixture.h has them: these. */
static enum rc export_buffers(struct replica *r, float *out)
{
    const struct schema *schema = model_schema(r->model);
    const struct backend_ops *ops = r->backend->ops;
    size_t values = schema->shared_parameters, buffers = schema->shared_buffers;
    enum rc rc;

    if (buffers == 0) return RC_OK;
    rc = ops->download(r->backend, out + values, model_plane(r->model, SECTION_BUFFERS),
                       buffers * sizeof(float));
    if (rc == RC_OK) mixture_fill(schema, out);
    return rc;
}

static enum rc export_mixed(struct replica *r, float *out)
{
    const float *parameters = model_plane(r->model, SECTION_PARAMETERS);
    size_t bytes = model_schema(r->model)->shared_parameters * sizeof(float);
    enum rc rc = r->backend->ops->download(r->backend, out, parameters, bytes);

    return rc == RC_OK ? export_buffers(r, out) : rc;
}

/* What comes from the host goes to the device first. */
static enum rc add_difference(struct replica *r, enum section section, const float *difference,
                              size_t count)
{
    const struct backend_ops *ops = r->backend->ops;
    float *plane = model_plane(r->model, section), *there = NULL;
    enum rc rc = RC_OK;

    if (!r->backend->is_host) {
        there = ops->alloc(r->backend, count * sizeof(float));
        if (there == NULL) return RC_NOMEM;
        rc = ops->upload(r->backend, there, difference, count * sizeof(float));
        difference = there;
    }
    if (rc == RC_OK) rc = ops->axpy(r->backend, 1.0F, difference, plane, count);
    if (there != NULL) ops->free(r->backend, there);
    return rc == RC_OK ? team_spread(r->team, section) : rc;
}

enum rc replica_mix_statistics(struct replica *r, const float *difference)
{
    const struct schema *schema = model_schema(r->model);
    const struct backend_ops *ops = r->backend->ops;
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
    if (rc == RC_OK && bytes > 0) rc = team_spread(r->team, SECTION_BUFFERS);
    mem_free(buffers);
    return rc;
}

static enum rc import_mixed(struct replica *r, const float *difference)
{
    enum rc rc = replica_mix_statistics(r, difference);

    if (rc != RC_OK) return rc;
    return add_difference(r, SECTION_PARAMETERS, difference,
                          model_schema(r->model)->shared_parameters);
}

static float *section_of(struct replica *r, enum section section, size_t count)
{
    CHECK(section < SECTION_MIXED && count == model_schema(r->model)->values[section]);
    return model_plane(r->model, section);
}

/* ---- how the input is normalised ---- */

static void read_input(const struct replica *r, float *out)
{
    const struct dataset_info *info = dataset_info(r->dataset);
    const size_t channels = info->channels;

    memcpy(out, info->mean, channels * sizeof *out);
    memcpy(out + channels, info->scale, channels * sizeof *out);
    memcpy(out + 2 * channels, r->input_tail, sizeof r->input_tail);
}

/* From a file or from others. */
static enum rc assign_input(struct replica *r, const float *values)
{
    const size_t channels = dataset_info(r->dataset)->channels;

    if (!input_is_sound(values, channels)) return RC_FORMAT;
    shard_redo(r->shard);
    dataset_set_normal(r->dataset, values, values + channels);
    model_set_normalisation(r->model, values, values + channels);
    memcpy(r->input_tail, values + 2 * channels, sizeof r->input_tail);
    return RC_OK;
}

static enum rc read_section(struct learner *learner, enum section section, float *out, size_t count)
{
    struct replica *r = replica_of(learner);
    const float *plane;

    if (section == SECTION_MIXED) {
        CHECK(count == model_schema(r->model)->values[SECTION_MIXED]);
        return export_mixed(r, out);
    }
    if (section == SECTION_INPUT) {
        if (count > 0) read_input(r, out);
        return RC_OK;
    }
    plane = section_of(r, section, count);
    if (count == 0) return RC_OK;
    return r->backend->ops->download(r->backend, out, plane, count * sizeof(float));
}

static enum rc change_section(struct learner *learner, enum section section,
                              const float *difference, size_t count)
{
    struct replica *r = replica_of(learner);

    if (section == SECTION_MIXED) {
        CHECK(count == model_schema(r->model)->values[SECTION_MIXED]);
        return import_mixed(r, difference);
    }
    (void)section_of(r, section, count); /* checks */
    return count == 0 ? RC_OK : add_difference(r, section, difference, count);
}

static enum rc replica_export(struct learner *learner, enum section section, float *out,
                              size_t count)
{
    struct model_profiler *profiler = replica_of(learner)->profiler;
    uint64_t begin = model_profiler_now(profiler);
    enum rc rc;

    backend_bind_thread(replica_of(learner)->backend);
    rc = read_section(learner, section, out, count);

    model_profiler_add(profiler, PROFILE_SNAPSHOTS, begin);
    return rc;
}

static const float *replica_export_view(struct learner *learner, float *out, size_t *count)
{
    struct replica *r = replica_of(learner);
    uint64_t begin = model_profiler_now(r->profiler);
    enum rc rc;

    if (!r->backend->is_host) return NULL;
    backend_bind_thread(r->backend);
    rc = export_buffers(r, out);
    *count = model_schema(r->model)->shared_parameters;
    model_profiler_add(r->profiler, PROFILE_SNAPSHOTS, begin);
    return rc == RC_OK ? model_plane(r->model, SECTION_PARAMETERS) : NULL;
}

static enum rc replica_import(struct learner *learner, enum section section,
                              const float *difference, size_t count)
{
    struct model_profiler *profiler = replica_of(learner)->profiler;
    uint64_t begin = model_profiler_now(profiler);
    enum rc rc;

    backend_bind_thread(replica_of(learner)->backend);
    rc = change_section(learner, section, difference, count);

    model_profiler_add(profiler, PROFILE_SNAPSHOTS, begin);
    return rc;
}

enum rc replica_assign(struct learner *learner, enum section section, const float *values,
                       size_t count)
{
    struct replica *r = replica_of(learner);
    float *plane;
    enum rc rc;

    if (count == 0) return RC_OK;
    if (section == SECTION_INPUT) {
        CHECK(count == model_schema(r->model)->values[SECTION_INPUT]);
        return assign_input(r, values);
    }
    plane = section_of(r, section, count);
    if (section == SECTION_PARAMETERS) r->averages = 0;
    backend_bind_thread(r->backend);
    rc = r->backend->ops->upload(r->backend, plane, values, count * sizeof(float));
    return rc == RC_OK ? team_spread(r->team, section) : rc;
}

static void replica_set_step(struct learner *learner, uint64_t step)
{
    replica_of(learner)->step = step;
}

static const char *replica_moments_name(const struct learner *learner)
{
    return optimizer_name(((const struct replica *)learner)->optimizer.kind);
}

static void replica_bound_moments(const struct learner *learner, float *moments, size_t count)
{
    const struct optimizer *optimizer = &((const struct replica *)learner)->optimizer;
    uint32_t planes = optimizer_planes(optimizer->kind);

    if (planes > 0) optimizer_bound_moments(optimizer, moments, count / planes);
}

static uint64_t replica_updates(const struct learner *learner)
{
    return ((const struct replica *)learner)->updates;
}

static void replica_set_updates(struct learner *learner, uint64_t updates)
{
    replica_of(learner)->updates = updates;
}

static double replica_step_rate(const struct learner *learner)
{
    const struct replica *r = (const struct replica *)learner;

    return r->optimizer.lr * r->rate_factor * schedule_factor(&r->schedule, r->step);
}

static void replica_set_rate_factor(struct learner *learner, double factor)
{
    CHECK(factor > 0);
    replica_of(learner)->rate_factor = factor;
}

static enum rc replica_reshard(struct learner *learner, struct peer_id self,
                               const struct peer_id *members, size_t members_count,
                               struct fault *why)
{
    return shard_reshard(replica_of(learner)->shard, self, members, members_count, why);
}

static uint64_t replica_shard_samples(const struct learner *learner)
{
    return shard_samples(((const struct replica *)learner)->shard);
}

const struct learner_ops replica_ops = {
    .name = "replica",
    .destroy = replica_destroy,
    .schema = replica_schema,
    .train = replica_train,
    .gradient = replica_gradient,
    .step = replica_step,
    .export_section = replica_export,
    .export_view = replica_export_view,
    .import_section = replica_import,
    .assign_section = replica_assign,
    .set_step = replica_set_step,
    .moments_name = replica_moments_name,
    .bound_moments = replica_bound_moments,
    .updates = replica_updates,
    .set_updates = replica_set_updates,
    .set_rate_factor = replica_set_rate_factor,
    .step_rate = replica_step_rate,
    .rates = replica_rates,
    .set_rates = replica_set_rates,
    .validate = replica_validate,
    .reshard = replica_reshard,
    .shard_samples = replica_shard_samples,
    .steps_of = replica_steps_of,
    .evaluate = replica_evaluate,
    .answer_shape = replica_answer_shape,
    .load_samples = replica_load_samples,
    .answer = replica_answer,
    .save = replica_save,
    .load = replica_load,
    .snapshot_create = replica_snapshot_create,
    .snapshot_take = replica_snapshot_take,
    .snapshot_apply = replica_snapshot_apply,
    .keep = replica_keep,
    .restore = replica_restore,
    .why = replica_why,
};

static enum rc read_optimizer(const struct replica_options *options, struct optimizer *optimizer,
                              struct fault *why)
{
    const char *text = options->optimizer;
    enum rc rc;

    if (text == NULL || text[0] == '\0') text = layers_training(options->model).optimizer;
    rc = optimizer_parse(text, optimizer, why);
    if (rc == RC_OK && options->lr > 0.0) optimizer->lr = options->lr;
    return rc;
}

/* What the flags say, before anything large is made. */
static enum rc read_options(struct replica *r, const struct replica_options *options,
                            struct fault *why)
{
    const char *schedule = options->schedule == NULL ? "" : options->schedule;
    uint64_t steps = options->steps_total;
    enum rc rc = read_optimizer(options, &r->optimizer, why);

    if (rc != RC_OK) return rc;
    r->batch = options->batch == 0 ? layers_training(options->model).batch : options->batch;
    r->accumulate = options->accumulate == 0 ? 1 : options->accumulate;
    r->clip = options->clip;
    r->rate_factor = 1.0;
    r->ema = options->ema;
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
        workspace *= team_threads(r->team);
        r->workspace = ops->alloc(r->backend, workspace * sizeof(float));
        if (r->workspace == NULL) return RC_NOMEM;
    }
    if (schema->values[SECTION_BUFFERS] > 0) {
        r->statistics = ops->alloc(r->backend, schema->values[SECTION_BUFFERS] * sizeof(float));
        if (r->statistics == NULL) return RC_NOMEM;
    }
    if (r->ema > 0) {
        r->averaged = ops->alloc(r->backend, schema->values[SECTION_PARAMETERS] * sizeof(float));
        if (r->averaged == NULL) return RC_NOMEM;
    }
    if (r->accumulate > 1 || r->schedule.kind == SCHEDULE_GROW) {
        r->accumulated = ops->alloc(r->backend, schema->values[SECTION_GRADIENT] * sizeof(float));
        if (r->accumulated == NULL) return RC_NOMEM;
    }
    return RC_OK;
}

struct model_options replica_model_options(const struct replica *r,
                                           const struct replica_options *options)
{
    struct model_options model = {
        .spec = options->model,
        .batch_max = r->batch,
        .seed = options->model_seed != 0 ? options->model_seed : options->seed,
        .with_gradients = true,
    };

    task_describe(dataset_info(r->dataset), &model);
    return model;
}

static enum rc make_model(struct replica *r, const struct replica_options *options,
                          struct fault *why)
{
    const struct dataset_info *info = dataset_info(r->dataset);
    struct model_options model = replica_model_options(r, options);
    size_t logits;
    enum rc rc = team_create(r->backend, &model, &r->team, why);

    if (rc == RC_OK) r->model = team_model(r->team);
    if (rc == RC_OK) rc = task_init(&r->task, info, r->model, r->batch, why);
    if (rc != RC_OK) return rc;
    model_set_normalisation(r->model, info->mean, info->scale);
    if (info->measured != NULL) model_keep_normalisation(r->model);
    r->input_tail[INPUT_MEMBERS] = 1.0F;
    r->input_tail[INPUT_SAMPLES] = (float)info->train_samples;
    model_set_meaning(r->model, task_meaning(info, r->model));
    team_set_stream(r->team, options->stream_seed, 0);
    rc = model_reserve_moments(r->model, optimizer_planes(r->optimizer.kind));
    if (rc == RC_OK) rc = batch_init(&r->next, info, r->batch);
    logits = task_logits(&r->task, r->batch);
    if (rc == RC_OK && !r->backend->is_host && (r->objective != NULL || r->task.heads > 1)) {
        r->logits = mem_array(logits, sizeof(float));
        r->logits_gradient = mem_array(logits, sizeof(float));
        if (r->logits == NULL || r->logits_gradient == NULL) rc = RC_NOMEM;
    }
    if (rc == RC_OK && !r->backend->is_host && r->objective == NULL) {
        rc = replica_device_create(r, why);
        if (rc != RC_OK) return rc;
    } else if (rc == RC_OK) {
        rc = make_optimizer_buffers(r);
    }
    if (rc == RC_OK && options->profile.now_ns != NULL) {
        r->profiler =
            model_profiler_create(r->model, options->profile, r->batch, team_threads(r->team));
        if (r->profiler == NULL) rc = RC_NOMEM;
    }
    r->run = r->device != NULL ? replica_device_steps : replica_host_steps;
    if (rc == RC_OK) return RC_OK;
    return fault_set(why, RC_NOMEM, "cannot set up training: out of memory; try a smaller --batch");
}

/* What several heads learn: together, or each for itself. */
static enum rc read_heads(struct replica *r, const struct replica_options *options,
                          struct fault *why)
{
    enum heads_loss loss = HEADS_MEAN;

    r->objective = options->objective;
    if (options->heads_loss == NULL) return RC_OK;
    if (!heads_loss_parse(options->heads_loss, &loss)) {
        return fault_set(why, RC_USAGE, "--heads-loss %s: choose mean, ensemble or oracle",
                         options->heads_loss);
    }
    if (loss == HEADS_MEAN) return RC_OK;
    if (options->hogwild > 0) {
        return fault_set(why, RC_USAGE,
                         "--heads-loss %s: not with --hogwild; leave one of them out",
                         options->heads_loss);
    }
    if (options->mutual != NULL) { /* its losses take the place of this one */
        return fault_set(why, RC_USAGE,
                         "--heads-loss %s: not with --averaging codistill or ec-dnn; leave one of "
                         "them out",
                         options->heads_loss);
    }
    if (r->objective == NULL) r->objective = task_heads_objective(loss);
    return RC_OK;
}

/* What the flags say of parts of the model, once it is known. */
static enum rc check_parts(struct replica *r, const struct replica_options *options,
                           struct fault *why)
{
    const bool is_of_heads = r->objective != NULL && options->objective == NULL;

    if (is_of_heads && r->task.heads == 1) {
        return fault_set(why, RC_USAGE,
                         "--heads-loss %s: the model has one head; end --model with a block of "
                         "them, as in '[ linear:classes | linear:classes ]heads'",
                         options->heads_loss);
    }
    if (options->trunk == 0 || model_set_trunk(r->model, options->trunk)) return RC_OK;
    return fault_set(why, RC_USAGE,
                     "--share trunk:%u: the model has no more than %u layers with weights, and the "
                     "last of them is a peer's own; take fewer",
                     options->trunk, schema_layers(model_schema(r->model)));
}

enum rc replica_make(size_t bytes, struct backend *backend, const struct replica_options *options,
                     struct replica **replica, struct fault *why)
{
    struct replica *r = mem_alloc(bytes);
    struct dataset_options data = {.seed = options->seed,
                                   .context = task_context(options->model),
                                   .tokenizer = options->tokenizer};
    struct shard_options shard = {.seed = options->seed,
                                  .stream_seed = options->stream_seed,
                                  .samples_max = options->samples_max};
    enum rc rc;

    if (r == NULL) return fault_set(why, RC_NOMEM, "cannot set up training: out of memory");
    r->learner.ops = &replica_ops;
    r->backend = backend;
    r->stream_seed = options->stream_seed;
    rc = read_heads(r, options, why);
    if (options->threads > 0 && backend->is_host) backend->threads = options->threads;
    if (r->objective != NULL && backend->is_apart) backend->threads = 1; /* loss: on the host */
    if (options->dataset != NULL) data = *options->dataset;
    if (options->labels != NULL) data.labels = options->labels;
    if (options->labels != NULL) data.labels_of = options->labels_of;
    if (rc == RC_OK) rc = read_options(r, options, why);
    if (rc == RC_OK) rc = shard_spec_parse(options->shard, options->shard_of, &shard.shard, why);
    if (rc == RC_OK) rc = augment_parse(options->augment, &shard.augment, why);
    if (rc == RC_OK) rc = dataset_open(options->data, &data, &r->dataset, why);
    if (rc == RC_OK && options->holds_out) {
        rc = replica_blocks_held(dataset_info(r->dataset), &r->blocks_held, why);
    }
    if (rc == RC_OK) rc = make_model(r, options, why);
    if (rc == RC_OK) rc = check_parts(r, options, why);
    shard.batch = r->batch;
    shard.blocks_held = r->blocks_held;
    if (rc == RC_OK) {
        shard.with_prefetch = prefetch_is_useful(options->prefetch, dataset_info(r->dataset),
                                                 r->batch, &shard.augment, team_threads(r->team));
        rc = shard_create(r->dataset, &shard, &r->shard, why);
    }
    if (rc != RC_OK) {
        replica_destroy(&r->learner);
        return rc;
    }
    *replica = r;
    return RC_OK;
}

enum rc replica_create(struct backend *backend, const struct replica_options *options,
                       struct learner **learner, struct fault *why)
{
    struct optimizer optimizer;
    struct replica *r = NULL;
    enum rc rc = read_optimizer(options, &optimizer, why);

    if (rc != RC_OK) return rc;
    if (options->ema > 0 &&
        (options->hogwild > 0 || optimizer_is_full_batch(&optimizer) || !backend->is_host)) {
        return fault_set(why, RC_USAGE,
                         "--ema: not with --hogwild or --optimizer lbfgs, and not on a GPU");
    }
    if (options->mutual != NULL) {
        if (options->hogwild == 0 && !optimizer_is_full_batch(&optimizer)) {
            return replica_mutual_create(backend, options, learner, why);
        }
        return fault_set(why, RC_USAGE,
                         "--averaging codistill and ec-dnn: not with --hogwild or --optimizer "
                         "lbfgs, whose steps have no room for what others answer");
    }
    if (options->hogwild > 0) return replica_hogwild_create(backend, options, learner, why);
    if (optimizer_is_full_batch(&optimizer)) {
        return replica_lbfgs_create(backend, options, learner, why);
    }
    rc = replica_make(sizeof(*r), backend, options, &r, why);
    if (rc == RC_OK) *learner = &r->learner;
    return rc;
}

/* Also one that takes other steps. */
static bool is_replica(const struct learner *learner)
{
    return learner->ops->name == replica_ops.name;
}

struct json *replica_profile(struct learner *learner, uint64_t wall_ns, const char *event)
{
    CHECK(is_replica(learner));
    return model_profiler_rows(replica_of(learner)->profiler, wall_ns, event);
}

const float *replica_ema(struct learner *learner)
{
    CHECK(is_replica(learner));
    const struct replica *r = replica_of(learner);

    return r->averages > 0 ? r->averaged : NULL;
}

struct model *replica_model(struct learner *learner)
{
    CHECK(is_replica(learner));
    return replica_of(learner)->model;
}

enum rc replica_begin_with(struct learner *learner, enum section section, const float *values,
                           size_t count)
{
    CHECK(is_replica(learner) && (section == SECTION_PARAMETERS || section == SECTION_BUFFERS));
    return replica_assign(learner, section, values, count);
}

const struct dataset_info *replica_data(const struct learner *learner)
{
    CHECK(is_replica(learner));
    return dataset_info(((const struct replica *)learner)->dataset);
}

enum rc replica_samples(struct learner *learner, const struct samples **samples, struct fault *why)
{
    const struct replica *r = replica_of(learner);
    enum rc rc = shard_ensure(r->shard, why);

    CHECK(is_replica(learner));
    if (rc == RC_OK) *samples = shard_set(r->shard);
    return rc;
}

void replica_card(struct learner *learner, struct model_card *card)
{
    struct replica *r = replica_of(learner);
    const struct dataset_info *info = dataset_info(r->dataset);

    CHECK(is_replica(learner));
    task_card(info, r->model, card);
    card->step = r->step;
    card->samples = r->samples_seen;
    if (info->measured != NULL) {
        card->input_members = (uint64_t)r->input_tail[INPUT_MEMBERS];
        card->input_samples = (uint64_t)r->input_tail[INPUT_SAMPLES];
    }
    snprintf(card->data, sizeof(card->data), "%s", r->data);
}
