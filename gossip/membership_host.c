/* Which hosts are known to be members': for rationing handshakes. Names are not looked up, so an
 * address is known only where it is written in digits on both sides. Loop thread. */
#include "gossip/membership_internal.h"

#include <string.h>

/* The bytes before the port, colon included; 0: there is no port. */
static size_t host_bytes(const char *address)
{
    const char *end = strrchr(address, ':');

    return end == NULL ? 0 : (size_t)(end - address) + 1;
}

bool membership_knows_host(const struct membership *membership, const char *address)
{
    const struct book *book = &membership->book;
    const struct dialler *dialler = &membership->dialler;
    size_t count = host_bytes(address);

    if (count == 0) return false;
    for (uint32_t i = 0; i < dialler->bootstraps_count; i++) {
        if (strncmp(dialler->bootstraps[i].address, address, count) == 0) return true;
    }
    for (uint32_t i = 0; i < book->count; i++) {
        for (uint32_t k = 0; k < ADDRESSES_MAX; k++) {
            if (strncmp(book->members[i]->addresses[k], address, count) == 0) return true;
        }
    }
    return false;
}
