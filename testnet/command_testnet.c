/*
 * command_testnet: real peers on this machine, shown live, judged at the end: every model, their
 * average and their ensemble on the whole test part, the exact consensus distance, the invariants.
 */
#include "peer/cli/command.h"

#include "averaging/strategy/strategy.h"
#include "base/check.h"
#include "base/cpu.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "testnet/folder.h"
#include "testnet/hetero_spec.h"
#include "testnet/history.h"
#include "testnet/link_spec.h"
#include "testnet/local.h"
#include "testnet/report.h"
#include "testnet/springs.h"
#include "testnet/summary.h"
#include "testnet/table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { WORDS_MAX = 128, PATH_BYTES = 1024 };

/* What is seen while it runs. */
struct view {
    struct log log;
    const char *aside;  /* the folder, if an earlier run is set aside in it; or NULL */
    bool is_live;       /* a table drawn over and over, on a terminal */
    size_t lines_drawn; /* of the table on the screen now */
    struct text text;
};

static void view_erase(struct view *view)
{
    if (view->lines_drawn > 0) fprintf(stderr, "\033[%zuA\033[J", view->lines_drawn);
    view->lines_drawn = 0;
}

static struct table_row row_of(uint32_t peer, const struct local_peer *state)
{
    return (struct table_row){
        .peer = peer,
        .state = local_state_name(state),
        .step = state->step,
        .round = state->round,
        .neighbours = state->neighbours,
        .bytes_sent = state->bytes_sent,
        .rss_bytes = state->rss_bytes,
        .loss = state->loss,
        .accuracy = state->accuracy,
        .samples_per_s = state->samples_per_s,
    };
}

static void on_report(void *context, uint32_t peer, const struct local_peer *state)
{
    struct view *view = context;
    const struct table_row row = row_of(peer, state);

    if (view->is_live) return;
    text_clear(&view->text);
    table_add_line(&view->text, &row);
    if (text_is_whole(&view->text)) log_info(&view->log, "%s", view->text.bytes);
}

static void on_note(void *context, bool is_error, const char *line)
{
    struct view *view = context;

    view_erase(view);
    log_line(&view->log, is_error ? LOG_ERROR : LOG_WARN, "%s", line);
}

/* Flags are of use, and a peer has begun: the earlier run can go. */
static void settle(struct view *view, const struct local_peer *first)
{
    struct fault why = {""};

    if (view->aside == NULL || first->address[0] == '\0') return;
    if (folder_settle(view->aside, &why) != RC_OK) on_note(view, false, why.text);
    view->aside = NULL;
}

static void on_tick(void *context, const struct local_peer *peers, uint32_t count, double elapsed_s)
{
    struct view *view = context;
    struct winsize size = {.ws_row = 0};

    settle(view, &peers[0]);
    if (!view->is_live) return;
    struct table_row *rows = mem_array(count, sizeof *rows);
    if (rows == NULL) return;
    for (uint32_t i = 0; i < count; i++) {
        rows[i] = row_of(i, &peers[i]);
    }
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0) {
        size = (struct winsize){.ws_row = 24, .ws_col = 100};
    }
    text_clear(&view->text);
    text_add(&view->text, "%.1f s\n", elapsed_s);
    const size_t lines = 1 + table_add(&view->text, rows, count, size.ws_col,
                                       size.ws_row > 2 ? size.ws_row - 2U : 1);
    mem_free(rows);
    view_erase(view);
    if (!text_is_whole(&view->text)) return;
    fputs(view->text.bytes, stderr);
    view->lines_drawn = lines;
}

/* ---- judging ---- */

/* The models that are there, and whose they are. */
struct models {
    char (*paths)[PATH_BYTES]; /* [count] */
    const char **list;         /* into `paths`, for the comparison */
    uint32_t *peer_of;
    size_t count;
};

static void models_deinit(struct models *models)
{
    mem_free(models->paths);
    mem_free(models->list);
    mem_free(models->peer_of);
}

