/* history: see history.h. Blocking file access: commands only. */
#include "testnet/history.h"

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_BYTES = 1024, ROOM_FIRST = 64 };

#define HISTORY_TEXT(name) #name,
static const char *const names[HISTORY_COLUMNS_COUNT] = {HISTORY_COLUMNS(HISTORY_TEXT)};

/* What counts from 0 with each start of a peer. */
static const enum history_column restarted[] = {HISTORY_t,
                                                HISTORY_bytes_sent,
                                                HISTORY_rounds_ok,
                                                HISTORY_bytes_received,
                                                HISTORY_rounds_aborted,
                                                HISTORY_rounds_missed};

const char *history_column_name(enum history_column column)
{
    return names[column];
}

static enum rc track_reserve(struct track *track)
{
    const size_t room = track->room > 0 ? 2 * track->room : ROOM_FIRST;

    if (track->count < track->room) return RC_OK;
    for (size_t i = 0; i < HISTORY_COLUMNS_COUNT; i++) {
        double *values = mem_resize(track->values[i], room * sizeof *values);
        if (values == NULL) return RC_NOMEM;
        track->values[i] = values;
    }
    track->room = room;
    return RC_OK;
}

static enum rc track_add(struct track *track, const struct json *report)
{
    if (track_reserve(track) != RC_OK) return RC_NOMEM;
    for (size_t i = 0; i < HISTORY_COLUMNS_COUNT; i++) {
        double value;
        track->values[i][track->count] = json_get_real(report, names[i], &value) ? value : NAN;
    }
    track->count++;
    return RC_OK;
}

static void track_deinit(struct track *track)
{
    for (size_t i = 0; i < HISTORY_COLUMNS_COUNT; i++) {
        mem_free(track->values[i]);
    }
}

static enum rc add_fault(struct history *history, double t)
{
    double *faults = mem_resize(history->faults, (history->faults_count + 1) * sizeof *faults);

    if (faults == NULL) return RC_NOMEM;
    history->faults = faults;
    faults[history->faults_count++] = t;
    return RC_OK;
}

static struct track *track_of(struct history *history, uint64_t peer)
{
    if (peer >= HISTORY_PEERS_MAX) return NULL;
    if (peer >= history->peers) {
        struct track *tracks = mem_resize(history->tracks, (peer + 1) * sizeof *tracks);
        if (tracks == NULL) return NULL;
        for (size_t i = history->peers; i <= peer; i++) {
            tracks[i] = (struct track){.wall_s = NAN};
            (void)snprintf(tracks[i].name, sizeof tracks[i].name, "peer %zu", i);
        }
        history->tracks = tracks;
        history->peers = peer + 1;
    }
    return &history->tracks[peer];
}

/* Events of other kinds say nothing that is drawn. */
static enum rc add_event(void *context, const struct json *event)
{
    struct history *history = context;
    const char *kind = json_get_text(event, "event");
    struct track *track;
    uint64_t peer;
    double t;

    if (kind == NULL || !json_get_count(event, "peer", &peer) || !json_get_real(event, "t", &t)) {
        return RC_OK;
    }
    if (strcmp(kind, "fault") == 0) return add_fault(history, t);
    if (strcmp(kind, "report") != 0 || peer >= HISTORY_PEERS_MAX) return RC_OK;
    track = track_of(history, peer);
    return track == NULL ? RC_NOMEM : track_add(track, event);
}

static enum rc read_lines(const char *path, enum rc (*take)(void *, const struct json *),
                          void *context, struct fault *why)
{
    void *bytes = NULL;
    size_t count;
    enum rc rc = file_read(path, HISTORY_BYTES_MAX, &bytes, &count, why);

    if (rc != RC_OK) return rc;
    for (char *line = bytes; rc == RC_OK && line != NULL;) {
        char *newline = strchr(line, '\n');
        const size_t length = newline != NULL ? (size_t)(newline - line) : strlen(line);
        struct json *event = NULL;
        if (length > 0 && json_parse(line, length, &event, NULL) == RC_OK) {
            rc = take(context, event);
        }
        json_destroy(event);
        line = newline != NULL ? newline + 1 : NULL;
    }
    mem_free(bytes);
    return rc == RC_OK ? RC_OK : fault_set(why, rc, "cannot read %s: %s", path, rc_text(rc));
}

