/* Tests of distill/comparison: several model files against one test part. */
#include "tests/unit/distill/models.h"

#include "distill/comparison.h"
#include "replica/json.h"

#include <math.h>

static enum rc compare(struct world *world, const char *const *paths, size_t count,
                       const char *average, struct comparison *out, struct fault *why)
{
    const struct comparison_options options = {
        .paths = paths, .paths_count = count, .seed = 1, .average_path = average};

    return comparison_run(world->backend, &options, out, why);
}

static void one_model_is_its_own_average_and_ensemble(void **state)
{
    /* Proves: with one file the average scores the same to the bit and the ensemble as closely as
     * float32 allows; their distance is zero. */
    struct world *world = *state;
    const char *path = world_file(world, "one", "linear:16 relu linear:classes", 3);
    struct comparison c;

    assert_int_equal(compare(world, &path, 1, NULL, &c, NULL), RC_OK);
    assert_true(c.has_average && c.samples > 0);
    assert_true(score_loss(&c.average) >= score_loss(&c.models[0]) &&
                score_loss(&c.average) <= score_loss(&c.models[0]));
    assert_int_equal(c.average.correct, c.models[0].correct);
    for (int vote = 0; vote < VOTE_COUNT; vote++) {
        assert_int_equal(c.votes[vote].correct, c.models[0].correct);
    }
    assert_true(fabs(score_loss(&c.votes[VOTE_MEAN]) - score_loss(&c.models[0])) < 1e-5);
    assert_true(c.distance <= 0);
    comparison_deinit(&c);
}

static void an_ensemble_is_no_worse_than_its_members_on_average(void **state)
{
    /* Proves: the inequality holds through files, batches and scores; order does not matter. */
    struct world *world = *state;
    const char *paths[3] = {world_file(world, "a", "linear:16 relu linear:classes", 1),
                            world_file(world, "b", "linear:16 relu linear:classes", 2),
                            world_file(world, "c", "linear:16 relu linear:classes", 3)};
    const char *turned[3] = {paths[2], paths[0], paths[1]};
    struct comparison c, d;
    double members = 0;

    assert_int_equal(compare(world, paths, 3, NULL, &c, NULL), RC_OK);
    assert_int_equal(compare(world, turned, 3, NULL, &d, NULL), RC_OK);
    for (int m = 0; m < 3; m++) {
        members += score_loss(&c.models[m]) / 3;
    }
    assert_true(score_loss(&c.votes[VOTE_MEAN]) <= members + 1e-6);
    assert_true(score_loss(&c.votes[VOTE_LOGITS]) <= members + 1e-6);
    assert_true(fabs(score_loss(&c.votes[VOTE_MEAN]) - score_loss(&d.votes[VOTE_MEAN])) < 1e-5);
    assert_true(c.distance > 0 && fabs(c.distance - d.distance) < 1e-6);
    assert_true(fabs(score_loss(&c.average) - score_loss(&d.average)) < 1e-5);
    comparison_deinit(&c);
    comparison_deinit(&d);
}

static void the_average_is_written_and_loads_again(void **state)
{
    /* Proves: the file of the average evaluates to the average's score and carries its counts. */
    struct world *world = *state;
    const char *paths[2] = {world_file(world, "a", "linear:classes", 1),
                            world_file(world, "b", "linear:classes", 2)};
    const char *average = scratch_path(&world->scratch, "average.safetensors");
    struct comparison c, again;

    assert_int_equal(compare(world, paths, 2, average, &c, NULL), RC_OK);
    assert_int_equal(compare(world, &average, 1, NULL, &again, NULL), RC_OK);
    assert_int_equal(again.models[0].correct, c.average.correct);
    assert_int_equal(again.card.step, 2);
    assert_int_equal(again.card.samples, 30);
    comparison_deinit(&c);
    comparison_deinit(&again);
}

static void different_specs_make_an_ensemble_but_no_average(void **state)
{
    /* Proves: another layer list gives average_model null and a reason; asked for a file of the
     * average, it is an error. */
    struct world *world = *state;
    const char *paths[2] = {world_file(world, "a", "linear:classes", 1),
                            world_file(world, "b", "linear:8 relu linear:classes", 2)};
    const char *average = scratch_path(&world->scratch, "average.safetensors");
    struct comparison c;
    struct fault why = {""};

    assert_int_equal(compare(world, paths, 2, NULL, &c, &why), RC_OK);
    assert_false(c.has_average);
    assert_true(strlen(c.average_missing) > 0 && isnan(c.distance));
    assert_true(c.votes[VOTE_MEAN].count == c.samples);
    struct json *json = comparison_json(&c);
    char *text = json_format(json);
    assert_non_null(strstr(text, "\"average_model\":null"));
    mem_free(text);
    json_destroy(json);
    comparison_deinit(&c);
    assert_int_equal(compare(world, paths, 2, average, &c, &why), RC_MISMATCH);
}

