/*
 * The parts of membership that its own files share: the book (who is known), the dialler (whom to
 * call next) and the machine itself. Nobody else includes this header.
 */
#ifndef GRAPEVINE_GOSSIP_MEMBERSHIP_INTERNAL_H
#define GRAPEVINE_GOSSIP_MEMBERSHIP_INTERNAL_H

#include "base/bytes.h"
#include "gossip/membership.h"

enum {
    BOOK_SEEN_SLOTS = 4096, /* a power of two */
    PENDING_MAX = 512,      /* records on their way to others */
    DIALS_MAX = 16,         /* dials in the air */
    LINKS_FULL_MESH = 128,  /* beyond, members are known but not dialled */
    ADDRESSES_MAX = RECORD_ADDRESSES_MAX + 1,
    PINGS_MAX = 8,         /* unanswered ones whose answer still measures a round trip */
    KNOWN_FAILURES_MAX = 5 /* a member never reached is given up after so many */
};

struct rtt {
    uint64_t srtt_ns; /* 0: no sample yet */
    uint64_t rttvar_ns;
};

struct member {
    struct peer_id id;
    struct boot_id boot; /* of the link, else of the record */
    enum member_state state;
    uint64_t since_ns; /* of the state */

    /* What travels: the newest record, as its subject signed it. */
    uint8_t bytes[SIGNED_RECORD_BYTES_MAX];
    size_t bytes_count; /* 0: known by its link only, so far */
    struct boot_id record_boot;
    uint64_t incarnation;
    bool has_left;      /* the record is a farewell */
    enum nat_class nat; /* as the record says */
    uint32_t transmits_left;
    bool is_pending; /* in the pending list */

    /* Where: the record's addresses, and before them the one it was last reached at ("": none). */
    char addresses[ADDRESSES_MAX][ADDRESS_BYTES_MAX];
    uint32_t address_next; /* index of the next to dial */
    uint64_t dial_ns;      /* UINT64_MAX: only when healing picks it */
    uint64_t backoff_ns;
    uint32_t failures; /* dials in vain since the last link or state change */
    bool is_dialling;

    /* The link. */
    bool is_linked;
    bool wants_hangup;
    uint64_t heard_ns;  /* last record */
    uint64_t silent_ns; /* silence counts from here: heard_ns, moved on when we ourselves slept */
    uint64_t ping_ns;   /* next */
    uint64_t ping_seq;  /* of the last PING of this link, from 1 */
    uint64_t ping_sent_ns[PINGS_MAX]; /* by seq modulo PINGS_MAX; 0: answered or never sent */
    uint64_t measured_ns;             /* when a round trip was last begun */
    struct rtt rtt;
    uint32_t sync_page; /* the page of its book asked for next; 0: none */
    uint64_t serve_ns;  /* start of the second in which pages are counted */
    uint32_t served;
};

/* A signed record that was verified before, so that its next copies cost a hash and no signature.
 */
struct seen {
    uint64_t hash;
    struct member *member;
};

/* Members sorted by id; each its own block, so that pointers to them last. */
struct book {
    struct member **members;
    uint32_t count, max;
    struct seen seen[BOOK_SEEN_SLOTS];
};

struct bootstrap {
    char address[ADDRESS_BYTES_MAX];
    uint64_t dial_ns, backoff_ns;
    uint32_t failures; /* since it was last reached */
    bool is_self;      /* it answered with our own identity */
    bool has_id;       /* it answered, as `id` */
    struct peer_id id;
};

struct dial {                        /* one that was handed out and has not ended */
    char address[ADDRESS_BYTES_MAX]; /* "": free */
    bool has_id;                     /* dialled for a member, not for a bootstrap address */
    struct peer_id id;
    uint64_t until_ns; /* then it counts as failed */
};

struct dialler {
    struct bootstrap bootstraps[MEMBERSHIP_BOOTSTRAPS_MAX];
    uint32_t bootstraps_count;
    struct dial dials[DIALS_MAX];
    uint64_t next_ns;   /* no dial can be due before */
    uint64_t credit_ns; /* token bucket as a time: see dialler_has_credit() */
};

struct membership {
    struct membership_options options;
    struct peer_id self_id;
    struct member self; /* our own record */
    enum nat_class nat; /* of this peer */
    struct book book;
    struct dialler dialler;
    struct member *pending[PENDING_MAX];
    uint32_t pending_count, pending_at;
    uint32_t linked_count, hangups_count;
    uint64_t epoch;
    uint64_t tick_ns; /* of the last tick */
    uint64_t next_ns; /* earliest of all but dials */
    uint64_t gossip_ns, sync_ns, sync_interval_ns, heal_ns, health_ns;
    uint32_t health; /* how much later than planned we were called, lately: 0 .. HEALTH_MAX */
    bool is_leaving;
    struct rng rng;
};

/* membership_book.c */
MUST_USE enum rc book_init(struct book *book, uint32_t members_max);
void book_deinit(struct book *book);
struct member *book_find(const struct book *book, struct peer_id id);
/** A new KNOWN member; the longest dead or gone makes room when the book is full. NULL: no room. */
struct member *book_add(struct membership *m, struct peer_id id, uint64_t now_ns);
void book_remove(struct membership *m, struct member *member);
/** The member whose newest record these very bytes are; NULL: read the record. */
struct member *book_seen(const struct book *book, const uint8_t *bytes, size_t count);
/** Keep a verified record as the member's newest. */
void book_keep(struct book *book, struct member *member, const struct member_record *record,
               const uint8_t *bytes, size_t count);
/** Put the record on its way to everyone. */
void pending_add(struct membership *m, struct member *member);
void pending_remove(struct membership *m, struct member *member);
/** Up to `max` records for `to`, each counted as sent once. */
uint32_t pending_take(struct membership *m, struct peer_id to, struct record_ref *refs,
                      uint32_t max);
void rtt_sample(struct rtt *rtt, uint64_t sample_ns);

/* membership_dial.c */
/** `base` times a random factor in [0.75, 1.25). */
uint64_t membership_jitter(struct membership *m, uint64_t base_ns);
/** Dial `member` after `delay_ns` if we are the one to dial first, else a little later. */
void dialler_call(struct membership *m, struct member *member, uint64_t now_ns);
/** The last link is gone: go back to the quick rhythm. */
void dialler_on_alone(struct membership *m, uint64_t now_ns);
/** A dial to `address` ended at `id`. */
void dialler_on_reached(struct membership *m, const char *address, struct peer_id id,
                        uint64_t now_ns);
/** Dials that were never reported as ended count as failed. */
void dialler_expire(struct membership *m, uint64_t now_ns);
/** Let a random dead member be dialled. */
void dialler_heal(struct membership *m, uint64_t now_ns);

/* membership.c */
#define MEMBERSHIP_SYNC_FIRST (1 * NS_PER_S) /* ask for a book so long after news */

/** Learn from records that `from` sent, up to the first bad one. RC_FORMAT, RC_AUTH. */
MUST_USE enum rc membership_absorb(struct membership *m, struct peer_id from,
                                   const struct record_ref *refs, uint32_t count, uint64_t now_ns);
/** Ask a linked member for a page of its book. */
void membership_ask_page(struct member *member, uint32_t page, struct outbox *out);
void membership_wake(struct membership *m, uint64_t at_ns);
void membership_become(struct membership *m, struct member *member, enum member_state state,
                       uint64_t now_ns);
/* membership_probe.c */
/** When a suspect without a link is given up. */
uint64_t membership_dead_ns(const struct membership *m, const struct member *member);

#endif
