/*
 * IDX files by zlib, which also passes plain files through. Form: Y. LeCun, C. Cortes, C. Burges,
 * "The MNIST database of handwritten digits". What a header claims is held against the size of the
 * file before anybody allocates by it: deflate cannot expand more than 1032 times (zlib's technical
 * notes). Used by jobs and commands.
 */
#include "replica/data_idx.h"

#include "base/check.h"
#include "base/file.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { INFLATE_RATIO_MAX = 1032, WINDOW_BYTES = 128 * 1024, SKIP_BYTES = 16 * 1024 };

struct idx_stream {
    gzFile gz;
    char path[IDX_PATH_BYTES];
};

static const char advice[] = "install the package dataset-fashion-mnist or pass --data idx:DIR";

static const char *const stems[IDX_FILES] = {
    [IDX_TRAIN_IMAGES] = "train-images",
    [IDX_TRAIN_LABELS] = "train-labels",
    [IDX_TEST_IMAGES] = "t10k-images",
    [IDX_TEST_LABELS] = "t10k-labels",
};

static bool is_labels(enum idx_file file)
{
    return file == IDX_TRAIN_LABELS || file == IDX_TEST_LABELS;
}

enum rc idx_find(const char *folder, enum idx_file file, char path[IDX_PATH_BYTES],
                 struct fault *why)
{
    static const char *const separators[] = {"-", "-", ".", "."};
    static const char *const endings[] = {".gz", "", ".gz", ""};
    const char *kind = is_labels(file) ? "idx1" : "idx3";

    for (size_t i = 0; i <= ARRAY_COUNT(endings); i++) {
        size_t form = i % ARRAY_COUNT(endings); /* none is there: the first again, for messages */
        int length = snprintf(path, IDX_PATH_BYTES, "%s/%s%s%s-ubyte%s", folder, stems[file],
                              separators[form], kind, endings[form]);

        if (length < 0 || length >= IDX_PATH_BYTES) {
            return fault_set(why, RC_LIMIT, "cannot read data: the folder's name is too long");
        }
        if (i < ARRAY_COUNT(endings) && file_is_there(path)) return RC_OK;
    }
    return RC_OK;
}

static enum rc malformed(const struct idx_stream *stream, struct fault *why, const char *what)
{
    return fault_set(why, RC_FORMAT, "cannot read %s: %s; %s", stream->path, what, advice);
}

/* Why a read came back short. */
static enum rc read_failed(const struct idx_stream *stream, struct fault *why)
{
    int code = Z_OK;

    gzerror(stream->gz, &code);
    if (code == Z_ERRNO) return file_fault(why, "read", stream->path, errno);
    if (code == Z_MEM_ERROR) {
        return fault_set(why, RC_NOMEM, "cannot read %s: out of memory", stream->path);
    }
    if (code == Z_DATA_ERROR) return malformed(stream, why, "its compressed data is damaged");
    return malformed(stream, why, "it ends too early");
}

enum rc idx_read(struct idx_stream *stream, uint8_t *bytes, size_t count, struct fault *why)
{
    uint8_t skipped[SKIP_BYTES];

    while (count > 0) {
        size_t piece = bytes != NULL || count < sizeof skipped ? count : sizeof skipped;
        unsigned wanted = piece < WINDOW_BYTES ? (unsigned)piece : WINDOW_BYTES;
        int got = gzread(stream->gz, bytes != NULL ? bytes : skipped, wanted);

        if (got < 0 || (unsigned)got < wanted) return read_failed(stream, why);
        if (bytes != NULL) bytes += wanted;
        count -= wanted;
    }
    return RC_OK;
}

enum rc idx_finish(struct idx_stream *stream, struct fault *why)
{
    uint8_t extra;
    int got = gzread(stream->gz, &extra, 1), code = Z_OK;

    if (got > 0) return malformed(stream, why, "it holds more bytes than its header says");
    gzerror(stream->gz, &code);
    if (got < 0 || code != Z_OK) return read_failed(stream, why);
    return RC_OK;
}

