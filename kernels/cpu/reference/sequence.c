/*
 * The plain C twins of attention, embeddings and positions: whole rows of scores in float64, one
 * query after the other, as the definitions say. They allocate as they go. Any thread.
 */
#include "kernels/cpu/reference/sequence.h"

#include "base/check.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

/* One head of one sample in float64: queries (rotated, not scaled), keys (rotated), values and what
 * belongs to them, [steps][width] each; one row of weights and one of their gradients. */
struct head {
    size_t steps, width;
    double scale;
    bool is_causal;
    double *queries, *keys, *values, *dy, *dqueries, *dkeys, *dvalues;
    double *weights, *dweights; /* [steps] */
};

static double *head_alloc(const struct attention *attention, struct head *head)
{
    size_t steps = attention->steps, width = attention->width / attention->heads;
    double *memory = mem_array(steps, (7 * width + 2) * sizeof(*memory));

    CHECK(attention->width % attention->heads == 0);
    if (memory == NULL) return NULL;
    *head = (struct head){
        .steps = steps,
        .width = width,
        .scale = 1.0 / sqrt((double)width),
        .is_causal = attention->is_causal,
        .queries = memory,
        .keys = memory + steps * width,
        .values = memory + 2 * steps * width,
        .dy = memory + 3 * steps * width,
        .dqueries = memory + 4 * steps * width,
        .dkeys = memory + 5 * steps * width,
        .dvalues = memory + 6 * steps * width,
        .weights = memory + 7 * steps * width,
        .dweights = memory + 7 * steps * width + steps,
    };
    return memory;
}

static void load(const float *from, size_t stride, const struct head *head, double *to)
{
    for (size_t t = 0; t < head->steps; t++) {
        for (size_t d = 0; d < head->width; d++) {
            to[t * head->width + d] = (double)from[t * stride + d];
        }
    }
}

/* Pair (i, i + width / 2) of step t by t * 10000^(-2 i / width); direction -1: back. */
static void rotate(double direction, const struct head *head, double *rows)
{
    size_t half = head->width / 2;

    for (size_t t = 0; t < head->steps; t++) {
        for (size_t i = 0; i < half; i++) {
            double *pair = rows + t * head->width + i, first = pair[0], second = pair[half];
            double angle = pow(10000.0, -2.0 * (double)i / (double)head->width) * (double)t;

            pair[0] = first * cos(angle) - direction * second * sin(angle);
            pair[half] = direction * first * sin(angle) + second * cos(angle);
        }
    }
}

static void store(const double *from, const struct head *head, size_t stride, float *to)
{
    for (size_t t = 0; t < head->steps; t++) {
        for (size_t d = 0; d < head->width; d++) {
            to[t * stride + d] = (float)from[t * head->width + d];
        }
    }
}

