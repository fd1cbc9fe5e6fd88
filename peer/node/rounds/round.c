/*
 * With whom a node averages, and with whom no longer: members are known here, and so are the faults
 * the exchanges told of. Loop thread only.
 */
#include "peer/node/rounds/internal.h"

#include "peer/times.h"

enum { START_VIEWS = 64 }; /* members looked at for whether they have begun */

/* ---- trust ---- */

static void note_far(struct node *node, struct peer_id peer)
{
    struct neighbour *neighbour = door_neighbour(node, peer);

    if (neighbour != NULL) neighbour->far_ns = node_now(node);
}

bool rounds_is_far(const struct node *node, const struct neighbour *neighbour)
{
    return neighbour->far_ns != 0 && node_now(node) < neighbour->far_ns + ROUNDS_FAR_NS;
}

/* Not at any time: or who lies could say again and again that it has another model now. */
void rounds_far_is_over(struct node *node, struct neighbour *neighbour)
{
    if (neighbour->far_ns == 0) return;
    neighbour->far_ns = 0;
    if (node_now(node) < node->begun_ns + NODE_BEGUN_NS) {
        trust_near_again(node->trust, neighbour->id);
    }
}

static void scored(void *context, struct peer_id peer, enum score_reason score)
{
    struct node *node = context;

    if (score == SCORE_COMMITTED && node->rounds->outer->met != NULL) {
        node->rounds->outer->met(node, peer);
    }
    if (score == SCORE_NO_FAULT || score == SCORE_CLIPPED) note_far(context, peer);
    if (score != SCORE_NO_FAULT) door_score(context, peer, score); /* it said so of our values */
}

static enum standing standing(void *context, struct peer_id peer)
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

    if (!node->rounds->inner->is_common) return;
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
                                                 .boot = door_neighbour(node, from)->boot,
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

/* One of the two does not train, so there is nothing to average. */
static bool is_keeper_between(const struct node *node, struct peer_id from)
{
    return node->options.is_keeper || door_neighbour(node, from)->is_keeper;
}

void rounds_on_message(struct node *node, struct peer_id from, const struct message *message)
{
    if (node->round == NULL || node->state != NODE_TRAINING) {
        if (message->type == MESSAGE_CREDIT) refuse_credit(node, from, message->as.credit.stream);
        return;
    }
    if ((is_keeper_between(node, from) || !trust_may_mix(node->trust, from, node_now(node))) &&
        (message->type == MESSAGE_FORM || message->type == MESSAGE_OFFER ||
         message->type == MESSAGE_SHARE)) {
        say_no(node, from, message);
        return;
    }
    round_on_message(node->round, from, message);
}

/* ---- what we begin ---- */

bool rounds_may_mix(const struct node *node, const struct neighbour *other)
{
    return !node->options.is_keeper && !other->is_keeper && models_holds(other, node->lineage) &&
           !rounds_busy_leaves(node, other) &&
           trust_may_mix(node->trust, other->id, node_now(node));
}

/* Everyone linked who may mix and whom the pace could choose, this peer included, sorted by id. */
static size_t mixing_members(struct node *node, struct peer_id *ids)
{
    size_t count = 0;

    ids[count++] = node->self;
    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        const struct neighbour *other = &node->neighbours[i];

        if (rounds_may_mix(node, other)) count = peer_id_insert(ids, count, other->id);
    }
    return node->rounds->inner->choose == NULL ? count
                                               : node->rounds->inner->choose(node, ids, count);
}

static bool has_partners(struct node *node)
{
    struct peer_id ids[LINKS_MAX + 1];

    return mixing_members(node, ids) > 1;
}

bool rounds_are_near(struct node *node, double ns)
{
    const struct strategy *strategy = node->options.strategy;
    const struct rounds *rounds = node->rounds;
    uint64_t now_ns = node_now(node), due, step;

    if (round_is_active(node->round)) return true;
    /* With nobody to average with none does, however long one has been due. */
    if (!has_partners(node)) return false;
    if (strategy->every_ns > 0) {
        due = rounds->mixed_ns + strategy->every_ns;
        return due <= now_ns || (double)(due - now_ns) < ns;
    }
    due = rounds->mixed_step + rounds_every(node);
    step = node->step + 1; /* one is under way */
    return step >= due || (double)(due - step) * (double)node->step_ns < ns;
}

