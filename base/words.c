/* Edit distance with transpositions of neighbours (Damerau 1964), by three rows of the table. */
#include "base/words.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { LETTERS_MAX = 64 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t word_distance(const char *a, const char *b)
{
    size_t rows[3][LETTERS_MAX + 1];
    size_t a_count = strnlen(a, LETTERS_MAX), b_count = strnlen(b, LETTERS_MAX);
    size_t *before = rows[0], *last = rows[1], *now = rows[2];

    for (size_t j = 0; j <= b_count; j++) {
        last[j] = j;
        before[j] = 0;
    }
    for (size_t i = 1; i <= a_count; i++) {
        size_t *oldest = before;

        now[0] = i;
        for (size_t j = 1; j <= b_count; j++) {
            size_t change = last[j - 1] + (a[i - 1] != b[j - 1]);

            now[j] = least(change, least(last[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                now[j] = least(now[j], before[j - 2] + 1);
            }
        }
        before = last;
        last = now;
        now = oldest;
    }
    return last[b_count];
}

const char *word_nearest(const char *text, const char *const *words, size_t count)
{
    const char *nearest = NULL;
    size_t best = (strlen(text) + 1) / 2;

    if (best < 2) best = 2; /* one letter for another */
    for (size_t i = 0; i < count; i++) {
        size_t distance = word_distance(text, words[i]);

        if (distance >= best) continue;
        best = distance;
        nearest = words[i];
    }
    return nearest;
}

const char *word_synonym(const char *text, const struct word_synonym *synonyms)
{
    for (; synonyms != NULL && synonyms->word != NULL; synonyms++) {
        if (strcasecmp(text, synonyms->word) == 0) return synonyms->ours;
    }
    return NULL;
}

const char *word_hint(const char *text, const char *const *words, size_t count,
                      const struct word_synonym *synonyms, char hint[WORD_HINT_BYTES])
{
    const char *ours = word_synonym(text, synonyms), *nearest = word_nearest(text, words, count);
    size_t used;

    hint[0] = '\0';
    if (ours != NULL) {
        snprintf(hint, WORD_HINT_BYTES, "; write %s; known", ours);
    } else if (nearest != NULL) {
        snprintf(hint, WORD_HINT_BYTES, "; did you mean %s? known", nearest);
    } else {
        snprintf(hint, WORD_HINT_BYTES, "; known");
    }
    for (size_t i = 0; i < count; i++) {
        used = strlen(hint);
        snprintf(hint + used, WORD_HINT_BYTES - used, "%s %s", i == 0 ? ":" : ",", words[i]);
    }
    return hint;
}
