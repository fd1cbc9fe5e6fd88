/* What others than training ask of a replica: a trunk for rounds, a score of another model, rates
 * that change. */
#include "tests/unit/replica/learners.h"

#define SMALL_CNN "conv3x3:16 relu maxpool2 linear:classes"

static struct replica_options options_of(const char *model)
{
    return (struct replica_options){
        .model = model, .data = "digits", .shard_of = "0/2", .seed = 3, .stream_seed = 4};
}

/* What rounds add changes a trunk, and of what lies behind it not a bit: parameters and statistics
 * alike. */
static void what_lies_behind_a_trunk_is_untouched(void **state)
{
    struct replica_options options =
        options_of("conv3x3:4 bn relu conv3x3:4 bn relu linear:classes");
    struct learner *learner;
    const struct schema *schema;
    float *before[2], *after[2], *mixed;
    size_t shared[2];

    options.trunk = 2;
    learner = make(*state, &options);
    schema = learner->ops->schema(learner);
    train(learner, 3);
    shared[0] = schema->shared_parameters;
    shared[1] = schema->shared_buffers;
    assert_true(shared[0] > 0 && shared[0] < count_of(learner, SECTION_PARAMETERS));
    assert_true(shared[1] == count_of(learner, SECTION_BUFFERS) / 2);
    assert_true(count_of(learner, SECTION_MIXED) == shared[0] + shared[1] + shared[1] / 2);
    before[0] = values_of(learner, SECTION_PARAMETERS);
    before[1] = values_of(learner, SECTION_BUFFERS);
    mixed = values_of(learner, SECTION_MIXED);
    assert_memory_equal(mixed, before[0], shared[0] * sizeof(float));
    for (size_t i = 0; i < count_of(learner, SECTION_MIXED); i++) {
        mixed[i] = 0.5F;
    }
    assert_int_equal(learner->ops->import_section(learner, SECTION_MIXED, mixed,
                                                  count_of(learner, SECTION_MIXED)),
                     RC_OK);
    after[0] = values_of(learner, SECTION_PARAMETERS);
    after[1] = values_of(learner, SECTION_BUFFERS);
    for (int k = 0; k < 2; k++) {
        const size_t count = count_of(learner, k == 0 ? SECTION_PARAMETERS : SECTION_BUFFERS);

        assert_memory_equal(after[k] + shared[k], before[k] + shared[k],
                            (count - shared[k]) * sizeof(float));
        for (size_t i = 0; i < shared[k]; i++) {
            assert_true(after[k][i] != before[k][i]);
        }
        mem_free(before[k]);
        mem_free(after[k]);
    }
    mem_free(mixed);
    learner->ops->destroy(learner);
}

/* A model that is validated leaves ours to the bit, and samples that are held out are in no shard.
 */
static void validating_another_model_changes_nothing(void **state)
{
    struct replica_options options = options_of(SMALL_CNN);
    struct learner *a, *b;
    struct evaluation own, other, again;
    struct digest part, same;
    float *parameters, *before, *after;
    uint64_t samples;

    a = make(*state, &options);
    assert_int_equal(a->ops->validate(a, NULL, &own, &part), RC_NOT_FOUND);
    samples = a->ops->shard_samples(a);
    a->ops->destroy(a);
    options.holds_out = true;
    options.ema = 0.9;
    a = make(*state, &options);
    assert_true(a->ops->shard_samples(a) < samples - 50);
    options.shard_of = "1/2";
    options.seed = 3;
    b = make(*state, &options);
    train(a, 20);
    train(b, 60);
    assert_int_equal(a->ops->validate(a, NULL, &own, &part), RC_OK);
    assert_in_range(own.samples, 100, 1000);
    parameters = values_of(b, SECTION_PARAMETERS);
    before = values_of(a, SECTION_PARAMETERS);
    const struct learner_model model = {.parameters = parameters};
    assert_int_equal(a->ops->validate(a, &model, &other, &same), RC_OK);
    assert_true(digest_is_equal(part, same));
    after = values_of(a, SECTION_PARAMETERS);
    assert_memory_equal(before, after, count_of(a, SECTION_PARAMETERS) * sizeof(float));
    assert_int_equal(b->ops->validate(b, NULL, &again, &same), RC_OK);
    assert_true(digest_is_equal(part, same)); /* of all that have one seed */
    assert_true(other.loss == again.loss && other.loss != own.loss);
    assert_int_equal(a->ops->validate(a, NULL, &again, &same), RC_OK);
    assert_true(again.loss == own.loss);
    assert_non_null(replica_ema(a));
    parameters[0] = NAN;
    assert_int_equal(a->ops->validate(a, &model, &other, &same), RC_OK);
    assert_true(!isfinite(other.loss));
    mem_free(parameters);
    mem_free(before);
    mem_free(after);
    b->ops->destroy(b);
    options.seed = 9;
    b = make(*state, &options);
    assert_int_equal(b->ops->validate(b, NULL, &again, &same), RC_OK);
    assert_false(digest_is_equal(part, same));
    a->ops->destroy(a);
    b->ops->destroy(b);
}

/* Rates are as they were given, and change what the next step does. */
static void rates_may_change_between_steps(void **state)
{
    struct replica_options options = options_of(SMALL_CNN);
    struct learner *a = make(*state, &options), *b;
    struct learner_rates rates = a->ops->rates(a);

    rates.rate *= 2;
    rates.decay = 1e-3;
    a->ops->set_rates(a, &rates);
    train(a, 5);
    options.optimizer = "momentum:wd=0.001";
    options.lr = rates.rate;
    b = make(*state, &options);
    train(b, 5);
    check_equal(a, b);
    a->ops->destroy(a);
    b->ops->destroy(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_lies_behind_a_trunk_is_untouched),
        cmocka_unit_test(validating_another_model_changes_nothing),
        cmocka_unit_test(rates_may_change_between_steps),
    };
    return cmocka_run_group_tests(tests, make_backend, drop_backend);
}
