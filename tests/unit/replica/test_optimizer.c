/* optimizer: specs, hand-calculated steps, what is done to which tensor. */
#include "tests/check.h"

#include "base/check.h"
#include "kernels/cpu/cpu_backend.h"
#include "replica/optimizer/optimizer.h"
#include "replica/plane/plane.h"

#include <math.h>

static struct optimizer parsed(const char *text)
{
    struct optimizer optimizer;
    struct fault why = {""};

    assert_int_equal(optimizer_parse(text, &optimizer, &why), RC_OK);
    return optimizer;
}

static void check_refused(const char *text, const char *expected)
{
    struct optimizer optimizer = {.lr = 77.0};
    struct fault why = {""};

    assert_int_equal(optimizer_parse(text, &optimizer, &why), RC_PARSE);
    assert_string_equal(why.text, expected);
    assert_true(optimizer.lr == 77.0);
}

/* A schema of one tensor and, if wanted, a last matrix of one value; and who computes. */
struct table {
    struct schema schema;
    struct backend *cpu;
};

static struct table table_of(const char *name, const uint32_t *shape, uint32_t rank, bool has_last)
{
    const struct cpu_backend_options options = {.threads = 1};
    const uint32_t ones[2] = {1, 1};
    struct table table = {.cpu = cpu_backend_create(&options)};

    schema_init(&table.schema);
    assert_int_equal(schema_add(&table.schema, name, SECTION_PARAMETERS, shape, rank), RC_OK);
    if (has_last) {
        assert_int_equal(schema_add(&table.schema, "last", SECTION_PARAMETERS, ones, 2), RC_OK);
    }
    return table;
}

static void table_drop(struct table *table)
{
    schema_deinit(&table->schema);
    backend_destroy(table->cpu);
}

enum { VALUES_MAX = 64 };

/* One step on at most VALUES_MAX values; the workspace holds NaN before it. */
static void take_step(struct table *table, const struct optimizer *optimizer, uint64_t count,
                      const float *gradient, float *moments, float *values)
{
    float workspace[4 * VALUES_MAX];
    const struct optimizer_step step = {gradient, moments, values, workspace, NULL, 1.0, count};

    assert_true(optimizer_workspace(optimizer, &table->schema) <= ARRAY_COUNT(workspace));
    memset(workspace, 0xff, sizeof(workspace));
    assert_int_equal(optimizer_step(optimizer, table->cpu, &table->schema, &step), RC_OK);
}

/* x = 1, gradients 0.5 then 0.25, rate 0.1. */
static void check_steps(const char *text, double first, double second)
{
    const uint32_t shape[1] = {1};
    struct table table = table_of("bias", shape, 1, false);
    struct optimizer optimizer = parsed(text);
    float x = 1.0F, moments[2] = {0.0F, 0.0F};
    const float gradients[2] = {0.5F, 0.25F};
    const double expected[2] = {first, second};

    for (uint64_t k = 1; k <= 2; k++) {
        take_step(&table, &optimizer, k, &gradients[k - 1], moments, &x);
        assert_float_equal(x, expected[k - 1], 2e-6); /* the values have six digits */
    }
    table_drop(&table);
}

static void two_steps_are_as_calculated_by_hand(void **state)
{
    (void)state;
    check_steps("sgd:lr=0.1", 0.95, 0.925);
    check_steps("momentum:lr=0.1,beta=0.9", 0.95, 0.88);
    check_steps("nesterov:lr=0.1,beta=0.9", 0.905, 0.817);
    check_steps("adagrad:lr=0.1", 0.9, 0.855279);
    check_steps("rmsprop:lr=0.1,alpha=0.99", 0.0000002, -0.449013);
    check_steps("adam:lr=0.1", 0.9, 0.806782);
    check_steps("adamw:lr=0.1,wd=0.1", 0.89, 0.787882);
    check_steps("sgd:lr=0.1,wd=0.5", 0.9, 0.83); /* g = 0.5 + 0.5, then 0.25 + 0.45 */
    check_steps("momentum:lr=0.1,beta=0.9,wd=0.5", 0.9, 0.74);
    check_steps("lars:lr=0.1,beta=0.9,wd=0.5", 0.95, 0.88);    /* a bias: momentum without decay */
    check_steps("lamb:lr=0.1,eps=1e-8,wd=0.5", 0.9, 0.806782); /* a bias: plain adam */
}

