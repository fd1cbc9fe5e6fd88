/*
 * file: whole files, read with a size limit and replaced atomically (reserve, temporary file in
 * the same folder, fsync, rename, fsync of the folder). Blocking: jobs and commands only.
 */
#ifndef GRAPEVINE_BASE_FILE_H
#define GRAPEVINE_BASE_FILE_H

#include "base/fault.h"
#include "base/rc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One run of bytes of a file that is written from several places in memory. Borrowed. */
struct piece {
    const void *bytes;
    size_t count;
};

/** Replace `path` by the pieces, in order; at any instant of a crash or a full disk the old file is
 *  whole. `mode`: permission bits, 0600 for keys. RC_DISK_FULL, RC_IO; `why` names path and cause.
 */
MUST_USE enum rc file_replace(const char *path, const struct piece *pieces, size_t pieces_count,
                              unsigned mode, struct fault *why);
/** What file_replace() would fail with before it writes a byte, found out before long work. */
MUST_USE enum rc file_check_replace(const char *path, struct fault *why);
/** The whole file into fresh memory (mem_free(), one NUL byte past the end). RC_NOT_FOUND, RC_LIMIT
 *  above `bytes_max`, RC_IO. */
MUST_USE enum rc file_read(const char *path, size_t bytes_max, void **bytes, size_t *count,
                           struct fault *why);
/* The same for a file that is larger than memory: written from its beginning, piece by piece. */
struct file_writer;

/** RC_NOMEM, RC_DISK_FULL, RC_IO. */
MUST_USE enum rc file_writer_open(const char *path, struct file_writer **writer, struct fault *why);
MUST_USE enum rc file_writer_add(struct file_writer *writer, const void *bytes, size_t count,
                                 struct fault *why);
/** Put `count` bytes in place of the first ones, and replace the file. Frees `writer`. */
MUST_USE enum rc file_writer_finish(struct file_writer *writer, const void *head, size_t count,
                                    struct fault *why);
/** Leave the old file as it is. NULL is fine. */
void file_writer_abandon(struct file_writer *writer);
/** Append `count` bytes, creating the file; not synced. One that would grow beyond `bytes_max` (0:
 * it may) first becomes PATH.1, in place of an older one of that name. */
MUST_USE enum rc file_append(const char *path, const void *bytes, size_t count, size_t bytes_max,
                             struct fault *why);
/** Make a folder and its parents. Fine if it exists. */
MUST_USE enum rc file_make_folder(const char *path, struct fault *why);
/** "cannot VERB PATH: CAUSE" for errno value `error`, and the code that fits it: RC_NOT_FOUND,
 *  RC_DISK_FULL, RC_NOMEM or RC_IO. */
enum rc file_fault(struct fault *why, const char *verb, const char *path, int error);
bool file_is_there(const char *path);
/** It is there, and neither a folder nor what may make a reader wait, as a pipe. */
bool file_is_regular(const char *path);

#endif
