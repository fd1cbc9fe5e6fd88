/*
 * What a running peer tells: lines on the terminal and in its folder's journal, events as JSON, and
 * at the end what came of it.
 */
#include "peer/session/session.h"

#include "base/check.h"
#include "base/mem.h"
#include "base/units.h"
#include "peer/cli/command.h"
#include "peer/watch/usage.h"
#include "replica/learners/replica.h"
#include "replica/model/layers.h"
#include "replica/model/model.h"

#include <math.h>

enum { LOG_BYTES_MAX = 16 * 1024 * 1024 };

/* Into the folder's log: what the terminal gets without --quiet, or more of it with --verbose. */
static void keep_line(struct session *session, enum log_level level, const char *line)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    char text[1200], now[UV_WALL_TEXT_BYTES];

    if (session->journal == NULL || session->env == NULL) return;
    if (level > LOG_INFO && level > session->terminal.level) return;
    uv_wall_text(now);
    snprintf(text, sizeof text, "%s %s %s", now, names[level], line);
    journal_add(session->journal, LOG_FILE, text, LOG_BYTES_MAX);
}

void session_on_line(void *context, enum log_level level, const char *line)
{
    struct session *session = context;

    if (level <= session->terminal.level) {
        session->terminal.on_line(session->terminal.context, level, line);
    }
    keep_line(session, level, line);
}

static void on_found(void *context, const char *address)
{
    struct session *session = context;

    if (node_neighbours(session->node) > 0) return; /* who is there leads to all others */
    log_info(&session->log, "--discover %s: a peer at %s", session->discover.name, address);
    node_meet(session->node, address);
}

void session_on_listening(void *context, const char *address)
{
    struct session *session = context;

    if (session->is_json) {
        struct json *json = json_object_create();

        json_set_text(json, "event", "listening");
        json_set_text(json, "address", address);
        command_print_json(json);
    } else {
        printf("listening on %s\n", address);
    }
    fflush(stdout); /* whoever started us may be waiting for the address */
    session_listens(session, address);
}

void session_listens(struct session *session, const char *address)
{
    char text[ADDRESS_BYTES_MAX + 32];

    snprintf(text, sizeof text, "listening on %s", address);
    keep_line(session, LOG_INFO, text);
    if (session->discover.name == NULL) return;
    if (discover_watch(&session->discover, session->env, address, on_found, session) != RC_OK) {
        log_warn(&session->log, "--discover: nobody can find this peer, at %s", address);
    } else if (command_is_loopback(address)) {
        log_warn(&session->log,
                 "--discover %s: only peers on this machine will find this one, as it listens on "
                 "%s; to be found on the network give %s",
                 session->discover.name, address,
                 session->swarm.is_public
                     ? "--swarm-key FILE (or --public and --listen 0.0.0.0:7077)"
                     : "--listen 0.0.0.0:7077");
    }
}

static void set_report(struct json *json, const struct node_report *report)
{
    json_set_real(json, "t", report->t_s);
    json_set_text(json, "state", report->state);
    json_set_count(json, "step", report->step);
    json_set_count(json, "own_steps", report->own_steps);
    json_set_real(json, "epoch", report->epoch);
    json_set_real(json, "time_left_s", report->left_s);
    json_set_count(json, "samples", report->samples);
    json_set_real(json, "loss", report->loss);
    json_set_real(json, "accuracy", report->accuracy);
    json_set_real(json, "samples_per_s", report->samples_per_s);
    json_set_real(json, "tokens_per_s", report->tokens_per_s);
    json_set_real(json, "evaluation_s", report->evaluation_s);
    json_set_count(json, "round", report->round);
    json_set_count(json, "neighbours", report->neighbours);
    json_set_real(json, "consensus_distance", report->consensus_distance);
    json_set_count(json, "bytes_sent", report->bytes_sent);
    json_set_count(json, "bytes_received", report->bytes_received);
    json_set_count(json, "staleness", report->staleness);
    json_set_count(json, "rounds_ok", report->rounds_ok);
    json_set_count(json, "rounds_aborted", report->rounds_aborted);
    json_set_count(json, "rounds_missed", report->rounds_missed);
    json_set_text(json, "last_abort_reason", report->last_abort_reason);
    node_report_guard(report, json);
    node_report_period(report, json);
    node_report_verify(report, json);
    node_report_population(report, json);
    json_set_count(json, "rss_bytes", usage_rss_bytes());
}

