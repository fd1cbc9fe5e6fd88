/*
 * What a replica says when others ask: the live model's answers to samples of the training part of
 * its data, by their numbers there, whatever its own shard is. A pass in evaluation mode by the
 * whole team, as an evaluation is; it leaves neither statistics nor a random stream changed.
 * Thread: the training lane's.
 */
#include "replica/learners/replica_internal.h"

#include "base/check.h"
#include "base/floats.h"
#include "kernels/softmax.h"

void replica_answer_shape(const struct learner *learner, struct answer_shape *shape)
{
    const struct replica *r = (const struct replica *)learner;
    const struct dataset_info *info = dataset_info(r->dataset);

    *shape = (struct answer_shape){.samples = info->train_samples,
                                   .rows = r->task.rows,
                                   .outputs = r->task.outputs,
                                   .is_real = info->target == DATA_REALS,
                                   .sample_bytes = samples_bytes(info)};
}

enum rc replica_load_samples(struct learner *learner, const uint32_t *numbers, size_t count,
                             struct samples *samples, struct digest *digest)
{
    struct replica *r = replica_of(learner);
    enum rc rc = dataset_load_list(r->dataset, numbers, count, samples, NULL);

    return rc == RC_OK ? samples_digest(samples, dataset_info(r->dataset), digest) : rc;
}

enum rc replica_answer(struct learner *learner, const struct samples *samples, size_t first,
                       size_t count, float *out)
{
    struct replica *r = replica_of(learner);
    const size_t each = (size_t)r->task.rows * r->task.outputs;

    CHECK(first <= samples->count && count <= samples->count - first);
    backend_bind_thread(r->backend);
    for (size_t i = 0; i < count; i += r->batch) {
        const uint32_t rows = count - i < r->batch ? (uint32_t)(count - i) : r->batch;
        const struct pick pick = {NULL, first + i, rows};
        float *to = out + i * each;
        enum rc rc = samples_gather(samples, dataset_info(r->dataset), pick, &r->next);

        if (rc == RC_OK) rc = team_forward(r->team, r->next.values, rows, false, to);
        if (rc == RC_OK && !floats_are_finite(to, rows * each)) rc = RC_NONFINITE;
        if (rc != RC_OK) return rc;
        for (size_t row = 0; r->task.target != DATA_REALS && row < rows * r->task.rows; row++) {
            float *of_row = to + row * r->task.outputs, largest;

            (void)softmax_row(of_row, r->task.outputs, 1.0F, of_row, &largest);
        }
    }
    return RC_OK;
}
