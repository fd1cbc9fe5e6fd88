/*
 * How good the model is on data that it is not trained on: with reports on some, and at the end on
 * all. Training stands still for as long, so where no goal hangs on it, reports between are made
 * without. Loop thread, but for the run functions.
 */
#include "peer/node/lane/internal.h"

#include "base/units.h"

enum { PAUSE_LENGTHS = 49 /* from one evaluation to the next: it takes 2 % of the time */ };

static bool evaluates(const struct node *node)
{
    return node->options.evaluate_samples > 0 && node->state == NODE_TRAINING &&
           !node->goal.is_reached && node_now(node) >= node->watch.evaluate_ns;
}

static uint64_t due_ns(const struct node *node)
{
    return node->watch.due_ns + (evaluates(node) ? rounds_busy_put_off_ns(node) : 0);
}

static bool is_report_due(struct node *node)
{
    return node_now(node) >= due_ns(node);
}

static enum border_next prepare(struct node *node, struct border_job *job)
{
    if (!evaluates(node)) {
        watch_report(node);
        return BORDER_ON;
    }
    job->job.cost_ns += node->options.evaluate_cost_ns;
    return BORDER_SUBMIT;
}

static void run(struct border_job *job)
{
    struct learner *learner = job->node->lane->learner;
    uint64_t samples = job->work == &border_final ? 0 : job->node->options.evaluate_samples;

    job->rc = learner->ops->evaluate(learner, samples, &job->evaluation); /* 0: on all */
}

static void evaluated(struct node *node, struct border_job *job)
{
    const struct node_goal *goal = &node->options.goal;
    uint64_t took_ns = node_now(node) - job->begun_ns;

    node->watch.evaluation_ns += took_ns;
    node->watch.pause_ns = node->options.evaluates_sparingly ? PAUSE_LENGTHS * took_ns : 0;
    node->watch.evaluate_ns = node_now(node) + node->watch.pause_ns;
    if (job->rc != RC_OK) {
        log_warn(node->options.log, "cannot evaluate: %s", rc_text(job->rc));
    } else {
        node->watch.accuracy = job->evaluation.accuracy;
        if ((goal->target_loss > 0 && job->evaluation.loss <= goal->target_loss) ||
            (goal->target_accuracy > 0 && job->evaluation.accuracy >= goal->target_accuracy)) {
            node->goal.is_reached = true;
        }
    }
    watch_report(node);
}

/* A busy lane ends with an event, and most often so does the forming of a group: the report is
 * taken then. */
uint64_t lane_report_next_ns(const struct node *node)
{
    return node->lane->is_busy ? UINT64_MAX : due_ns(node);
}

const struct border_work border_evaluate = {.name = "evaluate",
                                            .states = BORDER_ALIVE,
                                            .kind = BORDER_EVALUATION,
                                            .when = is_report_due,
                                            .prepare = prepare,
                                            .run = run,
                                            .done = evaluated};

/* Who was told to stop, perhaps while it waited for its last round, stops. */
static bool wants_final(struct node *node)
{
    return node->goal.is_reached && node->options.evaluates_at_end && node->result.signal == 0 &&
           !node->lane->has_final && !rounds_are_settling(node);
}

/* It may take minutes, and nothing else is told meanwhile. */
static enum border_next prepare_final(struct node *node, struct border_job *job)
{
    char count[32];

    (void)job;
    log_info(node->options.log, "evaluating on all %s test samples",
             units_format_count(node->options.test_samples, count, sizeof count));
    return BORDER_SUBMIT;
}

static void finished(struct node *node, struct border_job *job)
{
    node->lane->has_final = true;
    if (job->rc != RC_OK) return;
    node->result.evaluation = job->evaluation;
    node->watch.accuracy = job->evaluation.accuracy;
}

const struct border_work border_final = {.name = "evaluate",
                                         .states = BORDER_LEAVING,
                                         .when = wants_final,
                                         .prepare = prepare_final,
                                         .run = run,
                                         .done = finished};
