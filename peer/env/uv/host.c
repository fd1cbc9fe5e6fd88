/* The machine's own address, for peers that listen on all of them. */
#include "peer/env/env.h"

#include <stdio.h>
#include <string.h>
#include <uv.h>

bool uv_host_address(char *host, size_t cap)
{
    uv_interface_address_t *all = NULL;
    int count = 0;
    bool is_found = false;

    if (uv_interface_addresses(&all, &count) != 0) return false;
    for (int i = 0; i < count && !is_found; i++) {
        if (all[i].is_internal || all[i].address.address4.sin_family != AF_INET) continue;
        is_found = uv_ip4_name(&all[i].address.address4, host, cap) == 0;
    }
    uv_free_interface_addresses(all, count);
    return is_found;
}
