/* The parent of the averaging benchmark: see averaging.h. One thread. */
#include "peer/bench/averaging.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "gossip/wire/limits.h"
#include "peer/env/process.h"
#include "peer/times.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { VALUES_DEFAULT = 2373888, WARM_UP_ROUNDS = 2, PATH_BYTES = 256, ROLE_BYTES = 400 };

struct child {
    uint64_t last_ns; /* end of its previous round, or its begin */
    bool is_formed, is_done;
    uint32_t rounds;
    double start_mean, mean;
};

struct bench {
    struct bench_averaging_options options;
    struct process_host *host;
    struct child *children;
    uint32_t spawned, formed, done;
    double *spans; /* seconds of each round of each child, from the end of one to the next's */
    double *takes; /* of the round alone: from its snapshot until its result is applied */
    size_t spans_count, takes_count;
    uint64_t begun_ns, ended_ns, heard_ns;
    uint64_t rounds_ok, rounds_aborted, bytes, rss_bytes;
    double error; /* the largest; NaN: not one group */
    char folder[PATH_BYTES - 8];
    enum rc rc;
    struct fault why;
};

static void bench_end(struct bench *bench, enum rc rc, const char *why)
{
    if (rc != RC_OK && bench->rc == RC_OK) {
        bench->rc = fault_set(&bench->why, rc, "cannot measure averaging: %s", why);
    }
    process_host_stop(bench->host);
}

static void child_spawn(struct bench *bench, const char *address)
{
    char role[ROLE_BYTES], peers[16], group[16], rounds[16], values[24];
    const char *grid = bench->options.is_grid ? "--grid" : NULL;
    const char *clear = bench->options.is_clear ? "--insecure-loopback" : NULL;
    const char *flags[2] = {grid != NULL ? grid : clear, grid != NULL ? clear : NULL};
    const char *argv[] = {"/proc/self/exe",
                          "bench",
                          "averaging",
                          "--peers",
                          peers,
                          "--group",
                          group,
                          "--rounds",
                          rounds,
                          "--values",
                          values,
                          "--codec",
                          bench->options.codec,
                          "--exchange",
                          bench->options.exchange,
                          flags[0],
                          flags[1],
                          NULL};
    const char *environment[] = {role, NULL};
    struct process_options options = {.argv = argv, .environment = environment};
    uint32_t number;
    enum rc rc;

    snprintf(role, sizeof role, BENCH_PEER_VARIABLE "=%u %s %s", bench->spawned, bench->folder,
             address);
    snprintf(peers, sizeof peers, "%u", bench->options.peers);
    snprintf(group, sizeof group, "%u", bench->options.group);
    snprintf(rounds, sizeof rounds, "%u", bench->options.rounds);
    snprintf(values, sizeof values, "%llu", (unsigned long long)bench->options.values);
    rc = process_spawn(bench->host, &options, &number, &bench->why);
    if (rc != RC_OK) {
        bench_end(bench, rc, "a peer cannot be started");
        return;
    }
    CHECK(number == bench->spawned);
    bench->spawned++;
}

/* ---- what children say ---- */

static void on_address(struct bench *bench, const char *address)
{
    char first[ADDRESS_BYTES_MAX];

    if (bench->spawned > 1) return; /* not the first's */
    snprintf(first, sizeof first, "%s", address);
    while (bench->spawned < bench->options.peers && bench->rc == RC_OK) {
        child_spawn(bench, first);
    }
}

