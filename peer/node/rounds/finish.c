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
 * the last. The first word is what counts: who is late by more than estimates are, or says the same
 * again and again, trains on like others. If all others are done, the round is begun here as
 * anywhere else. Beside a group that trains on, one is joined that it begins, for a period; then
 * those who are done begin one among themselves. When patience is over nobody is waited for any
 * more, and half of it is left for a round with whoever is there.
 *
 * Whole groups need one round; where a round is of a part of those who are done, it takes
 * log(all) / log(part), pairs with as many partners. Patience is some periods of rounds as
 * measured, but not long beside the training it follows, so whoever dies, lies, or averages by
 * another method costs no more than that. one-shot has a round of its own: once.c. Loop thread
 * only.
 */
#include "peer/node/internal.h"

#include <math.h>

enum {
    PATIENCE_PERIODS = 3,
    PATIENCE_SHARE = 8, /* of the time since this peer began; all lasts twice as long at most */
    ROUNDS_MAX = 16,
    WALL_RISE = 4 /* at most: in one look, whatever held us up */
};
#define PATIENCE_MOST_NS (300 * NS_PER_S)
#define PAUSE_NS         (100 * NS_PER_MS) /* between two tries, and two looks */

struct others {
    uint32_t done, coming, training;
    uint32_t unmet; /* of all these: those we had no last round with */
};

/* ---- how far everybody is ---- */

void node_finish_met(struct node *node, struct peer_id peer)
{
    struct neighbour *other = node_neighbour(node, peer);

    if (other == NULL) return;
    other->has_met = true;
    if (!node->finish.is_last || other->has_met_last) return;
    other->has_met_last = true;
    node->finish.partners++;
}

void node_finish_stepped(struct node *node)
{
    struct node_finish *finish = &node->finish;
    uint64_t now_ns = node_now(node), steps = node->own_steps - finish->mark_steps;
    uint64_t each_ns;

    if (finish->mark_ns != 0 && now_ns < finish->mark_ns + NODE_PROGRESS_NS) return;
    if (finish->mark_ns != 0 && steps > 0) {
        each_ns = (now_ns - finish->mark_ns) / steps;
        if (finish->wall_ns == 0) finish->wall_ns = each_ns;
        if (each_ns > WALL_RISE * finish->wall_ns) each_ns = WALL_RISE * finish->wall_ns;
        finish->wall_ns = (3 * finish->wall_ns + each_ns) / 4;
    }
    finish->mark_ns = now_ns;
    finish->mark_steps = node->own_steps;
}

/* From one step to the next, with all that is waited for in between. */
static uint64_t wall_ns(const struct node *node)
{
    const struct node_finish *finish = &node->finish;

    return finish->wall_ns > 0 ? finish->wall_ns : node->step_ns;
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
    uint64_t period_ns = strategy->every_ns, most_ns, least_ns, ns;
    struct round_stats stats;

    round_stats(node->round, &stats);
    if (period_ns == 0) period_ns = strategy_every(strategy, node->step) * wall_ns(node);
    if (period_ns < stats.last_ns) period_ns = stats.last_ns;
    least_ns = PATIENCE_PERIODS * NODE_PROGRESS_NS; /* they are heard so often */
    most_ns = (node_now(node) - node->begun_ns) / PATIENCE_SHARE;
    if (most_ns < least_ns) most_ns = least_ns;
    if (most_ns > PATIENCE_MOST_NS) most_ns = PATIENCE_MOST_NS;
    ns = period_ns > PATIENCE_MOST_NS ? PATIENCE_MOST_NS : PATIENCE_PERIODS * period_ns + least_ns;
    return ns < most_ns ? ns : most_ns;
}

static bool is_mate(const struct node *node, const struct neighbour *other)
{
    return other->has_progress && other->progress.is_serving &&
           digest_is_equal(other->progress.lineage, node->lineage) &&
           trust_may_mix(node->trust, other->id, node_now(node));
}

/* Until it should be done by its first word, and something for what estimates are worth: later ones
 * do not put it off. */
