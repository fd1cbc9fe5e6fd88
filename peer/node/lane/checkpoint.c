/* When there is a checkpoint, and what becomes of it. Loop thread, but for the run function. */
#include "peer/node/lane/internal.h"

#include "base/crash_point.h"

#include <stdio.h>

/* The first of several, and one that fails for another reason: the rest says nothing new. */
static void tell_failure(struct node *node, const struct border_job *job)
{
    bool is_new = job->rc != node->lane->checkpoint_told;

    node->lane->checkpoint_told = job->rc;
    if (!is_new) return;
    log_error(node->options.log, "checkpoint failed, the previous one stays: %s", job->why.text);
}

static void tell_success(struct node *node)
{
    if (node->lane->checkpoint_told != RC_OK) {
        log_info(node->options.log, "a checkpoint was written again");
    }
    node->lane->checkpoint_told = RC_OK;
}

void lane_put_off_checkpoint(struct node *node)
{
    node->lane->checkpoint_due_ns = node_now(node) + node->options.checkpoint_every_ns;
}

void lane_skip_last(struct node *node, bool skips_evaluation)
{
    node->lane->has_last_checkpoint = true;
    if (skips_evaluation) node->lane->has_final = true;
}

uint32_t lane_checkpoint_failures(const struct node *node)
{
    return node->lane->checkpoint_failures;
}

bool lane_has_before(const struct node *node)
{
    return node->lane->has_before;
}

static bool is_due(struct node *node)
{
    if (!node->options.keeps_files || rounds_are_settling(node)) return false;
    if (node->state == NODE_LEAVING) return !node->lane->has_last_checkpoint && node->has_lineage;
    return node_now(node) >= node->lane->checkpoint_due_ns + rounds_busy_put_off_ns(node);
}

struct checkpoint lane_checkpoint(const struct node *node)
{
    struct checkpoint checkpoint = {.lineage = node->lineage,
                                    .model_samples = node->model_samples,
                                    .own_steps = node->own_steps,
                                    .once_steps = node->once_steps,
                                    .population = models_population_kept(node)};

    snprintf(checkpoint.method, sizeof checkpoint.method, "%s", node->options.strategy->name);
    return checkpoint;
}

static enum border_next prepare(struct node *node, struct border_job *job)
{
    job->checkpoint = lane_checkpoint(node);
    rounds_checkpoint(node, &job->checkpoint);
    return BORDER_SUBMIT;
}

void lane_save(struct border_job *job)
{
    struct node *node = job->node;

    job->rc = checkpoint_save(node->env, node->lane->learner, &job->checkpoint, node->options.model,
                              node->options.model_context, &job->why);
}

/* What was read stands still no longer. */
static void let_go(struct node *node, struct border_job *job)
{
    checkpoint_deinit(&job->checkpoint);
    if (node->round != NULL) round_hold(node->round, false);
    if (job->rc == RC_NONFINITE) node->lane->wants_rollback = true;
}

static void done(struct node *node, struct border_job *job)
{
    bool is_last = node->state == NODE_LEAVING;
    struct lane_state *lane = node->lane;

    crash_point(CRASH_CHECKPOINT_DONE);
    let_go(node, job);
    if (job->rc == RC_OK) {
        tell_success(node);
        lane->checkpoint_failures = 0;
        lane->has_before = false;
        lane_put_off_checkpoint(node);
    } else if (is_last && node->goal.is_reached && job->rc != RC_NONFINITE) {
        node->result.rc = job->rc; /* a goal whose model is lost is none */
        fault_set(&node->result.why, job->rc,
                  "the last checkpoint failed: %s; make room and start again", job->why.text);
    } else {
        uint32_t doubling = lane->checkpoint_failures < 4 ? lane->checkpoint_failures : 4;

        lane->checkpoint_failures++;
        lane->checkpoint_due_ns = node_now(node) + (node->options.checkpoint_every_ns << doubling);
        tell_failure(node, job);
    }
    if (is_last) lane->has_last_checkpoint = true;
}

const struct border_work border_checkpoint = {.name = "checkpoint",
                                              .states = BORDER_TRAINING | BORDER_LEAVING,
                                              .kind = BORDER_CHECKPOINT,
                                              .when = is_due,
                                              .prepare = prepare,
                                              .run = lane_save,
                                              .done = done};

/* ---- the same bytes, for who asks ---- */

void node_ask_state(struct node *node)
{
    node->lane->wants_state = true;
    node_continue(node);
}

static bool wants_state(struct node *node)
{
    return node->lane->wants_state && node->has_lineage && !rounds_are_settling(node);
}

static void encode(struct border_job *job)
{
    job->rc = checkpoint_encode(job->node->lane->learner, &job->checkpoint, &job->state,
                                &job->state_bytes, &job->why);
}

static void tell_state(struct node *node, struct border_job *job)
{
    let_go(node, job);
    node->lane->wants_state = false;
    node->events.on_state(node->events.context, job->state, job->state_bytes, &job->why);
    job->state = NULL;
}

const struct border_work border_state = {.name = "state",
                                         .states = BORDER_TRAINING | BORDER_LEAVING,
                                         .kind = BORDER_CHECKPOINT,
                                         .when = wants_state,
                                         .prepare = prepare,
                                         .run = encode,
                                         .done = tell_state};
