/* Dense layers: every way of computing them against the float64 twin, outputs poisoned. */
#include "tests/check.h"

#include "base/check.h"
#include "base/cpu.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernels/cpu/cpu_backend.h"

#include <math.h>

enum { WAYS = 5 };

/* With one thread and two, without oneDNN, and in bfloat16. */
static const struct cpu_backend_options ways[WAYS] = {
    {.threads = 1},
    {.threads = 2},
    {.threads = 1, .convolution = CPU_CONVOLUTION_IM2COL},
    {.threads = 1, .precision = PRECISION_BF16, .forces_bf16 = true},
    {.threads = 2, .precision = PRECISION_BF16, .forces_bf16 = true},
};

static struct backend *backend_of(const struct cpu_backend_options *options)
{
    struct backend *backend = cpu_backend_create(options);

    assert_non_null(backend);
    backend_bind_thread(backend);
    return backend;
}

static struct backend *plain(void)
{
    return backend_of(&(struct cpu_backend_options){.threads = 1, .is_reference = true});
}

/* Everything a layer reads and writes. */
struct scene {
    struct linear_options options;
    size_t rows;
    bool adds_to_dx, is_first, dx_is_x, wants_dx;
    float *x, *weight, *bias, *pre, *y, *dy, *dx, *dweight, *dbias;
};

static float *values_of(struct rng *rng, size_t count)
{
    float *values = mem_aligned(count * sizeof(*values) + 64);

    assert_non_null(values);
    for (size_t i = 0; i < count; i++) {
        values[i] = rng != NULL ? (float)(rng_unit(rng) * 2.0 - 1.0) : NAN;
    }
    return values;
}

static size_t between(struct rng *rng, size_t low, size_t high)
{
    return low + (size_t)rng_below(rng, high - low + 1);
}

/* Small shapes of all kinds, and now and then one that is large enough to be split or packed. */
static void scene_shape(struct scene *s, struct rng *rng)
{
    size_t most = rng_below(rng, 8) == 0 ? 300 : 70;
    enum activation_kind kind = (enum activation_kind)rng_below(rng, ACTIVATION_COUNT);

    s->options = (struct linear_options){
        .in = between(rng, 1, most),
        .out = between(rng, 1, most),
        .rows_max = between(rng, 1, most),
        .with_bias = rng_below(rng, 2) == 0,
        .activation = {kind, 0.1F},
        .with_gradients = true,
        .with_input_gradient = true,
    };
    s->rows = rng_below(rng, 3) == 0 ? between(rng, 1, s->options.rows_max) : s->options.rows_max;
    s->adds_to_dx = rng_below(rng, 2) == 0;
    s->is_first = rng_below(rng, 2) == 0;
    s->wants_dx = rng_below(rng, 4) != 0;
    s->dx_is_x = s->wants_dx && !s->adds_to_dx && rng_below(rng, 3) == 0;
}

static void scene_fill(struct scene *s, uint64_t seed)
{
    const struct linear_options *o = &s->options;
    struct rng rng;

    rng_init(&rng, seed, 99);
    s->x = values_of(&rng, s->rows * o->in);
    s->weight = values_of(&rng, o->in * o->out);
    s->bias = o->with_bias ? values_of(&rng, o->out) : NULL;
    s->dy = values_of(&rng, s->rows * o->out);
    s->pre = activation_needs_input(o->activation.kind) ? values_of(NULL, s->rows * o->out) : NULL;
    s->y = values_of(NULL, s->rows * o->out);
    s->dx = s->dx_is_x ? s->x : values_of(s->adds_to_dx ? &rng : NULL, s->rows * o->in);
    s->dweight = values_of(s->is_first ? NULL : &rng, o->in * o->out);
    s->dbias = o->with_bias ? values_of(s->is_first ? NULL : &rng, o->out) : NULL;
}

static void scene_clear(struct scene *s)
{
    if (!s->dx_is_x) mem_free(s->dx);
    mem_free(s->x);
    mem_free(s->weight);
    mem_free(s->bias);
    mem_free(s->pre);
    mem_free(s->y);
    mem_free(s->dy);
    mem_free(s->dweight);
    mem_free(s->dbias);
}

