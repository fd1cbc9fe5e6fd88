/* compact: see compact.h. Thread: the command's. */
#include "distill/compact.h"

#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "distill/comparison.h"
#include "distill/prune.h"
#include "kernels/backend.h"
#include "replica/formats/packed.h"
#include "replica/learners/replica.h"
#include "replica/model/layers.h"
#include "replica/optimizer/optimizer.h"
#include "replica/plane/store_safetensors.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum {
    CUTS = 10,             /* in how many steps fine-tuning prunes */
    PROGRESS_EVERY = 64,   /* steps */
    CHECKED_SAMPLES = 1000 /* of the test part, that give a finite loss before a file is written */
};

#define RATE_SHARE 3.0 /* fine-tuning begins from a model that is trained: a lower rate */

static const char default_schedule[] = "cosine:warmup=0.05";

/* A model on its way from file to file. */
struct compacting {
    struct backend *backend;
    const struct compact_options *options;
    struct compact_result *out;
    struct model_card card;
    struct model *model;
    uint8_t *keeps;    /* [PARAMETERS' values] */
    float *parameters; /* [the same], the learner's at the last step */
    struct dataset_options dataset;
    char tokenizer[MODEL_PATH_BYTES];
};

static void tell(const struct compacting *c, enum compact_phase phase, uint64_t done,
                 uint64_t total, double loss)
{
    const struct compact_progress progress = {phase, done, total, loss};

    if (c->options->on_progress != NULL) c->options->on_progress(c->options->context, &progress);
}

static void on_judged(void *context, uint64_t done, uint64_t total)
{
    tell(context, COMPACT_JUDGING, done, total, (double)NAN);
}

static bool tunes(const struct compact_options *options)
{
    return options->share > 0 && options->epochs > 0;
}

static enum rc judge(struct compacting *c, const char *path, struct score *score, struct fault *why)
{
    const struct comparison_options options = {.paths = &path,
                                               .paths_count = 1,
                                               .data = c->options->data,
                                               .tokenizer = c->options->tokenizer,
                                               .seed = 1,
                                               .on_progress = on_judged,
                                               .context = c};
    struct comparison comparison;
    const enum rc rc = comparison_run(c->backend, &options, &comparison, why);

    if (rc != RC_OK) return rc;
    *score = comparison.models[0];
    c->out->samples = comparison.samples;
    comparison_deinit(&comparison);
    return RC_OK;
}

static enum rc load(struct compacting *c, struct fault *why)
{
    const char *path = c->options->path;
    struct tensor_file *file = NULL;
    struct stat status;
    size_t count;
    enum rc rc = RC_OK;

    if (stat(path, &status) != 0) rc = file_fault(why, "read", path, errno);
    if (rc == RC_OK) rc = tensor_file_load(path, &file, why);
    if (rc == RC_OK) rc = model_load(c->backend, file, path, 1, false, &c->model, &c->card, why);
    tensor_file_destroy(file);
    if (rc != RC_OK) return rc;
    count = model_schema(c->model)->values[SECTION_PARAMETERS];
    c->out->bytes_before = (uint64_t)status.st_size;
    c->out->parameters = count;
    c->out->weights = prune_weights(model_schema(c->model));
    c->keeps = mem_array(count, sizeof *c->keeps);
    c->parameters = mem_array(count, sizeof *c->parameters);
    if (c->keeps != NULL && c->parameters != NULL) return RC_OK;
    return fault_set(why, RC_NOMEM, "cannot use %s: out of memory", path);
}

/* ---- pruning ---- */

static enum rc no_memory(struct fault *why)
{
    return fault_set(why, RC_NOMEM, "cannot prune: out of memory");
}

/* All at once, from the model and into it. */
static enum rc prune_at_once(struct compacting *c, struct fault *why)
{
    const struct schema *schema = model_schema(c->model);
    const size_t count = schema->values[SECTION_PARAMETERS];
    const float *values;
    enum rc rc = model_host_plane(c->model, SECTION_PARAMETERS, &values);

    if (rc == RC_OK) {
        memcpy(c->parameters, values, count * sizeof *values);
        rc = prune_choose(schema, c->parameters, c->options->share, c->keeps);
    }
    if (rc == RC_OK) {
        prune_apply(c->keeps, c->parameters, count);
        rc = model_set_plane(c->model, SECTION_PARAMETERS, c->parameters);
    }
    return rc == RC_NOMEM ? no_memory(why) : rc;
}

