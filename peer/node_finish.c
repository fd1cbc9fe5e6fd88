/*
 * The last rounds of a peer at its goal. Its last steps are its own, and the mean of all is better
 * than they are: so it stays where it is, says that it is done (PROGRESS), takes part in what the
 * others begin, and leaves after a round that found it standing still.
 *
 *  STEPS --goal--> WAITING --nobody is about to be done, and as many rounds as it takes--> OVER
 *                     '--nobody is left, or patience is over------------------------------^
 *
 * Who says that it will be done within our patience is waited for, so that those who train at the
 * same pace end together, and with the same model; rounds meanwhile are served as well, but are not
 * the last. If all others are done, the round is begun here as anywhere else; beside a group that
 * trains on one is joined that it begins, as a proposal of ours would take one member out of it.
 * Whole groups need one round; where a round is of a part of those who are done, it takes
 * log(all) / log(part). Patience is some periods of rounds as measured, so whoever dies, lies, or
 * averages by another method costs no more than that. one-shot has a round of its own:
 * node_once.c. Loop thread only.
 */
#include "peer/node_internal.h"

#include <math.h>

enum { PATIENCE_PERIODS = 3, ROUNDS_MAX = 16 };
#define PAUSE_NS (100 * NS_PER_MS) /* between two tries, and two looks */

struct others {
    uint32_t done, coming, training;
};

/* ---- how far everybody is ---- */

void node_finish_met(struct node *node, struct peer_id peer)
{
    struct neighbour *other = node_neighbour(node, peer);

    if (other != NULL) other->has_met = true;
}

void node_finish_stepped(struct node *node)
{
    struct node_finish *finish = &node->finish;
    uint64_t now_ns = node_now(node), steps = node->own_steps - finish->mark_steps;
    uint64_t each_ns;

    if (finish->mark_ns != 0 && now_ns < finish->mark_ns + NODE_PROGRESS_NS) return;
    if (finish->mark_ns != 0 && steps > 0) {
        each_ns = (now_ns - finish->mark_ns) / steps;
        finish->wall_ns = finish->wall_ns == 0 ? each_ns : (3 * finish->wall_ns + each_ns) / 4;
    }
    finish->mark_ns = now_ns;
    finish->mark_steps = node->own_steps;
}

/* From one step to the next, with all that is waited for in between. */
static uint64_t wall_ns(const struct node *node)
{
    const struct node_finish *finish = &node->finish;

    return finish->wall_ns > node->step_ns ? finish->wall_ns : node->step_ns;
}

uint32_t node_finish_left_ms(const struct node *node)
{
    const struct node_goal *goal = &node->options.goal;
    double left_ns = HUGE_VAL, time_ns;

    if (node->is_goal_reached || node->state != NODE_TRAINING) return 0;
    if (node->is_goal_resolved && node->goal_steps != UINT64_MAX && wall_ns(node) > 0) {
        left_ns = (double)(node->goal_steps - node->own_steps) * (double)wall_ns(node);
    }
    if (goal->time_ns > 0) {
        time_ns = (double)goal->time_ns - (double)(node_now(node) - node->begun_ns);
        if (time_ns < left_ns) left_ns = time_ns;
    }
    if (left_ns / NS_PER_MS >= UINT32_MAX) return 0;
    return left_ns < NS_PER_MS ? 1 : (uint32_t)(left_ns / NS_PER_MS);
}

static uint64_t patience_ns(const struct node *node)
{
    const struct strategy *strategy = node->options.strategy;
    uint64_t period_ns = strategy->every_ns;
    struct round_stats stats;

    round_stats(node->round, &stats);
    if (period_ns == 0) period_ns = strategy_every(strategy, node->step) * wall_ns(node);
    if (period_ns < stats.last_ns) period_ns = stats.last_ns;
    return PATIENCE_PERIODS * (period_ns + NODE_PROGRESS_NS); /* they are heard so often */
}

static bool is_mate(const struct node *node, const struct neighbour *other)
{
    return other->has_progress && other->progress.is_serving &&
           digest_is_equal(other->progress.lineage, node->lineage) &&
           trust_may_mix(node->trust, other->id, node_now(node)) &&
           !round_is_unlike(node->round, other->id);
}

/* Who trains on and has never been in a round with us will not be in the next one either, but where
 * there was none at all. */
static struct others count_others(const struct node *node)
{
    struct others others = {0};
    struct round_stats stats;

    round_stats(node->round, &stats);
    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        const struct neighbour *other = &node->neighbours[i];
        uint64_t left_ns = other->progress.left_ms * NS_PER_MS;

        if (!is_mate(node, other)) continue;
        if (other->progress.is_done) {
            others.done++;
        } else if (!other->has_met && stats.mixed > 0) {
            continue;
        } else if (left_ns > 0 && node_now(node) < node->finish.until_ns &&
                   other->progress_ns + left_ns <= node->finish.until_ns) {
            others.coming++;
        } else {
            others.training++;
        }
    }
    return others;
}

/* ---- the rounds ---- */

