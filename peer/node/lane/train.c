/*
 * The training lane of a node. At each step border exactly one job is chosen, most urgent first:
 * what changes the replica (a downloaded model, a round's difference, a rollback), then what reads
 * it (snapshots, checkpoints, evaluation), then more steps. So the live replica is only ever
 * changed between two optimizer steps, and every reader sees a whole step.
 */
#include "peer/node/internal.h"

#include "averaging/codec/codec.h"
#include "base/crash_point.h"

#include <math.h>

/* ---- in the lane ---- */

static void run_hash(struct border_job *job)
{
    struct node *node = job->node;
    float *plane = mem_aligned(node->values * sizeof(float));

    job->rc = RC_NOMEM;
    if (plane == NULL) return;
    job->rc =
        node->learner->ops->export_section(node->learner, SECTION_PARAMETERS, plane, node->values);
    if (job->rc == RC_OK) job->digest = hash_of(plane, node->values * sizeof(float));
    mem_free(plane);
}

static const enum audit_change changes[BORDER_ROLLBACK + 1] = {
    [BORDER_TRAIN] = AUDIT_ANYTHING,    [BORDER_ASSIGN] = AUDIT_ANYTHING,
    [BORDER_APPLY] = AUDIT_DIFFERENCE,  [BORDER_PULL] = AUDIT_ANYTHING,
    [BORDER_ROLLBACK] = AUDIT_ANYTHING,
};

static enum rc run_snapshot(struct border_job *job)
{
    struct node *node = job->node;

    if (node->snapshot == NULL) {
        bool may_view = round_encodes_live(node->round);
        const float *live;
        size_t count;
        enum rc rc = node_tracking_export(node, job->to, may_view, &live, &count);

        return rc == RC_OK && count > 0 ? round_encode_live(node->round, live, count) : rc;
    }
    return node->learner->ops->snapshot_take(node->learner, node->snapshot);
}

static void run_border(struct job *base)
{
    struct border_job *job = (struct border_job *)base;
    struct node *node = job->node;
    const struct learner_ops *learner = node->learner->ops;

    audit_enter(node->options.audit, node->learner, job->work == BORDER_CHECKPOINT);
    switch (job->work) {
    case BORDER_NONE:
        break;
    case BORDER_TRAIN:
        job->rc = node_tracking_train(node, job->steps, &job->report);
        break;
    case BORDER_HASH:
        run_hash(job);
        break;
    case BORDER_ASSIGN:
        crash_point(CRASH_JOIN_ASSIGNING);
        node_take_run(job);
        crash_point(CRASH_JOIN_ASSIGNED);
        break;
    case BORDER_APPLY:
        job->rc = node_apply(node);
        break;
    case BORDER_PULL:
        job->rc = node_pull_run(node);
        break;
    case BORDER_SNAPSHOT:
        job->rc = run_snapshot(job);
        break;
    case BORDER_DONATE:
        job->rc = node_donation_copy(&node->donation);
        break;
    case BORDER_SKETCH:
        job->rc = node_sketch_run(node);
        break;
    case BORDER_RESHARD:
        job->rc = learner->reshard(node->learner, node->self, job->members, job->members_count,
                                   &job->why);
        break;
    case BORDER_EVALUATE:
        job->rc =
            learner->evaluate(node->learner, node->options.evaluate_samples, &job->evaluation);
        break;
    case BORDER_FINAL:
        job->rc = learner->evaluate(node->learner, 0, &job->evaluation);
        break;
    case BORDER_CHECKPOINT:
        job->rc = checkpoint_save(node->env, node->learner, &job->checkpoint, node->options.model,
                                  node->options.model_context, &job->why);
        break;
    case BORDER_KEEP:
        node_keep_run(job);
        break;
    case BORDER_ROLLBACK:
        node_rollback_run(job);
        break;
    }
    audit_leave(node->options.audit, node->learner, changes[job->work],
                job->work == BORDER_APPLY ? round_difference(node->round) : NULL);
}

/* ---- back on the loop ---- */

const char *node_learner_why(const struct node *node, enum rc rc)
{
    bool may_be_device = rc == RC_DEVICE || rc == RC_NOMEM || rc == RC_UNSUPPORTED;
    const char *why = "";

    if (may_be_device && node->learner->ops->why != NULL) {
        why = node->learner->ops->why(node->learner);
    }
    return why[0] == '\0' ? rc_text(rc) : why;
}

