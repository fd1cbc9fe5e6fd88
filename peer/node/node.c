/*
 * The node: makes its parts (internal.h) and says in which order they act. Every event ends in
 * node_continue(), the one place that sends what machines want sent, has dialled whom they want
 * dialled, gives the training lane its next job and sets the alarm.
 */
#include "peer/node/internal.h"

uint64_t node_now(const struct node *node)
{
    return node->env->ops->now_ns(node->env);
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
    lane_skip_last(node, false); /* what failed is not worth keeping; the previous one stays */
    node_leave(node, GOAWAY_FAILED);
}

void node_stop(struct node *node, int signal)
{
    if (node->state == NODE_LEAVING) lane_skip_last(node, true);
    if (node->state < NODE_LEAVING) node->result.signal = signal;
    node_leave(node, GOAWAY_LEAVING);
    node_continue(node);
}

/* Whatever others count on is done. */
static bool is_over(struct node *node)
{
    return !rounds_are_settling(node) && (node->round == NULL || round_jobs(node->round) == 0) &&
           !models_are_donated(node) && links_jobs(node->links) == 0;
}

static enum border_next end(struct node *node, struct border_job *job)
{
    (void)job;
    node->state = NODE_ENDED;
    node->result.is_goal_reached = node->goal.is_reached;
    watch_report(node); /* the last line of the metrics */
    node_report(node, &node->result.report);
    node->events.on_ended(node->events.context, &node->result);
    return BORDER_AGAIN;
}

static const struct border_work border_end = {
    .states = BORDER_LEAVING, .when = is_over, .prepare = end};

/* What may be done at a step border, most urgent first: what changes the model (a downloaded one, a
 * round's difference, the way back), what reads it, and then more steps. */
static const struct border_work *const works[] = {
    &border_nothing_left, &border_hash,     &border_rollback, &border_assign,      &border_copy,
    &border_score,        &border_apply,    &border_pull,     &border_first_shard, &border_goal,
    &border_reveal,       &border_snapshot, &border_donate,   &border_sketch,      &border_repeat,
    &border_keep,         &border_reshard,  &border_state,    &border_checkpoint,  &border_evaluate,
    &border_final,        &border_end,      &border_answer,   &border_steps};

/* ---- what every event ends in ---- */

static void send_outbox(struct node *node)
{
    for (uint32_t i = 0; i < node->outbox.count; i++) {
        (void)links_send_inner(node->links, node->outbox.entries[i].to,
                               node->outbox.entries[i].inner); /* closed links hear of it later */
    }
    outbox_clear(&node->outbox);
}

/* Never in the past: what is overdue is taken up by the next event, and waking for it without end
 * would starve the events it waits for. */
static void set_alarm(struct node *node)
{
    uint64_t soonest = node_now(node) + NODE_ALARM_NS;
    uint64_t next = door_next_ns(node);

    if (node->state < NODE_LEAVING) {
        next = node_earlier(next, models_next_ns(node));
        next = node_earlier(next, lane_next_ns(node));
        next = node_earlier(next, rounds_next_ns(node));
        next = node_earlier(next, verify_next_ns(node));
    }
    node->env->ops->wake_at(node->env, next < soonest ? soonest : next);
}

void node_continue(void *context)
{
    struct node *node = context;
    uint64_t now_ns = node_now(node);

    if (node->is_continuing || node->state == NODE_ENDED) return;
    node->is_continuing = true;
    if (!node->is_listening_told) {
        node->is_listening_told = true;
        node->events.on_listening(node->events.context, node_address(node));
    }
    door_tick(node, now_ns);
    if (node->state < NODE_LEAVING) models_tick(node, now_ns);
    rounds_tick(node);
    lane_tick(node, now_ns);
    verify_tick(node, now_ns);
    door_dial_due(node, now_ns);
    models_donate_all(node);
    lane_border(node, works, ARRAY_COUNT(works));
    rounds_offer_again(node);
    send_outbox(node);
    node->is_continuing = false;
    if (node->state != NODE_ENDED) set_alarm(node);
}

/* ---- life ---- */

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
    models_input_resume(node);
    rc = models_population_resume(node, why);
    if (rc != RC_OK) return rc;
    return rounds_resume(node, checkpoint, why);
}

static enum rc create_parts(struct node *node, struct learner *learner)
{
    enum rc rc = lane_create(node, learner);

    if (rc == RC_OK) rc = door_create(node);
    if (rc == RC_OK) rc = rounds_create(node);
    if (rc == RC_OK) rc = verify_create(node);
    if (rc == RC_OK) rc = models_create(node);
    return rc == RC_OK ? door_membership_create(node) : rc;
}

MUST_USE enum rc node_create(struct env *env, struct learner *learner,
                             const struct node_options *options, const struct node_events *events,
                             struct node **out, struct fault *why)
{
    struct node *node = mem_alloc(sizeof *node);
    enum rc rc;

    if (node == NULL) return fault_set(why, RC_NOMEM, "cannot start the peer: out of memory");
    node->env = env;
    node->options = *options;
    node->events = *events;
    node->self = identity_peer_id(options->identity->public_key);
    node->begun_ns = node_now(node);
    rng_init(&node->rng, options->seed, load_le64(node->self.bytes));
    outbox_init(&node->outbox);
    rc = door_listen(node, why);
    if (rc != RC_OK) goto failed;
    rc = create_parts(node, learner);
    if (rc != RC_OK) {
        fault_set(why, rc, "cannot start the peer: %s", lane_why(node, rc));
        goto failed;
    }
    rc = resume(node, why);
    if (rc != RC_OK) goto failed;
    watch_begin(node);
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
    rounds_destroy(node);
    verify_destroy(node);
    models_destroy(node);
    door_destroy(node);
    outbox_deinit(&node->outbox);
    lane_destroy(node);
    mem_free(node);
}

void node_meet(struct node *node, const char *address)
{
    if (node->state >= NODE_LEAVING || node->neighbours_count > 0) return;
    membership_add_bootstrap(node->membership, address);
    node_continue(node);
}

enum node_state node_state(const struct node *node)
{
    return node->state;
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
