/*
 * Gradient tracking: every peer keeps an estimate y of the mean of all peers' gradients, mixes it
 * with its neighbours together with the model, and steps along it (Nedic, Olshevsky and Shi 2016,
 * arXiv:1607.03218; Di Lorenzo and Scutari 2016). Per step, in the form that bears larger rates:
 *
 *   y = y + g_new - g_last;   x = W (x - eta y);   y = W y
 *
 * The first y is g. Mixing by exact negatives keeps the sum of all y the sum of all last gradients,
 * whatever edges are missing. When somebody has gone for good that is no longer so, and all begin
 * anew with y = g (averaging/edge/edges.c says when); so does who goes on from a checkpoint, which
 * holds no tracker. The plane of a round is the model's, then y, from the next block of a codec on:
 * the two differ by orders of magnitude, and in a block with both the smaller one would be rounded
 * away by the scale of the larger.
 *
 * The learner's optimizer steps along y as along a gradient. With momentum that is Momentum
 * Tracking (Takezawa et al. 2022, arXiv:2209.15505), which mixes a tracker of all peers' momentum
 * u = beta u + g,
 *
 *   x = W x - eta (u - c);   c = W (c - u) + u
 *
 * with the step mixed along, as above: u - c is that tracker, z = W z + u_new - u_last. A peer's
 * momentum is the same sum over former steps of y as u is of g, mixing is the same at each step, so
 * the momentum of the tracked gradient is the tracked momentum (tests/sim/test_tracking.c). With
 * adam it is GTAdam (Carnevale et al. 2020, arXiv:2009.01745). Any comes to rest where y is zero
 * for all, at the common optimum. Jobs of the training lane.
 */
#include "peer/node/lane/internal.h"

#include "averaging/core/robust.h"
#include "base/floats.h"

#include <string.h>

static size_t model_values(const struct node *node)
{
    return node->schema->values[SECTION_MIXED];
}

/* Where y begins in the plane. */
static size_t tracker_at(const struct node *node)
{
    return (model_values(node) + CODEC_BLOCK - 1) / CODEC_BLOCK * CODEC_BLOCK;
}

size_t lane_mixed_values(const struct node *node)
{
    size_t moments = lane_moments_values(node);

    if (moments > 0) return tracker_at(node) + moments;
    return node->options.strategy->tracks ? tracker_at(node) + node->values : model_values(node);
}

static bool make(struct lane_tracking *tracking, size_t values)
{
    if (tracking->tracker == NULL) tracking->tracker = mem_aligned(values * sizeof(float));
    if (tracking->gradient == NULL) tracking->gradient = mem_aligned(values * sizeof(float));
    if (tracking->last == NULL) tracking->last = mem_aligned(values * sizeof(float));
    return tracking->tracker != NULL && tracking->gradient != NULL && tracking->last != NULL;
}

static enum rc step(struct node *node, struct train_report *report)
{
    struct lane_tracking *tracking = &node->lane->tracking;
    const struct learner_ops *learner = node->lane->learner->ops;
    float largest;
    enum rc rc = learner->gradient(node->lane->learner, tracking->gradient, report);

    if (rc == RC_OK && !floats_are_finite(tracking->gradient, node->values)) rc = RC_NONFINITE;
    if (rc != RC_OK) return rc;
    for (size_t i = 0; i < node->values; i++) {
        float g = tracking->gradient[i];

        tracking->tracker[i] =
            tracking->has_tracker ? tracking->tracker[i] + (g - tracking->last[i]) : g;
        tracking->last[i] = g;
    }
    tracking->has_tracker = true;
    largest = robust_largest_chunk(tracking->last, tracker_at(node), node->values);
    if (largest > tracking->largest) tracking->largest = largest;
    return learner->step(node->lane->learner, tracking->tracker);
}

