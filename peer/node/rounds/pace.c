/* What paces have in common: which one a node has, its periods, and how a round is begun. */
#include "peer/node/rounds/internal.h"

/* ---- life ---- */

static const struct pace_ops *inner_of(const struct strategy *strategy)
{
    if (strategy->rule->is_push) return &pace_push;
    if (strategy->exchange->is_graph) return &pace_graph;
    return strategy->exchange->is_group ? &pace_group : &pace_pair;
}

enum rc pace_create(struct rounds *rounds, const struct strategy *strategy)
{
    adapt_create(rounds, strategy);
    rounds->inner = inner_of(strategy);
    rounds->outer = strategy->at_end ? &pace_once : &pace_finish;
    rounds->inner_state = mem_alloc(rounds->inner->bytes);
    rounds->outer_state = mem_alloc(rounds->outer->bytes);
    return rounds->inner_state == NULL || rounds->outer_state == NULL ? RC_NOMEM : RC_OK;
}

void pace_destroy(struct rounds *rounds)
{
    mem_free(rounds->inner_state);
    mem_free(rounds->outer_state);
}

/* ---- periods ---- */

bool pace_has_periods(const struct node *node)
{
    const struct strategy *strategy = node->options.strategy;

    return strategy->every_ns > 0 || rounds_every(node) > 0;
}

bool pace_is_over(const struct node *node)
{
    const struct strategy *strategy = node->options.strategy;

    if (node->rounds->is_done) return true;
    if (strategy->every_ns > 0)
        return node_now(node) >= node->rounds->mixed_ns + strategy->every_ns;
    return node->step >= node->rounds->mixed_step + rounds_every(node);
}

/* The snapshot of the running round is so old; UINT64_MAX: there is none, or no matter how old. */
static uint64_t stale_left(const struct node *node)
{
    uint64_t most = node->rounds->snapshot_step + node->options.strategy->stale_steps;

    if (node->options.strategy->stale_steps == 0) return UINT64_MAX;
    if (node->round == NULL || !round_has_snapshot(node->round)) return UINT64_MAX;
    return node->step < most ? most - node->step : 0;
}

uint64_t pace_steps_left(const struct node *node)
{
    uint64_t every = rounds_every(node);
    uint64_t since = node->step - node->rounds->mixed_step, stale = stale_left(node);
    uint64_t left = since < every ? every - since : UINT64_MAX;

    return stale > 0 && stale < left ? stale : left;
}

void pace_begin_period(struct node *node)
{
    adapt_hear(node);
    node->rounds->mixed_step = node->step;
    node->rounds->mixed_ns = node_now(node);
}

/* The time from one round's begin to the next, smoothed, for whoever weighs what a lost one costs.
 */
void pace_measure(struct node *node)
{
    uint64_t length_ns = node_now(node) - node->rounds->mixed_ns;

    if (node->rounds->mixed_ns == 0) return;
    node->rounds->period_ns =
        node->rounds->period_ns == 0 ? length_ns : (3 * node->rounds->period_ns + length_ns) / 4;
    trust_set_period(node->trust, node->rounds->period_ns);
}

uint64_t pace_period_ns(const struct node *node)
{
    const struct strategy *strategy = node->options.strategy;
    uint64_t period_ns;

    if (strategy->every_ns > 0) return strategy->every_ns;
    if (__builtin_mul_overflow(rounds_every(node), node->step_ns, &period_ns) ||
        period_ns > UINT64_MAX / 4) {
        return 0;
    }
    return period_ns;
}

uint64_t pace_count(const struct node *node)
{
    const struct strategy *strategy = node->options.strategy;

    if (strategy->every_ns > 0) return node_now(node) / strategy->every_ns;
    return node->step / rounds_every(node) + node->rounds->last_made;
}

/* ---- rounds ---- */

/* Where they overlap, steps are taken up to the border at which the next round is due, or until the
 * snapshot is as old as the method bears. */
bool pace_waits(const struct node *node)
{
    const struct strategy *strategy = node->options.strategy;

    if (!round_is_active(node->round)) return false;
    return strategy->waits || stale_left(node) == 0 ||
           (strategy->overlaps && strategy->every_ns == 0 && pace_is_over(node));
}

/* What this peer's model counts for in a mean: its samples, and where members take unlike numbers
 * of steps, of batches as large as their memory bears, samples^2 / steps (Decoupled DiLoCo,
 * arXiv:2604.21428), as steps on larger batches are better ones. Who stands still has said what it
 * has to say in earlier rounds, and counts for as much as then: with nothing, a late peer's own
 * steps would be the mean of all. */
static uint64_t samples_to_tell(const struct node *node)
{
    uint64_t samples = rounds_samples_since(node), steps = node->step - node->rounds->snapshot_step;

    if (node->options.strategy->joins_others && steps > 0)
        return (uint64_t)((double)samples * (double)samples / (double)steps);
    return samples > 0 ? samples : node->rounds->samples_of_round;
}

enum rc pace_begin_with(struct node *node, struct round_members members)
{
    struct boot_id boots[GROUP_MEMBERS_MAX];
    struct link_view link;
    enum rc rc;

    for (uint32_t i = 0; i < members.count; i++) {
        if (peer_id_is_equal(members.ids[i], node->self)) {
            boots[i] = node->options.boot;
        } else if (!links_peer(node->links, members.ids[i], &link)) {
            return RC_NOT_FOUND;
        } else {
            boots[i] = link.boot;
        }
    }
    members.boots = boots;
    members.period_ns = pace_period_ns(node);
    rc = round_begin(node->round, &members, samples_to_tell(node));
    if (rc != RC_OK && rc != RC_BUSY) {
        log_debug(node->options.log, "no round now: %s", rc_text(rc));
    }
    return rc;
}
