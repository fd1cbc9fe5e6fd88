/*
 * `--data csv:FILE,label=COLUMN`: a table of numbers with the class in one column, or with one or
 * more `target=COLUMN` of real values to predict. COLUMN is a name from the first row or a number
 * from 1. The first row is a header if COLUMN names a field of it, or if one of its features is not
 * a number; `header=yes` or `no` settles it. Labels that are whole numbers are the classes
 * themselves; otherwise the sorted distinct words are, or those of --labels in its order.
 * `test=FILE2` holds the rows for testing; without it every fifth row does. Features are
 * standardised with the means and deviations of the training rows; targets are left as they are.
 * The file is parsed once at the start, and once more for each shard, so that memory follows the
 * shard. Used by jobs and commands.
 */
#include "replica/data/source.h"
#include "replica/readers/csv_rows.h"
#include "replica/readers/stream.h"

#include "base/check.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS_MAX = 4096, WORD_BYTES_MAX = 256, TARGETS_MAX = DATA_SPEC_ITEMS_MAX };
enum { LISTED_BYTES = 200 }; /* of column names, in a message */

enum header { HEADER_GUESS, HEADER_YES, HEADER_NO };

/* What a column of the file is for. */
enum role { ROLE_FEATURE, ROLE_LABEL, ROLE_TARGET, ROLE_UNUSED };

struct csv {
    struct data_source base;        /* first: a source is cast back to this */
    char paths[2][DATA_PATH_BYTES]; /* training, testing: "" for every fifth row */
    enum header header;
    size_t columns, features;
    uint32_t targets;
    uint8_t *roles;              /* [columns] */
    uint32_t *slots;             /* [columns]: which number of a sample a feature is */
    char **names;                /* [columns], of the first row; NULL: it is no header */
    const char **features_names; /* [features] of these, as a sample has them */
    uint32_t *outputs;           /* [columns]: which target, as the spec numbers them */
    uint64_t counts[2];          /* rows of the parts */
    char **words;                /* sorted; those of the labels */
    uint32_t *places;            /* [words_count] of --labels: where each was said; else NULL */
    const char **said;           /* [words_count] of --labels: the words in that order */
    char *labels;                /* the same, with commas, for messages */
    const char *labels_of;       /* for messages, see dataset_options */
    size_t words_count;
    bool has_words;               /* false: labels are numbers */
    uint32_t number_max;          /* of the labels, while all are numbers */
    struct data_moments *moments; /* [features], while the file is read for the first time */
};

/* One reading of a file. */
struct pass {
    struct csv *csv;
    struct csv_rows *rows;
    uint32_t *map;                /* [columns]: what a column is called in the first file */
    const struct data_part *part; /* NULL: the first reading */
    struct samples *out;
    bool is_test_file;
    uint64_t next[2]; /* row of each part */
};

static void csv_destroy(struct data_source *source)
{
    struct csv *csv = (struct csv *)source;

    for (size_t i = 0; i < csv->words_count; i++) {
        mem_free(csv->words[i]);
    }
    for (size_t c = 0; csv->names != NULL && c < csv->columns; c++) {
        mem_free(csv->names[c]);
    }
    mem_free(csv->names);
    mem_free(csv->features_names);
    mem_free(csv->slots);
    mem_free(csv->words);
    mem_free(csv->places);
    mem_free(csv->said);
    mem_free(csv->labels);
    mem_free(csv->roles);
    mem_free(csv->outputs);
    mem_free(csv->moments);
    mem_free(csv);
}

static bool parse_number(const char *text, double *value)
{
    char *end = NULL;

    if (text[0] == '\0' || strspn(text, "0123456789.eE+-") != strlen(text)) return false;
    *value = strtod(text, &end);
    return *end == '\0' && fabs(*value) <= DATA_NUMBER_MAX;
}

/* A whole number that can be a class. */
static bool parse_class(const char *text, uint32_t *class)
{
    uint32_t value = 0;

    if (text[0] == '\0' || strlen(text) > 5 || (text[0] == '0' && text[1] != '\0')) return false;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9') return false;
        value = value * 10 + (uint32_t)(*text - '0');
    }
    *class = value;
    return value < DATA_CLASSES_MAX;
}

/* ---- labels ---- */

