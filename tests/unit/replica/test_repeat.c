/* Steps that are taken again by another replica: equal to the bit if they were taken, without a
 * trace in who repeats them, and whatever they are said to begin with is hostile. */
#include "tests/unit/replica/learners.h"

#include "./base/check.h"
#include "replica/learners/repeat/repeat.h"

#define SMALL_MLP "linear:32 relu linear:classes"

/* An interval as the one who took it can tell of it. */
struct interval {
    struct repeat_state from, to;
    struct repeat_way way;
    uint32_t numbers[REPEAT_SAMPLES_MAX];
    float *agreed; /* NULL: no round came in */
};

static struct interval interval;

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

static struct digest digest_of(struct learner *learner)
{
    struct repeat_state state = {.step = 0};
    struct digest digest;

    assert_int_equal(repeat_take(learner, &state), RC_OK);
    digest = repeat_digest(&state);
    repeat_state_deinit(&state);
    return digest;
}

/* What a round comes to: something near. */
static float *mean_near(struct learner *learner)
{
    float *plane = values_of(learner, SECTION_MIXED);

    for (size_t i = 0; i < count_of(learner, SECTION_MIXED); i++) {
        plane[i] *= 0.99F;
    }
    return plane;
}

/* As apply steps do: the difference to what was told. */
static void apply(struct learner *learner, const float *told, const float *agreed)
{
    const size_t count = count_of(learner, SECTION_MIXED);
    float *difference = mem_array(count, sizeof *difference);

    for (size_t i = 0; i < count; i++) {
        difference[i] = agreed[i] - told[i];
    }
    assert_int_equal(learner->ops->import_section(learner, SECTION_MIXED, difference, count),
                     RC_OK);
    mem_free(difference);
}

/* `learner` takes `steps`, the mean comes in after `before` of them; UINT32_MAX: none does. */
static void take_interval(struct learner *learner, uint32_t steps, uint32_t before)
{
    mem_free(interval.agreed);
    interval.agreed = NULL;
    interval.way = (struct repeat_way){.steps = steps};
    assert_int_equal(repeat_take(learner, &interval.from), RC_OK);
    if (before <= steps) {
        float *told = values_of(learner, SECTION_MIXED);

        interval.agreed = mean_near(learner);
        interval.way.before = before;
        if (before > 0) train(learner, before);
        apply(learner, told, interval.agreed);
        mem_free(told);
    } else {
        before = 0;
    }
    if (steps > before) train(learner, steps - before);
    assert_int_equal(repeat_take(learner, &interval.to), RC_OK);
    assert_int_equal(repeat_samples(learner, &interval.from, &interval.to, interval.numbers,
                                    &interval.way.samples),
                     RC_OK);
    interval.way.numbers = interval.numbers;
    interval.way.agreed = interval.agreed;
}

static void forget_interval(void)
{
    repeat_state_deinit(&interval.from);
    repeat_state_deinit(&interval.to);
    mem_free(interval.agreed);
    interval.agreed = NULL;
}

static void check_repeated(struct backend *cpu, const struct replica_options *options)
{
    static const uint32_t befores[] = {UINT32_MAX, 0, 2, 5};
    struct replica_options other = neighbour_of(options);
    struct learner *a = make(cpu, options), *b = make(cpu, &other), *twin = make(cpu, &other);

    train(b, 3);
    train(twin, 3);
    for (size_t i = 0; i < ARRAY_COUNT(befores); i++) {
        struct digest end, again;

        train(a, 4);
        take_interval(a, 5, befores[i]);
        end = repeat_digest(&interval.to);
        assert_int_equal(repeat_again(b, &interval.from, &interval.way, &again), RC_OK);
        assert_true(digest_is_equal(end, again));
        assert_false(digest_is_equal(repeat_digest(&interval.from), again));
        train(b, 2);
        train(twin, 2);
        assert_true(digest_is_equal(digest_of(b), digest_of(twin)));
        check_equal(b, twin);
        if (options->ema > 0) {
            assert_memory_equal(replica_ema(b), replica_ema(twin),
                                count_of(b, SECTION_PARAMETERS) * sizeof(float));
        }
    }
    forget_interval();
    a->ops->destroy(a);
    b->ops->destroy(b);
    twin->ops->destroy(twin);
}

