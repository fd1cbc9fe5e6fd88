/*
 * Model files: the parameters by name, and in the metadata all that is needed to rebuild and feed
 * the model. Reading trusts nothing: spec, shapes, types and values are checked before a model
 * exists. Backends whose memory the host cannot read are not saved from here.
 */
#include "replica/formats/model_file.h"

#include "base/check.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/units.h"
#include "kernels/backend.h"
#include "replica/formats/gpt2.h"
#include "replica/formats/packed.h"
#include "replica/plane/store_safetensors.h"
#include "replica/tokenizer/tokenizer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { EXTENT_MAX = 1 << 22 }; /* a sample's values: no data has more */

static const char format_version[] = "grapevine-model-2";
static const char *const input_names[] = {
    [MODEL_INPUT_IMAGE] = "image",
    [MODEL_INPUT_TOKENS] = "tokens",
};

static enum rc set_count(struct tensor_file *file, const char *key, uint64_t value)
{
    char text[32];

    snprintf(text, sizeof(text), "%" PRIu64, value);
    return tensor_file_set(file, key, text);
}

/* The byte of each symbol, two hexadecimal digits each. */
static enum rc set_symbols(struct tensor_file *file, const struct model_card *card)
{
    char text[2 * MODEL_SYMBOLS_MAX + 1] = "";

    if (card->has_tokenizer) return model_tokenizer_write(card, file);
    if (card->symbols == 0 || card->symbols > MODEL_SYMBOLS_MAX) return RC_OK;
    for (uint32_t i = 0; i < card->symbols; i++) {
        snprintf(text + 2 * (size_t)i, 3, "%02x", card->symbol_bytes[i]);
    }
    return tensor_file_set(file, "symbol_bytes", text);
}

enum rc model_tokenizer_write(const struct model_card *card, struct tensor_file *file)
{
    char text[DIGEST_TEXT];
    enum rc rc;

    if (!card->has_tokenizer) return RC_OK;
    digest_format(card->tokenizer_digest, text);
    rc = tensor_file_set(file, "tokenizer", card->tokenizer);
    return rc == RC_OK ? tensor_file_set(file, "tokenizer_hash", text) : rc;
}

enum rc model_tokenizer_read(const struct tensor_file *file, const char *name,
                             struct model_card *card, struct fault *why)
{
    const char *digest = tensor_file_get(file, "tokenizer_hash");
    const char *path = tensor_file_get(file, "tokenizer");

    if (digest == NULL) return RC_OK;
    if (!digest_parse(digest, &card->tokenizer_digest)) {
        return fault_set(why, RC_FORMAT,
                         "cannot use %s: 'tokenizer_hash' is not 64 hexadecimal digits", name);
    }
    card->has_tokenizer = true;
    if (path != NULL && strlen(path) < sizeof card->tokenizer) {
        memcpy(card->tokenizer, path, strlen(path) + 1);
    }
    return RC_OK;
}

bool model_tokenizer_find(const struct model_card *card, const char *path, const char *given,
                          char found[MODEL_PATH_BYTES])
{
    const char *slash = strrchr(path, '/');
    char folder[MODEL_PATH_BYTES];
    struct stat at;

    snprintf(found, MODEL_PATH_BYTES, "%s", given != NULL ? given : card->tokenizer);
    if (given != NULL) return true;
    if (card->input != MODEL_INPUT_TOKENS || card->has_symbol_bytes) {
        found[0] = '\0';
        return false;
    }
    /* What a file of others names may be anything, as a pipe that nobody writes to. */
    if (found[0] != '\0' && stat(found, &at) == 0 && (S_ISREG(at.st_mode) || S_ISDIR(at.st_mode))) {
        return true;
    }
    snprintf(folder, sizeof folder, "%.*s", slash == NULL ? 0 : (int)(slash + 1 - path), path);
    if (tokenizer_find(folder, found, MODEL_PATH_BYTES)) return true;
    found[0] = '\0';
    return false;
}

