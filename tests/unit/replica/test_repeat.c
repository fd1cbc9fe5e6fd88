/* Steps that are taken again by another replica: equal to the bit if they were taken, without a
 * trace in who repeats them, and whatever a step is said to begin with is hostile. */
#include "tests/unit/replica/learners.h"

#include "replica/learners/repeat/repeat.h"

#define SMALL_MLP "linear:32 relu linear:classes"

static struct replica_options options_of(const char *model)
{
    return (struct replica_options){
        .model = model, .data = "digits", .shard_of = "0/2", .seed = 3, .stream_seed = 4};
}

/* The same recipe, and all else another: its samples, their order, its model. */
static struct replica_options neighbour_of(const struct replica_options *options)
{
    struct replica_options other = *options;

    other.shard_of = "1/2";
    other.stream_seed = 77;
    other.model_seed = 5;
    return other;
}

static struct repeat_step taken(struct learner *learner)
{
    struct repeat_step step = {.samples = 0};

    assert_int_equal(repeat_take(learner, &step), RC_OK);
    return step;
}

static struct digest end_of(struct learner *learner)
{
    struct digest end;

    assert_int_equal(repeat_end(learner, &end), RC_OK);
    return end;
}

static void check_repeated(struct backend *cpu, const struct replica_options *options)
{
    struct replica_options other = neighbour_of(options);
    struct learner *a = make(cpu, options), *b = make(cpu, &other), *twin = make(cpu, &other);

    train(b, 3);
    train(twin, 3);
    for (int i = 0; i < 3; i++) {
        struct digest end, again;
        train(a, 4);
        struct repeat_step step = taken(a);
        train(a, 1);
        end = end_of(a);
        assert_int_equal(repeat_again(b, &step, &again), RC_OK);
        assert_true(digest_is_equal(end, again));
        train(a, 1);
        assert_false(digest_is_equal(end_of(a), again)); /* it is of that step alone */
        repeat_step_deinit(&step);
        train(b, 2);
        train(twin, 2);
        assert_true(digest_is_equal(end_of(b), end_of(twin)));
        check_equal(b, twin);
        if (options->ema > 0) {
            assert_memory_equal(replica_ema(b), replica_ema(twin),
                                count_of(b, SECTION_PARAMETERS) * sizeof(float));
        }
    }
    a->ops->destroy(a);
    b->ops->destroy(b);
    twin->ops->destroy(twin);
}

/* A neighbour with other samples and another model comes to the same bits, and goes on as if it had
 * not been asked, for all that a step keeps: moments, statistics, dropout, accumulated gradients,
 * schedules, means, batches made ahead. */
static void a_step_that_was_taken_is_found_again(void **state)
{
    struct replica_options options = options_of(SMALL_MLP);

    check_repeated(*state, &options);
    options = options_of("conv3x3:8 bn relu maxpool2 dropout:0.3 linear:classes");
    options.optimizer = "adam:lr=0.003";
    options.clip = 0.5;
    check_repeated(*state, &options);
    options = options_of(SMALL_MLP);
    options.accumulate = 3;
    options.batch = 16;
    options.schedule = "cosine:warmup=0.2";
    options.steps_total = 40;
    options.ema = 0.9;
    check_repeated(*state, &options);
    options = options_of(SMALL_MLP);
    options.prefetch = PREFETCH_ON;
    options.optimizer = "muon";
    check_repeated(*state, &options);
    /* Fewer samples than a batch: each is in it more than once. */
    options = options_of(SMALL_MLP);
    options.samples_max = 40;
    check_repeated(*state, &options);
}

