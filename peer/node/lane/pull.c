/*
 * Springs to a centre that pull more often than they push (easgd:push=16,pull=4): a round of all
 * moves the centre and the models; between two rounds each model alone is pulled towards the centre
 * as it was left. As many times as fit between two rounds, and no more: who finds nobody for a
 * round trains on without being held where the others were last.
 */
#include "peer/node/lane/internal.h"

uint64_t lane_pull_steps(const struct node *node)
{
    const struct lane_pulls *pulls = &node->lane->pulls;
    uint64_t period = node->options.strategy->pull_steps;

    if (pulls->left == 0 || node->step >= pulls->step + period) return UINT64_MAX;
    return pulls->step + period - node->step;
}

static void hear(struct node *node)
{
    const struct strategy *strategy = node->options.strategy;
    struct lane_pulls *pulls = &node->lane->pulls;
    const struct round_stats stats = rounds_stats(node);

    if (stats.mixed == pulls->seen_ok) return;
    pulls->seen_ok = stats.mixed;
    pulls->left = strategy->every_steps / strategy->pull_steps - 1;
    pulls->step = rounds_snapshot_step(node);
}

static bool is_due(struct node *node)
{
    const uint64_t period = node->options.strategy->pull_steps;

    if (node->round == NULL || period == 0) return false;
    if (round_is_active(node->round) || round_jobs(node->round) > 0) return false;
    hear(node);
    return node->lane->pulls.left > 0 && node->step >= node->lane->pulls.step + period;
}

static void run(struct border_job *job)
{
    struct node *node = job->node;
    const struct learner_ops *learner = node->lane->learner->ops;
    float *own = node->lane->pulls.own;

    if (own == NULL) own = node->lane->pulls.own = mem_array(node->mixed, sizeof *own);
    job->rc = RC_NOMEM;
    if (own == NULL) return;
    job->rc = learner->export_section(node->lane->learner, SECTION_MIXED, own, node->mixed);
    if (job->rc == RC_OK && round_pull(node->round, own, own)) {
        job->rc = learner->import_section(node->lane->learner, SECTION_MIXED, own, node->mixed);
    }
}

static void done(struct node *node, struct border_job *job)
{
    node->lane->pulls.left--;
    node->lane->pulls.step = node->step;
    if (job->rc != RC_OK) node_fail(node, job->rc, lane_why(node, job->rc));
}

const struct border_work border_pull = {.name = "pull",
                                        .states = BORDER_TRAINING,
                                        .change = AUDIT_ANYTHING,
                                        .when = is_due,
                                        .run = run,
                                        .done = done};
