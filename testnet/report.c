/* report: see report.h. Everything that comes from a file is escaped or a number. */
#include "testnet/report.h"

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/units.h"
#include "peer/watch/page/page.h"
#include "testnet/history.h"
#include "testnet/report_charts.h"
#include "testnet/report_topology.h"
#include "testnet/summary.h"
#include "testnet/values.h"

#include <math.h>
#include <stdio.h>

enum { PATH_BYTES = 1024, RESULT_BYTES_MAX = 4 * 1024 * 1024, COLOURS = 8 };

/* ---- reading ---- */

static enum rc load_json(const char *folder, const char *name, struct json **json,
                         struct fault *why)
{
    char path[PATH_BYTES];
    void *bytes = NULL;
    size_t count;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    enum rc rc = file_read(path, RESULT_BYTES_MAX, &bytes, &count, why);
    if (rc != RC_OK) return rc;
    struct fault reason = {""};
    rc = json_parse(bytes, count, json, &reason);
    if (rc != RC_OK) fault_set(why, rc, "cannot read %s: %s", path, reason.text);
    mem_free(bytes);
    return rc;
}

enum rc report_load(const char *folder, struct report_sources *sources, struct fault *why)
{
    char path[PATH_BYTES];
    struct report_sources loaded = {.summary = NULL};
    enum rc rc = load_json(folder, "summary.json", &loaded.summary, why);

    if (rc != RC_OK) return rc;
    rc = load_json(folder, "distill.json", &loaded.distilled, why);
    if (rc == RC_OK || rc == RC_NOT_FOUND) {
        loaded.history = mem_alloc(sizeof *loaded.history);
        snprintf(path, sizeof path, "%s/events.jsonl", folder);
        rc = loaded.history != NULL ? history_load(path, loaded.history, why) : RC_NOMEM;
    }
    if (rc != RC_OK && rc != RC_NOT_FOUND) {
        report_sources_deinit(&loaded);
        return rc;
    }
    *sources = loaded;
    return RC_OK;
}

void report_sources_deinit(struct report_sources *sources)
{
    json_destroy(sources->summary);
    json_destroy(sources->distilled);
    if (sources->history != NULL) history_deinit(sources->history);
    mem_free(sources->history);
    *sources = (struct report_sources){NULL, NULL, NULL};
}

/* ---- cells ---- */

static void add_percent(struct text *text, double share)
{
    if (isnan(share)) {
        text_add(text, "&ndash;");
    } else {
        text_add(text, "%.2f&nbsp;%%", share * 100);
    }
}

static void add_number(struct text *text, double value, int digits)
{
    if (isnan(value)) {
        text_add(text, "&ndash;");
    } else {
        text_add(text, "%.*f", digits, value);
    }
}

static void add_bytes(struct text *text, double bytes)
{
    char words[32];

    /* A file may say any number. */
    text_add(text, "%s",
             bytes >= 0 && bytes < 0x1p62 ? units_format_bytes((uint64_t)bytes, words, sizeof words)
                                          : "&ndash;");
}

static void add_count(struct text *text, uint64_t count)
{
    char words[32];

    text_add(text, "%s", units_format_count(count, words, sizeof words));
}

static void add_card(struct text *text, const char *name, const char *value)
{
    text_add(text, "<div class=\"card\"><b>%s</b><span>%s</span></div>\n", value, name);
}

static void add_percent_card(struct text *text, const char *name, double share)
{
    char words[32];

    if (isnan(share)) return;
    snprintf(words, sizeof words, "%.2f&nbsp;%%", share * 100);
    add_card(text, name, words);
}

static void add_loss_card(struct text *text, const char *name, double loss)
{
    char words[32];

    if (isnan(loss)) return;
    snprintf(words, sizeof words, "%.4f", loss);
    add_card(text, name, words);
}

/* ---- sections ---- */

static void add_start(struct text *text)
{
    text_add(text,
             "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
             "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
             "<meta name=\"color-scheme\" content=\"light dark\">\n"
             "<title>grapevine run</title>\n<style>\n%s</style></head>\n<body><main>\n",
             page_style);
}

static void add_head(struct text *text, const struct json *summary)
{
    add_start(text);
    text_add(text, "<h1>%llu peers, one model</h1>\n<p class=\"sub\"><b>",
             (unsigned long long)value_count(summary, "peers"));
    text_add_escaped(text, value_text(summary, "model"));
    text_add(text, "</b> on <b>");
    text_add_escaped(text, value_text(summary, "data"));
    text_add(text, "</b>, averaged by <b>");
    text_add_escaped(text, value_text(summary, "averaging"));
    text_add(text, "</b> over ");
    text_add_escaped(text, value_text(summary, "topology"));
    text_add(text, ", codec ");
    text_add_escaped(text, value_text(summary, "codec"));
    text_add(text, ", seed %llu</p>\n", (unsigned long long)value_count(summary, "seed"));
}

