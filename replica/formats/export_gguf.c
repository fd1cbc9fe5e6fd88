/*
 * A GGUF file is a head (keys, then names, shapes and places of tensors) and the tensors, each
 * from a multiple of 32 bytes on. Shapes are told fastest axis first, so that our [out][in] is
 * their {in, out}, and no value has to be moved.
 *
 * Tokens. A model of a tokenizer has it as model "gpt2": tokens as such files spell them, and
 * merges. One of bytes has model "rwkv", which is the greedy search for the longest token: where
 * each token is a byte that is the byte itself; unlike "gpt2" it has no token that ends a text
 * unless one is named. Where nobody knows what tokens are it is "no_vocab".
 */
#include "replica/formats/export_gguf.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/file.h"
#include "base/mem.h"
#include "kernels/backend.h"
#include "replica/formats/gpt2.h"
#include "replica/formats/model_file.h"
#include "replica/model/plan.h"
#include "replica/tokenizer/tokenizer.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { VERSION = 3, ALIGNMENT = 32, FIRST_BYTES = 1 << 16, NAME_BYTES = 64 };
enum { GGUF_U32 = 4, GGUF_I32 = 5, GGUF_F32 = 6, GGUF_BOOL = 7, GGUF_TEXT = 8, GGUF_LIST = 9 };
enum { GGML_F32 = 0 };
enum { TOKEN_NORMAL = 1, TOKEN_CONTROL = 3, TOKEN_OF_USER = 4, TOKEN_UNUSED = 5 };

/* ---- the head, as it grows ---- */

struct head {
    uint8_t *bytes;
    size_t count, cap;
    size_t keys; /* how many were set */
    bool is_short;
};

static void put(struct head *head, const void *bytes, size_t count)
{
    if (head->is_short) return;
    if (head->cap - head->count < count) {
        const size_t cap = 2 * (head->count + count) + FIRST_BYTES;
        uint8_t *grown = mem_resize(head->bytes, cap);
        head->is_short = grown == NULL;
        if (grown == NULL) return;
        head->bytes = grown;
        head->cap = cap;
    }
    memcpy(head->bytes + head->count, bytes, count);
    head->count += count;
}

static void put_u32(struct head *head, uint32_t value)
{
    uint8_t bytes[4];

    store_le32(bytes, value);
    put(head, bytes, sizeof bytes);
}

static void put_u64(struct head *head, uint64_t value)
{
    uint8_t bytes[8];

    store_le64(bytes, value);
    put(head, bytes, sizeof bytes);
}

static void put_text(struct head *head, const char *text, size_t count)
{
    put_u64(head, count);
    put(head, text, count);
}

static void set(struct head *head, const char *key, uint32_t type)
{
    put_text(head, key, strlen(key));
    put_u32(head, type);
    head->keys++;
}

static void set_u32(struct head *head, const char *key, uint32_t value)
{
    set(head, key, GGUF_U32);
    put_u32(head, value);
}

static void set_text(struct head *head, const char *key, const char *value)
{
    set(head, key, GGUF_TEXT);
    put_text(head, value, strlen(value));
}

static void set_list(struct head *head, const char *key, uint32_t type, uint64_t count)
{
    set(head, key, GGUF_LIST);
    put_u32(head, type);
    put_u64(head, count);
}

/* ---- tokens ---- */

/* What the file says of one token; returns its type. */
static uint32_t spell(const struct tokenizer *tokenizer, uint32_t token,
                      char text[TOKENIZER_SPELLING_BYTES], size_t *count)
{
    size_t bytes_count;
    const uint8_t *bytes = tokenizer_bytes(tokenizer, token, &bytes_count);

    if (bytes == NULL) {
        *count = (size_t)snprintf(text, TOKENIZER_SPELLING_BYTES, "[PAD%u]", token);
        return TOKEN_UNUSED;
    }
    if (tokenizer_is_added(tokenizer, token)) {
        memcpy(text, bytes, bytes_count);
        *count = bytes_count;
        return token == tokenizer_end(tokenizer) ? TOKEN_CONTROL : TOKEN_OF_USER;
    }
    *count = tokenizer_spell(bytes, bytes_count, text);
    return TOKEN_NORMAL;
}

