/*
 * comparison: see comparison.h. Thread: the command's, one at a time; models are run by a team.
 */
#include "distill/comparison.h"

#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "distill/selection.h"
#include "distill/soup.h"
#include "distill/statistics.h"
#include "kernels/backend.h"
#include "replica/learners/team.h"
#include "replica/model/loss.h"
#include "replica/plane/store_safetensors.h"

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
    struct selection selection;
    bool has_selection;        /* some option wants it */
    struct outputs_part part;  /* of the test part, being gone through */
    size_t part_max;           /* samples */
    uint32_t rows;             /* a sample */
    struct model_card average; /* the first card with all steps and samples of the members */
    bool is_one_spec;          /* so far */
    struct work work;
};

static void on_test_logits(void *context, size_t first, uint32_t samples, const float *logits)
{
    struct reading *r = context;

    ensemble_absorb(r->ensemble, first * r->rows, (size_t)samples * r->rows, logits);
}

static enum rc average_add(struct reading *r, struct model *model, const struct model_card *card,
                           struct fault *why)
{
    struct fault reason = {""};

    if (!r->is_one_spec) return RC_OK;
    /* A greedy soup aligns its own members, one after another. */
    const bool aligns = r->options->with_alignment && !(r->options->is_greedy && r->has_selection);
    enum rc rc = aligns ? soup_align(r->soup, model, &reason) : RC_OK;
    if (rc == RC_OK) rc = soup_add(r->soup, model, &reason);
    if (rc == RC_MISMATCH) {
        r->is_one_spec = false;
        snprintf(r->out->average_missing, sizeof r->out->average_missing,
                 "models of different layers have no parameter average");
        return RC_OK;
    }
    if (rc != RC_OK) return fault_set(why, rc, "%s", reason.text);
    if (r->average.step < card->step) r->average.step = card->step;
    r->average.samples += card->samples;
    return RC_OK;
}

/* All models, and the averages, over the test part; and what statistics of an average take. */
static void plan_work(struct reading *r, const struct model *model)
{
    const uint64_t files = r->options->paths_count, most = STATISTICS_BATCH * STATISTICS_BATCHES;
    const uint64_t train = dataset_info(r->dataset)->train_samples;
    const bool has_statistics = model_schema(model)->values[SECTION_BUFFERS] > 0;
    uint64_t average = r->test.count;

    r->work.total = files * r->test.count;
    if (files == 1 && r->options->average_path == NULL) return;
    if (files > 1 && has_statistics) average += train < most ? train : most;
    r->work.total += average;
    if (r->options->with_soup && r->has_selection) r->work.total += average;
}

/* What is done with each model once, whatever the pieces. */
static enum rc note_model(struct reading *r, size_t index, struct model *model,
                          const struct model_card *card, struct fault *why)
{
    struct comparison *out = r->out;

    if (index == 0) {
        out->card = r->average = *card;
        r->average.step = r->average.samples = 0;
    }
    out->parameters[index] = model_schema(model)->values[SECTION_PARAMETERS];
    return average_add(r, model, card, why);
}

static enum rc read_model(struct reading *r, size_t index, struct fault *why)
{
    const struct comparison_file file = {.path = r->options->paths[index],
                                         .info = dataset_info(r->dataset),
                                         .batch_max = outputs_batch(dataset_info(r->dataset))};
    const struct outputs_sink sink = {r, on_test_logits};
    struct fault reason = {""};
    struct model_card card;
    struct team *team = NULL;
    enum rc rc = comparison_open(r->backend, &file, &team, &card, why);

    if (rc != RC_OK) return rc;
    struct model *model = team_model(team);
    const struct dataset_info info = outputs_info(file.info, model);
    if (index == 0 && r->part.first == 0) plan_work(r, model);
    ensemble_weigh(r->ensemble, r->out->weights[index]);
    rc = outputs_run(team, &info, &r->part, &sink, &r->out->models[index]);
    if (rc == RC_OK && r->part.first == 0) rc = note_model(r, index, model, &card, &reason);
    if (rc != RC_OK) {
        rc = fault_set(why, rc, "cannot evaluate %s: %s", file.path,
                       reason.text[0] != '\0' ? reason.text : rc_text(rc));
    }
    team_destroy(team);
    return rc;
}

