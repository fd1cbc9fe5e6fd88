/*
 * rule: how received parameters are combined; arithmetic only. Runs in jobs of the exchange lane,
 * one at a time. Life of a round: begin, then absorb in any order of arrival (and, for a part
 * owner, reduce; for the others, agree), then settle or cancel.
 */
#ifndef GRAPEVINE_AVERAGING_RULE_RULE_H
#define GRAPEVINE_AVERAGING_RULE_RULE_H

#include "base/rc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Values [first, first + count) of the plane. */
struct range {
    size_t first, count;
};

struct rule_view {
    const float *own; /* [values]: what we told the others, i.e. decode(encode(snapshot)). NULL:
                         every range of this round only meets */
    size_t values;    /* of this round; rule_mean and the outer rules can have fewer than they were
                         created for, and then what they keep is of as many */
};

struct rule_settings { /* of the outer rules; the mean has none */
    float rate;        /* of the outer step; elastic: the moving rate beta = n alpha */
    float momentum;    /* of the outer step, in [0, 1) */
    float share;       /* elastic: > 0: alpha itself, at most 1/n, in place of rate / n;
                          accelerated: how much of the way to the others, in (0, 1] */
    size_t memory;     /* exact-diffusion: the first so many values have one; 0: all */
    size_t stepped;    /* outer rules: the first so many values step; 0: all. The rest are means */
    bool has_momentum; /* false, block alone: 1 - 1/n, n the members of the round */
    uint32_t delay;    /* delayed-nesterov: momentum moves in every so manieth round, at least 2 */
    uint64_t pull_rounds; /* elastic: > 1: only every so many rounds is the model pulled */
};

enum { RULE_STATE_MAX = 2 };

struct rule; /* one peer's state of one rule */

struct rule_ops {
    const char *name;
    bool is_outer;     /* keeps an anchor that a group agrees on: for group exchanges alone */
    bool is_paired;    /* keeps an anchor of the peer's own: for pair exchanges alone */
    bool is_push;      /* for the push exchange, and for no other */
    bool by_sender;    /* of differences: a value is the mean of those who sent one, not of all */
    bool keeps_weight; /* of what it absorbs: what is too far away comes nearer, and counts whole */
    bool sums_to_zero; /* what it keeps does, over the swarm, see edge/edges.c: for rounds of
                          neighbours alone. Its late() is for what keep() gave */
    /** Memory for planes of `values`; `settings` may be NULL for the mean. NULL: out of memory.
     */
    struct rule *(*create)(size_t values, const struct rule_settings *settings);
    void (*destroy)(struct rule *rule);
    /** Members of the round about to be settled, this peer included. */
    void (*set_members)(struct rule *rule, uint32_t members);
    /** Push, before settle: weight that left in the round, of what we have after it, and the
     *  snapshot itself ([values]; what others decode is view->own), NULL where a device encoded it.
     *  Else NULL. */
    void (*set_sent)(struct rule *rule, float sent, const float *exact);
    /** What outlives rounds, to be saved: planes [values], in an order of the rule's own. Returns
     *  how many, 0 before the first round. Borrowed; not while a job of the rule runs. */
    size_t (*state)(const struct rule *rule, const float *planes[RULE_STATE_MAX]);
    /** The same, from a checkpoint. RC_SHAPE: not as many as this rule keeps; RC_NONFINITE. */
    MUST_USE enum rc (*restore)(struct rule *rule, const float *const *planes, size_t count);
    /** Plane `plane` of state(), in this range, is from now on `in`: what all other members have.
     *  NULL: the rule keeps no anchor of a group. */
    void (*replace)(struct rule *rule, size_t plane, struct range range, const float *in);
    /** Where there is a momentum u, plane 1 of state(): the next step leads from the anchor by
     *  -lead() u, whatever the mean is. */
    float (*lead)(const struct rule *rule);
    /** Between rounds: what one more pull of the model `own` [values] towards the centre adds to
     *  it. False: there is no centre yet. NULL: the rule has none. */
    bool (*pull)(const struct rule *rule, const float *own, float *difference);
    /** The model was replaced: the next round is the first. */
    void (*forget)(struct rule *rule);
    /** A new round over `view`, which stays valid until settle or cancel. */
    void (*begin)(struct rule *rule, const struct rule_view *view);
    /** A contribution to a range (whole chunks; `in`: [range.count], finite). weight > 0. RC_SHAPE
     *  outside the plane or off the grain, RC_REPLAY once the range is agreed. */
    MUST_USE enum rc (*absorb)(struct rule *rule, struct range range, float weight,
                               const float *in);
    /** Part owner: the weighted mean of all contributions absorbed for `range` into out.
     *  RC_NOT_FOUND if there were none, RC_NONFINITE if the sum overflowed. */
    MUST_USE enum rc (*reduce)(struct rule *rule, struct range range, float *out);
    /** The agreed value of a range (what the owner sent, or reduce gave, after the codec). It takes
     *  the place of what was absorbed there. RC_SHAPE, RC_REPLAY the second time. */
    MUST_USE enum rc (*agree)(struct rule *rule, struct range range, const float *in);
    /** In place of absorb() in pair rounds, and of agree(): into `difference`, [values], the same
     *  plane for all of a round, the caller has written weight * (in - own) of the range, when it
     *  had the values at hand. `weight`, the same too, is the scale that settle() will most likely
     *  be given, or 1; settle() then need not go through the plane again if it is given both.
     *  RC_SHAPE, RC_REPLAY the second time. NULL: this rule cannot. */
    MUST_USE enum rc (*meet)(struct rule *rule, struct range range, float weight,
                             const float *difference);
    /** difference: [values]. Group: (agreed, or where the outer step leads) - own on ranges agreed
     *  and committed, 0 elsewhere. Pair:
     *  scale * (absorbed - own) on committed ranges, 0 elsewhere: computed so that the two ends'
     *  differences are exact negatives. `bitmap`: one bit a chunk of chunk_values. */
    void (*settle)(struct rule *rule, const uint8_t *bitmap, size_t chunk_values, float scale,
                   float *difference);
    /** In place of settle, when a pair round's outcome is not known: into `difference` goes what
     *  rule_commit_late() wants (where ranges met: times their weight), and the rule's state stays
     *  as it was. NULL: settle() with scale 1 does that. */
    void (*doubt)(struct rule *rule, const uint8_t *bitmap, size_t chunk_values, float *difference);
    /** Such a round was committed after all; `difference` is rule_commit_late()'s, and becomes what
     *  is added to the model. NULL: it is that already. */
    void (*late)(struct rule *rule, float *difference);
    /** Before settle, with its bitmap: what all members agreed on, the same bits for each, into
     * out: [values]. False unless every range is agreed, not met, and committed (a mean that is
     * here may not be what its owner vouched for); `out` is then unspecified. NULL: this rule
     * cannot say. */
    bool (*agreed)(const struct rule *rule, const uint8_t *bitmap, size_t chunk_values, float *out);
    void (*cancel)(struct rule *rule);
    /** Squared norm of (absorbed - own) over a range, double inside: for READY and clipping. */
    float (*squared_distance)(struct rule *rule, struct range range);

