/* command_average: one model file out of several, by averaging their parameters. */
#include "peer/cli/command.h"

#include "base/check.h"
#include "base/json.h"
#include "distill/comparison.h"
#include "kernels/backend.h"
#include "peer/cli/progress.h"

#include <math.h>
#include <string.h>

static void print_json(const struct comparison *comparison, const char *path)
{
    struct json *json = json_object_create();

    json_set_text(json, "file", path);
    json_set_count(json, "models", comparison->count);
    json_set(json, "average_members", comparison_members_json(comparison));
    json_set_real(json, "selection", comparison->selection);
    json_set_real(json, "accuracy", score_accuracy(&comparison->average));
    json_set_real(json, "loss", score_loss(&comparison->average));
    json_set_real(json, "calibration_error", score_calibration(&comparison->average));
    json_set_real(json, "consensus_distance", comparison->distance);
    json_set_count(json, "samples", comparison->samples);
    command_print_json(json);
}

void command_print_chosen(const struct comparison *comparison)
{
    const char *mark = ": ";

    if (isnan(comparison->selection)) return;
    printf("chosen: %zu of %zu", comparison_members(comparison), comparison->count);
    for (size_t i = 0; i < comparison->count; i++) {
        if (!comparison->is_in[i]) continue;
        printf("%s%s", mark, comparison->paths[i]);
        mark = ", ";
    }
    printf("\n");
}

static void print_words(const struct comparison *comparison, const char *path)
{
    const double accuracy = score_accuracy(&comparison->average);
    const size_t members = comparison_members(comparison);

    command_print_chosen(comparison);
    printf("%s: average of %zu model%s, ", path, members, members == 1 ? "" : "s");
    if (!isnan(accuracy)) printf("accuracy %.2f %%, ", 100 * accuracy);
    printf("loss %.4f", score_loss(&comparison->average));
    if (!isnan(accuracy)) {
        printf(", calibration error %.2f %%", 100 * score_calibration(&comparison->average));
    }
    printf("\n");
}

static void on_progress(void *context, uint64_t done, uint64_t total)
{
    progress_tell(context, "averaging", (double)done / (double)total, "");
}

int command_average(struct options *options)
{
    struct progress progress;
    struct comparison_options request = {.data = options_text(options, "data"),
                                         .tokenizer = options_text(options, "tokenizer"),
                                         .seed = 1,
                                         .is_greedy =
                                             strcmp(options_text(options, "soup"), "greedy") == 0,
                                         .with_alignment = options_flag(options, "align"),
                                         .average_path = options_text(options, "out"),
                                         .on_progress = on_progress,
                                         .context = &progress};
    struct comparison comparison;
    struct backend *backend = NULL;
    struct fault why = {""};
    enum rc rc = command_backend(options, &backend, &why);

    progress_init(&progress, options);
    request.paths = options_arguments(options, &request.paths_count);
    if (rc == RC_OK) {
        rc = command_check_out(request.average_path, request.paths, request.paths_count, &why);
    }
    if (rc == RC_OK) rc = comparison_run(backend, &request, &comparison, &why);
    backend_destroy(backend);
    progress_clear(&progress);
    if (rc != RC_OK) return command_failed(rc, &why);
    progress_end(&progress);
    CHECK(comparison.has_average); /* --out was to have it */
    if (options_flag(options, "json")) {
        print_json(&comparison, request.average_path);
    } else {
        print_words(&comparison, request.average_path);
    }
    comparison_deinit(&comparison);
    return EXIT_DONE;
}
