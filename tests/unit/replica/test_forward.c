/* Passes forward alone: what is prepared once, what is not kept, teams that share values, and texts
 * gone through position by position. */
#include "tests/check.h"

#include "replica/learners/team.h"
#include "replica/model/plan.h"
#include "tests/unit/replica/model_tokens.h"

static const char images[] = "conv3x3:8 bn relu maxpool2 [ conv3x3:8 bn ]+ relu linear:classes";

static struct model *make_images(struct backend *cpu, uint32_t batch, bool with_gradients)
{
    const struct model_options options = {.spec = images,
                                          .channels = 2,
                                          .height = 8,
                                          .width = 8,
                                          .classes = SYMBOLS,
                                          .batch_max = batch,
                                          .seed = 3,
                                          .with_gradients = with_gradients};
    struct model *model = NULL;
    struct fault why = {""};

    if (model_create(cpu, &options, &model, &why) != RC_OK) fail_msg("%s", why.text);
    return model;
}

static void fill(float *values, size_t count, uint64_t seed)
{
    struct rng rng;

    rng_init(&rng, seed, 2);
    for (size_t i = 0; i < count; i++) {
        values[i] = (float)rng_normal(&rng);
    }
}

/* How often the first stage was prepared. */
static struct counted {
    const struct stage_ops *ops;
    int times;
} counted;

static enum rc count_prepare(struct model *model, struct stage *stage, bool is_training)
{
    counted.times++;
    return counted.ops->prepare(model, stage, is_training);
}

/* Proves: evaluation prepares stages once, and again after whatever may have changed parameters or
 * running statistics: model_plane(), model_set_plane(), a training pass; the last is seen, too. */
static void what_is_made_of_parameters_is_made_once_a_version(void **state)
{
    struct backend *cpu = cpu_of_kind(false);
    struct model *model = make_images(cpu, 4, true);
    const size_t count = model_schema(model)->values[SECTION_PARAMETERS];
    float input[4 * 128], logits[4 * SYMBOLS], before[4 * SYMBOLS], *kept;
    struct stage_ops ops = *model->stages[0].ops;

    (void)state;
    kept = mem_array(count, sizeof(float));
    assert_non_null(kept);
    fill(input, ARRAY_COUNT(input), 1);
    counted = (struct counted){model->stages[0].ops, 0};
    ops.prepare = count_prepare;
    model->stages[0].ops = &ops;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(model_forward(model, input, 1 + (uint32_t)i, false, logits), RC_OK);
    }
    assert_int_equal(counted.times, 1);
    assert_int_equal(model_forward(model, input, 4, false, before), RC_OK);
    memcpy(kept, model_plane(model, SECTION_PARAMETERS), count * sizeof(float));
    memset(model_plane(model, SECTION_PARAMETERS), 0, count * sizeof(float));
    assert_int_equal(model_forward(model, input, 4, false, logits), RC_OK);
    assert_int_equal(counted.times, 2);
    assert_true(logits[0] == 0.0F);
    assert_int_equal(model_set_plane(model, SECTION_PARAMETERS, kept), RC_OK);
    assert_int_equal(model_forward(model, input, 4, false, logits), RC_OK);
    assert_int_equal(counted.times, 3);
    assert_memory_equal(logits, before, sizeof(logits));
    assert_int_equal(model_forward(model, input, 4, true, logits), RC_OK);
    assert_int_equal(model_forward(model, input, 4, true, logits), RC_OK);
    assert_int_equal(counted.times, 5); /* each training pass */
    assert_int_equal(model_forward(model, input, 4, false, logits), RC_OK);
    assert_int_equal(counted.times, 6);
    assert_true(distance(logits, before, ARRAY_COUNT(logits)) > 1e-3); /* by the statistics */
    mem_free(kept);
    model->stages[0].ops = counted.ops;
    model_destroy(model);
    backend_destroy(cpu);
}

