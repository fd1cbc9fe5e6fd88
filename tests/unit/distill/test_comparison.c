/* Tests of distill/comparison: several model files against one test part. */
#include "tests/unit/distill/models.h"

#include "base/json.h"
#include "distill/comparison.h"

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

static const char language[] = "embed:8 lstm:8 linear:classes";

static void texts_are_scored_by_token(void **state)
{
    /* Proves: each step of each window is one prediction; the ensemble is no worse than its members
     * on average; the width is the model's and not the data's default. */
    struct world *world = *state;
    char data[256];
    struct comparison c;

    world_text(world, "text", 5, data);
    const char *paths[2] = {world_file_of(world, "a", language, data, 16, 1),
                            world_file_of(world, "b", language, data, 16, 2)};
    assert_int_equal(compare(world, paths, 2, NULL, &c, NULL), RC_OK);
    assert_true(c.is_text && c.samples > 10);
    assert_int_equal(c.models[0].count, 16 * c.samples);
    assert_int_equal(c.votes[VOTE_LOGITS].count, 16 * c.samples);
    assert_true(fabs(score_loss(&c.models[0]) - log(5)) < 0.5);
    assert_true(c.has_average && score_accuracy(&c.average) > 0);
    const double members = (score_loss(&c.models[0]) + score_loss(&c.models[1])) / 2;
    assert_true(score_loss(&c.votes[VOTE_MEAN]) <= members + 1e-6);
    comparison_deinit(&c);
}

static void little_memory_gives_the_same_scores_in_pieces(void **state)
{
    /* Proves: with room for a few samples at a time every score is that of the whole, each model is
     * run once a piece, and the average counts its members once. */
    struct world *world = *state;
    char data[256];

    world_text(world, "text", 5, data);
    for (int k = 0; k < 2; k++) {
        const char *from = k == 0 ? data : "synthetic:least-squares,test=50";
        const char *spec = k == 0 ? language : "linear:classes";
        const char *paths[2] = {world_file_of(world, "a", spec, from, 16, 1),
                                world_file_of(world, "b", spec, from, 16, 2)};
        struct comparison_options options = {.paths = paths, .paths_count = 2, .seed = 1};
        struct comparison whole, pieces;

        assert_int_equal(comparison_run(world->backend, &options, &whole, NULL), RC_OK);
        for (size_t bytes = 1; bytes < 20000; bytes += 7777) {
            options.bytes_max = bytes;
            assert_int_equal(comparison_run(world->backend, &options, &pieces, NULL), RC_OK);
            for (int m = 0; m < 2; m++) {
                assert_int_equal(pieces.models[m].count, whole.models[m].count);
                assert_int_equal(pieces.models[m].correct, whole.models[m].correct);
                assert_true(fabs(score_loss(&pieces.models[m]) - score_loss(&whole.models[m])) <
                            1e-6);
            }
            assert_int_equal(pieces.votes[VOTE_MEAN].correct, whole.votes[VOTE_MEAN].correct);
            assert_int_equal(pieces.votes[VOTE_MAJORITY].correct,
                             whole.votes[VOTE_MAJORITY].correct);
            assert_true(fabs(score_loss(&pieces.votes[VOTE_MEAN]) -
                             score_loss(&whole.votes[VOTE_MEAN])) < 1e-6);
            assert_true(fabs(pieces.distance - whole.distance) < 1e-9);
            comparison_deinit(&pieces);
        }
        comparison_deinit(&whole);
    }
}

