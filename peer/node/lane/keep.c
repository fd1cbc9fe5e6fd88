/*
 * The last good model of a node, to go back to: kept after each round, and put back when the loss
 * is no longer a number. The run functions are the training lane's, the others the loop's.
 */
#include "peer/node/internal.h"
#include "peer/round/plane.h"

#include "averaging/codec/codec.h"

/* ---- in the lane ---- */

void node_rollback_run(struct border_job *job)
{
    struct node *node = job->node;
    size_t buffers = node->schema->values[SECTION_BUFFERS];

    node_tracking_reset(node); /* gradients that were no numbers are in it, too */
    if (node->snapshot != NULL) {
        job->rc = node->learner->ops->restore(node->learner);
        return;
    }
    job->rc = node->learner->ops->assign_section(node->learner, SECTION_PARAMETERS, node->kept,
                                                 node->values);
    /* Statistics of what was no number are no numbers either. */
    if (job->rc == RC_OK && buffers > 0) {
        job->rc = node->learner->ops->assign_section(node->learner, SECTION_BUFFERS,
                                                     node->kept + node->values, buffers);
    }
    /* The old momentum is what blew up. */
    if (job->rc == RC_OK) job->rc = node_moments_begin_anew(node);
}

void node_keep_run(struct border_job *job)
{
    struct node *node = job->node;
    const struct learner_ops *learner = node->learner->ops;
    size_t buffers = node->schema->values[SECTION_BUFFERS];

    if (node->snapshot != NULL) {
        job->to = NULL; /* the learner has it */
        job->rc = learner->keep(node->learner);
        return;
    }
    /* The good plane stays until the new one is known to be one. */
    if (job->to == NULL) job->to = mem_aligned((node->values + buffers) * sizeof(float));
    job->rc = RC_NOMEM;
    if (job->to == NULL) return;
    job->rc = learner->export_section(node->learner, SECTION_PARAMETERS, job->to, node->values);
    if (job->rc == RC_OK && buffers > 0) {
        job->rc = learner->export_section(node->learner, SECTION_BUFFERS, job->to + node->values,
                                          buffers);
    }
    if (job->rc == RC_OK && !floats_are_finite(job->to, node->values + buffers)) {
        job->rc = RC_NONFINITE;
    }
    if (job->rc == RC_OK && node->has_kept) {
        job->moved = plane_distance(job->to, node->kept, node->values);
    }
}

/* ---- back on the loop ---- */

void node_rolled_back(struct node *node, struct border_job *job)
{
    node->wants_rollback = false;
    if (job->rc != RC_OK) {
        node_fail(node, job->rc, "cannot roll back to the last good parameters");
        return;
    }
    if (node->round != NULL) round_restart(node->round);
    log_warn(node->options.log, "the loss is no longer finite: rolled back to the last good model");
}

void node_kept(struct node *node, struct border_job *job)
{
    node->wants_keep = false;
    if (job->rc == RC_NONFINITE) node->wants_rollback = true;
    if (job->rc == RC_OK) {
        node->spare = node->kept; /* the next one is written there: new memory is slow */
        node->kept = job->to;
        node->moved = job->moved;
        node->has_kept = true;
        node->kept_ns = node_now(node);
        node->rollbacks = 0;
    } else {
        mem_free(job->to);
    }
    job->to = NULL;
}
