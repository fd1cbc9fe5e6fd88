/* What rounds leave in a checkpoint, and take from one. Loop thread only. */
#include "peer/node/internal.h"

void node_round_checkpoint(struct node *node, struct checkpoint *checkpoint)
{
    struct round_stats stats;

    round_stats(node->round, &stats);
    checkpoint->round = stats.counts.next_round;
    checkpoint->rule_values = node->mixed;
    if (!round_held_planes(node->round, checkpoint->held, &checkpoint->held_count) ||
        round_save(node->round, &checkpoint->exchange, &checkpoint->exchange_bytes) != RC_OK) {
        checkpoint->held_count = 0;
        log_warn(node->options.log, "the checkpoint is without round outcomes: out of memory");
    }
    round_hold(node->round, true);
    checkpoint->rule_count = round_rule_state(node->round, checkpoint->rule);
}

MUST_USE enum rc node_restore_held(struct node *node, const struct checkpoint *checkpoint)
{
    if (checkpoint->held_count > 0 && checkpoint->rule_values != node->mixed) return RC_SHAPE;
    return round_held_restore(node->round, checkpoint->held, checkpoint->held_count);
}

MUST_USE enum rc node_restore_rule(struct node *node, const struct checkpoint *checkpoint,
                                   struct fault *why)
{
    enum rc rc = RC_SHAPE;

    if (checkpoint->rule_count == 0 || checkpoint->rule_values == node->mixed) {
        rc = round_rule_restore(node->round, checkpoint->rule, checkpoint->rule_count);
    }
    if (rc == RC_OK) return RC_OK;
    return fault_set(why, rc,
                     "the checkpoint's state of averaging does not fit --averaging: %s; give the "
                     "method it was written with, or another --out",
                     rc_text(rc));
}
