/* The learning rate, as far as it goes by who averages. Loop thread only. */
#include "peer/node/lane/internal.h"

#include <math.h>

/* SGP takes x <- x - rate g(z) with z = x / weight, so z, which is what we hold, moves by
 * rate / weight. Weights sum to the number of peers and are near 1; far from it the rate must not
 * follow, lest a peer that has given most away takes steps that none survives. */
static const double factor_least = 0.25, factor_most = 2;

static void set_rate(struct lane_state *lane)
{
    lane->learner->ops->set_rate_factor(lane->learner, lane->rate_factor * lane->weight_factor);
}

static void follow_weight(struct node *node)
{
    const struct round_stats stats = rounds_stats(node);
    double factor, before = node->lane->weight_factor;

    if (!stats.counts.has_weight) return;
    factor = fmin(fmax(1 / stats.counts.weight, factor_least), factor_most);
    if (factor == before) return;
    node->lane->weight_factor = factor;
    set_rate(node->lane);
}

/* The mean of n peers' steps is a step on n times the samples, which bears a larger rate (Goyal et
 * al. 2017, arXiv:1706.02677, linear; Krizhevsky 2014, arXiv:1404.5997, its root). It is approached
 * over NODE_RATE_STEPS steps, from 1 at the start and whenever members come or go, as sudden rates
 * blow up young models. */
void lane_scale_rate(struct node *node, uint32_t steps)
{
    enum rate_scaling scaling = node->options.rate_scaling;
    struct lane_state *lane = node->lane;
    double wanted = 1.0, before = lane->rate_factor, most;
    const struct round_stats stats = rounds_stats(node);

    if (lane->learner->ops->set_rate_factor == NULL) return;
    if (node->round != NULL && node->options.strategy->steps_by_weight) follow_weight(node);
    if (scaling == RATE_AS_GIVEN) return;
    if (stats.last_members > 1 && node->neighbours_count > 0) {
        wanted = scaling == RATE_LINEAR ? stats.last_members : sqrt((double)stats.last_members);
    }
    most = fabs(wanted - 1.0) * steps / NODE_RATE_STEPS;
    /* Down at once: a rate for more peers than are left is too large. */
    lane->rate_factor = wanted < before || before + most > wanted ? wanted : before + most;
    if (lane->rate_factor != before) set_rate(lane);
}