static enum rc models_find(struct models *models, const char *out, uint32_t peers,
                           struct fault *why)
{
    *models = (struct models){mem_array(peers, PATH_BYTES), mem_array(peers, sizeof(char *)),
                              mem_array(peers, sizeof(uint32_t)), 0};
    if (models->paths == NULL || models->list == NULL || models->peer_of == NULL) {
        models_deinit(models);
        return fault_set(why, RC_NOMEM, "out of memory");
    }
    for (uint32_t i = 0; i < peers; i++) {
        char *path = models->paths[models->count];
        snprintf(path, PATH_BYTES, "%s/peer-%03u/model.safetensors", out, i);
        if (!file_is_there(path)) continue;
        models->list[models->count] = path;
        models->peer_of[models->count++] = i;
    }
    return RC_OK;
}

static enum rc judge(const struct models *models, const struct options *options, const char *out,
                     struct comparison *comparison, struct fault *why)
{
    char average[PATH_BYTES];
    /* The peers are gone: the processors are free. */
    const struct cpu_backend_options device = {.threads = cpu_cores()};
    const struct comparison_options request = {
        .paths = models->list,
        .paths_count = models->count,
        .data = options_text(options, "data"),
        .seed = options_count(options, "seed"),
        .average_path = average,
    };

    if (models->count == 0) return fault_set(why, RC_NOT_FOUND, "no peer left a model in %s", out);
    snprintf(average, sizeof average, "%s/average.safetensors", out);
    struct backend *backend = cpu_backend_create(&device);
    if (backend == NULL) return fault_set(why, RC_NOMEM, "device cpu: out of memory");
    const enum rc rc = comparison_run(backend, &request, comparison, why);
    backend_destroy(backend);
    return rc;
}

static enum rc save_summary(const char *out, const struct json *summary, struct fault *why)
{
    char path[PATH_BYTES];
    char *text = json_format_pretty(summary);

    if (text == NULL) return fault_set(why, RC_NOMEM, "out of memory");
    const struct piece pieces[] = {{text, strlen(text)}, {"\n", 1}};
    snprintf(path, sizeof path, "%s/summary.json", out);
    const enum rc rc = file_replace(path, pieces, ARRAY_COUNT(pieces), 0644, why);
    mem_free(text);
    return rc;
}

static enum rc save_report(const char *out, struct fault *why)
{
    struct report_sources sources;
    enum rc rc = report_load(out, &sources, why);

    if (rc != RC_OK) return rc;
    rc = report_write(out, &sources, why);
    report_sources_deinit(&sources);
    return rc;
}

static void print_table(const struct json *summary, const char *out)
{
    struct text text = TEXT_EMPTY;

    summary_add_table(&text, summary, NULL);
    if (text_is_whole(&text)) fprintf(stderr, "\n%s\n%s/report.html\n", text.bytes, out);
    text_deinit(&text);
}

/* ---- the command ---- */

/* Coordinates of the averaging method, as they are in force. */
struct method {
    struct strategy strategy;
    char topology[TOPOLOGY_TEXT];
};

static enum rc method_parse(const struct options *options, struct method *method, struct fault *why)
{
    const struct strategy_specs specs = {
        .averaging = options_text(options, "averaging"),
        .topology = options_text(options, "topology"),
        .exchange = options_text(options, "exchange"),
        .codec = options_text(options, "codec"),
        .rule = options_text(options, "rule"),
        .pace = options_text(options, "pace"),
        .robust = options_text(options, "robust"),
        .moments = options_text(options, "moments"),
    };
    enum rc rc = strategy_parse(&specs, &method->strategy, why);
    if (rc == RC_OK) {
        rc = strategy_check_peers(&method->strategy, options_count(options, "peers"), why);
    }
    if (rc == RC_OK) {
        rc = springs_check(&method->strategy, (uint32_t)options_count(options, "peers"), why);
    }
    if (rc != RC_OK) return rc;
    if (method->strategy.is_averaging) {
        topology_format(&method->strategy.topology, method->topology);
    } else {
        snprintf(method->topology, sizeof method->topology, "none");
    }
    return RC_OK;
}

