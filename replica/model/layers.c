/*
 * Parser of layer lists: one pass over the words, a stack for groups and blocks. What a word may
 * carry stands in one table. Nothing is written to the caller's list before the whole spec is
 * understood.
 */
#include "replica/model/layers.h"

#include "base/check.h"
#include "base/mem.h"
#include "base/spec.h"
#include "base/words.h"
#include "kernels/activation.h"
#include "kernels/sequence.h"
#include "replica/model/loss.h"

#include <stdio.h>
#include <string.h>

enum { NESTING_MAX = 8, FILTER_MAX = 15 };

#define KEY(name)  (1u << LAYER_##name)
#define CONV_KEYS  (KEY(STRIDE) | KEY(PAD) | KEY(DILATION) | KEY(GROUPS) | KEY(BIAS) | KEY(WN))
#define LOCAL_KEYS (KEY(STRIDE) | KEY(PAD) | KEY(BIAS))

enum size_form { SIZE_NONE, SIZE_WINDOW, SIZE_FILTER };
enum argument_form { ARGUMENT_NONE, ARGUMENT_COUNT, ARGUMENT_OPTIONAL, ARGUMENT_REAL };

/* Longer names stand before those that begin them. */
static const struct word {
    const char *name;
    enum layer_kind kind;
    uint32_t variant;
    enum size_form size;
    enum argument_form argument;
    const char *example;
    double real; /* ARGUMENT_REAL: the default; negative: must be given */
    uint32_t keys;
} words[] = {
    {"conv", LAYER_CONV, 0, SIZE_FILTER, ARGUMENT_COUNT, "conv3x3:32", 0, CONV_KEYS},
    {"local", LAYER_LOCAL, 0, SIZE_FILTER, ARGUMENT_COUNT, "local3x3:32", 0, LOCAL_KEYS},
    {"maxpool", LAYER_MAXPOOL, 0, SIZE_WINDOW, ARGUMENT_NONE, "maxpool2", 0,
     KEY(STRIDE) | KEY(PAD)},
    {"avgpool", LAYER_AVGPOOL, 0, SIZE_WINDOW, ARGUMENT_NONE, "avgpool2", 0,
     KEY(STRIDE) | KEY(PAD)},
    {"globalpool", LAYER_GLOBALPOOL, 0, SIZE_NONE, ARGUMENT_NONE, "globalpool", 0, 0},
    {"shortcut", LAYER_SHORTCUT, 0, SIZE_NONE, ARGUMENT_COUNT, "shortcut:32", 0, KEY(STRIDE)},
    {"bn", LAYER_BATCH_NORM, 0, SIZE_NONE, ARGUMENT_OPTIONAL, "bn", 0, 0},
    {"gn", LAYER_GROUP_NORM, 0, SIZE_NONE, ARGUMENT_COUNT, "gn:8", 0, 0},
    {"ln", LAYER_LAYER_NORM, 0, SIZE_NONE, ARGUMENT_NONE, "ln", 0, 0},
    {"relu", LAYER_ACTIVATION, ACTIVATION_RELU, SIZE_NONE, ARGUMENT_NONE, "relu", 0, 0},
    {"leaky", LAYER_ACTIVATION, ACTIVATION_LEAKY_RELU, SIZE_NONE, ARGUMENT_REAL, "leaky:0.01", 0.01,
     0},
    {"gelu-tanh", LAYER_ACTIVATION, ACTIVATION_GELU_TANH, SIZE_NONE, ARGUMENT_NONE, "gelu-tanh", 0,
     0},
    {"gelu", LAYER_ACTIVATION, ACTIVATION_GELU, SIZE_NONE, ARGUMENT_NONE, "gelu", 0, 0},
    {"silu", LAYER_ACTIVATION, ACTIVATION_SILU, SIZE_NONE, ARGUMENT_NONE, "silu", 0, 0},
    {"sigmoid", LAYER_ACTIVATION, ACTIVATION_SIGMOID, SIZE_NONE, ARGUMENT_NONE, "sigmoid", 0, 0},
    {"tanh", LAYER_ACTIVATION, ACTIVATION_TANH, SIZE_NONE, ARGUMENT_NONE, "tanh", 0, 0},
    {"dropout", LAYER_DROPOUT, 0, SIZE_NONE, ARGUMENT_REAL, "dropout:0.1", -1.0, 0},
    {"linear", LAYER_LINEAR, 0, SIZE_NONE, ARGUMENT_COUNT, "linear:128", 0,
     KEY(BIAS) | KEY(WN) | KEY(TIED)},
    {"embed", LAYER_EMBED, 0, SIZE_NONE, ARGUMENT_COUNT, "embed:128", 0, 0},
    {"positions", LAYER_POSITIONS, 0, SIZE_NONE, ARGUMENT_COUNT, "positions:128", 0, 0},
    {"attention", LAYER_ATTENTION, 0, SIZE_NONE, ARGUMENT_COUNT, "attention:4", 0,
     KEY(ROTARY) | KEY(CAUSAL) | KEY(BIAS)},
    {"rnn", LAYER_RECURRENT, RECURRENT_RNN, SIZE_NONE, ARGUMENT_COUNT, "rnn:128", 0, KEY(TRUNCATE)},
    {"gru", LAYER_RECURRENT, RECURRENT_GRU, SIZE_NONE, ARGUMENT_COUNT, "gru:128", 0, KEY(TRUNCATE)},
    {"lstm", LAYER_RECURRENT, RECURRENT_LSTM, SIZE_NONE, ARGUMENT_COUNT, "lstm:128", 0,
     KEY(TRUNCATE)},
    {"rows", LAYER_ROWS, 0, SIZE_NONE, ARGUMENT_NONE, "rows", 0, 0},
    {"last", LAYER_LAST, 0, SIZE_NONE, ARGUMENT_NONE, "last", 0, 0},
};

