/*
 * rule exact-diffusion: neighbours' average without the bias that non-IID data leave in it (D2:
 * Tang et al. 2018, arXiv:1803.07068; exact diffusion: Yuan et al. 2017, arXiv:1702.05122). With
 * psi the model after its own steps and x after mixing, x' = W (psi + x - psi_before).
 *
 * What a peer keeps is c = x - psi_before: all that mixing has added and that steps pull against.
 * It tells its neighbours z = psi + c, and
 *
 *   c' = c + sum_j w_ij (z_j - z_i),   x' = psi + c'
 *
 * which is the same equation, for any optimizer and any number of steps in between. The first round
 * has c = 0 and is plain mixing. The terms of an edge are exact negatives, so the c of all peers
 * add up to zero, and stay so when an edge is missing: only who leaves takes its c along, and then
 * all begin anew (edge/edges.c). In the end every c is what one period's own steps undo.
 *
 * A neighbour that counts less at one end than at the other (robust.h) moves x alone: its terms are
 * no negatives, so the c would no longer add up to zero, and c follows whatever pulls for ever.
 *
 * Who stands still between two rounds, because it is done and serves those who are not, has nothing
 * for c to undo: its psi is still that of before, so it tells x and takes what mixing adds, into x
 * and into c. With c once more it would leave its neighbours by a whole period's steps.
 *
 * It needs all eigenvalues of W above -1/3, so weights are halved, W = (I + W)/2
 * (strategy/methods.c). Statistics behind the parameters are mixed, and have no memory. Jobs of the
 * exchange lane.
 */
#include "averaging/rule/rule.h"

#include "averaging/codec/codec.h"
#include "averaging/rule/edge_sum.h"
#include "base/check.h"
#include "base/floats.h"
#include "base/mem.h"

#include <string.h>

struct rule {
    size_t values, memory; /* the first so many have a c */
    const float *own;
    float *kept;    /* [values]: c, 0 behind `memory` */
    float *passing; /* [values]: what this round adds to x and not to c */
    bool has_kept, has_passing;
    bool has_moved; /* in this round, psi is not that of the last one */
    struct edge_sum edges;
};

static void exact_destroy(struct rule *rule)
{
    if (rule == NULL) return;
    edge_sum_deinit(&rule->edges);
    mem_free(rule->kept);
    mem_free(rule->passing);
    mem_free(rule);
}

static struct rule *exact_create(size_t values, const struct rule_settings *settings)
{
    struct rule *rule;

    if (values > PTRDIFF_MAX / sizeof(float)) return NULL;
    rule = mem_alloc(sizeof *rule);
    if (rule == NULL) return NULL;
    rule->values = values;
    rule->memory = settings != NULL && settings->memory > 0 ? settings->memory : values;
    CHECK(rule->memory <= values);
    edge_sum_init(&rule->edges, values);
    rule->kept = mem_aligned(values * sizeof(float));
    rule->passing = mem_aligned(values * sizeof(float));
    if (rule->kept == NULL || rule->passing == NULL) {
        exact_destroy(rule);
        return NULL;
    }
    memset(rule->kept, 0, values * sizeof(float));
    return rule;
}

static void exact_set_members(struct rule *rule, uint32_t members)
{
    (void)rule;
    (void)members;
}

static size_t exact_state(const struct rule *rule, const float *planes[RULE_STATE_MAX])
{
    planes[0] = rule->kept;
    return rule->has_kept ? 1 : 0;
}

static enum rc exact_restore(struct rule *rule, const float *const *planes, size_t count)
{
    if (count > 1) return RC_SHAPE;
    if (count == 0) return RC_OK;
    if (!floats_are_finite(planes[0], rule->values)) return RC_NONFINITE;
    memcpy(rule->kept, planes[0], rule->memory * sizeof(float));
    rule->has_kept = true;
    return RC_OK;
}

static void exact_forget(struct rule *rule)
{
    memset(rule->kept, 0, rule->values * sizeof(float));
    rule->has_kept = false;
}

