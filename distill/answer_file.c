/* answer_file: see answer_file.h. Thread: the command's; rows are read by one thread at a time. */
#include "distill/answer_file.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/file.h"
#include "base/floats.h"
#include "base/mem.h"
#include "kernels/codec.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { VERSION = 1, BUFFER_BYTES = 1 << 20, SMALL_IDS = 1 << 16, MAGIC_BYTES = 16 };

/* Where things stand in the header. */
enum {
    AT_VERSION = MAGIC_BYTES,
    AT_OUTPUTS = 20,
    AT_TOP = 24,
    AT_REAL = 28,
    AT_ROWS = 32,
    AT_DONE = 40,
    AT_QUESTION = 48,
    AT_ROWS_DIGEST = 80,
    AT_HEADER_DIGEST = 112,
    HEADER_END = 144
};
_Static_assert((int)HEADER_END <= (int)ANSWER_HEADER, "the header has room");

static const char magic[MAGIC_BYTES] = "grapevineanswer";

/* ---- rows ---- */

static bool keeps_all(const struct answer_form *form)
{
    return form->is_real || form->top >= form->outputs;
}

static size_t id_bytes(const struct answer_form *form)
{
    return form->outputs <= SMALL_IDS ? sizeof(uint16_t) : sizeof(uint32_t);
}

size_t answer_row_bytes(const struct answer_form *form)
{
    CHECK(form->outputs > 0 && form->top > 0);
    if (form->is_real) return form->outputs * sizeof(float);
    if (keeps_all(form)) return codec_bytes(CODEC_F16, form->outputs);
    return form->top * id_bytes(form) + codec_bytes(CODEC_F16, form->top);
}

static void put_id(const struct answer_form *form, uint8_t *bytes, size_t at, uint32_t id)
{
    if (id_bytes(form) == sizeof(uint16_t)) {
        store_le16(bytes + 2 * at, (uint16_t)id);
    } else {
        store_le32(bytes + 4 * at, id);
    }
}

static uint32_t get_id(const struct answer_form *form, const uint8_t *bytes, size_t at)
{
    return id_bytes(form) == sizeof(uint16_t) ? load_le16(bytes + 2 * at)
                                              : load_le32(bytes + 4 * at);
}

/* Entry `a` goes before `b`: the less likely one, of equals the later. */
static bool is_less(const float *row, uint32_t a, uint32_t b)
{
    return row[a] < row[b] || (row[a] <= row[b] && a > b);
}

/* The root of a heap [count] of ids, whose least likely is on top, has changed. */
static void sift(const float *row, uint32_t *heap, uint32_t count)
{
    for (uint32_t at = 0, least;; at = least) {
        const uint32_t left = 2 * at + 1, right = left + 1, id = heap[at];

        least = at;
        if (left < count && is_less(row, heap[left], heap[least])) least = left;
        if (right < count && is_less(row, heap[right], heap[least])) least = right;
        if (least == at) return;
        heap[at] = heap[least];
        heap[least] = id;
    }
}