static const struct key {
    const char *name;
    uint32_t least, most, usual;
} keys[LAYER_KEYS] = {
    [LAYER_STRIDE] = {"stride", 1, 16, 1},     [LAYER_PAD] = {"pad", 0, FILTER_MAX, 0},
    [LAYER_DILATION] = {"dilation", 1, 16, 1}, [LAYER_GROUPS] = {"groups", 1, LAYER_WIDTH_MAX, 1},
    [LAYER_BIAS] = {"bias", 0, 1, 1},          [LAYER_WN] = {"wn", 0, 1, 0},
    [LAYER_TIED] = {"tied", 0, 1, 0},          [LAYER_ROTARY] = {"rotary", 0, 1, 0},
    [LAYER_CAUSAL] = {"causal", 0, 1, 1},      [LAYER_TRUNCATE] = {"truncate", 1, 1 << 20, 0},
};

struct open_group {
    uint32_t first; /* layer behind the bracket */
    size_t column;
    bool is_block;
};

struct parser {
    const char *text;
    size_t at;
    uint32_t classes;
    struct open_group groups[NESTING_MAX];
    size_t groups_count;
    struct layer_list list;
    struct fault *why;
};

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

/* A share such as 0.25; at most 9 digits behind the point. */
static bool take_share(const char **text, double *share)
{
    uint32_t whole = 0;
    double unit = 1.0;

    if (!take_number(text, 1, &whole)) return false;
    *share = whole;
    if (!take_text(text, ".")) return true;
    for (int digits = 0; is_digit(**text); digits++, ++*text) {
        if (digits == 9) return false;
        unit /= 10.0;
        *share += unit * (**text - '0');
    }
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

/* `3x3` of a filter, `2` of a window. */
static enum rc parse_size(struct parser *p, const struct word *word, const char **rest,
                          struct layer *layer)
{
    bool is_window = word->size == SIZE_WINDOW;

    if (word->size == SIZE_NONE) return RC_OK;
    if (take_number(rest, FILTER_MAX, &layer->height)) {
        layer->width = layer->height;
        if (is_window && layer->height >= 2) return RC_OK;
        if (!is_window && take_text(rest, "x") && take_number(rest, FILTER_MAX, &layer->width) &&
            layer->height > 0 && layer->width > 0) {
            return RC_OK;
        }
    }
    return fault_set(
        p->why, RC_PARSE, "--model, column %zu: %s have sides from %d to %d, such as '%s'",
        p->at + 1, is_window ? "windows" : "filters", is_window ? 2 : 1, FILTER_MAX, word->example);
}

static size_t column_of(const struct parser *p, const char *start, const char *rest)
{
    return p->at + (size_t)(rest - start) + 1;
}

/* What stands behind the colon. */
static enum rc parse_argument(struct parser *p, const struct word *word, const char *start,
                              const char **rest, struct layer *layer)
{
    bool is_linear = word->kind == LAYER_LINEAR;
    const char *number;

    layer->real = word->real;
    if (word->argument == ARGUMENT_NONE) return RC_OK;
    if (!take_text(rest, ":")) {
        if (word->argument == ARGUMENT_OPTIONAL || word->real > 0.0) return RC_OK;
        return fault_set(p->why, RC_PARSE, "--model, column %zu: '%s' needs a number, such as '%s'",
                         p->at + 1, word->name, word->example);
    }
    if (word->argument == ARGUMENT_REAL) {
        /* The kernels take a float: below 1 also when rounded to one. */
        if (take_share(rest, &layer->real) && (float)layer->real < 1.0F) return RC_OK;
        return fault_set(p->why, RC_PARSE,
                         "--model, column %zu: expected a share from 0 to below 1",
                         column_of(p, start, *rest));
    }
    if (is_linear && take_text(rest, "classes")) {
        layer->count = p->classes;
        layer->is_classes = true;
        return RC_OK;
    }
    number = *rest;
    if (!take_number(rest, LAYER_WIDTH_MAX, &layer->count) || layer->count == 0) {
        return fault_set(p->why, RC_PARSE, "--model, column %zu: expected a number from 1 to %d%s",
                         column_of(p, start, number), LAYER_WIDTH_MAX,
                         is_linear ? " or 'classes'" : "");
    }
    return RC_OK;
}

static enum rc unknown_key(struct parser *p, const struct word *word, const char *start,
                           const char *rest)
{
    const char *known[LAYER_KEYS];
    char name[SPEC_WORD_BYTES] = "";
    size_t count = 0, bytes = strcspn(rest, "=,");

    for (size_t k = 0; k < LAYER_KEYS; k++) {
        if ((word->keys & (1u << k)) != 0) known[count++] = keys[k].name;
    }
    if (bytes >= sizeof(name)) bytes = sizeof(name) - 1;
    memcpy(name, rest, bytes);
    if (count == 0) {
        return fault_set(p->why, RC_PARSE, "--model, column %zu: '%s' has no settings",
                         column_of(p, start, rest), word->name);
    }
    return spec_unknown("--model", column_of(p, start, rest), "setting", name, known, count,
                        p->why);
}

/* `,stride=2,pad=1` to the end of the word. */
static enum rc parse_keys(struct parser *p, const struct word *word, const char *start,
                          const char *rest, struct layer *layer)
{
    while (take_text(&rest, ",")) {
        const char *at = rest;
        uint32_t k = 0;

        for (k = 0; k < LAYER_KEYS; k++) {
            rest = at;
            if ((word->keys & (1u << k)) != 0 && take_text(&rest, keys[k].name) &&
                take_text(&rest, "=")) {
                break;
            }
        }
        if (k == LAYER_KEYS) return unknown_key(p, word, start, at);
        if (layer_has(layer, (enum layer_key)k)) {
            return fault_set(p->why, RC_PARSE, "--model, column %zu: '%s' is given twice",
                             column_of(p, start, at), keys[k].name);
        }
        if (!take_number(&rest, keys[k].most, &layer->keys[k]) || layer->keys[k] < keys[k].least) {
            return fault_set(p->why, RC_PARSE, "--model, column %zu: %s must be from %u to %u",
                             column_of(p, start, at), keys[k].name, keys[k].least, keys[k].most);
        }
        layer->given |= 1u << k;
    }
    if (*rest == '\0') return RC_OK;
    return fault_set(p->why, RC_PARSE,
                     "--model, column %zu: '%s' is more than '%s' takes; it looks like '%s'",
                     column_of(p, start, rest), rest, word->name, word->example);
}

static const struct word *find_word(const char *text)
{
    for (size_t i = 0; i < ARRAY_COUNT(words); i++) {
        const char *rest = text;
        if (!take_text(&rest, words[i].name)) continue;
        if (*rest == '\0' || strchr(":,0123456789", *rest) != NULL) return &words[i];
    }
    return NULL;
}

static enum rc unknown_word(struct parser *p, const char *text)
{
    static const struct word_synonym synonyms[] = {
        {"gpt", "gpt-nano"},
        {"gpt2", "gpt2-small"},
        {"transformer", "gpt-nano"},
        {"convnet", "cnn"},
        {"logistic", "linear:classes"},
        {"resnet50", "resnet18"},
        {"resnet34", "resnet18"},
        {NULL, NULL},
    };
    const char *known[ARRAY_COUNT(words)];
    char name[SPEC_WORD_BYTES] = "";

    for (size_t i = 0; i < ARRAY_COUNT(words); i++) {
        known[i] = words[i].name;
        if (words[i].kind == LAYER_CONV) known[i] = "conv3x3";
        if (words[i].kind == LAYER_LOCAL) known[i] = "local3x3";
    }
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(text, ":,"), text);
    if (p->list.count == 0 && p->text[p->at + strlen(text)] == '\0') {
        const char *presets[16];
        size_t count = 0;
        while (count < ARRAY_COUNT(presets) && layers_preset_name(count) != NULL) {
            presets[count] = layers_preset_name(count);
            count++;
        }
        if (word_synonym(name, synonyms) != NULL) {
            return fault_set(p->why, RC_PARSE, "--model, column 1: unknown model '%s'; write %s",
                             name, word_synonym(name, synonyms));
        }
        if (word_nearest(name, presets, count) != NULL) {
            return spec_unknown("--model", p->at + 1, "model", name, presets, count, p->why);
        }
    }
    return spec_unknown("--model", p->at + 1, "layer", name, known, ARRAY_COUNT(known), p->why);
}