static enum rc score_average(struct reading *r, struct team *team, struct score *score,
                             struct fault *why)
{
    struct model *model = team_model(team);
    const struct dataset_info info = outputs_info(dataset_info(r->dataset), model);
    const struct outputs_part all = {&r->test, 0, r->test.count, &r->work};
    struct fault reason = {""};
    enum rc rc = RC_OK;

    if (soup_members(r->soup) > 1) rc = statistics_estimate(model, r->dataset, &r->work, &reason);
    if (rc == RC_OK) rc = outputs_run(team, &info, &all, NULL, score);
    if (rc == RC_OK) return rc;
    return fault_set(why, rc, "cannot evaluate the parameter average: %s",
                     reason.text[0] != '\0' ? reason.text : rc_text(rc));
}

/* Instead of all members those that a greedy soup keeps. */
static enum rc choose(struct reading *r, struct fault *why)
{
    struct selection_soup chosen;
    const enum rc rc =
        selection_soup(&r->selection, r->options->with_alignment, r->out->is_in, &chosen, why);

    if (rc != RC_OK) return rc;
    soup_destroy(r->soup);
    r->soup = chosen.soup;
    r->average.step = chosen.step;
    r->average.samples = chosen.samples;
    r->out->selection =
        chosen.score.is_real ? score_loss(&chosen.score) : score_accuracy(&chosen.score);
    return rc;
}

/* A model of what is in the soup, and its score. */
static enum rc pour_soup(struct reading *r, struct score *score, struct team **made,
                         struct fault *why)
{
    const struct selection_options about = {r->backend, r->dataset, r->options->paths,
                                            r->options->paths_count};
    const bool with_statistics = soup_has_statistics(r->soup) && soup_members(r->soup) > 1;
    struct team *team = NULL;
    enum rc rc = selection_open(&about, about.paths[0], with_statistics, &team, why);

    if (rc != RC_OK) return rc;
    rc = soup_pour(r->soup, team_model(team));
    if (rc == RC_OK) rc = score_average(r, team, score, why);
    *made = team;
    return rc;
}

static enum rc make_average(struct reading *r, struct fault *why)
{
    struct team *team = NULL;
    enum rc rc = pour_soup(r, &r->out->average, &team, why);

    if (rc == RC_OK && r->options->average_path != NULL) {
        rc = model_save_as(team_model(team), &r->average, r->options->average_path, why);
    }
    r->out->has_average = rc == RC_OK;
    r->out->distance = soup_distance(r->soup);
    team_destroy(team);
    return rc;
}

/* Beside the average of all that of a greedy soup; of one member it is that one. */
static enum rc add_soup(struct reading *r, struct fault *why)
{
    struct comparison *out = r->out;
    struct selection_soup chosen;
    struct team *team = NULL;
    enum rc rc =
        selection_soup(&r->selection, r->options->with_alignment, out->in_soup, &chosen, why);

    if (rc != RC_OK) return rc;
    soup_destroy(r->soup);
    r->soup = chosen.soup;
    out->has_soup = true;
    for (size_t i = 0; soup_members(r->soup) == 1 && i < out->count; i++) {
        if (!out->in_soup[i]) continue;
        out->soup = out->models[i];
        return RC_OK;
    }
    rc = pour_soup(r, &out->soup, &team, why);
    team_destroy(team);
    return rc;
}

/* The average needs a model to live in: the first file again, its parameters overwritten. */
static enum rc read_average(struct reading *r, struct fault *why)
{
    enum rc rc = RC_OK;

