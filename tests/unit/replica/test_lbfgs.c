/* lbfgs: known optima, a loss that never rises, states that resume to the bit. */
#include "tests/unit/replica/learners.h"

#include "base/check.h"
#include "replica/optimizer/lbfgs.h"
#include "replica/readers/synthetic.h"

enum { COUNT = 20, HISTORY = 5 };

/* A function to minimise. */
struct hill {
    float x[COUNT], gradient[COUNT];
    size_t count;
    enum { ROSENBROCK, BOWL, WALL, NOISE, BROKEN } kind;
    uint32_t evaluations;
};

static double rosenbrock(struct hill *h)
{
    double x = (double)h->x[0], y = (double)h->x[1], valley = y - x * x;

    h->gradient[0] = (float)(-2.0 * (1.0 - x) - 400.0 * x * valley);
    h->gradient[1] = (float)(200.0 * valley);
    return (1.0 - x) * (1.0 - x) + 100.0 * valley * valley;
}

/* Sum of (i + 1)^2 (x_i - i)^2. */
static double bowl(struct hill *h)
{
    double sum = 0.0;

    for (size_t i = 0; i < h->count; i++) {
        double weight = (double)((i + 1) * (i + 1)), off = (double)h->x[i] - (double)i;
        h->gradient[i] = (float)(2.0 * weight * off);
        sum += weight * off * off;
    }
    return sum;
}

/* x - ln x: there is nothing at and below 0. */
static enum rc wall(struct hill *h, double *loss)
{
    double x = (double)h->x[0];

    if (x <= 0.0) return RC_NONFINITE;
    h->gradient[0] = (float)(1.0 - 1.0 / x);
    *loss = x - log(x);
    return RC_OK;
}

static enum rc evaluate(void *context, double *loss)
{
    struct hill *h = context;

    h->evaluations++;
    switch (h->kind) {
    case ROSENBROCK:
        *loss = rosenbrock(h);
        return RC_OK;
    case BOWL:
        *loss = bowl(h);
        return RC_OK;
    case WALL:
        return wall(h, loss);
    case NOISE: /* a slope, but nowhere lower */
        h->gradient[0] = 1.0F;
        *loss = 1.0 + h->evaluations;
        return RC_OK;
    case BROKEN:
    default:
        return RC_DEVICE;
    }
}

static struct lbfgs *method_of(size_t count)
{
    const struct lbfgs_options options = {.history = HISTORY, .tries = 25};
    struct lbfgs *lbfgs = NULL;

    assert_int_equal(lbfgs_create(&options, count, &lbfgs, NULL), RC_OK);
    return lbfgs;
}

static struct lbfgs_report step(struct lbfgs *lbfgs, struct hill *h)
{
    const struct lbfgs_problem problem = {h->x, h->gradient, evaluate, h};
    struct lbfgs_report report;

    assert_int_equal(lbfgs_step(lbfgs, &problem, 1.0, &report), RC_OK);
    assert_true(report.after <= report.before);
    return report;
}

/* From Rosenbrock's own start to his minimum, falling all the way, in about as many evaluations as
 * the books need. */
static void the_banana_valley_is_followed_to_its_end(void **state)
{
    struct hill h = {.x = {-1.2F, 1.0F}, .count = 2, .kind = ROSENBROCK};
    struct lbfgs *lbfgs = method_of(2);
    double before = INFINITY;

    (void)state;
    for (int i = 0; i < 45; i++) {
        struct lbfgs_report report = step(lbfgs, &h);
        assert_true(report.before <= before);
        before = report.after;
    }
    assert_float_equal(h.x[0], 1.0, 1e-3);
    assert_float_equal(h.x[1], 1.0, 1e-3);
    assert_true(before < 1e-7 && h.evaluations < 100);
    lbfgs_destroy(lbfgs);
}

/* A quadratic of 20 values and condition 400, with a history of 5 pairs that wraps around. */
static void a_bowl_is_settled_to_float_precision(void **state)
{
    struct hill h = {.count = COUNT, .kind = BOWL};
    struct lbfgs *lbfgs = method_of(COUNT);

    (void)state;
    for (int i = 0; i < 80; i++) {
        step(lbfgs, &h);
    }
    for (size_t i = 0; i < COUNT; i++) {
        assert_float_equal(h.x[i], (double)i, 1e-4);
    }
    lbfgs_destroy(lbfgs);
}

