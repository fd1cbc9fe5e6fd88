/*
 * The learner's model as others have it read and replaced, whole sections of it at a time. In the
 * training lane.
 */
#include "peer/node/lane/internal.h"

const char *lane_optimizer(const struct node *node)
{
    const struct learner_ops *learner = node->lane->learner->ops;

    return learner->moments_name == NULL ? NULL : learner->moments_name(node->lane->learner);
}

uint64_t lane_updates(const struct node *node)
{
    const struct learner_ops *learner = node->lane->learner->ops;

    return learner->updates == NULL ? node->step : learner->updates(node->lane->learner);
}

enum rc lane_export(struct node *node, enum section section, float *out)
{
    struct learner *learner = node->lane->learner;

    return learner->ops->export_section(learner, section, out, node->schema->values[section]);
}

enum rc lane_assign(struct node *node, enum section section, const float *values)
{
    struct learner *learner = node->lane->learner;

    return learner->ops->assign_section(learner, section, values, node->schema->values[section]);
}

bool lane_shares_all(const struct node *node)
{
    return node->schema->shared_parameters == node->values;
}

/* What another member gave of a section, of which each of its planes of `plane` values is shared in
 * its first `shared`; the rest stays ours. */
static enum rc overlay(struct node *node, enum section section, const float *values, size_t plane,
                       size_t shared, float *out)
{
    const size_t count = node->schema->values[section];
    enum rc rc = RC_OK;

    if (shared < plane) rc = lane_export(node, section, out);
    for (size_t at = 0; rc == RC_OK && at < count; at += plane) {
        memcpy(out + at, values + at, shared * sizeof *out);
    }
    return rc;
}

/* Whole where all of it is shared. */
static enum rc assign_shared(struct node *node, enum section section, const float *values,
                             size_t shared)
{
    const size_t count = node->schema->values[section];
    float *merged;
    enum rc rc;

    if (shared == count) return lane_assign(node, section, values);
    merged = mem_aligned(count * sizeof *merged);
    rc = merged == NULL ? RC_NOMEM : overlay(node, section, values, count, shared, merged);
    if (rc == RC_OK) rc = lane_assign(node, section, merged);
    mem_free(merged);
    return rc;
}

enum rc lane_assign_moments(struct node *node, float *moments)
{
    const struct learner_ops *learner = node->lane->learner->ops;
    const size_t count = node->schema->values[SECTION_MOMENTS];

    if (learner->bound_moments != NULL) learner->bound_moments(node->lane->learner, moments, count);
    return lane_assign(node, SECTION_MOMENTS, moments);
}

static enum rc assign_moments(struct node *node, const float *values)
{
    size_t count = node->schema->values[SECTION_MOMENTS];
    float *moments = mem_aligned(count * sizeof(float));
    enum rc rc;

    if (moments == NULL) return RC_NOMEM;
    rc = overlay(node, SECTION_MOMENTS, values, node->values, node->schema->shared_parameters,
                 moments);
    if (rc == RC_OK) rc = lane_assign_moments(node, moments);
    mem_free(moments);
    return rc;
}

enum rc lane_replace(struct node *node, const struct lane_model *model)
{
    const struct learner_ops *learner = node->lane->learner->ops;
    enum rc rc = RC_OK;

    if (model->input != NULL) rc = lane_assign(node, SECTION_INPUT, model->input);
    if (rc == RC_OK && model->parameters != NULL) {
        rc = assign_shared(node, SECTION_PARAMETERS, model->parameters,
                           node->schema->shared_parameters);
    }
    if (rc == RC_OK && model->buffers != NULL) {
        rc = assign_shared(node, SECTION_BUFFERS, model->buffers, node->schema->shared_buffers);
    }
    if (rc == RC_OK && model->moments != NULL) rc = assign_moments(node, model->moments);
    if (rc != RC_OK) return rc;
    lane_tracking_reset(node);
    learner->set_step(node->lane->learner, model->step);
    if (model->moments != NULL &&
        learner->set_updates != NULL) { /* Adam's corrections go by them */
        learner->set_updates(node->lane->learner, model->updates);
    }
    return RC_OK;
}

bool lane_rates(const struct node *node, struct learner_rates *rates)
{
    const struct learner_ops *learner = node->lane->learner->ops;

    if (learner->rates == NULL || learner->validate == NULL) return false;
    *rates = learner->rates(node->lane->learner);
    return true;
}

void lane_set_rates(struct node *node, struct learner_rates rates)
{
    node->lane->learner->ops->set_rates(node->lane->learner, &rates);
}

enum rc lane_validate(struct node *node, const struct learner_model *model,
                      struct evaluation *evaluation, struct digest *part)
{
    struct learner *learner = node->lane->learner;

    return learner->ops->validate(learner, model, evaluation, part);
}
