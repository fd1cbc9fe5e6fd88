/*
 * audit: see audit.h. `plane` and `after` are the training lane's, `heard` the exchange lane's;
 * each line is one append to the file, which the system keeps whole.
 */
#include "peer/round/audit.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

enum { NAME_HEX = 16, LINE_BYTES = 256, CHUNK_TEXT = 2 * NAME_HEX + 24 };

struct audit {
    char *path;
    size_t values;
    uint32_t chunks; /* of a round, as the next */
    struct mask_layout layout;
    float *plane, *after; /* [values] */
    struct digest last;   /* of the plane, when the last job had ended */
    bool has_last;
    atomic_bool has_failed;
    float *heard;   /* [values]; a round has no more */
    uint8_t *kinds; /* [chunks], of as many as the plane has; 1 + data_kind of what was heard; 0:
                       nothing */
};

/* Enough of a hash to tell planes apart. */
struct name {
    char text[NAME_HEX + 1];
};

static struct name name_of(const void *bytes, size_t count)
{
    struct digest digest = hash_of(bytes, count);
    char text[DIGEST_TEXT];
    struct name name;

    digest_format(digest, text);
    memcpy(name.text, text, NAME_HEX);
    name.text[NAME_HEX] = '\0';
    return name;
}

static void write_line(struct audit *audit, const char *line)
{
    if (audit->has_failed) return; /* a full disk: what comes after a gap would mislead */
    audit->has_failed = file_append(audit->path, line, strlen(line), 0, NULL) != RC_OK;
}

