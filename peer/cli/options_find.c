/* options_find: rows of the table by name, and the nearest name where there is none. */
#include "peer/cli/options_table.h"

#include "base/check.h"
#include "base/words.h"

#include <string.h>

static bool is_named(const struct option_row *row, const char *name, size_t length)
{
    return strlen(row->name) == length && memcmp(row->name, name, length) == 0;
}

size_t option_find(enum command_id command, const char *name, size_t name_length)
{
    for (size_t i = 0; i < option_rows_count; i++) {
        const struct option_row *row = &option_rows[i];

        if ((row->commands >> command & 1u) != 0 && is_named(row, name, name_length)) return i;
    }
    return SIZE_MAX;
}

size_t option_find_any(const char *name, size_t name_length)
{
    for (size_t i = 0; i < option_rows_count; i++) {
        if (is_named(&option_rows[i], name, name_length)) return i;
    }
    return SIZE_MAX;
}

const char *option_nearest(enum command_id command, const char *name)
{
    static const struct word_synonym synonyms[] = {
        {"learning-rate", "lr"},
        {"batch-size", "batch"},
        {"dataset", "data"},
        {"method", "averaging"},
        {"strategy", "averaging"},
        {"compression", "codec"},
        {"port", "listen"},
        {"join", "bootstrap"},
        {"connect", "bootstrap"},
        {"initial-peers", "bootstrap"},
        {"key", "swarm-key"},
        {"name", "swarm-name"},
        {"output", "out"},
        {"dir", "out"},
        {"gpu", "device"},
        {"workers", "threads"},
        {"num-workers", "threads"},
        {"nproc", "peers"},
        {"vocab", "tokenizer"},
        {"nucleus", "top-p"},
        {"max-steps", "steps"},
        {"duration", "time"},
        {"checkpoint", "init"},
        {"pretrained", "init"},
        {NULL, NULL},
    };
    const char *names[OPTIONS_MAX], *ours = word_synonym(name, synonyms);
    size_t count = 0;

    CHECK(option_rows_count <= OPTIONS_MAX);
    for (size_t i = 0; i < option_rows_count; i++) {
        const struct option_row *row = &option_rows[i];

        if (command != COMMAND_NONE && (row->commands >> command & 1u) == 0) continue;
        if (ours != NULL && strcmp(row->name, ours) == 0) return ours;
        names[count++] = row->name;
    }
    return word_nearest(name, names, count);
}

static enum rc unknown_command(const char *word, struct fault *why)
{
    static const struct word_synonym synonyms[] = {
        {"train", "peer"},
        {"run", "peer"},
        {"start", "peer"},
        {"worker", "peer"},
        {"serve", "peer"},
        {"server", "peer"},
        {"client", "peer"},
        {"init", "peer"},
        {"hivemind", "peer"},
        {"flower", "peer"},
        {"gossip", "peer --averaging ad-psgd"},
        {"connect", "join"},
        {"launch", "testnet"},
        {"swarm", "testnet"},
        {"quickstart", "testnet"},
        {"test", "eval"},
        {"evaluate", "eval"},
        {"infer", "predict"},
        {"merge", "average"},
        {"convert", "export"},
        {"quantize", "compact"},
        {"quantise", "compact"},
        {"prune", "compact"},
        {"compress", "compact"},
        {"show", "inspect"},
        {"info", "inspect"},
        {"sample", "generate"},
        {"encode", "tokenize"},
        {"tokenise", "tokenize"},
        {"chat", "generate"},
        {"watch", "top"},
        {"monitor", "top"},
        {"key", "keygen"},
        {"benchmark", "bench"},
        {"sim", "simulate"},
        {"check", "doctor"},
        {"man", "--man"},
        {"ddp", "peer --averaging allreduce"},
        {"fedavg", "peer --averaging local-sgd"},
        {"mnist", "peer --data idx:DIR"},
        {NULL, NULL},
    };
    const char *names[COMMAND_COUNT], *ours = word_synonym(word, synonyms), *nearest;

    for (int i = COMMAND_NONE + 1; i < COMMAND_COUNT; i++)
        names[i - 1] = command_rows[i].name;
    nearest = word_nearest(word, names, COMMAND_COUNT - 1);
    if (ours != NULL || nearest != NULL)
        return fault_set(
            why, RC_USAGE, "unknown command %.80s: %s %s; 'grapevine help' lists the commands",
            word, ours != NULL ? "write grapevine" : "did you mean", ours != NULL ? ours : nearest);
    return fault_set(why, RC_USAGE, "unknown command %.80s; 'grapevine help' lists the commands",
                     word);
}

enum rc options_find_command(const char *word, enum command_id *command, struct fault *why)
{
    for (int i = COMMAND_NONE + 1; i < COMMAND_COUNT; i++) {
        if (strcmp(word, command_rows[i].name) != 0) continue;
        *command = (enum command_id)i;
        return RC_OK;
    }
    return unknown_command(word, why);
}
