/* Tests of distill/distill: the loss, a student that follows its teachers, what is refused. */
#include "tests/unit/distill/models.h"

#include "base/file.h"
#include "base/json.h"
#include "distill/distill.h"
#include "replica/model/loss.h"

#include <math.h>

static const char teacher_spec[] = "linear:32 relu linear:classes";

static struct distill_options options_of(const char *const *teachers, size_t count)
{
    return (struct distill_options){
        .teachers = teachers,
        .teachers_count = count,
        .temperature = 2,
        .alpha = 0.9,
        .student = "linear:classes",
        .epochs = 2,
        .batch = 32,
        .seed = 1,
    };
}

/* A trained teacher: a student of an untrained one that listened to the labels alone. */
static const char *trained_file(struct world *world, const char *name, uint64_t seed)
{
    const char *start = world_file(world, "untrained", teacher_spec, seed);
    const char *path = scratch_path(&world->scratch, name);
    struct distill_options options = options_of(&start, 1);
    struct distill_result result;
    struct fault why = {""};

    options.alpha = 0;
    options.epochs = 8;
    options.seed = seed;
    options.student = teacher_spec;
    options.out_path = path;
    assert_int_equal(distill_run(world->backend, &options, &result, &why), RC_OK);
    assert_true(result.student.accuracy > 0.85);
    distill_result_deinit(&result);
    return path;
}

static void the_loss_has_the_golden_value_and_gradient(void **state)
{
    /* Proves: T^2 KL and its gradient are the known numbers at T = 2, a = 1. */
    (void)state;
    const float student[3] = {1, 0, -1}, teacher[3] = {2, 0, 0};
    const double golden[3] = {-.139273, .190509, -.0512357};
    const uint32_t label = 0;
    float target[3], gradient[3];
    uint32_t correct = 0;

    ensemble_softmax(teacher, 1, 3, 2, target);
    const double loss = loss_distillation(student, target, &label, 1, 3, 2, 1, gradient, &correct);
    assert_true(fabs(loss - .0914167) < 1e-6);
    for (int c = 0; c < 3; c++) {
        assert_true(fabs(gradient[c] - golden[c]) < 1e-6);
    }
    assert_int_equal(correct, 1);
}

static void a_student_equal_to_its_teacher_has_nothing_to_learn(void **state)
{
    /* Proves: equal logits give loss and gradient zero, whatever the temperature. */
    (void)state;
    const float logits[4] = {3, -1, 0.5F, 2};
    const uint32_t label = 3;
    float target[4], gradient[4];
    uint32_t correct = 0;

    for (double temperature = 0.5; temperature < 40; temperature *= 3) {
        ensemble_softmax(logits, 1, 4, temperature, target);
        assert_true(fabs(loss_distillation(logits, target, &label, 1, 4, temperature, 1, gradient,
                                           &correct)) < 1e-5);
        for (int c = 0; c < 4; c++) {
            assert_true(fabsf(gradient[c]) < 1e-5F);
        }
    }
}

static void a_student_learns_from_teachers_without_labels(void **state)
{
    /* Proves: with a = 1 the labels have no say, and the student still gets close to the teachers,
     * for each way to combine them; the baseline is trained too. */
    struct world *world = *state;
    const char *teachers[2];
    struct distill_result result;

    teachers[0] = mem_string(trained_file(world, "teacher1", 1));
    teachers[1] = mem_string(trained_file(world, "teacher2", 2));
    for (int vote = 0; vote < VOTE_COUNT; vote++) {
        struct distill_options options = options_of(teachers, 2);
        options.vote = (enum vote)vote;
        options.alpha = 1;
        options.epochs = 6;
        options.student = "linear:12 relu linear:classes";
        options.with_baseline = vote == 0;
        assert_int_equal(distill_run(world->backend, &options, &result, NULL), RC_OK);
        assert_true(result.student.accuracy > 0.8);
        assert_true(result.has_baseline == (vote == 0));
        if (vote == 0) assert_true(result.labels_only.accuracy > 0.8);
        assert_true(result.teacher_parameters > 2 * result.student_parameters);
        struct json *json = distill_json(&result);
        double number;
        assert_true(json_get_real(json, "compression", &number) && number > 2);
        assert_true(json_get_real(json, "average_model_accuracy", &number));
        assert_int_equal(json_count(json_get(json, "teacher_accuracy")), 2);
        json_destroy(json);
        distill_result_deinit(&result);
    }
    mem_free((void *)teachers[0]);
    mem_free((void *)teachers[1]);
}

