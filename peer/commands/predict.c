/*
 * command_predict: inference on images, rows of numbers, or the test part of a data
 * set: the likeliest classes of each row, or its real values.
 */
#include "peer/cli/command.h"

#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/plain.h"
#include "kernels/backend.h"
#include "peer/cli/progress.h"
#include "replica/data/dataset.h"
#include "replica/formats/model_file.h"
#include "replica/learners/team.h"
#include "replica/plane/store_safetensors.h"
#include "replica/readers/input_rows.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCH = 64, TOP_DEFAULT = 5 };

struct prediction {
    const struct options *options;
    const char *path; /* of the model */
    struct backend *backend;
    struct team *team;
    struct model *model; /* the team's */
    struct model_card card;
    uint32_t top;
    uint64_t rows; /* told so far */
    size_t values; /* of a row */
    float *input, *logits;
    double *shares;
    uint32_t *order;
    struct progress progress;
    bool shows; /* rows on the terminal are progress enough */
    struct fault *why;
};

/* ---- one row ---- */

static int compare_shares(const void *a, const void *b, void *context)
{
    const double *shares = context;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    if (shares[x] > shares[y] || shares[x] < shares[y]) return shares[x] > shares[y] ? -1 : 1;
    return x < y ? -1 : 1;
}

/* Probabilities, and the classes by them. */
static void rank(struct prediction *p, const float *logits)
{
    uint32_t classes = p->card.classes;
    double most = logits[0], sum = 0.0;

    for (uint32_t c = 0; c < classes; c++) {
        most = fmax(most, logits[c]);
    }
    for (uint32_t c = 0; c < classes; c++) {
        p->shares[c] = exp(logits[c] - most);
        sum += p->shares[c];
        p->order[c] = c;
    }
    for (uint32_t c = 0; c < classes; c++) {
        p->shares[c] /= sum;
    }
    qsort_r(p->order, classes, sizeof *p->order, compare_shares, p->shares);
}

/* The word of a class, `*bytes` long; NULL: it has none. */
static const char *word_of(const struct prediction *p, uint32_t class, int *bytes)
{
    const char *at = p->card.class_words;

    if (at[0] == '\0') return NULL;
    for (; class > 0; class --) {
        at = strchr(at, '\n') + 1; /* there are as many as classes */
    }
    *bytes = (int)strcspn(at, "\n");
    return at;
}

static void set_class(const struct prediction *p, struct json *json, const char *key,
                      const char *key_of_word, uint32_t class)
{
    char text[MODEL_WORDS_BYTES];
    int bytes = 0;
    const char *word = word_of(p, class, &bytes);

    json_set_count(json, key, class);
    if (word == NULL) return;
    snprintf(text, sizeof text, "%.*s", bytes, word);
    json_set_text(json, key_of_word, text);
}

static void print_class(const struct prediction *p, uint32_t class)
{
    int bytes = 0;
    const char *word = word_of(p, class, &bytes);

    char text[4 * MODEL_WORDS_BYTES];

    if (word != NULL)
        fputs(plain_bytes(word, (size_t)bytes, text, sizeof text), stdout);
    else
        printf("%u", class);
}

static void print_json(const struct prediction *p, const float *logits, const uint32_t *label)
{
    struct json *json = json_object_create(), *list = json_array_create();

    json_set_count(json, "row", p->rows);
    if (label != NULL) set_class(p, json, "label", "label_word", *label);
    for (uint32_t k = 0; k < p->top; k++) {
        struct json *entry;
        if (p->card.is_regression) {
            json_append_real(list, logits[k]);
            continue;
        }
        entry = json_object_create();
        set_class(p, entry, "class", "word", p->order[k]);
        json_set_real(entry, "probability", p->shares[p->order[k]]);
        json_append(list, entry);
    }
    json_set(json, p->card.is_regression ? "values" : "top", list);
    command_print_json(json);
}

static void print_words(const struct prediction *p, const float *logits, const uint32_t *label)
{
    printf("%-6" PRIu64, p->rows);
    for (uint32_t k = 0; k < p->top; k++) {
        if (p->card.is_regression) {
            printf("  %.6g", (double)logits[k]);
            continue;
        }
        printf("  ");
        print_class(p, p->order[k]);
        printf(" %.2f %%", 100.0 * p->shares[p->order[k]]);
    }
    if (label != NULL) {
        printf("  (is ");
        print_class(p, *label);
        putchar(')');
    }
    putchar('\n');
}

