/*
 * Whom a peer averages with by the graph of its topology: in a swarm with an active view those
 * links are dialled before others and not pruned, as long as the graph asks for them. Loop thread.
 */
#include "gossip/membership/internal.h"

#include "base/check.h"
#include "gossip/times.h"

uint64_t membership_changes(const struct membership *m)
{
    return m->book.changes;
}

size_t membership_likely(const struct membership *m, struct peer_id *ids, size_t max)
{
    size_t count = 0;

    for (uint32_t i = 0; i < m->book.count && count < max; i++) {
        const struct member *member = m->book.entries[i].member;

        if (m->book.is_by_met ? !member->is_met : !member_is_likely(member)) continue;
        if (member_brief(member)->is_keeper) continue;
        ids[count++] = member->id;
    }
    return count;
}

/* Nobody dials it, and it did not come for a link that was wanted. */
static bool stays_away(const struct member *member, uint64_t now_ns)
{
    bool is_dialled =
        member_brief(member)->nat != NAT_OUTBOUND && member_address(member, 0) != NULL;

    return !is_dialled && member->contact == NULL && now_ns >= member->kept_ns + KEPT_IN_VAIN_NS;
}

void kept_tick(struct membership *m, uint64_t now_ns)
{
    for (uint32_t i = 0; i < m->kept_count; i++) {
        struct member *member = m->kept[i];

        if (!stays_away(member, now_ns)) continue;
        member->kept_ns = now_ns;
        book_tried_in_vain(&m->book, member);
    }
}

void kept_forget(struct membership *m, const struct member *member)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < m->kept_count; i++) {
        if (m->kept[i] != member) m->kept[count++] = m->kept[i];
    }
    m->kept_count = count;
}

void membership_keep(struct membership *m, const struct peer_id *ids, size_t count, uint64_t now_ns)
{
    struct member **kept = m->kept;
    size_t at = 0;

    CHECK(count <= LINKS_MAX);
    for (uint32_t i = 0; i < m->kept_count; i++) { /* those that are kept no longer */
        while (at < count && peer_id_compare(ids[at], kept[i]->id) < 0) {
            at++;
        }
        if (at < count && peer_id_is_equal(ids[at], kept[i]->id)) continue;
        if (stays_away(kept[i], now_ns)) book_tried_in_vain(&m->book, kept[i]);
        kept[i]->is_kept = false;
    }
    m->kept_count = 0;
    for (size_t i = 0; i < count; i++) {
        struct member *member = book_find(&m->book, ids[i]);

        if (member == NULL) continue;
        if (!member->is_kept) {
            member->is_kept = true;
            member->kept_ns = now_ns;
            member->avoid_ns = 0; /* it did not know then that the link is wanted */
        }
        kept[m->kept_count++] = member;
        if (member->contact == NULL) view_soon(m, now_ns);
    }
}
