/*
 * The outer rules: peers agree on the mean of their models as always, and then, instead of moving
 * to it, take a step of an outer optimizer from an anchor that all of them hold. With phi the
 * anchor, m the agreed mean, n the members, everything per value:
 *
 *   nesterov       d = phi - m;  u = v u + d;             phi = phi - r (d + v u);  x = phi
 *                  DiLoCo: Douillard et al. 2023, arXiv:2311.08105, algorithm 1
 *   slow-momentum  u = v u + (phi - m);                   phi = phi - r u;          x = phi
 *                  SlowMo: Wang et al. 2019, arXiv:1910.00643, algorithm 1
 *   block          g = m - phi;  u = v u + r g;           phi = phi + r g + v u;    x = phi
 *                  BMUF in Nesterov's form: Chen and Huo 2016, ICASSP
 *   elastic        c = (1 - b) phi + b m;  x = x - a (x - phi);  phi = c;   a = b / n
 *                  EASGD with a centre that every peer keeps: Zhang et al. 2014, arXiv:1412.6651;
 *                  with unequal periods c moves every round (the pushes of all), and x where its
 *                  pull is due: in every so manieth round, or between rounds towards c as it is
 *
 *   sparse         phi = phi - r (phi - m);  x = phi;  m by averaging/codec/delta.h
 *                  SparseLoCo: Sarfi et al. 2025, arXiv:2508.15706, algorithm 1, whose momentum is
 *                  what a member's error feedback keeps
 *
 * Where we differ. SlowMo's u is divided by the learning rate of the round and multiplied again, so
 * that momentum follows a schedule; ours is in units of the model, which is the same while the rate
 * is constant and cannot blow up when it goes to zero. The first round of a peer that has no anchor
 * (at the start) is a plain mean, which becomes the anchor. Who takes over a model gets anchor and
 * momentum with it. Anchors that differ because a round or a part of one was missed come
 * together by themselves: per round a difference shrinks by about 0.52 (nesterov 0.7, 0.9), 0.71
 * (slow-momentum 1, 0.5), to nothing in two (block 1), and by 1 - b (elastic), as the mean they are
 * all pulled to is the same.
 *
 * A part that was not agreed keeps model, anchor and momentum as they were. Runs in jobs of the
 * exchange lane, one at a time; arithmetic is float32 in one fixed order, so equal inputs give
 * equal bits at every peer.
 */
#include "averaging/rule/internal.h"

#include "averaging/codec/codec.h"
#include "base/check.h"
#include "base/floats.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

enum outer_kind { OUTER_NESTEROV, OUTER_BLOCK, OUTER_SLOW_MOMENTUM, OUTER_ELASTIC, OUTER_SPARSE };

static bool has_momentum(enum outer_kind kind)
{
    return kind != OUTER_ELASTIC && kind != OUTER_SPARSE;
}

struct rule {
    struct rule *mean; /* a rule_mean, which gathers and agrees */
    enum outer_kind kind;
    struct rule_settings settings;
    size_t most;   /* values there is memory for */
    size_t values; /* of the latest round */
    uint32_t members;
    uint64_t pushes;  /* elastic: rounds since the model was pulled */
    bool is_anchored; /* anchor and momentum are in force */
    const float *own; /* NULL between rounds */
    float *anchor;    /* [most] */
    float *momentum;  /* [most]; NULL: elastic and sparse have none */
};

static void outer_destroy(struct rule *rule)
{
    if (rule == NULL) return;
    rule_mean.destroy(rule->mean);
    mem_free(rule->anchor);
    mem_free(rule->momentum);
    mem_free(rule);
}

