/* points: see points.h. Loop thread; pure. */
#include "peer/watch/points.h"

#include "base/json.h"

#define POINTS_TEXT(name, value) #name,
static const char *const names[] = {POINTS_COLUMNS(POINTS_TEXT)};

static void read(const struct node_report *report, double values[POINT_COLUMNS])
{
#define POINTS_READ(name, value) values[POINT_##name] = (value);
    POINTS_COLUMNS(POINTS_READ)
}

static void halve(struct points *points)
{
    for (size_t c = 0; c < POINT_COLUMNS; c++) {
        for (size_t i = 0; i < POINTS_MAX / 2; i++) {
            points->values[c][i] = points->values[c][2 * i];
        }
    }
    points->count = POINTS_MAX / 2;
    points->every = points->every == 0 ? 2 : 2 * points->every;
}

void points_add(struct points *points, const struct node_report *report)
{
    double values[POINT_COLUMNS];

    if (++points->skipped < points->every) return;
    points->skipped = 0;
    if (points->count == POINTS_MAX) halve(points);
    read(report, values);
    for (size_t c = 0; c < POINT_COLUMNS; c++) {
        points->values[c][points->count] = values[c];
    }
    points->count++;
}

struct json *points_json(const struct points *points)
{
    struct json *json = json_object_create();

    for (size_t c = 0; c < POINT_COLUMNS; c++) {
        struct json *column = json_array_create();

        for (size_t i = 0; i < points->count; i++) {
            json_append_real(column, points->values[c][i]);
        }
        json_set(json, names[c], column);
    }
    return json;
}

struct json *points_json_of(const struct node_report *report)
{
    struct json *json = json_object_create();
    double values[POINT_COLUMNS];

    read(report, values);
    for (size_t c = 0; c < POINT_COLUMNS; c++) {
        json_set_real(json, names[c], values[c]);
    }
    return json;
}