/* The score that tells models apart, under the names of the summary and of `distill --json`. */
static void add_score_cards(struct text *text, const struct report_sources *sources)
{
    const bool is_loss = summary_is_by_loss(sources->summary);
    const struct json *scores = json_get(sources->summary, is_loss ? "loss" : "accuracy");
    void (*const add)(struct text *, const char *, double) =
        is_loss ? add_loss_card : add_percent_card;

    add(text, is_loss ? "loss, average of the parameters" : "average of the parameters",
        value_real(scores, "average_model"));
    add(text, is_loss ? "loss, ensemble" : "ensemble", value_real(scores, "ensemble"));
    add(text, is_loss ? "loss, distilled student" : "distilled student",
        value_real(sources->distilled, is_loss ? "student_loss" : "student_accuracy"));
}

static void add_cards(struct text *text, const struct report_sources *sources)
{
    char words[64];

    text_add(text, "<div class=\"cards\">\n");
    add_score_cards(text, sources);
    if (sources->distilled != NULL) {
        snprintf(words, sizeof words, "%.1f&times;", value_real(sources->distilled, "compression"));
        add_card(text, "fewer parameters in the student", words);
    }
    snprintf(words, sizeof words, "%.1f&nbsp;s", value_real(sources->summary, "wall_s"));
    add_card(text, "training", words);
    units_format_count((uint64_t)fmax(value_real(sources->summary, "samples_per_s"), 0), words,
                       sizeof words);
    add_card(text, "samples a second, all peers", words);
    units_format_bytes(value_count(sources->summary, "bytes_sent_total"), words, sizeof words);
    add_card(text, "sent by all peers", words);
    text_add(text, "</div>\n");
}

static void add_peer_row(struct text *text, const struct json *summary, size_t i)
{
    const struct json *states = json_get(summary, "states");
    const char *state =
        states != NULL && i < json_count(states) ? json_text_of(json_at(states, i)) : NULL;

    text_add(text, "<tr><td><span class=\"dot\" style=\"background:var(--c%zu)\"></span>peer %zu",
             i % COLOURS, i);
    text_add(text, "</td><td>");
    text_add_escaped(text, state);
    text_add(text, "</td><td>");
    add_percent(text, value_element(json_get(summary, "accuracy"), "peers", i));
    text_add(text, "</td><td>");
    add_number(text, value_element(json_get(summary, "loss"), "peers", i), 4);
    text_add(text, "</td><td>");
    add_count(text, value_count(summary, "parameters"));
    text_add(text, "</td><td>");
    add_bytes(text, value_element(summary, "bytes_sent", i));
    text_add(text, "</td><td>");
    add_bytes(text, value_element(summary, "peak_rss_bytes", i));
    text_add(text, "</td><td>");
    add_number(text, value_element(summary, "starts", i), 0);
    text_add(text, "</td></tr>\n");
}

static void add_model_row(struct text *text, const char *name, double accuracy, double loss,
                          uint64_t parameters)
{
    text_add(text, "<tr class=\"main\"><td>%s</td><td></td><td>", name);
    add_percent(text, accuracy);
    text_add(text, "</td><td>");
    add_number(text, loss, 4);
    text_add(text, "</td><td>");
    add_count(text, parameters);
    text_add(text, "</td><td></td><td></td><td></td></tr>\n");
}

static void add_baseline_rows(struct text *text, const struct json *summary)
{
    const bool is_loss = summary_is_by_loss(summary);
    const uint64_t parameters = value_count(summary, "parameters");
    struct spread spread;

    if (summary_baseline(summary, "alone", &spread)) {
        add_model_row(text, "the same peers, each alone: mean", is_loss ? NAN : spread.mean,
                      is_loss ? spread.mean : NAN, parameters);
        add_model_row(text, "&ndash; the best of them", is_loss ? NAN : spread.most,
                      is_loss ? spread.least : NAN, parameters);
        add_model_row(text, "&ndash; their ensemble", is_loss ? NAN : spread.ensemble,
                      is_loss ? spread.ensemble : NAN, spread.peers * parameters);
    }
    if (summary_baseline(summary, "all_data", &spread)) {
        add_model_row(text, "one peer with all the data, as many steps",
                      is_loss ? NAN : spread.mean, is_loss ? spread.mean : NAN, parameters);
    }
}

