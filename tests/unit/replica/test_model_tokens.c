/* Models of token sequences: gradients by finite differences and by other ways, batches that fill
 * no slice, sequences longer than a slice and of one step, tokens that are none. */
#include "replica/model/loss.h"
#include "tests/check.h"

#include "tests/unit/replica/model_tokens.h"

#include "replica/learners/team.h"

static const char *const specs[] = {
    "embed:8 linear:classes",
    "embed:8 linear:classes,tied=1",
    "embed:8 positions:40 [ ln attention:2 ]+ [ linear:9 gelu linear:8 ]+ linear:classes,tied=1",
    "embed:12 positions:33 ( [ ln attention:3,rotary=1 dropout:0.1 ]+ )*2 ln linear:classes",
    "embed:6 dropout:0.3 lstm:7 gru:5 linear:classes",
    "embed:6 rnn:6,truncate=4 last linear:classes",
    "embed:6 [ lstm:6 | gru:6 | ]+ ln last linear:9 relu dropout:0.5 linear:classes",
    ("embed:6 positions:33 bn gru:6 [ linear:classes | tanh linear:classes | ln linear:classes "
     "]heads"),
    "embed:8 last [ linear:5 silu linear:classes ]*3",
    "embed:8 [ attention:4,causal=0 | linear:8 sigmoid ]concat linear:6,wn=1 linear:classes",
};

/* The loss after a step of `step` along `direction` in one tensor, which is then undone. */
static double loss_beside(struct model *model, struct tokens *t, const struct tensor *tensor,
                          const float *direction, float step)
{
    float *values = model_plane(model, SECTION_PARAMETERS) + tensor->offset;
    float *kept = mem_array(tensor->count, sizeof(float));
    double loss;

    memcpy(kept, values, tensor->count * sizeof(float));
    for (size_t i = 0; i < tensor->count; i++) {
        values[i] += step * direction[i];
    }
    loss = loss_of(model, t, 5, false);
    memcpy(values, kept, tensor->count * sizeof(float));
    mem_free(kept);
    return loss;
}

/* The slope of the loss along the gradient itself, tensor by tensor, is |gradient|. */
static void check_slopes(struct model *model, struct tokens *t, const char *spec, uint32_t steps)
{
    const struct schema *schema = model_schema(model);

    loss_of(model, t, 5, true);
    for (uint32_t i = 0; i < schema->tensors_count; i++) {
        const struct tensor *tensor = &schema->tensors[i];
        const float *gradient = model_plane(model, SECTION_GRADIENT) + tensor->offset;
        const float step = 2e-3F;
        double size = 0.0, slope;
        float *direction;

        if (tensor->section != SECTION_PARAMETERS) continue;
        direction = mem_array(tensor->count, sizeof(float));
        for (size_t k = 0; k < tensor->count; k++) {
            size += (double)gradient[k] * (double)gradient[k];
        }
        size = sqrt(size);
        if (!(size > 1e-7)) { /* one step has no other to recall, or to be told from */
            if (steps > 1) fail_msg("%s, %s: no gradient", spec, tensor->name);
            mem_free(direction);
            continue;
        }
        for (size_t k = 0; k < tensor->count; k++) {
            direction[k] = (float)((double)gradient[k] / size);
        }
        slope = loss_beside(model, t, tensor, direction, step) -
                loss_beside(model, t, tensor, direction, -step);
        slope /= 2.0 * (double)step;
        if (fabs(slope - size) > 0.02 * size + 1e-4) {
            fail_msg("%s, %s: slope %g, gradient %g", spec, tensor->name, slope, size);
        }
        mem_free(direction);
    }
}

/* Embeddings of deviation 0.02 leave little for a slope to be measured on. */
static void enlarge_embeddings(struct model *model)
{
    const struct schema *schema = model_schema(model);

    for (uint32_t i = 0; i < schema->tensors_count; i++) {
        const struct tensor *tensor = &schema->tensors[i];
        float *values = model_plane(model, SECTION_PARAMETERS) + tensor->offset;
        if (strncmp(tensor->name, "embed", 5) != 0) continue;
        for (size_t k = 0; k < tensor->count; k++) {
            values[k] *= 30.0F;
        }
    }
}