/* ---- what others ask ---- */

struct round_stats rounds_stats(const struct node *node)
{
    struct round_stats stats = {0};

    if (node->round != NULL) round_stats(node->round, &stats);
    return stats;
}

bool rounds_are_settling(const struct node *node)
{
    return node->round != NULL && round_is_settling(node->round);
}

bool rounds_are_common(const struct node *node)
{
    return node->rounds->inner->is_common;
}

bool rounds_is_ahead(const struct node *node)
{
    return lead_steps_left(node) == 0;
}

bool rounds_wait(const struct node *node)
{
    return node->round != NULL && (rounds_is_ahead(node) || node->rounds->inner->waits(node));
}

uint64_t rounds_steps_until(const struct node *node)
{
    if (node->round == NULL) return UINT64_MAX;
    return node_earlier(lead_steps_left(node), node->rounds->inner->steps_until(node));
}

bool rounds_stay(struct node *node)
{
    return node->round != NULL && node->rounds->outer->stays(node);
}

bool rounds_lack_one(const struct node *node)
{
    const struct pace_ops *outer = node->rounds->outer;

    return outer->lacks_round != NULL && outer->lacks_round(node);
}

uint64_t rounds_snapshot_step(const struct node *node)
{
    return node->rounds->snapshot_step;
}

uint64_t rounds_samples_since(const struct node *node)
{
    return node->samples - node->rounds->snapshot_samples;
}

uint64_t rounds_staleness(const struct node *node)
{
    return node->step - node->rounds->mixed_step;
}

void rounds_fill_progress(const struct node *node, struct message_progress *progress)
{
    const struct rounds *rounds = node->rounds;
    const struct round_stats stats = rounds_stats(node);

    progress->round = stats.counts.next_round;
    progress->is_done = rounds->is_done;
    progress->is_settled = rounds->outer->is_settled != NULL && rounds->outer->is_settled(node);
    progress->busy = node->rounds->busy.told;
}

/* ---- the first step ---- */

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
        if (node->neighbours[i].is_keeper) continue; /* it has what those before have made */
        if (node->neighbours[i].has_progress && node->neighbours[i].progress.step > 0) return true;
    }
    return false;
}

/* It can take part in the first round: without it that would be begun, and it a step behind. A link
 * says nothing of a model; where none comes, its peer counts all the same some time later. */
