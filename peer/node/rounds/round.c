/*
 * With whom a node averages, and with whom no longer: members are known here, and so are the faults
 * the exchanges told of. Loop thread only.
 */
#include "peer/node/internal.h"

#include "base/crash_point.h"

#include <math.h>

enum {
    START_LINKS = 16, /* are enough to begin with: a large swarm is not linked in full */
    START_VIEWS = 64  /* members looked at for whether they have begun */
};

#define START_HEARS_NS (10 * NS_PER_S) /* who says nothing of a model is waited for */
#define START_LOADS_NS (60 * NS_PER_S) /* who is still loading, or has another one */

#define FAR_NS (30 * NS_PER_S) /* so long is remembered that a model was too far away */

/* ---- trust ---- */

void node_score(struct node *node, struct peer_id peer, enum score_reason reason)
{
    trust_note(node->trust, peer, reason, node_now(node));
    if (trust_is_refused(node->trust, peer, node_now(node))) {
        links_hangup(node->links, peer,
                     "it broke the rules too often, and is shut out for a while");
    }
}

static void note_far(struct node *node, struct peer_id peer)
{
    struct neighbour *neighbour = node_neighbour(node, peer);

    if (neighbour != NULL) neighbour->far_ns = node_now(node);
}

bool node_is_far(const struct node *node, const struct neighbour *neighbour)
{
    return neighbour->far_ns != 0 && node_now(node) < neighbour->far_ns + FAR_NS;
}

/* Not at any time: or who lies could say again and again that it has another model now. */
void node_far_is_over(struct node *node, struct neighbour *neighbour)
{
    if (neighbour->far_ns == 0) return;
    neighbour->far_ns = 0;
    if (node_now(node) < node->begun_ns + NODE_BEGUN_NS) {
        trust_near_again(node->trust, neighbour->id);
    }
}

void node_round_scored(void *context, struct peer_id peer, int32_t score)
{
    enum score_reason reason = score_reason_of(score);

    if (score > 0) node_finish_met(context, peer);
    if (score == 0 || reason == SCORE_CLIPPED) note_far(context, peer);
    if (score != 0) node_score(context, peer, reason); /* 0: it said so of our values */
}

enum standing node_standing(void *context, struct peer_id peer)
{
    const struct node *node = context;

    if (!trust_may_mix(node->trust, peer, node_now(node))) return STANDING_OUT;
    return trust_is_proven(node->trust, peer) ? STANDING_PROVEN : STANDING_NEW;
}

/* ---- what others propose ---- */

/* A group round was told of with us in it, who are in none yet: its members need not wait. */
static void refuse_credit(struct node *node, struct peer_id from, uint64_t stream)
{
    struct message answer = {.type = MESSAGE_CANCEL};

    if (!node->options.strategy->exchange->is_group) return;
    answer.as.cancel.stream = stream;
    answer.as.cancel.code = CANCEL_START;
    (void)links_send(node->links, from, &answer); /* best effort */
}

/* Whoever invites us waits for our answer, and in a group all who have joined wait with it. */
static void say_no(struct node *node, struct peer_id from, const struct message *message)
{
    struct message answer = {.type = MESSAGE_REJECT};

    if (message->type == MESSAGE_FORM) {
        answer.type = MESSAGE_ABORT;
        answer.as.abort.key = (struct round_key){.initiator = from,
                                                 .boot = node_neighbour(node, from)->boot,
                                                 .counter = message->as.form.round};
        answer.as.abort.code = ABORT_PROTOCOL;
    } else {
        answer.as.reject.key =
            message->type == MESSAGE_OFFER ? message->as.offer.key : message->as.share.key;
        answer.as.reject.code = REJECT_BUSY;
        answer.as.reject.retry_ms = (uint32_t)(NODE_RETRY_NS / NS_PER_MS);
    }
    (void)links_send(node->links, from, &answer); /* best effort */
}