static void real_values_have_a_squared_error_and_no_accuracy(void **state)
{
    /* Proves: the ensemble of real values is their mean, whose error is at most the members' mean
     * error (Jensen); accuracies are null in the JSON, as there are no votes. */
    struct world *world = *state;
    static const char data[] = "synthetic:least-squares,outputs=2,test=100";
    const char *paths[2] = {world_file_of(world, "a", "linear:classes", data, 0, 1),
                            world_file_of(world, "b", "linear:classes", data, 0, 2)};
    struct comparison c;

    assert_int_equal(compare(world, paths, 2, NULL, &c, NULL), RC_OK);
    const double members = (score_loss(&c.models[0]) + score_loss(&c.models[1])) / 2;
    assert_true(score_loss(&c.votes[VOTE_MEAN]) <= members + 1e-6);
    /* A linear model's average is its ensemble. */
    assert_true(fabs(score_loss(&c.votes[VOTE_MEAN]) - score_loss(&c.average)) < 1e-5);
    assert_true(isnan(score_accuracy(&c.models[0])) && isnan(score_accuracy(&c.average)));
    struct json *json = comparison_json(&c);
    char *text = json_format(json);
    assert_non_null(strstr(text, "\"accuracy\":[null,null]"));
    assert_non_null(strstr(text, "\"vote_accuracy\":null"));
    assert_null(strstr(text, "nan"));
    mem_free(text);
    json_destroy(json);
    comparison_deinit(&c);
}

static void a_model_for_other_data_is_refused_in_words(void **state)
{
    /* Proves: images against text, classes against real values, other symbols, and one answer where
     * each step is asked for one are RC_MISMATCH, with what the model takes. */
    struct world *world = *state;
    char data[256], other[256], shifted[256];
    static const char reals[] = "synthetic:least-squares,features=2,outputs=2";
    struct comparison c;

    world_text(world, "text", 5, data);
    world_text(world, "more", 6, other);
    snprintf(shifted, sizeof shifted, "text:%s", scratch_path(&world->scratch, "shifted"));
    FILE *file = fopen(shifted + strlen("text:"), "w");
    for (int i = 0; i < 4000; i++) {
        fputc('b' + i % 5, file);
    }
    fclose(file);
    const char *text = world_file_of(world, "t", language, data, 16, 1);
    const char *image = world_file(world, "i", "linear:classes", 1);
    const char *plane = world_file_of(world, "s", "linear:classes", "synthetic:spirals", 0, 1);
    const char *last = world_file_of(world, "l", "embed:8 lstm:8 last linear:classes", data, 16, 1);
    const struct {
        const char *path, *data, *words;
    } cases[] = {
        {text, "digits", "sequences of 16 tokens and 5 classes"},
        {image, data, "1x8x8 and 10 classes"},
        {text, other, "5 classes"},
        {text, shifted, "symbols"},
        {plane, reals, "2 real values"},
        {last, data, "1 answers a sample"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct comparison_options options = {
            .paths = &cases[i].path, .paths_count = 1, .data = cases[i].data, .seed = 1};
        struct fault why = {""};
        assert_int_equal(comparison_run(world->backend, &options, &c, &why), RC_MISMATCH);
        if (strstr(why.text, cases[i].words) == NULL) fail_msg("%s", why.text);
    }
}

/* A table of two classes in `path`, told by its second column. */
static void write_table(const char *path, const char *low, const char *high)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs("x,class\n", file);
    for (int i = 0; i < 400; i++) {
        fprintf(file, "%d,%s\n", i, i % 2 == 0 ? low : high);
    }
    fclose(file);
}

static void a_table_of_other_classes_is_refused_by_its_words(void **state)
{
    /* Proves: as many classes of another name are RC_MISMATCH, with the first that differs; the
     * same words in another table are fine. */
    struct world *world = *state;
    char data[3][200];
    static const char *const words[3][2] = {{"cat", "dog"}, {"hat", "dog"}, {"cat", "dog"}};
    struct comparison c;

    for (int k = 0; k < 3; k++) {
        char name[32];
        snprintf(name, sizeof name, "table%d.csv", k);
        const char *path = scratch_path(&world->scratch, name);
        write_table(path, words[k][0], words[k][1]);
        snprintf(data[k], sizeof data[k], "csv:%s,label=class", path);
    }
    const char *model = world_file_of(world, "m", "linear:classes", data[0], 0, 1);
    for (int k = 0; k < 3; k++) {
        const struct comparison_options options = {
            .paths = &model, .paths_count = 1, .data = data[k], .seed = 1};
        struct fault why = {""};
        enum rc rc = comparison_run(world->backend, &options, &c, &why);
        assert_int_equal(rc, k == 1 ? RC_MISMATCH : RC_OK);
        if (k == 1) assert_non_null(strstr(why.text, "label 'hat' is none of the model's classes"));
        if (rc == RC_OK) comparison_deinit(&c);
    }
}

