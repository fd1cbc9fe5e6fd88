/* Equal shares of one budget; see credit.h. */
#include "gossip/flow/credit.h"

#include "base/check.h"

struct credit_use credit_sum(struct credit_use a, struct credit_use b)
{
    return (struct credit_use){a.bytes + b.bytes, a.streams + b.streams};
}

uint64_t credit_room(uint64_t budget, struct credit_use all, uint64_t own, uint64_t wanted,
                     uint64_t unit)
{
    uint64_t share = all.streams > 1 ? budget / all.streams : budget, room, left;

    CHECK(unit > 0);
    if (share < unit) share = unit;
    room = share > own ? share - own : 0;
    left = budget > all.bytes ? budget - all.bytes : 0;
    if (room > left) room = left;
    if (wanted <= room) return wanted / unit * unit;
    if (room < share / 2) return 0;
    return room / unit * unit;
}
