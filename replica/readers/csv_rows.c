/* Reader of CSV rows: see csv_rows.h. */
#include "replica/readers/csv_rows.h"

#include "base/check.h"
#include "base/mem.h"
#include "replica/readers/stream.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { BUFFER_BYTES = 64 * 1024, TEXT_START = 4096, FIELDS_START = 256, END_OF_FILE = -1 };

struct csv_rows {
    struct data_stream *stream;
    char path[DATA_PATH_BYTES];
    uint8_t *buffer;
    size_t at, filled; /* in `buffer` */
    uint64_t line;     /* being read */
    char *text;        /* of the row */
    size_t text_bytes, text_cap;
    uint32_t *starts;
    size_t fields, fields_cap;
};

enum rc csv_fault(const struct csv_rows *rows, uint64_t line, struct fault *why, const char *format,
                  ...)
{
    char what[256];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    data_stream_printable(what);
    return fault_set(why, RC_FORMAT, "cannot read %.200s, line %llu: %s", rows->path,
                     (unsigned long long)line, what);
}

enum rc csv_rows_open(const char *path, struct csv_rows **rows, struct fault *why)
{
    struct csv_rows *made = mem_alloc(sizeof *made);
    enum rc rc = RC_NOMEM;

    if (made != NULL) {
        made->buffer = mem_raw(BUFFER_BYTES);
        made->text = mem_raw(TEXT_START);
        made->starts = mem_array(FIELDS_START, sizeof *made->starts);
    }
    if (made == NULL || made->buffer == NULL || made->text == NULL || made->starts == NULL) {
        csv_rows_close(made);
        return fault_set(why, rc, "cannot read %.200s: out of memory", path);
    }
    made->text_cap = TEXT_START;
    made->fields_cap = FIELDS_START;
    made->line = 1;
    snprintf(made->path, sizeof made->path, "%s", path);
    rc = data_stream_open(path, "pass --data csv:FILE,label=COLUMN", &made->stream, why);
    if (rc != RC_OK) {
        csv_rows_close(made);
        return rc;
    }
    *rows = made;
    return RC_OK;
}

void csv_rows_close(struct csv_rows *rows)
{
    if (rows == NULL) return;
    data_stream_close(rows->stream);
    mem_free(rows->buffer);
    mem_free(rows->text);
    mem_free(rows->starts);
    mem_free(rows);
}

double csv_rows_share(const struct csv_rows *rows)
{
    return data_stream_share(rows->stream);
}

/* The next byte without taking it, or END_OF_FILE. */
static enum rc look(struct csv_rows *rows, int *byte, struct fault *why)
{
    enum rc rc;

    if (rows->at == rows->filled) {
        rc = data_stream_some(rows->stream, rows->buffer, BUFFER_BYTES, &rows->filled, why);
        if (rc != RC_OK) return rc;
        rows->at = 0;
    }
    *byte = rows->filled == 0 ? END_OF_FILE : rows->buffer[rows->at];
    return RC_OK;
}

static enum rc put(struct csv_rows *rows, char c, struct fault *why)
{
    if (rows->text_bytes == CSV_ROW_BYTES_MAX) {
        return csv_fault(rows, rows->line, why, "a row of more than %d bytes", CSV_ROW_BYTES_MAX);
    }
    if (rows->text_bytes == rows->text_cap) {
        char *grown = mem_resize(rows->text, rows->text_cap * 2);
        if (grown == NULL) return fault_set(why, RC_NOMEM, "cannot read the data: out of memory");
        rows->text = grown;
        rows->text_cap *= 2;
    }
    rows->text[rows->text_bytes++] = c;
    return RC_OK;
}

static enum rc begin_field(struct csv_rows *rows, struct fault *why)
{
    if (rows->fields == CSV_FIELDS_MAX) {
        return csv_fault(rows, rows->line, why, "more than %d fields", CSV_FIELDS_MAX);
    }
    if (rows->fields == rows->fields_cap) {
        uint32_t *grown = mem_resize(rows->starts, rows->fields_cap * 2 * sizeof *grown);
        if (grown == NULL) return fault_set(why, RC_NOMEM, "cannot read the data: out of memory");
        rows->starts = grown;
        rows->fields_cap *= 2;
    }
    rows->starts[rows->fields++] = (uint32_t)rows->text_bytes;
    return RC_OK;
}

