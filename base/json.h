/*
 * json: the one door to jansson, for metrics, summaries, `--json` results and their readers.
 * Numbers that are not finite are written as null.
 */
#ifndef GRAPEVINE_BASE_JSON_H
#define GRAPEVINE_BASE_JSON_H

#include "base/fault.h"
#include "base/rc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json; /* a value; an object keeps its keys in order of insertion */

/** Running out of memory while building is fatal (CHECK): results are small. */
struct json *json_object_create(void);
struct json *json_array_create(void);
/** Releases the whole tree; only the root may be destroyed. NULL is fine. */
void json_destroy(struct json *json);
/** The whole tree anew. */
struct json *json_duplicate(const struct json *json);

void json_set_text(struct json *object, const char *key, const char *value); /* NULL: null */
void json_set_real(struct json *object, const char *key, double value);
void json_set_count(struct json *object, const char *key, uint64_t value);
void json_set_bool(struct json *object, const char *key, bool value);
void json_set_null(struct json *object, const char *key);
/** `child` becomes part of `object`. */
void json_set(struct json *object, const char *key, struct json *child);
void json_append(struct json *array, struct json *child);
void json_append_text(struct json *array, const char *value);
void json_append_real(struct json *array, double value);
void json_append_count(struct json *array, uint64_t value);

/** Borrowed from the tree; NULL if absent or of another kind. */
const struct json *json_get(const struct json *object, const char *key);
const char *json_get_text(const struct json *object, const char *key);
bool json_get_real(const struct json *object, const char *key, double *value); /* integers too */
bool json_get_count(const struct json *object, const char *key, uint64_t *value);
bool json_get_bool(const struct json *object, const char *key, bool *value);
size_t json_count(const struct json *array);
const struct json *json_at(const struct json *array, size_t index);
bool json_is_an_object(const struct json *json);
bool json_is_an_array(const struct json *json);
bool json_count_of(const struct json *json, uint64_t *value);
bool json_real_of(const struct json *json, double *value);
const char *json_text_of(const struct json *json);
/** Keys of an object in order, for printing; false past the end. */
bool json_member_at(const struct json *object, size_t index, const char **key,
                    const struct json **value);
/** The same in linear time: the first and the next member, NULL past the end. */
const struct json *json_member_first(const struct json *object, const char **key, void **cursor);
const struct json *json_member_next(const struct json *object, const char **key, void **cursor);

/** One line without newline; release with mem_free(). Reals keep 17 digits at most, shortest form.
 */
char *json_format(const struct json *json);
/** Indented, for files that people open. */
char *json_format_pretty(const struct json *json);
/** Depth at most 32, about a million values, duplicate keys refused. RC_LIMIT, RC_PARSE. */
MUST_USE enum rc json_parse(const char *text, size_t bytes, struct json **json, struct fault *why);
/** The same with room for four times as many values: a tokenizer's file, not what others send. */
MUST_USE enum rc json_parse_large(const char *text, size_t bytes, struct json **json,
                                  struct fault *why);

#endif