/* Of one step, of several to a slice, of more steps than a slice has rows. */
static void gradients_are_the_slopes_of_the_loss(void **state)
{
    const uint32_t steps[] = {1, 6, STEPS_MAX};
    struct backend *all[] = {cpu_of_kind(true), cpu_of_kind(false)};
    static struct tokens t;

    (void)state;
    tokens_init(&t, 2);
    for (size_t s = 0; s < ARRAY_COUNT(specs); s++) {
        for (size_t i = 0; i < ARRAY_COUNT(steps) * ARRAY_COUNT(all); i++) {
            struct model *model;

            if (strstr(specs[s], "truncate") != NULL && steps[i / 2] > 4) continue; /* no slope */
            model = make(all[i % 2], specs[s], steps[i / 2]);
            enlarge_embeddings(model);
            check_slopes(model, &t, specs[s], steps[i / 2]);
            model_destroy(model);
        }
    }
    backend_destroy(all[0]);
    backend_destroy(all[1]);
}

/* Whatever computes it, whatever the batch, and whatever lay in memory before. */
static void all_ways_to_a_gradient_agree(void **state)
{
    const uint32_t steps[] = {1, 6, STEPS_MAX}, batches[] = {1, 2, 5, 10, BATCH_MAX};
    struct backend *oracle = cpu_of_kind(true), *cpu = cpu_of_kind(false);
    static struct tokens t;

    (void)state;
    tokens_init(&t, 3);
    for (size_t s = 0; s < ARRAY_COUNT(specs); s++) {
        for (size_t i = 0; i < ARRAY_COUNT(steps) * ARRAY_COUNT(batches); i++) {
            uint32_t batch = batches[i % ARRAY_COUNT(batches)];
            struct model *expected = make(oracle, specs[s], steps[i / ARRAY_COUNT(batches)]);
            struct model *model = make(cpu, specs[s], steps[i / ARRAY_COUNT(batches)]);
            double loss = loss_of(expected, &t, batch, true), other, far;

            loss_of(model, &t, BATCH_MAX, true);
            other = loss_of(model, &t, batch, true);
            far = distance(model_plane(model, SECTION_GRADIENT),
                           model_plane(expected, SECTION_GRADIENT),
                           model_schema(model)->values[SECTION_GRADIENT]);
            if (!(fabs(other - loss) < 1e-5) || !(far < 1e-3)) {
                fail_msg("%s, batch %u, case %zu: loss %g, %g; gradient %g apart", specs[s], batch,
                         i, other, loss, far);
            }
            model_destroy(model);
            model_destroy(expected);
        }
    }
    backend_destroy(oracle);
    backend_destroy(cpu);
}

/* Predictions of a batch are those of its samples one by one, heads merged. */
static void evaluation_takes_samples_one_by_one_or_together(void **state)
{
    static struct tokens t;
    static float one[LOGITS_MAX];
    struct backend *cpu = cpu_of_kind(false);

    (void)state;
    tokens_init(&t, 4);
    for (size_t s = 0; s < ARRAY_COUNT(specs); s++) {
        struct model *model = make(cpu, specs[s], 6);
        size_t each = (size_t)model_rows(model) * SYMBOLS;

        assert_int_equal(model_forward(model, t.input, BATCH_MAX, false, t.logits), RC_OK);
        for (uint32_t i = 0; i < BATCH_MAX; i++) {
            assert_int_equal(model_forward(model, t.input + i * 6, 1, false, one + i * each),
                             RC_OK);
        }
        if (!(distance(one, t.logits, BATCH_MAX * each) < 1e-5)) fail_msg("%s", specs[s]);
        model_destroy(model);
    }
    backend_destroy(cpu);
}

/* A causal model's first answers do not depend on what comes later. */
static void causal_models_do_not_look_ahead(void **state)
{
    static struct tokens t;
    float before[3 * SYMBOLS];
    struct backend *cpu = cpu_of_kind(false);

    (void)state;
    tokens_init(&t, 5);
    for (size_t s = 2; s < 5; s++) {
        struct model *model = make(cpu, specs[s], STEPS_MAX);

        assert_int_equal(model_forward(model, t.input, 1, false, t.logits), RC_OK);
        memcpy(before, t.logits, sizeof(before));
        for (size_t i = 3; i < STEPS_MAX; i++) {
            t.input[i] = (float)((int)t.input[i] + 1 + (int)i % 3) > SYMBOLS - 1 ? 0.0F : 5.0F;
        }
        assert_int_equal(model_forward(model, t.input, 1, false, t.logits), RC_OK);
        assert_true(distance(t.logits, before, ARRAY_COUNT(before)) < 1e-6);
        assert_true(distance(t.logits + sizeof(before) / sizeof(float), before, SYMBOLS) > 1e-6);
        model_destroy(model);
    }
    backend_destroy(cpu);
}

