/*
 * One optimizer step: the numbers of an update, and one call of the backend for the whole plane or,
 * for layer-wise methods, one for each tensor. The methods are described in optimizer.c.
 */
#include "replica/optimizer/optimizer.h"

#include "base/check.h"
#include "replica/plane/plane.h"

#include <math.h>
#include <string.h>

struct update optimizer_update(const struct optimizer *optimizer, double rate, uint64_t count)
{
    double c1 = 1.0 - pow(optimizer->beta, (double)count);
    double c2 = 1.0 - pow(optimizer->beta2, (double)count);
    struct update update = {
        .kind = optimizer->kind,
        .rate = (float)rate,
        .beta = (float)optimizer->beta,
        .beta2 = (float)optimizer->beta2,
        .epsilon = (float)optimizer->epsilon,
        .decay = (float)optimizer->decay,
    };

    CHECK(count > 0);
    switch (optimizer->kind) {
    case UPDATE_ADAMW:
        update.decay = (float)(rate * optimizer->decay);
        /* fall through */
    case UPDATE_ADAM:
        update.rate = (float)(rate * sqrt(c2) / c1);
        update.epsilon = (float)(optimizer->epsilon * sqrt(c2));
        break;
    case UPDATE_LARS:
        update.trust = (float)optimizer->trust;
        break;
    case UPDATE_LAMB:
        update.trust = 1.0F;
        update.correction = (float)(sqrt(c2) / c1);
        update.epsilon = (float)(optimizer->epsilon * sqrt(c2));
        break;
    case UPDATE_MUON:
        update.decay = (float)(rate * optimizer->decay);
        break;
    default:
        break; /* the numbers as they are */
    }
    return update;
}

bool optimizer_is_hidden_matrix(const struct schema *schema, const struct tensor *tensor)
{
    if (tensor->section != SECTION_PARAMETERS || tensor->rank < 2) return false;
    if (strstr(tensor->name, "embed") != NULL || strstr(tensor->name, "position") != NULL) {
        return false;
    }
    for (const struct tensor *t = tensor + 1; t < schema->tensors + schema->tensors_count; t++) {
        if (t->section == SECTION_PARAMETERS && t->rank >= 2) return true;
    }
    return false;
}

static size_t columns_of(const struct tensor *tensor)
{
    return tensor->count / tensor->shape[0];
}

size_t optimizer_workspace(const struct optimizer *optimizer, const struct schema *schema)
{
    size_t most = 0;

    if (optimizer->kind != UPDATE_MUON) return 0;
    for (uint32_t i = 0; i < schema->tensors_count; i++) {
        const struct tensor *tensor = &schema->tensors[i];
        size_t wanted = 0;
        if (optimizer_is_hidden_matrix(schema, tensor)) {
            wanted = update_workspace(tensor->shape[0], columns_of(tensor));
        }
        if (wanted > most) most = wanted;
    }
    return most;
}

/* Biases and norm parameters: no ratio, no decay. */
static struct update update_of_layer(const struct optimizer *optimizer,
                                     const struct optimizer_step *step, const struct tensor *tensor)
{
    struct update update = optimizer_update(optimizer, optimizer->lr * step->factor, step->count);

    if (tensor->rank < 2) {
        update.trust = 0.0F;
        update.decay = 0.0F;
    }
    return update;
}

static struct update update_of_muon(const struct optimizer *optimizer, const struct schema *schema,
                                    const struct optimizer_step *step, const struct tensor *tensor)
{
    struct optimizer adamw = {.kind = UPDATE_ADAMW,
                              .beta = optimizer->adamw_beta,
                              .beta2 = optimizer->beta2,
                              .epsilon = optimizer->epsilon,
                              .decay = optimizer->decay};
    struct update update;
    double slant;

    if (!optimizer_is_hidden_matrix(schema, tensor)) {
        return optimizer_update(&adamw, optimizer->adamw_lr * step->factor, step->count);
    }
    slant = (double)tensor->shape[0] / (double)columns_of(tensor);
    update = optimizer_update(optimizer, optimizer->lr * step->factor, step->count);
    if (slant > 1.0) update.rate = (float)(optimizer->lr * step->factor * sqrt(slant));
    update.rows = tensor->shape[0];
    update.workspace = step->workspace;
    return update;
}