static struct rule *outer_create(enum outer_kind kind, size_t values,
                                 const struct rule_settings *settings)
{
    struct rule *rule;

    CHECK(settings != NULL);
    if (values > PTRDIFF_MAX / sizeof(float)) return NULL;
    rule = mem_alloc(sizeof *rule);
    if (rule == NULL) return NULL;
    rule->kind = kind;
    rule->settings = *settings;
    rule->most = rule->values = values;
    rule->members = 1;
    rule->mean = rule_mean.create(values, NULL);
    rule->anchor = mem_aligned(values * sizeof(float));
    if (has_momentum(kind)) rule->momentum = mem_aligned(values * sizeof(float));
    if (rule->mean == NULL || rule->anchor == NULL ||
        (has_momentum(kind) && rule->momentum == NULL)) {
        outer_destroy(rule);
        return NULL;
    }
    return rule;
}

static struct rule *nesterov_create(size_t values, const struct rule_settings *settings)
{
    return outer_create(OUTER_NESTEROV, values, settings);
}

static struct rule *block_create(size_t values, const struct rule_settings *settings)
{
    return outer_create(OUTER_BLOCK, values, settings);
}

static struct rule *slow_momentum_create(size_t values, const struct rule_settings *settings)
{
    return outer_create(OUTER_SLOW_MOMENTUM, values, settings);
}

static struct rule *elastic_create(size_t values, const struct rule_settings *settings)
{
    return outer_create(OUTER_ELASTIC, values, settings);
}

static struct rule *sparse_create(size_t values, const struct rule_settings *settings)
{
    return outer_create(OUTER_SPARSE, values, settings);
}

static void outer_set_members(struct rule *rule, uint32_t members)
{
    CHECK(members > 0);
    rule->members = members;
}

static size_t outer_state(const struct rule *rule, const float *planes[RULE_STATE_MAX])
{
    if (!rule->is_anchored) return 0;
    planes[0] = rule->anchor;
    if (rule->momentum == NULL) return 1;
    planes[1] = rule->momentum;
    return 2;
}

static enum rc outer_restore(struct rule *rule, const float *const *planes, size_t count)
{
    size_t wanted = rule->momentum == NULL ? 1 : 2;

    if (count == 0) return RC_OK; /* saved before its first round */
    if (count != wanted) return RC_SHAPE;
    for (size_t i = 0; i < count; i++) {
        if (!floats_are_finite(planes[i], rule->values)) return RC_NONFINITE;
    }
    memcpy(rule->anchor, planes[0], rule->values * sizeof(float));
    if (rule->momentum != NULL) {
        memcpy(rule->momentum, planes[1], rule->values * sizeof(float));
    }
    rule->is_anchored = true;
    return RC_OK;
}

static void outer_replace(struct rule *rule, size_t plane, struct range range, const float *in)
{
    float *to = plane == 0 ? rule->anchor : rule->momentum;

    CHECK(to != NULL && range.first <= rule->values && range.count <= rule->values - range.first);
    memcpy(to + range.first, in, range.count * sizeof(float));
}

/* The momentum of this round: BMUF's default grows with the members. */
static float round_momentum(const struct rule *rule)
{
    if (rule->settings.has_momentum) return rule->settings.momentum;
    return 1.0f - 1.0f / (float)rule->members;
}

static float outer_lead(const struct rule *rule)
{
    const float v = round_momentum(rule), rate = rule->settings.rate;

    if (rule->kind == OUTER_NESTEROV) return rate * v * v;
    return rule->kind == OUTER_BLOCK ? -v * v : rate * v;
}

static void outer_forget(struct rule *rule)
{
    rule->is_anchored = false;
    rule->pushes = 0;
}

static void outer_begin(struct rule *rule, const struct rule_view *view)
{
    CHECK(view->values <= rule->most);
    rule->own = view->own;
    rule->values = view->values;
    rule_mean.begin(rule->mean, view);
}

static enum rc outer_absorb(struct rule *rule, struct range range, float weight, const float *in)
{
    return rule_mean.absorb(rule->mean, range, weight, in);
}

static enum rc outer_reduce(struct rule *rule, struct range range, float *out)
{
    return rule_mean.reduce(rule->mean, range, out);
}

static enum rc outer_agree(struct rule *rule, struct range range, const float *in)
{
    return rule_mean.agree(rule->mean, range, in);
}