static void labels_alone_get_a_rate_of_their_own(void **state)
{
    /* Proves: where the student's rate is too small for labels the control takes a larger one, and
     * it is said which, how many samples both saw, and who wins. */
    struct world *world = *state;
    const char *teacher = trained_file(world, "teacher", 1);
    struct distill_options options = options_of(&teacher, 1);
    struct distill_result result;
    bool wins = true;

    options.lr = 1e-2;
    options.optimizer = "sgd";
    options.with_baseline = true;
    options.samples_max = 300;
    assert_int_equal(distill_run(world->backend, &options, &result, NULL), RC_OK);
    assert_true(fabs(result.lr - 1e-2) < 1e-9);
    assert_true(fabs(result.labels_only_lr - 2.5e-2) < 1e-9);
    assert_int_equal(result.samples, 300);
    assert_int_equal(result.samples_all, 1437);
    struct json *json = distill_json(&result);
    assert_true(json_get_bool(json, "labels_only_wins", &wins));
    assert_true(wins == (result.labels_only.accuracy > result.student.accuracy));
    assert_true(wins == distill_labels_win(&result));
    json_destroy(json);
    distill_result_deinit(&result);
}

static void a_batch_is_no_more_than_the_samples(void **state)
{
    /* Proves: where there are fewer samples than a batch is to have, each step takes all of them
     * once: as many steps as epochs, to the same student as with a batch of just that size. */
    struct world *world = *state;
    const char *teacher = trained_file(world, "teacher", 1);
    const uint32_t batches[2] = {300, UINT32_MAX};
    double loss = 0;

    for (int i = 0; i < 2; i++) {
        struct distill_options options = options_of(&teacher, 1);
        struct distill_result result;
        struct fault why = {""};

        options.batch = batches[i];
        options.samples_max = 300;
        options.epochs = 20;
        if (distill_run(world->backend, &options, &result, &why) != RC_OK) fail_msg("%s", why.text);
        assert_int_equal(result.steps, 20);
        assert_true(i == 0 || fabs(result.student.loss - loss) <= 0);
        loss = result.student.loss;
        distill_result_deinit(&result);
    }
}

static void a_student_that_says_the_same_of_all_is_refused(void **state)
{
    /* Proves: one that a large rate left without a living unit, with a finite loss, is not saved.
     */
    struct world *world = *state;
    const char *teacher = trained_file(world, "teacher", 1);
    struct distill_options options = options_of(&teacher, 1);
    struct distill_result result;
    struct fault why = {""};

    options.student = "linear:4 relu linear:classes";
    options.lr = 8;
    options.optimizer = "sgd";
    options.out_path = scratch_path(&world->scratch, "collapsed");
    assert_int_equal(distill_run(world->backend, &options, &result, &why), RC_NONFINITE);
    assert_non_null(strstr(why.text, "learnt nothing"));
    assert_false(file_is_there(options.out_path));
}

static void equal_seeds_give_equal_students(void **state)
{
    /* Proves: the student's file is the same to the bit for the same seed, and another for another;
     * a part of the samples is enough. */
    struct world *world = *state;
    const char *teacher = world_file(world, "teacher", "linear:classes", 1);
    const char *names[3] = {"first", "second", "third"};
    void *bytes[3];
    size_t counts[3];

    for (int i = 0; i < 3; i++) {
        struct distill_options options = options_of(&teacher, 1);
        struct distill_result result;
        options.seed = i < 2 ? 7 : 8;
        options.samples_max = 300;
        options.out_path = scratch_path(&world->scratch, names[i]);
        assert_int_equal(distill_run(world->backend, &options, &result, NULL), RC_OK);
        assert_int_equal(result.samples, 300);
        assert_int_equal(result.steps, 19); /* two epochs, the last batch full as all are */
        assert_int_equal(file_read(options.out_path, 1 << 20, &bytes[i], &counts[i], NULL), RC_OK);
        distill_result_deinit(&result);
    }
    assert_int_equal(counts[0], counts[1]);
    assert_memory_equal(bytes[0], bytes[1], counts[0]);
    assert_true(counts[0] != counts[2] || memcmp(bytes[0], bytes[2], counts[0]) != 0);
    for (int i = 0; i < 3; i++) {
        mem_free(bytes[i]);
    }
}

