/*
 * JSON by jansson, behind a type of our own. `struct json` is a name for jansson's json_t, never
 * defined: the two pointers are converted here and nowhere else. Text is written by us, because
 * jansson prints reals with a fixed count of digits (0.1 as 0.10000000000000001) and we want the
 * shortest that reads back the same. Text is scanned before it is parsed, so that a small file
 * cannot claim a large tree. Pure; a tree belongs to one thread.
 */
#include "base/json.h"

#include "base/check.h"
#include "base/mem.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    JSON_DEPTH_MAX = 32,
    JSON_VALUES_MAX = 1 << 20,     /* 24 to 100 bytes of memory each */
    JSON_CONTAINERS_MAX = 1 << 18, /* about 250 bytes of memory each; 3 a tensor in safetensors */
    JSON_LARGE = 4,                /* a large text may hold so many times as much */
    JSON_INDENT = 2,
    JSON_REAL_TEXT = 40
};

static struct json *wrapped(json_t *value)
{
    CHECK(value != NULL); /* out of memory: fatal by contract */
    return (struct json *)(void *)value;
}

static json_t *inner(struct json *json)
{
    return (json_t *)(void *)json;
}

/* jansson's readers take const in theory and json_t * in fact. */
static json_t *readable(const struct json *json)
{
    union {
        const struct json *ours;
        json_t *theirs;
    } pointer = {json};

    return pointer.theirs;
}

/* jansson refuses text that is not UTF-8; what a peer or a file said must not stop a report. */
static json_t *text_value(const char *text)
{
    json_t *value;
    char *plain;

    if (text == NULL) return json_null();
    value = json_string(text);
    if (value != NULL) return value;
    plain = mem_string(text);
    CHECK(plain != NULL);
    for (char *c = plain; *c != '\0'; c++) {
        if ((unsigned char)*c >= 0x80) *c = '?';
    }
    value = json_string(plain);
    mem_free(plain);
    return value;
}

