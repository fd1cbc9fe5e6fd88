/*
 * options_completion: the table as scripts that complete command lines: commands, their flags, and
 * the values of flags that have a choice. Where a value is a file or a number, the shell's own
 * completion of files is what comes.
 */
#include "peer/cli/options_table.h"

#include <string.h>

enum { SUMMARY_LETTERS = 76 };

/* Up to where `text` is cut to be read on one line: the end of a clause, or else of a word. */
static size_t summary_length(const char *text)
{
    size_t word = 0, clause = 0;
    int depth = 0; /* of brackets */

    if (strlen(text) <= SUMMARY_LETTERS) return strlen(text);
    for (size_t i = 1; i <= SUMMARY_LETTERS; i++) {
        depth += (text[i] == '(') - (text[i] == ')');
        if (text[i] != ' ') continue;
        word = i;
        if (depth == 0 && strchr(",;:.", text[i - 1]) != NULL) clause = i - 1;
        if (text[i + 1] == '(') clause = i;
    }
    return clause > 0 ? clause : word;
}

/* Within single quotes, and letters of `escaped` behind a backslash. */
static void print_quoted(FILE *out, const char *text, size_t length, const char *escaped)
{
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '\'') {
            fputs("'\\''", out);
            continue;
        }
        if (strchr(escaped, text[i]) != NULL) fputc('\\', out);
        fputc(text[i], out);
    }
}

/* "none|sqrt|linear" as "none sqrt linear". */
static void print_words(FILE *out, const char *choices)
{
    for (; *choices != '\0'; choices++)
        fputc(*choices == '|' ? ' ' : *choices, out);
}

static bool takes(const struct option_row *row, int command)
{
    return (row->commands >> command & 1u) != 0;
}

/* What the word after `command` may be, with bars between; NULL: not one of a few. */
static const char *choices_of(const struct command_row *command)
{
    const char *words = command->arguments;

    return strchr(words, '|') != NULL && strchr(words, ' ') == NULL ? words : NULL;
}

static void print_commands(FILE *out)
{
    for (int i = COMMAND_NONE + 1; i < COMMAND_COUNT; i++)
        fprintf(out, "%s%s", i > COMMAND_NONE + 1 ? " " : "", command_rows[i].name);
}

/* --- bash ------------------------------------------------------------------------------------- */

static void print_bash_command(FILE *out, int command)
{
    const struct command_row *row = &command_rows[command];

    fprintf(out, "    %s)\n        flags='", row->name);
    for (size_t i = 0; i < option_rows_count; i++) {
        if (takes(&option_rows[i], command)) fprintf(out, "--%s ", option_rows[i].name);
    }
    fputs("'\n", out);
    if (command == COMMAND_HELP) fputs("        words=$commands\n", out);
    if (choices_of(row) != NULL) {
        fputs("        words='", out);
        print_words(out, choices_of(row));
        fputs("'\n", out);
    }
    fputs("        case $before in\n", out);
    for (size_t i = 0; i < option_rows_count; i++) {
        const struct option_row *option = &option_rows[i];

        if (!takes(option, command) || option->type != OPTION_CHOICE) continue;
        fprintf(out, "        --%s) values='", option->name);
        print_words(out, option->shape);
        fputs("' ;;\n", out);
    }
    fputs("        esac ;;\n", out);
}

static void print_bash(FILE *out)
{
    fputs("# bash completion of grapevine: source <(grapevine completion bash)\n"
          "_grapevine() {\n"
          "    local now=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}\n"
          "    local flags='' words='' values='' commands='",
          out);
    print_commands(out);
    fputs(
        "'\n"
        "    COMPREPLY=()\n"
        "    if [ \"$COMP_CWORD\" = 1 ]; then\n"
        "        mapfile -t COMPREPLY < <(compgen -W \"$commands --help --version\" -- \"$now\")\n"
        "        return\n"
        "    fi\n"
        "    if [ \"$now\" = = ]; then now= && before=${COMP_WORDS[COMP_CWORD - 1]}; fi\n"
        "    if [ \"$before\" = = ]; then before=${COMP_WORDS[COMP_CWORD - 2]}; fi\n"
        "    case ${COMP_WORDS[1]} in\n",
        out);
    for (int i = COMMAND_NONE + 1; i < COMMAND_COUNT; i++)
        print_bash_command(out, i);
    fputs("    esac\n"
          "    if [ -n \"$values\" ]; then\n"
          "        mapfile -t COMPREPLY < <(compgen -W \"$values\" -- \"$now\")\n"
          "    elif [ \"${now:0:1}\" = - ]; then\n"
          "        mapfile -t COMPREPLY < <(compgen -W \"$flags\" -- \"$now\")\n"
          "    elif [ \"$COMP_CWORD\" = 2 ] && [ -n \"$words\" ]; then\n"
          "        mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$now\")\n"
          "    fi\n"
          "}\n"
          "complete -o default -F _grapevine grapevine\n",
          out);
}

