/* words: which known word a misspelt one most likely meant. Pure. */
#ifndef GRAPEVINE_BASE_WORDS_H
#define GRAPEVINE_BASE_WORDS_H

#include <stddef.h>

enum { WORD_HINT_BYTES = 400 };

/** Edit distance: letters put in, left out, replaced, or changed places with the next one. At most
 *  64 letters of each count. */
size_t word_distance(const char *a, const char *b);
/** The one of `words` that `text` most likely is a slip of the hand for, the first of equals; NULL
 *  where about half of it would be wrong. */
const char *word_nearest(const char *text, const char *const *words, size_t count);

/* What others call otherwise: "ddp" is our "allreduce". The table ends with a NULL word. */
struct word_synonym {
    const char *word, *ours;
};

/** NULL: `text` is no synonym, whether in capitals or not. */
const char *word_synonym(const char *text, const struct word_synonym *synonyms);
/** The end of a line about an unknown word: "; write allreduce", or "; did you mean ring?", or
 *  nothing of the kind where nothing looks like it; then all words: "; known: ring, grid". NULL
 *  `synonyms`: there are none. Returns `hint`. */
const char *word_hint(const char *text, const char *const *words, size_t count,
                      const struct word_synonym *synonyms, char hint[WORD_HINT_BYTES]);

#endif
