/* The table of aggregates, and their names on the command line. Pure. */
#include "averaging/aggregate/aggregate.h"

#include "base/check.h"
#include "base/cpu.h"
#include "base/units.h"

#include <stdio.h>
#include <string.h>

static const struct aggregate_ops *const aggregates[] = {
    &aggregate_trim,       &aggregate_median,        &aggregate_krum,
    &aggregate_multi_krum, &aggregate_centered_clip, &aggregate_rfa};

const struct aggregate_ops *aggregate_at(size_t index)
{
    return index < ARRAY_COUNT(aggregates) ? aggregates[index] : NULL;
}

static const struct aggregate_ops *find(const char *spec, size_t count)
{
    for (size_t i = 0; i < ARRAY_COUNT(aggregates); i++) {
        const char *name = aggregates[i]->name;

        if (strlen(name) == count && strncmp(name, spec, count) == 0) return aggregates[i];
    }
    return NULL;
}

static enum rc parse_faults(const char *spec, const char *text, const struct aggregate_ops *ops,
                            uint32_t *faults, struct fault *why)
{
    uint64_t count = 0;

    if (!ops->takes_faults) {
        return fault_set(why, RC_PARSE, "--robust %s: column %zu: %s takes no number; leave it out",
                         spec, (size_t)(text - spec) + 1, ops->name);
    }
    if (!units_parse_count(text, &count) || count == 0 || count >= GROUP_MEMBERS_MAX / 2) {
        return fault_set(why, RC_PARSE,
                         "--robust %s: column %zu: \"%s\" is not a number of liars from 1 to %d",
                         spec, (size_t)(text - spec) + 1, text, GROUP_MEMBERS_MAX / 2 - 1);
    }
    *faults = (uint32_t)count;
    return RC_OK;
}

bool aggregate_parse(const char *spec, struct aggregate *aggregate, enum rc *rc, struct fault *why)
{
    size_t count = strcspn(spec, ":");
    const struct aggregate_ops *ops = find(spec, count);
    struct aggregate parsed = {.ops = ops, .faults = UINT32_MAX};

    if (ops == NULL) return false;
    *rc = RC_OK;
    if (spec[count] == ':') {
        *rc = parse_faults(spec, spec + count + 1, ops, &parsed.faults, why);
    } else if (ops->needs_faults) {
        *rc = fault_set(why, RC_PARSE,
                        "--robust %s: column %zu: how many may lie is missing, as in %s:2", spec,
                        count + 1, ops->name);
    }
    if (*rc == RC_OK) *aggregate = parsed;
    return true;
}

void aggregate_format(const struct aggregate *aggregate, char *text, size_t cap)
{
    int count;

    CHECK(aggregate->ops != NULL);
    count = aggregate->faults == UINT32_MAX
                ? snprintf(text, cap, "%s", aggregate->ops->name)
                : snprintf(text, cap, "%s:%u", aggregate->ops->name, aggregate->faults);
    CHECK(count > 0 && (size_t)count < cap);
}

FOR_EACH_CPU(extern, void, aggregate_mean, (const struct aggregate_rows *rows, float *out),
             (rows, out))
{
    float total = 0;

    for (uint32_t k = 0; k < rows->members; k++) {
        total += rows->weights[k];
    }
    for (uint32_t k = 0; k < rows->members; k++) {
        const float *values = rows->values[k], share = rows->weights[k] / total;

        for (size_t i = 0; i < rows->count; i++) {
            out[i] = k == 0 ? share * values[i] : out[i] + share * values[i];
        }
    }
}