static void scene_run(struct scene *s, struct linear *layer)
{
    struct linear_backward pass = {
        .rows = s->rows,
        .x = s->x,
        .pre = s->pre,
        .y = s->y,
        .dy = s->dy,
        .dx = s->wants_dx ? s->dx : NULL,
        .adds_to_dx = s->adds_to_dx,
        .is_first = s->is_first,
        .dweight = s->dweight,
        .dbias = s->dbias,
    };

    assert_int_equal(layer->ops->prepare(layer, s->weight, s->bias), RC_OK);
    assert_int_equal(layer->ops->forward(layer, s->rows, s->x, s->pre, s->y), RC_OK);
    assert_int_equal(layer->ops->backward(layer, &pass), RC_OK);
}

/* Build, run and throw away; the scene keeps the results. */
static void scene_run_on(struct scene *s, struct backend *backend, uint64_t seed)
{
    struct linear *layer = NULL;

    scene_fill(s, seed);
    assert_int_equal(backend->ops->linear_create(backend, &s->options, &layer), RC_OK);
    scene_run(s, layer);
    layer->ops->destroy(layer);
}

/* |a - b| over |b|, in the 2-norm; NaN if either holds one. */
static double distance(const float *a, const float *b, size_t count)
{
    double difference = 0.0, size = 0.0;

    for (size_t i = 0; a != NULL && i < count; i++) {
        double d = (double)a[i] - (double)b[i];
        difference += d * d;
        size += (double)b[i] * (double)b[i];
    }
    return size == 0.0 ? sqrt(difference) : sqrt(difference / size);
}

static double scene_distance(const struct scene *a, const struct scene *b)
{
    const struct linear_options *o = &a->options;
    double distances[] = {
        distance(a->pre, b->pre, a->rows * o->out),
        distance(a->y, b->y, a->rows * o->out),
        distance(a->wants_dx ? a->dx : NULL, b->dx, a->rows * o->in),
        distance(a->dweight, b->dweight, o->in * o->out),
        distance(a->dbias, b->dbias, o->out),
    };
    double largest = 0.0;

    for (size_t i = 0; i < ARRAY_COUNT(distances); i++) {
        if (!(distances[i] <= largest)) largest = distances[i];
    }
    return largest;
}

static void layers_equal_their_float64_twin_for_all_shapes_and_options(void **state)
{
    (void)state;
    struct backend *twin = plain();
    for (size_t way = 0; way < WAYS; way++) {
        struct backend *cpu = backend_of(&ways[way]);
        /* Where bf16 rounds a value near a relu's kink, one gradient in many is another. */
        double most = cpu_backend_is_bf16(cpu) ? 0.1 : 2e-5;
        double sum = 0.0, runs = 0.0;

        if (ways[way].precision == PRECISION_BF16 && !cpu_backend_is_bf16(cpu)) {
            print_message("without bf16: %s\n", cpu_backend_precision_reason(cpu));
        }
        FOR_EACH_SEED (seed, 60) {
            struct scene is, expected;
            struct rng rng;

            rng_init(&rng, seed, 1);
            scene_shape(&is, &rng);
            expected = is;
            scene_run_on(&is, cpu, seed);
            scene_run_on(&expected, twin, seed);
            check_seed(seed, scene_distance(&is, &expected) < most);
            sum += scene_distance(&is, &expected);
            runs += 1.0;
            scene_clear(&is);
            scene_clear(&expected);
        }
        assert_true(sum / runs < (cpu_backend_is_bf16(cpu) ? 1e-2 : 1e-6));
        backend_destroy(cpu);
    }
    backend_destroy(twin);
}

