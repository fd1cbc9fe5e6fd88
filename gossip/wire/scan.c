/*
 * A walk over msgpack (msgpack specification, 2013 revision) that believes no count. The library's
 * decoder reserves memory for the elements a message claims, before they have arrived: five bytes
 * can ask for gigabytes. Here an array or map may not claim more objects than bytes are left, every
 * object is counted, and open containers live in a stack of SCAN_DEPTH_MAX counters.
 * Extension types have no use here and are refused. Runs on any thread.
 */
#include "gossip/wire/scan.h"

#include "base/check.h"

/* Heads 0xc0 to 0xdf. `width`: bytes of number after the first byte. */
struct head {
    uint8_t kind, width, is_known, constant;
};

static const struct head heads[32] = {
    [0x00] = {SCAN_NIL, 0, 1, 0}, /* [0x01] is unused */
    [0x02] = {SCAN_BOOL, 0, 1, 0},
    [0x03] = {SCAN_BOOL, 0, 1, 1},
    [0x04] = {SCAN_BYTES, 1, 1, 0},
    [0x05] = {SCAN_BYTES, 2, 1, 0},
    [0x06] = {SCAN_BYTES, 4, 1, 0}, /* [0x07] to [0x09] are extensions */
    [0x0a] = {SCAN_FLOAT32, 4, 1, 0},
    [0x0b] = {SCAN_FLOAT64, 8, 1, 0},
    [0x0c] = {SCAN_UINT, 1, 1, 0},
    [0x0d] = {SCAN_UINT, 2, 1, 0},
    [0x0e] = {SCAN_UINT, 4, 1, 0},
    [0x0f] = {SCAN_UINT, 8, 1, 0},
    [0x10] = {SCAN_INT, 1, 1, 0},
    [0x11] = {SCAN_INT, 2, 1, 0},
    [0x12] = {SCAN_INT, 4, 1, 0},
    [0x13] = {SCAN_INT, 8, 1, 0},
    /* [0x14] to [0x18] are extensions */
    [0x19] = {SCAN_TEXT, 1, 1, 0},
    [0x1a] = {SCAN_TEXT, 2, 1, 0},
    [0x1b] = {SCAN_TEXT, 4, 1, 0},
    [0x1c] = {SCAN_ARRAY, 2, 1, 0},
    [0x1d] = {SCAN_ARRAY, 4, 1, 0},
    [0x1e] = {SCAN_MAP, 2, 1, 0},
    [0x1f] = {SCAN_MAP, 4, 1, 0},
};

static uint64_t big_endian(const uint8_t *bytes, size_t width)
{
    uint64_t value = 0;

    for (size_t i = 0; i < width; i++) {
        value = value << 8 | bytes[i];
    }
    return value;
}

static uint64_t sign_extended(uint64_t value, size_t width)
{
    uint64_t sign = UINT64_C(1) << (8 * width - 1);

    CHECK(width >= 1 && width <= 8);
    return (value ^ sign) - sign;
}

enum rc scan_head(const uint8_t *bytes, size_t count, struct scan_item *item)
{
    const struct head *head;
    uint8_t first;

    if (count == 0) return RC_FORMAT;
    first = bytes[0];
    item->head_bytes = 1;
    if (first < 0x80) {
        item->kind = SCAN_UINT;
        item->value = first;
    } else if (first < 0x90) {
        item->kind = SCAN_MAP;
        item->value = first & 0x0f;
    } else if (first < 0xa0) {
        item->kind = SCAN_ARRAY;
        item->value = first & 0x0f;
    } else if (first < 0xc0) {
        item->kind = SCAN_TEXT;
        item->value = first & 0x1f;
    } else if (first >= 0xe0) {
        item->kind = SCAN_INT;
        item->value = sign_extended(first, 1);
    } else {
        head = &heads[first - 0xc0];
        if (!head->is_known || count - 1 < head->width) return RC_FORMAT;
        item->kind = (enum scan_kind)head->kind;
        item->value = head->width > 0 ? big_endian(bytes + 1, head->width) : head->constant;
        if (item->kind == SCAN_INT) item->value = sign_extended(item->value, head->width);
        item->head_bytes += head->width;
    }
    return RC_OK;
}

enum rc scan_skip(const uint8_t *bytes, size_t count, size_t *object_bytes)
{
    uint64_t missing[SCAN_DEPTH_MAX]; /* objects still to come in each open container */
    size_t at = 0, depth = 0, objects = 0;

    do {
        struct scan_item item;
        uint64_t children = 0;
        enum rc rc = scan_head(bytes + at, count - at, &item);

        if (rc != RC_OK) return rc;
        if (++objects > SCAN_OBJECTS_MAX) return RC_LIMIT;
        at += item.head_bytes;
        if (item.kind == SCAN_TEXT || item.kind == SCAN_BYTES) {
            if (item.value > count - at) return RC_FORMAT;
            at += (size_t)item.value;
        } else if (item.kind == SCAN_ARRAY || item.kind == SCAN_MAP) {
            children = item.kind == SCAN_MAP ? 2 * item.value : item.value;
            if (children > count - at) return RC_FORMAT; /* an object has at least one byte */
        }
        if (depth > 0) missing[depth - 1]--;
        if (item.kind == SCAN_ARRAY || item.kind == SCAN_MAP) {
            if (depth == SCAN_DEPTH_MAX) return RC_LIMIT;
            missing[depth++] = children;
        }
        while (depth > 0 && missing[depth - 1] == 0) {
            depth--;
        }
        CHECK(at <= count);
    } while (depth > 0);
    *object_bytes = at;
    return RC_OK;
}

enum rc scan_check(const uint8_t *bytes, size_t count)
{
    size_t object_bytes = 0;
    enum rc rc = scan_skip(bytes, count, &object_bytes);

    if (rc != RC_OK) return rc;
    return object_bytes == count ? RC_OK : RC_FORMAT;
}
