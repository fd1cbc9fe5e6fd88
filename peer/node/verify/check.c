/*
 * Another's interval, taken again: see verify.h.
 *
 *  IDLE --drawn--> ASKING --all here--> READY --at a border--> REPEATING --> IDLE
 *   ^                |
 *   '--gone, busy, silent, or not what was claimed
 *
 * The draw is made when the claim is heard, so nobody knows before. What is shown has to hash to
 * what was claimed, or it is as good as another interval. Where a round came to something else
 * there nothing can be said: the owner of a part may have told each another result. Whoever has
 * nothing to show is asked again another time: a peer under load, or one that has restarted, may be
 * slow, and that is no offence.
 */
#include "peer/node/verify/internal.h"

#include "base/hash_wide.h"

static const double dearness_least = 0.25; /* it is measured, and no draw is certain by that */

void verify_check_end(struct verify *verify)
{
    mem_free(verify->check.agreed);
    mem_free(verify->check.bytes);
    verify->check = (struct verify_check){.is_on = false};
}

/* ---- who is drawn ---- */

static bool is_comparable(const struct verify *verify, const struct message_claim *claim)
{
    return verify->has_recipe && digest_is_equal(claim->recipe, verify->recipe);
}

/* Neighbours that can be checked by this peer. */
static uint32_t comparable(const struct node *node)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        const struct verify_heard *heard = &node->neighbours[i].verify;

        count += heard->has_claim && is_comparable(node->verify, &heard->claim);
    }
    return count;
}

static void ask(struct node *node)
{
    struct verify_check *check = &node->verify->check;
    const struct message message = {
        .type = MESSAGE_REVEAL_REQ,
        .as.reveal_req = {.number = check->from.number, .at = check->at}};

    check->until_ns = node_earlier(node_now(node) + VERIFY_ASK_NS, check->ends_ns);
    (void)links_send(node->links, check->peer, &message); /* its loss ends the check */
}

static bool begin(struct node *node, struct peer_id peer, const struct message_claim *from,
                  const struct message_claim *to)
{
    struct verify_check *check = &node->verify->check;
    const float *agreed = NULL;

    if (to->round > 0) {
        agreed = round_last_agreed(node->round, to->round);
        if (agreed == NULL) return false; /* this peer was not in it, or is past it */
        check->agreed = mem_aligned(node->mixed * sizeof(float));
        if (check->agreed == NULL) return false;
        memcpy(check->agreed, agreed, node->mixed * sizeof(float));
    }
    check->is_on = true;
    check->peer = peer;
    check->from = *from;
    check->to = *to;
    check->ends_ns = UINT64_MAX;
    ask(node);
    return true;
}

/* Whatever others claim, how many steps and however often, repeats take no more than twice their
 * share; `steps` more among them, as far as one can tell before. */
static bool has_time(const struct node *node, uint32_t steps)
{
    const struct verify *verify = node->verify;
    const double there_ns = (double)(node_now(node) - node->begun_ns);
    const double more_ns = verify->dearness * steps * (double)node->step_ns;

    return (double)verify->repeat_ns + more_ns <= 2 * node->options.verify * there_ns;
}

void verify_consider(struct node *node, struct neighbour *from, const struct message_claim *claim)
{
    struct verify *verify = node->verify;
    const struct message_claim *before = &from->verify.claim;
    const bool follows = from->verify.has_claim && claim->number == before->number + 1;
    double chance;

    if (node->state != NODE_TRAINING || verify->check.is_on || claim->steps == 0) return;
    if (!follows || claim->before > claim->steps) return;
    if (!is_comparable(verify, claim) || !is_comparable(verify, before)) return;
    if (node->goal.is_reached || !has_time(node, claim->steps)) return;
    chance = node->options.verify / (verify->dearness * comparable(node));
    if (rng_unit(&verify->rng) >= chance) return;
    if (!begin(node, from->id, before, claim)) verify->unclear++;
}

/* ---- what it shows ---- */

static void give_up(struct node *node, uint64_t *count)
{
    (*count)++;
    verify_check_end(node->verify);
}

