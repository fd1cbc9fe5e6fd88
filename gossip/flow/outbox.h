/*
 * outbox: messages a pure state machine wants sent. Each is encoded at once (inner header and body
 * in one blob), so nothing borrowed outlives the call. Bounded by OUTBOX_MAX; what does not fit is
 * counted and dropped, which for gossip is harmless.
 */
#ifndef GRAPEVINE_GOSSIP_FLOW_OUTBOX_H
#define GRAPEVINE_GOSSIP_FLOW_OUTBOX_H

#include "base/blob.h"
#include "base/peer_id.h"
#include "gossip/wire/messages.h"

enum { OUTBOX_MAX = 1024 };

struct outbox_entry {
    struct peer_id to;
    struct blob *inner; /* one reference, owned by the entry until taken */
};

struct outbox {
    struct outbox_entry *entries;
    uint32_t count, max;
    uint64_t dropped;
};

void outbox_init(struct outbox *outbox);
void outbox_deinit(struct outbox *outbox);
void outbox_add(struct outbox *outbox, struct peer_id to, const struct message *message);
/** Forget all entries (their blobs are released). */
void outbox_clear(struct outbox *outbox);

#endif
