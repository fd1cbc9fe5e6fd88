/*
 * link_internal: what the files of the link table share; private to peer/link. Loop thread.
 *
 *   link.c            the table: a link's birth, state and end, deadlines, questions about it
 *   handshake.c  from connected to open, or refused
 *   probe.c      connections that only prove that a peer can be dialled
 *   send.c       control records, which connection DATA takes, back pressure
 *   queue.c      DATA that waits, and whose turn it is
 *   bulk.c       bulk connections: birth, state and end
 *   spread.c     several of them beside each other
 *   seal.c       their records: sealing, opening, order
 *   rekey.c      the session's epochs
 *   observer.c   who takes whose place, and how often the status may be asked for
 */
#ifndef GRAPEVINE_PEER_LINK_INTERNAL_H
#define GRAPEVINE_PEER_LINK_INTERNAL_H

#include "gossip/flow/rate_meter.h"
#include "gossip/secure/attach.h"
#include "peer/env/frame_queue.h"
#include "peer/link/link.h"
#include "peer/times.h"

#include <sys/queue.h>

enum link_state { LINK_DIALING, LINK_GREETING, LINK_PROVING, LINK_OPEN, LINK_GONE };

enum {
    LINK_BUCKETS = 64,
    LINK_OBSERVERS_MAX = 16,                   /* beside LINKS_MAX neighbours */
    LINK_BULKS_MAX = LINKS_MAX / 4,            /* bulk connections in all */
    LINK_BULKS_SPREAD = 4,                     /* of a link in one epoch, where more carry more */
    LINK_BULKS_OF_ONE = 2 * LINK_BULKS_SPREAD, /* of a link: a new epoch's beside the last one's */
    LINK_BULKS_PLAIN = 2,    /* of a link when LINK_BULKS_MAX / 2 are there: one, likewise */
    LINK_SPREAD_RECORDS = 4, /* sent over one connection before another is thought of */
    LINK_SEALING_BYTES_MAX = 2 * 1024 * 1024, /* of one of them */
    LINK_OPENING_MAX = 16,                    /* records; likewise */
    LINK_HELD_BYTES_MAX = 64 * 1024 * 1024,   /* opening or waiting, of all; then one record each */
    LINK_CONTROL_BYTES_MAX = 256 * 1024       /* waiting; reaching it closes the link */
};

struct link_bulk {
    struct inner_header header;
    struct blob *body;
};

enum link_kind { KIND_AVERAGING, KIND_STATE, KIND_OTHER, LINK_KINDS };

struct link_queue { /* [first, count) */
    struct link_bulk *items;
    size_t first, count, max;
    size_t bytes;          /* of their bodies */
    int64_t deficit_bytes; /* that may still be taken in this turn */
};

enum bulk_state { BULK_DIALING, BULK_ATTACHING, BULK_OPEN, BULK_LEAVING, BULK_LEFT };

struct waiting;
TAILQ_HEAD(waiting_list, waiting);

/* A bulk connection. */
struct bulk {
    TAILQ_ENTRY(bulk) siblings; /* of links->bulks, or of bulks_gone */
    TAILQ_ENTRY(bulk) of_link;  /* while it has one */
    LIST_ENTRY(bulk) in_bucket; /* likewise */
    uint64_t number;            /* the env's */
    struct link *link;          /* NULL: gone, but for jobs under way */
    enum bulk_state state;
    bool is_dialled;
    bool has_left;  /* their FIN was read */
    bool is_paused; /* the env does not read it */
    bool is_torn;   /* one of our records is missing: none follows */
    uint64_t deadline_ns;
    uint64_t used_ns; /* last record, either way */
    struct attach attach;
    struct sealer *send, *receive;
    uint64_t sent, received; /* records: the next one's number */
    uint64_t opened, turn;   /* when it was opened and last used, in the link's bulk_turns */
    struct frame_queue sealed;
    size_t sealing_bytes;
    uint32_t jobs, jobs_sealing, jobs_opening;
    struct waiting_list waiting; /* opened, to be read after control records still to come */
    uint32_t waiting_count;
    uint64_t waiting_ns; /* by when the first of them must have been read */
};

enum bulk_way { BULK_SEND, BULK_WAIT, BULK_NONE };

