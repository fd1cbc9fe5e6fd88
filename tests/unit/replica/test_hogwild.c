/* hogwild: one thread is sequential SGD, several learn as well, and what they do not do. */
#include "tests/unit/replica/learners.h"

#include "base/check.h"
#include "base/rng.h"
#include "tests/scratch.h"

enum { THREADS = 3, TEXT = 40000, LETTERS = 26 };

static struct replica_options options_of(const char *model)
{
    return (struct replica_options){.model = model,
                                    .data = "digits",
                                    .optimizer = "sgd:lr=0.1",
                                    .shard = "all",
                                    .batch = 32,
                                    .seed = 3,
                                    .stream_seed = 4};
}

/* Parameters, running statistics, report and resumed runs: to the bit. */
static void one_thread_is_sequential_sgd(void **state)
{
    static const char *const models[] = {
        "linear:24 relu dropout:0.2 linear:classes",
        "conv3x3:8 bn relu maxpool2 linear:classes",
    };

    for (size_t m = 0; m < ARRAY_COUNT(models); m++) {
        struct replica_options options = options_of(models[m]);
        struct learner *plain, *wild;
        struct train_report report, other;
        float *a, *b;

        options.optimizer = m == 0 ? "sgd:lr=0.1,wd=1e-3" : "sgd:lr=0.1";
        options.schedule = "cosine:warmup=4";
        options.steps_total = 40;
        options.clip = m == 0 ? 0.5 : 0.0;
        plain = make(*state, &options);
        options.hogwild = 1;
        wild = make(*state, &options);
        for (uint32_t steps = 1; steps < 8; steps++) {
            report = train(plain, steps);
            other = train(wild, steps);
            assert_true(report.loss_sum == other.loss_sum && report.step == other.step);
            assert_true(report.samples == other.samples);
            assert_true(report.correct_share == other.correct_share);
        }
        check_equal(plain, wild);
        a = values_of(plain, SECTION_BUFFERS);
        b = values_of(wild, SECTION_BUFFERS);
        if (m == 1) {
            assert_memory_equal(a, b, count_of(wild, SECTION_BUFFERS) * sizeof(float));
        }
        mem_free(a);
        mem_free(b);
        plain->ops->destroy(plain);
        wild->ops->destroy(wild);
    }
}

/* A text in which each letter says a good deal about the next. */
static void write_chain(struct scratch *scratch)
{
    char text[TEXT];
    struct rng rng;
    uint64_t at = 0;

    rng_init(&rng, 7, 0);
    for (int i = 0; i < TEXT; i++) {
        at = rng_unit(&rng) < 0.6 ? (at * 5 + 7) % LETTERS : rng_below(&rng, LETTERS);
        text[i] = (char)('a' + at);
    }
    scratch_write(scratch, "chain", text, sizeof(text));
}

static double final_loss(struct backend *cpu, const struct replica_options *options)
{
    struct learner *learner = make(cpu, options);
    struct evaluation evaluation;

    assert_int_equal(train(learner, 3000).step, 3000);
    assert_int_equal(learner->ops->evaluate(learner, 0, &evaluation), RC_OK);
    learner->ops->destroy(learner);
    return evaluation.loss;
}

/* Of 26 rows of the table a batch touches few: the loss is that of sequential SGD within 2 %. */
static void threads_learn_a_sparse_problem_as_well_as_one(void **state)
{
    struct replica_options options = options_of("embed:16 linear:classes");
    struct scratch scratch;
    char data[400];
    double sequential, wild;

    scratch_init(&scratch);
    write_chain(&scratch);
    snprintf(data, sizeof(data), "text:%s,context=4", scratch_path(&scratch, "chain"));
    options.data = data;
    options.batch = 2;
    options.optimizer = "sgd:lr=0.5";
    sequential = final_loss(*state, &options);
    options.hogwild = THREADS;
    wild = final_loss(*state, &options);
    assert_true(sequential < 0.8 * log(LETTERS)); /* it did learn */
    if (!(fabs(wild - sequential) < 0.02 * sequential)) {
        fail_msg("%g, sequential %g", wild, sequential);
    }
    scratch_deinit(&scratch);
}