/* From (1, -2, 0.5), gradient sin(k + i) for value i at step k, in float64 by PyTorch 1.13. */
static void five_steps_with_decay_agree_with_pytorch(void **state)
{
    static const struct {
        const char *text;
        double expected[3];
    } cases[] = {
        {"sgd:lr=0.1,wd=0.1", {0.9389143, -1.80597, 0.5913192}},
        {"momentum:lr=0.1,beta=0.8,wd=0.1", {0.5528726, -1.725819, 0.830356}},
        {"nesterov:lr=0.1,beta=0.8,wd=0.1", {0.5979282, -1.585058, 0.8488476}},
        {"adagrad:lr=0.1,wd=0.1", {0.9039929, -1.913088, 0.541264}},
        {"rmsprop:lr=0.1,alpha=0.9,wd=0.1", {0.7431352, -1.690813, 0.6165654}},
        {"adam:lr=0.1,beta2=0.99,wd=0.1", {0.6747037, -2.020935, 0.62717}},
        {"adamw:lr=0.1,beta2=0.99,wd=0.1", {0.6564183, -2.009556, 0.6231197}},
    };
    const uint32_t shape[1] = {3};
    struct table table = table_of("dense1.bias", shape, 1, false);

    (void)state;
    for (size_t c = 0; c < ARRAY_COUNT(cases); c++) {
        struct optimizer optimizer = parsed(cases[c].text);
        float x[3] = {1.0F, -2.0F, 0.5F}, g[3], moments[6] = {0.0F};
        for (uint64_t k = 1; k <= 5; k++) {
            for (size_t i = 0; i < 3; i++) {
                g[i] = sinf((float)k + (float)i);
            }
            take_step(&table, &optimizer, k, g, moments, x);
        }
        for (size_t i = 0; i < 3; i++) {
            assert_float_equal(x[i], cases[c].expected[i], 3e-6);
        }
    }
    table_drop(&table);
}

/* x = (3, 4), g = (0.6, 0.8), as a matrix or as a bias. */
static void check_layer(const char *text, uint32_t rank, double epsilon, double first,
                        double second)
{
    const uint32_t shape[2] = {2, 1};
    struct table table = table_of("dense1.weight", shape, rank, false);
    struct optimizer optimizer = parsed(text);
    float x[2] = {3.0F, 4.0F}, moments[4] = {0.0F};
    const float g[2] = {0.6F, 0.8F};

    optimizer.epsilon = epsilon;
    take_step(&table, &optimizer, 1, g, moments, x);
    assert_float_equal(x[0], first, 5e-6);
    assert_float_equal(x[1], second, 5e-6);
    table_drop(&table);
}

static void a_layers_ratio_is_as_calculated_by_hand(void **state)
{
    (void)state;
    check_layer("lars:lr=0.1,wd=0.1,trust=0.01", 2, 0.0, 2.997, 3.996);
    check_layer("lars:lr=0.1,wd=0.1,trust=0.01", 1, 0.0, 2.94, 3.92);
    check_layer("lamb:lr=0.01,wd=0.1", 2, 0.0, 2.96598, 3.96336);
    check_layer("lamb:lr=0.01,wd=0.1", 1, 0.0, 2.99, 3.99);
}

