/*
 * With whom a node averages, and with whom no longer: members are known here, and so are the faults
 * the exchanges told of. Loop thread only.
 */
#include "peer/node/internal.h"

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

void node_round_scored(void *context, struct peer_id peer, enum score_reason score)
{
    struct node *node = context;

    if (score == SCORE_COMMITTED && node->pace.outer->met != NULL) {
        node->pace.outer->met(node, peer);
    }
    if (score == SCORE_NO_FAULT || score == SCORE_CLIPPED) note_far(context, peer);
    if (score != SCORE_NO_FAULT) node_score(context, peer, score); /* it said so of our values */
}

enum standing node_standing(void *context, struct peer_id peer)
{
    const struct node *node = context;

    if (!trust_may_mix(node->trust, peer, node_now(node))) return STANDING_OUT;
    return trust_is_proven(node->trust, peer) ? STANDING_PROVEN : STANDING_NEW;
}

/* ---- what others propose ---- */

/* A round of all was told of with us in it, who are in none yet: its members need not wait. */
static void refuse_credit(struct node *node, struct peer_id from, uint64_t stream)
{
    struct message answer = {.type = MESSAGE_CANCEL};

    if (!node->pace.inner->is_common) return;
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

/* There may be a round with it now. */
static bool may_mix(const struct node *node, const struct neighbour *other)
{
    return neighbour_holds(other, node->lineage) && !node_busy_leaves(node, other) &&
           trust_may_mix(node->trust, other->id, node_now(node));
}

/* Everyone linked who may mix and whom the pace could choose, this peer included, sorted by id. */
static size_t mixing_members(struct node *node, struct peer_id *ids)
{
    size_t count = 0;

    ids[count++] = node->self;
    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        const struct neighbour *other = &node->neighbours[i];

        if (may_mix(node, other)) count = peer_id_insert(ids, count, other->id);
    }
    return node->pace.inner->choose == NULL ? count : node->pace.inner->choose(node, ids, count);
}

bool node_has_partners(struct node *node)
{
    struct peer_id ids[LINKS_MAX + 1];

    return mixing_members(node, ids) > 1;
}

struct peer_id *node_everyone(const struct node *node, size_t *count)
{
    struct membership_counts counts;
    struct peer_id *ids;

    membership_counts(node->membership, &counts);
    ids = mem_array(counts.believed + 1, sizeof *ids);
    if (ids == NULL) return NULL;
    *count = membership_likely(node->membership, ids, counts.believed);
    *count = peer_id_insert(ids, *count, node->self);
    return ids;
}

/* Steps are counted in common, so that who joins can mix where the others do next: a whole period
 * later it would miss that round, and be behind when it comes to one. */
uint64_t node_last_mixed(const struct node *node)
{
    uint64_t every = strategy_every(node->options.strategy, node->step);

    return every > 0 ? node->step - node->step % every : node->step;
}

bool node_round_is_settling(const struct node *node)
{
    return node->round != NULL && round_is_settling(node->round);
}

bool node_waits_for_round(const struct node *node)
{
    return node->round != NULL && node->pace.inner->waits(node);
}

bool node_stays(struct node *node)
{
    return node->round != NULL && node->pace.outer->stays(node);
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

/* ---- what came of it ---- */

void node_round_note(struct node *node)
{
    bool has_started = node->round != NULL && round_has_started(node->round);

    if (has_started && !node->has_round_started) node->start_step = node->step;
    node->has_round_started = has_started;
}

void node_begin_round(struct node *node)
{
    const struct pace *pace = &node->pace;
    struct peer_id ids[LINKS_MAX + 1];

    if (node->round == NULL) return;
    if (pace->inner->heard != NULL) pace->inner->heard(node);
    if (!round_may_begin(node->round) || !pace->outer->due(node)) return;
    pace->outer->begin(node, ids, mixing_members(node, ids));
}

void node_offer_again(struct node *node)
{
    const struct pace_ops *inner = node->pace.inner;

    if (node->round == NULL || node->state != NODE_TRAINING || inner->again == NULL) return;
    if (inner->again(node)) node_begin_round(node);
}

uint64_t node_round_next_ns(const struct node *node)
{
    const struct pace *pace = &node->pace;
    uint64_t inner_ns, outer_ns;

    if (node->round == NULL || node->state != NODE_TRAINING) return UINT64_MAX;
    inner_ns = pace->inner->next_ns == NULL ? UINT64_MAX : pace->inner->next_ns(node);
    outer_ns = pace->outer->next_ns == NULL ? UINT64_MAX : pace->outer->next_ns(node);
    return inner_ns < outer_ns ? inner_ns : outer_ns;
}
