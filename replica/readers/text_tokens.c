/*
 * `--data text:FILE[,context=N]` with a tokenizer: the text's tokens, cut into windows as text.c
 * cuts bytes: the first 90 % for training, the rest for validation, each window's labels the tokens
 * that follow. The text is read and encoded once, at the start, and its tokens are kept; what is
 * too large for that becomes a file of tokens by `grapevine tokenize`. Used by jobs and commands.
 */
#include "replica/data/source.h"
#include "replica/readers/stream.h"

#include "base/mem.h"
#include "replica/tokenizer/tokenizer.h"

#include <stdio.h>
#include <string.h>

#define TEXT_BYTES_MAX (UINT64_C(256) << 20)

enum { PIECE_BYTES = 64 * 1024, TRAIN_TENTHS = 9 };

struct text_tokens {
    struct data_source base; /* first: a source is cast back to this */
    struct token_list list;
    size_t train_tokens; /* validation begins there */
    uint32_t context;
};

static const char advice[] = "pass --data text:FILE";

static void text_tokens_destroy(struct data_source *source)
{
    struct text_tokens *text = (struct text_tokens *)source;

    token_list_deinit(&text->list);
    mem_free(text);
}

static enum rc encode(struct text_tokens *text, struct data_stream *stream,
                      const struct tokenizer *tokenizer, struct fault *why)
{
    struct encoder *encoder = encoder_create(tokenizer);
    uint8_t *piece = mem_raw(PIECE_BYTES);
    size_t got = PIECE_BYTES;
    uint64_t total = 0;
    enum rc rc = encoder != NULL && piece != NULL ? RC_OK : data_no_memory(why, "read the text");

    while (rc == RC_OK && got > 0) {
        rc = data_stream_some(stream, piece, PIECE_BYTES, &got, why);
        if (rc != RC_OK) break;
        total += got;
        if (total > TEXT_BYTES_MAX) {
            rc = data_stream_malformed(stream, why,
                                       "a text of more than 256 MiB is made tokens of beforehand: "
                                       "'grapevine tokenize', and --data tokens:FILE");
            break;
        }
        rc = encoder_add(encoder, piece, got, got == 0, &text->list);
        if (rc == RC_NOMEM) data_no_memory(why, "read the text");
    }
    encoder_destroy(encoder);
    mem_free(piece);
    return rc;
}

/* Parts and windows. */
static enum rc describe(struct text_tokens *text, struct data_stream *stream,
                        struct dataset_info *info, struct fault *why)
{
    const uint64_t total = text->list.count, needed = ((uint64_t)text->context + 1) * 10;

    text->train_tokens = (size_t)(total / 10 * TRAIN_TENTHS + total % 10 * TRAIN_TENTHS / 10);
    if (total < needed) {
        return data_stream_malformed(
            stream, why, "its %llu tokens are too few for windows of %u; it takes %llu",
            (unsigned long long)total, text->context, (unsigned long long)needed);
    }
    info->train_samples = (text->train_tokens - 1) / text->context;
    info->test_samples = (total - text->train_tokens - 1) / text->context;
    if (info->train_samples <= DATA_SAMPLES_MAX) return RC_OK;
    return data_stream_malformed(
        stream, why, "it has more than %d windows; choose a larger context=", DATA_SAMPLES_MAX);
}

static enum rc text_tokens_load(struct data_source *source, const struct data_part *part,
                                struct samples *out, struct fault *why)
{
    const struct text_tokens *text = (const struct text_tokens *)source;
    const uint32_t *first = text->list.tokens + (part->is_test ? text->train_tokens : 0);

    (void)why;
    for (size_t i = 0; i < part->count; i++) {
        if (part->slots[i] == DATA_NO_SLOT) continue;
        memcpy(out->tokens + part->slots[i] * out->stored, first + i * text->context,
               out->stored * sizeof *first);
    }
    return RC_OK;
}

static const struct data_source_ops text_tokens_ops = {.destroy = text_tokens_destroy,
                                                       .load = text_tokens_load};

enum rc text_tokens_open(const char *path, uint32_t context, const struct dataset_options *options,
                         struct dataset_info *info, struct data_source **source, struct fault *why)
{
    struct text_tokens *text = mem_alloc(sizeof *text);
    struct data_stream *stream = NULL;
    struct tokenizer *tokenizer = NULL;
    enum rc rc;

    if (text == NULL) return data_no_memory(why, "open the data");
    text->base.ops = &text_tokens_ops;
    text->context = context;
    rc = data_tokenizer(options, &tokenizer, info, why);
    if (rc == RC_OK) rc = data_stream_open(path, advice, &stream, why);
    if (rc == RC_OK) rc = encode(text, stream, tokenizer, why);
    if (rc == RC_OK) rc = describe(text, stream, info, why);
    data_stream_close(stream);
    tokenizer_close(tokenizer);
    data_describe_tokens(info, "text", context);
    info->classes = info->symbols;
    if (rc == RC_OK) rc = data_source_normal(&text->base, info, why);
    if (rc != RC_OK) {
        data_source_destroy(&text->base);
        return rc;
    }
    *source = &text->base;
    return RC_OK;
}