/* Relative steps of x and of c x with g / c. */
static void layers_take_the_same_relative_step_at_every_scale(void **state)
{
    const char *const texts[] = {"lars:lr=0.1,eps=1e-30", "lamb:lr=0.01,wd=0,eps=1e-30"};
    const uint32_t shape[2] = {3, 4};
    struct table table = table_of("dense1.weight", shape, 2, false);

    (void)state;
    for (size_t t = 0; t < ARRAY_COUNT(texts); t++) {
        struct optimizer optimizer = parsed(texts[t]);
        for (float c = 1e-3F; c < 1e4F; c *= 10.0F) {
            float x[12], y[12], g[12], h[12], moments[24] = {0.0F}, others[24] = {0.0F};
            for (size_t i = 0; i < 12; i++) {
                x[i] = 1.0F + 0.1F * (float)i;
                y[i] = c * x[i];
                g[i] = sinf((float)i + 0.5F);
                h[i] = g[i] / c;
            }
            for (uint64_t k = 1; k <= 3; k++) {
                take_step(&table, &optimizer, k, g, moments, x);
                take_step(&table, &optimizer, k, h, others, y);
            }
            for (size_t i = 0; i < 12; i++) {
                assert_float_equal(y[i] / c, x[i], 2e-6);
                assert_true(x[i] != 1.0F + 0.1F * (float)i);
            }
        }
    }
    table_drop(&table);
}

static void tensors_at_zero_and_gradients_of_zero_are_no_trap(void **state)
{
    const char *const texts[] = {"lars", "lamb:wd=0", "muon"};
    const uint32_t shape[2] = {2, 2};

    (void)state;
    for (size_t t = 0; t < ARRAY_COUNT(texts); t++) {
        struct table table = table_of("dense1.weight", shape, 2, true);
        struct optimizer optimizer = parsed(texts[t]);
        float zero[5] = {0.0F}, g[5] = {1.0F, -1.0F, 0.5F, 2.0F, 1.0F}, moments[10] = {0.0F};
        float x[5] = {1.0F, 2.0F, 3.0F, 4.0F, 5.0F};
        const float before[5] = {1.0F, 2.0F, 3.0F, 4.0F, 5.0F};
        take_step(&table, &optimizer, 1, zero, moments, x);
        assert_memory_equal(x, before, sizeof(x)); /* nothing pulls, nothing moves */
        memset(moments, 0, sizeof(moments));
        take_step(&table, &optimizer, 1, g, moments, zero);
        for (size_t i = 0; i < 5; i++) {
            assert_true(isfinite(zero[i]) && zero[i] != 0.0F);
        }
        table_drop(&table);
    }
}

static void adamw_without_gradient_only_decays(void **state)
{
    const uint32_t shape[2] = {2, 2};
    struct table table = table_of("dense1.weight", shape, 2, false);
    struct optimizer adamw = parsed("adamw:lr=0.1,wd=0.2");
    float x[4] = {1.0F, -2.0F, 3.0F, 0.0F}, moments[8] = {0.0F};
    const float zero[4] = {0.0F};

    (void)state;
    for (uint64_t k = 1; k <= 3; k++) {
        take_step(&table, &adamw, k, zero, moments, x);
    }
    assert_float_equal(x[0], 0.98F * 0.98F * 0.98F, 1e-6F);
    assert_float_equal(x[1], -2.0F * 0.98F * 0.98F * 0.98F, 1e-6F);
    assert_true(x[3] == 0.0F);
    table_drop(&table);
}

/* A step of rate 1 from x = 0 is the orthogonalised gradient, whatever its size. */
static void orthogonalise(const uint32_t *shape, uint32_t rank, const float *gradient, float *x)
{
    struct table table = table_of("conv1.weight", shape, rank, true);
    struct optimizer muon = parsed("muon:lr=1");
    float moments[2 * VALUES_MAX] = {0.0F};

    take_step(&table, &muon, 1, gradient, moments, x);
    table_drop(&table);
}

