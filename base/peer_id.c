/* Peer ids as people see them. */
#include "base/peer_id.h"

#include "base/check.h"

_Static_assert(PEER_ID_BYTES * 8 == (PEER_ID_TEXT - 1) * 5, "20 bytes are 32 base32 letters");

void peer_id_format(struct peer_id id, char text[PEER_ID_TEXT])
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz234567";
    uint32_t window = 0;
    unsigned bits = 0;
    size_t at = 0;

    for (size_t i = 0; i < PEER_ID_BYTES; i++) {
        window = window << 8 | id.bytes[i];
        bits += 8;
        while (bits >= 5) {
            bits -= 5;
            text[at++] = letters[window >> bits & 31];
        }
    }
    CHECK(at == PEER_ID_TEXT - 1);
    text[at] = '\0';
}

size_t peer_id_insert(struct peer_id *ids, size_t count, struct peer_id id)
{
    size_t place = count;

    while (place > 0 && peer_id_compare(ids[place - 1], id) > 0) {
        place--;
    }
    if (place > 0 && peer_id_is_equal(ids[place - 1], id)) return count;
    memmove(&ids[place + 1], &ids[place], (count - place) * sizeof ids[0]);
    ids[place] = id;
    return count + 1;
}
