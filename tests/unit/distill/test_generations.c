/* Tests of distill/generations: each learns from the one before, what is written, what is said. */
#include "tests/unit/distill/models.h"

#include "base/file.h"
#include "base/json.h"
#include "distill/generations.h"

#include <math.h>
#include <unistd.h>

static const char spec[] = "linear:24 relu linear:classes";

static struct distill_options options_of(const char *const *teachers, const char *out)
{
    return (struct distill_options){
        .teachers = teachers,
        .teachers_count = 1,
        .temperature = 2,
        .alpha = 0.5,
        .student = spec,
        .epochs = 4,
        .batch = 32,
        .seed = 1,
        .out_path = out,
    };
}

static void paths_have_the_number_before_the_ending(void **state)
{
    /* Proves: the last generation has the file that was asked for, those before have numbers; a
     * path that leaves no room for one is refused. */
    (void)state;
    char path[GENERATIONS_PATH_BYTES], text[GENERATIONS_PATH_BYTES + 1];
    struct fault why = {""};

    assert_int_equal(generations_path("a/b.safetensors", 2, 3, path, NULL), RC_OK);
    assert_string_equal(path, "a/b.2.safetensors");
    assert_int_equal(generations_path("a/b.safetensors", 3, 3, path, NULL), RC_OK);
    assert_string_equal(path, "a/b.safetensors");
    assert_int_equal(generations_path("student", 1, 12, path, NULL), RC_OK);
    assert_string_equal(path, "student.1");
    assert_int_equal(generations_path(".safetensors", 1, 2, path, NULL), RC_OK);
    assert_string_equal(path, ".safetensors.1");
    memset(text, 'x', sizeof text);
    text[GENERATIONS_PATH_BYTES - 2] = '\0';
    assert_int_equal(generations_path(text, 1, 2, path, &why), RC_USAGE);
    assert_non_null(strstr(why.text, "--out"));
}

static void on_progress(void *context, const struct distill_progress *progress)
{
    uint32_t *seen = context;

    assert_int_equal(progress->generations, 3);
    *seen |= 1U << progress->generation;
}

static void generations_are_written_and_judged_together(void **state)
{
    /* Proves: three students, each in its file, begin from other weights, all learn though the
     * teacher is untrained (by labels, from each other), and their ensemble's loss is at most the
     * mean of theirs. */
    struct world *world = *state;
    const char *teacher = mem_string(world_file(world, "untrained", spec, 5));
    char *out = mem_string(scratch_path(&world->scratch, "born.safetensors"));
    struct distill_options options = options_of(&teacher, out);
    struct generations done;
    struct fault why = {""};
    uint32_t seen = 0;
    double mean = 0;

    options.on_progress = on_progress;
    options.context = &seen;
    assert_int_equal(generations_run(world->backend, &options, 3, &done, &why), RC_OK);
    assert_int_equal(seen, 2 | 4 | 8);
    assert_int_equal(done.students.count, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_true(score_accuracy(&done.students.models[i]) > 0.8);
        mean += score_loss(&done.students.models[i]) / 3;
    }
    assert_true(score_loss(&done.students.votes[VOTE_MEAN]) <= mean + 1e-9);
    assert_true(score_loss(&done.students.models[0]) != score_loss(&done.students.models[1]));
    assert_true(fabs(done.result.student.loss - score_loss(&done.students.models[2])) < 1e-4);
    assert_string_equal(done.students.paths[2], out);
    struct json *json = generations_json(&done);
    double number;
    assert_int_equal(json_count(json_get(json, "generations")), 3);
    assert_true(json_get_real(json_get(json, "generations_ensemble"), "loss", &number));
    assert_true(json_get_real(json, "student_loss", &number));
    assert_true(number == done.result.student.loss);
    json_destroy(json);
    generations_deinit(&done);
    mem_free((void *)teacher);
    mem_free(out);
}

static void one_generation_is_a_distillation(void **state)
{
    /* Proves: with one the result is that of distill_run(), and nothing is judged twice. */
    struct world *world = *state;
    const char *teacher = mem_string(world_file(world, "untrained", spec, 5));
    char *out = mem_string(scratch_path(&world->scratch, "one.safetensors"));
    struct distill_options options = options_of(&teacher, out);
    struct distill_result plain;
    struct generations done;

    options.epochs = 1;
    assert_int_equal(distill_run(world->backend, &options, &plain, NULL), RC_OK);
    assert_int_equal(generations_run(world->backend, &options, 1, &done, NULL), RC_OK);
    assert_int_equal(done.students.count, 0);
    assert_true(plain.student.loss == done.result.student.loss);
    distill_result_deinit(&plain);
    generations_deinit(&done);
    mem_free((void *)teacher);
    mem_free(out);
}

static void what_fails_later_leaves_earlier_files(void **state)
{
    /* Proves: an error says what failed; nothing is at --out, and nothing leaks. */
    struct world *world = *state;
    const char *teacher = "no-such.safetensors";
    char *out = mem_string(scratch_path(&world->scratch, "none.safetensors"));
    struct distill_options options = options_of(&teacher, out);
    struct generations done;
    struct fault why = {""};

    assert_true(generations_run(world->backend, &options, 2, &done, &why) != RC_OK);
    assert_non_null(strstr(why.text, "no-such"));
    assert_true(access(out, F_OK) != 0);
    mem_free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_have_the_number_before_the_ending),
        cmocka_unit_test(generations_are_written_and_judged_together),
        cmocka_unit_test(one_generation_is_a_distillation),
        cmocka_unit_test(what_fails_later_leaves_earlier_files),
    };
    return cmocka_run_group_tests(tests, world_set_up, world_tear_down);
}