/* Shapes of real models, which take the paths for many rows, tiles and several threads. */
static void layers_of_real_models_equal_their_twin(void **state)
{
    (void)state;
    static const size_t shapes[][3] = {
        {64, 784, 256}, {64, 128, 10}, {33, 200, 97}, {300, 128, 73}, {512, 128, 128}, {1, 40, 50},
    };
    struct backend *twin = plain();
    for (size_t i = 0; i < ARRAY_COUNT(shapes); i++) {
        struct scene expected = {
            .options = {.in = shapes[i][1],
                        .out = shapes[i][2],
                        .rows_max = shapes[i][0],
                        .with_bias = true,
                        .activation = {ACTIVATION_GELU, 0.0F},
                        .with_gradients = true,
                        .with_input_gradient = true},
            .rows = shapes[i][0],
            .is_first = true,
            .wants_dx = true,
        };
        struct scene is = expected;
        scene_run_on(&expected, twin, i);
        for (size_t way = 0; way < WAYS; way++) {
            struct backend *cpu = backend_of(&ways[way]);
            scene_run_on(&is, cpu, i);
            assert_true(scene_distance(&is, &expected) < (cpu_backend_is_bf16(cpu) ? 2e-2 : 3e-6));
            scene_clear(&is);
            backend_destroy(cpu);
        }
        scene_clear(&expected);
    }
    backend_destroy(twin);
}

static void equal_calls_give_equal_bits(void **state)
{
    (void)state;
    for (size_t way = 0; way < WAYS; way++) {
        struct backend *cpu = backend_of(&ways[way]);
        FOR_EACH_SEED (seed, 15) {
            struct scene first, again;
            struct rng rng;
            size_t n;

            rng_init(&rng, seed, 2);
            scene_shape(&first, &rng);
            again = first;
            scene_run_on(&first, cpu, seed);
            scene_run_on(&again, cpu, seed);
            n = first.rows * first.options.out * sizeof(float);
            check_seed(seed, memcmp(first.y, again.y, n) == 0);
            n = first.options.in * first.options.out * sizeof(float);
            check_seed(seed, memcmp(first.dweight, again.dweight, n) == 0);
            n = first.rows * first.options.in * sizeof(float);
            check_seed(seed, !first.wants_dx || memcmp(first.dx, again.dx, n) == 0);
            scene_clear(&first);
            scene_clear(&again);
        }
        backend_destroy(cpu);
    }
}

/* Where they are the libraries', that is for these to say. */
static void products_of_our_own_have_the_same_bits_on_any_number_of_threads(void **state)
{
    (void)state;
    static const size_t shapes[][3] = {{130, 300, 200}, {700, 20, 600}, {20, 1100, 400}, {9, 9, 9}};
    for (size_t i = 0; i < ARRAY_COUNT(shapes) * 4; i++) {
        const size_t *shape = shapes[i / 4];
        struct rng rng;
        float *c[4];

        rng_init(&rng, i, 3);
        float *a = values_of(&rng, shape[0] * shape[2]), *b = values_of(&rng, shape[1] * shape[2]);
        struct gemm g = {.is_a_transposed = i % 2 == 0,
                         .is_b_transposed = i / 2 % 2 == 0,
                         .rows = shape[0],
                         .columns = shape[1],
                         .inner = shape[2],
                         .alpha = 1.0F,
                         .a = a,
                         .b = b,
                         .c_stride = shape[1]};
        g.a_stride = g.is_a_transposed ? g.rows : g.inner;
        g.b_stride = g.is_b_transposed ? g.inner : g.columns;
        for (uint32_t threads = 0; threads < 4; threads++) { /* 0: the twin */
            struct backend *backend = backend_of(
                &(struct cpu_backend_options){.threads = threads, .is_reference = threads == 0});

            c[threads] = g.c = values_of(NULL, shape[0] * shape[1]);
            assert_int_equal(backend->ops->gemm(backend, &g), RC_OK);
            assert_true(distance(g.c, c[0], shape[0] * shape[1]) < 2e-6);
            if (cpu_used == CPU_AVX2 && threads > 1) {
                size_t bytes = shape[0] * shape[1] * sizeof(float);
                assert_memory_equal(g.c, c[1], bytes);
            }
            backend_destroy(backend);
        }
        for (size_t n = 0; n < ARRAY_COUNT(c); n++) {
            mem_free(c[n]);
        }
        mem_free(a);
        mem_free(b);
    }
}

