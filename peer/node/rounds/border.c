/*
 * A round at step borders: at one the model is copied for it, at a later one its difference is
 * added to the model, which has trained on meanwhile. Loop thread, but for the run functions.
 */
#include "peer/node/rounds/internal.h"

#include "base/crash_point.h"

/* ---- the snapshot ---- */

/* A round that is due is begun here, and may want it at once. */
static bool wants_snapshot(struct node *node)
{
    if (node->state == NODE_TRAINING) rounds_begin(node);
    return node->round != NULL && round_wants_snapshot(node->round);
}

static enum border_next prepare_snapshot(struct node *node, struct border_job *job)
{
    job->to = round_snapshot_buffer(node->round);
    if (job->to == NULL) {
        round_on_snapshot(node->round, RC_NOMEM);
        return BORDER_ON;
    }
    lane_tracking_hear(node);
    return BORDER_SUBMIT;
}

static void run_snapshot(struct border_job *job)
{
    struct node *node = job->node;
    const float *live;
    size_t count;

    job->rc = lane_plane_export(node, job->to, round_encodes_live(node->round), &live, &count);
    if (job->rc == RC_OK) job->rc = round_take(node->round, live, count);
    if (job->rc == RC_OK) verify_snapshot(node);
}

static void snapshot_taken(struct node *node, struct border_job *job)
{
    struct rounds *rounds = node->rounds;
    uint64_t samples = rounds_samples_since(node);

    if (samples > 0) rounds->samples_of_round = samples;
    rounds->snapshot_samples = node->samples;
    rounds->snapshot_step = node->step;
    lane_keep(node);
    if (job->rc == RC_OK) verify_snapshot_taken(node);
    if (rounds->outer->snapshot != NULL) rounds->outer->snapshot(node);
    if (rounds->inner->snapshot != NULL) rounds->inner->snapshot(node);
    round_on_gradient(node->round, lane_tracking_told(node));
    round_on_step(node->round, node->step, node->goal.is_reached);
    round_on_snapshot(node->round, job->rc);
}

const struct border_work border_snapshot = {.name = "snapshot",
                                            .states = BORDER_ALIVE,
                                            .when = wants_snapshot,
                                            .prepare = prepare_snapshot,
                                            .run = run_snapshot,
                                            .done = snapshot_taken};

/* ---- the difference ---- */

/* Also by who leaves: the others count on it. */
static bool has_difference(struct node *node)
{
    return node->round != NULL && round_has_difference(node->round);
}

/* What the steps beside the round came to counts a share of what it would. */
static enum rc blend(struct node *node)
{
    float *buffer = round_blend_buffer(node->round);
    const float *live;
    size_t count;
    enum rc rc;

    if (buffer == NULL) return RC_OK;
    rc = lane_plane_export(node, buffer, true, &live, &count);
    if (rc == RC_OK) round_blend(node->round, live, count);
    return rc;
}

static void run_apply(struct border_job *job)
{
    struct node *node = job->node;

    crash_point(CRASH_ROUND_APPLYING);
    job->rc = blend(node);
    if (job->rc == RC_OK) job->rc = lane_plane_import(node, round_difference(node->round));
    if (job->rc == RC_OK) job->rc = lane_moments_mask(node, round_residual(node->round));
    crash_point(CRASH_ROUND_APPLIED);
}

static void applied(struct node *node, struct border_job *job)
{
    round_applied(node->round);
    verify_applied(node);
    if (job->rc != RC_OK) node_fail(node, job->rc, lane_why(node, job->rc));
}

const struct border_work border_apply = {.name = "apply",
                                         .states = BORDER_ALIVE | BORDER_LEAVING,
                                         .change = AUDIT_DIFFERENCE,
                                         .when = has_difference,
                                         .run = run_apply,
                                         .done = applied};