/* A neighbour with other samples and another model comes to the same bits, and goes on as if it had
 * not been asked, for all that steps keep: moments, statistics, dropout, accumulated gradients,
 * schedules, means, batches made ahead; a round's result on the way, or none. */
static void steps_that_were_taken_are_found_again(void **state)
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
    /* Fewer samples than a batch: each is in it more than once, and epochs end on the way. */
    options = options_of(SMALL_MLP);
    options.samples_max = 40;
    check_repeated(*state, &options);
    options.schedule = "grow:every=3,factor=2,max=8";
    check_repeated(*state, &options);
}

/* Whoever trains on all of the data has the samples of others in memory. */
static void samples_at_hand_are_not_read(void **state)
{
    struct replica_options options = options_of(SMALL_MLP), other;
    struct learner *a, *b;
    struct digest again;

    options.shard_of = NULL;
    options.shard = "all";
    other = neighbour_of(&options);
    other.shard_of = NULL;
    a = make(*state, &options);
    b = make(*state, &other);
    train(b, 1);
    take_interval(a, 4, 1);
    assert_int_equal(repeat_again(b, &interval.from, &interval.way, &again), RC_OK);
    assert_true(digest_is_equal(repeat_digest(&interval.to), again));
    forget_interval();
    a->ops->destroy(a);
    b->ops->destroy(b);
}

/* Looking changes nothing, with batches made ahead and without. */
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
            take_interval(a, 1, UINT32_MAX);
            assert_int_equal(interval.way.samples, 64);
            train(twin, 1);
        }
        assert_true(digest_is_equal(digest_of(a), digest_of(twin)));
        check_equal(a, twin);
        forget_interval();
        a->ops->destroy(a);
        twin->ops->destroy(twin);
    }
}

/* Whatever of an interval is changed, it leads elsewhere; and no step taken, or a step too few, is
 * another state. */
static void steps_that_were_not_taken_are_found_out(void **state)
{
    struct replica_options options = options_of(SMALL_MLP), other = neighbour_of(&options);
    struct learner *a = make(*state, &options), *b = make(*state, &other);
    struct digest begin, end, again;

    train(a, 5);
    take_interval(a, 3, 1);
    begin = repeat_digest(&interval.from);
    end = repeat_digest(&interval.to);
    for (int what = 0; what < 7; what++) {
        struct repeat_state from = interval.from;
        struct repeat_way way = interval.way;
        float *parameter = &from.planes[SECTION_PARAMETERS][100];
        float *moment = &from.planes[SECTION_MOMENTS][100];
        const float value = *parameter, kept = *moment;
        const uint32_t number = interval.numbers[7];

        if (what == 1) *parameter += 1e-3F;
        if (what == 2) *moment += 1e-3F;
        if (what == 3) interval.numbers[7] = (number + 1) % 1000;
        if (what == 4) way.agreed = NULL;
        if (what == 5) way.before++;
        if (what == 6) from.step++;
        assert_int_equal(digest_is_equal(repeat_digest(&from), begin),
                         what == 0 || (what >= 3 && what <= 5));
        assert_int_equal(repeat_again(b, &from, &way, &again), RC_OK);
        assert_int_equal(digest_is_equal(again, end), what == 0);
        *parameter = value;
        *moment = kept;
        interval.numbers[7] = number;
    }
    forget_interval();
    a->ops->destroy(a);
    b->ops->destroy(b);
}

/* What no honest replica says is refused before anything is computed with it, and who repeats has
 * its own model whatever comes. */
