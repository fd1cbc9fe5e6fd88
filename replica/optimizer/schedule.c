/*
 * Schedules. After a linear warm-up from the first step on (Goyal et al. 2017, arXiv:1706.02677),
 * `linear` and `cosine` go from 1 to the minimum at the last step, the latter as min +
 * (1 - min) (1 + cos(pi t / T)) / 2 (Loshchilov, Hutter 2016, arXiv:1608.03983, no restarts).
 * `step` drops at multiples of `every` counted from step 0, whatever the warm-up. `grow` keeps the
 * rate and multiplies the batch there: the noise of a step goes with rate / batch, so both anneal
 * alike (Smith, Kindermans, Ying, Le 2017, arXiv:1711.00489).
 */
#include "replica/optimizer/schedule.h"

#include "base/check.h"
#include "base/spec.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

static const char *const names[SCHEDULE_COUNT] = {[SCHEDULE_CONSTANT] = "constant",
                                                  [SCHEDULE_STEP] = "step",
                                                  [SCHEDULE_LINEAR] = "linear",
                                                  [SCHEDULE_COSINE] = "cosine",
                                                  [SCHEDULE_GROW] = "grow"};

/* Which keys a schedule knows; the unused places are NULL. */
static const char *const keys[SCHEDULE_COUNT][4] = {
    [SCHEDULE_CONSTANT] = {"warmup"},
    [SCHEDULE_STEP] = {"warmup", "every", "gamma"},
    [SCHEDULE_LINEAR] = {"warmup", "min"},
    [SCHEDULE_COSINE] = {"warmup", "min"},
    [SCHEDULE_GROW] = {"warmup", "every", "factor", "max"},
};

static enum rc read_steps(const struct schedule *schedule, const struct spec_item *item,
                          double least, uint64_t *steps, struct fault *why)
{
    bool is_share = item->value < 1.0;
    double wanted = is_share ? item->value * (double)schedule->steps_total : item->value;

    if (item->value < least || item->value >= 1e15 || (item->is_percent && !is_share)) {
        return fault_set(why, RC_PARSE,
                         "--schedule, column %zu: %s must be a share below 1 or a number of steps",
                         item->value_column, item->key);
    }
    if (is_share && item->value > 0.0 && schedule->steps_total == 0) {
        return fault_set(why, RC_USAGE,
                         "--schedule, column %zu: a share needs an end: add --steps or --epochs",
                         item->value_column);
    }
    *steps = (uint64_t)llround(wanted);
    return RC_OK;
}

static enum rc read_growth(struct schedule *schedule, const struct spec_item *item,
                           struct fault *why)
{
    bool is_factor = strcmp(item->key, "factor") == 0;

    if (!(item->value >= 1.0) || item->value > SCHEDULE_BATCHES_MAX ||
        (is_factor && !(item->value > 1.0))) {
        return fault_set(why, RC_PARSE, "--schedule, column %zu: %s must be %s 1 and at most %d",
                         item->value_column, item->key, is_factor ? "above" : "at least",
                         SCHEDULE_BATCHES_MAX);
    }
    if (is_factor) {
        schedule->factor = item->value;
    } else {
        schedule->batches_max = floor(item->value);
    }
    return RC_OK;
}

static enum rc set_item(struct schedule *schedule, const struct spec_item *item, struct fault *why)
{
    const char *const *known = keys[schedule->kind];
    size_t count = 0;
    bool is_known = false;

    while (count < ARRAY_COUNT(keys[0]) && known[count] != NULL) {
        is_known = is_known || strcmp(known[count], item->key) == 0;
        count++;
    }
    if (!is_known) {
        return spec_unknown("--schedule", item->column, "key", item->key, known, count, why);
    }
    if (strcmp(item->key, "warmup") == 0) {
        return read_steps(schedule, item, 0.0, &schedule->warmup_steps, why);
    }
    if (strcmp(item->key, "every") == 0) {
        enum rc rc = read_steps(schedule, item, 1e-9, &schedule->every_steps, why);
        if (rc == RC_OK && schedule->every_steps == 0) schedule->every_steps = 1;
        return rc;
    }
    if (strcmp(item->key, "factor") == 0 || strcmp(item->key, "max") == 0) {
        return read_growth(schedule, item, why);
    }
    if (item->value < 0.0 || item->value > 1.0) {
        return fault_set(why, RC_PARSE,
                         "--schedule, column %zu: %s must be a share of the rate, 0 to 1",
                         item->value_column, item->key);
    }
    if (strcmp(item->key, "gamma") == 0) {
        schedule->gamma = item->value;
    } else {
        schedule->min_share = item->value;
    }
    return RC_OK;
}

enum rc schedule_parse(const char *text, uint64_t steps_total, struct schedule *schedule,
                       struct fault *why)
{
    struct schedule parsed = {
        .steps_total = steps_total, .gamma = 0.1, .factor = 2.0, .batches_max = 16.0};
    struct spec spec;
    size_t kind = 0;
    enum rc rc;

