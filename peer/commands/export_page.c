/*
 * The page of a model. Samples to try are in it where the data are public (digits, Fashion-MNIST)
 * or where --data says so; of where other data lie nothing goes into the page.
 */
#include "peer/commands/export_page.h"

#include "base/base64.h"
#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "peer/watch/page/page.h"
#include "replica/data/dataset.h"
#include "replica/formats/export_onnx.h"
#include "replica/formats/model_file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    RUNTIME_BYTES_MAX = 1 << 26,
    MODEL_BYTES_MAX = 1 << 28, /* a browser keeps it three times */
    INDEX_BYTES_MAX = 1 << 20,
    SAMPLES_MOST = 10,
    SAMPLES_LOOKED_AT = 1000,
    SIDE_MAX = 1024
};

static const char generator[] = "grapevine export --to page"; /* in classify.html */
static const char runtime_head[] = "/* runtime.js of a grapevine page:";

/* What is known of a kind of data besides its images; `kind` ends before its colon. Words: where
 * neither model nor --labels has some. */
static const struct known {
    const char *kind, *words, *framing;
} known_data[] = {
    {"digits", "0,1,2,3,4,5,6,7,8,9", "fill"},
    {"idx", NULL, "mass"},
    {"cifar10", "airplane,automobile,bird,cat,deer,dog,frog,horse,ship,truck", "crop"},
};

struct page {
    const struct export_page_options *options;
    struct model *model;
    struct model_card card;
    const struct known *known; /* NULL: nothing is */
    char kind[sizeof((struct model_card *)0)->data];
    struct fault *why;
};

/* ---- what the page is told ---- */

/* The words of a list whose words end with `end`, as many as there are classes; NULL otherwise. */
static struct json *words_of(const char *list, char end, uint32_t classes)
{
    struct json *words = json_array_create();
    char word[MODEL_WORDS_BYTES];
    const char ends[] = {end, '\0'};

    while (*list != '\0') {
        const size_t length = strcspn(list, ends);
        snprintf(word, sizeof word, "%.*s", (int)length, list);
        json_append_text(words, word);
        list += length + (list[length] == end);
    }
    if (json_count(words) == classes) return words;
    json_destroy(words);
    return NULL;
}

static enum rc set_words(const struct page *page, struct json *json)
{
    const char *labels = page->options->labels;
    struct json *words = NULL;

    if (labels != NULL) {
        words = words_of(labels, ',', page->card.classes);
        if (words == NULL) {
            return fault_set(page->why, RC_USAGE,
                             "--labels: the model knows %u classes, and these "
                             "are not as many",
                             page->card.classes);
        }
    } else if (page->card.class_words[0] != '\0') {
        words = words_of(page->card.class_words, '\n', page->card.classes);
    } else if (page->known != NULL && page->known->words != NULL) {
        words = words_of(page->known->words, ',', page->card.classes);
    }
    if (words != NULL)
        json_set(json, "words", words);
    else
        json_set_null(json, "words");
    return RC_OK;
}

/* ---- samples to try ---- */

/* The raw bytes of a normalised sample, in base64; false: they are no pixels from 0 to 1. */
static bool add_sample(const struct page *page, const float *values, uint32_t label,
                       struct json *samples)
{
    const size_t each = (size_t)page->card.height * page->card.width,
                 count = each * page->card.channels;
    const float *mean = model_mean(page->model), *scale = model_scale(page->model);
    uint8_t *bytes = mem_array(count, 1);
    char *text = mem_array(base64_length(count) + 1, 1);
    struct json *sample;
    bool is_fine = bytes != NULL && text != NULL;

