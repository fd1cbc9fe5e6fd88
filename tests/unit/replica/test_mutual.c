/* Learners that teach each other by their answers: what rounds mix, what is learned of it, and what
 * becomes of what others make up. */
#include "tests/unit/replica/learners.h"

#include "base/check.h"
#include "base/floats.h"
#include "replica/learners/mutual.h"
#include "replica/learners/quadratic.h"
#include "replica/model/model.h"

static struct replica_options options_of(const char *model, const struct mutual_options *mutual)
{
    return (struct replica_options){.model = model,
                                    .data = "digits",
                                    .shard_of = "0/2",
                                    .mutual = mutual,
                                    .seed = 3,
                                    .stream_seed = 4};
}

static const float *parameters_of(struct learner *learner)
{
    const float *values = NULL;

    assert_int_equal(model_host_plane(replica_model(learner), SECTION_PARAMETERS, &values), RC_OK);
    return values;
}

static size_t parameters_count(struct learner *learner)
{
    return model_schema(replica_model(learner))->values[SECTION_PARAMETERS];
}

static void are_one_model(struct learner *a, struct learner *b)
{
    assert_int_equal(parameters_count(a), parameters_count(b));
    assert_memory_equal(parameters_of(a), parameters_of(b), parameters_count(a) * sizeof(float));
}

/* A round of all: each hears the difference between the mean and what it told. */
static void mix(struct learner *const *learners, size_t count)
{
    const size_t values = count_of(learners[0], SECTION_MIXED);
    float *told[4], *difference = mem_array(values, sizeof(float));

    for (size_t i = 0; i < count; i++) {
        assert_int_equal(count_of(learners[i], SECTION_MIXED), values);
        told[i] = values_of(learners[i], SECTION_MIXED);
    }
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < values; k++) {
            double sum = 0;

            for (size_t j = 0; j < count; j++) {
                sum += (double)told[j][k];
            }
            difference[k] = (float)(sum / (double)count - (double)told[i][k]);
        }
        assert_int_equal(
            learners[i]->ops->import_section(learners[i], SECTION_MIXED, difference, values),
            RC_OK);
    }
    for (size_t i = 0; i < count; i++) {
        mem_free(told[i]);
    }
    mem_free(difference);
}

static struct digest digest_of(struct learner *learner)
{
    return schema_digest(learner->ops->schema(learner));
}

/* Nothing heard yet, a weight of 0, or not yet: the steps of a plain replica, to the bit. */
static void without_a_weight_it_is_a_plain_replica(void **state)
{
    const struct mutual_options cases[] = {
        {.weight = 1, .samples = 300},
        {.weight = 0, .samples = 300},
        {.weight = 1, .burn_steps = 100, .samples = 300},
    };

    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct replica_options options = options_of("mlp", NULL);
        struct learner *plain = make(*state, &options), *other;

        options.mutual = &cases[i];
        other = make(*state, &options);
        train(plain, 7);
        train(other, 6);
        if (i > 0) mix(&other, 1);
        train(other, 1);
        are_one_model(plain, other);
        other->ops->destroy(other);
        plain->ops->destroy(plain);
    }
}

/* Its own answers as targets: no gradient, so with no weight on labels nothing moves. */
static void who_hears_itself_stays_where_it_is(void **state)
{
    const struct mutual_options mutual = {.relabels = true, .weight = 1, .share = 1};
    struct replica_options options = options_of("mlp", &mutual);
    struct learner *learner;
    float *before;
    double most = 0;

    options.optimizer = "sgd:lr=0.5";
    learner = make(*state, &options);
    train(learner, 30);
    mix(&learner, 1);
    before = mem_array(parameters_count(learner), sizeof *before);
    memcpy(before, parameters_of(learner), parameters_count(learner) * sizeof *before);
    train(learner, 1);
    for (size_t i = 0; i < parameters_count(learner); i++) {
        most = fmax(most, fabs((double)before[i] - (double)parameters_of(learner)[i]));
    }
    assert_true(most < 1e-6);
    mem_free(before);
    learner->ops->destroy(learner);
}

static double apart(struct learner *a, struct learner *b)
{
    float *x = values_of(a, SECTION_MIXED), *y = values_of(b, SECTION_MIXED);
    const size_t count = count_of(a, SECTION_MIXED);
    double sum = 0;

    for (size_t i = 0; i < count; i++) {
        sum += fabs((double)x[i] - (double)y[i]);
    }
    mem_free(x);
    mem_free(y);
    return sum / (double)count;
}