static enum rc parse_word(struct parser *p, const char *text)
{
    const struct word *word = find_word(text);
    struct layer layer = {.column = (uint32_t)p->at + 1};
    const char *rest = text;
    enum rc rc;

    if (word == NULL) return unknown_word(p, text);
    layer.kind = word->kind;
    layer.variant = word->variant;
    for (size_t k = 0; k < LAYER_KEYS; k++) {
        layer.keys[k] = keys[k].usual;
    }
    CHECK(take_text(&rest, word->name));
    rc = parse_size(p, word, &rest, &layer);
    if (rc == RC_OK) rc = parse_argument(p, word, text, &rest, &layer);
    if (rc == RC_OK) rc = parse_keys(p, word, text, rest, &layer);
    return rc == RC_OK ? add_layer(p, &layer) : rc;
}

static enum rc open_group(struct parser *p, bool is_block)
{
    struct layer open = {.kind = LAYER_OPEN, .column = (uint32_t)p->at + 1};
    enum rc rc = RC_OK;

    if (p->groups_count == NESTING_MAX) {
        return fault_set(p->why, RC_LIMIT, "--model, column %zu: groups nest deeper than %d",
                         p->at + 1, NESTING_MAX);
    }
    if (is_block) rc = add_layer(p, &open);
    p->groups[p->groups_count++] = (struct open_group){p->list.count, p->at + 1, is_block};
    p->at++;
    return rc;
}