    for (size_t i = 0; is_fine && i < count; i++) {
        const float raw = values[i] / scale[i / each] + mean[i / each];
        is_fine = raw > -0.01F && raw < 1.01F;
        if (is_fine) bytes[i] = (uint8_t)lrintf(255.0F * fminf(fmaxf(raw, 0.0F), 1.0F));
    }
    if (is_fine) {
        base64_encode(bytes, count, text);
        sample = json_object_create();
        json_set_count(sample, "label", label);
        json_set_text(sample, "pixels", text);
        json_append(samples, sample);
    }
    mem_free(bytes);
    mem_free(text);
    return is_fine;
}

/* The first test sample of each of the first classes. */
static enum rc choose_samples(const struct page *page, const struct samples *test,
                              const struct dataset_info *info, struct json *samples)
{
    bool is_there[SAMPLES_MOST] = {false};
    struct batch batch;
    enum rc rc = batch_init(&batch, info, 1);

    if (rc != RC_OK) return fault_set(page->why, rc, "cannot write a page: out of memory");
    for (uint32_t c = 0; rc == RC_OK && c < SAMPLES_MOST; c++) {
        for (size_t i = 0; rc == RC_OK && i < test->count && !is_there[c]; i++) {
            const struct pick pick = {NULL, i, 1};
            rc = samples_gather(test, info, pick, &batch);
            if (rc != RC_OK || batch.labels[0] != c) continue;
            is_there[c] = true;
            if (add_sample(page, batch.values, c, samples)) continue;
            rc = fault_set(page->why, RC_UNSUPPORTED,
                           "cannot take samples of %s: their values "
                           "are no pixels from 0 to 1",
                           info->name);
        }
    }
    batch_deinit(&batch);
    return rc;
}

static enum rc read_samples(const struct page *page, const char *spec, struct json *samples)
{
    const struct dataset_options request = {.seed = 1};
    const struct model_card *card = &page->card;
    struct dataset *dataset = NULL;
    struct dataset_info info;
    struct samples test = {0};
    enum rc rc = dataset_open(spec, &request, &dataset, page->why);

    if (rc != RC_OK) return rc;
    info = *dataset_info(dataset);
    if (info.input != DATA_IMAGES || info.target != DATA_CLASS || info.channels != card->channels ||
        info.height != card->height || info.width != card->width || info.outputs != card->classes) {
        rc = fault_set(page->why, RC_MISMATCH,
                       "--data %s: these are not the %ux%ux%u images of %u "
                       "classes that the model reads",
                       spec, card->channels, card->height, card->width, card->classes);
    }
    info.mean = model_mean(page->model);
    info.scale = model_scale(page->model);
    if (rc == RC_OK) rc = dataset_load_test(dataset, SAMPLES_LOOKED_AT, &test, page->why);
    if (rc == RC_OK) rc = choose_samples(page, &test, &info, samples);
    samples_deinit(&test);
    dataset_close(dataset);
    return rc;
}

static enum rc set_samples(struct page *page, struct json *json)
{
    const char *spec = page->options->data;
    struct json *samples = json_array_create();
    struct fault unheard = {""}, *why = page->why;
    enum rc rc = RC_OK;

    if (spec != NULL) {
        rc = read_samples(page, spec, samples);
    } else if (strcmp(page->card.data, "digits") == 0 ||
               strcmp(page->card.data, "fashion-mnist") == 0) {
        page->why = &unheard; /* not installed here: a page without samples */
        if (read_samples(page, page->card.data, samples) != RC_OK) {
            json_destroy(samples);
            samples = json_array_create();
        }
        page->why = why;
    }
    json_set(json, "samples", samples);
    return rc;
}

static enum rc describe(struct page *page, struct json *json)
{
    const struct model_card *card = &page->card;
    struct json *mean = json_array_create();
    enum rc rc;

    json_set_text(json, "name", page->options->name);
    json_set_text(json, "data", page->kind);
    json_set_count(json, "channels", card->channels);
    json_set_count(json, "height", card->height);
    json_set_count(json, "width", card->width);
    json_set_count(json, "classes", card->classes);
    json_set_count(json, "parameters", model_schema(page->model)->values[SECTION_PARAMETERS]);
    for (uint32_t c = 0; c < card->channels; c++)
        json_append_real(mean, (double)model_mean(page->model)[c]);
    json_set(json, "mean", mean);
    json_set_text(json, "framing", page->known != NULL ? page->known->framing : "fill");
    rc = set_words(page, json);
    return rc == RC_OK ? set_samples(page, json) : rc;
}

