/*
 * command_testnet: real peers on this machine, shown live, judged at the end: every model, their
 * average and their ensemble on the whole test part, the exact consensus distance, the invariants.
 * With --baselines the same peers train again, each alone, and then one peer with all the data.
 */
#include "peer/cli/command.h"

#include "averaging/strategy/strategy.h"
#include "base/check.h"
#include "base/cpu.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "testnet/folder.h"
#include "testnet/hetero_spec.h"
#include "testnet/history.h"
#include "testnet/judge.h"
#include "testnet/link_spec.h"
#include "testnet/local.h"
#include "testnet/springs.h"
#include "testnet/summary.h"
#include "testnet/view.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORDS_MAX = 128, WORDS_ADDED = 4, PATH_BYTES = 1024 };

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

/* What the summary says of a run in which nobody averages. */
static struct summary about_run(const struct options *options, const struct local_result *run)
{
    return (struct summary){
        .model = options_text(options, "model"),
        .data = options_text(options, "data"),
        .tokenizer = options_text(options, "tokenizer"),
        .averaging = "none",
        .exchange = "none",
        .codec = "none",
        .topology = "none",
        .seed = options_count(options, "seed"),
        .target_accuracy = options_real(options, "target-accuracy"),
        .run = run,
    };
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

/* Exit code of a run that was not stopped; `*json` is its summary. */
static int conclude(const struct options *options, const struct method *method,
                    const struct local_result *run, struct json **json)
{
    const char *out = options_text(options, "out"), *broken = NULL;
    const struct strategy *strategy = &method->strategy;
    struct fault why = {""};
    struct summary about = about_run(options, run);

    about.averaging = options_text(options, "averaging");
    if (strategy->exchange != NULL) about.exchange = strategy->exchange->name;
    if (strategy->codec.ops != NULL) about.codec = strategy->codec_text;
    about.topology = method->topology;
    const enum rc judged = judge_run(out, &about, json, &why);
    /* A failed peer has been told of already, and the rest follows from it. */
    const bool has_failed = any_failed(run);
    if (judged != RC_OK && !has_failed) command_failed(judged, &why);
    const enum rc rc = judge_save(out, *json, &why);
    if (rc != RC_OK) return command_failed(rc, &why);
    if (has_failed) return EXIT_FAILED;
    if (summary_holds(*json, &broken)) return EXIT_DONE;
    fprintf(stderr, "grapevine: broken: %s; see %s/summary.json\n", broken, out);
    return EXIT_INVARIANT;
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

/* What peers are told. */
struct words {
    char *list[WORDS_MAX];
    size_t count;
};

static void words_deinit(struct words *words)
{
    for (size_t i = 0; i < words->count; i++) {
        mem_free(words->list[i]);
    }
    words->count = 0;
}

/* RC_NOMEM. */
static enum rc words_add(struct words *words, const char *flag, const char *value)
{
    char text[OPTION_VALUE_MAX + 16];

    CHECK(words->count < WORDS_MAX);
    snprintf(text, sizeof text, "%s=%s", flag, value);
    words->list[words->count] = mem_string(text);
    if (words->list[words->count] == NULL) return RC_NOMEM;
    words->count++;
    return RC_OK;
}

static enum rc words_add_count(struct words *words, const char *flag, uint64_t value)
{
    char text[32];

    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    return words_add(words, flag, text);
}

/* What was said, but for `except`; that `peers` of them share the cores, where --threads was not.
 * RC_NOMEM. */
static enum rc words_say(struct words *words, const struct options *options,
                         const char *const *except, uint32_t peers)
{
    const uint32_t each = cpu_cores() / peers;
    const size_t count =
        options_forward(options, COMMAND_PEER, except, words->list, WORDS_MAX - WORDS_ADDED);

    words->count = count == SIZE_MAX ? 0 : count;
    if (count == SIZE_MAX) return RC_NOMEM;
    if (options_is_set(options, "threads") || options_count(options, "hogwild") > 0) return RC_OK;
    return words_add_count(words, "--threads", each > 1 ? each : 1);
}

/* Start the peers and wait for them. */
static enum rc run_peers(const struct words *words, struct local_options *request,
                         struct view *view, const char *what, struct local_result *result,
                         struct fault *why)
{
    char executable[PATH_BYTES];
    const ssize_t length = readlink("/proc/self/exe", executable, sizeof executable - 1);

    if (length <= 0) return fault_set(why, RC_IO, "cannot find this executable in /proc/self/exe");
    executable[length] = '\0';
    request->executable = executable;
    request->words = (const char *const *)words->list;
    request->words_count = words->count;
    view_watch(view, what, request);
    return local_run(request, result, why);
}

static enum rc run_swarm(const struct options *options, const struct chaos *chaos,
                         const struct sim_path *link, const double *speeds, struct view *view,
                         struct local_result *result, struct fault *why)
{
    static const char *const ours[] = {
        "out",    "json",      "quiet",     "verbose", "listen",     "bootstrap", "shard-of",
        "hetero", "advertise", "step-time", "time",    "start-with", NULL};
    const char *shard = options_text(options, "shard"), *out = options_text(options, "out");
    const uint32_t peers = (uint32_t)options_count(options, "peers");
    struct local_options request = {
        .start_with = start_with(options),
        .peers = peers,
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
    };
    struct words words = {.count = 0};
    enum rc rc = words_say(&words, options, ours, peers);

    rc = rc == RC_OK ? run_peers(&words, &request, view, "the swarm", result, why)
                     : fault_set(why, rc, "out of memory");
    words_deinit(&words);
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

/* ---- baselines ---- */

/* What a swarm is worth lies between these two: its peers without each other, and one peer with all
 * the data. Both take as many steps in all as the swarm did; nothing goes wrong there, and no
 * step is slowed. */
struct baseline {
    const char *key, *folder, *what;
    bool is_one; /* peer */
};

static const struct baseline baselines[] = {
    {"alone", FOLDER_ALONE, "the same peers, each alone", false},
    {"all_data", FOLDER_ALL_DATA, "one peer with all the data", true},
};

/* Of each peer of the baseline. */
static uint64_t baseline_steps(const struct local_result *swarm, bool is_one)
{
    uint64_t steps = 0;

    for (uint32_t i = 0; i < swarm->count; i++) {
        steps += swarm->peers[i].own_steps;
    }
    if (!is_one) steps = (steps + swarm->count / 2) / swarm->count;
    return steps > 0 ? steps : 1;
}

static enum rc baseline_say(struct words *words, const struct options *options,
                            const struct baseline *baseline, const struct local_result *swarm)
{
    /* How to average, when to stop, what stands in the way: none of it is theirs. */
    static const char *const except[] = {
        "out",       "json",      "quiet",      "verbose",         "listen",
        "bootstrap", "shard-of",  "hetero",     "advertise",       "step-time",
        "time",      "epochs",    "steps",      "target-accuracy", "target-loss",
        "averaging", "topology",  "exchange",   "codec",           "rule",
        "robust",    "moments",   "pace",       "lr-scaling",      "rate-limit",
        "relay",     "swarm-key", "start-with", "shard",           NULL};
    const char *shard = baseline->is_one ? "all" : options_text(options, "shard");
    enum rc rc = words_say(words, options, except, baseline->is_one ? 1 : swarm->count);

    if (rc == RC_OK) rc = words_add(words, "--averaging", "none");
    if (rc == RC_OK && shard != NULL) rc = words_add(words, "--shard", shard);
    if (rc != RC_OK) return rc;
    return words_add_count(words, "--steps", baseline_steps(swarm, baseline->is_one));
}

/* Exit code; where it is EXIT_DONE, `*json` is the baseline's own summary. */
static int run_baseline(const struct options *options, const struct baseline *baseline,
                        const struct local_result *swarm, struct view *view, struct json **json)
{
    const char *shard = options_text(options, "shard");
    char out[PATH_BYTES];
    struct local_options request = {
        .peers = baseline->is_one ? 1 : swarm->count,
        .start_with = baseline->is_one ? 1 : swarm->count,
        .out = out,
        .is_verbose = options_flag(options, "verbose"),
        .gives_shards = !baseline->is_one && (shard == NULL || strcmp(shard, "all") != 0),
        .seed = options_count(options, "seed"),
        .report_every_ns = options_ns(options, "report-every"),
    };
    struct words words = {.count = 0};
    struct local_result run;
    struct fault why = {""};
    enum rc rc = baseline_say(&words, options, baseline, swarm);

    log_info(&view->log, "for comparison: %s", baseline->what);
    snprintf(out, sizeof out, "%s/%s", options_text(options, "out"), baseline->folder);
    if (rc != RC_OK) fault_set(&why, rc, "out of memory");
    if (rc == RC_OK) rc = folder_empty(out, &why);
    if (rc == RC_OK) rc = run_peers(&words, &request, view, baseline->what, &run, &why);
    words_deinit(&words);
    if (rc != RC_OK) return command_failed(rc, &why);
    int code = run.signal != 0 ? 128 + run.signal : any_failed(&run) ? EXIT_FAILED : EXIT_DONE;
    if (code == EXIT_DONE) {
        const struct summary about = about_run(options, &run);
        rc = judge_run(out, &about, json, &why);
        if (rc == RC_OK) rc = judge_save(out, *json, &why);
        if (rc != RC_OK) {
            json_destroy(*json);
            code = command_failed(rc, &why);
        }
    }
    local_result_deinit(&run);
    return code;
}

/* After the swarm, whose summary is `json` and stands as it is until all baselines are there. */
static int run_baselines(const struct options *options, const struct local_result *swarm,
                         struct view *view, struct json *json)
{
    struct json *all = json_object_create(), *one = NULL;
    struct fault why = {""};

    for (size_t i = 0; i < ARRAY_COUNT(baselines); i++) {
        const int code = run_baseline(options, &baselines[i], swarm, view, &one);

        if (code != EXIT_DONE) {
            log_warn(&view->log, "%s: not finished, so the table is without baselines",
                     baselines[i].what);
            json_destroy(all);
            return code;
        }
        json_set(all, baselines[i].key, one);
    }
    json_set(json, "baselines", all);
    const enum rc rc = judge_save(options_text(options, "out"), json, &why);
    return rc == RC_OK ? EXIT_DONE : command_failed(rc, &why);
}

/* The swarm has ended by itself. */
static int finish(const struct options *options, const struct method *method,
                  const struct local_result *run, struct view *view)
{
    struct json *json;
    int code = conclude(options, method, run, &json);

    if (code == EXIT_DONE && options_flag(options, "baselines")) {
        code = run_baselines(options, run, view, json);
    }
    if (options_flag(options, "json")) {
        command_print_json(json);
        return code;
    }
    if (summary_has_scores(json) && !options_flag(options, "quiet")) {
        print_table(json, options_text(options, "out"));
    }
    json_destroy(json);
    return code;
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
    if (rc == RC_OK) rc = link_spec_parse("link", options_text(options, "link"), &link, &why);

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
    rc = run_swarm(options, &chaos, &link, speeds, &view, &run, &why);
    mem_free(speeds);
    if (rc != RC_OK) {
        text_deinit(&view.text);
        if (view.aside != NULL) give_up(options);
        return command_failed(rc, &why);
    }
    view_settle(&view, &run.peers[0]);
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
        code = finish(options, &method, &run, &view);
    }
    text_deinit(&view.text);
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
