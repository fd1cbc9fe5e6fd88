/*
 * The node: puts the pure machines (membership, exchange behind round, joiner, donor) and the env
 * together. Every event ends in node_continue(), the one place that sends what machines want sent,
 * dials whom they want dialled, gives the training lane its next job and sets the alarm.
 */
#include "peer/node/internal.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>

uint64_t node_now(const struct node *node)
{
    return node->env->ops->now_ns(node->env);
}

struct neighbour *node_neighbour(struct node *node, struct peer_id id)
{
    uint32_t key = load_le32(id.bytes);

    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        if (node->neighbour_keys[i] != key) continue;
        if (peer_id_is_equal(node->neighbours[i].id, id)) return &node->neighbours[i];
    }
    return NULL;
}

/* ---- the ends ---- */

void node_leave(struct node *node, uint32_t goaway_reason)
{
    struct message message = {.type = MESSAGE_GOAWAY};

    if (node->state >= NODE_LEAVING) return;
    if (node->round != NULL) round_cancel(node->round, "this peer is leaving");
    node->state = NODE_LEAVING;
    lane_stop(node);
    membership_farewell(node->membership, &node->outbox);
    message.as.goaway.reason = goaway_reason;
    links_send_all(node->links, &message);
}

void node_fail(struct node *node, enum rc rc, const char *text)
{
    if (node->state >= NODE_LEAVING) return;
    node->result.rc = rc;
    fault_set(&node->result.why, rc, "%s", text);
    lane_skip_checkpoint(node); /* what failed is not worth keeping; the previous one stays */
    node_leave(node, GOAWAY_FAILED);
}

void node_stop(struct node *node, int signal)
{
    if (node->state == NODE_LEAVING) {
        lane_skip_checkpoint(node);
        lane_skip_final(node);
    }
    if (node->state < NODE_LEAVING) node->result.signal = signal;
    node_leave(node, GOAWAY_LEAVING);
    node_continue(node);
}

/* Whatever others count on is done. */
static bool is_over(struct node *node)
{
    return !node_round_is_settling(node) && (node->round == NULL || round_jobs(node->round) == 0) &&
           !node_is_donating(node) && links_jobs(node->links) == 0;
}

static enum border_next end(struct node *node, struct border_job *job)
{
    (void)job;
    node->state = NODE_ENDED;
    node->result.is_goal_reached = node->is_goal_reached;
    node_count_report(node, node_now(node)); /* the last line of the metrics */
    node_report(node, &node->result.report);
    node->events.on_ended(node->events.context, &node->result);
    return BORDER_AGAIN;
}

static const struct border_work border_end = {
    .states = BORDER_LEAVING, .when = is_over, .prepare = end};

/* What may be done at a step border, most urgent first: what changes the model (a downloaded one, a
 * round's difference, the way back), what reads it, and then more steps. */
static const struct border_work *const works[] = {
    &border_nothing_left, &border_hash,       &border_rollback,    &border_assign,
    &border_apply,        &border_pull,       &border_first_share, &border_goal,
    &border_snapshot,     &border_donate,     &border_sketch,      &border_keep,
    &border_reshard,      &border_checkpoint, &border_evaluate,    &border_final,
    &border_end,          &border_steps};

/* ---- the env's events ---- */

static void env_accepted(void *context, uint64_t link, const char *remote)
{
    struct node *node = context;

    links_on_accepted(node->links, link, remote);
    node_continue(node);
}

static void env_connected(void *context, uint64_t link)
{
    struct node *node = context;

    links_on_connected(node->links, link);
    node_continue(node);
}

static void env_frame(void *context, uint64_t link, uint8_t *frame, size_t count)
{
    struct node *node = context;

    links_on_frame(node->links, link, frame, count);
    node_continue(node);
}

static void env_drain(void *context, uint64_t link)
{
    struct node *node = context;

    links_on_drain(node->links, link);
    node_continue(node);
}

static void env_lost(void *context, uint64_t link, enum rc rc, const char *why)
{
    struct node *node = context;

    links_on_lost(node->links, link, rc, why);
    node_continue(node);
}

static void env_wake(void *context)
{
    node_continue(context);
}

static void env_signal(void *context, int signal)
{
    struct node *node = context;

    if (signal == SIGHUP && node->events.on_reload != NULL) {
        node_reload(node);
    } else {
        node_stop(node, signal);
    }
}

/* ---- what every event ends in ---- */

static void send_outbox(struct node *node)
{
    for (uint32_t i = 0; i < node->outbox.count; i++) {
        (void)links_send_inner(node->links, node->outbox.entries[i].to,
                               node->outbox.entries[i].inner); /* closed links hear of it later */
    }
    outbox_clear(&node->outbox);
}