/* ---- files ---- */

static enum rc write_part(const struct page *page, const char *name, const struct piece *pieces,
                          size_t pieces_count)
{
    char path[MODEL_PATH_BYTES];

    snprintf(path, sizeof path, "%s/%s", page->options->folder, name);
    return file_replace(path, pieces, pieces_count, 0644, page->why);
}

static enum rc write_text(const struct page *page, const char *name, const char *text)
{
    return write_part(page, name, &(struct piece){text, strlen(text)}, 1);
}

/* model.onnx, and the same with what the page has to know as model.js. */
static enum rc write_model(const struct page *page, const struct json *json)
{
    char path[MODEL_PATH_BYTES], *text = NULL, *card = NULL;
    void *bytes = NULL;
    size_t count = 0;
    enum rc rc;

    snprintf(path, sizeof path, "%s/model.onnx", page->options->folder);
    rc = export_onnx(page->model, &page->card, page->options->file, path, page->why);
    if (rc == RC_OK) rc = file_read(path, MODEL_BYTES_MAX, &bytes, &count, page->why);
    if (rc != RC_OK) return rc;
    text = mem_array(base64_length(count), 1);
    card = json_format(json);
    if (text != NULL && card != NULL) {
        base64_encode(bytes, count, text);
        const struct piece pieces[] = {{"const MODEL = ", 14},
                                       {card, strlen(card)},
                                       {";\nMODEL.onnx = \"", 16},
                                       {text, base64_length(count)},
                                       {"\";\n", 3}};
        rc = write_part(page, "model.js", pieces, ARRAY_COUNT(pieces));
    } else {
        rc = fault_set(page->why, RC_NOMEM, "cannot write %s: out of memory", path);
    }
    mem_free(card);
    mem_free(text);
    mem_free(bytes);
    return rc;
}

static enum rc write_all(const struct page *page, const struct json *json, const void *runtime,
                         size_t runtime_count)
{
    const struct piece piece = {runtime, runtime_count};
    enum rc rc = write_model(page, json);

    if (rc == RC_OK) rc = write_part(page, "runtime.js", &piece, 1);
    if (rc == RC_OK) rc = write_text(page, "page.css", page_classify_style);
    if (rc == RC_OK) rc = write_text(page, "page.js", page_classify_script);
    return rc == RC_OK ? write_text(page, "index.html", page_classify) : rc;
}

/* ---- what has to be there ---- */

static enum rc check_model(const struct page *page)
{
    const struct model_card *card = &page->card;
    const char *reads = NULL;

    if (card->input == MODEL_INPUT_TOKENS)
        reads = "text";
    else if (card->is_regression)
        reads = "something else than classes";
    else if (card->height < 2 || card->width < 2)
        reads = "rows of numbers";
    else if (card->channels != 1 && card->channels != 3)
        reads = "images that are neither grey nor of three colours";
    else if (card->height > SIDE_MAX || card->width > SIDE_MAX)
        reads = "images of more than 1024 pixels a side";
    else
        return RC_OK;
    return fault_set(page->why, RC_UNSUPPORTED,
                     "cannot make a page of %s: it %s %s; a page classifies "
                     "images. Use --to onnx",
                     page->options->name, card->is_regression ? "predicts" : "reads", reads);
}

