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

void outputs_normalise(const struct samples *samples, const uint32_t *order, size_t first,
                       size_t rows, float mean, float scale, float *input)
{
    const size_t width = samples->sample_bytes;
    float values[256]; /* a byte has no more: the arithmetic is done once for each */

    CHECK(first + rows <= samples->count);
    for (int b = 0; b < 256; b++) {
        values[b] = ((float)b / 255.0F - mean) * scale;
    }
    for (size_t r = 0; r < rows; r++) {
        const size_t row = order != NULL ? order[first + r] : first + r;
        const uint8_t *bytes = samples->bytes + row * width;
        for (size_t i = 0; i < width; i++) {
            input[r * width + i] = values[bytes[i]];
        }
    }
}

static bool is_finite(const float *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(values[i])) return false;
    }
    return true;
}

enum rc outputs_run(struct model *model, const struct model_card *card,
                    const struct samples *samples, const struct outputs_sink *sink)
{
    const uint32_t batch = model_batch_max(model), classes = model_classes(model);
    float *input = mem_aligned((size_t)batch * samples->sample_bytes * sizeof(float));
    float *logits = mem_aligned((size_t)batch * classes * sizeof(float));
    enum rc rc = input != NULL && logits != NULL ? RC_OK : RC_NOMEM;

    for (size_t first = 0; rc == RC_OK && first < samples->count;) {
        const size_t left = samples->count - first, rows = left < batch ? left : batch;
        outputs_normalise(samples, NULL, first, rows, card->mean, card->scale, input);
        rc = model_forward(model, input, (uint32_t)rows, false, logits);
        if (rc == RC_OK && !is_finite(logits, rows * classes)) rc = RC_NONFINITE;
        if (rc == RC_OK) sink->on_logits(sink->context, first, rows, logits);
        first += rows;
    }
    mem_free(logits);
    mem_free(input);
    return rc;
}

void score_add_logits(struct score *score, const float *logits, const uint8_t *labels, size_t rows,
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
    const struct samples *samples;
    uint32_t classes;
    struct score score;
};

static void on_scored_logits(void *context, size_t first, size_t rows, const float *logits)
{
    struct scoring *scoring = context;

    score_add_logits(&scoring->score, logits, scoring->samples->labels + first, rows,
                     scoring->classes);
}

enum rc outputs_score(struct model *model, const struct model_card *card,
                      const struct samples *samples, struct score *score)
{
    struct scoring scoring = {.samples = samples, .classes = model_classes(model)};
    const struct outputs_sink sink = {&scoring, on_scored_logits};
    const enum rc rc = outputs_run(model, card, samples, &sink);

    if (rc == RC_OK) *score = scoring.score;
    return rc;
}
