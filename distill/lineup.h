/*
 * lineup: many models beside each other: what each is worth and what it costs, and the command that
 * makes it again. For `distill --json`, the printed table and report.html. Any thread.
 */
#ifndef GRAPEVINE_DISTILL_LINEUP_H
#define GRAPEVINE_DISTILL_LINEUP_H

#include "base/rc.h"
#include "distill/judge.h"

struct json;

struct lineup_row {
    char *name, *file, *command; /* owned; NULL: no file of its own, not known */
    struct judged judged;
};

struct lineup {
    struct lineup_row *rows;
    size_t count;
};

/** Copies the texts, of which `file` and `command` may be NULL. RC_NOMEM: nothing was added. */
MUST_USE enum rc lineup_add(struct lineup *lineup, const char *name, const char *file,
                            const char *command, const struct judged *judged);
void lineup_deinit(struct lineup *lineup);
/** An array of rows. */
struct json *lineup_json(const struct lineup *lineup);

#endif
