/*
 * journal: text files of a peer that only grow (metrics.jsonl, log.txt), written by jobs of the
 * store lane so that a slow disk never holds up the loop. A full disk loses lines, not the run.
 */
#ifndef GRAPEVINE_PEER_FILES_JOURNAL_H
#define GRAPEVINE_PEER_FILES_JOURNAL_H

#include "peer/env/env.h"

/* Of a peer's folder. */
#define METRICS_FILE "metrics.jsonl"
#define LOG_FILE     "log.txt"

struct journal;

/** NULL when out of memory. Keeps `env`. */
struct journal *journal_create(struct env *env);
/** Only once it is idle or the env is gone. NULL is fine. */
void journal_destroy(struct journal *journal);
/** Append `line` and a newline to the store file `name` (a string that outlives the journal); of at
 *  most `bytes_max`, see store_append. */
void journal_add(struct journal *journal, const char *name, const char *line, size_t bytes_max);
/** Replace a store file by `text`. */
void journal_replace(struct journal *journal, const char *name, const char *text);
/** Call `on_idle` once, as soon as nothing is left to write (at once if so). */
void journal_when_idle(struct journal *journal, void (*on_idle)(void *context), void *context);
/** What there is to tell since the last call: that writing began to fail, or does so for another
 *  reason (`why`), or that all was written again. */
enum journal_news { JOURNAL_NOTHING, JOURNAL_FAILS, JOURNAL_WORKS };
enum journal_news journal_news(struct journal *journal, struct fault *why);

#endif