/* The learner that fine-tunes the file's model on its data. */
static enum rc create_learner(struct compacting *c, struct learner **learner, struct fault *why)
{
    const struct compact_options *o = c->options;
    const struct layers_training usual = layers_training(c->card.spec);
    struct replica_options options = {
        .model = c->card.spec,
        .data = o->data != NULL ? o->data : c->card.data,
        .dataset = &c->dataset,
        .optimizer = o->optimizer != NULL ? o->optimizer : usual.optimizer,
        .schedule = o->schedule != NULL ? o->schedule : default_schedule,
        .epochs_total = o->epochs,
        .batch = o->batch,
        .shard = "all",
        .seed = o->seed,
        .stream_seed = o->seed,
        .threads = c->backend->threads,
    };
    struct optimizer optimizer;
    enum rc rc = optimizer_parse(options.optimizer, &optimizer, why);

    if (rc != RC_OK) return rc;
    if (optimizer_is_full_batch(&optimizer)) {
        return fault_set(why, RC_USAGE, "--optimizer lbfgs: not for fine-tuning; use adamw");
    }
    options.lr = o->lr > 0 ? o->lr : optimizer.lr;
    if (o->lr <= 0 && o->optimizer == NULL) {
        options.lr = optimizer_usual_rate(usual.optimizer, o->batch > 0 ? o->batch : usual.batch,
                                          usual.batch) /
                     RATE_SHARE;
    }
    c->out->lr = options.lr;
    c->dataset = comparison_data(&c->card, o->seed);
    if (model_tokenizer_find(&c->card, o->path, o->tokenizer, c->tokenizer)) {
        c->dataset.tokenizer = c->tokenizer;
    }
    return replica_create(c->backend, &options, learner, why);
}

/* Parameters, buffers and, where the data have none of their own, the scale of the inputs. */
static enum rc hand_over(struct compacting *c, struct learner *learner, struct fault *why)
{
    static const enum section sections[] = {SECTION_PARAMETERS, SECTION_BUFFERS};
    const struct schema *from = model_schema(c->model), *to = learner->ops->schema(learner);
    enum rc rc = RC_OK;

    for (size_t i = 0; rc == RC_OK && i < ARRAY_COUNT(sections); i++) {
        const size_t count = from->values[sections[i]];
        const float *values;

        if (to->values[sections[i]] != count) {
            return fault_set(why, RC_MISMATCH, "%s does not fit the data any more",
                             c->options->path);
        }
        rc = model_host_plane(c->model, sections[i], &values);
        if (rc == RC_OK) rc = learner->ops->assign_section(learner, sections[i], values, count);
    }
    if (rc == RC_OK && to->values[SECTION_INPUT] > 0) {
        const size_t channels = model_channels(c->model);
        float *input = mem_array(to->values[SECTION_INPUT], sizeof *input);

        if (input == NULL) return no_memory(why);
        memcpy(input, model_mean(c->model), channels * sizeof *input);
        memcpy(input + channels, model_scale(c->model), channels * sizeof *input);
        input[2 * channels + INPUT_MEMBERS] = 1.0F;
        input[2 * channels + INPUT_SAMPLES] = 1.0F;
        rc = learner->ops->assign_section(learner, SECTION_INPUT, input, to->values[SECTION_INPUT]);
        mem_free(input);
    }
    return rc == RC_OK ? rc : fault_set(why, rc, "cannot fine-tune: %s", rc_text(rc));
}

/* The learner's parameters, without what is not kept. */
static enum rc mask(struct compacting *c, struct learner *learner)
{
    const size_t count = c->out->parameters;

    prune_apply(c->keeps, c->parameters, count);
    return learner->ops->assign_section(learner, SECTION_PARAMETERS, c->parameters, count);
}

static enum rc fetch(struct compacting *c, struct learner *learner)
{
    return learner->ops->export_section(learner, SECTION_PARAMETERS, c->parameters,
                                        c->out->parameters);
}

/* One step, before which more is pruned at CUTS places in the first half. */
static enum rc tune_step(struct compacting *c, struct learner *learner, uint64_t step, double *loss)
{
    const uint64_t half = (c->out->steps + 1) / 2, cut = step * CUTS / half;
    const bool is_cut = step < half && (step == 0 || cut != (step - 1) * CUTS / half);
    struct train_report report;
    enum rc rc = RC_OK;

