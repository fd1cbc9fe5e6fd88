/*
 * Schedules. Cosine: Loshchilov, Hutter 2016, arXiv:1608.03983, without restarts, after a linear
 * warm-up: min + (1 - min) (1 + cos(pi t / T)) / 2.
 */
#include "replica/schedule.h"

#include "base/check.h"
#include "replica/spec.h"

#include <math.h>
#include <string.h>

static const char *const names[] = {"constant", "cosine"};
static const char *const cosine_keys[] = {"warmup", "min"};

static enum rc set_item(struct schedule *schedule, const struct spec_item *item, struct fault *why)
{
    if (strcmp(item->key, "warmup") == 0) {
        double steps =
            item->value < 1.0 ? item->value * (double)schedule->steps_total : item->value;
        if (item->value < 0.0 || item->value >= 1e15) {
            return fault_set(why, RC_PARSE,
                             "--schedule, column %zu: warmup must be a share below 1 or a number "
                             "of steps",
                             item->value_column);
        }
        schedule->warmup_steps = (uint64_t)llround(steps);
        return RC_OK;
    }
    if (strcmp(item->key, "min") == 0) {
        if (item->value < 0.0 || item->value > 1.0) {
            return fault_set(why, RC_PARSE,
                             "--schedule, column %zu: min must be a share of the rate, 0 to 1",
                             item->value_column);
        }
        schedule->min_share = item->value;
        return RC_OK;
    }
    return spec_unknown("--schedule", item->column, "key", item->key, cosine_keys,
                        ARRAY_COUNT(cosine_keys), why);
}

enum rc schedule_parse(const char *text, uint64_t steps_total, struct schedule *schedule,
                       struct fault *why)
{
    struct schedule parsed = {.kind = SCHEDULE_CONSTANT, .steps_total = steps_total};
    struct spec spec;
    enum rc rc;

    if (text == NULL || text[0] == '\0') text = "constant";
    rc = spec_parse("--schedule", text, &spec, why);
    if (rc != RC_OK) return rc;
    if (strcmp(spec.name, "cosine") == 0) {
        parsed.kind = SCHEDULE_COSINE;
        if (steps_total == 0) {
            return fault_set(why, RC_USAGE,
                             "--schedule cosine needs an end: add --steps or --epochs");
        }
    } else if (strcmp(spec.name, "constant") != 0) {
        return spec_unknown("--schedule", 1, "schedule", spec.name, names, ARRAY_COUNT(names), why);
    } else if (spec.items_count > 0) {
        return fault_set(why, RC_PARSE, "--schedule, column %zu: constant takes no settings",
                         spec.items[0].column);
    }
    for (size_t i = 0; i < spec.items_count; i++) {
        rc = set_item(&parsed, &spec.items[i], why);
        if (rc != RC_OK) return rc;
    }
    *schedule = parsed;
    return RC_OK;
}

double schedule_factor(const struct schedule *schedule, uint64_t step)
{
    const double pi = 3.14159265358979323846;
    uint64_t warmup = schedule->warmup_steps;
    double progress;

    if (schedule->kind == SCHEDULE_CONSTANT) return 1.0;
    if (step < warmup) return (double)(step + 1) / (double)warmup;
    if (step >= schedule->steps_total) return schedule->min_share;
    progress = (double)(step - warmup) / (double)(schedule->steps_total - warmup);
    return schedule->min_share + (1.0 - schedule->min_share) * 0.5 * (1.0 + cos(pi * progress));
}
