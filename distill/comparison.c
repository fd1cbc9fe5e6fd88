/*
 * comparison: see comparison.h. Thread: the command's, one at a time.
 */
#include "distill/comparison.h"

#include "base/check.h"
#include "base/mem.h"
#include "distill/soup.h"
#include "replica/json.h"
#include "replica/store_safetensors.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* What is in hand while the files are read one after another. */
struct reading {
    struct backend *backend;
    const struct comparison_options *options;
    struct comparison *out;
    struct dataset *dataset;
    struct samples test;
    struct ensemble *ensemble;
    struct soup *soup;
    struct score *score; /* of the model being run */
    uint32_t classes;
    struct model_card average; /* the first card with all steps and samples of the members */
    bool is_one_spec;          /* so far */
};

enum rc comparison_load(struct backend *backend, const char *path, const struct dataset_info *info,
                        uint32_t batch_max, struct model **model, struct model_card *card,
                        struct fault *why)
{
    struct tensor_file *file = NULL;
    struct model *loaded = NULL;
    enum rc rc = tensor_file_load(path, &file, why);

    if (rc == RC_OK) rc = model_load(backend, file, path, batch_max, false, &loaded, card, why);
    tensor_file_destroy(file);
    if (rc != RC_OK) return rc;
    if (card->channels != info->channels || card->height != info->height ||
        card->width != info->width || card->classes != info->classes) {
        model_destroy(loaded);
        return fault_set(
            why, RC_MISMATCH,
            "%s does not fit the data: the model takes %ux%ux%u and %u classes, %s has "
            "%ux%ux%u and %u; pass the --data it was trained on",
            path, card->channels, card->height, card->width, card->classes, info->name,
            info->channels, info->height, info->width, info->classes);
    }
    *model = loaded;
    return RC_OK;
}

static void on_test_logits(void *context, size_t first, const struct batch *batch,
                           const float *logits)
{
    struct reading *r = context;

    score_add_logits(r->score, logits, batch->labels, batch->rows, r->classes);
    ensemble_absorb(r->ensemble, first, batch->rows, logits);
}

static enum rc average_add(struct reading *r, struct model *model, const struct model_card *card,
                           struct fault *why)
{
    struct fault reason = {""};

    if (!r->is_one_spec) return RC_OK;
    const enum rc rc = soup_add(r->soup, model, &reason);
    if (rc == RC_MISMATCH) {
        r->is_one_spec = false;
        snprintf(r->out->average_missing, sizeof r->out->average_missing,
                 "models of different specs have no parameter average");
        return RC_OK;
    }
    if (rc != RC_OK) return fault_set(why, rc, "%s", reason.text);
    if (r->average.step < card->step) r->average.step = card->step;
    r->average.samples += card->samples;
    return RC_OK;
}

static enum rc read_model(struct reading *r, size_t index, struct fault *why)
{
    const char *path = r->options->paths[index];
    const struct outputs_sink sink = {r, on_test_logits};
    struct comparison *out = r->out;
    struct fault reason = {""};
    struct model_card card;
    struct model *model = NULL;
    enum rc rc = comparison_load(r->backend, path, dataset_info(r->dataset), OUTPUTS_BATCH, &model,
                                 &card, why);

    if (rc != RC_OK) return rc;
    if (index == 0) {
        out->card = r->average = card;
        r->average.step = r->average.samples = 0;
    }
    out->parameters[index] = model_schema(model)->values[SECTION_PARAMETERS];
    rc = average_add(r, model, &card, &reason);
    if (rc == RC_OK) {
        const struct dataset_info info = outputs_info(dataset_info(r->dataset), model);
        r->score = &out->models[index];
        rc = outputs_run(model, &info, &r->test, &sink);
    }
    if (rc != RC_OK) {
        rc = fault_set(why, rc, "cannot evaluate %s: %s", path,
                       reason.text[0] != '\0' ? reason.text : rc_text(rc));
    }
    model_destroy(model);
    return rc;
}