void node_on_round_message(struct node *node, struct peer_id from, const struct message *message)
{
    if (node->round == NULL || node->state != NODE_TRAINING) {
        if (message->type == MESSAGE_CREDIT) refuse_credit(node, from, message->as.credit.stream);
        return;
    }
    if (!trust_may_mix(node->trust, from, node_now(node)) &&
        (message->type == MESSAGE_FORM || message->type == MESSAGE_OFFER ||
         message->type == MESSAGE_SHARE)) {
        say_no(node, from, message);
        return;
    }
    round_on_message(node->round, from, message);
}

/* ---- what we begin ---- */

static bool meets_pairs(const struct node *node)
{
    const struct exchange_ops *exchange = node->options.strategy->exchange;

    return !exchange->is_group && !exchange->is_graph && !node->options.strategy->rule->is_push;
}

/* It holds the same model and averages alike; where a graph says whom pairs meet, it is one of
 * those (`by_graph`). */
static bool may_mix(const struct node *node, const struct neighbour *other, bool by_graph)
{
    if (by_graph && !node_graph_has(node, other->id)) return false;
    return other->has_progress && other->progress.is_serving && !node_busy_leaves(node, other) &&
           digest_is_equal(other->progress.lineage, node->lineage) &&
           trust_may_mix(node->trust, other->id, node_now(node));
}

bool node_has_partners(struct node *node)
{
    bool by_graph = meets_pairs(node) && node_graph_is_followed(node), has_any = false;

    for (uint32_t i = 0; i < node->neighbours_count && !has_any; i++) {
        has_any = may_mix(node, &node->neighbours[i], by_graph);
    }
    return has_any;
}

/* Everyone linked who may mix, this peer included, sorted by id. */
static size_t mixing_members(struct node *node, struct peer_id *ids)
{
    bool by_graph = meets_pairs(node) && node_graph_is_followed(node);
    size_t count = 0;

    ids[count++] = node->self;
    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        const struct neighbour *other = &node->neighbours[i];
        size_t at = count;

        if (!may_mix(node, other, by_graph)) continue;
        while (at > 0 && peer_id_compare(ids[at - 1], other->id) > 0) {
            ids[at] = ids[at - 1];
            at--;
        }
        ids[at] = other->id;
        count++;
    }
    return count;
}

static bool round_is_due(const struct node *node)
{
    const struct strategy *strategy = node->options.strategy;

    if (node->round == NULL || !round_may_begin(node->round)) return false;
    if (strategy->at_end) return node_once_is_due(node);
    if (node->finish.is_begun) return node_finish_is_due(node);
    if (node_push_is_owed(node)) return node_now(node) >= node->push.again_ns;
    if (node->pairs.is_owed || node_due_is_owed(node)) return true;
    if (strategy->every_ns > 0) return node_now(node) >= node->mixed_ns + strategy->every_ns;
    return node->step >= node->mixed_step + strategy_every(strategy, node->step) ||
           node_due_early(node);
}

/* Steps may be taken while a round runs, up to the border at which the next one is due. */
static bool is_ahead(const struct node *node)
{
    const struct strategy *strategy = node->options.strategy;

    return strategy->overlaps && strategy->every_ns == 0 &&
           node->step >= node->mixed_step + strategy_every(strategy, node->step);
}

/* Steps are counted in common, so that who joins can mix where the others do next: a whole period
 * later it would miss that round, and be behind when it comes to one. */
uint64_t node_last_mixed(const struct node *node)
{
    uint64_t every = strategy_every(node->options.strategy, node->step);

    return every > 0 ? node->step - node->step % every : node->step;
}

bool node_waits_for_round(const struct node *node)
{
    const struct strategy *strategy = node->options.strategy;

    if (node->round == NULL) return false;
    if (strategy->rule->is_push) return node_push_waits(node);
    return round_is_active(node->round) && (strategy->waits || is_ahead(node));
}

/* Others have taken steps, or have already gone: who missed the moment when all were linked would
 * wait for ever. */
static bool have_others_begun(const struct node *node)
{
    struct member_view views[START_VIEWS];
    size_t count = membership_list(node->membership, views, START_VIEWS);

    for (size_t i = 0; i < count; i++) {
        if (views[i].state == MEMBER_LEFT) return true;
    }
    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        if (node->neighbours[i].has_progress && node->neighbours[i].progress.step > 0) return true;
    }
    return false;
}

