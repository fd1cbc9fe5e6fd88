/*
 * link: authenticated, encrypted connections to other peers over an env. A `links` table owns every
 * connection of a peer, from the first byte to the last: handshake (dialling and answering),
 * deadlines, sealing, opening, one current link per peer id. What it hands up is authentic.
 *
 * Loop thread only. Nothing is called back from inside links_send*(), links_dial(), links_hangup().
 */
#ifndef GRAPEVINE_PEER_LINK_LINK_H
#define GRAPEVINE_PEER_LINK_LINK_H

#include "base/bytes.h"
#include "base/log.h"
#include "gossip/door/gate.h"
#include "gossip/membership/verified.h"
#include "gossip/signed/hello.h"
#include "gossip/wire/messages.h"
#include "peer/env/env.h"
#include "peer/times.h"

enum {
    LINK_CONTROL_QUEUE_MAX = 4096, /* inner records waiting; reaching it closes the link */
    LINK_BULK_QUEUE_MAX = 2 * CHUNKS_MAX
};
#define LINK_REKEY_BYTES   (UINT64_C(64) << 30)
#define LINK_REKEY_RECORDS (UINT64_C(1) << 20)

struct links;

struct links_events {
    void *context;
    /** A peer proved who it is. `remote_boot` and role are in `hello`. `address`: what we dialled,
     * or where it came from ("is_dialled" false). */
    void (*on_open)(void *context, struct peer_id peer, const struct hello *hello,
                    const char *address, bool is_dialled);
    /** A control message from an open link, decoded; what it borrows is valid during the call. */
    void (*on_message)(void *context, struct peer_id peer, const struct message *message);
    /** A DATA record; `body` is gone after the call. NULL, as the next two: nobody
     *  is told. */
    void (*on_data)(void *context, struct peer_id peer, const struct inner_header *header,
                    const uint8_t *body, size_t count);
    /** Anything authentic arrived from `peer`. */
    void (*on_heard)(void *context, struct peer_id peer);
    /** All bulk queued for `peer` is with the env. */
    void (*on_bulk_drained)(void *context, struct peer_id peer);
    /** Records were sealed or opened off the loop, and what came of it was told: whatever follows
     * an event of the env is due. NULL is fine. */
    void (*on_work)(void *context);
    /** The current link of `peer` is gone. */
    void (*on_closed)(void *context, struct peer_id peer, enum rc rc, const char *why);
    /** Who proved to be `hello` wants in: RC_OK; RC_REFUSED: never; RC_BUSY: not now. `why` is a
     *  phrase that both sides read. Asked before on_open, and by links_judge(). NULL: all may. */
    enum rc (*on_entry)(void *context, struct peer_id peer, const struct hello *hello,
                        const char *address, bool is_dialled, struct fault *why);
    /** `peer` sent, under its own keys, what the protocol forbids; its link ends now. NULL: let be.
     */
    void (*on_violation)(void *context, struct peer_id peer);
    /** Is this where a member lives? Such addresses have a share of the handshakes of their own.
     * NULL: none is. */
    bool (*is_known)(void *context, const char *address);
    /** A dial came to nothing. `why` is a whole sentence for people. RC_REPLAY: it was ourselves or
     * a peer already linked (its id in `peer`), nothing is wrong. */
    void (*on_dial_failed)(void *context, const char *address, enum rc rc, const char *why,
                           const struct peer_id *peer);
    /** `peer` dialled only to show this nonce (see gossip/reach/reach.h); the connection is gone.
     * May be NULL, as the next one. */
    void (*on_dialback)(void *context, struct peer_id peer, uint64_t nonce);
    /** The dial of links_probe() has ended; RC_OK: `peer` has got the nonce. */
    void (*on_probe_ended)(void *context, struct peer_id peer, uint64_t nonce, enum rc rc);
};

struct links_options {
    struct env *env;
    const struct identity *identity;  /* borrowed */
    const struct swarm_secret *swarm; /* borrowed */
    struct hello hello;               /* what we say of ourselves; suites are filled in */
    const struct log *log;
    struct verified *verified; /* borrowed; of simulations: gossip/membership/verified.h; or NULL */
    size_t bulk_records_max; /* DATA waiting on one link; a peer that lets more pile up has stopped
                                reading and loses the link. 0: LINK_BULK_QUEUE_MAX */
    struct link_rekey {      /* after which a session's keys are renewed; each 0: default */
        uint64_t ns, bytes, records; /* at twice as much the link ends */
    } rekey;
    size_t quick_bytes; /* records up to here are sealed and opened at once, on the loop, as the way
                           to a lane and back costs more; 0: LINK_QUICK_BYTES */
    bool is_clear; /* benchmark: bulk over loopback is not sealed, if the other side says so, too */
};