static json_t *real_value(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *count_value(uint64_t value)
{
    /* Above 2^63 JSON readers disagree anyway; the nearest double is the best that is portable. */
    return value <= INT64_MAX ? json_integer((json_int_t)value) : json_real((double)value);
}

struct json *json_duplicate(const struct json *json)
{
    return wrapped(json_deep_copy(readable(json)));
}

struct json *json_object_create(void)
{
    return wrapped(json_object());
}

struct json *json_array_create(void)
{
    return wrapped(json_array());
}

void json_destroy(struct json *json)
{
    json_decref(inner(json));
}

static void set_value(struct json *object, const char *key, json_t *value)
{
    CHECK(json_is_object(inner(object)) && key != NULL && value != NULL);
    CHECK(json_object_set_new(inner(object), key, value) == 0);
}

static void append_value(struct json *array, json_t *value)
{
    CHECK(json_is_array(inner(array)) && value != NULL);
    CHECK(json_array_append_new(inner(array), value) == 0);
}

void json_set_text(struct json *object, const char *key, const char *value)
{
    set_value(object, key, text_value(value));
}

void json_set_real(struct json *object, const char *key, double value)
{
    set_value(object, key, real_value(value));
}

void json_set_count(struct json *object, const char *key, uint64_t value)
{
    set_value(object, key, count_value(value));
}

void json_set_bool(struct json *object, const char *key, bool value)
{
    set_value(object, key, json_boolean(value));
}

void json_set_null(struct json *object, const char *key)
{
    set_value(object, key, json_null());
}

void json_set(struct json *object, const char *key, struct json *child)
{
    set_value(object, key, inner(child));
}

void json_append(struct json *array, struct json *child)
{
    append_value(array, inner(child));
}

void json_append_text(struct json *array, const char *value)
{
    append_value(array, text_value(value));
}

void json_append_real(struct json *array, double value)
{
    append_value(array, real_value(value));
}

void json_append_count(struct json *array, uint64_t value)
{
    append_value(array, count_value(value));
}

const struct json *json_get(const struct json *object, const char *key)
{
    return (const struct json *)(const void *)json_object_get(readable(object), key);
}

const char *json_text_of(const struct json *json)
{
    return json_string_value(readable(json));
}

bool json_real_of(const struct json *json, double *value)
{
    if (!json_is_number(readable(json))) return false;
    *value = json_number_value(readable(json));
    return true;
}

const char *json_get_text(const struct json *object, const char *key)
{
    return json_text_of(json_get(object, key));
}

bool json_get_real(const struct json *object, const char *key, double *value)
{
    return json_real_of(json_get(object, key), value);
}

bool json_count_of(const struct json *json, uint64_t *value)
{
    if (!json_is_integer(readable(json)) || json_integer_value(readable(json)) < 0) return false;
    *value = (uint64_t)json_integer_value(readable(json));
    return true;
}

bool json_get_count(const struct json *object, const char *key, uint64_t *value)
{
    return json_count_of(json_get(object, key), value);
}

bool json_get_bool(const struct json *object, const char *key, bool *value)
{
    const json_t *found = readable(json_get(object, key));

    if (!json_is_boolean(found)) return false;
    *value = json_is_true(found);
    return true;
}

bool json_is_an_object(const struct json *json)
{
    return json_is_object(readable(json));
}

bool json_is_an_array(const struct json *json)
{
    return json_is_array(readable(json));
}

size_t json_count(const struct json *array)
{
    return json_array_size(readable(array));
}

const struct json *json_at(const struct json *array, size_t index)
{
    return (const struct json *)(const void *)json_array_get(readable(array), index);
}

const struct json *json_member_first(const struct json *object, const char **key, void **cursor)
{
    *cursor = json_object_iter(readable(object));
    if (*cursor == NULL) return NULL;
    *key = json_object_iter_key(*cursor);
    return (const struct json *)(const void *)json_object_iter_value(*cursor);
}

const struct json *json_member_next(const struct json *object, const char **key, void **cursor)
{
    *cursor = json_object_iter_next(readable(object), *cursor);
    if (*cursor == NULL) return NULL;
    *key = json_object_iter_key(*cursor);
    return (const struct json *)(const void *)json_object_iter_value(*cursor);
}

bool json_member_at(const struct json *object, size_t index, const char **key,
                    const struct json **value)
{
    void *cursor;
    const struct json *found = json_member_first(object, key, &cursor);

    while (found != NULL && index-- > 0) {
        found = json_member_next(object, key, &cursor);
    }
    if (found == NULL) return false;
    *value = found;
    return true;
}

/* Text under construction. */
struct writer {
    char *text;
    size_t count, cap;
    bool is_pretty;
};

static void put(struct writer *w, const char *text, size_t count)
{
    if (w->cap - w->count < count + 1) {
        size_t wider = (w->cap + count + 1) * 2;

        w->text = mem_resize(w->text, wider);
        CHECK(w->text != NULL);
        w->cap = wider;
    }
    memcpy(w->text + w->count, text, count);
    w->count += count;
    w->text[w->count] = '\0';
}

static void put_string(struct writer *w, const char *text)
{
    char escaped[8];

    put(w, "\"", 1);
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\') {
            put(w, "\\", 1);
            put(w, c, 1);
        } else if (*c == '\n') {
            put(w, "\\n", 2);
        } else if ((unsigned char)*c < 0x20 || *c == 0x7f) {
            snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned)*c);
            put(w, escaped, 6);
        } else if ((unsigned char)c[0] == 0xc2 && (unsigned char)c[1] < 0xa0) {
            c++; /* C1, which a terminal may obey */
            snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned char)*c);
            put(w, escaped, 6);
        } else {
            put(w, c, 1);
        }
    }
    put(w, "\"", 1);
}

/* The fewest digits that read back as the same double; always marked as a real. */
static void put_real(struct writer *w, double value)
{
    char text[JSON_REAL_TEXT];

    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    put(w, text, strlen(text));
    if (strpbrk(text, ".e") == NULL) put(w, ".0", 2);
}

static void put_line(struct writer *w, int depth)
{
    if (!w->is_pretty) return;
    put(w, "\n", 1);
    for (int i = 0; i < depth * JSON_INDENT; i++) {
        put(w, " ", 1);
    }
}

