/*
 * How a model gets here, and whether it is taken: choice.c says whose, peer/download/joiner.h
 * fetches it, check.c asks others about it, and here it is begun, refused or tried again. And what
 * members are told of ours. Loop thread only.
 */
#include "peer/node/models/internal.h"

#include "peer/times.h"

#include <stdio.h>

enum { CATCH_UPS_MAX = 4, REQUESTS_A_MINUTE = 30, VISITS_A_MINUTE = 12 };

/* At a cold start the models of all are as good; but who has tried to get one is no member yet, nor
 * a donor, while it waits to try again. */
static bool is_serving(const struct node *node)
{
    if (node->state == NODE_JOINING && node->models->retry_ns != 0) return false;
    if (node->options.is_keeper && node->model_samples == 0)
        return false; /* it has yet to get one */
    return node->has_lineage && (node->state == NODE_TRAINING || node->state == NODE_JOINING) &&
           !lane_is_broken(node);
}

void models_tell(struct node *node, const struct peer_id *to)
{
    struct message message = {.type = MESSAGE_PROGRESS};

    message.as.progress.lineage = node->lineage;
    message.as.progress.samples = node->model_samples;
    message.as.progress.step = node->step;
    message.as.progress.is_serving = is_serving(node);
    rounds_fill_progress(node, &message.as.progress);
    if (models_are_last(node)) message.as.progress.is_settled = true;
    message.as.progress.left_ms = lane_left_ms(node);
    models_input_fill(node, &message.as.progress);
    if (to != NULL) {
        models_population_tell(node, to);
        rounds_tell_period(node, to);
    }
    if (to != NULL) {
        (void)links_send(node->links, *to, &message); /* a closed link hears it when it opens */
    } else {
        links_send_all(node->links, &message);
    }
}

static size_t find_donors(struct node *node, const struct models_wanted *wanted,
                          struct peer_id *donors)
{
    size_t count = 0;

    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        const struct neighbour *other = &node->neighbours[i];

        if (models_gives_wanted(node, other, wanted)) donors[count++] = other->id;
    }
    for (size_t i = count; i > 1; i--) { /* joiners at the same time should not all ask the first */
        size_t j = (size_t)rng_below(&node->rng, i);
        struct peer_id held = donors[i - 1];

        donors[i - 1] = donors[j];
        donors[j] = held;
    }
    return count;
}

/* A large model comes faster from several, and for that they must be asked at the same time. And
 * who keeps the model may be met before those who train it, and have come farther. */
static bool is_gathering(struct node *node, const struct peer_id *ids, size_t donors)
{
    const bool is_kept = door_neighbour(node, ids[0])->is_keeper;
    size_t width = is_kept ? donors + 1 : joiner_width(node->models->joiner);
    uint64_t now_ns = node_now(node);

    if (width == 1 || donors >= width) return false;
    if (donors >= membership_count(node->membership)) return false; /* there are no more */
    if (node->models->gather_ns == 0) node->models->gather_ns = now_ns;
    return now_ns < node->models->gather_ns + MODELS_GATHER_NS;
}

static void begin_loading(struct node *node, const struct models_wanted *wanted)
{
    bool is_same = digest_is_equal(wanted->lineage, node->lineage);
    struct peer_id donors[LINKS_MAX];
    size_t count = find_donors(node, wanted, donors);
    enum rc rc;

    if (count == 0 || is_gathering(node, donors, count)) return;
    node->models->gather_ns = 0;
    rc = joiner_begin(node->models->joiner, donors, count, wanted->lineage,
                      joiner_is_wide(node->models->joiner) ? models_round_now(node, wanted->lineage)
                                                           : 0,
                      node_now(node), &node->outbox);
    if (rc != RC_OK) {
        log_warn(node->options.log, "cannot download the model: %s", rc_text(rc));
        node->models->retry_ns = node_now(node) + NODE_RETRY_NS;
        return;
    }
    if (node->options.is_keeper && is_same) {
        log_debug(node->options.log, "the swarm has gone on: fetching its model");
    } else if (node->options.strategy->mixes_answers) {
        log_info(node->options.log, "the swarm is ahead of this peer: taking its answers and step, "
                                    "with a model of its own");
    } else if ((node->state == NODE_TRAINING && !models_are_open(node)) ||
               node->model_samples > 0) {
        log_warn(node->options.log, "%s: downloading it",
                 is_same ? "the swarm's model is many steps ahead of this peer's"
                         : "the neighbours train another model, which comes before this peer's");
    }
    if (node->state == NODE_TRAINING && node->round != NULL) {
        round_cancel(node->round, "another model is being taken");
    }
    node->models->gave_way = node->state == NODE_TRAINING && !models_are_open(node);
    node->models->wanted = *wanted;
    models_follow(node);
    node->models->check.lease = 0; /* a new listing comes */
    node->models->told_ns = node_now(node);
    node->models->told_bytes = 0;
    node->models->catch_up_ns = 0;
    node->models->catch_ups = 0;
    node->state = NODE_LOADING;
    models_tell(node, NULL);
}

