/* model_tokens: models of token sequences with their data, for tests. */
#ifndef GRAPEVINE_TESTS_UNIT_REPLICA_MODEL_TOKENS_H
#define GRAPEVINE_TESTS_UNIT_REPLICA_MODEL_TOKENS_H

#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernels/cpu/cpu_backend.h"
#include "replica/model/loss.h"
#include "replica/model/model.h"

#include <math.h>
#include <string.h>

enum { SYMBOLS = 7, BATCH_MAX = 11, STEPS_MAX = 33, OWN_HEADS_MAX = 3 };
enum { LOGITS_MAX = BATCH_MAX * STEPS_MAX * OWN_HEADS_MAX * SYMBOLS };

struct tokens {
    float input[BATCH_MAX * STEPS_MAX];
    uint32_t labels[BATCH_MAX * STEPS_MAX];
    float logits[LOGITS_MAX], gradient[LOGITS_MAX];
};

/* With slices so small that a batch is many of them, the last not full. */
static inline struct backend *cpu_of_kind(bool is_reference)
{
    struct cpu_backend_options options = {.threads = 1, .is_reference = is_reference};
    struct backend *cpu = cpu_backend_create(&options);

    assert_non_null(cpu);
    cpu->rows_per_slice = 16;
    return cpu;
}

static inline struct model_options token_options(const char *spec, uint32_t steps)
{
    return (struct model_options){.spec = spec,
                                  .channels = 1,
                                  .height = 1,
                                  .width = steps,
                                  .classes = SYMBOLS,
                                  .batch_max = BATCH_MAX,
                                  .seed = 5,
                                  .with_gradients = true,
                                  .input = MODEL_INPUT_TOKENS};
}

static inline struct model *make(struct backend *cpu, const char *spec, uint32_t steps)
{
    struct model_options options = token_options(spec, steps);
    struct model *model = NULL;
    struct fault why = {""};

    if (model_create(cpu, &options, &model, &why) != RC_OK) fail_msg("%s: %s", spec, why.text);
    return model;
}

static inline void tokens_init(struct tokens *t, uint64_t seed)
{
    struct rng rng;

    rng_init(&rng, seed, 1);
    for (size_t i = 0; i < ARRAY_COUNT(t->input); i++) {
        t->input[i] = (float)rng_below(&rng, SYMBOLS);
        t->labels[i] = (uint32_t)rng_below(&rng, SYMBOLS);
    }
}

static inline double loss_of(struct model *model, struct tokens *t, uint32_t batch, bool backward)
{
    uint32_t labels[BATCH_MAX * STEPS_MAX * OWN_HEADS_MAX];
    uint32_t heads = model_heads(model), rows = batch * model_rows(model) * heads, correct = 0;
    double loss;

    for (uint32_t i = 0; i < rows; i++) {
        labels[i] = t->labels[i / heads];
    }
    model_set_stream(model, 7, 0); /* dropout draws the same every time */
    assert_int_equal(model_forward(model, t->input, batch, true, t->logits), RC_OK);
    loss = loss_cross_entropy(t->logits, labels, rows, SYMBOLS, t->gradient, &correct);
    if (backward) assert_int_equal(model_backward(model, t->gradient), RC_OK);
    return loss;
}

static inline double distance(const float *a, const float *b, size_t count)
{
    double difference = 0.0, size = 0.0;

    for (size_t i = 0; i < count; i++) {
        difference += pow((double)a[i] - (double)b[i], 2.0);
        size += (double)b[i] * (double)b[i];
    }
    return size == 0.0 ? sqrt(difference) : sqrt(difference / size);
}

#endif
