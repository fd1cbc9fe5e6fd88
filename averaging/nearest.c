/* Edit distance (insert, delete, replace) by one row of the classic table. Pure. */
#include "averaging/nearest.h"

#include "base/check.h"

#include <string.h>

enum { WORD_MAX = 32 }; /* longer words are compared by their beginning */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t distance(const char *a, const char *b)
{
    size_t row[WORD_MAX + 1];
    size_t a_count = strnlen(a, WORD_MAX), b_count = strnlen(b, WORD_MAX);

    for (size_t j = 0; j <= b_count; j++) {
        row[j] = j;
    }
    for (size_t i = 1; i <= a_count; i++) {
        size_t diagonal = row[0];

        row[0] = i;
        for (size_t j = 1; j <= b_count; j++) {
            size_t replace = diagonal + (a[i - 1] != b[j - 1]);

            diagonal = row[j];
            row[j] = least(replace, least(row[j], row[j - 1]) + 1);
        }
    }
    return row[b_count];
}

const char *nearest_word(const char *text, const char *const *words, size_t count)
{
    size_t best = 0;

    CHECK(count > 0);
    for (size_t i = 1; i < count; i++) {
        if (distance(text, words[i]) < distance(text, words[best])) best = i;
    }
    return words[best];
}