/* The layers from `first` on, `times` times more, each with `between` in front unless it is NULL.
 */
static enum rc repeat(struct parser *p, uint32_t first, uint32_t times, const struct layer *between)
{
    uint32_t count = p->list.count - first;
    enum rc rc = RC_OK;

    for (uint32_t t = 0; rc == RC_OK && t < times; t++) {
        if (between != NULL) rc = add_layer(p, between);
        for (uint32_t i = 0; rc == RC_OK && i < count; i++) {
            struct layer again = p->list.layers[first + i];
            rc = add_layer(p, &again);
        }
    }
    return rc;
}

/* `)*N` behind a group. */
static enum rc close_group(struct parser *p)
{
    const char *rest = p->text + p->at + 1;
    uint32_t times = 0;
    enum rc rc;

    if (p->groups_count == 0 || p->groups[p->groups_count - 1].is_block) {
        return fault_set(p->why, RC_PARSE, "--model, column %zu: ')' without '('", p->at + 1);
    }
    if (!take_text(&rest, "*") || !take_number(&rest, LAYERS_MAX, &times) || times == 0) {
        return fault_set(p->why, RC_PARSE,
                         "--model, column %zu: expected ')*N' with N from 1 to %d", p->at + 1,
                         LAYERS_MAX);
    }
    rc = repeat(p, p->groups[--p->groups_count].first, times - 1, NULL);
    p->at = (size_t)(rest - p->text);
    return rc;
}

