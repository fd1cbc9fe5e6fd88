/* Recurrent layers: against their twins, the twins against finite differences and PyTorch. */
#include "tests/check.h"

#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/recurrent.h"

#include <math.h>

static struct backend *cpu_of_threads(uint32_t threads)
{
    struct backend *cpu = cpu_backend_create(&(struct cpu_backend_options){.threads = threads});

    assert_non_null(cpu);
    backend_bind_thread(cpu);
    return cpu;
}

static struct backend *plain(void)
{
    return cpu_backend_create(&(struct cpu_backend_options){.threads = 1, .is_reference = true});
}

static uint32_t between(struct rng *rng, uint32_t low, uint32_t high)
{
    return low + (uint32_t)rng_below(rng, high - low + 1);
}

static float *values_of(size_t count)
{
    float *values = mem_aligned(count * sizeof(*values) + 64);

    assert_non_null(values);
    return values;
}

static float *random_values(struct rng *rng, size_t count, float size)
{
    float *values = values_of(count);

    for (size_t i = 0; i < count; i++) {
        values[i] = size * (float)(rng_unit(rng) * 2.0 - 1.0);
    }
    return values;
}

static float *copy_of(const float *values, size_t count)
{
    float *copy = values_of(count);

    memcpy(copy, values, count * sizeof(*copy));
    return copy;
}

/* |a - b| over |b|, in the 2-norm; NaN if either holds one. */
static double distance(const float *a, const float *b, size_t count)
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