static void wrong_students_and_rates_are_one_clear_line(void **state)
{
    /* Proves: a layer list with a typo, an unknown optimizer and a rate that diverges are errors
     * with their reason, and leave no file. */
    struct world *world = *state;
    const char *teacher = world_file(world, "teacher", "linear:classes", 1);
    const char *out = scratch_path(&world->scratch, "never");
    struct distill_options options = options_of(&teacher, 1);
    struct distill_result result;
    struct fault why = {""};

    options.out_path = out;
    options.student = "linaer:classes";
    assert_int_equal(distill_run(world->backend, &options, &result, &why), RC_PARSE);
    assert_ptr_equal(strstr(why.text, "--student, column 1: "), why.text);
    options = options_of(&teacher, 1);
    options.out_path = out;
    options.optimizer = "newton";
    assert_int_equal(distill_run(world->backend, &options, &result, &why), RC_PARSE);
    options = options_of(&teacher, 1);
    options.out_path = out;
    options.student = "linear:8 relu linear:classes";
    options.schedule = "constant";
    options.optimizer = "sgd";
    options.alpha = 0;
    options.lr = 1e30;
    assert_int_equal(distill_run(world->backend, &options, &result, &why), RC_NONFINITE);
    assert_non_null(strstr(why.text, "--lr"));
    assert_false(file_is_there(out));
}

/* A student of an untrained one that listened to the labels alone, for `data`. */
static const char *trained_on(struct world *world, const char *name, const char *spec,
                              const char *data, double epochs, double *loss)
{
    const char *start = world_file_of(world, "untrained", spec, data, 16, 1);
    const char *path = scratch_path(&world->scratch, name);
    struct distill_options options = options_of(&start, 1);
    struct distill_result result;
    struct fault why = {""};

    options.alpha = 0;
    options.epochs = epochs;
    options.batch = 16;
    options.lr = 0.01;
    options.student = spec;
    options.optimizer = "adam";
    options.out_path = path;
    if (distill_run(world->backend, &options, &result, &why) != RC_OK) fail_msg("%s", why.text);
    *loss = result.student.loss;
    distill_result_deinit(&result);
    return path;
}

static void a_language_model_learns_from_another(void **state)
{
    /* Proves: with a = 1 a smaller student of a text learns each next token from the teacher alone,
     * whether answers are kept or asked for each time, to the same loss; its file says of which
     * text it is and evaluates. */
    struct world *world = *state;
    char data[256];
    double loss, kept = 0;

    world_text(world, "text", 5, data);
    const char *teacher =
        trained_on(world, "teacher", "embed:8 lstm:16 linear:classes", data, 30, &loss);
    assert_true(loss < 0.8 * log(5));
    for (int k = 0; k < 2; k++) {
        const char *out = scratch_path(&world->scratch, "student");
        struct distill_options options = options_of(&teacher, 1);
        struct distill_result result;
        struct comparison c;

        options.alpha = 1;
        options.epochs = 30;
        options.batch = 16;
        options.student = "embed:4 lstm:8 linear:classes";
        options.optimizer = "adam";
        options.lr = 0.02;
        options.out_path = out;
        options.answers_bytes_max = k == 0 ? 0 : 1000;
        assert_int_equal(distill_run(world->backend, &options, &result, NULL), RC_OK);
        assert_true(result.student.loss < 0.9 * log(5));
        if (k == 0) kept = result.student.loss;
        assert_true(fabs(result.student.loss - kept) < 0.02);
        const struct comparison_options again = {.paths = &out, .paths_count = 1, .seed = 1};
        assert_int_equal(comparison_run(world->backend, &again, &c, NULL), RC_OK);
        assert_true(fabs(score_loss(&c.models[0]) - result.student.loss) < 1e-6);
        assert_int_equal(c.card.symbols, 5);
        assert_int_equal(c.card.symbol_bytes[0], 'a');
        comparison_deinit(&c);
        struct json *json = distill_json(&result);
        double number;
        assert_true(json_get_real(json, "student_loss", &number) && number < log(5));
        assert_true(json_get_real(json, "ensemble_loss", &number));
        assert_int_equal(json_count(json_get(json, "teacher_loss")), 1);
        json_destroy(json);
        distill_result_deinit(&result);
    }
}

