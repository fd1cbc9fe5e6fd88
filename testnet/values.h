/*
 * values: reading results of ours back from JSON for tables and pages. What is missing, null, of
 * another kind, or asked of a NULL object is NaN, 0 or "".
 */
#ifndef GRAPEVINE_TESTNET_VALUES_H
#define GRAPEVINE_TESTNET_VALUES_H

#include <stddef.h>
#include <stdint.h>

struct json;

double value_real(const struct json *object, const char *key);
uint64_t value_count(const struct json *object, const char *key);
const char *value_text(const struct json *object, const char *key);
/** The number at `index` of the array under `key`. */
double value_element(const struct json *object, const char *key, size_t index);

#endif