static void hear_coming(struct node *node)
{
    const uint64_t until_ns = node->finish.until_ns;

    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        struct neighbour *other = &node->neighbours[i];
        uint64_t left_ns = other->progress.left_ms * NS_PER_MS;

        if (left_ns == 0 || other->coming_ns != 0 || other->progress_ns + left_ns > until_ns) {
            continue;
        }
        other->coming_ns = other->progress_ns + left_ns + left_ns / 4 + 2 * NODE_PROGRESS_NS;
    }
}

static bool is_coming(const struct node *node, const struct neighbour *other)
{
    const uint64_t until_ns = node->finish.until_ns, now_ns = node_now(node);
    uint64_t left_ns = other->progress.left_ms * NS_PER_MS;

    return left_ns > 0 && other->progress_ns + left_ns <= until_ns && now_ns < until_ns &&
           now_ns < other->coming_ns;
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

        if (!is_mate(node, other)) continue;
        if (other->progress.is_done) {
            others.done++;
        } else if (!other->has_met && stats.mixed > 0) {
            continue;
        } else if (is_coming(node, other)) {
            others.coming++;
        } else {
            others.training++;
        }
        others.unmet += !other->has_met_last;
    }
    return others;
}

/* ---- the rounds ---- */

/* Rounds applied, but for those that left us with values of our own; for methods that push, shares
 * that came in. */
static uint64_t rounds_so_far(const struct node *node, const struct round_stats *stats)
{
    if (node->options.strategy->rule->is_push) return stats->counts.received;
    return stats->mixed - stats->unagreed;
}

static uint32_t rounds_wanted(const struct node *node, const struct round_stats *stats)
{
    double part = stats->last_members > 2 ? stats->last_members : 2;
    double rounds = ceil(log(node->finish.most_done) / log(part) - 1e-9);

    return rounds < 1 ? 1 : rounds > ROUNDS_MAX ? ROUNDS_MAX : (uint32_t)rounds;
}

static bool meets_pairs(const struct node *node)
{
    const struct strategy *strategy = node->options.strategy;

    return !strategy->exchange->is_group && !strategy->exchange->is_graph &&
           !strategy->rule->is_push;
}

/* Nothing is missing. The same partner once more would bring pairs little. */
static bool is_made(const struct node *node, const struct others *others,
                    const struct round_stats *stats)
{
    if (others->coming > 0) return false;
    /* The others had enough with the round that was none of the last here, and have left. */
    if (node->finish.served > 0 && others->done == 0) return true;
    if (node->finish.made >= rounds_wanted(node, stats)) return true;
    return meets_pairs(node) && node->finish.made > 0 && others->unmet == 0;
}

/* For whoever is there, when nobody is waited for any more. */
static uint64_t alone_until_ns(const struct node *node)
{
    return node->finish.until_ns + node->finish.patience_ns / 2;
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
    finish->served++;
    if (finish->is_last) {
        finish->made += (uint32_t)(rounds - finish->rounds);
        if (meets_pairs(node)) finish->made = finish->partners;
        finish->owed_round = stats->counts.next_round;
    }
    finish->rounds = rounds;
    finish->again_ns = 0;
    finish->made_ns = node_now(node);
    node_send_progress(node, NULL);
}

/* Somebody may still want a part of the result from us. Who else was in the round is not known
 * here, so who was not, or says what is not true, counts as well, for as long as such a part can be
 * on its way. */
static bool is_owed(const struct node *node, const struct round_stats *stats)
{
    if (node->options.strategy->rule->is_push) return stats->counts.custody > 0;
    if (!node->options.strategy->exchange->is_group) return false; /* both ends have all */
    if (node_now(node) >= node->finish.made_ns + 2 * (stats->last_ns + NODE_PROGRESS_NS)) {
        return false;
    }
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
    finish->begun_ns = node_now(node);
    finish->until_ns = finish->begun_ns + finish->patience_ns;
    /* Nothing was added to what the last round left. */
    finish->is_over = node->samples_since_round == 0 && !round_is_active(node->round);
    if (!finish->is_over) node_send_progress(node, NULL);
}

/* Nobody is waited for any more. Is there nobody to have a round with? Groups that train on were to
 * be joined before. */
