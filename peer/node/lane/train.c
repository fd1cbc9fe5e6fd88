/*
 * Steps: how many a job takes, what is counted of them, and when there are enough. Loop thread, but
 * for the run function.
 */
#include "peer/node/lane/internal.h"

#include <math.h>

const char *lane_why(const struct node *node, enum rc rc)
{
    bool may_be_device = rc == RC_DEVICE || rc == RC_NOMEM || rc == RC_UNSUPPORTED;
    const char *why = "";

    if (may_be_device && node->lane != NULL && node->lane->learner->ops->why != NULL) {
        why = node->lane->learner->ops->why(node->lane->learner);
    }
    return why[0] == '\0' ? rc_text(rc) : why;
}

enum rc lane_resume(struct node *node, const struct checkpoint *checkpoint, struct fault *why)
{
    struct train_report report = {0};
    struct learner *learner = node->lane->learner;
    enum rc rc = learner->ops->train(learner, 0, NULL, &report); /* where it stands */

    if (rc != RC_OK) return fault_set(why, rc, "the checkpoint cannot be used: %s", rc_text(rc));
    node->step = report.step;
    node->samples = report.samples;
    node->own_steps = node->lane->resumed_steps = checkpoint->own_steps;
    lane_keep(node);
    return RC_OK;
}

/* ---- the goal ---- */

/* With the shard as it is; UINT64_MAX: the goal is none of steps. */
static uint64_t steps_to_goal(const struct node *node, uint64_t samples)
{
    const struct node_goal *goal = &node->options.goal;
    const struct learner_ops *learner = node->lane->learner->ops;
    uint64_t least = goal->steps > 0 ? goal->steps : UINT64_MAX;
    double steps;

    if (goal->epochs <= 0 || node->options.batch == 0) return least;
    steps = ceil(goal->epochs * (double)samples / (double)node->options.batch);
    if (learner->steps_of != NULL) {
        steps = (double)learner->steps_of(node->lane->learner, goal->epochs);
    }
    if (steps < 1) steps = 1;
    return steps < (double)least ? (uint64_t)steps : least;
}

static void resolve_goal(struct node *node)
{
    node->goal.epoch_samples = node->lane->learner->ops->shard_samples(node->lane->learner);
    node->goal.steps = steps_to_goal(node, node->goal.epoch_samples);
}

static void tell_nothing_left(const struct node *node)
{
    log_info(node->options.log, "already at its goal; raise --steps or --epochs to go on");
}

/* Resumed with nothing left to do: whom it would join may be done as well, and gone. The shard may
 * still grow, so the goal is not settled by this. */
static bool has_nothing_left(struct node *node)
{
    uint64_t samples = node->lane->learner->ops->shard_samples(node->lane->learner);

    if (node->own_steps == 0 || samples == 0) return false;
    if (rounds_lack_one(node)) return false;
    return node->own_steps >= steps_to_goal(node, samples);
}

static enum border_next leave_at_once(struct node *node, struct border_job *job)
{
    (void)job;
    tell_nothing_left(node);
    node->goal.is_reached = true;
    node_leave(node, GOAWAY_FINISHED);
    return BORDER_AGAIN;
}

const struct border_work border_nothing_left = {
    .states = BORDER_JOINING, .when = has_nothing_left, .prepare = leave_at_once};

/* How many samples a pass has is fixed when training begins, among those who begin it: before,
 * whoever waits for others would count over what they are to have (--start-with). */
static bool is_goal_reached(struct node *node)
{
    if (node->goal.steps == 0 && !rounds_wait_for_peers(node)) resolve_goal(node);
    if (node->goal.steps > 0 && node->own_steps >= node->goal.steps) node->goal.is_reached = true;
    if (node->options.goal.time_ns > 0 &&
        node_now(node) - node->begun_ns >= node->options.goal.time_ns) {
        node->goal.is_reached = true;
    }
    return node->goal.is_reached;
}

static bool is_done(struct node *node)
{
    return is_goal_reached(node) && !rounds_stay(node) && !models_stay(node);
}

