/* command_report: the table and the page of a testnet's folder, made again from its files. */
#include "peer/cli/command.h"

#include "base/json.h"
#include "testnet/report.h"
#include "testnet/summary.h"

#include <stdio.h>

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

int command_report(struct options *options)
{
    size_t count;
    const char *folder = options_arguments(options, &count)[0];
    struct report_sources sources;
    struct text text = TEXT_EMPTY;
    struct fault why = {""};
    enum rc rc = report_load(folder, &sources, &why);

    if (rc != RC_OK) return command_failed(rc, &why);
    rc = report_write(folder, &sources, &why);
    if (rc == RC_OK && options_flag(options, "json")) {
        print_json(&sources);
    } else if (rc == RC_OK) {
        summary_add_table(&text, sources.summary, sources.distilled);
        if (text_is_whole(&text)) printf("%s", text.bytes);
        text_deinit(&text);
    }
    report_sources_deinit(&sources);
    return rc == RC_OK ? EXIT_DONE : command_failed(rc, &why);
}