static void keep_book(struct session *session)
{
    struct address_book book;
    char *text;

    node_book(session->node, &session->book, &book);
    text = address_book_format(&book);
    if (text != NULL) journal_replace(session->journal, ADDRESS_BOOK_FILE, text);
    mem_free(text);
}

/* Real values have no accuracy, and at first nothing has. */
static const char *accuracy_words(double accuracy, const char *before, char *words, size_t cap)
{
    words[0] = '\0';
    if (!isnan(accuracy)) snprintf(words, cap, "%saccuracy %.2f %%", before, 100.0 * accuracy);
    return words;
}

static const char *loss_words(double loss, char *words, size_t cap)
{
    snprintf(words, cap, "%.4f", loss);
    return isnan(loss) ? "-" : words;
}

/* The model's step, and how far this peer is on its own way where that is not the same. */
static const char *step_words(const struct node_report *report, char *words, size_t cap)
{
    unsigned long long own = report->own_steps, goal = report->goal_steps;
    int length = snprintf(words, cap, "%llu", (unsigned long long)report->step);
    bool is_alike = own == report->step;

    CHECK(length > 0 && (size_t)length < cap);
    if (goal > 0 && is_alike) {
        snprintf(words + length, cap - (size_t)length, " of %llu", goal);
    } else if (goal > 0) {
        snprintf(words + length, cap - (size_t)length, " (own: %llu of %llu)", own, goal);
    } else if (!is_alike) {
        snprintf(words + length, cap - (size_t)length, " (own: %llu)", own);
    }
    return words;
}

static const char *left_words(double left_s, char *words, size_t cap)
{
    char left[32];

    words[0] = '\0';
    if (isnan(left_s)) return words;
    snprintf(words, cap, ", %s left", units_format_seconds(left_s, left, sizeof left));
    return words;
}

static void tell_report(struct session *session, const struct node_report *report)
{
    const bool is_text = !isnan(report->tokens_per_s);
    char sent[32], received[32], accuracy[48], loss[32], step[96], left[48];

    if (report->waits_for > 0) {
        log_info(&session->log, "%6.1f s  waiting for %u more peer%s to begin  %u neighbour%s",
                 report->t_s, report->waits_for, report->waits_for == 1 ? "" : "s",
                 report->neighbours, report->neighbours == 1 ? "" : "s");
        return;
    }
    log_info(&session->log,
             "%6.1f s%s  step %s  epoch %.2f  loss %s%s  %.0f %s/s  "
             "round %llu  %u neighbours  sent %s  received %s",
             report->t_s, left_words(report->left_s, left, sizeof left),
             step_words(report, step, sizeof step), report->epoch,
             loss_words(report->loss, loss, sizeof loss),
             accuracy_words(report->accuracy, "  ", accuracy, sizeof accuracy),
             is_text ? report->tokens_per_s : report->samples_per_s, is_text ? "tokens" : "samples",
             (unsigned long long)report->round, report->neighbours,
             units_format_bytes(report->bytes_sent, sent, sizeof sent),
             units_format_bytes(report->bytes_received, received, sizeof received));
}

static void tell_journal(struct session *session)
{
    struct fault why;

    switch (journal_news(session->journal, &why)) {
    case JOURNAL_NOTHING:
        break;
    case JOURNAL_FAILS:
        log_warn(&session->log,
                 "%s: lines are missing there until it can be written again; training goes on",
                 why.text);
        break;
    case JOURNAL_WORKS:
        log_info(&session->log, "--out can be written again");
        break;
    }
}

