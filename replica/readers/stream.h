/*
 * data_stream: a data file, gzipped or not, read from its start to its end, so that memory follows
 * what is kept and not what the file claims. Used by jobs and commands.
 */
#ifndef GRAPEVINE_REPLICA_READERS_STREAM_H
#define GRAPEVINE_REPLICA_READERS_STREAM_H

#include "base/fault.h"
#include "base/rc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DATA_PATH_BYTES = 4096 };

struct data_stream;

/** Open a regular file. Keeps a copy of `path`, and `advice`: what to do when the file is missing
 *  or malformed ("install ..."); both end up in messages. RC_NOT_FOUND, RC_FORMAT, RC_IO, RC_LIMIT,
 *  RC_NOMEM. */
MUST_USE enum rc data_stream_open(const char *path, const char *advice, struct data_stream **stream,
                                  struct fault *why);
/** NULL is fine. */
void data_stream_close(struct data_stream *stream);
/** The next `count` bytes; NULL `bytes` skips them. RC_FORMAT where the file ends early. */
MUST_USE enum rc data_stream_read(struct data_stream *stream, void *bytes, size_t count,
                                  struct fault *why);
/** Up to `cap` bytes, fewer only at the end of the file. */
MUST_USE enum rc data_stream_some(struct data_stream *stream, void *bytes, size_t cap, size_t *got,
                                  struct fault *why);
/** After the last value: nothing may follow. */
MUST_USE enum rc data_stream_finish(struct data_stream *stream, struct fault *why);
/** The size of the content where the file is not compressed; otherwise the most that a file of its
 *  size can hold. */
uint64_t data_stream_bytes_max(const struct data_stream *stream);
/** How much of the file has been read, from 0 to 1; read ahead of what was asked for. */
double data_stream_share(const struct data_stream *stream);
bool data_stream_is_compressed(const struct data_stream *stream);
/** Put '?' for every byte of a file's text that would break a line or upset a terminal. */
void data_stream_printable(char *text);
/** RC_FORMAT: "cannot read PATH: WHAT; ADVICE". */
enum rc data_stream_malformed(const struct data_stream *stream, struct fault *why,
                              const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
