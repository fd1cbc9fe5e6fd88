/*
 * The optimizer's own buffers where rounds replace the model (--moments). They stay each peer's own
 * unless told otherwise, as the published methods have it; SlowMo and BMUF also begin them anew
 * after each outer step, or average them. Means of first and second moments are plain ones, never
 * of roots; how many updates they are of, by which Adam corrects them, stays a peer's own count.
 *
 * Where both moments travel, each in rounds of its own (DES-LOC: Iacob et al. 2025,
 * arXiv:2505.22549), first moments become the mean of all beside second ones that are still a
 * peer's own. What others have seen a gradient of and this peer has not would then be divided by
 * next to nothing, which the paper does not speak of. So first moments are held to what second ones
 * allow after each round; with means of both that changes nothing.
 *
 * With error feedback at every step momentum goes on pulling where it pulled before what it did was
 * sent, which may be many steps ago. So DGC sets it to zero where a value was sent (momentum factor
 * masking: Lin, Han, Mao, Wang, Dally 2018, arXiv:1712.01887). Its other part, momentum correction,
 * is what happens here in any case: the residual adds up steps of the optimizer, not gradients.
 */
#include "peer/node/lane/internal.h"

size_t lane_moments_values(const struct node *node)
{
    if (node->options.strategy->moments != MOMENTS_AVERAGE) return 0;
    return node->schema->values[SECTION_MOMENTS];
}

const char *lane_moments_name(const struct node *node)
{
    const char *name = lane_optimizer(node);

    if (lane_moments_values(node) == 0) return NULL;
    return name == NULL ? "moments" : name;
}

MUST_USE enum rc lane_moments_mixed(struct node *node, const float *difference)
{
    const size_t count = node->schema->values[SECTION_MOMENTS];
    float *moments = mem_aligned(count * sizeof *moments);
    enum rc rc = moments == NULL ? RC_NOMEM : lane_export(node, SECTION_MOMENTS, moments);

    for (size_t i = 0; rc == RC_OK && i < count; i++) {
        moments[i] += difference[i];
    }
    if (rc == RC_OK) rc = lane_assign_moments(node, moments);
    mem_free(moments);
    return rc;
}

MUST_USE enum rc lane_moments_begin_anew(struct node *node)
{
    const struct learner_ops *learner = node->lane->learner->ops;
    size_t count = node->schema->values[SECTION_MOMENTS];
    float *zero;
    enum rc rc;

    if (count == 0) return RC_OK;
    zero = mem_array(count, sizeof *zero);
    if (zero == NULL) return RC_NOMEM;
    rc = lane_assign(node, SECTION_MOMENTS, zero);
    if (rc == RC_OK && learner->set_updates != NULL) learner->set_updates(node->lane->learner, 0);
    mem_free(zero);
    return rc;
}

MUST_USE enum rc lane_moments_mask(struct node *node, const float *residual)
{
    const size_t count = node->schema->values[SECTION_MOMENTS];
    const size_t shared = node->schema->shared_parameters;
    float *moments;
    enum rc rc;

    if (node->options.strategy->moments != MOMENTS_MASK || residual == NULL) return RC_OK;
    if (count == 0) return RC_OK;
    moments = mem_aligned(count * sizeof *moments);
    if (moments == NULL) return RC_NOMEM;
    rc = lane_export(node, SECTION_MOMENTS, moments);
    for (size_t i = 0; i < count && i < shared; i++) {
        if (residual[i] == 0) moments[i] = 0;
    }
    if (rc == RC_OK) rc = lane_assign(node, SECTION_MOMENTS, moments);
    mem_free(moments);
    return rc;
}
