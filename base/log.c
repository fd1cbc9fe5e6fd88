/* Formatting of log lines; where they go is the caller's. */
#include "base/log.h"

#include "base/plain.h"

#include <stdarg.h>
#include <stdio.h>

void log_line(const struct log *log, enum log_level level, const char *format, ...)
{
    char raw[1024], line[1024];
    va_list arguments;

    if (log == NULL || log->on_line == NULL || level > log->level) return;
    va_start(arguments, format);
    vsnprintf(raw, sizeof raw, format, arguments);
    va_end(arguments);
    /* What a peer sent must not move the cursor. */
    log->on_line(log->context, level, plain_text(raw, line, sizeof line));
}
