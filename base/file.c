/*
 * Whole files. A replacement is written beside the old file under a fixed name (PATH.tmp), so that
 * what a kill leaves behind is reused by the next try and never piles up; a lock on it keeps two
 * writers apart. Space is reserved before the first byte is written, so that a full disk is noticed
 * early and costs the old file nothing; a file that is written piece by piece (file_writer) has no
 * size yet, and finds out as it goes. Runs in jobs and commands; blocking.
 */
#include "base/file.h"

#include "base/check.h"
#include "base/crash_point.h"
#include "base/mem.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_START_BYTES = 64 * 1024, WRITE_MAX_BYTES = 1 << 30, LOCK_TRIES = 100 };

enum rc file_fault(struct fault *why, const char *verb, const char *path, int error)
{
    char buffer[128], cause[128];
    enum rc rc = RC_IO;

    if (error == ENOENT) rc = RC_NOT_FOUND;
    if (error == ENOSPC || error == EDQUOT) rc = RC_DISK_FULL;
    if (error == ENOMEM) rc = RC_NOMEM;
    snprintf(cause, sizeof cause, "%s",
             error == ENOENT ? "no such file" : strerror_r(error, buffer, sizeof buffer));
    cause[0] = (char)tolower((unsigned char)cause[0]);
    return fault_set(why, rc, "cannot %s %s: %s", verb, path, cause);
}

/* All bytes, over short writes and signals. 0 or an errno value. */
static int write_all(int fd, const void *bytes, size_t count)
{
    const char *at = bytes;

    while (count > 0) {
        ssize_t written = write(fd, at, count < WRITE_MAX_BYTES ? count : WRITE_MAX_BYTES);

        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return errno;
        if (written == 0) return EIO;
        at += written;
        count -= (size_t)written;
    }
    return 0;
}

static bool is_same_file(int fd, const char *path)
{
    struct stat opened, named;

    return fstat(fd, &opened) == 0 && lstat(path, &named) == 0 && opened.st_ino == named.st_ino &&
           opened.st_dev == named.st_dev;
}

/* Open and lock the temporary file. Another writer may rename it away between open and lock: then
 * what is held is the published file, and we must start over. 0 or an errno value. */
static int open_locked(const char *path, int *fd)
{
    for (int i = 0; i < LOCK_TRIES; i++) {
        *fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (*fd < 0) return errno;
        while (flock(*fd, LOCK_EX) != 0) {
            if (errno != EINTR) {
                int error = errno;

                close(*fd);
                return error;
            }
        }
        if (is_same_file(*fd, path)) return 0;
        close(*fd);
    }
    return EBUSY;
}

static int open_folder_of(const char *path)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t length = slash == NULL ? 0 : (size_t)(slash - path);

    if (slash == NULL)
        snprintf(folder, sizeof folder, ".");
    else if (length == 0)
        snprintf(folder, sizeof folder, "/");
    else if (length >= sizeof folder)
        return -1;
    else
        snprintf(folder, sizeof folder, "%.*s", (int)length, path);
    return open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Reserve, write, sync. 0 or an errno value. */
static int fill(int fd, const struct piece *pieces, size_t pieces_count, unsigned mode)
{
    size_t total = 0;
    int error;

    for (size_t i = 0; i < pieces_count; i++) {
        if (__builtin_add_overflow(total, pieces[i].count, &total)) return EFBIG;
    }
    if (total > (size_t)INT64_MAX) return EFBIG;
    if (fchmod(fd, (mode_t)mode) != 0 || ftruncate(fd, 0) != 0) return errno;
    error = total == 0 ? 0 : posix_fallocate(fd, 0, (off_t)total);
    /* Not every file system can reserve; then a full disk shows while writing. */
    if (error != 0 && error != EOPNOTSUPP && error != EINVAL && error != ENOSYS) return error;
    for (size_t i = 0; i < pieces_count; i++) {
        size_t half = pieces[i].count / 2;

        error = write_all(fd, pieces[i].bytes, half);
        crash_point(CRASH_FILE_HALF_WRITTEN);
        if (error == 0) {
            error = write_all(fd, (const char *)pieces[i].bytes + half, pieces[i].count - half);
        }
        if (error != 0) return error;
    }
    crash_point(CRASH_FILE_WRITTEN);
    return fsync(fd) == 0 ? 0 : errno;
}

