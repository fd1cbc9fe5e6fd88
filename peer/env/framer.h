/*
 * framer: a byte stream in, whole frames out. Pure: it knows no socket. The length rule is
 * frame_bytes() of gossip/wire/secure.h; a frame above `frame_max` or of a wrong form ends the
 * stream. It never holds more than one frame of `frame_max` bytes and one read.
 */
#ifndef GRAPEVINE_PEER_ENV_FRAMER_H
#define GRAPEVINE_PEER_ENV_FRAMER_H

#include "base/rc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FRAMER_BYTES_SMALL = 16 * 1024, /* the buffer of a link that only talks */
    FRAMER_BYTES_READ = 64 * 1024   /* what is read beyond a frame too large for that buffer */
};

struct framer {
    uint8_t *buffer;
    size_t capacity;
    size_t begin, end; /* bytes not yet handed out */
    size_t frame_max;
    bool was_big; /* a frame larger than the small buffer came since the last trim */
};

/** Allocates nothing yet. */
void framer_init(struct framer *framer, size_t frame_max);
void framer_deinit(struct framer *framer);
/** Where the next bytes go, at least one; then tell framer_fill() how many came. Frames handed out
 *  before are gone. RC_NOMEM. */
MUST_USE enum rc framer_room(struct framer *framer, uint8_t **room, size_t *room_bytes);
void framer_fill(struct framer *framer, size_t count);
/** The next whole frame, which may be changed in place, or NULL when more bytes are needed.
 *  RC_FORMAT and RC_LIMIT (see frame_bytes()): the stream is unusable from here on. */
MUST_USE enum rc framer_next(struct framer *framer, uint8_t **frame, size_t *count);
/** Bytes held that are not yet a whole frame handed out. */
size_t framer_held(const struct framer *framer);
/** Call every few seconds: gives a big buffer back if no big frame came since the last call. True
 *  while a big buffer remains. */
bool framer_trim(struct framer *framer);

#endif
