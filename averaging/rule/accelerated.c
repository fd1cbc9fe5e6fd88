/*
 * rule accelerated: an outer step with Nesterov's momentum, taken along with any neighbours: a
 * pair, a graph's, or a group (GASLoC: Cagnasso, Belilovsky, Oyallon 2026, arXiv:2606.11081). With
 * phi the anchor, x what was trained from it, r the outer rate, v the momentum, L the Laplacian of
 * the round's weights and a the length of the step along it:
 *
 *   z = phi + r (x - phi);   y = z - a L z;   phi = y + v (y - y_before);   x = phi
 *
 * z is what travels. A round gives d = -L z, the sum of weighted differences to the others, so
 * that with u = y - y_before, which is kept instead of y,
 *
 *   u = v u + r (x - phi) + a d;   phi = z + a d + v u
 *
 * In a group d leads to the mean, and with a = 1 this is DiLoCo's step (outer.c, nesterov), for
 * y - y_before is minus r times its momentum. Where neighbours are few the same momentum
 * accelerates gossip: what an eigenvalue w of W = I - a L leaves in a round becomes sqrt(v w) at
 * best, so the rounds until peers agree grow with the square root of 1 / (1 - w).
 *
 * Where we differ: the paper has the momentum of z, not of y. For the mean of all peers that is the
 * same, as L leaves it alone, but each then goes on along its own last steps whatever the others
 * said: what is between the members of a group of all shrinks by sqrt(v) a round instead of to
 * nothing. Random pairs bear momentum below 0.78 (accelerated_momentum_max()), 0.71 with that of z.
 *
 * All is linear in d, so what a round in doubt keeps aside is a d, which can be added to u whenever
 * its outcome is known, and 1 + v of it to phi and x: the ends of an edge then come to the same as
 * in time. What a codec takes from z stays in the model and is in the next z. A peer without an
 * anchor tells and mixes its model as it is, and takes that for one. Statistics behind the
 * parameters are mixed alone. Jobs of the exchange lane.
 */
#include "averaging/rule/anchored.h"

#include "base/check.h"

#include <string.h>

/* In a large swarm partners are drawn anew for each round, so what they hold is independent of
 * each other. A pair leaves a = 1 - alpha / 2 of one's own value and takes the rest from the other.
 * With A, B, C the mean of y^2, y y_before and y_before^2, a round makes of them
 *   A' = (a^2 + (1 - a)^2) ((1 + v)^2 A - 2 v (1 + v) B + v^2 C);  B' = a ((1 + v) A - v B);  C' =
 * A At the limit nothing shrinks or grows: C = A, B = a (1 + v) / (1 + a v) A. */
static float growth(float v, float a)
{
    float both = a * a + (1 - a) * (1 - a);

    return both * ((1 + v) * (1 + v) * (1 - a * v) / (1 + a * v) + v * v);
}

float accelerated_momentum_max(float alpha)
{
    float low = 0, high = 1, a = 1 - alpha / 2;

    for (int i = 0; i < 24; i++) {
        float middle = (low + high) / 2;

        if (growth(middle, a) < 1) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

static size_t stepped_values(const struct rule *rule)
{
    return rule->settings.stepped > 0 ? rule->settings.stepped : rule->values;
}

static void accelerated_prepare(struct rule *rule, float *snapshot, bool has_moved)
{
    const float *anchor = rule->anchor;
    float rate = rule->settings.rate;

    (void)has_moved; /* the momentum goes on */
    if (!rule->is_anchored) return;
    for (size_t i = 0; i < stepped_values(rule); i++) {
        snapshot[i] = anchor[i] + rate * (snapshot[i] - anchor[i]);
    }
}

/* The first round: what it comes to is the anchor, and where nothing was committed the own model.
 */
static void lay_anchor(struct rule *rule, float *difference)
{
    for (size_t i = 0; i < rule->values; i++) {
        difference[i] *= rule->settings.share;
        rule->anchor[i] = rule->own[i] + difference[i];
    }
    memset(rule->momentum, 0, rule->values * sizeof(float));
    rule->is_anchored = true;
}

static void take_step(struct rule *rule, size_t first, size_t end, float *difference)
{
    float rate = rule->settings.rate, v = rule->settings.momentum, share = rule->settings.share;
    float *anchor = rule->anchor, *momentum = rule->momentum;
    const float *own = rule->own;

    for (size_t i = first; i < end; i++) {
        float before = anchor[i], gain = own[i] - before, pull = share * difference[i];

        momentum[i] = v * momentum[i] + (gain + pull);
        anchor[i] = own[i] + pull + v * momentum[i];
        difference[i] = anchor[i] - (before + gain / rate);
    }
}

static void accelerated_settle(struct rule *rule, const uint8_t *bitmap, size_t chunk_values,
                               float scale, float *difference)
{
    size_t stepped = stepped_values(rule);

    CHECK(rule->own != NULL);
    rule_mean.settle(rule->mean, bitmap, chunk_values, scale, difference);
    if (!rule->is_anchored) {
        lay_anchor(rule, difference);
        anchored_give_up_overflow(rule, difference);
        rule->own = NULL;
        return;
    }
    for (size_t first = 0; first < rule->values; first += chunk_values) {
        size_t end = first + anchored_committed(rule, bitmap, chunk_values, first);
        size_t steps_end = end < stepped ? end : stepped;

        take_step(rule, first, steps_end, difference);
        for (size_t i = steps_end > first ? steps_end : first; i < end; i++) {
            difference[i] *= rule->settings.share;
            rule->anchor[i] = rule->own[i] + difference[i];
        }
    }
    anchored_give_up_overflow(rule, difference);
    rule->own = NULL;
}

static void accelerated_late(struct rule *rule, float *difference)
{
    float v = rule->is_anchored ? rule->settings.momentum : 0;
    size_t stepped = stepped_values(rule);

    for (size_t i = 0; i < rule->values; i++) {
        float pull = rule->settings.share * difference[i];

        difference[i] = i < stepped ? (1 + v) * pull : pull;
        if (!rule->is_anchored) continue; /* the model takes it alone, and is the next anchor */
        if (i < stepped) rule->momentum[i] += pull;
        rule->anchor[i] += difference[i];
    }
}

/* ---- neighbours ---- */

static enum rc accelerated_stage(struct rule *rule, uint32_t slot, struct range range,
                                 const float *in, float *squared)
{
    return rule_mean.stage(rule->mean, slot, range, in, squared);
}

static void accelerated_take(struct rule *rule, uint32_t slot, float weight)
{
    rule_mean.take(rule->mean, slot, weight);
}

static void accelerated_pass(struct rule *rule, uint32_t slot, float weight, float shared)
{
    rule_mean.pass(rule->mean, slot, weight, shared);
}

static void accelerated_keep(const struct rule *rule, uint32_t slot, float weight,
                             float *difference)
{
    rule_mean.keep(rule->mean, slot, weight, difference);
}

const struct rule_ops rule_accelerated = {
    .name = "accelerated",
    ANCHORED_OPERATIONS,
    .settle = accelerated_settle,
    .late = accelerated_late,
    .stage = accelerated_stage,
    .take = accelerated_take,
    .pass = accelerated_pass,
    .keep = accelerated_keep,
    .prepare = accelerated_prepare,
};
