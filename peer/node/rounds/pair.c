/*
 * pair: once a period a round with one partner. One after the other is asked, until one of them
 * takes part (peer/node/partners.h); where the topology is a graph that leads both ways, only
 * neighbours in it are. With sites, most periods are of partners at this one (sites.c), where there
 * are any. Loop thread.
 */
#include "peer/node/rounds/internal.h"
#include "peer/node/partners.h"

struct pair_state {
    struct partners partners;
    struct exchange_counts seen; /* as of the last look */
    bool is_owed;       /* one was given up half way, or chance has said so, and none has succeeded
                           since */
    struct own_row row; /* where the topology is a graph */
};

/* A round that was given up half way is owed: the next begins at once. */
static void heard(struct node *node)
{
    struct pair_state *pair = node->rounds->inner_state;
    uint64_t now_ns = node_now(node);
    const struct round_stats stats = rounds_stats(node);
    const struct exchange_counts *counts = &stats.counts;

    if (counts->rounds_ok != pair->seen.rounds_ok) {
        partners_met(&pair->partners);
        pair->is_owed = false;
    } else if (counts->rounds_aborted != pair->seen.rounds_aborted) {
        partners_failed(&pair->partners, 0, now_ns);
        pair->is_owed = true;
    } else if (counts->rounds_skipped != pair->seen.rounds_skipped) {
        partners_failed(&pair->partners, counts->retry_ns, now_ns);
    }
    pair->seen = *counts;
}

static bool due(const struct node *node)
{
    const struct pair_state *pair = node->rounds->inner_state;

    return pair->is_owed || pace_is_over(node);
}

/* The next partner, if the last one would not. */
static bool again(struct node *node)
{
    (void)node;
    return true;
}

/* At the goal, finish says whether it is due. */
static uint64_t next_ns(const struct node *node)
{
    const struct pair_state *pair = node->rounds->inner_state;
    uint64_t wait_ns = pair->partners.wait_ns;

    if (wait_ns <= node_now(node)) return UINT64_MAX;
    return node->rounds->is_done || (round_may_begin(node->round) && due(node)) ? wait_ns
                                                                                : UINT64_MAX;
}

static size_t choose(struct node *node, struct peer_id *ids, size_t count)
{
    const struct topology *topology = &node->options.strategy->topology;
    struct pair_state *pair = node->rounds->inner_state;
    size_t kept = 0;

    if (!topology_is_graph(topology) || topology_is_directed(topology)) return count;
    own_row_refresh(&pair->row, node);
    for (size_t i = 0; i < count; i++) {
        if (peer_id_is_equal(ids[i], node->self) ||
            rounds_has_id(pair->row.ids, pair->row.count, ids[i])) {
            ids[kept++] = ids[i];
        }
    }
    return kept;
}

/* Those of the level of this period, in `ids`; the count. */
static size_t keep_level(const struct node *node, struct peer_id *ids, size_t count)
{
    struct peer_id near[LINKS_MAX + 1];
    size_t kept;

    if (!rounds_level(node, pace_count(node)).is_near) return count;
    memcpy(near, ids, count * sizeof *near);
    kept = rounds_keep_near(node, near, count);
    if (kept < 2) return count; /* nobody else is at this site */
    memcpy(ids, near, kept * sizeof *near);
    return kept;
}

/* Chance says of each period whether it ends in a round. */
static bool is_spared(struct node *node)
{
    struct pair_state *pair = node->rounds->inner_state;
    const double chance = node->options.strategy->chance;

    if (chance == 0 || pair->is_owed || node->rounds->is_done) return false;
    pair->is_owed = rng_unit(&node->rng) < chance;
    if (!pair->is_owed) pace_begin_period(node);
    return !pair->is_owed;
}

static void begin(struct node *node, struct peer_id *ids, size_t count)
{
    struct pair_state *pair = node->rounds->inner_state;
    uint8_t rarity[LINKS_MAX + 1];
    struct partner_list list = {.run_id = node->options.swarm->run_id, .self = node->self};
    struct peer_id partner;
    struct round_members members = {.ids = &partner, .count = 1};

    list.ids = ids;
    list.count = count = keep_level(node, ids, count);
    list.rarity = rounds_preference(node, ids, count, rarity);
    if (!pair->is_owed) pace_measure(node);
    if (is_spared(node)) return;
    for (size_t i = 0; i < count; i++) { /* at most once each */
        if (!partners_draw(&pair->partners, &list, pace_count(node), node_now(node), &partner)) {
            return;
        }
        if (pace_begin_with(node, members) == RC_OK) return;
    }
}

const struct pace_ops pace_pair = {
    .bytes = sizeof(struct pair_state),
    .meets_one = true,
    .heard = heard,
    .due = due,
    .begin = begin,
    .again = again,
    .next_ns = next_ns,
    .choose = choose,
    .snapshot = pace_begin_period,
    .waits = pace_waits,
    .steps_until = pace_steps_left,
};
