/* model: shapes, initial weights, gradients by finite differences, partial batches, files. */
#include "tests/check.h"

#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernels/cpu/cpu_backend.h"
#include "replica/formats/model_file.h"
#include "replica/model/loss.h"
#include "replica/plane/store_safetensors.h"

#include <math.h>

enum { CLASSES = 4, BATCH_MAX = 40, ROWS_MAX = BATCH_MAX * 16 };

struct example {
    float *input;
    uint32_t labels[BATCH_MAX];
};

static struct backend *cpu_of_kind(bool is_reference, enum cpu_convolution convolution)
{
    struct cpu_backend_options options = {
        .threads = 1, .convolution = convolution, .is_reference = is_reference};
    struct backend *cpu = cpu_backend_create(&options);

    assert_non_null(cpu);
    return cpu;
}

static struct model_options options_of(const char *spec, uint32_t batch_max)
{
    return (struct model_options){.spec = spec,
                                  .channels = 1,
                                  .height = 8,
                                  .width = 8,
                                  .classes = CLASSES,
                                  .batch_max = batch_max,
                                  .seed = 5,
                                  .with_gradients = true};
}

static struct model *make(struct backend *cpu, const char *spec, uint32_t batch_max)
{
    struct model_options options = options_of(spec, batch_max);
    struct model *model = NULL;
    struct fault why = {""};

    if (model_create(cpu, &options, &model, &why) != RC_OK) fail_msg("%s", why.text);
    return model;
}

static struct example example_of(uint64_t seed, size_t values)
{
    struct example e;
    struct rng rng;

    rng_init(&rng, seed, 1);
    e.input = mem_aligned(BATCH_MAX * values * sizeof(float));
    for (size_t i = 0; i < BATCH_MAX * values; i++) {
        e.input[i] = (float)rng_normal(&rng);
    }
    for (int i = 0; i < BATCH_MAX; i++) {
        e.labels[i] = (uint32_t)rng_below(&rng, CLASSES);
    }
    return e;
}

/* Of a training pass: batch statistics, dropout, each head by itself. */
static double loss_of(struct model *model, const struct example *e, uint32_t batch, bool backward)
{
    float logits[ROWS_MAX * CLASSES], gradient[ROWS_MAX * CLASSES];
    uint32_t labels[ROWS_MAX];
    uint32_t rows = batch * model_rows(model) * model_heads(model), correct = 0;
    double loss;

    assert_true(rows <= ROWS_MAX);
    for (uint32_t i = 0; i < rows; i++) {
        labels[i] = e->labels[i / model_heads(model) % BATCH_MAX];
    }
    model_set_stream(model, 7, 0); /* dropout draws the same every time */
    assert_int_equal(model_forward(model, e->input, batch, true, logits), RC_OK);
    loss = loss_cross_entropy(logits, labels, rows, CLASSES, gradient, &correct);
    if (backward) assert_int_equal(model_backward(model, gradient), RC_OK);
    return loss;
}

static void options_out_of_range_are_refused(void **state)
{
    struct backend *cpu = cpu_of_kind(false, CPU_CONVOLUTION_AUTO);
    struct model *model = NULL;
    struct fault why = {""};
    struct model_options options = options_of("mlp", 0);

    (void)state;
    assert_int_equal(model_create(cpu, &options, &model, &why), RC_USAGE);
    options = options_of("mlp", 1);
    options.classes = MODEL_CLASSES_MAX + 1;
    assert_int_equal(model_create(cpu, &options, &model, &why), RC_SHAPE);
    options.classes = 4;
    options.width = 0;
    assert_int_equal(model_create(cpu, &options, &model, &why), RC_SHAPE);
    options.width = options.height = options.channels = 1u << 16;
    assert_int_equal(model_create(cpu, &options, &model, &why), RC_SHAPE);
    backend_destroy(cpu);
}

