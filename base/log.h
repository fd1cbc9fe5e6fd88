/*
 * log: lines for people, on stderr and, once a peer has a folder, in its log.txt. A log is passed
 * in, never global. Loop thread only.
 */
#ifndef GRAPEVINE_BASE_LOG_H
#define GRAPEVINE_BASE_LOG_H

#include <stdbool.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

struct log {
    enum log_level level; /* lines above it are dropped */
    void (*on_line)(void *context, enum log_level level, const char *line); /* no newline in it */
    void *context;
};

/** Format and hand on one line, made plain (base/plain.h); NULL `log` and lines above its level
 *  are dropped. */
void log_line(const struct log *log, enum log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define log_error(log, ...) log_line(log, LOG_ERROR, __VA_ARGS__)
#define log_warn(log, ...)  log_line(log, LOG_WARN, __VA_ARGS__)
#define log_info(log, ...)  log_line(log, LOG_INFO, __VA_ARGS__)
#define log_debug(log, ...) log_line(log, LOG_DEBUG, __VA_ARGS__)

#endif
