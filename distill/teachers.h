/*
 * teachers: which model files a person meant by `--teachers`: files and folders, separated by
 * commas. A folder is a peer's (its model.safetensors) or a run's (those of its peer-* folders).
 */
#ifndef GRAPEVINE_DISTILL_TEACHERS_H
#define GRAPEVINE_DISTILL_TEACHERS_H

#include "base/fault.h"
#include "base/rc.h"

#include <stddef.h>

enum { TEACHERS_MAX = 4096 };

struct teachers {
    char **paths; /* owned, in the order named; within a run folder by name */
    size_t count;
};

/** RC_NOT_FOUND (says where it looked), RC_USAGE on an empty name, RC_LIMIT, RC_NOMEM. On an error
 *  `teachers` is empty. */
MUST_USE enum rc teachers_find(const char *text, struct teachers *teachers, struct fault *why);
void teachers_deinit(struct teachers *teachers);

#endif