enum rc file_replace(const char *path, const struct piece *pieces, size_t pieces_count,
                     unsigned mode, struct fault *why)
{
    char temporary[PATH_MAX];
    int fd = -1, folder = -1, error;
    int length;

    CHECK(path != NULL && (pieces != NULL || pieces_count == 0));
    length = snprintf(temporary, sizeof temporary, "%s.tmp", path);
    if (length < 0 || (size_t)length >= sizeof temporary) {
        return file_fault(why, "write", path, ENAMETOOLONG);
    }
    folder = open_folder_of(path);
    if (folder < 0) return file_fault(why, "write", path, errno);
    error = open_locked(temporary, &fd);
    if (error != 0) goto out;
    crash_point(CRASH_FILE_TEMPORARY_OPENED);
    error = fill(fd, pieces, pieces_count, mode);
    crash_point(CRASH_FILE_SYNCED);
    if (error == 0 && rename(temporary, path) != 0) error = errno;
    if (error != 0)
        unlink(temporary); /* under the lock: it is still ours */
    else if (fsync(folder) != 0 && errno != EINVAL)
        error = errno;
    crash_point(CRASH_FILE_RENAMED);
    close(fd);
out:
    close(folder);
    return error == 0 ? RC_OK : file_fault(why, "write", path, error);
}

struct file_writer {
    int fd;
    char path[PATH_MAX], temporary[PATH_MAX];
};

enum rc file_writer_open(const char *path, struct file_writer **writer, struct fault *why)
{
    struct file_writer *made = mem_alloc(sizeof *made);
    int error = made == NULL ? ENOMEM : 0;

    if (error == 0 && (snprintf(made->path, PATH_MAX, "%s", path) >= PATH_MAX ||
                       snprintf(made->temporary, PATH_MAX, "%s.tmp", path) >= PATH_MAX)) {
        error = ENAMETOOLONG;
    }
    if (error == 0) error = open_locked(made->temporary, &made->fd);
    if (error == 0 && (fchmod(made->fd, 0644) != 0 || ftruncate(made->fd, 0) != 0)) {
        error = errno;
        file_writer_abandon(made);
        made = NULL;
    }
    if (error == 0) {
        *writer = made;
        return RC_OK;
    }
    mem_free(made);
    return file_fault(why, "write", path, error);
}

enum rc file_writer_add(struct file_writer *writer, const void *bytes, size_t count,
                        struct fault *why)
{
    const int error = write_all(writer->fd, bytes, count);

    return error == 0 ? RC_OK : file_fault(why, "write", writer->path, error);
}

enum rc file_writer_finish(struct file_writer *writer, const void *head, size_t count,
                           struct fault *why)
{
    int folder = open_folder_of(writer->path), error = folder < 0 ? errno : 0;
    enum rc rc;

    if (error == 0 && lseek(writer->fd, 0, SEEK_SET) != 0) error = errno;
    if (error == 0) error = write_all(writer->fd, head, count);
    if (error == 0 && fsync(writer->fd) != 0) error = errno;
    if (error == 0 && rename(writer->temporary, writer->path) != 0) error = errno;
    if (error == 0 && fsync(folder) != 0 && errno != EINVAL) error = errno;
    if (folder >= 0) close(folder);
    rc = error == 0 ? RC_OK : file_fault(why, "write", writer->path, error);
    if (error == 0) {
        close(writer->fd);
        mem_free(writer);
    } else {
        file_writer_abandon(writer);
    }
    return rc;
}

void file_writer_abandon(struct file_writer *writer)
{
    if (writer == NULL) return;
    if (is_same_file(writer->fd, writer->temporary)) unlink(writer->temporary);
    close(writer->fd);
    mem_free(writer);
}

enum rc file_check_replace(const char *path, struct fault *why)
{
    char temporary[PATH_MAX];
    struct stat at;
    int fd = -1, error;
    const int length = snprintf(temporary, sizeof temporary, "%s.tmp", path);

    if (length < 0 || (size_t)length >= sizeof temporary) {
        return file_fault(why, "write", path, ENAMETOOLONG);
    }
    if (stat(path, &at) == 0 && S_ISDIR(at.st_mode)) return file_fault(why, "write", path, EISDIR);
    error = open_locked(temporary, &fd);
    if (error != 0) return file_fault(why, "write", path, error);
    unlink(temporary); /* under the lock: it is still ours */
    close(fd);
    return RC_OK;
}

/* Read to the end into `*bytes` (capacity `cap`, one byte kept for NUL), growing up to bytes_max.
 * 0, an errno value, or EFBIG above the limit. */