static void muons_direction_is_the_golden_matrix(void **state)
{
    const float gradient[5] = {1.0F, 2.0F, 3.0F, 4.0F, 0.0F};
    const double expected[4] = {-0.680661, 0.82554, 0.741295, 0.25944};
    const uint32_t shape[2] = {2, 2};
    float x[5] = {0.0F};

    (void)state;
    orthogonalise(shape, 2, gradient, x);
    for (size_t i = 0; i < 4; i++) {
        assert_float_equal(-x[i], expected[i], 1e-4);
    }
}

/* Rows of a wide matrix and columns of a tall one: with orthogonal ones of equal length, all
 * singular values are one number, which must lie in the band. */
static void an_orthogonal_matrix_stays_in_the_band(void **state)
{
    const uint32_t wide[4] = {2, 1, 2, 2}, tall[2] = {4, 2}; /* a filter is flattened to 2 x 4 */
    const float rows[9] = {0.5F, 0.5F, 0.5F, 0.5F, 0.5F, -0.5F, 0.5F, -0.5F, 0.0F};
    const float columns[9] = {0.5F, 0.5F, 0.5F, -0.5F, 0.5F, 0.5F, 0.5F, -0.5F, 0.0F};
    float x[9] = {0.0F}, y[9] = {0.0F};
    float size;

    (void)state;
    orthogonalise(wide, 4, rows, x);
    size = -x[0] / rows[0];
    assert_true(size > 0.5F && size < 1.5F);
    for (size_t i = 0; i < 8; i++) {
        assert_float_equal(-x[i], size * rows[i], 1e-5);
    }
    orthogonalise(tall, 2, columns, y); /* and is sqrt(rows / columns) times as long */
    for (size_t i = 0; i < 8; i++) {
        assert_float_equal(-y[i], sqrtf(2.0F) * size * columns[i], 1e-5);
    }
}

static void muon_leaves_embeddings_outputs_and_biases_to_adamw(void **state)
{
    const char *const all[] = {"embed.weight", "dense1.weight", "dense1.bias", "dense2.weight"};
    const uint32_t shape[2] = {2, 3};
    const struct cpu_backend_options options = {.threads = 1};
    struct table table = {.cpu = cpu_backend_create(&options)};
    struct optimizer muon = parsed("muon:lr=0.5,adamw-lr=0.01"), adamw = parsed("adamw:lr=0.01");
    float g[20], x[20], y[20], moments[40] = {0.0F}, others[40] = {0.0F};

    (void)state;
    adamw.beta2 = muon.beta2;
    adamw.decay = 0.0;
    schema_init(&table.schema);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(
            schema_add(&table.schema, all[i], SECTION_PARAMETERS, shape, i == 2 ? 1 : 2), RC_OK);
    }
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(optimizer_is_hidden_matrix(&table.schema, &table.schema.tensors[i]),
                         i == 1);
    }
    for (size_t i = 0; i < 20; i++) {
        g[i] = sinf((float)i);
        x[i] = y[i] = cosf((float)i);
    }
    for (uint64_t k = 1; k <= 2; k++) {
        take_step(&table, &muon, k, g, moments, x);
        take_step(&table, &adamw, k, g, others, y);
    }
    assert_memory_equal(x, y, 6 * sizeof(*x));
    assert_memory_equal(x + 12, y + 12, 8 * sizeof(*x));
    for (size_t i = 6; i < 12; i++) {
        assert_true(fabsf(x[i] - y[i]) > 1e-3F);
    }
    table_drop(&table);
}

