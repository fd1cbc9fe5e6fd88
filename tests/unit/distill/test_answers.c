/* Tests of distill/answers and answer_file: kept or asked for each time, teachers say the same;
 * what is in a file is checked, used again and gone on with. */
#include "tests/unit/distill/models.h"

#include "base/file.h"
#include "distill/answer_file.h"
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

static struct answers_options options_of(struct world *world, const char *const *teachers,
                                         size_t count, const struct dataset *dataset,
                                         const struct samples *samples)
{
    (void)world;
    return (struct answers_options){.teachers = teachers,
                                    .teachers_count = count,
                                    .info = dataset_info(dataset),
                                    .samples = samples,
                                    .temperature = 2,
                                    .batch = 5};
}

static struct answers *made(struct world *world, const struct answers_options *options)
{
    struct answers *answers = NULL;
    struct fault why = {""};

    if (answers_create(world->backend, options, &answers, &why) != RC_OK) fail_msg("%s", why.text);
    return answers;
}

static void both_ways_give_the_same_answers(void **state)
{
    /* Proves: of classes, texts and real values, the answers for any picked samples are the same to
     * float16, whether they lie in a file (made in one piece or in many) or teachers are asked for
     * a batch as it comes; probabilities sum to 1; each teacher is told of. */
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
        struct answers_options options = options_of(world, teachers, 2, dataset, &samples);
        options.vote = k == 1 ? VOTE_LOGITS : VOTE_MEAN;
        options.on_progress = on_progress;
        options.context = &told;
        const size_t rows = k == 1 ? 16 : 1, outputs = options.info->outputs;
        float kept[5 * 16 * 10], pieces[5 * 16 * 10], asked[5 * 16 * 10];
        struct answers *answers[3];
        struct batch batch;

        answers[0] = made(world, &options);
        assert_true(told.done == 2 * samples.count && told.count == 2 * samples.count);
        options.bytes_max = 20000;
        told = (struct told){0};
        answers[1] = made(world, &options);
        assert_true(told.done == 2 * samples.count && told.count == 2 * samples.count);
        options.is_live = true;
        told = (struct told){0};
        answers[2] = made(world, &options);
        assert_true(told.calls == 2 && told.done == 2 && told.count == 2);
        assert_int_equal(batch_init(&batch, options.info, 5), RC_OK);
        for (size_t first = 0; first < 3; first++) {
            const struct pick pick = {first == 2 ? NULL : order, first, 3};
            assert_int_equal(samples_gather(&samples, options.info, pick, &batch), RC_OK);
            assert_int_equal(answers_get(answers[0], pick, kept), RC_OK);
            assert_int_equal(answers_of_batch(answers[1], &batch, pieces), RC_OK);
            assert_int_equal(answers_of_batch(answers[2], &batch, asked), RC_OK);
            assert_memory_equal(kept, pieces, 3 * rows * outputs * sizeof *kept);
            for (size_t r = 0; r < 3 * rows; r++) {
                double sum = 0;
                for (size_t c = 0; c < outputs; c++) {
                    const float live = asked[r * outputs + c];
                    assert_true(fabsf(kept[r * outputs + c] - live) <= 1e-3F * fabsf(live));
                    sum += (double)kept[r * outputs + c];
                }
                assert_true(k == 2 || fabs(sum - 1) < 1e-5);
            }
        }
        batch_deinit(&batch);
        for (int i = 0; i < 3; i++) {
            answers_destroy(answers[i]);
        }
        samples_deinit(&samples);
        dataset_close(dataset);
    }
}

