/*
 * lead: how far this peer may run ahead of the others. Stale synchronous parallel (Ho, Cipar, Cui
 * et al. 2013, NIPS) without a server: a step is begun only if that is not more than s steps after
 * the last that the slowest neighbour has finished,
 *
 *   step_i - min_j step_j <= s,
 *
 * so with s = 0 nobody begins a step before all have finished theirs, and finished steps are never
 * more than s + 1 apart. What others have finished they say in PROGRESS: after each half of s
 * steps, at once where a neighbour has come so far that it must be waiting for it, and when they
 * begin to wait themselves. Old news holds a peer back for longer, and never less.
 *
 * Neighbours are all who are linked and train the same model. Not those who keep it and take no
 * steps, nor those at their goals, and not those who have had us wait too long. One that takes up
 * to twice SLOWER_MOST times as long as this peer for a step (beside what news takes to travel) is
 * waited for without end: to go at the pace of the slowest is what the method is for. What is
 * beyond that is paid with credit (averaging/core/patience.h). Who has none left, or rests, is left
 * out until it moves again. So a member that has stopped costs the others its credit once, and one
 * that says of itself what it likes slows them down by that factor at most.
 *
 * Who is counted anew (linked, moving again, after a rest) and is so far behind that it could not
 * come within its credit is taken to be where this peer is: what it missed is credited to it, until
 * it has made up for that, or could within its credit. Loop thread only.
 */
#include "peer/node/rounds/internal.h"

#include "averaging/core/deadline.h"
#include "peer/times.h"

enum { SLOWER_MOST = 4, TRIPS = 2 };

static bool is_bounded(const struct node *node)
{
    return node->round != NULL && node->options.strategy->is_bounded;
}

static uint64_t sum(uint64_t a, uint64_t b)
{
    return a < UINT64_MAX - b ? a + b : UINT64_MAX;
}

static bool is_new(const struct node *node, const struct neighbour *other)
{
    return !trust_is_proven(node->trust, other->id);
}

static uint64_t credit_left_ns(const struct node *node, const struct neighbour *other)
{
    return patience_left_ns(&node->rounds->lead.patience, other->id, is_new(node, other),
                            node_now(node));
}

/* ---- who is how far ---- */

static uint64_t clock_of(const struct neighbour *other)
{
    return sum(other->lead.step, other->lead.missed);
}

static bool is_behind(const struct node *node, const struct neighbour *other)
{
    return other->lead.counts &&
           sum(clock_of(other), node->options.strategy->lead_steps) < node->step;
}

static bool is_held(const struct node *node)
{
    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        if (is_behind(node, &node->neighbours[i])) return true;
    }
    return false;
}

/* Could it not come near us within its credit, at our pace? */
static bool is_out_of_reach(const struct node *node, const struct neighbour *other)
{
    const uint64_t near = sum(other->lead.step, node->options.strategy->lead_steps);
    uint64_t needs_ns;

    if (near >= node->step) return false;
    if (__builtin_mul_overflow(node->step - near, node->step_ns, &needs_ns)) return true;
    return needs_ns > credit_left_ns(node, other);
}

/* Nobody gets behind by what it says, who has taken another model, too; and what one has made up
 * for is no longer credited to it. */
static void follow(struct node *node, struct neighbour *other)
{
    const struct message_progress *progress = &other->progress;
    struct lead_of *lead = &other->lead;
    bool counts;

    if (progress->step != lead->step) lead->is_out = false;
    if (progress->step < lead->step) lead->missed = sum(lead->missed, lead->step - progress->step);
    lead->step = progress->step;
    counts = !other->is_keeper && models_holds(other, node->lineage) && !progress->is_done &&
             !lead->is_out &&
             !patience_rests(&node->rounds->lead.patience, other->id, node_now(node));
    if (counts && !lead->counts) lead->missed = UINT64_MAX;
    if (!is_out_of_reach(node, other)) lead->missed = 0;
    if (clock_of(other) > node->step) {
        lead->missed = node->step > lead->step ? node->step - lead->step : 0;
    }
    lead->counts = counts;
}