static void outer_cancel(struct rule *rule)
{
    rule->own = NULL;
    rule_mean.cancel(rule->mean);
}

static float outer_squared_distance(struct rule *rule, struct range range)
{
    return rule_mean.squared_distance(rule->mean, range);
}

static void step_nesterov(const struct rule *rule, size_t first, size_t count, const float *mean)
{
    float rate = rule->settings.rate, v = round_momentum(rule);
    float *anchor = rule->anchor + first, *momentum = rule->momentum + first;

    for (size_t i = 0; i < count; i++) {
        float apart = anchor[i] - mean[i];

        momentum[i] = v * momentum[i] + apart;
        anchor[i] -= rate * (apart + v * momentum[i]);
    }
}

static void step_slow(const struct rule *rule, size_t first, size_t count, const float *mean)
{
    float rate = rule->settings.rate, v = round_momentum(rule);
    float *anchor = rule->anchor + first, *momentum = rule->momentum + first;

    for (size_t i = 0; i < count; i++) {
        momentum[i] = v * momentum[i] + (anchor[i] - mean[i]);
        anchor[i] -= rate * momentum[i];
    }
}

static void step_block(const struct rule *rule, size_t first, size_t count, const float *mean)
{
    float rate = rule->settings.rate, v = round_momentum(rule);
    float *anchor = rule->anchor + first, *momentum = rule->momentum + first;

    for (size_t i = 0; i < count; i++) {
        float gain = rate * (mean[i] - anchor[i]);

        momentum[i] = v * momentum[i] + gain;
        anchor[i] += gain + v * momentum[i];
    }
}

static void step_sparse(const struct rule *rule, size_t first, size_t count, const float *mean)
{
    float rate = rule->settings.rate;
    float *anchor = rule->anchor + first;

    for (size_t i = 0; i < count; i++) {
        anchor[i] -= rate * (anchor[i] - mean[i]);
    }
}

/* A peer's own pull, in a swarm of as many as took part last. */
static float pull_of(const struct rule *rule)
{
    float n = (float)rule->members;

    return rule->settings.share > 0 ? fminf(rule->settings.share, 1 / n) : rule->settings.rate / n;
}

/* Both sides at the old values: using the new model for the centre would break the symmetry. */
static void step_elastic(const struct rule *rule, size_t first, size_t count, const float *mean,
                         float *difference)
{
    float alpha = pull_of(rule), beta = (float)rule->members * alpha;
    float pull = rule->pushes + 1 < rule->settings.pull_rounds ? 0 : alpha;
    float *centre = rule->anchor + first;
    const float *own = rule->own + first;

    for (size_t i = 0; i < count; i++) {
        difference[i] = pull * (centre[i] - own[i]);
        centre[i] += beta * (mean[i] - centre[i]);
    }
}

static bool elastic_pull(const struct rule *rule, const float *own, float *difference)
{
    float alpha = pull_of(rule);

    if (!rule->is_anchored) return false;
    for (size_t i = 0; i < rule->values; i++) {
        difference[i] = alpha * (rule->anchor[i] - own[i]);
    }
    return true;
}

/* One agreed grain: from the mean to where the outer step leads. */
static void outer_step(struct rule *rule, size_t first, size_t count, const float *mean,
                       float *difference)
{
    switch (rule->kind) {
    case OUTER_ELASTIC:
        step_elastic(rule, first, count, mean, difference + first);
        return;
    case OUTER_NESTEROV:
        step_nesterov(rule, first, count, mean);
        break;
    case OUTER_SLOW_MOMENTUM:
        step_slow(rule, first, count, mean);
        break;
    case OUTER_BLOCK:
        step_block(rule, first, count, mean);
        break;
    case OUTER_SPARSE:
        step_sparse(rule, first, count, mean);
        break;
    }
    for (size_t i = first; i < first + count; i++) {
        difference[i] = rule->anchor[i] - rule->own[i];
    }
}