static enum rc save_average(struct reading *r, struct model *model, struct fault *why)
{
    struct tensor_file *file = tensor_file_create();
    enum rc rc = file != NULL ? model_save(model, &r->average, file) : RC_NOMEM;

    if (rc == RC_OK) {
        rc = tensor_file_save(file, r->options->average_path, why);
    } else {
        fault_set(why, rc, "cannot write %s: %s", r->options->average_path, rc_text(rc));
    }
    tensor_file_destroy(file);
    return rc;
}

/* The average needs a model to live in: the first file again, its parameters overwritten. */
static enum rc read_average(struct reading *r, struct fault *why)
{
    struct model *model = NULL;
    struct model_card card;
    enum rc rc;

    if (!r->is_one_spec) {
        if (r->options->average_path == NULL) return RC_OK;
        return fault_set(why, RC_MISMATCH, "%s", r->out->average_missing);
    }
    rc = comparison_load(r->backend, r->options->paths[0], dataset_info(r->dataset), OUTPUTS_BATCH,
                         &model, &card, why);
    if (rc != RC_OK) return rc;
    soup_pour(r->soup, model);
    const struct dataset_info info = outputs_info(dataset_info(r->dataset), model);
    rc = outputs_score(model, &info, &r->test, &r->out->average);
    if (rc != RC_OK) {
        fault_set(why, rc, "cannot evaluate the parameter average: %s", rc_text(rc));
    } else if (r->options->average_path != NULL) {
        rc = save_average(r, model, why);
    }
    r->out->has_average = rc == RC_OK;
    r->out->distance = soup_distance(r->soup);
    model_destroy(model);
    return rc;
}

static enum rc score_ensemble(struct reading *r, struct fault *why)
{
    float *p = mem_array(r->classes, sizeof *p);
    uint32_t label;
    struct batch batch = {.rows_max = 1, .labels = &label};

    if (p == NULL) return fault_set(why, RC_NOMEM, "cannot evaluate: memory is short");
    for (int vote = 0; vote < VOTE_COUNT; vote++) {
        struct score *score = &r->out->votes[vote];
        for (size_t i = 0; i < r->test.count; i++) {
            samples_gather(&r->test, dataset_info(r->dataset), (struct pick){NULL, i, 1}, &batch);
            ensemble_settle(r->ensemble, (enum vote)vote, i, 1, p);
            score_add(score, p[label], ensemble_winner(r->ensemble, (enum vote)vote, i) == label);
        }
    }
    /* A class without a vote is not a class of probability zero. */
    r->out->votes[VOTE_MAJORITY].loss_sum = NAN;
    mem_free(p);
    return RC_OK;
}

/* `data` of the options, or what the first file says it was trained on. */
static enum rc find_data(const struct comparison_options *options, char *data, size_t cap,
                         struct fault *why)
{
    struct tensor_file *file = NULL;
    struct model_card card;

    if (options->data != NULL) {
        snprintf(data, cap, "%s", options->data);
        return RC_OK;
    }
    enum rc rc = tensor_file_load(options->paths[0], &file, why);
    if (rc == RC_OK) rc = model_card_read(file, options->paths[0], &card, why);
    if (rc == RC_OK) snprintf(data, cap, "%s", card.data);
    tensor_file_destroy(file);
    return rc;
}

static enum rc reading_begin(struct reading *r, struct fault *why)
{
    const size_t count = r->options->paths_count;
    struct comparison *out = r->out;
    char data[sizeof out->card.data];

