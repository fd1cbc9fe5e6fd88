/* The toy learner: it does what the formula says, to the bit and with a known end. */
#include "tests/check.h"

#include "base/mem.h"
#include "replica/learners/quadratic.h"
#include "replica/plane/store_safetensors.h"

#include <math.h>

enum { VALUES = 50 };

static const struct quadratic_options quiet = {.values = VALUES,
                                               .curvature = 2.0,
                                               .noise = 0.0,
                                               .learning_rate = 0.1,
                                               .seed = 1,
                                               .stream_seed = 2,
                                               .centre_spread = 3.0};

static struct learner *make(const struct quadratic_options *options)
{
    struct learner *learner = NULL;

    assert_int_equal(quadratic_create(options, &learner), RC_OK);
    return learner;
}

static void export(struct learner *learner, float *x)
{
    assert_int_equal(learner->ops->export_section(learner, SECTION_PARAMETERS, x, VALUES), RC_OK);
}

/* Without noise every step shrinks the distance to the centre by 1 - lr h, and the loss follows. */
static void steps_follow_the_formula(void **state)
{
    struct learner *learner = make(&quiet);
    const float *centre = quadratic_centre(learner);
    struct train_report report;
    struct evaluation evaluation;
    float before[VALUES], after[VALUES];
    double loss = 0.0;

    (void)state;
    export(learner, before);
    assert_int_equal(learner->ops->train(learner, 3, NULL, &report), RC_OK);
    export(learner, after);
    for (int i = 0; i < VALUES; i++) {
        double expected = centre[i] + ((double)before[i] - (double)centre[i]) * 0.8 * 0.8 * 0.8;

        assert_true(fabs((double)after[i] - expected) < 1e-5);
        loss += ((double)after[i] - (double)centre[i]) * ((double)after[i] - (double)centre[i]);
    }
    assert_int_equal(report.steps, 3);
    assert_int_equal(report.step, 3);
    assert_int_equal(report.samples, 3);
    assert_int_equal(learner->ops->evaluate(learner, 0, &evaluation), RC_OK);
    assert_true(fabs(evaluation.loss - loss) < 1e-9 * loss); /* h / 2 is 1 */
    assert_true(isnan(evaluation.accuracy));
    assert_int_equal(learner->ops->train(learner, 500, NULL, &report), RC_OK);
    assert_int_equal(learner->ops->evaluate(learner, 0, &evaluation), RC_OK);
    assert_true(evaluation.loss < 1e-9);
    learner->ops->destroy(learner);
}

/* Peers of one seed start at one place; their centres and noise are their own. */
static void peers_share_the_start_only(void **state)
{
    struct quadratic_options options = quiet;
    struct learner *a = make(&quiet), *b;
    float x[VALUES], y[VALUES];

    (void)state;
    options.stream_seed = 3;
    b = make(&options);
    export(a, x);
    export(b, y);
    assert_memory_equal(x, y, sizeof x);
    assert_memory_not_equal(quadratic_centre(a), quadratic_centre(b), sizeof x);
    a->ops->destroy(a);
    b->ops->destroy(b);
}

/* gradient() and step() together are train(1). */
static void gradient_and_step_make_a_training_step(void **state)
{
    struct quadratic_options options = quiet;
    struct train_report report;
    float x[VALUES], y[VALUES], gradient[VALUES];
    struct learner *a, *b;

    (void)state;
    options.noise = 0.5;
    a = make(&options);
    b = make(&options);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(a->ops->train(a, 1, NULL, &report), RC_OK);
        assert_int_equal(b->ops->gradient(b, gradient, &report), RC_OK);
        assert_int_equal(b->ops->step(b, gradient), RC_OK);
    }
    export(a, x);
    export(b, y);
    assert_memory_equal(x, y, sizeof x);
    assert_int_equal(b->ops->export_section(b, SECTION_GRADIENT, y, VALUES), RC_OK);
    assert_memory_equal(y, gradient, sizeof gradient);
    a->ops->destroy(a);
    b->ops->destroy(b);
}

/* Sections are copied out, replaced and moved by a difference; empty ones are fine. */
static void sections_can_be_changed(void **state)
{
    struct learner *learner = make(&quiet);
    float x[VALUES], y[VALUES];

    (void)state;
    for (int i = 0; i < VALUES; i++) {
        x[i] = (float)i;
    }
    assert_int_equal(learner->ops->assign_section(learner, SECTION_PARAMETERS, x, VALUES), RC_OK);
    assert_int_equal(learner->ops->import_section(learner, SECTION_PARAMETERS, x, VALUES), RC_OK);
    export(learner, y);
    for (int i = 0; i < VALUES; i++) {
        assert_true(y[i] == (float)(2 * i));
    }
    assert_int_equal(learner->ops->export_section(learner, SECTION_MOMENTS, NULL, 0), RC_OK);
    assert_int_equal(learner->ops->import_section(learner, SECTION_BUFFERS, NULL, 0), RC_OK);
    assert_int_equal(learner->ops->assign_section(learner, SECTION_BUFFERS, NULL, 0), RC_OK);
    assert_int_equal(learner->ops->schema(learner)->values[SECTION_PARAMETERS], VALUES);
    assert_int_equal(learner->ops->shard_samples(learner), QUADRATIC_SHARD_SAMPLES);
    learner->ops->destroy(learner);
}

