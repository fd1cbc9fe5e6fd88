/* address_space: see address_space.h. Runs before the libraries do, so it asks nothing but the
 * kernel. */
#include "kernels/cpu/address_space.h"

#include <stddef.h>
#include <sys/mman.h>
#include <sys/resource.h>

bool address_space_has(uint64_t bytes)
{
    struct rlimit limit;
    void *room;

    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return true;
    room = mmap(NULL, (size_t)bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) return false;
    (void)munmap(room, (size_t)bytes);
    return true;
}

uint64_t address_space_limit_mib(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return 0;
    return (uint64_t)limit.rlim_cur >> 20;
}
