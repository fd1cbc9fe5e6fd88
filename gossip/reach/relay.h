/*
 * relay: what a peer that can be dialled does for two that cannot: it passes their bytes on. A
 * target keeps a reservation here (10 minutes, renewed), a source asks to be connected with it, and
 * the two hold an ordinary handshake over the circuit, so a relay sees sizes and nothing else.
 *
 * All of it is bounded by windows: the receiving end says how many bytes it takes in all, the relay
 * hands that on to the sending end at the rate it is willing to carry. So nothing is ever queued
 * here beyond what was granted, and whoever sends more has broken the protocol. One hop only: both
 * ends must be linked with the relay directly.
 *
 * Pure: time and events come in, messages go to the outbox, DATA is passed on by the caller.
 */
#ifndef GRAPEVINE_GOSSIP_REACH_RELAY_H
#define GRAPEVINE_GOSSIP_REACH_RELAY_H

#include "gossip/flow/outbox.h"
#include "gossip/wire/messages.h"

struct relay;

enum {
    RELAY_CIRCUITS_PER_PEER = 4,
    RELAY_WINDOW_BYTES = 256 * 1024, /* an end never offers more than this unread */
    RELAY_SEGMENT_BYTES = 32 * 1024, /* most of one DATA record */
    RELAY_ID_FROM_RELAY = INT32_MIN  /* the bit set in numbers that the relay chose */
};

struct relay_options {
    uint64_t bytes_per_s;       /* of all circuits together; 0: nothing is relayed */
    uint64_t circuit_bytes_max; /* one circuit, both ways */
    uint64_t lease_ns;
    uint32_t reservations_max, circuits_max;
};

struct relay_view {
    uint32_t reservations, circuits;
    uint64_t bytes; /* passed on since the start */
};

/** The usual caps; set `bytes_per_s` yourself. */
struct relay_options relay_options_default(void);
struct relay *relay_create(const struct relay_options *options, struct peer_id self);
void relay_destroy(struct relay *relay);

/** Only who can be dialled is of use. Closed: everything is refused and circuits end. */
void relay_set_open(struct relay *relay, bool is_open, struct outbox *out);
/** RELAY_RESERVE, and CONNECT, WINDOW and STOP that do not come from a relay. `is_direct`: the link
 *  they came over is no relayed one. */
void relay_on_message(struct relay *relay, struct peer_id from, bool is_direct,
                      const struct message *message, uint64_t now_ns, struct outbox *out);
/** `count` bytes of DATA_RELAY from `from`. True: pass the body on to `*to` under `*onward`. False:
 *  forget it; of a circuit that broke its window both ends were told. */
bool relay_on_data(struct relay *relay, struct peer_id from, const struct inner_header *header,
                   size_t count, struct peer_id *to, struct inner_header *onward,
                   struct outbox *out);
void relay_on_link_lost(struct relay *relay, struct peer_id peer, struct outbox *out);
/** Grants at the rate, leases that ran out. */
void relay_tick(struct relay *relay, uint64_t now_ns, struct outbox *out);
uint64_t relay_next_ns(const struct relay *relay);
void relay_view(const struct relay *relay, struct relay_view *view);

#endif
