/*
 * outputs: see outputs.h. One input and one logits buffer of a batch for each copy of the model,
 * whatever the set's size. Thread: whichever evaluates, one at a time; copies beside the first run
 * in a crew's.
 */
#include "distill/outputs.h"

#include "base/check.h"
#include "base/floats.h"
#include "base/mem.h"
#include "kernels/backend.h"
#include "replica/learners/workers.h"

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

/* A copy of the model, and the batch it is at. */
struct lane {
    struct batch batch;
    float *logits;
    size_t first; /* within the part */
    enum rc rc;
};

struct running {
    const struct outputs_models *models;
    const struct dataset_info *info;
    const struct outputs_part *part;
    struct lane *lanes; /* [models->count] */
    size_t at;          /* the part is done up to here */
    uint32_t most;      /* samples a batch */
    size_t each;        /* logits of a sample */
};

/* In the thread of the lane. */
static void run_batch(void *context, uint32_t number)
{
    struct running *r = context;
    struct lane *lane = &r->lanes[number];
    const size_t left = r->part->count - r->at, before = (size_t)number * r->most;

    lane->batch.rows = 0;
    lane->rc = RC_OK;
    if (before >= left) return;
    lane->first = r->at + before;
    const uint32_t rows = left - before < r->most ? (uint32_t)(left - before) : r->most;
    const struct pick pick = {NULL, r->part->first + lane->first, rows};
    if (r->models->workers != NULL) backend_bind_thread(r->models->backends[number]);
    samples_gather(r->part->samples, r->info, pick, &lane->batch);
    lane->rc = model_forward(r->models->copies[number], lane->batch.values, lane->batch.rows, false,
                             lane->logits);
    if (lane->rc == RC_OK && !floats_are_finite(lane->logits, rows * r->each))
        lane->rc = RC_NONFINITE;
}

static enum rc run_batches(struct running *r, const struct outputs_sink *sink)
{
    enum rc rc = RC_OK;

    while (rc == RC_OK && r->at < r->part->count) {
        if (r->models->workers != NULL) {
            workers_run(r->models->workers, run_batch, r);
        } else {
            run_batch(r, 0);
        }
        for (uint32_t i = 0; rc == RC_OK && i < r->models->count; i++) {
            struct lane *lane = &r->lanes[i];
            rc = lane->rc;
            if (rc != RC_OK || lane->batch.rows == 0) break;
            sink->on_logits(sink->context, lane->first, &lane->batch, lane->logits);
            r->at += lane->batch.rows;
        }
    }
    return rc;
}

enum rc outputs_run(const struct outputs_models *models, const struct dataset_info *info,
                    const struct outputs_part *part, const struct outputs_sink *sink)
{
    struct model *model = models->copies[0];
    struct running r = {.models = models,
                        .info = info,
                        .part = part,
                        .lanes = mem_array(models->count, sizeof *r.lanes),
                        .most = model_batch_max(model),
                        .each = (size_t)model_rows(model) * model_classes(model)};
    enum rc rc = r.lanes != NULL ? RC_OK : RC_NOMEM;

    CHECK(part->first + part->count <= part->samples->count);
    CHECK(models->workers == NULL ? models->count == 1
                                  : models->count == workers_count(models->workers));
    for (uint32_t i = 0; rc == RC_OK && i < models->count; i++) {
        r.lanes[i].logits = mem_aligned(r.most * r.each * sizeof(float));
        rc = r.lanes[i].logits != NULL ? batch_init(&r.lanes[i].batch, info, r.most) : RC_NOMEM;
    }
    if (rc == RC_OK) rc = run_batches(&r, sink);
    for (uint32_t i = 0; r.lanes != NULL && i < models->count; i++) {
        mem_free(r.lanes[i].logits);
        batch_deinit(&r.lanes[i].batch);
    }
    mem_free(r.lanes);
    return rc;
}

enum rc outputs_run_one(struct model *model, const struct dataset_info *info,
                        const struct outputs_part *part, const struct outputs_sink *sink)
{
    return outputs_run(&(struct outputs_models){.copies = &model, .count = 1}, info, part, sink);
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

enum rc outputs_score(const struct outputs_models *models, const struct dataset_info *info,
                      const struct samples *samples, struct score *score)
{
    struct scoring scoring = {.score = {0}};
    const struct outputs_sink sink = {&scoring, on_scored_logits};
    const struct outputs_part all = {samples, 0, samples->count};
    enum rc rc = task_init(&scoring.task, info, models->copies[0], 1, NULL);

    if (rc == RC_OK) rc = outputs_run(models, info, &all, &sink);
    if (rc == RC_OK) *score = scoring.score;
    task_deinit(&scoring.task);
    return rc;
}
