/* metrics_text: one table of what is told; labels are escaped, since a member's words are not ours.
 */
#include "peer/watch/metrics_text.h"

#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/plain.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LINE_BYTES_MAX = 512, TEXT_BYTES_FIRST = 4096 };

struct out {
    char *text; /* NULL: out of memory */
    size_t count, capacity;
};

__attribute__((format(printf, 2, 3))) static void add(struct out *out, const char *format, ...)
{
    va_list arguments;
    int count;

    if (out->text == NULL) return;
    if (out->capacity - out->count < LINE_BYTES_MAX) {
        char *larger = mem_resize(out->text, out->capacity * 2);

        if (larger == NULL) {
            mem_free(out->text);
            out->text = NULL;
            return;
        }
        out->text = larger;
        out->capacity *= 2;
    }
    va_start(arguments, format);
    count = vsnprintf(out->text + out->count, LINE_BYTES_MAX, format, arguments);
    va_end(arguments);
    CHECK(count >= 0 && count < LINE_BYTES_MAX);
    out->count += (size_t)count;
}

/* For between quotation marks; cut where a label would be longer than anything sensible. */
static const char *label(const char *text, char escaped[160])
{
    char plain[150];
    size_t n = 0;

    for (const char *c = plain_text(text == NULL ? "" : text, plain, sizeof plain);
         *c != '\0' && n < 150; c++) {
        if (*c == '\\' || *c == '"') escaped[n++] = '\\';
        escaped[n++] = *c;
    }
    escaped[n] = '\0';
    return escaped;
}

static void add_value(struct out *out, const struct json *status, const char *key, const char *name,
                      const char *type, const char *help)
{
    double value;

    if (!json_get_real(status, key, &value)) return;
    add(out, "# HELP grapevine_%s %s\n# TYPE grapevine_%s %s\ngrapevine_%s %.17g\n", name, help,
        name, type, name, value);
}

static void add_states(struct out *out, const struct json *members)
{
    static const char *const states[] = {"known", "alive", "suspect", "dead", "left"};

    add(out, "# HELP grapevine_members Members known, by state.\n"
             "# TYPE grapevine_members gauge\n");
    for (size_t s = 0; s < ARRAY_COUNT(states); s++) {
        unsigned count = 0;

        for (size_t i = 0; members != NULL && i < json_count(members); i++) {
            const char *state = json_get_text(json_at(members, i), "state");

            count += state != NULL && strcmp(state, states[s]) == 0;
        }
        add(out, "grapevine_members{state=\"%s\"} %u\n", states[s], count);
    }
}

static void add_of_members(struct out *out, const struct json *members, const char *key,
                           const char *name, const char *type, const char *help, double unit)
{
    add(out, "# HELP grapevine_member_%s %s\n# TYPE grapevine_member_%s %s\n", name, help, name,
        type);
    for (size_t i = 0; members != NULL && i < json_count(members); i++) {
        const struct json *member = json_at(members, i);
        char id[160];
        double value;

        if (!json_get_real(member, key, &value)) continue;
        add(out, "grapevine_member_%s{id=\"%s\"} %.17g\n", name,
            label(json_get_text(member, "id"), id), value * unit);
    }
}

static void add_alarms(struct out *out, const struct json *alarms)
{
    if (alarms == NULL) return;
    add(out,
        "# HELP grapevine_alarms What a supervisor should look at (status, page).\n"
        "# TYPE grapevine_alarms gauge\ngrapevine_alarms %zu\n",
        json_count(alarms));
}

static void add_reasons(struct out *out, const struct json *reasons)
{
    const char *reason;
    void *cursor;
    char text[160];
    uint64_t count;

    if (reasons == NULL) return;
    add(out, "# HELP grapevine_rounds_failed_total Rounds that were not committed, by reason.\n"
             "# TYPE grapevine_rounds_failed_total counter\n");
    for (const struct json *at = json_member_first(reasons, &reason, &cursor); at != NULL;
         at = json_member_next(reasons, &reason, &cursor)) {
        if (!json_count_of(at, &count)) continue;
        add(out, "grapevine_rounds_failed_total{reason=\"%s\"} %llu\n", label(reason, text),
            (unsigned long long)count);
    }
}

