/* Tests of distill/compact: int8 and pruned models do nearly what they did, in less room; masks
 * hold through fine-tuning; what cannot be is refused and leaves no file. */
#include "tests/unit/distill/models.h"

#include "base/file.h"
#include "base/json.h"
#include "distill/compact.h"
#include "distill/comparison.h"
#include "distill/distill.h"

#include <math.h>

static const char spec[] = "conv3x3:8 bn relu maxpool2 linear:32 relu linear:classes";

/* Trained on labels. */
static const char *trained_file(struct world *world, const char *name)
{
    const char *start = world_file(world, "untrained", spec, 1);
    const char *path = scratch_path(&world->scratch, name);
    const struct distill_options options = {.teachers = &start,
                                            .teachers_count = 1,
                                            .temperature = 1,
                                            .student = spec,
                                            .epochs = 6,
                                            .batch = 32,
                                            .seed = 1,
                                            .out_path = path};
    struct distill_result result;

    assert_int_equal(distill_run(world->backend, &options, &result, NULL), RC_OK);
    assert_true(result.student.accuracy > 0.9);
    distill_result_deinit(&result);
    return path;
}

static struct compact_options options_of(struct world *world, const char *path)
{
    return (struct compact_options){.path = path,
                                    .out_path = scratch_path(&world->scratch, "small"),
                                    .is_int8 = true,
                                    .data = "digits",
                                    .batch = 32,
                                    .seed = 1};
}

static void int8_is_a_quarter_and_as_good(void **state)
{
    /* About four times smaller; accuracy within a point on 360 samples, weights within 1 %. */
    struct world *world = *state;
    struct compact_options options = options_of(world, trained_file(world, "model"));
    struct compact_result result;
    struct fault why = {""};
    double number;
    uint64_t count;

    if (compact_run(world->backend, &options, &result, &why) != RC_OK) fail_msg("%s", why.text);
    assert_true(result.bytes * 3 < result.bytes_before);
    assert_true(fabs(score_accuracy(&result.after) - score_accuracy(&result.before)) < 0.01);
    assert_true(result.error > 0 && result.error < 0.01);
    assert_int_equal(result.samples, 360);
    assert_int_equal(result.steps, 0);
    struct json *json = compact_json(&options, &result);
    assert_string_equal(json_get_text(json, "form"), "int8");
    assert_true(json_get_count(json, "bytes", &count) && count == result.bytes);
    assert_true(json_get_real(json_get(json, "after"), "accuracy", &number) && number > 0.9);
    json_destroy(json);
    options.data = NULL;
    assert_int_equal(compact_run(world->backend, &options, &result, &why), RC_OK);
    assert_false(result.is_judged);
    json = compact_json(&options, &result);
    assert_null(json_get_text(json, "after"));
    json_destroy(json);
}

static void what_is_pruned_stays_so_and_the_rest_makes_up_for_it(void **state)
{
    /* 90 % at once costs much; the same with three epochs of fine-tuning little; both files have as
     * many zeros as asked for, in less room than int8 alone. */
    struct world *world = *state;
    const char *path = mem_string(trained_file(world, "model"));
    struct compact_result at_once, tuned, plain;
    struct compact_options options = options_of(world, path);
    struct fault why = {""};

    assert_int_equal(compact_run(world->backend, &options, &plain, &why), RC_OK);
    options.share = 0.9;
    assert_int_equal(compact_run(world->backend, &options, &at_once, &why), RC_OK);
    options.epochs = 3;
    options.data = NULL; /* what the file says */
    options.is_int8 = false;
    if (compact_run(world->backend, &options, &tuned, &why) != RC_OK) fail_msg("%s", why.text);
    assert_int_equal(tuned.zeros, (uint64_t)(0.9 * (double)tuned.weights));
    assert_true(at_once.zeros >= tuned.zeros);
    assert_true(2 * at_once.bytes < plain.bytes && at_once.bytes < tuned.bytes);
    assert_true(3 * tuned.bytes < tuned.bytes_before);
    assert_true(tuned.steps > 100 && tuned.error == 0.0 && tuned.lr > 0);
    assert_true(score_accuracy(&tuned.after) > score_accuracy(&at_once.after));
    assert_true(score_accuracy(&tuned.after) > score_accuracy(&tuned.before) - 0.03);
    mem_free((void *)path);
}

static void one_step_of_fine_tuning_prunes_all(void **state)
{
    /* Fewer steps than cuts: the share is reached all the same. */
    struct world *world = *state;
    const char *path = mem_string(trained_file(world, "model"));
    struct compact_options options = options_of(world, path);
    struct compact_result result;

    options.share = 0.5;
    options.is_int8 = false;
    for (int steps = 1; steps < 8; steps += 2) {
        options.epochs = steps * 32.0 / 1437 - 0.001;
        assert_int_equal(compact_run(world->backend, &options, &result, NULL), RC_OK);
        assert_int_equal(result.steps, steps);
        assert_int_equal(result.zeros, result.weights / 2);
    }
    mem_free((void *)path);
}

static void check_refused(struct world *world, const struct compact_options *options, enum rc rc,
                          const char *part)
{
    struct compact_result result;
    struct fault why = {""};
    const size_t files = scratch_count(&world->scratch);

    assert_int_equal(compact_run(world->backend, options, &result, &why), rc);
    if (strstr(why.text, part) == NULL) fail_msg("'%s' is not in '%s'", part, why.text);
    assert_null(strchr(why.text, '\n'));
    assert_int_equal(scratch_count(&world->scratch), files);
}

static void what_cannot_be_is_refused(void **state)
{
    /* Other data, a file that is not there, a rate that runs away, an optimizer of whole sets. */
    struct world *world = *state;
    const char *path = mem_string(world_file(world, "model", spec, 3));
    struct compact_options options = options_of(world, path);

    options.data = "synthetic:spirals";
    check_refused(world, &options, RC_MISMATCH, "does not fit the data");
    options.data = "digits";
    options.share = 0.5;
    options.epochs = 1;
    options.lr = 1e6; /* statistics run away, parameters do not */
    check_refused(world, &options, RC_NONFINITE, "smaller --lr");
    options.lr = 1e9;
    check_refused(world, &options, RC_NONFINITE, "smaller --lr");
    options.lr = 0;
    options.optimizer = "lbfgs";
    check_refused(world, &options, RC_USAGE, "--optimizer lbfgs");
    options.optimizer = "nonsense";
    check_refused(world, &options, RC_PARSE, "nonsense");
    options.path = "/nowhere/x.safetensors";
    check_refused(world, &options, RC_NOT_FOUND, "/nowhere/x.safetensors");
    mem_free((void *)path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(int8_is_a_quarter_and_as_good, world_set_up,
                                        world_tear_down),
        cmocka_unit_test_setup_teardown(what_is_pruned_stays_so_and_the_rest_makes_up_for_it,
                                        world_set_up, world_tear_down),
        cmocka_unit_test_setup_teardown(one_step_of_fine_tuning_prunes_all, world_set_up,
                                        world_tear_down),
        cmocka_unit_test_setup_teardown(what_cannot_be_is_refused, world_set_up, world_tear_down),
    };

    only_threads_for_their_sanitizer();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