/* It can take part in the first round: without it that would be begun, and it a step behind. A link
 * says nothing of a model; where none comes, its peer counts all the same some time later. */
static bool is_ready_to_start(const struct node *node, const struct neighbour *other)
{
    uint64_t linked_for_ns = node_now(node) - other->linked_ns;

    if (!other->has_progress) return linked_for_ns >= START_HEARS_NS;
    if (!other->progress.is_serving) return linked_for_ns >= START_LOADS_NS;
    return digest_is_equal(other->progress.lineage, node->lineage) ||
           linked_for_ns >= START_LOADS_NS;
}

static uint32_t ready_to_start(const struct node *node)
{
    uint32_t ready = 1;

    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        ready += is_ready_to_start(node, &node->neighbours[i]);
    }
    return ready;
}

bool node_waits_for_peers(struct node *node)
{
    struct membership_counts counts;
    uint32_t wanted = node->options.start_with, ready;

    if (node->has_started) return false;
    ready = ready_to_start(node);
    if (ready >= wanted || node->own_steps > 0 || have_others_begun(node)) {
        node->has_started = true;
        return false;
    }
    membership_counts(node->membership, &counts);
    if (ready > START_LINKS && counts.likely + 1 >= wanted) {
        node->has_started = true;
        return false;
    }
    if (!node->is_wait_told) {
        log_info(node->options.log, "training begins with %u peers: waiting for %u more", wanted,
                 wanted - ready);
    }
    node->is_wait_told = true;
    return true;
}

uint32_t node_waits_for_more(const struct node *node)
{
    uint32_t ready = ready_to_start(node), wanted = node->options.start_with;

    if (node->state != NODE_TRAINING || node->has_started || !node->is_wait_told) return 0;
    return ready < wanted ? wanted - ready : 0;
}

/* The mean of n peers' steps is a step on n times the samples, which bears a larger rate (Goyal et
 * al. 2017, arXiv:1706.02677, linear; Krizhevsky 2014, arXiv:1404.5997, its root). It is approached
 * over NODE_RATE_STEPS steps, from 1 at the start and whenever members come or go, as sudden rates
 * blow up young models. */
void node_scale_rate(struct node *node, uint32_t steps)
{
    enum rate_scaling scaling = node->options.rate_scaling;
    double wanted = 1.0, before = node->rate_factor, most;
    struct round_stats stats = {0};

    if (node->learner->ops->set_rate_factor == NULL) return;
    if (node->round != NULL && node->options.strategy->steps_by_weight) node_push_scale(node);
    if (scaling == RATE_AS_GIVEN) return;
    if (node->round != NULL && node->neighbours_count > 0) round_stats(node->round, &stats);
    if (stats.last_members > 1) {
        wanted = scaling == RATE_LINEAR ? stats.last_members : sqrt((double)stats.last_members);
    }
    if (before <= 0.0) before = 1.0;
    most = fabs(wanted - 1.0) * steps / NODE_RATE_STEPS;
    if (wanted < before || before + most > wanted) {
        node->rate_factor =
            wanted; /* down at once: a rate for more peers than are left is too large */
    } else {
        node->rate_factor = before + most;
    }
    if (node->rate_factor != before) {
        node->learner->ops->set_rate_factor(node->learner,
                                            node->rate_factor * node_push_factor(node));
    }
}

MUST_USE enum rc node_restore_rule(struct node *node, const struct checkpoint *checkpoint,
                                   struct fault *why)
{
    enum rc rc = RC_SHAPE;

    if (checkpoint->rule_count == 0 || checkpoint->rule_values == node->mixed) {
        rc = round_rule_restore(node->round, checkpoint->rule, checkpoint->rule_count);
    }
    if (rc == RC_OK) return RC_OK;
    return fault_set(why, rc,
                     "the checkpoint's state of averaging does not fit --averaging: %s; give the "
                     "method it was written with, or another --out",
                     rc_text(rc));
}

/* ---- what came of it ---- */