static void tensors_have_their_names_shapes_and_bounds(void **state)
{
    struct backend *cpu = cpu_of_kind(false, CPU_CONVOLUTION_AUTO);
    struct model_options options = {.spec = "cnn",
                                    .channels = 1,
                                    .height = 28,
                                    .width = 28,
                                    .classes = 10,
                                    .batch_max = 64,
                                    .seed = 1};
    struct model *model = NULL;
    const struct schema *schema;
    const struct tensor *tensor;
    const float *values;
    double sum = 0.0;

    (void)state;
    assert_int_equal(model_create(cpu, &options, &model, NULL), RC_OK);
    schema = model_schema(model);
    assert_int_equal(schema->tensors_count, 8);
    assert_int_equal(schema->values[SECTION_PARAMETERS], 320 + 18496 + 12544 * 128 + 128 + 1290);
    assert_null(model_plane(model, SECTION_GRADIENT));
    tensor = schema_find(schema, "conv2.weight");
    assert_non_null(tensor);
    assert_int_equal(tensor->shape[0], 64);
    assert_int_equal(tensor->shape[1], 32);
    assert_int_equal(tensor->shape[3], 3);
    assert_non_null(schema_find(schema, "dense2.bias"));
    tensor = schema_find(schema, "dense1.weight");
    assert_int_equal(tensor->shape[0], 128);
    assert_int_equal(tensor->shape[1], 12544);
    values = model_plane(model, SECTION_PARAMETERS) + tensor->offset;
    for (size_t i = 0; i < tensor->count; i++) {
        assert_true(fabsf(values[i]) <= 1.0F / 112.0F); /* 1 / sqrt(12544) */
        sum += (double)values[i] * (double)values[i];
    }
    assert_true(fabs(sum / (double)tensor->count * 12544.0 - 1.0 / 3.0) < 2e-3); /* uniform */
    assert_int_equal(model_flops(model),
                     2ULL * (784 * 32 * 9 + 784 * 64 * 288 + 12544 * 128 + 1280));
    model_destroy(model);
    backend_destroy(cpu);
}

/* Lengths of the rows of `v` are `g`: the weights used are those drawn. */
static void check_lengths(struct model *model, const char *v_name, const char *g_name)
{
    const struct tensor *v = schema_find(model_schema(model), v_name);
    const struct tensor *g = schema_find(model_schema(model), g_name);
    const float *values = model_plane(model, SECTION_PARAMETERS);
    size_t columns;

    assert_true(v != NULL && g != NULL);
    columns = v->count / g->count;
    for (size_t r = 0; r < g->count; r++) {
        double sum = 0.0;
        for (size_t c = 0; c < columns; c++) {
            double x = (double)values[v->offset + r * columns + c];
            sum += x * x;
        }
        assert_true(fabs(sqrt(sum) - (double)values[g->offset + r]) < 1e-6 * sqrt(sum));
    }
}

static void weight_normalisation_begins_with_the_weights_drawn(void **state)
{
    struct backend *all[] = {cpu_of_kind(true, CPU_CONVOLUTION_AUTO),
                             cpu_of_kind(false, CPU_CONVOLUTION_AUTO)};

    (void)state;
    for (size_t b = 0; b < ARRAY_COUNT(all); b++) {
        struct model *model =
            make(all[b], "conv3x3:6,wn=1,groups=1 relu linear:8,wn=1 linear:classes", 6);
        check_lengths(model, "conv1.weight_v", "conv1.weight_g");
        check_lengths(model, "dense1.weight_v", "dense1.weight_g");
        model_destroy(model);
        backend_destroy(all[b]);
    }
}

/* Move the parameters of one tensor by `step` along `direction`. */
static void move(struct model *model, const struct tensor *tensor, const float *direction,
                 float step)
{
    float *values = model_plane(model, SECTION_PARAMETERS) + tensor->offset;

    for (size_t i = 0; i < tensor->count; i++) {
        values[i] += step * direction[i];
    }
}