static double loss_at_pass(struct model *model, struct tokens *t, uint64_t stream, uint64_t pass)
{
    uint32_t correct = 0, rows = 5 * model_rows(model);

    model_set_stream(model, stream, pass);
    assert_int_equal(model_forward(model, t->input, 5, true, t->logits), RC_OK);
    return loss_cross_entropy(t->logits, t->labels, rows, SYMBOLS, NULL, &correct);
}

/* Dropout draws anew in each training pass and for each stream, the same for equal ones. */
static void dropout_is_a_function_of_stream_and_pass(void **state)
{
    static struct tokens t;
    struct backend *cpu = cpu_of_kind(false);
    struct model *model = make(cpu, "embed:8 dropout:0.5 gru:8 dropout:0.5 linear:classes", 6);
    double first;

    (void)state;
    tokens_init(&t, 6);
    first = loss_at_pass(model, &t, 1, 0);
    assert_true(loss_at_pass(model, &t, 1, 0) == first);
    assert_true(loss_at_pass(model, &t, 1, 1) != first);
    assert_true(loss_at_pass(model, &t, 2, 0) != first);
    assert_int_equal(model_passes(model), 0);
    assert_int_equal(model_backward(model, t.gradient), RC_OK);
    assert_int_equal(model_passes(model), 1);
    model_destroy(model);
    backend_destroy(cpu);
}

/* An embedding that only its tied head learns from, through a path without parameters. */
static void a_tied_head_gives_its_embedding_a_gradient_by_itself(void **state)
{
    static struct tokens t;
    struct backend *cpu = cpu_of_kind(false);
    struct model *model =
        make(cpu, "[ embed:1 | linear:classes,tied=1,bias=0 ]concat linear:classes", 6);

    (void)state;
    tokens_init(&t, 7);
    enlarge_embeddings(model);
    loss_of(model, &t, BATCH_MAX, true); /* leaves a gradient behind that must not add up */
    check_slopes(model, &t, "a tied head", 6);
    model_destroy(model);
    backend_destroy(cpu);
}

/* A token that is none is an error of that pass, alone and in a team, and of no other. */
static void wrong_tokens_are_refused(void **state)
{
    const float wrong[] = {SYMBOLS, -1.0F, 0.5F, NAN, INFINITY, 1e30F};
    static struct tokens t;
    struct cpu_backend_options two = {.threads = 2};
    struct backend *cpu = cpu_of_kind(false), *pair = cpu_backend_create(&two);
    struct model_options options = token_options(specs[2], 6);
    struct team *team = NULL;
    struct model *model = make(cpu, specs[2], 6);
    double loss;

    (void)state;
    tokens_init(&t, 8);
    assert_int_equal(team_create(pair, &options, &team, NULL), RC_OK);
    loss = loss_of(model, &t, BATCH_MAX, true);
    for (size_t i = 0; i < ARRAY_COUNT(wrong); i++) {
        size_t at = i * 11;
        float right = t.input[at];
        t.input[at] = wrong[i];
        for (int is_training = 0; is_training < 2; is_training++) {
            assert_int_equal(model_forward(model, t.input, BATCH_MAX, is_training == 1, t.logits),
                             RC_NONFINITE);
            assert_int_equal(team_forward(team, t.input, BATCH_MAX, is_training == 1, t.logits),
                             RC_NONFINITE);
        }
        t.input[at] = right;
    }
    assert_true(loss_of(model, &t, BATCH_MAX, true) == loss);
    assert_int_equal(team_forward(team, t.input, BATCH_MAX, true, t.logits), RC_OK);
    team_destroy(team);
    model_destroy(model);
    backend_destroy(cpu);
    backend_destroy(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_the_slopes_of_the_loss),
        cmocka_unit_test(all_ways_to_a_gradient_agree),
        cmocka_unit_test(evaluation_takes_samples_one_by_one_or_together),
        cmocka_unit_test(causal_models_do_not_look_ahead),
        cmocka_unit_test(dropout_is_a_function_of_stream_and_pass),
        cmocka_unit_test(a_tied_head_gives_its_embedding_a_gradient_by_itself),
        cmocka_unit_test(wrong_tokens_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
