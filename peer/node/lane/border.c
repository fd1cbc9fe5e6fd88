/*
 * One job at each step border: chosen from the table of works, submitted, and done with. Loop
 * thread, but for run().
 */
#include "peer/node/internal.h"

static void run(struct job *base)
{
    struct border_job *job = (struct border_job *)base;
    const struct border_work *work = job->work;
    struct node *node = job->node;
    bool is_difference = work->change == AUDIT_DIFFERENCE;

    audit_enter(node->options.audit, node->learner, work->kind == BORDER_CHECKPOINT);
    work->run(job);
    audit_leave(node->options.audit, node->learner, work->change,
                is_difference ? round_difference(node->round) : NULL);
}

static void done(struct job *base)
{
    struct border_job *job = (struct border_job *)base;
    struct node *node = job->node;

    node->is_lane_busy = false;
    node_busy_end(node);
    job->work->done(node, job);
    node_continue(node);
}

static enum border_next prepare(struct node *node, const struct border_work *work)
{
    struct border_job *job = &node->border;

    *job = (struct border_job){.job = {.run = run, .done = done, .cost_ns = node->values + 1},
                               .node = node,
                               .work = work,
                               .begun_ns = node_now(node)};
    return work->prepare == NULL ? BORDER_SUBMIT : work->prepare(node, job);
}

static void submit(struct node *node)
{
    node->is_lane_busy = true;
    node_busy_begin(node);
    node->env->ops->submit(node->env, LANE_TRAINING, &node->border.job);
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
        if (next == BORDER_SUBMIT) submit(node);
        return true;
    }
    return false;
}

void node_border(struct node *node, const struct border_work *const *works, size_t count)
{
    node_round_note(node);
    if (node->state < NODE_LEAVING && node_now(node) < node->paced_ns) return;
    while (!node->is_lane_busy && node->state != NODE_ENDED) {
        if (!choose(node, works, count)) return;
    }
}