static void a_file_that_does_not_name_its_data_asks_for_it(void **state)
{
    /* Proves: without --data, a model of another program is wrong usage and the line says so. */
    struct world *world = *state;
    struct model_card card;
    struct model *model = world_model(world, "linear:classes", 1, &card);
    const char *path = scratch_path(&world->scratch, "foreign");
    struct comparison c;
    struct fault why = {""};

    card.data[0] = '\0';
    world_save(model, &card, path);
    model_destroy(model);
    assert_int_equal(compare(world, &path, 1, NULL, &c, &why), RC_USAGE);
    assert_non_null(strstr(why.text, "foreign does not say what data it was trained on"));
    assert_non_null(strstr(why.text, "pass --data"));
}

static void an_average_has_statistics_of_its_own(void **state)
{
    /* Proves: the average that is written has running statistics estimated on training data, and
     * they do better than those pooled from its members; the same each time. */
    struct world *world = *state;
    static const char spec[] = "conv3x3:8 bn relu conv3x3:8 bn relu globalpool linear:classes";
    const char *paths[2] = {world_file_of(world, "a", spec, "digits", 0, 1),
                            world_file_of(world, "b", spec, "digits", 0, 2)};
    const char *average = scratch_path(&world->scratch, "average.safetensors");
    struct tensor_file *files[2] = {NULL, NULL};
    struct comparison c, again;

    for (int k = 0; k < 2; k++) {
        assert_int_equal(compare(world, paths, 2, average, &c, NULL), RC_OK);
        assert_int_equal(tensor_file_load(average, &files[k], NULL), RC_OK);
        assert_int_equal(compare(world, &average, 1, NULL, &again, NULL), RC_OK);
        assert_true(fabs(score_loss(&again.models[0]) - score_loss(&c.average)) < 1e-5);
        comparison_deinit(&again);
        comparison_deinit(&c);
    }
    const struct tensor_view *mean[2], *variance[2];
    for (int k = 0; k < 2; k++) {
        mean[k] = tensor_file_find(files[k], "bn1.running_mean");
        variance[k] = tensor_file_find(files[k], "bn1.running_variance");
        assert_true(mean[k] != NULL && variance[k] != NULL);
    }
    assert_memory_equal(mean[0]->bytes, mean[1]->bytes, mean[0]->bytes_count);
    assert_memory_equal(variance[0]->bytes, variance[1]->bytes, variance[0]->bytes_count);
    for (size_t i = 0; i < 8; i++) { /* untrained members say 0 and 1 */
        float m, v;
        memcpy(&m, (const char *)mean[0]->bytes + 4 * i, sizeof m);
        memcpy(&v, (const char *)variance[0]->bytes + 4 * i, sizeof v);
        assert_true(fabsf(m) > 1e-6F && v > 0 && v < 0.9F);
    }
    tensor_file_destroy(files[0]);
    tensor_file_destroy(files[1]);
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

static void one_model_with_statistics_stays_as_it_is(void **state)
{
    /* Proves: nothing is averaged, so nothing is estimated anew: scores and the written statistics
     * are the model's. */
    struct world *world = *state;
    const char *path = world_file_of(world, "a", "conv3x3:4 bn linear:classes", "digits", 0, 1);
    const char *average = scratch_path(&world->scratch, "average.safetensors");
    struct tensor_file *file = NULL;
    struct comparison c;
    float variance;

    for (int k = 0; k < 2; k++) {
        assert_int_equal(compare(world, &path, 1, k == 0 ? NULL : average, &c, NULL), RC_OK);
        assert_int_equal(c.average.correct, c.models[0].correct);
        assert_true(fabs(score_loss(&c.average) - score_loss(&c.models[0])) < 1e-6);
        comparison_deinit(&c);
    }
    assert_int_equal(tensor_file_load(average, &file, NULL), RC_OK);
    memcpy(&variance, tensor_file_find(file, "bn1.running_variance")->bytes, sizeof variance);
    assert_true(fabsf(variance - 1) <= 0);
    tensor_file_destroy(file);
}

static void short_memory_in_an_average_leaks_nothing(void **state)
{
    /* Proves: the same where statistics are estimated, in pieces. */
    struct world *world = *state;
    static const char spec[] = "linear:4 bn linear:classes";
    static const char data[] = "synthetic:spirals,samples=300,test=4";
    const char *paths[2] = {world_file_of(world, "a", spec, data, 0, 1),
                            world_file_of(world, "b", spec, data, 0, 2)};
    const struct comparison_options options = {
        .paths = paths, .paths_count = 2, .seed = 1, .bytes_max = 1};
    struct comparison c;
    enum rc rc = RC_NOMEM;

    for (uint64_t n = 0; rc != RC_OK; n++) {
        const uint64_t before = mem_blocks();
        mem_fail_after(n);
        rc = comparison_run(world->backend, &options, &c, NULL);
        mem_fail_after(UINT64_MAX);
        if (rc == RC_OK) comparison_deinit(&c);
        assert_int_equal(mem_blocks(), before);
        assert_true(n < 10000);
    }
}

static void threads_change_no_score(void **state)
{
    /* Proves: with three threads, each with copies of the models, comparison and average are the
     * same to the bit; and whichever allocation fails, all is freed. */
    struct world *world = *state;
    const char *paths[2] = {world_file(world, "a", "conv3x3:4 relu maxpool2 linear:classes", 1),
                            world_file(world, "b", "conv3x3:4 relu maxpool2 linear:classes", 2)};
    const struct comparison_options options = {.paths = paths, .paths_count = 2, .seed = 1};
    const struct cpu_backend_options three = {.threads = 3};
    struct backend *backend = cpu_backend_create(&three);
    struct comparison c;
    char *alone, *together;
    struct json *json;

    assert_int_equal(comparison_run(world->backend, &options, &c, NULL), RC_OK);
    json = comparison_json(&c);
    alone = json_format(json);
    json_destroy(json);
    comparison_deinit(&c);
    enum rc rc = RC_NOMEM;
    for (uint64_t n = 0; rc != RC_OK; n += 1 + n / 8) {
        const uint64_t before = mem_blocks();
        mem_fail_after(n);
        rc = comparison_run(backend, &options, &c, NULL);
        mem_fail_after(UINT64_MAX);
        if (rc != RC_OK) assert_int_equal(mem_blocks(), before);
        assert_true(n < 100000);
    }
    json = comparison_json(&c);
    together = json_format(json);
    json_destroy(json);
    comparison_deinit(&c);
    assert_string_equal(alone, together);
    mem_free(alone);
    mem_free(together);
    backend_destroy(backend);
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
        cmocka_unit_test(texts_are_scored_by_token),
        cmocka_unit_test(little_memory_gives_the_same_scores_in_pieces),
        cmocka_unit_test(real_values_have_a_squared_error_and_no_accuracy),
        cmocka_unit_test(a_model_for_other_data_is_refused_in_words),
        cmocka_unit_test(a_table_of_other_classes_is_refused_by_its_words),
        cmocka_unit_test(a_file_that_does_not_name_its_data_asks_for_it),
        cmocka_unit_test(an_average_has_statistics_of_its_own),
        cmocka_unit_test(short_memory_leaks_nothing),
        cmocka_unit_test(one_model_with_statistics_stays_as_it_is),
        cmocka_unit_test(short_memory_in_an_average_leaks_nothing),
        cmocka_unit_test(threads_change_no_score),
    };
    return cmocka_run_group_tests(tests, world_set_up, world_tear_down);
}