static void exact_prepare(struct rule *rule, float *snapshot, bool has_moved)
{
    rule->has_moved = has_moved;
    for (size_t i = 0; i < rule->memory && has_moved; i++) {
        snapshot[i] += rule->kept[i];
    }
}

static void exact_begin(struct rule *rule, const struct rule_view *view)
{
    CHECK(view->values == rule->values);
    rule->own = view->own;
    edge_sum_begin(&rule->edges, view->own);
    rule->has_passing = false;
}

/* It is for rounds of neighbours, and for no others: strategy.c sees to it. */
static enum rc exact_absorb(struct rule *rule, struct range range, float weight, const float *in)
{
    (void)rule;
    (void)range;
    (void)weight;
    (void)in;
    return RC_SHAPE;
}

static enum rc exact_reduce(struct rule *rule, struct range range, float *out)
{
    (void)rule;
    (void)range;
    (void)out;
    return RC_NOT_FOUND;
}

static enum rc exact_agree(struct rule *rule, struct range range, const float *in)
{
    (void)rule;
    (void)range;
    (void)in;
    return RC_SHAPE;
}

static void exact_cancel(struct rule *rule)
{
    rule->own = NULL;
}

static void exact_settle(struct rule *rule, const uint8_t *bitmap, size_t chunk_values, float scale,
                         float *difference)
{
    (void)bitmap; /* edges commit whole */
    (void)chunk_values;
    (void)scale;
    CHECK(rule->own != NULL);
    if (!edge_sum_settle(&rule->edges, difference)) {
        memset(difference, 0, rule->values * sizeof(float));
    }
    for (size_t i = 0; i < rule->memory; i++) {
        rule->kept[i] += difference[i];
        if (rule->has_moved) difference[i] = rule->kept[i];
    }
    for (size_t i = 0; i < rule->values && rule->has_passing; i++) {
        difference[i] += rule->passing[i];
    }
    rule->has_kept = true;
    exact_cancel(rule);
}

static void exact_late(struct rule *rule, float *difference)
{
    for (size_t i = 0; i < rule->memory; i++) {
        rule->kept[i] += difference[i];
    }
}

static float exact_squared_distance(struct rule *rule, struct range range)
{
    (void)rule;
    (void)range;
    return 0;
}

static enum rc exact_stage(struct rule *rule, uint32_t slot, struct range range, const float *in,
                           float *squared)
{
    return edge_sum_stage(&rule->edges, slot, range, in, squared);
}

static void exact_take(struct rule *rule, uint32_t slot, float weight)
{
    edge_sum_take(&rule->edges, slot, (struct range){0, rule->values}, weight);
}

static void exact_pass(struct rule *rule, uint32_t slot, float weight, float shared)
{
    (void)shared; /* c would follow for ever what pulls one way, however weakly */
    if (!rule->has_passing) memset(rule->passing, 0, rule->values * sizeof(float));
    rule->has_passing = true;
    edge_sum_add(&rule->edges, slot, weight, rule->passing);
}

static void exact_keep(const struct rule *rule, uint32_t slot, float weight, float *difference)
{
    edge_sum_keep(&rule->edges, slot, weight, difference);
}

const struct rule_ops rule_exact_diffusion = {
    .name = "exact-diffusion",
    .sums_to_zero = true,
    .create = exact_create,
    .destroy = exact_destroy,
    .set_members = exact_set_members,
    .state = exact_state,
    .restore = exact_restore,
    .forget = exact_forget,
    .begin = exact_begin,
    .absorb = exact_absorb,
    .reduce = exact_reduce,
    .agree = exact_agree,
    .settle = exact_settle,
    .late = exact_late,
    .cancel = exact_cancel,
    .squared_distance = exact_squared_distance,
    .stage = exact_stage,
    .take = exact_take,
    .pass = exact_pass,
    .keep = exact_keep,
    .prepare = exact_prepare,
};
