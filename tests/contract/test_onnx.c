/*
 * Every kind of layer as ONNX: the export writes a file whose messages nest exactly, or refuses and
 * names the layer. With ONNX_CASES=FOLDER the files stay there beside an input and our own answer
 * (tests/e2e/test_export.sh runs them through onnxruntime and onnx.checker).
 */
#include "tests/check.h"

#include "base/check.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "replica/formats/export_onnx.h"
#include "replica/formats/model_file.h"
#include "replica/plane/store_safetensors.h"
#include "tests/scratch.h"

#include <math.h>

enum { BATCH = 3, VALUES_MAX = 1 << 16 };

struct onnx_case {
    const char *name, *spec;
    uint32_t channels, height, width, classes, symbols; /* symbols: of tokens; 0: an image */
};

static const struct onnx_case cases[] = {
    {"mlp", "mlp", 1, 8, 8, 10, 0},
    {"vector", "linear:16 tanh linear:8,wn=1 sigmoid linear:classes,bias=0", 7, 1, 1, 3, 0},
    {"cnn", "cnn", 1, 12, 12, 10, 0},
    {"resnet20", "resnet20", 3, 16, 16, 10, 0},
    {"resnet14", "resnet14", 1, 28, 28, 10, 0},
    {"treenet", "treenet", 3, 8, 8, 5, 0},
    {"filters",
     "conv3x3:8,dilation=2 gelu conv5x3:12,stride=2,groups=4 silu conv3x3:12,groups=12,pad=0 "
     "gelu-tanh "
     "leaky:0.2 conv1x1:6,wn=1,bias=0 linear:classes",
     4, 13, 11, 4, 0},
    {"pools",
     "conv3x3:6 relu maxpool3,stride=2,pad=1 [ avgpool3,stride=1,pad=1 | conv1x1:6 ]concat "
     "avgpool2 globalpool linear:classes",
     2, 14, 14, 4, 0},
    {"shortcuts",
     "conv3x3:4 [ conv3x3:8,stride=2 bn | shortcut:8,stride=2 ]+ relu [ conv3x3:8 | shortcut:8 ]+ "
     "linear:classes",
     3, 9, 9, 4, 0},
    {"norms",
     "conv3x3:8 gn:4 relu bn conv3x3:8 relu gn:1 linear:12 bn relu linear:8 ln gn:2 "
     "dropout:0.5 linear:classes",
     1, 8, 8, 4, 0},
    {"one-pixel", "conv3x3:8,pad=0 bn relu conv1x1:6 relu globalpool linear:classes", 2, 3, 3, 4,
     0},
    {"rows", "conv3x3:4 relu rows lstm:12 last linear:classes", 1, 8, 6, 4, 0},
    {"lstm", "embed:12 lstm:16 lstm:8 linear:classes", 1, 1, 9, 11, 11},
    {"gru", "embed:12 gru:16 gru:16,truncate=4 linear:classes", 1, 1, 9, 11, 11},
    {"rnn", "embed:12 rnn:16 bn linear:classes", 1, 1, 9, 11, 11},
    {"gpt",
     "embed:16 positions:12 ( [ ln attention:4 ]+ [ ln linear:32 gelu linear:16 ]+ )*2 ln "
     "linear:classes,bias=0",
     1, 1, 12, 11, 11},
    {"tied", "embed:16 positions:32 [ ln attention:2,bias=0 ]+ ln linear:classes,bias=0,tied=1", 1,
     1, 9, 13, 13},
    {"rotary", "embed:16 [ ln attention:2,rotary=1 ]+ [ attention:4,causal=0 ]+ linear:classes", 1,
     1, 10, 13, 13},
    {"lstm-preset", "lstm", 1, 1, 16, 29, 29},
    {"gpt-nano", "gpt-nano", 1, 1, 20, 29, 29},
    {"heads", "embed:8 lstm:8 [ linear:classes | linear:6 relu linear:classes ]heads", 1, 1, 5, 7,
     7},
    {"branches", "embed:8 [ lstm:8 | rnn:4 ]concat last linear:8 relu linear:classes", 1, 1, 5, 7,
     7},
};

struct world {
    struct backend *backend;
    struct model *model;
    struct model_card card;
    struct tensor_file *file; /* it was loaded from, with int8 weights; NULL: none */
};