    if (text == NULL || text[0] == '\0') text = "constant";
    rc = spec_parse("--schedule", text, &spec, why);
    if (rc != RC_OK) return rc;
    while (kind < SCHEDULE_COUNT && strcmp(names[kind], spec.name) != 0) {
        kind++;
    }
    if (kind == SCHEDULE_COUNT) {
        return spec_unknown("--schedule", 1, "schedule", spec.name, names, SCHEDULE_COUNT, why);
    }
    parsed.kind = (enum schedule_kind)kind;
    if (steps_total == 0 && (kind == SCHEDULE_COSINE || kind == SCHEDULE_LINEAR)) {
        return fault_set(why, RC_USAGE, "--schedule %s needs an end: add --steps or --epochs",
                         spec.name);
    }
    for (size_t i = 0; i < spec.items_count; i++) {
        rc = set_item(&parsed, &spec.items[i], why);
        if (rc != RC_OK) return rc;
    }
    if ((kind == SCHEDULE_STEP || kind == SCHEDULE_GROW) && parsed.every_steps == 0) {
        return fault_set(why, RC_PARSE,
                         "--schedule, column %zu: %s needs every=STEPS, as in %s:every=30%%,%s",
                         strlen(text) + 1, spec.name, spec.name,
                         kind == SCHEDULE_STEP ? "gamma=0.1" : "factor=2");
    }
    *schedule = parsed;
    return RC_OK;
}

uint32_t schedule_batches(const struct schedule *schedule, uint64_t step)
{
    double batches;

    if (schedule->kind != SCHEDULE_GROW) return 1;
    batches = round(pow(schedule->factor, (double)(step / schedule->every_steps)));
    return (uint32_t)(batches < schedule->batches_max ? batches : schedule->batches_max);
}

/* Batches of the first `steps` steps: phase by phase, until the batch grows no more. */
static double batches_of(const struct schedule *schedule, uint64_t steps)
{
    double sum = 0.0;

    for (uint64_t done = 0; done < steps;) {
        uint32_t batches = schedule_batches(schedule, done);
        uint64_t phase = steps - done;
        if (batches < schedule->batches_max && phase > schedule->every_steps) {
            phase = schedule->every_steps;
        }
        sum += (double)batches * (double)phase;
        done += phase;
    }
    return sum;
}

uint64_t schedule_steps(const struct schedule *schedule, uint64_t batches)
{
    uint64_t low = 0, high = batches; /* too few unless there are none, and enough */

    while (schedule->kind == SCHEDULE_GROW && high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (batches_of(schedule, middle) < (double)batches) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return high;
}

enum rc schedule_parse_batches(const char *text, uint64_t batches, struct schedule *schedule,
                               struct fault *why)
{
    uint64_t low = 0, high = batches; /* as in schedule_steps(), of schedules with other ends */
    struct schedule parsed;
    enum rc rc = schedule_parse(text, batches, &parsed, why);

    CHECK(batches > 0);
    while (rc == RC_OK && parsed.kind == SCHEDULE_GROW && high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        rc = schedule_parse(text, middle, &parsed, why);
        if (rc == RC_OK && batches_of(&parsed, middle) < (double)batches) {
            low = middle;
        } else {
            high = middle;
        }
    }
    if (rc == RC_OK && parsed.kind == SCHEDULE_GROW) rc = schedule_parse(text, high, &parsed, why);
    if (rc == RC_OK) *schedule = parsed;
    return rc;
}

/* Share of the way from the end of the warm-up to the last step. */
static double progress_at(const struct schedule *schedule, uint64_t step)
{
    if (step >= schedule->steps_total) return 1.0;
    return (double)(step - schedule->warmup_steps) /
           (double)(schedule->steps_total - schedule->warmup_steps);
}

double schedule_factor(const struct schedule *schedule, uint64_t step)
{
    const double pi = 3.14159265358979323846;
    double rest = 1.0 - schedule->min_share, climb = 1.0;

    if (step < schedule->warmup_steps) {
        climb = (double)(step + 1) / (double)schedule->warmup_steps;
        if (schedule->kind != SCHEDULE_STEP) return climb;
    }
    switch (schedule->kind) {
    case SCHEDULE_STEP:
        return climb * pow(schedule->gamma, (double)(step / schedule->every_steps));
    case SCHEDULE_LINEAR:
        return schedule->min_share + rest * (1.0 - progress_at(schedule, step));
    case SCHEDULE_COSINE:
        if (step >= schedule->steps_total) return schedule->min_share;
        return schedule->min_share + rest * 0.5 * (1.0 + cos(pi * progress_at(schedule, step)));
    case SCHEDULE_CONSTANT:
    case SCHEDULE_GROW:
    case SCHEDULE_COUNT:
    default:
        return 1.0;
    }
}
