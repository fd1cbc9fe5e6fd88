/* chart: see chart.h. Any thread, one at a time. */
#include "testnet/chart.h"

#include "base/check.h"
#include "base/units.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>

enum { WIDTH = 560, HEIGHT = 260, LEFT = 58, RIGHT = 14, TOP = 12, BOTTOM = 40 };

struct frame {
    double x_low, x_high, y_low, y_high;
};

void chart_ticks(double low, double high, double *first, double *step)
{
    CHECK(high > low);
    const double rough = (high - low) / 5, power = pow(10, floor(log10(rough)));
    const double digits = rough / power;

    *step = power * (digits <= 1 ? 1 : digits <= 2 ? 2 : digits <= 5 ? 5 : 10);
    *first = ceil(low / *step - 1e-9) * *step + 0.0; /* + 0.0: never "-0" */
}

static void widen(double *low, double *high, double value)
{
    if (value < *low) *low = value;
    if (value > *high) *high = value;
}

static struct frame frame_of(const struct chart *chart)
{
    struct frame f = {0, 0, INFINITY, -INFINITY};

    for (size_t s = 0; s < chart->series_count; s++) {
        const struct chart_series *series = &chart->series[s];
        for (size_t i = 0; i < series->count; i++) {
            if (!isfinite(series->x[i]) || !isfinite(series->y[i])) continue;
            widen(&f.x_low, &f.x_high, series->x[i]);
            widen(&f.y_low, &f.y_high, series->y[i]);
        }
    }
    if (f.y_high < f.y_low) f.y_low = f.y_high = 0; /* nothing to draw */
    if (f.x_high <= f.x_low) f.x_high = f.x_low + 1;
    const double room = f.y_high > f.y_low ? (f.y_high - f.y_low) * 0.06 : 0.5;
    f.y_high += room;
    f.y_low = f.y_low >= 0 && f.y_low < room ? 0 : f.y_low - room;
    return f;
}

static double at_x(const struct frame *f, double x)
{
    return LEFT + (x - f->x_low) / (f->x_high - f->x_low) * (WIDTH - LEFT - RIGHT);
}

static double at_y(const struct frame *f, double y)
{
    return HEIGHT - BOTTOM - (y - f->y_low) / (f->y_high - f->y_low) * (HEIGHT - TOP - BOTTOM);
}

static const char *label(double value, double step, enum chart_unit unit, char *text, size_t cap)
{
    const double scaled = unit == CHART_PERCENT ? step * 100 : step;
    const int digits = scaled >= 1 ? 0 : (int)ceil(-log10(scaled) - 1e-9);

    switch (unit) {
    case CHART_PERCENT:
        snprintf(text, cap, "%.*f %%", digits, value * 100);
        break;
    case CHART_SECONDS:
        snprintf(text, cap, "%.*f s", digits, value);
        break;
    case CHART_BYTES:
        return units_format_bytes((uint64_t)fmax(value, 0), text, cap);
    case CHART_PLAIN:
        snprintf(text, cap, "%.*f", digits, value);
        break;
    }
    return text;
}

/* Round numbers of bytes are round in KiB, MiB, ... */
static void ticks_of(enum chart_unit unit, double low, double high, double *first, double *step)
{
    const double scale =
        unit == CHART_BYTES && high >= 1024 ? pow(1024, floor(log(high) / log(1024))) : 1;

    chart_ticks(low / scale, high / scale, first, step);
    *first *= scale;
    *step *= scale;
}

static void add_grid(struct text *text, const struct chart *chart, const struct frame *f)
{
    double first, step;
    char words[64];

    ticks_of(chart->y_unit, f->y_low, f->y_high, &first, &step);
    for (double y = first; y <= f->y_high; y += step) {
        text_add(text, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>", LEFT,
                 WIDTH - RIGHT, at_y(f, y), at_y(f, y));
        text_add(text, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", LEFT - 7,
                 at_y(f, y) + 4, label(y, step, chart->y_unit, words, sizeof words));
    }
    ticks_of(chart->x_unit, f->x_low, f->x_high, &first, &step);
    for (double x = first; x <= f->x_high; x += step) {
        /* The last one must not stand out of the picture. */
        const bool is_last = at_x(f, x) > WIDTH - RIGHT - 24;
        text_add(text, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">%s</text>\n",
                 is_last ? fmin(at_x(f, x) + 12, WIDTH - 2) : at_x(f, x), HEIGHT - BOTTOM + 16,
                 is_last ? "end" : "middle", label(x, step, chart->x_unit, words, sizeof words));
    }
    text_add(text, "<line class=\"axis\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/>\n", LEFT,
             WIDTH - RIGHT, HEIGHT - BOTTOM, HEIGHT - BOTTOM);
    text_add(text, "<text class=\"what\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">",
             (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6);
    text_add_escaped(text, chart->x_label);
    text_add(text, "</text>\n");
}

static void add_series(struct text *text, const struct chart_series *series, const struct frame *f)
{
    const size_t every = (series->count + CHART_POINTS_MAX - 1) / CHART_POINTS_MAX;
    const unsigned colour = series->colour % CHART_COLOURS;
    double x = NAN, y = NAN;
    size_t drawn = 0;

    for (size_t i = 0; i < series->count; i++) {
        /* The last point is where the reader looks: it is never thinned away. */
        if (i % every != 0 && i + 1 != series->count) continue;
        if (!isfinite(series->x[i]) || !isfinite(series->y[i])) continue;
        x = at_x(f, series->x[i]);
        y = at_y(f, series->y[i]);
        if (drawn++ == 0) text_add(text, "<polyline class=\"s%u\" points=\"", colour);
        text_add(text, "%.1f,%.1f ", x, y);
    }
    if (drawn == 0) return;
    text_add(text, "\"><title>");
    text_add_escaped(text, series->name);
    text_add(text,
             "</title></polyline>\n<circle class=\"s%u\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\"/>\n",
             colour, x, y);
}

void chart_add(struct text *text, const struct chart *chart)
{
    const struct frame f = frame_of(chart);

    text_add(text, "<figure><figcaption>");
    text_add_escaped(text, chart->title);
    text_add(text, "</figcaption>\n<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", WIDTH,
             HEIGHT);
    text_add_escaped(text, chart->title);
    text_add(text, "\">\n");
    add_grid(text, chart, &f);
    for (size_t i = 0; i < chart->marks_count; i++) {
        if (!(chart->marks[i] >= f.x_low && chart->marks[i] <= f.x_high)) continue;
        text_add(text, "<line class=\"mark\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>\n",
                 at_x(&f, chart->marks[i]), at_x(&f, chart->marks[i]), TOP, HEIGHT - BOTTOM);
    }
    for (size_t s = 0; s < chart->series_count; s++) {
        add_series(text, &chart->series[s], &f);
    }
    text_add(text, "</svg></figure>\n");
}