static double dot(const double *a, const double *b, size_t n)
{
    double sum = 0.0;

    for (size_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

static void load_qkv(const struct attention *attention, const float *qkv, struct head *head)
{
    size_t wide = attention->width;

    load(qkv, 3 * wide, head, head->queries);
    load(qkv + wide, 3 * wide, head, head->keys);
    load(qkv + 2 * wide, 3 * wide, head, head->values);
    if (attention->is_rotary) {
        rotate(1.0, head, head->queries);
        rotate(1.0, head, head->keys);
    }
}

/* Weights of query t; returns the logarithm of the sum of exp(scores). */
static double softmax(const struct head *head, size_t t, size_t keys)
{
    double max = -INFINITY, sum = 0.0;

    for (size_t k = 0; k < keys; k++) {
        const double *query = head->queries + t * head->width;
        double score = dot(query, head->keys + k * head->width, head->width) * head->scale;
        head->weights[k] = score;
        max = score > max ? score : max;
    }
    for (size_t k = 0; k < keys; k++) {
        head->weights[k] = exp(head->weights[k] - max);
        sum += head->weights[k];
    }
    for (size_t k = 0; k < keys; k++) {
        head->weights[k] /= sum;
    }
    return max + log(sum);
}

enum rc reference_attention_forward(const struct attention *attention, const float *qkv, float *y,
                                    float *statistics)
{
    struct head head;
    double *memory = head_alloc(attention, &head);
    size_t wide = attention->width;

    if (memory == NULL) return RC_NOMEM;
    for (size_t i = 0; i < (size_t)attention->samples * attention->heads; i++) {
        size_t row = i / attention->heads * head.steps, column = i % attention->heads * head.width;

        load_qkv(attention, qkv + row * 3 * wide + column, &head);
        for (size_t t = 0; t < head.steps; t++) {
            size_t keys = head.is_causal ? t + 1 : head.steps;
            double statistic = softmax(&head, t, keys);

            if (statistics != NULL) statistics[i * head.steps + t] = (float)statistic;
            for (size_t d = 0; d < head.width; d++) {
                double sum = 0.0;
                for (size_t k = 0; k < keys; k++) {
                    sum += head.weights[k] * head.values[k * head.width + d];
                }
                y[(row + t) * wide + column + d] = (float)sum;
            }
        }
    }
    mem_free(memory);
    return RC_OK;
}

static void head_backward(struct head *head)
{
    size_t width = head->width, values = head->steps * width;

    memset(head->dqueries, 0, 3 * values * sizeof(double)); /* and of keys and values */
    for (size_t t = 0; t < head->steps; t++) {
        size_t keys = head->is_causal ? t + 1 : head->steps;
        const double *dy = head->dy + t * width;
        double mean;

        softmax(head, t, keys);
        for (size_t k = 0; k < keys; k++) {
            head->dweights[k] = dot(dy, head->values + k * width, width);
        }
        mean = dot(head->weights, head->dweights, keys);
        for (size_t k = 0; k < keys; k++) {
            double dscore = head->weights[k] * (head->dweights[k] - mean) * head->scale;
            for (size_t d = 0; d < width; d++) {
                head->dvalues[k * width + d] += head->weights[k] * dy[d];
                head->dqueries[t * width + d] += dscore * head->keys[k * width + d];
                head->dkeys[k * width + d] += dscore * head->queries[t * width + d];
            }
        }
    }
}

enum rc reference_attention_backward(const struct attention *attention,
                                     const struct attention_backward *pass)
{
    struct head head;
    double *memory = head_alloc(attention, &head);
    size_t wide = attention->width;

    if (memory == NULL) return RC_NOMEM;
    for (size_t i = 0; i < (size_t)attention->samples * attention->heads; i++) {
        size_t row = i / attention->heads * head.steps, column = i % attention->heads * head.width;
        float *dqkv = (float *)pass->dqkv + row * 3 * wide + column;

        load_qkv(attention, (const float *)pass->qkv + row * 3 * wide + column, &head);
        load((const float *)pass->dy + row * wide + column, wide, &head, head.dy);
        head_backward(&head);
        if (attention->is_rotary) {
            rotate(-1.0, &head, head.dqueries);
            rotate(-1.0, &head, head.dkeys);
        }
        store(head.dqueries, &head, 3 * wide, dqkv);
        store(head.dkeys, &head, 3 * wide, dqkv + wide);
        store(head.dvalues, &head, 3 * wide, dqkv + 2 * wide);
    }
    mem_free(memory);
    return RC_OK;
}

/* The row of the table, or `symbols` for what is none: also NaN, also 1.5. */
static size_t token_of(const struct embedding *embedding, float token)
{
    if (!(token >= 0.0F && (double)token < (double)embedding->symbols)) return embedding->symbols;
    return token == floorf(token) ? (size_t)token : embedding->symbols;
}

enum rc reference_embedding_forward(const struct embedding *embedding, size_t rows,
                                    const float *tokens, const float *table, float *y)
{
    for (size_t r = 0; r < rows; r++) {
        if (token_of(embedding, tokens[r]) >= embedding->symbols) return RC_NONFINITE;
    }
    for (size_t r = 0; r < rows; r++) {
        const float *row = table + token_of(embedding, tokens[r]) * embedding->width;
        for (size_t i = 0; i < embedding->width; i++) {
            y[r * embedding->width + i] = row[i];
        }
    }
    return RC_OK;
}

enum rc reference_embedding_backward(const struct embedding *embedding, size_t rows,
                                     const float *tokens, const float *dy, float *dtable)
{
    for (size_t r = 0; r < rows; r++) {
        if (token_of(embedding, tokens[r]) >= embedding->symbols) return RC_NONFINITE;
    }
    for (size_t r = 0; r < rows; r++) {
        float *row = dtable + token_of(embedding, tokens[r]) * embedding->width;
        for (size_t i = 0; i < embedding->width; i++) {
            row[i] += dy[r * embedding->width + i];
        }
    }
    return RC_OK;
}

void reference_positions_forward(const struct positions *positions, const float *x,
                                 const float *table, float *y)
{
    size_t span = (size_t)positions->steps * positions->width;

    for (size_t i = 0; i < positions->samples * span; i++) {
        y[i] = x[i] + table[i % span];
    }
}

void reference_positions_backward(const struct positions *positions, const float *dy, float *dtable)
{
    size_t span = (size_t)positions->steps * positions->width;

    for (size_t i = 0; i < positions->samples * span; i++) {
        dtable[i % span] += dy[i];
    }
}
