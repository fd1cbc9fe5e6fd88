/* Tests of distill/answers: kept or asked for each time, teachers say the same. */
#include "tests/unit/distill/models.h"

#include "distill/answers.h"

#include <math.h>

static const char language[] = "embed:8 lstm:8 linear:classes";

struct told {
    uint64_t calls, done, count;
};

static void on_progress(void *context, uint64_t done, uint64_t count)
{
    struct told *told = context;

    assert_true(done >= told->done || done == 1); /* of the second kind of answers: from anew */
    told->calls++;
    told->done = done;
    told->count = count;
}

/* The training part of `data`, all of it. */
static struct dataset *loaded(const char *data, uint32_t context, struct samples *samples)
{
    const struct dataset_options options = {.seed = 1, .context = context};
    struct dataset *dataset = NULL;
    bool wanted[2 * DATASET_SMALL_BLOCKS];

    for (size_t i = 0; i < 2 * DATASET_SMALL_BLOCKS; i++) {
        wanted[i] = true;
    }
    assert_int_equal(dataset_open(data, &options, &dataset, NULL), RC_OK);
    assert_true(dataset_info(dataset)->blocks <= 2 * DATASET_SMALL_BLOCKS);
    assert_int_equal(dataset_load_blocks(dataset, wanted, samples, NULL), RC_OK);
    return dataset;
}

static void both_ways_give_the_same_answers(void **state)
{
    /* Proves: of classes, texts and real values, the answers for any picked samples are the same
     * whether they were kept or not; probabilities sum to 1; each teacher is told of. */
    struct world *world = *state;
    char text[256];
    const char *const specs[] = {"linear:classes", language, "linear:classes"};
    const uint32_t order[] = {17, 3, 3, 200, 0};

    world_text(world, "text", 5, text);
    for (int k = 0; k < 3; k++) {
        const char *data = k == 0   ? "digits"
                           : k == 1 ? text
                                    : "synthetic:least-squares,samples=300,outputs=3";
        const char *teachers[2] = {world_file_of(world, "a", specs[k], data, 16, 1),
                                   world_file_of(world, "b", specs[k], data, 16, 2)};
        struct samples samples = {0};
        struct dataset *dataset = loaded(data, 16, &samples);
        struct told told = {0};
        struct answers_options options = {.teachers = teachers,
                                          .teachers_count = 2,
                                          .info = dataset_info(dataset),
                                          .samples = &samples,
                                          .vote = k == 1 ? VOTE_LOGITS : VOTE_MEAN,
                                          .temperature = 2,
                                          .batch = 5,
                                          .on_progress = on_progress,
                                          .context = &told};
        const size_t rows = k == 1 ? 16 : 1, outputs = options.info->outputs;
        float kept[5 * 16 * 10], asked[5 * 16 * 10];
        struct answers *answers[2];

        assert_int_equal(answers_create(world->backend, &options, &answers[0], NULL), RC_OK);
        assert_true(told.done == 2 * samples.count && told.count == 2 * samples.count);
        told.calls = 0;
        options.bytes_max = 100;
        assert_int_equal(answers_create(world->backend, &options, &answers[1], NULL), RC_OK);
        assert_true(answers_are_kept(answers[0]) && !answers_are_kept(answers[1]));
        assert_true(told.calls == 2 && told.done == 2 && told.count == 2);
        for (size_t first = 0; first < 3; first++) {
            const struct pick pick = {first == 2 ? NULL : order, first, 3};
            assert_int_equal(answers_get(answers[0], pick, kept), RC_OK);
            assert_int_equal(answers_get(answers[1], pick, asked), RC_OK);
            for (size_t r = 0; r < 3 * rows; r++) {
                double sum = 0;
                for (size_t c = 0; c < outputs; c++) {
                    assert_true(fabsf(kept[r * outputs + c] - asked[r * outputs + c]) < 1e-5F);
                    sum += (double)kept[r * outputs + c];
                }
                assert_true(k == 2 || fabs(sum - 1) < 1e-5);
            }
        }
        answers_destroy(answers[0]);
        answers_destroy(answers[1]);
        samples_deinit(&samples);
        dataset_close(dataset);
    }
}

static void too_many_teachers_for_large_answers_are_refused(void **state)
{
    /* Proves: answers that cannot be kept, of more teachers than may stay in memory, are RC_LIMIT
     * with what to do; few answers of as many teachers are fine. */
    struct world *world = *state;
    const char *teachers[ANSWERS_TEACHERS_MAX + 1];
    const char *path = world_file(world, "a", "linear:classes", 1);
    struct samples samples = {0};
    struct dataset *dataset = loaded("digits", 0, &samples);
    struct answers_options options = {.teachers = teachers,
                                      .teachers_count = ANSWERS_TEACHERS_MAX + 1,
                                      .info = dataset_info(dataset),
                                      .samples = &samples,
                                      .temperature = 1,
                                      .batch = 8,
                                      .bytes_max = 1000};
    struct answers *answers = NULL;
    struct fault why = {""};

    for (size_t i = 0; i < options.teachers_count; i++) {
        teachers[i] = path;
    }
    assert_int_equal(answers_create(world->backend, &options, &answers, &why), RC_LIMIT);
    assert_non_null(strstr(why.text, "--samples"));
    samples.count = 20;
    assert_int_equal(answers_create(world->backend, &options, &answers, &why), RC_OK);
    assert_true(answers_are_kept(answers));
    answers_destroy(answers);
    samples_deinit(&samples);
    dataset_close(dataset);
}

static void short_memory_leaks_nothing(void **state)
{
    /* Proves: whichever allocation fails, kept or not, nothing stays behind. */
    struct world *world = *state;
    const char *path = world_file(world, "a", "linear:classes", 1);
    struct samples samples = {0};
    struct dataset *dataset = loaded("digits", 0, &samples);

    samples.count = 40;
    for (size_t bytes = 0; bytes < 200; bytes += 100) {
        const struct answers_options options = {.teachers = &path,
                                                .teachers_count = 1,
                                                .info = dataset_info(dataset),
                                                .samples = &samples,
                                                .temperature = 1,
                                                .batch = 8,
                                                .bytes_max = bytes};
        enum rc rc = RC_NOMEM;
        for (uint64_t n = 0; rc != RC_OK; n++) {
            const uint64_t before = mem_blocks();
            struct answers *answers = NULL;
            mem_fail_after(n);
            rc = answers_create(world->backend, &options, &answers, NULL);
            mem_fail_after(UINT64_MAX);
            answers_destroy(answers);
            assert_int_equal(mem_blocks(), before);
            assert_true(n < 10000);
        }
    }
    samples_deinit(&samples);
    dataset_close(dataset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ways_give_the_same_answers),
        cmocka_unit_test(too_many_teachers_for_large_answers_are_refused),
        cmocka_unit_test(short_memory_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, world_set_up, world_tear_down);
}
