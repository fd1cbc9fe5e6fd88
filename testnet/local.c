/* local: see local.h. Everything here runs on the one loop thread. */
#include "testnet/local_internal.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "peer/cli/command.h"
#include "peer/env/process.h"
#include "peer/env/proxy.h"
#include "testnet/hetero_spec.h"
#include "testnet/text.h"

#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TICK_NS          (250 * NS_PER_MS)
#define QUICK_TICKS      10               /* in one of these, where peers are slowed */
#define START_LIMIT_NS   (60 * NS_PER_S)  /* until a started peer has said its address */
#define SILENCE_LIMIT_NS (300 * NS_PER_S) /* between two lines of a peer, beyond --report-every */
#define TIME_LEAST_S     0.001            /* that --time takes */
#define STOP_LIMIT_NS    (10 * NS_PER_S)  /* for goodbyes, before SIGKILL */
#define JOIN_S           30.0             /* --join-timeout of who comes back... */
#define ALONE_S          1.0              /* ... and of who is known to be alone */

enum { BOOTSTRAP_MAX = 8, ERROR_BYTES_MAX = 1024 * 1024 };

static const char *const state_names[LOCAL_STATE_COUNT] = {
    [LOCAL_WAITING] = "waiting", [LOCAL_STARTING] = "starting", [LOCAL_TRAINING] = "training",
    [LOCAL_DOWN] = "killed",     [LOCAL_DONE] = "done",         [LOCAL_FAILED] = "failed",
    [LOCAL_STOPPED] = "stopped",
};

const char *local_state_name(const struct local_peer *peer)
{
    CHECK((unsigned)peer->state < LOCAL_STATE_COUNT);
    if (peer->is_frozen) return "frozen";
    if (peer->is_slow) return "slowed";
    if (peer->state == LOCAL_TRAINING && peer->has_finished) return "finished";
    return state_names[peer->state];
}

#define TO(state) (1u << LOCAL_##state)
static const unsigned may_become[LOCAL_STATE_COUNT] = {
    [LOCAL_WAITING] = TO(STARTING) | TO(FAILED) | TO(STOPPED),
    [LOCAL_STARTING] = TO(TRAINING) | TO(DOWN) | TO(DONE) | TO(FAILED) | TO(STOPPED),
    [LOCAL_TRAINING] = TO(DOWN) | TO(DONE) | TO(FAILED) | TO(STOPPED),
    [LOCAL_DOWN] = TO(WAITING) | TO(STOPPED),
};

void local_become(struct runner *runner, enum local_state next)
{
    CHECK((may_become[runner->seen.state] & (1u << next)) != 0);
    runner->seen.state = next;
}