static void start_training(struct node *node)
{
    node->state = NODE_TRAINING;
    rounds_begin_count(node);
    lane_put_off_checkpoint(node);
    models_tell(node, NULL);
}

/* Nothing of ours is worth training on while somebody has a model we failed to get a moment ago. */
static bool is_waiting_for_a_model(const struct node *node)
{
    for (uint32_t i = 0; i < node->neighbours_count && node->model_samples == 0; i++) {
        if (node_now(node) < node->neighbours[i].avoid_ns) return true;
    }
    return false;
}

/* By what a rule's planes are known: those of means with moments hold the moments, too. */
static struct digest rule_digest(const struct node *node)
{
    const char *rule = node->options.strategy->rule->name, *moments = lane_moments_name(node);
    char text[96];
    int length = snprintf(text, sizeof text, "%s%s%s", rule, moments == NULL ? "" : ";",
                          moments == NULL ? "" : moments);

    CHECK(length > 0 && (size_t)length < sizeof text);
    return hash_of(text, (size_t)length);
}

/* What a download asks for, and how much of it at a time. */
static void prepare(struct node *node)
{
    const struct strategy *strategy = node->options.strategy;
    struct joiner_options *joiner = joiner_options(node->models->joiner);
    struct digest rule = rule_digest(node);
    const char *optimizer = lane_optimizer(node);

    if (optimizer != NULL) joiner->moments = hash_of(optimizer, strlen(optimizer));
    joiner->rule = rule;
    joiner->rule_values = node->mixed;
    joiner->mixes = !rounds_are_common(node);
    joiner->credit = door_bucket_credit;
    joiner->context = node;
    joiner->want = strategy->rule->is_outer ? 31 : 7; /* all of it */
    if (node->schema->values[SECTION_INPUT] > 0) joiner->want |= 32;
    donor_set_methods(node->models->donor, joiner->moments, rule);
}

enum rc models_create(struct node *node)
{
    struct models *model = node->models = mem_alloc(sizeof *model);
    const struct digest run_id = node->options.swarm->run_id;
    enum rc rc;

    if (model == NULL) return RC_NOMEM;
    model->answered_ns = node->begun_ns;
    model->joiner = joiner_create(node->schema, run_id, rng_u64(&node->rng));
    model->donor = donor_create(node->schema, node->options.identity, run_id);
    if (model->joiner == NULL || model->donor == NULL) return RC_NOMEM;
    prepare(node);
    rc = models_population_create(node);
    return rc == RC_OK ? models_input_create(node) : rc;
}

void models_destroy(struct node *node)
{
    if (node->models == NULL) return;
    models_donation_deinit(node);
    models_input_destroy(node);
    joiner_destroy(node->models->joiner);
    donor_destroy(node->models->donor);
    mem_free(node->models);
}

void models_on_link_lost(struct node *node, struct peer_id peer)
{
    models_said_changed(node);
    models_input_forget(node, peer);
    joiner_on_link_lost(node->models->joiner, peer, node_now(node), &node->outbox);
    donor_on_link_lost(node->models->donor, peer, node_now(node));
}

struct credit_use models_credit_use(const struct node *node)
{
    return joiner_stats(node->models->joiner).use;
}

void models_decide(struct node *node)
{
    struct models_wanted wanted;
    enum models_chosen chosen;

    if (!node->has_lineage || lane_is_broken(node)) return;
    if (node->state != NODE_JOINING && node->state != NODE_TRAINING) return;
    chosen = models_choose(node, &wanted);
    if (chosen == CHOSEN_OTHER && node_now(node) >= node->models->retry_ns)
        begin_loading(node, &wanted);
    if (chosen != CHOSEN_OURS) return;
    if (node->state == NODE_TRAINING || is_waiting_for_a_model(node)) return;
    if (models_heard(node) > 0 || (node->neighbours_count == 0 && door_has_no_bootstrap(node) &&
                                   node->options.book_count == 0)) {
        start_training(node);
    }
}

