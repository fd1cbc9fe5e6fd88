/*
 * framer: a byte stream in, whole frames out. Pure: it knows no socket. The length rule is
 * frame_bytes() of gossip/secure/secure.h; a frame above `frame_max` or of a wrong form ends the
 * stream. It never holds more than one frame of `frame_max` bytes and one read.
 */
#ifndef GRAPEVINE_PEER_ENV_FRAMER_H
#define GRAPEVINE_PEER_ENV_FRAMER_H

#include "base/blob.h"
#include "base/rc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FRAMER_BYTES_SMALL = 16 * 1024, /* the buffer; a larger frame gets memory of its own. Of a
                                       stranger, who may send no large one: as much as it may */
    FRAMER_BYTES_AHEAD = 1024       /* what is read at once behind such a frame */
};

struct framer {
    uint8_t *buffer; /* [buffer_bytes] once something came */
    size_t buffer_bytes;
    size_t begin, end; /* bytes not yet handed out */
    struct blob *big;  /* a large frame, of which `filled` bytes are there; then begin == end */
    size_t filled;
    struct blob *out; /* a large frame, handed out, until the next call */
    size_t frame_max;
    bool was_big; /* the last frame was a large one */
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
/** A reference to what holds the frame handed out last, and it alone; NULL: it has to be copied. */
struct blob *framer_keep(const struct framer *framer);
/** Bytes held that are not yet a whole frame handed out. */
size_t framer_held(const struct framer *framer);

#endif
