/*
 * A downloaded model takes the place of ours, at a step border: it is judged (check.c), what
 * is given up for it is written down, and then parameters, running statistics and optimizer buffers
 * are replaced. The run function is the training lane's, the other the loop's.
 */
#include "peer/node/models/internal.h"

#include "base/crash_point.h"

/* ---- in the lane ---- */

/* What is given up stays on disk, under another name. */
static void keep_before(struct border_job *job)
{
    struct models_taking *taking = &job->node->models->taking;

    if (!taking->keeps) return;
    lane_save(job);
    taking->has_kept = job->rc == RC_OK;
    if (job->rc == RC_NONFINITE) job->rc = RC_OK; /* that is nothing to go back to */
}

/* NULL: it did not come, or not as ours is. */
static const float *section_of(const struct node *node, enum section section)
{
    size_t count = 0;
    const float *values = joiner_section(node->models->joiner, section, &count);

    return count == node->schema->values[section] ? values : NULL;
}

static void take(struct border_job *job)
{
    struct node *node = job->node;
    struct lane_model model = {.parameters = section_of(node, SECTION_PARAMETERS),
                               .buffers = section_of(node, SECTION_BUFFERS),
                               .moments = section_of(node, SECTION_MOMENTS),
                               .input = section_of(node, SECTION_INPUT),
                               .step = node->models->taking.step,
                               .updates = joiner_manifest(node->models->joiner)->updates};

    job->rc = node->models->taking.is_forged ? RC_AUTH : RC_OK;
    if (job->rc == RC_OK) job->rc = models_check_run(node);
    if (job->rc == RC_OK) keep_before(job);
    if (node->models->taking.leaves_moments) model.moments = NULL;
    if (job->rc == RC_OK) job->rc = lane_replace(node, &model);
}

static void run(struct border_job *job)
{
    crash_point(CRASH_JOIN_ASSIGNING);
    take(job);
    crash_point(CRASH_JOIN_ASSIGNED);
}

/* ---- on the loop ---- */

/* A checkpoint of what is given up goes without what rounds keep: with another model they are over.
 */
static enum border_next prepare(struct node *node, struct border_job *job)
{
    models_check_begin(node);
    models_input_judge(node);
    job->checkpoint = lane_checkpoint(node);
    job->checkpoint.is_given_up = true;
    return BORDER_SUBMIT;
}

/* Nobody is to blame for it, and a model of one donor alone is judged as ever. */
static void refuse_mixture(struct node *node)
{
    log_info(node->options.log, "what two donors gave, one after the other's end, is not confirmed "
                                "by two other members: fetching the first one's part again");
    node->models->check.lease = 0; /* others are asked anew */
    models_refuse(node, false);
}

/* Is it not taken? Then another donor is asked, or, where what we have cannot be kept, nobody. */
static bool is_refused(struct node *node, const struct border_job *job)
{
    if (node->models->taking.is_forged) {
        log_warn(node->options.log,
                 "a downloaded model is not used: its initial parameters, or the "
                 "numbers that normalise its inputs, are one member's alone");
        models_refuse(node, true);
        return true;
    }
    if (job->rc == RC_AUTH || job->rc == RC_BUSY) {
        if (node->models->taking.is_mixed) {
            refuse_mixture(node);
            return true;
        }
        models_check_told(node);
        node->models->doubts += !node->models->gave_way;
        models_refuse(node, job->rc == RC_AUTH);
        return true;
    }
    if (job->rc == RC_OK || !node->models->taking.keeps || node->models->taking.has_kept)
        return false;
    log_error(node->options.log,
              "this peer keeps its model and does not take the swarm's: before that its own must "
              "be saved in --out, and %s",
              job->why.text);
    models_put_off(node);
    return true;
}

static void take_counts(struct node *node)
{
    node->step = node->models->taking.step;
    node->model_samples = node->models->taking.samples;
    rounds_join(node);
    node->lineage = joiner_manifest(node->models->joiner)->lineage;
    node->has_lineage = true;
    lane_model_replaced(node, node->models->taking.has_kept);
    node->models->load_failures = 0;
    node->models->doubts = 0;
}

static void tell_kept(const struct node *node)
{
    if (!node->models->taking.has_kept) return;
    log_warn(node->options.log,
             "this peer's former model is kept in --out: to go back to it, stop this "
             "peer and rename " CHECKPOINT_STATE_BEFORE " to " CHECKPOINT_STATE_FILE);
}

static void done(struct node *node, struct border_job *job)
{
    if (is_refused(node, job)) return;
    models_check_told(node);
    if (job->rc != RC_OK) {
        node_fail(node, job->rc, "cannot take over the downloaded model");
        return;
    }
    models_chose(node);
    if (node->options.is_keeper) models_followed(node);
    take_counts(node);
    models_input_taken(node);
    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        rounds_far_is_over(node, &node->neighbours[i]);
    }
    if (node->round != NULL) {
        round_discard(node->round);
        models_forget_agreed(node);
        models_adopt_rule(node);
        if (node->options.is_keeper) round_rule_adopt_now(node->round);
        round_begin_ramp(node->round);
        round_set_lineage(node->round, node->lineage);
        round_set_number(node->round, node->models->taking.round);
    }
    log_line(node->options.log, node->options.is_keeper ? LOG_DEBUG : LOG_INFO,
             "took the swarm's %s at step %llu",
             node->options.strategy->mixes_answers ? "answers" : "model",
             (unsigned long long)node->step);
    tell_kept(node);
    joiner_finish(node->models->joiner, &node->outbox);
    if (node->state >= NODE_LEAVING) return; /* stopped meanwhile */
    node->state = NODE_TRAINING;
    models_tell(node, NULL);
}

const struct border_work border_assign = {.name = "take model",
                                          .states = BORDER_ALIVE,
                                          .change = AUDIT_ANYTHING,
                                          .when = models_is_ready,
                                          .prepare = prepare,
                                          .run = run,
                                          .done = done};
