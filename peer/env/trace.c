/*
 * See trace.h. A ring has one writer, its thread, and one reader at a time: the job of the store
 * lane, or whoever destroys the trace. The writer's end is published with release order after the
 * event, the reader's after what it has read, so neither sees a half of one.
 */
#include "peer/env/trace.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/units.h"
#include "peer/env/env.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum {
    RINGS = TRACE_LANES + LANE_COUNT,
    EVENTS_DEFAULT = 8192,
    LINE_BYTES_MAX = 640,
    TEXT_BYTES = 128 * 1024, /* handed to the file at once */
    TAIL_BYTES = 512,        /* kept for the last line */
    WORD_BYTES = 96          /* of a name or detail, escaped */
};
#define BYTES_DEFAULT (UINT64_C(256) * 1024 * 1024)

struct event {
    struct trace_span span;
    uint64_t track;
    uint32_t process;
    char phase; /* as the form has it: X a span, i an instant, b one of its own row, M a row's name
                 */
};

struct ring {
    struct event *events;  /* [events_max] */
    _Atomic uint64_t in;   /* written in all; the thread's */
    _Atomic uint64_t out;  /* read of them; the reader's */
    _Atomic uint64_t lost; /* for want of room */
};

struct trace {
    struct job job; /* first: it is cast back */
    struct trace_options options;
    char *path;
    struct ring rings[RINGS];
    unsigned rings_count;
    bool is_writing; /* the job is under way; the loop's, as the next two */
    uint64_t next_ns;
    bool is_told;
    atomic_bool is_over; /* nothing more is taken */
    uint64_t bytes;      /* in the file; the reader's, as all that follows */
    enum rc rc;
    struct fault why;
    size_t used;
    char text[TEXT_BYTES];
};

/* ---- text ---- */

static void text_add(struct trace *trace, const char *text, size_t count)
{
    CHECK(count <= sizeof trace->text - trace->used);
    memcpy(trace->text + trace->used, text, count);
    trace->used += count;
}

static void text_out(struct trace *trace)
{
    if (trace->used > 0 && trace->rc == RC_OK) {
        trace->rc = file_append(trace->path, trace->text, trace->used, 0, &trace->why);
        trace->bytes += trace->used;
    }
    trace->used = 0;
    if (trace->rc != RC_OK) atomic_store(&trace->is_over, true);
}

/* What may stand between quotes. */
static const char *word(const char *text, char out[WORD_BYTES])
{
    size_t used = 0;

    for (; *text != '\0' && used + 2 < WORD_BYTES; text++) {
        if (*text == '"' || *text == '\\') out[used++] = '\\';
        out[used++] = (unsigned char)*text < ' ' ? ' ' : *text;
    }
    out[used] = '\0';
    return out;
}

/* Microseconds with three digits behind the point. */
static int print_us(char *line, size_t cap, const char *key, uint64_t ns)
{
    return snprintf(line, cap, ",\"%s\":%llu.%03u", key, (unsigned long long)(ns / 1000),
                    (unsigned)(ns % 1000));
}

static void print_partner(uint64_t partner, char text[PEER_ID_TEXT])
{
    struct peer_id peer = {{0}};

    memcpy(peer.bytes, &partner, sizeof partner);
    peer_id_format(peer, text);
}

static size_t print_args(char *line, size_t cap, const struct trace_span *span)
{
    char words[WORD_BYTES], id[PEER_ID_TEXT];
    const char *between = "";
    size_t used = (size_t)snprintf(line, cap, ",\"args\":{");

    if (span->round != 0) {
        used += (size_t)snprintf(line + used, cap - used, "\"round\":%llu",
                                 (unsigned long long)span->round - 1);
        between = ",";
    }
    if (span->partner != 0) {
        print_partner(span->partner, id);
        used += (size_t)snprintf(line + used, cap - used, "%s\"partner\":\"%.8s\"", between, id);
        between = ",";
    }
    if (span->bytes != 0) {
        used += (size_t)snprintf(line + used, cap - used, "%s\"bytes\":%llu", between,
                                 (unsigned long long)span->bytes);
        between = ",";
    }
    if (span->detail != NULL) {
        used += (size_t)snprintf(line + used, cap - used, "%s\"detail\":\"%s\"", between,
                                 word(span->detail, words));
    }
    return used + (size_t)snprintf(line + used, cap - used, "}");
}

