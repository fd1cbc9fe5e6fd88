/*
 * An anchor and a momentum of the peer's own, around a rule_mean that gathers what comes in.
 */
#include "averaging/rule/anchored.h"

#include "base/floats.h"
#include "base/check.h"
#include "base/mem.h"

#include <string.h>

void anchored_destroy(struct rule *rule)
{
    if (rule == NULL) return;
    rule_mean.destroy(rule->mean);
    mem_free(rule->anchor);
    mem_free(rule->momentum);
    mem_free(rule);
}

struct rule *anchored_create(size_t values, const struct rule_settings *settings)
{
    struct rule *rule;

    CHECK(settings != NULL);
    if (values > PTRDIFF_MAX / sizeof(float)) return NULL;
    rule = mem_alloc(sizeof *rule);
    if (rule == NULL) return NULL;
    rule->settings = *settings;
    rule->values = values;
    rule->mean = rule_mean.create(values, NULL);
    rule->anchor = mem_aligned(values * sizeof(float));
    rule->momentum = mem_aligned(values * sizeof(float));
    if (rule->mean == NULL || rule->anchor == NULL || rule->momentum == NULL) {
        anchored_destroy(rule);
        return NULL;
    }
    return rule;
}

void anchored_set_members(struct rule *rule, uint32_t members)
{
    (void)rule;
    (void)members;
}

size_t anchored_state(const struct rule *rule, const float *planes[RULE_STATE_MAX])
{
    if (!rule->is_anchored) return 0;
    planes[0] = rule->anchor;
    planes[1] = rule->momentum;
    return 2;
}

enum rc anchored_restore(struct rule *rule, const float *const *planes, size_t count)
{
    if (count == 0) return RC_OK; /* saved before its first round */
    if (count != 2) return RC_SHAPE;
    for (size_t i = 0; i < count; i++) {
        if (!floats_are_finite(planes[i], rule->values)) return RC_NONFINITE;
    }
    memcpy(rule->anchor, planes[0], rule->values * sizeof(float));
    memcpy(rule->momentum, planes[1], rule->values * sizeof(float));
    rule->is_anchored = true;
    return RC_OK;
}

void anchored_forget(struct rule *rule)
{
    rule->is_anchored = false;
}

void anchored_begin(struct rule *rule, const struct rule_view *view)
{
    rule->own = view->own;
    rule_mean.begin(rule->mean, view);
}

enum rc anchored_absorb(struct rule *rule, struct range range, float weight, const float *in)
{
    return rule_mean.absorb(rule->mean, range, weight, in);
}

enum rc anchored_reduce(struct rule *rule, struct range range, float *out)
{
    return rule_mean.reduce(rule->mean, range, out);
}

enum rc anchored_agree(struct rule *rule, struct range range, const float *in)
{
    return rule_mean.agree(rule->mean, range, in);
}

void anchored_cancel(struct rule *rule)
{
    rule->own = NULL;
    rule_mean.cancel(rule->mean);
}

float anchored_squared_distance(struct rule *rule, struct range range)
{
    return rule_mean.squared_distance(rule->mean, range);
}

void anchored_doubt(struct rule *rule, const uint8_t *bitmap, size_t chunk_values,
                    float *difference)
{
    rule_mean.settle(rule->mean, bitmap, chunk_values, 1, difference);
    rule->own = NULL;
}

void anchored_give_up_overflow(struct rule *rule, float *difference)
{
    if (floats_are_finite(difference, rule->values)) return;
    memset(difference, 0, rule->values * sizeof(float));
    rule->is_anchored = false;
}

size_t anchored_committed(const struct rule *rule, const uint8_t *bitmap, size_t chunk_values,
                          size_t first)
{
    size_t chunk = first / chunk_values, left = rule->values - first;

    if ((bitmap[chunk / 8] >> chunk % 8 & 1) == 0) return 0;
    return left < chunk_values ? left : chunk_values;
}