static void a_layer_follows_its_weights_and_serves_any_number_of_rows(void **state)
{
    (void)state;
    struct backend *twin = plain();
    for (size_t way = 0; way < WAYS; way++) {
        struct backend *cpu = backend_of(&ways[way]);
        struct scene is = {.options = {.in = 50,
                                       .out = 40,
                                       .rows_max = 200,
                                       .with_bias = true,
                                       .activation = {ACTIVATION_GELU, 0.0F},
                                       .with_gradients = true,
                                       .with_input_gradient = true},
                           .is_first = true,
                           .wants_dx = true};
        struct linear *layer = NULL;
        double most = cpu_backend_is_bf16(cpu) ? 2e-2 : 2e-6;
        const size_t rows[] = {200, 17, 1, 64, 200, 65, 199};

        assert_int_equal(cpu->ops->linear_create(cpu, &is.options, &layer), RC_OK);
        for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
            struct scene expected;

            is.rows = rows[i];
            expected = is;
            scene_fill(&is, i); /* other weights each time */
            scene_run(&is, layer);
            scene_run_on(&expected, twin, i);
            assert_true(scene_distance(&is, &expected) < most);
            scene_clear(&is);
            scene_clear(&expected);
        }
        layer->ops->destroy(layer);
        backend_destroy(cpu);
    }
    backend_destroy(twin);
}

static void the_gradient_is_that_of_finite_differences(void **state)
{
    (void)state;
    struct backend *twin = plain();
    FOR_EACH_SEED (seed, 10) {
        struct scene s = {.options = {.in = 5,
                                      .out = 4,
                                      .rows_max = 3,
                                      .with_bias = true,
                                      .activation = {ACTIVATION_SILU, 0.0F},
                                      .with_gradients = true,
                                      .with_input_gradient = true},
                          .rows = 3,
                          .is_first = true,
                          .wants_dx = true};
        const float step = 1.0F / 256.0F;
        float direction[12];
        struct linear *layer = NULL;

        assert_int_equal(twin->ops->linear_create(twin, &s.options, &layer), RC_OK);
        scene_fill(&s, seed);
        memcpy(direction, s.dy, sizeof(direction)); /* backward overwrites it */
        scene_run(&s, layer);
        for (size_t i = 0; i < 20; i++) {
            float kept = s.weight[i], up[12], down[12];
            double slope = 0.0;

            s.weight[i] = kept + step;
            assert_int_equal(layer->ops->forward(layer, 3, s.x, NULL, up), RC_OK);
            s.weight[i] = kept - step;
            assert_int_equal(layer->ops->forward(layer, 3, s.x, NULL, down), RC_OK);
            s.weight[i] = kept;
            for (size_t j = 0; j < 12; j++) {
                slope += (double)direction[j] * ((double)up[j] - (double)down[j]);
            }
            slope /= 2.0 * (double)step;
            check_seed(seed, fabs(slope - (double)s.dweight[i]) < 2e-4);
        }
        layer->ops->destroy(layer);
        scene_clear(&s);
    }
    backend_destroy(twin);
}

static void creation_without_memory_says_so_and_leaks_nothing(void **state)
{
    (void)state;
    for (size_t way = 0; way < WAYS; way++) {
        struct backend *cpu = backend_of(&ways[way]);
        struct linear_options options = {.in = 64,
                                         .out = 80,
                                         .rows_max = 128,
                                         .with_bias = true,
                                         .with_gradients = true,
                                         .with_input_gradient = true};
        struct linear *layer = NULL;
        uint64_t failed = 0;

        for (;; failed++) {
            uint64_t blocks = mem_blocks();
            enum rc rc;

            mem_fail_after(failed);
            rc = cpu->ops->linear_create(cpu, &options, &layer);
            mem_fail_after(UINT64_MAX);
            if (rc == RC_OK) break;
            assert_int_equal(rc, RC_NOMEM);
            assert_true(mem_blocks() <= blocks + 1); /* the backend's scratch memory may grow */
        }
        assert_true(failed >= 1);
        layer->ops->destroy(layer);
        backend_destroy(cpu);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_equal_their_float64_twin_for_all_shapes_and_options),
        cmocka_unit_test(layers_of_real_models_equal_their_twin),
        cmocka_unit_test(equal_calls_give_equal_bits),
        cmocka_unit_test(products_of_our_own_have_the_same_bits_on_any_number_of_threads),
        cmocka_unit_test(a_layer_follows_its_weights_and_serves_any_number_of_rows),
        cmocka_unit_test(the_gradient_is_that_of_finite_differences),
        cmocka_unit_test(creation_without_memory_says_so_and_leaks_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