/* One line of the file. `phase`: as the event has it, or 'e'. */
static void print_event(struct trace *trace, const struct event *event, char phase)
{
    const struct trace_span *span = &event->span;
    bool is_apart = phase == 'b' || phase == 'e';
    char line[LINE_BYTES_MAX], words[WORD_BYTES];
    size_t cap = sizeof line, used;

    used = (size_t)snprintf(line, cap, "{\"name\":\"%s\",\"ph\":\"%c\",\"pid\":%u",
                            word(span->name, words), phase, event->process);
    if (is_apart) {
        used += (size_t)snprintf(line + used, cap - used, ",\"cat\":\"round\",\"id\":\"%x-%llx\"",
                                 event->process, (unsigned long long)event->track);
    }
    used += (size_t)snprintf(line + used, cap - used, ",\"tid\":%llu",
                             is_apart ? (unsigned long long)TRACE_LOOP
                                      : (unsigned long long)event->track);
    if (phase == 'i') used += (size_t)snprintf(line + used, cap - used, ",\"s\":\"p\"");
    used += (size_t)print_us(line + used, cap - used, "ts",
                             phase == 'e' ? span->end_ns : span->begin_ns);
    if (phase == 'X') {
        used += (size_t)print_us(line + used, cap - used, "dur", span->end_ns - span->begin_ns);
    }
    used += print_args(line + used, cap - used, span);
    used += (size_t)snprintf(line + used, cap - used, "},\n");
    CHECK(used < cap);
    text_add(trace, line, used);
}

static void print_named(struct trace *trace, uint32_t process, uint64_t track, const char *what,
                        const char *name)
{
    char line[LINE_BYTES_MAX], words[WORD_BYTES];
    int count = snprintf(line, sizeof line,
                         "{\"name\":\"%s\",\"ph\":\"M\",\"pid\":%u,\"tid\":%llu,"
                         "\"args\":{\"name\":\"%s\"}},\n",
                         what, process, (unsigned long long)track, word(name, words));

    CHECK(count > 0 && count < (int)sizeof line);
    text_add(trace, line, (size_t)count);
}

/* ---- from the rings to the file ---- */

static bool has_room(const struct trace *trace, size_t bytes)
{
    return trace->bytes + trace->used + bytes + TAIL_BYTES <= trace->options.bytes_max;
}

/* The last object, without a comma, and what closes the array. */
static void end_file(struct trace *trace)
{
    uint64_t lost = 0;
    char line[TAIL_BYTES];
    int count;

    for (unsigned i = 0; i < trace->rings_count; i++) {
        lost += atomic_load(&trace->rings[i].lost);
    }
    count = snprintf(line, sizeof line,
                     "{\"name\":\"trace_end\",\"ph\":\"M\",\"pid\":0,\"tid\":0,\"args\":"
                     "{\"events_lost\":%llu}}\n]\n",
                     (unsigned long long)lost);
    CHECK(count > 0 && count < (int)sizeof line);
    text_add(trace, line, (size_t)count);
    text_out(trace);
}

static void print_one(struct trace *trace, const struct event *event)
{
    bool is_apart = event->phase == 'b';

    if (trace->rc != RC_OK) return;
    if (!has_room(trace, 2 * LINE_BYTES_MAX)) {
        char most[32];

        end_file(trace);
        if (trace->rc == RC_OK) {
            trace->rc = fault_set(&trace->why, RC_LIMIT, "trace %s: it has its %s, and ends here",
                                  trace->path,
                                  units_format_bytes(trace->options.bytes_max, most, sizeof most));
        }
        atomic_store(&trace->is_over, true);
        return;
    }
    if (trace->used > sizeof trace->text - 2 * LINE_BYTES_MAX) text_out(trace);
    if (event->phase == 'M') {
        char id[PEER_ID_TEXT], name[WORD_BYTES];

        print_partner(event->span.partner, id);
        snprintf(name, sizeof name, "to %.8s", id);
        print_named(trace, event->process, event->track, "thread_name", name);
        return;
    }
    print_event(trace, event, event->phase);
    if (is_apart) print_event(trace, event, 'e');
}

