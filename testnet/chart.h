/*
 * chart: curves as inline SVG for a page that must stand alone: no script, no font, no network.
 * Colours are CSS classes (s0 to s7, mark, grid, axis) that the page defines for light and dark.
 */
#ifndef GRAPEVINE_TESTNET_CHART_H
#define GRAPEVINE_TESTNET_CHART_H

#include "testnet/text.h"

#include <stdbool.h>
#include <stddef.h>

enum { CHART_COLOURS = 8, CHART_POINTS_MAX = 400 }; /* points drawn of a series; more are thinned */

struct chart_series {
    const char *name;
    unsigned colour;     /* modulo CHART_COLOURS */
    const double *x, *y; /* [count]; points that are not finite are left out */
    size_t count;
};

enum chart_unit { CHART_PLAIN, CHART_PERCENT, CHART_SECONDS, CHART_BYTES };

struct chart {
    const char *title;
    const char *x_label;
    enum chart_unit x_unit, y_unit; /* PERCENT: values are shares */
    const struct chart_series *series;
    size_t series_count;
    const double *marks; /* x of vertical lines: faults */
    size_t marks_count;
};

void chart_add(struct text *text, const struct chart *chart);
/** Between 3 and 8 round numbers that cover low..high: the first and the step. */
void chart_ticks(double low, double high, double *first, double *step);

#endif
