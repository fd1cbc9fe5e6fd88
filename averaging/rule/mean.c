/*
 * rule mean: everybody moves to the mean of what took part (local SGD: Stich 2018,
 * arXiv:1805.09767; for pairs AD-PSGD's half-way step: Lian et al. 2018, arXiv:1710.06952).
 *
 * One plane of scratch serves all three uses of a range in turn: the sum of what was absorbed, then
 * the agreed mean in its place; in pair rounds the partner's values. `weights` says, per grain of
 * RULE_GRAIN values, which it is: 0 nothing, > 0 a sum of that weight, AGREED the agreed value;
 * MET: the difference itself is in the caller's plane, and scratch has nothing to do with it.
 *
 * Sums are float32 in order of arrival: one owner sums a part and all take over its result, so the
 * order cannot make peers differ. Runs in jobs of the exchange lane, one at a time.
 */
#include "averaging/rule/internal.h"

#include "averaging/codec/codec.h"
#include "averaging/rule/edge_sum.h"
#include "base/check.h"
#include "base/cpu.h"
#include "base/floats.h"
#include "base/mem.h"

#include <string.h>

#define AGREED (-1.0f)
#define MET    (-2.0f)

struct rule {
    size_t most;           /* values there is memory for */
    size_t values, grains; /* of a round; of all there is memory for */
    size_t model;          /* behind so many values lies a tracker */
    bool is_begun;
    const float *own;   /* of a round; NULL: all of it meets */
    float *scratch;     /* [values] */
    float *weights;     /* [grains] */
    bool *has_only_own; /* [grains]: sums of our own values alone, which are not copied to scratch
                           before somebody else's are added to them */
    const float *met;   /* [values] of a round; NULL: nothing has met */
    float met_weight;
    struct edge_sum edges;
};

static void mean_destroy(struct rule *rule)
{
    if (rule == NULL) return;
    mem_free(rule->scratch);
    mem_free(rule->weights);
    mem_free(rule->has_only_own);
    edge_sum_deinit(&rule->edges);
    mem_free(rule);
}

static struct rule *mean_create(size_t values, const struct rule_settings *settings)
{
    struct rule *rule;

    if (values > PTRDIFF_MAX / sizeof(float)) return NULL;
    rule = mem_alloc(sizeof *rule);
    if (rule == NULL) return NULL;
    rule->most = rule->values = values;
    rule->model = settings != NULL && settings->stepped > 0 ? settings->stepped : values;
    CHECK(rule->model <= values);
    rule->grains = values / RULE_GRAIN + (values % RULE_GRAIN != 0);
    rule->scratch = mem_aligned(values * sizeof(float));
    rule->weights = mem_array(rule->grains, sizeof(float));
    rule->has_only_own = mem_array(rule->grains, sizeof(bool));
    if (rule->scratch == NULL || rule->weights == NULL || rule->has_only_own == NULL) {
        mean_destroy(rule);
        return NULL;
    }
    edge_sum_init(&rule->edges, values);
    return rule;
}

static void mean_set_members(struct rule *rule, uint32_t members)
{
    (void)rule;
    (void)members;
}

/* Nothing outlives a round. */
static size_t mean_state(const struct rule *rule, const float *planes[RULE_STATE_MAX])
{
    (void)rule;
    (void)planes;
    return 0;
}

static enum rc mean_restore(struct rule *rule, const float *const *planes, size_t count)
{
    (void)rule;
    (void)planes;
    return count == 0 ? RC_OK : RC_SHAPE;
}

static void mean_forget(struct rule *rule)
{
    (void)rule;
}

static void mean_begin(struct rule *rule, const struct rule_view *view)
{
    CHECK(view->values <= rule->most);
    rule->values = view->values;
    rule->is_begun = true;
    rule->own = view->own;
    rule->met = NULL;
    edge_sum_begin(&rule->edges, view->own);
    memset(rule->weights, 0, rule->grains * sizeof(float));
    memset(rule->has_only_own, 0, rule->grains * sizeof(bool));
}

static bool range_fits(const struct rule *rule, struct range range)
{
    if (range.first > rule->values || range.count > rule->values - range.first) return false;
    if (range.first % RULE_GRAIN != 0) return false;
    return range.count % RULE_GRAIN == 0 || range.first + range.count == rule->values;
}

/* Values of the grain at `first` that lie inside the plane. */
static size_t grain_values(const struct rule *rule, size_t first)
{
    return rule->values - first < RULE_GRAIN ? rule->values - first : RULE_GRAIN;
}

/* Or met: below 0 nothing comes to a grain any more. */
static bool is_any_agreed(const struct rule *rule, struct range range)
{
    for (size_t i = range.first; i < range.first + range.count; i += RULE_GRAIN) {
        if (rule->weights[i / RULE_GRAIN] < 0) return true;
    }
    return false;
}