/* Steps that were quicker than they may be last on, as they would on a slower machine: the border
 * is not reached before. From the end of those before, so that lateness does not add up. */
static uint64_t pace(struct node *node, const struct border_job *job)
{
    uint64_t begun_ns = job->begun_ns, each_ns = node->options.step_ns;

    if (begun_ns > node->paced_ns && begun_ns - node->paced_ns < each_ns) begun_ns = node->paced_ns;
    node->paced_ns = begun_ns + job->report.steps * each_ns;
    if (node->paced_ns < node_now(node)) node->paced_ns = node_now(node);
    return node->paced_ns - begun_ns;
}

static void trained(struct node *node, struct border_job *job)
{
    uint64_t length_ns;

    if (job->rc == RC_NONFINITE) {
        node->wants_rollback = true;
        return;
    }
    if (job->rc != RC_OK) {
        node_fail(node, job->rc, node_learner_why(node, job->rc));
        return;
    }
    if (job->report.steps == 0) return;
    length_ns = pace(node, job);
    node->step = job->report.step;
    node->own_steps += job->report.steps;
    node->model_samples += job->report.samples - node->last_samples;
    node->samples_since_round += job->report.samples - node->last_samples;
    node->last_samples = node->samples = job->report.samples;
    node->loss_sum += job->report.loss_sum;
    node->loss_steps += job->report.steps;
    length_ns /= job->report.steps;
    node->step_ns = node->step_ns == 0 ? length_ns : (3 * node->step_ns + length_ns) / 4;
    node_left_stepped(node);
}

static void hashed(struct node *node, struct border_job *job)
{
    if (job->rc != RC_OK) {
        node_fail(node, job->rc, "cannot read the initial model");
        return;
    }
    node->lineage = job->digest;
    node->has_lineage = true;
    node->wants_keep = true;
    if (node->round != NULL) round_set_lineage(node->round, node->lineage);
    node_send_progress(node, NULL);
    node_decide(node);
}

static void resharded(struct node *node, struct border_job *job)
{
    mem_free(job->members);
    job->members = NULL;
    if (job->rc != RC_OK && !node->is_goal_resolved) {
        node_fail(node, job->rc, job->why.text); /* no data at all */
    } else if (job->rc != RC_OK) {
        log_warn(node->options.log, "cannot load the data of the new share, keeping the old: %s",
                 job->why.text);
    }
}

static void evaluated(struct node *node, struct border_job *job)
{
    node->evaluation_ns += node_now(node) - job->begun_ns;
    if (job->rc != RC_OK) {
        log_warn(node->options.log, "cannot evaluate: %s", rc_text(job->rc));
    } else {
        node->accuracy = job->evaluation.accuracy;
        if (node->options.goal.target_loss > 0 &&
            job->evaluation.loss <= node->options.goal.target_loss) {
            node->is_goal_reached = true;
        }
        if (node->options.goal.target_accuracy > 0 &&
            job->evaluation.accuracy >= node->options.goal.target_accuracy) {
            node->is_goal_reached = true;
        }
    }
    node_count_report(node, node_now(node));
}

static void border_done(struct job *base)
{
    struct border_job *job = (struct border_job *)base;
    struct node *node = job->node;

    node->is_lane_busy = false;
    node_busy_end(node);
    switch (job->work) {
    case BORDER_NONE:
        break;
    case BORDER_TRAIN:
        trained(node, job);
        break;
    case BORDER_HASH:
        hashed(node, job);
        break;
    case BORDER_ASSIGN:
        node_taken(node, job);
        break;
    case BORDER_APPLY:
        round_applied(node->round);
        if (job->rc != RC_OK) node_fail(node, job->rc, node_learner_why(node, job->rc));
        break;
    case BORDER_PULL:
        node_pulled(node);
        if (job->rc != RC_OK) node_fail(node, job->rc, node_learner_why(node, job->rc));
        break;
    case BORDER_SNAPSHOT:
        node_round_snapshot(node);
        round_on_gradient(node->round, node->tracking.told);
        round_on_step(node->round, node->step, node->is_goal_reached);
        round_on_snapshot(node->round, job->rc);
        break;
    case BORDER_DONATE:
        node_donation_copied(node, job->rc);
        break;
    case BORDER_SKETCH:
        node_sketch_done(node, job->rc);
        break;
    case BORDER_RESHARD:
        resharded(node, job);
        break;
    case BORDER_EVALUATE:
        evaluated(node, job);
        break;
    case BORDER_FINAL:
        node->has_final = true;
        if (job->rc != RC_OK) break;
        node->result.evaluation = job->evaluation;
        node->accuracy = job->evaluation.accuracy;
        break;
    case BORDER_CHECKPOINT:
        node_checkpointed(node, job);
        break;
    case BORDER_KEEP:
        node_kept(node, job);
        break;
    case BORDER_ROLLBACK:
        node_rolled_back(node, job);
        break;
    }
    node_continue(node);
}