static double accuracy_of(struct learner *learner)
{
    struct evaluation evaluation;

    assert_int_equal(learner->ops->evaluate(learner, 0, &evaluation), RC_OK);
    return evaluation.accuracy;
}

/* Networks of unlike layers with the data of unlike halves: what they answer comes nearer, and each
 * knows more of what the other has seen. */
static void unlike_networks_come_to_agree(void **state)
{
    static const char *const models[] = {"mlp", "conv3x3:8 relu maxpool2 linear:classes"};
    const struct mutual_options kinds[] = {{.weight = 2, .samples = 1000, .every_steps = 10},
                                           {.relabels = true, .weight = 0.5, .share = 1}};

    for (size_t k = 0; k < ARRAY_COUNT(kinds); k++) {
        double gap[2], score[2] = {0, 0};

        for (int teaches = 0; teaches < 2; teaches++) {
            struct learner *pair[2];

            for (size_t i = 0; i < 2; i++) {
                struct replica_options options = options_of(models[i], &kinds[k]);

                options.shard = "dirichlet:0.3";
                options.shard_of = i == 0 ? "0/2" : "1/2";
                options.model_seed = i + 1;
                pair[i] = make(*state, &options);
            }
            assert_true(digest_is_equal(digest_of(pair[0]), digest_of(pair[1])));
            for (int round = 0; round < 12; round++) {
                train(pair[0], 10);
                train(pair[1], 10);
                if (teaches) mix(pair, 2);
            }
            gap[teaches] = apart(pair[0], pair[1]);
            score[teaches] = accuracy_of(pair[0]) + accuracy_of(pair[1]);
            pair[0]->ops->destroy(pair[0]);
            pair[1]->ops->destroy(pair[1]);
        }
        assert_true(gap[1] < 0.9 * gap[0]);
        if (k == 0) assert_true(score[1] > score[0] + 0.05);
    }
}

/* Not of another probe set, however it came about; the same one by another way is the same. */
static void answers_fit_where_the_samples_are_the_same(void **state)
{
    const struct mutual_options one = {.weight = 1, .samples = 200},
                                fewer = {.weight = 1, .samples = 199},
                                named = {.weight = 3, .samples = 200, .probe = "digits"};
    struct replica_options options = options_of("mlp", &one);
    struct learner *a = make(*state, &options), *b;

    options.model_seed = 77;
    options.model = "linear:classes";
    options.mutual = &named;
    b = make(*state, &options);
    assert_true(digest_is_equal(digest_of(a), digest_of(b)));
    b->ops->destroy(b);
    options.mutual = &fewer;
    b = make(*state, &options);
    assert_false(digest_is_equal(digest_of(a), digest_of(b)));
    b->ops->destroy(b);
    options.mutual = &one;
    options.seed = 4;
    b = make(*state, &options);
    assert_false(digest_is_equal(digest_of(a), digest_of(b)));
    b->ops->destroy(b);
    a->ops->destroy(a);
}

/* With targets, in the middle of a period, of either kind, with moments and statistics. */
static void it_resumes_to_the_bit(void **state)
{
    const struct mutual_options kinds[] = {
        {.weight = 1, .samples = 100, .every_steps = 4},
        {.relabels = true, .weight = 0.5, .share = 0.7, .compress_steps = 6}};

    for (size_t k = 0; k < ARRAY_COUNT(kinds); k++) {
        struct replica_options options =
            options_of("conv3x3:8 bn relu maxpool2 dropout:0.2 linear:classes", &kinds[k]);
        struct learner *whole, *rest;
        struct tensor_file *file;
        float *targets;

        options.optimizer = "adamw";
        whole = make(*state, &options);
        train(whole, 5);
        mix(&whole, 1);
        train(whole, 2);
        file = saved(whole);
        targets = values_of(whole, SECTION_PARAMETERS);
        options.model_seed = 99; /* what it began with does not count */
        rest = resumed(*state, &options, targets, file);
        train(whole, 6);
        train(rest, 6);
        are_one_model(whole, rest);
        check_equal(whole, rest);
        mem_free(targets);
        tensor_file_destroy(file);
        whole->ops->destroy(whole);
        rest->ops->destroy(rest);
    }
}

static void a_model_of_other_layers_does_not_resume(void **state)
{
    const struct mutual_options mutual = {.weight = 1, .samples = 100};
    struct replica_options options = options_of("mlp", &mutual);
    struct learner *learner = make(*state, &options), *other;
    struct tensor_file *file;
    struct fault why = {""};

    train(learner, 1);
    file = saved(learner);
    options.model = "linear:classes";
    other = make(*state, &options);
    assert_int_equal(other->ops->load(other, file, &why), RC_MISMATCH);
    assert_non_null(strstr(why.text, "--model"));
    tensor_file_destroy(file);
    learner->ops->destroy(learner);
    other->ops->destroy(other);
}

