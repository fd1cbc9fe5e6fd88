/*
 * options: reads what the user asked for, from the strongest source to the weakest: words of the
 * command line, environment, file, defaults. Each value is checked where it enters, so that the
 * accessors cannot fail.
 */
#include "peer/cli/options_table.h"

#include "base/check.h"
#include "base/cpu.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/units.h"
#include "base/words.h"
#include "kernels/device/device.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

static const char environment_prefix[] = "GRAPEVINE_";

enum { LABEL_BYTES = 160, SHOWN_MAX = 80 };

/* --- one value -------------------------------------------------------------------------------- */

static bool parse_switch(const char *text, bool *flag)
{
    static const char *const yes[] = {"yes", "true", "on", "1"};
    static const char *const no[] = {"no", "false", "off", "0"};

    for (size_t i = 0; i < ARRAY_COUNT(yes); i++) {
        if (strcmp(text, yes[i]) == 0 || strcmp(text, no[i]) == 0) {
            *flag = strcmp(text, yes[i]) == 0;
            return true;
        }
    }
    return false;
}

/** Is `text` one of the words of "auto|cpu"? */
static bool is_choice(const char *choices, const char *text)
{
    size_t length = strlen(text);

    for (const char *word = choices; word != NULL;) {
        const char *end = strchr(word, '|');
        size_t count = end != NULL ? (size_t)(end - word) : strlen(word);

        if (count == length && memcmp(word, text, count) == 0) return true;
        word = end != NULL ? end + 1 : NULL;
    }
    return false;
}

/** Parse by type. NULL when it is fine, else what to write instead. */
static const char *parse_value(const struct option_row *row, const char *text,
                               struct option_value *value, double *size)
{
    switch (row->type) {
    case OPTION_TEXT:
        return NULL;
    case OPTION_COUNT:
        if (!units_parse_count(text, &value->as.count))
            return "not a count; write a whole number such as 16";
        *size = (double)value->as.count;
        return NULL;
    case OPTION_REAL:
        if (text[0] == '-' && units_parse_share(text + 1, &value->as.real))
            value->as.real = -value->as.real; /* out of range, as will be said */
        else if (!units_parse_share(text, &value->as.real))
            return "not a number; write it like 0.05, 1e-3 or 5%";
        *size = value->as.real;
        return NULL;
    case OPTION_DURATION:
        if (!units_parse_duration(text, &value->as.ns))
            return "not a duration; write it like 250ms, 10s or 5m";
        *size = (double)value->as.ns * 1e-9;
        return NULL;
    case OPTION_RATE:
        if (!units_parse_rate(text, &value->as.count))
            return "not a rate; write it like 512kbit, 10mbit or 1gbit";
        *size = (double)value->as.count;
        return NULL;
    case OPTION_SWITCH:
        return parse_switch(text, &value->as.flag) ? NULL : "not a switch; write yes or no";
    case OPTION_CHOICE:
        return is_choice(row->shape, text) ? NULL : "";
    case OPTION_DEVICE: {
        struct device_choice device;
        if (device_parse(text, &device, NULL) == RC_OK) return NULL;
        return "not known; choose among auto|cpu|cuda|cuda:N, or cuda:0,1 with different numbers";
    }
    }
    CHECK(false);
    return NULL;
}

static enum rc check_text(const char *text, const char *label, struct fault *why)
{
    size_t length = strnlen(text, OPTION_VALUE_MAX + 1);

    if (length == 0)
        return fault_set(why, RC_USAGE, "%s: the value is empty; write one or leave it out", label);
    if (length > OPTION_VALUE_MAX)
        return fault_set(why, RC_USAGE, "%s: the value is longer than %d bytes; shorten it", label,
                         OPTION_VALUE_MAX);
    for (size_t i = 0; i < length; i++) {
        if (iscntrl((unsigned char)text[i]))
            return fault_set(why, RC_USAGE, "%s: control character at column %zu; remove it", label,
                             i + 1);
    }
    if (text[0] == ';' || strstr(text, " ;") != NULL)
        return fault_set(why, RC_USAGE,
                         "%s: ' ;' would begin a comment in a configuration file; "
                         "leave out the blank",
                         label);
    return RC_OK;
}

static const char *range_unit(enum option_type type)
{
    return type == OPTION_DURATION ? " seconds" : type == OPTION_RATE ? " bit/s" : "";
}