static void stir(struct world *w, uint64_t seed)
{
    const struct schema *schema = model_schema(w->model);
    float *parameters = model_plane(w->model, SECTION_PARAMETERS);
    float *buffers = model_plane(w->model, SECTION_BUFFERS);
    float mean[16], scale[16];
    struct rng rng;

    rng_init(&rng, seed, 1);
    for (size_t i = 0; i < schema->values[SECTION_PARAMETERS]; i++) {
        parameters[i] += 0.1F * (float)rng_normal(&rng);
    }
    for (size_t i = 0; i < schema->values[SECTION_BUFFERS]; i++) {
        buffers[i] += 0.2F * (float)rng_unit(&rng);
    }
    for (size_t c = 0; c < ARRAY_COUNT(mean); c++) {
        mean[c] = (float)rng_unit(&rng);
        scale[c] = 0.5F + (float)rng_unit(&rng);
    }
    model_set_normalisation(w->model, mean, scale);
}

static enum rc world_init(struct world *w, const struct onnx_case *c)
{
    const struct cpu_backend_options request = {.threads = 1};
    const struct model_options options = {
        .spec = c->spec,
        .channels = c->channels,
        .height = c->height,
        .width = c->width,
        .classes = c->classes,
        .symbols = c->symbols,
        .input = c->symbols > 0 ? MODEL_INPUT_TOKENS : MODEL_INPUT_IMAGE,
        .batch_max = BATCH,
        .seed = 1,
    };
    struct fault why = {""};
    enum rc rc;

    memset(w, 0, sizeof *w);
    w->backend = cpu_backend_create(&request);
    if (w->backend == NULL) return RC_NOMEM;
    rc = model_create(w->backend, &options, &w->model, &why);
    if (rc != RC_OK && rc != RC_NOMEM) fprintf(stderr, "%s: %s\n", c->name, why.text);
    if (rc != RC_OK) return rc;
    snprintf(w->card.spec, sizeof w->card.spec, "%s", model_spec(w->model));
    snprintf(w->card.data, sizeof w->card.data, "none");
    w->card.input = options.input;
    w->card.channels = c->channels;
    w->card.height = c->height;
    w->card.width = c->width;
    w->card.classes = c->classes;
    w->card.symbols = c->symbols;
    stir(w, 7);
    return RC_OK;
}

/* The same model, read from a file of int8 weights; of every other one most are 0. */
static void world_pack(struct world *w)
{
    float *parameters = model_plane(w->model, SECTION_PARAMETERS);
    const size_t count = model_schema(w->model)->values[SECTION_PARAMETERS];
    const struct piece *pieces = NULL;
    size_t pieces_count = 0, bytes = 0, at = 0;
    struct tensor_file *file = tensor_file_create();
    struct fault why = {""};
    uint8_t *all;

    for (size_t i = 0; i < count && count % 2 == 0; i++) {
        if (i % 5 > 0 && i % 997 > 20) parameters[i] = 0.0F;
    }
    assert_int_equal(model_save_packed(w->model, &w->card, true, file), RC_OK);
    assert_int_equal(tensor_file_encode(file, &pieces, &pieces_count), RC_OK);
    for (size_t i = 0; i < pieces_count; i++) {
        bytes += pieces[i].count;
    }
    all = mem_alloc(bytes);
    for (size_t i = 0; i < pieces_count; i++) {
        if (pieces[i].count > 0) memcpy(all + at, pieces[i].bytes, pieces[i].count);
        at += pieces[i].count;
    }
    assert_int_equal(tensor_file_decode("packed", all, bytes, &w->file, &why), RC_OK);
    tensor_file_destroy(file);
    model_destroy(w->model);
    w->model = NULL;
    if (model_load(w->backend, w->file, "packed", BATCH, false, &w->model, &w->card, &why) != RC_OK)
        fail_msg("%s", why.text);
}

static void world_deinit(struct world *w)
{
    tensor_file_destroy(w->file);
    model_destroy(w->model);
    backend_destroy(w->backend);
}

/* ---- the form of the file ---- */

struct bytes {
    const uint8_t *at, *end;
};

