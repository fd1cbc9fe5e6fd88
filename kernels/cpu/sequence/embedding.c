/*
 * Embeddings: rows of a table by token, and a learned table of positions. All tokens of a call are
 * judged before a value is written. Gradients are added row after row: equal calls, equal bits.
 */
#include "kernels/cpu/internal.h"

#include "base/check.h"
#include "kernels/cpu/reference/sequence.h"

#include <string.h>

/* Exact numbers below `symbols`; a NaN fails every comparison. Converted only when in range. */
static bool are_tokens(const float *tokens, size_t rows, uint32_t symbols)
{
    bool held = true;

    for (size_t r = 0; r < rows && held; r++) {
        held = tokens[r] >= 0.0F && (double)tokens[r] < (double)symbols &&
               (float)(uint32_t)tokens[r] == tokens[r];
    }
    return held;
}

FOR_EACH_CPU(static, void, add_row, (const float *restrict x, size_t count, float *restrict y),
             (x, count, y))
{
    for (size_t i = 0; i < count; i++) {
        y[i] += x[i];
    }
}

/* y may be x. */
FOR_EACH_CPU(static, void, sum_rows, (const float *x, const float *table, size_t count, float *y),
             (x, table, count, y))
{
    for (size_t i = 0; i < count; i++) {
        y[i] = x[i] + table[i];
    }
}

enum rc cpu_embedding_forward(struct backend *backend, const struct embedding *embedding,
                              size_t rows, const float *tokens, const float *table, void *y)
{
    size_t width = embedding->width;

    CHECK(embedding->symbols > 0 && width > 0);
    if (cpu_of(backend)->options.is_reference) {
        return reference_embedding_forward(embedding, rows, tokens, table, y);
    }
    if (!are_tokens(tokens, rows, embedding->symbols)) return RC_NONFINITE;
    for (size_t r = 0; r < rows; r++) {
        memcpy((float *)y + r * width, table + (size_t)tokens[r] * width, width * sizeof(float));
    }
    return RC_OK;
}

enum rc cpu_embedding_backward(struct backend *backend, const struct embedding *embedding,
                               size_t rows, const float *tokens, const void *dy, float *dtable)
{
    size_t width = embedding->width;

    CHECK(embedding->symbols > 0 && width > 0);
    if (cpu_of(backend)->options.is_reference) {
        return reference_embedding_backward(embedding, rows, tokens, dy, dtable);
    }
    if (!are_tokens(tokens, rows, embedding->symbols)) return RC_NONFINITE;
    for (size_t r = 0; r < rows; r++) {
        add_row((const float *)dy + r * width, width, dtable + (size_t)tokens[r] * width);
    }
    return RC_OK;
}

enum rc cpu_positions_forward(struct backend *backend, const struct positions *positions,
                              const void *x, const float *table, void *y)
{
    size_t span = (size_t)positions->steps * positions->width;

    if (cpu_of(backend)->options.is_reference) {
        reference_positions_forward(positions, x, table, y);
        return RC_OK;
    }
    for (size_t sample = 0; sample < positions->samples; sample++) {
        sum_rows((const float *)x + sample * span, table, span, (float *)y + sample * span);
    }
    return RC_OK;
}

enum rc cpu_positions_backward(struct backend *backend, const struct positions *positions,
                               const void *dy, float *dtable)
{
    size_t span = (size_t)positions->steps * positions->width;

    if (cpu_of(backend)->options.is_reference) {
        reference_positions_backward(positions, dy, dtable);
        return RC_OK;
    }
    for (size_t sample = 0; sample < positions->samples; sample++) {
        add_row((const float *)dy + sample * span, span, dtable);
    }
    return RC_OK;
}