static void scene_init(struct scene *s, struct recurrent_options options, uint32_t samples,
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

static void scene_deinit(struct scene *s)
{
    mem_free(s->x);
    mem_free(s->dy);
    for (size_t i = 0; i < PARAMETERS; i++) {
        mem_free(s->parameters[i]);
    }
}

static struct recurrent_weights weights_of(const struct scene *s)
{
    return (struct recurrent_weights){s->parameters[0], s->parameters[1], s->parameters[2],
                                      s->parameters[3]};
}

/* Everything is `start` before a pass: NaN finds what nobody writes, numbers what is not added. */
static void outcome_init(struct outcome *o, const struct scene *s, float start)
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

static void outcome_deinit(struct outcome *o)
{
    mem_free(o->y);
    mem_free(o->dx);
    for (size_t i = 0; i < PARAMETERS; i++) {
        mem_free(o->gradients[i]);
    }
}

static struct recurrent_backward backward_of(const struct scene *s, struct outcome *o, float *dy,
                                             bool adds)
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
static void outcome_of(struct backend *cpu, const struct scene *s, float start, struct outcome *o)
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

static void twin_of(const struct scene *s, float start, struct outcome *o)
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
static double outcome_distance(const struct scene *s, const struct outcome *a,
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

static bool outcome_is_equal(const struct scene *s, const struct outcome *a,
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
static struct recurrent_options shape_of(enum recurrent_kind kind, uint32_t in, uint32_t hidden,
                                         uint32_t steps, uint32_t samples)
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

static struct recurrent_options random_options(struct rng *rng, enum recurrent_kind kind)
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

static void layers_equal_their_twins_on_any_shape_and_any_number_of_threads(void **state)
{
    (void)state;
    struct backend *backends[] = {cpu_of_threads(1), cpu_of_threads(2), plain()};
    FOR_EACH_SEED (seed, 30) {
        for (size_t k = 0; k < ARRAY_COUNT(kinds); k++) {
            struct rng rng;
            struct scene scene;
            struct outcome expected, found;
            float start = seed % 3 == 0 ? 0.25F : NAN;

            rng_init(&rng, seed, k);
            struct recurrent_options options = random_options(&rng, kinds[k]);
            scene_init(&scene, options, between(&rng, 1, options.samples_max), &rng);
            twin_of(&scene, start, &expected);
            for (size_t b = 0; b < ARRAY_COUNT(backends); b++) {
                outcome_of(backends[b], &scene, start, &found);
                check_seed(seed, outcome_distance(&scene, &found, &expected) < 5e-6);
                outcome_deinit(&found);
            }
            outcome_deinit(&expected);
            scene_deinit(&scene);
        }
    }
    for (size_t b = 0; b < ARRAY_COUNT(backends); b++) {
        backend_destroy(backends[b]);
    }
}

/* Sum of y dy in float64, over one sample. */
static double loss_of(const struct scene *s, float *y, double *workspace)
{
    struct reference_recurrent twin = {.options = s->options, .weights = weights_of(s)};
    double loss = 0.0;

    reference_recurrent_forward(&twin, 1, s->x, y, workspace);
    for (size_t i = 0; i < s->y_count; i++) {
        loss += workspace[i] * (double)s->dy[i];
    }
    return loss;
}

static double slope_of(const struct scene *s, float *value, float *y, double *workspace)
{
    float kept = *value, above = kept + 1e-3F, below = kept - 1e-3F;
    double rise;

    *value = above;
    rise = loss_of(s, y, workspace);
    *value = below;
    rise -= loss_of(s, y, workspace);
    *value = kept;
    return rise / ((double)above - (double)below);
}

static void the_twins_gradients_are_the_slopes_of_the_twins(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 4) {
        for (size_t k = 0; k < ARRAY_COUNT(kinds); k++) {
            struct rng rng;
            struct scene s;
            struct outcome twin;
            struct recurrent_options options = shape_of(kinds[k], 3, 4, 5, 1);
            double *workspace = mem_array(reference_recurrent_workspace(&options), sizeof(double));

            assert_non_null(workspace);
            rng_init(&rng, seed, 10 + k);
            scene_init(&s, options, 1, &rng);
            twin_of(&s, NAN, &twin);
            for (size_t i = 0; i < s.x_count; i++) {
                double slope = slope_of(&s, &s.x[i], twin.y, workspace);
                check_seed(seed, fabs(slope - (double)twin.dx[i]) < 2e-6);
            }
            for (size_t p = 0; p < PARAMETERS; p++) {
                for (size_t i = 0; i < s.counts[p]; i++) {
                    double slope = slope_of(&s, &s.parameters[p][i], twin.y, workspace);
                    check_seed(seed, fabs(slope - (double)twin.gradients[p][i]) < 2e-6);
                }
            }
            outcome_deinit(&twin);
            scene_deinit(&s);
            mem_free(workspace);
        }
    }
}

/* Of PyTorch 1.13 in float64, on weights and inputs by pattern(): the last step's outputs, the
 * first step's input gradients, and the gradients of parameters summed with weights 1, 2, 3 ... */
struct golden_layer {
    enum recurrent_kind kind;
    float last[4], first[6], gradients[PARAMETERS];
};

static const struct golden_layer golden_layers[] = {
    {RECURRENT_RNN,
     {-0.8760064F, -0.6657293F, -0.1869130F, -0.0311765F},
     {0.2994671F, -0.2664110F, 0.0569479F, 0.2012912F, -0.0491103F, 0.0939763F},
     {0.5567123F, 0.3556538F, -2.0313684F, -2.0313684F}},
    {RECURRENT_GRU,
     {0.1848476F, 0.0023570F, 0.5161622F, -0.4142129F},
     {-0.0651484F, 0.0329636F, 0.0092257F, -0.0664913F, 0.0224922F, -0.1807211F},
     {2.6200044F, 0.1736003F, -3.0419871F, -2.4982937F}},
    {RECURRENT_LSTM,
     {0.1419171F, -0.0436376F, 0.2101075F, -0.1084650F},
     {-0.0269108F, 0.0142900F, 0.0149855F, -0.0323556F, 0.0247122F, -0.0520341F},
     {0.9109376F, 0.2013303F, 0.2757891F, 0.2757891F}},
};

static void pattern(float *values, size_t count, int factor, int offset, int period)
{
    for (size_t i = 0; i < count; i++) {
        values[i] = (float)(((int)i * factor + offset) % period - period / 2) / 8.0F;
    }
}

static void layers_compute_what_pytorch_computes(void **state)
{
    (void)state;
    struct backend *cpu = cpu_of_threads(1);
    for (size_t k = 0; k < ARRAY_COUNT(golden_layers); k++) {
        const struct golden_layer *golden = &golden_layers[k];
        struct rng rng;
        struct scene s;
        struct outcome o;

        rng_init(&rng, 1, 1);
        scene_init(&s, shape_of(golden->kind, 3, 2, 3, 2), 2, &rng);
        pattern(s.parameters[0], s.counts[0], 7, 1, 11);
        pattern(s.parameters[1], s.counts[1], 5, 2, 13);
        pattern(s.parameters[2], s.counts[2], 3, 0, 7);
        pattern(s.parameters[3], s.counts[3], 4, 1, 9);
        pattern(s.x, s.x_count, 5, 3, 17);
        pattern(s.dy, s.y_count, 3, 2, 11);
        outcome_of(cpu, &s, NAN, &o);
        for (size_t i = 0; i < 4; i++) {
            assert_float_equal(o.y[i / 2 * 6 + 4 + i % 2], golden->last[i], 1e-6F);
        }
        for (size_t i = 0; i < 6; i++) {
            assert_float_equal(o.dx[i / 3 * 9 + i % 3], golden->first[i], 1e-6F);
        }
        for (size_t p = 0; p < PARAMETERS; p++) {
            double sum = 0.0;
            for (size_t i = 0; i < s.counts[p]; i++) {
                sum += (double)o.gradients[p][i] * (double)(i + 1);
            }
            assert_float_equal((float)sum, golden->gradients[p], 1e-5F);
        }
        outcome_deinit(&o);
        scene_deinit(&s);
    }
    backend_destroy(cpu);
}

static void nothing_flows_back_across_a_truncated_border(void **state)
{
    (void)state;
    struct backend *cpu = cpu_of_threads(1);
    enum { STEPS = 7, CUT = 3, IN = 5, SAMPLES = 3 };
    for (size_t k = 0; k < ARRAY_COUNT(kinds); k++) {
        struct rng rng;
        struct scene s;
        struct outcome cut, whole;

        rng_init(&rng, 1, 20 + k);
        scene_init(&s, shape_of(kinds[k], IN, 4, STEPS, SAMPLES), SAMPLES, &rng);
        for (size_t i = 0; i < s.y_count; i++) { /* only step 5 is asked for */
            if (i / 4 % STEPS != 5) s.dy[i] = 0.0F;
        }
        outcome_of(cpu, &s, NAN, &whole);
        s.options.truncate = CUT;
        outcome_of(cpu, &s, NAN, &cut);
        assert_memory_equal(cut.y, whole.y, s.y_count * sizeof(float));
        for (size_t i = 0; i < s.x_count; i++) {
            size_t step = i / IN % STEPS;
            if (step < CUT || step > 5) assert_true(cut.dx[i] == 0.0F);
            if (step >= CUT && step <= 5) assert_true(cut.dx[i] == whole.dx[i]);
            if (step < CUT) assert_true(whole.dx[i] != 0.0F);
        }
        for (size_t p = 0; p < PARAMETERS; p++) {
            assert_true(distance(cut.gradients[p], whole.gradients[p], s.counts[p]) > 1e-3);
        }
        outcome_deinit(&cut);
        outcome_deinit(&whole);
        scene_deinit(&s);
    }
    backend_destroy(cpu);
}

static void without_gradients_the_outputs_are_the_same_bits(void **state)
{
    (void)state;
    struct backend *cpu = cpu_of_threads(1);
    FOR_EACH_SEED (seed, 10) {
        struct rng rng;
        struct scene s;
        struct outcome o;
        struct recurrent *layer;

        rng_init(&rng, seed, 30);
        struct recurrent_options options = random_options(&rng, kinds[seed % 3]);
        scene_init(&s, options, options.samples_max, &rng);
        outcome_of(cpu, &s, NAN, &o);
        struct recurrent_weights weights = weights_of(&s);
        float *y = values_of(s.y_count);

        options.with_gradients = options.with_input_gradient = false;
        assert_int_equal(cpu->ops->recurrent_create(cpu, &options, &layer), RC_OK);
        assert_int_equal(layer->ops->prepare(layer, &weights), RC_OK);
        assert_int_equal(layer->ops->forward(layer, s.samples, s.x, y, NULL), RC_OK);
        check_seed(seed, memcmp(y, o.y, s.y_count * sizeof(float)) == 0);
        layer->ops->destroy(layer);
        mem_free(y);
        outcome_deinit(&o);
        scene_deinit(&s);
    }
    backend_destroy(cpu);
}

static void repeats_give_equal_bits_and_two_threads_the_outputs_of_one(void **state)
{
    (void)state;
    struct backend *one = cpu_of_threads(1), *two = cpu_of_threads(2);
    for (size_t k = 0; k < ARRAY_COUNT(kinds); k++) {
        struct rng rng;
        struct scene s;
        struct outcome alone, first, again;

        rng_init(&rng, 1, 40 + k);
        scene_init(&s, shape_of(kinds[k], 33, 37, 12, 19), 19, &rng);
        outcome_of(one, &s, NAN, &alone);
        outcome_of(two, &s, NAN, &first);
        outcome_of(two, &s, NAN, &again);
        assert_true(outcome_is_equal(&s, &first, &again));
        assert_memory_equal(alone.y, first.y, s.y_count * sizeof(float));
        assert_memory_equal(alone.dx, first.dx, s.x_count * sizeof(float));
        outcome_deinit(&alone);
        outcome_deinit(&first);
        outcome_deinit(&again);
        scene_deinit(&s);
    }
    backend_destroy(one);
    backend_destroy(two);
}

static void saturated_gates_stay_finite_and_equal_their_twins(void **state)
{
    (void)state;
    struct backend *cpu = cpu_of_threads(1);
    const float sizes[] = {20.0F, 1e4F, 1e18F};
    for (size_t k = 0; k < ARRAY_COUNT(kinds) * ARRAY_COUNT(sizes); k++) {
        struct rng rng;
        struct scene s;
        struct outcome expected, found;

        rng_init(&rng, 1, 50 + k);
        scene_init(&s, shape_of(kinds[k % 3], 7, 9, 4, 3), 3, &rng);
        for (size_t i = 0; i < s.x_count; i++) {
            s.x[i] = copysignf(sizes[k / 3], s.x[i]);
        }
        twin_of(&s, NAN, &expected);
        outcome_of(cpu, &s, NAN, &found);
        assert_true(distance(found.y, expected.y, s.y_count) < 1e-5);
        for (size_t p = 0; p < PARAMETERS; p++) {
            for (size_t i = 0; i < s.counts[p]; i++) {
                assert_true(isfinite(found.gradients[p][i]));
            }
        }
        outcome_deinit(&expected);
        outcome_deinit(&found);
        scene_deinit(&s);
    }
    backend_destroy(cpu);
}

static void a_nan_in_the_input_reaches_the_output(void **state)
{
    (void)state;
    struct backend *cpu = cpu_of_threads(1);
    for (size_t k = 0; k < ARRAY_COUNT(kinds); k++) {
        struct rng rng;
        struct scene s;
        struct outcome o;

        rng_init(&rng, 1, 60 + k);
        scene_init(&s, shape_of(kinds[k], 3, 20, 4, 2), 2, &rng);
        s.x[3] = NAN; /* step 1 of sample 0 */
        outcome_of(cpu, &s, 0.0F, &o);
        for (size_t i = 0; i < s.y_count; i++) {
            bool is_later = i / 20 % 4 >= 1 && i / 80 == 0;
            assert_true(isnan(o.y[i]) ? is_later : !is_later);
        }
        outcome_deinit(&o);
        scene_deinit(&s);
    }
    backend_destroy(cpu);
}

static void new_weights_count_once_they_are_prepared(void **state)
{
    (void)state;
    struct backend *cpu = cpu_of_threads(1);
    struct rng rng;
    struct scene s;
    struct outcome o;
    struct recurrent *layer;

    rng_init(&rng, 1, 70);
    struct recurrent_options options = random_options(&rng, RECURRENT_GRU);
    scene_init(&s, options, options.samples_max, &rng);
    struct recurrent_weights weights = weights_of(&s);
    float *y = values_of(s.y_count);
    assert_int_equal(cpu->ops->recurrent_create(cpu, &options, &layer), RC_OK);
    assert_int_equal(layer->ops->prepare(layer, &weights), RC_OK);
    assert_int_equal(layer->ops->forward(layer, s.samples, s.x, y, NULL), RC_OK);
    for (size_t p = 0; p < PARAMETERS; p++) {
        for (size_t i = 0; i < s.counts[p]; i++) {
            s.parameters[p][i] *= -0.5F;
        }
    }
    outcome_of(cpu, &s, NAN, &o);
    assert_true(distance(y, o.y, s.y_count) > 0.1);
    assert_int_equal(layer->ops->prepare(layer, &weights), RC_OK);
    assert_int_equal(layer->ops->forward(layer, s.samples, s.x, y, NULL), RC_OK);
    assert_memory_equal(y, o.y, s.y_count * sizeof(float));
    layer->ops->destroy(layer);
    mem_free(y);
    outcome_deinit(&o);
    scene_deinit(&s);
    backend_destroy(cpu);
}

static void memory_may_run_short_at_creation_and_is_not_asked_for_later(void **state)
{
    (void)state;
    const struct recurrent_options options = shape_of(RECURRENT_GRU, 5, 6, 3, 4);
    struct backend *backends[] = {cpu_of_threads(1), plain()};
    const uint64_t failures[] = {5, 2};

    for (size_t b = 0; b < ARRAY_COUNT(backends); b++) {
        struct backend *cpu = backends[b];
        struct recurrent *layer = NULL;
        uint64_t blocks = mem_blocks(), n = 0;
        struct rng rng;
        struct scene s;
        struct outcome o;

        for (;; n++) {
            mem_fail_after(n);
            enum rc rc = cpu->ops->recurrent_create(cpu, &options, &layer);
            mem_fail_after(UINT64_MAX);
            if (rc == RC_OK) break;
            assert_int_equal(rc, RC_NOMEM);
            assert_int_equal(mem_blocks(), blocks);
        }
        assert_int_equal(n, failures[b]);

        rng_init(&rng, 1, 80);
        scene_init(&s, options, 4, &rng);
        outcome_init(&o, &s, 0.0F);
        struct recurrent_weights weights = weights_of(&s);
        struct recurrent_backward pass = backward_of(&s, &o, s.dy, false);
        float *saved = values_of(s.samples * layer->saved_values);
        pass.saved = saved;
        blocks = mem_blocks();
        mem_fail_after(0);
        assert_int_equal(layer->ops->prepare(layer, &weights), RC_OK);
        assert_int_equal(layer->ops->forward(layer, 4, s.x, o.y, saved), RC_OK);
        assert_int_equal(layer->ops->backward(layer, &pass), RC_OK);
        mem_fail_after(UINT64_MAX);
        assert_int_equal(mem_blocks(), blocks);
        mem_free(saved);
        outcome_deinit(&o);
        scene_deinit(&s);
        layer->ops->destroy(layer);
        backend_destroy(cpu);
    }
}

static void shapes_beyond_the_limits_are_refused(void **state)
{
    (void)state;
    struct backend *cpu = cpu_of_threads(1);
    const struct recurrent_options good = {
        .kind = RECURRENT_LSTM, .in = 1, .hidden = 1, .steps = 1, .samples_max = 1};
    struct recurrent_options wide = good, deep = good, large = good;
    struct recurrent *layer = NULL;

    wide.in = UINT32_MAX;
    deep.hidden = UINT32_MAX;
    large.steps = large.samples_max = 1U << 16;
    assert_int_equal(cpu->ops->recurrent_create(cpu, &wide, &layer), RC_UNSUPPORTED);
    assert_int_equal(cpu->ops->recurrent_create(cpu, &deep, &layer), RC_UNSUPPORTED);
    assert_int_equal(cpu->ops->recurrent_create(cpu, &large, &layer), RC_UNSUPPORTED);
    assert_null(layer);
    backend_destroy(cpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_equal_their_twins_on_any_shape_and_any_number_of_threads),
        cmocka_unit_test(the_twins_gradients_are_the_slopes_of_the_twins),
        cmocka_unit_test(layers_compute_what_pytorch_computes),
        cmocka_unit_test(nothing_flows_back_across_a_truncated_border),
        cmocka_unit_test(without_gradients_the_outputs_are_the_same_bits),
        cmocka_unit_test(repeats_give_equal_bits_and_two_threads_the_outputs_of_one),
        cmocka_unit_test(saturated_gates_stay_finite_and_equal_their_twins),
        cmocka_unit_test(a_nan_in_the_input_reaches_the_output),
        cmocka_unit_test(new_weights_count_once_they_are_prepared),
        cmocka_unit_test(memory_may_run_short_at_creation_and_is_not_asked_for_later),
        cmocka_unit_test(shapes_beyond_the_limits_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
