/*
 * GPT-2 files in Hugging Face's names: what is read is what a plain float64 forward pass of the
 * paper's form computes from the file. FULL=1 runs it at GPT-2's own size (124M) as well.
 */
#include "tests/check.h"

#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "replica/formats/gpt2.h"
#include "replica/formats/model_file.h"
#include "replica/plane/store_safetensors.h"
#include "tests/scratch.h"

#include <math.h>

struct size {
    uint32_t layers, width, context, symbols, steps;
};

static const struct size small = {2, 128, 24, 97, 24};
static const struct size full = {12, 768, 1024, 50257, 64};

/* ---- a file of random values ---- */

enum { TENSORS_MAX = 256, KINDS = 12 };

struct foreign {
    struct tensor_file *file;
    float *values[TENSORS_MAX];
    char names[TENSORS_MAX][64];
    size_t count;
    struct rng rng;
    const char *prefix;
};

static const float *add(struct foreign *f, const char *name, uint64_t rows, uint64_t columns,
                        float mean, float deviation)
{
    size_t count = rows * (columns == 0 ? 1 : columns);
    float *values = mem_array(count, sizeof *values);
    struct tensor_view view = {.dtype = "F32", .rank = columns == 0 ? 1 : 2, .bytes = values};

    assert_non_null(values);
    assert_true(f->count < TENSORS_MAX);
    for (size_t i = 0; i < count; i++) {
        values[i] = mean + deviation * (float)rng_normal(&f->rng);
    }
    snprintf(f->names[f->count], sizeof f->names[0], "%s%s", f->prefix, name);
    view.name = f->names[f->count];
    view.shape[0] = rows;
    view.shape[1] = columns;
    view.bytes_count = count * sizeof *values;
    assert_int_equal(tensor_file_add(f->file, &view), RC_OK);
    f->values[f->count++] = values;
    return values;
}

static void foreign_init(struct foreign *f, struct size size, const char *prefix)
{
    char name[64];
    uint32_t w = size.width;

    memset(f, 0, sizeof *f);
    f->file = tensor_file_create();
    f->prefix = prefix;
    rng_init(&f->rng, 5, 6);
    assert_non_null(f->file);
    add(f, "wte.weight", size.symbols, w, 0, 0.1F);
    add(f, "wpe.weight", size.context, w, 0, 0.1F);
    for (uint32_t l = 0; l < size.layers; l++) {
        const struct {
            const char *name;
            uint64_t rows, columns;
            float mean;
        } rows[KINDS] = {
            {"ln_1.weight", w, 0, 1},
            {"ln_1.bias", w, 0, 0},
            {"attn.c_attn.weight", w, 3 * w, 0},
            {"attn.c_attn.bias", 3 * w, 0, 0},
            {"attn.c_proj.weight", w, w, 0},
            {"attn.c_proj.bias", w, 0, 0},
            {"ln_2.weight", w, 0, 1},
            {"ln_2.bias", w, 0, 0},
            {"mlp.c_fc.weight", w, 4 * w, 0},
            {"mlp.c_fc.bias", 4 * w, 0, 0},
            {"mlp.c_proj.weight", 4 * w, w, 0},
            {"mlp.c_proj.bias", w, 0, 0},
        };
        for (size_t k = 0; k < KINDS; k++) {
            snprintf(name, sizeof name, "h.%u.%s", l, rows[k].name);
            add(f, name, rows[k].rows, rows[k].columns, rows[k].mean, 0.05F);
        }
    }
    add(f, "ln_f.weight", w, 0, 1, 0.05F);
    add(f, "ln_f.bias", w, 0, 0, 0.05F);
}

static void foreign_deinit(struct foreign *f)
{
    tensor_file_destroy(f->file);
    for (size_t i = 0; i < f->count; i++) {
        mem_free(f->values[i]);
    }
}

/* ---- the twin: float64, straight from the formulas, [in][out] as in the file ---- */