/* How many of the grain at `first` step. */
static size_t stepped_values(const struct rule *rule, size_t first)
{
    size_t end = rule->settings.stepped > 0 ? rule->settings.stepped : rule->values;

    if (first >= end) return 0;
    return end - first < RULE_GRAIN ? end - first : RULE_GRAIN;
}

static size_t grain_values(const struct rule *rule, size_t first)
{
    return rule->values - first < RULE_GRAIN ? rule->values - first : RULE_GRAIN;
}

/* What was agreed and committed of the grain at `first`, or NULL. */
static const float *committed_mean(const struct rule *rule, const uint8_t *bitmap,
                                   size_t chunk_values, size_t first)
{
    size_t chunk = first / chunk_values;

    if ((bitmap[chunk / 8] >> chunk % 8 & 1) == 0) return NULL;
    return rule_mean_agreed(rule->mean, first);
}

/* Momentum that overflows must not reach the model; the next round begins anew from a mean. */
static void give_up_overflow(struct rule *rule, float *difference)
{
    if (floats_are_finite(difference, rule->values)) return;
    memset(difference, 0, rule->values * sizeof(float));
    rule->is_anchored = false;
}

/* The first round: what the peers come to is the anchor. Where nothing was agreed it is the own
 * model, so that the anchor is whole. */
static void lay_anchor(struct rule *rule, const uint8_t *bitmap, size_t chunk_values)
{
    memcpy(rule->anchor, rule->own, rule->values * sizeof(float));
    for (size_t first = 0; first < rule->values; first += RULE_GRAIN) {
        const float *mean = committed_mean(rule, bitmap, chunk_values, first);

        if (mean == NULL) continue;
        memcpy(rule->anchor + first, mean, grain_values(rule, first) * sizeof(float));
    }
    if (rule->momentum != NULL) memset(rule->momentum, 0, rule->values * sizeof(float));
    rule->is_anchored = true;
}

static void outer_settle(struct rule *rule, const uint8_t *bitmap, size_t chunk_values, float scale,
                         float *difference)
{
    CHECK(rule->own != NULL && chunk_values % RULE_GRAIN == 0);
    rule_mean.settle(rule->mean, bitmap, chunk_values, scale, difference);
    if (rule->is_anchored) {
        for (size_t first = 0; first < rule->values; first += RULE_GRAIN) {
            const float *mean = committed_mean(rule, bitmap, chunk_values, first);

            if (mean == NULL) continue;
            outer_step(rule, first, stepped_values(rule, first), mean, difference);
        }
        rule->pushes = rule->pushes + 1 < rule->settings.pull_rounds ? rule->pushes + 1 : 0;
        give_up_overflow(rule, difference);
    } else {
        lay_anchor(rule, bitmap, chunk_values);
    }
    rule->own = NULL;
}

#define OUTER_OPS(create_, name_, pull_, by_sender_)                                               \
    {                                                                                              \
        .name = (name_), .is_outer = true, .by_sender = (by_sender_), .create = (create_),         \
        .destroy = outer_destroy, .set_members = outer_set_members, .state = outer_state,          \
        .restore = outer_restore, .replace = outer_replace, .lead = outer_lead, .pull = (pull_),   \
        .forget = outer_forget, .begin = outer_begin, .absorb = outer_absorb,                      \
        .reduce = outer_reduce, .agree = outer_agree, .settle = outer_settle,                      \
        .cancel = outer_cancel, .squared_distance = outer_squared_distance,                        \
    }

const struct rule_ops rule_nesterov = OUTER_OPS(nesterov_create, "nesterov", NULL, false);
const struct rule_ops rule_block = OUTER_OPS(block_create, "block", NULL, false);
const struct rule_ops rule_slow_momentum =
    OUTER_OPS(slow_momentum_create, "slow-momentum", NULL, false);
const struct rule_ops rule_elastic = OUTER_OPS(elastic_create, "elastic", elastic_pull, false);
const struct rule_ops rule_sparse = OUTER_OPS(sparse_create, "sparse", NULL, true);