/* Looking at what comes next changes nothing, with batches made ahead and without. */
static void taking_changes_nothing(void **state)
{
    for (int ahead = 0; ahead < 2; ahead++) {
        struct replica_options options = options_of(SMALL_MLP);
        struct learner *a, *twin;

        options.prefetch = ahead == 1 ? PREFETCH_ON : PREFETCH_OFF;
        options.samples_max = 200; /* epochs end now and then */
        a = make(*state, &options);
        twin = make(*state, &options);
        for (int i = 0; i < 12; i++) {
            struct repeat_step step = taken(a);
            train(a, 1);
            train(twin, 1);
            assert_true(digest_is_equal(end_of(a), end_of(twin)));
            repeat_step_deinit(&step);
        }
        check_equal(a, twin);
        a->ops->destroy(a);
        twin->ops->destroy(twin);
    }
}

/* Whatever of a beginning is changed, it is another one, and leads elsewhere. */
static void a_step_that_was_not_taken_is_found_out(void **state)
{
    struct replica_options options = options_of(SMALL_MLP), other = neighbour_of(&options);
    struct learner *a = make(*state, &options), *b = make(*state, &other);
    struct digest begin, end, again;

    train(a, 5);
    const struct digest still = end_of(a);
    struct repeat_step step = taken(a);
    begin = repeat_begin(&step);
    train(a, 1);
    end = end_of(a);
    assert_int_equal(repeat_again(b, &step, &again), RC_OK);
    assert_true(digest_is_equal(again, end));
    assert_false(digest_is_equal(again, still)); /* the model as it was got */

    for (int what = 0; what < 5; what++) {
        struct repeat_step lie = step;
        const uint32_t number = step.numbers[7];
        const float value = step.planes[SECTION_PARAMETERS][100];
        const float moment = step.planes[SECTION_MOMENTS][100];

        if (what == 0) step.planes[SECTION_PARAMETERS][100] += 1e-3F;
        if (what == 1) step.planes[SECTION_MOMENTS][100] += 1e-3F;
        if (what == 2) step.numbers[7] = (number + 1) % 1000;
        if (what == 3) lie.factor *= 0.5;
        if (what == 4) lie.step++;
        assert_false(digest_is_equal(repeat_begin(&lie), begin));
        assert_int_equal(repeat_again(b, &lie, &again), RC_OK);
        assert_false(digest_is_equal(again, end));
        step.numbers[7] = number;
        step.planes[SECTION_PARAMETERS][100] = value;
        step.planes[SECTION_MOMENTS][100] = moment;
    }
    assert_true(digest_is_equal(repeat_begin(&step), begin));
    repeat_step_deinit(&step);
    a->ops->destroy(a);
    b->ops->destroy(b);
}

/* What no honest replica says is refused before anything is computed with it, and who repeats has
 * its own model whatever comes. */
static void hostile_steps_leave_no_trace(void **state)
{
    struct replica_options options = options_of(SMALL_MLP), other = neighbour_of(&options);
    struct learner *a = make(*state, &options), *b = make(*state, &other);
    struct digest untouched, again;

    train(a, 2);
    train(b, 2);
    untouched = end_of(b);
    struct repeat_step step = taken(a);
    const struct {
        uint32_t samples;
        double factor;
    } wrong[] = {{0, 1},
                 {step.samples - 1, 1},
                 {REPEAT_SAMPLES_MAX + step.samples, 1},
                 {UINT32_MAX, 1},
                 {step.samples, -1},
                 {step.samples, (double)NAN},
                 {step.samples, (double)INFINITY},
                 {step.samples, 1e7}};

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct repeat_step lie = step;
        lie.samples = wrong[i].samples;
        lie.factor = wrong[i].factor;
        assert_int_equal(repeat_again(b, &lie, &again), RC_FORMAT);
    }
    struct repeat_step lie = step;
    lie.values[SECTION_MOMENTS]--;
    assert_int_equal(repeat_again(b, &lie, &again), RC_FORMAT);
    lie = step;
    lie.samples = 2 * step.samples; /* there is no room here to sum up gradients */
    assert_int_equal(repeat_again(b, &lie, &again), RC_MISMATCH);
    lie = step;
    lie.recipe.bytes[0] ^= 1;
    assert_int_equal(repeat_again(b, &lie, &again), RC_MISMATCH);

    const uint32_t number = step.numbers[0];
    step.numbers[0] = UINT32_MAX;
    assert_int_equal(repeat_again(b, &step, &again), RC_FORMAT);
    step.numbers[0] = number;
    float *parameters = step.planes[SECTION_PARAMETERS];
    const float value = parameters[3];
    parameters[3] = NAN;
    assert_int_equal(repeat_again(b, &step, &again), RC_FORMAT);
    parameters[3] = value;
    for (size_t i = 0; i < step.values[SECTION_PARAMETERS]; i++) {
        parameters[i] = 3e38F;
    }
    assert_int_equal(repeat_again(b, &step, &again), RC_NONFINITE);
    assert_true(digest_is_equal(end_of(b), untouched));
    repeat_step_deinit(&step);
    train(b, 1);
    a->ops->destroy(a);
    b->ops->destroy(b);
}

