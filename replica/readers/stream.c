/*
 * Data files by zlib, which also passes plain files through. Deflate cannot expand more than 1032
 * times (zlib's technical notes), which bounds what a compressed file can hold. Plain files are
 * read, not mapped: what is kept of them is reordered anyway, and a file that shrinks under a
 * mapping kills the process that reads it.
 */
#include "replica/readers/stream.h"

#include "base/check.h"
#include "base/file.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { INFLATE_RATIO_MAX = 1032, WINDOW_BYTES = 128 * 1024, SKIP_BYTES = 16 * 1024 };

struct data_stream {
    gzFile gz;
    const char *advice;
    uint64_t file_bytes;
    uint64_t position; /* in the content */
    char path[DATA_PATH_BYTES];
};

void data_stream_printable(char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < ' ' || *text == 0x7f) *text = '?';
    }
}

enum rc data_stream_malformed(const struct data_stream *stream, struct fault *why,
                              const char *format, ...)
{
    char what[256];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    data_stream_printable(what);
    return fault_set(why, RC_FORMAT, "cannot read %s: %s; %s", stream->path, what, stream->advice);
}

bool data_stream_is_compressed(const struct data_stream *stream)
{
    return gzdirect(stream->gz) == 0;
}

double data_stream_share(const struct data_stream *stream)
{
    const double at = (double)gzoffset(stream->gz);

    return at > 0 && stream->file_bytes > 0 ? at / (double)stream->file_bytes : 0;
}

uint64_t data_stream_bytes_max(const struct data_stream *stream)
{
    return data_stream_is_compressed(stream) ? stream->file_bytes * INFLATE_RATIO_MAX
                                             : stream->file_bytes;
}

/* Why a read came back short. */
static enum rc read_failed(const struct data_stream *stream, struct fault *why)
{
    int code = Z_OK;

    gzerror(stream->gz, &code);
    if (code == Z_ERRNO) return file_fault(why, "read", stream->path, errno);
    if (code == Z_MEM_ERROR) {
        return fault_set(why, RC_NOMEM, "cannot read %s: out of memory", stream->path);
    }
    if (code == Z_DATA_ERROR) {
        return data_stream_malformed(stream, why, "its compressed data is damaged");
    }
    return data_stream_malformed(stream, why, "it ends too early");
}

/* In a plain file a jump; zlib does not notice one past the end. */
static enum rc skip_plain(struct data_stream *stream, size_t count, struct fault *why)
{
    if (count > stream->file_bytes || stream->position > stream->file_bytes - count) {
        return data_stream_malformed(stream, why, "it ends too early");
    }
    if (gzseek(stream->gz, (z_off_t)count, SEEK_CUR) < 0) return read_failed(stream, why);
    stream->position += count;
    return RC_OK;
}

enum rc data_stream_read(struct data_stream *stream, void *bytes, size_t count, struct fault *why)
{
    uint8_t skipped[SKIP_BYTES], *to = bytes;

    if (bytes == NULL && !data_stream_is_compressed(stream)) return skip_plain(stream, count, why);
    while (count > 0) {
        size_t piece = to != NULL || count < sizeof skipped ? count : sizeof skipped;
        unsigned wanted = piece < WINDOW_BYTES ? (unsigned)piece : WINDOW_BYTES;
        int got = gzread(stream->gz, to != NULL ? to : skipped, wanted);

        if (got < 0 || (unsigned)got < wanted) return read_failed(stream, why);
        if (to != NULL) to += wanted;
        stream->position += wanted;
        count -= wanted;
    }
    return RC_OK;
}

enum rc data_stream_some(struct data_stream *stream, void *bytes, size_t cap, size_t *got,
                         struct fault *why)
{
    unsigned wanted = cap < WINDOW_BYTES ? (unsigned)cap : WINDOW_BYTES;
    int count = gzread(stream->gz, bytes, wanted), code = Z_OK;

    gzerror(stream->gz, &code); /* a file that ends inside its compressed data is short, too */
    if (count < 0 || ((unsigned)count < wanted && code != Z_OK)) return read_failed(stream, why);
    stream->position += (unsigned)count;
    *got = (size_t)count;
    return RC_OK;
}

enum rc data_stream_finish(struct data_stream *stream, struct fault *why)
{
    uint8_t extra;
    int got = gzread(stream->gz, &extra, 1), code = Z_OK;

    if (got > 0) {
        return data_stream_malformed(stream, why, "it holds more bytes than its header says");
    }
    gzerror(stream->gz, &code);
    if (got < 0 || code != Z_OK) return read_failed(stream, why);
    return RC_OK;
}

static enum rc open_file(struct data_stream *stream, struct fault *why)
{
    struct stat status = {0};
    size_t length = strlen(stream->path);
    bool is_gz = length > 3 && strcmp(stream->path + length - 3, ".gz") == 0;
    int fd = open(stream->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hang us */

    if (fd < 0 && errno == ENOENT) {
        return fault_set(why, RC_NOT_FOUND, "cannot read %s: no such file; %s", stream->path,
                         stream->advice);
    }
    if (fd < 0) return file_fault(why, "read", stream->path, errno);
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        close(fd);
        return data_stream_malformed(
            stream, why, S_ISDIR(status.st_mode) ? "it is a folder" : "it is not a file");
    }
    stream->file_bytes = (uint64_t)status.st_size;
    stream->gz = gzdopen(fd, "rb");
    if (stream->gz == NULL) {
        close(fd);
        return fault_set(why, RC_NOMEM, "cannot read %s: out of memory", stream->path);
    }
    gzbuffer(stream->gz, WINDOW_BYTES);
    if (is_gz && !data_stream_is_compressed(stream)) {
        return data_stream_malformed(stream, why, "it is not gzip data");
    }
    return RC_OK;
}

enum rc data_stream_open(const char *path, const char *advice, struct data_stream **stream,
                         struct fault *why)
{
    struct data_stream *opened;
    enum rc rc;

    CHECK(path != NULL && advice != NULL);
    if (strlen(path) >= DATA_PATH_BYTES) {
        return fault_set(why, RC_LIMIT, "cannot read data: the file's name is too long");
    }
    opened = mem_alloc(sizeof *opened);
    if (opened == NULL) return fault_set(why, RC_NOMEM, "cannot read %s: out of memory", path);
    memcpy(opened->path, path, strlen(path) + 1);
    opened->advice = advice;
    rc = open_file(opened, why);
    if (rc == RC_OK)
        *stream = opened;
    else
        data_stream_close(opened);
    return rc;
}

void data_stream_close(struct data_stream *stream)
{
    if (stream == NULL) return;
    if (stream->gz != NULL) gzclose(stream->gz);
    mem_free(stream);
}
