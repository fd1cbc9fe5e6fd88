/*
 * finish: the last rounds of a peer at its goal. Its last steps are its own, and the mean of all is
 * better than they are: so it stays where it is, says that it is done (PROGRESS), takes part in
 * what the others begin, and leaves after a round that found it standing still.
 *
 *  STEPS --goal--> WAITING <--a round without one of those who are done-- SETTLED --> OVER
 *                   |  '----a last round: with all of them, and whole---------^        ^
 *                   '--nobody is left, or the bound has come---------------------------'
 *
 * There is one bound, a share of the time since this peer began, and it is the only patience there
 * is. Who says that it will be done before it is waited for, so that those who train at about the
 * same pace end together, and with the same model; rounds meanwhile are served as well, but are not
 * the last. Estimates are worth half as much again, so whoever is to come a little later by its
 * latest word is waited for, until it is too late for that as well: this costs the more time the
 * nearer it is to the bound. Near the bound those who are done begin a round among themselves.
 *
 * Of a group each sees for itself that its last round was whole and that all who are done were in
 * it, says so (settled), and leaves when all who are done say it of that round or a later one: what
 * one of them missed the others do with it once more, however late it hears of it. Beside a group
 * that trains on, a round that it begins is joined; after a period those who are done begin one
 * among themselves.
 *
 * Whole groups need one round; where a round is of a part of those who are done, it takes
 * log(all) / log(part), pairs with as many partners. Where a round carries a part of the model, it
 * takes as many times the rounds that carry all of it, of a group one after the other. Where rounds
 * mix answers and no models there is no last one. Whoever dies, lies, or averages by another method
 * costs the bound and no more. When, and among whom of those who are linked, is decided here; what
 * such a round is like is the inner pace's. Loop thread only.
 */
#include "peer/node/rounds/internal.h"

#include "peer/times.h"

#include <math.h>

enum { BOUND_SHARE = 4 /* of the time since this peer began */, ROUNDS_MAX = 16 };

struct finish_state {
    bool is_over, is_told;
    bool is_last;        /* the last snapshot was taken when no round was to be put off */
    bool is_settled;     /* common rounds: that one was whole, and none has begun since */
    uint32_t whole;      /* of these one after the other, of whole members, up to that one */
    uint32_t served;     /* looks that found rounds applied, these or others, since the goal */
    uint32_t partners;   /* who kept their word in last rounds */
    uint32_t most_done;  /* there were at their goals at the same time, this peer included */
    uint64_t rounds;     /* applied, as of the last look */
    uint64_t last_whole; /* number of the last that was whole */
    uint64_t owed_round; /* common: who has come to this one has all that we gave to our last */
    uint64_t begun_ns, bound_ns; /* it lasts no longer than that */
    uint64_t again_ns, made_ns;  /* not before: a round; the last was applied */
};

struct others {
    uint32_t done, coming, training; /* coming: also who is done and just has to pause */
    uint32_t unmet;                  /* of all these: those we had no last round with */
    uint32_t missing;                /* of those who are done: they were not in our last round */
};

/* ---- how far everybody is ---- */

static void met(struct node *node, struct peer_id peer)
{
    struct finish_state *finish = node->rounds->outer_state;
    struct neighbour *other = door_neighbour(node, peer);

    if (other == NULL) return;
    other->has_met = true;
    if (!finish->is_last || other->has_met_last) return;
    other->has_met_last = true;
    finish->partners++;
}

static uint64_t bound_ns(const struct node *node)
{
    uint64_t ns = (node_now(node) - node->begun_ns) / BOUND_SHARE;

    if (ns < FINISH_MIN_NS) return FINISH_MIN_NS;
    return ns < FINISH_MAX_NS ? ns : FINISH_MAX_NS;
}

static uint64_t end_ns(const struct node *node)
{
    const struct finish_state *finish = node->rounds->outer_state;

    return finish->begun_ns + finish->bound_ns;
}

/* A round is put off for those who come until then. One of them may be silent, so there is time
 * left for a round without them. */
static uint64_t put_off_ns(const struct node *node)
{
    const struct finish_state *finish = node->rounds->outer_state;

    return end_ns(node) - finish->bound_ns / 3;
}

