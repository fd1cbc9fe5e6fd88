/*
 * view: what people see of a run of peers: on a terminal a table drawn over and over, elsewhere a
 * line for each report. Thread: the loop's, from inside local_run().
 */
#ifndef GRAPEVINE_TESTNET_VIEW_H
#define GRAPEVINE_TESTNET_VIEW_H

#include "base/log.h"
#include "testnet/local.h"
#include "testnet/text.h"

#include <stdbool.h>
#include <stddef.h>

struct view {
    struct log log;
    const char *what;   /* runs now */
    const char *aside;  /* the folder, if an earlier run is set aside in it; or NULL */
    bool is_live;       /* a table, on a terminal */
    size_t lines_drawn; /* of the table on the screen now */
    struct text text;
};

/** Have the run that `request` asks for shown as `what`. */
void view_watch(struct view *view, const char *what, struct local_options *request);
/** Once the first peer has begun the flags were of use, and the earlier run goes. */
void view_settle(struct view *view, const struct local_peer *first);

#endif
