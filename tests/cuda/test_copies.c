/*
 * copies: products read weights and biases in bfloat16, from copies that the update writes beside
 * the parameters. However these change, the next pass must see it: judging a model must say the
 * same as when the copies are made anew, which model_plane() asks for.
 */
#include "tests/cuda/models.h"

#include "replica/formats/model_file.h"
#include "replica/model/plan.h"

/* Tensors of odd lengths, so that few begin where an access of several values may; weights that are
 * made of parameters first; and a layer that has its weights from another. */
#define ODD "linear:37 gelu linear:23,wn=1 gelu linear:29,bias=0 tanh linear:classes"
#define TIED                                                                                       \
    "embed:24 positions:16 [ ln linear:36 gelu linear:24 ]+ ln linear:classes,tied=1,bias=1"

static struct learner *learner_of(struct backend *backend, const char *model, const char *data,
                                  const char *optimizer)
{
    const struct replica_options options = {.model = model,
                                            .data = data,
                                            .batch = 16,
                                            .shard = "all",
                                            .seed = 4,
                                            .stream_seed = 5,
                                            .optimizer = optimizer};

    return make(backend, &options);
}

static double loss_of(struct learner *learner)
{
    struct evaluation evaluation = {0};

    assert_int_equal(learner->ops->evaluate(learner, 64, &evaluation), RC_OK);
    parity_checks++;
    return evaluation.loss;
}

/* The copies of the first device's model are made anew by the next pass. */
static void forget_copies(struct learner *learner)
{
    assert_non_null(model_plane(replica_model(learner), SECTION_PARAMETERS));
}

static void check_current(struct learner *learner, const char *what)
{
    double got = loss_of(learner), wanted;

    forget_copies(learner);
    wanted = loss_of(learner);
    if (got != wanted) fail_msg("%s: loss %.9g with copies of %.9g", what, got, wanted);
}

/* --- what the update writes
 * ---------------------------------------------------------------------*/

static void check_steps(const char *model, const char *data, const char *optimizer)
{
    struct backend *first = side_open(ON_DEVICE, true), *second = side_open(ON_DEVICE, true);
    struct learner *a = learner_of(first, model, data, optimizer);
    struct learner *b = learner_of(second, model, data, optimizer);

    train(a, 6); /* the last three are recorded ones */
    for (int step = 0; step < 6; step++) {
        forget_copies(b);
        train(b, 1);
    }
    check_equal(a, b);
    check_current(a, optimizer);
    a->ops->destroy(a);
    b->ops->destroy(b);
    backend_destroy(first);
    backend_destroy(second);
}

static void every_optimizer_writes_them_as_a_conversion_does(void **state)
{
    static const char *const optimizers[] = {"sgd",  "momentum", "nesterov", "adagrad", "rmsprop",
                                             "adam", "adamw",    "lars",     "lamb",    "muon"};

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(optimizers); i++) {
        check_steps(ODD, "digits", optimizers[i]);
    }
}

/* Rows of the vocabulary are padded, and the embedding has the same weights in float32. */
static void a_shared_and_padded_matrix_is_written_once(void **state)
{
    struct scratch scratch;
    char data[512];

    (void)state;
    scratch_init(&scratch);
    snprintf(data, sizeof(data), "text:%s", text_made(&scratch));
    check_steps(TIED, data, "adamw");
    check_steps(TIED, data, "muon");
    scratch_deinit(&scratch);
}

/* What a pass reads are the copies: parameters that change behind its back, it does not see. */
static void passes_read_them_without_making_them(void **state)
{
    struct backend *backend = side_open(ON_DEVICE, true);
    struct learner *learner = learner_of(backend, "linear:24 gelu linear:classes", "digits", "sgd");
    size_t bytes = count_of(learner, SECTION_PARAMETERS) * sizeof(float);
    float *behind = model_plane(replica_model(learner), SECTION_PARAMETERS);
    double before;

    (void)state;
    train(learner, 5);
    before = loss_of(learner);
    assert_int_equal(backend->ops->zero(backend, behind, bytes), RC_OK);
    assert_true(loss_of(learner) == before);
    forget_copies(learner);
    assert_true(fabs(loss_of(learner) - log(10.0)) < 1e-3); /* that of knowing nothing */
    learner->ops->destroy(learner);
    backend_destroy(backend);
}

/* --- other ways of changing parameters
 * ----------------------------------------------------------*/

static float *shifted(struct learner *learner, enum section section, float by)
{
    float *values = values_of(learner, section);

    for (size_t i = 0; i < count_of(learner, section); i++) {
        values[i] += by;
    }
    return values;
}