enum rc history_load(const char *path, struct history *history, struct fault *why)
{
    enum rc rc;

    *history = (struct history){.peers = 0};
    rc = read_lines(path, add_event, history, why);
    if (rc != RC_OK) history_deinit(history);
    return rc;
}

static enum rc add_report(void *context, const struct json *report)
{
    double t;

    return json_get_real(report, "t", &t) ? track_add(context, report) : RC_OK;
}

/* Where `t` falls a peer was started again. */
static void join_starts(struct track *track)
{
    double base[ARRAY_COUNT(restarted)] = {0}, last[ARRAY_COUNT(restarted)] = {0}, t = 0;

    for (size_t i = 0; i < track->count; i++) {
        const double now = track->values[HISTORY_t][i];

        for (size_t c = 0; c < ARRAY_COUNT(restarted); c++) {
            double *value = &track->values[restarted[c]][i];

            if (now < t) base[c] = last[c];
            *value += base[c];
            if (!isnan(*value)) last[c] = *value;
        }
        t = now;
    }
}

static bool is_taken(const struct history *history, const char *name)
{
    for (size_t i = 0; i < history->peers; i++) {
        if (strcmp(history->tracks[i].name, name) == 0) return true;
    }
    return false;
}

/* "runs/a/" -> "a"; a name of its own where there is none, or another peer has it. */
static void name_of(const struct history *history, const char *folder,
                    char name[HISTORY_NAME_BYTES])
{
    size_t end = strlen(folder), start;

    while (end > 1 && folder[end - 1] == '/')
        end--;
    for (start = end; start > 0 && folder[start - 1] != '/'; start--) {
    }
    (void)snprintf(name, HISTORY_NAME_BYTES, "%.*s", (int)(end - start), folder + start);
    if (name[0] == '.' || name[0] == '/' || name[0] == '\0' || is_taken(history, name)) {
        (void)snprintf(name, HISTORY_NAME_BYTES, "peer %zu", history->peers);
    }
}

enum rc history_add_peer(struct history *history, const char *folder, struct fault *why)
{
    char path[PATH_BYTES];
    struct track track = {.wall_s = NAN}, *tracks;
    struct stat file;
    enum rc rc;

    if (history->peers == HISTORY_PEERS_MAX) {
        return fault_set(why, RC_LIMIT, "more than %d peers", HISTORY_PEERS_MAX);
    }
    (void)snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    rc = read_lines(path, add_report, &track, why);
    if (rc == RC_NOT_FOUND) {
        rc = fault_set(why, rc,
                       "cannot report on %s: it has neither a testnet's summary.json nor a peer's "
                       "metrics.jsonl",
                       folder);
    }
    tracks =
        rc != RC_OK ? NULL : mem_resize(history->tracks, (history->peers + 1) * sizeof *tracks);
    if (tracks == NULL) {
        track_deinit(&track);
        return rc != RC_OK ? rc : fault_set(why, RC_NOMEM, "out of memory");
    }
    history->tracks = tracks;
    name_of(history, folder, track.name);
    join_starts(&track);
    if (stat(path, &file) == 0 && track.count > 0) {
        track.wall_s = (double)file.st_mtime - track.values[HISTORY_t][track.count - 1];
    }
    tracks[history->peers++] = track;
    return RC_OK;
}

double history_last(const struct track *track, enum history_column column)
{
    for (size_t i = track->count; i-- > 0;) {
        if (!isnan(track->values[column][i])) return track->values[column][i];
    }
    return NAN;
}

void history_deinit(struct history *history)
{
    for (size_t i = 0; i < history->peers; i++) {
        track_deinit(&history->tracks[i]);
    }
    mem_free(history->tracks);
    mem_free(history->faults);
    *history = (struct history){.peers = 0};
}