/* By one at a time: see trace.h. */
static void write_all(struct trace *trace)
{
    for (unsigned i = 0; i < trace->rings_count; i++) {
        struct ring *ring = &trace->rings[i];
        uint64_t in = atomic_load_explicit(&ring->in, memory_order_acquire);
        uint64_t out = atomic_load_explicit(&ring->out, memory_order_relaxed);

        for (; out < in; out++) {
            print_one(trace, &ring->events[out % trace->options.events_max]);
            atomic_store_explicit(&ring->out, out + 1, memory_order_release);
        }
    }
    text_out(trace);
}

static void tell(struct trace *trace)
{
    if (trace->rc == RC_OK || trace->is_told) return;
    trace->is_told = true;
    if (trace->rc == RC_LIMIT) {
        log_info(trace->options.log, "%s", trace->why.text);
    } else {
        log_warn(trace->options.log, "%s; training goes on without a trace", trace->why.text);
    }
}

static void run_write(struct job *job)
{
    write_all((struct trace *)job);
}

static void write_done(struct job *job)
{
    struct trace *trace = (struct trace *)job;

    trace->is_writing = false;
    tell(trace);
}

static bool is_worth_it(const struct trace *trace, bool is_due)
{
    for (unsigned i = 0; i < trace->rings_count; i++) {
        const struct ring *ring = &trace->rings[i];
        uint64_t waiting = atomic_load_explicit(&ring->in, memory_order_relaxed) -
                           atomic_load_explicit(&ring->out, memory_order_relaxed);

        if (waiting > (is_due ? 0 : trace->options.events_max / 2)) return true;
    }
    return false;
}

void trace_tick(struct trace *trace, struct env *env)
{
    uint64_t now_ns;

    if (trace->is_writing || trace->is_told) return;
    now_ns = env->ops->now_ns(env);
    if (!is_worth_it(trace, now_ns >= trace->next_ns)) return;
    trace->next_ns = now_ns + TRACE_WRITE_NS;
    trace->is_writing = true;
    trace->job = (struct job){.run = run_write, .done = write_done};
    env->ops->submit(env, LANE_STORE, &trace->job);
}

/* ---- what is traced ---- */

static void add(const struct tracer *tracer, unsigned by, const struct event *event)
{
    struct trace *trace = tracer->trace;
    struct ring *ring = &trace->rings[trace->options.is_one_thread ? 0 : by];
    uint64_t in, out;

    CHECK(by < RINGS && event->span.name != NULL);
    if (atomic_load_explicit(&trace->is_over, memory_order_relaxed)) return;
    in = atomic_load_explicit(&ring->in, memory_order_relaxed);
    out = atomic_load_explicit(&ring->out, memory_order_acquire);
    if (in - out >= trace->options.events_max) {
        if (!trace->options.is_one_thread) {
            atomic_fetch_add_explicit(&ring->lost, 1, memory_order_relaxed);
            return;
        }
        write_all(trace);
        tell(trace);
    }
    ring->events[in % trace->options.events_max] = *event;
    atomic_store_explicit(&ring->in, in + 1, memory_order_release);
}

void trace_span(const struct tracer *tracer, unsigned by, uint64_t track,
                const struct trace_span *span)
{
    if (tracer == NULL) return;
    CHECK(span->end_ns >= span->begin_ns);
    add(tracer, by, &(struct event){*span, track, tracer->process, 'X'});
}