    if (!r->is_one_spec) {
        if (r->options->average_path == NULL) return RC_OK;
        return fault_set(why, RC_MISMATCH, "%s", r->out->average_missing);
    }
    for (size_t i = 0; i < r->out->count; i++) {
        r->out->is_in[i] = true;
    }
    if (r->options->is_greedy && r->has_selection) rc = choose(r, why);
    if (rc != RC_OK) return rc;
    if (r->out->count > 1 || r->options->average_path != NULL) {
        rc = make_average(r, why);
        return rc == RC_OK && r->options->with_soup && r->has_selection ? add_soup(r, why) : rc;
    }
    r->out->average = r->out->models[0]; /* to the bit: no need to run it again */
    r->out->has_average = true;
    r->out->distance = 0;
    return RC_OK;
}

/* One sample of the part: what the ensemble says, against what its batch of one asks. */
static void score_sample(struct reading *r, size_t sample, const struct batch *asked, float *p)
{
    const uint32_t outputs = r->out->card.classes;
    struct score *votes = r->out->votes;

    if (dataset_info(r->dataset)->target == DATA_REALS) {
        ensemble_settle(r->ensemble, VOTE_MEAN, sample, 1, p);
        votes[VOTE_MEAN].loss_sum += loss_squared(p, asked->targets, 1, outputs, NULL);
        votes[VOTE_MEAN].count++;
        return;
    }
    for (uint32_t i = 0; i < r->rows; i++) {
        const size_t row = sample * r->rows + i;
        const uint32_t label = asked->labels[i];
        for (int vote = 0; vote < VOTE_COUNT; vote++) {
            const uint32_t winner = ensemble_winner(r->ensemble, (enum vote)vote, row);
            ensemble_settle(r->ensemble, (enum vote)vote, row, 1, p);
            score_add(&votes[vote], &(struct verdict){p[label], p[winner], winner == label});
        }
    }
}

static enum rc score_ensemble(struct reading *r, struct fault *why)
{
    const struct dataset_info *info = dataset_info(r->dataset);
    float *p = mem_array(r->out->card.classes, sizeof *p);
    struct batch asked = {0};
    enum rc rc = p != NULL ? batch_init(&asked, info, 1) : RC_NOMEM;

    for (size_t i = 0; rc == RC_OK && i < r->part.count; i++) {
        rc = samples_gather(&r->test, info, (struct pick){NULL, r->part.first + i, 1}, &asked);
        if (rc == RC_OK) score_sample(r, i, &asked, p);
    }
    mem_free(p);
    batch_deinit(&asked);
    return rc == RC_OK ? rc : fault_set(why, rc, "cannot evaluate: %s", rc_text(rc));
}

/* All files on one piece of the test part after another. */
static enum rc read_parts(struct reading *r, struct fault *why)
{
    const struct comparison_options *options = r->options;
    const size_t parts = r->test.count > 0 ? (r->test.count - 1) / r->part_max + 1 : 1;
    enum rc rc = RC_OK;

    for (size_t k = 0; rc == RC_OK && k < parts; k++) {
        const size_t first = k * r->part_max, left = r->test.count - first;
        r->part = (struct outputs_part){&r->test, first, left < r->part_max ? left : r->part_max,
                                        &r->work};
        ensemble_clear(r->ensemble);
        for (size_t i = 0; rc == RC_OK && i < options->paths_count; i++) {
            rc = read_model(r, i, why);
        }
        if (rc == RC_OK) rc = score_ensemble(r, why);
    }
    /* A class without a vote is not a class of probability zero. */
    r->out->votes[VOTE_MAJORITY].loss_sum = (double)NAN;
    r->out->votes[VOTE_MEAN].is_real = dataset_info(r->dataset)->target == DATA_REALS;
    return rc;
}

static enum rc make_ensemble(struct reading *r, struct fault *why)
{
    const struct dataset_info *info = dataset_info(r->dataset);
    const bool is_real = info->target == DATA_REALS;
    const size_t bytes_max =
        r->options->bytes_max > 0 ? r->options->bytes_max : COMPARISON_BYTES_MAX;
    struct ensemble_options options = {.classes = info->outputs,
                                       .temperature = 1,
                                       .wants = {true, !is_real, !is_real},
                                       .is_real = is_real,
                                       .by_confidence = r->options->weighs_confidence,
                                       .trim = r->options->trim};

