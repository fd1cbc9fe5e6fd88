/* status_view: a peer's status as a table for people; `status` prints it once, `top` again and
 * again. */
#ifndef GRAPEVINE_PEER_STATUS_VIEW_H
#define GRAPEVINE_PEER_STATUS_VIEW_H

#include <stddef.h>
#include <stdio.h>

struct json;

/** `status`: as another peer told it: nothing in it is trusted. Lines are cut to `columns`
 *  characters, members to `lines` lines in all; 0: not cut. */
void status_print(FILE *file, const struct json *status, size_t columns, size_t lines);

#endif