void trace_instant(const struct tracer *tracer, unsigned by, const struct trace_span *span)
{
    if (tracer == NULL) return;
    add(tracer, by, &(struct event){*span, TRACE_LOOP, tracer->process, 'i'});
}

void trace_apart(const struct tracer *tracer, unsigned by, uint64_t number,
                 const struct trace_span *span)
{
    if (tracer == NULL) return;
    CHECK(span->end_ns >= span->begin_ns);
    add(tracer, by, &(struct event){*span, number, tracer->process, 'b'});
}

void trace_link(const struct tracer *tracer, uint64_t number, uint64_t partner)
{
    const struct trace_span span = {.name = "thread_name", .partner = partner};

    if (tracer == NULL) return;
    add(tracer, TRACE_LOOP, &(struct event){span, TRACE_LINKS + number, tracer->process, 'M'});
}

uint64_t trace_partner(struct peer_id id)
{
    uint64_t partner;

    memcpy(&partner, id.bytes, sizeof partner);
    return partner;
}

void trace_name(const struct tracer *tracer, const char *name)
{
    static const char *const lanes[LANE_COUNT] = {[LANE_TRAINING] = "training",
                                                  [LANE_EXCHANGE] = "exchange",
                                                  [LANE_STORE] = "store",
                                                  [LANE_SEALING] = "sealing",
                                                  [LANE_OPENING] = "opening"};
    struct trace *trace;

    if (tracer == NULL) return;
    trace = tracer->trace;
    if (!has_room(trace, (LANE_COUNT + 2) * LINE_BYTES_MAX)) return;
    if (trace->used > sizeof trace->text - (LANE_COUNT + 2) * LINE_BYTES_MAX) text_out(trace);
    print_named(trace, tracer->process, TRACE_LOOP, "process_name", name);
    print_named(trace, tracer->process, TRACE_LOOP, "thread_name", "loop");
    for (unsigned i = 0; i < LANE_COUNT; i++) {
        print_named(trace, tracer->process, TRACE_LANES + i, "thread_name", lanes[i]);
    }
    text_out(trace);
}

/* ---- life ---- */

enum rc trace_create(const struct trace_options *options, struct trace **out, struct fault *why)
{
    const struct piece begin = {"[\n", 2};
    struct trace *trace = mem_alloc(sizeof *trace);
    enum rc rc = RC_NOMEM;

    if (trace == NULL) return fault_set(why, RC_NOMEM, "no trace: out of memory");
    trace->options = *options;
    if (trace->options.bytes_max == 0) trace->options.bytes_max = BYTES_DEFAULT;
    if (trace->options.events_max == 0) trace->options.events_max = EVENTS_DEFAULT;
    trace->rings_count = options->is_one_thread ? 1 : RINGS;
    trace->path = mem_string(options->path);
    for (unsigned i = 0; i < trace->rings_count; i++) {
        trace->rings[i].events = mem_array(trace->options.events_max, sizeof(struct event));
        if (trace->rings[i].events == NULL) goto failed;
    }
    if (trace->path == NULL) goto failed;
    if (file_is_there(trace->path) && !file_is_regular(trace->path)) {
        rc = file_append(trace->path, begin.bytes, begin.count, 0, why);
    } else {
        rc = file_replace(trace->path, &begin, 1, 0644, why);
    }
    if (rc != RC_OK) goto failed;
    trace->bytes = begin.count;
    *out = trace;
    return RC_OK;
failed:
    for (unsigned i = 0; i < trace->rings_count; i++) {
        mem_free(trace->rings[i].events);
    }
    mem_free(trace->path);
    mem_free(trace);
    return rc == RC_NOMEM ? fault_set(why, rc, "no trace: out of memory") : rc;
}

void trace_destroy(struct trace *trace)
{
    if (trace == NULL) return;
    write_all(trace);
    if (trace->rc == RC_OK) end_file(trace);
    tell(trace);
    for (unsigned i = 0; i < trace->rings_count; i++) {
        mem_free(trace->rings[i].events);
    }
    mem_free(trace->path);
    mem_free(trace);
}
