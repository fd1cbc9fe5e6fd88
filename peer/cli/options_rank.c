/*
 * options_rank: {rank}, {ranks} and {local-rank} in what a peer is told stand for the numbers that
 * the program which started it gave it: one command line then starts all of them, as in
 * `srun grapevine peer --shard-of {rank}/{ranks} --out run/{rank}`. The folder keeps the numbers,
 * so that a later start without a launcher is the same peer's.
 */
#include "peer/cli/options_table.h"

#include "base/check.h"
#include "base/mem.h"
#include "base/units.h"

#include <stdio.h>
#include <string.h>

enum { WORDS = 3, RANKS_MAX = 1000000, DIGITS_BYTES = 24, LABEL_BYTES = 160, SHOWN_MAX = 80 };

static const char *const words[WORDS] = {"{rank}", "{ranks}", "{local-rank}"};

/* The innermost first: what mpirun starts in a job of Slurm has numbers of both. */
static const char *const launchers[][WORDS] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"}, /* Open MPI */
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},               /* MPICH, Intel MPI */
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"}, /* srun; a batch script is no step */
    {"RANK", "WORLD_SIZE", "LOCAL_RANK"},                      /* torchrun */
    {"JOB_COMPLETION_INDEX", NULL, NULL},                      /* an Indexed Job of Kubernetes */
};

static const char *variable_of(const char *const *environment, const char *name)
{
    size_t length = name == NULL ? 0 : strlen(name);

    for (; length > 0 && *environment != NULL; environment++) {
        if (strncmp(*environment, name, length) == 0 && (*environment)[length] == '=') {
            return *environment + length + 1;
        }
    }
    return NULL;
}

/* The numbers of whoever started this process, as digits; "" for one that it does not say. */
static bool find_numbers(const char *const *environment, char numbers[WORDS][DIGITS_BYTES])
{
    for (size_t i = 0; i < ARRAY_COUNT(launchers); i++) {
        uint64_t value[WORDS] = {0, UINT64_MAX, 0};

        for (size_t at = 0; at < WORDS; at++) {
            const char *text = variable_of(environment, launchers[i][at]);
            const bool is_count = text != NULL && units_parse_count(text, &value[at]);

            numbers[at][0] = '\0';
            if (!is_count || value[at] > RANKS_MAX) continue;
            snprintf(numbers[at], DIGITS_BYTES, "%llu", (unsigned long long)value[at]);
        }
        if (launchers[i][1] != NULL && numbers[1][0] == '\0') continue;
        if (numbers[0][0] != '\0' && value[0] < value[1]) return true;
    }
    return false;
}

/* `text` with numbers for words into `out`. RC_USAGE: a word stands in it that has none. */
static enum rc replace(const char *text, char numbers[WORDS][DIGITS_BYTES], char *out, size_t cap,
                       const char *label, struct fault *why)
{
    size_t used = 0;

    while (*text != '\0') {
        size_t at = 0, length;

        while (at < WORDS && strncmp(text, words[at], strlen(words[at])) != 0)
            at++;
        if (at < WORDS && numbers[at][0] == '\0')
            return fault_set(why, RC_USAGE,
                             "%s: nobody told this process what %s is; start it with srun or "
                             "mpirun, or write the number",
                             label, words[at]);
        length = at < WORDS ? strlen(numbers[at]) : 1;
        if (used + length >= cap)
            return fault_set(why, RC_USAGE, "%s: the value is longer than %zu bytes; shorten it",
                             label, cap - 1);
        memcpy(out + used, at < WORDS ? numbers[at] : text, length);
        used += length;
        text += at < WORDS ? strlen(words[at]) : 1;
    }
    out[used] = '\0';
    return RC_OK;
}

static bool has_word(const char *text)
{
    for (size_t at = 0; at < WORDS; at++) {
        if (strstr(text, words[at]) != NULL) return true;
    }
    return false;
}

enum rc options_set_ranks(struct options *options, const char *const *environment,
                          struct fault *why)
{
    char numbers[WORDS][DIGITS_BYTES], text[OPTION_VALUE_MAX + 1], label[LABEL_BYTES];

    if (options->command != COMMAND_PEER && options->command != COMMAND_JOIN) return RC_OK;
    if (!find_numbers(environment, numbers)) memset(numbers, 0, sizeof numbers);
    for (size_t i = 0; i < option_rows_count; i++) {
        struct option_value *value = &options->values[i];
        enum rc rc;

        if (option_rows[i].type != OPTION_TEXT || value->text == NULL || !has_word(value->text))
            continue;
        snprintf(label, sizeof label, "--%s %.*s", option_rows[i].name, SHOWN_MAX, value->text);
        rc = replace(value->text, numbers, text, sizeof text, label, why);
        if (rc == RC_OK) rc = option_assign(options, i, text, value->source, label, why);
        if (rc != RC_OK) return rc;
    }
    return RC_OK;
}
