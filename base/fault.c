/* Formatting of reasons. */
#include "base/fault.h"

#include <stdarg.h>
#include <stdio.h>

enum rc fault_set(struct fault *why, enum rc rc, const char *format, ...)
{
    va_list arguments;

    if (why == NULL) return rc;
    va_start(arguments, format);
    vsnprintf(why->text, sizeof why->text, format, arguments);
    va_end(arguments);
    return rc;
}
