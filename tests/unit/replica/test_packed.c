/* Packed weights of model files: round trips within half a scale, the smaller form chosen, files
 * that lie refused, and whole models read from them. */
#include "tests/scratch.h"

#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "replica/formats/model_file.h"
#include "replica/formats/packed.h"
#include "replica/plane/store_safetensors.h"

#include <float.h>
#include <math.h>

enum { ROWS = 5, COLUMNS = 37, COUNT = ROWS * COLUMNS };

static const struct tensor weight = {
    "dense1.weight", SECTION_PARAMETERS, 2, {ROWS, COLUMNS}, 0, COUNT};

/* The file as bytes and back. */
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
        if (pieces[i].count > 0) memcpy(all + at, pieces[i].bytes, pieces[i].count);
        at += pieces[i].count;
    }
    assert_int_equal(tensor_file_decode("test", all, bytes, &read, NULL), RC_OK);
    tensor_file_destroy(file);
    return read;
}

static struct tensor_file *pack(const float *values, bool is_int8)
{
    struct tensor_file *file = tensor_file_create();

    assert_int_equal(packed_add(file, &weight, values, is_int8), RC_OK);
    return reread(file);
}

/* Values of very unlike rows, a share of them 0. */
static void draw(uint64_t seed, double zeros, float *values)
{
    struct rng rng;

    rng_init(&rng, seed, 1);
    for (size_t i = 0; i < COUNT; i++) {
        const float size = powf(10.0F, (float)(i / COLUMNS) * 2.0F - 4.0F);
        values[i] = rng_unit(&rng) < zeros ? 0.0F : size * (float)rng_normal(&rng);
    }
}

static void int8_is_within_half_a_scale(void **state)
{
    /* |w - q s| <= s / 2 with s = max |w| / 127 of the row, dense and sparse; zeros stay zeros. */
    (void)state;
    FOR_EACH_SEED (seed, 20) {
        float values[COUNT], read[COUNT];
        struct fault why = {""};
        draw(seed, seed % 2 == 0 ? 0.0 : 0.7, values);
        struct tensor_file *file = pack(values, true);
        check_seed(seed, packed_is(file, &weight));
        check_seed(seed, packed_read(file, "x", &weight, read, &why) == RC_OK);
        for (size_t r = 0; r < ROWS; r++) {
            float most = 0.0F;
            for (size_t c = 0; c < COLUMNS; c++) {
                most = fmaxf(most, fabsf(values[r * COLUMNS + c]));
            }
            for (size_t i = r * COLUMNS; i < (r + 1) * COLUMNS; i++) {
                check_seed(seed, fabsf(values[i] - read[i]) <= most / 127.0F * 0.500001F);
                check_seed(seed, fabsf(values[i]) > 0.0F || !(fabsf(read[i]) > 0.0F));
            }
        }
        tensor_file_destroy(file);
    }
}

static void packing_again_changes_nothing(void **state)
{
    /* What was read from int8 packs to the same integers. */
    float values[COUNT], once[COUNT];
    int8_t first[COUNT], second[COUNT];
    const float *scales;
    struct fault why = {""};

    (void)state;
    draw(3, 0.1, values);
    struct tensor_file *one = pack(values, true);
    assert_int_equal(packed_read(one, "x", &weight, once, &why), RC_OK);
    struct tensor_file *two = pack(once, true);
    assert_true(packed_int8(one, &weight, first, &scales));
    assert_true(packed_int8(two, &weight, second, &scales));
    assert_memory_equal(first, second, sizeof first);
    tensor_file_destroy(one);
    tensor_file_destroy(two);
}

static void zeros_are_left_out_where_that_is_smaller(void **state)
{
    /* Sparse float32 comes back to the bit; without zeros it is a plain tensor. */
    float values[COUNT], read[COUNT];
    int8_t q[COUNT];
    const float *scales;
    struct fault why = {""};

    (void)state;
    draw(5, 0.5, values);
    struct tensor_file *file = pack(values, false);
    assert_non_null(tensor_file_find(file, "dense1.weight.mask"));
    assert_null(tensor_file_find(file, "dense1.weight"));
    assert_true(packed_is(file, &weight));
    assert_false(packed_int8(file, &weight, q, &scales));
    assert_int_equal(packed_read(file, "x", &weight, read, &why), RC_OK);
    assert_memory_equal(values, read, sizeof read);
    tensor_file_destroy(file);
    draw(5, 0.0, values);
    file = pack(values, false);
    assert_false(packed_is(file, &weight));
    assert_int_equal(tensor_file_find(file, "dense1.weight")->bytes_count, sizeof values);
    tensor_file_destroy(file);
    memset(values, 0, sizeof values);
    for (int is_int8 = 0; is_int8 < 2; is_int8++) {
        file = pack(values, is_int8 == 1);
        memset(read, 1, sizeof read);
        assert_int_equal(packed_read(file, "x", &weight, read, &why), RC_OK);
        assert_memory_equal(values, read, sizeof read);
        tensor_file_destroy(file);
    }
}

