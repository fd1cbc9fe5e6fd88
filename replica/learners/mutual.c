/* mutual: see mutual.h. */
#include "replica/learners/mutual.h"

#include "base/check.h"
#include "base/floats.h"
#include "base/mem.h"
#include "replica/plane/store_safetensors.h"

#include <math.h>
#include <string.h>

static const char own_name[] = "mutual.own", state_name[] = "mutual.state";

enum { STATE_HEARD, STATE_HAS_OWN, STATE_WORDS };

/* Sums of a distribution in float32, after codecs and means, are as near to 1. */
#define SUM_APART 0.02F
/* Of what is less nothing can be said. */
#define SUM_LEAST 1e-3F

enum rc mutual_init(struct mutual *mutual, const struct mutual_options *options, size_t values,
                    size_t outputs)
{
    CHECK(values > 0 && options->weight >= 0.0);
    *mutual = (struct mutual){.options = *options, .values = values, .outputs = outputs};
    mutual->own = mem_aligned(values * sizeof(float));
    mutual->targets = mem_aligned(values * sizeof(float));
    if (mutual->own == NULL || mutual->targets == NULL) {
        mutual_deinit(mutual);
        return RC_NOMEM;
    }
    memset(mutual->own, 0, values * sizeof(float));
    memset(mutual->targets, 0, values * sizeof(float));
    return RC_OK;
}

void mutual_deinit(struct mutual *mutual)
{
    mem_free(mutual->own);
    mem_free(mutual->targets);
    *mutual = (struct mutual){0};
}

/* A row as a distribution, whoever made it what it is. What is one stays to the bit. */
static void bring_into_range(float *row, const float *own, size_t outputs)
{
    float sum = 0.0F;
    bool is_within = true;

    for (size_t i = 0; i < outputs; i++) {
        const bool is_sound = row[i] >= 0.0F && row[i] <= 1.0F; /* and no NaN */

        is_within = is_within && is_sound;
        if (!is_sound) row[i] = row[i] > 1.0F ? 1.0F : 0.0F;
        sum += row[i];
    }
    if (is_within && fabsf(sum - 1.0F) <= SUM_APART) return;
    for (size_t i = 0; i < outputs; i++) {
        row[i] = sum >= SUM_LEAST ? row[i] / sum : own != NULL ? own[i] : 1.0F / (float)outputs;
    }
}

static void take_in(struct mutual *mutual, uint64_t step)
{
    const size_t outputs = mutual->outputs;

    for (size_t i = 0; outputs > 0 && i < mutual->values; i += outputs) {
        bring_into_range(mutual->targets + i, mutual->has_own ? mutual->own + i : NULL, outputs);
    }
    mutual->has_targets = true;
    mutual->heard_step = step;
}

void mutual_hear(struct mutual *mutual, const float *difference, uint64_t step)
{
    if (!mutual->has_own) return; /* nothing was told that this could be the difference to */
    for (size_t i = 0; i < mutual->values; i++) {
        mutual->targets[i] = mutual->own[i] + difference[i];
    }
    if (!floats_are_finite(mutual->targets, mutual->values)) {
        memcpy(mutual->targets, mutual->own, mutual->values * sizeof(float));
    }
    take_in(mutual, step);
}

static bool are_zeros(const float *values, size_t count)
{
    size_t i = 0;

    while (i < count && values[i] == 0.0F) {
        i++;
    }
    return i == count;
}

void mutual_take(struct mutual *mutual, const float *targets, uint64_t step)
{
    memcpy(mutual->targets, targets, mutual->values * sizeof(float));
    mutual->has_targets = false;
    if (are_zeros(targets, mutual->values)) return;
    take_in(mutual, step);
}

double mutual_weight(const struct mutual *mutual, uint64_t step)
{
    const struct mutual_options *options = &mutual->options;

    if (!mutual->has_targets || step < options->burn_steps) return 0.0;
    if (!options->relabels || options->compress_steps == 0) return options->weight;
    return step - mutual->heard_step < options->compress_steps ? options->weight : 0.0;
}

enum rc mutual_save(const struct mutual *mutual, struct tensor_file *file)
{
    const uint64_t words[STATE_WORDS] = {
        [STATE_HEARD] = mutual->heard_step, [STATE_HAS_OWN] = mutual->has_own};
    enum rc rc = tensor_file_add_u64_copy(file, state_name, words, STATE_WORDS);

    return rc == RC_OK ? tensor_file_add_f32(file, own_name, mutual->own, mutual->values) : rc;
}

enum rc mutual_load(struct mutual *mutual, const struct tensor_file *file, struct fault *why)
{
    const struct tensor_view *state = tensor_file_find(file, state_name);
    const struct tensor_view *own = tensor_file_find(file, own_name);
    uint64_t words[STATE_WORDS];

    if (state == NULL || strcmp(state->dtype, "U64") != 0 || state->bytes_count != sizeof words ||
        own == NULL || strcmp(own->dtype, "F32") != 0 ||
        own->bytes_count != mutual->values * sizeof(float)) {
        return fault_set(why, RC_FORMAT, "the checkpoint holds no answers to this probe set");
    }
    memcpy(words, state->bytes, sizeof words);
    for (size_t i = 0; i < mutual->values; i++) {
        if (isfinite(load_le_float((const uint8_t *)own->bytes + i * sizeof(float)))) continue;
        return fault_set(why, RC_NONFINITE, "the checkpoint's answers hold a NaN");
    }
    memcpy(mutual->own, own->bytes, own->bytes_count);
    mutual->heard_step = words[STATE_HEARD];
    mutual->has_own = words[STATE_HAS_OWN] != 0;
    return RC_OK;
}