    out->paths = mem_array(count, sizeof *out->paths);
    out->models = mem_array(count, sizeof *out->models);
    out->parameters = mem_array(count, sizeof *out->parameters);
    r->soup = soup_create();
    bool is_short =
        out->paths == NULL || out->models == NULL || out->parameters == NULL || r->soup == NULL;
    for (size_t i = 0; !is_short && i < count; i++) {
        out->paths[i] = mem_string(r->options->paths[i]);
        out->count++;
        is_short = out->paths[i] == NULL;
    }
    if (is_short) return fault_set(why, RC_NOMEM, "cannot compare models: memory is short");
    const struct dataset_options dataset = {.seed = r->options->seed};
    enum rc rc = find_data(r->options, data, sizeof data, why);
    if (rc == RC_OK) rc = dataset_open(data, &dataset, &r->dataset, why);
    if (rc == RC_OK) rc = dataset_load_test(r->dataset, r->options->samples_max, &r->test, why);
    if (rc != RC_OK) return rc;
    const struct dataset_info *info = dataset_info(r->dataset);
    const struct ensemble_options options = {.samples = r->test.count,
                                             .classes = info->classes,
                                             .temperature = 1,
                                             .wants = {true, true, true}};
    snprintf(out->data, sizeof out->data, "%s", info->name);
    out->samples = r->test.count;
    r->classes = info->classes;
    r->ensemble = ensemble_create(&options);
    if (r->ensemble == NULL) return fault_set(why, RC_NOMEM, "cannot evaluate: memory is short");
    return RC_OK;
}

enum rc comparison_run(struct backend *backend, const struct comparison_options *options,
                       struct comparison *out, struct fault *why)
{
    CHECK(options->paths_count > 0 && out != NULL);
    struct comparison result = {.distance = NAN};
    struct reading r = {
        .backend = backend, .options = options, .out = &result, .is_one_spec = true};
    enum rc rc = reading_begin(&r, why);

    for (size_t i = 0; rc == RC_OK && i < options->paths_count; i++) {
        rc = read_model(&r, i, why);
        if (rc == RC_OK && options->on_model != NULL) {
            options->on_model(options->context, i + 1, options->paths_count);
        }
    }
    if (rc == RC_OK) rc = read_average(&r, why);
    if (rc == RC_OK) rc = score_ensemble(&r, why);
    ensemble_destroy(r.ensemble);
    soup_destroy(r.soup);
    samples_deinit(&r.test);
    dataset_close(r.dataset);
    if (rc == RC_OK) {
        *out = result;
    } else {
        comparison_deinit(&result);
    }
    return rc;
}

void comparison_deinit(struct comparison *comparison)
{
    for (size_t i = 0; i < comparison->count; i++) {
        mem_free(comparison->paths[i]);
    }
    mem_free(comparison->paths);
    mem_free(comparison->models);
    mem_free(comparison->parameters);
    *comparison = (struct comparison){.count = 0};
}

static struct json *score_json(const struct score *score)
{
    struct json *json = json_object_create();

    json_set_real(json, "accuracy", score_accuracy(score));
    json_set_real(json, "loss", score_loss(score));
    return json;
}

struct json *comparison_json(const struct comparison *c)
{
    struct json *json = json_object_create(), *files = json_array_create();
    struct json *accuracy = json_array_create(), *loss = json_array_create();
    struct json *ensemble = score_json(&c->votes[VOTE_MEAN]);

    for (size_t i = 0; i < c->count; i++) {
        json_append_text(files, c->paths[i]);
        json_append_real(accuracy, score_accuracy(&c->models[i]));
        json_append_real(loss, score_loss(&c->models[i]));
    }
    json_set(json, "files", files);
    json_set(json, "accuracy", accuracy);
    json_set(json, "loss", loss);
    if (c->has_average) {
        json_set(json, "average_model", score_json(&c->average));
    } else {
        json_set_null(json, "average_model");
        json_set_text(json, "average_model_missing", c->average_missing);
    }
    json_set(ensemble, "logits", score_json(&c->votes[VOTE_LOGITS]));
    json_set_real(ensemble, "vote_accuracy", score_accuracy(&c->votes[VOTE_MAJORITY]));
    json_set(json, "ensemble", ensemble);
    json_set_real(json, "consensus_distance", c->distance);
    json_set_text(json, "data", c->data);
    json_set_count(json, "samples", c->samples);
    return json;
}
