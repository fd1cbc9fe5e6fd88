/*
 * Samples in memory: see samples.h. Bytes are normalised as byte * (scale / 255) - mean * scale,
 * one multiplication and one addition a value; floats as (value - mean) * scale, which keeps its
 * digits where the mean is far from zero.
 */
#include "replica/data/samples.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "replica/data/dataset.h"

#include <stdbool.h>
#include <string.h>

enum { SMALL_CLASSES = 256, LINE_BYTES = 64, ASK_BYTES_MAX = 4096 };

enum rc samples_init(struct samples *samples, const struct dataset_info *info, size_t count)
{
    size_t stored = dataset_values(info) + (info->target == DATA_NEXT_TOKEN);
    struct samples made = {.count = count, .stored = stored};
    bool is_short;

    if (info->is_in_files) {
        made.windows = mem_array(count, sizeof(uint32_t));
    } else if (info->has_bytes) {
        made.bytes = mem_array(count, stored);
    } else if (info->input == DATA_TOKENS && info->target == DATA_NEXT_TOKEN) {
        made.tokens = mem_array(count, stored * sizeof(uint32_t));
    } else {
        made.floats = mem_array(count, stored * sizeof(float));
    }
    is_short =
        made.bytes == NULL && made.floats == NULL && made.tokens == NULL && made.windows == NULL;
    if (info->target == DATA_REALS) {
        made.targets = mem_array(count, info->outputs * sizeof(float));
        is_short = is_short || made.targets == NULL;
    } else if (info->target == DATA_CLASS && info->classes <= SMALL_CLASSES) {
        made.small_labels = mem_alloc(count);
        is_short = is_short || made.small_labels == NULL;
    } else if (info->target == DATA_CLASS) {
        made.large_labels = mem_array(count, sizeof(uint32_t));
        is_short = is_short || made.large_labels == NULL;
    }
    if (is_short) samples_deinit(&made);
    *samples = made;
    return is_short ? RC_NOMEM : RC_OK;
}

void samples_deinit(struct samples *samples)
{
    mem_free(samples->bytes);
    mem_free(samples->floats);
    mem_free(samples->tokens);
    mem_free(samples->windows);
    mem_free(samples->small_labels);
    mem_free(samples->large_labels);
    mem_free(samples->targets);
    *samples = (struct samples){0};
}

size_t samples_bytes(const struct dataset_info *info)
{
    const size_t stored = dataset_values(info) + (info->target == DATA_NEXT_TOKEN);
    /* Where they stay in files, they are read for all that. */
    const size_t answers = info->target == DATA_REALS ? info->outputs * sizeof(float) : 4;

    return stored * (info->has_bytes ? 1 : sizeof(float)) + answers;
}

static void hash_words(struct hash *hash, const char *const *words, uint32_t count)
{
    for (uint32_t i = 0; words != NULL && i < count; i++) {
        hash_update(hash, words[i], strlen(words[i]) + 1);
    }
}

static void hash_info(struct hash *hash, const struct dataset_info *info, size_t count)
{
    const uint32_t numbers[] = {
        (uint32_t)info->input, (uint32_t)info->target, info->channels,  info->height,   info->width,
        info->symbols,         info->outputs,          info->has_bytes, (uint32_t)count};
    uint8_t bytes[sizeof numbers];

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        store_le32(bytes + 4 * i, numbers[i]);
    }
    hash_update(hash, bytes, sizeof bytes);
    if (info->has_tokenizer) hash_update(hash, &info->tokenizer_digest, DIGEST_BYTES);
    if (info->input == DATA_TOKENS) hash_update(hash, info->symbol_bytes, DATASET_SYMBOLS_MAX);
    if (info->input == DATA_VECTORS) hash_words(hash, info->class_words, info->classes);
    hash_words(hash, info->column_names, info->channels);
}

/* Tokens in files. */
static enum rc hash_windows(struct hash *hash, const struct samples *samples)
{
    uint32_t tokens[TOKENS_AT_ONCE];
    uint8_t bytes[sizeof tokens];

