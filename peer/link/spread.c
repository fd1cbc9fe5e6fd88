/*
 * Several bulk connections beside each other. Where the kernel has no congestion control that bears
 * loss, one lost segment halves the rate of its connection, so over a long way four carry about
 * four times what one does (see peer/env/loss.h for the law). The sender knows its own kernel,
 * so it decides: the dialler opens the others, the other side asks for them (OPEN_REQ).
 *
 * Order. Each record of a round or of a download is a whole chunk or bucket with its own number,
 * allowed by a grant that the receiver gave in that round, so these may overtake each other: the
 * connections take turns. A relayed connection is a stream: its bytes take the connection that has
 * been open longest, and when that one leaves, everything waits for its end (see bulk_way()).
 * Loop thread.
 */
#include "peer/link/internal.h"

static bool is_in_order(const struct inner_header *header)
{
    switch ((enum data_kind)header->flags) {
    case DATA_OFFER:
    case DATA_MEAN:
    case DATA_FULL:
    case DATA_STATE:
        return false;
    case DATA_RELAY:
        break;
    }
    return true;
}

static bool is_usable(const struct bulk *bulk, const struct link *link)
{
    return bulk->state == BULK_OPEN && !bulk->has_left &&
           bulk->attach.epoch == secure_session(link->secure)->epoch;
}

struct bulk *bulk_pick(const struct link *link, const struct inner_header *header)
{
    struct bulk *bulk, *eldest = NULL, *next = NULL;

    TAILQ_FOREACH (bulk, &link->bulks, of_link) {
        if (!is_usable(bulk, link)) continue;
        if (eldest == NULL || bulk->opened < eldest->opened) eldest = bulk;
        if (bulk_has_room(bulk) && (next == NULL || bulk->turn < next->turn)) next = bulk;
    }
    if (!is_in_order(header)) return next;
    return eldest != NULL && bulk_has_room(eldest) ? eldest : NULL;
}

uint32_t bulks_in_epoch(const struct link *link)
{
    const struct bulk *bulk;
    uint32_t count = 0;

    TAILQ_FOREACH (bulk, &link->bulks, of_link) {
        count += is_usable(bulk, link) || bulk->state < BULK_OPEN;
    }
    return count;
}

bool bulks_may_add(const struct links *links, const struct link *link)
{
    const struct bulk *bulk;
    uint32_t count = 0;

    TAILQ_FOREACH (bulk, &link->bulks, of_link) {
        count++;
    }
    if (links->bulks_count >= LINK_BULKS_MAX || count >= LINK_BULKS_OF_ONE) return false;
    return count < LINK_BULKS_PLAIN || links->bulks_count < LINK_BULKS_MAX / 2;
}

void bulk_has_sent(struct links *links, struct bulk *bulk, const struct inner_header *header)
{
    struct link *link = bulk->link;
    uint64_t now_ns;

    bulk->turn = ++link->bulk_turns;
    if (bulk->sent < LINK_SPREAD_RECORDS || link->wants_spread || is_in_order(header)) return;
    now_ns = link_now(links);
    if (now_ns < link->spread_ns) return;
    link->spread_ns = now_ns + LINK_BULK_RETRY_NS;
    link->wants_spread =
        links->options.env->ops->link_gains_by_more(links->options.env, bulk->number);
}

void bulk_spread(struct links *links, struct link *link)
{
    struct message message = {.type = MESSAGE_OPEN_REQ};

    link->wants_spread = false;
    if (link->cut_ns != UINT64_MAX || bulks_in_epoch(link) >= LINK_BULKS_SPREAD) return;
    if (link->is_dialled) {
        bulk_on_asked(links, link, LINK_BULKS_SPREAD);
        return;
    }
    message.as.open_req.count = LINK_BULKS_SPREAD;
    (void)links_send(links, link->peer, &message); /* else again, in a while */
}