static void norm_rows(const double *x, const float *gamma, const float *beta, size_t rows,
                      size_t width, double *y)
{
    for (size_t r = 0; r < rows; r++) {
        double mean = 0.0, variance = 0.0;
        for (size_t i = 0; i < width; i++) {
            mean += x[r * width + i] / (double)width;
        }
        for (size_t i = 0; i < width; i++) {
            variance += pow(x[r * width + i] - mean, 2.0) / (double)width;
        }
        for (size_t i = 0; i < width; i++) {
            y[r * width + i] =
                (x[r * width + i] - mean) / sqrt(variance + 1e-5) * gamma[i] + beta[i];
        }
    }
}

static void product(const double *x, const float *weight, const float *bias, size_t rows, size_t in,
                    size_t out, double *y)
{
    for (size_t r = 0; r < rows; r++) {
        for (size_t o = 0; o < out; o++) {
            y[r * out + o] = bias[o];
        }
        for (size_t i = 0; i < in; i++) {
            for (size_t o = 0; o < out; o++) {
                y[r * out + o] += x[r * in + i] * weight[i * out + o];
            }
        }
    }
}

static void attend(const double *qkv, size_t steps, size_t width, double *y)
{
    size_t stride = 3 * width, each = 64;
    double *weights = mem_array(steps, sizeof *weights);

    assert_non_null(weights);
    memset(y, 0, steps * width * sizeof *y);
    for (size_t at = 0; at < width; at += each) {
        for (size_t t = 0; t < steps; t++) {
            double sum = 0.0;
            for (size_t k = 0; k <= t; k++) {
                double score = 0.0;
                for (size_t i = 0; i < each; i++) {
                    score += qkv[t * stride + at + i] * qkv[k * stride + width + at + i];
                }
                weights[k] = exp(score / sqrt((double)each));
                sum += weights[k];
            }
            for (size_t k = 0; k <= t; k++) {
                for (size_t i = 0; i < each; i++) {
                    y[t * width + at + i] +=
                        weights[k] / sum * qkv[k * stride + 2 * width + at + i];
                }
            }
        }
    }
    mem_free(weights);
}

static void twin_layer(float *const *layer, size_t steps, size_t width, double *x, double *rooms[2])
{
    double *a = rooms[0], *b = rooms[1];

    norm_rows(x, layer[0], layer[1], steps, width, a);
    product(a, layer[2], layer[3], steps, width, 3 * width, b);
    attend(b, steps, width, a);
    product(a, layer[4], layer[5], steps, width, width, b);
    for (size_t i = 0; i < steps * width; i++) {
        x[i] += b[i];
    }
    norm_rows(x, layer[6], layer[7], steps, width, a);
    product(a, layer[8], layer[9], steps, width, 4 * width, b);
    for (size_t i = 0; i < steps * 4 * width; i++) {
        b[i] *= 0.5 * (1.0 + tanh(sqrt(2.0 / acos(-1.0)) * (b[i] + 0.044715 * pow(b[i], 3.0))));
    }
    product(b, layer[10], layer[11], steps, 4 * width, width, a);
    for (size_t i = 0; i < steps * width; i++) {
        x[i] += a[i];
    }
}

/* Logits [steps][symbols]. */
static double *twin(const struct foreign *f, struct size size, const float *tokens)
{
    size_t w = size.width, steps = size.steps;
    double *x = mem_array(steps * w, sizeof *x), *rooms[2];
    double *logits = mem_array(steps * size.symbols, sizeof *logits);
    float *const *last = f->values + 2 + (size_t)KINDS * size.layers;

    rooms[0] = mem_array(steps * 4 * w, sizeof *x);
    rooms[1] = mem_array(steps * 4 * w, sizeof *x);
    assert_true(x != NULL && logits != NULL && rooms[0] != NULL && rooms[1] != NULL);
    for (size_t i = 0; i < steps * w; i++) {
        x[i] = (double)f->values[0][(size_t)tokens[i / w] * w + i % w] + f->values[1][i];
    }
    for (uint32_t l = 0; l < size.layers; l++) {
        twin_layer(f->values + 2 + (size_t)KINDS * l, steps, w, x, rooms);
    }
    norm_rows(x, last[0], last[1], steps, w, rooms[0]);
    for (size_t t = 0; t < steps; t++) {
        for (size_t s = 0; s < size.symbols; s++) {
            double sum = 0.0;
            for (size_t i = 0; i < w; i++) {
                sum += rooms[0][t * w + i] * f->values[0][s * w + i];
            }
            logits[t * size.symbols + s] = sum;
        }
    }
    mem_free(x);
    mem_free(rooms[0]);
    mem_free(rooms[1]);
    return logits;
}