static void put_merges(struct head *head, const struct tokenizer *tokenizer)
{
    char text[2 * TOKENIZER_SPELLING_BYTES + 1];
    uint32_t pair[2];
    size_t merges = 0;

    while (tokenizer_merge(tokenizer, merges, pair))
        merges++;
    set_list(head, "tokenizer.ggml.merges", GGUF_TEXT, merges);
    for (size_t i = 0; tokenizer_merge(tokenizer, i, pair); i++) {
        size_t left, right;
        (void)spell(tokenizer, pair[0], text, &left);
        text[left] = ' ';
        (void)spell(tokenizer, pair[1], text + left + 1, &right);
        put_text(head, text, left + 1 + right);
    }
}

static void put_tokenizer(struct head *head, const struct tokenizer *tokenizer, uint32_t symbols)
{
    uint32_t end = tokenizer_end(tokenizer);
    char text[TOKENIZER_SPELLING_BYTES];
    size_t count;

    set_text(head, "tokenizer.ggml.model", "gpt2");
    set_text(head, "tokenizer.ggml.pre", "gpt-2");
    set_list(head, "tokenizer.ggml.tokens", GGUF_TEXT, symbols);
    for (uint32_t i = 0; i < symbols; i++) {
        (void)spell(tokenizer, i, text, &count);
        put_text(head, text, count);
    }
    set_list(head, "tokenizer.ggml.token_type", GGUF_I32, symbols);
    for (uint32_t i = 0; i < symbols; i++)
        put_u32(head, spell(tokenizer, i, text, &count));
    put_merges(head, tokenizer);
    /* One without a token that ends texts has the last learned in its place, the rarest: readers
     * take a token of their own otherwise. */
    if (end == TOKENIZER_NO_TOKEN) end = tokenizer_symbols(tokenizer) - 1;
    set_u32(head, "tokenizer.ggml.bos_token_id", end);
    set_u32(head, "tokenizer.ggml.eos_token_id", end);
    set(head, "tokenizer.ggml.add_bos_token", GGUF_BOOL);
    put(head, &(uint8_t){0}, 1);
}

static void put_bytes(struct head *head, const struct model_card *card)
{
    const uint8_t *space = memchr(card->symbol_bytes, ' ', card->symbols);
    char text[8];

    set_text(head, "tokenizer.ggml.model", "rwkv");
    set_list(head, "tokenizer.ggml.tokens", GGUF_TEXT, card->symbols);
    for (uint32_t i = 0; i < card->symbols; i++) {
        const uint8_t byte = card->symbol_bytes[i];
        const bool is_plain = byte < 0x80 && isprint(byte) && byte != '\\' && byte != '\'';
        const int count = snprintf(text, sizeof text, is_plain ? "%c" : "\\x%02x", byte);
        put_text(head, text, (size_t)count);
    }
    set_list(head, "tokenizer.ggml.token_type", GGUF_I32, card->symbols);
    for (uint32_t i = 0; i < card->symbols; i++) {
        put_u32(head, TOKEN_NORMAL);
    }
    /* What a byte becomes that the model does not know: readers have no place for none. */
    set_u32(head, "tokenizer.ggml.unknown_token_id",
            space == NULL ? 0 : (uint32_t)(space - card->symbol_bytes));
}

/* ---- tensors ---- */

