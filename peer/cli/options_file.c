/*
 * options_file: settings as ini text, in (through inih) and out. The library's lines end at 200
 * bytes and longer ones would be cut without a word, so our line reader refuses them; a long value
 * goes on over indented lines, which are joined by a blank, or by nothing after a comma.
 */
#include "peer/cli/options_table.h"

#include "base/check.h"
#include "base/mem.h"

#include "version.h"

#include <ini.h>
#include <string.h>

/* Where the reader is; one per file. */
struct config_reader {
    struct options *options;
    const char *name; /* of the file, for messages */
    const char *text;
    size_t bytes, at;
    int line;
    bool is_indented;            /* the line in hand begins with a blank */
    int section_of[OPTIONS_MAX]; /* of each row: number of the section that set it, 0: none */
    int section;                 /* number of the section in hand, from 1 */
    char section_name[32];
    char pending_name[64]; /* the value in hand; "" : none */
    char pending[OPTION_VALUE_MAX + 2];
    int pending_line;
    enum rc rc; /* first failure of ours */
    int failed_line;
    struct fault *why;
};

static void reader_fail(struct config_reader *reader, enum rc rc)
{
    reader->rc = rc;
    reader->failed_line = reader->line;
}

/** fgets for the library. */
static char *read_line(char *line, int cap, void *context)
{
    struct config_reader *reader = context;
    const char *from = reader->text + reader->at;
    size_t left = reader->bytes - reader->at;
    const char *end = memchr(from, '\n', left);
    size_t count = end != NULL ? (size_t)(end - from) : left, skipped = 0;

    if (left == 0 || reader->rc != RC_OK) return NULL;
    reader->line++;
    if ((*from == ';' || *from == '#') && count > CONFIG_LINE_MAX) { /* nobody reads a comment */
        skipped = count - CONFIG_LINE_MAX;
        count = CONFIG_LINE_MAX;
    }
    if (count > CONFIG_LINE_MAX || (int)count + 2 > cap) {
        reader_fail(reader, fault_set(reader->why, RC_USAGE,
                                      "%s:%d: longer than %d bytes; go on in indented lines",
                                      reader->name, reader->line, CONFIG_LINE_MAX));
        return NULL;
    }
    if (memchr(from, '\0', count) != NULL) {
        reader_fail(reader, fault_set(reader->why, RC_USAGE,
                                      "%s:%d: not text; a configuration "
                                      "file has lines 'name = value'",
                                      reader->name, reader->line));
        return NULL;
    }
    memcpy(line, from, count);
    memcpy(line + count, "\n", 2);
    reader->is_indented = count > 0 && (line[0] == ' ' || line[0] == '\t');
    reader->at += count + skipped + (end != NULL ? 1 : 0);
    return line;
}

static enum rc unknown_key(const struct config_reader *reader, const char *key)
{
    const char *command = command_rows[reader->options->command].name;
    size_t any = option_find_any(key, strlen(key));
    const char *nearest;

    if (any != SIZE_MAX)
        return fault_set(reader->why, RC_USAGE,
                         "%s:%d: %s: not a setting of '%s'; put it under the "
                         "[COMMAND] it is for",
                         reader->name, reader->pending_line, key, command);
    nearest = option_nearest(reader->options->command, key);
    return fault_set(reader->why, RC_USAGE, "%s:%d: unknown setting %s%s%s", reader->name,
                     reader->pending_line, key, nearest != NULL ? "; did you mean " : "",
                     nearest != NULL ? nearest : "");
}

/** The section in hand: 1 for this command or for all, 0 for another command, -1 if unknown. */
static int section_kind(const struct config_reader *reader)
{
    if (reader->section_name[0] == '\0') return 1;
    for (int i = COMMAND_NONE + 1; i < COMMAND_COUNT; i++) {
        if (strcmp(reader->section_name, command_rows[i].name) == 0)
            return (enum command_id)i == reader->options->command;
    }
    return -1;
}

/** Set the value in hand, now that its last line is known. */
static enum rc commit_pending(struct config_reader *reader)
{
    const char *key = reader->pending_name;
    char label[512];
    int kind = section_kind(reader);
    size_t row;

