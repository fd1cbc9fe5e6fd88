/*
 * link_internal: what the files of the link table share; private to peer/link*.c. Loop thread.
 *
 *   link.c            the table: a link's birth, state and end, deadlines, questions about it
 *   link_handshake.c  from connected to open, or refused
 *   link_probe.c      connections that only prove that a peer can be dialled
 *   link_send.c       queues of records, sealing, back pressure
 */
#ifndef GRAPEVINE_PEER_LINK_INTERNAL_H
#define GRAPEVINE_PEER_LINK_INTERNAL_H

#include "peer/link.h"

#include <sys/queue.h>

enum link_state { LINK_DIALING, LINK_GREETING, LINK_PROVING, LINK_OPEN, LINK_GONE };

enum { LINK_STRANGERS_MAX = LINKS_MAX / 4 }; /* accepted, and not yet past the gate */
enum { LINK_REPLAY_MARKS = 4096 };           /* first messages remembered */

struct link_bulk {
    struct inner_header header;
    struct blob *body;
};

struct link {
    TAILQ_ENTRY(link) siblings;
    uint64_t number; /* the env's */
    enum link_state state;
    bool is_dialled;
    bool is_current;      /* OPEN, and the one link of its peer */
    bool is_closing;      /* hang up once the event is over */
    uint64_t deadline_ns; /* of the states before OPEN */
    uint64_t opened_ns;
    char address[ADDRESS_BYTES_MAX];
    struct secure *secure;
    struct hello remote;
    struct peer_id peer;
    struct peer_id probed; /* whom a probe is for */
    uint64_t probe;        /* not 0: this dial only shows a nonce */
    struct blob *sealed;   /* refused by the env, goes first when it drains */
    struct blob **control; /* ring of inner records waiting */
    uint32_t control_first, control_count;
    struct link_bulk *bulk; /* queue: [bulk_first, bulk_count) */
    size_t bulk_first, bulk_count, bulk_max;
    bool is_drain_due; /* bulk had to wait: say so when all of it is with the env */
    uint64_t retry_ns; /* of a record that no memory could be had for; UINT64_MAX: none */
    uint64_t bytes_sent,
        bytes_received; /* whole frames; counted here, since an env forgets a link */
};

struct links {
    struct links_options options;
    struct links_events events;
    TAILQ_HEAD(links_list, link) all;
    uint32_t count;
    struct static_key key;
    struct peer_id self;
    uint64_t replay[LINK_REPLAY_MARKS]; /* first 8 bytes of ephemeral keys seen; 0: free */
    uint32_t replay_next;
    struct links_counts counts;
};

/* link.c */
void link_become(struct link *link, enum link_state next);
uint64_t link_now(const struct links *links);
/** NULL: hung up a moment ago. */
struct link *link_find(const struct links *links, uint64_t number);
/** The current link of `peer`, or NULL. */
struct link *link_find_peer(const struct links *links, struct peer_id peer);
/** A slot for a new connection; NULL: too many, or no memory. */
struct link *link_add(struct links *links, uint64_t number, const char *address, bool is_dialled);
/** Count its bytes and free it; nobody is told and the env's end is left alone. */
void link_retire(struct links *links, struct link *link);
/** The env's end is gone: tell the node what it needs to know, once, and free it. `peer`: whom a
 *  dial reached that was not needed, or NULL. */
void link_end(struct links *links, struct link *link, enum rc rc, const char *why,
              const struct peer_id *peer);
/** Close the env's end, then link_end(). */
void link_hangup(struct links *links, struct link *link, enum rc rc, const char *why);

/* link_handshake.c */
void link_on_handshake(struct links *links, struct link *link, const uint8_t *frame, size_t count);
/** Tell the other side why, then hang up. */
void link_refuse(struct links *links, struct link *link, enum error_code code, const char *text);
/** The first message a dialler gets after the handshake: may it come in? */
void link_on_answer(struct links *links, struct link *link, const struct message *message);

/* link_probe.c */
/** A dialled connection that only probes knows who answered: it has done what it is for. */
void link_probe_answered(struct links *links, struct link *link);
/** An accepted connection showed the nonce of a dial-back: pass it on and hang up. */
void link_probe_arrived(struct links *links, struct link *link);
/** The end of a probe, however it came; frees it. */
void link_probe_end(struct links *links, struct link *link, enum rc rc);

/* link_send.c */
/** Handshake bytes or a sealed record, past the queues. */
enum rc link_send_frame(struct links *links, struct link *link, const uint8_t *bytes, size_t count);
/** Send what waits, and tell if that was the last bulk. Not inside a call from the node. */
void link_resume(struct links *links, struct link *link);
/** Give back what waits to be sent. */
void link_queues_free(struct link *link);

#endif
