/*
 * Whom a peer averages with by the graph of its topology: in a swarm with an active view those
 * links are dialled before others and not pruned, as long as the graph asks for them. Loop thread.
 */
#include "gossip/membership_internal.h"

#include "base/check.h"

uint64_t membership_changes(const struct membership *m)
{
    return m->book.changes;
}

size_t membership_believed(const struct membership *m, struct peer_id *ids, size_t max)
{
    size_t count = 0;

    for (uint32_t i = 0; i < m->book.count && count < max; i++) {
        if (m->book.members[i]->counted != 0) ids[count++] = m->book.members[i]->id;
    }
    return count;
}

void membership_keep(struct membership *m, const struct peer_id *ids, size_t count, uint64_t now_ns)
{
    size_t at = 0;

    for (uint32_t i = 0; i < m->book.count; i++) {
        struct member *member = m->book.members[i];
        int order = -1;

        while (at < count && (order = peer_id_compare(ids[at], member->id)) < 0) {
            at++;
        }
        if (at == count || order != 0) {
            member->is_kept = false;
        } else if (!member->is_kept) {
            member->is_kept = true;
            member->kept_ns = now_ns;
            member->avoid_ns = 0; /* it did not know then that the link is wanted */
        }
        if (member->is_kept && member->contact == NULL) view_soon(m, now_ns);
    }
}