enum { LINK_QUICK_BYTES = 16 * 1024, LINK_QUICK_BYTES_FEW = 192 * 1024 };
/** For quick_bytes: with one or two processors lanes share one with the loop, and waking them is
 *  most of what they cost. */
size_t links_quick_bytes(void);

struct links_counts {
    uint64_t handshakes_refused, frames_refused, bytes_sent, bytes_received;
    uint64_t replays;        /* of requests to attach a connection */
    struct gate_counts gate; /* what strangers cost, and their replays */
};

struct link_view {
    struct boot_id boot;
    const struct hello *remote; /* what it says of itself; until the link ends */
    size_t bulk_queued;         /* DATA records not yet with the env */
    uint64_t bytes_sent, bytes_received;
    uint64_t rate;      /* what it was seen to carry this way, in bytes a second; 0: nothing seen */
    bool is_rate_least; /* at least that, for it never took long enough to tell */
};

/** NULL: no memory. Copies `options` and `events`. */
struct links *links_create(const struct links_options *options, const struct links_events *events);
void links_destroy(struct links *links);

/* The env's events, passed on by the node. */
void links_on_accepted(struct links *links, uint64_t number, const char *remote);
void links_on_connected(struct links *links, uint64_t number);
void links_on_frame(struct links *links, uint64_t number, uint8_t *frame, size_t count);
void links_on_drain(struct links *links, uint64_t number);
void links_on_lost(struct links *links, uint64_t number, enum rc rc, const char *why);

MUST_USE enum rc links_dial(struct links *links, const char *address);
/** Dial `address` only to show `peer` the nonce of its DIALBACK_REQ; on_probe_ended follows. */
MUST_USE enum rc links_probe(struct links *links, const char *address, struct peer_id peer,
                             uint64_t nonce);
/** The open link to `peer`; false, and zeros, if there is none. `view`: NULL is fine. */
bool links_peer(const struct links *links, struct peer_id peer, struct link_view *view);
/** One inner record (header and body). RC_CLOSED without an open link; RC_LIMIT closes it later. */
enum rc links_send_inner(struct links *links, struct peer_id to, struct blob *inner);
enum rc links_send(struct links *links, struct peer_id to, const struct message *message);
/** DATA: keeps a reference to `body` until it is sealed. It arrives after every message sent
 *  before, and DATA of one kind in order. */
enum rc links_send_bulk(struct links *links, struct peer_id to, const struct inner_header *header,
                        struct blob *body);
/** Are fewer records, and bytes in them, waiting for it that belong to neither averaging nor a
 * model download? */
bool links_relay_has_room(const struct links *links, struct peer_id to, size_t records_max,
                          size_t bytes_max);
/** Forget DATA of a stream still queued for anyone (its round was given up). */
void links_drop_bulk(struct links *links, enum data_kind kind, uint64_t stream);
/** `why` says to a person what the other one did; it outlives the links. */
void links_hangup(struct links *links, struct peer_id peer, const char *why);
/** To every open link. */
void links_send_all(struct links *links, const struct message *message);
/** Ask on_entry about every open link again; who may no longer be here is told why and hung up. Not
 *  inside a call from links. */
void links_judge(struct links *links);
/** Expire handshakes; retry what was deferred. */
void links_tick(struct links *links, uint64_t now_ns);
uint64_t links_next_ns(const struct links *links);
void links_counts(const struct links *links, struct links_counts *counts);
/** Inside on_data: a reference to what holds `body`, so that it need not be copied. NULL: it must.
 */
struct blob *links_data_keep(const struct links *links);
/** Records being sealed or opened: an env may stop only at 0. */
uint32_t links_jobs(const struct links *links);
/** As `rate` of a link, of all together: what this peer's own line was seen to take in. False:
 *  nothing was seen. */
bool links_rate(const struct links *links, uint64_t *rate, bool *is_least);

#endif