    if (is_cut) {
        const uint64_t last = (half - 1) * CUTS / half; /* fewer steps than cuts: larger ones */
        const double at = (double)(cut + 1) / (double)(last + 1);
        rc = prune_choose(model_schema(c->model), c->parameters, prune_share(c->options->share, at),
                          c->keeps);
        if (rc == RC_OK) rc = mask(c, learner);
    }
    if (rc == RC_OK) rc = learner->ops->train(learner, 1, NULL, &report);
    if (rc == RC_OK) rc = fetch(c, learner);
    if (rc == RC_OK) rc = mask(c, learner);
    *loss = rc == RC_OK ? report.loss_sum : 0.0;
    return rc;
}

/* Parameters are watched as it trains; statistics, and what comes of both, are not. */
static enum rc check_finite(struct learner *learner)
{
    const size_t count = learner->ops->schema(learner)->values[SECTION_BUFFERS];
    float *buffers = mem_array(count + 1, sizeof *buffers);
    struct evaluation score;
    enum rc rc = buffers == NULL ? RC_NOMEM : RC_OK;

    if (rc == RC_OK) rc = learner->ops->export_section(learner, SECTION_BUFFERS, buffers, count);
    for (size_t i = 0; rc == RC_OK && i < count; i++) {
        if (!isfinite(buffers[i])) rc = RC_NONFINITE;
    }
    if (rc == RC_OK) rc = learner->ops->evaluate(learner, CHECKED_SAMPLES, &score);
    mem_free(buffers);
    return rc == RC_OK && !isfinite(score.loss) ? RC_NONFINITE : rc;
}

static enum rc train(struct compacting *c, struct learner *learner, struct fault *why)
{
    double loss = 0.0, sum = 0.0;
    enum rc rc = fetch(c, learner);

    c->out->steps = learner->ops->steps_of(learner, c->options->epochs);
    for (uint64_t step = 0; rc == RC_OK && step < c->out->steps; step++) {
        if (c->options->is_stopped != NULL && c->options->is_stopped(c->options->context)) {
            return fault_set(why, RC_CANCELLED,
                             "stopped after %llu of %llu steps; nothing was written",
                             (unsigned long long)step, (unsigned long long)c->out->steps);
        }
        rc = tune_step(c, learner, step, &loss);
        sum += loss;
        if (rc != RC_OK || ((step + 1) % PROGRESS_EVERY != 0 && step + 1 < c->out->steps)) continue;
        tell(c, COMPACT_TUNING, step + 1, c->out->steps, sum / (double)(step % PROGRESS_EVERY + 1));
        sum = 0.0;
    }
    if (rc == RC_OK) rc = check_finite(learner);
    if (rc == RC_NONFINITE) {
        return fault_set(why, rc, "the loss is no longer finite; use a smaller --lr");
    }
    return rc == RC_OK ? rc : fault_set(why, rc, "cannot fine-tune: %s", rc_text(rc));
}

/* In steps, while it trains; what comes of it goes into the model. */
static enum rc prune_and_tune(struct compacting *c, struct fault *why)
{
    const uint32_t threads = c->backend->threads;
    const float *buffers;
    struct learner *learner = NULL;
    enum rc rc = create_learner(c, &learner, why);

    if (rc == RC_OK) rc = hand_over(c, learner, why);
    if (rc == RC_OK) rc = train(c, learner, why);
    if (rc == RC_OK) {
        struct model *tuned = replica_model(learner);

        rc = model_set_plane(c->model, SECTION_PARAMETERS, c->parameters);
        if (rc == RC_OK) rc = model_host_plane(tuned, SECTION_BUFFERS, &buffers);
        if (rc == RC_OK) rc = model_set_plane(c->model, SECTION_BUFFERS, buffers);
        if (rc != RC_OK) fault_set(why, rc, "cannot fine-tune: %s", rc_text(rc));
        model_set_normalisation(c->model, model_mean(tuned), model_scale(tuned));
        if (c->options->data != NULL) {
            snprintf(c->card.data, sizeof c->card.data, "%s", c->options->data);
        }
        c->card.step += c->out->steps;
        c->card.samples += c->out->steps * model_batch_max(tuned);
    }
    if (learner != NULL) learner->ops->destroy(learner);
    c->backend->threads = threads;
    return rc;
}

