/* Tests of distill/soup: the mean, the spread, what may not be mixed. */
#include "tests/check.h"

#include "base/mem.h"
#include "distill/soup.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"

#include <math.h>

struct world {
    struct backend *backend;
};

static int set_up(void **state)
{
    static const struct cpu_backend_options options = {.threads = 1};
    struct world *world = mem_alloc(sizeof *world);

    world->backend = cpu_backend_create(&options);
    *state = world;
    return world->backend == NULL;
}

static int tear_down(void **state)
{
    struct world *world = *state;

    backend_destroy(world->backend);
    mem_free(world);
    return 0;
}

static struct model *model_of(struct world *world, const char *spec, uint64_t seed)
{
    const struct model_options options = {.spec = spec,
                                          .channels = 1,
                                          .height = 4,
                                          .width = 4,
                                          .classes = 3,
                                          .batch_max = 8,
                                          .seed = seed};
    struct model *model = NULL;
    struct fault why = {""};

    assert_int_equal(model_create(world->backend, &options, &model, &why), RC_OK);
    return model;
}

static void the_soup_is_the_mean_and_its_distance_is_the_root_mean_square(void **state)
{
    /* Proves: mean and consensus distance equal sums done the plain way in float64. */
    struct world *world = *state;
    enum { MEMBERS = 4 };
    struct model *models[MEMBERS], *mean = model_of(world, "linear:classes", 99);
    const size_t count = model_schema(mean)->values[SECTION_PARAMETERS];
    struct soup *soup = soup_create();
    double spread = 0;

    for (uint64_t m = 0; m < MEMBERS; m++) {
        models[m] = model_of(world, "linear:classes", m + 1);
        assert_int_equal(soup_add(soup, models[m], NULL), RC_OK);
    }
    assert_int_equal(soup_pour(soup, mean), RC_OK);
    for (size_t i = 0; i < count; i++) {
        double sum = 0;
        for (int m = 0; m < MEMBERS; m++) {
            sum += model_plane(models[m], SECTION_PARAMETERS)[i];
        }
        assert_true(fabs(model_plane(mean, SECTION_PARAMETERS)[i] - sum / MEMBERS) < 1e-7);
        for (int m = 0; m < MEMBERS; m++) {
            const double d = model_plane(models[m], SECTION_PARAMETERS)[i] - sum / MEMBERS;
            spread += d * d;
        }
    }
    assert_true(fabs(soup_distance(soup) - sqrt(spread / MEMBERS)) < 1e-9);
    assert_int_equal(soup_members(soup), MEMBERS);
    for (int m = 0; m < MEMBERS; m++) {
        model_destroy(models[m]);
    }
    model_destroy(mean);
    soup_destroy(soup);
}

static void equal_members_have_no_distance_at_all(void **state)
{
    /* Proves: the spread of equal models is exactly zero, and their mean is the model to the bit.
     */
    struct world *world = *state;
    struct model *model = model_of(world, "linear:classes", 5), *copy;
    const size_t count = model_schema(model)->values[SECTION_PARAMETERS];
    struct soup *soup = soup_create();

    copy = model_of(world, "linear:classes", 6);
    for (int m = 0; m < 7; m++) {
        assert_int_equal(soup_add(soup, model, NULL), RC_OK);
    }
    assert_true(soup_distance(soup) <= 0);
    assert_int_equal(soup_pour(soup, copy), RC_OK);
    assert_memory_equal(model_plane(model, SECTION_PARAMETERS),
                        model_plane(copy, SECTION_PARAMETERS), count * sizeof(float));
    model_destroy(copy);
    model_destroy(model);
    soup_destroy(soup);
}