static void hostile_intervals_leave_no_trace(void **state)
{
    struct replica_options options = options_of(SMALL_MLP), other = neighbour_of(&options);
    struct learner *a = make(*state, &options), *b = make(*state, &other);
    struct digest untouched, again;

    train(a, 2);
    train(b, 2);
    untouched = digest_of(b);
    take_interval(a, 2, 1);
    const uint32_t samples = interval.way.samples;
    const struct {
        uint32_t steps, before, samples;
    } wrong[] = {{0, 0, 0},
                 {0, 0, samples},
                 {2, 3, samples},
                 {2, UINT32_MAX, samples},
                 {3, 1, samples},
                 {2, 1, samples - 1},
                 {2, 1, UINT32_MAX},
                 {REPEAT_STEPS_MAX + 1, 1, samples},
                 {REPEAT_STEPS_MAX, 1, REPEAT_STEPS_MAX * 64},
                 {UINT32_MAX, 1, samples}};

    for (size_t i = 0; i < ARRAY_COUNT(wrong); i++) {
        struct repeat_way way = interval.way;

        way.steps = wrong[i].steps;
        way.before = wrong[i].before;
        way.samples = wrong[i].samples;
        assert_int_equal(repeat_again(b, &interval.from, &way, &again), RC_FORMAT);
    }
    struct repeat_state lie = interval.from;
    lie.values[SECTION_MOMENTS]--;
    assert_int_equal(repeat_again(b, &lie, &interval.way, &again), RC_FORMAT);
    lie = interval.from;
    lie.recipe.bytes[0] ^= 1;
    assert_int_equal(repeat_again(b, &lie, &interval.way, &again), RC_MISMATCH);

    const uint32_t number = interval.numbers[0];
    interval.numbers[0] = UINT32_MAX;
    assert_int_equal(repeat_again(b, &interval.from, &interval.way, &again), RC_FORMAT);
    interval.numbers[0] = number;
    float *parameters = interval.from.planes[SECTION_PARAMETERS];
    const float value = parameters[3];
    parameters[3] = NAN;
    assert_int_equal(repeat_again(b, &interval.from, &interval.way, &again), RC_FORMAT);
    parameters[3] = value;
    for (size_t i = 0; i < interval.from.values[SECTION_PARAMETERS]; i++) {
        parameters[i] = 3e38F;
    }
    assert_int_equal(repeat_again(b, &interval.from, &interval.way, &again), RC_NONFINITE);
    assert_true(digest_is_equal(digest_of(b), untouched));
    forget_interval();
    train(b, 1);
    a->ops->destroy(a);
    b->ops->destroy(b);
}

/* Unequal recipes are no offence, and where bits cannot be equal nothing is compared. */
static void only_equal_recipes_are_compared(void **state)
{
    static const char *const unlike[] = {"lbfgs", "conv3x3:4 relu linear:classes"};
    struct replica_options options = options_of(SMALL_MLP), other;
    struct learner *a = make(*state, &options), *b;
    struct digest recipe, again;

    take_interval(a, 1, UINT32_MAX);
    for (int what = 0; what < 6; what++) {
        other = neighbour_of(&options);
        if (what == 0) other.lr = 1e-9; /* that is no training */
        if (what == 1) other.clip = 1;
        if (what == 2) other.batch = 32;
        if (what == 3) other.schedule = "step:every=1,gamma=0.5";
        if (what == 4) other.accumulate = 2;
        b = make(*state, &other);
        if (what == 5) b->ops->set_rate_factor(b, 0.5);
        assert_int_equal(repeat_recipe(b, &recipe), RC_OK);
        assert_false(digest_is_equal(recipe, interval.from.recipe));
        assert_int_equal(repeat_again(b, &interval.from, &interval.way, &again), RC_MISMATCH);
        b->ops->destroy(b);
    }
    a->ops->destroy(a);
    for (int what = 0; what < 2; what++) {
        options = options_of(what == 0 ? SMALL_MLP : unlike[1]);
        if (what == 0) options.optimizer = unlike[0];
        if (what == 1) options.augment = "crop:1";
        a = make(*state, &options);
        assert_int_equal(repeat_recipe(a, &recipe), RC_UNSUPPORTED);
        assert_int_equal(repeat_take(a, &interval.from), RC_UNSUPPORTED);
        assert_int_equal(interval.from.values[SECTION_PARAMETERS], 0);
        a->ops->destroy(a);
    }
    forget_interval();
}

