/*
 * report: the page report.html of a run folder, made from the files in it: summary.json,
 * events.jsonl and, where a student was distilled, distill.json; or of the folders of any peers.
 * The page stands alone: its script and style are in it, light and dark, and nothing comes from a
 * network. Making it again is always safe.
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
/** The page of peers that no testnet has started. */
void report_add_peers(struct text *text, const struct history *history);
MUST_USE enum rc report_write_peers(const char *path, const struct history *history,
                                    struct fault *why);
/** The whole page. */
void report_add_page(struct text *text, const struct report_sources *sources);
/** Write FOLDER/report.html. */
MUST_USE enum rc report_write(const char *folder, const struct report_sources *sources,
                              struct fault *why);

#endif