/* The slope of the loss along the gradient itself, tensor by tensor: it must be |gradient|. */
static void check_slopes(struct model *model, const struct example *e, uint32_t batch,
                         const char *spec)
{
    const struct schema *schema = model_schema(model);

    loss_of(model, e, batch, true);
    for (uint32_t t = 0; t < schema->tensors_count; t++) {
        const struct tensor *tensor = &schema->tensors[t];
        const float *gradient = model_plane(model, SECTION_GRADIENT) + tensor->offset;
        float *direction = mem_array(tensor->count, sizeof(float));
        double size = 0.0, slope;
        const float step = 2e-3F;

        if (tensor->section != SECTION_PARAMETERS) {
            mem_free(direction);
            continue;
        }
        for (size_t i = 0; i < tensor->count; i++) {
            size += (double)gradient[i] * (double)gradient[i];
        }
        size = sqrt(size);
        assert_true(size > 1e-5);
        for (size_t i = 0; i < tensor->count; i++) {
            direction[i] = (float)((double)gradient[i] / size);
        }
        move(model, tensor, direction, step);
        slope = loss_of(model, e, batch, false);
        move(model, tensor, direction, -2.0F * step);
        slope -= loss_of(model, e, batch, false);
        move(model, tensor, direction, step);
        slope /= 2.0 * (double)step;
        if (fabs(slope - size) > 0.02 * size + 1e-4) {
            fail_msg("%s, %s: slope %g, gradient %g", spec, tensor->name, slope, size);
        }
        mem_free(direction);
    }
}

static const char *const specs[] = {
    "linear:classes",
    "linear:9 relu linear:7 relu linear:classes",
    "conv3x3:6 relu linear:classes",
    "conv3x3:16 relu conv3x3:16 relu maxpool2 linear:8 relu linear:classes",
    "conv3x3:16 conv3x3:32 relu linear:classes",
    "conv5x5:5 maxpool3 relu conv1x1:16 relu conv3x3:16 relu linear:6 relu linear:classes",
    "maxpool2 conv3x3:16 relu maxpool2 linear:classes relu",
    "conv3x3:16 bn relu conv3x3:16 bn relu globalpool linear:classes",
    "conv3x3:16 bn:4 relu maxpool2 linear:8 bn relu linear:classes",
    "conv3x3:16 bn relu ( [ conv3x3:16 bn relu conv3x3:16 bn ]+ relu )*2 globalpool linear:classes",
    "conv3x3:8 [ conv3x3:16,stride=2 gn:4 relu conv3x3:16 | shortcut:16,stride=2 ]+ relu "
    "globalpool linear:classes",
    "conv3x3:8 [ bn relu conv3x3:8 ]+ [ gn:2 conv1x1:8 | conv3x3:8 tanh | ]+ avgpool2 "
    "linear:classes",
    "conv3x3:8 relu [ conv3x3:8 sigmoid | conv1x1:16 leaky | avgpool3,stride=1,pad=1 ]concat "
    "conv1x1:8 linear:classes",
    "conv3x1:6,pad=1,dilation=2 silu conv3x3:6,groups=3,bias=0 local3x3:3,stride=2 gelu "
    "maxpool3,stride=2,pad=1 linear:classes",
    "conv3x3:6,wn=1 relu linear:8,wn=1 tanh dropout:0.3 linear:classes,bias=0",
    "rows [ ln attention:2 ]+ [ ln linear:12 gelu linear:8 ]+ ln last linear:classes",
    "rows attention:4,rotary=1,causal=0 linear:classes",
    "rows lstm:7 gru:6 rnn:5,truncate=8 last linear:classes",
    "conv3x3:3 rows lstm:8,truncate=9 linear:classes",
    "linear:9 tanh [ linear:8 silu linear:classes ]*3",
    "linear:16 leaky:0.2 dropout:0.5 linear:16 sigmoid [ linear:16 gelu ]+ linear:classes",
    /* Images whose layout is the processor's choice: equal values are dropped in all of them. */
    "conv3x3:16 relu dropout:0.3 conv3x3:16 bn silu maxpool2 dropout:0.2 linear:classes",
};

