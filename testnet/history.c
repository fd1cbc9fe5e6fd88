/* history: see history.h. Blocking file access: commands only. */
#include "testnet/history.h"

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

static enum rc track_reserve(struct track *track)
{
    double **const columns[] = {&track->t, &track->loss, &track->accuracy, &track->bytes_sent};
    const size_t room = track->room > 0 ? 2 * track->room : 64;

    if (track->count < track->room) return RC_OK;
    for (size_t i = 0; i < ARRAY_COUNT(columns); i++) {
        double *values = mem_resize(*columns[i], room * sizeof **columns[i]);
        if (values == NULL) return RC_NOMEM;
        *columns[i] = values;
    }
    track->room = room;
    return RC_OK;
}

static double real_or_nan(const struct json *object, const char *key)
{
    double value;

    return json_get_real(object, key, &value) ? value : NAN;
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
        memset(tracks + history->peers, 0, (peer + 1 - history->peers) * sizeof *tracks);
        history->tracks = tracks;
        history->peers = peer + 1;
    }
    return &history->tracks[peer];
}

/* Events of other kinds say nothing that is drawn. */
static enum rc add_event(struct history *history, const struct json *event)
{
    const char *kind = json_get_text(event, "event");
    uint64_t peer;
    double t;

    if (kind == NULL || !json_get_count(event, "peer", &peer) || !json_get_real(event, "t", &t)) {
        return RC_OK;
    }
    if (strcmp(kind, "fault") == 0) return add_fault(history, t);
    if (strcmp(kind, "report") != 0 || peer >= HISTORY_PEERS_MAX) return RC_OK;
    struct track *track = track_of(history, peer);
    if (track == NULL || track_reserve(track) != RC_OK) return RC_NOMEM;
    const size_t at = track->count++;
    track->t[at] = t;
    track->loss[at] = real_or_nan(event, "loss");
    track->accuracy[at] = real_or_nan(event, "accuracy");
    track->bytes_sent[at] = real_or_nan(event, "bytes_sent");
    return RC_OK;
}

enum rc history_load(const char *path, struct history *history, struct fault *why)
{
    struct history loaded = {.peers = 0};
    void *bytes = NULL;
    size_t count;
    enum rc rc = file_read(path, HISTORY_BYTES_MAX, &bytes, &count, why);

    *history = loaded;
    if (rc != RC_OK) return rc;
    for (char *line = bytes; rc == RC_OK && line != NULL;) {
        char *newline = strchr(line, '\n');
        const size_t length = newline != NULL ? (size_t)(newline - line) : strlen(line);
        struct json *event = NULL;
        if (length > 0 && json_parse(line, length, &event, NULL) == RC_OK) {
            rc = add_event(&loaded, event);
        }
        json_destroy(event);
        line = newline != NULL ? newline + 1 : NULL;
    }
    mem_free(bytes);
    if (rc != RC_OK) {
        history_deinit(&loaded);
        return fault_set(why, rc, "cannot read %s: %s", path, rc_text(rc));
    }
    *history = loaded;
    return RC_OK;
}

void history_deinit(struct history *history)
{
    for (size_t i = 0; i < history->peers; i++) {
        mem_free(history->tracks[i].t);
        mem_free(history->tracks[i].loss);
        mem_free(history->tracks[i].accuracy);
        mem_free(history->tracks[i].bytes_sent);
    }
    mem_free(history->tracks);
    mem_free(history->faults);
    *history = (struct history){.peers = 0};
}