/* `]+`, `]concat`, `]heads`, `]*N` behind a block. */
static enum rc close_block(struct parser *p)
{
    struct layer close = {.column = (uint32_t)p->at + 1};
    const struct layer branch = {.kind = LAYER_BRANCH, .column = (uint32_t)p->at + 1};
    const char *rest = p->text + p->at + 1;
    uint32_t first, times = 0;
    enum rc rc = RC_OK;

    if (p->groups_count == 0 || !p->groups[p->groups_count - 1].is_block) {
        return fault_set(p->why, RC_PARSE, "--model, column %zu: ']' without '['", p->at + 1);
    }
    first = p->groups[--p->groups_count].first;
    if (take_text(&rest, "+")) {
        close.kind = LAYER_SUM;
    } else if (take_text(&rest, "concat")) {
        close.kind = LAYER_CONCAT;
    } else if (take_text(&rest, "heads")) {
        close.kind = LAYER_HEADS;
    } else if (take_text(&rest, "*") && take_number(&rest, HEADS_MAX, &times) && times > 0) {
        close.kind = LAYER_HEADS;
        rc = repeat(p, first, times - 1, &branch);
    } else {
        return fault_set(p->why, RC_PARSE,
                         "--model, column %zu: expected ']+' (sum), ']concat', ']heads' or ']*N' "
                         "with N heads from 1 to %d",
                         p->at + 1, HEADS_MAX);
    }
    p->at = (size_t)(rest - p->text);
    return rc == RC_OK ? add_layer(p, &close) : rc;
}

static enum rc add_branch(struct parser *p)
{
    const struct layer branch = {.kind = LAYER_BRANCH, .column = (uint32_t)p->at + 1};

    if (p->groups_count == 0 || !p->groups[p->groups_count - 1].is_block) {
        return fault_set(p->why, RC_PARSE, "--model, column %zu: '|' outside of '[ ... ]'",
                         p->at + 1);
    }
    p->at++;
    return add_layer(p, &branch);
}

static enum rc parse_item(struct parser *p)
{
    static const char stops[] = " \t\n()[]|";
    size_t count = strcspn(p->text + p->at, stops);
    char word[LAYER_BYTES];
    enum rc rc;

    if (count > 0) {
        snprintf(word, sizeof(word), "%.*s", (int)(count < sizeof(word) ? count : sizeof(word) - 1),
                 p->text + p->at);
        rc = parse_word(p, word);
        p->at += count;
        return rc;
    }
    switch (p->text[p->at]) {
    case '(':
        return open_group(p, false);
    case '[':
        return open_group(p, true);
    case ')':
        return close_group(p);
    case '|':
        return add_branch(p);
    default:
        return close_block(p);
    }
}

static enum rc parse_all(struct parser *p)
{
    enum rc rc = RC_OK;

    while (rc == RC_OK) {
        p->at += strspn(p->text + p->at, " \t\n");
        if (p->text[p->at] == '\0') break;
        rc = parse_item(p);
    }
    if (rc == RC_OK && p->groups_count > 0) {
        const struct open_group *open = &p->groups[p->groups_count - 1];
        rc = fault_set(p->why, RC_PARSE, "--model, column %zu: %s", open->column,
                       open->is_block ? "'[' without ']+'" : "'(' without ')*N'");
    }
    if (rc == RC_OK && p->list.count == 0) {
        rc = fault_set(p->why, RC_PARSE, "--model, column 1: the layer list is empty");
    }
    return rc;
}

enum rc layers_parse(const char *spec, uint32_t classes, struct layer_list *list, struct fault *why)
{
    struct parser *p;
    double factor = 1;
    const char *preset = layers_preset(spec, &factor);
    enum rc rc;

