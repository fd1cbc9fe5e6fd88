/*
 * GGUF files: a reader that takes nothing on trust finds every key and every tensor, each at its
 * place, aligned, with our values; models of other forms are refused by name.
 */
#include "tests/check.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "replica/formats/export_gguf.h"
#include "replica/formats/model_file.h"
#include "tests/scratch.h"

#include <stdio.h>
#include <unistd.h>

enum { U32 = 4, I32 = 5, F32 = 6, BOOL = 7, TEXT = 8, LIST = 9, SYMBOLS = 7, NAME = 64 };

static const char gpt[] = "embed:8 positions:6 [ ln attention:2 ]+ [ ln linear:12 gelu linear:8 ]+ "
                          "ln linear:classes,bias=0";

struct world {
    struct backend *backend;
    struct model *model;
    struct model_card card;
};

static enum rc world_init(struct world *w, const char *spec)
{
    const struct cpu_backend_options request = {.threads = 1};
    const struct model_options options = {.spec = spec,
                                          .channels = 1,
                                          .height = 1,
                                          .width = 6,
                                          .classes = SYMBOLS,
                                          .symbols = SYMBOLS,
                                          .input = MODEL_INPUT_TOKENS,
                                          .batch_max = 1,
                                          .seed = 3};
    struct fault why = {""};

    memset(w, 0, sizeof *w);
    w->card.width = 6;
    w->card.symbols = w->card.classes = SYMBOLS;
    w->card.has_symbol_bytes = true;
    memcpy(w->card.symbol_bytes, "\na \\'z\xff", SYMBOLS);
    w->backend = cpu_backend_create(&request);
    return w->backend == NULL ? RC_NOMEM : model_create(w->backend, &options, &w->model, &why);
}

static void world_deinit(struct world *w)
{
    model_destroy(w->model);
    backend_destroy(w->backend);
}

/* ---- a reader ---- */

struct bytes {
    const uint8_t *begin, *at, *end;
};

static const uint8_t *take(struct bytes *b, uint64_t count)
{
    const uint8_t *from = b->at;

    assert_true(count <= (uint64_t)(b->end - b->at));
    b->at += count;
    return from;
}

static uint32_t take_u32(struct bytes *b)
{
    return load_le32(take(b, 4));
}

static uint64_t take_u64(struct bytes *b)
{
    return load_le64(take(b, 8));
}

static void take_text(struct bytes *b, char text[NAME])
{
    const uint64_t count = take_u64(b);

    assert_true(count < NAME);
    memcpy(text, take(b, count), count);
    text[count] = '\0';
}

/* Of a list the last, joined by commas where they are texts. */
static void take_value(struct bytes *b, uint32_t type, uint32_t *number, char joined[256])
{
    char text[NAME];
    uint64_t count;

    switch (type) {
    case U32:
    case I32:
    case F32:
        *number = take_u32(b);
        break;
    case BOOL:
        assert_int_equal(*take(b, 1), 0);
        break;
    case TEXT:
        take_text(b, text);
        if (joined[0] != '\0') strncat(joined, ",", 255 - strlen(joined));
        strncat(joined, text, 255 - strlen(joined));
        break;
    default:
        assert_int_equal(type, LIST);
        type = take_u32(b);
        count = take_u64(b);
        assert_int_equal(count, SYMBOLS);
        while (count-- > 0)
            take_value(b, type, number, joined);
    }
}

static void read_keys(struct bytes *b, uint64_t keys)
{
    static const struct {
        const char *name;
        uint32_t number;
        const char *text;
    } wanted[] = {
        {"general.architecture", 0, "gpt2"},
        {"general.name", 0, "grapes"},
        {"gpt2.context_length", 6, ""},
        {"gpt2.embedding_length", 8, ""},
        {"gpt2.feed_forward_length", 12, ""},
        {"gpt2.block_count", 1, ""},
        {"gpt2.attention.head_count", 2, ""},
        {"gpt2.vocab_size", SYMBOLS, ""},
        {"tokenizer.ggml.tokens", 0, "\\x0a,a, ,\\x5c,\\x27,z,\\xff"},
        {"tokenizer.ggml.unknown_token_id", 2, ""},
    };
    size_t found = 0;

    while (keys-- > 0) {
        char name[NAME], text[256] = "";
        uint32_t number = 0;

        take_text(b, name);
        take_value(b, take_u32(b), &number, text);
        for (size_t i = 0; i < ARRAY_COUNT(wanted); i++) {
            if (strcmp(wanted[i].name, name) != 0) continue;
            assert_int_equal(number, wanted[i].number);
            assert_string_equal(text, wanted[i].text);
            found++;
        }
    }
    assert_int_equal(found, ARRAY_COUNT(wanted));
}

struct place {
    char name[NAME];
    uint64_t shape[2], offset, values;
};

static void read_places(struct bytes *b, struct place *places, uint64_t tensors)
{
    for (uint64_t i = 0; i < tensors; i++) {
        uint32_t rank;

        take_text(b, places[i].name);
        rank = take_u32(b);
        assert_in_range(rank, 1, 2);
        places[i].shape[1] = 1;
        for (uint32_t d = 0; d < rank; d++)
            places[i].shape[d] = take_u64(b);
        places[i].values = places[i].shape[0] * places[i].shape[1];
        assert_int_equal(take_u32(b), 0); /* float32 */
        places[i].offset = take_u64(b);
    }
}

static const struct tensor *tensor_of(const struct world *w, const char *ours)
{
    const struct tensor *tensor = schema_find(model_schema(w->model), ours);

    assert_non_null(tensor);
    return tensor;
}