enum rc option_assign(struct options *options, size_t row_index, const char *text,
                      enum option_source source, const char *label, struct fault *why)
{
    struct option_value value = {.source = source};
    struct option_value *slot;
    const struct option_row *row;
    const char *problem;
    double size = 0;
    enum rc rc;

    CHECK(row_index < option_rows_count);
    row = &option_rows[row_index];
    slot = &options->values[row_index];
    rc = check_text(text, label, why);
    if (rc != RC_OK) return rc;
    problem = parse_value(row, text, &value, &size);
    if (problem != NULL && problem[0] == '\0')
        return fault_set(why, RC_USAGE, "%s %.*s: not known; choose among %s", label, SHOWN_MAX,
                         text, row->shape);
    if (problem != NULL)
        return fault_set(why, RC_USAGE, "%s %.*s: %s", label, SHOWN_MAX, text, problem);
    if ((row->least != 0 || row->most != 0) && (size < row->least || size > row->most))
        return fault_set(why, RC_USAGE, "%s %.*s: out of range; choose between %.15g and %.15g%s",
                         label, SHOWN_MAX, text, row->least, row->most, range_unit(row->type));
    if (slot->text != NULL && slot->source > source) return RC_OK;
    value.text = mem_string(text);
    if (value.text == NULL) return fault_set(why, RC_NOMEM, "%s: out of memory", label);
    mem_free(slot->text);
    *slot = value;
    return RC_OK;
}

bool option_is_same(size_t row_index, const char *one, const char *other)
{
    const struct option_row *row = &option_rows[row_index];
    struct option_value a = {.text = NULL}, b = {.text = NULL};
    double size;

    if (strcmp(one, other) == 0) return true;
    if (parse_value(row, one, &a, &size) != NULL || parse_value(row, other, &b, &size) != NULL) {
        return false;
    }
    switch (row->type) {
    case OPTION_COUNT:
    case OPTION_RATE:
        return a.as.count == b.as.count;
    case OPTION_REAL:
        return a.as.real == b.as.real;
    case OPTION_DURATION:
        return a.as.ns == b.as.ns;
    case OPTION_SWITCH:
        return a.as.flag == b.as.flag;
    case OPTION_TEXT:
    case OPTION_CHOICE:
    case OPTION_DEVICE:
        return false;
    }
    return false;
}

/* --- command line ----------------------------------------------------------------------------- */

static enum rc unknown_flag(enum command_id command, const char *word, size_t length,
                            struct fault *why)
{
    char name[SHOWN_MAX + 1];
    const char *nearest, *of = command_rows[command].name;
    size_t any = option_find_any(word, length);

    snprintf(name, sizeof(name), "%.*s", (int)(length < SHOWN_MAX ? length : SHOWN_MAX), word);
    if (command == COMMAND_NONE && any != SIZE_MAX)
        return fault_set(why, RC_USAGE,
                         "no command: --%s belongs to one; write 'grapevine COMMAND --%s'", name,
                         name);
    nearest = option_nearest(command, name);
    if (any != SIZE_MAX)
        return fault_set(why, RC_USAGE, "--%s: not a flag of '%s'; see 'grapevine %s --help'", name,
                         of, of);
    return fault_set(why, RC_USAGE, "unknown flag --%s%s%s; see 'grapevine %s%s--help'", name,
                     nearest != NULL ? ": did you mean --" : "", nearest != NULL ? nearest : "", of,
                     of[0] != '\0' ? " " : "");
}

/** One "--name=value", "--name value" or "--name"; `*used` words were consumed. */
static enum rc read_flag(struct options *options, int count, const char *const *words, int *used,
                         struct fault *why)
{
    const char *name = strcmp(words[0], "-h") == 0 ? "help" : words[0] + 2;
    const char *equals = strchr(name, '=');
    size_t length = equals != NULL ? (size_t)(equals - name) : strlen(name);
    size_t row = option_find(options->command, name, length);
    char label[LABEL_BYTES];
    const char *text;