/* From behind the opening quote to behind the closing one. */
static enum rc read_quoted(struct csv_rows *rows, struct fault *why)
{
    uint64_t begin = rows->line;
    int byte;
    enum rc rc;

    for (;;) {
        rc = look(rows, &byte, why);
        if (rc != RC_OK) return rc;
        if (byte == END_OF_FILE) {
            return csv_fault(rows, begin, why, "a quote opens here and is never closed");
        }
        rows->at++;
        if (byte == '\n') rows->line++;
        if (byte == '"') {
            rc = look(rows, &byte, why);
            if (rc != RC_OK || byte != '"') return rc;
            rows->at++;
        }
        if (byte == '\0') return csv_fault(rows, rows->line, why, "a byte of value 0");
        rc = put(rows, (char)byte, why);
        if (rc != RC_OK) return rc;
    }
}

/* One field without its end; blanks around it are dropped unless they are quoted. */
static enum rc read_field(struct csv_rows *rows, int *end, struct fault *why)
{
    size_t start = rows->text_bytes;
    bool was_quoted = false;
    int byte;
    enum rc rc;

    for (;;) {
        rc = look(rows, &byte, why);
        if (rc != RC_OK) return rc;
        if (byte == ',' || byte == '\n' || byte == END_OF_FILE) break;
        rows->at++;
        if (byte == '\0') return csv_fault(rows, rows->line, why, "a byte of value 0");
        if (byte == '"' && !was_quoted && rows->text_bytes == start) {
            was_quoted = true;
            rc = read_quoted(rows, why);
        } else if (byte == ' ' || byte == '\t' || byte == '\r') {
            if (!was_quoted && rows->text_bytes > start) rc = put(rows, (char)byte, why);
        } else if (was_quoted) {
            return csv_fault(rows, rows->line, why, "text after a closing quote");
        } else {
            rc = put(rows, (char)byte, why);
        }
        if (rc != RC_OK) return rc;
    }
    while (!was_quoted && rows->text_bytes > start &&
           strchr(" \t\r", rows->text[rows->text_bytes - 1]) != NULL) {
        rows->text_bytes--;
    }
    *end = byte;
    if (byte != END_OF_FILE) rows->at++;
    return put(rows, '\0', why);
}

/* One line, or several where a quoted field holds their ends. */
static enum rc read_row(struct csv_rows *rows, int *end, struct fault *why)
{
    enum rc rc;

    rows->text_bytes = rows->fields = 0;
    do {
        rc = begin_field(rows, why);
        if (rc == RC_OK) rc = read_field(rows, end, why);
    } while (rc == RC_OK && *end == ',');
    return rc;
}

/* Editors put these three bytes in front of UTF-8. */
static enum rc skip_mark(struct csv_rows *rows, struct fault *why)
{
    int byte;
    enum rc rc = look(rows, &byte, why);

    if (rc == RC_OK && rows->filled >= 3 && memcmp(rows->buffer, "\xEF\xBB\xBF", 3) == 0) {
        rows->at = 3;
    }
    return rc;
}

enum rc csv_rows_next(struct csv_rows *rows, struct csv_row *row, struct fault *why)
{
    int end = '\n';
    uint64_t line;
    bool is_blank;
    enum rc rc = RC_OK;

    if (rows->line == 1 && rows->filled == 0) rc = skip_mark(rows, why);
    do {
        line = rows->line;
        if (rc == RC_OK) rc = read_row(rows, &end, why);
        if (rc != RC_OK) return rc;
        if (end == '\n') rows->line++;
        is_blank = rows->fields == 1 && rows->text[0] == '\0';
    } while (is_blank && end != END_OF_FILE);
    *row = (struct csv_row){line, is_blank ? 0 : rows->fields, rows->text, rows->starts};
    return RC_OK;
}
