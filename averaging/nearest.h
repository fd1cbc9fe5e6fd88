/* nearest: which known word a misspelt one most likely meant. */
#ifndef GRAPEVINE_AVERAGING_NEAREST_H
#define GRAPEVINE_AVERAGING_NEAREST_H

#include <stddef.h>

/** The one of `words` with the least edit distance to `text`; the first of equals. count > 0. */
const char *nearest_word(const char *text, const char *const *words, size_t count);

#endif