FOR_EACH_CPU(static, enum rc, mean_absorb,
             (struct rule * rule, struct range range, float weight, const float *in),
             (rule, range, weight, in))
{
    CHECK(rule->is_begun && weight > 0);
    if (!range_fits(rule, range)) return RC_SHAPE;
    if (is_any_agreed(rule, range)) return RC_REPLAY;
    for (size_t i = 0; i < range.count; i += RULE_GRAIN) {
        size_t n = grain_values(rule, range.first + i);
        float *sum = rule->scratch + range.first + i;
        size_t grain = (range.first + i) / RULE_GRAIN;
        float *total = &rule->weights[grain];

        if (rule->has_only_own[grain]) {
            const float *own = rule->own + range.first + i;

            for (size_t j = 0; j < n; j++) {
                sum[j] = *total * own[j] + weight * in[i + j];
            }
            rule->has_only_own[grain] = false;
        } else if (*total == 0 && rule->own != NULL && in == rule->own + range.first) {
            rule->has_only_own[grain] = true;
        } else if (*total == 0) {
            for (size_t j = 0; j < n; j++) {
                sum[j] = weight * in[i + j];
            }
        } else {
            for (size_t j = 0; j < n; j++) {
                sum[j] += weight * in[i + j];
            }
        }
        *total += weight;
    }
    return RC_OK;
}

FOR_EACH_CPU(static, enum rc, mean_reduce, (struct rule * rule, struct range range, float *out),
             (rule, range, out))
{
    CHECK(rule->is_begun);
    if (!range_fits(rule, range)) return RC_SHAPE;
    if (is_any_agreed(rule, range)) return RC_REPLAY;
    for (size_t i = 0; i < range.count; i += RULE_GRAIN) {
        size_t n = grain_values(rule, range.first + i);
        size_t grain = (range.first + i) / RULE_GRAIN;
        const float *sum = rule->scratch + range.first + i;
        float total = rule->weights[grain];

        if (rule->has_only_own[grain]) {
            memcpy(out + i, rule->own + range.first + i, n * sizeof(float));
            continue;
        }
        if (total == 0) return RC_NOT_FOUND;
        for (size_t j = 0; j < n; j++) {
            out[i + j] = sum[j] / total;
        }
    }
    return floats_are_finite(out, range.count) ? RC_OK : RC_NONFINITE;
}

static enum rc mean_agree(struct rule *rule, struct range range, const float *in)
{
    CHECK(rule->is_begun);
    if (!range_fits(rule, range)) return RC_SHAPE;
    if (is_any_agreed(rule, range)) return RC_REPLAY;
    if (range.count == 0) return RC_OK;
    memcpy(rule->scratch + range.first, in, range.count * sizeof(float));
    for (size_t i = range.first; i < range.first + range.count; i += RULE_GRAIN) {
        rule->weights[i / RULE_GRAIN] = AGREED;
        rule->has_only_own[i / RULE_GRAIN] = false;
    }
    return RC_OK;
}

static enum rc mean_meet(struct rule *rule, struct range range, float weight,
                         const float *difference)
{
    CHECK(rule->is_begun && weight > 0);
    CHECK(rule->met == NULL || (rule->met == difference && rule->met_weight == weight));
    if (!range_fits(rule, range)) return RC_SHAPE;
    if (is_any_agreed(rule, range)) return RC_REPLAY;
    rule->met = difference;
    rule->met_weight = weight;
    for (size_t i = range.first; i < range.first + range.count; i += RULE_GRAIN) {
        rule->weights[i / RULE_GRAIN] = MET;
        rule->has_only_own[i / RULE_GRAIN] = false;
    }
    return RC_OK;
}

static bool has_bit(const uint8_t *bitmap, size_t index)
{
    return (bitmap[index / 8] >> index % 8 & 1) != 0;
}

static bool mean_agreed(const struct rule *rule, const uint8_t *bitmap, size_t chunk_values,
                        float *out)
{
    CHECK(rule->is_begun && chunk_values % RULE_GRAIN == 0);
    for (size_t i = 0; i < rule->grains; i++) {
        if (rule->weights[i] != AGREED) return false;
        if (!has_bit(bitmap, i * RULE_GRAIN / chunk_values)) return false;
    }
    memcpy(out, rule->scratch, rule->values * sizeof(float));
    return true;
}

static void mean_cancel(struct rule *rule)
{
    rule->is_begun = false;
    rule->own = rule->met = NULL;
}

const float *rule_mean_agreed(const struct rule *rule, size_t first)
{
    return rule->weights[first / RULE_GRAIN] == AGREED ? rule->scratch + first : NULL;
}

/* A grain that met, from its own place or another, times what its weight lacks. */
static void met_settle(const struct rule *rule, size_t first, size_t n, float factor,
                       float *difference)
{
    const float *met = rule->met + first;

    if (factor == 1 && difference == rule->met) return;
    for (size_t j = 0; j < n; j++) {
        difference[first + j] = factor * met[j];
    }
}

/* A pair's two ends compute s(a - b) and s(b - a): rounding is symmetric, so these are exact
 * negatives of each other. */