static enum rc find_runtime(const struct page *page, char path[MODEL_PATH_BYTES])
{
    static const char *const places[] = {"../web/runtime.js", "../share/grapevine/runtime.js"};
    const char *given = page->options->runtime;
    char folder[MODEL_PATH_BYTES / 2];
    ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);
    char *slash;

    if (given != NULL) {
        snprintf(path, MODEL_PATH_BYTES, "%s", given);
        return RC_OK;
    }
    folder[length < 0 ? 0 : length] = '\0';
    slash = strrchr(folder, '/');
    if (slash != NULL) *slash = '\0';
    for (size_t i = 0; i < ARRAY_COUNT(places); i++) {
        snprintf(path, MODEL_PATH_BYTES, "%s/%s", folder, places[i]);
        if (file_is_there(path)) return RC_OK;
    }
    return fault_set(
        page->why, RC_NOT_FOUND,
        "cannot write a page: runtime.js, which runs models in a browser, is not here; make it "
        "once with peer/watch/page/runtime.sh (it takes onnxruntime-web from npm), or say "
        "--runtime FILE");
}

static enum rc read_runtime(const struct page *page, void **bytes, size_t *count)
{
    char path[MODEL_PATH_BYTES];
    enum rc rc = find_runtime(page, path);

    if (rc == RC_OK) rc = file_read(path, RUNTIME_BYTES_MAX, bytes, count, page->why);
    if (rc != RC_OK) return rc;
    if (*count > sizeof runtime_head && memcmp(*bytes, runtime_head, sizeof runtime_head - 1) == 0)
        return RC_OK;
    mem_free(*bytes);
    *bytes = NULL;
    return fault_set(page->why, RC_FORMAT,
                     "cannot use %s: it is not what peer/watch/page/runtime.sh makes", path);
}

/* An index.html that is somebody's own is not ours to replace. */
static enum rc check_folder(const struct page *page)
{
    char path[MODEL_PATH_BYTES];
    void *bytes = NULL;
    size_t count;
    bool is_ours;

    if (strlen(page->options->folder) > MODEL_PATH_BYTES - 16) {
        return fault_set(page->why, RC_USAGE, "--out: the folder's name is too long");
    }
    snprintf(path, sizeof path, "%s/index.html", page->options->folder);
    if (!file_is_there(path)) return RC_OK;
    is_ours = file_read(path, INDEX_BYTES_MAX, &bytes, &count, page->why) == RC_OK &&
              strstr(bytes, generator) != NULL;
    mem_free(bytes);
    if (is_ours) return RC_OK;
    return fault_set(page->why, RC_USAGE,
                     "--out %s: its index.html is no page of a model, and would be "
                     "overwritten; choose another folder",
                     page->options->folder);
}

/* Of other data only the kind is told: where they lie is nobody's business. */
static void look_up_data(struct page *page)
{
    snprintf(page->kind, sizeof page->kind, "%.*s", (int)strcspn(page->card.data, ":,"),
             page->card.data);
    for (size_t i = 0; i < ARRAY_COUNT(known_data); i++) {
        if (strcmp(known_data[i].kind, page->kind) == 0) page->known = &known_data[i];
    }
}

enum rc export_page(const struct export_page_options *options, struct model *model,
                    const struct model_card *card, struct fault *why)
{
    struct page page = {.options = options, .model = model, .card = *card, .why = why};
    struct json *json = json_object_create();
    void *runtime = NULL;
    size_t runtime_count = 0;
    const bool is_new = !file_is_there(options->folder);
    enum rc rc = check_model(&page);

    look_up_data(&page);
    if (rc == RC_OK) rc = check_folder(&page);
    if (rc == RC_OK) rc = describe(&page, json);
    if (rc == RC_OK) rc = read_runtime(&page, &runtime, &runtime_count);
    snprintf(page.card.data, sizeof page.card.data, "%s", page.kind);
    if (rc == RC_OK) rc = file_make_folder(options->folder, why);
    if (rc == RC_OK) {
        rc = write_all(&page, json, runtime, runtime_count);
        if (rc != RC_OK && is_new) (void)rmdir(options->folder); /* no layer of it, no page */
    }
    json_destroy(json);
    mem_free(runtime);
    return rc;
}
