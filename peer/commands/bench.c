/*
 * command_bench: measures one part of the program: a table for people, with --json one object a
 * row. Each kind takes only the flags that mean something to it.
 */
#include "peer/cli/command.h"

#include "base/check.h"
#include "base/cpu.h"
#include "base/json.h"
#include "base/mem.h"
#include "kernels/device/device.h"
#include "peer/bench/averaging.h"
#include "peer/bench/codecs.h"
#include "peer/bench/kernels.h"
#include "peer/bench/network.h"
#include "peer/bench/train.h"
#include "peer/env/env.h"

#include <stdlib.h>
#include <string.h>

struct kind {
    const char *name;
    const char *const *flags; /* NULL-terminated: which of bench's own it takes */
    /** `rows` is a fresh array, or one fresh object. */
    enum rc (*run)(const struct options *options, const struct bench_clock *clock,
                   struct json **rows, struct fault *why);
};

enum { DEVICE_TEXT_BYTES = 160 };

/* And what rows call it. */
static enum rc open_device(const struct options *options, struct backend **backend,
                           char text[DEVICE_TEXT_BYTES], struct fault *why)
{
    struct device_choice choice;
    enum rc rc = device_parse(options_text(options, "device"), &choice, why);

    if (rc == RC_OK) rc = command_backend(options, backend, why);
    if (rc != RC_OK) return rc;
    device_describe(&choice, *backend, text, DEVICE_TEXT_BYTES);
    return RC_OK;
}

static enum rc run_train(const struct options *options, const struct bench_clock *clock,
                         struct json **rows, struct fault *why)
{
    struct log log = command_log(options);
    struct json *profile = NULL;
    bool is_json = options_flag(options, "json");
    char device[DEVICE_TEXT_BYTES];
    struct bench_train_options request = {
        .clock = *clock,
        .device = device,
        .model = options_text(options, "model"),
        .batch = (uint32_t)options_count(options, "batch"),
        .seconds = options_real(options, "seconds"),
        .forward_alone = options_flag(options, "forward"),
        .profile = options_flag(options, "profile") ? &profile : NULL,
    };
    enum rc rc = open_device(options, &request.backend, device, why);

    if (rc != RC_OK) return rc;
    if (command_wants_bf16(options)) command_tell_precision(request.backend, &log);
    rc = bench_train(&request, rows, why);
    if (rc == RC_OK) command_tell_choices(request.backend, &log);
    backend_destroy(request.backend);
    if (rc != RC_OK || profile == NULL) return rc;
    command_print_rows(*rows, is_json); /* the speed first, then where the time went */
    if (!is_json) putchar('\n');
    json_destroy(*rows);
    *rows = profile;
    return rc;
}

static enum rc run_kernels(const struct options *options, const struct bench_clock *clock,
                           struct json **rows, struct fault *why)
{
    char device[DEVICE_TEXT_BYTES];
    struct bench_kernels_options request = {
        .clock = *clock,
        .device = device,
        .seconds = options_real(options, "seconds"),
    };
    enum rc rc = open_device(options, &request.backend, device, why);

    if (rc == RC_OK && request.backend->is_host && command_wants_bf16(options)) {
        rc = fault_set(why, RC_USAGE,
                       "--precision bf16: on the CPU 'bench kernels' measures float32; use "
                       "'bench train', or --device cuda");
    }
    if (rc == RC_OK) rc = bench_kernels(&request, rows, why);
    backend_destroy(request.backend);
    return rc;
}

static enum rc run_codecs(const struct options *options, const struct bench_clock *clock,
                          struct json **rows, struct fault *why)
{
    struct bench_codecs_options request = {
        .clock = *clock,
        .values = options_count(options, "values"),
    };

    return bench_codecs(&request, rows, why);
}

static enum rc run_network(const struct options *options, const struct bench_clock *clock,
                           struct json **rows, struct fault *why)
{
    struct bench_network_options request = {.seconds = options_real(options, "seconds")};

    (void)clock; /* it has two envs, and their clocks */
    return bench_network(&request, rows, why);
}

static enum rc run_averaging(const struct options *options, const struct bench_clock *clock,
                             struct json **rows, struct fault *why)
{
    const char *role = getenv(BENCH_PEER_VARIABLE); /* one of its own children? */
    struct bench_averaging_options request = {
        .peers = (uint32_t)options_count(options, "peers"),
        .group = (uint32_t)options_count(options, "group"),
        .rounds = (uint32_t)options_count(options, "rounds"),
        .values = options_count(options, "values"),
        .codec = options_text(options, "codec"),
        .exchange = options_text(options, "exchange"),
        .is_grid = options_flag(options, "grid"),
        .is_clear = options_flag(options, "insecure-loopback"),
    };

