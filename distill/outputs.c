/*
 * outputs: see outputs.h. One input and one logits buffer of a batch, whatever the set's size.
 * Thread: whichever evaluates, one at a time.
 */
#include "distill/outputs.h"

#include "base/check.h"
#include "base/mem.h"

#include <float.h>
#include <math.h>

uint32_t outputs_rows(const struct dataset_info *info)
{
    return info->labels_per_sample > 1 ? info->labels_per_sample : 1;
}

uint32_t outputs_batch(const struct dataset_info *info)
{
    const uint32_t samples = OUTPUTS_ROWS / outputs_rows(info);

    if (samples == 0) return 1;
    return samples < OUTPUTS_BATCH ? samples : OUTPUTS_BATCH;
}

double score_loss(const struct score *score)
{
    return score->count > 0 ? score->loss_sum / (double)score->count : (double)NAN;
}

double score_accuracy(const struct score *score)
{
    if (score->is_real || score->count == 0) return (double)NAN;
    return (double)score->correct / (double)score->count;
}

void score_add(struct score *score, double probability, bool is_correct)
{
    score->count++;
    score->correct += is_correct;
    /* A float32 probability that underflowed would make one sample's loss infinite. */
    score->loss_sum -= log(fmax(probability, (double)FLT_TRUE_MIN));
}

void score_add_batch(struct score *score, const struct task *task, const struct batch *batch,
                     const float *logits)
{
    const struct task_score judged = task_judge(task, batch, logits);

    /* The mean over the batch, summed up again. */
    score->loss_sum += (double)judged.count * judged.loss;
    score->correct += judged.hits;
    score->count += judged.count;
    score->is_real = task->target == DATA_REALS;
}

struct dataset_info outputs_info(const struct dataset_info *info, const struct model *model)
{
    struct dataset_info as_trained = *info;

    CHECK(info->channels == model_channels(model));
    as_trained.mean = model_mean(model);
    as_trained.scale = model_scale(model);
    return as_trained;
}

static bool is_finite(const float *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(values[i])) return false;
    }
    return true;
}

enum rc outputs_run(struct model *model, const struct dataset_info *info,
                    const struct outputs_part *part, const struct outputs_sink *sink)
{
    const uint32_t most = model_batch_max(model);
    const size_t each = (size_t)model_rows(model) * model_classes(model);
    float *logits = mem_aligned(most * each * sizeof(float));
    struct batch batch = {0};
    enum rc rc = logits != NULL ? batch_init(&batch, info, most) : RC_NOMEM;

    CHECK(part->first + part->count <= part->samples->count);
    for (size_t at = 0; rc == RC_OK && at < part->count; at += batch.rows) {
        const size_t left = part->count - at;
        const struct pick pick = {NULL, part->first + at, left < most ? (uint32_t)left : most};
        samples_gather(part->samples, info, pick, &batch);
        rc = model_forward(model, batch.values, batch.rows, false, logits);
        if (rc == RC_OK && !is_finite(logits, batch.rows * each)) rc = RC_NONFINITE;
        if (rc == RC_OK) sink->on_logits(sink->context, at, &batch, logits);
    }
    mem_free(logits);
    batch_deinit(&batch);
    return rc;
}

struct scoring {
    struct task task;
    struct score score;
};

static void on_scored_logits(void *context, size_t first, const struct batch *batch,
                             const float *logits)
{
    struct scoring *scoring = context;

    (void)first;
    score_add_batch(&scoring->score, &scoring->task, batch, logits);
}

enum rc outputs_score(struct model *model, const struct dataset_info *info,
                      const struct samples *samples, struct score *score)
{
    struct scoring scoring = {.score = {0}};
    const struct outputs_sink sink = {&scoring, on_scored_logits};
    const struct outputs_part all = {samples, 0, samples->count};
    enum rc rc = task_init(&scoring.task, info, model, 1, NULL);

    if (rc == RC_OK) rc = outputs_run(model, info, &all, &sink);
    if (rc == RC_OK) *score = scoring.score;
    task_deinit(&scoring.task);
    return rc;
}
