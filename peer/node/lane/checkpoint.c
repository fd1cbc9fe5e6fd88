/* When there is a checkpoint, and what becomes of it. Loop thread, but for the run function. */
#include "peer/node/internal.h"

#include "base/crash_point.h"

/* The first of several, and one that fails for another reason: the rest says nothing new. */
static void tell_failure(struct node *node, const struct border_job *job)
{
    bool is_new = job->rc != node->checkpoint_told;

    node->checkpoint_told = job->rc;
    if (!is_new) return;
    log_error(node->options.log, "checkpoint failed, the previous one stays: %s", job->why.text);
}

static void tell_success(struct node *node)
{
    if (node->checkpoint_told != RC_OK) {
        log_info(node->options.log, "a checkpoint was written again");
    }
    node->checkpoint_told = RC_OK;
}

static bool is_due(struct node *node)
{
    if (!node->options.keeps_files || node_round_is_settling(node)) return false;
    if (node->state == NODE_LEAVING) return !node->has_last_checkpoint && node->has_lineage;
    return node_now(node) >= node->checkpoint_due_ns + node_busy_put_off_ns(node);
}

struct checkpoint node_checkpoint(const struct node *node)
{
    return (struct checkpoint){.lineage = node->lineage,
                               .model_samples = node->model_samples,
                               .own_steps = node->own_steps,
                               .once_steps = node->once_steps};
}

static enum border_next prepare(struct node *node, struct border_job *job)
{
    job->checkpoint = node_checkpoint(node);
    if (node->round != NULL) node_round_checkpoint(node, &job->checkpoint);
    return BORDER_SUBMIT;
}

enum rc node_checkpoint_save(struct border_job *job)
{
    struct node *node = job->node;

    return checkpoint_save(node->env, node->learner, &job->checkpoint, node->options.model,
                           node->options.model_context, &job->why);
}

static void run(struct border_job *job)
{
    job->rc = node_checkpoint_save(job);
}

static void done(struct node *node, struct border_job *job)
{
    bool is_last = node->state == NODE_LEAVING;

    crash_point(CRASH_CHECKPOINT_DONE);
    checkpoint_deinit(&job->checkpoint);
    if (node->round != NULL) round_hold(node->round, false);
    if (job->rc == RC_OK) {
        tell_success(node);
        node->checkpoint_failures = 0;
        node->has_before = false;
        node->checkpoint_due_ns = node_now(node) + node->options.checkpoint_every_ns;
    } else if (is_last && node->is_goal_reached && job->rc != RC_NONFINITE) {
        node->result.rc = job->rc; /* a goal whose model is lost is none */
        fault_set(&node->result.why, job->rc,
                  "the last checkpoint failed: %s; make room and start again", job->why.text);
    } else {
        uint64_t doubling = node->checkpoint_failures < 4 ? node->checkpoint_failures : 4;

        node->checkpoint_failures++;
        node->checkpoint_due_ns = node_now(node) + (node->options.checkpoint_every_ns << doubling);
        tell_failure(node, job);
    }
    if (job->rc == RC_NONFINITE) node->wants_rollback = true;
    if (is_last) node->has_last_checkpoint = true;
}

const struct border_work border_checkpoint = {.states = BORDER_TRAINING | BORDER_LEAVING,
                                              .kind = BORDER_CHECKPOINT,
                                              .when = is_due,
                                              .prepare = prepare,
                                              .run = run,
                                              .done = done};