static void clipping_shortens_what_is_too_long_and_nothing_else(void **state)
{
    const struct cpu_backend_options options = {.threads = 1};
    struct backend *cpu = cpu_backend_create(&options);
    float g[2] = {3.0F, 4.0F}, none[2] = {0.0F, 0.0F};

    (void)state;
    assert_int_equal(optimizer_clip(cpu, 0.0, g, 2), RC_OK);
    assert_int_equal(optimizer_clip(cpu, 5.0, g, 2), RC_OK);
    assert_true(g[0] == 3.0F && g[1] == 4.0F);
    assert_int_equal(optimizer_clip(cpu, 1.0, g, 2), RC_OK);
    assert_float_equal(g[0], 0.6, 1e-6);
    assert_float_equal(g[1], 0.8, 1e-6);
    assert_int_equal(optimizer_clip(cpu, 1.0, none, 2), RC_OK);
    assert_true(none[0] == 0.0F && none[1] == 0.0F);
    backend_destroy(cpu);
}

static void adams_first_step_has_the_size_of_the_rate_whatever_the_gradients(void **state)
{
    struct cpu_backend_options options = {.threads = 1};
    struct backend *cpu = cpu_backend_create(&options);
    struct optimizer adam = parsed("adam:lr=0.01");
    struct update update = optimizer_update(&adam, adam.lr, 1);

    (void)state;
    for (float g = 1e-3F; g < 1e4F; g *= 10.0F) {
        float x = 1.0F, moments[2] = {0.0F, 0.0F};
        assert_int_equal(cpu->ops->update(cpu, &update, &g, moments, &x, 1), RC_OK);
        assert_float_equal(1.0F - x, 0.01F, 1e-5F);
    }
    backend_destroy(cpu);
}

static enum rc broken_update(struct backend *backend, const struct update *update,
                             const float *gradient, float *moments, float *values, size_t n)
{
    (void)backend;
    (void)gradient;
    (void)moments;
    (void)values;
    (void)n;
    return update->rate > 0.0F ? RC_DEVICE : RC_OK;
}

static enum rc broken_norm(struct backend *backend, const float *x, size_t n, double *result)
{
    (void)backend;
    (void)x;
    (void)n;
    (void)result;
    return RC_DEVICE;
}

static enum rc long_norm(struct backend *backend, const float *x, size_t n, double *result)
{
    (void)backend;
    (void)x;
    (void)n;
    *result = 4.0;
    return RC_OK;
}

static enum rc broken_scale(struct backend *backend, float a, float *x, size_t n)
{
    (void)backend;
    (void)a;
    (void)x;
    (void)n;
    return RC_DEVICE;
}

static void a_failing_device_is_told(void **state)
{
    const uint32_t shape[2] = {2, 2};
    struct table table = table_of("dense1.weight", shape, 2, true);
    struct backend_ops ops = *table.cpu->ops;
    struct backend broken = {.ops = &ops};
    float g[5] = {1.0F, 1.0F, 1.0F, 1.0F, 1.0F}, x[5] = {0.0F}, moments[10] = {0.0F};
    const char *const texts[] = {"sgd", "lars", "muon"};

    (void)state;
    ops.update = broken_update;
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++) {
        struct optimizer optimizer = parsed(texts[i]);
        const struct optimizer_step step = {g, moments, x, NULL, NULL, 1.0, 1};
        assert_int_equal(optimizer_step(&optimizer, &broken, &table.schema, &step), RC_DEVICE);
    }
    ops.scale = broken_scale;
    ops.squared_norm = long_norm;
    assert_int_equal(optimizer_clip(&broken, 0.5, g, 4), RC_DEVICE);
    assert_int_equal(optimizer_clip(&broken, 3.0, g, 4), RC_OK);
    ops.squared_norm = broken_norm;
    assert_int_equal(optimizer_clip(&broken, 3.0, g, 4), RC_DEVICE);
    table_drop(&table);
}

/* A rate chosen for 64 samples: in proportion below, by the root above; of steps whose length is
 * not the gradient's as it is. */
