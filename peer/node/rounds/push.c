/*
 * Methods that push: whom a share is for, how long training may go on beside one, and the learning
 * rate that goes with a peer's weight; also what rounds leave in a checkpoint. Loop thread only.
 */
#include "peer/node/internal.h"

#include "averaging/strategy/strategy.h"
#include "gossip/overlay/graph.h"
#include "peer/node/preference.h"

#include <math.h>

/* SGP takes x <- x - rate g(z) with z = x / weight, so z, which is what we hold, moves by
 * rate / weight. Weights sum to the number of peers and are near 1; far from it the rate must not
 * follow, lest a peer that has given most away takes steps that none survives. */
static const double factor_least = 0.25, factor_most = 2;

void node_push_hear(struct node *node)
{
    struct node_push *push = &node->push;
    uint64_t now_ns = node_now(node), within_ns = 2 * (now_ns - push->offered_ns);
    struct round_stats stats;

    round_stats(node->round, &stats);
    if (stats.counts.rounds_skipped == push->seen_refused) return;
    push->seen_refused = stats.counts.rounds_skipped;
    push->is_owed = true;
    push->again_ns = now_ns;
    if (stats.counts.retry_ns == 0 && ++push->passed < push->receivers) return;
    if (within_ns < push->length_ns / 2) within_ns = push->length_ns / 2;
    if (within_ns > 0) push->again_ns += rng_below(&node->rng, within_ns);
}

bool node_push_is_owed(const struct node *node)
{
    return node->push.is_owed;
}

static bool is_new_period(const struct node *node)
{
    const struct strategy *strategy = node->options.strategy;

    if (node->finish.is_begun) return !node->push.is_owed;
    if (strategy->every_ns > 0) return node_now(node) >= node->mixed_ns + strategy->every_ns;
    return node->step >= node->mixed_step + strategy_every(strategy, node->step);
}

/* Anybody, by what the lines carry: the sender alone chooses, and whatever the odds, weights of the
 * push-sum make up for them. */
static void prefer(struct node *node, const struct graph_members *members, struct graph_row *row)
{
    uint64_t draw = rng_mix(load_le64(members->run_id.bytes), members->round);
    uint8_t rarity[LINKS_MAX + 1];
    struct rng rng;
    size_t others = 0, pick;

    if (node->options.strategy->topology.kind != TOPOLOGY_PAIRS) return;
    if (preference_is_off(members->run_id, members->round, PREFERENCE_PUSH) ||
        node_preference(node, members->ids, members->count, rarity) == NULL) {
        return;
    }
    for (uint32_t i = 0; i < members->count; i++) {
        if (i != members->self) rarity[others++] = rarity[i];
    }
    rng_init(&rng, draw, load_le64(node->self.bytes));
    pick = preference_pick(rarity, others, &rng);
    row->edges[0].member = (uint32_t)pick + (pick >= members->self);
}

/* Of several neighbours each gets a share in turn; who will not take it now is passed over. One
 * that is busy is asked again at a moment drawn by chance: peers with equal periods would otherwise
 * find the same receiver busy each time, and who is always late would gather all the weight. */
void node_push_begin(struct node *node, const struct peer_id *ids, size_t count)
{
    const struct strategy *strategy = node->options.strategy;
    struct node_push *push = &node->push;
    struct graph_members members = {
        .ids = ids, .count = (uint32_t)count, .run_id = node->options.swarm->run_id};
    bool is_new = is_new_period(node);
    struct graph_row row;

    push->is_owed = false;
    if (is_new) {
        push->period = node_pace_count(node);
        push->passed = 0;
        if (node->mixed_ns != 0) push->length_ns = node_now(node) - node->mixed_ns;
        node->mixed_step = node->step;
        node->mixed_ns = node_now(node);
    }
    if (count < 2) return; /* alone: train on */
    if (is_new && strategy->chance > 0 && !node->finish.is_begun &&
        rng_unit(&node->rng) >= strategy->chance) {
        return;
    }
    while (!peer_id_is_equal(ids[members.self], node->self)) {
        members.self++;
    }
    members.round = push->period;
    if (graph_out(&strategy->topology, &members, &row) != RC_OK || row.count == 0) return;
    prefer(node, &members, &row);
    push->receivers = row.count;
    push->offered_ns = node_now(node);
    (void)node_begin_with(node, &ids[row.edges[(push->period + push->passed) % row.count].member],
                          NULL, 1);
}

bool node_push_waits(const struct node *node)
{
    const struct strategy *strategy = node->options.strategy;

    if (!round_has_snapshot(node->round)) return false;
    if (strategy->waits) return true;
    return strategy->stale_steps > 0 && node->step >= node->snapshot_step + strategy->stale_steps;
}

uint64_t node_push_steps(const struct node *node)
{
    const uint64_t most = node->snapshot_step + node->options.strategy->stale_steps;

    if (node->options.strategy->stale_steps == 0 || node->round == NULL) return UINT64_MAX;
    if (!round_has_snapshot(node->round) || node->step >= most) return UINT64_MAX;
    return most - node->step;
}

double node_push_factor(const struct node *node)
{
    return node->push_factor > 0 ? node->push_factor : 1;
}

void node_push_scale(struct node *node)
{
    struct round_stats stats;
    double factor, before = node_push_factor(node);

    round_stats(node->round, &stats);
    if (!stats.counts.has_weight) return;
    factor = fmin(fmax(1 / stats.counts.weight, factor_least), factor_most);
    if (factor == before) return;
    node->push_factor = factor;
    node->learner->ops->set_rate_factor(node->learner,
                                        factor * (node->rate_factor > 0 ? node->rate_factor : 1));
}

void node_round_snapshot(struct node *node)
{
    node_finish_snapshot(node);
    node->snapshot_step = node->step;
    if (node->samples_since_round > 0) node->samples_of_round = node->samples_since_round;
    node->samples_since_round = 0;
    node->wants_keep = true;
    if (node->options.strategy->rule->is_push) return;
    node->mixed_step = node_due_counted_from(node);
    node->mixed_ns = node_now(node);
}

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