static void say(struct audit *audit, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(struct audit *audit, const char *format, ...)
{
    char line[LINE_BYTES];
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    if (length < 0) return;
    if ((size_t)length > sizeof line - 2) length = (int)sizeof line - 2;
    line[length] = '\n';
    line[length + 1] = '\0';
    write_line(audit, line);
}

enum rc audit_open(const char *path, size_t values, struct audit **out, struct fault *why)
{
    struct audit *audit;
    enum rc rc;

    *out = NULL;
    if (path == NULL) return RC_OK;
    rc = file_append(path, "", 0, 0, why);
    if (rc != RC_OK) return rc;
    audit = mem_alloc(sizeof *audit);
    if (audit == NULL) return fault_set(why, RC_NOMEM, "--audit: out of memory");
    audit->values = values;
    audit->chunks = (uint32_t)((values + CHUNK_VALUES - 1) / CHUNK_VALUES);
    audit->layout = (struct mask_layout){.values = values, .chunk_values = CHUNK_VALUES};
    audit->path = mem_alloc(strlen(path) + 1);
    audit->plane = mem_aligned(values * sizeof(float));
    audit->after = mem_aligned(values * sizeof(float));
    audit->heard = mem_aligned(values * sizeof(float));
    audit->kinds = mem_alloc(audit->chunks);
    if (audit->path == NULL || audit->plane == NULL || audit->after == NULL ||
        audit->heard == NULL || audit->kinds == NULL) {
        audit_close(audit);
        return fault_set(why, RC_NOMEM, "--audit: out of memory");
    }
    memcpy(audit->path, path, strlen(path) + 1);
    *out = audit;
    return RC_OK;
}

void audit_close(struct audit *audit)
{
    if (audit == NULL) return;
    mem_free(audit->path);
    mem_free(audit->plane);
    mem_free(audit->after);
    mem_free(audit->heard);
    mem_free(audit->kinds);
    mem_free(audit);
}

/* ---- the training lane ---- */

static bool read_plane(struct audit *audit, struct learner *learner, float *plane)
{
    if (learner->ops->export_section(learner, SECTION_MIXED, plane, audit->values) == RC_OK) {
        return true;
    }
    say(audit, "violation the plane cannot be read");
    return false;
}

void audit_enter(struct audit *audit, struct learner *learner, bool is_checkpoint)
{
    size_t bytes;
    struct digest digest;

    if (audit == NULL || !read_plane(audit, learner, audit->plane)) return;
    bytes = audit->values * sizeof(float);
    digest = hash_of(audit->plane, bytes);
    if (!audit->has_last) {
        say(audit, "begun %s", name_of(audit->plane, bytes).text);
    } else if (!digest_is_equal(digest, audit->last)) {
        say(audit, "violation the plane changed between two jobs");
    }
    if (is_checkpoint) say(audit, "kept %s", name_of(audit->plane, bytes).text);
    audit->last = digest;
    audit->has_last = true;
}

void audit_leave(struct audit *audit, struct learner *learner, enum audit_change change,
                 const float *difference)
{
    size_t bytes;

    if (audit == NULL || !read_plane(audit, learner, audit->after)) return;
    bytes = audit->values * sizeof(float);
    if (change == AUDIT_NOTHING && memcmp(audit->plane, audit->after, bytes) != 0) {
        say(audit, "violation the plane changed in a job that only reads");
    }
    if (change == AUDIT_DIFFERENCE) {
        size_t wrong = 0;

        for (size_t i = 0; i < audit->values; i++) {
            wrong += audit->after[i] != audit->plane[i] + difference[i];
        }
        if (wrong > 0) say(audit, "violation %zu values are not old + difference", wrong);
        say(audit, "applied %s", name_of(audit->after, bytes).text);
    }
    audit->last = hash_of(audit->after, bytes);
}

/* ---- the exchange lane ---- */

static struct range chunk_range(const struct audit *audit, uint32_t chunk)
{
    size_t most = audit->layout.chunk_values, first = (size_t)chunk * most;
    size_t left = audit->layout.values - first;

    return (struct range){first, left < most ? left : most};
}

static struct name name_of_range(const float *plane, struct range range)
{
    return name_of(plane + range.first, range.count * sizeof(float));
}

void audit_told(struct audit *audit, const float *own, const struct mask_layout *layout)
{
    if (audit == NULL) return;
    audit->layout = *layout;
    if (audit->layout.values > audit->values) audit->layout.values = audit->values; /* a tracker */
    audit->chunks =
        (uint32_t)((audit->layout.values + layout->chunk_values - 1) / layout->chunk_values);
    memset(audit->kinds, 0, audit->chunks);
    for (uint32_t chunk = 0; chunk < audit->chunks; chunk++) {
        say(audit, "told %u %s", chunk, name_of_range(own, chunk_range(audit, chunk)).text);
    }
}

void audit_heard(struct audit *audit, enum data_kind kind, struct range range, const float *values)
{
    uint32_t chunk;

    if (audit == NULL || range.first + range.count > audit->layout.values) return; /* a tracker */
    chunk = (uint32_t)(range.first / audit->layout.chunk_values);
    memcpy(audit->heard + range.first, values, range.count * sizeof(float));
    audit->kinds[chunk] = (uint8_t)(1 + kind);
}

void audit_reduced(struct audit *audit, struct range range, const float *values)
{
    if (audit == NULL) return;
    audit_heard(audit, DATA_MEAN, range, values);
    say(audit, "mean %zu %s", range.first / audit->layout.chunk_values,
        name_of(values, range.count * sizeof(float)).text);
}

/* A committed chunk: what it must come to, from what was told and heard. */
static void check_chunk(struct audit *audit, const struct audit_round *round, uint32_t chunk)
{
    struct range range = chunk_range(audit, chunk);
    enum data_kind kind = round->key != NULL ? DATA_OFFER : DATA_MEAN;
    const float *own = round->own + range.first, *heard = audit->heard + range.first;
    const float *difference = round->difference + range.first;
    size_t wrong = 0;

    if (audit->kinds[chunk] != 1 + kind) {
        say(audit, "violation chunk %u is committed and was not heard", chunk);
        return;
    }
    if (!round->is_mean) return;
    for (size_t i = 0; i < range.count; i++) {
        float apart = heard[i] - own[i];

        wrong += difference[i] != (kind == DATA_MEAN ? apart : round->scale * apart);
    }
    if (wrong > 0) say(audit, "violation chunk %u: %zu values of the difference", chunk, wrong);
}

static void check_rest(struct audit *audit, const struct audit_round *round, uint32_t chunk)
{
    struct range range = chunk_range(audit, chunk);

    for (size_t i = range.first; i < range.first + range.count; i++) {
        if (round->difference[i] == 0.0f) continue;
        say(audit, "violation chunk %u changes, and was not committed", chunk);
        return;
    }
}

static void round_text(const struct round_key *key, uint64_t number, char *text, size_t cap)
{
    char initiator[PEER_ID_TEXT];

    if (key == NULL) {
        snprintf(text, cap, "group %llu", (unsigned long long)number);
        return;
    }
    peer_id_format(key->initiator, initiator);
    snprintf(text, cap, "pair %.12s.%s.%llu", initiator,
             name_of(key->boot.bytes, sizeof key->boot.bytes).text,
             (unsigned long long)key->counter);
}

void audit_settled(struct audit *audit, const struct audit_round *round)
{
    char which[96];
    char *line;
    size_t cap, at;

    if (audit == NULL) return;
    cap = LINE_BYTES + (size_t)audit->chunks * CHUNK_TEXT;
    line = mem_alloc(cap);
    if (line == NULL) return;
    round_text(round->key, round->number, which, sizeof which);
    at = (size_t)snprintf(line, cap, "%s %s %u %a", round->is_doubt ? "doubt" : "settled", which,
                          round->members, (double)round->scale);
    for (uint32_t chunk = 0; chunk < audit->chunks; chunk++) {
        struct range range = chunk_range(audit, chunk);

        if ((round->bitmap[chunk / 8] >> (chunk % 8) & 1) == 0) {
            check_rest(audit, round, chunk);
            continue;
        }
        check_chunk(audit, round, chunk);
        at += (size_t)snprintf(line + at, cap - at, " %u=%s:%s", chunk,
                               name_of_range(round->own, range).text,
                               name_of_range(audit->heard, range).text);
    }
    snprintf(line + at, cap - at, "\n");
    write_line(audit, line);
    mem_free(line);
}

void audit_late(struct audit *audit, const struct round_key *key, float scale)
{
    char which[96];

    if (audit == NULL) return;
    round_text(key, 0, which, sizeof which);
    say(audit, "late %s %a", which, (double)scale);
}