static int compare_ids(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static void encode_top(const struct answer_form *form, const float *row, uint8_t *bytes)
{
    uint32_t heap[ANSWER_TOP_MAX];
    float kept[ANSWER_TOP_MAX];
    uint32_t count = 0;

    CHECK(form->top <= ANSWER_TOP_MAX);
    for (uint32_t id = 0; id < form->outputs; id++) {
        if (count == form->top) {
            if (!is_less(row, heap[0], id)) continue;
            heap[0] = id;
            sift(row, heap, count);
            continue;
        }
        heap[count++] = id;
        for (uint32_t at = count - 1; at > 0 && is_less(row, heap[at], heap[(at - 1) / 2]);
             at = (at - 1) / 2) {
            const uint32_t up = heap[(at - 1) / 2];
            heap[(at - 1) / 2] = heap[at];
            heap[at] = up;
        }
    }
    qsort(heap, count, sizeof *heap, compare_ids);
    for (uint32_t i = 0; i < count; i++) {
        put_id(form, bytes, i, heap[i]);
        kept[i] = row[heap[i]];
    }
    codec_encode(CODEC_F16, kept, count, bytes + count * id_bytes(form));
}

void answer_encode(const struct answer_form *form, const float *row, uint8_t *bytes)
{
    if (form->is_real) {
        codec_encode(CODEC_F32, row, form->outputs, bytes);
    } else if (keeps_all(form)) {
        codec_encode(CODEC_F16, row, form->outputs, bytes);
    } else {
        encode_top(form, row, bytes);
    }
}

static enum rc decode_top(const struct answer_form *form, const uint8_t *bytes, float *row)
{
    const uint32_t top = form->top;
    float kept[ANSWER_TOP_MAX];
    double sum = 0;

    CHECK(top <= ANSWER_TOP_MAX);
    if (codec_decode(CODEC_F16, bytes + top * id_bytes(form), kept, top) != RC_OK) return RC_FORMAT;
    for (uint32_t i = 0; i < top; i++) {
        if (!(kept[i] >= 0)) return RC_FORMAT;
        sum += (double)kept[i];
    }
    if (!(sum > 0)) return RC_FORMAT;
    /* float16 may make a little more than 1 of them. */
    const double rest = sum < 1 ? 1 - sum : 0, all = sum + rest;
    const float other = (float)(rest / all / (form->outputs - top));
    for (uint32_t id = 0; id < form->outputs; id++) {
        row[id] = other;
    }
    for (uint32_t i = 0; i < top; i++) {
        const uint32_t id = get_id(form, bytes, i);
        if (id >= form->outputs || (i > 0 && id <= get_id(form, bytes, i - 1))) return RC_FORMAT;
        row[id] = (float)((double)kept[i] / all);
    }
    return RC_OK;
}

enum rc answer_decode(const struct answer_form *form, const uint8_t *bytes, float *row)
{
    double sum = 0;

    if (form->is_real) {
        return codec_decode(CODEC_F32, bytes, row, form->outputs) == RC_OK ? RC_OK : RC_FORMAT;
    }
    if (!keeps_all(form)) return decode_top(form, bytes, row);
    if (codec_decode(CODEC_F16, bytes, row, form->outputs) != RC_OK) return RC_FORMAT;
    for (uint32_t i = 0; i < form->outputs; i++) {
        if (!(row[i] >= 0)) return RC_FORMAT;
        sum += (double)row[i];
    }
    if (!(sum > 0)) return RC_FORMAT;
    for (uint32_t i = 0; i < form->outputs; i++) {
        row[i] = (float)((double)row[i] / sum);
    }
    return RC_OK;
}

/* ---- the header ---- */

static void header_write(const struct answer_file_options *options, uint64_t done,
                         struct digest rows, uint8_t bytes[ANSWER_HEADER])
{
    memset(bytes, 0, ANSWER_HEADER);
    memcpy(bytes, magic, MAGIC_BYTES);
    store_le32(bytes + AT_VERSION, VERSION);
    store_le32(bytes + AT_OUTPUTS, options->form.outputs);
    store_le32(bytes + AT_TOP, options->form.top);
    store_le32(bytes + AT_REAL, options->form.is_real);
    store_le64(bytes + AT_ROWS, options->rows);
    store_le64(bytes + AT_DONE, done);
    memcpy(bytes + AT_QUESTION, options->question.bytes, DIGEST_BYTES);
    memcpy(bytes + AT_ROWS_DIGEST, rows.bytes, DIGEST_BYTES);
    const struct digest own = hash_of(bytes, AT_HEADER_DIGEST);
    memcpy(bytes + AT_HEADER_DIGEST, own.bytes, DIGEST_BYTES);
}

/* Whether these are the first bytes of such a file, with `options`' rows; `digest`: of the bytes of
 * the rows that are done. */
static enum rc header_read(const uint8_t bytes[ANSWER_HEADER],
                           const struct answer_file_options *options, uint64_t *done,
                           struct digest *digest)
{
    const struct digest own = hash_of(bytes, AT_HEADER_DIGEST);

    if (memcmp(bytes, magic, MAGIC_BYTES) != 0) return RC_USAGE;
    if (load_le32(bytes + AT_VERSION) != VERSION) return RC_MISMATCH;
    if (memcmp(own.bytes, bytes + AT_HEADER_DIGEST, DIGEST_BYTES) != 0) return RC_FORMAT;
    if (load_le32(bytes + AT_OUTPUTS) != options->form.outputs ||
        load_le32(bytes + AT_TOP) != options->form.top ||
        load_le32(bytes + AT_REAL) != options->form.is_real ||
        load_le64(bytes + AT_ROWS) != options->rows ||
        memcmp(bytes + AT_QUESTION, options->question.bytes, DIGEST_BYTES) != 0) {
        return RC_MISMATCH;
    }
    if (load_le64(bytes + AT_DONE) > options->rows) return RC_FORMAT;
    *done = load_le64(bytes + AT_DONE);
    memcpy(digest->bytes, bytes + AT_ROWS_DIGEST, DIGEST_BYTES);
    return RC_OK;
}

static bool size_of(const struct answer_file_options *options, size_t *bytes)
{
    size_t rows;

    return !__builtin_mul_overflow(options->rows, answer_row_bytes(&options->form), &rows) &&
           !__builtin_add_overflow(rows, (size_t)ANSWER_HEADER, bytes) && *bytes <= INT64_MAX;
}

/* ---- reading ---- */

struct answer_file {
    struct answer_form form;
    uint64_t rows;
    size_t row_bytes, bytes;
    const uint8_t *map;
};

static enum rc read_mapped(struct answer_file *file, const struct answer_file_options *options,
                           int fd, struct fault *why)
{
    struct digest expected;
    struct hash hash;
    uint64_t done;
    void *map = mmap(NULL, file->bytes, PROT_READ, MAP_SHARED, fd, 0);

    if (map == MAP_FAILED) return file_fault(why, "map", options->path, errno);
    file->map = map;
    enum rc rc = header_read(map, options, &done, &expected);
    if (rc == RC_OK && done != options->rows) rc = RC_FORMAT;
    if (rc != RC_OK) return rc;
    (void)madvise(map, file->bytes, MADV_SEQUENTIAL);
    hash_init(&hash);
    hash_update(&hash, file->map + ANSWER_HEADER, file->bytes - ANSWER_HEADER);
    (void)madvise(map, file->bytes, MADV_RANDOM);
    return digest_is_equal(hash_final(&hash), expected) ? RC_OK : RC_FORMAT;
}

/* A file that is too short or too long may still be one of answers, to another question. */
static enum rc judge_size(const struct answer_file_options *options, int fd, size_t wanted,
                          struct fault *why)
{
    uint8_t header[ANSWER_HEADER] = {0};
    struct digest digest;
    struct stat status;
    uint64_t done;

    if (fstat(fd, &status) != 0) return file_fault(why, "read", options->path, errno);
    if (!S_ISREG(status.st_mode)) return RC_USAGE;
    const ssize_t got = pread(fd, header, sizeof header, 0);
    if (got < 0) return file_fault(why, "read", options->path, errno);
    if (got == 0) return RC_FORMAT; /* empty: nothing is lost */
    if (got < MAGIC_BYTES || memcmp(header, magic, MAGIC_BYTES) != 0) return RC_USAGE;
    if (got < ANSWER_HEADER) return RC_FORMAT;
    const enum rc rc = header_read(header, options, &done, &digest);
    if (rc == RC_OK && (uint64_t)status.st_size != wanted) return RC_FORMAT;
    return rc;
}

enum rc answer_file_open(const struct answer_file_options *options, struct answer_file **file,
                         struct fault *why)
{
    struct answer_file made = {.form = options->form,
                               .rows = options->rows,
                               .row_bytes = answer_row_bytes(&options->form)};
    int fd;

    if (!size_of(options, &made.bytes)) {
        return fault_set(why, RC_LIMIT, "too many answers for a file");
    }
    fd = open(options->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return file_fault(why, "read", options->path, errno);
    struct answer_file *opened = mem_alloc(sizeof *opened);
    enum rc rc = opened != NULL ? judge_size(options, fd, made.bytes, why)
                                : fault_set(why, RC_NOMEM, "cannot distil: out of memory");
    if (rc == RC_OK) {
        *opened = made;
        rc = read_mapped(opened, options, fd, why);
    }
    close(fd);
    if (rc == RC_OK) {
        *file = opened;
        return RC_OK;
    }
    answer_file_close(opened);
    if (rc == RC_USAGE) {
        fault_set(
            why, rc,
            "%s is there and holds no answers of teachers; name another file, or move it away",
            options->path);
    }
    if (rc == RC_FORMAT) fault_set(why, rc, "%s is damaged", options->path);
    if (rc == RC_MISMATCH) fault_set(why, rc, "%s answers another question", options->path);
    return rc;
}

void answer_file_close(struct answer_file *file)
{
    if (file == NULL) return;
    if (file->map != NULL) munmap((void *)(uintptr_t)file->map, file->bytes);
    mem_free(file);
}

enum rc answer_file_get(const struct answer_file *file, uint64_t row, float *out)
{
    CHECK(row < file->rows);
    return answer_decode(&file->form, file->map + ANSWER_HEADER + row * file->row_bytes, out);
}

/* ---- writing ---- */

struct answer_writer {
    struct answer_file_options options;
    char path[PATH_MAX], part[PATH_MAX];
    int fd;
    size_t row_bytes, buffered; /* buffered: bytes */
    uint64_t rows;              /* in the file and in the buffer */
    struct hash hash;           /* of the rows in the file */
    uint8_t buffer[BUFFER_BYTES];
};

static enum rc write_at(struct answer_writer *w, const void *bytes, size_t count, uint64_t at,
                        struct fault *why)
{
    const uint8_t *from = bytes;

    while (count > 0) {
        const ssize_t written = pwrite(w->fd, from, count, (off_t)at);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return file_fault(why, "write", w->path, written < 0 ? errno : EIO);
        from += written;
        at += (uint64_t)written;
        count -= (size_t)written;
    }
    return RC_OK;
}

static enum rc flush(struct answer_writer *w, struct fault *why)
{
    const uint64_t before = w->rows - w->buffered / w->row_bytes;
    const enum rc rc =
        write_at(w, w->buffer, w->buffered, ANSWER_HEADER + before * w->row_bytes, why);

    if (rc == RC_OK) hash_update(&w->hash, w->buffer, w->buffered);
    w->buffered = 0;
    return rc;
}

/* The rows of an earlier try, as far as they are what its header says. */
static uint64_t rows_there(struct answer_writer *w)
{
    uint8_t header[ANSWER_HEADER];
    struct digest expected;
    uint64_t done = 0, left;
    struct hash hash;

    if (pread(w->fd, header, sizeof header, 0) != ANSWER_HEADER) return 0;
    if (header_read(header, &w->options, &done, &expected) != RC_OK) return 0;
    hash_init(&hash);
    left = done * w->row_bytes;
    for (uint64_t at = ANSWER_HEADER; left > 0;) {
        const size_t want = left < BUFFER_BYTES ? (size_t)left : BUFFER_BYTES;
        const ssize_t got = pread(w->fd, w->buffer, want, (off_t)at);
        if (got <= 0) return 0;
        hash_update(&hash, w->buffer, (size_t)got);
        at += (uint64_t)got;
        left -= (uint64_t)got;
    }
    w->hash = hash;
    return digest_is_equal(hash_final(&hash), expected) ? done : 0;
}

/* Room for all of it, or a file system that cannot say so. */
static int reserve(const struct answer_writer *w, size_t bytes)
{
    const int error = posix_fallocate(w->fd, 0, (off_t)bytes);

    if (error == EOPNOTSUPP || error == EINVAL || error == ENOSYS) {
        return ftruncate(w->fd, (off_t)bytes) == 0 ? 0 : errno;
    }
    return error;
}

/* Another may have finished, and given it its name, between open and lock. */
static bool is_still_named(const struct answer_writer *w)
{
    struct stat opened, named;

    return fstat(w->fd, &opened) == 0 && lstat(w->part, &named) == 0 &&
           opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

/* It holds something, and that is no such file; zeros are one that was reserved and not begun. */
static bool is_foreign(int fd)
{
    char first[MAGIC_BYTES];
    const ssize_t got = pread(fd, first, sizeof first, 0);

    if (got <= 0 || first[0] == '\0') return false;
    return got < MAGIC_BYTES || memcmp(first, magic, MAGIC_BYTES) != 0;
}

static enum rc begin(struct answer_writer *w, size_t bytes, uint64_t *done, struct fault *why)
{
    w->fd = open(w->part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (w->fd < 0) return file_fault(why, "write", w->part, errno);
    if (flock(w->fd, LOCK_EX | LOCK_NB) != 0 || !is_still_named(w)) {
        close(w->fd);
        w->fd = -1; /* another's */
        return fault_set(why, RC_BUSY,
                         "%s is being written by another grapevine; wait, or name "
                         "another --out",
                         w->part);
    }
    if (is_foreign(w->fd)) {
        close(w->fd);
        w->fd = -1;
        return fault_set(why, RC_USAGE, "%s is there and is none of ours; name another --answers",
                         w->part);
    }
    *done = rows_there(w);
    if (*done == 0) {
        hash_init(&w->hash);
        if (ftruncate(w->fd, 0) != 0) return file_fault(why, "write", w->part, errno);
    }
    w->rows = *done;
    const int error = reserve(w, bytes);
    return error == 0 ? RC_OK : file_fault(why, "write", w->part, error);
}

enum rc answer_writer_open(const struct answer_file_options *options, struct answer_writer **writer,
                           uint64_t *done, struct fault *why)
{
    struct answer_writer *w = mem_alloc(sizeof *w);
    size_t bytes;
    enum rc rc;

    if (w == NULL) return fault_set(why, RC_NOMEM, "cannot distil: out of memory");
    w->options = *options;
    w->row_bytes = answer_row_bytes(&options->form);
    w->fd = -1;
    CHECK(w->row_bytes <= BUFFER_BYTES);
    if (!size_of(options, &bytes)) {
        rc = fault_set(why, RC_LIMIT, "too many answers for a file");
    } else if (snprintf(w->path, sizeof w->path, "%s", options->path) >= PATH_MAX ||
               snprintf(w->part, sizeof w->part, "%s.part", options->path) >= PATH_MAX) {
        rc = file_fault(why, "write", options->path, ENAMETOOLONG);
    } else {
        rc = begin(w, bytes, done, why);
    }
    if (rc == RC_OK) {
        *writer = w;
        return RC_OK;
    }
    answer_writer_abandon(w, false);
    return rc;
}

enum rc answer_writer_add(struct answer_writer *writer, const float *row, struct fault *why)
{
    CHECK(writer->rows < writer->options.rows);
    if (writer->buffered + writer->row_bytes > BUFFER_BYTES) {
        const enum rc rc = flush(writer, why);
        if (rc != RC_OK) return rc;
    }
    answer_encode(&writer->options.form, row, writer->buffer + writer->buffered);
    writer->buffered += writer->row_bytes;
    writer->rows++;
    return RC_OK;
}

/* Rows first, then who says that they are there. */
enum rc answer_writer_keep(struct answer_writer *writer, struct fault *why)
{
    uint8_t header[ANSWER_HEADER];
    enum rc rc = flush(writer, why);
    struct hash so_far = writer->hash;

    if (rc == RC_OK && fdatasync(writer->fd) != 0) {
        return file_fault(why, "write", writer->part, errno);
    }
    header_write(&writer->options, writer->rows, hash_final(&so_far), header);
    return rc == RC_OK ? write_at(writer, header, sizeof header, 0, why) : rc;
}

enum rc answer_writer_finish(struct answer_writer *writer, struct fault *why)
{
    CHECK(writer->rows == writer->options.rows);
    enum rc rc = answer_writer_keep(writer, why);

    if (rc == RC_OK && fdatasync(writer->fd) != 0)
        rc = file_fault(why, "write", writer->part, errno);
    if (rc == RC_OK && rename(writer->part, writer->path) != 0) {
        rc = file_fault(why, "write", writer->path, errno);
    }
    answer_writer_abandon(writer, rc == RC_OK); /* there is no such part any more */
    return rc;
}

void answer_writer_abandon(struct answer_writer *writer, bool keeps)
{
    if (writer == NULL) return;
    if (writer->fd >= 0) {
        if (!keeps) unlink(writer->part);
        close(writer->fd);
    }
    mem_free(writer);
}

void answer_file_remove(const char *path)
{
    char part[PATH_MAX];

    unlink(path);
    if (snprintf(part, sizeof part, "%s.part", path) < PATH_MAX) unlink(part);
}