/* Rows that are none are made distributions, or count for what one said oneself. */
static void what_is_no_distribution_becomes_one(void **state)
{
    const struct mutual_options options = {.weight = 1};
    const float own[] = {0.7F, 0.2F, 0.1F};
    const float made_up[][3] = {{-5, 1e30F, 0},        {NAN, 0, 0}, {INFINITY, 0, 0},
                                {-0.7F, -0.2F, -0.1F}, {1, 1, 1},   {0, 0, 0}};
    struct mutual mutual;

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(made_up); i++) {
        double sum = 0;

        assert_int_equal(mutual_init(&mutual, &options, 3, 3), RC_OK);
        mutual_hear(&mutual, made_up[i], 5);
        assert_true(mutual_weight(&mutual, 5) == 0); /* it told nothing */
        memcpy(mutual.own, own, sizeof own);
        mutual.has_own = true;
        mutual_hear(&mutual, made_up[i], 5);
        assert_true(mutual_weight(&mutual, 5) == 1);
        for (int k = 0; k < 3; k++) {
            assert_true(mutual.targets[k] >= 0 && mutual.targets[k] <= 1);
            sum += (double)mutual.targets[k];
        }
        assert_float_equal(sum, 1, 1e-5);
        if (i == 1 || i == 2 || i == 3 || i == 5) assert_memory_equal(mutual.targets, own, 12);
        mutual_deinit(&mutual);
    }
}

/* Zeros are what nobody has said yet; and after a round ec-dnn learns for so many steps. */
static void there_is_a_time_to_learn(void **state)
{
    const struct mutual_options options = {
        .relabels = true, .weight = 0.5, .burn_steps = 3, .compress_steps = 2};
    const float zeros[2] = {0, 0}, some[2] = {0.5F, 0.5F};
    struct mutual mutual;

    (void)state;
    assert_int_equal(mutual_init(&mutual, &options, 2, 2), RC_OK);
    mutual_take(&mutual, zeros, 4);
    assert_true(mutual_weight(&mutual, 4) == 0);
    mutual_take(&mutual, some, 2);
    assert_true(mutual_weight(&mutual, 2) == 0);
    assert_true(mutual_weight(&mutual, 3) == 0.5);
    assert_true(mutual_weight(&mutual, 4) == 0);
    mutual_take(&mutual, zeros, 4); /* a donor that had none */
    assert_true(mutual_weight(&mutual, 4) == 0);
    mutual_deinit(&mutual);
}

/* Of the training data only the own part is relabelled; other data are learned from whole. */
static void what_all_say_is_learned(void **state)
{
    const struct mutual_options kinds[] = {
        {.relabels = true, .weight = 1, .share = 1},
        {.weight = 50, .samples = 500, .probe = "digits"},
        {.relabels = true, .weight = 0.98, .samples = 500, .probe = "digits"}};

    for (size_t k = 0; k < ARRAY_COUNT(kinds); k++) {
        struct replica_options options = options_of("mlp", &kinds[k]);
        struct learner *learner = make(*state, &options);
        const size_t values = count_of(learner, SECTION_PARAMETERS);
        float *three = mem_array(values, sizeof *three);
        double share = 0;

        for (size_t i = 3; i < values; i += 10) {
            three[i] = 1;
        }
        assert_int_equal(learner->ops->assign_section(learner, SECTION_PARAMETERS, three, values),
                         RC_OK);
        train(learner, 60);
        mem_free(three);
        three = values_of(learner, SECTION_MIXED);
        for (size_t i = 3; i < values; i += 10) {
            share += three[i] > 0.5F;
        }
        share *= 10.0 / (double)values;
        assert_true(share > 0.95);
        mem_free(three);
        learner->ops->destroy(learner);
    }
}

