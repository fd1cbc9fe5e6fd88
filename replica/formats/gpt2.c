/*
 * GPT-2 files. One table pairs our names with Hugging Face's; reading and writing walk it. A file's
 * head is tied where there is no lm_head.weight, or where it equals the embedding to the bit.
 * Values are converted and transposed one tensor at a time, so that reading never has a second copy
 * of the model in memory. Commands.
 */
#include "replica/formats/gpt2.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/floats.h"
#include "base/mem.h"
#include "base/units.h"
#include "kernels/backend.h"
#include "replica/formats/model_file.h"
#include "replica/model/plan.h"
#include "replica/plane/store_safetensors.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { HEAD_VALUES = 64, FOREIGN_NAME_BYTES = 96 };

static const char prefix[] = "transformer.";

/* ---- pairs of names ---- */

struct pair {
    char ours[TENSOR_NAME_BYTES], theirs[FOREIGN_NAME_BYTES]; /* theirs: without the prefix */
    bool is_turned;                                           /* there it is [in][out] */
};

/* Of each layer. Its `ordinal`-th of `each` of the kind. */
static const struct {
    const char *kind, *suffix, *theirs;
    uint32_t each, ordinal;
    bool is_turned;
} of_layer[] = {
    {"ln", "weight", "ln_1.weight", 2, 1, false},
    {"ln", "bias", "ln_1.bias", 2, 1, false},
    {"attention", "qkv.weight", "attn.c_attn.weight", 1, 1, true},
    {"attention", "qkv.bias", "attn.c_attn.bias", 1, 1, false},
    {"attention", "output.weight", "attn.c_proj.weight", 1, 1, true},
    {"attention", "output.bias", "attn.c_proj.bias", 1, 1, false},
    {"ln", "weight", "ln_2.weight", 2, 2, false},
    {"ln", "bias", "ln_2.bias", 2, 2, false},
    {"dense", "weight", "mlp.c_fc.weight", 2, 1, true},
    {"dense", "bias", "mlp.c_fc.bias", 2, 1, false},
    {"dense", "weight", "mlp.c_proj.weight", 2, 2, true},
    {"dense", "bias", "mlp.c_proj.bias", 2, 2, false},
};

/* Of the whole; numbered behind the layers' where the kind has others. */
static const struct {
    const char *kind, *suffix, *theirs;
    bool is_behind;
} of_model[] = {
    {"embed", "weight", "wte.weight", false},    {"positions", "weight", "wpe.weight", false},
    {"ln", "weight", "ln_f.weight", true},       {"ln", "bias", "ln_f.bias", true},
    {"dense", "weight", "lm_head.weight", true},
};

/* Pair number `i`; false behind the last. */
static bool pair_at(const struct gpt2_form *form, size_t i, struct pair *pair)
{
    size_t in_layers = ARRAY_COUNT(of_layer) * form->layers, row = i % ARRAY_COUNT(of_layer);
    uint32_t layer = (uint32_t)(i / ARRAY_COUNT(of_layer)), number;

    if (i < in_layers) {
        number = layer * of_layer[row].each + of_layer[row].ordinal;
        snprintf(pair->ours, sizeof pair->ours, "%s%u.%s", of_layer[row].kind, number,
                 of_layer[row].suffix);
        snprintf(pair->theirs, sizeof pair->theirs, "h.%u.%s", layer, of_layer[row].theirs);
        pair->is_turned = of_layer[row].is_turned;
        return true;
    }
    row = i - in_layers;
    if (row >= ARRAY_COUNT(of_model) - form->is_tied) return false;
    number = of_model[row].is_behind ? 2 * form->layers + 1 : 1;
    snprintf(pair->ours, sizeof pair->ours, "%s%u.%s", of_model[row].kind, number,
             of_model[row].suffix);
    snprintf(pair->theirs, sizeof pair->theirs, "%s", of_model[row].theirs);
    pair->is_turned = false;
    return true;
}

static const struct tensor_view *find(const struct tensor_file *file, const char *theirs)
{
    char name[sizeof prefix + FOREIGN_NAME_BYTES];
    const struct tensor_view *view = tensor_file_find(file, theirs);

    if (view != NULL) return view;
    snprintf(name, sizeof name, "%s%s", prefix, theirs);
    return tensor_file_find(file, name);
}

