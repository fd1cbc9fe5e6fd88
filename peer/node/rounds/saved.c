/* What rounds leave in a checkpoint, and take from one. Loop thread only. */
#include "peer/node/rounds/internal.h"

void rounds_checkpoint(struct node *node, struct checkpoint *checkpoint)
{
    const struct round_stats stats = rounds_stats(node);

    if (node->round == NULL) return;
    checkpoint->round = stats.counts.next_round;
    adapt_keep(node, checkpoint);
    checkpoint->rule_values = node->mixed;
    if (!round_held_planes(node->round, checkpoint->held, &checkpoint->held_count) ||
        round_save(node->round, &checkpoint->exchange, &checkpoint->exchange_bytes) != RC_OK) {
        checkpoint->held_count = 0;
        log_warn(node->options.log, "the checkpoint is without round outcomes: out of memory");
    }
    round_hold(node->round, true);
    checkpoint->rule_count = round_rule_state(node->round, checkpoint->rule);
    checkpoint->residual[0] = checkpoint->rule_count > 0 ? round_residual(node->round) : NULL;
    checkpoint->residual_count = checkpoint->residual[0] != NULL;
}

static enum rc restore_rule(struct node *node, const struct checkpoint *checkpoint,
                            struct fault *why)
{
    enum rc rc = RC_SHAPE;

    if (checkpoint->rule_count == 0 || checkpoint->rule_values == node->mixed) {
        rc = round_rule_restore(node->round, checkpoint->rule, checkpoint->rule_count);
    }
    if (rc == RC_OK && checkpoint->residual_count > 0 && checkpoint->rule_values != node->mixed) {
        rc = RC_SHAPE;
    }
    if (rc == RC_OK) rc = round_residual_restore(node->round, checkpoint->residual[0]);
    if (rc == RC_OK) return RC_OK;
    return fault_set(why, rc,
                     "the checkpoint's state of averaging does not fit --averaging: %s; give the "
                     "method it was written with, or another --out",
                     rc_text(rc));
}

enum rc rounds_resume(struct node *node, const struct checkpoint *checkpoint, struct fault *why)
{
    enum rc rc;

    node->rounds->snapshot_samples = node->samples;
    rounds_begin_count(node);
    if (node->round == NULL) return RC_OK;
    round_set_lineage(node->round, node->lineage);
    round_set_number(node->round, checkpoint->round);
    rc = adapt_resume(node, checkpoint, why);
    if (rc == RC_OK) rc = restore_rule(node, checkpoint, why);
    if (rc != RC_OK || checkpoint->exchange_bytes == 0) return rc;
    rc = round_load(node->round, checkpoint->exchange, checkpoint->exchange_bytes);
    if (rc == RC_MISMATCH) {
        return fault_set(why, rc, "the checkpoint's rounds are of an earlier version of grapevine");
    }
    if (rc == RC_OK && checkpoint->held_count > 0 && checkpoint->rule_values != node->mixed) {
        rc = RC_SHAPE;
    }
    if (rc == RC_OK) {
        rc = round_held_restore(node->round, checkpoint->held, checkpoint->held_count);
    }
    if (rc != RC_OK) fault_set(why, rc, "the checkpoint's round outcomes are damaged");
    return rc;
}