    if (words[0][1] != '-' && strcmp(words[0], "-h") != 0)
        return fault_set(why, RC_USAGE,
                         "unknown flag %.*s: flags begin with two dashes; see "
                         "'grapevine --help'",
                         SHOWN_MAX, words[0]);
    if (row == SIZE_MAX) return unknown_flag(options->command, name, length, why);
    snprintf(label, sizeof(label), "--%s", option_rows[row].name);
    if (options->values[row].source == FROM_FLAG)
        return fault_set(why, RC_USAGE, "%s: given twice; keep one", label);
    *used = 1;
    if (equals != NULL) {
        text = equals + 1;
    } else if (option_rows[row].type == OPTION_SWITCH) {
        text = "yes";
    } else if (count < 2 || strncmp(words[1], "--", 2) == 0) {
        return fault_set(why, RC_USAGE, "%s: no value; write '%s %s'", label, label,
                         option_rows[row].shape);
    } else {
        text = words[1];
        *used = 2;
    }
    return option_assign(options, row, text, FROM_FLAG, label, why);
}

static enum rc add_argument(struct options *options, const char *word, struct fault *why)
{
    size_t count = options->arguments_count;
    const char **grown = mem_resize(options->arguments, (count + 1) * sizeof(*grown));
    char *copy = NULL;

    if (grown != NULL) {
        options->arguments = grown;
        copy = mem_string(word);
    }
    if (copy == NULL) return fault_set(why, RC_NOMEM, "command line: out of memory");
    grown[count] = copy;
    options->arguments_count = count + 1;
    return RC_OK;
}

static enum rc read_words(struct options *options, int count, const char *const *words,
                          struct fault *why)
{
    bool is_flag_allowed = true;

    for (int i = 0; i < count;) {
        int used = 1;
        enum rc rc = RC_OK;

        if (is_flag_allowed && strcmp(words[i], "--") == 0)
            is_flag_allowed = false;
        else if (is_flag_allowed && words[i][0] == '-' && words[i][1] != '\0')
            rc = read_flag(options, count - i, words + i, &used, why);
        else
            rc = add_argument(options, words[i], why);
        if (rc != RC_OK) return rc;
        i += used;
    }
    return RC_OK;
}

static enum rc check_arguments(const struct options *options, struct fault *why)
{
    const struct command_row *row = &command_rows[options->command];

    if (options->arguments_count < row->arguments_min)
        return fault_set(why, RC_USAGE, "%s: %s is missing; write 'grapevine %s %s'", row->name,
                         row->arguments, row->name, row->arguments);
    if (options->arguments_count > row->arguments_max)
        return fault_set(why, RC_USAGE,
                         "%s: unexpected word '%.*s'; flags begin with two dashes, "
                         "see 'grapevine %s --help'",
                         row->name, SHOWN_MAX, options->arguments[row->arguments_max], row->name);
    return RC_OK;
}

/* --- environment and file --------------------------------------------------------------------- */

/** GRAPEVINE_LISTEN=... to "listen". False: no option's; GRAPEVINE_CPU was read before main(). */
static bool environment_name(const char *entry, char *name, size_t cap, const char **text)
{
    size_t prefix = sizeof(environment_prefix) - 1;
    const char *equals = strchr(entry, '=');
    size_t length;

    if (equals == NULL || strncmp(entry, environment_prefix, prefix) != 0) return false;
    if (strncmp(entry, CPU_VARIABLE "=", sizeof(CPU_VARIABLE)) == 0) return false;
    length = (size_t)(equals - entry) - prefix;
    if (length >= cap) length = cap - 1;
    for (size_t i = 0; i < length; i++) {
        char letter = entry[prefix + i];

        name[i] = letter == '_' ? '-' : (char)tolower((unsigned char)letter);
    }
    name[length] = '\0';
    *text = equals + 1;
    return true;
}

static void environment_label(const char *name, char *label, size_t cap)
{
    size_t count = (size_t)snprintf(label, cap, "%s%s", environment_prefix, name);

    for (size_t i = 0; i < count && i < cap - 1; i++)
        label[i] = label[i] == '-' ? '_' : (char)toupper((unsigned char)label[i]);
}

