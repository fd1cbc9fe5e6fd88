/* The framer, fed with any bytes in any pieces: the first byte of each piece is its length. */
#include "tests/framer.h"

#include "base/check.h"
#include "gossip/secure/secure.h"

#include <string.h>

enum { FRAME_MAX = 70000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct framer framer;
    enum rc rc = RC_OK;
    size_t at = 0, fed = 0, told = 0;

    framer_init(&framer, FRAME_MAX);
    while (at < size && rc == RC_OK) {
        size_t step = data[at++] + 1u;
        uint8_t *room, *frame = NULL;
        size_t count;

        CHECK(framer_room(&framer, &room, &count) == RC_OK);
        CHECK(count > 0 && framer_capacity(&framer) <= FRAME_MAX + FRAMER_BYTES_SMALL);
        if (step > count) step = count;
        if (step > size - at) step = size - at;
        memcpy(room, data + at, step);
        framer_fill(&framer, step);
        at += step;
        fed += step;
        while ((rc = framer_next(&framer, &frame, &count)) == RC_OK && frame != NULL) {
            CHECK(count >= PREFIX_BYTES && count <= FRAME_MAX);
            memset(frame, 0xa5, count);
            if (step % 3 == 0) blob_unref(framer_keep(&framer));
            told += count;
        }
        CHECK(told + framer_held(&framer) == fed);
    }
    framer_deinit(&framer);
    return 0;
}
