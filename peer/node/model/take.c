/*
 * A downloaded model takes the place of ours, at a step border: it is judged (check.c), what
 * is given up for it is written down, and then parameters, running statistics and optimizer buffers
 * are replaced. The run function is the training lane's, the other the loop's.
 */
#include "peer/node/model/internal.h"

#include "base/crash_point.h"

/* ---- in the lane ---- */

/* What is given up stays on disk, under another name. */
static enum rc keep_before(struct border_job *job)
{
    struct node *node = job->node;
    enum rc rc;

    if (!node->model->taking.keeps) return RC_OK;
    rc = lane_save(job);
    node->model->taking.has_kept = rc == RC_OK;
    return rc == RC_NONFINITE ? RC_OK : rc; /* that is nothing to go back to */
}

/* As the method could have made them: a donor may say what it likes, and changes come rounded. */
static enum rc assign_moments(struct node *node, const float *values, size_t count)
{
    const struct learner_ops *learner = node->learner->ops;
    float *moments = mem_aligned(count * sizeof(float));
    enum rc rc;

    if (moments == NULL) return RC_NOMEM;
    memcpy(moments, values, count * sizeof(float));
    if (learner->bound_moments != NULL) learner->bound_moments(node->learner, moments, count);
    rc = learner->assign_section(node->learner, SECTION_MOMENTS, moments, count);
    mem_free(moments);
    return rc;
}

static void take(struct border_job *job)
{
    struct node *node = job->node;
    const struct learner_ops *learner = node->learner->ops;
    enum section sections[] = {SECTION_PARAMETERS, SECTION_BUFFERS, SECTION_MOMENTS};
    bool has_moments = false;

    job->rc = node_check_run(node);
    if (job->rc != RC_OK) return;
    job->rc = keep_before(job);
    if (job->rc != RC_OK) return;
    for (size_t i = 0; i < ARRAY_COUNT(sections) && job->rc == RC_OK; i++) {
        size_t count = 0;
        const float *values = joiner_section(node->model->joiner, sections[i], &count);

        if (values == NULL || count != node->schema->values[sections[i]]) continue;
        if (sections[i] == SECTION_MOMENTS && node->model->taking.leaves_moments) continue;
        job->rc = sections[i] == SECTION_MOMENTS
                      ? assign_moments(node, values, count)
                      : learner->assign_section(node->learner, sections[i], values, count);
        has_moments |= sections[i] == SECTION_MOMENTS;
    }
    if (job->rc != RC_OK) return;
    node_tracking_reset(node);
    learner->set_step(node->learner, node->model->taking.step);
    if (has_moments && learner->set_updates != NULL) { /* Adam's corrections go by them */
        learner->set_updates(node->learner, joiner_manifest(node->model->joiner)->updates);
    }
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
    node_check_begin(node);
    job->checkpoint = lane_checkpoint(node);
    job->checkpoint.is_given_up = true;
    return BORDER_SUBMIT;
}

/* Nobody is to blame for it, and a model of one donor alone is judged as ever. */
static void refuse_mixture(struct node *node)
{
    log_info(node->options.log, "what two donors gave, one after the other's end, is not confirmed "
                                "by two other members: fetching the first one's part anew");
    node->model->check.lease = 0; /* others are asked anew */
    node_refuse_model(node, false);
}

/* Is it not taken? Then another donor is asked, or, where what we have cannot be kept, nobody. */
static bool is_refused(struct node *node, const struct border_job *job)
{
    if (job->rc == RC_AUTH || job->rc == RC_BUSY) {
        if (node->model->taking.is_mixed) {
            refuse_mixture(node);
            return true;
        }
        node_check_told(node);
        node->model->doubts += !node->model->gave_way;
        node_refuse_model(node, job->rc == RC_AUTH);
        return true;
    }
    if (job->rc == RC_OK || !node->model->taking.keeps || node->model->taking.has_kept)
        return false;
    log_error(node->options.log,
              "this peer keeps its model and does not take the swarm's: before that its own must "
              "be saved in --out, and %s",
              job->why.text);
    node_put_off_model(node);
    return true;
}

static void take_counts(struct node *node)
{
    node->step = node->model->taking.step;
    node->model_samples = node->model->taking.samples;
    node->mixed_step = node_last_mixed(node);
    node->lineage = joiner_manifest(node->model->joiner)->lineage;
    node->has_lineage = true;
    lane_model_replaced(node);
    node->model->load_failures = 0;
    node->model->doubts = 0;
}

static void tell_kept(const struct node *node)
{
    if (!node->model->taking.has_kept) return;
    log_warn(node->options.log,
             "this peer's former model is kept in --out: to go back to it, stop this "
             "peer and rename " CHECKPOINT_STATE_BEFORE " to " CHECKPOINT_STATE_FILE);
}

static void done(struct node *node, struct border_job *job)
{
    if (is_refused(node, job)) return;
    node_check_told(node);
    if (job->rc != RC_OK) {
        node_fail(node, job->rc, "cannot take over the downloaded model");
        return;
    }
    node_chose(node);
    take_counts(node);
    if (node->model->taking.has_kept) lane_set_before(node);
    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        node_far_is_over(node, &node->neighbours[i]);
    }
    if (node->round != NULL) {
        round_discard(node->round);
        node_donation_forget(node);
        node_adopt_rule(node);
        round_begin_ramp(node->round);
        round_set_lineage(node->round, node->lineage);
        round_set_number(node->round, node->model->taking.round);
    }
    log_info(node->options.log, "took the swarm's model at step %llu",
             (unsigned long long)node->step);
    tell_kept(node);
    joiner_finish(node->model->joiner, &node->outbox);
    if (node->state >= NODE_LEAVING) return; /* stopped meanwhile */
    node->state = NODE_TRAINING;
    node_send_progress(node, NULL);
}

const struct border_work border_assign = {.states = BORDER_ALIVE,
                                          .change = AUDIT_ANYTHING,
                                          .when = node_model_is_ready,
                                          .prepare = prepare,
                                          .run = run,
                                          .done = done};
