/*
 * The last good model of a node, to go back to: kept after each round, and put back when the loss
 * is no longer a number. The run functions are the training lane's, the others the loop's.
 */
#include "peer/node/lane/internal.h"

#include "base/floats.h"
#include "base/norm.h"
#include "peer/times.h"

#include <math.h>

enum { ROLLBACKS_MAX = 3 }; /* in a row, before the model is taken from a neighbour */

/* ---- in the lane ---- */

/* The learner has what there is to go back to. */
static bool is_learners(const struct lane_state *lane)
{
    return lane->snapshot != NULL || lane->learner->ops->keeps_itself;
}

static void run_rollback(struct border_job *job)
{
    struct node *node = job->node;
    size_t buffers = node->schema->values[SECTION_BUFFERS];

    lane_tracking_reset(node); /* gradients that were no numbers are in it, too */
    if (is_learners(node->lane)) {
        job->rc = node->lane->learner->ops->restore(node->lane->learner);
        return;
    }
    job->rc = lane_assign(node, SECTION_PARAMETERS, node->lane->kept);
    /* Statistics of what was no number are no numbers either. */
    if (job->rc == RC_OK && buffers > 0) {
        job->rc = lane_assign(node, SECTION_BUFFERS, node->lane->kept + node->values);
    }
    /* The old momentum is what blew up. */
    if (job->rc == RC_OK) job->rc = lane_moments_begin_anew(node);
}

static void run_keep(struct border_job *job)
{
    struct node *node = job->node;
    struct lane_state *lane = node->lane;
    size_t buffers = node->schema->values[SECTION_BUFFERS];

    if (is_learners(lane)) {
        job->rc = lane->learner->ops->keep(lane->learner);
        return;
    }
    /* The good plane stays until the new one is known to be one. */
    if (lane->spare == NULL) lane->spare = mem_aligned((node->values + buffers) * sizeof(float));
    job->rc = RC_NOMEM;
    if (lane->spare == NULL) return;
    job->rc = lane_export(node, SECTION_PARAMETERS, lane->spare);
    if (job->rc == RC_OK && buffers > 0) {
        job->rc = lane_export(node, SECTION_BUFFERS, lane->spare + node->values);
    }
    if (job->rc == RC_OK && !floats_are_finite(lane->spare, node->values + buffers)) {
        job->rc = RC_NONFINITE;
    }
    if (job->rc == RC_OK && lane->has_kept) {
        job->moved = sqrt(norm_squared_apart(lane->spare, lane->kept, node->values));
    }
}

/* ---- on the loop ---- */

void lane_keep(struct node *node)
{
    node->lane->wants_keep = true;
}

bool lane_is_broken(const struct node *node)
{
    return node->lane->wants_rollback;
}

void lane_model_replaced(struct node *node, bool has_before)
{
    if (has_before) node->lane->has_before = true;
    node->lane->has_kept = false;
    node->lane->rollbacks = 0;
    node->lane->wants_keep = true;
}

double lane_moved(const struct node *node)
{
    return node->lane->moved;
}

static bool wants_rollback(struct node *node)
{
    return node->lane->wants_rollback;
}

/* Too many in a row: the model itself is no good; a neighbour's may be, where they are alike. */
static enum border_next prepare_rollback(struct node *node, struct border_job *job)
{
    (void)job;
    if (node->lane->has_kept && models_are_population(node)) {
        models_population_ran_away(node); /* slower each time, so there is an end */
        return BORDER_SUBMIT;
    }
    if (node->lane->has_kept && node->lane->rollbacks < ROLLBACKS_MAX) {
        node->lane->rollbacks++;
        return BORDER_SUBMIT;
    }
    node->lane->wants_rollback = false;
    node->lane->rollbacks = 0;
    if (node->neighbours_count == 0 || node->options.strategy->mixes_answers) {
        node_fail(node, RC_NONFINITE,
                  "the loss is no longer finite, and going back did not help: lower --lr");
        return BORDER_AGAIN;
    }
    log_warn(node->options.log, "the loss is no longer finite: asking a neighbour for a model");
    if (node->round != NULL) round_cancel(node->round, "the local model is not finite");
    node->model_samples = 0;
    node->state = NODE_JOINING;
    models_tell(node, NULL);
    models_decide(node);
    return BORDER_AGAIN;
}

static void rolled_back(struct node *node, struct border_job *job)
{
    node->lane->wants_rollback = false;
    if (job->rc != RC_OK) {
        node_fail(node, job->rc, "cannot roll back to the last good parameters");
        return;
    }
    if (node->round != NULL) round_restart(node->round);
    if (models_are_population(node)) return; /* it has said so */
    log_warn(node->options.log, "the loss is no longer finite: rolled back to the last good model");
}

const struct border_work border_rollback = {.name = "roll back",
                                            .states = BORDER_ALIVE,
                                            .change = AUDIT_ANYTHING,
                                            .when = wants_rollback,
                                            .prepare = prepare_rollback,
                                            .run = run_rollback,
                                            .done = rolled_back};

static bool wants_keep(struct node *node)
{
    return node->lane->wants_keep &&
           (!node->lane->has_kept || node_now(node) >= node->lane->kept_ns + KEEP_NS);
}

static void kept(struct node *node, struct border_job *job)
{
    node->lane->wants_keep = false;
    if (job->rc == RC_NONFINITE) node->lane->wants_rollback = true;
    if (job->rc == RC_OK) {
        float *former = node->lane->kept;

        node->lane->kept = node->lane->spare;
        node->lane->spare = former; /* the next one is written there: new memory is slow */
        node->lane->moved = job->moved;
        node->lane->has_kept = true;
        node->lane->kept_ns = node_now(node);
        node->lane->rollbacks = 0;
    }
}

const struct border_work border_keep = {
    .name = "keep", .states = BORDER_ALIVE, .when = wants_keep, .run = run_keep, .done = kept};
