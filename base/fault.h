/*
 * fault: why something failed, in words for a person. `enum rc` tells the program what to do; a
 * fault tells the user what failed, why, and what to do about it, in one line.
 */
#ifndef GRAPEVINE_BASE_FAULT_H
#define GRAPEVINE_BASE_FAULT_H

#include "base/rc.h"

struct fault {
    char text[480]; /* one line, no newline, "" when nothing was said */
};

/** Write the reason, made plain (base/plain.h), and return `rc`, so that
 *  `return fault_set(why, RC_IO, "...")` works. A NULL `why` is fine. Longer texts are cut. */
enum rc fault_set(struct fault *why, enum rc rc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
