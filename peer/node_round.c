/*
 * With whom a node averages, and with whom no longer: members are known here, and so are the faults
 * the exchanges told of. Loop thread only.
 */
#include "peer/node_internal.h"

#include "base/crash_point.h"

#include <math.h>

enum { START_LINKS = 16 }; /* are enough to begin with: a large swarm is not linked in full */

/* ---- trust ---- */

void node_score(struct node *node, struct peer_id peer, enum score_reason reason)
{
    trust_note(node->trust, peer, reason, node_now(node));
    if (trust_is_refused(node->trust, peer, node_now(node))) links_hangup(node->links, peer);
}

void node_round_scored(void *context, struct peer_id peer, int32_t score)
{
    node_score(context, peer, score_reason_of(score));
}

enum standing node_standing(void *context, struct peer_id peer)
{
    const struct node *node = context;

    if (!trust_may_mix(node->trust, peer, node_now(node))) return STANDING_OUT;
    return trust_is_proven(node->trust, peer) ? STANDING_PROVEN : STANDING_NEW;
}

/* ---- what others propose ---- */

static uint32_t forms_max(const struct node *node, struct peer_id from)
{
    return trust_is_proven(node->trust, from) ? NODE_FORMS_MAX : NODE_FORMS_MAX / 2;
}

/* Who proposes for ever and never starts would keep us from all other rounds. */
static bool proposes_in_vain(struct node *node, struct peer_id from, enum message_type type)
{
    struct neighbour *neighbour = node_neighbour(node, from);

    if (type == MESSAGE_START) neighbour->forms = 0;
    if (type != MESSAGE_FORM || ++neighbour->forms <= forms_max(node, from)) return false;
    neighbour->forms = 0;
    node_score(node, from, SCORE_LATE);
    return true;
}

/* A pair partner is told no, for it waits; a group does without whoever does not join. */
void node_on_round_message(struct node *node, struct peer_id from, const struct message *message)
{
    struct message answer = {.type = MESSAGE_REJECT};

    if (node->round == NULL || node->state != NODE_TRAINING) return;
    if (!trust_may_mix(node->trust, from, node_now(node))) {
        if (message->type == MESSAGE_FORM) return;
        if (message->type == MESSAGE_OFFER) {
            answer.as.reject.key = message->as.offer.key;
            answer.as.reject.code = REJECT_BUSY;
            answer.as.reject.retry_ms = (uint32_t)(NODE_RETRY_NS / NS_PER_MS);
            (void)links_send(node->links, from, &answer); /* best effort */
            return;
        }
    }
    if (proposes_in_vain(node, from, message->type)) return;
    round_on_message(node->round, from, message);
}

/* ---- what we begin ---- */

/* Everyone linked who holds the same model, this peer included, sorted by id. */
static size_t mixing_members(const struct node *node, struct peer_id *ids)
{
    size_t count = 0;

    ids[count++] = node->self;
    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        const struct neighbour *other = &node->neighbours[i];
        size_t at = count;

        if (!other->has_progress || !other->progress.is_serving ||
            !digest_is_equal(other->progress.lineage, node->lineage) ||
            !trust_may_mix(node->trust, other->id, node_now(node))) {
            continue;
        }
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

    if (node->round == NULL || round_is_active(node->round)) return false;
    if (strategy->every_ns > 0) return node_now(node) >= node->mixed_ns + strategy->every_ns;
    return node->step >= node->mixed_step + strategy_every(strategy, node->step);
}

bool node_waits_for_round(const struct node *node)
{
    return node->options.strategy->waits && node->round != NULL && round_is_active(node->round);
}

bool node_waits_for_peers(struct node *node)
{
    struct membership_counts counts;
    uint32_t wanted = node->options.start_with, linked = node->neighbours_count + 1;

    if (node->has_started || linked >= wanted || node->own_steps > 0) {
        node->has_started = true;
        return false;
    }
    membership_counts(node->membership, &counts);
    if (linked > START_LINKS && counts.believed + 1 >= wanted) {
        node->has_started = true;
        return false;
    }
    if (!node->is_wait_told) {
        log_info(node->options.log, "training begins with %u peers: waiting for %u more", wanted,
                 wanted - linked);
    }
    node->is_wait_told = true;
    return true;
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

    if (scaling == RATE_AS_GIVEN || node->learner->ops->set_rate_factor == NULL) return;
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
        node->learner->ops->set_rate_factor(node->learner, node->rate_factor);
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
        rc = learner->import_section(node->learner, SECTION_MIXED, difference, node->mixed);
    }
    crash_point(CRASH_ROUND_APPLIED);
    return rc;
}

/* With whom: for group exchanges the group in proposing order; for pair exchanges the partner,
 * drawn by a hash that all members compute alike, so that one of the two begins and the other is
 * free for it. 0: it is not for us to begin. */
static uint32_t choose_members(struct node *node, const struct peer_id *ids, size_t count,
                               struct peer_id *chosen)
{
    const struct strategy *strategy = node->options.strategy;
    struct topology pairs = {.kind = TOPOLOGY_GROUPS, .group_size = 2};
    struct topology topology;
    struct round_stats stats;
    size_t found;

    if (strategy->exchange->is_group) {
        round_stats(node->round, &stats);
        topology = strategy_topology(strategy, count);
        return (uint32_t)topology_group(&topology, node->options.swarm->run_id,
                                        stats.counts.next_round, node->self, ids, count, chosen,
                                        GROUP_MEMBERS_MAX);
    }
    found = topology_group(&pairs, node->options.swarm->run_id, node->pace_count, node->self, ids,
                           count, chosen, GROUP_MEMBERS_MAX);
    if (found < 2 || !peer_id_is_equal(chosen[0], node->self)) return 0;
    chosen[0] = chosen[1];
    return 1;
}

void node_begin_round(struct node *node)
{
    const struct strategy *strategy = node->options.strategy;
    struct peer_id ids[LINKS_MAX + 1], chosen[GROUP_MEMBERS_MAX];
    struct boot_id boots[GROUP_MEMBERS_MAX];
    struct round_members members = {.ids = chosen, .boots = boots};
    size_t count;
    enum rc rc;

    if (!round_is_due(node)) return;
    count = mixing_members(node, ids);
    node->mixed_step = node->step;
    node->mixed_ns = node_now(node);
    node->pace_count = strategy->every_ns == 0 ? node->step / strategy_every(strategy, node->step)
                                               : node->pace_count + 1;
    if (count < 2) return; /* alone: train on */
    members.count = choose_members(node, ids, count, chosen);
    for (uint32_t i = 0; i < members.count; i++) {
        if (peer_id_is_equal(chosen[i], node->self)) {
            boots[i] = node->options.boot;
        } else if (!links_boot(node->links, chosen[i], &boots[i])) {
            return; /* gone this very moment: the next border tries again */
        }
    }
    if (members.count == 0) return;
    rc = round_begin(node->round, &members, node->samples_since_round);
    if (rc != RC_OK && rc != RC_BUSY) {
        log_debug(node->options.log, "no round now: %s", rc_text(rc));
    }
}