void session_on_report(void *context, const struct node_report *report)
{
    struct session *session = context;
    struct json *json = json_object_create();
    char *text;

    set_report(json, report);
    tell_report(session, report);
    http_report(session->http, report);
    if (session->journal != NULL) {
        text = json_format(json);
        if (text != NULL) journal_add(session->journal, METRICS_FILE, text, 0);
        mem_free(text);
        keep_book(session);
        tell_journal(session);
    }
    if (session->is_json) {
        json_set_text(json, "event", "report");
        command_print_json(json);
        fflush(stdout);
    } else {
        json_destroy(json);
    }
}

static void stop_env(void *context)
{
    struct session *session = context;

    session->env->ops->stop(session->env);
}

void session_on_ended(void *context, const struct node_result *result)
{
    struct session *session = context;

    supervisor_stopping(&session->supervisor);
    session->result = *result;
    session->has_ended = true;
    session->wall_s = result->report.t_s;
    if (session->journal == NULL) {
        stop_env(session);
        return;
    }
    keep_book(session);
    journal_when_idle(session->journal, stop_env, session);
}

static void tell_stopped(struct session *session, uint64_t step)
{
    const bool is_kept = peer_folder_has_checkpoint(&session->folder);

    log_info(&session->log, "stopped at step %llu%s%s%s", (unsigned long long)step,
             is_kept ? "; 'grapevine peer --out " : "",
             is_kept ? options_text(session->options, "out") : "",
             is_kept ? "' goes on from there" : "");
}

void session_print_result(struct session *session)
{
    const struct node_result *result = &session->result;
    const struct node_report *report = &result->report;
    bool is_final = result->evaluation.samples > 0;
    double accuracy = is_final ? result->evaluation.accuracy : report->accuracy;
    double loss = is_final ? result->evaluation.loss : report->loss;
    char words[48], loss_text[32];

    if (session->is_json) {
        struct json *json = json_object_create();

        json_set_text(json, "event", "finished");
        json_set_count(json, "steps", report->own_steps);
        json_set_count(json, "step", report->step);
        json_set_count(json, "samples", report->samples);
        json_set_real(json, "accuracy", accuracy);
        json_set_real(json, "loss", loss);
        json_set_count(json, "rounds_ok", report->rounds_ok);
        json_set_count(json, "rounds_aborted", report->rounds_aborted);
        json_set_count(json, "rounds_missed", report->rounds_missed);
        json_set_real(json, "consensus_distance", report->consensus_distance);
        json_set_count(json, "bytes_sent", report->bytes_sent);
        json_set_count(json, "bytes_received", report->bytes_received);
        json_set_count(json, "rss_bytes", usage_peak_rss_bytes());
        json_set_real(json, "wall_s", session->wall_s);
        json_set_bool(json, "goal_reached", result->is_goal_reached);
        command_print_json(json);
        return;
    }
    if (!result->is_goal_reached) {
        tell_stopped(session, report->step);
        return;
    }
    printf("finished: %llu steps, %s %s%s, %llu rounds, %.1f s\n",
           (unsigned long long)report->own_steps, is_final ? "test loss" : "loss",
           loss_words(loss, loss_text, sizeof loss_text),
           accuracy_words(accuracy, ", ", words, sizeof words),
           (unsigned long long)report->rounds_ok, session->wall_s);
    if (session->strategy.mixes_answers) {
        printf("each peer has a model of its own; together they are an ensemble: 'grapevine eval' "
               "judges their files as one, 'grapevine distill' makes one model of them\n");
    }
}

void session_print_profile(struct session *session)
{
    struct json *rows;

    if (session->learner == NULL || !options_flag(session->options, "profile")) return;
    rows = replica_profile(session->learner, (uint64_t)(session->wall_s * (double)NS_PER_S),
                           session->is_json ? "profile" : NULL);
    if (rows == NULL) return;
    command_print_rows(rows, session->is_json);
    json_destroy(rows);
}