/* Where `word` is among the words, or where it belongs. */
static size_t word_place(const struct csv *csv, const char *word, bool *is_there)
{
    size_t low = 0, high = csv->words_count;

    *is_there = false;
    while (low < high && !*is_there) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(word, csv->words[middle]);
        if (order == 0) {
            *is_there = true;
            low = middle;
        } else if (order < 0) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

/* A label of the first reading. Words are kept of numbers, too: a word may follow. */
static enum rc learn_label(const struct pass *pass, const struct csv_row *row, const char *word,
                           struct fault *why)
{
    struct csv *csv = pass->csv;
    uint32_t class;
    bool is_there;
    size_t place;

    if (word[0] == '\0' || strlen(word) > WORD_BYTES_MAX) {
        return csv_fault(pass->rows, row->line, why, "the label is empty or too long");
    }
    if (!parse_class(word, &class)) {
        csv->has_words = true;
    } else if (class > csv->number_max) {
        csv->number_max = class;
    }
    place = word_place(csv, word, &is_there);
    if (is_there) return RC_OK;
    if (csv->places != NULL) {
        (void)csv_fault(pass->rows, row->line, why, "label '%.40s' is none of %s: %.120s%s", word,
                        csv->labels_of != NULL ? csv->labels_of : "the classes that were given",
                        csv->labels, strlen(csv->labels) > 120 ? "..." : "");
        return RC_MISMATCH;
    }
    if (csv->words_count == WORDS_MAX) {
        return csv_fault(pass->rows, row->line, why,
                         "more than %d different labels; target=COLUMN predicts numbers",
                         WORDS_MAX);
    }
    memmove(csv->words + place + 1, csv->words + place,
            (csv->words_count - place) * sizeof *csv->words);
    csv->words[place] = mem_string(word);
    if (csv->words[place] == NULL) {
        memmove(csv->words + place, csv->words + place + 1,
                (csv->words_count - place) * sizeof *csv->words);
        return data_no_memory(why, "read labels");
    }
    csv->words_count++;
    return RC_OK;
}

/* The classes are said beforehand, in the order in which the model numbers them. */
static enum rc take_labels(struct csv *csv, const char *labels, struct fault *why)
{
    size_t count = 0;

    csv->labels = mem_string(labels);
    if (csv->labels == NULL) return data_no_memory(why, "read labels");
    for (char *at = csv->labels; *at != '\0'; at++) {
        if (*at != '\n') continue;
        count++;
        *at = at[1] == '\0' ? '\0' : ',';
    }
    if (count == 0 || count > WORDS_MAX) {
        return fault_set(why, RC_LIMIT, "--labels: from 1 to %d words", WORDS_MAX);
    }
    csv->places = mem_array(count, sizeof *csv->places);
    csv->said = mem_array(count, sizeof *csv->said);
    if (csv->places == NULL || csv->said == NULL) return data_no_memory(why, "read labels");
    for (size_t said = 0; said < count; said++, labels += strcspn(labels, "\n") + 1) {
        const size_t length = strcspn(labels, "\n");
        char word[WORD_BYTES_MAX + 1];
        bool is_there;
        size_t place;

        if (length == 0 || length > WORD_BYTES_MAX) {
            return fault_set(why, RC_USAGE, "--labels: one is empty or longer than %d bytes",
                             WORD_BYTES_MAX);
        }
        memcpy(word, labels, length);
        word[length] = '\0';
        place = word_place(csv, word, &is_there);
        if (is_there) return fault_set(why, RC_USAGE, "--labels: '%.40s' is there twice", word);
        for (size_t i = csv->words_count++; i > place; i--) {
            csv->words[i] = csv->words[i - 1];
            csv->places[i] = csv->places[i - 1];
        }
        csv->words[place] = mem_string(word);
        if (csv->words[place] == NULL) return data_no_memory(why, "read labels");
        csv->places[place] = (uint32_t)said;
        csv->said[said] = csv->words[place];
    }
    csv->has_words = true;
    return RC_OK;
}

static enum rc find_label(const struct pass *pass, const struct csv_row *row, const char *word,
                          uint32_t *class, struct fault *why)
{
    const struct csv *csv = pass->csv;
    bool is_there;
    size_t place = word_place(csv, word, &is_there);

    if (!is_there) {
        return csv_fault(pass->rows, row->line, why,
                         "label '%.40s' is new: the file has changed since the start", word);
    }
    if (csv->has_words) {
        *class = csv->places == NULL ? (uint32_t)place : csv->places[place];
        return RC_OK;
    }
    CHECK(parse_class(word, class));
    return RC_OK;
}

/* ---- rows ---- */

static enum rc read_number(const struct pass *pass, const struct csv_row *row, size_t column,
                           double *value, struct fault *why)
{
    const char *text = csv_field(row, column);

    if (parse_number(text, value)) return RC_OK;
    return csv_fault(pass->rows, row->line, why,
                     "column %zu: %s'%.40s' is not a number of up to 1e18%s", column + 1,
                     text[0] == '\0' ? "empty: " : "", text,
                     pass->csv->header == HEADER_YES ? "" : " (header=yes skips the first row)");
}

/* A row's numbers and label, learnt from or put into `slot` of the samples. */
static enum rc take_row(struct pass *pass, const struct csv_row *row, bool is_test, uint32_t slot,
                        struct fault *why)
{
    struct csv *csv = pass->csv;
    struct samples *out = pass->out;
    float *to = out != NULL && out->floats != NULL ? out->floats + slot * out->stored : NULL;
    enum rc rc = RC_OK;

    for (size_t c = 0; rc == RC_OK && c < csv->columns; c++) {
        const uint32_t as = pass->map[c];
        double value = 0.0;
        uint32_t class = 0;

        if (csv->roles[as] == ROLE_UNUSED) continue;
        if (csv->roles[as] == ROLE_LABEL) {
            const char *word = csv_field(row, c);
            rc = out == NULL ? learn_label(pass, row, word, why)
                             : find_label(pass, row, word, &class, why);
            if (rc == RC_OK && out != NULL) samples_set_label(out, slot, class);
            continue;
        }
        if (out != NULL && to == NULL) continue; /* only labels are wanted */
        rc = read_number(pass, row, c, &value, why);
        if (rc != RC_OK) return rc;
        if (csv->roles[as] == ROLE_TARGET) {
            if (out != NULL) {
                out->targets[(size_t)slot * csv->targets + csv->outputs[as]] = (float)value;
            }
            continue;
        }
        if (out == NULL && !is_test) data_moments_add(&csv->moments[csv->slots[as]], value);
        if (to != NULL) to[csv->slots[as]] = (float)value;
    }
    return rc;
}

/* Count the row into its part, and take it if it is wanted. */
static enum rc meet_row(struct pass *pass, const struct csv_row *row, struct fault *why)
{
    struct csv *csv = pass->csv;
    bool has_file = csv->paths[1][0] != '\0';
    bool is_test = has_file ? pass->is_test_file : data_is_test(pass->next[0] + pass->next[1]);
    uint64_t index = pass->next[is_test]++;
    uint32_t slot = 0;

    if (row->fields != csv->columns) {
        return csv_fault(pass->rows, row->line, why, "%zu fields, but there are %zu columns",
                         row->fields, csv->columns);
    }
    if (index >= DATA_SAMPLES_MAX) {
        return csv_fault(pass->rows, row->line, why, "more than %d rows", DATA_SAMPLES_MAX);
    }
    if (pass->part != NULL) {
        if (is_test != pass->part->is_test || index >= pass->part->count) return RC_OK;
        slot = pass->part->slots[index];
        if (slot == DATA_NO_SLOT) return RC_OK;
    }
    return take_row(pass, row, is_test, slot, why);
}

static bool has_duplicate(const uint32_t *map, size_t count, uint32_t as)
{
    for (size_t i = 0; i < count; i++) {
        if (map[i] == as) return true;
    }
    return false;
}

/* Columns are known by their names, wherever they stand in the other file. */
static enum rc map_columns(struct pass *pass, const struct csv_row *header, struct fault *why)
{
    const struct csv *csv = pass->csv;

    if (csv->names == NULL || header->fields != csv->columns) return RC_OK; /* meet_row() tells */
    for (size_t c = 0; c < csv->columns; c++) {
        const char *name = csv_field(header, c);
        uint32_t as = 0;

        while (as < csv->columns &&
               (strcmp(csv->names[as], name) != 0 || has_duplicate(pass->map, c, as))) {
            as++;
        }
        if (as == csv->columns) {
            return csv_fault(pass->rows, header->line, why,
                             "column %zu is called '%.60s', and none of %.200s is; the first row "
                             "must name the same columns, in any order",
                             c + 1, name, csv->paths[0]);
        }
        pass->map[c] = as;
    }
    return RC_OK;
}

/* All rows of a file but its header. */
static enum rc walk(struct pass *pass, struct fault *why)
{
    struct csv *csv = pass->csv;
    struct csv_row row;
    bool is_first = true;
    enum rc rc = RC_OK;

    pass->map = mem_array(csv->columns, sizeof *pass->map);
    if (pass->map == NULL) return data_no_memory(why, "read the data");
    for (size_t c = 0; c < csv->columns; c++) {
        pass->map[c] = (uint32_t)c;
    }
    rc = csv_rows_open(csv->paths[pass->is_test_file], &pass->rows, why);
    while (rc == RC_OK) {
        rc = csv_rows_next(pass->rows, &row, why);
        if (rc != RC_OK || row.fields == 0) break;
        if (!is_first || csv->header == HEADER_NO)
            rc = meet_row(pass, &row, why);
        else
            rc = map_columns(pass, &row, why);
        is_first = false;
    }
    csv_rows_close(pass->rows);
    pass->rows = NULL;
    mem_free(pass->map);
    return rc;
}

static enum rc csv_load(struct data_source *source, const struct data_part *part,
                        struct samples *out, struct fault *why)
{
    struct csv *csv = (struct csv *)source;
    struct pass pass = {.csv = csv, .part = part, .out = out};
    enum rc rc;

    pass.is_test_file = part->is_test && csv->paths[1][0] != '\0';
    rc = walk(&pass, why);
    if (rc == RC_OK && pass.next[part->is_test] != csv->counts[part->is_test]) {
        rc = fault_set(why, RC_FORMAT, "cannot read %.200s: it has changed since the start",
                       csv->paths[pass.is_test_file]);
    }
    return rc;
}

static const struct data_source_ops csv_ops = {.destroy = csv_destroy, .load = csv_load};

/* ---- opening ---- */

/* As many as there is room for. */
static void list_fields(const struct csv_row *row, char *text, size_t cap)
{
    size_t at = 0;

    for (size_t c = 0; c < row->fields; c++) {
        const char *field = csv_field(row, c);

        if (at + strlen(field) + 32 > cap) {
            snprintf(text + at, cap - at, "%s and %zu more", c > 0 ? "" : "too long;",
                     row->fields - c);
            return;
        }
        at += (size_t)snprintf(text + at, cap - at, "%s%s", c > 0 ? "," : "", field);
    }
}

/* Which column `item` means; by name only if the first row holds the name. */
static enum rc find_column(const struct data_spec *spec, const struct data_item *item,
                           struct csv *csv, const struct csv_row *first, size_t *column,
                           struct fault *why)
{
    bool is_number = strspn(item->value, "0123456789") == strlen(item->value);
    unsigned long number = is_number ? strtoul(item->value, NULL, 10) : 0;
    char names[LISTED_BYTES];

    for (size_t c = 0; !is_number && c < first->fields; c++) {
        if (strcmp(csv_field(first, c), item->value) != 0) continue;
        if (csv->header == HEADER_NO) break;
        csv->header = HEADER_YES;
        *column = c;
        return RC_OK;
    }
    if (is_number && number >= 1 && number <= first->fields) {
        *column = number - 1;
        return RC_OK;
    }
    if (is_number) {
        return data_spec_fault(spec, item->value_column, why,
                               "there is no column %.60s; the file has %zu", item->value,
                               first->fields);
    }
    list_fields(first, names, sizeof names);
    return data_spec_fault(spec, item->value_column, why,
                           "no column is called '%.60s'; the first row is %s", item->value, names);
}

/* Give every column its role. */
static enum rc assign_roles(const struct data_spec *spec, struct csv *csv,
                            const struct csv_row *first, struct fault *why)
{
    enum rc rc = RC_OK;

    for (size_t i = 0; rc == RC_OK && i < spec->items_count; i++) {
        const struct data_item *item = &spec->items[i];
        bool is_label = strcmp(item->key, "label") == 0;
        size_t column = 0;

        if (!is_label && strcmp(item->key, "target") != 0) continue;
        rc = find_column(spec, item, csv, first, &column, why);
        if (rc != RC_OK) break;
        if (csv->roles[column] != ROLE_FEATURE) {
            return data_spec_fault(spec, item->value_column, why, "the column is taken already");
        }
        csv->roles[column] = is_label ? ROLE_LABEL : ROLE_TARGET;
        if (!is_label) csv->outputs[column] = csv->targets++;
        csv->features--;
    }
    if (rc == RC_OK && csv->features == 0) {
        rc = fault_set(why, RC_FORMAT, "cannot use %.200s: no column is left to learn from",
                       csv->paths[0]);
    }
    return rc;
}

static enum rc keep_names(struct csv *csv, const struct csv_row *first, struct fault *why)
{
    csv->names = mem_array(csv->columns, sizeof *csv->names);
    if (csv->names == NULL) return data_no_memory(why, "open the data");
    for (size_t c = 0; c < csv->columns; c++) {
        csv->names[c] = mem_string(csv_field(first, c));
        if (csv->names[c] == NULL) return data_no_memory(why, "open the data");
    }
    return RC_OK;
}

/* The columns that a model reads, in its order; what else there is goes unused. */
static enum rc choose_columns(struct csv *csv, const char *wanted, struct fault *why)
{
    uint32_t slot = 0;

    for (size_t c = 0; c < csv->columns; c++) {
        if (csv->roles[c] == ROLE_FEATURE) csv->roles[c] = ROLE_UNUSED;
    }
    for (; *wanted != '\0'; slot++) {
        const size_t length = strcspn(wanted, "\n");
        size_t c = 0;

        while (c < csv->columns &&
               (csv->roles[c] != ROLE_UNUSED || strlen(csv->names[c]) != length ||
                memcmp(csv->names[c], wanted, length) != 0)) {
            c++;
        }
        if (c == csv->columns) {
            return fault_set(why, RC_MISMATCH,
                             "cannot use %.200s: it has no column called '%.*s', which the model "
                             "reads",
                             csv->paths[0], length > 60 ? 60 : (int)length, wanted);
        }
        csv->roles[c] = ROLE_FEATURE;
        csv->slots[c] = slot;
        wanted += length + (wanted[length] == '\n');
    }
    csv->features = slot;
    return RC_OK;
}

/* Which number of a sample each feature is, and what they are called. */
static enum rc order_columns(struct csv *csv, const struct csv_row *first, const char *wanted,
                             struct fault *why)
{
    uint32_t slot = 0;
    enum rc rc = csv->header == HEADER_YES ? keep_names(csv, first, why) : RC_OK;

    for (size_t c = 0; c < csv->columns; c++) {
        if (csv->roles[c] == ROLE_FEATURE) csv->slots[c] = slot++;
    }
    if (rc != RC_OK || csv->names == NULL) return rc;
    if (wanted != NULL && wanted[0] != '\0') rc = choose_columns(csv, wanted, why);
    if (rc != RC_OK) return rc;
    csv->features_names = mem_array(csv->features, sizeof *csv->features_names);
    if (csv->features_names == NULL) return data_no_memory(why, "open the data");
    for (size_t c = 0; c < csv->columns; c++) {
        if (csv->roles[c] == ROLE_FEATURE) csv->features_names[csv->slots[c]] = csv->names[c];
    }
    return RC_OK;
}

/* The first row: how many columns, what for, and whether it is a header. */
static enum rc read_first_row(const struct data_spec *spec, struct csv *csv, const char *wanted,
                              struct fault *why)
{
    struct csv_rows *rows = NULL;
    struct csv_row first;
    enum rc rc = csv_rows_open(csv->paths[0], &rows, why);

    if (rc == RC_OK) rc = csv_rows_next(rows, &first, why);
    if (rc == RC_OK && first.fields == 0) rc = csv_fault(rows, 1, why, "it has no rows");
    if (rc != RC_OK) goto out;
    csv->columns = csv->features = first.fields;
    csv->roles = mem_array(csv->columns, sizeof *csv->roles);
    csv->outputs = mem_array(csv->columns, sizeof *csv->outputs);
    csv->slots = mem_array(csv->columns, sizeof *csv->slots);
    csv->words = mem_array(WORDS_MAX, sizeof *csv->words);
    csv->moments = mem_array(csv->columns, sizeof *csv->moments);
    if (csv->roles == NULL || csv->outputs == NULL || csv->slots == NULL || csv->words == NULL ||
        csv->moments == NULL) {
        rc = data_no_memory(why, "open the data");
        goto out;
    }
    rc = assign_roles(spec, csv, &first, why);
    for (size_t c = 0; rc == RC_OK && csv->header == HEADER_GUESS && c < csv->columns; c++) {
        double value;
        if (csv->roles[c] == ROLE_LABEL || parse_number(csv_field(&first, c), &value)) continue;
        csv->header = HEADER_YES;
    }
    if (csv->header == HEADER_GUESS) csv->header = HEADER_NO;
    if (rc == RC_OK) rc = order_columns(csv, &first, wanted, why);
out:
    csv_rows_close(rows);
    return rc;
}

/* Read everything once: counts, words, moments. */
static enum rc survey(struct csv *csv, struct fault *why)
{
    struct pass pass = {.csv = csv};
    enum rc rc = walk(&pass, why);

    if (rc == RC_OK && csv->paths[1][0] != '\0') {
        pass.is_test_file = true;
        rc = walk(&pass, why);
    }
    if (rc != RC_OK) return rc;
    csv->counts[0] = pass.next[0];
    csv->counts[1] = pass.next[1];
    if (csv->counts[0] > 0 && csv->counts[1] > 0) return RC_OK;
    return fault_set(why, RC_FORMAT, "cannot use %.200s: it has too few rows",
                     csv->paths[csv->counts[0] > 0 && csv->paths[1][0] != '\0']);
}

static enum rc read_spec(const struct data_spec *spec, struct csv *csv, struct fault *why)
{
    static const char *const keys[] = {"label", "target", "test", "header"};
    const struct data_item *test = data_spec_find(spec, "test");
    const struct data_item *header = data_spec_find(spec, "header");
    bool has_label = data_spec_find(spec, "label") != NULL;
    enum rc rc = data_spec_check(spec, 1, "the file", keys, ARRAY_COUNT(keys), "target", why);

    if (rc != RC_OK) return rc;
    if (has_label == (data_spec_find(spec, "target") != NULL)) {
        return data_spec_fault(spec, strlen(spec->text) + 1, why,
                               "it takes label=COLUMN (classes) or target=COLUMN (numbers)");
    }
    if (header != NULL && strcmp(header->value, "yes") != 0 && strcmp(header->value, "no") != 0) {
        return data_spec_fault(spec, header->value_column, why, "header is yes or no");
    }
    if (header != NULL) csv->header = header->value[0] == 'y' ? HEADER_YES : HEADER_NO;
    if (strlen(spec->files[0]) >= DATA_PATH_BYTES ||
        (test != NULL && strlen(test->value) >= DATA_PATH_BYTES)) {
        return fault_set(why, RC_LIMIT, "cannot read data: the file's name is too long");
    }
    snprintf(csv->paths[0], DATA_PATH_BYTES, "%s", spec->files[0]);
    if (test != NULL) snprintf(csv->paths[1], DATA_PATH_BYTES, "%s", test->value);
    return RC_OK;
}

static enum rc describe(struct csv *csv, struct dataset_info *info, struct fault *why)
{
    enum rc rc;

    snprintf(info->name, sizeof info->name, "csv");
    info->input = DATA_VECTORS;
    info->channels = (uint32_t)csv->features;
    info->height = info->width = 1;
    info->column_names = csv->features_names;
    info->train_samples = csv->counts[0];
    info->test_samples = csv->counts[1];
    if (csv->targets > 0) {
        info->target = DATA_REALS;
        info->outputs = csv->targets;
    } else {
        info->classes = csv->has_words ? (uint32_t)csv->words_count : csv->number_max + 1;
        if (csv->has_words) info->class_words = (const char *const *)csv->words;
        if (csv->said != NULL) info->class_words = csv->said;
    }
    rc = data_source_normal(&csv->base, info, why);
    if (rc == RC_OK) rc = data_source_measured(&csv->base, info, csv->moments, why);
    mem_free(csv->moments);
    csv->moments = NULL;
    return rc;
}

enum rc csv_open_source(const struct data_spec *spec, const struct dataset_options *options,
                        struct dataset_info *info, struct data_source **source, struct fault *why)
{
    struct csv *csv = mem_alloc(sizeof *csv);
    enum rc rc;

    if (csv == NULL) return data_no_memory(why, "open the data");
    csv->base.ops = &csv_ops;
    rc = read_spec(spec, csv, why);
    if (rc == RC_OK) rc = read_first_row(spec, csv, options->columns, why);
    if (rc == RC_OK && options->labels != NULL && options->labels[0] != '\0' && csv->targets == 0) {
        csv->labels_of = options->labels_of;
        rc = take_labels(csv, options->labels, why);
    }
    if (rc == RC_OK) rc = survey(csv, why);
    if (rc == RC_OK) rc = describe(csv, info, why);
    if (rc != RC_OK) {
        data_source_destroy(&csv->base);
        return rc;
    }
    *source = &csv->base;
    return RC_OK;
}
