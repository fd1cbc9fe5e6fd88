/* What the tests of recurrent layers share: a layer with a batch, and what comes out of it. */
#ifndef GRAPEVINE_TESTS_UNIT_KERNELS_RECURRENT_SCENE_H
#define GRAPEVINE_TESTS_UNIT_KERNELS_RECURRENT_SCENE_H

#include "tests/check.h"

#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/sequence/recurrent.h"

#include <math.h>

static inline struct backend *cpu_of_threads(uint32_t threads)
{
    struct backend *cpu = cpu_backend_create(&(struct cpu_backend_options){.threads = threads});

    assert_non_null(cpu);
    backend_bind_thread(cpu);
    return cpu;
}

static inline struct backend *plain(void)
{
    return cpu_backend_create(&(struct cpu_backend_options){.threads = 1, .is_reference = true});
}

static inline uint32_t between(struct rng *rng, uint32_t low, uint32_t high)
{
    return low + (uint32_t)rng_below(rng, high - low + 1);
}

static inline float *values_of(size_t count)
{
    float *values = mem_aligned(count * sizeof(*values) + 64);

    assert_non_null(values);
    return values;
}

static inline float *random_values(struct rng *rng, size_t count, float size)
{
    float *values = values_of(count);

    for (size_t i = 0; i < count; i++) {
        values[i] = size * (float)(rng_unit(rng) * 2.0 - 1.0);
    }
    return values;
}

static inline float *copy_of(const float *values, size_t count)
{
    float *copy = values_of(count);

    memcpy(copy, values, count * sizeof(*copy));
    return copy;
}

/* |a - b| over |b|, in the 2-norm; NaN if either holds one. */
static inline double distance(const float *a, const float *b, size_t count)
{
    double difference = 0.0, size = 0.0;

    for (size_t i = 0; i < count; i++) {
        double d = (double)a[i] - (double)b[i];
        difference += d * d;
        size += (double)b[i] * (double)b[i];
    }
    return size == 0.0 ? sqrt(difference) : sqrt(difference / size);
}

enum { PARAMETERS = 4 };

/* A layer's options, weights, a batch, and gradients that start as `start` says. */
struct scene {
    struct recurrent_options options;
    uint32_t samples;
    size_t x_count, y_count, counts[PARAMETERS];
    float *x, *dy, *parameters[PARAMETERS];
};

struct outcome {
    float *y, *dx, *gradients[PARAMETERS];
};

static inline void scene_init(struct scene *s, struct recurrent_options options, uint32_t samples,
                              struct rng *rng)
{
    size_t rows = (size_t)recurrent_gates(options.kind) * options.hidden;

    *s = (struct scene){.options = options, .samples = samples};
    s->x_count = (size_t)samples * options.steps * options.in;
    s->y_count = (size_t)samples * options.steps * options.hidden;
    s->counts[0] = rows * options.in;
    s->counts[1] = rows * options.hidden;
    s->counts[2] = s->counts[3] = rows;
    s->x = random_values(rng, s->x_count, 1.0F);
    s->dy = random_values(rng, s->y_count, 1.0F);
    for (size_t i = 0; i < PARAMETERS; i++) {
        s->parameters[i] = random_values(rng, s->counts[i], 0.5F);
    }
}

static inline void scene_deinit(struct scene *s)
{
    mem_free(s->x);
    mem_free(s->dy);
    for (size_t i = 0; i < PARAMETERS; i++) {
        mem_free(s->parameters[i]);
    }
}

static inline struct recurrent_weights weights_of(const struct scene *s)
{
    return (struct recurrent_weights){s->parameters[0], s->parameters[1], s->parameters[2],
                                      s->parameters[3]};
}

/* Everything is `start` before a pass: NaN finds what nobody writes, numbers what is not added. */
static inline void outcome_init(struct outcome *o, const struct scene *s, float start)
{
    o->y = values_of(s->y_count);
    o->dx = values_of(s->x_count);
    for (size_t i = 0; i < s->y_count; i++) {
        o->y[i] = NAN;
    }
    for (size_t i = 0; i < s->x_count; i++) {
        o->dx[i] = start;
    }
    for (size_t p = 0; p < PARAMETERS; p++) {
        o->gradients[p] = values_of(s->counts[p]);
        for (size_t i = 0; i < s->counts[p]; i++) {
            o->gradients[p][i] = start;
        }
    }
}

static inline void outcome_deinit(struct outcome *o)
{
    mem_free(o->y);
    mem_free(o->dx);
    for (size_t i = 0; i < PARAMETERS; i++) {
        mem_free(o->gradients[i]);
    }
}