    if (is_real && options.by_confidence) {
        return fault_set(why, RC_USAGE,
                         "--weights confidence is for classes; real values say no confidence");
    }
    r->rows = outputs_rows(info);
    r->part_max = bytes_max / (r->rows * ensemble_row_bytes(&options));
    if (r->part_max > r->test.count) r->part_max = r->test.count;
    if (r->part_max == 0) r->part_max = 1;
    options.rows = r->part_max * r->rows;
    r->ensemble = ensemble_create(&options);
    if (r->ensemble != NULL) return RC_OK;
    return fault_set(why, RC_NOMEM, "cannot evaluate: out of memory");
}

/* What is right without learning: one answer for all. */
static enum rc count_classes(const struct samples *test, uint32_t classes, double *share)
{
    uint64_t *counts = mem_array(classes, sizeof *counts), most = 0;

    if (counts == NULL) return RC_NOMEM;
    for (size_t i = 0; i < test->count; i++) {
        const uint32_t label =
            test->small_labels != NULL ? test->small_labels[i] : test->large_labels[i];
        if (++counts[label] > most) most = counts[label];
    }
    mem_free(counts);
    *share = (double)most / (double)test->count;
    return RC_OK;
}

/* What the members are worth on the selection part, where that is asked. */
static enum rc select_members(struct reading *r, struct fault *why)
{
    const struct selection_options about = {r->backend, r->dataset, r->options->paths,
                                            r->options->paths_count};
    struct comparison *out = r->out;
    enum rc rc;

    for (size_t i = 0; i < out->count; i++) {
        out->weights[i] = 1;
    }
    r->has_selection = out->count > 1 && (r->options->is_greedy || r->options->weighs_scores ||
                                          r->options->with_soup);
    if (!r->has_selection) return RC_OK;
    rc = selection_init(&r->selection, &about, why);
    if (rc == RC_OK && r->options->weighs_scores) {
        selection_weigh(r->selection.scores, out->count, dataset_info(r->dataset)->outputs,
                        out->weights);
    }
    return rc;
}

static enum rc reading_begin(struct reading *r, struct fault *why)
{
    const size_t count = r->options->paths_count;
    struct comparison *out = r->out;
    struct model_card card;

    out->paths = mem_array(count, sizeof *out->paths);
    out->models = mem_array(count, sizeof *out->models);
    out->parameters = mem_array(count, sizeof *out->parameters);
    out->weights = mem_array(count, sizeof *out->weights);
    out->is_in = mem_array(count, sizeof *out->is_in);
    out->in_soup = mem_array(count, sizeof *out->in_soup);
    r->soup = soup_create();
    bool is_short = out->paths == NULL || out->models == NULL || out->parameters == NULL ||
                    out->weights == NULL || out->is_in == NULL || out->in_soup == NULL ||
                    r->soup == NULL;
    for (size_t i = 0; !is_short && i < count; i++) {
        out->paths[i] = mem_string(r->options->paths[i]);
        out->count++;
        is_short = out->paths[i] == NULL;
    }
    if (is_short) return fault_set(why, RC_NOMEM, "cannot compare models: out of memory");
    enum rc rc = comparison_card(r->options->paths[0], &card, why);
    if (rc != RC_OK) return rc;
    struct dataset_options dataset = comparison_data(&card, r->options->seed);
    char tokenizer[MODEL_PATH_BYTES];
    const char *data = r->options->data != NULL ? r->options->data : card.data;
    if (r->options->data == NULL && card.data[0] == '\0') { /* written by another program */
        return fault_set(why, RC_USAGE, "%s does not say what data it was trained on; pass --data",
                         r->options->paths[0]);
    }
    if (model_tokenizer_find(&card, r->options->paths[0], r->options->tokenizer, tokenizer)) {
        dataset.tokenizer = tokenizer;
    }
    rc = dataset_open(data, &dataset, &r->dataset, why);
    if (rc == RC_OK) rc = dataset_load_test(r->dataset, r->options->samples_max, &r->test, why);
    if (rc != RC_OK) return rc;
    snprintf(out->data, sizeof out->data, "%s", dataset_info(r->dataset)->name);
    out->train_samples = dataset_info(r->dataset)->train_samples;
    out->samples = r->test.count;
    out->is_text = dataset_info(r->dataset)->target == DATA_NEXT_TOKEN;
    if (dataset_info(r->dataset)->target == DATA_CLASS) {
        rc = count_classes(&r->test, dataset_info(r->dataset)->classes, &out->most_frequent);
        if (rc != RC_OK) return fault_set(why, rc, "cannot compare models: out of memory");
    }
    rc = make_ensemble(r, why);
    return rc == RC_OK ? select_members(r, why) : rc;
}