/* What it is known by is what it is at first. */
static bool lacks_lineage(struct node *node)
{
    return !node->has_lineage || models_input_is_due(node);
}

/* Of initial models the smallest lineage wins: one that nobody else began with comes behind those
 * that all native peers of a run begin with. */
enum { UNLIKE_BYTES = 4 };

static enum border_next prepare_hash(struct node *node, struct border_job *job)
{
    (void)job;
    models_input_prepare(node);
    return BORDER_SUBMIT;
}

static void run_hash(struct border_job *job)
{
    struct node *node = job->node;
    float *plane;

    job->digest = node->models->input.parameters;
    if (!node->models->input.has_parameters) {
        plane = mem_aligned(node->values * sizeof(float));
        job->rc = plane == NULL ? RC_NOMEM : lane_export(node, SECTION_PARAMETERS, plane);
        if (job->rc == RC_OK) job->digest = hash_of(plane, node->values * sizeof(float));
        mem_free(plane);
    }
    if (job->rc == RC_OK) job->rc = models_input_run(node, &job->digest);
}

static void hashed(struct node *node, struct border_job *job)
{
    if (job->rc != RC_OK) {
        node_fail(node, job->rc, "cannot read the initial model");
        return;
    }
    node->lineage = job->digest;
    if (node->options.begins_unlike) memset(node->lineage.bytes, 0xff, UNLIKE_BYTES);
    node->has_lineage = true;
    lane_keep(node);
    if (node->round != NULL) round_set_lineage(node->round, node->lineage);
    models_tell(node, NULL);
    models_decide(node);
}

const struct border_work border_hash = {.name = "hash",
                                        .states = BORDER_ALIVE,
                                        .when = lacks_lineage,
                                        .prepare = prepare_hash,
                                        .run = run_hash,
                                        .done = hashed};

/* Others have been met since, and what they say speaks against what is on its way. */
static void reconsider(struct node *node)
{
    if (node->state != NODE_LOADING || lane_is_busy(node) || !models_chose_wrong(node)) return;
    log_info(node->options.log, "%s",
             node->model_samples > 0
                 ? "the download ends: by what the neighbours say, this peer keeps its own model"
                 : "more neighbours hold another model than the one being downloaded: "
                   "downloading theirs");
    joiner_finish(node->models->joiner, &node->outbox);
    if (node->models->gave_way) {
        start_training(node);
    } else {
        node->state = NODE_JOINING;
    }
}

/* Nobody has been there for so long: say what was tried, or go on alone where that makes sense. */
static void join_timed_out(struct node *node)
{
    char text[480] = "no peer of --bootstrap could be reached";

    if (node->model_samples > 0 || door_is_bootstrap(node)) {
        log_warn(node->options.log,
                 "no other peer has answered: this peer %s alone, and goes on trying to reach them",
                 node->options.is_keeper ? "keeps the model" : "trains");
        start_training(node);
        return;
    }
    door_tell_tried(node, text, sizeof text);
    node_fail(node, RC_TIMEOUT, text);
}

static void joiner_moved(struct node *node)
{
    uint64_t now_ns = node_now(node);

    if (models_population_moved(node)) return;
    if (node->state != NODE_LOADING || joiner_state(node->models->joiner) != JOINER_FAILED) return;
    log_warn(node->options.log, "the download failed with every donor: trying again");
    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        struct neighbour *other = &node->neighbours[i];

        if (digest_is_equal(other->progress.lineage, node->models->wanted.lineage)) {
            other->avoid_ns = now_ns + NODE_AVOID_NS;
        }
    }
    models_said_changed(node);
    /* Who only boasts of a model costs us less and less training; and where others have yet to
     * begin, too, ours is as good. */
    if (node->models->gave_way || models_input_doubts(node)) {
        models_put_off(node);
    } else {
        node->models->retry_ns = now_ns + NODE_RETRY_NS;
        node->state = NODE_JOINING;
        models_tell(node, NULL);
    }
}