/* Until when there are no rounds with it. */
static uint64_t pause_ns(const struct node *node, const struct neighbour *other)
{
    struct trust_view view;

    return trust_view(node->trust, other->id, node_now(node), &view) ? view.mix_ns : 0;
}

static bool is_mate(const struct node *node, const struct neighbour *other)
{
    return !other->is_keeper && models_holds(other, node->lineage) &&
           pause_ns(node, other) < end_ns(node);
}

static bool is_coming(const struct node *node, const struct neighbour *other)
{
    uint64_t now_ns = node_now(node), until_ns = end_ns(node);
    uint64_t left_ns = other->progress.left_ms * NS_PER_MS, at_ns = other->progress_ns + left_ns;

    if (left_ns == 0 || now_ns >= until_ns) return false;
    return at_ns <= now_ns || at_ns - now_ns <= (until_ns - now_ns) / 2 * 3;
}

/* Who trains on and has never been in a round with us will not be in the next one either, but where
 * there was none at all; nor will who has to pause. */
static struct others count_others(const struct node *node)
{
    struct others others = {0};
    const struct round_stats stats = rounds_stats(node);

    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        const struct neighbour *other = &node->neighbours[i];
        bool may_mix = trust_may_mix(node->trust, other->id, node_now(node));
        bool is_done = other->progress.is_done, is_met = other->has_met || stats.mixed == 0;

        if (!is_mate(node, other)) continue;
        if (is_done && may_mix) {
            others.done++;
        } else if (is_done || (is_met && is_coming(node, other))) {
            others.coming++;
        } else if (is_met && may_mix) {
            others.training++;
        } else {
            continue;
        }
        others.unmet += !other->has_met_last;
        others.missing += is_done && !other->has_met_last;
    }
    return others;
}

/* Nobody is to come any more for whom a round would be put off. */
static bool is_complete(const struct node *node, const struct others *others)
{
    return others->coming == 0 || node_now(node) >= put_off_ns(node);
}

/* ---- the rounds ---- */

/* Rounds applied, but for those that left us with values of our own; or shares that came in. */
static uint64_t rounds_so_far(const struct node *node, const struct round_stats *stats)
{
    if (node->rounds->inner->is_one_way) return stats->counts.received;
    return stats->mixed - stats->unagreed;
}

static uint32_t cover(const struct node *node)
{
    return strategy_cover(node->options.strategy);
}

static uint32_t rounds_wanted(const struct node *node, const struct round_stats *stats)
{
    const struct finish_state *finish = node->rounds->outer_state;
    double part = stats->last_members > 2 ? stats->last_members : 2;
    double rounds = ceil(log(finish->most_done) / log(part) - 1e-9);

    return cover(node) * (rounds < 1 ? 1 : rounds > ROUNDS_MAX ? ROUNDS_MAX : (uint32_t)rounds);
}

/* The same partner once more would bring pairs little, if one round carries all. */
static bool counts_partners(const struct node *node)
{
    return node->rounds->inner->meets_one && cover(node) == 1;
}

/* One round is of all who are done. */
static bool meets_all(const struct node *node, const struct others *others)
{
    return node->rounds->inner->meets_all != NULL &&
           node->rounds->inner->meets_all(node, others->done + 1);
}

/* We have had our last round. */
static bool is_made(const struct node *node, const struct others *others,
                    const struct round_stats *stats)
{
    const struct finish_state *finish = node->rounds->outer_state;
    uint32_t made = node->rounds->last_made;

    if (!is_complete(node, others)) return false;
    /* The others had enough with the round that was none of the last here, and have left. */
    if (finish->served > 0 && others->done == 0) return true;
    if (meets_all(node, others)) return finish->is_settled && others->missing == 0;
    if (made >= rounds_wanted(node, stats)) return true;
    return counts_partners(node) && made > 0 && others->unmet == 0;
}

static bool is_settled(const struct node *node)
{
    struct others others;
    const struct round_stats stats = rounds_stats(node);

    if (!node->rounds->is_done) return false;
    others = count_others(node);
    return is_made(node, &others, &stats);
}

