/*
 * What a peer says of connections that were refused or broke the protocol: whoever holds the
 * swarm's key can cause as many as it likes, so only some a minute have a line of their own, and
 * the next line says how many had none. All are counted (struct links_counts). Loop thread only.
 */
#include "peer/link/internal.h"

#include "peer/times.h"

enum { TOLD_A_MINUTE = 10 };

static bool may_tell(struct links *links)
{
    uint64_t now_ns = link_now(links);

    if (links->told_ns == 0 || now_ns >= links->told_ns + LINK_TELL_NS) {
        links->told_ns = now_ns;
        links->told = 0;
    }
    if (links->told < TOLD_A_MINUTE) {
        links->told++;
        return true;
    }
    links->untold++;
    return false;
}

void link_tell(struct links *links, enum log_level level, const char *line)
{
    if (!may_tell(links)) return;
    if (links->untold > 0) {
        log_line(links->options.log, level,
                 "%u more connections were refused or broken off since the last line about one",
                 links->untold);
    }
    links->untold = 0;
    log_line(links->options.log, level, "%s", line);
}