void models_put_off(struct node *node)
{
    node->models->retry_ns = node_now(node) + (NODE_RETRY_NS << node->models->load_failures);
    node->models->load_failures += node->models->load_failures < NODE_DOUBLINGS_MAX;
    joiner_finish(node->models->joiner, &node->outbox);
    start_training(node);
}

/* ---- is what came what we want? ---- */

/* The rest of the swarm went on meanwhile: fetch what changed, as long as that gets shorter. */
static bool catches_up(struct node *node, uint64_t now_ns)
{
    uint64_t took_ns = now_ns - joiner_stats(node->models->joiner).manifest_ns;

    if (node->options.is_keeper) return false; /* it will not train on it */
    if (took_ns < MODELS_CATCH_UP_NS || node->models->catch_ups == CATCH_UPS_MAX) return false;
    if (node->models->catch_up_ns != 0 && took_ns > node->models->catch_up_ns / 2) return false;
    node->models->catch_up_ns = took_ns;
    node->models->catch_ups++;
    if (joiner_catch_up(node->models->joiner, now_ns, &node->outbox) != RC_OK) return false;
    log_info(node->options.log,
             "the download took %.0f s, in which the swarm went on: fetching what changed",
             (double)took_ns / 1e9);
    return true;
}

bool models_is_ready(struct node *node)
{
    if (joiner_state(node->models->joiner) != JOINER_COMPLETE) return false;
    if (models_population_copies(node)) return false;
    if (node->state == NODE_LOADING && catches_up(node, node_now(node))) return false;
    return !models_check_is_pending(node);
}

void models_refuse(struct node *node, bool is_lie)
{
    if (is_lie)
        door_score(node, node->models->taking.check.donor, SCORE_CLIPPED); /* a guess, so no ban */
    joiner_refuse(node->models->joiner, node_now(node), &node->outbox);
    joiner_moved(node);
}

/* ---- messages ---- */

/* Refusals are told and, where only a broken or hostile program can be the cause, counted. */
static void refused(struct node *node, struct peer_id from, enum message_type type, enum rc rc)
{
    char id[PEER_ID_TEXT];

    peer_id_format(from, id);
    log_debug(node->options.log, "%s of peer %.8s refused: %s", message_type_name(type), id,
              rc_text(rc));
    if (rc == RC_NONFINITE) door_score(node, from, SCORE_NOT_FINITE);
    if (rc == RC_AUTH || rc == RC_FORMAT || rc == RC_LIMIT) door_score(node, from, SCORE_BROKE);
}

/* Each request costs a signature, and may cost a snapshot. */
static bool may_ask(struct node *node, struct peer_id from)
{
    return door_ration(&door_neighbour(node, from)->requests, node_now(node), MODELS_REQUESTS_NS,
                       REQUESTS_A_MINUTE);
}

static void deny(struct node *node, struct peer_id to, enum reject_code code)
{
    struct message message = {.type = MESSAGE_STATE_DENY};

    message.as.state_deny.code = code;
    message.as.state_deny.retry_ms = MODELS_ASK_AGAIN_MS;
    (void)links_send(node->links, to, &message); /* who is gone asks no more */
}

static enum rc on_request(struct node *node, struct peer_id from,
                          const struct message_state_req *request)
{
    if (is_serving(node) && may_ask(node, from)) {
        return donor_on_request(node->models->donor, from, request, node_now(node), &node->outbox);
    }
    deny(node, from, REJECT_NOT_READY);
    return RC_OK;
}

/* Whoever could join would have the model, but for what a method keeps at home: the model behind
 * answers, the layers behind a shared trunk. */
static bool gives_models(const struct node *node, struct peer_id to)
{
    struct link_view link;

    return node->options.serves_models && !node->options.strategy->mixes_answers &&
           lane_shares_all(node) && links_peer(node->links, to, &link) &&
           door_may_join(node, link.remote);
}

static enum rc on_visit(struct node *node, struct peer_id from,
                        const struct message_state_req *request)
{
    struct models *models = node->models;
    enum rc rc = RC_OK;

    if (!gives_models(node, from)) {
        deny(node, from, REJECT_CLOSED);
    } else if (!is_serving(node)) {
        deny(node, from, REJECT_NOT_READY);
    } else if (!door_ration(&models->visits, node_now(node), MODELS_REQUESTS_NS, VISITS_A_MINUTE)) {
        deny(node, from, REJECT_BUSY);
    } else {
        rc = donor_on_visit(models->donor, from, request, node_now(node), &node->outbox);
        if (rc == RC_BUSY) models->visits.used--; /* it had nothing signed, or copied */
    }
    return rc;
}

