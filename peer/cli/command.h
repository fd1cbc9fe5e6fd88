/*
 * command: what the program can do, one function a command, and what all of them need. Each takes
 * the options it was called with and returns the exit code. Results go to stdout, human-readable
 * messages to stderr.
 */
#ifndef GRAPEVINE_PEER_CLI_COMMAND_H
#define GRAPEVINE_PEER_CLI_COMMAND_H

#include "base/fault.h"
#include "base/log.h"
#include "peer/cli/options.h"
#include "peer/env/way.h"

#include <signal.h>

struct backend;
struct comparison;
struct json;
struct model_card;
struct tokenizer;

enum exit_code {
    EXIT_DONE = 0,
    EXIT_FAILED = 1,    /* it failed while running */
    EXIT_USAGE = 2,     /* wrong usage or wrong configuration */
    EXIT_INVARIANT = 3, /* something that must always hold in a testnet was broken */
    EXIT_ALARM = 4,     /* status --check: the peer runs, and something is wrong with it */
    EXIT_SIGINT = 130,  /* stopped after a clean goodbye */
    EXIT_SIGTERM = 143
};

int command_peer(struct options *options);
int command_join(struct options *options);
int command_testnet(struct options *options); /* testnet/command_testnet.c */
int command_distill(struct options *options);
int command_compact(struct options *options);
int command_average(struct options *options);
int command_eval(struct options *options);
int command_report(struct options *options); /* testnet/command_report.c */
int command_inspect(struct options *options);
int command_predict(struct options *options);
int command_generate(struct options *options);
int command_tokenize(struct options *options);
int command_export(struct options *options);
int command_keygen(struct options *options);
int command_status(struct options *options);
int command_top(struct options *options);
int command_doctor(struct options *options);
int command_bench(struct options *options);
int command_simulate(struct options *options); /* testnet/command_simulate.c */

/** Print the one error line, "grapevine: " and the reason, and choose the exit code: EXIT_USAGE for
 *  RC_USAGE and RC_PARSE, and for RC_SHAPE and RC_LIMIT of a line that begins with a flag; else
 *  EXIT_FAILED. */
int command_failed(enum rc rc, const struct fault *why);
/** It was stopped: the line is said, and the exit code is that of `signal`. */
int command_stopped(int signal, const struct fault *why);
/** The device that --device asks for, with --threads and --precision of it where the command takes
 *  them; without such a flag the processor. Release with backend_destroy(). Why `auto`
 *  took no GPU is told at level info, but that there is none only to who gave the flag. */
MUST_USE enum rc command_backend(const struct options *options, struct backend **backend,
                                 struct fault *why);
/** The processor, whatever --device says: for what only looks at models. */
MUST_USE enum rc command_host_backend(struct backend **backend, struct fault *why);
/** RC_USAGE where `out` (NULL is fine) is one of the files that are read, which would be lost, or
 *  is there and no file: a device, a pipe or a link would be replaced. */
MUST_USE enum rc command_check_out(const char *out, const char *const *inputs, size_t inputs_count,
                                   struct fault *why);
/** RC_USAGE where --labels or --tokenizer is given for --data that have no use for it. */
MUST_USE enum rc command_check_data(const struct options *options, struct fault *why);
/** The tokenizer of the model in file `path`: `given` (may be NULL), that which it states, or one
 *  beside it; NULL: there is none, and it was trained with none. Its tokens may be fewer than the
 *  model's, whose number others round up. As model_tokenizer_check() and tokenizer_open();
 *  RC_MISMATCH where they are more. */
MUST_USE enum rc command_model_tokenizer(const struct model_card *card, const char *path,
                                         const char *given, struct tokenizer **tokenizer,
                                         struct fault *why);
/** Say what became of --precision bf16. */
void command_tell_precision(const struct backend *backend, const struct log *log);
/** Who computes convolutions and attention, and why, where there was a choice. Once layers are
 * made.
 */
void command_tell_choices(struct backend *backend, const struct log *log);
/** --proxy and --dial-command, borrowed from `options`. */
struct way_flags command_way(const struct options *options);
/** Was it asked for? */
bool command_wants_bf16(const struct options *options);
/** Of a HOST:PORT: this machine and nobody else can reach it. */
bool command_is_loopback(const char *address);
/** Print one JSON object and a newline on stdout, and destroy it. */
void command_print_json(struct json *json);
/** Print rows (an array of objects, or one) on stdout: a table, or one object a line. */
void command_print_rows(const struct json *rows, bool is_json);
/** Of a greedy soup: which of the models went in. Of another average nothing. */
void command_print_chosen(const struct comparison *comparison);
/** A log on stderr at the level of --quiet and --verbose, coloured on a terminal unless NO_COLOR is
 *  set. */
struct log command_log(const struct options *options);
/** From here on the first SIGINT or SIGTERM is noted in what is returned (0: none yet); a second
 * one ends the program as usual. */
const volatile sig_atomic_t *command_watch_stop(void);

#endif
