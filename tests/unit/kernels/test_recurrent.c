/* Recurrent layers against their twins; what they promise beside. */
#include "tests/unit/kernels/recurrent_scene.h"

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

static struct backend *bf16_cpu(void)
{
    return cpu_backend_create(&(struct cpu_backend_options){
        .threads = 1, .precision = PRECISION_BF16, .forces_bf16 = true});
}

/* 8 bits of each operand: errors of half a percent and, back through the steps, some more. */
static void with_bfloat16_operands_results_come_close_to_the_twins(void **state)
{
    (void)state;
    struct backend *cpu = bf16_cpu();
    assert_non_null(cpu);
    if (!cpu_backend_is_bf16(cpu)) {
        backend_destroy(cpu);
        print_message("skipped: oneDNN multiplies no bfloat16 on this processor\n");
        skip();
    }
    backend_bind_thread(cpu);
    FOR_EACH_SEED (seed, 15) {
        for (size_t k = 0; k < ARRAY_COUNT(kinds); k++) {
            struct rng rng;
            struct scene scene;
            struct outcome expected, found;
            float start = seed % 3 == 0 ? 0.25F : NAN;

            rng_init(&rng, seed, 100 + k);
            struct recurrent_options options = random_options(&rng, kinds[k]);
            scene_init(&scene, options, between(&rng, 1, options.samples_max), &rng);
            twin_of(&scene, start, &expected);
            outcome_of(cpu, &scene, start, &found);
            check_seed(seed, outcome_distance(&scene, &found, &expected) < 0.04);
            check_seed(seed, kinds[k] == RECURRENT_GRU ||
                                 outcome_distance(&scene, &found, &expected) > 1e-5);
            outcome_deinit(&found);
            outcome_deinit(&expected);
            scene_deinit(&scene);
        }
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
    const struct recurrent_options options = shape_of(RECURRENT_LSTM, 5, 6, 3, 4);
    struct backend *backends[] = {cpu_of_threads(1), plain(), bf16_cpu()};
    const uint64_t failures[] = {4, 2, 4};

    for (size_t b = 0; b < ARRAY_COUNT(backends); b++) {
        struct backend *cpu = backends[b];
        struct recurrent *layer = NULL;
        uint64_t blocks, n = 0;
        struct rng rng;
        struct scene s;
        struct outcome o;

        /* Scratch memory is the backend's and stays with it: let it grow before. */
        assert_int_equal(cpu->ops->recurrent_create(cpu, &options, &layer), RC_OK);
        layer->ops->destroy(layer);
        blocks = mem_blocks();
        for (;; n++) {
            mem_fail_after(n);
            enum rc rc = cpu->ops->recurrent_create(cpu, &options, &layer);
            mem_fail_after(UINT64_MAX);
            if (rc == RC_OK) break;
            assert_int_equal(rc, RC_NOMEM);
            assert_int_equal(mem_blocks(), blocks);
        }
        assert_true(n >= failures[b]);

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
        cmocka_unit_test(with_bfloat16_operands_results_come_close_to_the_twins),
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
