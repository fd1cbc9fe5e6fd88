/* options_help: the table in words, for a terminal (--help) and as a manual page (--man). */
#include "peer/cli/options_table.h"

#include "base/check.h"

#include "version.h"

#include <ctype.h>
#include <string.h>

enum { HELP_COLUMNS = 80, HELP_INDENT = 26, KEPT_BYTES = 1200 };

/* From nothing to a model of two machines, in the order in which they are typed. */
static const char *const story[] = {
    "grapevine testnet --peers 4 --data digits --time 30s",
    "grapevine keygen --swarm-key --out swarm.key",
    "grapevine peer --swarm-key swarm.key --data csv:a.csv,label=kind --shard all --out a",
    "grapevine join 192.0.2.7:7077 --swarm-key swarm.key --data csv:b.csv,label=kind --out b",
    "grapevine status 192.0.2.7:7077 --swarm-key swarm.key",
    "grapevine predict a/model.safetensors --input new.csv",
};

/* --- --help ----------------------------------------------------------------------------------- */

/** Print words of `text`, wrapped, beginning at `column`. Returns the column it ends at. */
static size_t print_wrapped(FILE *out, const char *text, size_t column, size_t indent)
{
    while (*text != '\0') {
        size_t word = strcspn(text, " ");

        if (column > indent && column + 1 + word > HELP_COLUMNS) {
            fprintf(out, "\n%*s", (int)indent, "");
            column = indent;
        } else if (column > indent) {
            fputc(' ', out);
            column++;
        }
        fprintf(out, "%.*s", (int)word, text);
        column += word;
        text += word;
        text += strspn(text, " ");
    }
    return column;
}

static void print_option(FILE *out, const struct option_row *row)
{
    char text[96];
    int used = snprintf(text, sizeof(text), "  --%s%s%s", row->name, row->shape != NULL ? " " : "",
                        row->shape != NULL ? row->shape : "");
    size_t column;

    CHECK(used > 0 && (size_t)used < sizeof(text));
    if (used >= HELP_INDENT - 1)
        fprintf(out, "%s\n%*s", text, HELP_INDENT, "");
    else
        fprintf(out, "%-*s", HELP_INDENT, text);
    column = print_wrapped(out, row->help, HELP_INDENT, HELP_INDENT);
    if (row->fallback != NULL) {
        snprintf(text, sizeof(text), "(default %s)", row->fallback);
        print_wrapped(out, text, column, HELP_INDENT);
    }
    fputc('\n', out);
}

static void print_group(FILE *out, enum command_id command, enum option_group group)
{
    bool is_titled = false;

    for (size_t i = 0; i < option_rows_count; i++) {
        const struct option_row *row = &option_rows[i];

        if (row->group != group || (row->commands >> command & 1u) == 0) continue;
        if (!is_titled) fprintf(out, "\n%s\n", option_group_title(group));
        is_titled = true;
        print_option(out, row);
    }
}

/* "--steps, --epochs" of `kept`, in the table's order. */
static void list_kept(enum option_kept kept, char *text, size_t cap)
{
    size_t used = 0;

    text[0] = '\0';
    for (size_t i = 0; i < option_rows_count; i++) {
        const struct option_row *row = &option_rows[i];
        int length;

        if ((row->commands >> COMMAND_PEER & 1u) == 0 || row->kept != kept) continue;
        length = snprintf(text + used, cap - used, "%s--%s", used == 0 ? "" : ", ", row->name);
        CHECK(length > 0 && (size_t)length < cap - used);
        used += (size_t)length;
    }
}

/* What a folder does with flags that are given again: from the table, as options_adopt() has it. */
static void kept_text(char text[KEPT_BYTES])
{
    char changes[KEPT_BYTES / 2], goals[KEPT_BYTES / 8], start[KEPT_BYTES / 8];

    list_kept(CHANGES, changes, sizeof changes);
    list_kept(OF_GOAL, goals, sizeof goals);
    list_kept(OF_START, start, sizeof start);
    snprintf(text, KEPT_BYTES,
             "A folder given as --out keeps all flags in config.ini, and a later start with it has "
             "them again. These may then be given again: %s. A new goal (%s) replaces all earlier "
             "ones. Not kept: %s. All others must be what they were.",
             changes, goals, start);
}

