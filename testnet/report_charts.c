/* report_charts: see report_charts.h. */
#include "testnet/report_charts.h"

#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "peer/watch/page/page.h"

#include <math.h>
#include <string.h>

static bool is_known(const struct history *history, enum history_column column)
{
    for (size_t p = 0; p < history->peers; p++) {
        if (!isnan(history_last(&history->tracks[p], column))) return true;
    }
    return false;
}

/* [[x...], [y...]] of the points that have both. The last one, where the reader looks, is kept. */
static struct json *points_of(const struct track *track, enum history_column x,
                              enum history_column y)
{
    struct json *points = json_array_create(), *xs = json_array_create(), *ys = json_array_create();
    const size_t every = (track->count + REPORT_POINTS_MAX - 1) / REPORT_POINTS_MAX;

    for (size_t i = 0; i < track->count; i++) {
        if (i % every != 0 && i + 1 != track->count) continue;
        if (isnan(track->values[x][i]) || isnan(track->values[y][i])) continue;
        json_append_real(xs, track->values[x][i]);
        json_append_real(ys, track->values[y][i]);
    }
    json_append(points, xs);
    json_append(points, ys);
    return points;
}

static struct json *chart_of(const struct history *history, const char *title, const char *unit,
                             enum history_column x, enum history_column y)
{
    struct json *chart = json_object_create(), *series = json_array_create();
    struct json *marks = json_array_create();

    for (size_t p = 0; p < history->peers; p++) {
        struct json *one = json_object_create();

        json_set_text(one, "name", history->tracks[p].name);
        json_set(one, "points", points_of(&history->tracks[p], x, y));
        json_append(series, one);
    }
    for (size_t i = 0; i < history->faults_count && x == HISTORY_t; i++) {
        json_append_real(marks, history->faults[i]);
    }
    json_set_text(chart, "title", title);
    json_set_text(chart, "x", x == HISTORY_t ? "s" : "bytes");
    json_set_text(chart, "y", unit);
    json_set(chart, "series", series);
    json_set(chart, "marks", marks);
    return chart;
}

static struct json *page_of(const struct history *history)
{
    static const struct {
        const char *title, *unit;
        enum history_column x, y;
    } kinds[] = {
        {"Training loss", "plain", HISTORY_t, HISTORY_loss},
        {"Test accuracy", "percent", HISTORY_t, HISTORY_accuracy},
        {"Test accuracy by traffic", "percent", HISTORY_bytes_sent, HISTORY_accuracy},
        {"Consensus distance", "plain", HISTORY_t, HISTORY_consensus_distance},
        {"Samples a second", "count", HISTORY_t, HISTORY_samples_per_s},
        {"Rounds", "count", HISTORY_t, HISTORY_rounds_ok},
    };
    struct json *page = json_object_create(), *charts = json_array_create();

    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++) {
        if (!is_known(history, kinds[i].x) || !is_known(history, kinds[i].y)) continue;
        json_append(charts,
                    chart_of(history, kinds[i].title, kinds[i].unit, kinds[i].x, kinds[i].y));
    }
    json_set(page, "charts", charts);
    return page;
}

/* Inside <script>: nothing may look like the end of it. */
static void add_json(struct text *text, struct json *json)
{
    char *bytes = json_format(json);

    for (const char *at = bytes; at != NULL && *at != '\0';) {
        const size_t plain = strcspn(at, "<");

        text_add(text, "%.*s", (int)plain, at);
        at += plain;
        if (*at == '<') {
            text_add(text, "\\u003c");
            at++;
        }
    }
    if (bytes == NULL) text->is_short = true;
    mem_free(bytes);
    json_destroy(json);
}

void report_add_charts(struct text *text, const struct history *history)
{
    text_add(text, "<h2>Curves</h2>\n<noscript><p>Curves need JavaScript.</p></noscript>\n"
                   "<div class=\"charts\" id=\"charts\"></div>\n"
                   "<script type=\"application/json\" id=\"curves\">");
    add_json(text, page_of(history));
    text_add(text, "</script>\n<script>\n%s\n", page_charts);
    text_add(text, "charts.draw(document.getElementById('charts'), "
                   "JSON.parse(document.getElementById('curves').textContent));\n</script>\n");
}
