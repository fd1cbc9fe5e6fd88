/* Which hosts are known to be members': for rationing handshakes. Names are not looked up, so an
 * address is known only where it is written in digits on both sides. Asked for every stranger, so
 * the book keeps counts by a hash of the host; two hosts that share one are known together, which
 * costs nothing but a ration. Loop thread. */
#include "gossip/membership_internal.h"

#include "base/check.h"

#include <string.h>

/* The bytes before the port, colon included; 0: there is no port. */
static size_t host_bytes(const char *address)
{
    const char *end = strrchr(address, ':');

    return end == NULL ? 0 : (size_t)(end - address) + 1;
}

/* FNV-1a. */
static uint32_t host_slot(const char *address, size_t count)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ (uint8_t)address[i]) * UINT64_C(0x100000001b3);
    }
    return (uint32_t)(hash >> 32) % HOST_SLOTS;
}

void hosts_count(struct book *book, const struct member *member, bool is_added)
{
    for (uint32_t i = 0; i < ADDRESSES_MAX; i++) {
        const char *address = member_address(member, i);
        size_t count;
        uint32_t slot;

        if (address == NULL) continue;
        count = host_bytes(address);
        if (count == 0) continue;
        slot = host_slot(address, count);
        if (is_added) {
            book->hosts[slot]++;
        } else {
            CHECK(book->hosts[slot] > 0);
            book->hosts[slot]--;
        }
    }
}

bool membership_knows_host(const struct membership *membership, const char *address)
{
    const struct dialler *dialler = &membership->dialler;
    size_t count = host_bytes(address);

    if (count == 0) return false;
    for (uint32_t i = 0; i < dialler->bootstraps_count; i++) {
        if (strncmp(dialler->bootstraps[i].address, address, count) == 0) return true;
    }
    return membership->book.hosts[host_slot(address, count)] > 0;
}
