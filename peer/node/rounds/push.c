/*
 * push: once a period a share of the model is offered to one receiver, who need not answer it with
 * anything: whom it is for, and how long training may go on beside it. Loop thread only.
 */
#include "peer/node/rounds/internal.h"

#include "gossip/overlay/graph.h"
#include "peer/node/preference.h"

struct push_state {
    uint64_t seen_refused; /* in all, as of the last look */
    /* Of this period: */
    uint64_t period;               /* the number that says whose turn it is */
    uint64_t length_ns;            /* of the last one; 0: not known */
    uint32_t passed;               /* receivers that will not take the share */
    uint32_t receivers;            /* there were, at the last try */
    bool is_owed;                  /* it was refused, and not offered again since */
    uint64_t offered_ns, again_ns; /* the last try; not before: the next */
};

/* ---- when ---- */

static void heard(struct node *node)
{
    struct push_state *push = node->rounds->inner_state;
    uint64_t now_ns = node_now(node), within_ns = 2 * (now_ns - push->offered_ns);
    const struct round_stats stats = rounds_stats(node);

    if (stats.counts.rounds_skipped == push->seen_refused) return;
    push->seen_refused = stats.counts.rounds_skipped;
    push->is_owed = true;
    push->again_ns = now_ns;
    if (stats.counts.retry_ns == 0 && ++push->passed < push->receivers) return;
    if (within_ns < push->length_ns / 2) within_ns = push->length_ns / 2;
    if (within_ns > 0) push->again_ns += rng_below(&node->rng, within_ns);
}

static bool due(const struct node *node)
{
    const struct push_state *push = node->rounds->inner_state;

    return push->is_owed ? node_now(node) >= push->again_ns : pace_is_over(node);
}

/* A share that was refused does not wait for a border. */
static bool again(struct node *node)
{
    const struct push_state *push = node->rounds->inner_state;

    heard(node);
    return push->is_owed;
}

/* At the goal, finish looks often enough. */
static uint64_t next_ns(const struct node *node)
{
    const struct push_state *push = node->rounds->inner_state;

    if (node->rounds->is_done || !push->is_owed || !round_may_begin(node->round)) return UINT64_MAX;
    return push->again_ns;
}

/* ---- with whom ---- */

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
        rounds_preference(node, members->ids, members->count, rarity) == NULL) {
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
static void begin(struct node *node, struct peer_id *ids, size_t count)
{
    const struct strategy *strategy = node->options.strategy;
    struct push_state *push = node->rounds->inner_state;
    struct graph_members members = {
        .ids = ids, .count = (uint32_t)count, .run_id = node->options.swarm->run_id};
    bool is_new = node->rounds->is_done ? !push->is_owed : pace_is_over(node);
    struct graph_row row;
    struct peer_id *receiver;

    push->is_owed = false;
    if (is_new) {
        push->period = pace_count(node);
        push->passed = 0;
        if (node->rounds->mixed_ns != 0) push->length_ns = node_now(node) - node->rounds->mixed_ns;
        pace_begin_period(node);
    }
    if (count < 2) return; /* alone: train on */
    if (is_new && strategy->chance > 0 && !node->rounds->is_done &&
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
    receiver = &ids[row.edges[(push->period + push->passed) % row.count].member];
    (void)pace_begin_with(node, (struct round_members){.ids = receiver, .count = 1});
}

/* ---- the steps beside it ---- */

/* The snapshot of the running round is as old as the method bears. */
static bool waits(const struct node *node)
{
    return round_has_snapshot(node->round) && pace_waits(node);
}

/* Whatever comes in, its periods are its own: snapshots do not begin them. */
const struct pace_ops pace_push = {
    .bytes = sizeof(struct push_state),
    .is_one_way = true,
    .heard = heard,
    .due = due,
    .begin = begin,
    .again = again,
    .next_ns = next_ns,
    .waits = waits,
    .steps_until = pace_steps_left,
};