/* Samples of a shard that is no longer there cannot be named, nor too many, nor any backwards. */
static void only_samples_of_this_shard_are_named(void **state)
{
    struct replica_options options = options_of(SMALL_MLP);
    struct peer_id members[3] = {{{1}}, {{2}}, {{3}}};
    struct learner *a;
    uint32_t count;

    options.shard_of = NULL;
    options.shard = "iid";
    a = make(*state, &options);
    assert_int_equal(a->ops->reshard(a, members[0], members, 2, NULL), RC_OK);
    take_interval(a, 2, UINT32_MAX);
    assert_int_equal(repeat_samples(a, &interval.to, &interval.from, interval.numbers, &count),
                     RC_LIMIT);
    train(a, REPEAT_SAMPLES_MAX / 64);
    assert_int_equal(repeat_take(a, &interval.to), RC_OK);
    assert_int_equal(repeat_samples(a, &interval.from, &interval.to, interval.numbers, &count),
                     RC_LIMIT);
    assert_int_equal(a->ops->reshard(a, members[0], members, 3, NULL), RC_OK);
    train(a, 1);
    assert_int_equal(repeat_samples(a, &interval.from, &interval.to, interval.numbers, &count),
                     RC_STALE);
    assert_int_equal(repeat_take(a, &interval.to), RC_OK);
    assert_int_equal(repeat_samples(a, &interval.from, &interval.to, interval.numbers, &count),
                     RC_STALE);
    forget_interval();
    a->ops->destroy(a);
}

/* Without memory nothing is taken and nothing said, and the model is as it was. */
static void memory_may_be_short(void **state)
{
    struct replica_options options = options_of(SMALL_MLP);
    struct learner *a = make(*state, &options);
    struct repeat_state taken = {.step = 0};
    struct digest before, again;
    enum rc rc = RC_NOMEM;

    train(a, 2);
    for (uint64_t n = 0; rc != RC_OK; n++) {
        mem_fail_after(n);
        rc = repeat_take(a, &taken);
        mem_fail_after(UINT64_MAX);
        if (rc != RC_OK) assert_int_equal(taken.values[SECTION_PARAMETERS], 0);
        assert_in_range(n, 0, 200);
    }
    repeat_state_deinit(&taken);
    take_interval(a, 2, 1);
    before = digest_of(a);
    rc = RC_NOMEM;
    for (uint64_t n = 0; rc != RC_OK; n++) {
        mem_fail_after(n);
        rc = repeat_again(a, &interval.from, &interval.way, &again);
        mem_fail_after(UINT64_MAX);
        assert_true(digest_is_equal(digest_of(a), before));
        assert_in_range(n, 0, 300);
    }
    assert_true(digest_is_equal(repeat_digest(&interval.to), again));
    forget_interval();
    a->ops->destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_that_were_taken_are_found_again),
        cmocka_unit_test(samples_at_hand_are_not_read),
        cmocka_unit_test(taking_changes_nothing),
        cmocka_unit_test(steps_that_were_not_taken_are_found_out),
        cmocka_unit_test(hostile_intervals_leave_no_trace),
        cmocka_unit_test(only_equal_recipes_are_compared),
        cmocka_unit_test(only_samples_of_this_shard_are_named),
        cmocka_unit_test(memory_may_be_short),
    };

    return cmocka_run_group_tests(tests, make_backend, drop_backend);
}
