/* Edit distance with transpositions of neighbours (Damerau 1964), by three rows of the table. */
#include "base/words.h"

#include "base/check.h"

#include <string.h>

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
    size_t best = 0;

    CHECK(count > 0);
    for (size_t i = 1; i < count; i++) {
        if (word_distance(text, words[i]) < word_distance(text, words[best])) best = i;
    }
    return words[best];
}
