/*
 * `--data tokens:FILE[,context=N][,symbols=N][,bits=16|32][,test=FILE]`: token numbers as they lie
 * in files (token_file.h), windows of N tokens as of a text. FILE may be a folder: all its *.bin
 * files by name, those with "val" or "test" in their names for validation. Without validation files
 * the last tenth of all windows is it. Windows do not reach from one file into the next.
 *
 * Tokens stay in the files and are read when a batch is made, through the system's page cache: data
 * may be larger than memory, and a shard of them costs eight bytes a window. They are read, not
 * mapped: a file that becomes shorter meanwhile is an error, and no SIGBUS. Every number is checked
 * as it is read. Used by jobs and commands; tokens_read() by any thread.
 */
#include "replica/data/source.h"
#include "replica/readers/token_file.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/file.h"
#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES_MAX = 512, TEST_TENTHS = 10, BITS_DEFAULT = 16 };

struct token_shard {
    int fd;
    bool is_test;
    struct token_form form;
    uint64_t windows;
    char *path;
};

struct tokens {
    struct data_source base; /* first: a source is cast back to this */
    struct token_windows windows;
    struct token_shard shards[FILES_MAX]; /* those for training first */
    size_t count;
    uint32_t context, symbols, bits;
    uint64_t train_windows, all_windows; /* numbers of the test part begin at train_windows */
};

static struct tokens *tokens_of(const struct token_windows *windows)
{
    return (struct tokens *)((char *)(uintptr_t)windows - offsetof(struct tokens, windows));
}

static void tokens_destroy(struct data_source *source)
{
    struct tokens *tokens = (struct tokens *)source;

    for (size_t i = 0; i < tokens->count; i++) {
        if (tokens->shards[i].fd >= 0) close(tokens->shards[i].fd);
        mem_free(tokens->shards[i].path);
    }
    mem_free(tokens);
}

/* ---- reading ---- */

static enum rc read_at(int fd, uint8_t *bytes, size_t count, uint64_t at)
{
    while (count > 0) {
        const ssize_t got = pread(fd, bytes, count, (off_t)at);

        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return RC_IO;
        if (got == 0) return RC_FORMAT; /* it has become shorter */
        bytes += got;
        at += (uint64_t)got;
        count -= (size_t)got;
    }
    return RC_OK;
}

static enum rc tokens_read(const struct token_windows *from, uint32_t window, size_t first,
                           size_t count, uint32_t tokens[TOKENS_AT_ONCE])
{
    const struct tokens *t = tokens_of(from);
    const struct token_shard *shard = t->shards;
    uint64_t place = window;
    uint8_t bytes[4 * TOKENS_AT_ONCE];
    enum rc rc;

    CHECK(count <= TOKENS_AT_ONCE && window < t->all_windows && first + count <= t->context + 1U);
    for (; place >= shard->windows; shard++) {
        place -= shard->windows;
    }
    rc = read_at(shard->fd, bytes, count * shard->form.width,
                 shard->form.offset + (place * t->context + first) * shard->form.width);
    if (rc != RC_OK) return rc;
    for (size_t i = 0; i < count; i++) {
        tokens[i] = shard->form.width == 2 ? load_le16(bytes + 2 * i) : load_le32(bytes + 4 * i);
        if (tokens[i] >= t->symbols) rc = RC_FORMAT;
    }
    return rc;
}

/* Samples of a part are known by the numbers of their windows; nothing is read yet. */
static enum rc tokens_load(struct data_source *source, const struct data_part *part,
                           struct samples *out, struct fault *why)
{
    struct tokens *t = (struct tokens *)source;
    const uint64_t first = part->is_test ? t->train_windows : 0;

    (void)why;
    out->from = &t->windows;
    for (size_t i = 0; i < part->count; i++) {
        if (part->slots[i] != DATA_NO_SLOT) out->windows[part->slots[i]] = (uint32_t)(first + i);
    }
    return RC_OK;
}

static const struct data_source_ops tokens_ops = {.destroy = tokens_destroy, .load = tokens_load};

/* ---- opening ---- */

/* Its form; a file without a header has the form that the spec says. */
static enum rc read_form(struct tokens *t, struct token_shard *shard, struct fault *why)
{
    uint8_t head[TOKEN_HEADER_BYTES] = {0};
    struct fault reason = {""};
    struct stat at;
    uint64_t bytes;
    enum rc rc;