/* Steps are counted over all threads, whatever their number; stop is honoured. */
static void steps_count_over_all_threads(void **state)
{
    struct replica_options options = options_of("linear:16 bn relu dropout:0.1 linear:classes");
    struct learner *learner;
    struct evaluation before, after;
    struct train_report report;
    atomic_bool stop = true;

    options.hogwild = THREADS;
    options.prefetch = PREFETCH_ON;
    learner = make(*state, &options);
    assert_int_equal(learner->ops->evaluate(learner, 0, &before), RC_OK);
    assert_int_equal(train(learner, 1).step, 1);
    report = train(learner, 200);
    assert_int_equal(report.step, 201);
    assert_int_equal(report.samples, 201 * 32);
    assert_true(report.correct_share > 0.2 && report.loss_sum > 0.0);
    assert_int_equal(learner->ops->train(learner, 5, &stop, &report), RC_OK);
    assert_true(report.steps == 0 && report.step == 201);
    assert_int_equal(learner->ops->evaluate(learner, 0, &after), RC_OK);
    assert_true(after.loss < 0.5 * before.loss);
    assert_int_equal(model_passes(replica_model(learner)), 201);
    learner->ops->destroy(learner);
}

static void a_model_that_is_no_longer_finite_stops_all_threads(void **state)
{
    struct replica_options options = options_of("mlp");
    struct learner *learner;
    struct train_report report = {0};

    options.optimizer = "sgd:lr=1e5";
    options.hogwild = THREADS;
    learner = make(*state, &options);
    assert_int_equal(learner->ops->train(learner, 1000, NULL, &report), RC_NONFINITE);
    learner->ops->destroy(learner);
}

/* A batch that cannot be read is no step: the dropout of the next one is as if it had not been. */
static void a_batch_that_fails_is_not_counted(void **state)
{
    struct replica_options options = options_of("embed:4 linear:classes");
    static const uint8_t numbers[] = {9, 0};
    struct learner *learner;
    struct train_report report = {0};
    struct scratch scratch;
    char data[400], text[4000];

    for (size_t i = 0; i < sizeof text; i++) {
        text[i] = (char)numbers[i % sizeof numbers]; /* all are 9, of tokens 0 to 4 */
    }
    scratch_init(&scratch);
    scratch_write(&scratch, "t", text, sizeof text);
    snprintf(data, sizeof data, "tokens:%s,context=4,symbols=5", scratch_path(&scratch, "t"));
    options.data = data;
    options.batch = 2;
    options.hogwild = 1;
    learner = make(*state, &options);
    assert_int_equal(learner->ops->train(learner, 3, NULL, &report), RC_FORMAT);
    assert_int_equal(model_passes(replica_model(learner)), 0);
    learner->ops->destroy(learner);
    scratch_deinit(&scratch);
}

static void check_refused(struct backend *cpu, const struct replica_options *options,
                          const char *part)
{
    struct learner *learner = NULL;
    struct fault why = {""};

    assert_int_equal(replica_create(cpu, options, &learner, &why), RC_USAGE);
    if (strstr(why.text, part) == NULL) fail_msg("'%s' is not in '%s'", part, why.text);
}

static void what_does_not_go_together_is_told(void **state)
{
    struct replica_options options = options_of("mlp");

    options.hogwild = 2;
    options.optimizer = "adam";
    check_refused(*state, &options, "add --optimizer sgd");
    options.optimizer = "sgd";
    options.accumulate = 2;
    check_refused(*state, &options, "leave --accumulate");
    options.accumulate = 1;
    options.schedule = "grow:every=5";
    check_refused(*state, &options, "--schedule grow");
    options.schedule = NULL;
    options.threads = 2;
    check_refused(*state, &options, "leave --threads out");
    options.threads = 1;
    options.hogwild = 65;
    check_refused(*state, &options, "from 1 to 64");
}

static void every_failed_allocation_is_reported_and_leaks_nothing(void **state)
{
    struct replica_options options = options_of("linear:8 relu linear:classes");
    uint64_t before = mem_blocks();
    bool is_done = false;

    options.hogwild = 2;
    for (uint64_t n = 0; !is_done; n++) {
        struct learner *learner = NULL;
        struct fault why = {""};
        enum rc rc;
        mem_fail_after(n);
        rc = replica_create(*state, &options, &learner, &why);
        mem_fail_after(UINT64_MAX);
        is_done = rc == RC_OK;
        if (is_done) learner->ops->destroy(learner);
        assert_true(rc == RC_OK || (rc == RC_NOMEM && why.text[0] != '\0'));
        assert_int_equal(mem_blocks(), before);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thread_is_sequential_sgd),
        cmocka_unit_test(threads_learn_a_sparse_problem_as_well_as_one),
        cmocka_unit_test(steps_count_over_all_threads),
        cmocka_unit_test(a_model_that_is_no_longer_finite_stops_all_threads),
        cmocka_unit_test(a_batch_that_fails_is_not_counted),
        cmocka_unit_test(what_does_not_go_together_is_told),
        cmocka_unit_test(every_failed_allocation_is_reported_and_leaks_nothing),
    };

    return cmocka_run_group_tests(tests, make_backend, drop_backend);
}
