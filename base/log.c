/* Formatting of log lines; where they go is the caller's. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

void log_line(const struct log *log, enum log_level level, const char *format, ...)
{
    char line[1024];
    va_list arguments;

    if (log == NULL || log->on_line == NULL || level > log->level) return;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    for (char *c = line; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20) *c = ' '; /* what a peer sent must not move the cursor */
    }
    log->on_line(log->context, level, line);
}
