/*
 * outputs: see outputs.h. One input and one logits buffer of a batch, whatever the set's size.
 * Thread: whichever evaluates, one at a time.
 */
#include "distill/outputs.h"

#include "base/check.h"
#include "base/mem.h"

#include <float.h>
#include <math.h>

double score_loss(const struct score *score)
{
    return score->samples > 0 ? score->loss_sum / (double)score->samples : NAN;
}

double score_accuracy(const struct score *score)
{
    return score->samples > 0 ? (double)score->correct / (double)score->samples : NAN;
}

void score_add(struct score *score, double probability, bool is_correct)
{
    score->samples++;
    score->correct += is_correct;
    /* A float32 probability that underflowed would make one sample's loss infinite. */
    score->loss_sum -= log(fmax(probability, (double)FLT_TRUE_MIN));
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
                    const struct samples *samples, const struct outputs_sink *sink)
{
    const uint32_t rows_max = model_batch_max(model), classes = model_classes(model);
    float *logits = mem_aligned((size_t)rows_max * classes * sizeof(float));
    struct batch batch = {0};
    enum rc rc = logits != NULL ? batch_init(&batch, info, rows_max) : RC_NOMEM;

    for (size_t first = 0; rc == RC_OK && first < samples->count; first += batch.rows) {
        const size_t left = samples->count - first;
        const struct pick pick = {NULL, first, left < rows_max ? (uint32_t)left : rows_max};
        samples_gather(samples, info, pick, &batch);
        rc = model_forward(model, batch.values, batch.rows, false, logits);
        if (rc == RC_OK && !is_finite(logits, (size_t)batch.rows * classes)) rc = RC_NONFINITE;
        if (rc == RC_OK) sink->on_logits(sink->context, first, &batch, logits);
    }
    mem_free(logits);
    batch_deinit(&batch);
    return rc;
}

void score_add_logits(struct score *score, const float *logits, const uint32_t *labels, size_t rows,
                      uint32_t classes)
{
    uint32_t correct = 0;

    /* The mean over the batch, summed up again. */
    score->loss_sum +=
        (double)rows * loss_cross_entropy(logits, labels, (uint32_t)rows, classes, NULL, &correct);
    score->correct += correct;
    score->samples += rows;
}

struct scoring {
    uint32_t classes;
    struct score score;
};

static void on_scored_logits(void *context, size_t first, const struct batch *batch,
                             const float *logits)
{
    struct scoring *scoring = context;

    (void)first;
    score_add_logits(&scoring->score, logits, batch->labels, batch->rows, scoring->classes);
}

enum rc outputs_score(struct model *model, const struct dataset_info *info,
                      const struct samples *samples, struct score *score)
{
    struct scoring scoring = {.classes = model_classes(model)};
    const struct outputs_sink sink = {&scoring, on_scored_logits};
    const enum rc rc = outputs_run(model, info, samples, &sink);

    if (rc == RC_OK) *score = scoring.score;
    return rc;
}
