/*
 * options_table: the table behind options.h, shared by its parser, its file reader and its help.
 * Nothing else includes this.
 */
#ifndef GRAPEVINE_PEER_CLI_OPTIONS_TABLE_H
#define GRAPEVINE_PEER_CLI_OPTIONS_TABLE_H

#include "peer/cli/options.h"

enum { OPTIONS_MAX = 192 };

enum option_type {
    OPTION_TEXT,
    OPTION_COUNT,
    OPTION_REAL,     /* "0.05", "1e-3", "5%" */
    OPTION_DURATION, /* "250ms", "10s", "5m"; a bare number is seconds */
    OPTION_RATE,     /* "10mbit", "1gbit"; its range is in bits a second */
    OPTION_SWITCH,   /* yes or no; on the command line its name alone means yes */
    OPTION_CHOICE,   /* one of `choices` */
    OPTION_DEVICE    /* see device_parse() */
};

enum option_group {
    GROUP_SWARM,
    GROUP_TESTNET,
    GROUP_TRAINING,
    GROUP_AVERAGING,
    GROUP_GOAL,
    GROUP_DISTILLING,
    GROUP_MEASURING,
    GROUP_USING,
    GROUP_OUTPUT,
    GROUP_SETTINGS,
    GROUP_COUNT
};

/* What a folder (--out) that is gone on with makes of the value it was begun with. */
enum option_kept {
    OF_RUN,    /* it stays: another one is refused */
    WORD_ONLY, /* --help and the like: nothing is kept, neither environment nor file can say it */
    CHANGES,   /* it stays where no other is given */
    OF_GOAL,   /* the same, but for all goals together: a new one replaces them all */
    OF_START   /* nothing is kept: it is of this start alone */
};

struct option_row {
    const char *name;
    enum option_type type;
    enum option_group group;
    unsigned commands;    /* bit 1 << command_id; rows of one name never share a command */
    const char *shape;    /* what the value looks like: "HOST:PORT", "N"; choices: "auto|cpu" */
    const char *fallback; /* the default, as one would write it; NULL: none */
    double least, most;   /* allowed range (durations in seconds); 0 and 0: no limit of its own */
    const char *help;
    enum option_kept kept;
};

struct command_row {
    const char *name;
    const char *arguments; /* "FILE [FILE ...]" */
    size_t arguments_min, arguments_max;
    const char *summary; /* one line, no full stop */
    const char *example;
    const char *text; /* a paragraph for --help and the man page; may be NULL */
};

extern const struct option_row option_rows[];
extern const size_t option_rows_count;
extern const struct command_row command_rows[COMMAND_COUNT];

const char *option_group_title(enum option_group group);

enum option_source { FROM_DEFAULT, FROM_PROGRAM, FROM_FILE, FROM_ENVIRONMENT, FROM_FLAG };

struct option_value {
    char *text; /* owned; NULL: neither given nor a default */
    enum option_source source;
    union {
        uint64_t count;
        uint64_t ns;
        double real;
        bool flag;
    } as; /* by the row's type; all zero without text */
};

struct options {
    enum command_id command;
    const char **arguments; /* owned array of owned words */
    size_t arguments_count;
    struct option_value *values; /* [option_rows_count], in the table's order */
};

/** The row of `name` for `command`; SIZE_MAX if it takes none of that name. */
size_t option_find(enum command_id command, const char *name, size_t name_length);
/** The row of `name` for any command, SIZE_MAX if there is none. */
size_t option_find_any(const char *name, size_t name_length);
/** The flag that others call `name`, or that looks most like it, among those of `command`
 *  (COMMAND_NONE: of all). NULL: none looks like it. */
const char *option_nearest(enum command_id command, const char *name);

/** Check `text` for `row` and set it, unless a stronger source has. `label` names it in messages:
 *  "--steps", "GRAPEVINE_STEPS", "run.ini:7: steps". */
MUST_USE enum rc option_assign(struct options *options, size_t row, const char *text,
                               enum option_source source, const char *label, struct fault *why);

/** Do both, each a value of `row`, mean the same? */
bool option_is_same(size_t row, const char *one, const char *other);

/** Read ini text into values of lower rank than environment and flags. */
MUST_USE enum rc options_read_config(struct options *options, const char *name, const char *text,
                                     size_t bytes, struct fault *why);

/** Of a peer: numbers for {rank}, {ranks} and {local-rank} in its texts, from the `environment` of
 *  srun, mpirun and their like. RC_USAGE: one stands there, and nobody said what it is. */
MUST_USE enum rc options_set_ranks(struct options *options, const char *const *environment,
                                   struct fault *why);

#endif