/* Of each layer: our `ordinal`-th of `each` of the kind. */
static const struct {
    const char *kind, *suffix, *theirs;
    uint32_t each, ordinal;
} of_layer[] = {
    {"ln", "weight", "attn_norm.weight", 2, 1},
    {"ln", "bias", "attn_norm.bias", 2, 1},
    {"attention", "qkv.weight", "attn_qkv.weight", 1, 1},
    {"attention", "qkv.bias", "attn_qkv.bias", 1, 1},
    {"attention", "output.weight", "attn_output.weight", 1, 1},
    {"attention", "output.bias", "attn_output.bias", 1, 1},
    {"ln", "weight", "ffn_norm.weight", 2, 2},
    {"ln", "bias", "ffn_norm.bias", 2, 2},
    {"dense", "weight", "ffn_up.weight", 2, 1},
    {"dense", "bias", "ffn_up.bias", 2, 1},
    {"dense", "weight", "ffn_down.weight", 2, 2},
    {"dense", "bias", "ffn_down.bias", 2, 2},
};

/* Of the whole; numbered behind the layers' where the kind has others. The last is not there where
 * the head is the embedding. */
static const struct {
    const char *kind, *suffix, *theirs;
    bool is_behind;
} of_model[] = {
    {"embed", "weight", "token_embd.weight", false},
    {"positions", "weight", "position_embd.weight", false},
    {"ln", "weight", "output_norm.weight", true},
    {"ln", "bias", "output_norm.bias", true},
    {"dense", "weight", "output.weight", true},
};

struct gguf {
    const struct model *model;
    const struct model_card *card;
    struct gpt2_form form;
    struct head head;
    struct piece *pieces; /* the head, then of each tensor its values and what fills up */
    size_t pieces_count;
};

static size_t count_tensors(const struct gpt2_form *form)
{
    return ARRAY_COUNT(of_layer) * form->layers + ARRAY_COUNT(of_model) - form->is_tied;
}

/* Tensor number `i`: ours, and its name there. */
static const struct tensor *tensor_at(const struct gguf *g, size_t i, char theirs[NAME_BYTES])
{
    const size_t in_layers = ARRAY_COUNT(of_layer) * g->form.layers;
    const size_t row = i < in_layers ? i % ARRAY_COUNT(of_layer) : i - in_layers;
    const uint32_t layer = (uint32_t)(i / ARRAY_COUNT(of_layer));
    char ours[TENSOR_NAME_BYTES];
    const struct tensor *tensor;

    if (i < in_layers) {
        snprintf(ours, sizeof ours, "%s%u.%s", of_layer[row].kind,
                 layer * of_layer[row].each + of_layer[row].ordinal, of_layer[row].suffix);
        snprintf(theirs, NAME_BYTES, "blk.%u.%s", layer, of_layer[row].theirs);
    } else {
        snprintf(ours, sizeof ours, "%s%u.%s", of_model[row].kind,
                 of_model[row].is_behind ? 2 * g->form.layers + 1 : 1, of_model[row].suffix);
        snprintf(theirs, NAME_BYTES, "%s", of_model[row].theirs);
    }
    tensor = schema_find(&g->model->schema, ours);
    CHECK(tensor != NULL);
    return tensor;
}

/* Its head, and its values as a piece from `*offset` on. Of positions only those that the model
 * was trained on. */
static void add_tensor(struct gguf *g, size_t i, uint64_t *offset)
{
    static const uint8_t zeros[ALIGNMENT];
    char theirs[NAME_BYTES];
    const struct tensor *tensor = tensor_at(g, i, theirs);
    const bool is_position = strcmp(theirs, "position_embd.weight") == 0;
    const uint64_t rows = is_position ? g->card->width : tensor->shape[0];
    const size_t bytes = tensor->count / tensor->shape[0] * rows * sizeof(float);
    const size_t fill = (ALIGNMENT - bytes % ALIGNMENT) % ALIGNMENT;

    put_text(&g->head, theirs, strlen(theirs));
    put_u32(&g->head, tensor->rank);
    for (uint32_t d = tensor->rank; d-- > 1;)
        put_u64(&g->head, tensor->shape[d]);
    put_u64(&g->head, rows);
    put_u32(&g->head, GGML_F32);
    put_u64(&g->head, *offset);
    g->pieces[g->pieces_count++] =
        (struct piece){g->model->planes[SECTION_PARAMETERS] + tensor->offset, bytes};
    g->pieces[g->pieces_count++] = (struct piece){zeros, fill};
    *offset += bytes + fill;
}