static uint32_t load_be32(const uint8_t *b)
{
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

/* The header, and whether a file of `file_bytes` can hold what it claims. */
static enum rc read_header(struct idx_stream *stream, bool labels, uint64_t file_bytes,
                           struct idx_header *header, struct fault *why)
{
    uint8_t bytes[16] = {0};
    size_t header_bytes = labels ? 8 : 16;
    struct idx_header parsed = {0, 1, 1};
    uint64_t values, possible;
    enum rc rc;

    rc = idx_read(stream, bytes, header_bytes, why);
    if (rc != RC_OK) return rc;
    if (bytes[0] != 0 || bytes[1] != 0 || bytes[2] != 8 || bytes[3] != (labels ? 1 : 3)) {
        return malformed(stream, why,
                         labels ? "not an IDX file of byte labels (magic number)"
                                : "not an IDX file of byte images (magic number)");
    }
    parsed.count = load_be32(bytes + 4);
    if (!labels) {
        parsed.height = load_be32(bytes + 8);
        parsed.width = load_be32(bytes + 12);
    }
    if (parsed.count == 0 || parsed.count > IDX_SAMPLES_MAX) {
        return malformed(stream, why, "its header claims an absurd count of samples");
    }
    if (parsed.height == 0 || parsed.height > IDX_SIDE_MAX || parsed.width == 0 ||
        parsed.width > IDX_SIDE_MAX) {
        return malformed(stream, why, "its header claims images of an absurd size");
    }
    values = (uint64_t)parsed.count * parsed.height * parsed.width;
    possible = gzdirect(stream->gz) ? file_bytes : file_bytes * INFLATE_RATIO_MAX;
    if (values + header_bytes > possible) {
        return malformed(stream, why, "its header claims more samples than the file can hold");
    }
    *header = parsed;
    return RC_OK;
}

/* Open `path` as a gzip or plain stream. */
static enum rc open_stream(struct idx_stream *stream, uint64_t *file_bytes, struct fault *why)
{
    struct stat status = {0};
    size_t length = strlen(stream->path);
    bool is_gz = length > 3 && strcmp(stream->path + length - 3, ".gz") == 0;
    int fd = open(stream->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hang us */

    if (fd < 0 && errno == ENOENT) {
        return fault_set(why, RC_NOT_FOUND, "cannot read %s: no such file; %s", stream->path,
                         advice);
    }
    if (fd < 0) return file_fault(why, "read", stream->path, errno);
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        close(fd);
        return malformed(stream, why,
                         S_ISDIR(status.st_mode) ? "it is a folder" : "it is not a file");
    }
    *file_bytes = (uint64_t)status.st_size;
    stream->gz = gzdopen(fd, "rb");
    if (stream->gz == NULL) {
        close(fd);
        return fault_set(why, RC_NOMEM, "cannot read %s: out of memory", stream->path);
    }
    gzbuffer(stream->gz, WINDOW_BYTES);
    if (is_gz && gzdirect(stream->gz)) return malformed(stream, why, "it is not gzip data");
    return RC_OK;
}

enum rc idx_open(const char *path, enum idx_file file, struct idx_stream **stream,
                 struct idx_header *header, struct fault *why)
{
    struct idx_stream *opened;
    uint64_t file_bytes = 0;
    enum rc rc;

    CHECK(path != NULL && strlen(path) < IDX_PATH_BYTES && (unsigned)file < IDX_FILES);
    opened = mem_alloc(sizeof *opened);
    if (opened == NULL) return fault_set(why, RC_NOMEM, "cannot read %s: out of memory", path);
    memcpy(opened->path, path, strlen(path) + 1);
    rc = open_stream(opened, &file_bytes, why);
    if (rc == RC_OK) rc = read_header(opened, is_labels(file), file_bytes, header, why);
    if (rc == RC_OK)
        *stream = opened;
    else
        idx_close(opened);
    return rc;
}

void idx_close(struct idx_stream *stream)
{
    if (stream == NULL) return;
    if (stream->gz != NULL) gzclose(stream->gz);
    mem_free(stream);
}