static bool any_failed(const struct local_result *run)
{
    for (uint32_t i = 0; i < run->count; i++) {
        if (run->peers[i].state == LOCAL_FAILED) return true;
    }
    return false;
}

/* Wrong flags, which the first peer is the first to see: nobody began. What a peer left that failed
 * otherwise tells why, and stays. */
static bool is_stillborn(const struct local_result *run)
{
    const struct local_peer *first = &run->peers[0];

    return first->state == LOCAL_FAILED && first->starts == 1 && first->address[0] == '\0' &&
           first->exit_code == EXIT_USAGE;
}

/* What an earlier run left is as it was, a new folder stays empty. */
static void give_up(const struct options *options)
{
    struct fault why = {""};

    if (options_flag(options, "resume")) return;
    if (folder_undo(options_text(options, "out"), &why) != RC_OK) command_failed(RC_IO, &why);
}

/* Exit code of a run that was not stopped. */
static int conclude(const struct options *options, const struct method *method,
                    const struct local_result *run)
{
    const char *out = options_text(options, "out"), *broken = NULL;
    const struct strategy *strategy = &method->strategy;
    struct comparison comparison;
    struct models models;
    struct fault why = {""};
    enum rc rc = models_find(&models, out, run->count, &why);

    if (rc != RC_OK) return command_failed(rc, &why);
    const enum rc judged = judge(&models, options, out, &comparison, &why);
    /* A failed peer has been told of already, and the rest follows from it. */
    const bool has_failed = any_failed(run);
    if (judged != RC_OK && !has_failed) command_failed(judged, &why);
    const struct summary summary = {
        .model = options_text(options, "model"),
        .data = options_text(options, "data"),
        .averaging = options_text(options, "averaging"),
        .exchange = strategy->exchange != NULL ? strategy->exchange->name : "none",
        .codec = strategy->codec != NULL ? strategy->codec->name : "none",
        .topology = method->topology,
        .seed = options_count(options, "seed"),
        .target_accuracy = options_real(options, "target-accuracy"),
        .run = run,
        .models = judged == RC_OK ? &comparison : NULL,
        .peer_of = models.peer_of,
    };
    struct json *json = summary_json(&summary);
    if (judged == RC_OK) comparison_deinit(&comparison);
    models_deinit(&models);
    rc = save_summary(out, json, &why);
    if (rc == RC_OK) rc = save_report(out, &why);
    int code = rc == RC_OK ? EXIT_DONE : command_failed(rc, &why);
    if (has_failed) {
        code = EXIT_FAILED;
    } else if (!summary_holds(json, &broken)) {
        fprintf(stderr, "grapevine: broken: %s; see %s/summary.json\n", broken, out);
        code = EXIT_INVARIANT;
    }
    if (options_flag(options, "json")) {
        command_print_json(json);
        return code;
    }
    if (judged == RC_OK && !options_flag(options, "quiet")) print_table(json, out);
    json_destroy(json);
    return code;
}

/* Where the clock of a resumed run goes on. */
static double time_so_far(const char *out)
{
    char path[PATH_BYTES];
    struct history history;
    double last = 0;

    snprintf(path, sizeof path, "%s/events.jsonl", out);
    if (history_load(path, &history, NULL) != RC_OK) return 0;
    for (size_t i = 0; i < history.peers; i++) {
        const struct track *track = &history.tracks[i];
        if (track->count > 0 && track->values[HISTORY_t][track->count - 1] > last) {
            last = track->values[HISTORY_t][track->count - 1];
        }
    }
    history_deinit(&history);
    return last;
}

/* Who is done before the others have come would leave them alone: peers of a new run begin
 * together. Those of a resumed one may have little left to do, or nothing, and wait for nobody. */
