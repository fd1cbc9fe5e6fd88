/* base64: bytes as text (RFC 4648, section 4, with padding), for files that are text. Pure. */
#ifndef GRAPEVINE_BASE_BASE64_H
#define GRAPEVINE_BASE_BASE64_H

#include <stddef.h>

/** Characters that `count` bytes become. */
static inline size_t base64_length(size_t count)
{
    return (count + 2) / 3 * 4;
}

/** Writes base64_length(count) characters and no NUL. */
void base64_encode(const void *bytes, size_t count, char *text);

#endif