    for (size_t i = 0; i < samples->count; i++) {
        for (size_t at = 0; at < samples->stored; at += TOKENS_AT_ONCE) {
            const size_t left = samples->stored - at;
            const size_t count = left < TOKENS_AT_ONCE ? left : TOKENS_AT_ONCE;
            const enum rc rc =
                samples->from->read(samples->from, samples->windows[i], at, count, tokens);
            if (rc != RC_OK) return rc;
            for (size_t t = 0; t < count; t++) {
                store_le32(bytes + 4 * t, tokens[t]);
            }
            hash_update(hash, bytes, 4 * count);
        }
    }
    return RC_OK;
}

enum rc samples_digest(const struct samples *samples, const struct dataset_info *info,
                       struct digest *digest)
{
    const size_t values = samples->count * samples->stored;
    struct hash hash;
    enum rc rc = RC_OK;

    hash_init(&hash);
    hash_info(&hash, info, samples->count);
    if (samples->bytes != NULL) hash_update(&hash, samples->bytes, values);
    if (samples->floats != NULL) hash_update(&hash, samples->floats, values * sizeof(float));
    if (samples->tokens != NULL) hash_update(&hash, samples->tokens, values * sizeof(uint32_t));
    if (samples->windows != NULL) rc = hash_windows(&hash, samples);
    if (rc == RC_OK) *digest = hash_final(&hash);
    return rc;
}

void samples_set_label(struct samples *samples, size_t sample, uint32_t label)
{
    CHECK(sample < samples->count);
    if (samples->small_labels != NULL) {
        CHECK(label < SMALL_CLASSES);
        samples->small_labels[sample] = (uint8_t)label;
    } else {
        CHECK(samples->large_labels != NULL);
        samples->large_labels[sample] = label;
    }
}

enum rc batch_init(struct batch *batch, const struct dataset_info *info, uint32_t rows_max)
{
    struct batch made = {.rows_max = rows_max};
    size_t labels = (size_t)rows_max * info->labels_per_sample;
    bool is_real = info->target == DATA_REALS;

    made.values = mem_aligned((size_t)rows_max * dataset_values(info) * sizeof(float));
    if (labels > 0) made.labels = mem_array(labels, sizeof(uint32_t));
    if (is_real) made.targets = mem_array((size_t)rows_max * info->outputs, sizeof(float));
    made.picked = mem_array(rows_max, sizeof(uint32_t));
    if (made.values == NULL || made.picked == NULL || (labels > 0 && made.labels == NULL) ||
        (is_real && made.targets == NULL)) {
        batch_deinit(&made);
        *batch = made;
        return RC_NOMEM;
    }
    *batch = made;
    return RC_OK;
}

void batch_deinit(struct batch *batch)
{
    mem_free(batch->values);
    mem_free(batch->labels);
    mem_free(batch->targets);
    mem_free(batch->picked);
    *batch = (struct batch){0};
}

/* One channel, or all of them where each has its own mean (`step` 1). */
static void normalise_bytes(const uint8_t *restrict bytes, const struct dataset_info *info,
                            size_t area, float *restrict values)
{
    for (size_t c = 0; c < info->channels; c++, bytes += area, values += area) {
        float factor = info->scale[c] / 255.0F, offset = -info->mean[c] * info->scale[c];
        for (size_t i = 0; i < area; i++) {
            values[i] = (float)bytes[i] * factor + offset;
        }
    }
}

static void normalise_floats(const float *restrict floats, const struct dataset_info *info,
                             size_t area, float *restrict values)
{
    for (size_t c = 0; c < info->channels; c++, floats += area, values += area) {
        for (size_t i = 0; i < area; i++) {
            values[i] = (floats[i] - info->mean[c]) * info->scale[c];
        }
    }
}

static void gather_values(const struct samples *samples, const struct dataset_info *info,
                          size_t sample, float *values)
{
    size_t area = (size_t)info->height * info->width, at = sample * samples->stored;

    if (info->input == DATA_TOKENS) {
        for (size_t i = 0; i < area; i++) {
            values[i] = (float)samples->bytes[at + i];
        }
    } else if (samples->bytes != NULL) {
        normalise_bytes(samples->bytes + at, info, area, values);
    } else {
        normalise_floats(samples->floats + at, info, area, values);
    }
}

