/* Formatting of reasons. */
#include "base/fault.h"

#include "base/plain.h"

#include <stdarg.h>
#include <stdio.h>

enum rc fault_set(struct fault *why, enum rc rc, const char *format, ...)
{
    char raw[sizeof why->text];
    va_list arguments;

    if (why == NULL) return rc;
    va_start(arguments, format);
    vsnprintf(raw, sizeof raw, format, arguments);
    va_end(arguments);
    plain_text(raw, why->text, sizeof why->text); /* it may quote a file, or another peer */
    return rc;
}
