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
#include "averaging/rule/anchored.h"

#include "base/check.h"

#include <string.h>

float heavy_ball_rate_max(float momentum)
{
    return 2 * (1 - momentum * momentum);
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
        size_t end = first + anchored_committed(rule, bitmap, chunk_values, first);

        for (size_t i = first; i < end; i++) {
            momentum[i] = v * momentum[i] + rate * (own[i] - anchor[i] + difference[i]);
            anchor[i] += momentum[i];
            difference[i] = anchor[i] - own[i];
        }
    }
    anchored_give_up_overflow(rule, difference);
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
    ANCHORED_OPERATIONS,
    .settle = ball_settle,
    .late = ball_late,
};