static void a_model_with_nan_is_refused_by_name(void **state)
{
    /* Proves: a file with a NaN parameter is one clear line that names it. */
    struct world *world = *state;
    struct model_card card;
    struct model *model = world_model(world, "linear:classes", 1, &card);
    const char *path = scratch_path(&world->scratch, "poisoned");
    struct comparison c;
    struct fault why = {""};

    model_plane(model, SECTION_PARAMETERS)[0] = NAN;
    world_save(model, &card, path);
    model_destroy(model);
    assert_int_not_equal(compare(world, &path, 1, NULL, &c, &why), RC_OK);
    assert_non_null(strstr(why.text, "poisoned"));
}

static void a_model_of_another_input_shape_is_refused(void **state)
{
    /* Proves: a model of 3x3 images does not run on 8x8 ones; the line says both shapes. */
    struct world *world = *state;
    const struct model_options options = {.spec = "linear:classes",
                                          .channels = 1,
                                          .height = 3,
                                          .width = 3,
                                          .classes = 10,
                                          .batch_max = 4};
    struct model_card card = {.channels = 1, .height = 3, .width = 3, .classes = 10};
    struct model *model = NULL;
    const char *path = scratch_path(&world->scratch, "small");
    struct comparison c;
    struct fault why = {""};

    assert_int_equal(model_create(world->backend, &options, &model, NULL), RC_OK);
    snprintf(card.spec, sizeof card.spec, "%s", model_spec(model));
    snprintf(card.data, sizeof card.data, "digits");
    world_save(model, &card, path);
    model_destroy(model);
    assert_int_equal(compare(world, &path, 1, NULL, &c, &why), RC_MISMATCH);
    assert_non_null(strstr(why.text, "1x3x3"));
    assert_non_null(strstr(why.text, "1x8x8"));
}

static void missing_files_and_data_are_named(void **state)
{
    /* Proves: a missing model and an unknown data set fail with their names in the line. */
    struct world *world = *state;
    const char *missing = scratch_path(&world->scratch, "nobody");
    struct comparison c;
    struct fault why = {""};

    assert_int_not_equal(compare(world, &missing, 1, NULL, &c, &why), RC_OK);
    assert_non_null(strstr(why.text, "nobody"));
    const char *path = world_file(world, "a", "linear:classes", 1);
    const struct comparison_options options = {
        .paths = &path, .paths_count = 1, .data = "no-such-data"};
    assert_int_not_equal(comparison_run(world->backend, &options, &c, &why), RC_OK);
    assert_non_null(strstr(why.text, "no-such-data"));
}

static void short_memory_leaks_nothing(void **state)
{
    /* Proves: whichever allocation fails, the comparison fails or succeeds whole, and frees all. */
    struct world *world = *state;
    const char *path = world_file(world, "a", "linear:classes", 1);
    struct comparison c;
    enum rc rc = RC_NOMEM;

    for (uint64_t n = 0; rc != RC_OK; n++) {
        const uint64_t before = mem_blocks();
        mem_fail_after(n);
        rc = compare(world, &path, 1, NULL, &c, NULL);
        mem_fail_after(UINT64_MAX);
        if (rc == RC_OK) comparison_deinit(&c);
        assert_int_equal(mem_blocks(), before);
        assert_true(n < 10000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_model_is_its_own_average_and_ensemble),
        cmocka_unit_test(an_ensemble_is_no_worse_than_its_members_on_average),
        cmocka_unit_test(the_average_is_written_and_loads_again),
        cmocka_unit_test(different_specs_make_an_ensemble_but_no_average),
        cmocka_unit_test(a_model_with_nan_is_refused_by_name),
        cmocka_unit_test(a_model_of_another_input_shape_is_refused),
        cmocka_unit_test(missing_files_and_data_are_named),
        cmocka_unit_test(short_memory_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, world_set_up, world_tear_down);
}
