/*
 * One job at each step border: chosen from the table of works, submitted, and done with. Loop
 * thread, but for run().
 */
#include "peer/node/lane/internal.h"

static void run(struct job *base)
{
    struct border_job *job = (struct border_job *)base;
    const struct border_work *work = job->work;
    struct node *node = job->node;
    bool is_difference = work->change == AUDIT_DIFFERENCE;

    audit_enter(node->options.audit, node->lane->learner, work->kind == BORDER_CHECKPOINT);
    work->run(job);
    audit_leave(node->options.audit, node->lane->learner, work->change,
                is_difference ? round_difference(node->round) : NULL);
}

static void done(struct job *base)
{
    struct border_job *job = (struct border_job *)base;
    struct node *node = job->node;

    node->lane->is_busy = false;
    rounds_busy_end(node, job->work->kind, node_now(node) - job->begun_ns);
    if (job->work->change == AUDIT_ANYTHING && job->work->kind != BORDER_STEPS) verify_void(node);
    job->work->done(node, job);
    node_continue(node);
}

/* ---- what the lane waits for ---- */

/* From here on for `what`, a literal; NULL: for nothing. */
static void trace_wait(struct node *node, const char *what)
{
    struct lane_state *lane = node->lane;
    const struct tracer *tracer = node->env->tracer;

    if (tracer == NULL || lane->waits_for == what) return;
    if (lane->waits_for != NULL) {
        trace_span(tracer, TRACE_LOOP, TRACE_LANES + LANE_TRAINING,
                   &(struct trace_span){.name = "wait",
                                        .detail = lane->waits_for,
                                        .begin_ns = lane->waits_ns,
                                        .end_ns = node_now(node),
                                        .round = tracer->round});
    }
    lane->waits_for = what;
    lane->waits_ns = node_now(node);
}

static void trace_idle(struct node *node)
{
    const char *what = "the end";

    if (node->env->tracer == NULL) return;
    if (node->state < NODE_TRAINING) {
        what = "a model";
    } else if (node->state == NODE_TRAINING && !node->goal.is_reached) {
        what = rounds_wait_for_peers(node) ? "peers"
               : rounds_is_ahead(node)     ? "a slower peer"
                                           : "a round";
        if (node_now(node) < node->lane->paced_ns) what = "--step-time";
    }
    trace_wait(node, what);
}

/* ---- the next job ---- */

static enum border_next prepare(struct node *node, const struct border_work *work)
{
    struct border_job *job = &node->lane->job;

    *job = (struct border_job){
        .job = {.run = run, .done = done, .cost_ns = node->values + 1, .name = work->name},
        .node = node,
        .work = work,
        .begun_ns = node_now(node)};
    return work->prepare == NULL ? BORDER_SUBMIT : work->prepare(node, job);
}

/* False: there is nothing to be done before something else happens. */
static bool choose(struct node *node, const struct border_work *const *works, size_t count)
{
    enum node_state state = node->state;

    for (size_t i = 0; i < count; i++) {
        enum border_next next;

        if ((works[i]->states & 1u << state) == 0 || !works[i]->when(node)) continue;
        next = prepare(node, works[i]);
        if (next == BORDER_ON && node->state == state) continue;
        if (next != BORDER_SUBMIT) return true;
        node->lane->is_busy = true;
        trace_wait(node, NULL);
        rounds_busy_begin(node, works[i]->kind);
        node->env->ops->submit(node->env, LANE_TRAINING, &node->lane->job.job);
        return true;
    }
    return false;
}

bool lane_is_busy(const struct node *node)
{
    return node->lane->is_busy;
}

void lane_stop(struct node *node)
{
    atomic_store(&node->lane->must_stop, true);
}

uint64_t lane_next_ns(const struct node *node)
{
    uint64_t report_ns = lane_report_next_ns(node), paced_ns = node->lane->paced_ns;
    const uint64_t answer_ns = lane_answer_next_ns(node);

    if (answer_ns < report_ns) report_ns = answer_ns > paced_ns ? answer_ns : paced_ns;
    return paced_ns > node_now(node) && paced_ns < report_ns ? paced_ns : report_ns;
}

/* ---- life ---- */

/* A learner on a device keeps snapshots there, where rounds need of them what it can do. */
static enum rc create_snapshot(struct node *node)
{
    const struct strategy *strategy = node->options.strategy;
    const struct learner_ops *learner = node->lane->learner->ops;
    enum rc rc;

    if (!strategy->is_averaging || learner->snapshot_create == NULL) return RC_OK;
    if (strategy->rule->prepare || strategy->exchange->has_mirrors) return RC_OK;
    if (strategy->has_feedback || strategy->blends || strategy_has_masks(strategy)) return RC_OK;
    if (node->mixed != node->schema->values[SECTION_MIXED]) return RC_OK;
    if (strategy->codec.ops->format == CODEC_FORMATS) return RC_OK; /* encoded on the host */
    rc = learner->snapshot_create(node->lane->learner, strategy->codec.ops->format, CHUNK_VALUES,
                                  &node->lane->snapshot);
    return rc == RC_UNSUPPORTED ? RC_OK : rc;
}

enum rc lane_create(struct node *node, struct learner *learner)
{
    node->lane = mem_alloc(sizeof *node->lane);
    if (node->lane == NULL) return RC_NOMEM;
    node->lane->learner = learner;
    node->lane->rate_factor = node->lane->weight_factor = 1;
    node->schema = learner->ops->schema(learner);
    node->values = node->schema->values[SECTION_PARAMETERS];
    node->mixed = lane_mixed_values(node);
    lane_put_off_checkpoint(node);
    return create_snapshot(node);
}

struct learner *lane_learner(const struct node *node)
{
    return node->lane->learner;
}

void lane_destroy(struct node *node)
{
    struct lane_state *lane = node->lane;

    if (lane == NULL) return;
    checkpoint_deinit(&lane->job.checkpoint);
    mem_free(lane->job.members);
    mem_free(lane->job.state);
    mem_free(lane->kept);
    mem_free(lane->spare);
    mem_free(lane->pulls.own);
    mem_free(lane->tracking.tracker);
    mem_free(lane->tracking.gradient);
    mem_free(lane->tracking.last);
    lane_quasi_global_deinit(&lane->global);
    lane_answer_deinit(node);
    if (lane->snapshot != NULL) lane->snapshot->ops->destroy(lane->snapshot);
    mem_free(lane);
}

/* ---- at each border ---- */

void lane_border(struct node *node, const struct border_work *const *works, size_t count)
{
    if (node->state < NODE_LEAVING && node_now(node) < node->lane->paced_ns) count = 0;
    while (!node->lane->is_busy && node->state != NODE_ENDED) {
        if (choose(node, works, count)) continue;
        trace_idle(node);
        return;
    }
}
