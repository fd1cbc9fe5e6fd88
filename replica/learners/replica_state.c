/*
 * What a replica keeps of itself to go on to the bit: counters, the place in the data, moments.
 * Thread: the training lane's.
 */
#include "replica/learners/replica_internal.h"

#include "base/floats.h"
#include "replica/plane/store_safetensors.h"

#include <math.h>
#include <string.h>

/* Words of "replica.state". */
enum state_word {
    STATE_STEP,
    STATE_UPDATES,
    STATE_SAMPLES,
    STATE_SCHEDULE,
    STATE_PASSES,
    STATE_SHARD
};
enum { STATE_WORDS = STATE_SHARD + SHARD_STATE_WORDS };

enum rc replica_save(struct learner *learner, struct tensor_file *file)
{
    struct replica *r = replica_of(learner);
    size_t count = model_schema(r->model)->values[SECTION_MOMENTS];
    const float *moments = NULL;
    uint64_t words[STATE_WORDS] = {
        [STATE_STEP] = r->step,
        [STATE_UPDATES] = r->updates,
        [STATE_SAMPLES] = r->samples_seen,
        [STATE_SCHEDULE] = r->has_schedule ? r->schedule.steps_total : 0,
        [STATE_PASSES] = model_passes(r->model),
    };
    enum rc rc = tensor_file_set(file, "optimizer", optimizer_name(r->optimizer.kind));

    shard_save(r->shard, words + STATE_SHARD);
    if (rc == RC_OK) rc = tensor_file_add_u64_copy(file, "replica.state", words, STATE_WORDS);
    if (rc == RC_OK && r->averages > 0) {
        rc = tensor_file_add_u64_copy(file, "replica.ema_updates", &r->averages, 1);
        if (rc == RC_OK) {
            rc = tensor_file_add_f32(file, "replica.ema", r->averaged,
                                     model_schema(r->model)->values[SECTION_PARAMETERS]);
        }
    }
    if (rc != RC_OK || count == 0) return rc;
    rc = model_host_plane(r->model, SECTION_MOMENTS, &moments);
    return rc == RC_OK ? tensor_file_add_f32(file, "replica.moments", moments, count) : rc;
}

static bool holds_finite(const struct tensor_view *view, size_t count)
{
    bool is_finite = true;

    for (size_t i = 0; is_finite && i < count; i++) {
        is_finite = isfinite(load_le_float((const uint8_t *)view->bytes + i * sizeof(float)));
    }
    return is_finite;
}

/* The moments entry, or RC_* and why it cannot be used. */
static enum rc find_moments(struct replica *r, const struct tensor_file *file,
                            const struct tensor_view **moments, struct fault *why)
{
    size_t count = model_schema(r->model)->values[SECTION_MOMENTS];
    const char *optimizer = tensor_file_get(file, "optimizer");

    *moments = tensor_file_find(file, "replica.moments");
    if (optimizer == NULL || strcmp(optimizer, optimizer_name(r->optimizer.kind)) != 0) {
        return fault_set(why, RC_MISMATCH, "the checkpoint was written with --optimizer %s, not %s",
                         optimizer == NULL ? "unknown" : optimizer,
                         optimizer_name(r->optimizer.kind));
    }
    if (count == 0) return RC_OK;
    if (*moments == NULL || strcmp((*moments)->dtype, "F32") != 0 ||
        (*moments)->bytes_count != count * sizeof(float)) {
        return fault_set(why, RC_SHAPE, "the checkpoint's optimizer state is of another model");
    }
    if (holds_finite(*moments, count)) return RC_OK;
    return fault_set(why, RC_NONFINITE, "the checkpoint's optimizer state holds a NaN");
}

/* The exponential mean; NULL: none is wanted, or the checkpoint was written without --ema, and it
 * begins anew. */
static enum rc find_ema(const struct replica *r, const struct tensor_file *file,
                        const struct tensor_view **ema, uint64_t *updates, struct fault *why)
{
    const struct tensor_view *counted = tensor_file_find(file, "replica.ema_updates");
    const size_t count = model_schema(r->model)->values[SECTION_PARAMETERS];

    *ema = r->averaged != NULL ? tensor_file_find(file, "replica.ema") : NULL;
    *updates = 0;
    if (*ema == NULL) return RC_OK;
    if (counted == NULL || strcmp(counted->dtype, "U64") != 0 ||
        counted->bytes_count != sizeof *updates || strcmp((*ema)->dtype, "F32") != 0 ||
        (*ema)->bytes_count != count * sizeof(float)) {
        return fault_set(why, RC_SHAPE, "the checkpoint's mean of --ema is of another model");
    }
    memcpy(updates, counted->bytes, sizeof *updates);
    if (holds_finite(*ema, count)) return RC_OK;
    return fault_set(why, RC_NONFINITE, "the checkpoint's mean of --ema holds a NaN");
}

enum rc replica_load(struct learner *learner, const struct tensor_file *file, struct fault *why)
{
    struct replica *r = replica_of(learner);
    const struct tensor_view *state = tensor_file_find(file, "replica.state"), *moments = NULL;
    const struct tensor_view *ema = NULL;
    uint64_t averages = 0;
    size_t count = model_schema(r->model)->values[SECTION_MOMENTS];
    struct schedule schedule = r->schedule;
    uint64_t words[STATE_WORDS];
    enum rc rc;

    if (state == NULL || strcmp(state->dtype, "U64") != 0 || state->bytes_count != sizeof(words)) {
        return fault_set(why, RC_FORMAT, "the checkpoint holds no training state of this program");
    }
    memcpy(words, state->bytes, sizeof(words));
    rc = find_moments(r, file, &moments, why);
    if (rc == RC_OK) rc = find_ema(r, file, &ema, &averages, why);
    if (rc != RC_OK) return rc;
    if (!r->has_schedule && words[STATE_SCHEDULE] > 0) {
        rc = schedule_parse(r->schedule_text, words[STATE_SCHEDULE], &schedule, why);
        if (rc != RC_OK) return rc;
    }
    if (!shard_load(r->shard, words + STATE_SHARD)) {
        return fault_set(why, RC_FORMAT, "the checkpoint's place in the data is damaged");
    }
    r->has_schedule = r->has_schedule || words[STATE_SCHEDULE] > 0;
    r->schedule = schedule;
    r->step = words[STATE_STEP];
    r->updates = words[STATE_UPDATES];
    r->samples_seen = words[STATE_SAMPLES];
    team_set_stream(r->team, r->stream_seed, words[STATE_PASSES]);
    r->averages = averages;
    if (averages > 0) {
        memcpy(r->averaged, ema->bytes,
               model_schema(r->model)->values[SECTION_PARAMETERS] * sizeof(float));
    }
    if (count == 0) return RC_OK;
    return replica_assign(learner, SECTION_MOMENTS, moments->bytes, count);
}