    (void)clock; /* the peers take the time */
    if (request.group > request.peers) {
        if (role == NULL && options_is_set(options, "group")) {
            return fault_set(why, RC_USAGE, "--group %u: there are %u peers; say --peers or less",
                             request.group, request.peers);
        }
        request.group = request.peers;
    }
    if (role == NULL) return bench_averaging(&request, rows, why);
    *rows = NULL;
    return bench_averaging_peer(&request, role, why);
}

static const char *const train_flags[] = {"model",   "batch",   "threads", "device", "precision",
                                          "seconds", "profile", "forward", NULL};
static const char *const kernels_flags[] = {"threads", "device", "precision", "seconds", NULL};

static const char *const codecs_flags[] = {"values", NULL};
static const char *const network_flags[] = {"seconds", NULL};
static const char *const averaging_flags[] = {
    "values", "peers", "group", "rounds", "codec", "exchange", "grid", "insecure-loopback", NULL};

static const struct kind kinds[] = {
    {"train", train_flags, run_train},
    {"kernels", kernels_flags, run_kernels},
    {"codecs", codecs_flags, run_codecs},
    {"network", network_flags, run_network},
    {"averaging", averaging_flags, run_averaging},
};

static enum rc find_kind(const char *name, const struct kind **kind, struct fault *why)
{
    char known[128] = "";

    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++) {
        size_t used = strlen(known);

        if (strcmp(kinds[i].name, name) == 0) {
            *kind = &kinds[i];
            return RC_OK;
        }
        snprintf(known + used, sizeof(known) - used, "%s%s", i > 0 ? ", " : "", kinds[i].name);
    }
    return fault_set(why, RC_USAGE, "bench %.60s: there is no such benchmark; choose among %s",
                     name, known);
}

static bool takes(const struct kind *kind, const char *flag)
{
    for (size_t i = 0; kind->flags[i] != NULL; i++) {
        if (strcmp(kind->flags[i], flag) == 0) return true;
    }
    return false;
}

/** No flag may be given that this kind would ignore. */
static enum rc check_flags(const struct options *options, const struct kind *kind,
                           struct fault *why)
{
    static const char *const all[] = {
        "model",  "batch", "threads", "device", "precision", "seconds",  "values",
        "peers",  "group", "rounds",  "codec",  "profile",   "exchange", "insecure-loopback",
        "forward"};

    for (size_t i = 0; i < ARRAY_COUNT(all); i++) {
        if (options_is_set(options, all[i]) && !takes(kind, all[i]))
            return fault_set(why, RC_USAGE, "--%s: means nothing to 'bench %s'; leave it out",
                             all[i], kind->name);
    }
    return RC_OK;
}

/* --- the command ------------------------------------------------------------------------------ */

/* On stderr: it is of all rows alike. */
static void tell_cpu(const struct options *options)
{
    struct log log = command_log(options);
    char text[64];

    cpu_describe(text, sizeof(text));
    log_info(&log, "instruction set: %s", text);
}

static uint64_t env_now_ns(void *context)
{
    struct env *env = context;

    return env->ops->now_ns(env);
}

int command_bench(struct options *options)
{
    struct uv_env_options env_options = {.folder = NULL};
    const struct kind *kind = NULL;
    struct env *env = NULL;
    struct json *result = NULL;
    struct fault why = {""};
    size_t count;
    enum rc rc = find_kind(options_arguments(options, &count)[0], &kind, &why);

    if (rc == RC_OK) rc = check_flags(options, kind, &why);
    if (rc == RC_OK) rc = uv_env_create(&env_options, &env, &why);
    if (rc == RC_OK) {
        struct bench_clock clock = {env_now_ns, env};

        if (getenv(BENCH_PEER_VARIABLE) == NULL) tell_cpu(options);
        rc = kind->run(options, &clock, &result, &why);
        uv_env_destroy(env);
    }
    if (rc != RC_OK) return command_failed(rc, &why);
    if (result != NULL) command_print_rows(result, options_flag(options, "json"));
    json_destroy(result);
    return EXIT_DONE;
}
