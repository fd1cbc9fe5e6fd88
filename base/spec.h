/*
 * spec: the small languages of the command line, `name:key=value,key=value`, with errors that point
 * at the column. Pure; any thread.
 */
#ifndef GRAPEVINE_BASE_SPEC_H
#define GRAPEVINE_BASE_SPEC_H

#include "base/fault.h"
#include "base/rc.h"

#include <stdbool.h>
#include <stddef.h>

enum { SPEC_WORD_BYTES = 32, SPEC_ITEMS_MAX = 16 };

struct spec_item {
    char key[SPEC_WORD_BYTES];
    double value; /* finite; "5%" is 0.05 */
    bool is_percent;
    size_t column;       /* of the key, from 1 */
    size_t value_column; /* of the value */
};

struct spec {
    char name[SPEC_WORD_BYTES];
    struct spec_item items[SPEC_ITEMS_MAX];
    size_t items_count;
};

/** `what` opens every message ("--optimizer"). RC_PARSE. */
MUST_USE enum rc spec_parse(const char *what, const char *text, struct spec *spec,
                            struct fault *why);
/** RC_PARSE: "WHAT, column 5: unknown key 'lrr'; did you mean 'lr'?" */
enum rc spec_unknown(const char *what, size_t column, const char *kind, const char *word,
                     const char *const *candidates, size_t count, struct fault *why);

#endif
