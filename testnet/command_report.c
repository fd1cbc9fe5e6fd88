/*
 * command_report: the table and the page of a testnet's folder, made again from its files, or those
 * of the folders of any peers; and the same numbers for other programs.
 */
#include "peer/cli/command.h"

#include "base/file.h"
#include "base/json.h"
#include "base/plain.h"
#include "testnet/export.h"
#include "testnet/history.h"
#include "testnet/report.h"
#include "testnet/summary.h"

#include <math.h>
#include <stdio.h>

enum { PATH_BYTES = 1024 };

/* One object of both; the sources keep nothing of what is printed. */
static void print_json(struct report_sources *sources)
{
    struct json *json = json_object_create();

    json_set(json, "summary", sources->summary);
    if (sources->distilled != NULL) {
        json_set(json, "distilled", sources->distilled);
    } else {
        json_set_null(json, "distilled");
    }
    sources->summary = sources->distilled = NULL;
    command_print_json(json);
}

static enum rc export_as_asked(const struct options *options, const struct history *history,
                               struct fault *why)
{
    const char *csv = options_text(options, "csv"), *board = options_text(options, "tensorboard");
    enum rc rc = csv == NULL ? RC_OK : export_csv(csv, history, why);

    return rc == RC_OK && board != NULL ? export_tensorboard(board, history, why) : rc;
}

/* The folder of a testnet. */
static enum rc report_testnet(const struct options *options, const char *folder, struct fault *why)
{
    static const struct history none = {.peers = 0};
    struct report_sources sources;
    struct text text = TEXT_EMPTY;
    enum rc rc = report_load(folder, &sources, why);

    if (rc != RC_OK) return rc;
    rc = report_write(folder, &sources, why);
    if (rc == RC_OK) {
        rc = export_as_asked(options, sources.history == NULL ? &none : sources.history, why);
    }
    if (rc == RC_OK && options_flag(options, "json")) {
        print_json(&sources);
    } else if (rc == RC_OK) {
        summary_add_table(&text, sources.summary, sources.distilled);
        if (text_is_whole(&text)) printf("%s", text.bytes);
        text_deinit(&text);
    }
    report_sources_deinit(&sources);
    return rc;
}

static void print_peers(const struct history *history)
{
    char name[HISTORY_NAME_BYTES];

    printf("%-20s %10s %10s %9s %8s %8s\n", "peer", "own steps", "train loss", "accuracy", "rounds",
           "aborted");
    for (size_t i = 0; i < history->peers; i++) {
        const struct track *track = &history->tracks[i];
        const double accuracy = history_last(track, HISTORY_accuracy);

        printf("%-20s %10.0f %10.4f ", plain_text(track->name, name, sizeof name),
               history_last(track, HISTORY_own_steps), history_last(track, HISTORY_loss));
        if (isnan(accuracy)) {
            printf("%9s", "-");
        } else {
            printf("%7.2f %%", 100 * accuracy);
        }
        printf(" %8.0f %8.0f\n", history_last(track, HISTORY_rounds_ok),
               history_last(track, HISTORY_rounds_aborted));
    }
}

static void print_peers_json(const struct history *history)
{
    struct json *json = json_object_create(), *peers = json_array_create();

    for (size_t i = 0; i < history->peers; i++) {
        struct json *peer = json_object_create();

        json_set_text(peer, "name", history->tracks[i].name);
        for (int c = 0; c < HISTORY_COLUMNS_COUNT; c++) {
            const enum history_column column = (enum history_column)c;
            const double value = history_last(&history->tracks[i], column);

            if (value >= 0 && value < 0x1p53 && value == floor(value)) {
                json_set_count(peer, history_column_name(column), (uint64_t)value);
            } else {
                json_set_real(peer, history_column_name(column), value);
            }
        }
        json_append(peers, peer);
    }
    json_set(json, "peers", peers);
    command_print_json(json);
}

/* The folders of any peers. */
static enum rc report_peers(const struct options *options, const char *const *folders, size_t count,
                            struct fault *why)
{
    const char *out = options_text(options, "out");
    struct history history = {.peers = 0};
    char path[PATH_BYTES];
    enum rc rc = RC_OK;

    for (size_t i = 0; i < count && rc == RC_OK; i++) {
        rc = history_add_peer(&history, folders[i], why);
    }
    if (out == NULL && count == 1) {
        (void)snprintf(path, sizeof path, "%s/report.html", folders[0]);
    } else {
        (void)snprintf(path, sizeof path, "%s", out == NULL ? "report.html" : out);
    }
    if (rc == RC_OK) rc = report_write_peers(path, &history, why);
    if (rc == RC_OK) rc = export_as_asked(options, &history, why);
    if (rc == RC_OK && options_flag(options, "json")) {
        print_peers_json(&history);
    } else if (rc == RC_OK) {
        print_peers(&history);
        printf("page: %s\n", path);
    }
    history_deinit(&history);
    return rc;
}

static bool is_testnet(const char *folder)
{
    char path[PATH_BYTES];

    (void)snprintf(path, sizeof path, "%s/summary.json", folder);
    return file_is_there(path);
}

int command_report(struct options *options)
{
    size_t count;
    const char *const *folders = options_arguments(options, &count);
    struct fault why = {""};
    enum rc rc = count == 1 && is_testnet(folders[0]) ? report_testnet(options, folders[0], &why)
                                                      : report_peers(options, folders, count, &why);

    return rc == RC_OK ? EXIT_DONE : command_failed(rc, &why);
}