static void the_largest_and_smallest_numbers_stay_finite(void **state)
{
    /* FLT_MAX does not become an infinity, nor what is next to nothing a division by it. */
    float values[COUNT], read[COUNT];
    struct fault why = {""};

    (void)state;
    for (size_t i = 0; i < COUNT; i++) {
        static const float sizes[ROWS] = {FLT_MAX, FLT_MIN, 1e-44F, 1.0F, 0.0F};
        values[i] = (i % 2 == 0 ? 1.0F : -1.0F) * sizes[i / COLUMNS];
    }
    struct tensor_file *file = pack(values, true);
    assert_int_equal(packed_read(file, "x", &weight, read, &why), RC_OK);
    for (size_t i = 0; i < COUNT; i++) {
        assert_true(isfinite(read[i]));
        if (i / COLUMNS == 0 || i / COLUMNS == 3) {
            assert_true(fabsf(read[i] / values[i] - 1.0F) < 1e-6F);
        }
    }
    tensor_file_destroy(file);
}

/* ---- files from anybody ---- */

/* The parts of one weight of eleven values in two rows; a test spoils one of them. */
struct parts {
    uint8_t mask[2];
    int8_t values[22];
    float scale[3];
    const char *mask_type, *values_type, *scale_type;
    size_t mask_count, values_count, scale_count;
    bool is_sparse, has_scale, has_values;
};

static struct parts sound(bool is_sparse)
{
    struct parts p = {.mask = {0x0F, 0x01},
                      .scale = {0.5F, 2.0F, 1.0F},
                      .mask_type = "U8",
                      .values_type = "I8",
                      .scale_type = "F32",
                      .mask_count = 2,
                      .values_count = is_sparse ? 5 : 10,
                      .scale_count = 2,
                      .is_sparse = is_sparse,
                      .has_scale = true,
                      .has_values = true};
    for (int i = 0; i < 22; i++) {
        p.values[i] = (int8_t)(i - 3);
    }
    return p;
}

static size_t width_of(const char *type)
{
    return strcmp(type, "F32") == 0 ? 4 : 1;
}

static enum rc read_parts(const struct parts *p, struct fault *why)
{
    const struct tensor tensor = {"w", SECTION_PARAMETERS, 2, {2, 5}, 0, 10};
    struct tensor_file *file = tensor_file_create();
    struct tensor_view mask = {"w.mask", p->mask_type, 1, {p->mask_count}, p->mask, 0};
    struct tensor_view values = {"w", p->values_type, 2, {2, p->values_count / 2}, p->values, 0};
    struct tensor_view scale = {"w.scale", p->scale_type, 1, {p->scale_count}, p->scale, 0};
    float read[10];
    enum rc rc;

    if (p->is_sparse) {
        values =
            (struct tensor_view){"w.values", p->values_type, 1, {p->values_count}, p->values, 0};
    }
    mask.bytes_count = p->mask_count * width_of(p->mask_type);
    values.bytes_count = p->values_count * width_of(p->values_type);
    scale.bytes_count = p->scale_count * width_of(p->scale_type);
    if (p->is_sparse) assert_int_equal(tensor_file_add_copy(file, &mask), RC_OK);
    if (p->has_values) assert_int_equal(tensor_file_add_copy(file, &values), RC_OK);
    if (p->has_scale) assert_int_equal(tensor_file_add_copy(file, &scale), RC_OK);
    file = reread(file);
    assert_true(packed_is(file, &tensor));
    rc = packed_read(file, "bad.st", &tensor, read, why);
    if (rc == RC_OK && p->is_sparse) { /* bits 0 to 3 and 8: the values in their places */
        assert_true(read[0] == -1.5F && read[3] == 0.0F && read[4] == 0.0F && read[8] == 2.0F);
    }
    tensor_file_destroy(file);
    return rc;
}

static void check_refused(struct parts p, enum rc rc, const char *part)
{
    struct fault why = {""};

    assert_int_equal(read_parts(&p, &why), rc);
    if (strstr(why.text, part) == NULL) fail_msg("'%s' is not in '%s'", part, why.text);
    assert_non_null(strstr(why.text, "cannot use bad.st: tensor 'w"));
}

