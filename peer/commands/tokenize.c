/*
 * command_tokenize: texts as one file of token numbers (replica/readers/token_file.h), which
 * `--data tokens:FILE` trains from. Texts are read piece by piece, so that memory does not follow
 * their size; the file is written beside the old one and takes its place at the end.
 */
#include "peer/cli/command.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/units.h"
#include "peer/cli/progress.h"
#include "peer/env/env.h"
#include "replica/readers/stream.h"
#include "replica/readers/token_file.h"
#include "replica/tokenizer/tokenizer.h"

#include <inttypes.h>
#include <string.h>

enum { PIECE_BYTES = 256 * 1024, WIDE_SYMBOLS = 1 << 16 };

struct tokenizing {
    struct tokenizer *tokenizer;
    struct encoder *encoder;
    struct file_writer *writer;
    struct token_form form;
    struct token_list list; /* of a piece */
    uint8_t *piece, *packed;
    size_t packed_cap;
    uint64_t bytes, bytes_all; /* of texts; bytes_all is 0 where one is compressed */
    uint64_t start_ns;
    struct progress progress;
    const volatile sig_atomic_t *stop; /* the signal that ends it early; 0: none */
    struct fault *why;
};

static const char advice[] = "pass the texts that are to be tokens";

/* How many bytes there are to go through. */
static enum rc measure(struct tokenizing *t, const char *const *paths, size_t count)
{
    bool is_known = true;

    for (size_t i = 0; i < count; i++) {
        struct data_stream *stream = NULL;
        enum rc rc = data_stream_open(paths[i], advice, &stream, t->why);

        if (rc != RC_OK) return rc;
        is_known &= !data_stream_is_compressed(stream);
        t->bytes_all += data_stream_bytes_max(stream);
        data_stream_close(stream);
    }
    if (!is_known) t->bytes_all = 0;
    return RC_OK;
}

static void tell_progress(struct tokenizing *t)
{
    const bool is_known = t->bytes < t->bytes_all;
    char read[32], tokens[32], detail[96];

    snprintf(detail, sizeof detail, "%s read, %s tokens",
             units_format_bytes(t->bytes, read, sizeof read),
             units_format_count(t->form.tokens, tokens, sizeof tokens));
    progress_tell(&t->progress, "tokenizing",
                  is_known ? (double)t->bytes / (double)t->bytes_all : 0, detail);
}

/* The tokens of the list into the file. */
static enum rc write_tokens(struct tokenizing *t)
{
    const size_t width = t->form.width, bytes = t->list.count * width;

    t->form.tokens += t->list.count;
    if (t->form.tokens > INT32_MAX) {
        return fault_set(t->why, RC_LIMIT,
                         "cannot tokenize: the form of the file ends at %d tokens; make several "
                         "files, and pass their folder as --data tokens:DIR",
                         INT32_MAX);
    }
    if (bytes > t->packed_cap) {
        uint8_t *grown = mem_resize(t->packed, bytes);
        if (grown == NULL) return fault_set(t->why, RC_NOMEM, "cannot tokenize: out of memory");
        t->packed = grown;
        t->packed_cap = bytes;
    }
    for (size_t i = 0; i < t->list.count; i++) {
        if (width == 2)
            store_le16(t->packed + 2 * i, (uint16_t)t->list.tokens[i]);
        else
            store_le32(t->packed + 4 * i, t->list.tokens[i]);
    }
    t->list.count = 0;
    return file_writer_add(t->writer, t->packed, bytes, t->why);
}

static enum rc encode_piece(struct tokenizing *t, size_t count, bool is_last)
{
    const uint32_t end = tokenizer_end(t->tokenizer);
    enum rc rc = encoder_add(t->encoder, t->piece, count, is_last, &t->list);

    if (rc == RC_OK && is_last && end != TOKENIZER_NO_TOKEN) rc = token_list_add(&t->list, end);
    if (rc == RC_OK) return write_tokens(t);
    return fault_set(t->why, rc, "cannot tokenize: %s", rc_text(rc));
}

static enum rc add_text(struct tokenizing *t, const char *path)
{
    struct data_stream *stream = NULL;
    size_t got = PIECE_BYTES;
    enum rc rc = data_stream_open(path, advice, &stream, t->why);