/* About what a tensor costs beside others. */
static double cost_of(const struct optimizer *optimizer, const struct schema *schema,
                      const struct tensor *tensor)
{
    double rows = (double)tensor->shape[0], columns = (double)columns_of(tensor);

    if (optimizer->kind != UPDATE_MUON || !optimizer_is_hidden_matrix(schema, tensor)) {
        return (double)tensor->count;
    }
    return rows * columns * (rows < columns ? rows : columns);
}

/* Who has had the least so far. */
static uint32_t idlest(const double *costs, uint32_t count)
{
    uint32_t best = 0;

    for (uint32_t i = 1; i < count; i++) {
        if (costs[i] < costs[best]) best = i;
    }
    return best;
}

static enum rc step_by_layers(const struct optimizer *optimizer, const struct schema *schema,
                              const struct optimizer_step *step, const struct optimizer_part *part)
{
    double costs[OPTIMIZER_PARTS_MAX] = {0.0};
    size_t workspace = optimizer_workspace(optimizer, schema);
    struct optimizer_step mine = *step;
    enum rc rc = RC_OK;

    if (workspace > 0) mine.workspace = step->workspace + part->number * workspace;
    for (uint32_t i = 0; rc == RC_OK && i < schema->tensors_count; i++) {
        const struct tensor *tensor = &schema->tensors[i];
        uint32_t owner = idlest(costs, part->count);
        struct update update;
        size_t at = tensor->offset;

        if (tensor->section != SECTION_PARAMETERS) continue;
        costs[owner] += cost_of(optimizer, schema, tensor);
        if (owner != part->number) continue;
        update = optimizer->kind == UPDATE_MUON ? update_of_muon(optimizer, schema, &mine, tensor)
                                                : update_of_layer(optimizer, &mine, tensor);
        update.plane = schema->values[SECTION_PARAMETERS];
        update.copies = step->copies;
        rc = part->backend->ops->update(part->backend, &update, step->gradient + at,
                                        step->moments + at, step->values + at, tensor->count);
    }
    return rc;
}

bool optimizer_is_layerwise(const struct optimizer *optimizer)
{
    return optimizer->kind >= UPDATE_LARS;
}

enum rc optimizer_step_part(const struct optimizer *optimizer, const struct schema *schema,
                            const struct optimizer_step *step, const struct optimizer_part *part)
{
    struct update update;
    size_t at = part->begin;

    CHECK(step->count > 0 && part->number < part->count && part->count <= OPTIMIZER_PARTS_MAX);
    CHECK(!optimizer_is_full_batch(optimizer));
    if (optimizer_is_layerwise(optimizer)) return step_by_layers(optimizer, schema, step, part);
    if (part->end == at) return RC_OK;
    update = optimizer_update(optimizer, optimizer->lr * step->factor, step->count);
    update.plane = schema->values[SECTION_PARAMETERS];
    update.copies = step->copies;
    return part->backend->ops->update(part->backend, &update, step->gradient + at,
                                      step->moments == NULL ? NULL : step->moments + at,
                                      step->values + at, part->end - at);
}

enum rc optimizer_step(const struct optimizer *optimizer, struct backend *backend,
                       const struct schema *schema, const struct optimizer_step *step)
{
    const struct optimizer_part all = {backend, 0, 1, 0, schema->values[SECTION_PARAMETERS]};

    return optimizer_step_part(optimizer, schema, step, &all);
}

enum rc optimizer_clip(struct backend *backend, double clip, float *gradient, size_t n)
{
    double squares = 0.0;
    enum rc rc;

    if (!(clip > 0.0)) return RC_OK;
    rc = backend->ops->squared_norm(backend, gradient, n, &squares);
    if (rc != RC_OK || squares <= clip * clip) return rc;
    return backend->ops->scale(backend, (float)(clip / sqrt(squares)), gradient, n);
}
