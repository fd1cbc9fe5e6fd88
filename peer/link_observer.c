/*
 * Observers, and how much of this peer they may have: they take no neighbour's place, there are
 * only so many of them, one that asks nothing goes, and questions after the status, whoever asks,
 * are answered at a bounded rate. Loop thread.
 */
#include "peer/link_internal.h"

#define OBSERVER_IDLE_NS (60 * NS_PER_S) /* without a question: then it is closed */
#define OBSERVER_WANE_NS (5 * NS_PER_S)  /* likewise, if another one wants in */

/* Questions of one link, and of all: so far apart in the long run, and so many at once. */
#define ASK_GAP_NS       (NS_PER_S / 4)
#define ASK_BURST_NS     (4 * ASK_GAP_NS)
#define ASK_ALL_GAP_NS   (NS_PER_S / 20)
#define ASK_ALL_BURST_NS (20 * ASK_ALL_GAP_NS)

static bool is_observer(const struct link *link)
{
    return link->remote.role == HELLO_OBSERVER;
}

/* Current links of its kind, but for one that `link` would replace. */
static uint32_t others_of_kind(const struct links *links, const struct link *link)
{
    const struct link *other;
    uint32_t count = 0;

    TAILQ_FOREACH (other, &links->all, siblings) {
        count += other->is_current && is_observer(other) == is_observer(link) &&
                 !peer_id_is_equal(other->peer, link->peer);
    }
    return count;
}

static struct link *idlest_observer(const struct links *links)
{
    struct link *link, *idlest = NULL;

    TAILQ_FOREACH (link, &links->all, siblings) {
        if (!link->is_current || !is_observer(link)) continue;
        if (idlest == NULL || link->asked_ns < idlest->asked_ns) idlest = link;
    }
    return idlest;
}

bool links_are_full(const struct links *links)
{
    const struct link *link;
    uint32_t count = 0;

    TAILQ_FOREACH (link, &links->all, siblings) {
        count += link->is_current && !is_observer(link);
    }
    return count >= LINKS_MAX;
}

bool link_has_room(struct links *links, const struct link *link)
{
    struct link *idlest;

    if (!is_observer(link)) return others_of_kind(links, link) < LINKS_MAX;
    if (others_of_kind(links, link) < LINK_OBSERVERS_MAX) return true;
    idlest = idlest_observer(links);
    if (link_now(links) < idlest->asked_ns + OBSERVER_WANE_NS) return false;
    link_hangup(links, idlest, RC_LIMIT, "another observer wanted in");
    return true;
}

uint64_t link_observer_ends_ns(const struct link *link)
{
    if (!link->is_current || !is_observer(link)) return UINT64_MAX;
    return link->asked_ns + OBSERVER_IDLE_NS;
}

/* `due_ns`: when all that was granted so far would be over at the rate that is kept. */
static bool has_credit(uint64_t due_ns, uint64_t now_ns, uint64_t gap_ns, uint64_t burst_ns)
{
    return due_ns + gap_ns <= now_ns + burst_ns;
}

static void charge(uint64_t *due_ns, uint64_t now_ns, uint64_t gap_ns)
{
    *due_ns = (*due_ns > now_ns ? *due_ns : now_ns) + gap_ns;
}

bool link_may_ask(struct links *links, struct link *link)
{
    uint64_t now_ns = link_now(links);

    if (!has_credit(link->asks_due_ns, now_ns, ASK_GAP_NS, ASK_BURST_NS) ||
        !has_credit(links->asks_due_ns, now_ns, ASK_ALL_GAP_NS, ASK_ALL_BURST_NS)) {
        return false;
    }
    charge(&link->asks_due_ns, now_ns, ASK_GAP_NS);
    charge(&links->asks_due_ns, now_ns, ASK_ALL_GAP_NS);
    link->asked_ns = now_ns;
    return true;
}