/* ---- choosing ---- */

static struct border_job *border_job(struct node *node, enum border_work work, uint64_t cost_ns)
{
    struct border_job *job = &node->border;

    memset(job, 0, sizeof *job);
    job->job.run = run_border;
    job->job.done = border_done;
    job->job.cost_ns = cost_ns + 1;
    job->node = node;
    job->work = work;
    job->begun_ns = node_now(node);
    return job;
}

static void border_submit(struct node *node)
{
    node->is_lane_busy = true;
    node_busy_begin(node);
    node->env->ops->submit(node->env, LANE_TRAINING, &node->border.job);
}

static void border_simple(struct node *node, enum border_work work)
{
    uint64_t cost_ns = work == BORDER_EVALUATE ? node->options.evaluate_cost_ns : 0;
    struct border_job *job = border_job(node, work, node->values + cost_ns);

    if (work == BORDER_KEEP) {
        job->to = node->spare;
        node->spare = NULL;
    }
    border_submit(node);
}

/* Shares are cut among all, linked or not: in a swarm too large for a full mesh those that are
 * linked are few of them, and others at every peer. */
static void border_reshard(struct node *node)
{
    size_t count = 0;
    struct peer_id *members = node_everyone(node, &count);
    struct border_job *job;

    node->reshard_since_ns = 0;
    if (members == NULL) return; /* the old share stays; the next change tries again */
    job = border_job(node, BORDER_RESHARD, node->values);
    job->members = members;
    job->members_count = count;
    border_submit(node);
}

/* Members have stopped coming and going, or never do. */
static bool is_reshard_due(const struct node *node, uint64_t now_ns, uint64_t put_off_ns)
{
    if (node->reshard_since_ns == 0) return false;
    return now_ns >= node->members_changed_ns + NODE_RESHARD_NS + put_off_ns ||
           now_ns >= node->reshard_since_ns + NODE_RESHARD_MOST_NS;
}

static struct checkpoint checkpoint_now(const struct node *node)
{
    return (struct checkpoint){.lineage = node->lineage,
                               .model_samples = node->model_samples,
                               .own_steps = node->own_steps,
                               .once_steps = node->once_steps};
}

static void border_checkpoint(struct node *node)
{
    struct border_job *job = border_job(node, BORDER_CHECKPOINT, node->values);

    job->checkpoint = checkpoint_now(node);
    if (node->round != NULL) node_round_checkpoint(node, &job->checkpoint);
    border_submit(node);
}

/* A checkpoint of what is given up goes without what rounds keep: with another model they are over.
 */
static void border_assign(struct node *node)
{
    struct border_job *job = border_job(node, BORDER_ASSIGN, node->values);

    node_check_begin(node);
    job->checkpoint = checkpoint_now(node);
    job->checkpoint.is_given_up = true;
    border_submit(node);
}

/* Too many in a row: the model itself is no good; a neighbour's may be. */
static void border_rollback(struct node *node)
{
    if (!node->has_kept || node->rollbacks >= NODE_ROLLBACKS_MAX) {
        node->wants_rollback = false;
        node->rollbacks = 0;
        if (node->neighbours_count == 0) {
            node_fail(node, RC_NONFINITE,
                      "the loss is no longer finite, and going back did not help: lower --lr");
            return;
        }
        log_warn(node->options.log, "the loss is no longer finite: asking a neighbour for a model");
        if (node->round != NULL) round_cancel(node->round, "the local model is not finite");
        node->model_samples = 0;
        node->state = NODE_JOINING;
        node_send_progress(node, NULL);
        node_decide(node);
        return;
    }
    node->rollbacks++;
    border_simple(node, BORDER_ROLLBACK);
}