/* `count` tokens of a row, from the `first` on, as inputs and as what follows them. */
static void spread_tokens(const uint32_t *tokens, size_t first, size_t count, size_t row_values,
                          float *values, uint32_t *labels)
{
    for (size_t i = 0; values != NULL && i < count && first + i < row_values; i++) {
        values[first + i] = (float)tokens[i];
    }
    for (size_t i = first == 0 ? 1 : 0; labels != NULL && i < count; i++) {
        labels[first + i - 1] = tokens[i];
    }
}

/* A row of tokens that are no bytes. */
static enum rc gather_tokens(const struct samples *samples, size_t sample, size_t row_values,
                             float *values, uint32_t *labels)
{
    uint32_t tokens[TOKENS_AT_ONCE];

    if (samples->windows == NULL) {
        spread_tokens(samples->tokens + sample * samples->stored, 0, samples->stored, row_values,
                      values, labels);
        return RC_OK;
    }
    for (size_t at = 0; at < samples->stored; at += TOKENS_AT_ONCE) {
        const size_t left = samples->stored - at;
        const size_t count = left < TOKENS_AT_ONCE ? left : TOKENS_AT_ONCE;
        enum rc rc =
            samples->from->read(samples->from, samples->windows[sample], at, count, tokens);
        if (rc != RC_OK) return rc;
        spread_tokens(tokens, at, count, row_values, values, labels);
    }
    return RC_OK;
}

static void gather_labels(const struct samples *samples, const struct dataset_info *info,
                          size_t sample, uint32_t *labels)
{
    if (info->target == DATA_NEXT_TOKEN) {
        const uint8_t *next = samples->bytes + sample * samples->stored + 1;
        for (uint32_t i = 0; i < info->labels_per_sample; i++) {
            labels[i] = next[i];
        }
    } else if (samples->small_labels != NULL) {
        *labels = samples->small_labels[sample];
    } else {
        *labels = samples->large_labels[sample];
    }
}

static size_t picked(struct pick pick, uint32_t row)
{
    return pick.order != NULL ? pick.order[pick.first + row] : pick.first + row;
}

/* Samples are picked from all over memory: waiting for it takes most of the time, unless the next
 * one is asked for while this one is converted. */
static void ask_for(const struct samples *samples, size_t sample)
{
    size_t each = samples->stored * (samples->bytes != NULL ? 1 : sizeof(float));
    const char *from = samples->bytes != NULL    ? (const char *)samples->bytes
                       : samples->floats != NULL ? (const char *)samples->floats
                                                 : (const char *)samples->tokens;

    if (from == NULL) return;
    for (size_t i = 0; i < each && i < ASK_BYTES_MAX; i += LINE_BYTES) {
        __builtin_prefetch(from + sample * each + i);
    }
}

enum rc samples_gather(const struct samples *samples, const struct dataset_info *info,
                       struct pick pick, struct batch *batch)
{
    const bool has_tokens = samples->tokens != NULL || samples->windows != NULL;
    size_t values = dataset_values(info);
    enum rc rc = RC_OK;

    CHECK(pick.rows <= batch->rows_max);
    CHECK(pick.order != NULL || pick.first + pick.rows <= samples->count);
    for (uint32_t r = 0; rc == RC_OK && r < pick.rows; r++) {
        size_t sample = picked(pick, r);

        CHECK(sample < samples->count);
        if (r + 1 < pick.rows) ask_for(samples, picked(pick, r + 1));
        if (batch->picked != NULL) batch->picked[r] = (uint32_t)sample;
        if (has_tokens) {
            rc = gather_tokens(
                samples, sample, values, batch->values != NULL ? batch->values + r * values : NULL,
                batch->labels != NULL ? batch->labels + (size_t)r * info->labels_per_sample : NULL);
            continue;
        }
        if (batch->values != NULL) {
            gather_values(samples, info, sample, batch->values + r * values);
        }
        if (batch->labels != NULL) {
            gather_labels(samples, info, sample,
                          batch->labels + (size_t)r * info->labels_per_sample);
        }
        if (batch->targets != NULL) {
            memcpy(batch->targets + (size_t)r * info->outputs,
                   samples->targets + sample * info->outputs, info->outputs * sizeof(float));
        }
    }
    batch->rows = pick.rows;
    batch->rc = rc;
    return rc;
}