static int read_all(int fd, size_t bytes_max, char **bytes, size_t cap, size_t *count)
{
    size_t filled = 0;

    for (;;) {
        ssize_t got;

        if (filled + 1 == cap) {
            size_t wider = cap > bytes_max / 2 ? bytes_max + 2 : cap * 2;
            char *grown;

            if (wider <= cap) return EFBIG;
            grown = mem_resize(*bytes, wider);
            if (grown == NULL) return ENOMEM;
            *bytes = grown;
            cap = wider;
        }
        got = read(fd, *bytes + filled, cap - 1 - filled);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return errno;
        if (got == 0) break;
        filled += (size_t)got;
        if (filled > bytes_max) return EFBIG;
    }
    (*bytes)[filled] = '\0';
    *count = filled;
    return 0;
}

enum rc file_read(const char *path, size_t bytes_max, void **bytes, size_t *count,
                  struct fault *why)
{
    struct stat status;
    char *buffer = NULL;
    size_t cap = READ_START_BYTES, filled = 0;
    int fd, error = 0;

    CHECK(path != NULL && bytes != NULL && count != NULL && bytes_max < SIZE_MAX / 4);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return file_fault(why, "read", path, errno);
    if (fstat(fd, &status) != 0)
        error = errno;
    else if (S_ISDIR(status.st_mode))
        error = EISDIR;
    else if (S_ISREG(status.st_mode) && (uint64_t)status.st_size > bytes_max)
        error = EFBIG;
    if (error == 0) {
        if (S_ISREG(status.st_mode) && status.st_size > 0) cap = (size_t)status.st_size + 2;
        if (cap > bytes_max + 2) cap = bytes_max + 2;
        buffer = mem_alloc(cap);
        error = buffer == NULL ? ENOMEM : read_all(fd, bytes_max, &buffer, cap, &filled);
    }
    close(fd);
    if (error == 0) {
        *bytes = buffer;
        *count = filled;
        return RC_OK;
    }
    mem_free(buffer);
    if (error != EFBIG) return file_fault(why, "read", path, error);
    return fault_set(why, RC_LIMIT, "cannot read %s: it is larger than the limit of %zu bytes",
                     path, bytes_max);
}

/* 0 or an errno value. */
static int set_aside(const char *path)
{
    char older[PATH_MAX];
    int length = snprintf(older, sizeof older, "%s.1", path);

    if (length < 0 || (size_t)length >= sizeof older) return ENAMETOOLONG;
    return rename(path, older) == 0 ? 0 : errno;
}

enum rc file_append(const char *path, const void *bytes, size_t count, size_t bytes_max,
                    struct fault *why)
{
    struct stat before;
    int fd, error;

    if (bytes_max > 0 && stat(path, &before) == 0 && S_ISREG(before.st_mode) &&
        before.st_size > 0 && (uint64_t)before.st_size + count > bytes_max) {
        error = set_aside(path);
        if (error != 0) return file_fault(why, "append to", path, error);
    }
    fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return file_fault(why, "append to", path, errno);
    error = fstat(fd, &before) == 0 ? 0 : errno;
    if (error == 0) {
        error = write_all(fd, bytes, count);
        /* Half a line would spoil the next one. */
        if (error != 0 && S_ISREG(before.st_mode) && ftruncate(fd, before.st_size) != 0) {
            error = errno;
        }
    }
    close(fd);
    return error == 0 ? RC_OK : file_fault(why, "append to", path, error);
}

/* 0 or an errno value. */
static int make_one_folder(const char *path)
{
    struct stat status;

    if (mkdir(path, 0755) == 0) return 0;
    if (errno != EEXIST) return errno;
    if (stat(path, &status) != 0) return errno;
    return S_ISDIR(status.st_mode) ? 0 : ENOTDIR;
}

enum rc file_make_folder(const char *path, struct fault *why)
{
    char partial[PATH_MAX];
    size_t length = strlen(path);
    int error = 0;

    if (length == 0) return file_fault(why, "make folder", path, ENOENT);
    if (length >= sizeof partial) return file_fault(why, "make folder", path, ENAMETOOLONG);
    memcpy(partial, path, length + 1);
    for (size_t i = 1; i < length && error == 0; i++) {
        if (partial[i] != '/') continue;
        partial[i] = '\0';
        error = make_one_folder(partial);
        partial[i] = '/';
    }
    if (error == 0) error = make_one_folder(partial);
    return error == 0 ? RC_OK : file_fault(why, "make folder", path, error);
}

bool file_is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

bool file_is_regular(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0 && S_ISREG(status.st_mode);
}
