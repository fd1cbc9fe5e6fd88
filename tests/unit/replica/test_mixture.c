/* Tests of replica/plane/mixture and of the section that rounds exchange. */
#include "tests/check.h"

#include "base/mem.h"
#include "base/rng.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "replica/learners/replica.h"
#include "replica/plane/mixture.h"

#include <math.h>

enum { PARAMETERS = 3, CHANNELS = 4, MEMBERS = 5 };
enum { BUFFERS = 2 * CHANNELS + 2, MIXED = PARAMETERS + BUFFERS + CHANNELS };

/* Three parameters, statistics of four channels, two buffers of another kind around them. */
static void schema_of(struct schema *schema)
{
    const uint32_t one[] = {1}, three[] = {PARAMETERS}, channels[] = {CHANNELS};

    schema_init(schema);
    assert_int_equal(schema_add(schema, "a.count", SECTION_BUFFERS, one, 1), RC_OK);
    assert_int_equal(schema_add(schema, "b.weight", SECTION_PARAMETERS, three, 1), RC_OK);
    assert_int_equal(schema_add(schema, "b.running_mean", SECTION_BUFFERS, channels, 1), RC_OK);
    assert_int_equal(schema_add(schema, "b.running_variance", SECTION_BUFFERS, channels, 1), RC_OK);
    assert_int_equal(schema_add(schema, "c.count", SECTION_BUFFERS, one, 1), RC_OK);
}

/* The exported form of given buffers. */
static void exported(const struct schema *schema, const float *buffers, float *mixed)
{
    memset(mixed, 0, PARAMETERS * sizeof(float));
    memcpy(mixed + PARAMETERS, buffers, BUFFERS * sizeof(float));
    mixture_fill(schema, mixed);
}

static void random_buffers(struct rng *rng, float *buffers)
{
    for (int i = 0; i < BUFFERS; i++) {
        buffers[i] = (float)rng_normal(rng);
    }
    for (int c = 0; c < CHANNELS; c++) { /* the variances */
        buffers[1 + CHANNELS + c] = (float)(0.1 + rng_unit(rng));
    }
}

static void the_schema_knows_what_is_exchanged(void **state)
{
    /* Proves: parameters, buffers and a square for each running mean; a mean without its variance
     * behind it is a plain buffer; a schema without buffers exchanges its parameters. */
    (void)state;
    const uint32_t shape[] = {6}, other[] = {5};
    struct schema schema;

    schema_of(&schema);
    assert_int_equal(schema.values[SECTION_BUFFERS], BUFFERS);
    assert_int_equal(schema.values[SECTION_MIXED], MIXED);
    assert_true(schema_is_mean(&schema, 2));
    for (uint32_t t = 0; t < schema.tensors_count; t++) {
        assert_true(schema_is_mean(&schema, t) == (t == 2));
    }
    schema_deinit(&schema);
    schema_init(&schema);
    assert_int_equal(schema_add(&schema, "w", SECTION_PARAMETERS, shape, 1), RC_OK);
    assert_int_equal(schema.values[SECTION_MIXED], 6);
    assert_int_equal(schema_add(&schema, "x.running_mean", SECTION_BUFFERS, shape, 1), RC_OK);
    assert_int_equal(schema_add(&schema, "x.running_variance", SECTION_BUFFERS, other, 1), RC_OK);
    assert_int_equal(schema_add(&schema, "y.running_mean", SECTION_PARAMETERS, shape, 1), RC_OK);
    assert_int_equal(schema_add(&schema, "y.running_variance", SECTION_BUFFERS, shape, 1), RC_OK);
    assert_int_equal(schema.values[SECTION_MIXED], 6 + 6 + 5 + 6 + 6);
    schema_deinit(&schema);
}

