/* command_rows: results that are rows: a table for people, or one JSON object a row. */
#include "peer/cli/command.h"

#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/plain.h"

#include <string.h>

/** One value in few letters; the text may be in `cell`. */
static const char *cell_text(const struct json *row, const char *key, const struct json *value,
                             char *cell, size_t cap)
{
    const char *text = json_text_of(value);
    double real;
    bool is_so;

    if (text != NULL) return plain_text(text, cell, cap);
    if (json_get_bool(row, key, &is_so)) return is_so ? "yes" : "no";
    if (!json_real_of(value, &real)) return "-";
    if (real >= 1e3 || real == (double)(int64_t)real)
        snprintf(cell, cap, "%.0f", real);
    else
        snprintf(cell, cap, "%.4g", real);
    return cell;
}

enum { COLUMNS_MAX = 24, CELL_BYTES = 512 };

static void print_table_row(const struct json *row, const size_t *widths)
{
    const struct json *value;
    const char *key;
    char cell[CELL_BYTES];

    for (size_t i = 0; i < COLUMNS_MAX && json_member_at(row, i, &key, &value); i++)
        printf("%s%-*s", i > 0 ? "  " : "", (int)widths[i],
               cell_text(row, key, value, cell, sizeof(cell)));
    putchar('\n');
}

/** All rows have the columns of the first. */
static void print_table(const struct json *const *rows, size_t count)
{
    size_t widths[COLUMNS_MAX] = {0};
    const struct json *value;
    const char *key;
    char cell[CELL_BYTES];

    for (size_t r = 0; r < count; r++) {
        for (size_t i = 0; i < COLUMNS_MAX && json_member_at(rows[r], i, &key, &value); i++) {
            size_t width = strlen(cell_text(rows[r], key, value, cell, sizeof(cell)));

            if (width < strlen(key)) width = strlen(key);
            if (widths[i] < width) widths[i] = width;
        }
    }
    for (size_t i = 0; i < COLUMNS_MAX && json_member_at(rows[0], i, &key, &value); i++)
        printf("%s%-*s", i > 0 ? "  " : "", (int)widths[i], key);
    putchar('\n');
    for (size_t r = 0; r < count; r++)
        print_table_row(rows[r], widths);
}

static void print_lines(const struct json *const *rows, size_t count)
{
    for (size_t r = 0; r < count; r++) {
        char *text = json_format(rows[r]);

        CHECK(text != NULL);
        puts(text);
        mem_free(text);
    }
}

void command_print_rows(const struct json *result, bool is_json)
{
    enum { ROWS_MAX = 1280 }; /* a profile has one a stage */
    const struct json *rows[ROWS_MAX] = {result};
    size_t count = json_count(result);

    CHECK(count <= ROWS_MAX);
    for (size_t i = 0; i < count; i++)
        rows[i] = json_at(result, i);
    if (count == 0) count = 1; /* one object, not an array */
    if (is_json)
        print_lines(rows, count);
    else
        print_table(rows, count);
}
