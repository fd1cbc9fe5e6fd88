/* words: which known word a misspelt one most likely meant. Pure. */
#ifndef GRAPEVINE_BASE_WORDS_H
#define GRAPEVINE_BASE_WORDS_H

#include <stddef.h>

/** Edit distance: letters put in, left out, replaced, or changed places with the next one. At most
 *  64 letters of each count. */
size_t word_distance(const char *a, const char *b);
/** The one of `words` with the least distance to `text`; the first of equals. count > 0. */
const char *word_nearest(const char *text, const char *const *words, size_t count);

#endif