static void gradients_are_the_slopes_of_the_loss_for_every_layer(void **state)
{
    struct example e = example_of(2, 64);
    struct backend *all[] = {cpu_of_kind(true, CPU_CONVOLUTION_AUTO),
                             cpu_of_kind(false, CPU_CONVOLUTION_AUTO),
                             cpu_of_kind(false, CPU_CONVOLUTION_IM2COL)};

    (void)state;
    for (size_t s = 0; s < ARRAY_COUNT(specs); s++) {
        for (size_t b = 0; b < ARRAY_COUNT(all); b++) {
            struct model *model = make(all[b], specs[s], 6);
            check_slopes(model, &e, 6, specs[s]);
            model_destroy(model);
        }
    }
    for (size_t b = 0; b < ARRAY_COUNT(all); b++) {
        backend_destroy(all[b]);
    }
    mem_free(e.input);
}

static double distance(const float *a, const float *b, size_t count)
{
    double difference = 0.0, size = 0.0;

    for (size_t i = 0; i < count; i++) {
        difference += pow((double)a[i] - (double)b[i], 2.0);
        size += (double)b[i] * (double)b[i];
    }
    return size == 0.0 ? sqrt(difference) : sqrt(difference / size);
}

/* Whatever computes it and however many rows the batch is padded with: one gradient. */
static void all_ways_to_a_gradient_agree(void **state)
{
    struct example e = example_of(3, 64);
    struct backend *oracle = cpu_of_kind(true, CPU_CONVOLUTION_AUTO);
    struct backend *others[] = {cpu_of_kind(false, CPU_CONVOLUTION_AUTO),
                                cpu_of_kind(false, CPU_CONVOLUTION_IM2COL)};
    const uint32_t batches[] = {1, 17, 33, 40};

    (void)state;
    for (size_t s = 0; s < ARRAY_COUNT(specs); s++) {
        for (size_t k = 0; k < ARRAY_COUNT(batches); k++) {
            struct model *expected = make(oracle, specs[s], batches[k]);
            size_t count = model_schema(expected)->values[SECTION_PARAMETERS];
            double loss = loss_of(expected, &e, batches[k], true);

            for (size_t b = 0; b < ARRAY_COUNT(others); b++) {
                struct model *model = make(others[b], specs[s], BATCH_MAX);
                loss_of(model, &e, BATCH_MAX, true); /* rows to be found stale later */
                double other = loss_of(model, &e, batches[k], true);
                if (!(fabs(other - loss) < 1e-4)) {
                    fail_msg("%s, batch %u: loss %g, %g", specs[s], batches[k], other, loss);
                }
                double far = distance(model_plane(model, SECTION_GRADIENT),
                                      model_plane(expected, SECTION_GRADIENT), count);
                if (!(far < 1e-3)) fail_msg("%s, batch %u: %g", specs[s], batches[k], far);
                model_destroy(model);
            }
            model_destroy(expected);
        }
    }
    backend_destroy(oracle);
    backend_destroy(others[0]);
    backend_destroy(others[1]);
    mem_free(e.input);
}

static void equal_seeds_give_equal_models_and_equal_gradients(void **state)
{
    struct example e = example_of(3, 64);
    struct backend *cpu = cpu_of_kind(false, CPU_CONVOLUTION_AUTO);
    struct model *a = make(cpu, specs[3], BATCH_MAX), *b = make(cpu, specs[3], BATCH_MAX);
    size_t bytes = model_schema(a)->values[SECTION_PARAMETERS] * sizeof(float);

    (void)state;
    assert_memory_equal(model_plane(a, SECTION_PARAMETERS), model_plane(b, SECTION_PARAMETERS),
                        bytes);
    loss_of(a, &e, BATCH_MAX, true);
    loss_of(b, &e, BATCH_MAX, true);
    assert_memory_equal(model_plane(a, SECTION_GRADIENT), model_plane(b, SECTION_GRADIENT), bytes);
    model_destroy(a);
    model_destroy(b);
    backend_destroy(cpu);
    mem_free(e.input);
}

