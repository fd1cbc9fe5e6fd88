/*
 * `--data text:FILE[,context=N]`: a language model's text, byte by byte (with a tokenizer:
 * text_tokens.c), gzipped or not. A symbol is a byte that occurs in the file; symbols are numbered
 * in the order of their bytes. The first 90 % are for training, the rest for validation; both are
 * cut into windows of N bytes that do not overlap. A sample is a window and the byte after it, so
 * each byte's label is its successor, and memory holds a byte of text once (the last of each
 * window twice). The file is read at the start for its symbols and then once for each shard. Used
 * by jobs and commands.
 */
#include "replica/data/source.h"
#include "replica/readers/stream.h"

#include "base/check.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

#define TEXT_BYTES_MAX (UINT64_C(1) << 31)

enum { PIECE_BYTES = 64 * 1024, NO_SYMBOL = 256, TRAIN_TENTHS = 9 };

struct text {
    struct data_source base; /* first: a source is cast back to this */
    char path[DATA_PATH_BYTES];
    uint64_t train_bytes; /* validation begins there */
    uint32_t context;
    uint16_t symbol_of[256]; /* or NO_SYMBOL */
};

static const char advice[] = "pass --data text:FILE";

static void text_destroy(struct data_source *source)
{
    mem_free(source);
}

/* Which bytes there are, and how many. */
static enum rc scan(struct data_stream *stream, bool is_there[256], uint64_t *total,
                    struct fault *why)
{
    uint8_t *piece = mem_raw(PIECE_BYTES);
    size_t got = PIECE_BYTES;
    enum rc rc = RC_OK;

    if (piece == NULL) return data_no_memory(why, "read the text");
    *total = 0;
    while (rc == RC_OK && got > 0) {
        rc = data_stream_some(stream, piece, PIECE_BYTES, &got, why);
        if (rc != RC_OK) break;
        for (size_t i = 0; i < got; i++) {
            is_there[piece[i]] = true;
        }
        *total += got;
        if (*total > TEXT_BYTES_MAX) {
            rc = data_stream_malformed(stream, why, "a text may have 2 GiB at most");
        }
    }
    mem_free(piece);
    return rc;
}

/* Parts, windows and symbols. */
static enum rc describe(struct text *text, struct data_stream *stream, struct dataset_info *info,
                        struct fault *why)
{
    bool is_there[256] = {false};
    uint64_t total = 0, needed = ((uint64_t)text->context + 1) * 10;
    enum rc rc = scan(stream, is_there, &total, why);

    if (rc != RC_OK) return rc;
    text->train_bytes = total / 10 * TRAIN_TENTHS + total % 10 * TRAIN_TENTHS / 10;
    if (total < needed) {
        return data_stream_malformed(
            stream, why, "its %llu bytes are too few for windows of %u; it takes %llu",
            (unsigned long long)total, text->context, (unsigned long long)needed);
    }
    info->train_samples = (text->train_bytes - 1) / text->context;
    info->test_samples = (total - text->train_bytes - 1) / text->context;
    if (info->train_samples > DATA_SAMPLES_MAX) {
        return data_stream_malformed(
            stream, why, "it has more than %d windows; choose a larger context=", DATA_SAMPLES_MAX);
    }
    for (unsigned b = 0; b < 256; b++) {
        text->symbol_of[b] = NO_SYMBOL;
        if (!is_there[b]) continue;
        text->symbol_of[b] = (uint16_t)info->symbols;
        info->symbol_bytes[info->symbols++] = (uint8_t)b;
    }
    info->classes = info->symbols;
    return RC_OK;
}

/* The next `count` bytes as symbols. */
static enum rc read_symbols(const struct text *text, struct data_stream *stream, uint8_t *symbols,
                            size_t count, struct fault *why)
{
    enum rc rc = data_stream_read(stream, symbols, count, why);

    for (size_t i = 0; rc == RC_OK && i < count; i++) {
        uint16_t symbol = text->symbol_of[symbols[i]];
        if (symbol == NO_SYMBOL) {
            return data_stream_malformed(stream, why, "it has changed since the start");
        }
        symbols[i] = (uint8_t)symbol;
    }
    return rc;
}

/* A window begins with the byte that ends the one before it, so that one is kept in hand. */
static enum rc text_load(struct data_source *source, const struct data_part *part,
                         struct samples *out, struct fault *why)
{
    const struct text *text = (const struct text *)source;
    uint64_t skipped = part->is_test ? text->train_bytes : 0;
    struct data_stream *stream = NULL;
    uint8_t last = 0;
    enum rc rc = data_stream_open(text->path, advice, &stream, why);

    if (rc != RC_OK) return rc;
    rc = data_stream_read(stream, NULL, (size_t)skipped, why);
    if (rc == RC_OK) rc = read_symbols(text, stream, &last, 1, why);
    for (size_t i = 0; rc == RC_OK && i < part->count; i++) {
        uint8_t *to;

        if (part->slots[i] == DATA_NO_SLOT) {
            rc = data_stream_read(stream, NULL, text->context - 1, why);
            if (rc == RC_OK) rc = read_symbols(text, stream, &last, 1, why);
            continue;
        }
        to = out->bytes + part->slots[i] * out->stored;
        to[0] = last;
        rc = read_symbols(text, stream, to + 1, text->context, why);
        last = to[text->context];
    }
    data_stream_close(stream);
    return rc;
}

static const struct data_source_ops text_ops = {.destroy = text_destroy, .load = text_load};

/* What the spec says into `text`. */
static enum rc read_spec(const struct data_spec *spec, const struct dataset_options *options,
                         struct text *text, struct fault *why)
{
    static const char *const keys[] = {"context"};
    enum rc rc = data_spec_check(spec, 1, "the file", keys, ARRAY_COUNT(keys), NULL, why);

    if (rc != RC_OK) return rc;
    if (strlen(spec->files[0]) >= sizeof text->path) {
        return fault_set(why, RC_LIMIT, "cannot read data: the file's name is too long");
    }
    snprintf(text->path, sizeof text->path, "%s", spec->files[0]);
    return data_context(spec, data_spec_find(spec, "context"), options->context,
                        DATASET_CONTEXT_DEFAULT, &text->context, why);
}

enum rc text_open_source(const struct data_spec *spec, const struct dataset_options *options,
                         struct dataset_info *info, struct data_source **source, struct fault *why)
{
    struct text *text = mem_alloc(sizeof *text);
    struct data_stream *stream = NULL;
    enum rc rc;

    if (text == NULL) return data_no_memory(why, "open the data");
    text->base.ops = &text_ops;
    rc = read_spec(spec, options, text, why);
    if (rc == RC_OK && options->tokenizer != NULL && options->tokenizer[0] != '\0') {
        rc = text_tokens_open(text->path, text->context, options, info, source, why);
        text_destroy(&text->base);
        return rc;
    }
    if (rc == RC_OK) rc = data_stream_open(text->path, advice, &stream, why);
    if (rc == RC_OK) rc = describe(text, stream, info, why);
    data_stream_close(stream);
    data_describe_tokens(info, "text", text->context);
    info->has_bytes = true;
    if (rc == RC_OK) rc = data_source_normal(&text->base, info, why);
    if (rc != RC_OK) {
        data_source_destroy(&text->base);
        return rc;
    }
    *source = &text->base;
    return RC_OK;
}