static void a_file_is_used_again_for_the_same_question(void **state)
{
    /* Proves: equal teachers and samples find the file that is there and ask nobody; another
     * temperature, weight, vote, teacher or sample makes it anew, and so does damage anywhere in
     * it; a file of another kind is refused and stays. */
    struct world *world = *state;
    const char *teachers[2] = {world_file(world, "a", "linear:classes", 1),
                               world_file(world, "b", "linear:classes", 2)};
    const double weights[2] = {0.5, 1.5};
    struct samples samples = {0};
    struct dataset *dataset = loaded("digits", 0, &samples);
    struct answers_options options = options_of(world, teachers, 2, dataset, &samples);
    const char *const path = scratch_path(&world->scratch, "answers");
    struct fault why = {""};
    void *bytes = NULL;
    size_t count = 0;

    options.path = path;
    for (int k = 0; k < 9; k++) {
        if (k == 2) options.temperature = 3;
        if (k == 3) options.weights = weights;
        if (k == 4) options.vote = VOTE_LOGITS;
        if (k == 5) samples.bytes[100] ^= 1;
        if (k == 6) options.is_hard = true;
        if (k == 7) teachers[1] = world_file(world, "b", "linear:classes", 3);
        if (k == 8) options.by_confidence = true;
        struct answers *answers = made(world, &options);
        assert_int_equal(answers_were_there(answers), k == 1);
        answers_destroy(answers);
    }
    assert_int_equal(file_read(path, 1 << 20, &bytes, &count, NULL), RC_OK);
    for (size_t cut = 0; cut < 5; cut++) {
        const size_t at[] = {20, 50, 159, 160, count - 1};
        uint8_t *damaged = bytes;
        damaged[at[cut]] ^= 4;
        const struct piece piece = {bytes, count};
        assert_int_equal(file_replace(path, &piece, 1, 0644, NULL), RC_OK);
        damaged[at[cut]] ^= 4;
        struct answers *answers = made(world, &options);
        /* The header's last bytes say nothing. */
        assert_int_equal(answers_were_there(answers), at[cut] == 159);
        answers_destroy(answers);
        const struct piece half = {bytes, cut * count / 5};
        assert_int_equal(file_replace(path, &half, 1, 0644, NULL), RC_OK);
        answers = made(world, &options);
        assert_false(answers_were_there(answers));
        answers_destroy(answers);
    }
    mem_free(bytes);
    options.path = teachers[0];
    struct answers *never = NULL;
    assert_int_equal(answers_create(world->backend, &options, &never, &why), RC_USAGE);
    assert_non_null(strstr(why.text, "holds no answers"));
    assert_int_equal(file_read(teachers[0], 1 << 20, &bytes, &count, NULL), RC_OK);
    assert_true(count > 1000);
    mem_free(bytes);
    samples_deinit(&samples);
    dataset_close(dataset);
}

/* Stops when so many samples were answered. */
struct limit {
    uint64_t done, stop;
};

static void on_limit(void *context, uint64_t done, uint64_t count)
{
    (void)count;
    ((struct limit *)context)->done = done;
}

static bool is_reached(void *context)
{
    const struct limit *limit = context;

    return limit->done >= limit->stop;
}

static void who_was_stopped_goes_on(void **state)
{
    /* Proves: stopped between two pieces the work so far stays, is not done again, and gives the
     * same file to the bit; a part that was damaged meanwhile is done again. */
    struct world *world = *state;
    const char *teachers[2] = {world_file(world, "a", "linear:classes", 1),
                               world_file(world, "b", "linear:classes", 2)};
    struct samples samples = {0};
    struct dataset *dataset = loaded("digits", 0, &samples);
    struct answers_options options = options_of(world, teachers, 2, dataset, &samples);
    struct limit limit = {0, UINT64_MAX};
    char whole[256], part[300], path[256];
    void *bytes[2];
    size_t counts[2];

    snprintf(whole, sizeof whole, "%s", scratch_path(&world->scratch, "whole"));
    snprintf(path, sizeof path, "%s", scratch_path(&world->scratch, "stopped"));
    snprintf(part, sizeof part, "%s.part", path);
    options.path = whole;
    options.bytes_max = 10000;
    answers_destroy(made(world, &options));
    assert_int_equal(file_read(whole, 1 << 20, &bytes[0], &counts[0], NULL), RC_OK);
    options.path = path;
    options.on_progress = on_limit;
    options.context = &limit;
    options.is_stopped = is_reached;
    for (int k = 0; k < 3; k++) {
        struct answers *answers = NULL;
        limit = (struct limit){0, 900};
        assert_int_equal(answers_create(world->backend, &options, &answers, NULL), RC_CANCELLED);
        assert_true(file_is_there(part) && !file_is_there(path));
        if (k == 1) { /* a byte of the rows that are there */
            FILE *file = fopen(part, "r+b");
            assert_non_null(file);
            assert_int_equal(fseek(file, 200, SEEK_SET), 0);
            fputc(0xff, file);
            fclose(file);
        }
        limit = (struct limit){0, 900 + 600};
        if (k == 0) { /* goes on: fewer than 900 left to the limit */
            assert_int_equal(answers_create(world->backend, &options, &answers, NULL),
                             RC_CANCELLED);
        }
        limit.stop = UINT64_MAX;
        answers = made(world, &options);
        answers_destroy(answers);
        assert_int_equal(file_read(path, 1 << 20, &bytes[1], &counts[1], NULL), RC_OK);
        assert_int_equal(counts[0], counts[1]);
        assert_memory_equal(bytes[0], bytes[1], counts[0]);
        assert_false(file_is_there(part));
        mem_free(bytes[1]);
        answer_file_remove(path);
    }
    mem_free(bytes[0]);
    samples_deinit(&samples);
    dataset_close(dataset);
}