static void a_usual_rate_follows_the_samples_of_a_step(void **state)
{
    static const char *const along[] = {"sgd:lr=0.05", "momentum:lr=0.05,beta=0.9",
                                        "nesterov:lr=0.05"};
    static const char *const others[] = {"adagrad:lr=0.05", "rmsprop:lr=0.05", "adam:lr=0.05",
                                         "adamw:lr=0.05",   "lars:lr=0.05",    "lamb:lr=0.05",
                                         "muon:lr=0.05",    "lbfgs:lr=0.05"};

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(along); i++) {
        assert_float_equal(optimizer_usual_rate(along[i], 1, 64), 0.00078125, 1e-7);
        assert_float_equal(optimizer_usual_rate(along[i], 8, 64), 0.00625, 1e-7);
        assert_float_equal(optimizer_usual_rate(along[i], 64, 64), 0.05, 1e-7);
        assert_float_equal(optimizer_usual_rate(along[i], 256, 64), 0.1, 1e-7);
    }
    for (size_t i = 0; i < ARRAY_COUNT(others); i++) {
        assert_float_equal(optimizer_usual_rate(others[i], 8, 64), 0.05, 1e-7);
        assert_float_equal(optimizer_usual_rate(others[i], 256, 64), 0.05, 1e-7);
    }
    assert_float_equal(optimizer_usual_rate("nesterov", 32, 64), 0.01, 1e-7);
}

static void defaults_and_settings_are_read(void **state)
{
    struct optimizer adam = parsed("adam:beta1=0.8,beta2=0.95,eps=1e-6,lr=5%");

    (void)state;
    assert_true(parsed("momentum").beta == 0.9);
    assert_true(parsed("adam").lr == 1e-3 && parsed("adam").beta2 == 0.999);
    assert_true(adam.beta == 0.8 && adam.beta2 == 0.95 && adam.epsilon == 1e-6 && adam.lr == 0.05);
    assert_int_equal(optimizer_planes(UPDATE_SGD), 0);
    assert_int_equal(optimizer_planes(UPDATE_MOMENTUM), 1);
    assert_int_equal(optimizer_planes(UPDATE_NESTEROV), 1);
    assert_int_equal(optimizer_planes(UPDATE_ADAGRAD), 1);
    assert_int_equal(optimizer_planes(UPDATE_RMSPROP), 1);
    assert_int_equal(optimizer_planes(UPDATE_ADAM), 2);
    assert_int_equal(optimizer_planes(UPDATE_ADAMW), 2);
    assert_int_equal(optimizer_planes(UPDATE_LARS), 1);
    assert_int_equal(optimizer_planes(UPDATE_LAMB), 2);
    assert_int_equal(optimizer_planes(UPDATE_MUON), 2);
    assert_true(parsed("adamw").decay == 0.01 && parsed("lamb").epsilon == 1e-6);
    assert_true(parsed("adagrad").lr == 0.01 && parsed("adagrad").epsilon == 1e-10);
    assert_true(parsed("rmsprop").beta2 == 0.99 && parsed("rmsprop:alpha=0.9").beta2 == 0.9);
    assert_true(parsed("muon").beta == 0.95 && parsed("muon").lr == 0.02);
    assert_true(parsed("muon:beta1=0.8").adamw_beta == 0.8);
    assert_true(parsed("lars:trust=0.001").trust == 0.001);
    assert_string_equal(optimizer_name(UPDATE_NESTEROV), "nesterov");
    assert_true(optimizer_is_full_batch(&(struct optimizer){.kind = parsed("lbfgs").kind}));
    assert_true(!optimizer_is_full_batch(&adam) && parsed("lbfgs").history == 10.0);
    assert_true(parsed("lbfgs:history=5,tries=9,lr=0.5").tries == 9.0);
    assert_string_equal(optimizer_name(parsed("lbfgs").kind), "lbfgs");
    assert_int_equal(optimizer_planes(parsed("lbfgs").kind), 0);
}

