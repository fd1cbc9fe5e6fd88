/* status_view: formatting alone. Bytes that a terminal would obey are shown as question marks. */
#include "peer/watch/status_view.h"

#include "base/json.h"
#include "base/units.h"

#include <stdarg.h>
#include <string.h>

enum { LINE_BYTES = 400, HEAD_LINES = 10, WIDE_COLUMNS = 150, SITE_COLUMNS = 16 };

struct view {
    FILE *file;
    size_t columns; /* 0: not known */
    bool is_cut;    /* to them; otherwise a terminal breaks the line */
    bool has_sites; /* the peer that is shown is at one */
};

__attribute__((format(printf, 2, 3))) static void put(const struct view *view, const char *format,
                                                      ...)
{
    char line[LINE_BYTES];
    va_list arguments;
    size_t length;

    va_start(arguments, format);
    (void)vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    for (char *c = line; *c != '\0'; c++) {
        if ((unsigned char)*c < ' ' || (unsigned char)*c > '~') *c = '?';
    }
    length = strlen(line);
    if (view->is_cut && view->columns > 0 && view->columns < length) length = view->columns;
    while (length > 0 && line[length - 1] == ' ') {
        length--;
    }
    line[length] = '\0';
    (void)fprintf(view->file, "%s\n", line);
}

static const char *text_or_dash(const struct json *json, const char *key)
{
    const char *text = json_get_text(json, key);

    return text != NULL ? text : "-";
}

static const char *number(const struct json *json, const char *key, const char *format,
                          char text[32])
{
    double value;

    if (!json_get_real(json, key, &value)) return "-";
    if (strcmp(format, "%.6g") == 0)
        (void)snprintf(text, 32, "%.6g", value);
    else if (strcmp(format, "%.0f") == 0)
        (void)snprintf(text, 32, "%.0f", value);
    else if (strcmp(format, "%%") == 0)
        (void)snprintf(text, 32, "%.2f %%", 100 * value);
    else if (strcmp(format, "%.1f") == 0)
        (void)snprintf(text, 32, "%.1f", value);
    else
        (void)snprintf(text, 32, "%.2f", value);
    return text;
}

static const char *bytes_of(const struct json *json, const char *key, char text[32])
{
    uint64_t value = 0;

    (void)json_get_count(json, key, &value);
    return units_format_bytes(value, text, 32);
}

/* Bytes a second, or a dash. */
static const char *rate_of(const struct json *json, char text[32])
{
    double rate;

    return json_get_real(json, "rate", &rate) ? units_format_bytes((uint64_t)rate, text, 32) : "-";
}

/* "training", or what it waits for. */
static const char *state_words(const struct json *status, char *text, size_t cap)
{
    uint64_t waits_for = 0;

    (void)json_get_count(status, "waits_for", &waits_for);
    if (waits_for == 0) return text_or_dash(status, "state");
    (void)snprintf(text, cap, "waiting for %llu more peer%s to begin",
                   (unsigned long long)waits_for, waits_for == 1 ? "" : "s");
    return text;
}

/* The model's step, and how far this peer is with its own. */
static const char *step_words(const struct json *status, char *text, size_t cap)
{
    uint64_t step, own, goal;
    bool has_own = json_get_count(status, "own_steps", &own);
    bool has_goal = json_get_count(status, "goal_steps", &goal);

    if (!json_get_count(status, "step", &step)) return "-";
    if (has_own && has_goal) {
        (void)snprintf(text, cap, "%llu (own: %llu of %llu)", (unsigned long long)step,
                       (unsigned long long)own, (unsigned long long)goal);
    } else if (has_own && own != step) {
        (void)snprintf(text, cap, "%llu (own: %llu)", (unsigned long long)step,
                       (unsigned long long)own);
    } else {
        (void)snprintf(text, cap, "%llu", (unsigned long long)step);
    }
    return text;
}

/* How many there are. */
static size_t put_alarms(const struct view *view, const struct json *status)
{
    const struct json *alarms = json_get(status, "alarms");
    size_t count = alarms == NULL ? 0 : json_count(alarms);

    for (size_t i = 0; i < count; i++) {
        const char *text = json_text_of(json_at(alarms, i));

        put(view, "ALARM      %s", text == NULL ? "-" : text);
    }
    return count;
}

void status_print_alarms(FILE *file, const struct json *status)
{
    struct view view = {file, 0, false, false};

    if (put_alarms(&view, status) == 0) put(&view, "ok");
}