/* Keys of the status that are metrics as they are. */
static const struct {
    const char *key, *name, *type, *help;
} values[] = {
    {"uptime_s", "uptime_seconds", "gauge", "Time since this peer started."},
    {"step", "step", "gauge", "Step of the model, shared by the swarm."},
    {"own_steps", "own_steps", "gauge", "Steps of this peer itself, which its goal counts."},
    {"goal_steps", "goal_steps", "gauge", "Own steps at which it stops."},
    {"time_left_s", "time_left_seconds", "gauge", "Until its goal, at its pace."},
    {"waits_for", "waits_for", "gauge", "Peers that are missing to begin with (--start-with)."},
    {"samples", "samples_total", "counter", "Samples this peer has trained on."},
    {"samples_per_s", "samples_per_second", "gauge", "Speed of training."},
    {"tokens_per_s", "tokens_per_second", "gauge", "Speed of training on a text."},
    {"loss", "loss", "gauge", "Training loss of the last report."},
    {"accuracy", "accuracy", "gauge", "Test accuracy of the last report, from 0 to 1."},
    {"round", "round", "gauge", "Number of the next averaging round."},
    {"rounds_ok", "rounds_ok_total", "counter", "Averaging rounds that were committed."},
    {"rounds_aborted", "rounds_aborted_total", "counter", "Averaging rounds aborted."},
    {"rounds_missed", "rounds_missed_total", "counter",
     "Rounds of the swarm without this peer (groups and neighbours)."},
    {"guard_judged", "guard_judged_total", "counter", "Contributions that --robust judged."},
    {"guard_reduced", "guard_reduced_total", "counter", "Of these, clipped or left out."},
    {"guard_refused", "guard_refused_total", "counter", "Chunks refused as absurd or not finite."},
    {"guard_means", "guard_means_total", "counter", "Means of parts that others returned."},
    {"guard_means_refused", "guard_means_refused_total", "counter", "Of these, not taken over."},
    {"verify_members", "verify_members", "gauge", "Neighbours whose steps --verify can check."},
    {"verify_equal", "verify_equal_total", "counter", "Intervals taken again, as was claimed."},
    {"verify_unlike", "verify_unlike_total", "counter", "Of these, not as was claimed."},
    {"verify_repeat_s", "verify_repeat_seconds_total", "counter", "Spent on taking them again."},
    {"checkpoint_failures", "checkpoint_failures", "gauge",
     "Checkpoints in a row that could not be written."},
    {"consensus_distance", "consensus_distance", "gauge",
     "Estimated distance of this model from the swarm's average."},
    {"weight", "weight", "gauge", "Weight of this peer's model, of methods that push."},
    {"custody_weight", "custody_weight", "gauge", "Weight sent and not acknowledged."},
    {"shares_returned", "shares_returned_total", "counter", "Shares that came back."},
    {"shares_lost", "shares_lost_total", "counter", "Shares whose receiver stayed away."},
    {"period_steps", "period_steps", "gauge",
     "Steps from one round to the next, where that follows the loss (adacomm)."},
    {"learning_rate", "learning_rate", "gauge", "With which it trains (pbt)."},
    {"validation_loss", "validation_loss", "gauge", "On samples kept apart (pbt)."},
    {"copies", "copies_total", "counter", "Models of others that it took over (pbt)."},
    {"copies_refused", "copies_refused_total", "counter", "Such that were not taken (pbt)."},
    {"rate", "line_rate", "gauge", "Bytes a second that this peer was seen to take in."},
    {"bytes_sent", "bytes_sent_total", "counter", "Bytes sent over links to peers."},
    {"bytes_received", "bytes_received_total", "counter", "Bytes received over such links."},
    {"handshakes_refused", "handshakes_refused_total", "counter",
     "Connections that did not prove who they are."},
    {"handshakes_replayed", "handshakes_replayed_total", "counter",
     "First messages that had been seen before."},
    {"frames_refused", "frames_refused_total", "counter",
     "Records of authenticated peers that could not be used."},
};

char *metrics_text(const struct json *status)
{
    const struct json *members = json_get(status, "members");
    struct out out = {mem_alloc(TEXT_BYTES_FIRST), 0, TEXT_BYTES_FIRST};
    char peer[160], run[160], state[160];

    add(&out, "# HELP grapevine_info Who this is.\n# TYPE grapevine_info gauge\n");
    add(&out, "grapevine_info{peer=\"%s\",run=\"%.32s\",state=\"%s\"} 1\n",
        label(json_get_text(status, "peer"), peer), label(json_get_text(status, "run"), run),
        label(json_get_text(status, "state"), state));
    for (size_t i = 0; i < ARRAY_COUNT(values); i++) {
        add_value(&out, status, values[i].key, values[i].name, values[i].type, values[i].help);
    }
    add_alarms(&out, json_get(status, "alarms"));
    add_reasons(&out, json_get(status, "abort_reasons"));
    add_states(&out, members);
    add_of_members(&out, members, "rtt_ms", "rtt_seconds", "gauge", "Smoothed round trip.", 1e-3);
    add_of_members(&out, members, "bytes_sent", "bytes_sent", "gauge",
                   "Bytes sent over the link that is open now.", 1);
    add_of_members(&out, members, "bytes_received", "bytes_received", "gauge",
                   "Bytes received over the link that is open now.", 1);
    add_of_members(&out, members, "rate", "line_rate", "gauge",
                   "Bytes a second that its line was seen to carry.", 1);
    add_of_members(&out, members, "score", "score", "gauge", "What this peer holds of it.", 1);
    return out.text;
}