/* Nothing is held against it, but whoever looks at the status sees it. */
static void not_shown(struct node *node, uint64_t *count)
{
    struct neighbour *neighbour = door_neighbour(node, node->verify->check.peer);

    if (neighbour != NULL) neighbour->verify.unshown++;
    give_up(node, count);
}

static void found_out(struct node *node, struct peer_id peer)
{
    char id[PEER_ID_TEXT];

    peer_id_format(peer, id);
    log_warn(node->options.log,
             "peer %.8s has not taken the steps that it claims: they lead elsewhere here", id);
    door_score(node, peer, SCORE_UNREPEATED);
}

/* False: no state of an honest peer is like this. */
static bool take_slice(struct node *node, const struct message_reveal *reveal)
{
    struct verify_check *check = &node->verify->check;
    uint32_t samples;

    if (reveal->bytes_bytes == 0) return false;
    if (check->at == 0) {
        if (reveal->bytes_bytes < VERIFY_HEAD ||
            !verify_head(node->schema, reveal->bytes, reveal->total, &samples)) {
            return false;
        }
        check->count = (size_t)reveal->total;
        check->ends_ns = node_now(node) + VERIFY_ASK_NS +
                         (check->count / REVEAL_BYTES_MAX + 1) * VERIFY_SLICE_NS;
        check->bytes = mem_alloc(check->count);
        if (check->bytes == NULL) return true; /* seen to by the caller */
    }
    if (reveal->total != check->count || reveal->bytes_bytes > check->count - check->at)
        return false;
    memcpy(check->bytes + check->at, reveal->bytes, reveal->bytes_bytes);
    check->at += reveal->bytes_bytes;
    return true;
}

void verify_on_reveal(struct node *node, struct peer_id from, const struct message_reveal *reveal)
{
    struct verify *verify = node->verify;
    struct verify_check *check = &verify->check;

    if (!check->is_on || check->is_ready || !peer_id_is_equal(check->peer, from)) return;
    if (reveal->number != check->from.number || reveal->at != check->at) return;
    if (reveal->code != REVEAL_HERE) {
        not_shown(node, &verify->refused);
    } else if (!take_slice(node, reveal)) {
        give_up(node, &verify->unlike);
        found_out(node, from);
    } else if (check->bytes == NULL) {
        give_up(node, &verify->unclear);
    } else if (check->at < check->count) {
        ask(node);
    } else {
        check->is_ready = true;
    }
}

/* ---- its steps ---- */

static bool is_due(struct node *node)
{
    return verify_is_on(node) && node->verify->check.is_ready;
}

static enum border_next prepare(struct node *node, struct border_job *job)
{
    struct verify_check *check = &node->verify->check;

    check->is_running = true;
    job->job.cost_ns = check->to.steps * node->options.step_cost_ns + 1;
    return BORDER_SUBMIT;
}

static void run(struct border_job *job)
{
    struct verify_check *check = &job->node->verify->check;
    struct repeat_way way = {
        .steps = check->to.steps, .before = check->to.before, .agreed = check->agreed};
    const size_t bytes = job->node->mixed * sizeof(float); /* of what came in */
    struct repeat_state from = {.recipe = check->from.recipe};

    check->rc = RC_STALE; /* the round came to something else there: its owner may have lied */
    if (check->agreed != NULL &&
        !digest_is_equal(hash_wide_of(check->agreed, bytes), check->to.agreed))
        return;
    verify_read(job->node->schema, check->bytes, &from, &way);
    check->rc = RC_AUTH; /* it is not the state that was claimed */
    if (!digest_is_equal(repeat_digest(&from), check->from.state)) return;
    check->rc = repeat_again(lane_learner(job->node), &from, &way, &check->end);
    if (check->rc == RC_OK && !digest_is_equal(check->end, check->to.state)) check->rc = RC_AUTH;
}

