/*
 * framer: one growing buffer. Frames are handed out where they lie; what is left of the last read
 * is moved to the front before the next one, which costs at most one partial frame of copying.
 */
#include "peer/env/framer.h"

#include "base/check.h"
#include "base/mem.h"
#include "gossip/wire/secure.h"

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
    memset(framer, 0, sizeof *framer);
}

/* How much buffer the frame in front needs; only a header that was found good makes it grow. */
static size_t capacity_wanted(const struct framer *framer)
{
    size_t frame;

    if (framer_held(framer) < PREFIX_BYTES) return FRAMER_BYTES_SMALL;
    if (frame_bytes(framer->buffer + framer->begin, framer->frame_max, &frame) != RC_OK) {
        return FRAMER_BYTES_SMALL;
    }
    return frame <= FRAMER_BYTES_SMALL ? FRAMER_BYTES_SMALL : frame + FRAMER_BYTES_READ;
}

enum rc framer_room(struct framer *framer, uint8_t **room, size_t *room_bytes)
{
    size_t wanted = capacity_wanted(framer);

    if (framer->begin > 0) {
        memmove(framer->buffer, framer->buffer + framer->begin, framer_held(framer));
        framer->end -= framer->begin;
        framer->begin = 0;
    }
    if (framer->capacity < wanted) {
        uint8_t *larger = mem_resize(framer->buffer, wanted);

        if (larger == NULL) return RC_NOMEM;
        framer->buffer = larger;
        framer->capacity = wanted;
    }
    CHECK(framer->end < framer->capacity);
    *room = framer->buffer + framer->end;
    *room_bytes = framer->capacity - framer->end;
    return RC_OK;
}

void framer_fill(struct framer *framer, size_t count)
{
    CHECK(count <= framer->capacity - framer->end);
    framer->end += count;
}

enum rc framer_next(struct framer *framer, uint8_t **frame, size_t *count)
{
    uint8_t *head;
    size_t bytes;
    enum rc rc;

    *frame = NULL;
    *count = 0;
    if (framer_held(framer) < PREFIX_BYTES) return RC_OK;
    head = framer->buffer + framer->begin;
    rc = frame_bytes(head, framer->frame_max, &bytes);
    if (rc != RC_OK) return rc;
    CHECK(bytes >= PREFIX_BYTES && bytes <= framer->frame_max);
    if (bytes > FRAMER_BYTES_SMALL) framer->was_big = true;
    if (framer_held(framer) < bytes) return RC_OK;
    framer->begin += bytes;
    *frame = head;
    *count = bytes;
    return RC_OK;
}

size_t framer_held(const struct framer *framer)
{
    CHECK(framer->begin <= framer->end);
    return framer->end - framer->begin;
}

bool framer_trim(struct framer *framer)
{
    if (framer->capacity <= FRAMER_BYTES_SMALL) return false;
    if (!framer->was_big && framer_held(framer) == 0) {
        mem_free(framer->buffer);
        framer->buffer = NULL;
        framer->capacity = framer->begin = framer->end = 0;
        return false;
    }
    framer->was_big = false;
    return true;
}