static bool is_vain(const struct node *node, const struct others *others)
{
    bool joins = !meets_pairs(node) && !node->options.strategy->rule->is_push;

    if (node_now(node) < node->finish.until_ns) return false;
    return (joins && others->done == 0) || node_now(node) >= alone_until_ns(node);
}

static bool is_over(struct node *node, const struct round_stats *stats)
{
    struct node_finish *finish = &node->finish;
    struct others others = count_others(node);
    uint32_t count = others.done + others.coming + others.training;
    uint64_t now_ns = node_now(node), end_ns = finish->until_ns + finish->patience_ns;

    if (count == 0) return true;
    if (others.done + 1 > finish->most_done) finish->most_done = others.done + 1;
    if (round_is_active(node->round)) {
        if (round_has_started(node->round) || round_has_snapshot(node->round)) {
            return now_ns >= end_ns;
        }
        return is_vain(node, &others);
    }
    if (now_ns >= end_ns) return true;
    if (is_made(node, &others, stats)) {
        /* Nobody is to wait for us any more, but who is done and has missed the round. */
        if (others.done == 0) round_set_busy(node->round, true);
        return !is_owed(node, stats) || now_ns >= finish->made_ns + finish->patience_ns;
    }
    if (is_vain(node, &others)) return true;
    if (!finish->is_told) {
        finish->is_told = true;
        log_info(node->options.log, "goal reached: waiting for one last round with %u %s", count,
                 count == 1 ? "neighbour" : "neighbours");
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
    hear_coming(node);
    look(node, &stats);
    if (!finish->is_over) finish->is_over = is_over(node, &stats);
    return !finish->is_over;
}

static bool is_invited_by_done(const struct node *node)
{
    struct peer_id from;

    if (!round_is_invited(node->round)) return false;
    from = round_inviter(node->round);
    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        const struct neighbour *other = &node->neighbours[i];

        if (peer_id_is_equal(other->id, from)) return other->progress.is_done;
    }
    return false;
}

bool node_finish_is_due(const struct node *node)
{
    const struct node_finish *finish = &node->finish;
    const struct exchange_ops *exchange = node->options.strategy->exchange;
    struct others others = count_others(node);
    uint64_t now_ns = node_now(node);
    struct round_stats stats;

    if (finish->is_over || now_ns >= alone_until_ns(node)) return false;
    round_stats(node->round, &stats);
    if (is_made(node, &others, &stats)) return exchange->is_group && is_invited_by_done(node);
    if (exchange->is_group && round_is_invited(node->round)) return true;
    /* Pairs pause as whoever refused them asked for: partners.h. */
    if (now_ns < finish->again_ns && !meets_pairs(node)) return false;
    if (node_push_is_owed(node) && now_ns < node->push.again_ns) return false;
    if (exchange->is_graph) return true; /* it runs when the others have come to it */
    if (others.coming > 0) return false;
    if (!exchange->is_group || others.training == 0) return true;
    return others.done > 0 && now_ns >= finish->begun_ns + finish->patience_ns / PATIENCE_PERIODS;
}

size_t node_finish_filter(struct node *node, struct peer_id *ids, size_t count)
{
    bool is_group = node->options.strategy->exchange->is_group, is_pair = meets_pairs(node);
    size_t kept = 0;

    if (node->options.strategy->exchange->is_graph) return count;
    if (is_group && round_is_invited(node->round)) return count;
    if (!is_pair && count_others(node).done == 0) return count;
    for (size_t i = 0; i < count; i++) {
        const struct neighbour *other = node_neighbour(node, ids[i]);

        /* NULL: this peer */
        if (other != NULL && (is_pair ? other->has_met_last : !other->progress.is_done)) continue;
        ids[kept++] = ids[i];
    }
    return kept;
}

void node_finish_begins(struct node *node)
{
    node->finish.again_ns = node_now(node) + PAUSE_NS;
}

uint64_t node_finish_next_ns(const struct node *node)
{
    uint64_t next_ns = node_now(node) + PAUSE_NS, wait_ns = node->pairs.partners.wait_ns;

    if (!node->finish.is_begun) return UINT64_MAX;
    return wait_ns > node_now(node) && wait_ns < next_ns ? wait_ns : next_ns;
}
