/*
 * How good a replica is on the test part of its data; and what population-based training asks of
 * it: its rates, and how good a model is on samples that no member trains on. These are the end of
 * the data's seeded order, so members with one seed and one file have the same. Thread: the
 * training lane's.
 */
#include "replica/learners/replica_internal.h"

#include "base/check.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

enum { TEST_SAMPLES_KEPT = 1000, HELD_OUT_SHARE = 10, HELD_OUT_SAMPLES = 1000 };

/* ---- the test part ---- */

/* Loss and hits of the batch in `next`: on a device where it has the logits. */
static enum rc judge_batch(struct replica *r, struct task_score *score)
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
        if (rc == RC_OK) rc = judge_batch(r, &batch);
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

/* ---- held out ---- */

enum rc replica_blocks_held(const struct dataset_info *info, uint32_t *blocks, struct fault *why)
{
    uint64_t wanted = info->train_samples / HELD_OUT_SHARE;

    if (wanted > HELD_OUT_SAMPLES) wanted = HELD_OUT_SAMPLES;
    if (wanted == 0 || info->blocks < 2) {
        return fault_set(why, RC_USAGE,
                         "%s: too few training samples to keep some apart: %llu, where it takes "
                         "at least %d",
                         info->name, (unsigned long long)info->train_samples, HELD_OUT_SHARE);
    }
    *blocks = dataset_last_blocks(info, wanted);
    if (*blocks == info->blocks) --*blocks; /* something must be left to train on */
    return RC_OK;
}

/* ---- rates ---- */

struct learner_rates replica_rates(const struct learner *learner)
{
    const struct optimizer *optimizer = &((const struct replica *)learner)->optimizer;

    return (struct learner_rates){optimizer->lr, optimizer->decay};
}

void replica_set_rates(struct learner *learner, const struct learner_rates *rates)
{
    struct optimizer *optimizer = &replica_of(learner)->optimizer;

    CHECK(rates->rate > 0 && rates->decay >= 0);
    optimizer->adamw_lr *= rates->rate / optimizer->lr; /* muon's second one goes along */
    optimizer->lr = rates->rate;
    optimizer->decay = rates->decay;
}

/* ---- the samples ---- */

/* By what they are, not by where they lie. Tokens in files are known by their places alone. */
static struct digest part_of(const struct dataset_info *info, const struct samples *samples)
{
    const size_t count = samples->count, values = count * samples->stored;
    const struct {
        const void *bytes;
        size_t count;
    } parts[] = {{info->name, strlen(info->name)},
                 {&info->train_samples, sizeof info->train_samples},
                 {samples->bytes, values},
                 {samples->floats, values * sizeof(float)},
                 {samples->tokens, values * sizeof(uint32_t)},
                 {samples->windows, count * sizeof(uint32_t)},
                 {samples->small_labels, count},
                 {samples->large_labels, count * sizeof(uint32_t)},
                 {samples->targets, count * info->outputs * sizeof(float)}};
    struct hash hash;

    hash_init(&hash);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (parts[i].bytes != NULL) hash_update(&hash, parts[i].bytes, parts[i].count);
    }
    return hash_final(&hash);
}

static enum rc load_held_out(struct replica *r)
{
    const struct dataset_info *info = dataset_info(r->dataset);
    bool *wanted;
    enum rc rc;

    if (r->blocks_held == 0) return RC_NOT_FOUND;
    if (r->held_out.count > 0) return RC_OK;
    wanted = mem_array(info->blocks, sizeof *wanted);
    if (wanted == NULL) return RC_NOMEM;
    for (uint32_t b = info->blocks - r->blocks_held; b < info->blocks; b++) {
        wanted[b] = true;
    }
    rc = dataset_load_blocks(r->dataset, wanted, &r->held_out, NULL);
    mem_free(wanted);
    if (rc != RC_OK) return rc;
    if (r->held_out.count > HELD_OUT_SAMPLES) r->held_out.count = HELD_OUT_SAMPLES;
    r->held_out_part = part_of(info, &r->held_out);
    return RC_OK;
}

/* ---- the model ---- */

static enum rc judge(struct replica *r, struct evaluation *evaluation)
{
    enum rc rc = replica_score(r, &r->held_out, r->held_out.count, evaluation);

    if (rc != RC_NONFINITE) return rc;
    *evaluation = (struct evaluation){
        .samples = r->held_out.count, .loss = (double)INFINITY, .accuracy = (double)NAN};
    return RC_OK;
}

static enum rc read_all(struct learner *learner, float *const planes[SECTION_COUNT])
{
    const struct schema *schema = learner->ops->schema(learner);
    enum rc rc = RC_OK;

    for (int i = 0; i < SECTION_COUNT && rc == RC_OK; i++) {
        if (planes[i] == NULL) continue;
        rc = learner->ops->export_section(learner, (enum section)i, planes[i], schema->values[i]);
    }
    return rc;
}

static enum rc write_all(struct learner *learner, const float *const planes[SECTION_COUNT])
{
    const struct schema *schema = learner->ops->schema(learner);
    enum rc rc = RC_OK;

    for (int i = 0; i < SECTION_COUNT && rc == RC_OK; i++) {
        if (planes[i] == NULL) continue;
        rc = replica_assign(learner, (enum section)i, planes[i], schema->values[i]);
    }
    return rc;
}

/* It takes the place of ours for as long, and ours comes back to the bit. The exponential mean is
 * of ours, and goes on. */
static enum rc judge_other(struct replica *r, const struct learner_model *model,
                           struct evaluation *evaluation)
{
    const float *other[SECTION_COUNT] = {[SECTION_PARAMETERS] = model->parameters,
                                         [SECTION_BUFFERS] = model->buffers,
                                         [SECTION_INPUT] = model->input};
    const struct schema *schema = model_schema(r->model);
    const uint64_t averages = r->averages;
    float *own[SECTION_COUNT] = {NULL};
    enum rc rc = RC_OK, back;

    for (int i = 0; i < SECTION_COUNT; i++) {
        if (other[i] == NULL) continue;
        own[i] = mem_aligned(schema->values[i] * sizeof(float));
        if (own[i] == NULL) rc = RC_NOMEM;
    }
    if (rc == RC_OK) rc = read_all(&r->learner, own);
    if (rc == RC_OK) {
        rc = write_all(&r->learner, other);
        if (rc == RC_OK) rc = judge(r, evaluation);
        back = write_all(&r->learner, (const float *const *)own);
        if (back != RC_OK) rc = back;
        r->averages = averages;
    }
    for (int i = 0; i < SECTION_COUNT; i++) {
        mem_free(own[i]);
    }
    return rc;
}

enum rc replica_validate(struct learner *learner, const struct learner_model *model,
                         struct evaluation *evaluation, struct digest *part)
{
    struct replica *r = replica_of(learner);
    enum rc rc;

    backend_bind_thread(r->backend);
    rc = load_held_out(r);
    if (rc != RC_OK) return rc;
    *part = r->held_out_part;
    return model == NULL ? judge(r, evaluation) : judge_other(r, model, evaluation);
}
