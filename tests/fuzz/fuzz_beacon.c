/* Datagrams of anybody on the local network: what is read as a beacon is written back to the same
 * bytes, so no two forms of one pass. */
#include "base/check.h"
#include "gossip/secure/beacon.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct swarm_secret secret = {.secret = {7}};
    uint8_t again[BEACON_BYTES];
    struct beacon beacon;

    CHECK(secure_start() == RC_OK);
    if (beacon_read(data, size, "ward", &secret, "192.0.2.7", &beacon) != RC_OK) return 0;
    CHECK(size == BEACON_BYTES && beacon.port != 0);
    beacon_write(&beacon, "ward", &secret, "192.0.2.7", again);
    CHECK(memcmp(again, data, size) == 0);
    return 0;
}