static void it_goes_back_to_what_was_good(void **state)
{
    const struct mutual_options mutual = {.weight = 1, .samples = 50};
    struct replica_options options = options_of("conv3x3:4 bn relu linear:classes", &mutual);
    struct learner *learner = make(*state, &options);
    const size_t count = parameters_count(learner);
    float *good = mem_array(count, sizeof *good), *bad = mem_array(count, sizeof *bad);
    struct train_report report;

    train(learner, 5);
    assert_true(learner->ops->keeps_itself);
    assert_int_equal(learner->ops->keep(learner), RC_OK);
    memcpy(good, parameters_of(learner), count * sizeof *good);
    bad[0] = NAN;
    assert_int_equal(replica_begin_with(learner, SECTION_PARAMETERS, bad, count), RC_OK);
    assert_int_equal(learner->ops->keep(learner), RC_NONFINITE);
    assert_int_equal(learner->ops->train(learner, 1, NULL, &report), RC_NONFINITE);
    mem_free(bad);
    bad = mem_array(count_of(learner, SECTION_MIXED), sizeof *bad);
    assert_int_equal(
        learner->ops->export_section(learner, SECTION_MIXED, bad, count_of(learner, SECTION_MIXED)),
        RC_NONFINITE); /* nobody is told */
    assert_int_equal(learner->ops->restore(learner), RC_OK);
    assert_memory_equal(good, parameters_of(learner), count * sizeof *good);
    train(learner, 1);
    mem_free(good);
    mem_free(bad);
    learner->ops->destroy(learner);
}

static void what_cannot_be_asked_is_refused(void **state)
{
    const struct mutual_options some = {.weight = 1, .samples = 10},
                                other = {.weight = 1, .samples = 10, .probe = "synthetic:spirals"},
                                missing = {.weight = 1, .probe = "csv:/nowhere.csv,label=x"},
                                many = {.weight = 1, .samples = 10000000, .probe = "digits"};
    const struct {
        const struct mutual_options *mutual;
        const char *optimizer;
        uint32_t hogwild;
        enum rc rc;
        const char *text;
    } cases[] = {{&some, NULL, 2, RC_USAGE, "--hogwild"},
                 {&some, "lbfgs", 0, RC_USAGE, "lbfgs"},
                 {&other, NULL, 0, RC_MISMATCH, "--probe synthetic:spirals"},
                 {&missing, NULL, 0, RC_NOT_FOUND, "/nowhere.csv"},
                 {&many, NULL, 0, RC_LIMIT, "samples at most"}};

    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct replica_options options = options_of("mlp", cases[i].mutual);
        struct learner *learner = NULL;
        struct fault why = {""};

        options.optimizer = cases[i].optimizer;
        options.hogwild = cases[i].hogwild;
        assert_int_equal(replica_create(*state, &options, &learner, &why), cases[i].rc);
        if (strstr(why.text, cases[i].text) == NULL) fail_msg("%s", why.text);
        assert_null(learner);
    }
}

/* f(x) = 1/2 (x - c)^2 + w/2 (x - t)^2: at rest at (c + w t) / (1 + w); of two that hear each other
 * t is the mean of both, which is that of their centres. */
static void the_toy_comes_to_rest_where_the_formula_says(void **state)
{
    const struct mutual_options mutual = {.weight = 3};
    struct quadratic_options options = {.values = 20,
                                        .curvature = 1,
                                        .learning_rate = 0.1,
                                        .seed = 1,
                                        .centre_spread = 2,
                                        .mutual = &mutual};
    struct learner *pair[2];

    (void)state;
    for (uint64_t i = 0; i < 2; i++) {
        options.stream_seed = i;
        assert_int_equal(quadratic_create(&options, &pair[i]), RC_OK);
    }
    for (int round = 0; round < 200; round++) {
        train(pair[0], 4);
        train(pair[1], 4);
        mix(pair, 2);
    }
    for (size_t i = 0; i < 20; i++) {
        const double a = (double)quadratic_centre(pair[0])[i],
                     b = (double)quadratic_centre(pair[1])[i];

        assert_float_equal(quadratic_point(pair[0])[i], (a + 3 * (a + b) / 2) / 4, 1e-3);
    }
    pair[0]->ops->destroy(pair[0]);
    pair[1]->ops->destroy(pair[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_weight_it_is_a_plain_replica),
        cmocka_unit_test(who_hears_itself_stays_where_it_is),
        cmocka_unit_test(unlike_networks_come_to_agree),
        cmocka_unit_test(answers_fit_where_the_samples_are_the_same),
        cmocka_unit_test(it_resumes_to_the_bit),
        cmocka_unit_test(a_model_of_other_layers_does_not_resume),
        cmocka_unit_test(what_is_no_distribution_becomes_one),
        cmocka_unit_test(there_is_a_time_to_learn),
        cmocka_unit_test(what_all_say_is_learned),
        cmocka_unit_test(it_goes_back_to_what_was_good),
        cmocka_unit_test(what_cannot_be_asked_is_refused),
        cmocka_unit_test(the_toy_comes_to_rest_where_the_formula_says),
    };

    return cmocka_run_group_tests(tests, make_backend, drop_backend);
}
