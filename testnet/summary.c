/* summary: see summary.h. */
#include "testnet/summary.h"

#include "base/check.h"
#include "base/json.h"
#include "base/units.h"
#include "testnet/values.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct totals {
    uint64_t finished, steps, samples, samples_lost, bytes_sent, rounds_ok, rounds_aborted;
};

static struct totals totals_of(const struct local_result *run)
{
    struct totals t = {0};

    for (uint32_t i = 0; i < run->count; i++) {
        const struct local_peer *peer = &run->peers[i];
        t.finished += peer->state == LOCAL_DONE;
        t.steps += peer->own_steps;
        t.samples += peer->samples;
        t.samples_lost += peer->samples_lost;
        t.bytes_sent += peer->bytes_sent;
        t.rounds_ok += peer->rounds_ok;
        t.rounds_aborted += peer->rounds_aborted;
    }
    return t;
}

static const char *predicts(const struct comparison *c)
{
    if (c == NULL || c->card.spec[0] == '\0') return NULL;
    if (c->card.is_regression) return "reals";
    return c->is_text ? "token" : "class";
}

/* Peers without a model get null. */
static void set_scores(struct json *json, const struct summary *s, const char *key,
                       double (*number)(const struct score *))
{
    const struct comparison *c = s->models;
    size_t next = 0;
    struct json *scores = json_object_create(), *peers = json_array_create();

    for (uint32_t i = 0; i < s->run->count; i++) {
        const bool has_model = c != NULL && next < c->count && s->peer_of[next] == i;
        json_append_real(peers, has_model ? number(&c->models[next++]) : NAN);
    }
    json_set(scores, "peers", peers);
    json_set_real(scores, "average_model", c != NULL && c->has_average ? number(&c->average) : NAN);
    json_set_real(scores, "ensemble", c != NULL ? number(&c->votes[VOTE_MEAN]) : NAN);
    json_set(json, key, scores);
}

/* Peers that said no lineage prove nothing either way. */
static void set_lineages(struct json *invariants, const struct local_result *run)
{
    const char *first = "";
    bool are_equal = true;

    for (uint32_t i = 0; i < run->count; i++) {
        const char *lineage = run->peers[i].lineage;
        if (lineage[0] == '\0') continue;
        if (first[0] == '\0') first = lineage;
        are_equal = are_equal && strcmp(first, lineage) == 0;
    }
    if (first[0] != '\0') json_set_bool(invariants, "lineages_equal", are_equal);
}

static void set_invariants(struct json *json, const struct summary *s, uint64_t finished)
{
    struct json *invariants = json_object_create();

    json_set_bool(invariants, "peers_finished", finished == s->run->count);
    json_set_bool(invariants, "models_finite", s->models != NULL);
    set_lineages(invariants, s->run);
    json_set_bool(invariants, "consensus_distance_finite",
                  s->models != NULL && isfinite(s->models->distance));
    json_set(json, "invariants", invariants);
}

static void set_peers(struct json *json, const struct local_result *run)
{
    struct json *peak = json_array_create(), *sent = json_array_create();
    struct json *starts = json_array_create(), *states = json_array_create();
    struct json *failures = json_array_create();

    for (uint32_t i = 0; i < run->count; i++) {
        const struct local_peer *peer = &run->peers[i];
        json_append_count(peak, peer->peak_rss_bytes);
        json_append_count(sent, peer->bytes_sent);
        json_append_count(starts, peer->starts);
        json_append_text(states, local_state_name(peer));
        if (peer->failure[0] != '\0') json_append_text(failures, peer->failure);
    }
    json_set(json, "peak_rss_bytes", peak);
    json_set(json, "bytes_sent", sent);
    json_set(json, "starts", starts);
    json_set(json, "states", states);
    json_set(json, "failures", failures);
}

struct json *summary_json(const struct summary *s)
{
    struct json *json = json_object_create();
    const struct comparison *c = s->models;
    const struct totals t = totals_of(s->run);
    const double trained = (double)(t.samples + t.samples_lost);

