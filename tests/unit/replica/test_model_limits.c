/* Models too large for the machine, allocations that fail in turn, corners that a list may reach.
 */
#include "tests/check.h"

#include "base/check.h"
#include "base/mem.h"
#include "kernels/cpu/cpu_backend.h"
#include "replica/model/model.h"

enum { CLASSES = 4, BATCH = 6, BATCHES_MAX = 1 << 20 };

static struct backend *cpu_of(bool is_reference)
{
    struct cpu_backend_options options = {.threads = 1, .is_reference = is_reference};
    struct backend *cpu = cpu_backend_create(&options);

    assert_non_null(cpu);
    return cpu;
}

static struct model_options images(const char *spec)
{
    return (struct model_options){.spec = spec,
                                  .channels = 3,
                                  .height = 8,
                                  .width = 8,
                                  .classes = CLASSES,
                                  .batch_max = BATCH,
                                  .with_gradients = true};
}

static struct model_options tokens(const char *spec)
{
    return (struct model_options){.spec = spec,
                                  .channels = 1,
                                  .height = 1,
                                  .width = 5,
                                  .classes = CLASSES,
                                  .batch_max = BATCH,
                                  .with_gradients = true,
                                  .input = MODEL_INPUT_TOKENS};
}

static void check_too_large(struct backend *cpu, const struct model_options *options, enum rc rc,
                            const char *part)
{
    struct model *model = NULL;
    struct fault why = {""};
    uint64_t blocks = mem_blocks();

    assert_int_equal(model_create(cpu, options, &model, &why), rc);
    if (strstr(why.text, part) == NULL) fail_msg("'%s' is not in '%s'", part, why.text);
    assert_null(model);
    assert_true(mem_blocks() <= blocks + 2); /* the backend's scratch may have come to stay */
}

/* Terabytes are refused before anything of that size is asked for, in one line with figures. */
static void what_no_machine_holds_is_refused_at_once(void **state)
{
    struct backend *cpu = cpu_of(false);
    struct model_options options = images("(relu)*400 linear:classes");

    (void)state;
    options.batch_max = BATCHES_MAX;
    options.channels = 60;
    check_too_large(cpu, &options, RC_NOMEM, "MB for batches of 1048576, and ");
    options.channels = 65;
    check_too_large(cpu, &options, RC_LIMIT,
                    "'relu' gives more than 2^32 values in a batch of 1048576");
    options = images("linear:1000000 linear:1000000 linear:classes");
    check_too_large(cpu, &options, RC_LIMIT, "column 16: 'linear:1000000' makes the model larger");
    options = images("(linear:30000)*5 linear:classes");
    if (mem_available() < UINT64_C(28) << 30) {
        check_too_large(cpu, &options, RC_LIMIT, "column 2: 'linear:30000' makes the model take");
    }
    backend_destroy(cpu);
}

static void a_block_larger_than_what_is_left_is_not_taken(void **state)
{
    uint64_t there = mem_available();

    (void)state;
    assert_true(there > 0);
    if (there < SIZE_MAX / 2) assert_null(mem_aligned((size_t)there * 2));
}

static void check_allocations(struct backend *cpu, struct model_options options)
{
    uint64_t before = mem_blocks();
    bool is_done = false;

    for (uint64_t n = 0; !is_done && n < 2000; n++) {
        struct model *model = NULL;
        struct fault why = {""};
        enum rc rc;

        mem_fail_after(n);
        rc = model_create(cpu, &options, &model, &why);
        mem_fail_after(UINT64_MAX);
        is_done = rc == RC_OK;
        if (!is_done && (rc != RC_NOMEM || strstr(why.text, "memory") == NULL)) {
            fail_msg("allocation %u: %d '%s'", (unsigned)n, (int)rc, why.text);
        }
        assert_true(is_done || model == NULL);
        model_destroy(model);
        if (n == 0) before = mem_blocks() + 4; /* of the backend, which keeps what it grew */
        assert_true(mem_blocks() <= before);
    }
    assert_true(is_done);
}

static void every_failed_allocation_is_reported_and_leaks_nothing(void **state)
{
    struct backend *all[] = {cpu_of(true), cpu_of(false)};

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(all); i++) {
        check_allocations(all[i],
                          images("conv3x3:16 bn relu [ conv3x3:32,stride=2 bn relu conv3x3:32 bn | "
                                 "shortcut:32,stride=2 ]+ relu [ gn:4 local3x3:4 | conv3x3:4,wn=1 "
                                 "]concat maxpool2 [ linear:6,wn=1 linear:classes ]*2"));
        check_allocations(all[i],
                          tokens("embed:8 positions:5 [ ln attention:2 ]+ [ ln linear:16 gelu "
                                 "linear:8 ]+ lstm:4 gru:4 rnn:4 dropout:0.1 ln "
                                 "[ linear:classes ]*3"));
        backend_destroy(all[i]);
    }
}

/* A list may compute nothing: its answer is the sample itself, and there is nothing to learn. */
static void a_model_without_parameters_answers_with_its_input(void **state)
{
    static const float input[] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct backend *cpu = cpu_of(false);
    struct model_options options = images("rows");
    struct model *model = NULL;
    float logits[8] = {0};

    (void)state;
    options.channels = 1;
    options.height = 2;
    options.width = CLASSES;
    assert_int_equal(model_create(cpu, &options, &model, NULL), RC_OK);
    for (int is_training = 0; is_training < 2; is_training++) {
        memset(logits, 0, sizeof(logits));
        assert_int_equal(model_forward(model, input, 1, is_training == 1, logits), RC_OK);
        assert_memory_equal(logits, input, sizeof(input));
    }
    assert_int_equal(model_backward(model, logits), RC_OK);
    model_destroy(model);
    backend_destroy(cpu);
}

/* Blocks whose branches differ in how their backend lays images out, down to one pixel. */
static void layouts_of_branches_meet(void **state)
{
    static const char *const specs[] = {
        "conv3x3:16,stride=8 rows lstm:3 last linear:classes",
        "conv3x3:16,stride=8 [ conv1x1:16 | globalpool ]+ linear:classes",
        "conv3x3:16 [ conv3x3:32 | conv3x3:3 | conv3x3:16 ]concat maxpool2 linear:classes",
        "conv3x3:32,stride=8 [ conv1x1:16 | conv1x1:5 ]concat bn linear:classes",
    };
    struct backend *cpu = cpu_of(false);
    static float input[BATCH * 3 * 64], logits[BATCH * 2 * CLASSES];

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(specs); i++) {
        struct model_options options = images(specs[i]);
        struct model *model = NULL;
        struct fault why = {""};

        if (model_create(cpu, &options, &model, &why) != RC_OK) fail_msg("%s", why.text);
        assert_int_equal(model_forward(model, input, BATCH, true, logits), RC_OK);
        assert_int_equal(model_backward(model, logits), RC_OK);
        model_destroy(model);
    }
    backend_destroy(cpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_no_machine_holds_is_refused_at_once),
        cmocka_unit_test(a_block_larger_than_what_is_left_is_not_taken),
        cmocka_unit_test(every_failed_allocation_is_reported_and_leaks_nothing),
        cmocka_unit_test(a_model_without_parameters_answers_with_its_input),
        cmocka_unit_test(layouts_of_branches_meet),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
