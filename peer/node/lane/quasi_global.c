/*
 * Quasi-global momentum: each peer steps along a momentum that is formed from how the mixed model
 * moves, not from its own gradients alone, so that data which are unlike from peer to peer do not
 * pull each along a direction of its own (QG-DSGDm: Lin, Karimireddy, Stich, Jaggi 2021,
 * arXiv:2102.04761). With m the momentum, g a gradient, v what is kept of it, e the rate, x what
 * the last round left and x' what this one does, k steps later:
 *
 *   each step:  x = x - e (v m + g)        each round:  m = v m + (1 - v) (x - x') / (k e)
 *
 * m is in units of a gradient, so a schedule of the rate does not scale it. It is the peer's own:
 * only x travels. The first round begins with m = 0, and so does whoever goes on from a checkpoint
 * or takes over a model, as the way there was another's. Where no round came about for a period,
 * the own movement counts, as that of a swarm of one. Jobs of the training lane.
 */
#include "peer/node/lane/internal.h"

#include "base/floats.h"

#include <string.h>

static bool make(struct lane_quasi_global *global, size_t values)
{
    if (global->momentum == NULL) global->momentum = mem_array(values, sizeof(float));
    if (global->before == NULL) global->before = mem_aligned(values * sizeof(float));
    if (global->scratch == NULL) global->scratch = mem_aligned(values * sizeof(float));
    return global->momentum != NULL && global->before != NULL && global->scratch != NULL;
}

/* A round, or a period without one, is over: from here on steps are counted. */
static void follow(struct node *node)
{
    struct lane_quasi_global *global = &node->lane->global;
    const struct learner *learner = node->lane->learner;
    const float keep = node->options.strategy->quasi_global;
    const float part =
        (1 - keep) / (float)((double)global->steps * learner->ops->step_rate(learner));

    for (size_t i = 0; i < node->values && global->has_before && global->steps > 0; i++) {
        float moved = global->before[i] - global->scratch[i];

        global->momentum[i] = keep * global->momentum[i] + part * moved;
    }
    memcpy(global->before, global->scratch, node->values * sizeof(float));
    global->has_before = true;
    global->steps = 0;
    if (!floats_are_finite(global->momentum, node->values)) lane_quasi_global_reset(node);
}

MUST_USE enum rc lane_quasi_global_mixed(struct node *node)
{
    struct lane_quasi_global *global = &node->lane->global;
    enum rc rc;

    if (node->options.strategy->quasi_global == 0) return RC_OK;
    if (!make(global, node->values)) return RC_NOMEM;
    rc = lane_export(node, SECTION_PARAMETERS, global->scratch);
    if (rc == RC_OK) follow(node);
    return rc;
}

MUST_USE enum rc lane_quasi_global_step(struct node *node, struct train_report *report)
{
    struct lane_quasi_global *global = &node->lane->global;
    const struct strategy *strategy = node->options.strategy;
    struct learner *learner = node->lane->learner;
    uint64_t every = strategy->every_steps; /* 0: rounds go by time */
    enum rc rc = RC_OK;

    if (!make(global, node->values)) return RC_NOMEM;
    if (!global->has_before || (every > 0 && global->steps >= every)) {
        rc = lane_quasi_global_mixed(node);
    }
    if (rc == RC_OK) rc = learner->ops->gradient(learner, global->scratch, report);
    if (rc != RC_OK) return rc;
    for (size_t i = 0; i < node->values; i++) {
        global->scratch[i] += strategy->quasi_global * global->momentum[i];
    }
    global->steps++;
    return learner->ops->step(learner, global->scratch);
}

void lane_quasi_global_reset(struct node *node)
{
    struct lane_quasi_global *global = &node->lane->global;

    if (global->momentum == NULL) return;
    memset(global->momentum, 0, node->values * sizeof(float));
    global->has_before = false;
}

void lane_quasi_global_deinit(struct lane_quasi_global *global)
{
    mem_free(global->momentum);
    mem_free(global->before);
    mem_free(global->scratch);
}
