/*
 * anchored: what the rules share that step with momentum from an anchor of the peer's own
 * (heavy_ball.c, accelerated.c, delayed.c): two planes that outlive rounds and a rule_mean that
 * gathers. Private to averaging/rule. Jobs of the exchange lane.
 */
#ifndef GRAPEVINE_AVERAGING_RULE_ANCHORED_H
#define GRAPEVINE_AVERAGING_RULE_ANCHORED_H

#include "averaging/rule/rule.h"

struct rule {
    struct rule *mean; /* a rule_mean, which gathers */
    struct rule_settings settings;
    size_t values;
    bool is_anchored;  /* anchor and momentum are in force */
    const float *own;  /* NULL between rounds */
    float *anchor;     /* [values] */
    float *momentum;   /* [values] */
    uint32_t arrivals; /* delayed.c: rounds since momentum moved */
};

/** The operations of rule.h that are alike for all of these. */
struct rule *anchored_create(size_t values, const struct rule_settings *settings);
void anchored_destroy(struct rule *rule);
void anchored_set_members(struct rule *rule, uint32_t members);
size_t anchored_state(const struct rule *rule, const float *planes[RULE_STATE_MAX]);
MUST_USE enum rc anchored_restore(struct rule *rule, const float *const *planes, size_t count);
void anchored_forget(struct rule *rule);
void anchored_begin(struct rule *rule, const struct rule_view *view);
MUST_USE enum rc anchored_absorb(struct rule *rule, struct range range, float weight,
                                 const float *in);
MUST_USE enum rc anchored_reduce(struct rule *rule, struct range range, float *out);
MUST_USE enum rc anchored_agree(struct rule *rule, struct range range, const float *in);
void anchored_cancel(struct rule *rule);
float anchored_squared_distance(struct rule *rule, struct range range);
/** A round in doubt takes no step: `difference` is what the others' part of it may come to. */
void anchored_doubt(struct rule *rule, const uint8_t *bitmap, size_t chunk_values,
                    float *difference);

/** A step that overflowed must not reach the model; the next round begins anew. */
void anchored_give_up_overflow(struct rule *rule, float *difference);
/** Values that were committed, from `first` on: none past the chunk's end; 0: it was not. `first`
 *  is a multiple of chunk_values. */
size_t anchored_committed(const struct rule *rule, const uint8_t *bitmap, size_t chunk_values,
                          size_t first);

/** Those operations in a table of rule_ops; a rule has `settle` and `late` of its own. */
#define ANCHORED_OPERATIONS                                                                        \
    .create = anchored_create, .destroy = anchored_destroy, .set_members = anchored_set_members,   \
    .state = anchored_state, .restore = anchored_restore, .forget = anchored_forget,               \
    .begin = anchored_begin, .absorb = anchored_absorb, .reduce = anchored_reduce,                 \
    .agree = anchored_agree, .doubt = anchored_doubt, .cancel = anchored_cancel,                   \
    .squared_distance = anchored_squared_distance

#endif