    if (strlen(spec) >= LAYERS_TEXT_BYTES) {
        return fault_set(why, RC_LIMIT, "--model: longer than %d letters", LAYERS_TEXT_BYTES - 1);
    }
    if (preset != NULL && !(factor > 0)) {
        return fault_set(why, RC_PARSE,
                         "--model %s: behind the star stands a factor from %g to %g, such as "
                         "'mlp*0.5'",
                         spec, LAYERS_FACTOR_MIN, LAYERS_FACTOR_MAX);
    }
    p = mem_alloc(sizeof(*p));
    if (p == NULL) return fault_set(why, RC_NOMEM, "--model: no memory to read it");
    p->text = preset != NULL ? preset : spec;
    p->classes = classes;
    p->why = why;
    rc = parse_all(p);
    if (rc == RC_OK && preset != NULL && (factor < 1 || factor > 1)) layers_scale(&p->list, factor);
    if (rc == RC_OK) *list = p->list;
    for (uint32_t i = 0; rc == RC_OK && preset != NULL && i < list->count; i++) {
        list->layers[i].column = 0;
    }
    mem_free(p);
    return rc;
}

uint32_t layers_context(const char *spec)
{
    struct layer_list *list = mem_alloc(sizeof(*list));
    uint32_t context = 0;

    if (list == NULL) return 0;
    if (layers_parse(spec, 1, list, NULL) == RC_OK) {
        for (uint32_t i = 0; i < list->count; i++) {
            if (list->layers[i].kind == LAYER_POSITIONS) context = list->layers[i].count;
        }
    }
    mem_free(list);
    return context;
}

bool layers_read_tokens(const char *spec)
{
    const char *preset = layers_preset(spec, NULL);
    const char *text = preset != NULL ? preset : spec;

    text += strspn(text, " \t\n([");
    return strncmp(text, "embed", strlen("embed")) == 0;
}

static const struct word *word_of(const struct layer *layer)
{
    for (size_t i = 0; i < ARRAY_COUNT(words); i++) {
        if (words[i].kind == layer->kind && words[i].variant == layer->variant) return &words[i];
    }
    CHECK(false); /* a layer of a known kind */
    return NULL;
}

/* `:0.25`, as take_share() reads it: all digits and no exponent. */
static size_t format_share(double share, char *text, size_t cap)
{
    size_t count = (size_t)snprintf(text, cap, ":%.9f", share);

    while (text[count - 1] == '0') {
        count--;
    }
    if (text[count - 1] == '.') count--;
    text[count] = '\0';
    return count;
}

static char *format_word(const struct layer *layer, char *text, size_t cap)
{
    const struct word *word = word_of(layer);
    size_t at = (size_t)snprintf(text, cap, "%s", word->name);

    CHECK(cap >= LAYER_BYTES);
    if (word->size == SIZE_FILTER) {
        at += (size_t)snprintf(text + at, cap - at, "%ux%u", layer->height, layer->width);
    } else if (word->size == SIZE_WINDOW) {
        at += (size_t)snprintf(text + at, cap - at, "%u", layer->height);
    }
    if (layer->is_classes) {
        at += (size_t)snprintf(text + at, cap - at, ":classes");
    } else if (layer->count > 0) {
        at += (size_t)snprintf(text + at, cap - at, ":%u", layer->count);
    } else if (word->argument == ARGUMENT_REAL) {
        at += format_share(layer->real, text + at, cap - at);
    }
    for (uint32_t k = 0; k < LAYER_KEYS; k++) {
        if (!layer_has(layer, (enum layer_key)k)) continue;
        at += (size_t)snprintf(text + at, cap - at, ",%s=%u", keys[k].name, layer->keys[k]);
    }
    return text;
}

char *layer_format(const struct layer *layer, char *text, size_t cap)
{
    switch (layer->kind) {
    case LAYER_OPEN:
        snprintf(text, cap, "[");
        return text;
    case LAYER_BRANCH:
        snprintf(text, cap, "|");
        return text;
    case LAYER_SUM:
        snprintf(text, cap, "]+");
        return text;
    case LAYER_CONCAT:
        snprintf(text, cap, "]concat");
        return text;
    case LAYER_HEADS:
        snprintf(text, cap, "]heads");
        return text;
    default:
        return format_word(layer, text, cap);
    }
}

enum rc layers_format(const struct layer_list *list, char *text, size_t cap)
{
    size_t at = 0;

    for (uint32_t i = 0; i < list->count; i++) {
        char word[LAYER_BYTES];
        layer_format(&list->layers[i], word, sizeof(word));
        if (at + strlen(word) + 2 > cap) return RC_LIMIT;
        at += (size_t)snprintf(text + at, cap - at, "%s%s", i == 0 ? "" : " ", word);
    }
    return RC_OK;
}