MUST_USE enum rc lane_tracking_train(struct node *node, uint32_t steps, struct train_report *report)
{
    struct train_report one = {0}, sum = {0};
    const bool tracks = node->options.strategy->tracks;

    if (!tracks && node->options.strategy->quasi_global == 0) {
        return node->lane->learner->ops->train(node->lane->learner, steps, &node->lane->must_stop,
                                               report);
    }
    if (tracks && !make(&node->lane->tracking, node->values)) return RC_NOMEM;
    while (sum.steps < steps && !atomic_load(&node->lane->must_stop)) {
        enum rc rc = tracks ? step(node, &one) : lane_quasi_global_step(node, &one);

        if (rc != RC_OK) return rc;
        sum.steps++;
        sum.loss_sum += one.loss_sum;
        sum.correct_share += (one.correct_share - sum.correct_share) / sum.steps;
        sum.step = one.step + 1;
        sum.samples = one.samples;
    }
    *report = sum;
    return RC_OK;
}

void lane_tracking_hear(struct node *node)
{
    struct lane_tracking *tracking = &node->lane->tracking;
    uint64_t restarts = round_restarts(node->round);

    tracking->begins_anew = restarts != tracking->restarts;
    tracking->restarts = restarts;
}

static enum rc model_export(struct node *node, float *out, bool may_view, const float **view,
                            size_t *count)
{
    const struct learner_ops *learner = node->lane->learner->ops;

    *view = NULL;
    *count = 0;
    if (node->lane->snapshot != NULL) {
        return learner->snapshot_take(node->lane->learner, node->lane->snapshot);
    }
    if (may_view && learner->export_view != NULL) {
        *view = learner->export_view(node->lane->learner, out, count);
        if (*view != NULL) return RC_OK;
        *count = 0;
    }
    return lane_export(node, SECTION_MIXED, out);
}

MUST_USE enum rc lane_plane_export(struct node *node, float *out, bool may_view, const float **view,
                                   size_t *count)
{
    struct lane_tracking *tracking = &node->lane->tracking;
    size_t values = model_values(node);
    enum rc rc = model_export(node, out, may_view, view, count);

    if (rc == RC_OK && lane_moments_values(node) > 0) {
        memset(out + values, 0, (tracker_at(node) - values) * sizeof(float));
        return lane_export(node, SECTION_MOMENTS, out + tracker_at(node));
    }
    if (rc != RC_OK || !node->options.strategy->tracks) return rc;
    if (!tracking->has_tracker) { /* no step yet: as if the last gradient had been zero */
        if (!make(tracking, node->values)) return RC_NOMEM;
        memset(tracking->tracker, 0, node->values * sizeof(float));
        memset(tracking->last, 0, node->values * sizeof(float));
        tracking->has_tracker = true;
    }
    if (tracking->begins_anew) {
        memcpy(tracking->tracker, tracking->last, node->values * sizeof(float));
    }
    tracking->told = tracking->largest;
    tracking->largest = 0;
    memset(out + values, 0, (tracker_at(node) - values) * sizeof(float));
    memcpy(out + tracker_at(node), tracking->tracker, node->values * sizeof(float));
    return RC_OK;
}

MUST_USE enum rc lane_plane_import(struct node *node, const float *difference)
{
    struct lane_tracking *tracking = &node->lane->tracking;
    struct learner *learner = node->lane->learner;
    const float *behind = difference + tracker_at(node);
    size_t moments = lane_moments_values(node);
    enum rc rc = RC_OK;

    if (moments > 0) rc = lane_moments_mixed(node, behind); /* it alone may lack memory */
    if (rc != RC_OK) return rc;
    if (node->lane->snapshot != NULL) {
        rc = learner->ops->snapshot_apply(learner, node->lane->snapshot, difference);
    } else {
        rc = learner->ops->import_section(learner, SECTION_MIXED, difference, model_values(node));
    }
    if (moments > 0) return rc;
    for (size_t i = 0; rc == RC_OK && tracking->has_tracker && i < node->values; i++) {
        tracking->tracker[i] += behind[i];
    }
    if (rc == RC_OK) rc = lane_quasi_global_mixed(node);
    if (rc != RC_OK || node->options.strategy->moments != MOMENTS_RESET) return rc;
    return lane_moments_begin_anew(node);
}

float lane_tracking_told(const struct node *node)
{
    return node->lane->tracking.told;
}

struct snapshot *lane_snapshot(const struct node *node)
{
    return node->lane->snapshot;
}

void lane_tracking_reset(struct node *node)
{
    node->lane->tracking.has_tracker = false;
    lane_quasi_global_reset(node);
}
