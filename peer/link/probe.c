/*
 * Connections that prove one thing: a peer can be dialled (gossip/reach/reach.h). The prober goes
 * through the handshake, its hello carries the nonce it was given, and both hang up; no link comes
 * of it, and whatever link the two have stays as it is. Loop thread.
 */
#include "peer/link/internal.h"

#include "base/check.h"

enum rc links_probe(struct links *links, const char *address, struct peer_id peer, uint64_t nonce)
{
    struct link *link;
    enum rc rc;

    CHECK(nonce != 0);
    rc = links_dial(links, address);
    if (rc != RC_OK) return rc;
    link = TAILQ_LAST(&links->all, links_list);
    CHECK(link->state == LINK_DIALING);
    link->probe = nonce;
    link->probed = peer;
    return RC_OK;
}

void link_probe_end(struct links *links, struct link *link, enum rc rc)
{
    struct peer_id probed = link->probed;
    uint64_t nonce = link->probe;

    link_retire(links, link);
    if (links->events.on_probe_ended != NULL) {
        links->events.on_probe_ended(links->events.context, probed, nonce, rc);
    }
}

void link_probe_answered(struct links *links, struct link *link)
{
    bool is_meant = peer_id_is_equal(link->peer, link->probed);

    links->options.env->ops->hangup(links->options.env, link->number); /* flushes what is queued */
    link_probe_end(links, link, is_meant ? RC_OK : RC_MISMATCH);
}

void link_probe_arrived(struct links *links, struct link *link)
{
    struct peer_id peer = link->peer;
    uint64_t nonce = link->remote.dialback;

    links->options.env->ops->hangup(links->options.env, link->number);
    link_retire(links, link);
    if (links->events.on_dialback != NULL) {
        links->events.on_dialback(links->events.context, peer, nonce);
    }
}