static void every_failed_allocation_is_reported_and_leaks_nothing(void **state)
{
    struct backend *cpu = cpu_of_kind(false, CPU_CONVOLUTION_AUTO);
    struct model_options options = options_of(specs[4], 8);
    uint64_t before = mem_blocks();
    bool is_done = false;

    (void)state;
    for (uint64_t n = 0; !is_done && n < 200; n++) {
        struct model *model = NULL;
        struct fault why = {""};
        enum rc rc;
        mem_fail_after(n);
        rc = model_create(cpu, &options, &model, &why);
        mem_fail_after(UINT64_MAX);
        assert_true(rc == RC_OK || (rc == RC_NOMEM && why.text[0] != '\0'));
        is_done = rc == RC_OK;
        model_destroy(model);
        if (n == 0) continue;
        assert_true(mem_blocks() <= before + 1); /* the backend's scratch may have come to stay */
    }
    assert_true(is_done);
    backend_destroy(cpu);
}

static struct model_card card_of(struct model *model)
{
    struct model_card card = {.data = "digits",
                              .channels = 1,
                              .height = 8,
                              .width = 8,
                              .classes = CLASSES,
                              .step = 17,
                              .samples = 1088};

    snprintf(card.spec, sizeof(card.spec), "%s", model_spec(model));
    return card;
}

/* A model file as bytes and back; `edit` may change the entries before. */
static struct tensor_file *reread(struct tensor_file *file)
{
    const struct piece *pieces = NULL;
    size_t count = 0, bytes = 0, at = 0;
    struct tensor_file *read = NULL;
    uint8_t *all;

    assert_int_equal(tensor_file_encode(file, &pieces, &count), RC_OK);
    for (size_t i = 0; i < count; i++) {
        bytes += pieces[i].count;
    }
    all = mem_alloc(bytes);
    for (size_t i = 0; i < count; i++) {
        memcpy(all + at, pieces[i].bytes, pieces[i].count);
        at += pieces[i].count;
    }
    assert_int_equal(tensor_file_decode("test", all, bytes, &read, NULL), RC_OK);
    return read;
}

static void a_saved_model_comes_back_to_the_bit(void **state)
{
    struct backend *cpu = cpu_of_kind(false, CPU_CONVOLUTION_AUTO);
    struct model *model = make(cpu, specs[3], 8), *loaded = NULL;
    struct model_card card = card_of(model), read;
    struct tensor_file *file = tensor_file_create(), *copy;
    struct fault why = {""};

    (void)state;
    model_plane(model, SECTION_PARAMETERS)[3] = 0.125F;
    model_set_normalisation(model, &(float){0.25F}, &(float){3.5F});
    assert_int_equal(model_save(model, &card, file), RC_OK);
    copy = reread(file);
    assert_int_equal(model_load(cpu, copy, "test", 4, false, &loaded, &read, &why), RC_OK);
    assert_memory_equal(model_plane(model, SECTION_PARAMETERS),
                        model_plane(loaded, SECTION_PARAMETERS),
                        model_schema(model)->values[SECTION_PARAMETERS] * sizeof(float));
    assert_string_equal(read.spec, specs[3]);
    assert_string_equal(read.data, "digits");
    assert_true(model_mean(loaded)[0] == 0.25F && model_scale(loaded)[0] == 3.5F);
    assert_int_equal(read.step, 17);
    assert_int_equal(read.samples, 1088);
    tensor_file_destroy(copy);
    tensor_file_destroy(file);
    model_destroy(model);
    model_destroy(loaded);
    backend_destroy(cpu);
}

