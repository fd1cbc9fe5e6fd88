/*
 * msgpack maps to structs. The body is scanned first (gossip/wire/scan.c); then a cursor walks it
 * once and writes each value to the place its row names. Not by msgpack-c's decoder: that builds a
 * tree of objects on the heap, 24 to 48 bytes for each, outside of our counted memory, only for us
 * to copy from it; the steady state of a peer allocates nothing but frames. The cursor shares its
 * reading of heads with the scan, checks every length again, and the tests hold it against
 * msgpack-c's decoder on everything either accepts. Runs on any thread.
 */
#include "gossip/wire/fields.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/floats.h"
#include "gossip/wire/messages.h"
#include "gossip/wire/scan.h"

#include <math.h>

struct cursor {
    const uint8_t *at;
    size_t left;
};

/* Step over a head that must be of `kind`. */
static enum rc take_head(struct cursor *cursor, enum scan_kind kind, uint64_t *value)
{
    struct scan_item item;
    enum rc rc = scan_head(cursor->at, cursor->left, &item);

    if (rc != RC_OK) return rc;
    if (item.kind != kind) return RC_FORMAT;
    cursor->at += item.head_bytes;
    cursor->left -= item.head_bytes;
    *value = item.value;
    return RC_OK;
}

/* Step over a string of `kind` with at most `max` bytes. */
static enum rc take_string(struct cursor *cursor, enum scan_kind kind, size_t max,
                           const uint8_t **bytes, size_t *count)
{
    uint64_t value = 0;
    enum rc rc = take_head(cursor, kind, &value);

    if (rc != RC_OK) return rc;
    if (value > cursor->left || value > max) return RC_FORMAT;
    *bytes = cursor->at;
    *count = (size_t)value;
    cursor->at += *count;
    cursor->left -= *count;
    return RC_OK;
}

static enum rc take_uint(struct cursor *cursor, const struct field *field, uint8_t *to)
{
    uint64_t value = 0;
    enum rc rc = take_head(cursor, SCAN_UINT, &value);
    uint32_t word = (uint32_t)value;
    uint16_t half = (uint16_t)value;

    if (rc != RC_OK) return rc;
    if (value < field->low || value > field->high) return RC_FORMAT;
    switch (field->bytes) {
    case 1:
        *to = (uint8_t)value;
        break;
    case 2:
        memcpy(to, &half, sizeof half);
        break;
    case 4:
        memcpy(to, &word, sizeof word);
        break;
    default:
        CHECK(field->bytes == 8);
        memcpy(to, &value, sizeof value);
    }
    return RC_OK;
}

static enum rc take_float(struct cursor *cursor, const struct field *field, uint8_t *to)
{
    uint64_t bits = 0;
    enum rc rc = take_head(cursor, SCAN_FLOAT32, &bits);
    float value = float_of_bits((uint32_t)bits);

    if (rc != RC_OK) return rc;
    if (!isfinite(value)) return RC_NONFINITE;
    if (value < field->least || value > field->most) return RC_FORMAT;
    if (field->is_above_least && value <= field->least) return RC_FORMAT;
    memcpy(to, &value, sizeof value);
    return RC_OK;
}

static enum rc take_bool(struct cursor *cursor, uint8_t *to)
{
    uint64_t value = 0;
    enum rc rc = take_head(cursor, SCAN_BOOL, &value);

    if (rc == RC_OK) *(bool *)to = value != 0;
    return rc;
}

static enum rc take_fixed(struct cursor *cursor, uint8_t *to, size_t bytes)
{
    const uint8_t *from = NULL;
    size_t count = 0;
    enum rc rc = take_string(cursor, SCAN_BYTES, bytes, &from, &count);

    if (rc != RC_OK) return rc;
    if (count != bytes) return RC_FORMAT;
    memcpy(to, from, count);
    return RC_OK;
}

/* Printable ASCII only: these end up on terminals and in logs. */
static enum rc take_text(struct cursor *cursor, char *to, size_t cap)
{
    const uint8_t *from = NULL;
    size_t count = 0;
    enum rc rc = take_string(cursor, SCAN_TEXT, cap - 1, &from, &count);

    if (rc != RC_OK) return rc;
    for (size_t i = 0; i < count; i++) {
        if (from[i] < ' ' || from[i] > '~') return RC_FORMAT;
    }
    memcpy(to, from, count);
    memset(to + count, 0, cap - count);
    return RC_OK;
}

static enum rc take_borrowed(struct cursor *cursor, const struct field *field, uint8_t *to,
                             uint32_t *count)
{
    const uint8_t *bytes = NULL;
    size_t bytes_count = 0;
    enum scan_kind kind = field->kind == FIELD_BLOB ? SCAN_BYTES : SCAN_TEXT;
    enum rc rc = take_string(cursor, kind, field->bytes, &bytes, &bytes_count);

    if (rc != RC_OK) return rc;
    if (field->kind == FIELD_BLOB && bytes_count % field->unit != 0) return RC_FORMAT;
    memcpy(to, &bytes, sizeof bytes);
    *count = (uint32_t)bytes_count;
    return RC_OK;
}

static enum rc take_round(struct cursor *cursor, struct round_key *key)
{
    uint8_t packed[PEER_ID_BYTES + BOOT_ID_BYTES + 8];
    enum rc rc = take_fixed(cursor, packed, sizeof packed);

    if (rc != RC_OK) return rc;
    memcpy(key->initiator.bytes, packed, PEER_ID_BYTES);
    memcpy(key->boot.bytes, packed + PEER_ID_BYTES, BOOT_ID_BYTES);
    key->counter = load_le64(packed + PEER_ID_BYTES + BOOT_ID_BYTES);
    return RC_OK;
}

