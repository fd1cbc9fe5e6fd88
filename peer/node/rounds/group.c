/*
 * group: once a period a round of all who are linked, of a group that is drawn among them, or of a
 * line of a grid.
 *
 * Where training goes on beside it (local-sgd, moshpit), the question is which border it belongs
 * to. Nobody stands still there, so peers drift: each comes to its border when its own steps are
 * done, and one that has just evaluated comes later by that. Three rules keep them in step:
 *
 * - A period counts from the step at which START came, the same moment for all members: who was
 *   early is due again no sooner than who was late. Not from the snapshot, which waits for the end
 *   of a step: that step would be added to every period.
 * - A round that is due stays due while nobody is there only because the others do something long,
 *   and also if it was skipped beside such a job; that one is begun again after a pause, or who
 *   says all the time that it is busy would have us propose at each step.
 * - In a period with a job of its own that took longer than a step, a peer that has done half of
 *   its steps joins what another proposes: the other has done its steps, and would wait.
 *
 * Where H is of whoever is first (strategy.joins_others) nobody's own period is waited for: a
 * proposal is joined at the next border, so slower members take fewer steps in one and the same
 * time, and count by their samples.
 *
 * With sites most rounds are among those of one site (sites.c). Who is alone at its site goes on to
 * the next number, as who is alone in a line of a grid.
 *
 * A slower peer is waited for by proposals that stay open (averaging/group/form_wait.c). Loop
 * thread only.
 */
#include "peer/node/rounds/internal.h"

enum {
    OWED_SHARE = 16, /* of a period is the pause */
    JOIN_SHARE = 8   /* of its steps are enough to join another's round, where H is the first's */
};

struct group_state {
    struct draws draws;
    bool is_owed;       /* one was due and could not be begun, or was skipped, beside a long job */
    uint64_t again_ns;  /* when it is begun again */
    uint64_t seen_long; /* busy.long_jobs as of the last round: a longer one has put this period
                           out of step with those of others */
    uint64_t seen_skipped; /* rounds, as of the last look */
};

static bool is_patient(const struct node *node)
{
    return strategy_is_patient(node->options.strategy);
}

static bool had_long_job(const struct node *node)
{
    const struct group_state *group = node->rounds->inner_state;

    return node->rounds->busy.long_jobs != group->seen_long;
}

/* ---- when ---- */

static bool is_somebody_away(const struct node *node)
{
    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        const struct neighbour *other = &node->neighbours[i];

        if (other->has_progress && rounds_busy_leaves(node, other)) return true;
    }
    return false;
}

static void heard(struct node *node)
{
    struct group_state *group = node->rounds->inner_state;
    const struct round_stats stats = rounds_stats(node);

    if (!is_patient(node) || round_is_active(node->round)) return;
    if (stats.counts.rounds_skipped == group->seen_skipped) return;
    group->seen_skipped = stats.counts.rounds_skipped;
    if (!had_long_job(node) && !is_somebody_away(node)) return;
    group->is_owed = true;
    group->again_ns = node_now(node) + pace_period_ns(node) / OWED_SHARE;
}

/* Whoever is first proposes, and all others join with what they have. Not with less than this, or
 * one that proposes all the time would have all others average as often. */
static bool joins_others(const struct node *node)
{
    const struct strategy *strategy = node->options.strategy;
    uint64_t since = node->step - node->rounds->mixed_step;

    return strategy->joins_others && since > 0 && JOIN_SHARE * since >= rounds_every(node) &&
           round_is_invited(node->round);
}

/* Nothing is due yet, but what another proposes may be joined already. */
static bool is_early(const struct node *node)
{
    uint64_t every = rounds_every(node);

    if (joins_others(node)) return true;
    return is_patient(node) && had_long_job(node) && node->options.strategy->every_ns == 0 &&
           2 * (node->step - node->rounds->mixed_step) >= every && round_is_invited(node->round);
}

static bool due(const struct node *node)
{
    const struct group_state *group = node->rounds->inner_state;
    bool is_owed = group->is_owed && node_now(node) >= group->again_ns;

    return is_owed || pace_is_over(node) || is_early(node);
}

static void snapshot(struct node *node)
{
    bool is_noted = node->rounds->has_round_started && node->rounds->start_step <= node->step;

    pace_begin_period(node);
    if (is_patient(node) && is_noted) node->rounds->mixed_step = node->rounds->start_step;
}

/* ---- with whom ---- */

/* Nobody is there to begin with: only because the others do something long? */
static bool is_put_off(struct node *node)
{
    struct group_state *group = node->rounds->inner_state;

    if (!is_patient(node) || !is_somebody_away(node)) return false;
    group->is_owed = true;
    return true;
}

/* Lines are made of those who are there, so the mate of ours may be away; or who says so all the
 * time may not be our mate at all. */
static bool is_put_off_in_line(struct node *node)
{
    return node_now(node) < node->rounds->mixed_ns + 2 * pace_period_ns(node) && is_put_off(node);
}

static void begin(struct node *node, struct peer_id *ids, size_t count)
{
    struct group_state *group = node->rounds->inner_state;
    struct peer_id chosen[GROUP_MEMBERS_MAX];
    const struct round_stats stats = rounds_stats(node);
    const struct topology_level level = rounds_level(node, stats.counts.next_round);
    bool is_drawn = draws_are_needed(node), is_alone, is_alone_in_line;
    size_t found = 0;

    if (count < 2 && is_put_off(node)) return; /* as soon as one of them is back */
    is_alone = count < 2;
    if (level.is_near) count = rounds_keep_near(node, ids, count);
    if (is_drawn && count > 1) {
        size_t drawn = draws_find(&group->draws, node, stats.counts.next_round, chosen);
        for (size_t i = 0; i < drawn; i++) { /* those who may mix */
            if (rounds_has_id(ids, count, chosen[i])) chosen[found++] = chosen[i];
        }
    } else if (count > 1) {
        const struct topology topology = strategy_topology(node->options.strategy, count);

        found = topology_group(&topology, node->options.swarm->run_id, level.number, node->self,
                               ids, count, chosen, GROUP_MEMBERS_MAX);
    }
    is_alone_in_line = (!is_drawn || level.is_near) && !is_alone && found < 2;
    if (is_alone_in_line && is_put_off_in_line(node)) return;
    if (!group->is_owed) pace_measure(node);
    group->is_owed = false;
    group->seen_long = node->rounds->busy.long_jobs;
    pace_begin_period(node);
    /* Alone in this line of a grid, or at this site: the round is over. Or those it is the turn of
     * wait for others, who have gone on and are alone in theirs. With nobody at all: train on. */
    if (is_alone_in_line) round_set_number(node->round, stats.counts.next_round + 1);
    if (found < 2) return;
    (void)pace_begin_with(node, (struct round_members){.ids = chosen, .count = (uint32_t)found});
}

static bool meets_all(const struct node *node, uint32_t members)
{
    struct topology topology = strategy_topology(node->options.strategy, members);

    return topology.kind != TOPOLOGY_GRID && !draws_are_needed(node) &&
           topology_groups(&topology, members) == 1;
}

const struct pace_ops pace_group = {
    .bytes = sizeof(struct group_state),
    .is_common = true,
    .heard = heard,
    .due = due,
    .begin = begin,
    .snapshot = snapshot,
    .waits = pace_waits,
    .steps_until = pace_steps_left,
    .meets_all = meets_all,
};