static uint64_t take_varint(struct bytes *b)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 64; shift += 7) {
        assert_true(b->at < b->end);
        value |= (uint64_t)(*b->at & 0x7F) << shift;
        if ((*b->at++ & 0x80) == 0) return value;
    }
    fail_msg("a number of more than ten bytes");
    return 0;
}

/* The next field of a message: its number, and its bytes where it has some. */
static uint32_t take_field(struct bytes *b, struct bytes *content, uint64_t *number)
{
    uint64_t tag = take_varint(b);

    *content = (struct bytes){b->at, b->at};
    switch (tag & 7) {
    case 0:
        *number = take_varint(b);
        break;
    case 2:
        *number = take_varint(b);
        assert_true(*number <= (uint64_t)(b->end - b->at));
        *content = (struct bytes){b->at, b->at + *number};
        b->at += *number;
        break;
    case 5:
        assert_true(b->end - b->at >= 4);
        b->at += 4;
        break;
    default:
        fail_msg("a field of an unknown kind");
    }
    return (uint32_t)(tag >> 3);
}

/* Nodes and constants of the graph. */
static void walk_graph(struct bytes graph, size_t *nodes, size_t *constants)
{
    while (graph.at < graph.end) {
        struct bytes content, inner;
        uint64_t number;
        uint32_t field = take_field(&graph, &content, &number);
        *nodes += field == 1;
        *constants += field == 5;
        while (content.at < content.end && field != 2) {
            take_field(&content, &inner, &number);
        }
    }
}

static void check_form(const char *path)
{
    struct fault why = {""};
    void *bytes;
    size_t count, nodes = 0, constants = 0;
    struct bytes file, content;
    uint64_t number, version = 0;

    assert_int_equal(file_read(path, 1 << 28, &bytes, &count, &why), RC_OK);
    file = (struct bytes){bytes, (const uint8_t *)bytes + count};
    while (file.at < file.end) {
        uint32_t field = take_field(&file, &content, &number);
        if (field == 1) version = number;
        if (field == 7) walk_graph(content, &nodes, &constants);
    }
    assert_int_equal(version, 8);
    assert_true(nodes > 1 && constants > 1);
    mem_free(bytes);
}

/* ---- an input and our answer ---- */

static void write_case(struct world *w, const struct onnx_case *c, const char *name,
                       const char *folder)
{
    size_t values = (size_t)c->channels * c->height * c->width;
    size_t logits_count = (size_t)BATCH * model_rows(w->model) * c->classes;
    float *raw = mem_array(VALUES_MAX, sizeof *raw), *input = mem_array(VALUES_MAX, sizeof *raw);
    float *logits = mem_array(logits_count, sizeof *logits);
    char path[512];
    struct rng rng;
    FILE *file;

    assert_true(raw != NULL && input != NULL && logits != NULL && BATCH * values <= VALUES_MAX);
    rng_init(&rng, 11, 2);
    for (size_t i = 0; i < BATCH * values; i++) {
        size_t channel = i % values / (values / c->channels);
        raw[i] = c->symbols > 0 ? (float)rng_below(&rng, c->symbols) : (float)rng_unit(&rng);
        input[i] = raw[i];
        if (c->symbols > 0) continue;
        input[i] = (raw[i] - model_mean(w->model)[channel]) * model_scale(w->model)[channel];
    }
    assert_int_equal(model_forward(w->model, input, BATCH, false, logits), RC_OK);
    snprintf(path, sizeof path, "%s/%s.json", folder, name);
    file = fopen(path, "w");
    assert_non_null(file);
    if (c->symbols > 0)
        fprintf(file, "{\"type\":\"tokens\",\"shape\":[%d,%u]", BATCH, c->width);
    else if (c->height * c->width == 1)
        fprintf(file, "{\"type\":\"float\",\"shape\":[%d,%u]", BATCH, c->channels);
    else
        fprintf(file, "{\"type\":\"float\",\"shape\":[%d,%u,%u,%u]", BATCH, c->channels, c->height,
                c->width);
    for (size_t i = 0; i < BATCH * values; i++) {
        fprintf(file, "%s%.9g", i == 0 ? ",\"input\":[" : ",", (double)raw[i]);
    }
    for (size_t i = 0; i < logits_count; i++) {
        fprintf(file, "%s%.9g", i == 0 ? "],\"logits\":[" : ",", (double)logits[i]);
    }
    fprintf(file, "]}\n");
    assert_int_equal(fclose(file), 0);
    mem_free(raw);
    mem_free(input);
    mem_free(logits);
}