static void grain_settle(const struct rule *rule, size_t first, size_t n, float scale,
                         float *difference)
{
    const float *own = rule->own + first, *other = rule->scratch + first;

    CHECK(rule->own != NULL);
    for (size_t j = 0; j < n; j++) {
        difference[first + j] = scale * (other[j] - own[j]);
    }
}

/* What settle() and doubt() do with ranges that met is to multiply them by `factor`. */
FOR_EACH_CPU(static, void, settle,
             (struct rule * rule, const uint8_t *bitmap, size_t chunk_values, float scale,
              float factor, float *difference),
             (rule, bitmap, chunk_values, scale, factor, difference))
{
    for (size_t first = 0; first < rule->values; first += RULE_GRAIN) {
        size_t n = grain_values(rule, first);
        float weight = rule->weights[first / RULE_GRAIN];

        if (weight == 0 || !has_bit(bitmap, first / chunk_values) ||
            rule->has_only_own[first / RULE_GRAIN]) {
            memset(difference + first, 0, n * sizeof(float));
        } else if (weight == MET) {
            met_settle(rule, first, n, factor, difference);
        } else {
            grain_settle(rule, first, n, weight == AGREED ? 1 : scale, difference);
        }
    }
}

static void mean_settle(struct rule *rule, const uint8_t *bitmap, size_t chunk_values, float scale,
                        float *difference)
{
    CHECK(rule->is_begun && chunk_values % RULE_GRAIN == 0);
    if (!edge_sum_settle(&rule->edges, difference)) {
        settle(rule, bitmap, chunk_values, scale, rule->met == NULL ? 1 : scale / rule->met_weight,
               difference);
    }
    mean_cancel(rule);
}

static void mean_doubt(struct rule *rule, const uint8_t *bitmap, size_t chunk_values,
                       float *difference)
{
    CHECK(rule->is_begun && chunk_values % RULE_GRAIN == 0);
    settle(rule, bitmap, chunk_values, 1, 1, difference);
    mean_cancel(rule);
}

FOR_EACH_CPU(static, float, mean_squared_distance, (struct rule * rule, struct range range),
             (rule, range))
{
    const float *a = rule->scratch + range.first, *b = rule->own + range.first;
    double sums[16] = {0.0}, total = 0.0; /* side by side, for a processor that adds up many */
    size_t whole = range.count - range.count % ARRAY_COUNT(sums);

    CHECK(rule->own != NULL && range_fits(rule, range));
    if (range.count > 0 && rule->has_only_own[range.first / RULE_GRAIN]) return 0;
    for (size_t i = 0; i < whole; i += ARRAY_COUNT(sums)) {
        for (size_t j = 0; j < ARRAY_COUNT(sums); j++) {
            double apart = (double)a[i + j] - (double)b[i + j];

            sums[j] += apart * apart;
        }
    }
    for (size_t i = whole; i < range.count; i++) {
        double apart = (double)a[i] - (double)b[i];

        sums[0] += apart * apart;
    }
    for (size_t j = 0; j < ARRAY_COUNT(sums); j++) {
        total += sums[j];
    }
    return (float)total;
}

/* ---- neighbours ---- */

static enum rc mean_stage(struct rule *rule, uint32_t slot, struct range range, const float *in,
                          float *squared)
{
    return edge_sum_stage(&rule->edges, slot, range, in, squared);
}

static void mean_take(struct rule *rule, uint32_t slot, float weight)
{
    edge_sum_take(&rule->edges, slot, (struct range){0, rule->values}, weight);
}

/* A tracker keeps all that comes into it. */
static void mean_pass(struct rule *rule, uint32_t slot, float weight, float shared)
{
    size_t model = rule->model;

    edge_sum_take(&rule->edges, slot, (struct range){0, model}, weight);
    edge_sum_take(&rule->edges, slot, (struct range){model, rule->values - model}, shared);
}

static void mean_keep(const struct rule *rule, uint32_t slot, float weight, float *difference)
{
    edge_sum_keep(&rule->edges, slot, weight, difference);
}

const struct rule_ops rule_mean = {
    .name = "mean",
    .create = mean_create,
    .destroy = mean_destroy,
    .set_members = mean_set_members,
    .state = mean_state,
    .restore = mean_restore,
    .forget = mean_forget,
    .begin = mean_begin,
    .absorb = mean_absorb,
    .reduce = mean_reduce,
    .agree = mean_agree,
    .meet = mean_meet,
    .settle = mean_settle,
    .doubt = mean_doubt,
    .agreed = mean_agreed,
    .cancel = mean_cancel,
    .squared_distance = mean_squared_distance,
    .stage = mean_stage,
    .take = mean_take,
    .pass = mean_pass,
    .keep = mean_keep,
};

void rule_commit_late(float *difference, size_t values, const uint8_t *bitmap, size_t chunk_values,
                      float scale)
{
    for (size_t i = 0; i < values; i++) {
        difference[i] = has_bit(bitmap, i / chunk_values) ? scale * difference[i] : 0;
    }
}
