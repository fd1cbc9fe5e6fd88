/*
 * The optimizer's own buffers where rounds replace the model (--moments). They stay each peer's own
 * unless told otherwise, as the published methods have it; SlowMo and BMUF also begin them anew
 * after each outer step, or average them. Means of first and second moments are plain ones, never
 * of roots; how many updates they are of, by which Adam corrects them, stays a peer's own count.
 */
#include "peer/node/lane/internal.h"

size_t node_moments_values(const struct node *node)
{
    if (node->options.strategy->moments != MOMENTS_AVERAGE) return 0;
    return node->schema->values[SECTION_MOMENTS];
}

const char *node_moments_name(const struct node *node)
{
    const struct learner_ops *learner = node->learner->ops;

    if (node_moments_values(node) == 0) return NULL;
    return learner->moments_name == NULL ? "moments" : learner->moments_name(node->learner);
}

MUST_USE enum rc lane_moments_export(struct node *node, float *out)
{
    return node->learner->ops->export_section(node->learner, SECTION_MOMENTS, out,
                                              node_moments_values(node));
}

MUST_USE enum rc lane_moments_import(struct node *node, const float *difference)
{
    return node->learner->ops->import_section(node->learner, SECTION_MOMENTS, difference,
                                              node_moments_values(node));
}

MUST_USE enum rc lane_moments_begin_anew(struct node *node)
{
    const struct learner_ops *learner = node->learner->ops;
    size_t count = node->schema->values[SECTION_MOMENTS];
    float *zero;
    enum rc rc;

    if (count == 0) return RC_OK;
    zero = mem_array(count, sizeof *zero);
    if (zero == NULL) return RC_NOMEM;
    rc = learner->assign_section(node->learner, SECTION_MOMENTS, zero, count);
    if (rc == RC_OK && learner->set_updates != NULL) learner->set_updates(node->learner, 0);
    mem_free(zero);
    return rc;
}

MUST_USE enum rc node_moments_applied(struct node *node)
{
    if (node->options.strategy->moments != MOMENTS_RESET) return RC_OK;
    return lane_moments_begin_anew(node);
}
