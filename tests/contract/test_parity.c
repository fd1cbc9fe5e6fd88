/*
 * parity: the same weights and the same batches give the losses that PyTorch gives. The golden
 * numbers are those of tests/parity/make_golden.py (float64 there, float32 here), which also says
 * how weights and batches are made from hashes: this file repeats that to the bit. Here: the whole
 * public path of training, for each preset that has a twin there.
 */
#include "tests/check.h"
#include "tests/golden.h"

#include "base/check.h"
#include "base/json.h"
#include "kernels/cpu/cpu_backend.h"
#include "replica/model/loss.h"
#include "replica/model/model.h"
#include "replica/optimizer/optimizer.h"

#include <math.h>

/* Under sanitizers a few steps: the numbers are the same, and further steps run the same code. */
enum { STEPS_MAX = 64, SANITIZED_STEPS = 4, LABELS_MAX = 1024 };

static const double LOSS_TOLERANCE = 1e-4;
/* Of norms and sums at the end, in units of the tensor's norm: several times what float32 does. */
static const double TENSOR_TOLERANCE = 1e-3;
static const double GRADIENT_TOLERANCE = 1e-4; /* in units of the gradient's norm */
/* Winograd's algorithm rounds by about 1e-6 of what is there. Of resnet20's 1.5 million values
 * before a relu one or a few lie that near to its corner and fall on the other side, others on each
 * processor. Each adds or takes away one pixel's gradient: of the 131,072 that make a layer's, one
 * is 1 / sqrt(131,072) = 0.3 % of their norm, and the largest are several times that. Losses do not
 * notice, the gradients are compared without it, too, and each convolution with its twin to 3e-6
 * (unit_kernels_conv_own). */
static const double CORNERS_TOLERANCE = 3e-2;

struct course {
    const char *name;
    struct json *golden;
    struct backend *cpu;
    struct model *model;
    struct optimizer optimizer;
    uint32_t batch, classes, rows; /* rows: with a label each */
    uint32_t shape[3], length;     /* of an image or a sequence; the other is 0 */
    float *input, *logits, *gradient, *workspace;
    uint32_t labels[LABELS_MAX];
};

/* --- numbers from hashes, as in make_golden.py ---------------------------------------------- */

static uint64_t stream_of(const char *name)
{
    uint64_t hash = 0xCBF29CE484222325u;

    for (const char *c = name; *c != '\0'; c++) {
        hash = (hash ^ (uint8_t)*c) * 0x100000001B3u;
    }
    return hash;
}