/* Steps of the next training job: about NODE_TRAIN_JOB_NS, never past a round's border or the goal.
 */
static uint32_t job_steps(struct node *node)
{
    uint64_t steps = node->step_ns == 0 ? 1 : NODE_TRAIN_JOB_NS / (node->step_ns + 1);
    uint64_t until_round = node->round == NULL ? UINT64_MAX : node->pace.inner->steps_until(node);

    if (steps == 0) steps = 1;
    if (steps > until_round) steps = until_round;
    if (steps > node_pull_steps(node)) steps = node_pull_steps(node);
    if (node->goal_steps > node->own_steps && steps > node->goal_steps - node->own_steps) {
        steps = node->goal_steps - node->own_steps;
    }
    return steps > 100000 ? 100000 : (uint32_t)steps;
}

static void border_train(struct node *node)
{
    uint32_t steps = job_steps(node);
    struct border_job *job = border_job(node, BORDER_TRAIN, steps * node->options.step_cost_ns);

    node_scale_rate(node, steps);
    job->steps = steps;
    border_submit(node);
}

/* Work that must be done before anything else may read or train. True: a job was submitted, or the
 * state changed. */
static bool border_change(struct node *node)
{
    if (!node->has_lineage) {
        border_simple(node, BORDER_HASH);
        return true;
    }
    if (node->wants_rollback) {
        border_rollback(node);
        return true;
    }
    if (node_model_is_ready(node)) {
        border_assign(node);
        return true;
    }
    if (node->round != NULL && round_has_difference(node->round)) {
        border_simple(node, BORDER_APPLY);
        return true;
    }
    if (node_pull_is_due(node)) {
        border_simple(node, BORDER_PULL);
        return true;
    }
    if (node->state == NODE_TRAINING && !node->has_share) {
        node->has_share = true;
        border_reshard(node);
        return true;
    }
    return false;
}

static bool border_read(struct node *node, uint64_t now_ns)
{
    uint64_t put_off_ns;

    if (node->round != NULL && round_wants_snapshot(node->round)) {
        (void)border_job(node, BORDER_SNAPSHOT, node->values);
        node->border.to = round_snapshot_buffer(node->round);
        if (node->border.to != NULL) {
            node_tracking_hear(node);
            border_submit(node);
            return true;
        }
        round_on_snapshot(node->round, RC_NOMEM);
    }
    put_off_ns = node_busy_put_off_ns(node);
    if (node_donation_is_due(node)) {
        node_donation_begin(node);
        border_simple(node, BORDER_DONATE);
        return true;
    }
    if (node->sketching.count > 0) {
        border_simple(node, BORDER_SKETCH);
        return true;
    }
    if (node->wants_keep && (!node->has_kept || now_ns >= node->kept_ns + NODE_KEEP_NS)) {
        border_simple(node, BORDER_KEEP);
        return true;
    }
    if (node->state == NODE_TRAINING && is_reshard_due(node, now_ns, put_off_ns)) {
        border_reshard(node);
        return true;
    }
    if (node->options.keeps_files && now_ns >= node->checkpoint_due_ns + put_off_ns &&
        node->state == NODE_TRAINING && (node->round == NULL || !round_is_settling(node->round))) {
        border_checkpoint(node);
        return true;
    }
    if (now_ns >= node->report_due_ns) {
        if (node->options.evaluate_samples > 0 && node->state == NODE_TRAINING &&
            !node->is_goal_reached) {
            if (now_ns < node->report_due_ns + put_off_ns) return false;
            border_simple(node, BORDER_EVALUATE);
            return true;
        }
        node_count_report(node, now_ns);
    }
    return false;
}

