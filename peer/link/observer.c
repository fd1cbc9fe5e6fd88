/*
 * Observers, and how much of this peer they may have: they take no neighbour's place, there are
 * only so many of them, one that asks nothing goes, and questions after the status, whoever asks,
 * are answered at a bounded rate.
 *
 * Nobody can keep the others out: where all places are taken, a host that has fewer of them than
 * another gets one of the other's, and who sits at this machine gets anybody's. Nor can anybody use
 * up all answers: an observer's first question, and one a second, is always answered. Loop thread.
 */
#include "peer/link/internal.h"

#include "gossip/flow/ration.h"
#include "gossip/wire/address.h"
#include "peer/times.h"

static bool is_observer(const struct link *link)
{
    return link->remote.role == HELLO_OBSERVER;
}

/* Current links of its kind, but for one that `link` would replace. */
static uint32_t others_of_kind(const struct links *links, const struct link *link)
{
    const struct link *other = link_find_peer(links, link->peer);
    bool is_replaced = other != NULL && is_observer(other) == is_observer(link);

    return (is_observer(link) ? links->current_observers : links->current_neighbours) - is_replaced;
}

/* At this machine. Who was dialled is where somebody said. */
static bool is_local(const struct link *link)
{
    return !link->is_dialled && address_is_loopback(link->address);
}

static bool is_same_host(const struct link *a, const struct link *b)
{
    uint8_t numbers[2][HOST_NUMBER_BYTES_MAX];
    size_t count = address_host_number(a->address, numbers[0]);

    return address_host_number(b->address, numbers[1]) == count &&
           memcmp(numbers[0], numbers[1], count) == 0; /* names are one host */
}

static uint32_t observers_at(const struct links *links, const struct link *host)
{
    const struct link *link;
    uint32_t count = 0;

    TAILQ_FOREACH (link, &links->all, siblings) {
        count += link->is_current && is_observer(link) && is_same_host(link, host);
    }
    return count;
}

/* Whose place `link` may have; NULL: nobody's. */
static struct link *observer_to_go(const struct links *links, const struct link *link)
{
    uint32_t here = observers_at(links, link), most = 0;
    struct link *other, *pick = NULL;

    TAILQ_FOREACH (other, &links->all, siblings) {
        uint32_t there;

        if (!other->is_current || !is_observer(other)) continue;
        there = is_local(other) ? 0 : observers_at(links, other); /* last of all */
        if (pick == NULL || there > most || (there == most && other->asked_ns < pick->asked_ns)) {
            pick = other;
            most = there;
        }
    }
    if (is_local(link) || most > here) return pick;
    return link_now(links) < pick->asked_ns + OBSERVER_WANE_NS ? NULL : pick;
}

bool links_are_full(const struct links *links)
{
    return links->current_neighbours >= LINKS_MAX;
}

bool link_has_room(struct links *links, const struct link *link)
{
    struct link *other;

    if (!is_observer(link)) return others_of_kind(links, link) < LINKS_MAX;
    if (others_of_kind(links, link) < LINK_OBSERVERS_MAX) return true;
    other = observer_to_go(links, link);
    if (other == NULL) return false;
    link_hangup(links, other, RC_LIMIT, "another observer wanted in");
    return true;
}

uint64_t link_observer_ends_ns(const struct link *link)
{
    if (!link->is_current || !is_observer(link)) return UINT64_MAX;
    return link->asked_ns + OBSERVER_IDLE_NS;
}

bool link_may_ask(struct links *links, struct link *link)
{
    uint64_t now_ns = link_now(links);
    bool is_rare = is_observer(link) &&
                   (link->asks_due_ns == 0 || now_ns >= link->asks_due_ns + OBSERVER_ASK_RARE_NS);
    bool has_all_credit =
        ration_has(links->asks_due_ns, now_ns, OBSERVERS_ASK_NS, OBSERVERS_ASK_BURST_NS);

    if (!ration_has(link->asks_due_ns, now_ns, OBSERVER_ASK_NS, OBSERVER_ASK_BURST_NS)) {
        return false;
    }
    if (!has_all_credit && !is_rare && !is_local(link)) return false;
    ration_take(&link->asks_due_ns, now_ns, OBSERVER_ASK_NS);
    if (has_all_credit) ration_take(&links->asks_due_ns, now_ns, OBSERVERS_ASK_NS);
    link->asked_ns = now_ns;
    return true;
}
