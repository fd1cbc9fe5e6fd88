/*
 * shell: command lines for people to paste: words as a POSIX shell takes them, in quotes where they
 * need some. Pure.
 */
#ifndef GRAPEVINE_BASE_SHELL_H
#define GRAPEVINE_BASE_SHELL_H

#include <stddef.h>

/** Append a blank (unless `at` is 0) and `word` to text[0..at), which ends with a NUL. Returns
 *  where it ends now; `cap` or more: it did not fit, and what is there is of no use. */
size_t shell_add(char *text, size_t cap, size_t at, const char *word);

#endif
