/* command_compact: a model file in less room: int8 weights, pruned ones left out. */
#include "peer/cli/command.h"

#include "base/file.h"
#include "base/json.h"
#include "base/units.h"
#include "distill/compact.h"
#include "kernels/backend.h"
#include "peer/cli/progress.h"

#include <math.h>
#include <signal.h>
#include <string.h>

struct working {
    struct progress progress;
    const volatile sig_atomic_t *stop; /* the signal to stop, once it came */
};

static bool is_stopped(void *context)
{
    const struct working *working = context;

    return *working->stop != 0;
}

static void on_progress(void *context, const struct compact_progress *p)
{
    struct working *working = context;
    char loss[32] = "";

    if (isfinite(p->loss)) snprintf(loss, sizeof loss, "loss %.4f", p->loss);
    progress_tell(&working->progress, p->phase == COMPACT_TUNING ? "fine-tuning" : "judging",
                  (double)p->done / (double)p->total, loss);
}

static void print_row(const char *name, const struct score *score)
{
    char accuracy[32] = "", calibration[32] = "";

    if (!isnan(score_accuracy(score))) {
        snprintf(accuracy, sizeof accuracy, "%.2f %%", 100 * score_accuracy(score));
        snprintf(calibration, sizeof calibration, "%.2f %%", 100 * score_calibration(score));
    }
    printf("%-10s %9s  %8.4f  %12s\n", name, accuracy, score_loss(score), calibration);
}

static void print_words(const struct compact_options *options, const struct compact_result *r)
{
    char texts[3][32];

    if (r->is_judged) {
        printf("%-10s %9s  %8s  %12s\n", "", "accuracy", "loss", "calib. error");
        print_row("before", &r->before);
        print_row("after", &r->after);
    }
    printf("%s: %s bytes, was %s; %s%.1f %% of %s weights are 0\n", options->out_path,
           units_format_count(r->bytes, texts[0], sizeof texts[0]),
           units_format_count(r->bytes_before, texts[1], sizeof texts[1]),
           options->is_int8 ? "int8, " : "",
           r->weights == 0 ? 0.0 : 100 * (double)r->zeros / (double)r->weights,
           units_format_count(r->weights, texts[2], sizeof texts[2]));
}

/* Flags of training that nothing would obey. */
static enum rc check_training(const struct options *options, const struct compact_options *request,
                              struct fault *why)
{
    static const char *const names[] = {"epochs", "optimizer", "schedule", "lr", "batch"};

    if (request->share > 0 && request->epochs > 0) return RC_OK;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (!options_is_set(options, names[i]) || (i == 0 && request->share > 0)) continue;
        return fault_set(why, RC_USAGE,
                         "--%s is for fine-tuning, which is with --prune SHARE and --epochs above "
                         "0; leave it out",
                         names[i]);
    }
    return RC_OK;
}

static enum rc request_of(const struct options *options, struct working *working,
                          struct compact_options *request, struct fault *why)
{
    size_t count;

    *request = (struct compact_options){
        .path = options_arguments(options, &count)[0],
        .out_path = options_text(options, "out"),
        .is_int8 = strcmp(options_text(options, "to"), "int8") == 0,
        .share = options_real(options, "prune"),
        .epochs = options_real(options, "epochs"),
        .data = options_text(options, "data"),
        .tokenizer = options_text(options, "tokenizer"),
        .optimizer = options_text(options, "optimizer"),
        .schedule = options_text(options, "schedule"),
        .lr = options_real(options, "lr"),
        .batch = (uint32_t)options_count(options, "batch"),
        .seed = options_count(options, "seed"),
        .on_progress = on_progress,
        .is_stopped = is_stopped,
        .context = working,
    };
    if (!request->is_int8 && !(request->share > 0)) {
        return fault_set(why, RC_USAGE,
                         "--to f32: nothing becomes smaller; say --prune SHARE, or leave it out");
    }
    return check_training(options, request, why);
}

int command_compact(struct options *options)
{
    struct compact_options request;
    struct compact_result result;
    struct working working = {.stop = command_watch_stop()};
    struct backend *backend = NULL;
    struct fault why = {""};
    enum rc rc;

    progress_init(&working.progress, options);
    rc = request_of(options, &working, &request, &why);
    if (rc == RC_OK) rc = command_check_out(request.out_path, &request.path, 1, &why);
    if (rc == RC_OK) rc = file_check_replace(request.out_path, &why);
    if (rc == RC_OK) rc = command_backend(options, &backend, &why);
    if (rc == RC_OK) {
        if (command_wants_bf16(options)) command_tell_precision(backend, &working.progress.log);
        rc = compact_run(backend, &request, &result, &why);
        progress_clear(&working.progress);
    }
    backend_destroy(backend);
    if (rc == RC_CANCELLED) return command_stopped((int)*working.stop, &why);
    if (rc != RC_OK) return command_failed(rc, &why);
    progress_end(&working.progress);
    if (options_flag(options, "json"))
        command_print_json(compact_json(&request, &result));
    else
        print_words(&request, &result);
    return EXIT_DONE;
}
