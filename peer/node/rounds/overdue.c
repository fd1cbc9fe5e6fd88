/*
 * overdue: what a peer says when rounds pass it by. It counts the rounds of the swarm that it took
 * no part in, and when there was no round for a minute that was due, it says what stands in the way
 * as far as it sees it from here: nobody linked, models that do not mix, members it has paused, or
 * why the last attempt failed. Looked at with each report; loop thread only.
 */
#include "peer/node/rounds/internal.h"

#include "peer/times.h"

#include <stdio.h>

enum { OBSTACLES_BYTES = 160, VIEWS = 64 }; /* members looked at for whether anybody is left */

/* Rounds whose numbers have passed and that were not ours. Only those of groups and neighbours are
 * numbered in common. */
static uint64_t passed_by(const struct exchange_counts *counts)
{
    uint64_t ours = counts->rounds_ok + counts->rounds_aborted + counts->rounds_idle;

    return counts->next_round > ours ? counts->next_round - ours : 0;
}

uint64_t rounds_overdue_missed(const struct node *node)
{
    const struct round_stats stats = rounds_stats(node);
    uint64_t passed;

    if (node->round == NULL || !node->rounds->overdue.is_begun) return 0;
    passed = passed_by(&stats.counts);
    return passed > node->rounds->overdue.passed_before
               ? passed - node->rounds->overdue.passed_before
               : 0;
}

static bool is_due(const struct node *node)
{
    const struct strategy *strategy = node->options.strategy;
    const struct rounds_overdue *overdue = &node->rounds->overdue;

    /* At the goal the pace tells of it itself. */
    if (node->rounds->is_done || !pace_has_periods(node)) return false;
    if (node_now(node) < overdue->ok_ns + OVERDUE_NS) return false;
    if (strategy->every_ns > 0) {
        return node_now(node) >= overdue->ok_ns + OVERDUE_NS + 2 * strategy->every_ns;
    }
    return round_is_active(node->round) || node->step >= overdue->ok_step + 2 * rounds_every(node);
}

/* Members that have not said goodbye. */
static uint32_t members_left(const struct node *node)
{
    struct member_view views[VIEWS];
    size_t count = membership_list(node->membership, views, VIEWS);
    uint32_t left = 0;

    for (size_t i = 0; i < count && i < VIEWS; i++) {
        left += views[i].state != MEMBER_LEFT && !views[i].is_keeper;
    }
    return left;
}

/* Those that are linked and train; how many of them could not be in a round with us, and why. */
static uint32_t count_obstacles(const struct node *node, uint32_t *unready, uint32_t *paused)
{
    uint32_t linked = 0;

    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        const struct neighbour *other = &node->neighbours[i];

        if (other->is_keeper) continue;
        linked++;
        if (!models_holds(other, node->lineage)) {
            ++*unready;
        } else if (!trust_may_mix(node->trust, other->id, node_now(node))) {
            ++*paused;
        }
    }
    return linked;
}

static const char *obstacles_text(const struct node *node, char *text, size_t cap)
{
    uint32_t unready = 0, paused = 0;
    const uint32_t linked = count_obstacles(node, &unready, &paused);

    if (linked == 0) {
        snprintf(text, cap, "none of %u other members can be reached", members_left(node));
    } else if (unready == linked) {
        snprintf(text, cap,
                 "none of the linked peers (%u) can average with this one: they are "
                 "downloading a model, or train another",
                 linked);
    } else if (unready + paused == 0) {
        snprintf(text, cap, "linked with %u, which all hold the same model", linked);
    } else {
        snprintf(text, cap,
                 "linked with %u, of which %u are downloading a model or train another, and %u get "
                 "no rounds for now because of earlier faults",
                 linked, unready, paused);
    }
    return text;
}

bool rounds_are_overdue(const struct node *node, char *text, size_t cap)
{
    const char *reason = rounds_stats(node).counts.last_abort;
    char obstacles[OBSTACLES_BYTES];

    if (node->round == NULL || node->rounds->overdue.after_ns <= OVERDUE_NS) return false;
    (void)snprintf(
        text, cap, "no averaging round for %.0f s: %s%s%s",
        (double)(node_now(node) - node->rounds->overdue.ok_ns) / (double)NS_PER_S,
        obstacles_text(node, obstacles, sizeof obstacles),
        reason == NULL ? "" : "; the last attempt failed: ", reason == NULL ? "" : reason);
    return true;
}

void rounds_overdue_at_goal(struct node *node)
{
    const struct round_stats stats = rounds_stats(node);
    char text[OBSTACLES_BYTES];
    uint32_t unready = 0, paused = 0, mates;

    mates = count_obstacles(node, &unready, &paused);
    mates -= unready;
    if (node->round == NULL || node->options.resume != NULL || mates == 0) return;
    if (node->own_steps == 0) return;
    if (stats.counts.rounds_ok > 0) return;
    node->result.never_averaged = true;
    fault_set(&node->result.why, RC_TIMEOUT,
              "the goal was reached without one averaging round, though %u with the same model %s "
              "linked: the model is this peer's alone (%s%s%s); give it more steps, or look at the "
              "others with 'grapevine status'",
              mates, mates == 1 ? "was" : "were", obstacles_text(node, text, sizeof text),
              stats.counts.last_abort == NULL ? "" : "; the last attempt failed: ",
              stats.counts.last_abort == NULL ? "" : stats.counts.last_abort);
}

void rounds_overdue_look(struct node *node)
{
    struct rounds_overdue *overdue = &node->rounds->overdue;
    const struct round_stats stats = rounds_stats(node);
    char text[ALARM_BYTES];

    if (node->round == NULL) return;
    if (node->state != NODE_TRAINING || rounds_wait_for_peers(node) || node->options.is_keeper) {
        overdue->is_begun = false; /* a model that is taken over brings its round's number along */
        return;
    }
    if (!overdue->is_begun || stats.counts.rounds_ok != overdue->ok || members_left(node) == 0) {
        if (!overdue->is_begun) overdue->passed_before = passed_by(&stats.counts);
        if (overdue->after_ns > OVERDUE_NS && stats.counts.rounds_ok != overdue->ok) {
            log_info(node->options.log, "averaging rounds succeed again");
        }
        overdue->is_begun = true;
        overdue->ok = stats.counts.rounds_ok;
        overdue->ok_ns = node_now(node);
        overdue->ok_step = node->step;
        overdue->after_ns = OVERDUE_NS;
        return;
    }
    if (!is_due(node) || node_now(node) < overdue->ok_ns + overdue->after_ns) return;
    overdue->after_ns *= 2; /* it may go on for days */
    if (rounds_are_overdue(node, text, sizeof text)) log_warn(node->options.log, "%s", text);
}