static void put_head(const struct view *view, const struct json *status)
{
    double known;
    const bool is_text = json_get_real(status, "tokens_per_s", &known);
    char texts[4][32], words[80];

    put(view, "peer       %s  at %s%s%s", text_or_dash(status, "peer"),
        text_or_dash(status, "address"), view->has_sites ? ", site " : "",
        view->has_sites ? text_or_dash(status, "site") : "");
    put(view, "state      %s, NAT %s, up %s s, %s s left", state_words(status, words, sizeof words),
        text_or_dash(status, "nat"), number(status, "uptime_s", "%.1f", texts[0]),
        number(status, "time_left_s", "%.0f", texts[1]));
    put(view, "model      %s", text_or_dash(status, "model"));
    put(view, "averaging  %s", text_or_dash(status, "averaging"));
    put(view, "training   step %s, loss %s, accuracy %s, %s %s/s",
        step_words(status, words, sizeof words), number(status, "loss", "%.6g", texts[1]),
        number(status, "accuracy", "%%", texts[2]),
        number(status, is_text ? "tokens_per_s" : "samples_per_s", "%.0f", texts[3]),
        is_text ? "tokens" : "samples");
    put(view, "rounds     %s ok, %s aborted, consensus distance %s",
        number(status, "rounds_ok", "%.0f", texts[0]),
        number(status, "rounds_aborted", "%.0f", texts[1]),
        number(status, "consensus_distance", "%.6g", texts[2]));
    if (json_get(status, "weight") != NULL) {
        put(view, "weight     %s, and %s sent and not acknowledged; shares: %s came back, %s lost",
            number(status, "weight", "%.4g", texts[0]),
            number(status, "custody_weight", "%.4g", texts[1]),
            number(status, "shares_returned", "%.6g", texts[2]),
            number(status, "shares_lost", "%.6g", texts[3]));
    }
    if (json_get(status, "schedules") != NULL) {
        put(view, "schedule   %s", text_or_dash(status, "schedule"));
    }
    put(view, "traffic    %s sent, %s received, own line %s/s",
        bytes_of(status, "bytes_sent", texts[0]), bytes_of(status, "bytes_received", texts[1]),
        rate_of(status, texts[2]));
}

static bool is_narrow(const struct view *view)
{
    return view->columns > 0 && view->columns < WIDE_COLUMNS;
}

/* Only who has one is shown those of others. */
static int site_columns(const struct view *view)
{
    return view->has_sites ? SITE_COLUMNS : 0;
}

static void put_heading(const struct view *view)
{
    if (is_narrow(view)) {
        put(view, "%-8s %-21s %-7s %-8s %6s %9s %9s %5s", "member", "address", "state", "NAT",
            "rtt ms", "sent", "received", "score");
    } else {
        put(view, "%-9s %-22s %-8s %-13s %-*s%9s %11s %11s %11s %7s  %s", "member", "address",
            "state", "NAT", site_columns(view), view->has_sites ? "site" : "", "rtt ms", "sent",
            "received", "line /s", "score", "last round failed because");
    }
}

static void put_member(const struct view *view, const struct json *member)
{
    const char *failure = json_get_text(member, "last_failure");
    const char *id = text_or_dash(member, "id"), *address = text_or_dash(member, "address"),
               *state = text_or_dash(member, "state"), *nat = text_or_dash(member, "nat");
    char texts[5][32];
    const char *rtt = number(member, "rtt_ms", "%.2f", texts[0]),
               *sent = bytes_of(member, "bytes_sent", texts[1]),
               *received = bytes_of(member, "bytes_received", texts[2]),
               *score = number(member, "score", "%.1f", texts[3]);

    if (is_narrow(view)) {
        put(view, "%-8.8s %-21s %-7s %-8.8s %6s %9s %9s %5s", id, address, state, nat, rtt, sent,
            received, score);
        if (failure != NULL) put(view, "         last round failed: %s", failure);
    } else {
        put(view, "%-9.8s %-22s %-8s %-13s %-*s%9s %11s %11s %11s %7s  %s", id, address, state, nat,
            site_columns(view), view->has_sites ? text_or_dash(member, "site") : "", rtt, sent,
            received, rate_of(member, texts[4]), score, failure == NULL ? "" : failure);
    }
}

/* How many of the members fit into so many lines. */
static size_t fitting(const struct view *view, const struct json *members, size_t count,
                      size_t lines)
{
    size_t used = 0, shown = 0;

    while (shown < count) {
        const char *failure = json_get_text(json_at(members, shown), "last_failure");

        used += failure != NULL && is_narrow(view) ? 2 : 1;
        if (used > lines) break;
        shown++;
    }
    return shown;
}

void status_print(FILE *file, const struct json *status, size_t columns, size_t lines)
{
    struct view view = {file, columns, lines > 0, json_get_text(status, "site") != NULL};
    const struct json *members = json_get(status, "members"), *alarms = json_get(status, "alarms");
    size_t count = members == NULL ? 0 : json_count(members);
    size_t head = HEAD_LINES + (alarms == NULL ? 0 : json_count(alarms));
    size_t shown = lines > head ? fitting(&view, members, count, lines - head) : count;
    uint64_t known = count;

    (void)json_get_count(status, "members_count", &known);
    put_head(&view, status);
    (void)put_alarms(&view, status);
    if (count == 0) {
        put(&view, "members    none");
        return;
    }
    put_heading(&view);
    for (size_t i = 0; i < shown; i++) {
        put_member(&view, json_at(members, i));
    }
    if (shown < known) put(&view, "and %llu more", (unsigned long long)(known - shown));
}
