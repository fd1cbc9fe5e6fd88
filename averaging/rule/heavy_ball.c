/*
 * rule heavy-ball: an outer step with momentum that two peers take together, each from an anchor of
 * its own, with a pull towards the other's (NoLoCo: Kolehmainen et al. 2025, arXiv:2506.10911).
 * With phi the anchor, u the momentum, x what was trained from phi, phi' and x' the means of two:
 *
 *   u = v u - r (phi' - x') - g (phi - phi');   phi = phi + u;   x = phi
 *
 * The paper's settings have the pull g equal to the rate r. Then the anchors' means cancel,
 *
 *   u = v u + r (x' - phi)
 *
 * so that x alone need travel, which halves the bytes, and an ordinary pair round brings it. The
 * step splits into one of the peer's own, v u + r (x - phi), and the pair's part r (x' - x), of
 * which the two ends get exact negatives: what a round in doubt keeps aside is that part, which
 * can be added to u, phi and x whenever the outcome is known. Over later rounds it then adds up to
 * r / (1 - v) times itself, as it would have in time, so the sum of all models comes out the same.
 *
 * A peer without an anchor (at the start, after taking over a model) takes its own model for one. A
 * round that aborts is no step: the phase goes on until a partner is found, and counts whole.
 *
 * Random partners make the differences between peers a random walk with a pull; its mean square
 * shrinks while r < heavy_ball_rate_max(v), about 2 (1 - v^2) in large swarms. DiLoCo's v of 0.9 is
 * beyond that at its r of 0.7. Runs in jobs of the exchange lane.
 */
#include "averaging/codec/codec.h"
#include "averaging/rule/rule.h"
#include "base/check.h"
#include "base/floats.h"
#include "base/mem.h"

#include <string.h>

struct rule {
    struct rule *mean; /* a rule_mean, which gathers */
    struct rule_settings settings;
    size_t values;
    bool is_anchored; /* anchor and momentum are in force */
    const float *own; /* NULL between rounds */
    float *anchor;    /* [values] */
    float *momentum;  /* [values] */
};

float heavy_ball_rate_max(float momentum)
{
    return 2 * (1 - momentum * momentum);
}

static void ball_destroy(struct rule *rule)
{
    if (rule == NULL) return;
    rule_mean.destroy(rule->mean);
    mem_free(rule->anchor);
    mem_free(rule->momentum);
    mem_free(rule);
}

static struct rule *ball_create(size_t values, const struct rule_settings *settings)
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
        ball_destroy(rule);
        return NULL;
    }
    return rule;
}

static void ball_set_members(struct rule *rule, uint32_t members)
{
    (void)rule;
    (void)members;
}

static size_t ball_state(const struct rule *rule, const float *planes[RULE_STATE_MAX])
{
    if (!rule->is_anchored) return 0;
    planes[0] = rule->anchor;
    planes[1] = rule->momentum;
    return 2;
}

static enum rc ball_restore(struct rule *rule, const float *const *planes, size_t count)
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

static void ball_forget(struct rule *rule)
{
    rule->is_anchored = false;
}

static void ball_begin(struct rule *rule, const struct rule_view *view)
{
    rule->own = view->own;
    rule_mean.begin(rule->mean, view);
}

static enum rc ball_absorb(struct rule *rule, struct range range, float weight, const float *in)
{
    return rule_mean.absorb(rule->mean, range, weight, in);
}

static enum rc ball_reduce(struct rule *rule, struct range range, float *out)
{
    return rule_mean.reduce(rule->mean, range, out);
}

static enum rc ball_agree(struct rule *rule, struct range range, const float *in)
{
    return rule_mean.agree(rule->mean, range, in);
}

static void ball_cancel(struct rule *rule)
{
    rule->own = NULL;
    rule_mean.cancel(rule->mean);
}

static float ball_squared_distance(struct rule *rule, struct range range)
{
    return rule_mean.squared_distance(rule->mean, range);
}

/* A momentum that overflows must not reach the model; the next round begins anew. */
static void give_up_overflow(struct rule *rule, float *difference)
{
    if (floats_are_finite(difference, rule->values)) return;
    memset(difference, 0, rule->values * sizeof(float));
    rule->is_anchored = false;
}

static size_t chunk_end(const struct rule *rule, size_t first, size_t chunk_values)
{
    return rule->values - first < chunk_values ? rule->values : first + chunk_values;
}

static void ball_settle(struct rule *rule, const uint8_t *bitmap, size_t chunk_values, float scale,
                        float *difference)
{
    float rate = rule->settings.rate, v = rule->settings.momentum;
    float *anchor = rule->anchor, *momentum = rule->momentum;
    const float *own = rule->own;

    CHECK(own != NULL);
    rule_mean.settle(rule->mean, bitmap, chunk_values, scale, difference);
    if (!rule->is_anchored) {
        memcpy(anchor, own, rule->values * sizeof(float));
        memset(momentum, 0, rule->values * sizeof(float));
        rule->is_anchored = true;
    }
    for (size_t first = 0; first < rule->values; first += chunk_values) {
        size_t chunk = first / chunk_values;

        if ((bitmap[chunk / 8] >> chunk % 8 & 1) == 0) continue;
        for (size_t i = first; i < chunk_end(rule, first, chunk_values); i++) {
            momentum[i] = v * momentum[i] + rate * (own[i] - anchor[i] + difference[i]);
            anchor[i] += momentum[i];
            difference[i] = anchor[i] - own[i];
        }
    }
    give_up_overflow(rule, difference);
    rule->own = NULL;
}

static void ball_doubt(struct rule *rule, const uint8_t *bitmap, size_t chunk_values,
                       float *difference)
{
    rule_mean.settle(rule->mean, bitmap, chunk_values, 1, difference);
    rule->own = NULL;
}

static void ball_late(struct rule *rule, float *difference)
{
    for (size_t i = 0; i < rule->values; i++) {
        difference[i] *= rule->settings.rate;
    }
    if (!rule->is_anchored) return; /* the model takes it alone, and is the next anchor */
    for (size_t i = 0; i < rule->values; i++) {
        rule->momentum[i] += difference[i];
        rule->anchor[i] += difference[i];
    }
}

const struct rule_ops rule_heavy_ball = {
    .name = "heavy-ball",
    .is_paired = true,
    .create = ball_create,
    .destroy = ball_destroy,
    .set_members = ball_set_members,
    .state = ball_state,
    .restore = ball_restore,
    .forget = ball_forget,
    .begin = ball_begin,
    .absorb = ball_absorb,
    .reduce = ball_reduce,
    .agree = ball_agree,
    .settle = ball_settle,
    .doubt = ball_doubt,
    .late = ball_late,
    .cancel = ball_cancel,
    .squared_distance = ball_squared_distance,
};
