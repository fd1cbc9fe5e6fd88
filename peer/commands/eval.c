/*
 * command_eval: how good models are on the test samples: each file, their parameter average, their
 * ensemble.
 */
#include "peer/cli/command.h"

#include "base/json.h"
#include "base/units.h"
#include "distill/comparison.h"
#include "kernels/backend.h"
#include "peer/cli/progress.h"

#include <math.h>
#include <string.h>

static void on_progress(void *context, uint64_t done, uint64_t total)
{
    progress_tell(context, "evaluating", (double)done / (double)total, "");
}

static void print_row(const char *name, const struct score *score)
{
    char accuracy[32] = "", loss[32] = "", calibration[32] = "";

    if (!isnan(score_accuracy(score)))
        snprintf(accuracy, sizeof accuracy, "%.2f %%", 100 * score_accuracy(score));
    if (!isnan(score_loss(score))) snprintf(loss, sizeof loss, "%.4f", score_loss(score));
    if (!isnan(score_calibration(score)))
        snprintf(calibration, sizeof calibration, "%.2f %%", 100 * score_calibration(score));
    printf("%-40s %9s  %8s  %12s\n", name, accuracy, loss, calibration);
}

/* A table without a part for testing gives every fifth row. */
static void print_samples(const struct comparison *comparison, const char *data)
{
    const bool is_part = strncmp(data, "csv:", 4) == 0 && strstr(data, ",test=") == NULL;
    char count[32];

    printf("on %s test samples", units_format_count(comparison->samples, count, sizeof count));
    if (is_part) printf(", every fifth row of %.*s", (int)strcspn(data + 4, ","), data + 4);
    printf("\n");
}

/* The loss of a text is that of a token, in nats; of real values, the squared error. Calibration is
 * by how much what a model thinks of itself is wrong (outputs.h). */
static void print_words(const struct comparison *comparison, const char *data)
{
    printf("%-40s %9s  %8s  %12s\n", "", "accuracy", "loss", "calib. error");
    for (size_t i = 0; i < comparison->count; i++)
        print_row(comparison->paths[i], &comparison->models[i]);
    if (comparison->count > 1) {
        if (comparison->has_average)
            print_row("average of the parameters", &comparison->average);
        else
            printf("no average: %s\n", comparison->average_missing);
        print_row("ensemble", &comparison->votes[VOTE_MEAN]);
        if (!comparison->votes[VOTE_MEAN].is_real) {
            print_row("ensemble, mean of logits", &comparison->votes[VOTE_LOGITS]);
            print_row("ensemble, vote", &comparison->votes[VOTE_MAJORITY]);
        }
        command_print_chosen(comparison);
    }
    print_samples(comparison, data != NULL ? data : comparison->card.data);
}

int command_eval(struct options *options)
{
    struct progress progress;
    struct comparison_options request = {
        .data = options_text(options, "data"),
        .tokenizer = options_text(options, "tokenizer"),
        .seed = 1,
        .is_greedy = strcmp(options_text(options, "soup"), "greedy") == 0,
        .with_alignment = options_flag(options, "align"),
        .weighs_scores = strcmp(options_text(options, "weights"), "score") == 0,
        .weighs_confidence = strcmp(options_text(options, "weights"), "confidence") == 0,
        .on_progress = on_progress,
        .context = &progress,
    };
    struct comparison comparison;
    struct backend *backend = NULL;
    struct fault why = {""};
    enum rc rc = command_backend(options, &backend, &why);

    progress_init(&progress, options);
    request.paths = options_arguments(options, &request.paths_count);
    if (rc == RC_OK && command_wants_bf16(options)) command_tell_precision(backend, &progress.log);
    if (rc == RC_OK) rc = comparison_run(backend, &request, &comparison, &why);
    backend_destroy(backend);
    progress_clear(&progress);
    if (rc != RC_OK) return command_failed(rc, &why);
    progress_end(&progress);
    if (options_flag(options, "json"))
        command_print_json(comparison_json(&comparison));
    else
        print_words(&comparison, request.data);
    comparison_deinit(&comparison);
    return EXIT_DONE;
}