#define SPOILED(is_sparse, change)                                                                 \
    ({                                                                                             \
        struct parts p = sound(is_sparse);                                                         \
        change;                                                                                    \
        p;                                                                                         \
    })

static void parts_that_do_not_fit_are_refused(void **state)
{
    /* Missing, of another size or type, with bits too many, with values that the form has not. */
    struct fault why = {""};
    struct parts good = sound(true);

    (void)state;
    assert_int_equal(read_parts(&good, &why), RC_OK);
    good = sound(false);
    assert_int_equal(read_parts(&good, &why), RC_OK);
    for (int s = 0; s < 2; s++) {
        const bool is_sparse = s == 1;
        check_refused(SPOILED(is_sparse, p.has_scale = false), RC_SHAPE, "no scale");
        check_refused(SPOILED(is_sparse, p.scale_count = 3), RC_SHAPE, "no scale");
        check_refused(SPOILED(is_sparse, (p.scale_type = "U8", p.scale_count = 2)), RC_SHAPE,
                      "no scale");
        check_refused(SPOILED(is_sparse, p.scale[1] = 0.0F), RC_NONFINITE, "no number above 0");
        check_refused(SPOILED(is_sparse, p.scale[0] = -1.0F), RC_NONFINITE, "no number above 0");
        check_refused(SPOILED(is_sparse, p.scale[1] = NAN), RC_NONFINITE, "no number above 0");
        check_refused(SPOILED(is_sparse, p.scale[1] = INFINITY), RC_NONFINITE, "no number above 0");
        check_refused(SPOILED(is_sparse, p.values[4] = -128), RC_FORMAT, "holds -128");
    }
    check_refused(SPOILED(false, p.values_count = 8), RC_SHAPE, "another shape");
    check_refused(SPOILED(true, p.has_values = false), RC_SHAPE, "a mask and no values");
    check_refused(SPOILED(true, p.values_count = 4), RC_SHAPE, "other values than its mask says");
    check_refused(SPOILED(true, p.values_count = 6), RC_SHAPE, "other values than its mask says");
    check_refused(SPOILED(true, p.values_type = "U8"), RC_SHAPE, "other values than");
    check_refused(SPOILED(true, p.mask_count = 1), RC_SHAPE, "a mask of another size");
    check_refused(SPOILED(true, p.mask_type = "I8"), RC_SHAPE, "a mask of another size");
    check_refused(SPOILED(true, (p.mask[1] = 0x05, p.values_count = 6)), RC_SHAPE,
                  "bits behind its end");
}

/* ---- whole models ---- */

static struct model *make(struct backend *backend, const char *spec, struct model_card *card)
{
    const struct model_options options = {.spec = spec,
                                          .channels = 1,
                                          .height = 8,
                                          .width = 8,
                                          .classes = 10,
                                          .batch_max = 4,
                                          .seed = 4};
    struct model *model = NULL;

    assert_int_equal(model_create(backend, &options, &model, NULL), RC_OK);
    *card = (struct model_card){
        .data = "digits", .channels = 1, .height = 8, .width = 8, .classes = 10};
    snprintf(card->spec, sizeof card->spec, "%s", model_spec(model));
    return model;
}