static enum rc take_records(struct cursor *cursor, struct record_ref *records, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        size_t bytes_count = 0;
        enum rc rc = take_string(cursor, SCAN_BYTES, SIGNED_RECORD_BYTES_MAX, &records[i].bytes,
                                 &bytes_count);

        if (rc != RC_OK) return rc;
        if (bytes_count == 0) return RC_FORMAT;
        records[i].bytes_count = (uint16_t)bytes_count;
    }
    return RC_OK;
}

static enum rc take_texts(struct cursor *cursor, const struct field *field, char *to,
                          uint32_t count)
{
    enum rc rc = RC_OK;

    for (uint32_t i = 0; i < count && rc == RC_OK; i++) {
        rc = take_text(cursor, to + (size_t)i * field->bytes, field->bytes);
    }
    return rc;
}

/* RECORDS and TEXTS: an array of strings. */
static enum rc take_array(struct cursor *cursor, const struct field *field, uint8_t *to,
                          uint32_t *count)
{
    uint64_t value = 0;
    enum rc rc = take_head(cursor, SCAN_ARRAY, &value);

    if (rc != RC_OK) return rc;
    if (value > field->high) return RC_FORMAT;
    *count = (uint32_t)value;
    if (field->kind == FIELD_TEXTS) return take_texts(cursor, field, (char *)to, *count);
    return take_records(cursor, (struct record_ref *)(void *)to, *count);
}

/* MEMBERS and SECTIONS: one bin of equal entries. */
static enum rc take_entries(struct cursor *cursor, const struct field *field, uint8_t *base,
                            uint32_t *count)
{
    size_t entry = field->kind == FIELD_MEMBERS ? PEER_ID_BYTES + BOOT_ID_BYTES : 9;
    const uint8_t *from = NULL;
    size_t bytes = 0;
    enum rc rc = take_string(cursor, SCAN_BYTES, entry * (size_t)field->high, &from, &bytes);

    if (rc != RC_OK) return rc;
    if (bytes % entry != 0) return RC_FORMAT;
    *count = (uint32_t)(bytes / entry);
    for (uint32_t i = 0; i < *count; i++, from += entry) {
        if (field->kind == FIELD_MEMBERS) {
            struct member_ref *members = (struct member_ref *)(void *)(base + field->at);

            memcpy(members[i].id.bytes, from, PEER_ID_BYTES);
            memcpy(members[i].boot.bytes, from + PEER_ID_BYTES, BOOT_ID_BYTES);
        } else {
            base[field->at + i] = from[0];
            ((uint64_t *)(void *)(base + field->second_at))[i] = load_le64(from + 1);
        }
    }
    return RC_OK;
}

static enum rc take_field(struct cursor *cursor, const struct field *field, uint8_t *base)
{
    uint8_t *at = base + field->at;
    uint32_t *count = (uint32_t *)(void *)(base + field->count_at);

    switch (field->kind) {
    case FIELD_UINT:
        return take_uint(cursor, field, at);
    case FIELD_BOOL:
        return take_bool(cursor, at);
    case FIELD_FLOAT:
        return take_float(cursor, field, at);
    case FIELD_FIXED:
        return take_fixed(cursor, at, field->bytes);
    case FIELD_TEXT:
        return take_text(cursor, (char *)at, field->bytes);
    case FIELD_BLOB:
    case FIELD_STRING:
        return take_borrowed(cursor, field, at, count);
    case FIELD_ROUND:
        return take_round(cursor, (struct round_key *)(void *)at);
    case FIELD_RECORDS:
    case FIELD_TEXTS:
        return take_array(cursor, field, at, count);
    case FIELD_MEMBERS:
    case FIELD_SECTIONS:
        return take_entries(cursor, field, base, count);
    }
    CHECK(false); /* every kind has its reader above */
    return RC_FORMAT;
}

static enum rc skip_value(struct cursor *cursor)
{
    size_t bytes = 0;
    enum rc rc = scan_skip(cursor->at, cursor->left, &bytes);

    if (rc != RC_OK) return rc;
    cursor->at += bytes;
    cursor->left -= bytes;
    return RC_OK;
}

enum rc fields_decode(const struct field *fields, size_t fields_count, const uint8_t *body,
                      size_t count, void *to)
{
    struct cursor cursor = {.at = body, .left = count};
    uint64_t seen = 0, wanted = 0, pairs = 0;
    enum rc rc = scan_check(body, count);

    if (rc == RC_OK) rc = take_head(&cursor, SCAN_MAP, &pairs);
    for (uint64_t i = 0; i < pairs && rc == RC_OK; i++) {
        uint64_t key = 0;
        size_t row = 0;

        rc = take_head(&cursor, SCAN_UINT, &key);
        if (rc != RC_OK) return rc;
        if (key > FIELD_KEY_MAX || (seen & UINT64_C(1) << key) != 0) return RC_FORMAT;
        seen |= UINT64_C(1) << key;
        while (row < fields_count && fields[row].key != key) {
            row++;
        }
        rc = row < fields_count ? take_field(&cursor, &fields[row], to) : skip_value(&cursor);
    }
    if (rc != RC_OK) return rc;
    CHECK(cursor.left == 0);
    for (size_t i = 0; i < fields_count; i++) {
        if (!fields[i].is_optional) wanted |= UINT64_C(1) << fields[i].key;
    }
    return (seen & wanted) == wanted ? RC_OK : RC_FORMAT;
}