static void what_is_no_number_is_too_far(void **state)
{
    struct hill h = {.x = {20.0F}, .count = 1, .kind = WALL};
    struct lbfgs *lbfgs = method_of(1);

    (void)state;
    for (int i = 0; i < 30; i++) {
        step(lbfgs, &h);
    }
    assert_float_equal(h.x[0], 1.0, 1e-3);
    lbfgs_destroy(lbfgs);
}

static void where_nothing_is_lower_it_stays(void **state)
{
    struct hill h = {.x = {3.0F}, .count = 1, .kind = NOISE};
    struct lbfgs *lbfgs = method_of(1);
    struct lbfgs_report report = step(lbfgs, &h);

    (void)state;
    assert_true(!report.has_moved && h.x[0] == 3.0F && report.evaluations <= 26);
    lbfgs_destroy(lbfgs);
}

/* The error of whoever computes is told, and the next step begins anew. */
static void a_broken_evaluation_is_told(void **state)
{
    struct hill h = {.x = {2.0F}, .count = 1, .kind = BROKEN};
    const struct lbfgs_problem problem = {h.x, h.gradient, evaluate, &h};
    struct lbfgs *lbfgs = method_of(1);
    struct lbfgs_report report;

    (void)state;
    assert_int_equal(lbfgs_step(lbfgs, &problem, 1.0, &report), RC_DEVICE);
    h.kind = WALL;
    h.x[0] = -1.0F;
    assert_int_equal(lbfgs_step(lbfgs, &problem, 1.0, &report), RC_NONFINITE);
    h.x[0] = 2.0F;
    step(lbfgs, &h);
    h.kind = BROKEN;
    assert_int_equal(lbfgs_step(lbfgs, &problem, 1.0, &report), RC_DEVICE);
    lbfgs_destroy(lbfgs);
}

static struct tensor_file *written(const struct lbfgs *lbfgs)
{
    struct tensor_file *file = tensor_file_create();

    assert_int_equal(lbfgs_save(lbfgs, file), RC_OK);
    return file;
}

/* At every moment of a run, with and without history. */
static void a_saved_state_goes_on_to_the_bit(void **state)
{
    (void)state;
    for (int before = 0; before < 12; before++) {
        struct hill h = {.count = COUNT, .kind = BOWL}, other;
        struct lbfgs *lbfgs = method_of(COUNT), *resumed = method_of(COUNT);
        struct tensor_file *file;

        for (int i = 0; i < before; i++) {
            step(lbfgs, &h);
        }
        other = h;
        file = written(lbfgs);
        assert_int_equal(lbfgs_load(resumed, file, NULL), RC_OK);
        for (int i = 0; i < 8; i++) {
            struct lbfgs_report a = step(lbfgs, &h), b = step(resumed, &other);
            assert_true(a.evaluations == b.evaluations && a.after == b.after);
        }
        assert_memory_equal(h.x, other.x, sizeof(h.x));
        tensor_file_destroy(file);
        lbfgs_destroy(lbfgs);
        lbfgs_destroy(resumed);
    }
}

enum { WORDS = 5 };

static void check_damaged(struct lbfgs *lbfgs, const uint64_t *words, const float *pairs,
                          size_t count, const float *gradient)
{
    struct tensor_file *file = tensor_file_create();
    struct fault why = {""};

    if (words != NULL) {
        assert_int_equal(tensor_file_add_u64_copy(file, "lbfgs.state", words, WORDS), RC_OK);
    }
    if (pairs != NULL) {
        assert_int_equal(tensor_file_add_f32(file, "lbfgs.pairs", pairs, count), RC_OK);
    }
    if (gradient != NULL) {
        assert_int_equal(tensor_file_add_f32(file, "lbfgs.gradient", gradient, 2), RC_OK);
    }
    assert_true(lbfgs_load(lbfgs, file, &why) != RC_OK && why.text[0] != '\0');
    tensor_file_destroy(file);
}