static void real_values_are_learned_from_the_teachers_mean(void **state)
{
    /* Proves: with a = 1 the student of a good teacher finds what the data's targets say; other
     * votes than the mean are refused by name. */
    struct world *world = *state;
    static const char data[] = "synthetic:least-squares,samples=600,outputs=2";
    double loss;
    const char *teacher = trained_on(world, "teacher", "linear:classes", data, 60, &loss);
    struct distill_options options = options_of(&teacher, 1);
    struct distill_result result;
    struct fault why = {""};

    assert_true(loss < 0.05);
    options.alpha = 1;
    options.epochs = 60;
    options.optimizer = "adam";
    options.lr = 0.02;
    assert_int_equal(distill_run(world->backend, &options, &result, &why), RC_OK);
    assert_true(result.student.loss < 0.1 && isnan(result.student.accuracy));
    struct json *json = distill_json(&result);
    char *text = json_format(json);
    assert_non_null(strstr(text, "\"student_accuracy\":null"));
    assert_null(strstr(text, "nan"));
    mem_free(text);
    json_destroy(json);
    distill_result_deinit(&result);
    options.vote = VOTE_LOGITS;
    assert_int_equal(distill_run(world->backend, &options, &result, &why), RC_USAGE);
    assert_non_null(strstr(why.text, "logits"));
}

static void each_head_of_a_student_learns(void **state)
{
    /* Proves: a student of several heads gets labels and answers for each of them. */
    struct world *world = *state;
    const char *teacher = trained_file(world, "teacher", 1);
    struct distill_options options = options_of(&teacher, 1);
    struct distill_result result;

    options.student = "linear:16 relu [ linear:16 relu linear:classes ]*3";
    options.epochs = 6;
    options.lr = 0.02;
    for (int k = 0; k < 2; k++) {
        options.alpha = k;
        assert_int_equal(distill_run(world->backend, &options, &result, NULL), RC_OK);
        assert_true(result.student.accuracy > 0.8);
        distill_result_deinit(&result);
    }
}

/* Stops when the student has taken so many steps. */
struct limit {
    uint64_t steps, stop;
    enum distill_phase phase;
};

static void on_limit(void *context, const struct distill_progress *progress)
{
    struct limit *limit = context;

    if (progress->phase == limit->phase) limit->steps = progress->done;
}

static bool is_reached(void *context)
{
    const struct limit *limit = context;

    return limit->steps >= limit->stop;
}

static void assert_same_bytes(const char *a, const char *b)
{
    void *bytes[2];
    size_t counts[2];

    assert_int_equal(file_read(a, 1 << 20, &bytes[0], &counts[0], NULL), RC_OK);
    assert_int_equal(file_read(b, 1 << 20, &bytes[1], &counts[1], NULL), RC_OK);
    assert_int_equal(counts[0], counts[1]);
    assert_memory_equal(bytes[0], bytes[1], counts[0]);
    mem_free(bytes[0]);
    mem_free(bytes[1]);
}

static void who_is_stopped_goes_on_to_the_same_bits(void **state)
{
    /* Proves: a student with statistics, moments, dropout, augmentation, clipping and accumulated
     * batches, stopped in its middle, ends with the bits of one that was not, of which the steps
     * before are not taken again; so does the control on labels alone; nothing is left beside the
     * file; other flags begin anew; a foreign state is refused and stays. */
    struct world *world = *state;
    char teacher[256], whole[256], parts[256], left[300], answers[300];
    struct limit limit = {0, UINT64_MAX, DISTILL_LEARNING};
    struct distill_result result;
    struct fault why = {""};
    double alone;

    snprintf(teacher, sizeof teacher, "%s", world_file(world, "teacher", "linear:classes", 1));
    snprintf(whole, sizeof whole, "%s", scratch_path(&world->scratch, "whole"));
    snprintf(parts, sizeof parts, "%s", scratch_path(&world->scratch, "parts"));
    snprintf(left, sizeof left, "%s.state", parts);
    snprintf(answers, sizeof answers, "%s.answers", parts);
    const char *teachers = teacher;
    struct distill_options options = options_of(&teachers, 1);
    options.student = "conv3x3:4 bn relu dropout:0.2 linear:classes";
    options.epochs = 3;
    options.samples_max = 400;
    options.augment = "crop:1";
    options.sees_plain = true;
    options.clip = 0.5;
    options.accumulate = 2;
    options.with_baseline = true;
    options.on_progress = on_limit;
    options.is_stopped = is_reached;
    options.context = &limit;
    options.out_path = whole;
    if (distill_run(world->backend, &options, &result, &why) != RC_OK) fail_msg("%s", why.text);
    assert_int_equal(result.steps, 19);
    assert_int_equal(result.resumed_steps, 0);
    alone = result.labels_only.loss;
    distill_result_deinit(&result);
    options.out_path = parts;
    limit = (struct limit){0, 8, DISTILL_LEARNING};
    assert_int_equal(distill_run(world->backend, &options, &result, &why), RC_CANCELLED);
    assert_non_null(strstr(why.text, "goes on"));
    assert_true(file_is_there(left) && file_is_there(answers) && !file_is_there(parts));
    limit = (struct limit){0, 2 * 19 - 4, DISTILL_BASELINE}; /* the second of its rates */
    assert_int_equal(distill_run(world->backend, &options, &result, &why), RC_CANCELLED);
    limit = (struct limit){0, UINT64_MAX, DISTILL_LEARNING};
    assert_int_equal(distill_run(world->backend, &options, &result, &why), RC_OK);
    assert_int_equal(result.resumed_steps, 19);
    assert_true(result.answers_were_there && limit.steps == 0);
    assert_true(fabs(result.labels_only.loss - alone) <= 0);
    distill_result_deinit(&result);
    assert_same_bytes(whole, parts);
    assert_false(file_is_there(left));
    assert_false(file_is_there(answers));
    limit = (struct limit){0, 8, DISTILL_LEARNING};
    options.with_baseline = false;
    assert_int_equal(distill_run(world->backend, &options, &result, &why), RC_CANCELLED);
    limit.stop = UINT64_MAX;
    options.lr = 0.03;
    assert_int_equal(distill_run(world->backend, &options, &result, &why), RC_OK);
    assert_int_equal(result.resumed_steps, 0);
    distill_result_deinit(&result);
    scratch_write(&world->scratch, "parts.state", "mine", 4);
    assert_int_equal(distill_run(world->backend, &options, &result, &why), RC_FORMAT);
    assert_non_null(strstr(why.text, "move it away"));
    assert_true(file_is_there(left));
}