static enum rc read_environment(struct options *options, const char *const *environment,
                                struct fault *why)
{
    for (; *environment != NULL; environment++) {
        char name[SHOWN_MAX], label[LABEL_BYTES], nearest[LABEL_BYTES];
        const char *text, *guess;
        size_t row;
        enum rc rc;

        if (!environment_name(*environment, name, sizeof(name), &text)) continue;
        environment_label(name, label, sizeof(label));
        row = option_find_any(name, strlen(name));
        if (row == SIZE_MAX) {
            guess = option_nearest(COMMAND_NONE, name);
            environment_label(guess != NULL ? guess : "", nearest, sizeof(nearest));
            return fault_set(why, RC_USAGE, "environment: unknown variable %s%s%s; unset it", label,
                             guess != NULL ? ": did you mean " : "", guess != NULL ? nearest : "");
        }
        row = option_find(options->command, name, strlen(name));
        if (row == SIZE_MAX || text[0] == '\0') continue; /* another command's, or not given */
        if (option_rows[row].kept == WORD_ONLY)
            return fault_set(why, RC_USAGE, "%s: works only as the flag --%s; unset it", label,
                             name);
        rc = option_assign(options, row, text, FROM_ENVIRONMENT, label, why);
        if (rc != RC_OK) return rc;
    }
    return RC_OK;
}

static enum rc read_config_file(struct options *options, const char *path, struct fault *why)
{
    void *text = NULL;
    size_t bytes = 0;
    enum rc rc = file_read(path, CONFIG_BYTES_MAX, &text, &bytes, why);

    if (rc == RC_OK)
        rc = options_read_config(options, path, text, bytes, why);
    else if (rc != RC_NOMEM)
        rc = RC_USAGE;
    mem_free(text);
    return rc;
}

static enum rc set_defaults(struct options *options, struct fault *why)
{
    for (size_t i = 0; i < option_rows_count; i++) {
        const struct option_row *row = &option_rows[i];
        enum rc rc = RC_OK;

        if ((row->commands >> options->command & 1u) == 0 || row->fallback == NULL) continue;
        rc = option_assign(options, i, row->fallback, FROM_DEFAULT, row->name, why);
        CHECK(rc != RC_USAGE); /* a default of the table must pass its own test */
        if (rc != RC_OK) return rc;
    }
    return RC_OK;
}

/* --- the whole -------------------------------------------------------------------------------- */

static enum rc find_command(int count, const char *const *words, enum command_id *command,
                            struct fault *why)
{
    *command = COMMAND_NONE;
    if (count == 0)
        return fault_set(why, RC_USAGE,
                         "no command: say what to do; 'grapevine help' lists the commands");
    return words[0][0] == '-' ? RC_OK : options_find_command(words[0], command, why);
}

static bool wants_words_only(const struct options *options)
{
    return options_flag(options, "help") || options_flag(options, "version") ||
           (options->command == COMMAND_NONE && options_flag(options, "man"));
}

static enum rc read_all(struct options *options, int count, const char *const *words,
                        const char *const *environment, struct fault *why)
{
    const char *path;
    enum rc rc = read_words(options, count, words, why);

    if (rc == RC_OK) rc = set_defaults(options, why);
    if (rc != RC_OK || wants_words_only(options)) return rc;
    if (options->command == COMMAND_NONE)
        return fault_set(why, RC_USAGE,
                         "no command: it comes first; 'grapevine help' lists the "
                         "commands");
    rc = read_environment(options, environment, why);
    if (rc != RC_OK) return rc;
    path = options_text(options, "config");
    if (path != NULL) rc = read_config_file(options, path, why);
    if (rc == RC_OK) rc = options_set_ranks(options, environment, why);
    if (rc != RC_OK) return rc;
    if (options_flag(options, "quiet") && options_flag(options, "verbose"))
        return fault_set(why, RC_USAGE, "--quiet: contradicts --verbose; keep one of them");
    return options_flag(options, "print-config") ? RC_OK : check_arguments(options, why);
}

static enum rc options_create(struct options **options, struct fault *why)
{
    struct options *made = mem_alloc(sizeof(*made));

    if (made != NULL) made->values = mem_array(option_rows_count, sizeof(*made->values));
    if (made == NULL || made->values == NULL) {
        mem_free(made);
        return fault_set(why, RC_NOMEM, "command line: out of memory");
    }
    *options = made;
    return RC_OK;
}

enum rc options_parse(int count, const char *const *words, const char *const *environment,
                      struct options **options, struct fault *why)
{
    struct options *read = NULL;
    int skipped;
    enum rc rc = options_create(&read, why);

    if (rc != RC_OK) return rc;
    rc = find_command(count, words, &read->command, why);
    skipped = read->command != COMMAND_NONE ? 1 : 0;
    if (rc == RC_OK) rc = read_all(read, count - skipped, words + skipped, environment, why);
    if (rc == RC_OK)
        *options = read;
    else
        options_destroy(read);
    return rc;
}