MUST_USE enum rc node_apply(struct node *node)
{
    const struct learner_ops *learner = node->learner->ops;
    const float *difference = round_difference(node->round);
    enum rc rc;

    crash_point(CRASH_ROUND_APPLYING);
    if (node->snapshot != NULL) {
        rc = learner->snapshot_apply(node->learner, node->snapshot, difference);
    } else {
        rc = node_tracking_import(node, difference);
    }
    if (rc == RC_OK) rc = node_moments_applied(node);
    crash_point(CRASH_ROUND_APPLIED);
    return rc;
}

uint64_t node_pace_count(const struct node *node)
{
    const struct strategy *strategy = node->options.strategy;

    if (strategy->every_ns > 0) return node_now(node) / strategy->every_ns;
    return node->step / strategy_every(strategy, node->step) + node->finish.made;
}

/* What this peer's model counts for in a mean. Who stands still has said what it has to say in
 * earlier rounds, and counts for as much as then: with nothing, a late peer's own steps would be
 * the mean of all. */
static uint64_t samples_to_tell(const struct node *node)
{
    return node->samples_since_round > 0 ? node->samples_since_round : node->samples_of_round;
}

enum rc node_begin_with(struct node *node, const struct peer_id *chosen, const float *weights,
                        uint32_t count)
{
    struct boot_id boots[GROUP_MEMBERS_MAX];
    struct round_members members = {.ids = chosen,
                                    .boots = boots,
                                    .count = count,
                                    .weights = weights,
                                    .epoch = node->graph.epoch,
                                    .period_ns = node_due_period_ns(node)};
    enum rc rc;

    for (uint32_t i = 0; i < count; i++) {
        if (peer_id_is_equal(chosen[i], node->self)) {
            boots[i] = node->options.boot;
        } else if (!links_boot(node->links, chosen[i], &boots[i])) {
            return RC_NOT_FOUND;
        }
    }
    rc = round_begin(node->round, &members, samples_to_tell(node));
    if (rc != RC_OK && rc != RC_BUSY) {
        log_debug(node->options.log, "no round now: %s", rc_text(rc));
    }
    return rc;
}

/* The time from one round's begin to the next, smoothed, for whoever weighs what a lost one costs.
 */
static void measure_period(struct node *node)
{
    uint64_t length_ns = node_now(node) - node->mixed_ns;

    if (node->mixed_ns == 0) return;
    node->period_ns = node->period_ns == 0 ? length_ns : (3 * node->period_ns + length_ns) / 4;
    trust_set_period(node->trust, node->period_ns);
}

/* ---- groups: once a period ---- */

/* Those of `group` who are among `ids`, which are sorted. */
static size_t those_among(struct peer_id *group, size_t found, const struct peer_id *ids,
                          size_t count)
{
    size_t kept = 0;

    for (size_t i = 0; i < found; i++) {
        bool is_among = false;

        for (size_t k = 0; k < count && !is_among; k++) {
            is_among = peer_id_is_equal(ids[k], group[i]);
        }
        if (is_among) group[kept++] = group[i];
    }
    return kept;
}

static void begin_group(struct node *node, const struct peer_id *ids, size_t count)
{
    const struct strategy *strategy = node->options.strategy;
    struct topology topology = strategy_topology(strategy, count);
    struct peer_id chosen[GROUP_MEMBERS_MAX];
    struct round_stats stats;
    bool is_drawn = node_groups_are_drawn(node), is_alone_in_line;
    size_t found = 0;

    if (count < 2 && node_due_waits(node)) return; /* as soon as one of them is back */
    round_stats(node->round, &stats);
    if (is_drawn && count > 1) {
        found = node_groups_find(node, stats.counts.next_round, chosen);
        found = those_among(chosen, found, ids, count);
    } else if (count > 1) {
        found = topology_group(&topology, node->options.swarm->run_id, stats.counts.next_round,
                               node->self, ids, count, chosen, GROUP_MEMBERS_MAX);
    }
    is_alone_in_line = !is_drawn && count > 1 && found < 2;
    if (is_alone_in_line && node_due_waits_in_line(node)) return;
    if (!node->due.is_owed) measure_period(node);
    node_due_begun(node);
    node->mixed_step = node->step;
    node->mixed_ns = node_now(node);
    /* Alone in this line of a grid: the round is over. Or those it is the turn of wait for others,
     * who have gone on and are alone in theirs. With nobody at all: train on. */
    if (is_alone_in_line) round_set_number(node->round, stats.counts.next_round + 1);
    if (found > 1) (void)node_begin_with(node, chosen, NULL, (uint32_t)found);
}