struct link {
    TAILQ_ENTRY(link) siblings;
    uint64_t number; /* the env's */
    enum link_state state;
    bool is_dialled;
    bool is_current;         /* OPEN, and the one link of its peer */
    bool is_closing;         /* hang up once the event is over */
    const char *closing_why; /* NULL: nothing more is known */
    bool is_bulk_asked;
    bool wants_spread; /* more bulk connections, in the next tick */
    bool is_used;      /* since its keys were last found fit for more */
    bool is_touched;   /* in links->touched */
    /* Looked at after every event, so they lie together. */
    uint64_t deadline_ns; /* of the states before OPEN */
    uint64_t duel_seq; /* of the PING that the other link of this identity must answer; 0: none */
    uint64_t cut_ns;   /* a bulk connection was lost: then the link ends. UINT64_MAX: none was */
    uint64_t retry_ns; /* of a record that no memory could be had for; UINT64_MAX: none */
    uint64_t bulk_asked_ns, bulk_retry_ns;
    uint64_t spread_ns;  /* until then it is not asked whether more connections are of use */
    uint64_t bulk_turns; /* counts openings and records sent, see struct bulk */
    uint64_t epoch_ns, epoch_bytes; /* since when its keys are in use, and for how much */
    LIST_ENTRY(link) in_bucket;
    LIST_ENTRY(link) in_peers; /* while current */
    LIST_ENTRY(link) in_touched;
    TAILQ_HEAD(, bulk) bulks; /* its bulk connections, in the order in which they came */
    uint64_t duel_with;       /* that link's number */
    uint64_t opened_ns;
    uint64_t asked_ns;    /* an observer: its last question that was answered, else when it came */
    uint64_t asks_due_ns; /* see link_may_ask() */
    char address[ADDRESS_BYTES_MAX];
    struct secure *secure;
    struct hello remote;
    struct peer_id peer;
    struct peer_id probed;      /* whom a probe is for */
    uint64_t probe;             /* not 0: this dial only shows a nonce */
    struct blob *sealed;        /* refused by the env, goes first when it drains */
    struct frame_queue control; /* inner records waiting */
    size_t control_bytes;
    uint32_t control_queued, control_received; /* since OPEN, modulo 2^32 */
    struct link_queue queues[LINK_KINDS];
    uint32_t turn;     /* whose queue is being taken from */
    bool is_drain_due; /* bulk had to wait: say so when all of it is with the env */
    uint32_t attach_epoch, attach_next; /* dialler: numbers given to bulk connections */
    struct attach_window window;        /* other side: numbers seen */
    uint64_t bytes_sent,
        bytes_received;      /* whole frames; counted here, since an env forgets a link */
    struct rate_meter meter; /* of what came over its bulk connections */
};

struct links {
    struct links_options options;
    struct links_events events;
    TAILQ_HEAD(links_list, link) all;
    LIST_HEAD(links_bucket, link) buckets[LINK_BUCKETS]; /* by number */
    LIST_HEAD(links_peers, link) peers[LINK_BUCKETS];    /* current ones, by their peer */
    LIST_HEAD(links_touched, link) touched; /* to be looked at by links_tick(): see link_touch() */
    uint64_t due_ns; /* before that no other link has anything to do; may be too early */
    uint32_t count;
    uint32_t current_neighbours, current_observers; /* links that are */
    uint64_t asks_due_ns;                           /* see link_may_ask() */
    TAILQ_HEAD(, bulk) bulks, bulks_gone;
    LIST_HEAD(, bulk) bulk_buckets[LINK_BUCKETS]; /* by number */
    uint32_t bulks_count;
    struct rate_meter meter;      /* of all bulk connections */
    size_t held_bytes;            /* of records that are being opened or wait to be read */
    TAILQ_HEAD(, seal_job) seals; /* jobs under way */
    uint32_t jobs_count;
    struct blob *data_frame; /* during on_data: what holds the body; NULL: nothing that lasts */
    struct static_key key;
    uint8_t hello_signature[SIGNATURE_BYTES]; /* of this key, for every hello */
    struct peer_id self;
    struct aes_gcm *aes; /* of bulk connections, made with the first of them; NULL: libsodium */
    bool has_aes;        /* it was tried */
    struct gate *gate;   /* knows of accepted links until they are proved */
    struct links_counts counts;
    uint64_t told_ns; /* see link_tell(): when its minute began; 0: never */
    uint32_t told, untold;
};