/* ---- the file ---- */

/* What became of the weights: how many are 0, and how far they are from what they were. */
static enum rc compare(struct compacting *c, const struct tensor_file *file, struct fault *why)
{
    const struct schema *schema = model_schema(c->model);
    double squares = 0.0, errors = 0.0;
    const float *was;
    enum rc rc = model_host_plane(c->model, SECTION_PARAMETERS, &was);

    for (uint32_t t = 0; rc == RC_OK && t < schema->tensors_count; t++) {
        const struct tensor *tensor = &schema->tensors[t];
        float *now = c->parameters;

        if (!packed_may(tensor)) continue;
        memcpy(now, was + tensor->offset, tensor->count * sizeof *now);
        if (packed_is(file, tensor)) rc = packed_read(file, c->options->path, tensor, now, why);
        for (size_t i = 0; rc == RC_OK && i < tensor->count; i++) {
            const double value = (double)was[tensor->offset + i], error = value - (double)now[i];
            c->out->zeros += !(fabsf(now[i]) > 0.0F);
            squares += value * value;
            errors += error * error;
        }
    }
    c->out->error = squares > 0.0 ? sqrt(errors / squares) : 0.0;
    return rc;
}

static enum rc write(struct compacting *c, struct fault *why)
{
    struct tensor_file *file = tensor_file_create();
    const struct piece *pieces = NULL;
    size_t count = 0;
    enum rc rc =
        file == NULL ? RC_NOMEM : model_save_packed(c->model, &c->card, c->options->is_int8, file);

    if (rc == RC_OK) rc = compare(c, file, why);
    if (rc == RC_OK) rc = tensor_file_encode(file, &pieces, &count);
    if (rc != RC_OK) fault_set(why, rc, "cannot write %s: %s", c->options->out_path, rc_text(rc));
    for (size_t i = 0; rc == RC_OK && i < count; i++) {
        c->out->bytes += pieces[i].count;
    }
    if (rc == RC_OK) rc = file_replace(c->options->out_path, pieces, count, 0644, why);
    tensor_file_destroy(file);
    return rc;
}

enum rc compact_run(struct backend *backend, const struct compact_options *options,
                    struct compact_result *out, struct fault *why)
{
    struct compact_result result = {.is_judged = options->data != NULL || tunes(options),
                                    .lr = (double)NAN};
    struct compacting c = {.backend = backend, .options = options, .out = &result};
    enum rc rc = RC_OK;

    CHECK(options->share >= 0.0 && options->share < 1.0 && options->epochs >= 0.0);
    if (result.is_judged) rc = judge(&c, options->path, &result.before, why);
    if (rc == RC_OK) rc = load(&c, why);
    if (rc == RC_OK && options->share > 0) {
        rc = tunes(options) ? prune_and_tune(&c, why) : prune_at_once(&c, why);
    }
    if (rc == RC_OK) rc = write(&c, why);
    model_destroy(c.model);
    mem_free(c.keeps);
    mem_free(c.parameters);
    if (rc == RC_OK && result.is_judged) rc = judge(&c, options->out_path, &result.after, why);
    if (rc == RC_OK) *out = result;
    return rc;
}

static void set_score(struct json *json, const char *key, bool is_judged, const struct score *score)
{
    if (is_judged)
        json_set(json, key, score_json(score));
    else
        json_set_null(json, key);
}

struct json *compact_json(const struct compact_options *options,
                          const struct compact_result *result)
{
    struct json *json = json_object_create();

    json_set_text(json, "file", options->out_path);
    json_set_text(json, "form", options->is_int8 ? "int8" : "f32");
    json_set_count(json, "parameters", result->parameters);
    json_set_count(json, "weights", result->weights);
    json_set_count(json, "zeros", result->zeros);
    json_set_real(json, "weights_error", result->error);
    json_set_count(json, "bytes_before", result->bytes_before);
    json_set_count(json, "bytes", result->bytes);
    set_score(json, "before", result->is_judged, &result->before);
    set_score(json, "after", result->is_judged, &result->after);
    json_set_count(json, "samples", result->samples);
    json_set_count(json, "steps", result->steps);
    json_set_real(json, "lr", result->lr);
    return json;
}