static void the_likeliest_are_kept_and_the_rest_is_spread(void **state)
{
    /* Proves: of many outputs the kept ones have their probability to float16, all others the same
     * share of what is left, and the whole is 1; ties keep the lower id; ids of two and four bytes;
     * float16 that makes more than 1 of them is scaled down; hard answers are 1 and 0. */
    (void)state;
    const uint32_t outputs[] = {10, 70000};

    for (int k = 0; k < 2; k++) {
        const struct answer_form form = {.outputs = outputs[k], .top = 3};
        float *row = mem_array(outputs[k], sizeof *row), *out = mem_array(outputs[k], sizeof *out);
        uint8_t bytes[64];
        double sum = 0;

        assert_int_equal(answer_row_bytes(&form), k == 0 ? 12 : 18);
        row[2] = 0.5F;
        row[outputs[k] - 1] = 0.25F;
        row[4] = row[5] = 0.1F;
        row[1] = 0.05F;
        answer_encode(&form, row, bytes);
        assert_int_equal(answer_decode(&form, bytes, out), RC_OK);
        for (uint32_t i = 0; i < outputs[k]; i++) {
            const bool is_kept = i == 2 || i == 4 || i == outputs[k] - 1;
            const float wanted = is_kept ? row[i] : 0.15F / (float)(outputs[k] - 3);
            assert_true(fabsf(out[i] - wanted) < 1e-3F * wanted);
            sum += (double)out[i];
        }
        assert_true(fabs(sum - 1) < 1e-4);
        memset(row, 0, outputs[k] * sizeof *row);
        row[7] = row[8] = row[9] = 0.3335F; /* more than a third */
        answer_encode(&form, row, bytes);
        assert_int_equal(answer_decode(&form, bytes, out), RC_OK);
        assert_true(fabs((double)out[7] + (double)out[8] + (double)out[9] - 1) < 1e-6);
        assert_true(out[0] <= 0);
        mem_free(row);
        mem_free(out);
    }
}

static void foreign_rows_are_refused(void **state)
{
    /* Proves: ids beyond the outputs or twice, negative, infinite and vanishing probabilities are
     * RC_FORMAT. */
    (void)state;
    const struct answer_form top = {.outputs = 10, .top = 1}, all = {.outputs = 2, .top = 2};
    const struct answer_form two = {.outputs = 10, .top = 2};
    const uint8_t twice[] = {3, 0, 3, 0, 0x00, 0x38, 0x00, 0x38};
    const uint8_t ids[] = {10, 0, 0x00, 0x3c};
    const uint8_t infinite[] = {0, 0, 0x00, 0x7c}, negative[] = {0, 0, 0x00, 0xbc};
    const uint8_t none[] = {0, 0, 0, 0};
    float out[10];

    assert_int_equal(answer_decode(&top, ids, out), RC_FORMAT);
    assert_int_equal(answer_decode(&two, twice, out), RC_FORMAT);
    assert_int_equal(answer_decode(&top, infinite, out), RC_FORMAT);
    assert_int_equal(answer_decode(&top, negative, out), RC_FORMAT);
    assert_int_equal(answer_decode(&top, none, out), RC_FORMAT);
    assert_int_equal(answer_decode(&all, infinite, out), RC_FORMAT);
    assert_int_equal(answer_decode(&all, negative, out), RC_FORMAT);
    assert_int_equal(answer_decode(&all, none, out), RC_FORMAT);
}