static inline struct recurrent_backward backward_of(const struct scene *s, struct outcome *o,
                                                    float *dy, bool adds)
{
    return (struct recurrent_backward){
        .samples = s->samples,
        .x = s->x,
        .y = o->y,
        .dy = dy,
        .dx = s->options.with_input_gradient ? o->dx : NULL,
        .adds_to_dx = adds,
        .is_first = !adds,
        .dinput = o->gradients[0],
        .dhidden = o->gradients[1],
        .dbias_input = o->gradients[2],
        .dbias_hidden = o->gradients[3],
    };
}

/* Create, prepare, forward, backward, destroy; adds where `start` is a number. */
static inline void outcome_of(struct backend *cpu, const struct scene *s, float start,
                              struct outcome *o)
{
    struct recurrent_weights weights = weights_of(s);
    struct recurrent_backward pass;
    struct recurrent *layer;
    float *saved, *dy = copy_of(s->dy, s->y_count);

    outcome_init(o, s, start);
    assert_int_equal(cpu->ops->recurrent_create(cpu, &s->options, &layer), RC_OK);
    saved = values_of(s->samples * layer->saved_values);
    assert_int_equal(layer->ops->prepare(layer, &weights), RC_OK);
    assert_int_equal(layer->ops->forward(layer, s->samples, s->x, o->y, saved), RC_OK);
    pass = backward_of(s, o, dy, !isnan(start));
    pass.saved = saved;
    assert_int_equal(layer->ops->backward(layer, &pass), RC_OK);
    layer->ops->destroy(layer);
    mem_free(saved);
    mem_free(dy);
}

static inline void twin_of(const struct scene *s, float start, struct outcome *o)
{
    struct reference_recurrent twin = {.options = s->options, .weights = weights_of(s)};
    double *workspace = mem_array(reference_recurrent_workspace(&s->options), sizeof(double));
    struct recurrent_backward pass;

    assert_non_null(workspace);
    outcome_init(o, s, start);
    pass = backward_of(s, o, s->dy, !isnan(start));
    reference_recurrent_forward(&twin, s->samples, s->x, o->y, workspace);
    reference_recurrent_backward(&twin, &pass, workspace);
    mem_free(workspace);
}

/* The largest distance between any two results of the same kind. */
static inline double outcome_distance(const struct scene *s, const struct outcome *a,
                                      const struct outcome *b)
{
    double largest = distance(a->y, b->y, s->y_count);

    if (s->options.with_input_gradient) {
        double d = distance(a->dx, b->dx, s->x_count);
        if (isnan(d) || d > largest) largest = d;
    }
    for (size_t p = 0; p < PARAMETERS; p++) {
        double d = distance(a->gradients[p], b->gradients[p], s->counts[p]);
        if (isnan(d) || d > largest) largest = d;
    }
    return largest;
}

static inline bool outcome_is_equal(const struct scene *s, const struct outcome *a,
                                    const struct outcome *b)
{
    bool is_equal = memcmp(a->y, b->y, s->y_count * sizeof(float)) == 0 &&
                    memcmp(a->dx, b->dx, s->x_count * sizeof(float)) == 0;

    for (size_t p = 0; p < PARAMETERS; p++) {
        is_equal =
            is_equal && memcmp(a->gradients[p], b->gradients[p], s->counts[p] * sizeof(float)) == 0;
    }
    return is_equal;
}

/* With all gradients, never truncated. */
static inline struct recurrent_options shape_of(enum recurrent_kind kind, uint32_t in,
                                                uint32_t hidden, uint32_t steps, uint32_t samples)
{
    return (struct recurrent_options){
        .kind = kind,
        .in = in,
        .hidden = hidden,
        .steps = steps,
        .samples_max = samples,
        .with_gradients = true,
        .with_input_gradient = true,
    };
}

static const enum recurrent_kind kinds[] = {RECURRENT_RNN, RECURRENT_GRU, RECURRENT_LSTM};

static inline struct recurrent_options random_options(struct rng *rng, enum recurrent_kind kind)
{
    return (struct recurrent_options){
        .kind = kind,
        .in = between(rng, 1, 40),
        .hidden = between(rng, 1, 50),
        .steps = between(rng, 1, 9),
        .samples_max = between(rng, 1, 21),
        .truncate = between(rng, 0, 4),
        .with_gradients = true,
        .with_input_gradient = between(rng, 0, 3) > 0,
    };
}

#endif
