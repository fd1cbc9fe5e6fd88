/*
 * What rounds do to a replica on a device, without training having to wait: the plane is copied on
 * the device at a step border, and leaves it, encoded, while further steps run; differences come
 * back the same way and are added at a border (kernels/snapshot.h). Running statistics, a few
 * values, pass through the host, which knows their form for averaging (replica/plane/mixture.h).
 * And the last good parameters, kept on the device. Thread: the training lane's.
 */
#include "replica/learners/replica_internal.h"

#include "base/check.h"
#include "base/mem.h"
#include "replica/plane/mixture.h"

enum rc replica_snapshot_create(struct learner *learner, enum codec_format format,
                                size_t chunk_values, struct snapshot **snapshot)
{
    struct replica *r = replica_of(learner);
    const struct snapshot_options options = {
        .values = model_schema(r->model)->values[SECTION_MIXED],
        .chunk_values = chunk_values,
        .format = format,
    };

    if (r->backend->is_host) return RC_UNSUPPORTED;
    return r->backend->ops->snapshot_create(r->backend, &options, snapshot);
}

/* Statistics and what mixture_fill() puts behind them. Of the array in front of them, which is as
 * large as the model, nothing is touched, so no memory is behind it. */
static enum rc take_statistics(struct replica *r, struct snapshot *snapshot)
{
    const struct schema *schema = model_schema(r->model);
    size_t values = schema->shared_parameters, buffers = schema->shared_buffers;
    float *mixed;
    enum rc rc;

    if (buffers == 0) return RC_OK;
    mixed = mem_raw(schema->values[SECTION_MIXED] * sizeof(float));
    if (mixed == NULL) return RC_NOMEM;
    rc = r->backend->ops->download(r->backend, mixed + values,
                                   model_plane(r->model, SECTION_BUFFERS), buffers * sizeof(float));
    if (rc == RC_OK) {
        mixture_fill(schema, mixed);
        rc = snapshot->ops->take_host(snapshot, values, mixed + values,
                                      schema->values[SECTION_MIXED] - values);
    }
    mem_free(mixed);
    return rc;
}

enum rc replica_snapshot_take(struct learner *learner, struct snapshot *snapshot)
{
    struct replica *r = replica_of(learner);
    uint64_t begin = model_profiler_now(r->profiler);
    enum rc rc;

    backend_bind_thread(r->backend);
    rc = snapshot->ops->take(snapshot, 0, model_values(r->model, SECTION_PARAMETERS),
                             model_schema(r->model)->shared_parameters);
    if (rc == RC_OK) rc = take_statistics(r, snapshot);
    if (rc == RC_OK) rc = snapshot->ops->seal(snapshot);
    model_profiler_add(r->profiler, PROFILE_SNAPSHOTS, begin);
    return rc;
}

enum rc replica_snapshot_apply(struct learner *learner, struct snapshot *snapshot,
                               const float *difference)
{
    struct replica *r = replica_of(learner);
    uint64_t begin = model_profiler_now(r->profiler);
    enum rc rc;

    backend_bind_thread(r->backend);
    rc = replica_mix_statistics(r, difference);
    if (rc == RC_OK) {
        rc = snapshot->ops->apply(snapshot, 0, model_plane(r->model, SECTION_PARAMETERS),
                                  model_schema(r->model)->shared_parameters);
    }
    if (rc == RC_OK) rc = team_spread(r->team, SECTION_PARAMETERS);
    model_profiler_add(r->profiler, PROFILE_SNAPSHOTS, begin);
    return rc;
}

static const enum section kept[] = {SECTION_PARAMETERS, SECTION_BUFFERS};

enum rc replica_keep(struct learner *learner)
{
    struct replica *r = replica_of(learner);
    const struct backend_ops *ops = r->backend->ops;
    const struct schema *schema = model_schema(r->model);
    bool is_finite = true;
    enum rc rc = RC_OK;

    if (r->device == NULL) return RC_UNSUPPORTED;
    backend_bind_thread(r->backend);
    /* The good copy stays until the new one is known to be one. */
    for (size_t i = 0; rc == RC_OK && is_finite && i < ARRAY_COUNT(kept); i++) {
        size_t count = schema->values[kept[i]];
        if (count == 0) continue;
        rc = ops->is_finite(r->backend, model_values(r->model, kept[i]), count, &is_finite);
    }
    if (rc == RC_OK && !is_finite) rc = RC_NONFINITE;
    for (size_t i = 0; rc == RC_OK && i < ARRAY_COUNT(kept); i++) {
        size_t bytes = schema->values[kept[i]] * sizeof(float);
        float **copy = &r->device->kept[kept[i]];
        if (bytes == 0) continue;
        if (*copy == NULL) *copy = ops->alloc(r->backend, bytes);
        rc = *copy == NULL ? RC_NOMEM
                           : ops->copy(r->backend, *copy, model_values(r->model, kept[i]), bytes);
    }
    return rc;
}

enum rc replica_restore(struct learner *learner)
{
    struct replica *r = replica_of(learner);
    const struct backend_ops *ops = r->backend->ops;
    const struct schema *schema = model_schema(r->model);
    size_t moments = schema->values[SECTION_MOMENTS];
    enum rc rc = RC_OK;

    CHECK(r->device != NULL && r->device->kept[SECTION_PARAMETERS] != NULL);
    backend_bind_thread(r->backend);
    for (size_t i = 0; rc == RC_OK && i < ARRAY_COUNT(kept); i++) {
        size_t bytes = schema->values[kept[i]] * sizeof(float);
        if (bytes == 0) continue;
        rc = ops->copy(r->backend, model_plane(r->model, kept[i]), r->device->kept[kept[i]], bytes);
        if (rc == RC_OK) rc = team_spread(r->team, kept[i]);
    }
    if (rc != RC_OK || moments == 0) return rc;
    r->updates = 0; /* the moments are of none: Adam corrects anew */
    rc = ops->zero(r->backend, model_plane(r->model, SECTION_MOMENTS), moments * sizeof(float));
    return rc == RC_OK ? team_spread(r->team, SECTION_MOMENTS) : rc;
}

const char *replica_why(const struct learner *learner)
{
    const struct replica *r = (const struct replica *)learner;

    return team_why(r->team);
}