static void check_values(struct world *w, const struct place *place, const uint8_t *data)
{
    static const char *const pairs[][2] = {
        {"token_embd.weight", "embed1.weight"},
        {"position_embd.weight", "positions1.weight"},
        {"blk.0.attn_norm.bias", "ln1.bias"},
        {"blk.0.attn_qkv.weight", "attention1.qkv.weight"},
        {"blk.0.ffn_norm.weight", "ln2.weight"},
        {"blk.0.ffn_up.weight", "dense1.weight"},
        {"blk.0.ffn_down.weight", "dense2.weight"},
        {"output_norm.weight", "ln3.weight"},
        {"output.weight", "dense3.weight"},
        {"blk.0.attn_output.bias", "attention1.output.bias"},
    };

    for (size_t i = 0; i < ARRAY_COUNT(pairs); i++) {
        const struct tensor *tensor;

        if (strcmp(pairs[i][0], place->name) != 0) continue;
        tensor = tensor_of(w, pairs[i][1]);
        assert_int_equal(place->values, tensor->count);
        assert_int_equal(place->shape[0], tensor->shape[tensor->rank - 1]); /* fastest first */
        assert_memory_equal(data + place->offset,
                            model_plane(w->model, SECTION_PARAMETERS) + tensor->offset,
                            tensor->count * sizeof(float));
    }
}

static void every_key_and_tensor_is_where_the_file_says(void **state)
{
    /* Counts are those of what is there, tensors follow each other at multiples of 32 bytes to the
     * end of the file, and hold the model's values. */
    struct scratch scratch;
    struct fault why = {""};
    struct place places[32];
    struct bytes b;
    struct world w;
    uint64_t tensors, keys, end = 0;
    size_t count;
    void *bytes;

    (void)state;
    scratch_init(&scratch);
    assert_int_equal(world_init(&w, gpt), RC_OK);
    assert_int_equal(
        export_gguf(w.model, &w.card, NULL, "grapes", scratch_path(&scratch, "x.gguf"), &why),
        RC_OK);
    assert_int_equal(file_read(scratch_path(&scratch, "x.gguf"), 1 << 20, &bytes, &count, &why),
                     RC_OK);
    b = (struct bytes){bytes, bytes, (uint8_t *)bytes + count};
    assert_memory_equal(take(&b, 4), "GGUF", 4);
    assert_int_equal(take_u32(&b), 3);
    tensors = take_u64(&b);
    keys = take_u64(&b);
    assert_int_equal(tensors, 17);
    read_keys(&b, keys);
    read_places(&b, places, tensors);
    while ((b.at - b.begin) % 32 != 0)
        assert_int_equal(*take(&b, 1), 0);
    for (uint64_t i = 0; i < tensors; i++) {
        assert_int_equal(places[i].offset, end);
        end += (places[i].values * sizeof(float) + 31) / 32 * 32;
        assert_true(end <= (uint64_t)(b.end - b.at));
        check_values(&w, &places[i], b.at);
    }
    assert_int_equal(end, b.end - b.at);
    mem_free(bytes);
    world_deinit(&w);
    scratch_deinit(&scratch);
}

static void a_model_of_another_form_is_refused_by_its_layers(void **state)
{
    /* One word that GPT-2 does not have, and nothing is written. */
    static const char *const others[] = {
        "embed:8 lstm:8 linear:classes",
        "embed:8 positions:6 [ ln attention:2,rotary=1 ]+ [ ln linear:12 gelu linear:8 ]+ ln "
        "linear:classes,bias=0",
        "embed:8 positions:6 [ ln attention:2 ]+ [ ln linear:12 relu linear:8 ]+ ln "
        "linear:classes,bias=0",
        "embed:8 positions:6 [ ln attention:2 ]+ [ ln linear:12 gelu linear:8 ]+ ln linear:classes",
    };
    struct scratch scratch;

    (void)state;
    scratch_init(&scratch);
    for (size_t i = 0; i < ARRAY_COUNT(others); i++) {
        struct fault why = {""};
        struct world w;

        assert_int_equal(world_init(&w, others[i]), RC_OK);
        assert_int_equal(
            export_gguf(w.model, &w.card, NULL, "grapes", scratch_path(&scratch, "x.gguf"), &why),
            RC_UNSUPPORTED);
        assert_non_null(strstr(why.text, "grapes as GGUF: only models of GPT-2's form"));
        assert_int_equal(scratch_count(&scratch), 0);
        world_deinit(&w);
    }
    scratch_deinit(&scratch);
}

static void an_export_that_runs_out_of_memory_leaks_nothing(void **state)
{
    /* Whichever allocation fails: RC_NOMEM, no file, no block left. */
    struct scratch scratch;
    const char *path;
    struct world w;
    enum rc rc = RC_NOMEM;

    (void)state;
    scratch_init(&scratch);
    path = scratch_path(&scratch, "x.gguf");
    assert_int_equal(world_init(&w, gpt), RC_OK);
    for (uint64_t after = 0; rc == RC_NOMEM; after++) {
        uint64_t blocks = mem_blocks();
        struct fault why = {""};
        mem_fail_after(after);
        rc = export_gguf(w.model, &w.card, NULL, "grapes", path, &why);
        mem_fail_after(UINT64_MAX);
        assert_int_equal(mem_blocks(), blocks);
        assert_true(rc == RC_OK || (rc == RC_NOMEM && why.text[0] != '\0'));
        assert_int_equal(access(path, F_OK) == 0, rc == RC_OK);
    }
    assert_int_equal(rc, RC_OK);
    world_deinit(&w);
    scratch_deinit(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_and_tensor_is_where_the_file_says),
        cmocka_unit_test(a_model_of_another_form_is_refused_by_its_layers),
        cmocka_unit_test(an_export_that_runs_out_of_memory_leaks_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