/* In the end d2 holds against what a peer's own steps do: gradients that add up to zero over the
 * peers, times the rate, also where momentum adds up former ones (Hu et al. 2025,
 * arXiv:2501.19082). What scales gradients peer by peer undoes that. gradient-tracking steps along
 * one estimate, which is zero in the end for all and for any optimizer. */
static void tell_inexact(struct session *session)
{
    static const char *const linear[] = {"sgd", "momentum", "nesterov"};
    const struct strategy *strategy = &session->strategy;
    const char *given = options_text(session->options, "optimizer");

    if (!strategy->rule->sums_to_zero) return;
    if (given == NULL) given = strategy->optimizer;
    if (given == NULL) given = layers_training(options_text(session->options, "model")).optimizer;
    for (size_t i = 0; i < ARRAY_COUNT(linear); i++) {
        size_t length = strlen(linear[i]);

        if (strncmp(given, linear[i], length) != 0) continue;
        if (given[length] == '\0' || given[length] == ':') return;
    }
    log_warn(&session->log,
             "--averaging %s is exact for non-IID data with --optimizer sgd, momentum or nesterov; "
             "with %s some of the bias stays",
             strategy->name, given);
}

void session_say_what_runs(struct session *session)
{
    const struct schema *schema = model_schema(replica_model(session->learner));
    char parameters[32];

    log_info(&session->log, "model %s (%s parameters), data %s, averaging %s",
             options_text(session->options, "model"),
             units_format_count(schema->values[SECTION_PARAMETERS], parameters, sizeof parameters),
             options_text(session->options, "data"), session->strategy.text);
    if (options_flag(session->options, "no-train")) {
        log_info(&session->log,
                 "this peer keeps the swarm's model and does not train (--no-train)");
    }
    if (options_is_set(session->options, "lr-scaling")) {
        const char *scaling = options_text(session->options, "lr-scaling");

        log_info(&session->log, "learning rate: %s (--lr-scaling %s)",
                 strcmp(scaling, "none") == 0 ? "not scaled with the number of peers"
                                              : "grows with the peers that average",
                 scaling);
    }
    if (session->strategy.lacks_guard && session->strategy.clips) {
        log_info(&session->log,
                 "two neighbours are too few to tell a lying one from one with other data: let in "
                 "only peers you trust, or use --topology exponential (docs/security.md)");
    } else if (session->strategy.lacks_guard) {
        log_info(&session->log,
                 "--averaging %s cannot limit how far one lying member pulls the model: let in "
                 "only peers you trust (docs/security.md)",
                 session->strategy.name);
    }
    tell_inexact(session);
    if (session->strategy.mixes_answers) {
        log_info(&session->log,
                 "this peer's model stays its own: rounds mix answers to %u samples, and peers may "
                 "have other --model",
                 session->learner->ops->schema(session->learner)->tensors[0].shape[0]);
    }
    if (command_wants_bf16(session->options)) {
        command_tell_precision(session->backend, &session->log);
    }
    command_tell_choices(session->backend, &session->log);
    if (session->journal == NULL) {
        log_warn(&session->log, "nothing is kept, and the model is gone when this peer ends: pass "
                                "--out DIR to keep it, and to resume after a stop");
    } else if (session->is_resumed) {
        log_info(&session->log, "resuming from %s", options_text(session->options, "out"));
    } else if (session->folder.config != NULL) {
        log_warn(&session->log,
                 "%s was started before and holds no checkpoint yet: this peer starts over, with "
                 "the flags, the key and the addresses kept there",
                 options_text(session->options, "out"));
    } else {
        log_info(&session->log,
                 "model, metrics and log go to %s; 'grapevine peer --out %s' resumes",
                 options_text(session->options, "out"), options_text(session->options, "out"));
    }
}