/* ---- what a file holds ---- */

bool gpt2_is_file(const struct tensor_file *file)
{
    return tensor_file_get(file, "model") == NULL && find(file, "wte.weight") != NULL &&
           find(file, "h.0.attn.c_attn.weight") != NULL;
}

/* The spec of the form, written out as layers_format() does. RC_LIMIT when `cap` is too small. */
static enum rc spec_of(const struct gpt2_form *form, char *text, size_t cap)
{
    size_t at = (size_t)snprintf(text, cap, "embed:%u positions:%u", form->width, form->context);

    for (uint32_t l = 0; l < form->layers && at < cap; l++) {
        at += (size_t)snprintf(text + at, cap - at,
                               " [ ln attention:%u ]+ [ ln linear:%u %s linear:%u ]+", form->heads,
                               form->inner, form->is_exact ? "gelu" : "gelu-tanh", form->width);
    }
    if (at < cap) {
        at += (size_t)snprintf(text + at, cap - at, " ln linear:classes,bias=0%s",
                               form->is_tied ? ",tied=1" : "");
    }
    return at < cap ? RC_OK : RC_LIMIT;
}

static enum rc matrix_of(const struct tensor_file *file, const char *name, const char *theirs,
                         uint64_t extents[2], struct fault *why)
{
    const struct tensor_view *view = find(file, theirs);

    if (view == NULL) {
        return fault_set(why, RC_FORMAT,
                         "cannot use %s: it looks like GPT-2, but tensor '%s' is missing", name,
                         theirs);
    }
    if (view->rank != 2 || view->shape[0] == 0 || view->shape[0] > MODEL_CLASSES_MAX ||
        view->shape[1] == 0 || view->shape[1] > LAYER_WIDTH_MAX) {
        return fault_set(why, RC_SHAPE,
                         "cannot use %s: tensor '%s' is not a matrix of a size that a model has",
                         name, theirs);
    }
    extents[0] = view->shape[0];
    extents[1] = view->shape[1];
    return RC_OK;
}

static uint32_t count_layers(const struct tensor_file *file)
{
    char name[FOREIGN_NAME_BYTES];
    uint32_t layers = 0;

    do {
        snprintf(name, sizeof name, "h.%u.attn.c_attn.weight", layers);
    } while (find(file, name) != NULL && ++layers < LAYERS_MAX);
    return layers;
}

static bool is_head_tied(const struct tensor_file *file)
{
    const struct tensor_view *head = find(file, "lm_head.weight"),
                             *embed = find(file, "wte.weight");

    if (head == NULL || head->bytes == embed->bytes) return true;
    return head->bytes_count == embed->bytes_count && strcmp(head->dtype, embed->dtype) == 0 &&
           memcmp(head->bytes, embed->bytes, head->bytes_count) == 0;
}

static enum rc heads_of(const struct tensor_file *file, const char *name, struct gpt2_form *form,
                        struct fault *why)
{
    const char *text = tensor_file_get(file, "n_head");
    uint64_t heads = form->width / HEAD_VALUES;
    const bool is_count = text == NULL || units_parse_count(text, &heads);

    if (is_count && heads > 0 && heads <= form->width && form->width % heads == 0) {
        form->heads = (uint32_t)heads;
        return RC_OK;
    }
    if (text != NULL) {
        return fault_set(why, RC_SHAPE,
                         "cannot use %s: n_head in its metadata is '%.20s', which does not divide "
                         "its width of %u",
                         name, text, form->width);
    }
    return fault_set(why, RC_SHAPE,
                     "cannot use %s: a width of %u has no heads of %d values; say how many in its "
                     "metadata as n_head",
                     name, form->width, HEAD_VALUES);
}

static enum rc form_of_file(const struct tensor_file *file, const char *name,
                            struct gpt2_form *form, struct fault *why)
{
    const char *gelu = tensor_file_get(file, "activation_function");
    uint64_t embed[2] = {0}, positions[2] = {0}, inner[2] = {0};
    enum rc rc = matrix_of(file, name, "wte.weight", embed, why);