/* tell.c */
/** A line about a connection that others are to blame for: not all of them are told. */
void link_tell(struct links *links, enum log_level level, const char *line);

/* link.c */
void link_become(struct link *link, enum link_state next);
uint64_t link_now(const struct links *links);
/** Its connection `number` is known to be with its peer: for a trace. */
void link_name(const struct links *links, const struct link *link, uint64_t number);
/** NULL: hung up a moment ago. */
struct link *link_find(const struct links *links, uint64_t number);
/** Something happened to it or to a bulk connection of it, or is about to: the next tick looks at
 *  them. Who changes what they wait for must have called this since the last callback to the node.
 */
void link_touch(struct links *links, struct link *link);
/** To the node: anything came, or DATA; where it wants to know. */
void link_heard(const struct links *links, struct peer_id peer);
void link_data(const struct links *links, struct peer_id peer, const struct inner_header *header,
               const uint8_t *body, size_t count);
/** It becomes, or is no longer, the one link of its peer. */
void link_set_current(struct links *links, struct link *link, bool is_current);
/** The current link of `peer`, or NULL. */
struct link *link_find_peer(const struct links *links, struct peer_id peer);
/** The other side broke the protocol under its own keys; hang up next. */
void link_violated(struct links *links, const struct link *link);
/** The gate says that this one has to go; 0: none. */
void link_evict(struct links *links, uint64_t number);
/** Count its bytes and free it; nobody is told and the env's end is left alone. */
void link_retire(struct links *links, struct link *link);
/** The env's end is gone: tell the node what it needs to know, once, and free it. `peer`: whom a
 *  dial reached that was not needed, or NULL. */
void link_end(struct links *links, struct link *link, enum rc rc, const char *why,
              const struct peer_id *peer);
/** DATA may be lost: the link ends in a moment. */
void link_cut(struct links *links, struct link *link);
/** A bulk record that cannot be read: the link ends. */
void bulk_refused(struct links *links, struct bulk *bulk, enum rc rc);
/** Close the env's end, then link_end(). */
void link_hangup(struct links *links, struct link *link, enum rc rc, const char *why);

/* handshake.c */
void link_on_handshake(struct links *links, struct link *link, const uint8_t *frame, size_t count);
/** An ACK came over `old`: true if it answers for a duel, which the newcomer has then lost. */
bool link_duel_heard(struct links *links, struct link *old, uint64_t seq);
/** Is the duel of `link` over, because nobody answered in time or the other link is gone? */
bool link_duel_is_won(const struct links *links, const struct link *link, uint64_t now_ns);
void link_duel_win(struct links *links, struct link *link);
/** The first message a dialler gets after the handshake: may it come in? */
void link_on_answer(struct links *links, struct link *link, const struct message *message);

/* probe.c */
/** A dialled connection that only probes knows who answered: it has done what it is for. */
void link_probe_answered(struct links *links, struct link *link);
/** An accepted connection showed the nonce of a dial-back: pass it on and hang up. */
void link_probe_arrived(struct links *links, struct link *link);
/** The end of a probe, however it came; frees it. */
void link_probe_end(struct links *links, struct link *link, enum rc rc);

/* send.c */
/** Does a frame wait for which the env's send() said `rc`? For room, or a moment for memory. */
bool link_frame_stays(struct links *links, struct link *link, enum rc rc);
/** Handshake bytes or a sealed record, past the queues. */
enum rc link_send_frame(struct links *links, struct link *link, const uint8_t *bytes, size_t count);
/** Send what waits, and tell if that was the last bulk. Not inside a call from the node. */
void link_resume(struct links *links, struct link *link);

