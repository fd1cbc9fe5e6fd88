/*
 * adapt: a period that follows the loss (averaging/strategy/period.h). What members say of it
 * travels as SCORE: to who is linked anew, and when it changes, which is once or twice in a block.
 *
 * One turn of the machine is made as soon as a round is over, by what had been said when its
 * snapshot was taken. By then all who are in it have come to it, and what they said in their last
 * turn left before that; and none of them has made its next turn, as that waits for our values. So
 * all turn by the same words, and no period changes half way. Loop thread only.
 */
#include "peer/node/rounds/internal.h"

static bool is_adaptive(const struct node *node)
{
    return node->options.strategy->block_steps > 0;
}

void adapt_create(struct rounds *rounds, const struct strategy *strategy)
{
    if (strategy->block_steps == 0) return;
    period_init(&rounds->period, strategy->every_steps, strategy->block_steps);
}

uint64_t rounds_every(const struct node *node)
{
    if (is_adaptive(node)) return node->rounds->period.steps;
    return strategy_every(node->options.strategy, node->step);
}

bool rounds_are_adaptive(const struct node *node)
{
    return is_adaptive(node);
}

void rounds_stepped(struct node *node, const struct train_report *report)
{
    if (is_adaptive(node)) period_stepped(&node->rounds->period, report->loss_sum, report->steps);
}

/* ---- what members say ---- */

void rounds_tell_period(struct node *node, const struct peer_id *to)
{
    const struct period *period = &node->rounds->period;
    struct message message = {.type = MESSAGE_SCORE};

    if (!is_adaptive(node) || !period_may_say(period)) return;
    message.as.score = (struct message_score){.loss = (float)period->own.loss,
                                              .step = node->step,
                                              .rate = (float)period->own.first,
                                              .line = period->own.steps};
    if (to != NULL) {
        (void)links_send(node->links, *to, &message); /* a closed link hears it when it opens */
    } else {
        links_send_all(node->links, &message);
    }
}

void adapt_hear(struct node *node)
{
    struct rounds *rounds = node->rounds;
    struct period_told *told = rounds->told;
    uint32_t count = 0;

    rounds->periods++;
    if (!is_adaptive(node)) return;
    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        const struct neighbour *other = &node->neighbours[i];

        if (other->is_keeper || !models_holds(other, node->lineage)) continue;
        told[count++] = (struct period_told){.loss = (double)other->score.loss,
                                             .first = (double)other->score.rate,
                                             .steps = other->score.line};
    }
    rounds->told_count = count;
}

/* ---- its turns ---- */

void adapt_turn(struct node *node)
{
    struct rounds *rounds = node->rounds;
    const uint64_t before = rounds->period.steps;

    if (!is_adaptive(node) || rounds->turned == rounds->periods) return;
    if (round_is_active(node->round)) return;
    rounds->turned = rounds->periods;
    if (period_turn(&rounds->period, rounds->told, rounds->told_count)) {
        rounds_tell_period(node, NULL);
    }
    if (rounds->period.steps == before) return;
    log_info(node->options.log, "a round every %llu steps from here on, by the loss",
             (unsigned long long)rounds->period.steps);
}

void adapt_join(struct node *node)
{
    if (is_adaptive(node)) period_join(&node->rounds->period);
}

/* ---- in checkpoints ---- */

void adapt_keep(const struct node *node, struct checkpoint *checkpoint)
{
    checkpoint->has_period = is_adaptive(node);
    checkpoint->period = node->rounds->period;
}

enum rc adapt_resume(struct node *node, const struct checkpoint *checkpoint, struct fault *why)
{
    if (!is_adaptive(node) || !checkpoint->has_period) return RC_OK;
    if (period_resume(&node->rounds->period, &checkpoint->period)) return RC_OK;
    return fault_set(why, RC_FORMAT, "the checkpoint's period of --averaging %s is damaged",
                     node->options.strategy->name);
}