static void averaging_pools_means_and_variances(void **state)
{
    /* Proves: with any weights that sum to 1, every member ends with the weighted mean of means,
     * the pooled variance, and plain weighted means of other buffers. */
    (void)state;
    struct schema schema;

    schema_of(&schema);
    FOR_EACH_SEED (seed, 50) {
        float buffers[MEMBERS][BUFFERS], mixed[MEMBERS][MIXED], average[MIXED], difference[MIXED];
        double weights[MEMBERS], total = 0;
        struct rng rng;

        rng_init(&rng, seed, 1);
        for (int m = 0; m < MEMBERS; m++) {
            random_buffers(&rng, buffers[m]);
            exported(&schema, buffers[m], mixed[m]);
            weights[m] = 0.1 + rng_unit(&rng);
            total += weights[m];
        }
        for (int i = 0; i < MIXED; i++) {
            double sum = 0;
            for (int m = 0; m < MEMBERS; m++) {
                sum += weights[m] / total * (double)mixed[m][i];
            }
            average[i] = (float)sum;
        }
        for (int m = 0; m < MEMBERS; m++) {
            for (int i = 0; i < MIXED; i++) {
                difference[i] = average[i] - mixed[m][i];
            }
            float own[BUFFERS];
            memcpy(own, buffers[m], sizeof own);
            mixture_apply(&schema, difference, own);
            for (int i = 0; i < BUFFERS; i++) {
                double expected = 0, square = 0, mean = 0;
                for (int k = 0; k < MEMBERS; k++) {
                    const double share = weights[k] / total;
                    expected += share * (double)buffers[k][i];
                    if (i <= CHANNELS || i > 2 * CHANNELS) continue;
                    mean += share * (double)buffers[k][i - CHANNELS];
                    square +=
                        share * (double)buffers[k][i - CHANNELS] * (double)buffers[k][i - CHANNELS];
                }
                check_seed(seed, fabs(own[i] - (expected + square - mean * mean)) < 2e-6);
            }
        }
    }
    schema_deinit(&schema);
}

static void equal_members_change_nothing(void **state)
{
    /* Proves: a difference of zero leaves every bit, whatever the means' size. */
    (void)state;
    const float difference[MIXED] = {0};
    float buffers[BUFFERS], before[BUFFERS];
    struct schema schema;
    struct rng rng;

    rng_init(&rng, 1, 1);
    schema_of(&schema);
    random_buffers(&rng, buffers);
    for (int c = 0; c < CHANNELS; c++) {
        buffers[1 + c] *= powf(10, (float)(3 * c));
    }
    memcpy(before, buffers, sizeof before);
    mixture_apply(&schema, difference, buffers);
    assert_memory_equal(before, buffers, sizeof before);
    schema_deinit(&schema);
}

static void a_variance_never_falls_below_zero(void **state)
{
    /* Proves: a difference that would make it negative, as from a peer that lies or from steps
     * taken meanwhile, ends at 0; squares that are too small take nothing away. */
    (void)state;
    float buffers[BUFFERS] = {0}, difference[MIXED] = {0};
    struct schema schema;

    schema_of(&schema);
    for (int c = 0; c < CHANNELS; c++) {
        buffers[1 + c] = 2;
        buffers[1 + CHANNELS + c] = 1;
        difference[PARAMETERS + 1 + CHANNELS + c] = c < 2 ? -3 : 0;
        difference[PARAMETERS + BUFFERS + c] = -100;
    }
    mixture_apply(&schema, difference, buffers);
    for (int c = 0; c < CHANNELS; c++) {
        assert_true(fabsf(buffers[1 + CHANNELS + c] - (c < 2 ? 0 : 1)) <= 0);
        assert_true(fabsf(buffers[1 + c] - 2) <= 0);
    }
    schema_deinit(&schema);
}

static struct learner *replica_of(struct backend *cpu, const char *model, uint64_t stream)
{
    const struct replica_options options = {.model = model,
                                            .data = "digits",
                                            .shard_of = stream == 1 ? "0/2" : "1/2",
                                            .seed = 3,
                                            .stream_seed = stream,
                                            .threads = 1};
    struct train_report report;
    struct learner *learner = NULL;
    struct fault why = {""};

    if (replica_create(cpu, &options, &learner, &why) != RC_OK) fail_msg("%s", why.text);
    assert_int_equal(learner->ops->train(learner, 9, NULL, &report), RC_OK);
    return learner;
}