/* ---- how long it is waited for ---- */

/* That of half of the neighbours: how soon one answers is up to it. */
static uint64_t answer_ns(const struct node *node)
{
    uint64_t answers[LINKS_MAX];
    uint32_t known = 0;

    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        answers[known] = membership_answer_ns(node->membership, node->neighbours[i].id);
        known += answers[known] != 0;
    }
    deadline_sort(answers, known);
    return known == 0 ? LEAD_ANSWER_NS : answers[(known - 1) / 2];
}

static uint64_t free_ns(const struct node *node, const struct neighbour *other)
{
    const struct rounds_lead *lead = &node->rounds->lead;

    return patience_free_ns(&lead->patience, other->lead.since_ns, 0, lead->usual_ns);
}

static void begin_waiting(struct node *node, struct neighbour *other)
{
    other->lead.since_ns = node_now(node);
    other->lead.until_ns = sum(free_ns(node, other), credit_left_ns(node, other));
}

static void end_waiting(struct node *node, struct neighbour *other)
{
    const struct patience_wait wait = {
        .peer = other->id, .is_new = is_new(node, other), .free_ns = free_ns(node, other)};

    patience_charge(&node->rounds->lead.patience, &wait, node_now(node));
    other->lead.since_ns = 0;
}

/* It has come, or is left out from here on. */
static void wait_for(struct node *node, struct neighbour *other)
{
    struct lead_of *lead = &other->lead;
    const bool behind = is_behind(node, other);

    if (behind && lead->since_ns == 0) begin_waiting(node, other);
    if (lead->since_ns == 0) return;
    if (behind && node_now(node) < lead->until_ns) return;
    end_waiting(node, other);
    if (!behind) return;
    lead->is_out = true;
    lead->counts = false;
}

/* ---- what others hear ---- */

static bool is_waited_for(const struct node *node)
{
    const struct rounds_lead *lead = &node->rounds->lead;

    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        const struct neighbour *other = &node->neighbours[i];

        if (other->lead.counts &&
            sum(lead->told, node->options.strategy->lead_steps) < other->lead.step)
            return true;
    }
    return false;
}

static void tell(struct node *node, bool is_new_wait)
{
    struct rounds_lead *lead = &node->rounds->lead;
    const uint64_t often = node->options.strategy->lead_steps / 2;

    if (node->step == lead->told) return;
    if (node->step < sum(lead->told, often > 0 ? often : 1) && !is_new_wait && !is_waited_for(node))
        return;
    lead->told = node->step;
    models_tell(node, NULL);
}

/* ---- for the node ---- */

void lead_tick(struct node *node)
{
    struct rounds_lead *lead = &node->rounds->lead;
    bool was_held = lead->is_held;

    if (!is_bounded(node) || node->state != NODE_TRAINING) return;
    if (!was_held) patience_begin(&lead->patience, node->step_ns);
    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        follow(node, &node->neighbours[i]);
    }
    if (!was_held && is_held(node)) {
        lead->usual_ns = SLOWER_MOST * node->step_ns + TRIPS * answer_ns(node);
    }
    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        wait_for(node, &node->neighbours[i]);
    }
    lead->is_held = is_held(node);
    tell(node, lead->is_held && !was_held);
}

uint64_t lead_steps_left(const struct node *node)
{
    uint64_t least = UINT64_MAX;

    if (!is_bounded(node)) return UINT64_MAX;
    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        const struct neighbour *other = &node->neighbours[i];
        uint64_t until = sum(sum(clock_of(other), node->options.strategy->lead_steps), 1);

        if (other->lead.counts && until < least) least = until;
    }
    if (least == UINT64_MAX) return UINT64_MAX;
    return least > node->step ? least - node->step : 0;
}

uint64_t lead_next_ns(const struct node *node)
{
    uint64_t next = UINT64_MAX;

    if (!is_bounded(node)) return UINT64_MAX;
    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        const struct lead_of *lead = &node->neighbours[i].lead;

        if (lead->since_ns != 0) next = node_earlier(next, lead->until_ns);
    }
    return next;
}