/* Rounds applied; for methods that push, shares that came in. */
static uint64_t rounds_so_far(const struct node *node, const struct round_stats *stats)
{
    return node->options.strategy->rule->is_push ? stats->counts.received : stats->mixed;
}

static uint32_t rounds_wanted(const struct node *node, const struct round_stats *stats)
{
    double part = stats->last_members > 2 ? stats->last_members : 2;
    double rounds = ceil(log(node->finish.most_done) / log(part) - 1e-9);

    return rounds < 1 ? 1 : rounds > ROUNDS_MAX ? ROUNDS_MAX : (uint32_t)rounds;
}

void node_finish_snapshot(struct node *node)
{
    struct node_finish *finish = &node->finish;

    finish->is_last = finish->is_begun && count_others(node).coming == 0;
}

/* What came of the rounds since the last look. */
static void look(struct node *node, const struct round_stats *stats)
{
    struct node_finish *finish = &node->finish;
    uint64_t rounds = rounds_so_far(node, stats);

    if (rounds == finish->rounds) return;
    if (finish->is_last) {
        finish->made += (uint32_t)(rounds - finish->rounds);
        finish->owed_round = stats->counts.next_round;
    }
    finish->rounds = rounds;
    finish->again_ns = 0;
    finish->made_ns = node_now(node);
    node_send_progress(node, NULL);
}

/* Somebody may still want a part of the result from us. */
static bool is_owed(const struct node *node, const struct round_stats *stats)
{
    if (node->options.strategy->rule->is_push) return stats->counts.custody > 0;
    if (!node->options.strategy->exchange->is_group) return false; /* both ends have all */
    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        const struct neighbour *other = &node->neighbours[i];

        if (is_mate(node, other) && other->has_met && !node_busy_leaves(node, other) &&
            other->progress.round < node->finish.owed_round) {
            return true;
        }
    }
    return false;
}

static void begin(struct node *node, const struct round_stats *stats)
{
    struct node_finish *finish = &node->finish;

    finish->is_begun = true;
    finish->rounds = rounds_so_far(node, stats);
    finish->patience_ns = patience_ns(node);
    finish->until_ns = node_now(node) + finish->patience_ns;
    /* Nothing was added to what the last round left. */
    finish->is_over = node->samples_since_round == 0 && !round_is_active(node->round);
    if (!finish->is_over) node_send_progress(node, NULL);
}

static bool is_over(struct node *node, const struct round_stats *stats)
{
    struct node_finish *finish = &node->finish;
    struct others others = count_others(node);
    uint64_t now_ns = node_now(node);

    if (others.done + others.coming + others.training == 0) return true;
    if (others.training == 0 && others.done + 1 > finish->most_done) {
        finish->most_done = others.done + 1;
    }
    if (round_is_active(node->round)) {
        bool is_running = round_has_started(node->round) || round_has_snapshot(node->round);

        return now_ns >= finish->until_ns + (is_running ? finish->patience_ns : 0);
    }
    if (now_ns >= finish->until_ns + finish->patience_ns) return true;
    if (others.coming == 0 && finish->made >= rounds_wanted(node, stats)) {
        round_set_busy(node->round, true); /* nobody is to wait for us any more */
        return !is_owed(node, stats) || now_ns >= finish->made_ns + finish->patience_ns;
    }
    if (now_ns >= finish->until_ns) return true;
    if (!finish->is_told) {
        finish->is_told = true;
        log_info(node->options.log, "goal reached: waiting for one last round with %u %s",
                 others.done + others.coming + others.training,
                 others.done + others.coming + others.training == 1 ? "neighbour" : "neighbours");
    }
    return false;
}

bool node_finish_waits(struct node *node)
{
    struct node_finish *finish = &node->finish;
    struct round_stats stats;

    if (node->round == NULL || node->options.strategy->at_end) return false;
    round_stats(node->round, &stats);
    if (!finish->is_begun) begin(node, &stats);
    look(node, &stats);
    if (!finish->is_over) finish->is_over = is_over(node, &stats);
    return !finish->is_over;
}

bool node_finish_is_due(const struct node *node)
{
    const struct node_finish *finish = &node->finish;
    const struct exchange_ops *exchange = node->options.strategy->exchange;
    struct others others = count_others(node);
    uint64_t now_ns = node_now(node);
    struct round_stats stats;
    bool is_made;

    if (finish->is_over || now_ns >= finish->until_ns) return false;
    round_stats(node->round, &stats);
    is_made = others.coming == 0 && finish->made >= rounds_wanted(node, &stats);
    if (is_made) return false;
    if (exchange->is_group && round_is_invited(node->round)) return true;
    if (now_ns < finish->again_ns) return false;
    if (node_push_is_owed(node) && now_ns < node->push.again_ns) return false;
    if (exchange->is_graph) return true; /* it runs when the others have come to it */
    if (others.coming > 0) return false;
    return !exchange->is_group || others.training == 0;
}

void node_finish_begins(struct node *node)
{
    node->finish.again_ns = node_now(node) + PAUSE_NS;
}

uint64_t node_finish_next_ns(const struct node *node)
{
    return node->finish.is_begun ? node_now(node) + PAUSE_NS : UINT64_MAX;
}