    if (rc == RC_OK) rc = matrix_of(file, name, "wpe.weight", positions, why);
    if (rc == RC_OK) rc = matrix_of(file, name, "h.0.mlp.c_fc.weight", inner, why);
    if (rc != RC_OK) return rc;
    *form = (struct gpt2_form){
        .layers = count_layers(file),
        .width = (uint32_t)embed[1],
        .inner = (uint32_t)inner[1],
        .context = (uint32_t)positions[0],
        .symbols = (uint32_t)embed[0],
        .is_tied = is_head_tied(file),
        .is_exact = gelu != NULL && strcmp(gelu, "gelu") == 0,
    };
    return heads_of(file, name, form, why);
}

/* The byte of each symbol, where we wrote the file. */
static void read_symbols(const struct tensor_file *file, struct model_card *card)
{
    const char *text = tensor_file_get(file, "symbol_bytes");

    if (text == NULL || card->symbols > MODEL_SYMBOLS_MAX ||
        strlen(text) != 2 * (size_t)card->symbols ||
        strspn(text, "0123456789abcdef") != strlen(text)) {
        return;
    }
    for (uint32_t i = 0; i < card->symbols; i++) {
        unsigned byte = 0;
        for (uint32_t d = 0; d < 2; d++) {
            char c = text[2 * i + d];
            byte = byte * 16 + (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10);
        }
        card->symbol_bytes[i] = (uint8_t)byte;
    }
    card->has_symbol_bytes = true;
}

enum rc gpt2_card_read(const struct tensor_file *file, const char *name, struct model_card *card,
                       struct fault *why)
{
    const char *data = tensor_file_get(file, "data");
    struct gpt2_form form;
    struct model_card read = {.input = MODEL_INPUT_TOKENS, .channels = 1, .height = 1};
    enum rc rc = form_of_file(file, name, &form, why);

    if (rc != RC_OK) return rc;
    rc = spec_of(&form, read.spec, sizeof read.spec);
    if (rc != RC_OK) {
        return fault_set(why, rc, "cannot use %s: its %u layers are more than a model can have",
                         name, form.layers);
    }
    read.width = form.context;
    read.classes = read.symbols = form.symbols;
    read_symbols(file, &read);
    rc = model_tokenizer_read(file, name, &read, why);
    if (rc != RC_OK) return rc;
    if (data != NULL && strlen(data) < sizeof read.data) memcpy(read.data, data, strlen(data) + 1);
    *card = read;
    return RC_OK;
}

/* ---- values ---- */

/* IEEE 754 half precision: 1 + 5 + 10 bits. */
static float half_to_float(uint16_t half)
{
    uint32_t exponent = half >> 10 & 0x1F, fraction = half & 0x3FF;
    float magnitude = exponent == 0 ? ldexpf((float)fraction, -24)
                                    : ldexpf((float)(fraction | 0x400), (int)exponent - 25);

    if (exponent == 0x1F) magnitude = fraction == 0 ? INFINITY : NAN;
    return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

static float value_of(const uint8_t *bytes, const char *dtype, size_t i)
{
    if (strcmp(dtype, "F16") == 0) return half_to_float(load_le16(bytes + 2 * i));
    if (dtype[0] == 'F') return load_le_float(bytes + 4 * i);
    return float_of_bits((uint32_t)load_le16(bytes + 2 * i) << 16);
}

/* `view` as [rows][columns] float32 into `to`. */
static void convert(const struct tensor_view *view, bool is_turned, size_t rows, size_t columns,
                    float *to)
{
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < columns; c++) {
            to[r * columns + c] =
                value_of(view->bytes, view->dtype, is_turned ? c * rows + r : r * columns + c);
        }
    }
}

static bool has_shape(const struct tensor_view *view, const struct tensor *tensor, bool is_turned)
{
    if (view->rank != tensor->rank) return false;
    for (uint32_t d = 0; d < tensor->rank; d++) {
        if (view->shape[d] != tensor->shape[is_turned ? tensor->rank - 1 - d : d]) return false;
    }
    return true;
}