/* ---- neighbours: all of them, once a period ---- */

static void begin_neighbours(struct node *node)
{
    struct peer_id ids[GROUP_MEMBERS_MAX];
    float weights[GROUP_MEMBERS_MAX];
    uint32_t count = node_graph_neighbours(node, ids, weights, GROUP_MEMBERS_MAX);

    node->mixed_step = node->step;
    node->mixed_ns = node_now(node);
    if (count > 0) (void)node_begin_with(node, ids, weights, count);
}

/* ---- pairs: one partner after the other, until one of them takes part ---- */

/* What became of the latest. A round that was given up half way is owed: the next begins at once.
 */
static void hear_of_pairs(struct node *node)
{
    struct node_pairs *pairs = &node->pairs;
    struct round_stats stats;
    const struct exchange_counts *counts = &stats.counts;

    round_stats(node->round, &stats);
    if (counts->rounds_ok != pairs->seen.rounds_ok) {
        partners_met(&pairs->partners);
        pairs->is_owed = false;
    } else if (counts->rounds_aborted != pairs->seen.rounds_aborted) {
        partners_failed(&pairs->partners, 0, node_now(node));
        pairs->is_owed = true;
    } else if (counts->rounds_skipped != pairs->seen.rounds_skipped) {
        partners_failed(&pairs->partners, counts->retry_ns, node_now(node));
    }
    pairs->seen = *counts;
}

static void begin_pair(struct node *node, const struct peer_id *ids, size_t count)
{
    struct partners *partners = &node->pairs.partners;
    uint8_t rarity[LINKS_MAX + 1];
    const struct partner_list list = {.run_id = node->options.swarm->run_id,
                                      .self = node->self,
                                      .ids = ids,
                                      .rarity = node_preference(node, ids, count, rarity),
                                      .count = count};
    struct peer_id partner;

    if (!node->pairs.is_owed) measure_period(node);
    for (size_t i = 0; i < count; i++) { /* at most once each */
        if (!partners_draw(partners, &list, node_pace_count(node), node_now(node), &partner)) {
            return;
        }
        if (node_begin_with(node, &partner, NULL, 1) == RC_OK) return;
    }
}

void node_begin_round(struct node *node)
{
    const struct exchange_ops *exchange = node->options.strategy->exchange;
    struct peer_id ids[LINKS_MAX + 1];
    size_t count;

    if (node->round == NULL) return;
    if (meets_pairs(node)) hear_of_pairs(node);
    node_due_hear(node);
    if (node->options.strategy->rule->is_push) node_push_hear(node);
    if (!round_is_due(node)) return;
    node_finish_begins(node);
    count = mixing_members(node, ids);
    if (node->options.strategy->at_end) count = node_once_filter(node, ids, count);
    if (node->finish.is_begun) count = node_finish_filter(node, ids, count);
    if (node->options.strategy->rule->is_push) {
        node_push_begin(node, ids, count);
    } else if (exchange->is_graph) {
        begin_neighbours(node);
    } else if (exchange->is_group) {
        begin_group(node, ids, count);
    } else {
        begin_pair(node, ids, count);
    }
}

void node_offer_again(struct node *node)
{
    if (node->round == NULL || node->state != NODE_TRAINING) return;
    if (node->options.strategy->rule->is_push) node_push_hear(node);
    if (meets_pairs(node) || node_push_is_owed(node)) node_begin_round(node);
}

uint64_t node_round_next_ns(const struct node *node)
{
    uint64_t wait_ns = node->pairs.partners.wait_ns;

    if (node->round == NULL || node->state != NODE_TRAINING) return UINT64_MAX;
    if (node->finish.is_begun) return node_finish_next_ns(node);
    if (node_push_is_owed(node)) {
        return round_may_begin(node->round) ? node->push.again_ns : UINT64_MAX;
    }
    return wait_ns > node_now(node) && round_is_due(node) ? wait_ns : UINT64_MAX;
}
