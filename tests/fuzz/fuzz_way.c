/* Any bytes as what a proxy answers, in pieces: the first byte says which kind, and if there is a
 * password; the second how long the pieces are. */
#include "base/check.h"
#include "peer/env/way.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static const char *const urls[] = {"socks5://p:1", "socks5://a:b@p:1", "http://p:1",
                                       "http://a:b@p:1"};
    struct way way;
    struct way_talk talk;
    struct address target;
    const char *why = NULL;
    size_t piece;

    if (count < 2) return 0;
    piece = bytes[1] % 64 + 1;
    CHECK(way_parse(&(struct way_flags){.proxy = urls[bytes[0] % 4]}, &way, NULL) == RC_OK);
    CHECK(address_parse("b.example:7077", &target) == RC_OK);
    way_talk_begin(&talk, &way, &target);
    for (size_t at = 2; at < count; at += piece) {
        talk.say_count = 0;
        if (way_talk_hear(&talk, bytes + at, count - at < piece ? count - at : piece, &why) !=
            RC_OK) {
            CHECK(why != NULL);
            return 0;
        }
    }
    CHECK(count <= WAY_HTTP_BYTES_MAX + 2); /* nobody is heard for longer */
    return 0;
}