void local_note(struct local *local, bool is_error, const char *format, ...)
{
    char line[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (local->options->on_note != NULL) {
        local->options->on_note(local->options->context, is_error, line);
    }
}

double local_clock(struct local *local)
{
    const uint64_t now_ns = process_now_ns(local->host);

    return local->options->started_s + (double)(now_ns - local->begin_ns) / 1e9;
}

void local_record(struct local *local, struct json *event)
{
    char *line = json_format(event);

    json_destroy(event);
    if (line != NULL && local->events_path[0] != '\0') {
        const size_t length = strlen(line);
        line[length] = '\n';
        if (file_append(local->events_path, line, length + 1, 0, NULL) != RC_OK) {
            local->events_path[0] = '\0'; /* once is enough: a line lost makes the rest useless */
        }
    }
    mem_free(line);
}

struct json *local_event(struct local *local, const char *kind, uint32_t peer)
{
    struct json *event = json_object_create();

    json_set_real(event, "t", local_clock(local));
    json_set_text(event, "event", kind);
    json_set_count(event, "peer", peer);
    return event;
}

/* ---- starting ---- */

static void add_bootstrap(struct local *local, struct text *text)
{
    uint32_t listed = 0;

    for (uint32_t i = 0; i < local->options->peers && listed < BOOTSTRAP_MAX; i++) {
        const struct runner *other = &local->runners[i];
        if (other->seen.state != LOCAL_TRAINING || other->seen.has_finished) continue;
        text_add(text, "%s%s", listed++ == 0 ? "--bootstrap=" : ",", local_dial_address(local, i));
    }
}

static enum rc spawn_words(struct local *local, uint32_t peer, const char *const *argv,
                           struct fault *why)
{
    static const char *const environment[] = {"OMP_WAIT_POLICY=PASSIVE", NULL};
    struct runner *runner = &local->runners[peer];
    char folder[LOCAL_PATH_BYTES], errors[LOCAL_PATH_BYTES + 16];
    uint32_t child;

    snprintf(folder, sizeof folder, "%s/peer-%03u", local->options->out, peer);
    snprintf(errors, sizeof errors, "%s/stderr.txt", folder);
    enum rc rc = file_make_folder(folder, why);
    if (rc != RC_OK) return rc;
    const struct process_options options = {argv, environment, errors};
    rc = process_spawn(local->host, &options, &child, why);
    if (rc != RC_OK) return rc;
    runner->child = child;
    runner->is_ours_to_kill = false;
    runner->heard_ns = process_now_ns(local->host);
    runner->before = runner->seen;
    runner->seen.starts++;
    runner->seen.has_finished = false;
    local_become(runner, LOCAL_STARTING);
    return RC_OK;
}

/* A peer counts --time from its own start; one that was killed has what is left of it. */
static double time_left_s(struct local *local, uint32_t peer)
{
    const double all = (double)local->options->goal_ns / 1e9;
    const double left = all - (local_clock(local) - local->options->started_s);

    if (local->runners[peer].seen.starts == 0) return all;
    return left < TIME_LEAST_S ? TIME_LEAST_S : left;
}

/* Somebody has taken a step, as far as has been told. */
static bool has_begun(const struct local *local)
{
    for (uint32_t i = 0; i < local->options->peers; i++) {
        const struct local_peer *seen = &local->runners[i].seen;
        if (seen->step > 0 || seen->has_finished) return true;
    }
    return false;
}

/* One that comes back does not look for others for longer than the run lasts. */
static double join_timeout_s(struct local *local, uint32_t peer)
{
    if (!local->runners[peer].has_bootstrap) return ALONE_S;
    if (local->options->goal_ns == 0) return JOIN_S;
    return fmin(fmax(time_left_s(local, peer), ALONE_S), JOIN_S);
}

enum rc local_start(struct local *local, uint32_t peer, struct fault *why)
{
    const struct local_options *o = local->options;
    char out[LOCAL_PATH_BYTES], share[48], step[48], goal[48], advertise[64], start[48], join[48];
    struct text bootstrap = TEXT_EMPTY;
    const char **argv = mem_array(o->words_count + 14, sizeof *argv);
    size_t n = 0;
    enum rc rc = RC_NOMEM;

    add_bootstrap(local, &bootstrap);
    if (argv == NULL || bootstrap.is_short) goto out;
    snprintf(out, sizeof out, "--out=%s/peer-%03u", o->out, peer);
    snprintf(share, sizeof share, "--shard-of=%u/%u", peer, o->peers);
    if (o->step_ns > 0) {
        snprintf(step, sizeof step, "--step-time=%.9fs",
                 (double)hetero_step_ns(o->step_ns, o->speeds[peer]) / 1e9);
    }
    argv[n++] = o->executable;
    argv[n++] = "peer";
    for (size_t i = 0; i < o->words_count; i++) {
        argv[n++] = o->words[i];
    }
    argv[n++] = "--listen=127.0.0.1:0";
    argv[n++] = out;
    argv[n++] = "--json";
    argv[n++] = o->is_verbose ? "--verbose" : "--quiet";
    if (o->gives_shards) argv[n++] = share;
    if (o->start_with > 1) { /* said in any case: a folder remembers what was said before */
        snprintf(start, sizeof start, "--start-with=%u", has_begun(local) ? 1 : o->start_with);
        argv[n++] = start;
    }
    if (o->step_ns > 0) argv[n++] = step;
    if (o->goal_ns > 0) {
        snprintf(goal, sizeof goal, "--time=%.9fs", time_left_s(local, peer));
        argv[n++] = goal;
    }
    if (local->lines != NULL) {
        snprintf(advertise, sizeof advertise, "--advertise=%s", local_dial_address(local, peer));
        argv[n++] = advertise;
    }
    if (bootstrap.count > 0) argv[n++] = bootstrap.bytes;
    local->runners[peer].has_bootstrap = bootstrap.count > 0;
    if (local->runners[peer].seen.starts > 0) {
        snprintf(join, sizeof join, "--join-timeout=%.9fs", join_timeout_s(local, peer));
        argv[n++] = join;
    }
    rc = spawn_words(local, peer, argv, why);
out:
    if (rc == RC_NOMEM) fault_set(why, rc, "cannot start peer %u: out of memory", peer);
    mem_free(argv);
    text_deinit(&bootstrap);
    return rc;
}

/* ---- ending ---- */

static void stop_all(struct local *local, int signal)
{
    local->is_stopping = true;
    local->stop_ns = process_now_ns(local->host);
    for (uint32_t i = 0; i < local->options->peers; i++) {
        struct runner *runner = &local->runners[i];
        if (runner_is_running(runner)) {
            if (runner->seen.is_frozen || runner->is_held)
                process_signal(local->host, (uint32_t)runner->child, SIGCONT);
            runner->seen.is_frozen = runner->seen.is_slow = runner->is_held = false;
            process_signal(local->host, (uint32_t)runner->child, signal);
        } else if (runner->seen.state == LOCAL_WAITING || runner->seen.state == LOCAL_DOWN) {
            local_become(runner, LOCAL_STOPPED);
        }
    }
}

/* The last line a peer wrote on its standard error, "" if there is none. */
static void last_words(struct local *local, uint32_t peer, char *words, size_t cap)
{
    char path[LOCAL_PATH_BYTES];
    void *bytes = NULL;
    size_t count;

    words[0] = '\0';
    snprintf(path, sizeof path, "%s/peer-%03u/stderr.txt", local->options->out, peer);
    if (file_read(path, ERROR_BYTES_MAX, &bytes, &count, NULL) != RC_OK) return;
    char *text = bytes;
    while (count > 0 && text[count - 1] == '\n') {
        text[--count] = '\0';
    }
    const char *newline = strrchr(text, '\n');
    const char *line = newline != NULL ? newline + 1 : text;
    const char *own = "grapevine: ";
    if (strncmp(line, own, strlen(own)) == 0) line += strlen(own);
    snprintf(words, cap, "%s", line);
    mem_free(bytes);
}

void local_fail(struct local *local, uint32_t peer, const char *how)
{
    struct runner *runner = &local->runners[peer];
    const bool never_ran = runner->seen.state != LOCAL_TRAINING && runner->seen.starts <= 1;
    const bool is_awaited = local->options->start_with > 1 && !has_begun(local);
    char words[200];

    last_words(local, peer, words, sizeof words);
    snprintf(runner->seen.failure, sizeof runner->seen.failure, "%s%s%s", how,
             words[0] != '\0' ? ": " : "", words);
    local_become(runner, LOCAL_FAILED);
    local_note(local, true, "peer %u failed: %s", peer, runner->seen.failure);
    /* What one cannot start with, the others cannot either; and who waits for it to begin would
     * wait for ever. */
    if ((never_ran || is_awaited) && !local->is_stopping) stop_all(local, SIGTERM);
}

/* It came back to others who were about to leave, and met none of them. With nothing of its own to
 * go on from that is an error for a peer, which cannot know that they have done their part. */
static bool has_met_nobody(const struct local *local, const struct runner *runner, int code)
{
    if (code != EXIT_FAILED || runner->seen.state != LOCAL_TRAINING) return false;
    if (runner->seen.starts <= 1 || !runner->has_bootstrap) return false;
    for (uint32_t i = 0; i < local->options->peers; i++) {
        const struct runner *other = &local->runners[i];
        if (other == runner || other->seen.has_finished) continue;
        if (runner_is_running(other) || other->seen.state == LOCAL_WAITING) return false;
    }
    return true;
}

static void on_exit_of_child(void *context, uint32_t child, int code, int signal)
{
    struct local *local = context;
    uint32_t peer = 0;
    char how[64];

    while (peer < local->options->peers && local->runners[peer].child != (int64_t)child) {
        peer++;
    }
    if (peer == local->options->peers) return;
    struct runner *runner = &local->runners[peer];
    runner->child = LOCAL_NO_CHILD;
    runner->seen.is_frozen = runner->seen.is_slow = runner->is_held = false;
    runner->seen.exit_code = signal != 0 ? -1 : code;
    if (runner->seen.state == LOCAL_FAILED) return; /* killed for its silence */
    if (runner->is_ours_to_kill && signal == SIGKILL) {
        local_become(runner, local->is_stopping ? LOCAL_STOPPED : LOCAL_DOWN);
    } else if (code == 0 && signal == 0) {
        local_become(runner, LOCAL_DONE);
    } else if (local->is_stopping) {
        local_become(runner, LOCAL_STOPPED);
    } else if (has_met_nobody(local, runner, runner->seen.exit_code)) {
        local_become(runner, LOCAL_DOWN);
        runner->restart_ns = 0; /* at once, and alone */
    } else {
        if (signal != 0) {
            snprintf(how, sizeof how, "ended by signal %d", signal);
        } else {
            snprintf(how, sizeof how, "exit code %d", code);
        }
        local_fail(local, peer, how);
    }
}

/* ---- as time passes ---- */

/* A tick's `now` is older than what happened during the tick. */
static uint64_t since(uint64_t now_ns, uint64_t then_ns)
{
    return now_ns > then_ns ? now_ns - then_ns : 0;
}

uint64_t local_silence_limit_ns(const struct local_options *options)
{
    return options->report_every_ns + SILENCE_LIMIT_NS;
}

static void tend(struct local *local, uint32_t peer, uint64_t now)
{
    struct runner *runner = &local->runners[peer];
    struct fault why = {""};
    char how[64];

    if (runner->seen.is_frozen && now >= runner->thaw_ns) {
        runner->seen.is_frozen = false;
        runner->heard_ns = now;
        process_signal(local->host, (uint32_t)runner->child, SIGCONT);
    }
    if (runner->seen.state == LOCAL_DOWN && now >= runner->restart_ns) {
        const uint64_t kept = local_samples_kept(local, peer);
        if (runner->killed_samples > kept) {
            runner->seen.samples_lost += runner->killed_samples - kept;
        }
        runner->killed_samples = 0;
        local_become(runner, LOCAL_WAITING);
        if (local_start(local, peer, &why) != RC_OK) local_fail(local, peer, why.text);
    }
    const bool is_starting = runner->seen.state == LOCAL_STARTING;
    const uint64_t limit = is_starting ? START_LIMIT_NS : local_silence_limit_ns(local->options);
    if (runner_is_running(runner) && !runner->seen.is_frozen &&
        since(now, runner->heard_ns) > limit) {
        process_signal(local->host, (uint32_t)runner->child, SIGKILL);
        snprintf(how, sizeof how, "%s %llu s%s", is_starting ? "no address within" : "silent for",
                 (unsigned long long)(limit / NS_PER_S), is_starting ? " of its start" : "");
        local_fail(local, peer, how);
    }
}

static bool is_over(const struct local *local)
{
    for (uint32_t i = 0; i < local->options->peers; i++) {
        const struct runner *runner = &local->runners[i];
        if (runner->seen.state < LOCAL_DONE || runner->child != LOCAL_NO_CHILD) return false;
    }
    return true;
}

static void show(struct local *local)
{
    struct local_peer *peers;

    if (local->options->on_tick == NULL) return;
    peers = mem_array(local->options->peers, sizeof *peers);
    if (peers == NULL) return;
    for (uint32_t i = 0; i < local->options->peers; i++) {
        peers[i] = local->runners[i].seen;
    }
    local->options->on_tick(local->options->context, peers, local->options->peers,
                            local_clock(local));
    mem_free(peers);
}

/* How many ticks are in one of TICK_NS. */
static uint64_t local_quick_ticks(const struct local_options *options)
{
    for (size_t i = 0; i < options->chaos.rules_count; i++) {
        if (options->chaos.rules[i].kind == CHAOS_SLOW) return QUICK_TICKS;
    }
    return 1;
}

static void on_tick(void *context, uint64_t now)
{
    struct local *local = context;

    local_cause_faults(local, now);
    local_heal(local, now);
    local_pace_slow(local, now);
    for (uint32_t i = 0; i < local->options->peers; i++) {
        if (!local->is_stopping) tend(local, i, now);
        struct runner *runner = &local->runners[i];
        if (local->is_stopping && runner_is_running(runner) &&
            since(now, local->stop_ns) > STOP_LIMIT_NS) {
            process_signal(local->host, (uint32_t)runner->child, SIGKILL);
        }
    }
    if (local->ticks++ % local_quick_ticks(local->options) == 0) show(local);
    if (is_over(local)) process_host_stop(local->host);
}

static void on_own_signal(void *context, int signal)
{
    struct local *local = context;

    /* The second one: no more waiting for goodbyes. */
    stop_all(local, local->signal != 0 ? SIGKILL : signal);
    local->signal = signal;
}

/* ---- the whole run ---- */

static enum rc take_result(struct local *local, struct local_result *result, struct fault *why)
{
    struct local_peer *peers = mem_array(local->options->peers, sizeof *peers);

    if (peers == NULL) return fault_set(why, RC_NOMEM, "out of memory");
    for (uint32_t i = 0; i < local->options->peers; i++) {
        if (local->runners[i].seen.state == LOCAL_DONE) local_read_lineage(local, i);
        peers[i] = local->runners[i].seen;
    }
    *result = (struct local_result){
        .peers = peers,
        .count = local->options->peers,
        .wall_s = local_clock(local) - local->options->started_s,
        .time_to_target_s = local->target_s,
        .faults = local->faults,
        .faults_spared = local->faults_due - local->faults,
        .signal = local->signal,
    };
    return RC_OK;
}

enum rc local_run(const struct local_options *options, struct local_result *result,
                  struct fault *why)
{
    struct local local = {.options = options, .chaos = options->chaos, .target_s = NAN};
    const struct process_events events = {&local, local_hear, on_exit_of_child, on_tick,
                                          on_own_signal};
    enum rc rc;

    CHECK(options->peers > 0 && strlen(options->out) + 64 < LOCAL_PATH_BYTES);
    local.runners = mem_array(options->peers, sizeof *local.runners);
    if (local.runners == NULL) return fault_set(why, RC_NOMEM, "out of memory");
    for (uint32_t i = 0; i < options->peers; i++) {
        struct local_peer *seen = &local.runners[i].seen;
        local.runners[i].child = LOCAL_NO_CHILD;
        seen->loss = seen->accuracy = seen->samples_per_s = seen->goal_s = NAN;
    }
    snprintf(local.events_path, sizeof local.events_path, "%s/events.jsonl", options->out);
    rc = process_host_create(&events, TICK_NS / local_quick_ticks(options), &local.host, why);
    if (rc == RC_OK) rc = local_lines_open(&local, why);
    if (rc != RC_OK) goto out;
    local.begin_ns = process_now_ns(local.host);
    chaos_begin(&local.chaos, options->seed, local.begin_ns);
    rc = local_start(&local, 0, why);
    if (rc != RC_OK) goto out;
    process_host_run(local.host);
    local_tell_spared(&local);
    rc = take_result(&local, result, why);
out:
    proxy_destroy(local.lines);
    process_host_destroy(local.host);
    mem_free(local.runners);
    return rc;
}

void local_result_deinit(struct local_result *result)
{
    mem_free(result->peers);
    *result = (struct local_result){.count = 0};
}