static enum rc fill_one(struct model *model, const struct tensor_view *view,
                        const struct tensor *tensor, bool is_turned, bool *is_finite)
{
    struct backend *backend = model_backend(model);
    float *to = model_plane(model, SECTION_PARAMETERS) + tensor->offset;
    float *values = mem_raw(tensor->count * sizeof *values);
    enum rc rc;

    if (values == NULL) return RC_NOMEM;
    convert(view, is_turned, tensor->shape[0], tensor->count / tensor->shape[0], values);
    rc = backend->ops->upload(backend, to, values, tensor->count * sizeof *values);
    if (rc == RC_OK) rc = backend->ops->is_finite(backend, to, tensor->count, is_finite);
    mem_free(values);
    return rc;
}

static enum rc fill_pair(struct model *model, const struct tensor_file *file, const char *name,
                         const struct pair *pair, struct fault *why)
{
    const struct tensor_view *view = find(file, pair->theirs);
    const struct tensor *tensor = schema_find(model_schema(model), pair->ours);
    bool is_finite = false;
    enum rc rc;

    CHECK(tensor != NULL);
    if (view == NULL) {
        return fault_set(why, RC_FORMAT, "cannot use %s: tensor '%s' is missing", name,
                         pair->theirs);
    }
    if (!has_shape(view, tensor, pair->is_turned)) {
        return fault_set(why, RC_SHAPE,
                         "cannot use %s: tensor '%s' has not the shape of the others", name,
                         pair->theirs);
    }
    if (strcmp(view->dtype, "F32") != 0 && strcmp(view->dtype, "F16") != 0 &&
        strcmp(view->dtype, "BF16") != 0) {
        return fault_set(
            why, RC_FORMAT,
            "cannot use %s: tensor '%s' has the type %s; F32, F16 and BF16 can be read", name,
            pair->theirs, view->dtype);
    }
    rc = fill_one(model, view, tensor, pair->is_turned, &is_finite);
    if (rc != RC_OK) return fault_set(why, rc, "cannot use %s: %s", name, rc_text(rc));
    if (is_finite) return RC_OK;
    return fault_set(why, RC_NONFINITE, "cannot use %s: tensor '%s' holds a NaN or an infinity",
                     name, pair->theirs);
}

enum rc gpt2_fill(struct model *model, const struct tensor_file *file, const char *name,
                  struct fault *why)
{
    struct gpt2_form form;
    struct pair pair;
    enum rc rc = form_of_file(file, name, &form, why);

    for (size_t i = 0; rc == RC_OK && pair_at(&form, i, &pair); i++) {
        rc = fill_pair(model, file, name, &pair, why);
    }
    return rc;
}

/* ---- writing ---- */

bool gpt2_form_of(const struct model *model, struct gpt2_form *form)
{
    const struct tensor *embed = schema_find(&model->schema, "embed1.weight");
    const struct tensor *positions = schema_find(&model->schema, "positions1.weight");
    const struct tensor *inner = schema_find(&model->schema, "dense1.weight");
    char spec[LAYERS_TEXT_BYTES];

    if (embed == NULL || positions == NULL || inner == NULL) return false;
    *form = (struct gpt2_form){.width = embed->shape[1],
                               .inner = inner->shape[0],
                               .context = positions->shape[0],
                               .symbols = embed->shape[0]};
    for (uint32_t i = 0; i < model->stages_count; i++) {
        const struct stage *stage = &model->stages[i];
        if (stage->ops == &stage_embed_ops) form->is_tied = stage->partner != NO_STAGE;
        if (stage->ops != &stage_attention_ops) continue;
        form->layers++;
        form->is_exact = strstr(model->spec, "gelu-tanh") == NULL;
        form->heads = stage->layer.count;
    }
    return form->layers > 0 && spec_of(form, spec, sizeof spec) == RC_OK &&
           strcmp(spec, model->spec) == 0;
}

bool gpt2_is_form(const struct model *model)
{
    struct gpt2_form form;

    return gpt2_form_of(model, &form);
}

