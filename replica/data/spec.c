/* Reader of the `--data` language: see spec.h. */
#include "replica/data/spec.h"

#include "base/check.h"
#include "base/mem.h"
#include "base/spec.h"
#include "base/units.h"
#include "base/words.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_SHOWN = 100 };

enum rc data_spec_fault(const struct data_spec *spec, size_t column, struct fault *why,
                        const char *format, ...)
{
    char what[320];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return fault_set(why, RC_PARSE, "--data %.*s: column %zu: %s", TEXT_SHOWN, spec->text, column,
                     what);
}

/* One piece between commas; `at` is its place in the text. */
static enum rc add_piece(struct data_spec *spec, char *piece, size_t at, struct fault *why)
{
    char *equals = strchr(piece, '=');
    struct data_item *item;

    /* The first piece is a file even if its name has an equals sign. */
    if (equals == NULL || spec->files_count == 0) {
        if (spec->items_count > 0 || spec->files_count == DATA_SPEC_FILES_MAX) {
            return data_spec_fault(spec, at + 1, why, "expected key=value, not '%.40s'", piece);
        }
        spec->files[spec->files_count++] = piece;
        return RC_OK;
    }
    if (spec->items_count == DATA_SPEC_ITEMS_MAX) {
        return data_spec_fault(spec, at + 1, why, "more than %d settings", DATA_SPEC_ITEMS_MAX);
    }
    if (equals == piece || equals[1] == '\0') {
        return data_spec_fault(spec, at + 1, why, "expected key=value, not '%.40s'", piece);
    }
    *equals = '\0';
    item = &spec->items[spec->items_count++];
    item->key = piece;
    item->value = equals + 1;
    item->column = at + 1;
    item->value_column = at + 1 + (size_t)(equals + 1 - piece);
    return RC_OK;
}

enum rc data_spec_parse(const char *text, struct data_spec *spec, struct fault *why)
{
    struct data_spec parsed = {.text = text, .copy = mem_string(text)};
    char *colon, *piece;
    enum rc rc = RC_OK;

    if (parsed.copy == NULL) return fault_set(why, RC_NOMEM, "cannot open the data: out of memory");
    parsed.kind = parsed.copy;
    colon = strchr(parsed.copy, ':');
    if (colon != NULL) {
        *colon = '\0';
        parsed.rest = text + (colon + 1 - parsed.copy);
    }
    for (piece = colon == NULL ? NULL : colon + 1; rc == RC_OK && piece != NULL;) {
        char *comma = strchr(piece, ',');
        if (comma != NULL) *comma = '\0';
        rc = add_piece(&parsed, piece, (size_t)(piece - parsed.copy), why);
        piece = comma == NULL ? NULL : comma + 1;
    }
    if (rc != RC_OK) {
        data_spec_deinit(&parsed);
        return rc;
    }
    *spec = parsed;
    return RC_OK;
}

void data_spec_deinit(struct data_spec *spec)
{
    mem_free(spec->copy);
    *spec = (struct data_spec){.text = NULL};
}

static enum rc check_item(const struct data_spec *spec, size_t index, const char *const *keys,
                          size_t keys_count, const char *repeated, struct fault *why)
{
    const struct data_item *item = &spec->items[index];
    const char *nearest;
    bool is_known = false;

    for (size_t k = 0; k < keys_count; k++) {
        is_known = is_known || strcmp(item->key, keys[k]) == 0;
    }
    if (!is_known) {
        nearest = word_nearest(item->key, keys, keys_count);
        if (nearest != NULL) {
            return data_spec_fault(spec, item->column, why, "unknown key '%.40s'; did you mean %s?",
                                   item->key, nearest);
        }
        return data_spec_fault(spec, item->column, why, "unknown key '%.40s'", item->key);
    }
    if (repeated != NULL && strcmp(item->key, repeated) == 0) return RC_OK;
    for (size_t i = 0; i < index; i++) {
        if (strcmp(spec->items[i].key, item->key) == 0) {
            return data_spec_fault(spec, item->column, why, "'%s' is given twice", item->key);
        }
    }
    return RC_OK;
}

enum rc data_spec_check(const struct data_spec *spec, size_t files_count, const char *what,
                        const char *const *keys, size_t keys_count, const char *repeated,
                        struct fault *why)
{
    enum rc rc = RC_OK;

    for (size_t i = 0; i < files_count; i++) {
        if (i >= spec->files_count || spec->files[i][0] == '\0') {
            size_t column = i < spec->files_count ? (size_t)(spec->files[i] - spec->copy) + 1
                                                  : strlen(spec->text) + 1;
            return data_spec_fault(spec, column, why, "%s is missing", what);
        }
    }
    if (spec->files_count > files_count) {
        return data_spec_fault(spec, (size_t)(spec->files[files_count] - spec->copy) + 1, why,
                               "expected key=value, not '%.40s'", spec->files[files_count]);
    }
    for (size_t i = 0; rc == RC_OK && i < spec->items_count; i++) {
        rc = check_item(spec, i, keys, keys_count, repeated, why);
    }
    return rc;
}

const struct data_item *data_spec_find(const struct data_spec *spec, const char *key)
{
    for (size_t i = 0; i < spec->items_count; i++) {
        if (strcmp(spec->items[i].key, key) == 0) return &spec->items[i];
    }
    return NULL;
}

enum rc data_spec_count(const struct data_spec *spec, const char *key, uint32_t min, uint32_t max,
                        uint32_t *value, struct fault *why)
{
    const struct data_item *item = data_spec_find(spec, key);
    uint64_t count;

    if (item == NULL) return RC_OK;
    if (!units_parse_count(item->value, &count) || count < min || count > max) {
        return data_spec_fault(spec, item->value_column, why,
                               "%s must be a whole number from %u to %u", key, min, max);
    }
    *value = (uint32_t)count;
    return RC_OK;
}

enum rc data_spec_real(const struct data_spec *spec, const char *key, double min, double max,
                       double *value, struct fault *why)
{
    const struct data_item *item = data_spec_find(spec, key);
    char *end = NULL;
    double number;

    if (item == NULL) return RC_OK;
    number = strtod(item->value, &end);
    if (strspn(item->value, "0123456789.eE+-") != strlen(item->value) || *end != '\0' ||
        !(number >= min) || !(number <= max)) {
        return data_spec_fault(spec, item->value_column, why, "%s must be a number from %g to %g",
                               key, min, max);
    }
    *value = number;
    return RC_OK;
}
