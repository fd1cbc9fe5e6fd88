/* Reader of `name:key=value,...` and the suggestion for a mistyped word. */
#include "base/spec.h"

#include "base/words.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum rc spec_unknown(const char *what, size_t column, const char *kind, const char *word,
                     const char *const *candidates, size_t count, struct fault *why)
{
    const char *nearest = word_nearest(word, candidates, count);
    char known[256] = "";

    if (nearest != NULL) {
        return fault_set(why, RC_PARSE, "%s, column %zu: unknown %s '%s'; did you mean '%s'?", what,
                         column, kind, word, nearest);
    }
    for (size_t i = 0, at = 0; i < count && at < sizeof(known); i++) {
        at += (size_t)snprintf(known + at, sizeof(known) - at, "%s%s", i == 0 ? "" : ", ",
                               candidates[i]);
    }
    return fault_set(why, RC_PARSE, "%s, column %zu: unknown %s '%s'; known: %s", what, column,
                     kind, word, known);
}

/* Copy the run up to one of `stops` into `word`; false if it is empty or too long. */
static bool take_word(const char **at, const char *stops, char word[SPEC_WORD_BYTES])
{
    size_t count = strcspn(*at, stops);

    if (count == 0 || count >= SPEC_WORD_BYTES) return false;
    memcpy(word, *at, count);
    word[count] = '\0';
    *at += count;
    return true;
}

static bool parse_value(const char *word, struct spec_item *item)
{
    char *end = NULL;
    double number;

    if (strspn(word, "0123456789.eE+-%") != strlen(word)) return false; /* no "inf", no "0x1" */
    number = strtod(word, &end);
    if (end == word || !isfinite(number)) return false;
    item->is_percent = *end == '%';
    if (item->is_percent) {
        number /= 100.0;
        end++;
    }
    item->value = number;
    return *end == '\0';
}

static enum rc parse_item(const char *what, const char *text, const char **at, struct spec *spec,
                          struct fault *why)
{
    struct spec_item *item;
    char value[SPEC_WORD_BYTES];
    size_t column = (size_t)(*at - text) + 1;

    if (spec->items_count == SPEC_ITEMS_MAX) {
        return fault_set(why, RC_PARSE, "%s, column %zu: too many settings", what, column);
    }
    item = &spec->items[spec->items_count];
    item->column = column;
    if (!take_word(at, "=,:", item->key) || **at != '=') {
        return fault_set(why, RC_PARSE, "%s, column %zu: expected key=value", what, column);
    }
    for (size_t i = 0; i < spec->items_count; i++) {
        if (strcmp(spec->items[i].key, item->key) == 0) {
            return fault_set(why, RC_PARSE, "%s, column %zu: '%s' is given twice", what, column,
                             item->key);
        }
    }
    ++*at;
    item->value_column = (size_t)(*at - text) + 1;
    if (!take_word(at, ",", value) || !parse_value(value, item)) {
        return fault_set(why, RC_PARSE, "%s, column %zu: expected a number after '%s='", what,
                         item->value_column, item->key);
    }
    spec->items_count++;
    return RC_OK;
}

enum rc spec_parse(const char *what, const char *text, struct spec *spec, struct fault *why)
{
    const char *at = text;
    struct spec parsed = {.items_count = 0};

    if (!take_word(&at, ":=,", parsed.name) || (*at != '\0' && *at != ':')) {
        return fault_set(why, RC_PARSE, "%s, column 1: expected name or name:key=value,...", what);
    }
    if (*at == ':') {
        do {
            enum rc rc;
            at++;
            rc = parse_item(what, text, &at, &parsed, why);
            if (rc != RC_OK) return rc;
        } while (*at == ',');
    }
    *spec = parsed;
    return RC_OK;
}