static void tick_all(struct node *node, uint64_t now_ns)
{
    node_door_tick(node, now_ns);
    if (node->state < NODE_LEAVING) node_model_tick(node, now_ns);
    if (node->round != NULL && node->state == NODE_TRAINING) round_tick(node->round);
    lane_watch_members(node, now_ns);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Never in the past: what is overdue is taken up by the next event, and waking for it without end
 * would starve the events it waits for. */
static void set_alarm(struct node *node)
{
    uint64_t soonest = node_now(node) + NODE_ALARM_NS;
    uint64_t next = node_door_next_ns(node);

    if (node->state < NODE_LEAVING) {
        next = earlier(next, node_model_next_ns(node));
        next = earlier(next, lane_next_ns(node));
        next = earlier(next, node_round_next_ns(node));
    }
    if (node->round != NULL && node->state == NODE_TRAINING) {
        next = earlier(next, round_next_ns(node->round));
    }
    node->env->ops->wake_at(node->env, next < soonest ? soonest : next);
}

void node_continue(struct node *node)
{
    uint64_t now_ns = node_now(node);

    if (node->is_continuing || node->state == NODE_ENDED) return;
    node->is_continuing = true;
    if (!node->is_listening_told) {
        node->is_listening_told = true;
        node->events.on_listening(node->events.context, node->address);
    }
    node_relay_deliver(node);
    tick_all(node, now_ns);
    node_dial_due(node, now_ns);
    node_donate_all(node);
    lane_border(node, works, ARRAY_COUNT(works));
    node_offer_again(node);
    send_outbox(node);
    node->is_continuing = false;
    if (node->state != NODE_ENDED) set_alarm(node);
}

static void round_changed(void *context)
{
    node_continue(context);
}

/* ---- life ---- */

/* Two planes for rounds, as many for a download, and some slack for small planes. */
static size_t bulk_records_max(const struct node *node)
{
    return 4 * (node->mixed / CHUNK_VALUES + 1) + 64;
}

static void fill_hello(const struct node *node, struct digest schema, struct hello *hello)
{
    memcpy(hello->public_key, node->options.identity->public_key, sizeof hello->public_key);
    hello->boot = node->options.boot;
    hello->incarnation = node->options.incarnation;
    hello->role = HELLO_PEER;
    hello->listen_port = node_reach_port(node);
    hello->certificate_bytes = (uint32_t)node->options.certificate_bytes;
    CHECK(hello->certificate_bytes <= sizeof hello->certificate);
    if (hello->certificate_bytes > 0) {
        memcpy(hello->certificate, node->options.certificate, hello->certificate_bytes);
    }
    hello->schema = schema;
    memcpy(hello->spec, node->options.spec, sizeof hello->spec);
    strategy_method(node->options.strategy, node_moments_name(node), hello->method,
                    sizeof hello->method);
}

static enum rc create_parts(struct node *node, struct env *env)
{
    struct links_events events = node_links_events(node);
    struct links_options links = {.env = env,
                                  .identity = node->options.identity,
                                  .swarm = node->options.swarm,
                                  .log = node->options.log,
                                  .quick_bytes = node->options.quick_bytes,
                                  .is_clear = node->options.is_clear,
                                  .bulk_records_max = bulk_records_max(node),
                                  .verified = node->options.verified};
    struct round_options round = {.env = node->env,
                                  .strategy = node->options.strategy,
                                  .log = node->options.log,
                                  .values = node->mixed,
                                  .parameters = node->values,
                                  .model = node->schema->values[SECTION_MIXED],
                                  .moments = node_moments_name(node),
                                  .self = node->self,
                                  .boot = node->options.boot,
                                  .run_id = node->options.swarm->run_id,
                                  .schema = schema_digest(node->schema),
                                  .seed = rng_u64(&node->rng),
                                  .rate_max = node->options.bytes_per_s,
                                  .audit = node->options.audit,
                                  .context = node,
                                  .on_change = round_changed,
                                  .on_score = node_round_scored,
                                  .standing = node_standing,
                                  .credit = node_chunk_credit,
                                  .line = node_round_line,
                                  .answer_ns = node_round_answer};

    enum rc rc = lane_create(node);

    if (rc != RC_OK) return rc;
    fill_hello(node, round.schema, &links.hello);
    node->links = links_create(&links, &events);
    node->trust = trust_create();
    if (node->links == NULL || node->trust == NULL) return RC_NOMEM;
    if (pace_create(node) != RC_OK || node_model_create(node) != RC_OK) return RC_NOMEM;
    if (!node->options.strategy->is_averaging) return RC_OK;
    round.snapshot = lane_snapshot(node);
    round.links = node->links;
    node->round = round_create(&round);
    return node->round == NULL ? RC_NOMEM : RC_OK;
}

/* "0.0.0.0:7077" is where we listen, not where others find us. */
void node_own_address(const struct node *node, char address[ADDRESS_BYTES_MAX])
{
    const char *bound = node->address;
    bool is_wildcard = strncmp(bound, "0.0.0.0:", 8) == 0 || strncmp(bound, "[::]:", 5) == 0;
    const char *port = strrchr(bound, ':');

    if (node->options.advertise != NULL) {
        snprintf(address, ADDRESS_BYTES_MAX, "%s", node->options.advertise);
    } else if (is_wildcard && node->options.host != NULL && port != NULL) {
        snprintf(address, ADDRESS_BYTES_MAX, "%s%s", node->options.host, port);
    } else {
        snprintf(address, ADDRESS_BYTES_MAX, "%s", bound);
    }
}

static enum rc resume(struct node *node, struct fault *why)
{
    const struct checkpoint *checkpoint = node->options.resume;
    enum rc rc;

    if (checkpoint == NULL) return RC_OK;
    rc = lane_resume(node, checkpoint, why);
    if (rc != RC_OK) return rc;
    node->lineage = checkpoint->lineage;
    node->has_lineage = true;
    node->model_samples = checkpoint->model_samples;
    node->once_steps = checkpoint->once_steps;
    node->mixed_step = node->step;
    return node->round == NULL ? RC_OK : node_round_resume(node, checkpoint, why);
}

static void take_options(struct node *node, struct env *env, struct learner *learner,
                         const struct node_options *options, const struct node_events *events)
{
    node->env = env;
    node->learner = learner;
    node->options = *options;
    node->events = *events;
    node->schema = learner->ops->schema(learner);
    node->values = node->schema->values[SECTION_PARAMETERS];
    node->mixed = node_mixed_values(node);
    node->self = identity_peer_id(options->identity->public_key);
    node->begun_ns = node->report_ns = node_now(node);
    node->report_due_ns = node->begun_ns + options->report_every_ns;
    node->loss = node->accuracy = (double)NAN;
    rng_init(&node->rng, options->seed, load_le64(node->self.bytes));
    outbox_init(&node->outbox);
}

MUST_USE enum rc node_create(struct env *env, struct learner *learner,
                             const struct node_options *options, const struct node_events *events,
                             struct node **out, struct fault *why)
{
    struct env_events env_events = {.on_accepted = env_accepted,
                                    .on_connected = env_connected,
                                    .on_frame = env_frame,
                                    .on_drain = env_drain,
                                    .on_lost = env_lost,
                                    .on_wake = env_wake,
                                    .on_signal = env_signal};
    struct node *node = mem_alloc(sizeof *node);
    enum rc rc;

    if (node == NULL) return fault_set(why, RC_NOMEM, "cannot start the peer: out of memory");
    take_options(node, env, learner, options, events);
    env_events.context = node;
    env->ops->set_events(env, &env_events);
    rc = env->ops->listen(env, options->listen, node->address, sizeof node->address, why);
    if (rc != RC_OK) goto failed;
    rc = node_door_create(node, &env_events, &env);
    if (rc == RC_OK) rc = create_parts(node, env);
    if (rc == RC_OK) rc = node_membership_create(node);
    if (rc != RC_OK) {
        fault_set(why, rc, "cannot start the peer: %s", lane_why(node, rc));
        goto failed;
    }
    rc = resume(node, why);
    if (rc != RC_OK) goto failed;
    env->ops->wake_at(env, 0);
    *out = node;
    return RC_OK;
failed:
    node_destroy(node);
    return rc;
}

void node_destroy(struct node *node)
{
    if (node == NULL) return;
    round_destroy(node->round);
    pace_destroy(node);
    node_model_destroy(node);
    trust_destroy(node->trust);
    membership_destroy(node->membership);
    links_destroy(node->links);
    node_door_destroy(node);
    outbox_deinit(&node->outbox);
    lane_destroy(node);
    mem_free(node);
}

enum node_state node_state(const struct node *node)
{
    return node->state;
}

const char *node_address(const struct node *node)
{
    return node->address;
}

struct peer_id node_id(const struct node *node)
{
    return node->self;
}

struct digest node_lineage(const struct node *node)
{
    return node->lineage;
}

uint64_t node_step(const struct node *node)
{
    return node->step;
}

size_t node_neighbours(const struct node *node)
{
    return node->neighbours_count;
}
