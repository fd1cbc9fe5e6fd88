/*
 * framer: small frames lie in one buffer and are handed out there; what is left of the last read is
 * moved to its front before the next one. A frame larger than the buffer is read into memory of its
 * own, which whoever gets it may keep, so that bulk is never copied here but for its first bytes.
 */
#include "peer/env/framer.h"

#include "base/check.h"
#include "base/mem.h"
#include "gossip/secure/secure.h"

#include <string.h>

void framer_init(struct framer *framer, size_t frame_max)
{
    CHECK(frame_max >= PREFIX_BYTES);
    memset(framer, 0, sizeof *framer);
    framer->frame_max = frame_max;
}

void framer_deinit(struct framer *framer)
{
    mem_free(framer->buffer);
    blob_unref(framer->big);
    blob_unref(framer->out);
    memset(framer, 0, sizeof *framer);
}

static size_t in_buffer(const struct framer *framer)
{
    CHECK(framer->begin <= framer->end);
    return framer->end - framer->begin;
}

/* The frame in front gets memory of its own if it is large; only a header that was found good makes
 * it so. */
static enum rc big_begin(struct framer *framer)
{
    size_t frame, held = in_buffer(framer);

    if (framer->big != NULL || held < PREFIX_BYTES) return RC_OK;
    if (frame_bytes(framer->buffer + framer->begin, framer->frame_max, &frame) != RC_OK ||
        frame <= FRAMER_BYTES_SMALL) {
        return RC_OK;
    }
    framer->big = blob_create(frame);
    if (framer->big == NULL) return RC_NOMEM;
    memcpy(framer->big->bytes, framer->buffer + framer->begin, held);
    framer->filled = held;
    framer->begin = framer->end = 0;
    return RC_OK;
}

static void out_drop(struct framer *framer)
{
    blob_unref(framer->out);
    framer->out = NULL;
}

/* As large as the limit now asks for, with what is held; then that lies at its front. */
static enum rc buffer_make(struct framer *framer)
{
    size_t wanted = framer->frame_max < FRAMER_BYTES_SMALL ? framer->frame_max : FRAMER_BYTES_SMALL;
    size_t held = in_buffer(framer);
    uint8_t *buffer = framer->buffer;

    if (framer->buffer_bytes < wanted) {
        buffer = mem_raw(wanted);
        if (buffer == NULL) return RC_NOMEM;
    }
    if (held > 0 && (buffer != framer->buffer || framer->begin > 0)) {
        memmove(buffer, framer->buffer + framer->begin, held);
    }
    framer->begin = 0;
    framer->end = held;
    if (buffer == framer->buffer) return RC_OK;
    mem_free(framer->buffer);
    framer->buffer = buffer;
    framer->buffer_bytes = wanted;
    return RC_OK;
}

enum rc framer_room(struct framer *framer, uint8_t **room, size_t *room_bytes)
{
    enum rc rc = big_begin(framer);

    out_drop(framer);
    if (rc != RC_OK) return rc;
    if (framer->big != NULL) {
        *room = framer->big->bytes + framer->filled;
        *room_bytes = framer->big->count - framer->filled;
        return RC_OK;
    }
    rc = buffer_make(framer);
    if (rc != RC_OK) return rc;
    CHECK(framer->end < framer->buffer_bytes);
    *room = framer->buffer + framer->end;
    *room_bytes = framer->buffer_bytes - framer->end;
    /* Another large one comes, as likely as not: little of it shall lie here. */
    if (framer->was_big && framer->end < FRAMER_BYTES_AHEAD) *room_bytes = FRAMER_BYTES_AHEAD;
    return RC_OK;
}

void framer_fill(struct framer *framer, size_t count)
{
    if (framer->big != NULL) {
        CHECK(count <= framer->big->count - framer->filled);
        framer->filled += count;
    } else {
        CHECK(count <= framer->buffer_bytes - framer->end);
        framer->end += count;
    }
}

static void big_next(struct framer *framer, uint8_t **frame, size_t *count)
{
    if (framer->filled < framer->big->count) return;
    framer->out = framer->big;
    framer->big = NULL;
    framer->was_big = true;
    *frame = framer->out->bytes;
    *count = framer->out->count;
}

enum rc framer_next(struct framer *framer, uint8_t **frame, size_t *count)
{
    uint8_t *head;
    size_t bytes;
    enum rc rc;

    *frame = NULL;
    *count = 0;
    out_drop(framer);
    if (framer->big != NULL) {
        big_next(framer, frame, count);
        return RC_OK;
    }
    if (in_buffer(framer) < PREFIX_BYTES) return RC_OK;
    head = framer->buffer + framer->begin;
    rc = frame_bytes(head, framer->frame_max, &bytes);
    if (rc != RC_OK) return rc;
    CHECK(bytes >= PREFIX_BYTES && bytes <= framer->frame_max);
    if (in_buffer(framer) < bytes) return RC_OK;
    framer->begin += bytes;
    framer->was_big = false;
    *frame = head;
    *count = bytes;
    return RC_OK;
}

struct blob *framer_keep(const struct framer *framer)
{
    return framer->out == NULL ? NULL : blob_ref(framer->out);
}

size_t framer_held(const struct framer *framer)
{
    return in_buffer(framer) + (framer->big != NULL ? framer->filled : 0);
}