void models_on_visit(struct node *node, struct peer_id from, const struct message *message)
{
    enum rc rc;

    switch (message->type) {
    case MESSAGE_STATE_REQ:
        rc = on_visit(node, from, &message->as.state_req);
        if (rc != RC_OK) refused(node, from, message->type, rc);
        break;
    case MESSAGE_MANIFEST_REQ:
    case MESSAGE_BUCKET_REQ:
    case MESSAGE_STATE_DONE:
        models_on_message(node, from, message);
        break;
    default:
        log_debug(node->options.log, "%s from an observer dropped",
                  message_type_name(message->type));
    }
}

void models_on_message(struct node *node, struct peer_id from, const struct message *message)
{
    uint64_t now_ns = node_now(node);
    enum rc rc = RC_OK;

    switch (message->type) {
    case MESSAGE_STATE_REQ:
        rc = on_request(node, from, &message->as.state_req);
        break;
    case MESSAGE_MANIFEST_REQ:
    case MESSAGE_BUCKET_REQ:
    case MESSAGE_STATE_DONE:
        rc = donor_on_message(node->models->donor, from, message, now_ns, &node->outbox);
        models_donate(node, from);
        break;
    case MESSAGE_SKETCH_REQ:
        models_on_sketch_req(node, from, &message->as.sketch_req);
        break;
    case MESSAGE_SCORE:
        models_population_hear(node, from, &message->as.score);
        break;
    case MESSAGE_SKETCH:
        models_on_sketch(node, from, &message->as.sketch);
        break;
    default:
        rc = joiner_on_message(node->models->joiner, from, message, now_ns, &node->outbox);
        joiner_moved(node);
        break;
    }
    if (rc != RC_OK) refused(node, from, message->type, rc);
}

void models_on_bucket(struct node *node, struct peer_id from, const struct inner_header *header,
                      const uint8_t *body, size_t count)
{
    enum rc rc = header->offset != 0
                     ? RC_FORMAT
                     : joiner_on_bucket(node->models->joiner, from, header->stream, header->arg,
                                        body, count, node_now(node), &node->outbox);

    if (rc == RC_AUTH || rc == RC_NONFINITE) {
        log_warn(node->options.log, "a downloaded bucket is bad (%s): another donor is asked",
                 rc_text(rc));
    }
    if (rc == RC_STALE) door_stray(node, from, count);
    if (rc != RC_OK) refused(node, from, MESSAGE_DATA, rc);
    joiner_moved(node);
}

void models_tick(struct node *node, uint64_t now_ns)
{
    joiner_tick(node->models->joiner, now_ns, &node->outbox);
    joiner_moved(node);
    reconsider(node);
    models_check_tick(node, now_ns);
    models_input_tick(node, now_ns);
    donor_tick(node->models->donor, now_ns);
    if (now_ns >= node->models->progress_due_ns) {
        node->models->progress_due_ns = now_ns + NODE_PROGRESS_NS;
        models_tell(node, NULL);
    }
    if (node->state == NODE_LOADING || models_heard(node) > 0) node->models->answered_ns = now_ns;
    if (node->state == NODE_JOINING && node->has_lineage && models_heard(node) == 0 &&
        now_ns >= node->models->answered_ns + node->options.join_timeout_ns) {
        join_timed_out(node);
    }
    models_decide(node);
    models_population_tick(node);
}

uint64_t models_next_ns(const struct node *node)
{
    uint64_t next = node->models->progress_due_ns;
    uint64_t join_ns = node->models->answered_ns + node->options.join_timeout_ns;

    next = node_earlier(next, joiner_next_ns(node->models->joiner));
    next = node_earlier(next, donor_next_ns(node->models->donor));
    next = node_earlier(next, models_check_next_ns(node));
    next = node_earlier(next, models_choice_next_ns(node));
    if (node->models->gather_ns != 0) {
        next = node_earlier(next, node->models->gather_ns + MODELS_GATHER_NS);
    }
    if (node->state != NODE_JOINING || models_heard(node) > 0) return next;
    return node_earlier(next, join_ns);
}