static bool is_ready_to_start(const struct node *node, const struct neighbour *other)
{
    uint64_t linked_for_ns = node_now(node) - other->linked_ns;

    if (other->is_keeper) return false;
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

bool rounds_wait_for_peers(struct node *node)
{
    struct membership_counts counts;
    uint32_t wanted = node->options.start_with, ready;

    if (node->rounds->has_started || node->options.is_keeper) return false;
    if (models_input_waits(node)) return true;
    ready = ready_to_start(node);
    membership_counts(node->membership, &counts);
    if (ready >= wanted || node->own_steps > 0 || have_others_begun(node) ||
        (ready > START_LINKS && counts.likely + 1 >= wanted)) {
        node->rounds->has_started = true;
        models_input_settle(node);
        return false;
    }
    if (!node->rounds->is_wait_told) {
        log_info(node->options.log, "training begins with %u peers: waiting for %u more", wanted,
                 wanted - ready);
    }
    node->rounds->is_wait_told = true;
    return true;
}

uint32_t rounds_wait_for_more(const struct node *node)
{
    uint32_t ready = ready_to_start(node), wanted = node->options.start_with;

    if (node->state >= NODE_LEAVING || node->rounds->has_started || node->own_steps > 0) return 0;
    if (node->options.is_keeper) return 0;
    return ready < wanted ? wanted - ready : 0;
}

/* ---- what came of it ---- */

void rounds_begin_count(struct node *node)
{
    node->rounds->mixed_step = node->step;
}

/* Steps are counted in common, so that who joins can mix where the others do next: a whole period
 * later it would miss that round, and be behind when it comes to one. */
void rounds_join(struct node *node)
{
    uint64_t every = rounds_every(node);

    node->rounds->mixed_step = every > 0 ? node->step - node->step % every : node->step;
    adapt_join(node);
}

void rounds_tick(struct node *node)
{
    struct rounds *rounds = node->rounds;
    bool has_started;

    if (node->round == NULL) return;
    if (node->state == NODE_TRAINING) round_tick(node->round);
    has_started = round_has_started(node->round);
    if (has_started && !rounds->has_round_started) rounds->start_step = node->step;
    rounds->has_round_started = has_started;
    lead_tick(node);
}

void rounds_begin(struct node *node)
{
    const struct rounds *rounds = node->rounds;
    struct peer_id ids[LINKS_MAX + 1];

    if (node->round == NULL) return;
    if (rounds->inner->heard != NULL) rounds->inner->heard(node);
    adapt_turn(node);
    if (!round_may_begin(node->round) || !rounds->outer->due(node)) return;
    rounds->outer->begin(node, ids, mixing_members(node, ids));
}

void rounds_offer_again(struct node *node)
{
    const struct pace_ops *inner = node->rounds->inner;

    if (node->round == NULL || node->state != NODE_TRAINING || inner->again == NULL) return;
    if (inner->again(node)) rounds_begin(node);
}

uint64_t rounds_next_ns(const struct node *node)
{
    const struct rounds *rounds = node->rounds;
    uint64_t next = UINT64_MAX;

    if (node->round == NULL || node->state != NODE_TRAINING) return UINT64_MAX;
    if (rounds->inner->next_ns != NULL) next = rounds->inner->next_ns(node);
    if (rounds->outer->next_ns != NULL) next = node_earlier(next, rounds->outer->next_ns(node));
    next = node_earlier(next, lead_next_ns(node));
    return node_earlier(next, round_next_ns(node->round));
}

/* ---- life ---- */

static uint64_t line_rate(void *context, struct peer_id peer)
{
    return rounds_line_rate(context, peer);
}

static uint64_t answer_ns(void *context, struct peer_id peer)
{
    const struct node *node = context;

    return membership_answer_ns(node->membership, peer);
}

/* Answers have the shape [samples][rows of each][outputs], where they are distributions. */
static size_t outputs_of(const struct node *node)
{
    const struct tensor *answers = node->schema->tensors;

    return node->options.strategy->mixes_answers && answers->rank == 3 ? answers->shape[2] : 0;
}

static enum rc create_round(struct node *node)
{
    const struct round_options options = {.env = node->env,
                                          .links = node->links,
                                          .strategy = node->options.strategy,
                                          .log = node->options.log,
                                          .values = node->mixed,
                                          .parameters = node->options.strategy->tracks
                                                            ? node->values
                                                            : node->schema->shared_parameters,
                                          .model = node->schema->values[SECTION_MIXED],
                                          .outputs = outputs_of(node),
                                          .masks = node->rounds->masks,
                                          .moments = lane_moments_name(node),
                                          .self = node->self,
                                          .boot = node->options.boot,
                                          .schema = schema_digest(node->schema),
                                          .seed = rng_u64(&node->rng),
                                          .rate_max = node->options.bytes_per_s,
                                          .snapshot = lane_snapshot(node),
                                          .audit = node->options.audit,
                                          .keeps_last = node->options.verify > 0,
                                          .context = node,
                                          .on_change = node_continue,
                                          .on_score = scored,
                                          .standing = standing,
                                          .credit = door_chunk_credit,
                                          .line = line_rate,
                                          .answer_ns = answer_ns};

    if (!node->options.strategy->is_averaging) return RC_OK;
    node->round = round_create(&options);
    return node->round == NULL ? RC_NOMEM : RC_OK;
}

enum rc rounds_create(struct node *node)
{
    node->rounds = mem_alloc(sizeof *node->rounds);
    if (node->rounds == NULL) return RC_NOMEM;
    if (pace_create(node->rounds, node->options.strategy) != RC_OK) return RC_NOMEM;
    if (rounds_create_masks(node) != RC_OK) return RC_NOMEM;
    return create_round(node);
}

void rounds_destroy(struct node *node)
{
    round_destroy(node->round);
    if (node->rounds == NULL) return;
    pace_destroy(node->rounds);
    masks_destroy(node->rounds->masks);
    mem_free(node->rounds);
}
