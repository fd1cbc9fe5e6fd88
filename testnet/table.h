/*
 * table: the live view of a testnet: one line a peer, in columns. Pure formatting; who prints it
 * decides whether it is drawn over (a terminal) or not at all.
 */
#ifndef GRAPEVINE_TESTNET_TABLE_H
#define GRAPEVINE_TESTNET_TABLE_H

#include "testnet/text.h"

#include <stddef.h>
#include <stdint.h>

struct table_row {
    uint32_t peer;
    const char *state; /* "training", "done", ... */
    uint64_t step, round, neighbours, bytes_sent, rss_bytes;
    double loss, accuracy, samples_per_s; /* NaN: not known yet */
};

/** Head line and rows, each ending in a newline and cut to `columns` characters. More rows than
 *  `lines` - 2 are cut, and it is said how many. Returns how many lines were added. */
size_t table_add(struct text *text, const struct table_row *rows, size_t rows_count, size_t columns,
                 size_t lines);
/** One row as a plain line for logs: "peer 3: step 120, loss 0.412, ...". */
void table_add_line(struct text *text, const struct table_row *row);

#endif