/* ---- the comparison ---- */

static void compare(struct size size, const char *prefix)
{
    const struct cpu_backend_options request = {.threads = 1};
    const struct model_load_options load = {.batch_max = 1, .steps = size.steps};
    struct backend *backend = cpu_backend_create(&request);
    size_t count = (size_t)size.steps * size.symbols;
    float *tokens = mem_array(size.steps, sizeof *tokens);
    float *logits = mem_array(count, sizeof *logits);
    double *wanted, most = 0.0, error = 0.0;
    struct model *model = NULL;
    struct model_card card;
    struct fault why = {""};
    struct foreign f;

    foreign_init(&f, size, prefix);
    assert_true(gpt2_is_file(f.file));
    assert_int_equal(
        model_load_with(backend, f.file, "gpt2.safetensors", &load, &model, &card, &why), RC_OK);
    assert_int_equal(card.width, size.context);
    assert_int_equal(card.symbols, size.symbols);
    assert_false(card.has_symbol_bytes);
    for (uint32_t t = 0; t < size.steps; t++) {
        tokens[t] = (float)rng_below(&f.rng, size.symbols);
    }
    wanted = twin(&f, size, tokens);
    assert_int_equal(model_forward(model, tokens, 1, false, logits), RC_OK);
    for (size_t i = 0; i < count; i++) {
        most = fmax(most, fabs(wanted[i]));
        error = fmax(error, fabs(logits[i] - wanted[i]));
    }
    printf("%u layers of %u: error %.2e of %.3f\n", size.layers, size.width, error, most);
    assert_true(most > 0.5 && error <= 1e-4 * most);
    model_destroy(model);
    backend_destroy(backend);
    foreign_deinit(&f);
    mem_free(tokens);
    mem_free(logits);
    mem_free(wanted);
}

static void the_forward_pass_is_that_of_a_float64_twin(void **state)
{
    /* Heads of 64, tied embedding, [in][out] weights, with and without the prefix. */
    (void)state;
    compare(small, "");
    compare(small, "transformer.");
    if (getenv("FULL") != NULL)
        compare(full, "transformer.");
    else
        puts("FULL=1 compares 124M parameters, too");
}

/* ---- writing ---- */

static struct backend *backend_of_test(void)
{
    const struct cpu_backend_options request = {.threads = 1};
    struct backend *backend = cpu_backend_create(&request);

    assert_non_null(backend);
    return backend;
}

static void compare_planes(struct model *a, struct model *b)
{
    const struct schema *schema = model_schema(a);

    assert_string_equal(model_spec(a), model_spec(b));
    assert_memory_equal(model_plane(a, SECTION_PARAMETERS), model_plane(b, SECTION_PARAMETERS),
                        schema->values[SECTION_PARAMETERS] * sizeof(float));
}