enum rc model_tokenizer_check(const struct model_card *card, const char *path,
                              const struct digest *digest, struct fault *why)
{
    char text[DIGEST_TEXT];

    if (digest == NULL && !card->has_tokenizer) return RC_OK;
    if (digest != NULL && card->has_symbol_bytes) {
        return fault_set(why, RC_MISMATCH,
                         "%s was trained on bytes, not on a tokenizer's tokens; leave --tokenizer "
                         "out",
                         path);
    }
    if (digest != NULL &&
        (!card->has_tokenizer || digest_is_equal(*digest, card->tokenizer_digest))) {
        return RC_OK; /* GPT-2's own files do not say which it was */
    }
    digest_format(card->tokenizer_digest, text);
    return fault_set(why, RC_MISMATCH,
                     "%s was trained with %s tokenizer, %s%s%u tokens, hash %.16s; pass it with "
                     "--tokenizer FILE",
                     path, digest == NULL ? "a" : "another", card->tokenizer,
                     card->tokenizer[0] != '\0' ? ", " : "", card->symbols, text);
}

static enum rc write_card(const struct model_card *card, struct tensor_file *file)
{
    enum rc rc = tensor_file_set(file, "format", format_version);

    if (rc == RC_OK) rc = tensor_file_set(file, "model", card->spec);
    if (rc == RC_OK) rc = tensor_file_set(file, "data", card->data);
    if (rc == RC_OK) rc = set_count(file, "channels", card->channels);
    if (rc == RC_OK) rc = set_count(file, "height", card->height);
    if (rc == RC_OK) rc = set_count(file, "width", card->width);
    if (rc == RC_OK) rc = set_count(file, "classes", card->classes);
    if (rc == RC_OK) rc = tensor_file_set(file, "input", input_names[card->input]);
    if (rc == RC_OK)
        rc = tensor_file_set(file, "target", card->is_regression ? "reals" : "classes");
    if (rc == RC_OK) rc = set_count(file, "symbols", card->symbols);
    if (rc == RC_OK) rc = set_symbols(file, card);
    if (rc == RC_OK && card->class_words[0] != '\0') {
        rc = tensor_file_set(file, "class_words", card->class_words);
    }
    if (rc == RC_OK && card->column_words[0] != '\0') {
        rc = tensor_file_set(file, "column_words", card->column_words);
    }
    if (rc == RC_OK) rc = set_count(file, "step", card->step);
    if (rc == RC_OK) rc = set_count(file, "samples", card->samples);
    if (rc != RC_OK || card->input_members == 0) return rc;
    rc = set_count(file, "input_members", card->input_members);
    return rc == RC_OK ? set_count(file, "input_samples", card->input_samples) : rc;
}

/* One of the two arrays that normalise the input. */
static struct tensor_view normalisation_view(const struct model *model, const char *name,
                                             const float *values)
{
    struct tensor_view view = {
        .name = name,
        .dtype = "F32",
        .rank = 1,
        .bytes = values,
    };
    view.shape[0] = model_channels(model);
    view.bytes_count = view.shape[0] * sizeof(float);
    return view;
}

static enum rc add_normalisation(const struct model *model, struct tensor_file *file)
{
    struct tensor_view mean = normalisation_view(model, "input.mean", model_mean(model));
    struct tensor_view scale = normalisation_view(model, "input.scale", model_scale(model));
    enum rc rc = tensor_file_add(file, &mean);

    return rc == RC_OK ? tensor_file_add(file, &scale) : rc;
}

static enum rc add_tensor(struct tensor_file *file, const struct tensor *tensor,
                          const float *values)
{
    struct tensor_view view = {
        .name = tensor->name,
        .dtype = "F32",
        .rank = tensor->rank,
        .bytes = values,
        .bytes_count = tensor->count * sizeof(float),
    };

    for (uint32_t d = 0; d < tensor->rank; d++) {
        view.shape[d] = tensor->shape[d];
    }
    return tensor_file_add(file, &view);
}

/* Which form weights take. */
enum form { FORM_PLAIN, FORM_SPARSE, FORM_INT8 };