/* The digits as IDX files, whose labels are twenty times as large, so of more classes. */
static void other_digits(struct world *world, char spec[420])
{
    static const char *const names[2] = {"train", "t10k"};
    const struct dataset_options opening = {.seed = 1};
    struct dataset *digits = NULL;
    struct samples samples[2] = {{0}, {0}};
    char path[400];

    assert_int_equal(dataset_open("digits", &opening, &digits, NULL), RC_OK);
    bool wanted[2 * DATASET_SMALL_BLOCKS];
    memset(wanted, 1, sizeof wanted);
    assert_int_equal(dataset_load_blocks(digits, wanted, &samples[0], NULL), RC_OK);
    assert_int_equal(dataset_load_test(digits, 0, &samples[1], NULL), RC_OK);
    snprintf(path, sizeof path, "%s/idx", world->scratch.folder);
    assert_int_equal(file_make_folder(path, NULL), RC_OK);
    snprintf(spec, 420, "idx:%s", path);
    for (int part = 0; part < 2; part++) {
        const uint32_t count = (uint32_t)samples[part].count;
        const uint8_t sizes[] = {0, 0, 8, 3, 0, 0, (uint8_t)(count >> 8), (uint8_t)count, 0, 0,
                                 0, 8, 0, 0, 0, 8};
        const uint8_t head[] = {0, 0, 8, 1, 0, 0, (uint8_t)(count >> 8), (uint8_t)count};
        uint8_t *labels = mem_alloc(count);
        for (uint32_t i = 0; i < count; i++) {
            labels[i] = (uint8_t)(20 * samples[part].small_labels[i]);
        }
        const struct piece images[] = {{sizes, sizeof sizes}, {samples[part].bytes, 64 * count}};
        const struct piece said[] = {{head, sizeof head}, {labels, count}};
        snprintf(path, sizeof path, "%s/idx/%s-images-idx3-ubyte", world->scratch.folder,
                 names[part]);
        assert_int_equal(file_replace(path, images, 2, 0644, NULL), RC_OK);
        snprintf(path, sizeof path, "%s/idx/%s-labels-idx1-ubyte", world->scratch.folder,
                 names[part]);
        assert_int_equal(file_replace(path, said, 2, 0644, NULL), RC_OK);
        mem_free(labels);
        samples_deinit(&samples[part]);
    }
    dataset_close(digits);
}