static void two_replicas_that_average_are_one_model(void **state)
{
    /* Proves: after both take the mean of their exported forms, parameters and statistics agree,
     * the variance is at least the mean of the two, and a model without buffers exports and
     * imports its parameters alone, to the bit. */
    const char *const models[] = {"conv3x3:4 bn relu globalpool linear:classes", "linear:classes"};

    for (int k = 0; k < 2; k++) {
        struct learner *l[2] = {replica_of(*state, models[k], 1), replica_of(*state, models[k], 2)};
        const struct schema *schema = l[0]->ops->schema(l[0]);
        const size_t mixed = schema->values[SECTION_MIXED], all = schema->values[SECTION_BUFFERS];
        float *x[2], *after[2], *buffers[3], *difference = mem_array(mixed, sizeof(float));

        assert_int_equal(mixed, schema->values[SECTION_PARAMETERS] + all + all / 2);
        for (int i = 0; i < 2; i++) {
            x[i] = mem_array(mixed, sizeof(float));
            after[i] = mem_array(mixed, sizeof(float));
            buffers[i] = mem_array(all, sizeof(float));
            assert_int_equal(l[i]->ops->export_section(l[i], SECTION_MIXED, x[i], mixed), RC_OK);
            assert_int_equal(l[i]->ops->export_section(l[i], SECTION_BUFFERS, buffers[i], all),
                             RC_OK);
        }
        for (int i = 0; i < 2; i++) {
            for (size_t j = 0; j < mixed; j++) {
                difference[j] = 0.5F * (x[0][j] + x[1][j]) - x[i][j];
            }
            assert_int_equal(l[i]->ops->import_section(l[i], SECTION_MIXED, difference, mixed),
                             RC_OK);
            assert_int_equal(l[i]->ops->export_section(l[i], SECTION_MIXED, after[i], mixed),
                             RC_OK);
        }
        for (size_t j = 0; j < mixed; j++) {
            assert_true(fabsf(after[0][j] - after[1][j]) <= 1e-5F * (1 + fabsf(after[0][j])));
        }
        buffers[2] = mem_array(all, sizeof(float));
        assert_int_equal(l[0]->ops->export_section(l[0], SECTION_BUFFERS, buffers[2], all), RC_OK);
        for (size_t j = all / 2; j < all; j++) {
            const float mean = 0.5F * (buffers[0][j] + buffers[1][j]);
            assert_true(buffers[2][j] >= mean * 0.9999F && buffers[2][j] < mean * 2);
        }
        for (int i = 0; i < 2; i++) {
            mem_free(x[i]);
            mem_free(after[i]);
            l[i]->ops->destroy(l[i]);
        }
        for (int i = 0; i < 3; i++) {
            mem_free(buffers[i]);
        }
        mem_free(difference);
    }
}

static void importing_without_memory_changes_nothing(void **state)
{
    /* Proves: RC_NOMEM leaves parameters and statistics as they were. */
    struct learner *l = replica_of(*state, "conv3x3:4 bn relu globalpool linear:classes", 1);
    const size_t mixed = l->ops->schema(l)->values[SECTION_MIXED];
    float *before = mem_array(mixed, sizeof(float)), *after = mem_array(mixed, sizeof(float));

    assert_int_equal(l->ops->export_section(l, SECTION_MIXED, before, mixed), RC_OK);
    mem_fail_after(0);
    assert_int_equal(l->ops->import_section(l, SECTION_MIXED, before, mixed), RC_NOMEM);
    mem_fail_after(UINT64_MAX);
    assert_int_equal(l->ops->export_section(l, SECTION_MIXED, after, mixed), RC_OK);
    assert_memory_equal(before, after, mixed * sizeof(float));
    mem_free(before);
    mem_free(after);
    l->ops->destroy(l);
}

static int make_backend(void **state)
{
    static const struct cpu_backend_options options = {.threads = 1};

    *state = cpu_backend_create(&options);
    return *state == NULL;
}

static int drop_backend(void **state)
{
    backend_destroy(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_schema_knows_what_is_exchanged),
        cmocka_unit_test(averaging_pools_means_and_variances),
        cmocka_unit_test(equal_members_change_nothing),
        cmocka_unit_test(a_variance_never_falls_below_zero),
        cmocka_unit_test(two_replicas_that_average_are_one_model),
        cmocka_unit_test(importing_without_memory_changes_nothing),
    };
    return cmocka_run_group_tests(tests, make_backend, drop_backend);
}
