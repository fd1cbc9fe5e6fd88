/* The twins of recurrent layers against finite differences; layers against PyTorch. */
#include "tests/unit/kernels/recurrent_scene.h"

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
    int middle = period / 2;

    for (size_t i = 0; i < count; i++) {
        values[i] = (float)(((int)i * factor + offset) % period - middle) / 8.0F;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_twins_gradients_are_the_slopes_of_the_twins),
        cmocka_unit_test(layers_compute_what_pytorch_computes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