static void add_table(struct text *text, const struct report_sources *sources)
{
    const struct json *summary = sources->summary, *distilled = sources->distilled;
    const struct json *accuracy = json_get(summary, "accuracy"), *loss = json_get(summary, "loss");
    const uint64_t peers = value_count(summary, "peers"),
                   parameters = value_count(summary, "parameters");

    text_add(text, "<h2>Models</h2>\n<div class=\"wide\"><table>\n<tr><th>model</th><th>state</th>"
                   "<th>accuracy</th><th>loss</th><th>parameters</th><th>sent</th>"
                   "<th>peak memory</th><th>starts</th></tr>\n");
    for (size_t i = 0; i < peers && i < HISTORY_PEERS_MAX; i++) {
        add_peer_row(text, summary, i);
    }
    add_model_row(text, "average of the parameters", value_real(accuracy, "average_model"),
                  value_real(loss, "average_model"), parameters);
    add_model_row(text, "ensemble", value_real(accuracy, "ensemble"), value_real(loss, "ensemble"),
                  parameters * peers);
    if (distilled != NULL) {
        const uint64_t students = value_count(distilled, "student_parameters");
        add_model_row(text, "distilled student", value_real(distilled, "student_accuracy"),
                      value_real(distilled, "student_loss"), students);
        if (!isnan(value_real(distilled, "labels_only_accuracy"))) {
            add_model_row(text, "the same student on labels alone",
                          value_real(distilled, "labels_only_accuracy"),
                          value_real(distilled, "labels_only_loss"), students);
        }
    }
    add_baseline_rows(text, summary);
    text_add(text, "</table></div>\n");
}

/* A model of `distill --json`: what it is worth, what it costs, and how to make it again. */
static void add_lineup_row(struct text *text, const struct json *model)
{
    const char *command = value_text(model, "command");

    text_add(text, "<tr><td>");
    text_add_escaped(text, value_text(model, "name"));
    text_add(text, "</td><td>");
    add_percent(text, value_real(model, "accuracy"));
    text_add(text, "</td><td>");
    add_number(text, value_real(model, "loss"), 4);
    text_add(text, "</td><td>");
    add_percent(text, value_real(model, "calibration_error"));
    text_add(text, "</td><td>");
    add_count(text, value_count(model, "parameters"));
    text_add(text, "</td><td>");
    add_bytes(text, value_real(model, "bytes"));
    text_add(text, "</td><td>");
    add_count(text, value_count(model, "flops"));
    text_add(text, "</td><td>");
    add_number(text, value_real(model, "latency_us"), 1);
    text_add(text, "</td><td><code>");
    if (command != NULL) text_add_escaped(text, command);
    text_add(text, "</code></td></tr>\n");
}

static void add_lineup(struct text *text, const struct json *distilled)
{
    const struct json *models = json_get(distilled, "models");
    const size_t count = models != NULL && json_is_an_array(models) ? json_count(models) : 0;

    if (count == 0) return; /* a result of an earlier version */
    text_add(text,
             "<h2>Teachers, ensemble, student</h2>\n<div class=\"wide\"><table>\n<tr>"
             "<th>model</th><th>accuracy</th><th>loss</th><th>calibration error</th>"
             "<th>parameters</th><th>file</th><th>FLOPs a sample</th><th>&micro;s a sample</th>"
             "<th>made by</th></tr>\n");
    for (size_t i = 0; i < count && i < HISTORY_PEERS_MAX; i++) {
        add_lineup_row(text, json_at(models, i));
    }
    text_add(text, "</table></div>\n");
}

static void add_fact(struct text *text, const char *name, double value, int digits)
{
    text_add(text, "<tr><td>%s</td><td>", name);
    add_number(text, value, digits);
    text_add(text, "</td></tr>\n");
}

static void add_count_fact(struct text *text, const char *name, const struct json *summary,
                           const char *key)
{
    text_add(text, "<tr><td>%s</td><td>", name);
    add_count(text, value_count(summary, key));
    text_add(text, "</td></tr>\n");
}

static void add_facts(struct text *text, const struct json *summary)
{
    const struct json *invariants = json_get(summary, "invariants"), *value;
    const char *key;
    bool holds;

    text_add(text, "<h2>Facts</h2>\n<div class=\"wide\"><table>\n");
    add_count_fact(text, "rounds completed, sum over peers", summary, "rounds_ok");
    add_count_fact(text, "rounds aborted", summary, "rounds_aborted");
    add_count_fact(text, "steps, sum over peers", summary, "steps_total");
    add_count_fact(text, "samples, sum over peers", summary, "samples_total");
    add_fact(text, "consensus distance", value_real(summary, "consensus_distance"), 6);
    add_fact(text, "seconds to the target accuracy", value_real(summary, "time_to_target_s"), 1);
    add_count_fact(text, "faults injected", summary, "faults_injected");
    add_count_fact(text, "faults that found nobody to strike", summary, "faults_spared");
    add_fact(text, "share of the training that no fault threw away", value_real(summary, "goodput"),
             4);
    for (size_t i = 0; invariants != NULL && json_member_at(invariants, i, &key, &value); i++) {
        holds = json_get_bool(invariants, key, &holds) && holds;
        text_add(text, "<tr><td>invariant: ");
        text_add_escaped(text, key);
        text_add(text, "</td><td class=\"%s\">%s</td></tr>\n", holds ? "good" : "bad",
                 holds ? "holds" : "broken");
    }
    text_add(text, "</table></div>\n");
}