    /* For rounds of neighbours, all or none of the next four; settle() then gives the sum of what
     * was taken. */

    /** A range of the plane of the neighbour in `slot`; *squared: as squared_distance() of it.
     *  RC_SHAPE; RC_NOMEM: the slot's memory is made here. */
    MUST_USE enum rc (*stage)(struct rule *rule, uint32_t slot, struct range range, const float *in,
                              float *squared);
    /** All of a neighbour's plane is staged in `slot`, and counts: weight * (theirs - own). */
    void (*take)(struct rule *rule, uint32_t slot, float weight);
    /** The same where the other end may give it another weight; both have `shared` in common, and
     * no more of it may be kept beyond this round. */
    void (*pass)(struct rule *rule, uint32_t slot, float weight, float shared);
    /** The same into difference: [values], for it may count later. */
    void (*keep)(const struct rule *rule, uint32_t slot, float weight, float *difference);

    /** Before encoding: the snapshot becomes what the others are told. NULL: it is that already.
     *  `has_moved`: there were steps since the last round. settle() gives the difference to the
     *  model all the same; in rounds of groups the first plane of state() is then where it leads.
     */
    void (*prepare)(struct rule *rule, float *snapshot, bool has_moved);
};

extern const struct rule_ops rule_mean, rule_push, rule_exact_diffusion;
extern const struct rule_ops rule_nesterov, rule_block, rule_slow_momentum, rule_elastic;
extern const struct rule_ops rule_sparse;
extern const struct rule_ops rule_heavy_ball, rule_accelerated, rule_delayed_nesterov;

/** rule_heavy_ball: with a rate below this the peers of a swarm of any size come together in mean
 *  square (two peers bear more); `momentum` in [0, 1). */
float heavy_ball_rate_max(float momentum);

/** rule_accelerated: with a momentum below this random pairs of a large swarm come together in mean
 *  square; `alpha` in (0, 1] is the settings' share. */
float accelerated_momentum_max(float alpha);

enum { RULE_SLOTS_MAX = 8 };

/* Ranges begin at a multiple of this and end at one or at the plane's end; chunks do. */
enum { RULE_GRAIN = 64 };

/** A pair round in doubt keeps settle()'s difference for READY's bitmap and scale 1. When the
 *  outcome comes, this turns it into the difference to apply: times `scale` on the chunks of
 *  `bitmap`, 0 elsewhere; the same bits as if it had been settled in time. Of ranges that met,
 *  `scale` is the outcome's by their weight: exact where that was 1 or is what came of it. */
void rule_commit_late(float *difference, size_t values, const uint8_t *bitmap, size_t chunk_values,
                      float scale);

#endif