static enum rc tell_row(struct prediction *p, const float *logits, const uint32_t *label)
{
    for (uint32_t c = 0; c < p->card.classes; c++) {
        if (isfinite(logits[c])) continue;
        return fault_set(p->why, RC_NONFINITE,
                         "row %" PRIu64 ": %s answers with a NaN or an infinity; are the values "
                         "those that it was trained on?",
                         p->rows, p->path);
    }
    if (!p->card.is_regression) rank(p, logits);
    if (options_flag(p->options, "json"))
        print_json(p, logits, label);
    else
        print_words(p, logits, label);
    p->rows++;
    return RC_OK;
}

/* `rows` normalised rows in p->input. */
static enum rc tell_batch(struct prediction *p, uint32_t rows, const uint32_t *labels)
{
    enum rc rc = team_forward(p->team, p->input, rows, false, p->logits);

    if (rc != RC_OK) {
        return fault_set(p->why, rc, "cannot predict rows from %" PRIu64 " on: %s", p->rows,
                         rc == RC_NONFINITE ? "a token that the model does not know" : rc_text(rc));
    }
    for (uint32_t r = 0; rc == RC_OK && r < rows; r++) {
        rc = tell_row(p, p->logits + (size_t)r * p->card.classes,
                      labels == NULL ? NULL : labels + r);
    }
    return rc;
}

static void tell_share(struct prediction *p, double share)
{
    if (p->shows) progress_tell(&p->progress, "predicting", share, "");
}

/* ---- where rows come from ---- */

static void normalise(const struct prediction *p, float *values)
{
    size_t each = p->values / model_channels(p->model);
    const float *mean = model_mean(p->model), *scale = model_scale(p->model);

    if (p->card.input == MODEL_INPUT_TOKENS) return;
    for (size_t i = 0; i < p->values; i++) {
        values[i] = (values[i] - mean[i / each]) * scale[i / each];
    }
}

static enum rc predict_file(struct prediction *p, const char *path)
{
    struct input_rows *rows = NULL;
    bool is_there = true;
    enum rc rc = input_rows_open(
        path, (struct input_shape){p->card.channels, p->card.height, p->card.width}, &rows, p->why);

    if (rc == RC_OK) input_rows_name(rows, p->card.column_words);
    while (rc == RC_OK && is_there) {
        uint32_t count = 0;
        while (rc == RC_OK && count < BATCH) {
            float *values = p->input + count * p->values;
            rc = input_rows_next(rows, values, &is_there, p->why);
            if (rc != RC_OK || !is_there) break;
            normalise(p, values);
            count++;
        }
        if (rc == RC_OK && count > 0) rc = tell_batch(p, count, NULL);
        if (rc == RC_OK) tell_share(p, input_rows_share(rows));
    }
    input_rows_close(rows);
    if (rc == RC_OK && p->rows == 0) {
        rc = fault_set(p->why, RC_FORMAT, "cannot use %s: it has no rows", path);
    }
    return rc;
}

static enum rc check_data(const struct prediction *p, const struct dataset_info *info)
{
    const struct model_card *card = &p->card;

    if (info->channels == card->channels && info->height == card->height &&
        info->width == card->width &&
        (info->input == DATA_TOKENS) == (card->input == MODEL_INPUT_TOKENS) &&
        info->target != DATA_NEXT_TOKEN && info->outputs == card->classes) {
        return RC_OK;
    }
    return fault_set(p->why, RC_MISMATCH,
                     "%s reads %ux%ux%u values and gives %u, but %s has %ux%ux%u and %u", p->path,
                     card->channels, card->height, card->width, card->classes, info->name,
                     info->channels, info->height, info->width, info->outputs);
}

static enum rc predict_samples(struct prediction *p, const struct samples *test,
                               const struct dataset_info *info)
{
    struct batch batch;
    enum rc rc = batch_init(&batch, info, BATCH);

    if (rc != RC_OK) return fault_set(p->why, rc, "cannot predict: out of memory");
    for (size_t at = 0; rc == RC_OK && at < test->count; at += batch.rows) {
        size_t left = test->count - at;
        struct pick pick = {NULL, at, left < BATCH ? (uint32_t)left : BATCH};
        rc = samples_gather(test, info, pick, &batch);
        if (rc != RC_OK) break;
        memcpy(p->input, batch.values, pick.rows * p->values * sizeof *p->input);
        rc = tell_batch(p, pick.rows, batch.labels);
        if (rc == RC_OK) tell_share(p, (double)(at + pick.rows) / (double)test->count);
        batch.rows = pick.rows;
    }
    batch_deinit(&batch);
    return rc;
}