enum rc options_parse_config(enum command_id command, const char *name, const char *text,
                             size_t bytes, struct options **options, struct fault *why)
{
    struct options *read = NULL;
    enum rc rc = options_create(&read, why);

    if (rc != RC_OK) return rc;
    read->command = command;
    rc = set_defaults(read, why);
    if (rc == RC_OK) rc = options_read_config(read, name, text, bytes, why);
    if (rc == RC_OK)
        *options = read;
    else
        options_destroy(read);
    return rc;
}

void options_destroy(struct options *options)
{
    if (options == NULL) return;
    for (size_t i = 0; i < option_rows_count; i++)
        mem_free(options->values[i].text);
    for (size_t i = 0; i < options->arguments_count; i++)
        mem_free((void *)options->arguments[i]);
    mem_free(options->arguments);
    mem_free(options->values);
    mem_free(options);
}

/* --- reading back ----------------------------------------------------------------------------- */

enum command_id options_command(const struct options *options)
{
    return options->command;
}

const char *const *options_arguments(const struct options *options, size_t *count)
{
    *count = options->arguments_count;
    return options->arguments;
}

bool options_has(const struct options *options, const char *name)
{
    return option_find(options->command, name, strlen(name)) != SIZE_MAX;
}

static const struct option_value *value_of(const struct options *options, const char *name)
{
    size_t row = option_find(options->command, name, strlen(name));

    CHECK(row != SIZE_MAX);
    return &options->values[row];
}

static const struct option_value *typed(const struct options *options, const char *name,
                                        enum option_type type)
{
    const struct option_value *value = value_of(options, name);

    CHECK(option_rows[value - options->values].type == type);
    return value;
}

const char *options_text(const struct options *options, const char *name)
{
    return value_of(options, name)->text;
}

uint64_t options_count(const struct options *options, const char *name)
{
    return typed(options, name, OPTION_COUNT)->as.count;
}

double options_real(const struct options *options, const char *name)
{
    return typed(options, name, OPTION_REAL)->as.real;
}

uint64_t options_ns(const struct options *options, const char *name)
{
    return typed(options, name, OPTION_DURATION)->as.ns;
}

uint64_t options_bits_per_s(const struct options *options, const char *name)
{
    return typed(options, name, OPTION_RATE)->as.count;
}

bool options_flag(const struct options *options, const char *name)
{
    return typed(options, name, OPTION_SWITCH)->as.flag;
}

bool options_is_set(const struct options *options, const char *name)
{
    return value_of(options, name)->source != FROM_DEFAULT;
}

void options_become_peer(struct options *options)
{
    CHECK(options->command == COMMAND_JOIN);
    options->command = COMMAND_PEER;
}

enum rc options_suppose(struct options *options, const char *name, const char *text,
                        struct fault *why)
{
    CHECK(!options_is_set(options, name));
    return option_assign(options, option_find(options->command, name, strlen(name)), text,
                         FROM_PROGRAM, name, why);
}

bool options_is_supposed(const struct options *options, const char *name)
{
    return value_of(options, name)->source == FROM_PROGRAM;
}

static bool is_among(const char *name, const char *const *names)
{
    for (; *names != NULL; names++) {
        if (strcmp(*names, name) == 0) return true;
    }
    return false;
}

size_t options_forward(const struct options *options, enum command_id command,
                       const char *const *except, char **words, size_t words_max)
{
    size_t count = 0;

    for (size_t i = 0; i < option_rows_count; i++) {
        const struct option_row *row = &option_rows[i];
        const struct option_value *value = &options->values[i];
        size_t bytes;

        if (value->source == FROM_DEFAULT || row->kept == WORD_ONLY ||
            is_among(row->name, except) ||
            option_find(command, row->name, strlen(row->name)) == SIZE_MAX)
            continue;
        CHECK(count < words_max);
        bytes = strlen(row->name) + strlen(value->text) + 4;
        words[count] = mem_alloc(bytes);
        if (words[count] == NULL) {
            while (count > 0)
                mem_free(words[--count]);
            return SIZE_MAX;
        }
        snprintf(words[count++], bytes, "--%s=%s", row->name, value->text);
    }
    return count;
}
