/*
 * Parser of layer lists: one pass over the words, a small stack for groups. Nothing is written to
 * the caller's list before the whole spec is understood.
 */
#include "replica/layers.h"

#include "base/check.h"
#include "base/mem.h"
#include "replica/spec.h"

#include <stdio.h>
#include <string.h>

enum { GROUPS_MAX = 8, FILTER_MAX = 15, WINDOW_MAX = 15 };

struct preset {
    const char *name, *spec;
};

static const struct preset presets[] = {
    {"mlp", "linear:256 relu linear:128 relu linear:classes"},
    {"cnn", "conv3x3:32 relu conv3x3:64 relu maxpool2 linear:128 relu linear:classes"},
};

/* Words to suggest for a mistyped one. */
static const char *const words[] = {"conv3x3",  "conv1x1", "conv5x5", "relu",
                                    "maxpool2", "linear",  "mlp",     "cnn"};

struct parser {
    const char *text;
    size_t at;
    uint32_t classes;
    uint32_t groups[GROUPS_MAX]; /* first layer of each open group */
    size_t group_columns[GROUPS_MAX];
    size_t groups_count;
    struct layer_list list;
    struct fault *why;
};

const char *layers_preset(const char *name)
{
    for (size_t i = 0; i < ARRAY_COUNT(presets); i++) {
        if (strcmp(presets[i].name, name) == 0) return presets[i].spec;
    }
    return NULL;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* A count without sign or leading blanks, at most `max`; moves `text` behind it. */
static bool take_number(const char **text, uint32_t max, uint32_t *number)
{
    uint64_t value = 0;

    if (!is_digit(**text)) return false;
    while (is_digit(**text)) {
        value = value * 10 + (uint64_t)(**text - '0');
        if (value > max) return false;
        ++*text;
    }
    *number = (uint32_t)value;
    return true;
}

static bool take_text(const char **text, const char *expected)
{
    size_t count = strlen(expected);

    if (strncmp(*text, expected, count) != 0) return false;
    *text += count;
    return true;
}

static enum rc add_layer(struct parser *p, const struct layer *layer)
{
    if (p->list.count == LAYERS_MAX) {
        return fault_set(p->why, RC_LIMIT, "--model, column %zu: more than %d layers", p->at + 1,
                         LAYERS_MAX);
    }
    p->list.layers[p->list.count++] = *layer;
    return RC_OK;
}

/* The number behind the colon of conv and linear. */
static enum rc parse_width(struct parser *p, const char *word, const char *rest,
                           struct layer *layer)
{
    if (*rest != ':') {
        return fault_set(p->why, RC_PARSE,
                         "--model, column %zu: '%s' needs a width, such as '%s:32'", p->at + 1,
                         word, word);
    }
    rest++;
    if (layer->kind == LAYER_LINEAR && strcmp(rest, "classes") == 0) {
        layer->width = p->classes;
        layer->is_classes = true;
        return RC_OK;
    }
    if (!take_number(&rest, LAYER_WIDTH_MAX, &layer->width) || *rest != '\0' || layer->width == 0) {
        size_t column = p->at + 2 + strcspn(word, ":");
        return fault_set(p->why, RC_PARSE, "--model, column %zu: expected a width from 1 to %d%s",
                         column, LAYER_WIDTH_MAX,
                         layer->kind == LAYER_LINEAR ? " or 'classes'" : "");
    }
    return RC_OK;
}

static enum rc parse_conv(struct parser *p, const char *word, const char *rest)
{
    struct layer layer = {.kind = LAYER_CONV, .column = (uint32_t)p->at + 1};
    uint32_t other = 0;
    enum rc rc;

    if (!take_number(&rest, FILTER_MAX, &layer.size) || !take_text(&rest, "x") ||
        !take_number(&rest, FILTER_MAX, &other) || other != layer.size || layer.size % 2 == 0) {
        return fault_set(p->why, RC_PARSE,
                         "--model, column %zu: filters are square with odd sides up to %d, such as "
                         "'conv3x3:32'",
                         p->at + 1, FILTER_MAX);
    }
    rc = parse_width(p, word, rest, &layer);
    return rc == RC_OK ? add_layer(p, &layer) : rc;
}

static enum rc parse_word(struct parser *p, const char *word)
{
    struct layer layer = {.column = (uint32_t)p->at + 1};
    const char *rest = word;
    char name[SPEC_WORD_BYTES] = "";
    enum rc rc;

    if (strcmp(word, "relu") == 0) {
        layer.kind = LAYER_RELU;
        return add_layer(p, &layer);
    }
    if (take_text(&rest, "conv") && is_digit(*rest)) return parse_conv(p, word, rest);
    rest = word;
    if (take_text(&rest, "maxpool") && is_digit(*rest)) {
        layer.kind = LAYER_MAXPOOL;
        if (take_number(&rest, WINDOW_MAX, &layer.size) && *rest == '\0' && layer.size >= 2) {
            return add_layer(p, &layer);
        }
        return fault_set(p->why, RC_PARSE, "--model, column %zu: windows have sides from 2 to %d",
                         p->at + 1, WINDOW_MAX);
    }
    rest = word;
    if (take_text(&rest, "linear") && (*rest == ':' || *rest == '\0')) {
        layer.kind = LAYER_LINEAR;
        rc = parse_width(p, word, rest, &layer);
        return rc == RC_OK ? add_layer(p, &layer) : rc;
    }
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(word, ":"), word);
    return spec_unknown("--model", p->at + 1, "layer", name, words, ARRAY_COUNT(words), p->why);
}