static void change_by_assignment(struct learner *learner)
{
    float *values = shifted(learner, SECTION_PARAMETERS, 0.25F);

    assert_int_equal(learner->ops->assign_section(learner, SECTION_PARAMETERS, values,
                                                  count_of(learner, SECTION_PARAMETERS)),
                     RC_OK);
    mem_free(values);
}

static float *difference_of(struct learner *learner)
{
    size_t count = count_of(learner, SECTION_MIXED);
    float *difference = mem_array(count, sizeof(float));

    for (size_t i = 0; i < count; i++) {
        difference[i] = 0.05F * (float)(i % 7);
    }
    return difference;
}

static void change_by_a_difference(struct learner *learner)
{
    float *difference = difference_of(learner);

    assert_int_equal(learner->ops->import_section(learner, SECTION_MIXED, difference,
                                                  count_of(learner, SECTION_MIXED)),
                     RC_OK);
    mem_free(difference);
}

static void change_by_a_round(struct learner *learner)
{
    float *difference = difference_of(learner);
    struct snapshot *snapshot = NULL;

    assert_int_equal(learner->ops->snapshot_create(learner, CODEC_F32, 1000, &snapshot), RC_OK);
    assert_int_equal(learner->ops->snapshot_take(learner, snapshot), RC_OK);
    assert_int_equal(snapshot->ops->fetch(snapshot), RC_OK);
    assert_int_equal(snapshot->ops->put(snapshot, difference, count_of(learner, SECTION_MIXED)),
                     RC_OK);
    assert_int_equal(learner->ops->snapshot_apply(learner, snapshot, difference), RC_OK);
    snapshot->ops->destroy(snapshot);
    mem_free(difference);
}

/* To what the keep before the training was of. */
static void change_by_restoring(struct learner *learner)
{
    assert_int_equal(learner->ops->restore(learner), RC_OK);
}

static void change_by_a_step(struct learner *learner)
{
    float *gradient = shifted(learner, SECTION_PARAMETERS, 0.5F);

    assert_int_equal(learner->ops->step(learner, gradient), RC_OK);
    mem_free(gradient);
}

static void change_by_training(struct learner *learner)
{
    train(learner, 1);
}

static void check_ways(struct backend *backend)
{
    static const struct {
        const char *name;
        void (*change)(struct learner *learner);
    } ways[] = {
        {"assignment", change_by_assignment}, {"difference", change_by_a_difference},
        {"round", change_by_a_round},         {"restoring", change_by_restoring},
        {"step", change_by_a_step},           {"training", change_by_training},
    };
    struct learner *learner = learner_of(backend, ODD, "digits", "momentum");

    train(learner, 2);
    assert_int_equal(learner->ops->keep(learner), RC_OK);
    for (size_t i = 0; i < ARRAY_COUNT(ways); i++) {
        double before;
        train(learner, 4); /* now the copies are those of the update */
        before = loss_of(learner);
        ways[i].change(learner);
        if (loss_of(learner) == before) fail_msg("%s: not seen", ways[i].name);
        check_current(learner, ways[i].name);
    }
    learner->ops->destroy(learner);
}

static void however_parameters_change_passes_see_it(void **state)
{
    struct backend *backend = side_open(ON_DEVICE, true);

    (void)state;
    check_ways(backend);
    backend_destroy(backend);
}

static int make_devices(int count)
{
    struct virtual_options options;

    if (virtual_configure == NULL) return 0;
    options = virtual_options_default();
    options.devices = count;
    virtual_configure(&options);
    return 0;
}

static int make_two_devices(void **state)
{
    (void)state;
    return make_devices(2);
}

static int make_one_device(void **state)
{
    (void)state;
    return make_devices(1);
}

static void two_devices_see_it_too(void **state)
{
    struct fault why = {""};
    struct backend *pair = parity_device(2, true, &why);

    (void)state;
    if (pair == NULL) parity_leave_out("two devices: there is one");
    check_ways(pair);
    backend_destroy(pair);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_optimizer_writes_them_as_a_conversion_does),
    cmocka_unit_test(a_shared_and_padded_matrix_is_written_once),
    cmocka_unit_test(passes_read_them_without_making_them),
    cmocka_unit_test(however_parameters_change_passes_see_it),
    cmocka_unit_test_setup_teardown(two_devices_see_it_too, make_two_devices, make_one_device),
};

PARITY_MAIN("copies", tests)