static void put_value(struct writer *w, json_t *value, int depth);

static void put_object(struct writer *w, json_t *object, int depth)
{
    const char *key;
    json_t *value;
    bool is_first = true;

    put(w, "{", 1);
    json_object_foreach(object, key, value)
    {
        if (!is_first) put(w, ",", 1);
        is_first = false;
        put_line(w, depth + 1);
        put_string(w, key);
        put(w, w->is_pretty ? ": " : ":", w->is_pretty ? 2 : 1);
        put_value(w, value, depth + 1);
    }
    if (!is_first) put_line(w, depth);
    put(w, "}", 1);
}

static void put_array(struct writer *w, json_t *array, int depth)
{
    put(w, "[", 1);
    for (size_t i = 0; i < json_array_size(array); i++) {
        if (i > 0) put(w, ",", 1);
        put_line(w, depth + 1);
        put_value(w, json_array_get(array, i), depth + 1);
    }
    if (json_array_size(array) > 0) put_line(w, depth);
    put(w, "]", 1);
}

static void put_value(struct writer *w, json_t *value, int depth)
{
    char text[JSON_REAL_TEXT];

    switch (json_typeof(value)) {
    case JSON_OBJECT:
        put_object(w, value, depth);
        break;
    case JSON_ARRAY:
        put_array(w, value, depth);
        break;
    case JSON_STRING:
        put_string(w, json_string_value(value));
        break;
    case JSON_INTEGER:
        snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        put(w, text, strlen(text));
        break;
    case JSON_REAL:
        put_real(w, json_real_value(value));
        break;
    case JSON_TRUE:
        put(w, "true", 4);
        break;
    case JSON_FALSE:
        put(w, "false", 5);
        break;
    case JSON_NULL:
        put(w, "null", 4);
        break;
    }
}

char *json_format(const struct json *json)
{
    struct writer w = {0};

    put_value(&w, readable(json), 0);
    return w.text;
}

char *json_format_pretty(const struct json *json)
{
    struct writer w = {.is_pretty = true};

    put_value(&w, readable(json), 0);
    put(&w, "\n", 1);
    return w.text;
}

/* Depth and an upper bound of the count of values, from brackets and commas outside strings. */
static enum rc scan(const char *text, size_t bytes, size_t factor, struct fault *why)
{
    size_t depth = 0, values = 0, containers = 0;
    bool is_text = false;

    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];

        if (is_text) {
            if (c == '\\')
                i++;
            else if (c == '"')
                is_text = false;
            continue;
        }
        if (c == '"') is_text = true;
        if (c == ',' || c == '{' || c == '[') values++;
        if (c == '{' || c == '[') {
            depth++;
            containers++;
        }
        if ((c == '}' || c == ']') && depth > 0) depth--;
        if (depth > JSON_DEPTH_MAX) {
            return fault_set(why, RC_LIMIT, "JSON is nested deeper than %d", JSON_DEPTH_MAX);
        }
        if (values > factor * JSON_VALUES_MAX || containers > factor * JSON_CONTAINERS_MAX) {
            return fault_set(why, RC_LIMIT, "JSON holds too many values");
        }
    }
    return RC_OK;
}

static enum rc parse(const char *text, size_t bytes, size_t factor, struct json **json,
                     struct fault *why)
{
    json_error_t error;
    json_t *parsed;
    enum rc rc;

    CHECK(text != NULL && json != NULL);
    rc = scan(text, bytes, factor, why);
    if (rc != RC_OK) return rc;
    parsed = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (parsed == NULL) {
        for (char *c = error.text; *c != '\0'; c++) { /* it quotes what it found */
            if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = ' ';
        }
        return fault_set(why, RC_PARSE, "not valid JSON: %s at byte %d", error.text,
                         error.position);
    }
    *json = wrapped(parsed);
    return RC_OK;
}

enum rc json_parse(const char *text, size_t bytes, struct json **json, struct fault *why)
{
    return parse(text, bytes, 1, json, why);
}

enum rc json_parse_large(const char *text, size_t bytes, struct json **json, struct fault *why)
{
    return parse(text, bytes, JSON_LARGE, json, why);
}
