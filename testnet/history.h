/*
 * history: what was heard from the peers of a run and when, by the testnet's own clock, so that
 * curves of peers and faults share one axis, also over restarts. Kept as lines of JSON in
 * events.jsonl: {"t", "peer", "event", ...}, read back for the report.
 */
#ifndef GRAPEVINE_TESTNET_HISTORY_H
#define GRAPEVINE_TESTNET_HISTORY_H

#include "base/fault.h"
#include "base/rc.h"

#include <stddef.h>
#include <stdint.h>

enum { HISTORY_BYTES_MAX = 64 * 1024 * 1024, HISTORY_PEERS_MAX = 1024 };

struct track { /* one peer's points, in order of time */
    size_t count, room;
    double *t, *loss, *accuracy, *bytes_sent; /* [count]; NaN where a report did not say */
};

struct history {
    struct track *tracks; /* [peers] */
    size_t peers;
    double *faults; /* times */
    size_t faults_count;
};

/** Read `path`. Lines that are not JSON are skipped: the last one of a run that was cut off may be
 *  half. RC_NOT_FOUND, RC_LIMIT, RC_NOMEM, RC_IO. On an error `history` is empty. */
MUST_USE enum rc history_load(const char *path, struct history *history, struct fault *why);
void history_deinit(struct history *history);

#endif