    if (key[0] == '\0') return RC_OK;
    if (kind < 0)
        return fault_set(reader->why, RC_USAGE,
                         "%s:%d: [%s]: there is no such command; 'grapevine "
                         "--help' lists them",
                         reader->name, reader->pending_line, reader->section_name);
    if (kind == 0) return RC_OK;
    row = option_find(reader->options->command, key, strlen(key));
    if (row == SIZE_MAX) return unknown_key(reader, key);
    snprintf(label, sizeof(label), "%s:%d: %s", reader->name, reader->pending_line, key);
    if (option_rows[row].kept == WORD_ONLY)
        return fault_set(reader->why, RC_USAGE, "%s: works only as the flag --%s; remove it", label,
                         key);
    if (reader->section_of[row] == reader->section)
        return fault_set(reader->why, RC_USAGE, "%s: set twice; keep one", label);
    reader->section_of[row] = reader->section;
    return option_assign(reader->options, row, reader->pending, FROM_FILE, label, reader->why);
}

static enum rc begin_pending(struct config_reader *reader, const char *section, const char *name,
                             const char *value)
{
    enum rc rc = commit_pending(reader);

    if (rc != RC_OK) return rc;
    if (strcmp(section, reader->section_name) != 0) {
        reader->section++;
        snprintf(reader->section_name, sizeof(reader->section_name), "%s", section);
    }
    snprintf(reader->pending_name, sizeof(reader->pending_name), "%s", name);
    snprintf(reader->pending, sizeof(reader->pending), "%s", value);
    reader->pending_line = reader->line;
    return RC_OK;
}

/** One more line of the value in hand. Too much of it is left for option_assign() to refuse. */
static void grow_pending(struct config_reader *reader, const char *value)
{
    size_t used = strlen(reader->pending);
    const char *joint = used == 0 || reader->pending[used - 1] == ',' ? "" : " ";

    snprintf(reader->pending + used, sizeof(reader->pending) - used, "%s%s", joint, value);
}

/** The library's handler: nonzero is success. */
static int on_setting(void *context, const char *section, const char *name, const char *value)
{
    struct config_reader *reader = context;
    bool is_more = reader->is_indented && strcmp(name, reader->pending_name) == 0 &&
                   strcmp(section, reader->section_name) == 0;
    enum rc rc = RC_OK;

    if (reader->rc != RC_OK) return 0;
    if (is_more)
        grow_pending(reader, value);
    else
        rc = begin_pending(reader, section, name, value);
    if (rc != RC_OK) reader_fail(reader, rc);
    return rc == RC_OK;
}

enum rc options_read_config(struct options *options, const char *name, const char *text,
                            size_t bytes, struct fault *why)
{
    struct config_reader *reader = mem_alloc(sizeof(*reader));
    int line;
    enum rc rc;

    if (reader == NULL) return fault_set(why, RC_NOMEM, "%s: out of memory", name);
    CHECK(option_rows_count <= ARRAY_COUNT(reader->section_of));
    reader->options = options;
    reader->name = name;
    reader->text = text;
    reader->bytes = bytes;
    reader->section = 1;
    reader->why = why;
    line = ini_parse_stream(read_line, reader, on_setting, reader);
    if (reader->rc == RC_OK && line == 0) {
        rc = commit_pending(reader);
    } else if (reader->rc == RC_OK || (line > 0 && line < reader->failed_line)) {
        rc = fault_set(why, RC_USAGE, "%s:%d: not a setting; write 'name = value'", name, line);
    } else {
        rc = reader->rc;
    }
    mem_free(reader);
    return rc;
}

/* --- writing ---------------------------------------------------------------------------------- */

enum { WRAP_AT = 120, WRAP_LEAST = 40 };

/** How much of `text` fits a line and joins again when read: up to a blank that no comma comes
 *  before, or to past a comma; all of it where there is no such place. */
static size_t wrapped_length(const char *text)
{
    size_t length = strlen(text);
    size_t cut = length;

    if (length <= WRAP_AT) return length;
    for (size_t i = WRAP_LEAST; i + 1 < length; i++) {
        bool is_blank = text[i] == ' ' && text[i - 1] != ',' && text[i - 1] != ' ';
        bool is_comma = text[i] == ',';

        if (i > WRAP_AT && cut != length) break;
        if ((is_blank || is_comma) && strchr(" ;#", text[i + 1]) == NULL)
            cut = is_comma ? i + 1 : i;
    }
    return cut;
}

static char *append_value(char *end, const char *text)
{
    for (;;) {
        size_t count = wrapped_length(text);

        memcpy(end, text, count);
        end += count;
        text += count;
        if (*text == '\0') break;
        end = stpcpy(end, "\n    ");
        if (*text == ' ') text++;
    }
    return stpcpy(end, "\n");
}

