/* task: what data ask of a model, what is refused, the score of several heads; how much of a long
 * text a report evaluates. */
#include "tests/unit/replica/data_files.h"

#include "base/check.h"
#include "kernels/cpu/cpu_backend.h"
#include "replica/replica.h"
#include "replica/task.h"

#include <math.h>

enum { BATCH = 5, CLASSES = 10, STEPS = 16 };

/* A dataset, and a model for it. */
struct scene {
    struct scratch scratch;
    struct backend *cpu;
    struct dataset *dataset;
    struct model *model;
    struct task task;
};

/* Opens the data; `@` stands for a folder with a text of 3,000 bytes. */
static void scene_init(struct scene *scene, const char *data)
{
    static const struct cpu_backend_options cpu = {.threads = 1};
    static const struct dataset_options options = {.seed = 1, .context = STEPS};
    static char text[3000];
    struct fault why = {""};

    for (size_t i = 0; i < sizeof(text); i++) {
        text[i] = "abcdefgh"[i * i % 7];
    }
    *scene = (struct scene){.cpu = cpu_backend_create(&cpu)};
    scratch_init(&scene->scratch);
    scratch_write(&scene->scratch, "text", text, sizeof(text));
    if (open_spec(&scene->scratch, data, &options, &scene->dataset, &why) != RC_OK) {
        fail_msg("%s", why.text);
    }
}

/* task_init() for a model of `spec`. */
static enum rc ask(struct scene *scene, const char *spec, struct fault *why)
{
    struct model_options options = {.spec = spec, .batch_max = BATCH, .with_gradients = true};
    const struct dataset_info *info = dataset_info(scene->dataset);

    task_describe(info, &options);
    if (model_create(scene->cpu, &options, &scene->model, why) != RC_OK) fail_msg("%s", why->text);
    return task_init(&scene->task, info, scene->model, BATCH, why);
}

static void scene_end(struct scene *scene)
{
    task_deinit(&scene->task);
    model_destroy(scene->model);
    dataset_close(scene->dataset);
    backend_destroy(scene->cpu);
    scratch_deinit(&scene->scratch);
}

static void check_refused(const char *data, const char *spec, const char *part)
{
    struct scene scene;
    struct fault why = {""};

    scene_init(&scene, data);
    assert_int_equal(ask(&scene, spec, &why), RC_SHAPE);
    if (strstr(why.text, part) == NULL) fail_msg("'%s' is not in '%s'", part, why.text);
    assert_null(scene.task.labels);
    scene_end(&scene);
}

static void models_that_answer_another_question_are_refused(void **state)
{
    (void)state;
    check_refused(
        "digits", "rows lstm:5 linear:classes",
        "gives 8 answers a sample, and the data asks for one; put 'last' before the last");
    check_refused("text:@/text", "embed:4 last linear:classes",
                  "the next token at each of 16 steps; leave 'last' out");
    check_refused("text:@/text", "linear:8 linear:classes", "begin the list with embed:N");
    check_refused("synthetic:least-squares", "[ linear:classes ]*2", "real values");
}

static void data_say_what_a_model_reads_and_gives(void **state)
{
    const struct {
        const char *data, *spec;
        uint32_t rows, outputs;
        enum model_input input;
    } cases[] = {
        {"digits", "linear:classes", 1, CLASSES, MODEL_INPUT_IMAGE},
        {"text:@/text", "embed:4 linear:classes", STEPS, 0, MODEL_INPUT_TOKENS},
        {"synthetic:parity", "embed:4 gru:4 last linear:classes", 1, 2, MODEL_INPUT_TOKENS},
        {"synthetic:least-squares,outputs=3", "linear:classes", 1, 3, MODEL_INPUT_IMAGE},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct scene scene;
        struct fault why = {""};
        struct model_options options = {0};
        struct model_card card;

        scene_init(&scene, cases[i].data);
        if (ask(&scene, cases[i].spec, &why) != RC_OK) fail_msg("%s", why.text);
        task_describe(dataset_info(scene.dataset), &options);
        assert_int_equal(options.input, cases[i].input);
        if (cases[i].outputs > 0) assert_int_equal(scene.task.outputs, cases[i].outputs);
        assert_int_equal(scene.task.rows, cases[i].rows);
        assert_int_equal(task_logits(&scene.task, 3), 3 * cases[i].rows * scene.task.outputs);
        task_card(dataset_info(scene.dataset), scene.model, &card);
        assert_string_equal(card.spec, cases[i].spec);
        assert_int_equal(card.input, cases[i].input);
        assert_true(card.is_regression == (scene.task.target == DATA_REALS));
        scene_end(&scene);
    }
}

