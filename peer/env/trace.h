/*
 * trace: where the time of peers goes, as a file in Chrome's trace event form (a JSON array of
 * objects, "Trace Event Format", Google 2016), which chrome://tracing and ui.perfetto.dev open: a
 * process a peer, a track each for its loop, its lanes and its connections. Times are the env's, so
 * a simulated swarm is traced in virtual time.
 *
 * Each thread writes into a ring of its own, and one reader at a time, a job of the store lane,
 * brings what is in them to the file: no lock, and nobody waits for the disk. What does not fit a
 * ring is lost and counted. The file ends at `bytes_max`, or when the disk is full, and is whole
 * JSON then. Of a killed process the last quarter of a second and the closing bracket are missing,
 * which both viewers take.
 *
 * Whoever has an env has its tracer. NULL: nothing is traced, which costs a comparison.
 */
#ifndef GRAPEVINE_PEER_ENV_TRACE_H
#define GRAPEVINE_PEER_ENV_TRACE_H

#include "base/fault.h"
#include "base/log.h"
#include "base/peer_id.h"

#include <stddef.h>
#include <stdint.h>

struct env;
struct trace;

/* One process of a trace. */
struct tracer {
    struct trace *trace;
    uint32_t process;
    uint64_t round; /* that is under way, or was last, as in struct trace_span; the loop's */
};

/* What stands in a row of its own. Connections come behind the lanes: their number, and this. */
enum { TRACE_LOOP, TRACE_LANES, TRACE_LINKS = 64 };
enum { TRACE_SEND_BYTES = 2048 }; /* sent in one go: less is conversation, and in no trace */

struct trace_options {
    const char *path;      /* replaced */
    uint64_t bytes_max;    /* of the file; 0: 256 MiB */
    uint32_t events_max;   /* of a ring; 0: 8,192 */
    bool is_one_thread;    /* all that is traced is the caller's: one ring, which is never full */
    const struct log *log; /* hears once why a trace ends early. Borrowed */
};

/* A stretch of time, or an instant (`end_ns` is not looked at). Texts are literals: they are read
 * later, by another thread. */
struct trace_span {
    const char *name, *detail; /* detail: NULL: none */
    uint64_t begin_ns, end_ns;
    uint64_t round;   /* its number, which may be 0, and one; 0: of none */
    uint64_t partner; /* trace_partner(); 0: nobody */
    uint64_t bytes;   /* 0: not told */
};

/** RC_IO, RC_DISK_FULL, RC_NOMEM. */
MUST_USE enum rc trace_create(const struct trace_options *options, struct trace **trace,
                              struct fault *why);
/** Writes what is left and the end, once no thread but this one is left. NULL is fine. */
void trace_destroy(struct trace *trace);
/** Name a process, and its tracks, before anything of it is traced. */
void trace_name(const struct tracer *tracer, const char *name);
/** Another peer as spans name it: the first eight letters of its id. */
uint64_t trace_partner(struct peer_id id);

/* `tracer` may be NULL in all that follows: nothing is done. `by`: the thread that calls,
 * TRACE_LOOP or TRACE_LANES and the lane. Spans of one track lie one behind or inside the other. */
void trace_span(const struct tracer *tracer, unsigned by, uint64_t track,
                const struct trace_span *span);
void trace_instant(const struct tracer *tracer, unsigned by, const struct trace_span *span);
/** What overlaps others of its kind: a row of its own. `number` tells it apart. */
void trace_apart(const struct tracer *tracer, unsigned by, uint64_t number,
                 const struct trace_span *span);
/** The connection `number` is with `partner`: names its row. On the loop. */
void trace_link(const struct tracer *tracer, uint64_t number, uint64_t partner);
/** On the loop, once a turn: has `env` write what is in the rings, now and then. */
void trace_tick(struct trace *trace, struct env *env);

#endif