static enum rc save(struct model *model, const struct model_card *card, enum form form,
                    struct tensor_file *file)
{
    const struct schema *schema = model_schema(model);
    const float *planes[SECTION_COUNT] = {NULL};
    enum rc rc = write_card(card, file);

    if (rc == RC_OK) rc = model_host_plane(model, SECTION_PARAMETERS, &planes[SECTION_PARAMETERS]);
    if (rc == RC_OK) rc = model_host_plane(model, SECTION_BUFFERS, &planes[SECTION_BUFFERS]);

    for (uint32_t t = 0; rc == RC_OK && t < schema->tensors_count; t++) {
        const struct tensor *tensor = &schema->tensors[t];
        const float *values = planes[tensor->section] + tensor->offset;

        if (form != FORM_PLAIN && packed_may(tensor))
            rc = packed_add(file, tensor, values, form == FORM_INT8);
        else
            rc = add_tensor(file, tensor, values);
    }
    return rc == RC_OK ? add_normalisation(model, file) : rc;
}

enum rc model_save(struct model *model, const struct model_card *card, struct tensor_file *file)
{
    return save(model, card, FORM_PLAIN, file);
}

enum rc model_save_packed(struct model *model, const struct model_card *card, bool is_int8,
                          struct tensor_file *file)
{
    return save(model, card, is_int8 ? FORM_INT8 : FORM_SPARSE, file);
}

enum rc model_save_as(struct model *model, const struct model_card *card, const char *path,
                      struct fault *why)
{
    struct tensor_file *file = tensor_file_create();
    enum rc rc = file != NULL ? model_save(model, card, file) : RC_NOMEM;

    if (rc == RC_OK)
        rc = tensor_file_save(file, path, why);
    else
        fault_set(why, rc, "cannot write %s: %s", path, rc_text(rc));
    tensor_file_destroy(file);
    return rc;
}

/* Where a card comes from, for messages. */
struct source {
    const struct tensor_file *file;
    const char *name;
    struct fault *why;
};

static enum rc read_text(const struct source *from, const char *key, char *text, size_t cap)
{
    const char *value = tensor_file_get(from->file, key);

    if (value == NULL) {
        return fault_set(from->why, RC_FORMAT,
                         "cannot use %s: no '%s' in its metadata; it is not a model file of "
                         "grapevine",
                         from->name, key);
    }
    if (strlen(value) >= cap) {
        return fault_set(from->why, RC_FORMAT, "cannot use %s: '%s' is longer than %zu letters",
                         from->name, key, cap - 1);
    }
    memcpy(text, value, strlen(value) + 1);
    return RC_OK;
}

static enum rc read_count(const struct source *from, const char *key, uint64_t low, uint64_t high,
                          uint64_t *count)
{
    char text[32];
    enum rc rc = read_text(from, key, text, sizeof(text));

    if (rc != RC_OK) return rc;
    if (!units_parse_count(text, count) || *count < low || *count > high) {
        return fault_set(from->why, RC_FORMAT,
                         "cannot use %s: '%s' is '%s', not a number from %" PRIu64 " to %" PRIu64,
                         from->name, key, text, low, high);
    }
    return RC_OK;
}

static enum rc read_extent(const struct source *from, const char *key, uint32_t high,
                           uint32_t *extent)
{
    uint64_t count = 0;
    enum rc rc = read_count(from, key, 1, high, &count);

    *extent = (uint32_t)count;
    return rc;
}

static enum rc read_input(const struct source *from, enum model_input *input)
{
    char text[32];
    enum rc rc = read_text(from, "input", text, sizeof(text));

    if (rc != RC_OK) return rc;
    for (size_t i = 0; i < ARRAY_COUNT(input_names); i++) {
        if (strcmp(text, input_names[i]) != 0) continue;
        *input = (enum model_input)i;
        return RC_OK;
    }
    return fault_set(from->why, RC_FORMAT, "cannot use %s: its input is '%s', not image or tokens",
                     from->name, text);
}