static void a_wrong_optimizer_is_told_with_its_column(void **state)
{
    (void)state;
    check_refused("adm", "--optimizer, column 1: unknown optimizer 'adm'; did you mean 'adam'?");
    check_refused("quickprop", "--optimizer, column 1: unknown optimizer 'quickprop'; known: sgd, "
                               "momentum, nesterov, adagrad, rmsprop, adam, adamw, lars, lamb, "
                               "muon, lbfgs");
    check_refused("sgd:lrr=1", "--optimizer, column 5: unknown key 'lrr'; did you mean 'lr'?");
    check_refused("sgd:beta=0.9", "--optimizer, column 5: unknown key 'beta'; known: lr, wd");
    check_refused("muon:adamlr=1",
                  "--optimizer, column 6: unknown key 'adamlr'; did you mean 'adamw-lr'?");
    check_refused("lars:trust=0", "--optimizer, column 12: trust must be above 0 and below 1000");
    check_refused("lbfgs:history=200",
                  "--optimizer, column 15: history must be at least 1 and below 101");
    check_refused("lbfgs:tries=1",
                  "--optimizer, column 13: tries must be at least 3 and below 101");
    check_refused("lamp", "--optimizer, column 1: unknown optimizer 'lamp'; did you mean 'lamb'?");
    check_refused("sgd:lr=0", "--optimizer, column 8: lr must be above 0 and below 1e+06");
    check_refused("momentum:lr=1,beta=1",
                  "--optimizer, column 20: beta must be at least 0 and below 1");
    check_refused("sgd:lr=nan", "--optimizer, column 8: expected a number after 'lr='");
    check_refused("sgd:lr=1x", "--optimizer, column 8: expected a number after 'lr='");
    check_refused("sgd:lr=", "--optimizer, column 8: expected a number after 'lr='");
    check_refused("sgd:lr", "--optimizer, column 5: expected key=value");
    check_refused("sgd:", "--optimizer, column 5: expected key=value");
    check_refused("sgd:lr=1,lr=2", "--optimizer, column 10: 'lr' is given twice");
    check_refused("", "--optimizer, column 1: expected name or name:key=value,...");
    check_refused("a:b=1,c=1,d=1,e=1,f=1,g=1,h=1,i=1,j=1,k=1,l=1,m=1,n=1,o=1,p=1,q=1,r=1",
                  "--optimizer, column 67: too many settings");
}

/* Three parts, one after the other or in any order, leave the bits of one whole step. */
static void parts_of_a_step_are_the_step(void **state)
{
    static const char *const texts[] = {"sgd:wd=0.1", "momentum", "adamw", "rmsprop",
                                        "lars",       "lamb",     "muon"};
    enum { TENSORS = 4, PARTS = 3, MAX = 512 };
    static const uint32_t shapes[TENSORS][2] = {{12, 9}, {5, 1}, {7, 20}, {3, 7}};
    struct schema schema;
    const struct cpu_backend_options options = {.threads = 1};
    struct backend *cpu = cpu_backend_create(&options);

    (void)state;
    schema_init(&schema);
    for (uint32_t i = 0; i < TENSORS; i++) {
        char name[8];
        snprintf(name, sizeof(name), "t%u", i);
        assert_int_equal(schema_add(&schema, name, SECTION_PARAMETERS, shapes[i], 2), RC_OK);
    }
    for (size_t o = 0; o < ARRAY_COUNT(texts); o++) {
        struct optimizer optimizer = parsed(texts[o]);
        float x[2][MAX], g[MAX], moments[2][2 * MAX] = {{0}}, workspace[PARTS * 4 * MAX];
        size_t count = schema.values[SECTION_PARAMETERS];

        assert_true(optimizer_workspace(&optimizer, &schema) <= 4 * MAX);
        for (size_t i = 0; i < count; i++) {
            x[0][i] = x[1][i] = (float)sin((double)i);
            g[i] = (float)cos(3.0 * (double)i);
        }
        for (uint64_t k = 1; k <= 2; k++) {
            struct optimizer_step step = {g, moments[0], x[0], workspace, NULL, 1.0, k};
            assert_int_equal(optimizer_step(&optimizer, cpu, &schema, &step), RC_OK);
            step.moments = moments[1];
            step.values = x[1];
            for (uint32_t p = PARTS; p-- > 0;) {
                struct optimizer_part part = {cpu, p, PARTS, p * 96, p == 2 ? count : p * 96 + 96};
                assert_int_equal(optimizer_step_part(&optimizer, &schema, &step, &part), RC_OK);
            }
        }
        assert_memory_equal(x[0], x[1], count * sizeof(float));
        assert_memory_equal(moments[0], moments[1], 2 * count * sizeof(float));
    }
    schema_deinit(&schema);
    backend_destroy(cpu);
}