/* Whatever a file says, it is a state or it is refused, and then nothing has changed. */
static void a_damaged_state_is_refused(void **state)
{
    struct hill h = {.x = {-1.2F, 1.0F}, .count = 2, .kind = ROSENBROCK}, other = h;
    struct lbfgs *lbfgs = method_of(2), *untouched = method_of(2);
    uint64_t one[WORDS] = {HISTORY, 1, 1, 1, 0}, words[WORDS];
    float pairs[4] = {1.0F, 0.0F, 1.0F, 0.0F}, bad[4] = {1.0F, 0.0F, -1.0F, 0.0F};
    float nan[2] = {NAN, 0.0F};

    (void)state;
    step(lbfgs, &h);
    step(untouched, &other);
    check_damaged(lbfgs, NULL, pairs, 4, pairs);
    check_damaged(lbfgs, one, NULL, 0, pairs);
    check_damaged(lbfgs, one, pairs, 3, pairs);
    check_damaged(lbfgs, one, pairs, 4, NULL);
    check_damaged(lbfgs, one, pairs, 4, nan);
    check_damaged(lbfgs, one, bad, 4, pairs);
    for (int w = 0; w < WORDS; w++) {
        memcpy(words, one, sizeof(words));
        words[w] = w < 4 ? 7 : UINT64_C(0x7ff0000000000000);
        check_damaged(lbfgs, words, pairs, 4, pairs);
    }
    for (int i = 0; i < 5; i++) {
        step(lbfgs, &h);
        step(untouched, &other);
    }
    assert_memory_equal(h.x, other.x, sizeof(h.x));
    lbfgs_destroy(lbfgs);
    lbfgs_destroy(untouched);
}

static void too_much_memory_is_told(void **state)
{
    const struct lbfgs_options options = {.history = HISTORY, .tries = 25};
    struct lbfgs *lbfgs = NULL;
    struct fault why = {""};
    uint64_t before = mem_blocks();
    bool is_done = false;

    (void)state;
    assert_int_equal(lbfgs_create(&options, LBFGS_VALUES_MAX / 13 + 1, &lbfgs, &why), RC_LIMIT);
    assert_non_null(strstr(why.text, "smaller history="));
    for (uint64_t n = 0; !is_done; n++) {
        mem_fail_after(n);
        is_done = lbfgs_create(&options, 9, &lbfgs, &why) == RC_OK;
        mem_fail_after(UINT64_MAX);
        if (is_done) lbfgs_destroy(lbfgs);
        assert_int_equal(mem_blocks(), before);
    }
}

/* --- as an optimizer ----------------------------------------------------------------------------
 */

static struct replica_options options_of(const char *model, const char *data)
{
    return (struct replica_options){.model = model,
                                    .data = data,
                                    .optimizer = "lbfgs",
                                    .shard = "all",
                                    .batch = 100,
                                    .seed = 3,
                                    .stream_seed = 4};
}

/* Without noise the optimum is known: the loss is 0 there. */
static void least_squares_come_out_exactly(void **state)
{
    struct replica_options options =
        options_of("linear:classes", "synthetic:least-squares,features=8,samples=1000,condition=9");
    struct learner *learner = make(*state, &options);
    struct train_report report = train(learner, 15);
    struct evaluation evaluation;

    assert_int_equal(report.step, 15);
    assert_true(report.samples >= 16 * 1000);
    assert_int_equal(learner->ops->evaluate(learner, 0, &evaluation), RC_OK);
    assert_true(evaluation.loss < 1e-10);
    assert_int_equal(learner->ops->steps_of(learner, 2.5), 3); /* each is an epoch, or more */
    learner->ops->destroy(learner);
}

/* Also with decay, and with two threads, of which each sums up its part. */
static void the_loss_of_a_logistic_regression_falls_with_any_threads(void **state)
{
    for (uint32_t threads = 1; threads <= 2; threads++) {
        struct replica_options options = options_of("linear:classes", "digits");
        struct learner *learner;
        double before = 3.0, loss;

        options.threads = threads;
        options.optimizer = "lbfgs:wd=1e-3,history=4";
        learner = make(*state, &options);
        for (int i = 0; i < 20; i++) {
            loss = train(learner, 1).loss_sum;
            assert_true(loss < before);
            before = loss;
        }
        assert_true(loss < 0.6); /* of which the decay is a good part */
        learner->ops->destroy(learner);
    }
}

