/*
 * data_spec: the language of `--data`: KIND, or KIND:FIRST[,SECOND][,key=value...]. FIRST is a
 * file, a folder or a family. Errors point at the column. Pure; any thread.
 */
#ifndef GRAPEVINE_REPLICA_DATA_SPEC_H
#define GRAPEVINE_REPLICA_DATA_SPEC_H

#include "base/fault.h"
#include "base/rc.h"

#include <stddef.h>
#include <stdint.h>

enum { DATA_SPEC_FILES_MAX = 2, DATA_SPEC_ITEMS_MAX = 16 };

struct data_item {
    const char *key, *value;
    size_t column, value_column; /* from 1 */
};

struct data_spec {
    const char *text; /* as written; borrowed */
    const char *kind;
    const char *rest; /* all after the colon, as written; NULL without one */
    const char *files[DATA_SPEC_FILES_MAX];
    size_t files_count;
    struct data_item items[DATA_SPEC_ITEMS_MAX];
    size_t items_count;
    char *copy; /* what the other pointers point into */
};

/** RC_PARSE, RC_NOMEM. */
MUST_USE enum rc data_spec_parse(const char *text, struct data_spec *spec, struct fault *why);
void data_spec_deinit(struct data_spec *spec);
/** RC_PARSE: "--data TEXT: column N: WHAT". */
enum rc data_spec_fault(const struct data_spec *spec, size_t column, struct fault *why,
                        const char *format, ...) __attribute__((format(printf, 4, 5)));
/** That there are `files_count` files ("the file", "the folder", ... in messages) and no keys but
 *  `keys`. A key may stand more than once only if it is `repeated` (may be NULL). */
MUST_USE enum rc data_spec_check(const struct data_spec *spec, size_t files_count, const char *what,
                                 const char *const *keys, size_t keys_count, const char *repeated,
                                 struct fault *why);
/** The item with this key, or NULL. */
const struct data_item *data_spec_find(const struct data_spec *spec, const char *key);
/** A whole number from `min` to `max`; untouched where the key is not there. */
MUST_USE enum rc data_spec_count(const struct data_spec *spec, const char *key, uint32_t min,
                                 uint32_t max, uint32_t *value, struct fault *why);
/** A real number from `min` to `max`. */
MUST_USE enum rc data_spec_real(const struct data_spec *spec, const char *key, double min,
                                double max, double *value, struct fault *why);

#endif