static void a_model_is_read_from_int8_as_it_was_written(void **state)
{
    /* Weights within half a scale; biases, norms, statistics and normalisation to the bit; about a
     * quarter of the bytes; and what it says is nearly the same. */
    const struct cpu_backend_options request = {.threads = 1};
    struct backend *backend = cpu_backend_create(&request);
    struct tensor_file *file = tensor_file_create();
    struct model *model, *loaded = NULL;
    struct model_card card, read;
    struct fault why = {""};
    float input[64], logits[2][10], *parameters;
    size_t bytes = 0;

    (void)state;
    model = make(backend,
                 "conv3x3:16 bn relu conv3x3:16,wn=1 relu maxpool2 linear:64 relu "
                 "linear:classes",
                 &card);
    parameters = model_plane(model, SECTION_PARAMETERS);
    model_set_normalisation(model, &(float){0.25F}, &(float){3.5F});
    model_plane(model, SECTION_BUFFERS)[2] = 0.1234567F;
    for (size_t i = 0; i < 64; i++) {
        input[i] = (float)(i % 9) / 9.0F;
    }
    assert_int_equal(model_save_packed(model, &card, true, file), RC_OK);
    file = reread(file);
    for (size_t i = 0; i < tensor_file_count(file); i++) {
        bytes += tensor_file_at(file, i)->bytes_count;
    }
    assert_true((double)bytes < 0.28 * 4 * (double)model_schema(model)->values[SECTION_PARAMETERS]);
    if (model_load(backend, file, "x", 4, false, &loaded, &read, &why) != RC_OK)
        fail_msg("%s", why.text);
    for (uint32_t t = 0; t < model_schema(model)->tensors_count; t++) {
        const struct tensor *tensor = &model_schema(model)->tensors[t];
        const float *was = model_plane(model, tensor->section) + tensor->offset;
        const float *now = model_plane(loaded, tensor->section) + tensor->offset;
        if (packed_may(tensor)) {
            assert_true(packed_is(file, tensor));
            assert_true(memcmp(was, now, tensor->count * sizeof *was) != 0);
        } else {
            assert_memory_equal(was, now, tensor->count * sizeof *was);
        }
    }
    assert_true(model_mean(loaded)[0] == 0.25F && model_scale(loaded)[0] == 3.5F);
    assert_int_equal(model_forward(model, input, 1, false, logits[0]), RC_OK);
    assert_int_equal(model_forward(loaded, input, 1, false, logits[1]), RC_OK);
    for (int i = 0; i < 10; i++) {
        assert_true(fabsf(logits[0][i] - logits[1][i]) < 0.02F);
    }
    assert_true(isfinite(parameters[0]));
    tensor_file_destroy(file);
    model_destroy(model);
    model_destroy(loaded);
    backend_destroy(backend);
}

static void a_model_claims_no_more_than_its_masks_can_say(void **state)
{
    /* A file of few bytes that names large layers is refused before they are made; one that is all
     * zeros is read. */
    const struct cpu_backend_options request = {.threads = 1};
    struct backend *backend = cpu_backend_create(&request);
    struct tensor_file *file = tensor_file_create();
    struct model *model, *loaded = NULL;
    struct model_card card, read;
    struct fault why = {""};

    (void)state;
    model = make(backend, "linear:100 relu linear:classes", &card);
    memset(model_plane(model, SECTION_PARAMETERS), 0,
           model_schema(model)->values[SECTION_PARAMETERS] * sizeof(float));
    assert_int_equal(model_save_packed(model, &card, true, file), RC_OK);
    file = reread(file);
    assert_int_equal(model_load(backend, file, "x", 4, false, &loaded, &read, &why), RC_OK);
    model_destroy(loaded);
    loaded = NULL;
    assert_int_equal(
        tensor_file_set(file, "model", "linear:60000 relu linear:60000 relu linear:classes"),
        RC_OK);
    assert_int_equal(model_load(backend, file, "x", 4, false, &loaded, &read, &why), RC_SHAPE);
    assert_non_null(strstr(why.text, "needs more values than the file holds"));
    assert_null(loaded);
    tensor_file_destroy(file);
    model_destroy(model);
    backend_destroy(backend);
}

static void packing_that_runs_out_of_memory_leaks_nothing(void **state)
{
    /* Whichever allocation fails, on the way out and on the way in. */
    float values[COUNT];

    (void)state;
    for (int round = 0; round < 4; round++) {
        enum rc rc = RC_NOMEM;
        draw(2, round % 2 == 0 ? 0.0 : 0.8, values);
        for (uint64_t after = 0; rc == RC_NOMEM; after++) {
            const uint64_t blocks = mem_blocks();
            float read[COUNT];
            struct fault why = {""};
            struct tensor_file *file;
            mem_fail_after(after);
            file = tensor_file_create();
            rc = file != NULL ? packed_add(file, &weight, values, round < 2) : RC_NOMEM;
            if (rc == RC_OK && packed_is(file, &weight)) {
                rc = packed_read(file, "x", &weight, read, &why);
            }
            mem_fail_after(UINT64_MAX);
            assert_true(rc == RC_OK || rc == RC_NOMEM);
            tensor_file_destroy(file);
            assert_int_equal(mem_blocks(), blocks);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(int8_is_within_half_a_scale),
        cmocka_unit_test(packing_again_changes_nothing),
        cmocka_unit_test(zeros_are_left_out_where_that_is_smaller),
        cmocka_unit_test(the_largest_and_smallest_numbers_stay_finite),
        cmocka_unit_test(parts_that_do_not_fit_are_refused),
        cmocka_unit_test(a_model_is_read_from_int8_as_it_was_written),
        cmocka_unit_test(a_model_claims_no_more_than_its_masks_can_say),
        cmocka_unit_test(packing_that_runs_out_of_memory_leaks_nothing),
    };

    only_threads_for_their_sanitizer();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