static uint64_t bits_of(uint64_t stream, uint64_t i)
{
    uint64_t z = stream + (i + 1) * 0x9E3779B97F4A7C15u;

    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static double unit_of(uint64_t stream, uint64_t i)
{
    return (double)(bits_of(stream, i) >> 40) / 8388608.0 - 1.0;
}

static uint32_t below(uint64_t bits, uint32_t limit)
{
    return (uint32_t)((bits >> 40) * limit >> 24);
}

static void fill_images(struct course *c, uint64_t step)
{
    uint64_t inputs = stream_of("input"), classes = stream_of("class"), labels = stream_of("label");
    uint64_t values = (uint64_t)c->shape[0] * c->shape[1] * c->shape[2];

    for (uint64_t b = 0; b < c->batch; b++) {
        uint64_t sample = step * c->batch + b;
        uint32_t label = below(bits_of(labels, sample), c->classes);
        for (uint64_t j = 0; j < values; j++) {
            double own = unit_of(inputs, sample * values + j);
            double shared = unit_of(classes, label * values + j);
            c->input[b * values + j] = (float)((own + shared) / 2.0);
        }
        c->labels[b] = label;
    }
}

static void fill_sequences(struct course *c, uint64_t step)
{
    uint64_t symbols = stream_of("symbol");

    for (uint64_t b = 0; b < c->batch; b++) {
        uint64_t first = (step * c->batch + b) * (c->length + 1);
        uint32_t symbol = below(bits_of(symbols, first), c->classes);
        for (uint64_t t = 0; t < c->length; t++) {
            c->input[b * c->length + t] = (float)symbol;
            symbol =
                (5 * symbol + 7 + (uint32_t)(bits_of(symbols, first + t + 1) >> 62)) % c->classes;
            c->labels[b * c->length + t] = symbol;
        }
    }
}

/* --- the golden file -------------------------------------------------------------------------- */

static uint32_t count_in(const struct json *object, const char *key)
{
    uint64_t value = 0;

    if (!json_get_count(object, key, &value)) fail_msg("no count '%s' in the golden file", key);
    return (uint32_t)value;
}

static double real_in(const struct json *object, const char *key)
{
    double value = 0.0;

    if (!json_get_real(object, key, &value)) fail_msg("no number '%s' in the golden file", key);
    return value;
}

static bool bool_in(const struct json *object, const char *key)
{
    bool value = false;

    if (!json_get_bool(object, key, &value)) fail_msg("no boolean '%s' in the golden file", key);
    return value;
}

static void read_golden(struct course *c)
{
    char path[128], *text;
    size_t count = 0;
    struct fault why = {""};
    const struct json *shape;

    snprintf(path, sizeof path, "tests/parity/golden/%s.json", c->name);
    text = golden_read(path, &count);
    if (json_parse(text, count, &c->golden, &why) != RC_OK) fail_msg("%s: %s", path, why.text);
    free(text);
    c->batch = count_in(c->golden, "batch");
    c->classes = count_in(c->golden, "classes");
    shape = json_get(c->golden, "shape");
    if (shape == NULL) {
        c->length = count_in(c->golden, "length");
        c->rows = c->batch * c->length;
        return;
    }
    for (size_t i = 0; i < 3; i++) {
        uint64_t side = 0;
        assert_true(json_count_of(json_at(shape, i), &side));
        c->shape[i] = (uint32_t)side;
    }
    c->rows = c->batch;
}

/* --- a model of ours with PyTorch's weights ----------------------------------------------------
 */

static float *values_of(struct course *c, const struct tensor *tensor)
{
    return model_plane(c->model, tensor->section) + tensor->offset;
}

static const struct tensor *tensor_of(struct course *c, const struct json *entry)
{
    const char *name = json_get_text(entry, "name");
    const struct tensor *tensor = schema_find(model_schema(c->model), name);
    const struct json *shape = json_get(entry, "shape");

    if (tensor == NULL) fail_msg("%s: we have no tensor '%s'", c->name, name);
    assert_int_equal(tensor->section,
                     bool_in(entry, "is_buffer") ? SECTION_BUFFERS : SECTION_PARAMETERS);
    assert_int_equal(tensor->rank, json_count(shape));
    for (uint32_t i = 0; i < tensor->rank; i++) {
        uint64_t side = 0;
        assert_true(json_count_of(json_at(shape, i), &side));
        assert_int_equal(tensor->shape[i], side);
    }
    return tensor;
}

static void set_weights(struct course *c)
{
    const struct json *tensors = json_get(c->golden, "tensors");
    size_t parameters = 0;

    for (size_t t = 0; t < json_count(tensors); t++) {
        const struct json *entry = json_at(tensors, t);
        const struct tensor *tensor = tensor_of(c, entry);
        uint64_t stream = stream_of(tensor->name);
        double base = real_in(entry, "base"), bound = real_in(entry, "bound");
        float *values = values_of(c, tensor);
        for (size_t i = 0; i < tensor->count; i++) {
            values[i] = (float)(base + bound * unit_of(stream, i));
        }
        if (tensor->section == SECTION_PARAMETERS) parameters += tensor->count;
    }
    assert_int_equal(parameters, model_schema(c->model)->values[SECTION_PARAMETERS]);
}

static float *zeros(size_t count)
{
    float *values = calloc(count > 0 ? count : 1, sizeof *values);

    assert_non_null(values);
    return values;
}

static void course_begin(struct course *c, const char *name, enum cpu_convolution convolution)
{
    struct cpu_backend_options cpu = {.threads = 1, .convolution = convolution};
    struct model_options options;
    struct fault why = {""};

    memset(c, 0, sizeof *c);
    c->name = name;
    read_golden(c);
    assert_true(c->rows <= LABELS_MAX);
    options =
        (struct model_options){.spec = name,
                               .classes = c->classes,
                               .batch_max = c->batch,
                               .with_gradients = true,
                               .input = c->length > 0 ? MODEL_INPUT_TOKENS : MODEL_INPUT_IMAGE};
    options.channels = c->length > 0 ? 1 : c->shape[0];
    options.height = c->length > 0 ? 1 : c->shape[1];
    options.width = c->length > 0 ? c->length : c->shape[2];
    options.symbols = c->length > 0 ? c->classes : 0;
    c->cpu = cpu_backend_create(&cpu);
    assert_non_null(c->cpu);
    if (model_create(c->cpu, &options, &c->model, &why) != RC_OK) fail_msg("%s", why.text);
    set_weights(c);
    if (optimizer_parse(json_get_text(c->golden, "optimizer"), &c->optimizer, &why) != RC_OK) {
        fail_msg("%s", why.text);
    }
    assert_int_equal(model_reserve_moments(c->model, optimizer_planes(c->optimizer.kind)), RC_OK);
    c->input = zeros((size_t)c->batch * options.channels * options.height * options.width);
    c->logits = zeros((size_t)c->rows * c->classes);
    c->gradient = zeros((size_t)c->rows * c->classes);
    c->workspace = zeros(optimizer_workspace(&c->optimizer, model_schema(c->model)));
}

static void course_end(struct course *c)
{
    free(c->input);
    free(c->logits);
    free(c->gradient);
    free(c->workspace);
    model_destroy(c->model);
    backend_destroy(c->cpu);
    json_destroy(c->golden);
}

static double course_step(struct course *c, uint64_t step)
{
    uint32_t correct = 0;
    double loss;
    struct optimizer_step update = {
        .gradient = model_plane(c->model, SECTION_GRADIENT),
        .moments = model_plane(c->model, SECTION_MOMENTS),
        .values = model_plane(c->model, SECTION_PARAMETERS),
        .workspace = c->workspace,
        .factor = 1.0,
        .count = step + 1,
    };

    if (c->length > 0) {
        fill_sequences(c, step);
    } else {
        fill_images(c, step);
    }
    assert_int_equal(model_forward(c->model, c->input, c->batch, true, c->logits), RC_OK);
    loss = loss_cross_entropy(c->logits, c->labels, c->rows, c->classes, c->gradient, &correct);
    assert_int_equal(model_backward(c->model, c->gradient), RC_OK);
    assert_int_equal(optimizer_step(&c->optimizer, c->cpu, model_schema(c->model), &update), RC_OK);
    return loss;
}

/* --- what must agree ---------------------------------------------------------------------------
 */

/* After one step: how the loss changes with each tensor. */
static void check_gradients(struct course *c, double tolerance)
{
    const struct json *tensors = json_get(c->golden, "tensors");

    for (size_t t = 0; t < json_count(tensors); t++) {
        const struct json *entry = json_at(tensors, t);
        const struct tensor *tensor = tensor_of(c, entry);
        const float *gradient = model_plane(c->model, SECTION_GRADIENT) + tensor->offset;
        uint64_t stream = stream_of(tensor->name);
        double squares = 0.0, product = 0.0, norm, expected;
        if (tensor->section != SECTION_PARAMETERS) continue;
        norm = real_in(entry, "gradient_norm");
        expected = real_in(entry, "gradient_product");
        for (size_t i = 0; i < tensor->count; i++) {
            squares += (double)gradient[i] * (double)gradient[i];
            product += (double)gradient[i] * unit_of(stream, i);
        }
        if (!(fabs(sqrt(squares) - norm) <= tolerance * norm &&
              fabs(product - expected) <= tolerance * norm)) {
            fail_msg("%s: the gradient of %s has norm %.9g and product %.9g, PyTorch's %.9g, %.9g",
                     c->name, tensor->name, sqrt(squares), product, norm, expected);
        }
    }
}

static void check_losses(struct course *c)
{
    const struct json *losses = json_get(c->golden, "losses");
    uint32_t steps = count_in(c->golden, "steps");
    double worst = 0.0;

    assert_true(steps > 0 && steps <= STEPS_MAX);
    assert_int_equal(json_count(losses), steps);
    if (is_sanitized()) steps = SANITIZED_STEPS;
    for (uint32_t s = 0; s < steps; s++) {
        double expected = 0.0, loss = course_step(c, s), off;
        assert_true(json_real_of(json_at(losses, s), &expected));
        if (s == 0) check_gradients(c, c->length > 0 ? GRADIENT_TOLERANCE : CORNERS_TOLERANCE);
        off = fabs(loss / expected - 1.0);
        if (!(off <= LOSS_TOLERANCE)) {
            fail_msg("%s, step %u: loss %.9g, PyTorch's %.9g, off by %.1e", c->name, s, loss,
                     expected, off);
        }
        worst = fmax(worst, off);
    }
    print_message("%s: losses stray by %.1e at most, PyTorch's own float32 by %.1e\n", c->name,
                  worst, real_in(c->golden, "float32_strays"));
}

static void check_tensors(struct course *c)
{
    const struct json *tensors = json_get(c->golden, "tensors");

    for (size_t t = 0; t < json_count(tensors); t++) {
        const struct json *entry = json_at(tensors, t);
        const struct tensor *tensor = tensor_of(c, entry);
        const float *values = values_of(c, tensor);
        double sum = 0.0, squares = 0.0, norm = real_in(entry, "norm");
        if (bool_in(entry, "is_noise")) continue;
        for (size_t i = 0; i < tensor->count; i++) {
            sum += (double)values[i];
            squares += (double)values[i] * (double)values[i];
        }
        if (!(fabs(sqrt(squares) - norm) <= TENSOR_TOLERANCE * norm &&
              fabs(sum - real_in(entry, "sum")) <=
                  TENSOR_TOLERANCE * norm * sqrt((double)tensor->count))) {
            fail_msg("%s: %s ends with norm %.9g and sum %.9g, PyTorch's with %.9g and %.9g",
                     c->name, tensor->name, sqrt(squares), sum, norm, real_in(entry, "sum"));
        }
    }
}

/* Given PyTorch's weights and batches, a model of ours has its losses and ends where it does. */
static void fifty_steps_agree_with_pytorch(void **state)
{
    struct course course;

    course_begin(&course, *state, CPU_CONVOLUTION_AUTO);
    check_losses(&course);
    if (!is_sanitized()) check_tensors(&course);
    course_end(&course);
}

/* The gradients of the first step, by convolutions that round as PyTorch's do. */
static void plain_convolutions_agree_with_pytorch(void **state)
{
    struct course course;

    course_begin(&course, *state, CPU_CONVOLUTION_IM2COL);
    (void)course_step(&course, 0);
    check_gradients(&course, GRADIENT_TOLERANCE);
    course_end(&course);
}

#define PLAINLY(name)                                                                              \
    cmocka_unit_test_prestate(plain_convolutions_agree_with_pytorch, (void *)(uintptr_t)(name))
#define AS(name)                                                                                   \
    cmocka_unit_test_prestate(fifty_steps_agree_with_pytorch, (void *)(uintptr_t)(name))

int main(void)
{
    const struct CMUnitTest tests[] = {
        AS("mlp"),  AS("cnn"),      AS("resnet20"), AS("gpt-nano"),
        AS("lstm"), PLAINLY("mlp"), PLAINLY("cnn"), PLAINLY("resnet20"),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