static enum border_next leave_at_goal(struct node *node, struct border_job *job)
{
    (void)job;
    /* Alone its shard was larger; now that others are there it has done its part. */
    if (node->own_steps == node->lane->resumed_steps && node->own_steps >= node->goal.steps) {
        tell_nothing_left(node);
    }
    rounds_overdue_at_goal(node);
    node_leave(node, GOAWAY_FINISHED);
    return BORDER_AGAIN;
}

const struct border_work border_goal = {
    .states = BORDER_TRAINING, .when = is_done, .prepare = leave_at_goal};

/* ---- steps ---- */

/* At the goal the last round is waited for. */
static bool takes_steps(struct node *node)
{
    return !rounds_wait_for_peers(node) && !rounds_wait(node) && !node->goal.is_reached &&
           !node->lane->wants_state && !node->options.is_keeper;
}

/* Steps of the next training job: about NODE_TRAIN_JOB_NS, never past a round's border or the goal.
 * A program is waited for and woken up at each end of one, so there are fewer of them: what a round
 * brings may come some of its steps later. */
static uint32_t job_steps(struct node *node)
{
    const uint64_t aim_ns = node->options.has_program ? NODE_PROGRAM_JOB_NS : NODE_TRAIN_JOB_NS;
    uint64_t steps = node->step_ns == 0 ? 1 : aim_ns / (node->step_ns + 1);
    uint64_t until_round = rounds_steps_until(node);

    if (steps == 0) steps = 1;
    if (steps > until_round) steps = until_round;
    if (steps > lane_pull_steps(node)) steps = lane_pull_steps(node);
    if (steps > models_population_steps_left(node)) steps = models_population_steps_left(node);
    if (node->goal.steps > node->own_steps && steps > node->goal.steps - node->own_steps) {
        steps = node->goal.steps - node->own_steps;
    }
    return steps > 100000 ? 100000 : (uint32_t)steps;
}

static enum border_next prepare_steps(struct node *node, struct border_job *job)
{
    job->steps = job_steps(node);
    job->job.cost_ns = job->steps * node->options.step_cost_ns + 1;
    lane_scale_rate(node, job->steps);
    return BORDER_SUBMIT;
}

static void run_steps(struct border_job *job)
{
    job->rc = lane_tracking_train(job->node, job->steps, &job->report);
}

/* Steps that were quicker than they may be last on, as they would on a slower machine: the border
 * is not reached before. From the end of those before, so that lateness does not add up. */
static uint64_t pace(struct node *node, const struct border_job *job)
{
    uint64_t begun_ns = job->begun_ns, each_ns = node->options.step_ns;

    if (begun_ns > node->lane->paced_ns && begun_ns - node->lane->paced_ns < each_ns)
        begun_ns = node->lane->paced_ns;
    node->lane->paced_ns = begun_ns + job->report.steps * each_ns;
    if (node->lane->paced_ns < node_now(node)) node->lane->paced_ns = node_now(node);
    return node->lane->paced_ns - begun_ns;
}

static void trained(struct node *node, struct border_job *job)
{
    uint64_t length_ns;

    if (job->rc == RC_NONFINITE) {
        node->lane->wants_rollback = true;
        return;
    }
    if (job->rc == RC_FORMAT) { /* nothing else is read while training */
        node_fail(node, job->rc,
                  "a file of tokens has changed, or holds a number that is none of its vocabulary; "
                  "check --data (symbols=, bits=)");
        return;
    }
    if (job->rc != RC_OK) {
        node_fail(node, job->rc, lane_why(node, job->rc));
        return;
    }
    if (job->report.steps == 0) return;
    length_ns = pace(node, job);
    node->step = job->report.step;
    node->own_steps += job->report.steps;
    node->model_samples += job->report.samples - node->samples;
    node->samples = job->report.samples;
    watch_steps(node, &job->report);
    rounds_stepped(node, &job->report);
    length_ns /= job->report.steps;
    node->step_ns = node->step_ns == 0 ? length_ns : (3 * node->step_ns + length_ns) / 4;
    lane_left_stepped(node);
}

const struct border_work border_steps = {.name = "steps",
                                         .states = BORDER_TRAINING,
                                         .kind = BORDER_STEPS,
                                         .change = AUDIT_ANYTHING,
                                         .when = takes_steps,
                                         .prepare = prepare_steps,
                                         .run = run_steps,
                                         .done = trained};