static void other_samples_teach_without_their_labels(void **state)
{
    /* Proves: a student learns the teachers' classes from a set with other ones, whose labels have
     * no effect; it is judged by --data, and its file says so; samples of another form, labels and
     * real values are refused by name. */
    struct world *world = *state;
    const char *teacher = trained_file(world, "teacher", 1);
    const char *out = scratch_path(&world->scratch, "student");
    struct distill_options options = options_of(&teacher, 1);
    struct distill_result result;
    struct fault why = {""};
    struct model_card card;
    char others[420];

    other_digits(world, others);
    options.alpha = 1;
    options.epochs = 8;
    options.out_path = out;
    options.transfer = others;
    assert_int_equal(distill_run(world->backend, &options, &result, &why), RC_OK);
    assert_true(result.student.accuracy > 0.85);
    assert_int_equal(comparison_card(out, &card, NULL), RC_OK);
    assert_string_equal(card.data, "digits");
    distill_result_deinit(&result);
    options.transfer = "synthetic:spirals";
    assert_int_equal(distill_run(world->backend, &options, &result, &why), RC_MISMATCH);
    assert_non_null(strstr(why.text, "--transfer synthetic:spirals"));
    options.transfer = "no-such";
    assert_int_equal(distill_run(world->backend, &options, &result, &why), RC_PARSE);
    options.transfer = "digits";
    options.alpha = 0.9;
    assert_int_equal(distill_run(world->backend, &options, &result, &why), RC_USAGE);
}

static void targets_views_and_weights_all_teach(void **state)
{
    /* Proves: hard targets, teachers that see the student's own view, and weights by confidence
     * each make a student that knows the digits; the table has every model with its costs. */
    struct world *world = *state;
    const char *teachers[2] = {trained_file(world, "a", 1), trained_file(world, "b", 2)};
    struct distill_options options = options_of(teachers, 2);
    struct distill_result result;
    struct fault why = {""};
    char other[300];

    snprintf(other, sizeof other, "another=%s", teachers[1]);
    const char *const others[] = {other};
    options.epochs = 6;
    options.alpha = 1;
    for (int k = 0; k < 3; k++) {
        options.is_hard = k == 0;
        options.augment = k == 1 ? "crop:1" : NULL;
        options.weighs_confidence = k == 2;
        options.others = others;
        options.others_count = k == 2 ? 1 : 0;
        if (distill_run(world->backend, &options, &result, &why) != RC_OK) fail_msg("%s", why.text);
        assert_true(result.student.accuracy > 0.8);
        assert_int_equal(result.lineup.count, k == 2 ? 9 : 8);
        for (size_t i = 0; i < result.lineup.count; i++) {
            const struct judged *judged = &result.lineup.rows[i].judged;
            assert_true(judged->parameters > 0 && judged->flops > 0 && judged->bytes > 0);
            assert_true(score_accuracy(&judged->score) > 0.8);
        }
        distill_result_deinit(&result);
    }
}

static void short_memory_leaks_nothing(void **state)
{
    /* Proves: whichever allocation fails, distilling fails or succeeds whole, and frees all. */
    struct world *world = *state;
    const char *teacher = world_file(world, "teacher", "linear:classes", 1);
    struct distill_options options = options_of(&teacher, 1);
    struct distill_result result;
    enum rc rc = RC_NOMEM;

    options.samples_max = 64;
    options.epochs = 1;
    options.with_baseline = true;
    for (uint64_t n = 0; rc != RC_OK; n++) {
        const uint64_t before = mem_blocks();
        mem_fail_after(n);
        rc = distill_run(world->backend, &options, &result, NULL);
        mem_fail_after(UINT64_MAX);
        if (rc == RC_OK) distill_result_deinit(&result);
        assert_int_equal(mem_blocks(), before);
        assert_true(n < 10000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_loss_has_the_golden_value_and_gradient),
        cmocka_unit_test(a_student_equal_to_its_teacher_has_nothing_to_learn),
        cmocka_unit_test(a_student_learns_from_teachers_without_labels),
        cmocka_unit_test(labels_alone_get_a_rate_of_their_own),
        cmocka_unit_test(a_batch_is_no_more_than_the_samples),
        cmocka_unit_test(a_student_that_says_the_same_of_all_is_refused),
        cmocka_unit_test(equal_seeds_give_equal_students),
        cmocka_unit_test(wrong_students_and_rates_are_one_clear_line),
        cmocka_unit_test(a_language_model_learns_from_another),
        cmocka_unit_test(real_values_are_learned_from_the_teachers_mean),
        cmocka_unit_test(each_head_of_a_student_learns),
        cmocka_unit_test(who_is_stopped_goes_on_to_the_same_bits),
        cmocka_unit_test(other_samples_teach_without_their_labels),
        cmocka_unit_test(targets_views_and_weights_all_teach),
        cmocka_unit_test(short_memory_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, world_set_up, world_tear_down);
}
