/*
 * comparison_load: model files that are to work on some data: what is checked before one does, and
 * the teams that run it. See comparison.h. Thread: the command's, one at a time.
 */
#include "distill/comparison.h"

#include "base/check.h"
#include "kernels/backend.h"
#include "replica/learners/team.h"
#include "replica/plane/store_safetensors.h"

#include <stdio.h>
#include <string.h>

enum rc comparison_card(const char *path, struct model_card *card, struct fault *why)
{
    struct tensor_file *file = NULL;
    enum rc rc = tensor_file_load(path, &file, why);

    if (rc == RC_OK) rc = model_card_read(file, path, card, why);
    tensor_file_destroy(file);
    return rc;
}

struct dataset_options comparison_data(const struct model_card *card, uint64_t seed)
{
    return (struct dataset_options){.seed = seed,
                                    .context = card->input == MODEL_INPUT_TOKENS ? card->width : 0,
                                    .columns = card->column_words,
                                    .labels = card->class_words,
                                    .labels_of = "the model's classes"};
}

/* What a model reads and answers, or what data has and asks for, in words. */
static void describe(char *text, size_t cap, bool has_tokens, const uint32_t shape[3], bool is_real,
                     uint32_t outputs)
{
    char input[64];

    if (has_tokens) {
        snprintf(input, sizeof input, "sequences of %u tokens", shape[2]);
    } else {
        snprintf(input, sizeof input, "%ux%ux%u", shape[0], shape[1], shape[2]);
    }
    snprintf(text, cap, "%s and %u %s", input, outputs, is_real ? "real values" : "classes");
}

static enum rc check_shape(const struct comparison_file *file, const struct model_card *card,
                           struct fault *why)
{
    const struct dataset_info *info = file->info;
    const bool model_tokens = card->input == MODEL_INPUT_TOKENS;
    const bool data_tokens = info->input == DATA_TOKENS, data_real = info->target == DATA_REALS;
    const uint32_t takes[3] = {card->channels, card->height, card->width};
    const uint32_t has[3] = {info->channels, info->height, info->width};
    char model[128], data[128];

    if (model_tokens == data_tokens && card->is_regression == data_real &&
        memcmp(takes, has, sizeof has) == 0 && card->classes == info->outputs) {
        return RC_OK;
    }
    describe(model, sizeof model, model_tokens, takes, card->is_regression, card->classes);
    describe(data, sizeof data, data_tokens, has, data_real, info->outputs);
    return fault_set(why, RC_MISMATCH,
                     "%s does not fit the data: the model takes %s, %s has %s; pass the --data it "
                     "was trained on",
                     file->path, model, info->name, data);
}

static enum rc check_tokenizer(const struct comparison_file *file, const struct model_card *card,
                               struct fault *why)
{
    const struct dataset_info *info = file->info;

    if (card->input != MODEL_INPUT_TOKENS || info->input != DATA_TOKENS) return RC_OK;
    return model_tokenizer_check(card, file->path,
                                 info->has_tokenizer ? &info->tokenizer_digest : NULL, why);
}

/* The same number of other symbols would read the text as another one. */
static enum rc check_symbols(const struct comparison_file *file, const struct model_card *card,
                             struct fault *why)
{
    const struct dataset_info *info = file->info;
    const size_t known = info->symbols < MODEL_SYMBOLS_MAX ? info->symbols : MODEL_SYMBOLS_MAX;

    if (card->symbols == info->symbols &&
        memcmp(card->symbol_bytes, info->symbol_bytes, known) == 0) {
        return RC_OK;
    }
    return fault_set(why, RC_MISMATCH,
                     "%s does not fit the data: the model was trained on %u symbols, and the %u of "
                     "%s are not the same; pass the --data it was trained on",
                     file->path, card->symbols, info->symbols, info->name);
}

/* A table numbers its classes by its words: others would give the same numbers to other things.
 * Elsewhere words are but names of given numbers, and files of old have none. */