/* Save, set one metadata key, load; must fail with `rc` and say `part`. */
static void check_spoiled(const char *key, const char *value, enum rc rc, const char *part)
{
    struct backend *cpu = cpu_of_kind(false, CPU_CONVOLUTION_AUTO);
    struct model *model = make(cpu, specs[1], 8), *loaded = NULL;
    struct model_card card = card_of(model);
    struct tensor_file *file = tensor_file_create(), *copy;
    struct fault why = {""};

    assert_int_equal(model_save(model, &card, file), RC_OK);
    assert_int_equal(tensor_file_set(file, key, value), RC_OK);
    copy = reread(file);
    assert_int_equal(model_load(cpu, copy, "x.st", 4, false, &loaded, &card, &why), rc);
    if (strstr(why.text, part) == NULL) fail_msg("'%s' is not in '%s'", part, why.text);
    assert_null(loaded);
    tensor_file_destroy(copy);
    tensor_file_destroy(file);
    model_destroy(model);
    backend_destroy(cpu);
}

static void a_card_that_lies_is_refused(void **state)
{
    (void)state;
    check_spoiled("format", "other-3", RC_FORMAT, "its format is 'other-3'");
    check_spoiled("model", "linear:9 relu linear:8 relu linear:classes", RC_SHAPE,
                  "tensor 'dense2.weight' has another shape");
    check_spoiled("model", "linear:9 relu linear:7 relu linear:4 linear:classes", RC_FORMAT,
                  "tensor 'dense4.weight' is missing");
    check_spoiled("model", "linear:60000 relu linear:60000 relu linear:classes", RC_SHAPE,
                  "cannot use x.st: --model, column 1: 'linear:60000' needs more values than the "
                  "file holds");
    check_spoiled("model", "liner:9", RC_PARSE, "did you mean 'linear'");
    check_spoiled("classes", "0", RC_FORMAT, "'classes' is '0', not a number from 1 to 1048576");
    check_spoiled("height", "99999999999", RC_FORMAT, "'height' is '99999999999'");
    check_spoiled("input", "sound", RC_FORMAT, "its input is 'sound', not image or tokens");
    check_spoiled("target", "money", RC_FORMAT, "its target is 'money', not classes or reals");
    check_spoiled("symbol_bytes", "6162", RC_FORMAT, "names 2 symbols, not 0");
    check_spoiled("step", "-1", RC_FORMAT, "'step' is '-1'");
}

static void a_file_of_something_else_or_with_a_nan_is_refused(void **state)
{
    struct backend *cpu = cpu_of_kind(false, CPU_CONVOLUTION_AUTO);
    struct model *model = make(cpu, specs[1], 8), *loaded = NULL;
    struct model_card card = card_of(model);
    struct tensor_file *empty = tensor_file_create(), *file = tensor_file_create(), *copy;
    struct fault why = {""};

    (void)state;
    assert_int_equal(model_load(cpu, empty, "x.st", 4, false, &loaded, &card, &why), RC_FORMAT);
    assert_non_null(strstr(why.text, "it is not a model file of grapevine"));
    model_plane(model, SECTION_PARAMETERS)[5] = NAN;
    assert_int_equal(model_save(model, &card, file), RC_OK);
    copy = reread(file);
    assert_int_equal(model_load(cpu, copy, "x.st", 4, false, &loaded, &card, &why), RC_NONFINITE);
    assert_non_null(strstr(why.text, "'dense1.weight' holds a NaN"));
    tensor_file_destroy(empty);
    tensor_file_destroy(copy);
    tensor_file_destroy(file);
    model_destroy(model);
    backend_destroy(cpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_out_of_range_are_refused),
        cmocka_unit_test(tensors_have_their_names_shapes_and_bounds),
        cmocka_unit_test(weight_normalisation_begins_with_the_weights_drawn),
        cmocka_unit_test(gradients_are_the_slopes_of_the_loss_for_every_layer),
        cmocka_unit_test(all_ways_to_a_gradient_agree),
        cmocka_unit_test(equal_seeds_give_equal_models_and_equal_gradients),
        cmocka_unit_test(every_failed_allocation_is_reported_and_leaks_nothing),
        cmocka_unit_test(a_saved_model_comes_back_to_the_bit),
        cmocka_unit_test(a_card_that_lies_is_refused),
        cmocka_unit_test(a_file_of_something_else_or_with_a_nan_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