    if (fstat(shard->fd, &at) != 0) return file_fault(why, "read", shard->path, errno);
    if (!S_ISREG(at.st_mode)) {
        return fault_set(why, RC_FORMAT, "cannot read %s: it is no regular file", shard->path);
    }
    bytes = (uint64_t)at.st_size;
    rc = read_at(shard->fd, head, bytes < sizeof head ? (size_t)bytes : sizeof head, 0);
    if (rc != RC_OK) return fault_set(why, rc, "cannot read %s: %s", shard->path, rc_text(rc));
    rc = token_form_read(head, bytes, &shard->form, &reason);
    if (rc != RC_OK) return fault_set(why, rc, "cannot read %s: %s", shard->path, reason.text);
    if (shard->form.width == 0) {
        shard->form.width = t->bits / 8;
        shard->form.tokens = bytes / shard->form.width;
        if (bytes % shard->form.width != 0) {
            return fault_set(why, RC_FORMAT,
                             "cannot read %s: its %" PRIu64 " bytes are no numbers of %u bits",
                             shard->path, bytes, t->bits);
        }
    }
    shard->windows = shard->form.tokens > 0 ? (shard->form.tokens - 1) / t->context : 0;
    return RC_OK;
}

static enum rc open_one(struct tokens *t, const char *path, bool is_test, struct fault *why)
{
    struct token_shard *shard = &t->shards[t->count];

    if (t->count == FILES_MAX) {
        return fault_set(why, RC_LIMIT, "cannot read %s: more than %d files", path, FILES_MAX);
    }
    *shard = (struct token_shard){.fd = -1, .is_test = is_test, .path = mem_string(path)};
    t->count++;
    if (shard->path == NULL) return data_no_memory(why, "open the data");
    shard->fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC) /* a pipe: refused below */;
    if (shard->fd < 0) {
        file_fault(why, "read", path, errno);
        return RC_NOT_FOUND;
    }
    return read_form(t, shard, why);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_bin(const char *name)
{
    const size_t length = strlen(name);

    return length > 4 && name[0] != '.' && strcmp(name + length - 4, ".bin") == 0;
}

/* Names of the *.bin files, sorted; FILES_MAX + 1 at most. */
static enum rc list_folder(DIR *folder, char **names, size_t *count)
{
    const struct dirent *entry;

    while (*count <= FILES_MAX && (entry = readdir(folder)) != NULL) {
        if (!is_bin(entry->d_name)) continue;
        names[*count] = mem_string(entry->d_name);
        if (names[(*count)++] == NULL) return RC_NOMEM;
    }
    qsort(names, *count, sizeof *names, by_name);
    return RC_OK;
}

static enum rc open_folder(struct tokens *t, const char *path, struct fault *why)
{
    DIR *folder = opendir(path);
    char **names, file[PATH_MAX];
    size_t count = 0;
    enum rc rc;

    if (folder == NULL) return file_fault(why, "read", path, errno);
    names = mem_array(FILES_MAX + 1, sizeof *names);
    rc = names != NULL ? list_folder(folder, names, &count) : RC_NOMEM;
    if (rc != RC_OK) data_no_memory(why, "open the data");
    if (rc == RC_OK && count == 0) {
        rc = fault_set(why, RC_NOT_FOUND, "cannot read %s: the folder has no *.bin files", path);
    }
    for (int test = 0; test < 2; test++) {
        for (size_t i = 0; rc == RC_OK && i < count; i++) {
            const bool is_test =
                strstr(names[i], "val") != NULL || strstr(names[i], "test") != NULL;
            if (is_test != (test == 1)) continue;
            rc = snprintf(file, sizeof file, "%s/%s", path, names[i]) < PATH_MAX
                     ? open_one(t, file, is_test, why)
                     : file_fault(why, "read", path, ENAMETOOLONG);
        }
    }
    for (size_t i = 0; names != NULL && i < count; i++) {
        mem_free(names[i]);
    }
    mem_free(names);
    closedir(folder);
    return rc;
}

/* Two parts. */
static enum rc divide(struct tokens *t, const char *path, struct dataset_info *info,
                      struct fault *why)
{
    bool has_test = false;

    for (size_t i = 0; i < t->count; i++) {
        t->all_windows += t->shards[i].windows;
        has_test |= t->shards[i].is_test;
        if (!t->shards[i].is_test) t->train_windows += t->shards[i].windows;
    }
    if (!has_test) {
        t->train_windows = t->all_windows - (t->all_windows + TEST_TENTHS - 1) / TEST_TENTHS;
    }
    info->train_samples = t->train_windows;
    info->test_samples = t->all_windows - t->train_windows;
    if (info->train_samples == 0 || info->test_samples == 0) {
        return fault_set(why, RC_FORMAT,
                         "cannot read %s: too few tokens for windows of %u in both of its parts",
                         path, t->context);
    }
    if (info->train_samples <= DATA_SAMPLES_MAX && info->test_samples <= DATA_SAMPLES_MAX) {
        return RC_OK;
    }
    return fault_set(why, RC_LIMIT,
                     "cannot read %s: it has more than %d windows; choose a larger context=", path,
                     DATA_SAMPLES_MAX);
}