static uint32_t start_with(const struct options *options)
{
    if (options_is_set(options, "start-with")) {
        return (uint32_t)options_count(options, "start-with");
    }
    return options_flag(options, "resume") ? 0 : (uint32_t)options_count(options, "peers");
}

static enum rc check_chaos(const struct options *options, const struct chaos *chaos,
                           struct fault *why)
{
    const uint64_t goal_ns = options_ns(options, "time");

    for (size_t i = 0; goal_ns > 0 && i < chaos->rules_count; i++) {
        const struct chaos_rule *rule = &chaos->rules[i];
        if (rule->after_ns + LOCAL_COME_BACK_NS < goal_ns) continue;
        return fault_set(why, RC_USAGE,
                         "--chaos %s: such a fault lasts %.3g s, and must end %.3g s before --time "
                         "does; shorten it, or give a longer --time",
                         chaos_name(rule->kind), (double)rule->after_ns / 1e9,
                         (double)LOCAL_COME_BACK_NS / 1e9);
    }
    return RC_OK;
}

/* What peers are told; without --threads, that they share the cores. */
static size_t words_of(const struct options *options, char **words)
{
    static const char *const ours[] = {
        "out",    "json",      "quiet",     "verbose", "listen",     "bootstrap", "shard-of",
        "hetero", "advertise", "step-time", "time",    "start-with", NULL};
    const uint32_t each = cpu_cores() / (uint32_t)options_count(options, "peers");
    const size_t count = options_forward(options, COMMAND_PEER, ours, words, WORDS_MAX - 1);
    char text[32];

    if (count == SIZE_MAX || options_is_set(options, "threads") ||
        options_count(options, "hogwild") > 0) {
        return count;
    }
    snprintf(text, sizeof text, "--threads=%u", each > 1 ? each : 1);
    words[count] = mem_string(text);
    if (words[count] != NULL) return count + 1;
    for (size_t i = 0; i < count; i++) {
        mem_free(words[i]);
    }
    return SIZE_MAX;
}

/* Start the peers and wait for them. */
static enum rc run_peers(struct options *options, const struct chaos *chaos,
                         const struct sim_path *link, const double *speeds, struct view *view,
                         struct local_result *result, struct fault *why)
{
    char *words[WORDS_MAX], executable[PATH_BYTES];
    const char *shard = options_text(options, "shard"), *out = options_text(options, "out");
    const ssize_t length = readlink("/proc/self/exe", executable, sizeof executable - 1);

    if (length <= 0) return fault_set(why, RC_IO, "cannot find this executable in /proc/self/exe");
    executable[length] = '\0';
    const size_t count = words_of(options, words);
    if (count == SIZE_MAX) return fault_set(why, RC_NOMEM, "out of memory");
    const struct local_options request = {
        .start_with = start_with(options),
        .peers = (uint32_t)options_count(options, "peers"),
        .executable = executable,
        .words = (const char *const *)words,
        .words_count = count,
        .out = out,
        .is_verbose = options_flag(options, "verbose"),
        .has_link = options_text(options, "link") != NULL,
        .link = *link,
        .speeds = speeds,
        .step_ns = options_ns(options, "step-time"),
        .gives_shards = shard == NULL || strcmp(shard, "all") != 0,
        .chaos = *chaos,
        .seed = options_count(options, "seed"),
        .target_accuracy = options_real(options, "target-accuracy"),
        .goal_ns = options_ns(options, "time"),
        .report_every_ns = options_ns(options, "report-every"),
        .started_s = time_so_far(out),
        .context = view,
        .on_report = on_report,
        .on_note = on_note,
        .on_tick = on_tick,
    };
    const enum rc rc = local_run(&request, result, why);
    for (size_t i = 0; i < count; i++) {
        mem_free(words[i]);
    }
    return rc;
}

/* [peers], from mem_*. */
static enum rc read_speeds(const struct options *options, double **speeds, struct fault *why)
{
    const char *spec = options_text(options, "hetero");
    size_t peers = (size_t)options_count(options, "peers");
    enum rc rc;