/* What a step of a repeat takes, beside one of training. */
static void measure(struct node *node, uint64_t took_ns)
{
    struct verify *verify = node->verify;
    const uint64_t own_ns = verify->check.to.steps * node->step_ns;

    verify->repeat_ns += took_ns;
    if (own_ns == 0) return;
    verify->dearness = (3 * verify->dearness + (double)took_ns / (double)own_ns) / 4;
    if (!(verify->dearness > dearness_least)) verify->dearness = dearness_least;
}

static void done(struct node *node, struct border_job *job)
{
    struct verify *verify = node->verify;
    const struct peer_id peer = verify->check.peer;
    struct neighbour *neighbour = door_neighbour(node, peer);
    const enum rc rc = verify->check.rc;

    measure(node, node_now(node) - job->begun_ns);
    if (rc == RC_OK) {
        if (neighbour != NULL) neighbour->verify.equal++;
        give_up(node, &verify->equal);
    } else if (rc == RC_AUTH || rc == RC_FORMAT || rc == RC_NONFINITE) {
        give_up(node, &verify->unlike);
        found_out(node, peer);
    } else { /* memory, files, or our own recipe has changed since: that says nothing of it */
        give_up(node, &verify->unclear);
    }
}

const struct border_work border_repeat = {.name = "repeat",
                                          .states = BORDER_TRAINING,
                                          .when = is_due,
                                          .prepare = prepare,
                                          .run = run,
                                          .done = done};

/* ---- on the loop ---- */

void verify_on_message(struct node *node, struct peer_id from, const struct message *message)
{
    struct neighbour *neighbour = door_neighbour(node, from);

    if (neighbour == NULL || !verify_is_on(node)) return;
    if (message->type == MESSAGE_CLAIM) {
        verify_consider(node, neighbour, &message->as.claim);
        neighbour->verify.claim = message->as.claim;
        neighbour->verify.has_claim = true;
    } else if (message->type == MESSAGE_REVEAL_REQ) {
        verify_on_reveal_req(node, from, &message->as.reveal_req);
    } else if (message->type == MESSAGE_REVEAL) {
        verify_on_reveal(node, from, &message->as.reveal);
    }
}

static bool is_waiting(const struct verify *verify)
{
    return verify->check.is_on && !verify->check.is_ready;
}

void verify_on_link_lost(struct node *node, struct peer_id peer)
{
    struct verify *verify = node->verify;

    if (verify == NULL) return;
    if (is_waiting(verify) && peer_id_is_equal(verify->check.peer, peer)) {
        not_shown(node, &verify->missed);
    }
    if (verify_is_showing(verify) && peer_id_is_equal(verify->showing.to, peer)) {
        verify_showing_end(verify);
    }
}

void verify_tick(struct node *node, uint64_t now_ns)
{
    struct verify *verify = node->verify;

    if (verify == NULL) return;
    if (is_waiting(verify) && now_ns >= verify->check.until_ns) not_shown(node, &verify->missed);
    if (verify_is_showing(verify) && now_ns >= verify->showing.until_ns) {
        verify_showing_end(verify);
    }
}

uint64_t verify_next_ns(const struct node *node)
{
    const struct verify *verify = node->verify;
    uint64_t next = UINT64_MAX;

    if (verify == NULL) return next;
    if (is_waiting(verify)) next = verify->check.until_ns;
    return verify_is_showing(verify) ? node_earlier(next, verify->showing.until_ns) : next;
}

struct verify_counts verify_counts(const struct node *node)
{
    const struct verify *verify = node->verify;
    uint32_t members;

    if (verify == NULL) return (struct verify_counts){.is_on = false};
    members = comparable(node);
    return (struct verify_counts){.is_on = true,
                                  .why_not = verify->why_not,
                                  .members = members,
                                  .others = node->neighbours_count - members,
                                  .equal = verify->equal,
                                  .unlike = verify->unlike,
                                  .refused = verify->refused,
                                  .missed = verify->missed,
                                  .unclear = verify->unclear,
                                  .repeat_s = (double)verify->repeat_ns / 1e9,
                                  .claim_s = (double)verify->take_ns / 1e9};
}