static void print_overview(FILE *out)
{
    fprintf(out,
            "grapevine trains one neural network across many machines, with no coordinator.\n\n"
            "Usage: grapevine COMMAND [--flag VALUE ...]\n\nCommands\n");
    for (int i = COMMAND_NONE + 1; i < COMMAND_COUNT; i++)
        fprintf(out, "  %-11s %s\n", command_rows[i].name, command_rows[i].summary);
    print_group(out, COMMAND_NONE, GROUP_SETTINGS);
    fprintf(out, "\nEach flag can also stand in the environment (GRAPEVINE_LISTEN for --listen) or "
                 "in a\nfile (--config). 'grapevine help COMMAND' lists the flags of a command.\n"
                 "\nExamples\n");
    for (size_t i = 0; i < ARRAY_COUNT(story); i++)
        fprintf(out, "  %s\n", story[i]);
}

/* One a line. */
static void print_examples(FILE *out, const char *text)
{
    fprintf(out, "\nExample%s\n", strchr(text, '\n') != NULL ? "s" : "");
    for (;; text++) {
        size_t length = strcspn(text, "\n");

        fprintf(out, "  %.*s\n", (int)length, text);
        text += length;
        if (*text == '\0') break;
    }
}

void options_print_help(FILE *out, enum command_id command)
{
    const struct command_row *row = &command_rows[command];
    char kept[KEPT_BYTES];

    if (command == COMMAND_NONE) {
        print_overview(out);
        return;
    }
    fprintf(out, "Usage: grapevine %s%s%s [--flag VALUE ...]\n\n", row->name,
            row->arguments[0] != '\0' ? " " : "", row->arguments);
    fprintf(out, "%c%s.\n", toupper((unsigned char)row->summary[0]), row->summary + 1);
    if (row->text != NULL) {
        fputc('\n', out);
        print_wrapped(out, row->text, 0, 0);
        fputc('\n', out);
    }
    for (int group = 0; group < GROUP_COUNT; group++)
        print_group(out, command, (enum option_group)group);
    if (command == COMMAND_PEER) {
        kept_text(kept);
        fputs("\nGoing on with a folder\n", out);
        print_wrapped(out, kept, 0, 0);
        fputc('\n', out);
    }
    print_examples(out, row->example);
}

/* --- --man ------------------------------------------------------------------------------------ */

/** Text with what roff would read as its own made harmless. */
static void print_roff(FILE *out, const char *text)
{
    for (const char *at = text; *at != '\0'; at++) {
        bool starts_line = at == text || at[-1] == '\n';

        if (starts_line && (*at == '.' || *at == '\'')) fputs("\\&", out);
        if (*at == '-')
            fputs("\\-", out);
        else if (*at == '\\')
            fputs("\\e", out);
        else
            fputc(*at, out);
    }
}

static void print_man_option(FILE *out, const struct option_row *row)
{
    fputs(".TP\n\\fB\\-\\-", out);
    print_roff(out, row->name);
    fputs("\\fR", out);
    if (row->shape != NULL) {
        fputs(" \\fI", out);
        print_roff(out, row->shape);
        fputs("\\fR", out);
    }
    fputc('\n', out);
    print_roff(out, row->help);
    if (row->fallback != NULL) {
        fputs(" (default ", out);
        print_roff(out, row->fallback);
        fputc(')', out);
    }
    fputc('\n', out);
}

