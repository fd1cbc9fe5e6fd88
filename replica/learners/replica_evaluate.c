/*
 * How good a replica is on the test part of its data. Thread: the training lane's.
 */
#include "replica/learners/replica_internal.h"

enum { TEST_SAMPLES_KEPT = 1000 };

/* Loss and hits of the batch in `next`: on a device where it has the logits. */
static enum rc judge(struct replica *r, struct task_score *score)
{
    if (r->device != NULL && r->task.heads == 1) return replica_device_judge(r, score);
    return replica_forward(r, false, score);
}

/* Loss and hits over `count` samples, batch by batch. */
enum rc replica_score(struct replica *r, const struct samples *samples, size_t count,
                      struct evaluation *evaluation)
{
    const struct dataset_info *info = dataset_info(r->dataset);
    double loss = 0.0;
    uint64_t hits = 0, predictions = 0;

    for (size_t i = 0; i < count; i += r->batch) {
        uint32_t rows = count - i < r->batch ? (uint32_t)(count - i) : r->batch;
        struct task_score batch;
        enum rc rc;

        rc = samples_gather(samples, info, (struct pick){NULL, i, rows}, &r->next);
        if (rc == RC_OK) rc = judge(r, &batch);
        if (rc != RC_OK) return rc;
        loss += batch.loss * (double)batch.count;
        hits += batch.hits;
        predictions += batch.count;
    }
    *evaluation = (struct evaluation){.samples = count,
                                      .loss = loss / (double)predictions,
                                      .accuracy = task_accuracy(&r->task, hits, predictions)};
    return RC_OK;
}

/* Samples that `samples_max` allows; a sample of a text is many predictions, and counts for more.
 */
static uint64_t allowed(const struct dataset_info *info, uint64_t samples_max)
{
    uint64_t each = info->labels_per_sample, fewer;

    if (samples_max == 0) return info->test_samples;
    fewer = each > 8 ? samples_max / each * 8 + samples_max % each * 8 / each : samples_max;
    if (fewer == 0) fewer = 1;
    return fewer < info->test_samples ? fewer : info->test_samples;
}

/* A thousand samples stay in memory; more are loaded for the occasion. */
static enum rc evaluate(struct learner *learner, uint64_t samples_max,
                        struct evaluation *evaluation)
{
    struct replica *r = replica_of(learner);
    uint64_t count = allowed(dataset_info(r->dataset), samples_max);
    struct samples more = {0};
    enum rc rc = RC_OK;

    if (count == 0) return RC_NOT_FOUND;
    backend_bind_thread(r->backend);
    if (count > TEST_SAMPLES_KEPT) {
        rc = dataset_load_test(r->dataset, count, &more, NULL);
        if (rc == RC_OK) rc = replica_score(r, &more, count, evaluation);
        samples_deinit(&more);
        return rc;
    }
    if (r->test.count < count) rc = dataset_load_test(r->dataset, count, &r->test, NULL);
    return rc == RC_OK ? replica_score(r, &r->test, count, evaluation) : rc;
}

enum rc replica_evaluate(struct learner *learner, uint64_t samples_max,
                         struct evaluation *evaluation)
{
    struct model_profiler *profiler = replica_of(learner)->profiler;
    uint64_t begin = model_profiler_now(profiler);
    enum rc rc;

    model_profiler_watch(profiler, false);
    rc = evaluate(learner, samples_max, evaluation);
    model_profiler_watch(profiler, true);
    model_profiler_add(profiler, PROFILE_EVALUATION, begin);
    return rc;
}
