/*
 * report: the page report.html of a run folder, made from the files in it: summary.json,
 * events.jsonl and, where a student was distilled, distill.json. The page stands alone: inline SVG
 * and CSS, light and dark, no script, nothing from a network. Making it again is always safe.
 * Blocking file access: commands only.
 */
#ifndef GRAPEVINE_TESTNET_REPORT_H
#define GRAPEVINE_TESTNET_REPORT_H

#include "base/fault.h"
#include "base/rc.h"
#include "testnet/text.h"

struct history;
struct json;

/* The files of a run, as far as they are there. */
struct report_sources {
    struct json *summary;
    struct json *distilled;  /* NULL: none */
    struct history *history; /* NULL: none */
};

/** RC_NOT_FOUND without summary.json; the other two may be missing. On an error nothing needs to be
 *  released. */
MUST_USE enum rc report_load(const char *folder, struct report_sources *sources, struct fault *why);
void report_sources_deinit(struct report_sources *sources);
/** The whole page. */
void report_add_page(struct text *text, const struct report_sources *sources);
/** Write FOLDER/report.html. */
MUST_USE enum rc report_write(const char *folder, const struct report_sources *sources,
                              struct fault *why);

#endif