static void a_model_of_this_form_is_written_and_read_back_to_the_bit(void **state)
{
    /* Tied and untied, other heads than of 64, other inner widths, bytes of symbols. */
    static const char *const specs[] = {
        "embed:24 positions:16 ( [ ln attention:3 ]+ [ ln linear:40 gelu linear:24 ]+ )*2 ln "
        "linear:classes,bias=0",
        "embed:24 positions:16 [ ln attention:4 ]+ [ ln linear:96 gelu-tanh linear:24 ]+ ln "
        "linear:classes,bias=0,tied=1",
    };
    struct backend *backend = backend_of_test();
    struct scratch scratch;
    struct fault why = {""};

    (void)state;
    scratch_init(&scratch);
    for (size_t i = 0; i < ARRAY_COUNT(specs); i++) {
        const struct model_options options = {.spec = specs[i],
                                              .channels = 1,
                                              .height = 1,
                                              .width = 16,
                                              .classes = 5,
                                              .symbols = 5,
                                              .batch_max = 1,
                                              .seed = 3,
                                              .input = MODEL_INPUT_TOKENS};
        struct model_card card = {
            .symbols = 5, .has_symbol_bytes = true, .symbol_bytes = "abcde", .data = "text:x.txt"};
        struct model_card read;
        struct model *model = NULL, *again = NULL;
        struct tensor_file *file = NULL;
        const char *path = scratch_path(&scratch, "x.safetensors");

        assert_int_equal(model_create(backend, &options, &model, &why), RC_OK);
        assert_true(gpt2_is_form(model));
        assert_int_equal(gpt2_save(model, &card, path, &why), RC_OK);
        assert_int_equal(tensor_file_load(path, &file, &why), RC_OK);
        assert_true((tensor_file_find(file, "lm_head.weight") == NULL) == (i == 1));
        assert_int_equal(model_load(backend, file, path, 1, false, &again, &read, &why), RC_OK);
        compare_planes(model, again);
        assert_true(read.has_symbol_bytes);
        assert_memory_equal(read.symbol_bytes, "abcde", 5);
        assert_string_equal(read.data, "text:x.txt");
        model_destroy(model);
        model_destroy(again);
        tensor_file_destroy(file);
    }
    backend_destroy(backend);
    scratch_deinit(&scratch);
}

static void models_of_another_form_are_told_apart(void **state)
{
    /* Rotary or relu or a missing last norm: not GPT-2. */
    static const char *const specs[] = {
        "embed:24 [ ln attention:3,rotary=1 ]+ [ ln linear:40 gelu linear:24 ]+ ln "
        "linear:classes,bias=0",
        "embed:24 positions:16 [ ln attention:3 ]+ [ ln linear:40 relu linear:24 ]+ ln "
        "linear:classes,bias=0",
        "embed:24 positions:16 [ ln attention:3 ]+ [ ln linear:40 gelu linear:24 ]+ "
        "linear:classes,bias=0",
        "embed:24 lstm:8 linear:classes",
    };
    struct backend *backend = backend_of_test();
    struct fault why = {""};

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(specs); i++) {
        const struct model_options options = {.spec = specs[i],
                                              .channels = 1,
                                              .height = 1,
                                              .width = 16,
                                              .classes = 5,
                                              .symbols = 5,
                                              .batch_max = 1,
                                              .input = MODEL_INPUT_TOKENS};
        struct model *model = NULL;
        assert_int_equal(model_create(backend, &options, &model, &why), RC_OK);
        assert_false(gpt2_is_form(model));
        model_destroy(model);
    }
    backend_destroy(backend);
}

/* ---- other types, and damage ---- */

static enum rc load(struct backend *backend, const struct tensor_file *file, struct model **model,
                    struct fault *why)
{
    struct model_card card;

    *model = NULL;
    return model_load(backend, file, "x.safetensors", 1, false, model, &card, why);
}

static uint16_t to_half(float value) /* truncates; normal numbers only */
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    if ((bits >> 23 & 0xFF) < 113) return (uint16_t)(bits >> 16 & 0x8000);
    return (uint16_t)((bits >> 16 & 0x8000) | ((bits >> 23 & 0xFF) - 112) << 10 |
                      (bits >> 13 & 0x3FF));
}

static void narrow_types_are_widened(void **state)
{
    /* F16 and BF16 values arrive as what they stand for. */
    struct backend *backend = backend_of_test();
    struct fault why = {""};

    (void)state;
    for (int is_brain = 0; is_brain < 2; is_brain++) {
        struct foreign f;
        struct tensor_file *file = tensor_file_create();
        uint16_t *rooms[TENSORS_MAX];
        struct model *model;

        foreign_init(&f, small, "");
        for (size_t i = 0; i < tensor_file_count(f.file); i++) {
            struct tensor_view view = *tensor_file_at(f.file, i);
            const float *from = view.bytes;
            size_t count = view.bytes_count / sizeof(float);
            rooms[i] = mem_array(count, sizeof **rooms);
            for (size_t k = 0; k < count; k++) {
                uint32_t bits;
                memcpy(&bits, &from[k], sizeof bits);
                rooms[i][k] = is_brain ? (uint16_t)(bits >> 16) : to_half(from[k]);
            }
            view.dtype = is_brain ? "BF16" : "F16";
            view.bytes = rooms[i];
            view.bytes_count = count * sizeof **rooms;
            assert_int_equal(tensor_file_add(file, &view), RC_OK);
        }
        assert_int_equal(load(backend, file, &model, &why), RC_OK);
        for (size_t i = 0; i < (size_t)small.symbols * small.width; i++) {
            float got = model_plane(model, SECTION_PARAMETERS)[i], was = f.values[0][i];
            assert_true(fabsf(got - was) <= fabsf(was) / (is_brain ? 128.0F : 1024.0F) + 7e-5F);
        }
        model_destroy(model);
        tensor_file_destroy(file);
        for (size_t i = 0; i < f.count; i++) {
            mem_free(rooms[i]);
        }
        foreign_deinit(&f);
    }
    backend_destroy(backend);
}