enum rc comparison_run(struct backend *backend, const struct comparison_options *options,
                       struct comparison *out, struct fault *why)
{
    CHECK(options->paths_count > 0 && out != NULL);
    struct comparison result = {.distance = NAN, .selection = NAN};
    struct reading r = {.backend = backend,
                        .options = options,
                        .out = &result,
                        .is_one_spec = true,
                        .work = {.told = options->on_progress, .context = options->context}};
    enum rc rc = reading_begin(&r, why);

    if (rc == RC_OK) rc = read_parts(&r, why);
    if (rc == RC_OK) rc = read_average(&r, why);
    ensemble_destroy(r.ensemble);
    soup_destroy(r.soup);
    selection_deinit(&r.selection);
    samples_deinit(&r.test);
    dataset_close(r.dataset);
    if (rc == RC_OK) {
        *out = result;
    } else {
        comparison_deinit(&result);
    }
    return rc;
}

size_t comparison_members(const struct comparison *comparison)
{
    size_t members = 0;

    for (size_t i = 0; i < comparison->count; i++) {
        members += comparison->is_in[i];
    }
    return members;
}

void comparison_deinit(struct comparison *comparison)
{
    for (size_t i = 0; i < comparison->count; i++) {
        mem_free(comparison->paths[i]);
    }
    mem_free(comparison->paths);
    mem_free(comparison->models);
    mem_free(comparison->parameters);
    mem_free(comparison->weights);
    mem_free(comparison->is_in);
    mem_free(comparison->in_soup);
    *comparison = (struct comparison){.count = 0};
}

struct json *comparison_members_json(const struct comparison *c)
{
    struct json *members = json_array_create();

    for (size_t i = 0; i < c->count; i++) {
        if (c->is_in[i]) json_append_text(members, c->paths[i]);
    }
    return members;
}

struct json *comparison_json(const struct comparison *c)
{
    struct json *json = json_object_create(), *files = json_array_create();
    struct json *accuracy = json_array_create(), *loss = json_array_create();
    struct json *calibration = json_array_create(), *weights = json_array_create();
    struct json *ensemble = score_json(&c->votes[VOTE_MEAN]);

    for (size_t i = 0; i < c->count; i++) {
        json_append_text(files, c->paths[i]);
        json_append_real(accuracy, score_accuracy(&c->models[i]));
        json_append_real(loss, score_loss(&c->models[i]));
        json_append_real(calibration, score_calibration(&c->models[i]));
        json_append_real(weights, c->weights[i]);
    }
    json_set(json, "files", files);
    json_set(json, "accuracy", accuracy);
    json_set(json, "loss", loss);
    json_set(json, "calibration_error", calibration);
    if (c->has_average) {
        json_set(json, "average_model", score_json(&c->average));
        json_set(json, "average_members", comparison_members_json(c));
    } else {
        json_set_null(json, "average_model");
        json_set_text(json, "average_model_missing", c->average_missing);
    }
    json_set(ensemble, "logits", score_json(&c->votes[VOTE_LOGITS]));
    json_set_real(ensemble, "vote_accuracy", score_accuracy(&c->votes[VOTE_MAJORITY]));
    json_set(json, "ensemble", ensemble);
    json_set(json, "weights", weights);
    json_set_real(json, "consensus_distance", c->distance);
    json_set_text(json, "data", c->data);
    json_set_count(json, "samples", c->samples);
    return json;
}
