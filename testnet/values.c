/* values: see values.h. */
#include "testnet/values.h"

#include "base/json.h"

#include <math.h>

double value_real(const struct json *object, const char *key)
{
    double value;

    return object != NULL && json_get_real(object, key, &value) ? value : NAN;
}

uint64_t value_count(const struct json *object, const char *key)
{
    uint64_t value;

    return object != NULL && json_get_count(object, key, &value) ? value : 0;
}

const char *value_text(const struct json *object, const char *key)
{
    const char *value = object != NULL ? json_get_text(object, key) : NULL;

    return value != NULL ? value : "";
}

double value_element(const struct json *object, const char *key, size_t index)
{
    const struct json *array = object != NULL ? json_get(object, key) : NULL;
    double value;

    if (array == NULL || index >= json_count(array)) return NAN;
    return json_real_of(json_at(array, index), &value) ? value : NAN;
}