    json_set_count(json, "peers", s->run->count);
    json_set_count(json, "finished", t.finished);
    json_set_text(json, "model", s->model);
    json_set_text(json, "model_spec", c != NULL ? c->card.spec : NULL);
    json_set_count(json, "parameters", c != NULL ? c->parameters[0] : 0);
    json_set_text(json, "data", s->data);
    json_set_text(json, "predicts", predicts(c));
    json_set_text(json, "averaging", s->averaging);
    json_set_text(json, "exchange", s->exchange);
    json_set_text(json, "codec", s->codec);
    json_set_text(json, "topology", s->topology);
    json_set_count(json, "seed", s->seed);
    json_set_real(json, "wall_s", s->run->wall_s);
    json_set_count(json, "steps_total", t.steps);
    json_set_count(json, "samples_total", t.samples);
    json_set_real(json, "samples_per_s", (double)t.samples / fmax(s->run->wall_s, 1e-9));
    json_set_count(json, "bytes_sent_total", t.bytes_sent);
    json_set_count(json, "rounds_ok", t.rounds_ok);
    json_set_count(json, "rounds_aborted", t.rounds_aborted);
    json_set_real(json, "consensus_distance", c != NULL ? c->distance : NAN);
    set_scores(json, s, "accuracy", score_accuracy);
    set_scores(json, s, "loss", score_loss);
    set_scores(json, s, "calibration_error", score_calibration);
    json_set_real(json, "time_to_target_s",
                  s->target_accuracy > 0 ? s->run->time_to_target_s : NAN);
    json_set_count(json, "faults_injected", s->run->faults);
    json_set_count(json, "faults_spared", s->run->faults_spared);
    json_set_real(json, "goodput", trained > 0 ? (double)t.samples / trained : NAN);
    set_peers(json, s->run);
    set_invariants(json, s, t.finished);
    return json;
}

bool summary_holds(const struct json *summary, const char **broken)
{
    const struct json *invariants = json_get(summary, "invariants"), *value;
    const char *key;
    bool holds;

    for (size_t i = 0; invariants != NULL && json_member_at(invariants, i, &key, &value); i++) {
        if (json_get_bool(invariants, key, &holds) && holds) continue;
        *broken = key;
        return false;
    }
    return invariants != NULL;
}

bool summary_has_scores(const struct json *summary)
{
    return !isnan(value_real(json_get(summary, "loss"), "ensemble"));
}

bool summary_baseline(const struct json *summary, const char *key, struct spread *spread)
{
    const struct json *baseline = json_get(json_get(summary, "baselines"), key);
    const struct json *scores =
        json_get(baseline, summary_is_by_loss(summary) ? "loss" : "accuracy");
    const struct json *peers = json_get(scores, "peers");
    const size_t count = peers != NULL ? json_count(peers) : 0;
    double sum = 0;

    *spread = (struct spread){.least = INFINITY, .most = -INFINITY};
    for (size_t i = 0; i < count; i++) {
        const double score = value_element(scores, "peers", i);
        sum += score; /* one that is not known makes the mean unknown */
        spread->least = fmin(spread->least, score);
        spread->most = fmax(spread->most, score);
    }
    spread->peers = count;
    spread->mean = count > 0 ? sum / (double)count : NAN;
    spread->ensemble = value_real(scores, "ensemble");
    spread->seconds = value_real(baseline, "wall_s");
    return count > 0;
}

/* ---- the table ---- */

bool summary_is_of_reals(const struct json *summary)
{
    return strcmp(value_text(summary, "predicts"), "reals") == 0;
}

bool summary_is_by_loss(const struct json *summary)
{
    return summary_is_of_reals(summary) || strcmp(value_text(summary, "predicts"), "token") == 0;
}

/* A line of the table. What is not known stays empty: so do the bytes of who was done already. */
struct line {
    const char *name;
    bool is_loss;
    double score; /* accuracy, or loss; NaN: empty */
    uint64_t parameters;
    bool has_bytes;
    uint64_t bytes_sent;
    double seconds; /* NaN: empty */
};

static void add_line(struct text *text, const struct line *line)
{
    char score[32] = "", parameters[32] = "", bytes[32] = "", seconds[32] = "";

    if (!isnan(line->score) && line->is_loss) {
        snprintf(score, sizeof score, "%.4f", line->score);
    } else if (!isnan(line->score)) {
        snprintf(score, sizeof score, "%.2f %%", line->score * 100);
    }
    if (line->parameters > 0) units_format_count(line->parameters, parameters, sizeof parameters);
    if (line->has_bytes) units_format_bytes(line->bytes_sent, bytes, sizeof bytes);
    if (!isnan(line->seconds)) snprintf(seconds, sizeof seconds, "%.1f", line->seconds);
    text_add(text, "%-34s %9s  %12s  %12s  %8s\n", line->name, score, parameters, bytes, seconds);
}

static void add_peer_lines(struct text *text, const struct json *summary)
{
    const bool is_loss = summary_is_by_loss(summary);
    const struct json *scores = json_get(summary, is_loss ? "loss" : "accuracy");
    const uint64_t count = value_count(summary, "peers");
    char name[40];

    for (size_t i = 0; i < count && i < 16; i++) {
        const double bytes = value_element(summary, "bytes_sent", i);
        snprintf(name, sizeof name, "peer %zu", i);
        add_line(text, &(struct line){name, is_loss, value_element(scores, "peers", i),
                                      value_count(summary, "parameters"), bytes > 0,
                                      bytes > 0 ? (uint64_t)bytes : 0, NAN});
    }
    if (count > 16) text_add(text, "... and %llu more\n", (unsigned long long)(count - 16));
}