static void on_formed(struct bench *bench, struct child *child)
{
    char go[PATH_BYTES];
    int file;

    if (child->is_formed) return;
    child->is_formed = true;
    if (++bench->formed < bench->options.peers) return;
    snprintf(go, sizeof go, "%s/go", bench->folder);
    file = open(go, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (file < 0) {
        bench_end(bench, RC_IO, strerror(errno));
        return;
    }
    (void)close(file);
}

static void on_round(struct bench *bench, struct child *child, const char *text)
{
    size_t max = (size_t)bench->options.peers * bench->options.rounds;
    char *end;
    uint64_t now_ns = strtoull(text, &end, 10), took_ns = strtoull(end, NULL, 10);

    if (child->last_ns == 0) {
        if (bench->begun_ns == 0 || now_ns < bench->begun_ns) bench->begun_ns = now_ns;
    } else if (bench->spans_count < max) {
        bench->spans[bench->spans_count++] = (double)(now_ns - child->last_ns) / 1e9;
        if (now_ns > bench->ended_ns) bench->ended_ns = now_ns;
    }
    child->last_ns = now_ns;
    /* Memory and connections are new in the first of them. */
    if (took_ns > 0 && child->rounds++ >= WARM_UP_ROUNDS && bench->takes_count < max) {
        bench->takes[bench->takes_count++] = (double)took_ns / 1e9;
    }
}

static void on_done(struct bench *bench, struct child *child, const char *text)
{
    struct json *json;
    uint64_t ok = 0, aborted = 0, bytes = 0, rss_bytes = 0;
    double error = (double)NAN;

    if (child->is_done || json_parse(text, strlen(text), &json, &bench->why) != RC_OK) return;
    (void)json_get_count(json, "rounds_ok", &ok);
    (void)json_get_count(json, "rounds_aborted", &aborted);
    (void)json_get_count(json, "bytes", &bytes);
    (void)json_get_count(json, "rss_bytes", &rss_bytes);
    (void)json_get_real(json, "start_mean", &child->start_mean);
    (void)json_get_real(json, "mean", &child->mean);
    (void)json_get_real(json, "error", &error);
    json_destroy(json);
    child->is_done = true;
    bench->rounds_ok += ok;
    bench->rounds_aborted += aborted;
    bench->bytes += bytes;
    if (rss_bytes > bench->rss_bytes) bench->rss_bytes = rss_bytes;
    bench->error = fmax(bench->error, error);
    if (++bench->done == bench->options.peers) bench_end(bench, RC_OK, NULL);
}

static void on_line(void *context, uint32_t number, const char *line)
{
    struct bench *bench = context;
    struct child *child = &bench->children[number];

    CHECK(number < bench->options.peers);
    bench->heard_ns = process_now_ns(bench->host);
    if (strncmp(line, "address ", 8) == 0) {
        on_address(bench, line + 8);
    } else if (strcmp(line, "formed") == 0) {
        on_formed(bench, child);
    } else if (strncmp(line, "round ", 6) == 0) {
        on_round(bench, child, line + 6);
    } else if (strncmp(line, "done ", 5) == 0) {
        on_done(bench, child, line + 5);
    }
}

static void on_exit_of_child(void *context, uint32_t number, int code, int signal)
{
    char why[80];

    snprintf(why, sizeof why, "peer %u ended too soon (code %d, signal %d)", number, code, signal);
    bench_end(context, RC_IO, why);
}

static void on_tick(void *context, uint64_t now_ns)
{
    struct bench *bench = context;

    if (now_ns - bench->heard_ns > BENCH_SILENCE_NS) {
        bench_end(bench, RC_TIMEOUT, "no peer has got any further for two minutes");
    }
}

static void on_signal(void *context, int signal)
{
    (void)signal;
    bench_end(context, RC_CLOSED, "interrupted");
}

/* ---- the whole ---- */

static int compare_spans(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The value below which `share` of the sorted spans lie (nearest rank). */
static double span_at(const double *spans, size_t count, double share)
{
    size_t rank = (size_t)ceil(share * (double)count);

    if (count == 0) return (double)NAN;
    return spans[rank == 0 ? 0 : rank - 1];
}

static struct json *result_of(struct bench *bench)
{
    struct json *json = json_object_create();
    double start = 0.0, end = 0.0, peers = (double)bench->options.peers;

    for (uint32_t i = 0; i < bench->options.peers; i++) {
        start += bench->children[i].start_mean / peers;
        end += bench->children[i].mean / peers;
    }
    qsort(bench->spans, bench->spans_count, sizeof *bench->spans, compare_spans);
    qsort(bench->takes, bench->takes_count, sizeof *bench->takes, compare_spans);
    json_set_count(json, "peers", bench->options.peers);
    json_set_count(json, "group", bench->options.group);
    json_set_count(json, "values", bench->options.values);
    json_set_text(json, "codec", bench->options.codec);
    json_set_text(json, "exchange", bench->options.exchange);
    json_set_bool(json, "grid", bench->options.is_grid);
    json_set_bool(json, "sealed", !bench->options.is_clear);
    json_set_real(json, "total_s", (double)(bench->ended_ns - bench->begun_ns) / 1e9);
    json_set_real(json, "p50_s", span_at(bench->spans, bench->spans_count, 0.5));
    json_set_real(json, "p99_s", span_at(bench->spans, bench->spans_count, 0.99));
    if (bench->takes_count > 0) {
        json_set_real(json, "round_p50_s", span_at(bench->takes, bench->takes_count, 0.5));
        json_set_real(json, "round_p99_s", span_at(bench->takes, bench->takes_count, 0.99));
    }
    json_set_count(json, "rounds_ok", bench->rounds_ok);
    json_set_count(json, "rounds_aborted", bench->rounds_aborted);
    json_set_real(json, "max_error", isnan(bench->error) ? fabs(end - start) : bench->error);
    json_set_count(json, "bytes_per_peer", bench->bytes / bench->options.peers);
    json_set_count(json, "rss_bytes", bench->rss_bytes);
    return json;
}

static void bench_run(struct bench *bench)
{
    struct process_events events = {bench, on_line, on_exit_of_child, on_tick, on_signal};

    bench->rc = process_host_create(&events, NS_PER_S, &bench->host, &bench->why);
    if (bench->rc != RC_OK) return;
    bench->heard_ns = process_now_ns(bench->host);
    child_spawn(bench, "-");
    if (bench->rc == RC_OK) process_host_run(bench->host);
    process_host_destroy(bench->host);
}

enum rc bench_averaging(const struct bench_averaging_options *options, struct json **result,
                        struct fault *why)
{
    struct bench bench = {.options = *options, .error = (double)NAN};
    char go[PATH_BYTES];

    if (bench.options.values == 0) bench.options.values = VALUES_DEFAULT;
    if (bench.options.codec == NULL) bench.options.codec = "f32";
    if (bench.options.exchange == NULL) bench.options.exchange = "group";
    if (strncmp(bench.options.exchange, "group", 5) != 0 && /* or group:SCHEDULE */
        strcmp(bench.options.exchange, "pair") != 0) {
        return fault_set(why, RC_USAGE,
                         "--exchange %s: bench averaging measures rounds of group and of pair",
                         bench.options.exchange);
    }
    snprintf(bench.folder, sizeof bench.folder, "/tmp/grapevine-bench-XXXXXX");
    if (mkdtemp(bench.folder) == NULL) {
        return fault_set(why, RC_IO, "cannot make a folder in /tmp: %s", strerror(errno));
    }
    bench.children = mem_array(options->peers, sizeof *bench.children);
    bench.spans = mem_array((size_t)options->peers * options->rounds, sizeof *bench.spans);
    bench.takes = mem_array((size_t)options->peers * options->rounds, sizeof *bench.takes);
    if (bench.children == NULL || bench.spans == NULL || bench.takes == NULL) {
        bench.rc = fault_set(&bench.why, RC_NOMEM, "cannot measure averaging: out of memory");
    } else {
        bench_run(&bench);
    }
    snprintf(go, sizeof go, "%s/go", bench.folder);
    (void)unlink(go);
    (void)rmdir(bench.folder);
    if (bench.rc == RC_OK) {
        *result = result_of(&bench);
    } else {
        *why = bench.why;
    }
    mem_free(bench.children);
    mem_free(bench.spans);
    mem_free(bench.takes);
    return bench.rc;
}