char *options_config_text(const struct options *options)
{
    static const char head[] = "; grapevine " GRAPEVINE_VERSION " (" GRAPEVINE_REVISION "), ";
    const char *command = command_rows[options->command].name;
    size_t bytes = sizeof(head) + strlen(command) + 2;
    char *text, *end;

    for (size_t i = 0; i < option_rows_count; i++) {
        const char *value = options->values[i].text;

        if (value != NULL) bytes += strlen(option_rows[i].name) + 2 * strlen(value) + 8;
    }
    text = mem_alloc(bytes);
    if (text == NULL) return NULL;
    end = stpcpy(text, head);
    end = stpcpy(end, command);
    end = stpcpy(end, "\n");
    for (size_t i = 0; i < option_rows_count; i++) {
        const char *value = options->values[i].text;

        if (value == NULL || option_rows[i].kept == WORD_ONLY) continue;
        end = stpcpy(end, option_rows[i].name);
        end = stpcpy(end, " = ");
        end = append_value(end, value);
    }
    CHECK((size_t)(end - text) < bytes);
    return text;
}

/* --- resuming --------------------------------------------------------------------------------- */

enum { OTHERS_BYTES = 300, OTHER_BYTES = 130 };

static bool is_goal(const struct options *options, size_t row)
{
    return (option_rows[row].commands >> options->command & 1u) != 0 &&
           option_rows[row].kept == OF_GOAL;
}

static bool has_goal(const struct options *options)
{
    for (size_t i = 0; i < option_rows_count; i++) {
        if (is_goal(options, i) && options->values[i].source != FROM_DEFAULT) return true;
    }
    return false;
}

/* Each flag that is to stay and was given otherwise, with both values, in words. Returns how many
 * there are. */
static size_t list_others(const struct options *options, const struct options *earlier, char *text,
                          size_t cap)
{
    size_t count = 0, used = 0;

    text[0] = '\0';
    for (size_t i = 0; i < option_rows_count; i++) {
        const struct option_row *row = &option_rows[i];
        const struct option_value *now = &options->values[i];
        const char *then = earlier->values[i].text;
        char other[OTHER_BYTES];
        int length;

        if (now->source == FROM_DEFAULT || row->kept != OF_RUN) continue;
        if (then == NULL) then = row->fallback;
        if (then != NULL && option_is_same(i, now->text, then)) continue;
        count++;
        length = snprintf(other, sizeof other, "%s--%s %.40s, not %.40s", count == 1 ? "" : "; ",
                          row->name, then != NULL ? then : "(the default)", now->text);
        if (length < 0 || used + (size_t)length + 1 > cap) continue; /* it is counted */
        memcpy(text + used, other, (size_t)length + 1);
        used += (size_t)length;
    }
    return count;
}

/* What was not given now. A default is left what it is: nobody has given it then either. */
static enum rc take_rest(struct options *options, const struct options *earlier, struct fault *why)
{
    bool has_new_goal = has_goal(options);
    enum rc rc = RC_OK;

    for (size_t i = 0; i < option_rows_count && rc == RC_OK; i++) {
        const struct option_row *row = &option_rows[i];
        const char *then = earlier->values[i].text;

        if (then == NULL || row->kept == OF_START || row->kept == WORD_ONLY) continue;
        if (options->values[i].source != FROM_DEFAULT) continue;
        if (row->kept == OF_GOAL && has_new_goal) continue;
        if (row->fallback != NULL && strcmp(row->fallback, then) == 0) continue;
        rc = option_assign(options, i, then, FROM_FILE, row->name, why);
    }
    return rc;
}

static enum rc adopt(struct options *options, const struct options *earlier, const char *name,
                     struct fault *why)
{
    char others[OTHERS_BYTES];
    size_t count = list_others(options, earlier, others, sizeof others);

    if (count == 0) return take_rest(options, earlier, why);
    return fault_set(why, RC_USAGE,
                     "%.80s has other flags (%zu): %s; leave them out, or take another --out "
                     "(--init begins from a model)",
                     name, count, others);
}

enum rc options_adopt(struct options *options, const char *name, const char *text, size_t bytes,
                      struct fault *why)
{
    struct options earlier = {.command = options->command};
    enum rc rc;

    earlier.values = mem_array(option_rows_count, sizeof(*earlier.values));
    if (earlier.values == NULL) return fault_set(why, RC_NOMEM, "%s: out of memory", name);
    rc = options_read_config(&earlier, name, text, bytes, why);
    if (rc == RC_OK) rc = adopt(options, &earlier, name, why);
    for (size_t i = 0; i < option_rows_count; i++)
        mem_free(earlier.values[i].text);
    mem_free(earlier.values);
    return rc;
}