/* The vocabulary: what the spec, a tokenizer and headers say must be the same. */
static enum rc settle_vocabulary(struct tokens *t, const struct dataset_options *options,
                                 struct dataset_info *info, struct fault *why)
{
    enum rc rc = data_tokenizer(options, NULL, info, why);

    if (rc != RC_OK) return rc;
    if (info->has_tokenizer && t->symbols == 0) t->symbols = info->symbols;
    if (info->has_tokenizer && t->symbols < info->symbols) {
        return fault_set(why, RC_USAGE, "--data: symbols=%u, and the tokenizer %s has %u tokens",
                         t->symbols, info->tokenizer, info->symbols);
    }
    for (size_t i = 0; i < t->count; i++) {
        const struct token_shard *shard = &t->shards[i];
        if (t->symbols == 0) t->symbols = shard->form.symbols;
        if (shard->form.symbols > 0 && shard->form.symbols > t->symbols) {
            return fault_set(why, RC_MISMATCH,
                             "cannot read %s: its tokens are numbers below %u, not %u", shard->path,
                             shard->form.symbols, t->symbols);
        }
        if (!shard->form.has_digest) continue;
        if (info->has_tokenizer && !digest_is_equal(info->tokenizer_digest, shard->form.digest)) {
            return fault_set(
                why, RC_MISMATCH, "cannot read %s: it was made with another tokenizer than %s",
                shard->path, info->tokenizer[0] != '\0' ? info->tokenizer : t->shards[0].path);
        }
        info->has_tokenizer = true;
        info->tokenizer_digest = shard->form.digest;
    }
    if (t->symbols == 0) {
        return fault_set(why, RC_USAGE,
                         "%s does not say how many tokens its vocabulary has; add symbols=N to "
                         "--data (50257 for GPT-2), or pass --tokenizer",
                         t->shards[0].path);
    }
    if (t->symbols <= DATA_SYMBOLS_MAX) return RC_OK;
    return fault_set(why, RC_LIMIT, "cannot read %s: a vocabulary of %u tokens; %d can be had",
                     t->shards[0].path, t->symbols, DATA_SYMBOLS_MAX);
}

static enum rc read_spec(const struct data_spec *spec, const struct dataset_options *options,
                         struct tokens *t, struct fault *why)
{
    static const char *const keys[] = {"context", "symbols", "bits", "test"};
    enum rc rc = data_spec_check(spec, 1, "the file", keys, ARRAY_COUNT(keys), NULL, why);

    t->bits = BITS_DEFAULT;
    if (rc == RC_OK) {
        rc = data_spec_count(spec, "symbols", 1, DATA_SYMBOLS_MAX, &t->symbols, why);
    }
    if (rc == RC_OK) rc = data_spec_count(spec, "bits", 16, 32, &t->bits, why);
    if (rc == RC_OK && t->bits != 16 && t->bits != 32) {
        rc = data_spec_fault(spec, data_spec_find(spec, "bits")->value_column, why,
                             "bits must be 16 or 32");
    }
    if (rc != RC_OK) return rc;
    return data_context(spec, data_spec_find(spec, "context"), options->context,
                        DATASET_CONTEXT_DEFAULT, &t->context, why);
}

static enum rc open_all(const struct data_spec *spec, struct tokens *t, struct fault *why)
{
    const struct data_item *test = data_spec_find(spec, "test");
    struct stat at;
    enum rc rc;

    if (stat(spec->files[0], &at) == 0 && S_ISDIR(at.st_mode)) {
        if (test != NULL) {
            return data_spec_fault(spec, test->column, why,
                                   "test= is for a file; in a folder, name one *val*.bin");
        }
        return open_folder(t, spec->files[0], why);
    }
    rc = open_one(t, spec->files[0], false, why);
    if (rc == RC_OK && test != NULL) rc = open_one(t, test->value, true, why);
    return rc;
}

enum rc tokens_open_source(const struct data_spec *spec, const struct dataset_options *options,
                           struct dataset_info *info, struct data_source **source,
                           struct fault *why)
{
    struct tokens *t = mem_alloc(sizeof *t);
    enum rc rc;

    if (t == NULL) return data_no_memory(why, "open the data");
    t->base.ops = &tokens_ops;
    t->windows.read = tokens_read;
    rc = read_spec(spec, options, t, why);
    if (rc == RC_OK) rc = open_all(spec, t, why);
    if (rc == RC_OK) rc = settle_vocabulary(t, options, info, why);
    if (rc == RC_OK) rc = divide(t, spec->files[0], info, why);
    data_describe_tokens(info, "tokens", t->context);
    info->is_in_files = true;
    info->classes = info->symbols = t->symbols;
    if (rc == RC_OK) rc = data_source_normal(&t->base, info, why);
    if (rc != RC_OK) {
        data_source_destroy(&t->base);
        return rc;
    }
    *source = &t->base;
    return RC_OK;
}
