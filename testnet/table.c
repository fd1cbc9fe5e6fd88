/* table: see table.h. Any thread, one at a time. */
#include "testnet/table.h"

#include "base/units.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* "-" for what is not known. `scale` 100 makes percent. */
static const char *number(double value, double scale, int digits, char *text, size_t cap)
{
    if (isnan(value)) return "-";
    snprintf(text, cap, "%.*f", digits, value * scale);
    return text;
}

static void row_format(const struct table_row *row, char *line, size_t cap)
{
    char loss[32], accuracy[32], speed[32], sent[32], rss[32];

    snprintf(line, cap, "%4u  %-9s %7llu  %7s  %6s  %9s  %6llu  %4llu  %10s  %10s", row->peer,
             row->state, (unsigned long long)row->step, number(row->loss, 1, 4, loss, sizeof loss),
             number(row->accuracy, 100, 2, accuracy, sizeof accuracy),
             number(row->samples_per_s, 1, 0, speed, sizeof speed), (unsigned long long)row->round,
             (unsigned long long)row->neighbours,
             units_format_bytes(row->bytes_sent, sent, sizeof sent),
             units_format_bytes(row->rss_bytes, rss, sizeof rss));
}

size_t table_add(struct text *text, const struct table_row *rows, size_t rows_count, size_t columns,
                 size_t lines)
{
    const size_t most = lines > 3 ? lines - 2 : 1;
    const size_t shown = rows_count > most ? most - (most > 1) : rows_count;
    char line[256];

    text_add(text, "%.*s\n", (int)columns,
             "peer  state        step     loss  acc. %  samples/s   round  nbrs        sent"
             "      memory");
    for (size_t i = 0; i < shown; i++) {
        row_format(&rows[i], line, sizeof line);
        text_add(text, "%.*s\n", (int)columns, line);
    }
    if (shown == rows_count) return shown + 1;
    snprintf(line, sizeof line, "... and %zu more", rows_count - shown);
    text_add(text, "%.*s\n", (int)columns, line);
    return shown + 2;
}

void table_add_line(struct text *text, const struct table_row *row)
{
    char loss[32], accuracy[32], speed[32], sent[32];

    text_add(text,
             "peer %u: %s, step %llu, loss %s, accuracy %s %%, %s samples/s, round %llu, "
             "%llu neighbours, %s sent",
             row->peer, row->state, (unsigned long long)row->step,
             number(row->loss, 1, 4, loss, sizeof loss),
             number(row->accuracy, 100, 2, accuracy, sizeof accuracy),
             number(row->samples_per_s, 1, 0, speed, sizeof speed), (unsigned long long)row->round,
             (unsigned long long)row->neighbours,
             units_format_bytes(row->bytes_sent, sent, sizeof sent));
}