/* One tensor, in `room` if it has to be turned. */
static enum rc add_pair(const struct model *model, const struct pair *pair, float **room,
                        struct tensor_file *file)
{
    const struct tensor *tensor = schema_find(&model->schema, pair->ours);
    const float *from = model->planes[SECTION_PARAMETERS] + tensor->offset;
    char name[sizeof prefix + FOREIGN_NAME_BYTES];
    struct tensor_view view = {.name = name, .dtype = "F32", .rank = tensor->rank, .bytes = from};
    bool is_head = strcmp(pair->theirs, "lm_head.weight") == 0;

    snprintf(name, sizeof name, "%s%s", is_head ? "" : prefix, pair->theirs);
    view.bytes_count = tensor->count * sizeof(float);
    for (uint32_t d = 0; d < tensor->rank; d++) {
        view.shape[d] = tensor->shape[pair->is_turned ? tensor->rank - 1 - d : d];
    }
    if (pair->is_turned) {
        size_t rows = tensor->shape[0], columns = tensor->shape[1];
        for (size_t i = 0; i < tensor->count; i++) {
            (*room)[i] = from[i % rows * columns + i / rows];
        }
        view.bytes = *room;
        *room += tensor->count;
    }
    return tensor_file_add(file, &view);
}

static enum rc set_count(struct tensor_file *file, const char *key, uint32_t count)
{
    char text[32];

    snprintf(text, sizeof text, "%u", count);
    return tensor_file_set(file, key, text);
}

/* The fields of config.json that such a model has; "format" is what readers in Python ask for. */
static enum rc set_metadata(const struct gpt2_form *form, const struct model_card *card,
                            struct tensor_file *file)
{
    char symbols[2 * MODEL_SYMBOLS_MAX + 1] = "";
    enum rc rc = tensor_file_set(file, "format", "pt");

    if (rc == RC_OK) rc = tensor_file_set(file, "model_type", "gpt2");
    if (rc == RC_OK)
        rc = tensor_file_set(file, "activation_function", form->is_exact ? "gelu" : "gelu_new");
    if (rc == RC_OK) {
        rc = tensor_file_set(file, "tie_word_embeddings", form->is_tied ? "true" : "false");
    }
    if (rc == RC_OK && card->data[0] != '\0') rc = tensor_file_set(file, "data", card->data);
    if (rc == RC_OK) rc = set_count(file, "n_layer", form->layers);
    if (rc == RC_OK) rc = set_count(file, "n_head", form->heads);
    if (rc == RC_OK) rc = set_count(file, "n_embd", form->width);
    if (rc == RC_OK) rc = set_count(file, "n_inner", form->inner);
    if (rc == RC_OK) rc = set_count(file, "n_positions", form->context);
    if (rc == RC_OK) rc = set_count(file, "vocab_size", form->symbols);
    if (rc == RC_OK) rc = model_tokenizer_write(card, file);
    if (rc != RC_OK || !card->has_symbol_bytes) return rc;
    for (uint32_t i = 0; i < card->symbols; i++) {
        snprintf(symbols + 2 * (size_t)i, 3, "%02x", card->symbol_bytes[i]);
    }
    return tensor_file_set(file, "symbol_bytes", symbols);
}

enum rc gpt2_save(const struct model *model, const struct model_card *card, const char *path,
                  struct fault *why)
{
    struct tensor_file *file = tensor_file_create();
    float *room = mem_raw(model->schema.values[SECTION_PARAMETERS] * sizeof *room), *at = room;
    struct gpt2_form form;
    struct pair pair;
    enum rc rc = file == NULL || room == NULL ? RC_NOMEM : RC_OK;

    CHECK(model->backend->is_host && gpt2_form_of(model, &form));
    if (rc == RC_OK) rc = set_metadata(&form, card, file);
    for (size_t i = 0; rc == RC_OK && pair_at(&form, i, &pair); i++) {
        rc = add_pair(model, &pair, &at, file);
    }
    if (rc == RC_OK)
        rc = tensor_file_save(file, path, why);
    else
        fault_set(why, rc, "cannot write %s: %s", path, rc_text(rc));
    tensor_file_destroy(file);
    mem_free(room);
    return rc;
}
