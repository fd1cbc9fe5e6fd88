/*
 * due: which border a round of a group belongs to, where training goes on beside it (local-sgd,
 * moshpit). Nobody stands still there, so peers drift: each comes to its border when its own steps
 * are done, and one that has just evaluated comes later by that. Three rules keep them in step:
 *
 * - A period counts from the step at which START came, the same moment for all members: who was
 *   early is due again no sooner than who was late. Not from the snapshot, which waits for the end
 *   of a step: that step would be added to every period.
 * - A round that is due stays due while nobody is there only because the others do something long,
 *   and also if it was skipped beside such a job; that one is begun again after a pause, or who
 *   says all the time that it is busy would have us propose at each step.
 * - In a period with a job of its own that took longer than a step, a peer that has done half of
 * its steps joins what another proposes: the other has done its steps, and would wait.
 *
 * A slower peer is waited for by proposals that stay open (averaging/group/grace.c). Loop
 * thread only.
 */
#include "peer/node/internal.h"

enum { OWED_SHARE = 16 }; /* of a period is the pause */

static bool is_patient(const struct node *node)
{
    return node->round != NULL && strategy_is_patient(node->options.strategy);
}

void node_due_note(struct node *node)
{
    bool has_started = node->round != NULL && round_has_started(node->round);

    if (has_started && !node->due.has_started) node->due.start_step = node->step;
    node->due.has_started = has_started;
}

uint64_t node_due_counted_from(struct node *node)
{
    bool is_noted = node->due.has_started && node->due.start_step <= node->step;

    return is_patient(node) && is_noted ? node->due.start_step : node->step;
}

void node_due_long(struct node *node)
{
    enum border_work work = node->border.work;

    if (work != BORDER_TRAIN && node->border_ns[work] > node->step_ns) node->due.had_long = true;
}

static bool is_somebody_away(const struct node *node)
{
    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        const struct neighbour *other = &node->neighbours[i];

        if (other->has_progress && node_busy_leaves(node, other)) return true;
    }
    return false;
}

void node_due_hear(struct node *node)
{
    struct round_stats stats;

    if (!is_patient(node) || round_is_active(node->round)) return;
    round_stats(node->round, &stats);
    if (stats.counts.rounds_skipped == node->due.seen_skipped) return;
    node->due.seen_skipped = stats.counts.rounds_skipped;
    if (!node->due.had_long && !is_somebody_away(node)) return;
    node->due.is_owed = true;
    node->due.again_ns = node_now(node) + node_due_period_ns(node) / OWED_SHARE;
}

bool node_due_is_owed(const struct node *node)
{
    return node->due.is_owed && node_now(node) >= node->due.again_ns;
}

bool node_due_early(const struct node *node)
{
    uint64_t every = strategy_every(node->options.strategy, node->step);

    return is_patient(node) && node->due.had_long && node->options.strategy->every_ns == 0 &&
           2 * (node->step - node->mixed_step) >= every && round_is_invited(node->round);
}

bool node_due_waits(struct node *node)
{
    if (!is_patient(node) || !is_somebody_away(node)) return false;
    node->due.is_owed = true;
    return true;
}

/* Lines are made of those who are there, so the mate of ours may be away; or who says so all the
 * time may not be our mate at all. */
bool node_due_waits_in_line(struct node *node)
{
    return node_now(node) < node->mixed_ns + 2 * node_due_period_ns(node) && node_due_waits(node);
}

uint64_t node_due_period_ns(const struct node *node)
{
    const struct strategy *strategy = node->options.strategy;
    uint64_t period_ns;

    if (strategy->every_ns > 0) return strategy->every_ns;
    if (__builtin_mul_overflow(strategy_every(strategy, node->step), node->step_ns, &period_ns) ||
        period_ns > UINT64_MAX / 4) {
        return 0;
    }
    return period_ns;
}

void node_due_begun(struct node *node)
{
    node->due.is_owed = node->due.had_long = false;
}