    if (options_count(options, "start-with") > peers) {
        return fault_set(why, RC_USAGE,
                         "--start-with %llu: there are %zu peers; say --peers or less",
                         (unsigned long long)options_count(options, "start-with"), peers);
    }
    if (strcmp(spec, "uniform") != 0 && options_ns(options, "step-time") == 0) {
        return fault_set(why, RC_USAGE,
                         "--hetero %s: say with --step-time what a step takes at speed 1, longer "
                         "than it does by itself",
                         spec);
    }
    *speeds = mem_array(peers, sizeof **speeds);
    if (*speeds == NULL) return fault_set(why, RC_NOMEM, "out of memory");
    rc = hetero_spec_parse(spec, options_count(options, "seed"), *speeds, peers, why);
    if (rc == RC_OK) return RC_OK;
    mem_free(*speeds);
    *speeds = NULL;
    return rc;
}

/* Locked first: what is in it may be another testnet's that runs. */
static enum rc take_folder(const struct options *options, struct file_lock *lock, struct fault *why)
{
    const bool resumes = options_flag(options, "resume"), is_fresh = options_flag(options, "fresh");
    const char *out = options_text(options, "out");
    enum rc rc;

    if (resumes && is_fresh) {
        return fault_set(why, RC_USAGE, "--resume and --fresh exclude each other; choose one");
    }
    rc = folder_lock(out, lock, why);
    if (rc != RC_OK) return rc;
    return folder_prepare(out, resumes ? FOLDER_RESUME : is_fresh ? FOLDER_FRESH : FOLDER_NEW, why);
}

static int run_testnet(struct options *options, struct file_lock *lock)
{
    struct view view = {.log = command_log(options), .text = TEXT_EMPTY};
    struct local_result run;
    struct chaos chaos;
    struct method method;
    struct fault why = {""};
    double *speeds = NULL;
    struct sim_path link;
    const bool is_fresh = options_flag(options, "fresh");
    enum rc rc = chaos_parse(options_text(options, "chaos"), &chaos, &why);
    if (rc == RC_OK) rc = check_chaos(options, &chaos, &why);
    if (rc == RC_OK) rc = link_spec_parse(options_text(options, "link"), &link, &why);

    if (rc == RC_OK) rc = method_parse(options, &method, &why);
    if (rc == RC_OK) rc = read_speeds(options, &speeds, &why);
    if (rc == RC_OK) rc = take_folder(options, lock, &why);
    if (rc != RC_OK) {
        mem_free(speeds);
        return command_failed(rc, &why);
    }
    if (is_fresh && folder_has_aside(options_text(options, "out"))) {
        view.aside = options_text(options, "out");
    }
    view.is_live = isatty(STDERR_FILENO) == 1 && !options_flag(options, "quiet");
    rc = run_peers(options, &chaos, &link, speeds, &view, &run, &why);
    mem_free(speeds);
    text_deinit(&view.text);
    if (rc != RC_OK) {
        if (view.aside != NULL) give_up(options);
        return command_failed(rc, &why);
    }
    settle(&view, &run.peers[0]);
    int code;
    if (run.signal != 0) {
        if (view.aside != NULL) give_up(options); /* before anything began */
        log_info(&view.log, "stopped; --resume goes on from the checkpoints in %s",
                 options_text(options, "out"));
        code = 128 + run.signal;
    } else if (is_stillborn(&run)) {
        give_up(options);
        code = EXIT_USAGE;
    } else {
        if (view.aside != NULL) {
            log_warn(&view.log, "nothing has begun; --resume puts the earlier run back");
        }
        code = conclude(options, &method, &run);
    }
    local_result_deinit(&run);
    return code;
}

int command_testnet(struct options *options)
{
    struct file_lock lock = {.fd = -1};
    const int code = run_testnet(options, &lock);

    folder_unlock(options_text(options, "out"), &lock);
    return code;
}