/* The file without, or with another form of, the tensor of this name. */
static struct tensor_file *spoil(const struct foreign *f, const char *name,
                                 const struct tensor_view *instead)
{
    struct tensor_file *file = tensor_file_create();

    assert_non_null(file);
    for (size_t i = 0; i < tensor_file_count(f->file); i++) {
        struct tensor_view view = *tensor_file_at(f->file, i);
        if (strcmp(view.name, name) == 0) {
            if (instead == NULL) continue;
            view = *instead;
            view.name = name;
        }
        assert_int_equal(tensor_file_add(file, &view), RC_OK);
    }
    return file;
}

static void damage_is_told_by_the_name_of_the_tensor(void **state)
{
    /* Missing, of another shape or type, not finite, a width that has no heads. */
    static const double reals[256];
    float nan[384] = {NAN};
    const struct tensor_view short_one = {
        .dtype = "F32", .rank = 1, .shape = {3}, .bytes = nan, .bytes_count = 12};
    const struct tensor_view wide = {
        .dtype = "F64", .rank = 1, .shape = {128}, .bytes = reals, .bytes_count = 1024};
    const struct tensor_view not_finite = {
        .dtype = "F32", .rank = 1, .shape = {128}, .bytes = nan, .bytes_count = 512};
    const struct {
        const char *name;
        const struct tensor_view *instead;
        enum rc rc;
        const char *text;
    } rows[] = {
        {"wpe.weight", NULL, RC_FORMAT, "'wpe.weight' is missing"},
        {"wpe.weight", &short_one, RC_SHAPE, "'wpe.weight' is not a matrix"},
        {"h.1.mlp.c_proj.weight", NULL, RC_FORMAT, "'h.1.mlp.c_proj.weight' is missing"},
        {"ln_f.bias", &short_one, RC_SHAPE, "'ln_f.bias' has not the shape"},
        {"ln_f.bias", &wide, RC_FORMAT, "'ln_f.bias' has the type F64"},
        {"ln_f.bias", &not_finite, RC_NONFINITE, "'ln_f.bias' holds a NaN"},
    };
    struct backend *backend = backend_of_test();
    struct foreign f;

    (void)state;
    foreign_init(&f, small, "");
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct tensor_file *file = spoil(&f, rows[i].name, rows[i].instead);
        struct fault why = {""};
        struct model *model;
        assert_int_equal(load(backend, file, &model, &why), rows[i].rc);
        assert_non_null(strstr(why.text, rows[i].text));
        tensor_file_destroy(file);
    }
    assert_int_equal(tensor_file_set(f.file, "n_head", "7"), RC_OK);
    {
        struct fault why = {""};
        struct model *model;
        assert_int_equal(load(backend, f.file, &model, &why), RC_SHAPE);
        assert_non_null(strstr(why.text, "n_head in its metadata is '7'"));
    }
    foreign_deinit(&f);
    backend_destroy(backend);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_forward_pass_is_that_of_a_float64_twin),
        cmocka_unit_test(a_model_of_this_form_is_written_and_read_back_to_the_bit),
        cmocka_unit_test(models_of_another_form_are_told_apart),
        cmocka_unit_test(narrow_types_are_widened),
        cmocka_unit_test(damage_is_told_by_the_name_of_the_tensor),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