static void put_keys(struct gguf *g, const struct tokenizer *tokenizer, const char *name)
{
    static const float epsilon = 1e-5F; /* of every normalisation */
    uint32_t bits;
    const struct gpt2_form *form = &g->form;
    struct head *head = &g->head;

    set_text(head, "general.architecture", "gpt2");
    set_text(head, "general.name", name);
    set_u32(head, "general.alignment", ALIGNMENT);
    set_u32(head, "general.file_type", GGML_F32);
    set_u32(head, "gpt2.context_length", g->card->width);
    set_u32(head, "gpt2.embedding_length", form->width);
    set_u32(head, "gpt2.feed_forward_length", form->inner);
    set_u32(head, "gpt2.block_count", form->layers);
    set_u32(head, "gpt2.attention.head_count", form->heads);
    set(head, "gpt2.attention.layer_norm_epsilon", GGUF_F32);
    memcpy(&bits, &epsilon, sizeof bits);
    put_u32(head, bits);
    set_u32(head, "gpt2.vocab_size", form->symbols);
    if (tokenizer != NULL) {
        put_tokenizer(head, tokenizer, form->symbols);
    } else if (g->card->has_symbol_bytes) {
        put_bytes(head, g->card);
    } else {
        set_text(head, "tokenizer.ggml.model", "no_vocab");
    }
}

/* How many tensors and keys there are stands before them. */
static enum rc write(struct gguf *g, const struct tokenizer *tokenizer, const char *name,
                     const char *path, struct fault *why)
{
    static const uint8_t zeros[ALIGNMENT];
    const size_t tensors = count_tensors(&g->form);
    uint64_t offset = 0;

    put(&g->head, "GGUF", 4);
    put_u32(&g->head, VERSION);
    put_u64(&g->head, tensors);
    put_u64(&g->head, 0);
    put_keys(g, tokenizer, name);
    g->pieces_count = 1;
    for (size_t i = 0; i < tensors; i++)
        add_tensor(g, i, &offset);
    put(&g->head, zeros, (ALIGNMENT - g->head.count % ALIGNMENT) % ALIGNMENT);
    if (g->head.is_short) return fault_set(why, RC_NOMEM, "cannot write %s: out of memory", path);
    store_le64(g->head.bytes + 16, g->head.keys);
    g->pieces[0] = (struct piece){g->head.bytes, g->head.count};
    return file_replace(path, g->pieces, g->pieces_count, 0644, why);
}

enum rc export_gguf(const struct model *model, const struct model_card *card,
                    const struct tokenizer *tokenizer, const char *name, const char *path,
                    struct fault *why)
{
    struct gguf g = {.model = model, .card = card};
    enum rc rc;

    CHECK(model->backend->is_host);
    if (!gpt2_form_of(model, &g.form)) {
        return fault_set(why, RC_UNSUPPORTED,
                         "cannot write %s as GGUF: only models of GPT-2's form "
                         "(gpt-nano, gpt-micro, gpt2-small, and lists like theirs) have one; its "
                         "layers are %.200s",
                         name, model->spec);
    }
    if (tokenizer != NULL && !tokenizer_is_gpt2s(tokenizer)) {
        return fault_set(why, RC_UNSUPPORTED,
                         "cannot write %s as GGUF: its tokenizer does not find "
                         "words as GPT-2's does, which is the only way that is written",
                         name);
    }
    g.pieces = mem_array(1 + 2 * count_tensors(&g.form), sizeof *g.pieces);
    if (g.pieces == NULL) {
        rc = fault_set(why, RC_NOMEM, "cannot write %s: out of memory", path);
    } else {
        rc = write(&g, tokenizer, name, path, why);
    }
    mem_free(g.pieces);
    mem_free(g.head.bytes);
    return rc;
}