static void a_resumed_run_is_the_uninterrupted_run_to_the_bit(void **state)
{
    struct replica_options options =
        options_of("conv3x3:8 bn tanh maxpool2 linear:classes", "digits");

    for (uint32_t before = 0; before < 4; before++) {
        struct learner *whole = make(*state, &options), *rest;
        struct tensor_file *file;
        float *parameters, *buffers;

        train(whole, before);
        file = saved(whole);
        parameters = values_of(whole, SECTION_PARAMETERS);
        buffers = values_of(whole, SECTION_BUFFERS);
        rest = make(*state, &options);
        assert_int_equal(rest->ops->assign_section(rest, SECTION_BUFFERS, buffers,
                                                   count_of(rest, SECTION_BUFFERS)),
                         RC_OK);
        assert_int_equal(rest->ops->assign_section(rest, SECTION_PARAMETERS, parameters,
                                                   count_of(rest, SECTION_PARAMETERS)),
                         RC_OK);
        assert_int_equal(rest->ops->load(rest, file, NULL), RC_OK);
        assert_int_equal(train(whole, 4).samples, train(rest, 4).samples);
        check_equal(whole, rest);
        mem_free(parameters);
        mem_free(buffers);
        buffers = values_of(whole, SECTION_BUFFERS);
        parameters = values_of(rest, SECTION_BUFFERS);
        assert_memory_equal(buffers, parameters, count_of(rest, SECTION_BUFFERS) * sizeof(float));
        mem_free(parameters);
        mem_free(buffers);
        tensor_file_destroy(file);
        whole->ops->destroy(whole);
        rest->ops->destroy(rest);
    }
}

/* What a round changes is taken up: the loss is computed anew, and falls from there. */
static void differences_from_outside_are_noticed(void **state)
{
    struct replica_options options = options_of("linear:classes", "digits");
    struct learner *learner = make(*state, &options);
    size_t count = count_of(learner, SECTION_PARAMETERS);
    float *difference = mem_array(count, sizeof(float));
    struct train_report report;
    double low, worse;

    train(learner, 10);
    low = train(learner, 1).loss_sum;
    for (size_t i = 0; i < count; i++) {
        difference[i] = 0.5F * (float)sin((double)i);
    }
    assert_int_equal(learner->ops->import_section(learner, SECTION_PARAMETERS, difference, count),
                     RC_OK);
    worse = train(learner, 1).loss_sum;
    assert_true(worse > low);
    assert_true(train(learner, 10).loss_sum / 10.0 < worse);
    assert_int_equal(learner->ops->gradient(learner, difference, &report), RC_UNSUPPORTED);
    assert_int_equal(learner->ops->step(learner, difference), RC_UNSUPPORTED);
    mem_free(difference);
    learner->ops->destroy(learner);
}

static void check_refused(struct backend *cpu, const struct replica_options *options,
                          const char *part)
{
    struct learner *learner = NULL;
    struct fault why = {""};
    enum rc rc = replica_create(cpu, options, &learner, &why);

    assert_true(rc == RC_USAGE || rc == RC_LIMIT);
    if (strstr(why.text, part) == NULL) fail_msg("'%s' is not in '%s'", part, why.text);
}

static void what_does_not_go_together_is_told(void **state)
{
    struct replica_options options = options_of("linear:8 dropout:0.5 linear:classes", "digits");

    check_refused(*state, &options, "leave dropout");
    options.model = "linear:classes";
    options.clip = 1.0;
    check_refused(*state, &options, "leave --accumulate, --clip");
    options.clip = 0.0;
    options.hogwild = 2;
    check_refused(*state, &options, "--hogwild is for plain sgd");
    options.hogwild = 0;
    options.data = "synthetic:parity,samples=1048577,length=1";
    options.model = "embed:2 last linear:classes";
    check_refused(*state, &options, "1048577 samples are more than 1048576");
    options.data = "digits";
    options.model = "linear:classes";
    options.augment = "crop:1";
    check_refused(*state, &options, "--augment out");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_banana_valley_is_followed_to_its_end),
        cmocka_unit_test(a_bowl_is_settled_to_float_precision),
        cmocka_unit_test(what_is_no_number_is_too_far),
        cmocka_unit_test(where_nothing_is_lower_it_stays),
        cmocka_unit_test(a_broken_evaluation_is_told),
        cmocka_unit_test(a_saved_state_goes_on_to_the_bit),
        cmocka_unit_test(a_damaged_state_is_refused),
        cmocka_unit_test(too_much_memory_is_told),
        cmocka_unit_test(least_squares_come_out_exactly),
        cmocka_unit_test(the_loss_of_a_logistic_regression_falls_with_any_threads),
        cmocka_unit_test(a_resumed_run_is_the_uninterrupted_run_to_the_bit),
        cmocka_unit_test(differences_from_outside_are_noticed),
        cmocka_unit_test(what_does_not_go_together_is_told),
    };

    only_threads_for_their_sanitizer();
    return cmocka_run_group_tests(tests, make_backend, drop_backend);
}
