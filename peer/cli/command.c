/* command: error lines, results and logs in the one form that all commands share. */
#include "peer/cli/command.h"

#include "base/check.h"
#include "base/cpu.h"
#include "base/json.h"
#include "base/mem.h"
#include "gossip/wire/address.h"
#include "kernels/device/device.h"
#include "peer/env/env.h"
#include "replica/formats/model_file.h"
#include "replica/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Sizes that do not fit and limits are met in files as well as on the command line; a line about
 * the latter begins with the flag, one about a file with the file. */
static bool is_wrong_usage(enum rc rc, const struct fault *why)
{
    if (rc == RC_SHAPE || rc == RC_LIMIT) return strncmp(why->text, "--", 2) == 0;
    return rc == RC_USAGE || rc == RC_PARSE;
}

int command_failed(enum rc rc, const struct fault *why)
{
    CHECK(rc != RC_OK);
    fprintf(stderr, "grapevine: %s\n", why->text[0] != '\0' ? why->text : rc_text(rc));
    return is_wrong_usage(rc, why) ? EXIT_USAGE : EXIT_FAILED;
}

int command_stopped(int signal, const struct fault *why)
{
    fprintf(stderr, "grapevine: %s\n", why->text);
    return 128 + signal;
}

struct way_flags command_way(const struct options *options)
{
    return (struct way_flags){.proxy = options_text(options, "proxy"),
                              .dial_command = options_text(options, "dial-command")};
}

bool command_wants_bf16(const struct options *options)
{
    return options_has(options, "precision") &&
           strcmp(options_text(options, "precision"), "bf16") == 0;
}

/* Methods that only the processor knows; `auto` does not stand in their way. */
static bool wants_processor(const struct options *options)
{
    static const char lbfgs[] = "lbfgs";
    const char *optimizer =
        options_has(options, "optimizer") ? options_text(options, "optimizer") : NULL;

    if (options_has(options, "hogwild") && options_count(options, "hogwild") > 0) return true;
    return optimizer != NULL && strncmp(optimizer, lbfgs, strlen(lbfgs)) == 0;
}

/* All cores, unless a flag says otherwise; threads of hogwild are its own. */
static uint32_t threads_of(const struct options *options)
{
    if (options_is_set(options, "threads")) return (uint32_t)options_count(options, "threads");
    if (options_has(options, "hogwild") && options_count(options, "hogwild") > 0) return 1;
    return cpu_cores();
}

enum rc command_backend(const struct options *options, struct backend **backend, struct fault *why)
{
    struct device_request request = {.choice = {.kind = DEVICE_CPU}, .cpu = {.threads = 1}};
    struct log log = command_log(options);
    static const char none[] = "no NVIDIA driver"; /* most machines: no news to who did not ask */
    struct fault reason = {""};
    enum rc rc = RC_OK;

    if (options_has(options, "device")) {
        rc = device_parse(options_text(options, "device"), &request.choice, why);
    }
    if (request.choice.kind == DEVICE_AUTO && wants_processor(options)) {
        request.choice.kind = DEVICE_CPU;
    }
    if (options_has(options, "threads")) request.cpu.threads = threads_of(options);
    if (command_wants_bf16(options)) request.cpu.precision = PRECISION_BF16;
    request.cpu.now_ns = uv_clock_ns;
    if (rc == RC_OK) rc = device_open(&request, backend, &reason);
    if (rc != RC_OK) return fault_set(why, rc, "%s", reason.text);
    if (reason.text[0] == '\0') return RC_OK;
    if (options_is_set(options, "device") || strncmp(reason.text, none, strlen(none)) != 0) {
        log_info(&log, "device: cpu (%s)", reason.text);
    } else {
        log_debug(&log, "device: cpu (%s)", reason.text);
    }
    return RC_OK;
}

enum rc command_host_backend(struct backend **backend, struct fault *why)
{
    const struct device_request request = {.choice = {.kind = DEVICE_CPU}, .cpu = {.threads = 1}};

    return device_open(&request, backend, why);
}

enum rc command_check_out(const char *out, const char *const *inputs, size_t inputs_count,
                          struct fault *why)
{
    struct stat to, from;

    if (out == NULL || lstat(out, &to) != 0) return RC_OK;
    if (!S_ISREG(to.st_mode) && !S_ISDIR(to.st_mode)) {
        return fault_set(why, RC_USAGE,
                         "--out %s is a %s, and a file would take its place; name a file", out,
                         S_ISLNK(to.st_mode) ? "link" : "device or a pipe");
    }
    for (size_t i = 0; i < inputs_count; i++) {
        if (stat(inputs[i], &from) != 0) continue;
        if (from.st_dev != to.st_dev || from.st_ino != to.st_ino) continue;
        return fault_set(why, RC_USAGE,
                         "--out %s is one of the files that are read, and would be overwritten; "
                         "choose another",
                         out);
    }
    return RC_OK;
}