static void add_distilled_lines(struct text *text, const struct json *distilled, bool is_loss)
{
    const uint64_t parameters = value_count(distilled, "student_parameters");
    const double student = value_real(distilled, is_loss ? "student_loss" : "student_accuracy");
    const double alone =
        value_real(distilled, is_loss ? "labels_only_loss" : "labels_only_accuracy");
    char name[40];

    snprintf(name, sizeof name, "student, %.1fx smaller", value_real(distilled, "compression"));
    add_line(text, &(struct line){name, is_loss, student, parameters, false, 0,
                                  value_real(distilled, "wall_s")});
    if (!isnan(alone)) {
        add_line(text, &(struct line){"the same student on labels alone", is_loss, alone,
                                      parameters, false, 0, NAN});
    }
    if (value_real(distilled, "alpha") >= 1 && value_count(distilled, "samples_all") > 0) {
        text_add(text, "The student saw %llu of %llu training samples, and no label.\n",
                 (unsigned long long)value_count(distilled, "samples"),
                 (unsigned long long)value_count(distilled, "samples_all"));
    }
    if (!isnan(alone) && value_count(distilled, "samples_all") > 0) {
        text_add(text,
                 "The student saw %llu of %llu training samples in %llu steps, labels alone all of "
                 "them in as many, at the best of three learning rates%s.\n",
                 (unsigned long long)value_count(distilled, "samples"),
                 (unsigned long long)value_count(distilled, "samples_all"),
                 (unsigned long long)value_count(distilled, "steps"),
                 (is_loss ? alone < student : alone > student) ? ", and better" : "");
    }
}

/* What the swarm has to be measured against. */
static void add_baseline_lines(struct text *text, const struct json *summary)
{
    const bool is_loss = summary_is_by_loss(summary);
    const uint64_t parameters = value_count(summary, "parameters");
    struct spread spread;
    char name[80];

    if (summary_baseline(summary, "alone", &spread)) {
        snprintf(name, sizeof name,
                 is_loss ? "each alone: %.3f to %.3f, mean" : "each alone: %.1f to %.1f %%, mean",
                 spread.least * (is_loss ? 1 : 100), spread.most * (is_loss ? 1 : 100));
        add_line(text,
                 &(struct line){name, is_loss, spread.mean, parameters, false, 0, spread.seconds});
        add_line(text, &(struct line){"ensemble of those alone", is_loss, spread.ensemble,
                                      spread.peers * parameters, false, 0, NAN});
    }
    if (summary_baseline(summary, "all_data", &spread)) {
        add_line(text, &(struct line){"one peer with all the data", is_loss, spread.mean,
                                      parameters, false, 0, spread.seconds});
    }
}

/* Others leave models that were never meant to have a mean. */
static bool mixes_parameters(const char *averaging)
{
    static const char *const others[] = {"pbt", "codistill", "ec-dnn"};

    for (size_t i = 0; i < ARRAY_COUNT(others); i++) {
        const size_t length = strlen(others[i]);
        if (strncmp(averaging, others[i], length) == 0 &&
            (averaging[length] == '\0' || averaging[length] == ':')) {
            return false;
        }
    }
    return true;
}

void summary_add_table(struct text *text, const struct json *summary, const struct json *distilled)
{
    const bool is_loss = summary_is_by_loss(summary);
    const struct json *scores = json_get(summary, is_loss ? "loss" : "accuracy");
    const uint64_t peers = value_count(summary, "peers"),
                   parameters = value_count(summary, "parameters");
    const bool is_mixed = mixes_parameters(value_text(summary, "averaging"));
    char name[64];

    text_add(text, "%-34s %9s  %12s  %12s  %8s\n", "", is_loss ? "loss" : "accuracy", "parameters",
             "bytes sent", "seconds");
    add_peer_lines(text, summary);
    add_line(text, &(struct line){
                       is_mixed ? "average of their parameters" : "the swarm, which averages none",
                       is_loss, is_mixed ? value_real(scores, "average_model") : (double)NAN,
                       parameters, value_count(summary, "bytes_sent_total") > 0,
                       value_count(summary, "bytes_sent_total"), value_real(summary, "wall_s")});
    snprintf(name, sizeof name, "ensemble of %llu", (unsigned long long)peers);
    add_line(text, &(struct line){name, is_loss, value_real(scores, "ensemble"), peers * parameters,
                                  false, 0, NAN});
    add_baseline_lines(text, summary);
    if (distilled != NULL) add_distilled_lines(text, distilled, is_loss);
}