/* What Adam itself makes, of gradients that come and go, is left as it is to the bit; what nobody
 * can have made is bounded: squares below zero, and a mean beside squares that are too small. */
static void moments_from_elsewhere_are_bounded(void **state)
{
    static const char *const specs[] = {"adam", "adamw", "lamb", "adam:beta1=0.8,beta2=0.95"};
    enum { N = 4 };

    (void)state;
    for (size_t s = 0; s < ARRAY_COUNT(specs); s++) {
        const struct optimizer optimizer = parsed(specs[s]);
        const double b1 = optimizer.beta, b2 = optimizer.beta2;
        float made[2 * N] = {0}, kept[2 * N], sent[2 * N];

        for (int step = 0; step < 300; step++) {
            for (int i = 0; i < N; i++) { /* steady, growing, one blow, to and fro */
                const float g[N] = {1, powf(1.1F, (float)step), step == 7 ? 1e6F : 1e-6F,
                                    step % 2 == 0 ? 3 : -2};

                made[i] = (float)(b1 * (double)made[i] + (1 - b1) * (double)g[i]);
                made[N + i] =
                    (float)(b2 * (double)made[N + i] + (1 - b2) * (double)g[i] * (double)g[i]);
            }
            memcpy(kept, made, sizeof kept);
            optimizer_bound_moments(&optimizer, made, N);
            assert_memory_equal(made, kept, sizeof kept);
        }
        memcpy(sent, (float[2 * N]){1, -1, 2, 1e9F, 0, -4, 1, 1}, sizeof sent);
        optimizer_bound_moments(&optimizer, sent, N);
        assert_true(sent[0] == 0 && sent[1] == 0 && sent[N + 1] == 0);
        assert_true(sent[2] == 2 && sent[3] < 100 && sent[N + 3] == 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_steps_are_as_calculated_by_hand),
        cmocka_unit_test(five_steps_with_decay_agree_with_pytorch),
        cmocka_unit_test(a_layers_ratio_is_as_calculated_by_hand),
        cmocka_unit_test(layers_take_the_same_relative_step_at_every_scale),
        cmocka_unit_test(tensors_at_zero_and_gradients_of_zero_are_no_trap),
        cmocka_unit_test(adamw_without_gradient_only_decays),
        cmocka_unit_test(muons_direction_is_the_golden_matrix),
        cmocka_unit_test(an_orthogonal_matrix_stays_in_the_band),
        cmocka_unit_test(muon_leaves_embeddings_outputs_and_biases_to_adamw),
        cmocka_unit_test(clipping_shortens_what_is_too_long_and_nothing_else),
        cmocka_unit_test(adams_first_step_has_the_size_of_the_rate_whatever_the_gradients),
        cmocka_unit_test(a_failing_device_is_told),
        cmocka_unit_test(defaults_and_settings_are_read),
        cmocka_unit_test(a_usual_rate_follows_the_samples_of_a_step),
        cmocka_unit_test(parts_of_a_step_are_the_step),
        cmocka_unit_test(moments_from_elsewhere_are_bounded),
        cmocka_unit_test(a_wrong_optimizer_is_told_with_its_column),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
