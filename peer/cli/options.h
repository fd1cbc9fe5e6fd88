/*
 * options: what the user asked for. One table (options_table.c) names every setting: its type,
 * unit, default, help and the commands that take it. The same table reads the command line, the
 * environment (GRAPEVINE_LISTEN), a configuration file (--config run.ini) and prints --help, the
 * man page and --print-config. Precedence: flag, environment, file, default.
 */
#ifndef GRAPEVINE_PEER_CLI_OPTIONS_H
#define GRAPEVINE_PEER_CLI_OPTIONS_H

#include "base/fault.h"
#include "base/rc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum command_id {
    COMMAND_NONE, /* no command: --help, --version, --man */
    COMMAND_PEER,
    COMMAND_JOIN,
    COMMAND_TESTNET,
    COMMAND_DISTILL,
    COMMAND_COMPACT,
    COMMAND_AVERAGE,
    COMMAND_EVAL,
    COMMAND_REPORT,
    COMMAND_INSPECT,
    COMMAND_PREDICT,
    COMMAND_GENERATE,
    COMMAND_TOKENIZE,
    COMMAND_EXPORT,
    COMMAND_KEYGEN,
    COMMAND_STATUS,
    COMMAND_TOP,
    COMMAND_DOCTOR,
    COMMAND_BENCH,
    COMMAND_SIMULATE,
    COMMAND_HELP,
    COMMAND_VERSION,
    COMMAND_COMPLETION,
    COMMAND_COUNT
};

enum { OPTION_VALUE_MAX = 4096, CONFIG_BYTES_MAX = 1024 * 1024, CONFIG_LINE_MAX = 198 };

struct options;

/**
 * Read the command line (without the program's name), the environment (NULL-terminated
 * "NAME=value") and the file that --config names. Every value is checked against its type and
 * range. Errors  RC_USAGE and one line that names the flag, variable or file line, and the nearest
 * known name where one is unknown; RC_NOMEM.
 */
MUST_USE enum rc options_parse(int count, const char *const *words, const char *const *environment,
                               struct options **options, struct fault *why);
/** The same from ini text alone, `name` in messages: neither words nor environment. */
MUST_USE enum rc options_parse_config(enum command_id command, const char *name, const char *text,
                                      size_t bytes, struct options **options, struct fault *why);
void options_destroy(struct options *options);

enum command_id options_command(const struct options *options);
/** Words that are no flags: files, addresses. Borrowed. */
const char *const *options_arguments(const struct options *options, size_t *count);

/* Values by name. Asking for a name that the command in force does not take is our own mistake
 * (CHECK), and so is asking for another type. What was not given and has no default is NULL, 0 or
 * false. */
const char *options_text(const struct options *options,
                         const char *name);                              /* any type, as written */
uint64_t options_count(const struct options *options, const char *name); /* counts */
double options_real(const struct options *options, const char *name);    /* shares, factors */
uint64_t options_ns(const struct options *options, const char *name);    /* durations */
uint64_t options_bits_per_s(const struct options *options, const char *name); /* rates */
bool options_flag(const struct options *options, const char *name);           /* switches */
/** Was it given (flag, environment or file), rather than left to its default? */
bool options_is_set(const struct options *options, const char *name);
/** Does the command in force take it? For code that several commands share. */
bool options_has(const struct options *options, const char *name);

/**
 * What this command was given and `command` takes as well, as "--name=value" words, for handing on
 * to a child process. Names in `except` (NULL-terminated) are left out. Returns how many words were
 * written to `words`, each from mem_*; SIZE_MAX when out of memory (nothing is left allocated).
 */
size_t options_forward(const struct options *options, enum command_id command,
                       const char *const *except, char **words, size_t words_max);

/** All that is in force as an ini file that --config reads back; release with mem_free(). NULL:
 *  no memory. */
char *options_config_text(const struct options *options);

/**
 * Going on with an earlier run, whose config.ini is `text`: what was not given now takes the
 * earlier value, as enum option_kept has it. What has to stay and was given otherwise is RC_USAGE,
 * naming each such flag and both values. `name` is the file's name for messages.
 */
MUST_USE enum rc options_adopt(struct options *options, const char *name, const char *text,
                               size_t bytes, struct fault *why);
/** `join` is a peer once it knows whom to join and by which settings: its flags are those of
 * `peer`.
 */
void options_become_peer(struct options *options);
/** Set what was not given, as the program finds it fit. RC_USAGE where it is no value. */
MUST_USE enum rc options_suppose(struct options *options, const char *name, const char *text,
                                 struct fault *why);
/** Does its value come from options_suppose()? */
bool options_is_supposed(const struct options *options, const char *name);

/** The command of that name. RC_USAGE: there is none, and what to write instead. */
MUST_USE enum rc options_find_command(const char *word, enum command_id *command,
                                      struct fault *why);
/** --help: of `command`, or of the whole program for COMMAND_NONE. */
void options_print_help(FILE *out, enum command_id command);
/** A roff man page of everything. */
void options_print_man(FILE *out);
/** A script for the shell `name` that completes commands, flags and choices. RC_USAGE: no such
 *  shell. */
MUST_USE enum rc options_print_completion(FILE *out, const char *name, struct fault *why);

#endif