    while (rc == RC_OK && got > 0 && *t->stop == 0) {
        rc = data_stream_some(stream, t->piece, PIECE_BYTES, &got, t->why);
        if (rc == RC_OK) rc = encode_piece(t, got, got == 0);
        t->bytes += got;
        tell_progress(t);
    }
    data_stream_close(stream);
    return rc;
}

static enum rc begin(struct tokenizing *t, const struct options *options, const char *out)
{
    const char *path = options_text(options, "tokenizer");
    uint8_t head[TOKEN_HEADER_BYTES] = {0};
    enum rc rc;

    if (path == NULL || out == NULL) {
        return fault_set(
            t->why, RC_USAGE, "tokenize needs %s%s%s", path == NULL ? "--tokenizer FILE" : "",
            path == NULL && out == NULL ? " and " : "", out == NULL ? "--out FILE" : "");
    }
    rc = tokenizer_open(path, &t->tokenizer, t->why);
    if (rc != RC_OK) return rc;
    t->form.symbols = tokenizer_symbols(t->tokenizer);
    t->form.width = t->form.symbols <= WIDE_SYMBOLS ? 2 : 4;
    t->form.has_digest = true;
    t->form.digest = tokenizer_digest(t->tokenizer);
    t->encoder = encoder_create(t->tokenizer);
    t->piece = mem_raw(PIECE_BYTES);
    if (t->encoder == NULL || t->piece == NULL) {
        return fault_set(t->why, RC_NOMEM, "cannot tokenize: out of memory");
    }
    rc = file_writer_open(out, &t->writer, t->why);
    return rc == RC_OK ? file_writer_add(t->writer, head, sizeof head, t->why) : rc;
}

static enum rc end(struct tokenizing *t)
{
    uint8_t head[TOKEN_HEADER_BYTES];
    enum rc rc;

    token_form_write(&t->form, head);
    rc = file_writer_finish(t->writer, head, sizeof head, t->why);
    t->writer = NULL;
    return rc;
}

static void tell(const struct tokenizing *t, const char *out, bool is_json)
{
    const double spent_s = (double)(uv_clock_ns() - t->start_ns + 1) / 1e9;
    struct json *json;

    if (!is_json) {
        printf("%s: %" PRIu64 " tokens of %" PRIu64 " bytes, %.2f bytes a token, %.1f MB/s\n", out,
               t->form.tokens, t->bytes,
               t->form.tokens > 0 ? (double)t->bytes / (double)t->form.tokens : 0.0,
               (double)t->bytes / spent_s / 1e6);
        return;
    }
    json = json_object_create();
    json_set_text(json, "out", out);
    json_set_count(json, "tokens", t->form.tokens);
    json_set_count(json, "bytes", t->bytes);
    json_set_count(json, "symbols", t->form.symbols);
    json_set_real(json, "wall_s", spent_s);
    command_print_json(json);
}

int command_tokenize(struct options *options)
{
    const char *out = options_text(options, "out");
    struct fault why = {""};
    struct tokenizing t = {.why = &why};
    size_t count;
    const char *const *paths = options_arguments(options, &count);
    enum rc rc = command_check_out(out, paths, count, &why);

    if (rc == RC_OK) rc = measure(&t, paths, count);
    progress_init(&t.progress, options);
    t.stop = command_watch_stop(); /* the half of a file is not to stay */
    if (rc == RC_OK) rc = begin(&t, options, out);
    t.start_ns = uv_clock_ns();
    for (size_t i = 0; rc == RC_OK && i < count; i++) {
        rc = add_text(&t, paths[i]);
    }
    const int signal = (int)*t.stop;
    progress_clear(&t.progress);
    if (rc == RC_OK && signal == 0) {
        progress_end(&t.progress);
        rc = end(&t);
        if (rc == RC_OK) tell(&t, out, options_flag(options, "json"));
    } else if (rc == RC_OK) {
        log_info(&t.progress.log, "stopped: %s is not written", out);
    }
    file_writer_abandon(t.writer);
    encoder_destroy(t.encoder);
    tokenizer_close(t.tokenizer);
    token_list_deinit(&t.list);
    mem_free(t.piece);
    mem_free(t.packed);
    if (rc == RC_OK) return signal == 0 ? EXIT_DONE : 128 + signal;
    return command_failed(rc, &why);
}
