/*
 * Model files: the parameters by name, and in the metadata all that is needed to rebuild and feed
 * the model. Reading trusts nothing: spec, shapes, types and values are checked before a model
 * exists. Backends whose memory the host cannot read are not saved from here.
 */
#include "replica/model.h"

#include "base/check.h"
#include "base/units.h"
#include "kernels/backend.h"
#include "replica/store_safetensors.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char format_version[] = "grapevine-model-1";

static enum rc set_count(struct tensor_file *file, const char *key, uint64_t value)
{
    char text[32];

    snprintf(text, sizeof(text), "%" PRIu64, value);
    return tensor_file_set(file, key, text);
}

static enum rc set_real(struct tensor_file *file, const char *key, float value)
{
    char text[32];

    snprintf(text, sizeof(text), "%.9g", (double)value);
    return tensor_file_set(file, key, text);
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
    if (rc == RC_OK) rc = set_real(file, "mean", card->mean);
    if (rc == RC_OK) rc = set_real(file, "scale", card->scale);
    if (rc == RC_OK) rc = set_count(file, "step", card->step);
    if (rc == RC_OK) rc = set_count(file, "samples", card->samples);
    return rc;
}

enum rc model_save(struct model *model, const struct model_card *card, struct tensor_file *file)
{
    const struct schema *schema = model_schema(model);
    enum rc rc = write_card(card, file);

    for (uint32_t t = 0; rc == RC_OK && t < schema->tensors_count; t++) {
        const struct tensor *tensor = &schema->tensors[t];
        struct tensor_view view = {
            .name = tensor->name,
            .dtype = "F32",
            .rank = tensor->rank,
            .bytes = model_plane(model, tensor->section) + tensor->offset,
            .bytes_count = tensor->count * sizeof(float),
        };
        for (uint32_t d = 0; d < tensor->rank; d++) {
            view.shape[d] = tensor->shape[d];
        }
        rc = tensor_file_add(file, &view);
    }
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

static enum rc read_real(const struct source *from, const char *key, float *value)
{
    char text[32];
    char *end = NULL;
    enum rc rc = read_text(from, key, text, sizeof(text));

    if (rc != RC_OK) return rc;
    *value = strtof(text, &end);
    if (end == text || *end != '\0' || !isfinite(*value)) {
        return fault_set(from->why, RC_FORMAT, "cannot use %s: '%s' is '%s', not a finite number",
                         from->name, key, text);
    }
    return RC_OK;
}

enum rc model_card_read(const struct tensor_file *file, const char *name, struct model_card *card,
                        struct fault *why)
{
    struct source from = {file, name, why};
    struct model_card read;
    char version[32];
    enum rc rc = read_text(&from, "format", version, sizeof(version));

    if (rc == RC_OK && strcmp(version, format_version) != 0) {
        return fault_set(why, RC_FORMAT, "cannot use %s: its format is '%s', this program reads %s",
                         name, version, format_version);
    }
    if (rc == RC_OK) rc = read_text(&from, "model", read.spec, sizeof(read.spec));
    if (rc == RC_OK) rc = read_text(&from, "data", read.data, sizeof(read.data));
    if (rc == RC_OK) rc = read_extent(&from, "channels", 1u << 16, &read.channels);
    if (rc == RC_OK) rc = read_extent(&from, "height", 1u << 16, &read.height);
    if (rc == RC_OK) rc = read_extent(&from, "width", 1u << 16, &read.width);
    if (rc == RC_OK) rc = read_extent(&from, "classes", 256, &read.classes);
    if (rc == RC_OK) rc = read_real(&from, "mean", &read.mean);
    if (rc == RC_OK) rc = read_real(&from, "scale", &read.scale);
    if (rc == RC_OK) rc = read_count(&from, "step", 0, UINT64_MAX, &read.step);
    if (rc == RC_OK) rc = read_count(&from, "samples", 0, UINT64_MAX, &read.samples);
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

static enum rc read_tensor(struct model *model, const struct tensor *tensor,
                           const struct source *from)
{
    const struct tensor_view *view = tensor_file_find(from->file, tensor->name);
    struct backend *backend = model_backend(model);
    float *to = model_plane(model, tensor->section) + tensor->offset;
    bool is_finite = false;
    enum rc rc;

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
    rc = backend->ops->upload(backend, to, view->bytes, view->bytes_count);
    if (rc == RC_OK) rc = backend->ops->is_finite(backend, to, tensor->count, &is_finite);
    if (rc != RC_OK) return fault_set(from->why, rc, "cannot use %s: %s", from->name, rc_text(rc));
    if (!is_finite) {
        return fault_set(from->why, RC_NONFINITE,
                         "cannot use %s: tensor '%s' holds a NaN or an infinity", from->name,
                         tensor->name);
    }
    return RC_OK;
}

enum rc model_load(struct backend *backend, const struct tensor_file *file, const char *name,
                   uint32_t batch_max, bool with_gradients, struct model **model,
                   struct model_card *card, struct fault *why)
{
    struct source from = {file, name, why};
    struct model_options options = {.batch_max = batch_max, .with_gradients = with_gradients};
    struct model *loaded = NULL;
    struct model_card read;
    const struct schema *schema;
    enum rc rc = model_card_read(file, name, &read, why);

    if (rc != RC_OK) return rc;
    options.spec = read.spec;
    options.channels = read.channels;
    options.height = read.height;
    options.width = read.width;
    options.classes = read.classes;
    rc = model_create(backend, &options, &loaded, why);
    if (rc != RC_OK) return rc;
    schema = model_schema(loaded);
    for (uint32_t t = 0; rc == RC_OK && t < schema->tensors_count; t++) {
        rc = read_tensor(loaded, &schema->tensors[t], &from);
    }
    if (rc != RC_OK) {
        model_destroy(loaded);
        return rc;
    }
    *model = loaded;
    *card = read;
    return RC_OK;
}