static void border_leaving(struct node *node)
{
    /* Who was told to stop, perhaps while it waited for its last round, stops. */
    bool wants_final =
        node->is_goal_reached && node->options.evaluates_at_end && node->result.signal == 0;

    if (node->round != NULL && round_has_difference(node->round)) {
        border_simple(node, BORDER_APPLY); /* the others count on it */
    } else if (node->round != NULL && round_is_settling(node->round)) {
        return; /* its job's end brings us back */
    } else if (!node->has_last_checkpoint && node->options.keeps_files && node->has_lineage) {
        border_checkpoint(node);
    } else if (wants_final && !node->has_final) {
        border_simple(node, BORDER_FINAL);
    } else if ((node->round == NULL || round_jobs(node->round) == 0) &&
               !node->donation.is_running && links_jobs(node->links) == 0) {
        node->state = NODE_ENDED;
        node->result.is_goal_reached = node->is_goal_reached;
        node_count_report(node, node_now(node)); /* the last line of the metrics */
        node_report(node, &node->result.report);
        node->events.on_ended(node->events.context, &node->result);
    }
}

/* With the share as it is; UINT64_MAX: the goal is none of steps. */
static uint64_t steps_to_goal(const struct node *node, uint64_t samples)
{
    const struct node_goal *goal = &node->options.goal;
    const struct learner_ops *learner = node->learner->ops;
    uint64_t least = goal->steps > 0 ? goal->steps : UINT64_MAX;
    double steps;

    if (goal->epochs <= 0 || node->options.batch == 0) return least;
    steps = ceil(goal->epochs * (double)samples / (double)node->options.batch);
    if (learner->steps_of != NULL) {
        steps = (double)learner->steps_of(node->learner, goal->epochs);
    }
    if (steps < 1) steps = 1;
    return steps < (double)least ? (uint64_t)steps : least;
}

static void resolve_goal(struct node *node)
{
    node->is_goal_resolved = true;
    node->epoch_samples = node->learner->ops->shard_samples(node->learner);
    node->goal_steps = steps_to_goal(node, node->epoch_samples);
}

/* Resumed with nothing left to do: whom it would join may be done as well, and gone. The share may
 * still grow, so the goal is not settled by this. */
static bool has_nothing_left(struct node *node)
{
    uint64_t samples = node->learner->ops->shard_samples(node->learner);

    if (node->state != NODE_JOINING || node->own_steps == 0 || samples == 0) return false;
    if (node->pace.outer->lacks_round != NULL && node->pace.outer->lacks_round(node)) return false;
    return node->own_steps >= steps_to_goal(node, samples);
}

bool node_goal_is_reached(struct node *node)
{
    if (!node->is_goal_resolved) resolve_goal(node);
    if (node->own_steps >= node->goal_steps) node->is_goal_reached = true;
    if (node->options.goal.time_ns > 0 &&
        node_now(node) - node->begun_ns >= node->options.goal.time_ns) {
        node->is_goal_reached = true;
    }
    return node->is_goal_reached;
}

static void tell_nothing_left(const struct node *node)
{
    log_info(node->options.log, "already at its goal; raise --steps or --epochs to go on");
}

/* One choice. True: the state changed, look again. */
static bool border_choose(struct node *node)
{
    if (node->state == NODE_LEAVING) {
        border_leaving(node);
        return false;
    }
    if (has_nothing_left(node)) {
        tell_nothing_left(node);
        node->is_goal_reached = true;
        node_leave(node, GOAWAY_FINISHED);
        return true;
    }
    if (border_change(node)) return true;
    if (node->state == NODE_TRAINING && node_goal_is_reached(node) && !node_stays(node)) {
        /* Alone its share was larger; now that others are there it has done its part. */
        if (node->own_steps == node->resumed_steps && node->own_steps >= node->goal_steps) {
            tell_nothing_left(node);
        }
        node_overdue_at_goal(node);
        node_leave(node, GOAWAY_FINISHED);
        return true;
    }
    if (node->state == NODE_TRAINING) node_begin_round(node);
    if (border_read(node, node_now(node)) || node->state != NODE_TRAINING) return false;
    if (node_waits_for_peers(node) || node_waits_for_round(node)) return false;
    if (node->is_goal_reached) return false; /* the last round is waited for */
    border_train(node);
    return false;
}

void node_border(struct node *node)
{
    node_round_note(node);
    if (node->state < NODE_LEAVING && node_now(node) < node->paced_ns) return;
    while (!node->is_lane_busy && node->state != NODE_ENDED) {
        if (!border_choose(node)) return;
    }
}
