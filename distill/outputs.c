/*
 * outputs: see outputs.h. One input and one logits buffer of a batch for each thread, whatever the
 * set's size. Thread: whichever evaluates, one at a time; the team has others.
 */
#include "distill/outputs.h"

#include "base/check.h"
#include "base/floats.h"
#include "base/json.h"
#include "base/mem.h"
#include "replica/learners/team.h"

#include <float.h>
#include <math.h>
#include <stdatomic.h>

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

/* With n_b predictions in bin b: sum n_b / n |accuracy_b - confidence_b|, where n_b cancels. */
double score_calibration(const struct score *score)
{
    double sum = 0;

    if (score->is_real || score->count == 0 || isnan(score->loss_sum)) return (double)NAN;
    for (uint32_t b = 0; b < SCORE_BINS; b++) {
        sum += fabs(score->gaps[b]);
    }
    return sum / (double)score->count;
}

struct json *score_json(const struct score *score)
{
    struct json *json = json_object_create();

    json_set_real(json, "accuracy", score_accuracy(score));
    json_set_real(json, "loss", score_loss(score));
    json_set_real(json, "calibration_error", score_calibration(score));
    return json;
}

/* Bins are ((b) / 15, (b + 1) / 15], the first with 0. */
static void gap_add(double gaps[SCORE_BINS], double confidence, bool is_correct)
{
    const double bin = ceil(confidence * SCORE_BINS) - 1;

    gaps[(uint32_t)fmin(fmax(bin, 0), SCORE_BINS - 1)] += (is_correct ? 1 : 0) - confidence;
}

void score_add(struct score *score, const struct verdict *verdict)
{
    score->count++;
    score->correct += verdict->is_correct;
    gap_add(score->gaps, verdict->confidence, verdict->is_correct);
    /* A float32 probability that underflowed would make one sample's loss infinite. */
    score->loss_sum -= log(fmax(verdict->probability, (double)FLT_TRUE_MIN));
}

struct dataset_info outputs_info(const struct dataset_info *info, const struct model *model)
{
    struct dataset_info as_trained = *info;

    CHECK(info->channels == model_channels(model));
    as_trained.mean = model_mean(model);
    as_trained.scale = model_scale(model);
    return as_trained;
}

struct batch_score {
    struct task_score task;
    double gaps[SCORE_BINS];
};

/* A run over a part. Threads take batches in their order, and what each batch scores is kept by
 * itself, so that sums do not hang on who was first. */
struct running {
    const struct dataset_info *info;
    const struct outputs_part *part;
    const struct outputs_sink *sink;
    const struct task *task;
    struct batch_score *scores; /* [batches] */
    size_t batches, each;       /* each: logits of a sample */
    uint32_t most;              /* samples a batch */
    atomic_size_t taken;        /* batches, so far */
    atomic_size_t finished;     /* samples */
};

/* The rows of a batch in their bins. Heads have been merged, as the logits are of evaluation. */
static void judge_confidence(const struct task *task, const struct batch *batch,
                             const float *logits, double gaps[SCORE_BINS])
{
    const size_t rows = (size_t)batch->rows * task->rows;

    for (size_t i = 0; i < rows; i++, logits += task->outputs) {
        uint32_t best = 0;
        double sum = 0;
        for (uint32_t k = 1; k < task->outputs; k++) {
            if (logits[k] > logits[best]) best = k;
        }
        for (uint32_t k = 0; k < task->outputs; k++) {
            sum += exp((double)(logits[k] - logits[best]));
        }
        gap_add(gaps, 1 / sum, batch->labels[i] == best);
    }
}

static enum rc run_batch(struct running *r, struct model *model, size_t number, struct batch *batch,
                         float *logits)
{
    const size_t first = number * r->most, left = r->part->count - first;
    const uint32_t samples = left < r->most ? (uint32_t)left : r->most;
    enum rc rc;

    rc = samples_gather(r->part->samples, r->info,
                        (struct pick){NULL, r->part->first + first, samples}, batch);
    if (rc == RC_OK) rc = model_forward(model, batch->values, samples, false, logits);
    if (rc == RC_OK && !floats_are_finite(logits, samples * r->each)) rc = RC_NONFINITE;
    if (rc != RC_OK) return rc;
    r->scores[number].task = task_judge(r->task, batch, logits);
    if (r->task->target != DATA_REALS) {
        judge_confidence(r->task, batch, logits, r->scores[number].gaps);
    }
    if (r->sink != NULL) r->sink->on_logits(r->sink->context, first, samples, logits);
    atomic_fetch_add(&r->finished, samples);
    return RC_OK;
}

/* In the thread of the lane, until none is left. */
static enum rc run_batches(void *context, const struct team_lane *lane)
{
    struct running *r = context;
    float *logits = mem_aligned(r->most * r->each * sizeof(float));
    struct batch batch = {0};
    enum rc rc = logits != NULL ? batch_init(&batch, r->info, r->most) : RC_NOMEM;

    while (rc == RC_OK) {
        const size_t number = atomic_fetch_add(&r->taken, 1);
        if (number >= r->batches) break;
        rc = run_batch(r, lane->model, number, &batch, logits);
        if (lane->number == 0) work_tell(r->part->work, atomic_load(&r->finished));
    }
    if (rc != RC_OK) atomic_store(&r->taken, r->batches); /* the others need not go on */
    mem_free(logits);
    batch_deinit(&batch);
    return rc;
}

enum rc outputs_run(struct team *team, const struct dataset_info *info,
                    const struct outputs_part *part, const struct outputs_sink *sink,
                    struct score *score)
{
    const struct model *model = team_model(team);
    struct task task;
    struct running r = {.info = info,
                        .part = part,
                        .sink = sink,
                        .task = &task,
                        .each = (size_t)model_rows(model) * model_classes(model),
                        .most = model_batch_max(model)};
    enum rc rc = task_init(&task, info, model, 1, NULL);

    CHECK(part->first + part->count <= part->samples->count);
    if (rc != RC_OK) return rc;
    r.batches = (part->count + r.most - 1) / r.most;
    r.scores = mem_array(r.batches, sizeof *r.scores);
    rc = r.scores != NULL ? team_run(team, team_threads(team), run_batches, &r) : RC_NOMEM;
    for (size_t i = 0; rc == RC_OK && i < r.batches; i++) {
        const struct task_score *batch = &r.scores[i].task;
        score->loss_sum += (double)batch->count * batch->loss;
        score->correct += batch->hits;
        score->count += batch->count;
        for (uint32_t b = 0; b < SCORE_BINS; b++) {
            score->gaps[b] += r.scores[i].gaps[b];
        }
    }
    score->is_real = task.target == DATA_REALS;
    if (rc == RC_OK) work_add(part->work, part->count);
    mem_free(r.scores);
    task_deinit(&task);
    return rc;
}