static bool is_given(const struct options *options, const char *name)
{
    return options_has(options, name) && options_is_set(options, name);
}

enum rc command_check_data(const struct options *options, struct fault *why)
{
    const char *data = is_given(options, "data") ? options_text(options, "data") : NULL;

    if (data == NULL) return RC_OK; /* a folder, a file or the swarm says which */
    if (is_given(options, "labels") &&
        (strncmp(data, "csv:", 4) != 0 || strstr(data, ",label=") == NULL)) {
        return fault_set(why, RC_USAGE, "--labels is for --data csv:FILE,label=COLUMN");
    }
    if (is_given(options, "tokenizer") && strncmp(data, "text:", 5) != 0 &&
        strncmp(data, "tokens:", 7) != 0) {
        return fault_set(why, RC_USAGE, "--tokenizer is for --data text:FILE or tokens:FILE");
    }
    return RC_OK;
}

enum rc command_model_tokenizer(const struct model_card *card, const char *path, const char *given,
                                struct tokenizer **tokenizer, struct fault *why)
{
    struct tokenizer *opened = NULL;
    char found[MODEL_PATH_BYTES];
    struct digest digest;
    enum rc rc;

    if (!model_tokenizer_find(card, path, given, found)) {
        return model_tokenizer_check(card, path, NULL, why);
    }
    rc = tokenizer_open(found, &opened, why);
    if (rc != RC_OK) return rc;
    digest = tokenizer_digest(opened);
    rc = model_tokenizer_check(card, path, &digest, why);
    if (rc == RC_OK && tokenizer_symbols(opened) > card->symbols) {
        rc = fault_set(why, RC_MISMATCH, "%s knows %u tokens, and %s has %u; pass its own", path,
                       card->symbols, found, tokenizer_symbols(opened));
    }
    if (rc == RC_OK)
        *tokenizer = opened;
    else
        tokenizer_close(opened);
    return rc;
}

void command_tell_precision(const struct backend *backend, const struct log *log)
{
    if (!backend->is_host) {
        log_info(log, "--precision bf16: activations and products in bfloat16, parameters float32");
        return;
    }
    log_info(log, "--precision bf16: %s is used%s", cpu_backend_is_bf16(backend) ? "it" : "float32",
             strchr(cpu_backend_precision_reason(backend), ':'));
}

void command_tell_choices(struct backend *backend, const struct log *log)
{
    uint32_t times = 0;

    if (backend->is_host) return;
    for (uint32_t i = 0;; i++) {
        const char *text = backend->ops->choice(backend, i, &times);
        if (text == NULL) return;
        log_info(log, "device: %u x %s", times, text);
    }
}

bool command_is_loopback(const char *address)
{
    return strncmp(address, "localhost:", 10) == 0 || address_is_loopback(address);
}

void command_print_json(struct json *json)
{
    char *text = json_format(json);

    CHECK(text != NULL);
    puts(text);
    mem_free(text);
    json_destroy(json);
}

static void print_plain(void *context, enum log_level level, const char *line)
{
    (void)context;
    fprintf(stderr, "%s%s\n", level == LOG_ERROR ? "grapevine: " : "", line);
}

static void print_coloured(void *context, enum log_level level, const char *line)
{
    static const char *const colours[] = {[LOG_ERROR] = "\033[31m",
                                          [LOG_WARN] = "\033[33m",
                                          [LOG_INFO] = "",
                                          [LOG_DEBUG] = "\033[2m"};

    (void)context;
    fprintf(stderr, "%s%s%s\033[0m\n", colours[level], level == LOG_ERROR ? "grapevine: " : "",
            line);
}

struct log command_log(const struct options *options)
{
    const char *no_color = getenv("NO_COLOR");
    bool is_coloured = isatty(STDERR_FILENO) == 1 && (no_color == NULL || no_color[0] == '\0');
    struct log log = {.level = LOG_INFO};

    if (options_flag(options, "quiet")) log.level = LOG_ERROR;
    if (options_flag(options, "verbose")) log.level = LOG_DEBUG;
    log.on_line = is_coloured ? print_coloured : print_plain;
    return log;
}

static volatile sig_atomic_t stop_signal;

static void on_stop(int number)
{
    stop_signal = number;
}

const volatile sig_atomic_t *command_watch_stop(void)
{
    struct sigaction action = {.sa_handler = on_stop, .sa_flags = (int)(SA_RESETHAND | SA_RESTART)};

    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    return &stop_signal;
}
