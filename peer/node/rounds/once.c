/*
 * once (one-shot): peers train alone, and average once, when they have reached their goals. Who is
 * done says so (PROGRESS) and waits for those on their way, as long as it hears that they move, and
 * not longer than it has trained itself, or a minute; then all who are done form the one round,
 * each model by the samples behind it. It stays until the others have the result too. Who comes
 * when they have left keeps its own model. Loop thread only.
 */
#include "peer/node/rounds/internal.h"

#include "peer/times.h"

enum { ONCE_TRIES = 5 };

struct once_state {
    bool is_over; /* nothing more to wait for */
    bool is_told;
    uint64_t since_ns, next_ns, ended_ns; /* done; not before: a round; it was applied */
    uint64_t mixed;                       /* rounds applied before */
    uint32_t tries;
};

/* Others that are done, and others that it pays to wait for. */
static void count_mates(const struct node *node, uint32_t *done, uint32_t *coming)
{
    const struct once_state *once = node->rounds->outer_state;
    uint64_t now_ns = node_now(node), trained_ns = once->since_ns - node->begun_ns;
    uint64_t most_ns = trained_ns > ONCE_MIN_NS ? trained_ns : ONCE_MIN_NS;

    *done = *coming = 0;
    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        const struct neighbour *other = &node->neighbours[i];

        if (!rounds_may_mix(node, other)) {
            if (now_ns < once->since_ns + ONCE_HEAR_NS) (*coming)++;
        } else if (other->progress.is_done) {
            (*done)++;
        } else if (now_ns < once->since_ns + most_ns && now_ns < other->moved_ns + ONCE_STILL_NS) {
            (*coming)++;
        }
    }
}

/* Of those who take part, somebody may still want a part of the result from us. */
static bool is_owed(const struct node *node)
{
    const struct round_stats stats = rounds_stats(node);

    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        const struct neighbour *other = &node->neighbours[i];

        if (rounds_may_mix(node, other) && other->progress.is_done &&
            other->progress.round < stats.counts.next_round) {
            return true;
        }
    }
    return false;
}

static bool end_once(struct node *node, const char *text)
{
    struct once_state *once = node->rounds->outer_state;

    once->is_over = true;
    if (text != NULL) log_warn(node->options.log, "%s: the model is this peer's alone", text);
    return false;
}

/* Nothing was added since the average, in this run or before it was resumed. */
static bool was_made(const struct node *node)
{
    return node->once_steps > 0 && node->once_steps == node->own_steps;
}

static bool lacks_round(const struct node *node)
{
    return !was_made(node);
}

static void begin_end(struct node *node, const struct round_stats *stats)
{
    struct once_state *once = node->rounds->outer_state;

    node->rounds->is_done = true;
    once->since_ns = once->next_ns = node_now(node);
    once->mixed = stats->mixed;
    models_tell(node, NULL);
}

static void note_average(struct node *node, const struct round_stats *stats)
{
    struct once_state *once = node->rounds->outer_state;

    if (once->ended_ns != 0) return;
    once->ended_ns = node_now(node);
    node->once_steps = node->own_steps;
    log_info(node->options.log, "the models of %u peers are averaged", stats->last_members);
    models_tell(node, NULL);
}

static bool stays(struct node *node)
{
    struct once_state *once = node->rounds->outer_state;
    const struct round_stats stats = rounds_stats(node);
    uint32_t done, coming;

    if (once->is_over) return false;
    if (!node->rounds->is_done && was_made(node)) {
        log_info(node->options.log, "an earlier run reached the goal and made the one average");
        return end_once(node, NULL);
    }
    if (!node->rounds->is_done) begin_end(node, &stats);
    if (round_is_active(node->round)) return true;
    if (stats.mixed > once->mixed) {
        note_average(node, &stats);
        if (is_owed(node) && node_now(node) < once->ended_ns + ONCE_LINGER_NS) return true;
        return end_once(node, NULL);
    }
    count_mates(node, &done, &coming);
    if (done + coming == 0) return end_once(node, "nobody else is here to average with");
    if (once->tries >= ONCE_TRIES) return end_once(node, "the one averaging round failed");
    if (coming > 0 && !once->is_told) {
        once->is_told = true;
        log_info(node->options.log,
                 "goal reached: waiting for %u more peer%s before the one average", coming,
                 coming == 1 ? "" : "s");
    }
    return true;
}

static bool due(const struct node *node)
{
    const struct once_state *once = node->rounds->outer_state;
    uint32_t done, coming;

    if (!node->rounds->is_done || once->is_over || once->ended_ns != 0) return false;
    if (round_is_active(node->round) || node_now(node) < once->next_ns) return false;
    count_mates(node, &done, &coming);
    return coming == 0 && done > 0;
}

/* With those that are done. */
static void begin(struct node *node, struct peer_id *ids, size_t count)
{
    struct once_state *once = node->rounds->outer_state;
    size_t kept = 0;

    once->tries++;
    once->next_ns = node_now(node) + ONCE_RETRY_NS;
    for (size_t i = 0; i < count; i++) {
        const struct neighbour *other = door_neighbour(node, ids[i]);

        if (other != NULL && !other->progress.is_done) continue; /* NULL: this peer */
        ids[kept++] = ids[i];
    }
    node->rounds->inner->begin(node, ids, kept);
}

const struct pace_ops pace_once = {
    .bytes = sizeof(struct once_state),
    .due = due,
    .begin = begin,
    .stays = stays,
    .lacks_round = lacks_round,
};