/* A learner goes on to the bit from what another one saved. */
static void a_saved_stream_goes_on_to_the_bit(void **state)
{
    struct quadratic_options options = quiet;
    struct tensor_file *file = tensor_file_create();
    struct train_report a_report, b_report;
    struct learner *a, *b;
    float x[VALUES], y[VALUES];

    (void)state;
    options.noise = 0.5;
    a = make(&options);
    b = make(&options);
    assert_int_equal(a->ops->train(a, 7, NULL, &a_report), RC_OK);
    a->ops->set_step(a, 100);
    assert_int_equal(a->ops->save(a, file), RC_OK);
    export(a, x);
    assert_int_equal(b->ops->assign_section(b, SECTION_PARAMETERS, x, VALUES), RC_OK);
    assert_int_equal(b->ops->load(b, file, NULL), RC_OK);
    assert_int_equal(a->ops->train(a, 7, NULL, &a_report), RC_OK);
    assert_int_equal(b->ops->train(b, 7, NULL, &b_report), RC_OK);
    export(a, x);
    export(b, y);
    assert_memory_equal(x, y, sizeof x);
    assert_int_equal(b_report.step, 107);
    assert_int_equal(b_report.samples, 14);
    tensor_file_destroy(file);
    a->ops->destroy(a);
    b->ops->destroy(b);
}

/* A file without the state, or with one that cannot be, is refused. */
static void foreign_states_are_refused(void **state)
{
    static const uint64_t zeros[6] = {0};
    struct tensor_file *file = tensor_file_create();
    struct learner *learner = make(&quiet);
    struct fault why;

    (void)state;
    assert_int_equal(learner->ops->load(learner, file, &why), RC_FORMAT);
    assert_int_equal(tensor_file_add_u64_copy(file, "quadratic.state", zeros, 6), RC_OK);
    assert_int_equal(learner->ops->load(learner, file, &why), RC_FORMAT);
    tensor_file_destroy(file);
    file = tensor_file_create();
    assert_int_equal(tensor_file_add_u64_copy(file, "quadratic.state", zeros, 5), RC_OK);
    assert_int_equal(learner->ops->load(learner, file, &why), RC_FORMAT);
    tensor_file_destroy(file);
    learner->ops->destroy(learner);
}

/* Training stops when asked to, and a diverged model says so instead of going on. */
static void training_stops_and_divergence_shows(void **state)
{
    struct train_report report = {.steps = 99};
    struct evaluation evaluation;
    atomic_bool stop = true;
    struct learner *learner = make(&quiet);
    float x[VALUES] = {NAN};

    (void)state;
    assert_int_equal(learner->ops->train(learner, 10, &stop, &report), RC_OK);
    assert_int_equal(report.steps, 0);
    assert_int_equal(learner->ops->assign_section(learner, SECTION_PARAMETERS, x, VALUES), RC_OK);
    assert_int_equal(learner->ops->train(learner, 10, NULL, &report), RC_NONFINITE);
    assert_int_equal(learner->ops->evaluate(learner, 0, &evaluation), RC_NONFINITE);
    assert_int_equal(learner->ops->gradient(learner, x, &report), RC_NONFINITE);
    assert_int_equal(learner->ops->step(learner, x), RC_NONFINITE);
    learner->ops->destroy(learner);
}

/* Whichever allocation fails, creation says RC_NOMEM and leaks nothing. */
static void short_memory_is_survived(void **state)
{
    uint64_t before = mem_blocks();
    struct learner *learner = NULL;

    (void)state;
    for (uint64_t n = 0; n < 5; n++) {
        mem_fail_after(n);
        assert_int_equal(quadratic_create(&quiet, &learner), RC_NOMEM);
        assert_int_equal(mem_blocks(), before);
    }
    mem_fail_after(UINT64_MAX);
    learner = make(&quiet);
    learner->ops->destroy(learner);
    assert_int_equal(mem_blocks(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_follow_the_formula),
        cmocka_unit_test(peers_share_the_start_only),
        cmocka_unit_test(gradient_and_step_make_a_training_step),
        cmocka_unit_test(sections_can_be_changed),
        cmocka_unit_test(a_saved_stream_goes_on_to_the_bit),
        cmocka_unit_test(foreign_states_are_refused),
        cmocka_unit_test(training_stops_and_divergence_shows),
        cmocka_unit_test(short_memory_is_survived),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