/* --- zsh -------------------------------------------------------------------------------------- */

static bool takes_file(const struct option_row *row)
{
    return strstr(row->shape, "FILE") != NULL || strstr(row->shape, "DIR") != NULL;
}

static void print_zsh_option(FILE *out, const struct option_row *row)
{
    fprintf(out, " \\\n        '--%s%s[", row->name, row->type == OPTION_SWITCH ? "" : "=");
    print_quoted(out, row->help, summary_length(row->help), "[]\\");
    fputc(']', out);
    if (row->type == OPTION_CHOICE) {
        fputs(":value:(", out);
        print_words(out, row->shape);
        fputc(')', out);
    } else if (row->type != OPTION_SWITCH) {
        fputc(':', out);
        print_quoted(out, row->shape, strlen(row->shape), ":[]\\");
        fputs(takes_file(row) ? ":_files" : ":", out);
    }
    fputc('\'', out);
}

static void print_zsh(FILE *out)
{
    fputs("#compdef grapevine\n_grapevine() {\n    local -a commands\n    commands=(\n", out);
    for (int i = COMMAND_NONE + 1; i < COMMAND_COUNT; i++) {
        fprintf(out, "        '%s:", command_rows[i].name);
        print_quoted(out, command_rows[i].summary, strlen(command_rows[i].summary), ":\\");
        fputs("'\n", out);
    }
    fputs(
        "    )\n    if (( CURRENT == 2 )); then\n        _describe command commands\n"
        "        return\n    fi\n    shift words\n    (( CURRENT -= 1 ))\n    case $words[1] in\n",
        out);
    for (int i = COMMAND_NONE + 1; i < COMMAND_COUNT; i++) {
        const char *choices = choices_of(&command_rows[i]);

        fprintf(out, "    %s) _arguments", command_rows[i].name);
        for (size_t j = 0; j < option_rows_count; j++) {
            if (takes(&option_rows[j], i)) print_zsh_option(out, &option_rows[j]);
        }
        fputs(" \\\n        '*:word:", out);
        if (choices != NULL || i == COMMAND_HELP) fputc('(', out);
        if (choices != NULL) print_words(out, choices);
        if (i == COMMAND_HELP) print_commands(out);
        fputs(choices != NULL || i == COMMAND_HELP ? ")' ;;\n" : "_files' ;;\n", out);
    }
    fputs("    esac\n}\nif [[ $funcstack[1] == _grapevine ]]; then _grapevine \"$@\"\n"
          "else compdef _grapevine grapevine\nfi\n",
          out);
}

/* --- fish ------------------------------------------------------------------------------------- */

static void print_fish_option(FILE *out, const char *command, const struct option_row *row)
{
    fprintf(out, "complete -c grapevine -n '__fish_seen_subcommand_from %s' -l %s", command,
            row->name);
    if (row->type == OPTION_CHOICE) {
        fputs(" -x -a '", out);
        print_words(out, row->shape);
        fputc('\'', out);
    } else if (row->type != OPTION_SWITCH) {
        fputs(" -r", out);
    }
    fputs(" -d '", out);
    print_quoted(out, row->help, summary_length(row->help), "\\");
    fputs("'\n", out);
}

static void print_fish(FILE *out)
{
    for (int i = COMMAND_NONE + 1; i < COMMAND_COUNT; i++) {
        const struct command_row *row = &command_rows[i];

        fprintf(out, "complete -c grapevine -f -n __fish_use_subcommand -a %s -d '", row->name);
        print_quoted(out, row->summary, strlen(row->summary), "\\");
        fputs("'\n", out);
        if (choices_of(row) != NULL || i == COMMAND_HELP) {
            fprintf(out, "complete -c grapevine -f -n '__fish_seen_subcommand_from %s' -a '",
                    row->name);
            if (i == COMMAND_HELP) print_commands(out);
            if (choices_of(row) != NULL) print_words(out, choices_of(row));
            fputs("'\n", out);
        }
        for (size_t j = 0; j < option_rows_count; j++) {
            if (takes(&option_rows[j], i)) print_fish_option(out, row->name, &option_rows[j]);
        }
    }
}

/* --- the whole -------------------------------------------------------------------------------- */

enum rc options_print_completion(FILE *out, const char *name, struct fault *why)
{
    static const struct {
        const char *name;
        void (*print)(FILE *out);
    } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};

    for (size_t i = 0; i < sizeof shells / sizeof shells[0]; i++) {
        if (strcmp(shells[i].name, name) != 0) continue;
        shells[i].print(out);
        return RC_OK;
    }
    return fault_set(why, RC_USAGE, "completion %.40s: there is none; write bash, zsh or fish",
                     name);
}