void report_add_page(struct text *text, const struct report_sources *sources)
{
    CHECK(sources->summary != NULL);
    add_head(text, sources->summary);
    add_cards(text, sources);
    if (sources->history != NULL) report_add_charts(text, sources->history);
    text_add(text, "<h2>Topology</h2>\n<div class=\"charts\">\n");
    report_add_topology(text, value_text(sources->summary, "topology"),
                        value_count(sources->summary, "peers"));
    text_add(text, "</div>\n");
    add_table(text, sources);
    if (sources->distilled != NULL) add_lineup(text, sources->distilled);
    add_facts(text, sources->summary);
    text_add(text, "<footer>Layers: <code>");
    text_add_escaped(text, value_text(sources->summary, "model_spec"));
    text_add(text, "</code>");
    if (sources->distilled != NULL) {
        text_add(text, "<br>Student: <code>");
        text_add_escaped(text, value_text(sources->distilled, "student"));
        text_add(text, "</code>");
    }
    text_add(text, "<br>Accuracy in curves: on --evaluate-samples fixed test samples (1,000 unless "
                   "said otherwise), at a curve's end and in the table: on all of them. Dashed "
                   "lines: injected faults.</footer>\n</main></body></html>\n");
}

/* Of peers that no testnet has started: what each said last. */
static void add_track_row(struct text *text, const struct track *track, size_t i)
{
    text_add(text, "<tr><td><span class=\"dot\" style=\"background:var(--c%zu)\"></span>",
             i % COLOURS);
    text_add_escaped(text, track->name);
    text_add(text, "</td><td>");
    add_number(text, history_last(track, HISTORY_own_steps), 0);
    text_add(text, "</td><td>");
    add_number(text, history_last(track, HISTORY_loss), 4);
    text_add(text, "</td><td>");
    add_percent(text, history_last(track, HISTORY_accuracy));
    text_add(text, "</td><td>");
    add_number(text, history_last(track, HISTORY_consensus_distance), 4);
    text_add(text, "</td><td>");
    add_number(text, history_last(track, HISTORY_rounds_ok), 0);
    text_add(text, "</td><td>");
    add_number(text, history_last(track, HISTORY_rounds_aborted), 0);
    text_add(text, "</td><td>");
    add_bytes(text, history_last(track, HISTORY_bytes_sent));
    text_add(text, "</td><td>");
    add_bytes(text, history_last(track, HISTORY_rss_bytes));
    text_add(text, "</td></tr>\n");
}

void report_add_peers(struct text *text, const struct history *history)
{
    add_start(text);
    text_add(text, "<h1>%zu peer%s</h1>\n", history->peers, history->peers == 1 ? "" : "s");
    report_add_charts(text, history);
    text_add(text, "<h2>Peers</h2>\n<div class=\"wide\"><table>\n<tr><th>peer</th>"
                   "<th>own steps</th><th>loss</th><th>accuracy</th><th>consensus distance</th>"
                   "<th>rounds</th><th>aborted</th><th>sent</th><th>memory</th></tr>\n");
    for (size_t i = 0; i < history->peers; i++) {
        add_track_row(text, &history->tracks[i], i);
    }
    text_add(text, "</table></div>\n<footer>Made from each peer's metrics.jsonl; time is its own, "
                   "from its first start.</footer>\n</main></body></html>\n");
}

static enum rc write_page(const char *path, struct text *page, struct fault *why)
{
    const struct piece piece = {page->bytes, page->count};
    enum rc rc = text_is_whole(page)
                     ? file_replace(path, &piece, 1, 0644, why)
                     : fault_set(why, RC_NOMEM, "cannot write %s: out of memory", path);

    text_deinit(page);
    return rc;
}

enum rc report_write_peers(const char *path, const struct history *history, struct fault *why)
{
    struct text page = TEXT_EMPTY;

    report_add_peers(&page, history);
    return write_page(path, &page, why);
}

enum rc report_write(const char *folder, const struct report_sources *sources, struct fault *why)
{
    char path[PATH_BYTES];
    struct text page = TEXT_EMPTY;

    snprintf(path, sizeof path, "%s/report.html", folder);
    report_add_page(&page, sources);
    return write_page(path, &page, why);
}