static enum rc predict_data(struct prediction *p, const char *spec)
{
    const struct dataset_options request = {
        .seed = 1,
        .context = p->card.input == MODEL_INPUT_TOKENS ? p->card.width : 0,
        .columns = p->card.column_words,
        .labels = p->card.class_words,
        .labels_of = "the model's classes"};
    struct dataset *dataset = NULL;
    struct dataset_info info;
    struct samples test = {0};
    enum rc rc = dataset_open(spec, &request, &dataset, p->why);

    if (rc != RC_OK) return rc;
    info = *dataset_info(dataset);
    rc = check_data(p, &info);
    info.mean = model_mean(p->model); /* as the model was trained, whatever these samples are */
    info.scale = model_scale(p->model);
    if (rc == RC_OK) rc = dataset_load_test(dataset, 0, &test, p->why);
    if (rc == RC_OK) rc = predict_samples(p, &test, &info);
    samples_deinit(&test);
    dataset_close(dataset);
    return rc;
}

/* ---- the command ---- */

static enum rc check_model(struct prediction *p)
{
    uint64_t top = options_is_set(p->options, "top") ? options_count(p->options, "top") : 0;

    if (model_rows(p->model) > 1) {
        return fault_set(p->why, RC_USAGE,
                         "%s predicts each next token of a text; use 'grapevine generate %s "
                         "--prompt TEXT'",
                         p->path, p->path);
    }
    if (top > p->card.classes) {
        return fault_set(p->why, RC_USAGE, "--top %" PRIu64 ": %s knows %u classes", top, p->path,
                         p->card.classes);
    }
    p->top = p->card.classes < TOP_DEFAULT ? p->card.classes : TOP_DEFAULT;
    if (p->card.is_regression) p->top = p->card.classes;
    if (top > 0) p->top = (uint32_t)top;
    return RC_OK;
}

static enum rc take_room(struct prediction *p)
{
    size_t classes = p->card.classes;

    p->values = (size_t)p->card.channels * p->card.height * p->card.width;
    p->input = mem_array(BATCH * p->values, sizeof *p->input);
    p->logits = mem_array(BATCH * classes, sizeof *p->logits);
    p->shares = mem_array(classes, sizeof *p->shares);
    p->order = mem_array(classes, sizeof *p->order);
    if (p->input != NULL && p->logits != NULL && p->shares != NULL && p->order != NULL) {
        return RC_OK;
    }
    return fault_set(p->why, RC_NOMEM, "cannot predict: out of memory");
}

static enum rc load(struct prediction *p, const struct tensor_file *file)
{
    struct team_around around;
    struct backend *backend = team_around_begin(p->backend, &around);
    enum rc rc;

    if (backend == NULL) return fault_set(p->why, RC_NOMEM, "cannot predict: out of memory");
    rc = model_load(backend, file, p->path, BATCH, false, &around.model, &p->card, p->why);
    if (rc != RC_OK) {
        backend_destroy(around.backend);
        return rc;
    }
    rc = team_around(&around, &p->team, p->why);
    if (rc == RC_OK) p->model = team_model(p->team);
    return rc;
}

static enum rc predict(struct prediction *p)
{
    const char *input = options_text(p->options, "input"), *data = options_text(p->options, "data");
    struct tensor_file *file = NULL;
    enum rc rc;

    if ((input == NULL) == (data == NULL)) {
        return fault_set(p->why, RC_USAGE, "predict needs --input FILE, or --data SPEC");
    }
    rc = tensor_file_load(p->path, &file, p->why);
    if (rc == RC_OK) rc = command_backend(p->options, &p->backend, p->why);
    if (rc == RC_OK) rc = load(p, file);
    tensor_file_destroy(file);
    if (rc == RC_OK) rc = check_model(p);
    if (rc == RC_OK) rc = take_room(p);
    if (rc != RC_OK) return rc;
    return input != NULL ? predict_file(p, input) : predict_data(p, data);
}

int command_predict(struct options *options)
{
    struct fault why = {""};
    size_t count;
    struct prediction p = {.options = options, .why = &why};
    enum rc rc;

    p.path = options_arguments(options, &count)[0];
    p.shows = isatty(STDOUT_FILENO) != 1;
    progress_init(&p.progress, options);
    rc = predict(&p);
    progress_clear(&p.progress);
    team_destroy(p.team);
    backend_destroy(p.backend);
    mem_free(p.input);
    mem_free(p.logits);
    mem_free(p.shares);
    mem_free(p.order);
    if (rc != RC_OK) return command_failed(rc, &why);
    progress_end(&p.progress);
    return EXIT_DONE;
}
