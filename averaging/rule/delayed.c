/*
 * rule delayed-nesterov: asynchronous local SGD in pairs. What a peer learns counts as soon as it
 * meets somebody, and momentum moves in every N-th of its rounds only, by what came in since (Liu
 * et al. 2024, arXiv:2401.09135, delayed Nesterov, with c = 0): where peers step by themselves,
 * Nesterov's momentum at each arrival makes more of differences that are late already. With phi the
 * anchor, x what was trained from it, x' the mean of two, everything per value:
 *
 *   d = phi - x';  s = s + d;  phi = phi - r d;  x = phi
 *   and in every N-th round   u = v u + s;  phi = phi - r v u;  s = 0
 *
 * N equal differences move phi as far as one Nesterov step of their sum. In the paper a server has
 * the anchor, takes one difference at a time, and counts each 1/N: its rate is r N here, and its u
 * ours over N. Here each peer has an anchor of its own, an arrival is a round of two, of which each
 * takes the mean, and r is also the pull towards the other's model, as in heavy_ball.c: so anchors
 * need not travel, and nobody learns how old a difference is. A difference is never of an anchor
 * that its peer has left since, but one from a peer that is met early is of few steps.
 *
 * s and u share a plane, w: it is v u at first, takes up each d, and in the N-th round is the new
 * u, of which v is left. So what outlives a round is anchor and w; how many rounds w is of does
 * not, and a peer that goes on from a checkpoint counts to N anew. The two ends' parts of a round
 * are exact negatives, at once in phi and x and later by w: over all later rounds r / (1 - v) of
 * them, as in heavy_ball.c, so the sum of all models comes out the same, also of a round that was
 * in doubt.
 *
 * In random pairs that do not train the spread of anchors shrinks in mean square, also in large
 * swarms, with r up to 1 and any v for N of 2 or more (2.0 without momentum; the least, of N = 2,
 * is 1.03); momentum at each arrival bears 0.38 with v = 0.9 in heavy_ball.c. Statistics take
 * means. Runs in jobs of the exchange lane.
 */
#include "averaging/rule/anchored.h"

#include "base/check.h"

#include <string.h>

static size_t stepped_values(const struct rule *rule)
{
    return rule->settings.stepped > 0 ? rule->settings.stepped : rule->values;
}

/* A peer's own model is its first anchor. */
static void lay_anchor(struct rule *rule)
{
    memcpy(rule->anchor, rule->own, rule->values * sizeof(float));
    memset(rule->momentum, 0, rule->values * sizeof(float));
    rule->arrivals = 0;
    rule->is_anchored = true;
}

/* `difference`: of the pair, scale (theirs - own); becomes what is added to the model. */
static void take_step(struct rule *rule, size_t first, size_t end, bool moves, float *difference)
{
    const float rate = rule->settings.rate, v = rule->settings.momentum;
    float *anchor = rule->anchor, *momentum = rule->momentum;

    for (size_t i = first; i < end; i++) {
        const float apart = anchor[i] - (rule->own[i] + difference[i]);

        momentum[i] += apart;
        anchor[i] -= rate * apart;
        if (moves) {
            momentum[i] *= v;
            anchor[i] -= rate * momentum[i];
        }
        difference[i] = anchor[i] - rule->own[i];
    }
}

static void delayed_settle(struct rule *rule, const uint8_t *bitmap, size_t chunk_values,
                           float scale, float *difference)
{
    const size_t stepped = stepped_values(rule);
    bool moves;

    CHECK(rule->own != NULL && rule->settings.delay > 0);
    rule_mean.settle(rule->mean, bitmap, chunk_values, scale, difference);
    if (!rule->is_anchored) lay_anchor(rule);
    rule->arrivals++;
    moves = rule->arrivals >= rule->settings.delay;
    if (moves) rule->arrivals = 0;
    for (size_t first = 0; first < rule->values; first += chunk_values) {
        const size_t end = first + anchored_committed(rule, bitmap, chunk_values, first);
        const size_t steps_end = end < stepped ? end : stepped;

        take_step(rule, first, steps_end, moves, difference);
        for (size_t i = steps_end > first ? steps_end : first; i < end; i++) {
            rule->anchor[i] = rule->own[i] + difference[i];
        }
    }
    anchored_give_up_overflow(rule, difference);
    rule->own = NULL;
}

static void delayed_late(struct rule *rule, float *difference)
{
    const size_t stepped = stepped_values(rule);

    for (size_t i = 0; i < rule->values; i++) {
        if (rule->is_anchored && i < stepped) rule->momentum[i] -= difference[i];
        if (i < stepped) difference[i] *= rule->settings.rate;
        if (rule->is_anchored) rule->anchor[i] += difference[i];
    }
}

const struct rule_ops rule_delayed_nesterov = {
    .name = "delayed-nesterov",
    .is_paired = true,
    ANCHORED_OPERATIONS,
    .settle = delayed_settle,
    .late = delayed_late,
};