static enum rc read_target(const struct source *from, bool *is_regression)
{
    char text[32];
    enum rc rc = read_text(from, "target", text, sizeof(text));

    if (rc != RC_OK) return rc;
    *is_regression = strcmp(text, "reals") == 0;
    if (*is_regression || strcmp(text, "classes") == 0) return RC_OK;
    return fault_set(from->why, RC_FORMAT,
                     "cannot use %s: its target is '%s', not classes or reals", from->name, text);
}

static int digit_of(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static enum rc read_symbols(const struct source *from, struct model_card *card)
{
    bool is_seen[UINT8_MAX + 1] = {false};
    const char *text = tensor_file_get(from->file, "symbol_bytes");

    if (text == NULL) return RC_OK; /* tokens that stand for no bytes */
    if (strlen(text) != 2 * (size_t)card->symbols || card->symbols > MODEL_SYMBOLS_MAX) {
        return fault_set(from->why, RC_FORMAT,
                         "cannot use %s: 'symbol_bytes' names %zu symbols, "
                         "not %u",
                         from->name, strlen(text) / 2, card->symbols);
    }
    card->has_symbol_bytes = true;
    for (uint32_t i = 0; i < card->symbols; i++) {
        int high = digit_of(text[2 * i]), low = digit_of(text[2 * i + 1]);
        if (high < 0 || low < 0) {
            return fault_set(from->why, RC_FORMAT,
                             "cannot use %s: 'symbol_bytes' is not hexadecimal", from->name);
        }
        card->symbol_bytes[i] = (uint8_t)(high * 16 + low);
        card->has_symbol_bytes &= !is_seen[card->symbol_bytes[i]];
        is_seen[card->symbol_bytes[i]] = true;
    }
    return RC_OK;
}

/* Files of old have none; a word a class, or it is refused. */
static enum rc read_lines(const struct source *from, const char *key, uint32_t count, char *to,
                          size_t cap)
{
    const char *text = tensor_file_get(from->file, key);
    uint32_t words = 0;
    bool is_plain = true;

    if (text == NULL) return RC_OK;
    for (const char *at = text; *at != '\0'; at++) {
        words += *at == '\n';
        is_plain &= *at == '\n' || ((unsigned char)*at >= 0x20 && *at != 0x7F);
    }
    if (!is_plain || words != count || words == 0 || text[strlen(text) - 1] != '\n' ||
        strlen(text) >= cap) {
        return fault_set(from->why, RC_FORMAT,
                         "cannot use %s: '%s' are not %u plain lines of up to %zu bytes in all",
                         from->name, key, count, cap - 1);
    }
    memcpy(to, text, strlen(text) + 1);
    return RC_OK;
}

static enum rc read_words(const struct source *from, struct model_card *card)
{
    enum rc rc =
        read_lines(from, "class_words", card->classes, card->class_words, sizeof card->class_words);

    if (rc != RC_OK) return rc;
    return read_lines(from, "column_words", card->channels, card->column_words,
                      sizeof card->column_words);
}

/* Files of old, and those of named data, have neither. */
static enum rc read_input_of(const struct source *from, struct model_card *card)
{
    enum rc rc;

    if (tensor_file_get(from->file, "input_members") == NULL) return RC_OK;
    rc = read_count(from, "input_members", 1, UINT64_MAX, &card->input_members);
    return rc == RC_OK ? read_count(from, "input_samples", 1, UINT64_MAX, &card->input_samples)
                       : rc;
}

enum rc model_card_read(const struct tensor_file *file, const char *name, struct model_card *card,
                        struct fault *why)
{
    struct source from = {file, name, why};
    struct model_card read = {.symbols = 0};
    uint64_t symbols = 0;
    char version[32];
    enum rc rc;

    if (gpt2_is_file(file)) return gpt2_card_read(file, name, card, why);
    rc = read_text(&from, "format", version, sizeof(version));
    if (rc == RC_OK && strcmp(version, format_version) != 0) {
        return fault_set(why, RC_FORMAT, "cannot use %s: its format is '%s', this program reads %s",
                         name, version, format_version);
    }
    if (rc == RC_OK) rc = read_text(&from, "model", read.spec, sizeof(read.spec));
    if (rc == RC_OK) rc = read_text(&from, "data", read.data, sizeof(read.data));
    if (rc == RC_OK) rc = read_extent(&from, "channels", EXTENT_MAX, &read.channels);
    if (rc == RC_OK) rc = read_extent(&from, "height", EXTENT_MAX, &read.height);
    if (rc == RC_OK) rc = read_extent(&from, "width", EXTENT_MAX, &read.width);
    if (rc == RC_OK) rc = read_extent(&from, "classes", MODEL_CLASSES_MAX, &read.classes);
    if (rc == RC_OK) rc = read_input(&from, &read.input);
    if (rc == RC_OK) rc = read_target(&from, &read.is_regression);
    if (rc == RC_OK) rc = read_count(&from, "symbols", 0, MODEL_CLASSES_MAX, &symbols);
    read.symbols = (uint32_t)symbols;
    if (rc == RC_OK) rc = read_symbols(&from, &read);
    if (rc == RC_OK) rc = model_tokenizer_read(file, name, &read, why);
    if (rc == RC_OK) rc = read_words(&from, &read);
    if (rc == RC_OK) rc = read_count(&from, "step", 0, UINT64_MAX, &read.step);
    if (rc == RC_OK) rc = read_count(&from, "samples", 0, UINT64_MAX, &read.samples);
    if (rc == RC_OK) rc = read_input_of(&from, &read);
    if (rc == RC_OK) *card = read;
    return rc;
}

static bool is_same_shape(const struct tensor *tensor, const struct tensor_view *view)
{
    if (strcmp(view->dtype, "F32") != 0 || view->rank != tensor->rank) return false;
    if (view->bytes_count != tensor->count * sizeof(float)) return false;
    for (uint32_t d = 0; d < tensor->rank; d++) {
        if (view->shape[d] != tensor->shape[d]) return false;
    }
    return true;
}

/* Values of a tensor into the model; none of them may be a NaN or an infinity. */
static enum rc take_values(struct model *model, const struct tensor *tensor, const void *values,
                           const struct source *from)
{
    struct backend *backend = model_backend(model);
    float *to = model_plane(model, tensor->section) + tensor->offset;
    bool is_finite = false;
    enum rc rc = backend->ops->upload(backend, to, values, tensor->count * sizeof(float));

    if (rc == RC_OK) rc = backend->ops->is_finite(backend, to, tensor->count, &is_finite);
    if (rc != RC_OK) return fault_set(from->why, rc, "cannot use %s: %s", from->name, rc_text(rc));
    if (!is_finite) {
        return fault_set(from->why, RC_NONFINITE,
                         "cannot use %s: tensor '%s' holds a NaN or an infinity", from->name,
                         tensor->name);
    }
    return RC_OK;
}

static enum rc read_packed(struct model *model, const struct tensor *tensor,
                           const struct source *from)
{
    float *values = mem_array(tensor->count, sizeof *values);
    enum rc rc;

    if (values == NULL) {
        return fault_set(from->why, RC_NOMEM, "cannot use %s: out of memory", from->name);
    }
    rc = packed_read(from->file, from->name, tensor, values, from->why);
    if (rc == RC_OK) rc = take_values(model, tensor, values, from);
    mem_free(values);
    return rc;
}

static enum rc read_tensor(struct model *model, const struct tensor *tensor,
                           const struct source *from)
{
    const struct tensor_view *view = tensor_file_find(from->file, tensor->name);

    if (packed_is(from->file, tensor)) return read_packed(model, tensor, from);
    if (view == NULL) {
        return fault_set(from->why, RC_FORMAT, "cannot use %s: tensor '%s' is missing", from->name,
                         tensor->name);
    }
    if (!is_same_shape(tensor, view)) {
        return fault_set(from->why, RC_SHAPE,
                         "cannot use %s: tensor '%s' has another shape or type than its layer list "
                         "says",
                         from->name, tensor->name);
    }
    return take_values(model, tensor, view->bytes, from);
}

static enum rc read_normalisation(struct model *model, const struct source *from)
{
    const char *names[2] = {"input.mean", "input.scale"};
    float *values[2] = {NULL, NULL};
    size_t count = model_channels(model);
    enum rc rc = RC_OK;

    for (int i = 0; rc == RC_OK && i < 2; i++) {
        const struct tensor_view *view = tensor_file_find(from->file, names[i]);
        values[i] = mem_array(count, sizeof(float));
        if (values[i] == NULL) {
            rc = fault_set(from->why, RC_NOMEM, "cannot use %s: out of memory", from->name);
        } else if (view == NULL || strcmp(view->dtype, "F32") != 0 ||
                   view->bytes_count != count * sizeof(float)) {
            rc = fault_set(from->why, RC_FORMAT,
                           "cannot use %s: tensor '%s' is missing or does not fit its %zu channels",
                           from->name, names[i], count);
        } else {
            memcpy(values[i], view->bytes, view->bytes_count);
            for (size_t c = 0; rc == RC_OK && c < count; c++) {
                if (isfinite(values[i][c])) continue;
                rc = fault_set(from->why, RC_NONFINITE,
                               "cannot use %s: tensor '%s' holds a NaN or an infinity", from->name,
                               names[i]);
            }
        }
    }
    if (rc == RC_OK) model_set_normalisation(model, values[0], values[1]);
    mem_free(values[0]);
    mem_free(values[1]);
    return rc;
}

/* All values of a model that was created from the file's card. */
static enum rc read_values(struct model *model, const struct source *from)
{
    const struct schema *schema = model_schema(model);
    enum rc rc = RC_OK;

    if (gpt2_is_file(from->file)) return gpt2_fill(model, from->file, from->name, from->why);
    for (uint32_t t = 0; rc == RC_OK && t < schema->tensors_count; t++) {
        rc = read_tensor(model, &schema->tensors[t], from);
    }
    return rc == RC_OK ? read_normalisation(model, from) : rc;
}

/* As many values as the file can hold at most; 1 if it is empty. */
static uint64_t count_values(const struct tensor_file *file)
{
    uint64_t values = 1;

    for (size_t i = 0; i < tensor_file_count(file); i++) {
        values += packed_values_max(tensor_file_at(file, i));
    }
    return values;
}

enum rc model_load_with(struct backend *backend, const struct tensor_file *file, const char *name,
                        const struct model_load_options *load, struct model **model,
                        struct model_card *card, struct fault *why)
{
    struct source from = {file, name, why};
    struct model_options options = {.batch_max = load->batch_max,
                                    .with_gradients = load->with_gradients,
                                    .is_stepwise = load->is_stepwise};
    struct model *loaded = NULL;
    struct model_card read;
    struct fault refusal = {""};
    enum rc rc = model_card_read(file, name, &read, why);

    if (rc != RC_OK) return rc;
    CHECK(load->steps <= read.width);
    options.spec = read.spec;
    options.channels = read.channels;
    options.height = read.height;
    options.width = load->steps > 0 ? load->steps : read.width;
    options.classes = read.classes;
    options.input = read.input;
    options.symbols = read.symbols;
    options.file_values = count_values(file);
    rc = model_create(backend, &options, &loaded, &refusal);
    if (rc != RC_OK) return fault_set(why, rc, "cannot use %s: %s", name, refusal.text);
    rc = read_values(loaded, &from);
    if (rc != RC_OK) {
        model_destroy(loaded);
        return rc;
    }
    *model = loaded;
    *card = read;
    return RC_OK;
}

enum rc model_load(struct backend *backend, const struct tensor_file *file, const char *name,
                   uint32_t batch_max, bool with_gradients, struct model **model,
                   struct model_card *card, struct fault *why)
{
    const struct model_load_options options = {.batch_max = batch_max,
                                               .with_gradients = with_gradients};

    return model_load_with(backend, file, name, &options, model, card, why);
}