/* queue.c */
size_t link_queued(const struct link *link);
/** Less than both in the queue of KIND_OTHER? */
bool link_queue_has_room(const struct link *link, size_t records_max, size_t bytes_max);
bool link_queue_push(struct link *link, const struct inner_header *header, struct blob *body);
/** Whose turn it is, or NULL; then link_queue_pop() takes that one. */
struct link_bulk *link_queue_first(struct link *link);
void link_queue_pop(struct link *link);
void link_queue_drop(struct link *link, enum data_kind kind, uint64_t stream);
/** Give back what waits to be sent. */
void link_queues_free(struct link *link);

/* bulk.c */
/** NULL: hung up a moment ago. */
struct bulk *bulk_find(const struct links *links, uint64_t number);
void bulk_free(struct bulk *bulk);
/** All of `link`, which ends. */
void bulks_end(struct links *links, struct link *link);
/** Which way this record of `link` goes now; opens a connection if there should be one. */
enum bulk_way bulk_way(struct links *links, struct link *link, const struct inner_header *header,
                       struct bulk **out);
/** OPEN_REQ came, for `count`. */
void bulk_on_asked(struct links *links, struct link *link, uint32_t count);
/** The first frame of an accepted connection: true if it was ATTACH, and is dealt with. */
bool bulk_on_attach(struct links *links, struct link *stranger, const uint8_t *frame, size_t count);
void bulk_on_connected(struct links *links, struct bulk *bulk);
void bulk_on_frame(struct links *links, struct bulk *bulk, uint8_t *frame, size_t count);
void bulk_on_lost(struct links *links, struct bulk *bulk);
void bulk_on_fin(struct links *links, struct bulk *bulk);
/** FIN, if nothing is left to be sealed. */
bool bulk_leave(struct links *links, struct bulk *bulk);
void bulks_tick(struct links *links, struct link *link, uint64_t now_ns);
uint64_t bulks_next_ns(const struct link *link);

/* spread.c */
/** The connection of the newest epoch that is to carry this record; NULL: none has room. */
struct bulk *bulk_pick(const struct link *link, const struct inner_header *header);
/** Connections of the newest epoch, those being opened too. */
uint32_t bulks_in_epoch(const struct link *link);
/** Is there a place for one more of `link`? */
bool bulks_may_add(const struct links *links, const struct link *link);
/** A record is on its way: its turn is over, and are more connections wanted? */
void bulk_has_sent(struct links *links, struct bulk *bulk, const struct inner_header *header);
/** They are: open or ask for them. Not inside a call from the node, nor while DATA is taken. */
void bulk_spread(struct links *links, struct link *link);

/* seal.c */
enum rc bulk_send_frame(struct links *links, struct bulk *bulk, const uint8_t *bytes, size_t count);
/** What could not be sent for want of memory, of all connections of `link`. */
void bulks_flush(struct links *links, struct link *link);
bool bulk_has_room(const struct bulk *bulk);
bool bulk_is_sending(const struct bulk *bulk);
/** False: no memory, or the link is about to end; nothing was taken. */
bool bulk_send(struct links *links, struct bulk *bulk, const struct inner_header *header,
               struct blob *body);
bool bulk_send_fin(struct links *links, struct bulk *bulk);
void bulk_on_drain(struct links *links, struct bulk *bulk);
void bulk_open_record(struct links *links, struct bulk *bulk, uint8_t *frame, size_t count);
void bulk_waiting_clear(struct links *links, struct bulk *bulk);
/** A control record of this link was read: DATA may have waited for it. */
void bulks_release(struct links *links, uint64_t link_number);
/** Jobs that a dead env never finished. */
void links_seals_clear(struct links *links);

/* observer.c */
/** Are there as many neighbours as there may be? */
bool links_are_full(const struct links *links);
/** Is there a place for `link`, whose other side is known? It may be that of an idle observer,
 *  which is then hung up. */
bool link_has_room(struct links *links, const struct link *link);
/** When an observer that asks nothing more is hung up; UINT64_MAX: it is none. */
uint64_t link_observer_ends_ns(const struct link *link);
/** `link` asks for the status: is it to be answered? Counted if so. */
bool link_may_ask(struct links *links, struct link *link);

/* rekey.c */
void link_on_rekey(struct links *links, struct link *link, const struct message *message);
void link_rekey_tick(struct links *links, struct link *link, uint64_t now_ns);
uint64_t link_rekey_next_ns(const struct links *links, const struct link *link, uint64_t now_ns);

#endif
