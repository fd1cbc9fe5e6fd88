/* status_view: a peer's status as a table for people; `status` prints it once, `top` again and
 * again. */
#ifndef GRAPEVINE_PEER_WATCH_STATUS_VIEW_H
#define GRAPEVINE_PEER_WATCH_STATUS_VIEW_H

#include <stddef.h>
#include <stdio.h>

struct json;

/** `status`: as another peer told it: nothing in it is trusted. `columns` of the terminal: where
 *  they are few, rows are shorter and a failure has a line of its own; 0: not known. With `lines`
 *  above 0 the members are cut to so many lines in all, and lines to the columns. */
/** The alarms, a line each, or "ok". */
void status_print_alarms(FILE *file, const struct json *status);
void status_print(FILE *file, const struct json *status, size_t columns, size_t lines);

#endif