/* Proves: a model for passes forward alone has no gradients, nothing saved and no room for a way
 * back, and answers with the same bits as one that is trained does in evaluation. */
static void nothing_is_kept_for_a_way_back_that_does_not_come(void **state)
{
    struct backend *cpu = cpu_of_kind(false);
    struct model *trained = make_images(cpu, 9, true), *alone = make_images(cpu, 9, false);
    struct model_memory both, one;
    float input[9 * 128], a[9 * SYMBOLS], b[9 * SYMBOLS];

    (void)state;
    model_memory(trained, &both);
    model_memory(alone, &one);
    assert_true(one.gradients == 0 && one.moments == 0 &&
                model_plane(alone, SECTION_GRADIENT) == NULL);
    assert_true(one.parameters == both.parameters && one.activations < both.activations / 2);
    for (uint32_t s = 0; s < alone->stages_count; s++) {
        assert_null(alone->saved[s]);
    }
    for (uint32_t i = 0; i < alone->buffers_count; i++) {
        assert_true(alone->buffers[i].bytes == 0 || alone->buffers[i].kind == BUFFER_VALUE);
    }
    fill(input, ARRAY_COUNT(input), 4);
    assert_int_equal(model_forward(trained, input, 9, false, a), RC_OK);
    assert_int_equal(model_forward(alone, input, 9, false, b), RC_OK);
    assert_memory_equal(a, b, sizeof(a));
    model_destroy(trained);
    model_destroy(alone);
    backend_destroy(cpu);
}

/* Proves: threads around a model share its values, also those that it gets later, and answer as it
 * does alone; each takes up to a batch of its own. */
static void threads_around_a_model_answer_as_it_does(void **state)
{
    float input[12 * 128], want[2][12 * SYMBOLS], logits[12 * SYMBOLS];

    (void)state;
    fill(input, ARRAY_COUNT(input), 8);
    for (uint32_t threads = 1; threads <= 3; threads++) {
        struct backend *cpu = cpu_of_kind(false);
        struct team_around around = {make_images(cpu, 4, false), cpu, threads};
        struct team *team = NULL;

        for (int change = 0; change < 2; change++) {
            struct model *model = change == 0 ? around.model : team_model(team);
            if (change == 1) model_plane(model, SECTION_PARAMETERS)[0] += 1.0F;
            for (uint32_t i = 0; i < 12; i += 4) {
                assert_int_equal(
                    model_forward(model, input + 128 * i, 4, false, want[change] + SYMBOLS * i),
                    RC_OK);
            }
            if (change == 0) assert_int_equal(team_around(&around, &team, NULL), RC_OK);
            assert_int_equal(team_threads(team), threads);
            assert_int_equal(team_forward(team, input, 4 * threads, false, logits), RC_OK);
            assert_true(distance(logits, want[change], 4 * threads * SYMBOLS) < 1e-6);
        }
        assert_true(distance(want[0], want[1], 12 * SYMBOLS) > 1e-4);
        team_destroy(team);
    }
}

/* --- step by step -------------------------------------------------------------------------------
 */

static const char *const texts[] = {
    "embed:12 positions:20 [ ln attention:3 ]+ [ ln linear:16 gelu linear:12 ]+ ln linear:classes",
    "embed:8 attention:2,rotary=1 attention:1 relu dropout:0.5 ln linear:classes,tied=1",
    "embed:6 lstm:5 lstm:9 linear:classes",
    "embed:6 gru:7 linear:classes",
    "embed:6 rnn:7 bn linear:classes",
    "embed:5 [ gru:4 | lstm:3 | ]concat [ linear:classes ]*3"};

static struct model *stepwise(struct backend *cpu, const char *spec, uint32_t steps,
                              struct fault *why)
{
    struct model_options options = token_options(spec, steps);
    struct model *model = NULL;

    options.with_gradients = false;
    options.is_stepwise = true;
    options.batch_max = 6;
    return model_create(cpu, &options, &model, why) == RC_OK ? model : NULL;
}

