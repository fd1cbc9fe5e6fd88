/* shell: see shell.h. */
#include "base/shell.h"

#include <string.h>

static const char plain[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";

static size_t put(char *text, size_t cap, size_t at, const char *bytes, size_t count)
{
    if (at >= cap || count >= cap - at) return cap;
    memcpy(text + at, bytes, count);
    text[at + count] = '\0';
    return at + count;
}

size_t shell_add(char *text, size_t cap, size_t at, const char *word)
{
    const size_t length = strlen(word);

    if (at > 0) at = put(text, cap, at, " ", 1);
    if (length > 0 && strspn(word, plain) == length) return put(text, cap, at, word, length);
    at = put(text, cap, at, "'", 1);
    for (const char *from = word; *from != '\0';) { /* a quote ends the quotes for itself */
        const size_t run = strcspn(from, "'");
        at = put(text, cap, at, from, run);
        from += run;
        if (*from != '\'') continue;
        at = put(text, cap, at, "'\\''", 4);
        from++;
    }
    return put(text, cap, at, "'", 1);
}