static void snapshot(struct node *node)
{
    struct finish_state *finish = node->rounds->outer_state;
    struct others others;

    if (!node->rounds->is_done) return;
    others = count_others(node);
    finish->is_settled = false; /* what this round leaves of us counts from here on */
    finish->is_last = is_complete(node, &others) || meets_all(node, &others);
    if (!meets_all(node, &others)) return;
    /* Whoever is yet to come to its goal does not say of this round that it was its last. */
    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        node->neighbours[i].has_met_last = false;
    }
}

/* Is it all of the model that the latest rounds were whole of, with all who are done in each? */
static bool is_whole(struct node *node, const struct round_stats *stats)
{
    struct finish_state *finish = node->rounds->outer_state;

    if (!stats->is_last_whole || (cover(node) > 1 && count_others(node).missing > 0)) {
        finish->whole = 0;
        return false;
    }
    if (stats->last_round != finish->last_whole + 1) finish->whole = 0;
    finish->last_whole = stats->last_round;
    finish->whole++;
    return finish->whole >= cover(node);
}

/* What came of the rounds since the last look. */
static void look(struct node *node, const struct round_stats *stats)
{
    struct finish_state *finish = node->rounds->outer_state;
    uint64_t rounds = rounds_so_far(node, stats);

    if (rounds == finish->rounds) return;
    finish->served++;
    if (finish->is_last) {
        node->rounds->last_made += (uint32_t)(rounds - finish->rounds);
        if (counts_partners(node)) node->rounds->last_made = finish->partners;
        finish->is_settled = is_whole(node, stats);
        finish->owed_round = stats->last_round + 1;
    }
    finish->rounds = rounds;
    finish->again_ns = 0;
    finish->made_ns = node_now(node);
    models_tell(node, NULL);
}

/* Those who are done say that they need no other round, or may still want a part of the result from
 * us. Who else was in the round is not known here, so who was not, or says what is not true, counts
 * as well: for as long as such a part can be on its way, or until the end. */
static bool is_owed(const struct node *node, const struct round_stats *stats)
{
    const struct finish_state *finish = node->rounds->outer_state;
    uint64_t on_its_way_ns = finish->made_ns + 2 * (stats->last_ns + NODE_PROGRESS_NS);

    if (stats->counts.custody > 0) return true;        /* shares that nobody has yet */
    if (!node->rounds->inner->is_common) return false; /* both ends have all */
    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        const struct neighbour *other = &node->neighbours[i];
        const struct message_progress *progress = &other->progress;
        bool is_behind = progress->round < finish->owed_round;

        if (!is_mate(node, other)) continue;
        if (progress->is_done && (is_behind || !progress->is_settled)) return true;
        if (is_behind && other->has_met && !rounds_busy_leaves(node, other) &&
            node_now(node) < on_its_way_ns) {
            return true;
        }
    }
    return false;
}

static void begin_end(struct node *node, const struct round_stats *stats)
{
    struct finish_state *finish = node->rounds->outer_state;

    node->rounds->is_done = true;
    finish->rounds = rounds_so_far(node, stats);
    finish->begun_ns = node_now(node);
    finish->bound_ns = bound_ns(node);
    trust_end_pauses(node->trust, FINISH_PAUSE_NS, node_now(node));
    /* Nothing was added to what the last round left. */
    finish->is_over = rounds_samples_since(node) == 0 && !round_is_active(node->round);
    if (!finish->is_over) models_tell(node, NULL);
}

/* Is there nobody to have a round with? Groups that train on were to be joined before. */
static bool is_vain(const struct node *node, const struct others *others)
{
    bool joins = !node->rounds->inner->meets_one && !node->rounds->inner->is_one_way;

    return joins && others->done == 0 && others->coming == 0 && node_now(node) >= put_off_ns(node);
}

/* Nobody is to wait for us any more, but who is done and may want another round. */
static bool may_leave(struct node *node, const struct others *others,
                      const struct round_stats *stats)
{
    round_set_busy(node->round, others->done == 0);
    return !is_owed(node, stats);
}

static void tell_waiting(struct node *node, uint32_t count)
{
    struct finish_state *finish = node->rounds->outer_state;

    if (finish->is_told) return;
    finish->is_told = true;
    log_info(node->options.log, "goal reached: waiting for one last round with %u %s", count,
             count == 1 ? "neighbour" : "neighbours");
}