/* Proves: a text gone through position by position, or some at a time, gets the logits that it gets
 * as a whole, from attention (learned and rotary positions) and recurrent layers; and again after a
 * rewind; the likeliest next token, and so what is generated, is the same. */
static void a_text_step_by_step_is_the_text_as_a_whole(void **state)
{
    enum { STEPS = 20 };
    static const uint32_t cuts[][STEPS] = {
        {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
        {6, 6, 6, 2},
        {5, 1, 1, 4, 3, 6}};
    struct tokens t;

    (void)state;
    tokens_init(&t, 3);
    for (size_t k = 0; k < ARRAY_COUNT(texts); k++) {
        struct backend *cpu = cpu_of_kind(false);
        struct fault why = {""};
        struct model *whole = make(cpu, texts[k], STEPS);
        struct model *steps = stepwise(cpu, texts[k], STEPS, &why);
        float logits[STEPS * SYMBOLS];

        if (steps == NULL) fail_msg("%s: %s", texts[k], why.text);
        assert_int_equal(model_rows(steps), 1);
        assert_int_equal(model_forward(whole, t.input, 1, false, t.logits), RC_OK);
        for (size_t c = 0; c < ARRAY_COUNT(cuts); c++) {
            uint32_t at = 0;
            for (size_t i = 0; at < STEPS; at += cuts[c][i++]) {
                assert_int_equal(
                    model_forward(steps, t.input + at, cuts[c][i], false, logits + at * SYMBOLS),
                    RC_OK);
            }
            if (distance(logits, t.logits, STEPS * SYMBOLS) > 2e-6) {
                fail_msg("%s, cut %zu: %g", texts[k], c,
                         distance(logits, t.logits, STEPS * SYMBOLS));
            }
            model_rewind(steps);
        }
        model_destroy(whole);
        model_destroy(steps);
        backend_destroy(cpu);
    }
}

/* Proves: what cannot be computed in order, or gives no next tokens, or goes on longer than its
 * positions, is refused with the layer's name. */
static void what_has_no_steps_is_refused(void **state)
{
    static const char *const specs[][2] = {
        {"embed:8 attention:2,causal=0 linear:classes", "attention"},
        {"embed:8 lstm:4 last linear:classes", "last"},
        {"embed:8 positions:4 linear:classes", "positions"}};
    struct backend *cpu = cpu_of_kind(false);

    (void)state;
    for (size_t k = 0; k < ARRAY_COUNT(specs); k++) {
        struct fault why = {""};
        assert_null(stepwise(cpu, specs[k][0], 5, &why));
        assert_non_null(strstr(why.text, specs[k][1]));
    }
    backend_destroy(cpu);
}

/* Proves: out of memory at any point of making a team around a model, or a stepwise model, is
 * RC_NOMEM, and nothing is left. */
static void memory_may_be_short_at_any_point(void **state)
{
    (void)state;
    for (uint64_t n = 0;; n++) {
        struct backend *cpu = cpu_of_kind(false);
        struct team_around around = {make_images(cpu, 4, false), cpu, 2};
        struct team *team = NULL;
        enum rc rc;

        mem_fail_after(n);
        rc = team_around(&around, &team, NULL);
        mem_fail_after(UINT64_MAX);
        team_destroy(team);
        if (rc == RC_OK) break;
        assert_int_equal(rc, RC_NOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_made_of_parameters_is_made_once_a_version),
        cmocka_unit_test(nothing_is_kept_for_a_way_back_that_does_not_come),
        cmocka_unit_test(threads_around_a_model_answer_as_it_does),
        cmocka_unit_test(a_text_step_by_step_is_the_text_as_a_whole),
        cmocka_unit_test(what_has_no_steps_is_refused),
        cmocka_unit_test(memory_may_be_short_at_any_point),
    };

    only_threads_for_their_sanitizer();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
