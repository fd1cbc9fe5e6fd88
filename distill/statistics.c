/* statistics: see statistics.h. Thread: whichever evaluates, one at a time. */
#include "distill/statistics.h"

#include "base/check.h"
#include "base/floats.h"
#include "base/mem.h"
#include "distill/outputs.h"

static enum rc load(struct dataset *dataset, struct samples *samples, struct fault *why)
{
    const struct dataset_info *info = dataset_info(dataset);
    const size_t each = (dataset_values(info) + 1) * (info->has_bytes ? 1 : sizeof(float));
    size_t most = STATISTICS_BYTES_MAX / each;
    bool *wanted = mem_array(info->blocks, sizeof *wanted);
    enum rc rc;

    if (wanted == NULL) return fault_set(why, RC_NOMEM, "out of memory");
    if (most > STATISTICS_BATCH * STATISTICS_BATCHES) most = STATISTICS_BATCH * STATISTICS_BATCHES;
    for (uint32_t b = 0; b < info->blocks; b++) {
        wanted[b] = b == 0 || ((size_t)b + 1) * info->block_samples <= most;
    }
    rc = dataset_load_blocks(dataset, wanted, samples, why);
    mem_free(wanted);
    return rc;
}

/* Only equal batches weigh alike, so a last one that is not full is left out, unless it is the only
 * one. */
static enum rc run(struct model *model, const struct dataset_info *info,
                   const struct samples *samples, struct batch *batch, float *logits,
                   struct work *work)
{
    const size_t rows = samples->count < batch->rows_max ? samples->count : batch->rows_max;
    const uint64_t passes = model_passes(model);
    enum rc rc = RC_OK;

    for (size_t k = 0; rc == RC_OK && rows > 0 && (k + 1) * rows <= samples->count; k++) {
        rc = samples_gather(samples, info, (struct pick){NULL, k * rows, (uint32_t)rows}, batch);
        if (rc != RC_OK) break;
        model_set_statistics_pass(model, k + 1);
        model_set_stream(model, 0, k); /* dropout: a fresh mask each time */
        rc = model_forward(model, batch->values, batch->rows, true, logits);
        work_add(work, rows);
    }
    model_set_statistics_pass(model, 0);
    model_set_stream(model, 0, passes);
    return rc;
}

static enum rc check_finite(struct model *model)
{
    const float *values = NULL;
    enum rc rc = model_host_plane(model, SECTION_BUFFERS, &values);

    if (rc != RC_OK) return rc;
    return floats_are_finite(values, model_schema(model)->values[SECTION_BUFFERS]) ? RC_OK
                                                                                   : RC_NONFINITE;
}

enum rc statistics_estimate(struct model *model, struct dataset *dataset, struct work *work,
                            struct fault *why)
{
    if (model_schema(model)->values[SECTION_BUFFERS] == 0) return RC_OK;
    CHECK(model_plane(model, SECTION_GRADIENT) != NULL);
    const struct dataset_info info = outputs_info(dataset_info(dataset), model);
    const uint32_t most = model_batch_max(model);
    const uint32_t rows = most < STATISTICS_BATCH ? most : STATISTICS_BATCH;
    const size_t outputs = (size_t)model_rows(model) * model_heads(model) * model_classes(model);
    struct fault reason = {""};
    struct samples samples = {0};
    struct batch batch = {0};
    float *logits = mem_aligned(rows * outputs * sizeof(float));
    enum rc rc = logits != NULL ? batch_init(&batch, &info, rows) : RC_NOMEM;

    if (rc == RC_OK) rc = load(dataset, &samples, &reason);
    if (rc == RC_OK) rc = run(model, &info, &samples, &batch, logits, work);
    if (rc == RC_OK) rc = check_finite(model);
    if (rc != RC_OK) {
        rc = fault_set(why, rc, "cannot estimate the statistics of normalisation: %s",
                       reason.text[0] != '\0' ? reason.text : rc_text(rc));
    }
    samples_deinit(&samples);
    batch_deinit(&batch);
    mem_free(logits);
    return rc;
}