static void statistics_are_those_of_all_members_samples(void **state)
{
    /* Proves: means average, variances are pooled; one member pours to the bit. */
    struct world *world = *state;
    struct model *model = model_of(world, "conv3x3:2 bn linear:classes", 1);
    struct soup *soup = soup_create();
    float *buffers = model_plane(model, SECTION_BUFFERS); /* two means, two variances */
    const float first[4] = {1.1F, -3.3F, 0.7F, 2.9F}, second[4] = {3.1F, -3.3F, 0.3F, 0.1F};

    assert_false(soup_has_statistics(soup));
    assert_int_equal(model_schema(model)->values[SECTION_BUFFERS], 4);
    memcpy(buffers, first, sizeof first);
    assert_int_equal(soup_add(soup, model, NULL), RC_OK);
    assert_true(soup_has_statistics(soup));
    memset(buffers, 0, sizeof first);
    assert_int_equal(soup_pour(soup, model), RC_OK);
    assert_memory_equal(buffers, first, sizeof first);
    memcpy(buffers, second, sizeof second);
    assert_int_equal(soup_add(soup, model, NULL), RC_OK);
    assert_int_equal(soup_pour(soup, model), RC_OK);
    assert_true(fabsf(buffers[0] - 2.1F) < 1e-6F && fabsf(buffers[1] + 3.3F) < 1e-6F);
    assert_true(fabsf(buffers[2] - (0.5F + 1)) < 1e-6F); /* the means lie 1 to each side */
    assert_true(fabsf(buffers[3] - 1.5F) < 1e-6F);
    assert_true(soup_distance(soup) <= 0);
    model_destroy(model);
    soup_destroy(soup);
}

static void a_model_of_another_spec_is_refused(void **state)
{
    /* Proves: another layer list is RC_MISMATCH, says both, and leaves the soup as it was. */
    struct world *world = *state;
    struct model *a = model_of(world, "linear:classes", 1);
    struct model *b = model_of(world, "linear:5 relu linear:classes", 1);
    struct soup *soup = soup_create();
    struct fault why = {""};

    assert_int_equal(soup_add(soup, a, &why), RC_OK);
    assert_int_equal(soup_add(soup, b, &why), RC_MISMATCH);
    assert_non_null(strstr(why.text, "linear:5"));
    assert_int_equal(soup_members(soup), 1);
    model_destroy(a);
    model_destroy(b);
    soup_destroy(soup);
}

static void a_model_with_nan_is_refused(void **state)
{
    /* Proves: one parameter that is not finite keeps a model out. */
    struct world *world = *state;
    struct model *model = model_of(world, "linear:classes", 1);
    struct soup *soup = soup_create();

    model_plane(model, SECTION_PARAMETERS)[7] = NAN;
    assert_int_equal(soup_add(soup, model, NULL), RC_NONFINITE);
    assert_int_equal(soup_members(soup), 0);
    assert_true(soup_distance(soup) <= 0);
    model_destroy(model);
    soup_destroy(soup);
}

static void short_memory_leaves_an_empty_soup(void **state)
{
    /* Proves: each allocation of the first addition may fail; the soup stays usable. */
    struct world *world = *state;
    struct model *model = model_of(world, "linear:classes", 1);
    struct soup *soup = soup_create();
    const uint64_t before = mem_blocks();

    for (uint64_t n = 0; n < 4; n++) {
        mem_fail_after(n);
        assert_int_equal(soup_add(soup, model, NULL), RC_NOMEM);
        assert_int_equal(mem_blocks(), before);
        assert_int_equal(soup_members(soup), 0);
    }
    mem_fail_after(UINT64_MAX);
    assert_int_equal(soup_add(soup, model, NULL), RC_OK);
    model_destroy(model);
    soup_destroy(soup);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_soup_is_the_mean_and_its_distance_is_the_root_mean_square),
        cmocka_unit_test(equal_members_have_no_distance_at_all),
        cmocka_unit_test(statistics_are_those_of_all_members_samples),
        cmocka_unit_test(a_model_of_another_spec_is_refused),
        cmocka_unit_test(a_model_with_nan_is_refused),
        cmocka_unit_test(short_memory_leaves_an_empty_soup),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