/* `)*N` behind a group: append the group N - 1 times more. */
static enum rc close_group(struct parser *p)
{
    const char *rest = p->text + p->at + 1;
    uint32_t first, times = 0, count;

    if (p->groups_count == 0) {
        return fault_set(p->why, RC_PARSE, "--model, column %zu: ')' without '('", p->at + 1);
    }
    first = p->groups[--p->groups_count];
    count = p->list.count - first;
    if (!take_text(&rest, "*") || !take_number(&rest, LAYERS_MAX, &times) || times == 0) {
        return fault_set(p->why, RC_PARSE,
                         "--model, column %zu: expected ')*N' with N from 1 to %d", p->at + 1,
                         LAYERS_MAX);
    }
    for (uint32_t i = 0; i < (times - 1) * count; i++) {
        struct layer again = p->list.layers[first + i];
        enum rc rc = add_layer(p, &again);
        if (rc != RC_OK) return rc;
    }
    p->at = (size_t)(rest - p->text);
    return RC_OK;
}

static enum rc open_group(struct parser *p)
{
    if (p->groups_count == GROUPS_MAX) {
        return fault_set(p->why, RC_LIMIT, "--model, column %zu: groups nest deeper than %d",
                         p->at + 1, GROUPS_MAX);
    }
    p->group_columns[p->groups_count] = p->at + 1;
    p->groups[p->groups_count++] = p->list.count;
    p->at++;
    return RC_OK;
}

static enum rc parse_all(struct parser *p)
{
    enum rc rc = RC_OK;

    while (rc == RC_OK) {
        char word[SPEC_WORD_BYTES];
        size_t count;

        p->at += strspn(p->text + p->at, " \t\n");
        if (p->text[p->at] == '\0') break;
        count = strcspn(p->text + p->at, " \t\n()");
        if (count == 0) {
            rc = p->text[p->at] == '(' ? open_group(p) : close_group(p);
            continue;
        }
        snprintf(word, sizeof(word), "%.*s", (int)(count < sizeof(word) ? count : sizeof(word) - 1),
                 p->text + p->at);
        rc = parse_word(p, word);
        p->at += count;
    }
    if (rc == RC_OK && p->groups_count > 0) {
        rc = fault_set(p->why, RC_PARSE, "--model, column %zu: '(' without ')*N'",
                       p->group_columns[p->groups_count - 1]);
    }
    if (rc == RC_OK && p->list.count == 0) {
        rc = fault_set(p->why, RC_PARSE, "--model, column 1: the layer list is empty");
    }
    return rc;
}

enum rc layers_parse(const char *spec, uint32_t classes, struct layer_list *list, struct fault *why)
{
    struct parser *p;
    const char *preset = layers_preset(spec);
    enum rc rc;

    if (strlen(spec) >= LAYERS_TEXT_BYTES) {
        return fault_set(why, RC_LIMIT, "--model: longer than %d letters", LAYERS_TEXT_BYTES - 1);
    }
    p = mem_alloc(sizeof(*p));
    if (p == NULL) return fault_set(why, RC_NOMEM, "--model: no memory to read it");
    p->text = preset != NULL ? preset : spec;
    p->classes = classes;
    p->why = why;
    rc = parse_all(p);
    if (rc == RC_OK) *list = p->list;
    for (uint32_t i = 0; rc == RC_OK && preset != NULL && i < list->count; i++) {
        list->layers[i].column = 0;
    }
    mem_free(p);
    return rc;
}

char *layer_format(const struct layer *layer, char *text, size_t cap)
{
    switch (layer->kind) {
    case LAYER_CONV:
        snprintf(text, cap, "conv%ux%u:%u", layer->size, layer->size, layer->width);
        break;
    case LAYER_RELU:
        snprintf(text, cap, "relu");
        break;
    case LAYER_MAXPOOL:
        snprintf(text, cap, "maxpool%u", layer->size);
        break;
    case LAYER_LINEAR:
        if (layer->is_classes) {
            snprintf(text, cap, "linear:classes");
        } else {
            snprintf(text, cap, "linear:%u", layer->width);
        }
        break;
    default:
        CHECK(false); /* a layer of a known kind */
    }
    return text;
}

enum rc layers_format(const struct layer_list *list, char *text, size_t cap)
{
    size_t at = 0;

    for (uint32_t i = 0; i < list->count; i++) {
        char word[SPEC_WORD_BYTES];
        layer_format(&list->layers[i], word, sizeof(word));
        if (at + strlen(word) + 2 > cap) return RC_LIMIT;
        at += (size_t)snprintf(text + at, cap - at, "%s%s", i == 0 ? "" : " ", word);
    }
    return RC_OK;
}