/* The loss of several heads is the mean of theirs, and so is the gradient. */
static void heads_are_all_asked_the_same(void **state)
{
    struct scene scene;
    struct fault why = {""};
    struct batch batch;
    struct task_score score;
    enum { ROWS = BATCH, HEADS = 3 };
    float logits[ROWS][HEADS][CLASSES], gradient[ROWS][HEADS][CLASSES];
    double loss = 0.0;
    uint32_t hits = 0;

    (void)state;
    scene_init(&scene, "digits");
    if (ask(&scene, "[ linear:classes ]*3", &why) != RC_OK) fail_msg("%s", why.text);
    assert_int_equal(batch_init(&batch, dataset_info(scene.dataset), BATCH), RC_OK);
    batch.rows = BATCH;
    for (uint32_t r = 0; r < ROWS; r++) {
        batch.labels[r] = r * 3 % CLASSES;
        for (uint32_t i = 0; i < HEADS * CLASSES; i++) {
            logits[r][i / CLASSES][i % CLASSES] = (float)((r * 7 + i * i) % 11) / 5.0F;
        }
    }
    score = task_loss(&scene.task, &batch, &logits[0][0][0], &gradient[0][0][0]);
    for (uint32_t h = 0; h < HEADS; h++) {
        for (uint32_t r = 0; r < ROWS; r++) {
            float one[CLASSES];
            uint32_t hit = 0;
            loss += loss_cross_entropy(logits[r][h], &batch.labels[r], 1, CLASSES, one, &hit);
            hits += hit;
            for (uint32_t c = 0; c < CLASSES; c++) {
                assert_true(fabsf(gradient[r][h][c] * ROWS * HEADS - one[c]) < 1e-5F);
            }
        }
    }
    assert_true(fabs(score.loss - loss / (ROWS * HEADS)) < 1e-6);
    assert_int_equal(score.hits, hits);
    assert_int_equal(score.count, ROWS * HEADS);
    score = task_judge(&scene.task, &batch, &logits[0][0][0]); /* merged: one answer a sample */
    assert_int_equal(score.count, ROWS);
    batch_deinit(&batch);
    scene_end(&scene);
}

static void short_memory_is_reported(void **state)
{
    struct scene scene;
    struct fault why = {""};

    (void)state;
    scene_init(&scene, "digits");
    if (ask(&scene, "[ linear:classes ]*3", &why) != RC_OK) fail_msg("%s", why.text);
    task_deinit(&scene.task);
    mem_fail_after(0);
    assert_int_equal(task_init(&scene.task, dataset_info(scene.dataset), scene.model, BATCH, &why),
                     RC_NOMEM);
    mem_fail_after(UINT64_MAX);
    assert_non_null(strstr(why.text, "--batch"));
    scene_end(&scene);
}

static void accuracy_is_a_share_or_nothing(void **state)
{
    const struct task classes = {.target = DATA_CLASS}, reals = {.target = DATA_REALS};

    (void)state;
    assert_true(task_accuracy(&classes, 3, 4) == 0.75);
    assert_true(isnan(task_accuracy(&classes, 0, 0)));
    assert_true(isnan(task_accuracy(&reals, 3, 4)));
}

/* A report on a text evaluates about eight predictions for each sample asked for; 0: everything. */
static void long_samples_count_for_more_in_a_report(void **state)
{
    struct scene scene;
    struct learner *learner = NULL;
    struct replica_options options = {
        .model = "embed:4 positions:16 linear:classes", .batch = 4, .seed = 1, .threads = 1};
    struct evaluation evaluation;
    struct fault why = {""};
    char data[400];

    (void)state;
    scene_init(&scene, "text:@/text");
    snprintf(data, sizeof(data), "text:%s", scratch_path(&scene.scratch, "text"));
    options.data = data;
    if (replica_create(scene.cpu, &options, &learner, &why) != RC_OK) fail_msg("%s", why.text);
    assert_int_equal(learner->ops->evaluate(learner, 10, &evaluation), RC_OK);
    assert_int_equal(evaluation.samples, 10 * 8 / STEPS);
    assert_int_equal(learner->ops->evaluate(learner, 1, &evaluation), RC_OK);
    assert_int_equal(evaluation.samples, 1);
    assert_int_equal(learner->ops->evaluate(learner, 0, &evaluation), RC_OK);
    assert_int_equal(evaluation.samples, dataset_info(scene.dataset)->test_samples);
    assert_int_equal(learner->ops->evaluate(learner, 1000000, &evaluation), RC_OK);
    assert_int_equal(evaluation.samples, dataset_info(scene.dataset)->test_samples);
    learner->ops->destroy(learner);
    scene_end(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_that_answer_another_question_are_refused),
        cmocka_unit_test(data_say_what_a_model_reads_and_gives),
        cmocka_unit_test(heads_are_all_asked_the_same),
        cmocka_unit_test(short_memory_is_reported),
        cmocka_unit_test(accuracy_is_a_share_or_nothing),
        cmocka_unit_test(long_samples_count_for_more_in_a_report),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