static void print_man_command(FILE *out, const struct command_row *command, int id)
{
    char kept[KEPT_BYTES];

    fprintf(out, ".SS grapevine %s", command->name);
    if (command->arguments[0] != '\0') fputc(' ', out);
    print_roff(out, command->arguments);
    fputc('\n', out);
    fputc(toupper((unsigned char)command->summary[0]), out);
    print_roff(out, command->summary + 1);
    fputs(".\n", out);
    if (command->text != NULL) {
        print_roff(out, command->text);
        fputc('\n', out);
    }
    for (int group = 0; group < GROUP_SETTINGS; group++) {
        for (size_t i = 0; i < option_rows_count; i++) {
            const struct option_row *row = &option_rows[i];

            if ((int)row->group == group && (row->commands >> id & 1u) != 0)
                print_man_option(out, row);
        }
    }
    if (id == COMMAND_PEER) {
        kept_text(kept);
        fputs(".PP\n", out);
        print_roff(out, kept);
        fputc('\n', out);
    }
    fputs(".PP\nExample:\n.PP\n.RS\n.nf\n", out);
    print_roff(out, command->example);
    fputs("\n.fi\n.RE\n", out);
}

/* What a peer's --out holds. */
static void print_man_files(FILE *out)
{
    static const struct {
        const char *name, *what;
    } files[] = {
        {"model.safetensors", "the model as it was last saved, with all that is needed to use it"},
        {"state.safetensors", "the rest of the checkpoint: optimizer, averaging, random streams"},
        {"config.ini", "all flags; a later start with the same --out has them again. Of keys it "
                       "holds the files' names"},
        {"identity.key", "who this peer is; nobody else may read it"},
        {"swarm.json", "whom this peer knows, for rejoining"},
        {"metrics.jsonl", "an object a report"},
        {"log.txt, log.txt.1", "what it said; the part before that"},
        {"ema.safetensors", "with --ema: the mean of the parameters over time"},
        {"state.before.safetensors, model.before.safetensors",
         "a model that was given up for the swarm's"},
        {"deny.list", "the newest list of keys that are shut out"},
        {"lock", "held by the peer that runs"},
    };

    fputs(".SH FILES\nIn the folder that --out names:\n", out);
    for (size_t i = 0; i < ARRAY_COUNT(files); i++) {
        fprintf(out, ".TP\n.I %s\n", files[i].name);
        print_roff(out, files[i].what);
        fputc('\n', out);
    }
}

void options_print_man(FILE *out)
{
    fputs(
        ".TH GRAPEVINE 1 \"\" \"grapevine " GRAPEVINE_VERSION "\"\n.SH NAME\n"
        "grapevine \\- decentralized training of neural networks\n.SH SYNOPSIS\n"
        ".B grapevine\n.I COMMAND\n[\\-\\-flag VALUE ...]\n.SH DESCRIPTION\n"
        "Peers train copies of one model on their own data, find each other and average what they "
        "learned, with no machine in charge.\n.SH COMMANDS\n",
        out);
    for (int i = COMMAND_NONE + 1; i < COMMAND_COUNT; i++)
        print_man_command(out, &command_rows[i], i);
    fputs(".SH FLAGS OF EVERY COMMAND\n", out);
    for (size_t i = 0; i < option_rows_count; i++) {
        if (option_rows[i].group == GROUP_SETTINGS) print_man_option(out, &option_rows[i]);
    }
    fputs(".SH ENVIRONMENT\nGRAPEVINE_NAME_OF_FLAG sets a flag; a flag on the command line is "
          "stronger, a configuration file weaker. GRAPEVINE_CPU limits the instruction set: "
          "baseline, "
          "avx2, avx512 or amx. NO_COLOR keeps colours off.\n",
          out);
    print_man_files(out);
    fputs(
        ".SH EXIT STATUS\n"
        "0 done; 1 it failed while running, or a peer never averaged although others were linked; "
        "2 wrong usage or configuration; 3 something that must always hold in a testnet was "
        "broken; "
        "4 status --check: the peer runs, and something is wrong with it; 130, 143 stopped by "
        "SIGINT, SIGTERM.\n.SH EXAMPLES\n.nf\n",
        out);
    for (size_t i = 0; i < ARRAY_COUNT(story); i++) {
        print_roff(out, story[i]);
        fputc('\n', out);
    }
    fputs(".fi\n.SH SEE ALSO\nREADME.md and the pages in docs/, installed with the program: "
          "two_machines.md, own_data.md, training.md (models, data), text.md, gpu.md, methods.md "
          "(averaging), consolidation.md (several models), network.md, admission.md, security.md, "
          "testnet.md, simulate.md, json.md, glossary.md.\n",
          out);
}
