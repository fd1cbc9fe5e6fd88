/*
 * data_csv_rows: the rows of a CSV file (RFC 4180: commas, quoted fields, "" for a quote, line ends
 * of either kind), one at a time; memory is bounded by the longest row allowed. Used by jobs and
 * commands.
 */
#ifndef GRAPEVINE_REPLICA_READERS_CSV_ROWS_H
#define GRAPEVINE_REPLICA_READERS_CSV_ROWS_H

#include "base/fault.h"
#include "base/rc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CSV_ROW_BYTES_MAX = 1 << 20, CSV_FIELDS_MAX = 1 << 16 };

struct csv_rows;

/* One row: borrowed until the next is read. */
struct csv_row {
    uint64_t line; /* of the file, from 1, where the row begins */
    size_t fields; /* 0: the file is at its end */
    const char *text;
    const uint32_t *starts; /* [fields]: field i is the string text + starts[i], unquoted */
};

static inline const char *csv_field(const struct csv_row *row, size_t field)
{
    return row->text + row->starts[field];
}

MUST_USE enum rc csv_rows_open(const char *path, struct csv_rows **rows, struct fault *why);
/** NULL is fine. */
void csv_rows_close(struct csv_rows *rows);
/** The next row that is not blank. RC_FORMAT, RC_LIMIT with the line; RC_IO, RC_NOMEM. */
MUST_USE enum rc csv_rows_next(struct csv_rows *rows, struct csv_row *row, struct fault *why);
/** See data_stream_share(). */
double csv_rows_share(const struct csv_rows *rows);
/** RC_FORMAT: "cannot read FILE, line L: WHAT". */
enum rc csv_fault(const struct csv_rows *rows, uint64_t line, struct fault *why, const char *format,
                  ...) __attribute__((format(printf, 4, 5)));

#endif
