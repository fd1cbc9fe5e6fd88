/*
 * points: the curves of a run so far, for pages that are opened late. Bounded: when it is full
 * every second point goes, and from then on half as many are kept.
 */
#ifndef GRAPEVINE_PEER_WATCH_POINTS_H
#define GRAPEVINE_PEER_WATCH_POINTS_H

#include "peer/node/node.h"

enum { POINTS_MAX = 1024 };

/* Names and order of the columns: those of metrics.jsonl (docs/testnet.md). */
#define POINTS_COLUMNS(DO)                                                                         \
    DO(t, report->t_s)                                                                             \
    DO(loss, report->loss)                                                                         \
    DO(accuracy, report->accuracy)                                                                 \
    DO(consensus_distance, report->consensus_distance)                                             \
    DO(samples_per_s, report->samples_per_s)                                                       \
    DO(bytes_sent, (double)report->bytes_sent)                                                     \
    DO(bytes_received, (double)report->bytes_received)                                             \
    DO(rounds_ok, (double)report->rounds_ok)                                                       \
    DO(rounds_aborted, (double)report->rounds_aborted)                                             \
    DO(rounds_missed, (double)report->rounds_missed)
#define POINTS_NAME(name, value) POINT_##name,
enum points_column { POINTS_COLUMNS(POINTS_NAME) POINT_COLUMNS };

struct points { /* all zero is an empty one */
    double values[POINT_COLUMNS][POINTS_MAX];
    size_t count;
    uint32_t every, skipped; /* of so many reports one is kept; 0: each */
};

void points_add(struct points *points, const struct node_report *report);
/** {"t": [...], "loss": [...], ...}; what is not known is null. */
struct json *points_json(const struct points *points);
/** {"t": ..., "loss": ..., ...} of one report. */
struct json *points_json_of(const struct node_report *report);

#endif