static void every_kind_of_layer_becomes_a_well_formed_file(void **state)
{
    /* Messages nest exactly, and what is asked to stay for other programs is complete. */
    const char *kept = getenv("ONNX_CASES");
    struct scratch scratch;
    struct fault why = {""};

    (void)state;
    scratch_init(&scratch);
    for (size_t i = 0; i < 2 * ARRAY_COUNT(cases); i++) { /* the second time with int8 weights */
        const struct onnx_case *c = &cases[i / 2];
        const char *folder = kept != NULL ? kept : scratch.folder;
        char path[512], name[64];
        struct world w;
        assert_int_equal(world_init(&w, c), RC_OK);
        if (i % 2 == 1) world_pack(&w);
        snprintf(name, sizeof name, "%s%s", c->name, i % 2 == 1 ? "-int8" : "");
        snprintf(path, sizeof path, "%s/%s.onnx", folder, name);
        assert_int_equal(export_onnx(w.model, &w.card, w.file, path, &why), RC_OK);
        check_form(path);
        if (kept != NULL) write_case(&w, c, name, folder);
        world_deinit(&w);
    }
    scratch_deinit(&scratch);
}

static void a_layer_that_onnx_does_not_have_is_named_and_nothing_is_written(void **state)
{
    /* A locally connected layer is refused by its name. */
    const struct onnx_case local = {"local", "local3x3:4 relu linear:classes", 1, 6, 6, 3, 0};
    struct scratch scratch;
    struct fault why = {""};
    struct world w;

    (void)state;
    scratch_init(&scratch);
    assert_int_equal(world_init(&w, &local), RC_OK);
    assert_int_equal(export_onnx(w.model, &w.card, NULL, scratch_path(&scratch, "x.onnx"), &why),
                     RC_UNSUPPORTED);
    assert_non_null(strstr(why.text, "'local3x3:4' (local1)"));
    assert_int_equal(scratch_count(&scratch), 0);
    world_deinit(&w);
    scratch_deinit(&scratch);
}

static void an_export_that_runs_out_of_memory_leaks_nothing(void **state)
{
    /* Whichever allocation fails: RC_NOMEM, no file, no block left. */
    const struct onnx_case *const tried[] = {&cases[1], &cases[17], &cases[13]};
    struct scratch scratch;

    (void)state;
    scratch_init(&scratch);
    for (size_t t = 0; t < ARRAY_COUNT(tried); t++) {
        const char *path = scratch_path(&scratch, "x.onnx");
        struct world w;
        enum rc rc = RC_NOMEM;
        assert_int_equal(world_init(&w, tried[t]), RC_OK);
        if (t == 2) world_pack(&w);
        for (uint64_t after = 0; rc == RC_NOMEM; after++) {
            uint64_t blocks = mem_blocks();
            struct fault why = {""};
            mem_fail_after(after);
            rc = export_onnx(w.model, &w.card, w.file, path, &why);
            mem_fail_after(UINT64_MAX);
            assert_int_equal(mem_blocks(), blocks);
            assert_true(rc == RC_OK || (rc == RC_NOMEM && why.text[0] != '\0'));
            assert_int_equal(access(path, F_OK) == 0, rc == RC_OK);
        }
        assert_int_equal(rc, RC_OK);
        assert_int_equal(remove(path), 0);
        world_deinit(&w);
    }
    scratch_deinit(&scratch);
}

static void a_folder_that_is_not_there_is_one_clear_error(void **state)
{
    /* The path and the cause are named. */
    struct fault why = {""};
    struct world w;

    (void)state;
    assert_int_equal(world_init(&w, &cases[0]), RC_OK);
    assert_int_not_equal(export_onnx(w.model, &w.card, NULL, "/nowhere/x.onnx", &why), RC_OK);
    assert_non_null(strstr(why.text, "/nowhere"));
    world_deinit(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_layer_becomes_a_well_formed_file),
        cmocka_unit_test(a_layer_that_onnx_does_not_have_is_named_and_nothing_is_written),
        cmocka_unit_test(an_export_that_runs_out_of_memory_leaks_nothing),
        cmocka_unit_test(a_folder_that_is_not_there_is_one_clear_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