static enum rc check_words(const struct comparison_file *file, const struct model_card *card,
                           struct fault *why)
{
    const char *mine = card->class_words, *theirs;
    char words[MODEL_WORDS_BYTES];

    task_words(file->info, words);
    theirs = words;
    if (file->info->input != DATA_VECTORS || *mine == '\0' || *theirs == '\0') return RC_OK;
    for (uint32_t class = 0; *mine != '\0' && *theirs != '\0'; class ++) {
        const size_t m = strcspn(mine, "\n"), t = strcspn(theirs, "\n");

        if (m != t || memcmp(mine, theirs, m) != 0) {
            return fault_set(why, RC_MISMATCH,
                             "%s does not fit the data: class %u is '%.*s' for the model and "
                             "'%.*s' in %s; pass the --data it was trained on",
                             file->path, class, (int)m, mine, (int)t, theirs, file->info->name);
        }
        mine += m + 1;
        theirs += t + 1;
    }
    return RC_OK; /* as many of each: check_shape() */
}

/* The first model's columns were looked up by name; the others must read the same. */
static enum rc check_columns(const struct comparison_file *file, const struct model_card *card,
                             struct fault *why)
{
    const char *mine = card->column_words, *theirs;
    char names[MODEL_COLUMNS_BYTES];

    task_columns(file->info, names);
    theirs = names;
    if (*mine == '\0' || *theirs == '\0') return RC_OK;
    for (uint32_t i = 0; *mine != '\0' && *theirs != '\0'; i++) {
        const size_t m = strcspn(mine, "\n"), t = strcspn(theirs, "\n");

        if (m != t || memcmp(mine, theirs, m) != 0) {
            return fault_set(why, RC_MISMATCH,
                             "%s does not fit the data: number %u that it reads is '%.*s', and "
                             "here it is '%.*s'",
                             file->path, i + 1, (int)m, mine, (int)t, theirs);
        }
        mine += m + 1;
        theirs += t + 1;
    }
    return RC_OK; /* as many of each: check_shape() */
}

enum rc comparison_load(struct backend *backend, const struct comparison_file *file,
                        struct model **model, struct model_card *card, struct fault *why)
{
    struct tensor_file *tensors = NULL;
    struct model *loaded = NULL;
    enum rc rc = tensor_file_load(file->path, &tensors, why);

    if (rc == RC_OK) rc = model_card_read(tensors, file->path, card, why);
    if (rc == RC_OK) rc = check_tokenizer(file, card, why);
    if (rc == RC_OK) rc = check_shape(file, card, why);
    if (rc == RC_OK) rc = check_symbols(file, card, why);
    if (rc == RC_OK) rc = check_words(file, card, why);
    if (rc == RC_OK) rc = check_columns(file, card, why);
    if (rc == RC_OK) {
        rc = model_load(backend, tensors, file->path, file->batch_max, file->with_gradients,
                        &loaded, card, why);
    }
    tensor_file_destroy(tensors);
    if (rc == RC_OK && model_rows(loaded) != outputs_rows(file->info)) {
        rc = fault_set(why, RC_MISMATCH,
                       "%s does not fit the data: the model gives %u answers a sample, and %s asks "
                       "for %u",
                       file->path, model_rows(loaded), file->info->name, outputs_rows(file->info));
    }
    if (rc != RC_OK) {
        model_destroy(loaded);
        return rc;
    }
    *model = loaded;
    return RC_OK;
}

enum rc comparison_open(struct backend *backend, const struct comparison_file *file,
                        struct team **team, struct model_card *card, struct fault *why)
{
    struct team_around around = {.threads = 1};
    enum rc rc;

    if (!file->with_gradients) backend = team_around_begin(backend, &around);
    if (backend == NULL) return fault_set(why, RC_NOMEM, "out of memory");
    rc = comparison_load(backend, file, &around.model, card, why);
    if (rc == RC_OK) return team_around(&around, team, why);
    backend_destroy(around.backend);
    return rc;
}
