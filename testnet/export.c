/* export: see export.h. */
#include "testnet/export.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/file.h"
#include "base/mem.h"
#include "testnet/tensorboard.pb-c.h"
#include "testnet/text.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_BYTES = 1024, RECORD_BYTES = 16, RECORD_BYTES_MAX = 4096 };

/* ---- CSV ---- */

static void add_quoted(struct text *text, const char *name)
{
    text_add(text, "\"");
    for (const char *c = name; *c != '\0'; c++) {
        text_add(text, *c == '"' ? "\"\"" : "%c", *c);
    }
    text_add(text, "\"");
}

enum rc export_csv(const char *path, const struct history *history, struct fault *why)
{
    struct text text = TEXT_EMPTY;
    struct piece piece;
    enum rc rc;

    text_add(&text, "peer");
    for (int c = 0; c < HISTORY_COLUMNS_COUNT; c++) {
        text_add(&text, ",%s", history_column_name((enum history_column)c));
    }
    text_add(&text, "\n");
    for (size_t p = 0; p < history->peers; p++) {
        const struct track *track = &history->tracks[p];

        for (size_t i = 0; i < track->count; i++) {
            add_quoted(&text, track->name);
            for (int c = 0; c < HISTORY_COLUMNS_COUNT; c++) {
                const double value = track->values[c][i];
                if (isfinite(value)) {
                    text_add(&text, ",%.15g", value);
                } else {
                    text_add(&text, ",");
                }
            }
            text_add(&text, "\n");
        }
    }
    piece = (struct piece){text.bytes, text.count};
    rc = text_is_whole(&text) ? file_replace(path, &piece, 1, 0644, why)
                              : fault_set(why, RC_NOMEM, "cannot write %s: out of memory", path);
    text_deinit(&text);
    return rc;
}

/* ---- TensorBoard ---- */

/* CRC-32C (Castagnoli), RFC 3720 12.1, a bit at a time: there is little of it. */
static uint32_t crc32c(const uint8_t *bytes, size_t count)
{
    uint32_t crc = UINT32_MAX;

    for (size_t i = 0; i < count; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
        }
    }
    return ~crc;
}

static uint32_t masked(const uint8_t *bytes, size_t count)
{
    const uint32_t crc = crc32c(bytes, count);

    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

struct records {
    uint8_t *bytes;
    size_t count, room;
};

static enum rc records_add(struct records *records, const Tensorboard__Event *event)
{
    const size_t count = tensorboard__event__get_packed_size(event);
    uint8_t *at;

    if (records->count + count + RECORD_BYTES > records->room) {
        const size_t room = 2 * records->room + count + RECORD_BYTES_MAX;
        uint8_t *bytes = mem_resize(records->bytes, room);
        if (bytes == NULL) return RC_NOMEM;
        records->bytes = bytes;
        records->room = room;
    }
    at = records->bytes + records->count;
    store_le64(at, count);
    store_le32(at + 8, masked(at, 8));
    (void)tensorboard__event__pack(event, at + 12);
    store_le32(at + 12 + count, masked(at + 12, count));
    records->count += count + RECORD_BYTES;
    return RC_OK;
}

/* A file may say any number. */
static int64_t whole(double value)
{
    return value > 0 && value < 0x1p62 ? (int64_t)value : 0;
}

/* A report: one value a column that it has. */
static enum rc records_add_report(struct records *records, const struct track *track, size_t i)
{
    Tensorboard__Summary__Value values[HISTORY_COLUMNS_COUNT], *list[HISTORY_COLUMNS_COUNT];
    Tensorboard__Summary summary = TENSORBOARD__SUMMARY__INIT;
    Tensorboard__Event event = TENSORBOARD__EVENT__INIT;
    const double own = track->values[HISTORY_own_steps][i], step = track->values[HISTORY_step][i];

    for (int c = 0; c < HISTORY_COLUMNS_COUNT; c++) {
        const double value = track->values[c][i];

        if (c == HISTORY_t || c == HISTORY_own_steps || !isfinite(value)) continue;
        tensorboard__summary__value__init(&values[summary.n_value]);
        values[summary.n_value].tag = (char *)history_column_name((enum history_column)c);
        values[summary.n_value].value_case = TENSORBOARD__SUMMARY__VALUE__VALUE_SIMPLE_VALUE;
        values[summary.n_value].simple_value = (float)value;
        list[summary.n_value] = &values[summary.n_value];
        summary.n_value++;
    }
    summary.value = list;
    event.summary = &summary;
    event.step = whole(isnan(own) ? step : own);
    event.wall_time = track->values[HISTORY_t][i] + (isnan(track->wall_s) ? 0 : track->wall_s);
    return records_add(records, &event);
}

static enum rc make_folder(const char *path, struct fault *why)
{
    if (mkdir(path, 0755) == 0 || errno == EEXIST) return RC_OK;
    return fault_set(why, RC_IO, "cannot make %s: %s", path, strerror(errno));
}

static enum rc export_track(const char *folder, const struct track *track, struct fault *why)
{
    Tensorboard__Event first = TENSORBOARD__EVENT__INIT;
    struct records records = {NULL, 0, 0};
    char path[PATH_BYTES];
    enum rc rc;

    (void)snprintf(path, sizeof path, "%s/%s", folder, track->name);
    rc = make_folder(path, why);
    if (rc != RC_OK) return rc;
    first.file_version = (char *)"brain.Event:2";
    first.wall_time = isnan(track->wall_s) ? 0 : track->wall_s;
    rc = records_add(&records, &first);
    for (size_t i = 0; i < track->count && rc == RC_OK; i++) {
        rc = records_add_report(&records, track, i);
    }
    (void)snprintf(path, sizeof path, "%s/%s/events.out.tfevents.grapevine", folder, track->name);
    if (rc == RC_OK) {
        const struct piece piece = {records.bytes, records.count};
        rc = file_replace(path, &piece, 1, 0644, why);
    } else {
        rc = fault_set(why, rc, "cannot write %s: %s", path, rc_text(rc));
    }
    mem_free(records.bytes);
    return rc;
}

enum rc export_tensorboard(const char *folder, const struct history *history, struct fault *why)
{
    enum rc rc = make_folder(folder, why);

    for (size_t p = 0; p < history->peers && rc == RC_OK; p++) {
        rc = export_track(folder, &history->tracks[p], why);
    }
    return rc;
}
