/*
 * history: what peers reported and when, as columns of numbers, for curves, tables and exports. Of
 * a testnet it is read from events.jsonl, which has the testnet's own clock, so that curves of
 * peers and faults share one axis also over restarts; of other peers from the metrics.jsonl of
 * their folders.
 */
#ifndef GRAPEVINE_TESTNET_HISTORY_H
#define GRAPEVINE_TESTNET_HISTORY_H

#include "base/fault.h"
#include "base/rc.h"

#include <stddef.h>
#include <stdint.h>

enum { HISTORY_BYTES_MAX = 64 * 1024 * 1024, HISTORY_PEERS_MAX = 1024, HISTORY_NAME_BYTES = 64 };

/* The columns: keys of metrics.jsonl (docs/testnet.md). */
#define HISTORY_COLUMNS(DO)                                                                        \
    DO(t)                                                                                          \
    DO(step)                                                                                       \
    DO(own_steps)                                                                                  \
    DO(epoch)                                                                                      \
    DO(samples)                                                                                    \
    DO(loss)                                                                                       \
    DO(accuracy)                                                                                   \
    DO(samples_per_s)                                                                              \
    DO(consensus_distance)                                                                         \
    DO(bytes_sent)                                                                                 \
    DO(bytes_received)                                                                             \
    DO(rounds_ok)                                                                                  \
    DO(rounds_aborted)                                                                             \
    DO(rounds_missed)                                                                              \
    DO(rss_bytes)
#define HISTORY_COLUMN(name) HISTORY_##name,
enum history_column { HISTORY_COLUMNS(HISTORY_COLUMN) HISTORY_COLUMNS_COUNT };

struct track { /* one peer's points, in order of time */
    char name[HISTORY_NAME_BYTES];
    size_t count, room;
    double *values[HISTORY_COLUMNS_COUNT]; /* [count]; NaN where a report did not say */
    double wall_s;                         /* seconds since 1970 at t = 0, about; NaN: not known */
};

struct history {
    struct track *tracks; /* [peers] */
    size_t peers;
    double *faults; /* times */
    size_t faults_count;
};

const char *history_column_name(enum history_column column);
/** Read events.jsonl at `path`. Lines that are not JSON are skipped: the last one of a run that was
 *  cut off may be half. RC_NOT_FOUND, RC_LIMIT, RC_NOMEM, RC_IO. On an error `history` is empty. */
MUST_USE enum rc history_load(const char *path, struct history *history, struct fault *why);
/** Add the peer whose folder is `folder`, under the folder's name. Counters that begin anew with
 *  each start, `t` too, go on. Errors as above; `history` is then as it was. */
MUST_USE enum rc history_add_peer(struct history *history, const char *folder, struct fault *why);
/** The last known value of a column; NaN: none. */
double history_last(const struct track *track, enum history_column column);
void history_deinit(struct history *history);

#endif
