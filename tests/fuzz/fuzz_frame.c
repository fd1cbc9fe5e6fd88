/*
 * Arbitrary bytes as a stream: frames are cut off as a framer would, then each goes through all
 * that looks at unauthenticated bytes (the size of a frame, the gate) and through the inner header.
 */
#include "base/check.h"
#include "gossip/secure/secure.h"
#include "gossip/wire/messages.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look_at(const struct swarm_secret *swarm, const uint8_t *frame, size_t count)
{
    struct inner_header header;

    if (secure_gate_check(swarm, frame, count) == RC_OK) CHECK(count == H1_BYTES);
    if (count < secure_record_bytes(INNER_HEADER_BYTES)) return;
    frame += RECORD_HEADER_BYTES;
    count -= RECORD_HEADER_BYTES + RECORD_TAG_BYTES;
    if (inner_header_decode(frame, count, &header) == RC_OK) {
        uint8_t again[INNER_HEADER_BYTES];

        inner_header_encode(&header, again);
        CHECK(memcmp(again, frame, sizeof again) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t key[SECRET_BYTES] = "fuzz";
    struct swarm_secret swarm;
    size_t frame_max = size > 0 ? (size_t)data[0] * 4200 : 0;

    if (secure_start() != RC_OK) return 0;
    swarm_secret_derive("fuzz", key, &swarm);
    while (size >= PREFIX_BYTES) {
        size_t count = 0;

        if (frame_bytes(data, frame_max, &count) != RC_OK) return 0;
        CHECK(count >= PREFIX_BYTES && count <= frame_max);
        if (count > size) return 0;
        look_at(&swarm, data, count);
        data += count;
        size -= count;
    }
    return 0;
}