/* Unequal recipes are no offence, and where bits cannot be equal nothing is compared. */
static void only_equal_recipes_are_compared(void **state)
{
    struct replica_options options = options_of(SMALL_MLP), other;
    struct learner *a = make(*state, &options), *b;
    struct digest recipe, again;
    struct repeat_step step;

    step = taken(a);
    for (int what = 0; what < 3; what++) {
        other = neighbour_of(&options);
        if (what == 0) other.lr = 1e-9; /* that is no training */
        if (what == 1) other.clip = 1;
        if (what == 2) other.batch = 32;
        b = make(*state, &other);
        assert_int_equal(repeat_recipe(b, &recipe), RC_OK);
        assert_false(digest_is_equal(recipe, step.recipe));
        assert_int_equal(repeat_again(b, &step, &again), RC_MISMATCH);
        b->ops->destroy(b);
    }
    repeat_step_deinit(&step);
    a->ops->destroy(a);
    options.optimizer = "lbfgs";
    a = make(*state, &options);
    assert_int_equal(repeat_recipe(a, &recipe), RC_UNSUPPORTED);
    assert_int_equal(repeat_take(a, &step), RC_UNSUPPORTED);
    assert_int_equal(repeat_end(a, &again), RC_UNSUPPORTED);
    a->ops->destroy(a);
    options = options_of("conv3x3:4 relu linear:classes");
    options.augment = "crop:1";
    a = make(*state, &options);
    assert_int_equal(repeat_recipe(a, &recipe), RC_UNSUPPORTED);
    a->ops->destroy(a);
}

/* Without memory nothing is taken and nothing said, and the model is as it was. */
static void memory_may_be_short(void **state)
{
    struct replica_options options = options_of(SMALL_MLP);
    struct learner *a = make(*state, &options);
    struct repeat_step step = {.samples = 0};
    struct digest before, again;
    enum rc rc = RC_NOMEM;

    train(a, 2);
    before = end_of(a);
    for (uint64_t n = 0; rc != RC_OK; n++) {
        mem_fail_after(n);
        rc = repeat_take(a, &step);
        mem_fail_after(UINT64_MAX);
        if (rc != RC_OK) assert_int_equal(step.samples, 0);
        assert_in_range(n, 0, 100);
    }
    rc = RC_NOMEM;
    for (uint64_t n = 0; rc != RC_OK; n++) {
        mem_fail_after(n);
        rc = repeat_again(a, &step, &again);
        mem_fail_after(UINT64_MAX);
        assert_true(digest_is_equal(end_of(a), before));
        assert_in_range(n, 0, 200);
    }
    train(a, 1);
    assert_true(digest_is_equal(end_of(a), again));
    repeat_step_deinit(&step);
    a->ops->destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_that_was_taken_is_found_again),
        cmocka_unit_test(taking_changes_nothing),
        cmocka_unit_test(a_step_that_was_not_taken_is_found_out),
        cmocka_unit_test(hostile_steps_leave_no_trace),
        cmocka_unit_test(only_equal_recipes_are_compared),
        cmocka_unit_test(memory_may_be_short),
    };

    return cmocka_run_group_tests(tests, make_backend, drop_backend);
}