static void hard_answers_are_the_ensembles_winner(void **state)
{
    /* Proves: each row is 1 at the class that the teachers decide for at temperature 1. */
    struct world *world = *state;
    const char *teacher = world_file(world, "a", "linear:classes", 1);
    struct samples samples = {0};
    struct dataset *dataset = loaded("digits", 0, &samples);
    struct answers_options options = options_of(world, &teacher, 1, dataset, &samples);
    float soft[50], hard[50];

    options.temperature = 1;
    struct answers *a = made(world, &options);
    options.is_hard = true;
    struct answers *b = made(world, &options);
    assert_int_equal(answers_get(a, (struct pick){NULL, 7, 5}, soft), RC_OK);
    assert_int_equal(answers_get(b, (struct pick){NULL, 7, 5}, hard), RC_OK);
    for (int r = 0; r < 5; r++) {
        for (int c = 0; c < 10; c++) {
            const bool is_one = hard[10 * r + c] >= 1;
            assert_true(is_one || hard[10 * r + c] <= 0);
            for (int o = 0; is_one && o < 10; o++) {
                assert_true(soft[10 * r + o] <= soft[10 * r + c]);
            }
        }
    }
    answers_destroy(a);
    answers_destroy(b);
    samples_deinit(&samples);
    dataset_close(dataset);
}

static void too_many_teachers_cannot_stay_in_memory(void **state)
{
    /* Proves: more teachers than may see what the student sees are RC_LIMIT with what to do; their
     * answers in a file are fine. */
    struct world *world = *state;
    const char *teachers[ANSWERS_TEACHERS_MAX + 1];
    const char *path = world_file(world, "a", "linear:classes", 1);
    struct samples samples = {0};
    struct dataset *dataset = loaded("digits", 0, &samples);
    struct answers_options options =
        options_of(world, teachers, ANSWERS_TEACHERS_MAX + 1, dataset, &samples);
    struct answers *answers = NULL;
    struct fault why = {""};

    for (size_t i = 0; i < options.teachers_count; i++) {
        teachers[i] = path;
    }
    options.is_live = true;
    assert_int_equal(answers_create(world->backend, &options, &answers, &why), RC_LIMIT);
    assert_non_null(strstr(why.text, "--teachers-view plain"));
    options.is_live = false;
    options.bytes_max = 1000;
    samples.count = 20;
    answers_destroy(made(world, &options));
    samples_deinit(&samples);
    dataset_close(dataset);
}

static void short_memory_leaks_nothing(void **state)
{
    /* Proves: whichever allocation fails, kept or live, nothing stays behind. */
    struct world *world = *state;
    const char *path = world_file(world, "a", "linear:classes", 1);
    struct samples samples = {0};
    struct dataset *dataset = loaded("digits", 0, &samples);

    samples.count = 40;
    for (int live = 0; live < 2; live++) {
        struct answers_options options = options_of(world, &path, 1, dataset, &samples);
        enum rc rc = RC_NOMEM;
        options.is_live = live == 1;
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
        cmocka_unit_test(a_file_is_used_again_for_the_same_question),
        cmocka_unit_test(who_was_stopped_goes_on),
        cmocka_unit_test(the_likeliest_are_kept_and_the_rest_is_spread),
        cmocka_unit_test(foreign_rows_are_refused),
        cmocka_unit_test(hard_answers_are_the_ensembles_winner),
        cmocka_unit_test(too_many_teachers_cannot_stay_in_memory),
        cmocka_unit_test(short_memory_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, world_set_up, world_tear_down);
}