static bool is_over(struct node *node, const struct round_stats *stats)
{
    struct finish_state *finish = node->rounds->outer_state;
    struct others others = count_others(node);
    uint32_t count = others.done + others.coming + others.training;

    if (count == 0) return true;
    /* Nobody's model would be another one after a last round. */
    if (node->options.strategy->mixes_answers) return !round_is_active(node->round);
    if (others.done + 1 > finish->most_done) finish->most_done = others.done + 1;
    if (node_now(node) >= end_ns(node)) return true;
    if (round_is_active(node->round)) {
        return !round_has_started(node->round) && !round_has_snapshot(node->round) &&
               is_vain(node, &others);
    }
    tell_waiting(node, count);
    if (is_made(node, &others, stats)) {
        if (others.coming > 0) return false;
        return may_leave(node, &others, stats);
    }
    return is_vain(node, &others);
}

static bool stays(struct node *node)
{
    struct finish_state *finish = node->rounds->outer_state;
    const struct round_stats stats = rounds_stats(node);

    if (!node->rounds->is_done) begin_end(node, &stats);
    look(node, &stats);
    if (!finish->is_over) finish->is_over = is_over(node, &stats);
    return !finish->is_over;
}

/* ---- when and with whom ---- */

static bool is_invited_by_done(const struct node *node)
{
    const struct neighbour *from;

    if (!round_is_invited(node->round)) return false;
    from = door_neighbour(node, round_inviter(node->round));
    return from != NULL && from->progress.is_done;
}

static bool is_last_due(const struct node *node)
{
    const struct finish_state *finish = node->rounds->outer_state;
    struct others others = count_others(node);
    uint64_t now_ns = node_now(node);
    const struct round_stats stats = rounds_stats(node);

    if (finish->is_over || now_ns >= end_ns(node)) return false;
    if (is_made(node, &others, &stats)) return is_invited_by_done(node);
    if (round_is_invited(node->round)) return true;
    /* Pairs pause as whoever refused them asked for: partners.h. */
    if (now_ns < finish->again_ns && !node->rounds->inner->meets_one) return false;
    if (!node->rounds->inner->due(node)) return false;
    if (node->rounds->inner->lies_open) return true; /* it runs when the others have come to it */
    if (!is_complete(node, &others)) return false;
    if (!node->rounds->inner->is_common || others.training == 0) return true;
    return others.done > 0 &&
           now_ns >= finish->begun_ns + node->rounds->period_ns + NODE_PROGRESS_NS;
}

static bool due(const struct node *node)
{
    return node->rounds->is_done ? is_last_due(node) : node->rounds->inner->due(node);
}

/* Those a last round is for: who is done, or whom a pair has not met yet. */
static size_t keep_last(struct node *node, struct peer_id *ids, size_t count)
{
    bool meets_one = node->rounds->inner->meets_one;
    size_t kept = 0;

    if (round_is_invited(node->round)) return count;
    if (meets_one && !counts_partners(node)) return count;
    if (!meets_one && count_others(node).done == 0) return count;
    for (size_t i = 0; i < count; i++) {
        const struct neighbour *other = door_neighbour(node, ids[i]);

        /* NULL: this peer */
        if (other != NULL && (meets_one ? other->has_met_last : !other->progress.is_done)) continue;
        ids[kept++] = ids[i];
    }
    return kept;
}

static void begin(struct node *node, struct peer_id *ids, size_t count)
{
    struct finish_state *finish = node->rounds->outer_state;

    finish->again_ns = node_now(node) + FINISH_RETRY_NS;
    if (node->rounds->is_done) count = keep_last(node, ids, count);
    node->rounds->inner->begin(node, ids, count);
}

static uint64_t next_ns(const struct node *node)
{
    return node->rounds->is_done ? node_now(node) + FINISH_RETRY_NS : UINT64_MAX;
}

const struct pace_ops pace_finish = {
    .bytes = sizeof(struct finish_state),
    .due = due,
    .begin = begin,
    .next_ns = next_ns,
    .snapshot = snapshot,
    .stays = stays,
    .is_settled = is_settled,
    .met = met,
};
