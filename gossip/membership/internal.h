/*
 * The parts of membership that its own files share: the book (who is known), suspicions and
 * indirect probes, anti-entropy, the active view, the dialler (whom to call next) and the machine
 * itself. Nobody else includes this header.
 */
#ifndef GRAPEVINE_GOSSIP_MEMBERSHIP_INTERNAL_H
#define GRAPEVINE_GOSSIP_MEMBERSHIP_INTERNAL_H

#include "base/bytes.h"
#include "gossip/membership/membership.h"
#include "gossip/membership/shelf.h"
#include "gossip/signed/accusation.h"
#include "gossip/times.h"

#include <sys/queue.h>

enum {
    PENDING_MAX = 512,   /* members with news on its way to others */
    DIALS_MAX = 16,      /* dials in the air */
    FULL_MESH_MAX = 128, /* members; beyond, links to an active view only */
    ADDRESSES_MAX = RECORD_ADDRESSES_MAX + 1,
    PINGS_MAX = 8,          /* unanswered ones whose answer still measures a round trip */
    KNOWN_FAILURES_MAX = 5, /* dials of a member never reached, before it is suspected */
    VAIN_MAX = 2,           /* ... and before it is not reckoned with */
    HEALTH_MAX = 7,         /* limits widen up to eightfold */
    WITNESSES_MAX = 3,      /* distinct accusers that are as good as any number */
    PROXIES = 3,            /* members asked to probe a third */
    INQUIRIES_MAX = 32,     /* such questions in the air */
    RELAYS_MAX = 64,        /* probes under way for others */
    HOST_SLOTS = 4096,
    HOST_WAYS = 4, /* places that the tries of one host may have */
    TRIES_SLOTS = 128 * HOST_WAYS,
    SOURCES = 256 /* from whom hearsay came, by the first byte of the id */
};

struct rtt {
    uint64_t srtt_ns; /* 0: no sample yet */
    uint64_t rttvar_ns;
    uint64_t peak_ns; /* the longest of late: falls to shorter ones by a quarter at a time */
};

/* The link of a member that has one. */
struct contact {
    struct boot_id boot;
    bool is_outbound; /* we dialled */
    bool wants_hangup;
    bool is_parting;    /* pruned: its end is nobody's death */
    bool is_slow;       /* see membership_set_slow() */
    uint32_t place;     /* in the list of links */
    uint64_t up_ns;     /* since when */
    uint64_t part_ns;   /* hang up then; UINT64_MAX: never */
    uint64_t told_ns;   /* when it was last told that it is accused */
    uint64_t silent_ns; /* silence counts from here: last heard, moved on when we ourselves slept */
    uint64_t ping_ns;   /* next */
    uint64_t ping_seq;  /* of the last PING of this link, from 1 */
    uint64_t asked_ns;  /* of the first PING since it was last heard */
    uint64_t inquire_ns;               /* not before: ask others whether they reach it */
    uint64_t ping_sent_ns[PINGS_MAX];  /* by seq modulo PINGS_MAX; 0: answered or never sent */
    uint64_t measured_ns;              /* when a round trip was last begun */
    uint64_t fed_ns;                   /* when news last rode along with an ACK to it */
    uint32_t sync_page;                /* the page of its book asked for next; 0: none */
    uint32_t pages_due;                /* pages asked for and not yet here */
    uint8_t digest[SYNC_DIGEST_BYTES]; /* of our book when its pages were first asked for */
    uint64_t serve_ns; /* start of the second in which pages and probes for it are counted */
    uint32_t served, relayed;
    uint64_t checked_ns; /* start of the second in which signatures of its news are counted */
    uint32_t checked;
};

/* What is said against a member. */
struct words {
    uint8_t others[WITNESSES_MAX][ACCUSATION_BYTES];
    uint32_t others_count; /* by different accusers, none of them this peer */
    uint8_t own[ACCUSATION_BYTES];
    bool has_own;
    uint32_t transmits_left;
};

/* There is one for each member in the book of each peer, most of them never linked: what is looked
 * at with every tick comes first, what is small last, so that it stays small. */
struct member {
    struct peer_id id;
    enum member_state state : 8;
    uint8_t source;          /* is_hearsay: who told of it */
    uint8_t vain;            /* hearsay: dials in vain, whatever it says since; to VAIN_MAX */
    uint8_t address_next;    /* index of the next to dial: 0 `reached`, then the record's */
    struct contact *contact; /* NULL: no link */
    uint64_t since_ns;       /* of the state */

    /* What travels: the newest record, as its subject signed it. */
    struct signed_record *record; /* NULL: known by its link only, so far; see member_brief() */
    struct words *words;          /* what is said against it; NULL: nothing */

    /* Where, besides the record's addresses. */
    char *reached;     /* the address it was last reached at; NULL: none */
    uint64_t dial_ns;  /* UINT64_MAX: only when healing or the view picks it */
    uint64_t avoid_ns; /* pruned us: not dialled by choice before */
    uint64_t kept_ns;  /* since when it is_kept */

    /* Evidence. */
    uint64_t heard_ns;   /* last record of any link */
    uint64_t vouched_ns; /* when another last reached it for us */
    struct rtt rtt;
    uint64_t inquire_ns; /* SUSPECT: next question to others */
    uint64_t accused_ns; /* when we last accused it */
    uint64_t refuted_ns; /* when it last rose above an accusation or was believed dead */
    uint64_t renewed_ns; /* hearsay: newer records so far, as a time (token bucket) */
    STAILQ_ENTRY(member) in_suspects;
    uint32_t counted;       /* its part of the book's digest; 0: not part of it */
    uint16_t asked, denied; /* SUSPECT: proxies asked, and those who said no */
    uint16_t failures;      /* dials in vain since the last link or state change */
    uint8_t transmits_left; /* of its record */
    uint8_t backoff_s;      /* between two dials */

    bool is_pending : 1;          /* in the pending list */
    bool is_hearsay : 1;          /* never had a link; `source` told of it */
    bool is_met : 1, is_vain : 1; /* counted as such in the book */
    bool is_dialling : 1;
    bool is_chosen : 1; /* for the active view: dial it though the mesh is not full */
    bool is_kept : 1;   /* see membership_keep() */
    bool is_direct : 1; /* SUSPECT: by our own failed probes, not on others' word */
    bool was_reset : 1; /* SUSPECT: the other side ended the link */
};

/* A link, and beside it when it is to be looked at: the rest is not, most of the time. */
struct linked {
    struct member *member;
    uint64_t due_ns; /* nothing is due before, and perhaps nothing then; 0: not known */
};

/* A member in the book, and what tells most of them apart without a look at them. */
struct entry {
    struct member *member;
    uint32_t key;  /* the first bytes of its id, the first of them highest */
    bool has_dial; /* its dial_ns is not UINT64_MAX */
};

/* Members sorted by id; each its own block, so that pointers to them last. */
struct book {
    struct entry *entries;
    uint32_t count, capacity, max;
    struct shelf *shelf;           /* where their records are */
    struct shelf *own_shelf;       /* the same if it is this book's alone, else NULL */
    uint32_t counted;              /* members in the digest: believed to be there */
    uint32_t met, vain;            /* of them: linked once; hearsay dialled in vain */
    uint32_t tried;                /* hearsay dialled or linked: a bit each, the latest lowest; set:
                                      in vain */
    bool is_by_met;                /* who was met counts, and not who is told of */
    uint64_t changes;              /* of who is counted, or vain, or met if that is what counts */
    uint32_t digest[SYNC_BUCKETS]; /* XOR of the records' hashes */
    uint32_t hosts[HOST_SLOTS];    /* members' addresses, by a hash of the host */
    uint32_t hearsay[SOURCES];     /* members never linked, by who told of them */
};

/* One question to others: do you reach the target? */
struct inquiry {
    uint64_t seq; /* 0: free */
    struct peer_id target, proxies[PROXIES];
    uint32_t asked, answered; /* bits: which proxies have answered */
    bool is_acked;
    uint64_t until_ns;
};

/* One such question of another, under way. */
struct relay {
    uint64_t until_ns; /* 0: free */
    struct peer_id asker, target;
    uint64_t seq, ping_seq; /* the asker's number, and that of our PING */
};

struct bootstrap {
    char address[ADDRESS_BYTES_MAX];
    uint64_t dial_ns, backoff_ns;
    uint32_t failures; /* since it was last reached */
    bool is_self;      /* it answered with our own identity */
    bool has_id;       /* it answered, as `id` */
    struct peer_id id;
};

/* What came of dials to one host, whatever the port: see host.c. */
struct host_tries {
    uint64_t next_ns; /* no dial before */
    uint32_t tag;     /* of the host; 0: free */
    uint8_t failures; /* since somebody was last met there */
    bool is_met;      /* somebody was, and it is written in digits */
};

struct dial {                        /* one that was handed out and has not ended */
    char address[ADDRESS_BYTES_MAX]; /* "": free */
    bool has_id;                     /* dialled for a member, not for a bootstrap address */
    bool is_budgeted;                /* at a host where nobody was met */
    bool is_looked_up;               /* ... and which is a name */
    struct peer_id id;
    uint64_t until_ns; /* then it counts as failed */
};

struct dialler {
    struct bootstrap bootstraps[MEMBERSHIP_BOOTSTRAPS_MAX];
    uint32_t bootstraps_count;
    struct dial dials[DIALS_MAX];
    uint64_t next_ns;   /* no dial can be due before */
    uint64_t ends_ns;   /* none in the air counts as failed before */
    uint64_t credit_ns; /* see gossip/flow/ration.h */
    struct host_tries tries[TRIES_SLOTS];
    uint64_t names_ns; /* no dial to a strange name before */
    uint64_t hosts_seed;
};

/* The clock hands of the active view; unused while the mesh is full. */
struct view {
    bool is_partial;
    bool is_small;     /* everybody known was few enough for a full mesh, and for a while */
    uint64_t small_ns; /* since when they are few; 0: they are not */
    uint64_t tick_ns, probe_ns, shuffle_ns;
    uint64_t doubt_ns; /* when those never met are dialled next, to find out who is not there */
};

struct membership {
    struct membership_options options;
    struct peer_id self_id;
    struct member self; /* our own record, on no shelf */
    enum nat_class nat; /* of this peer */
    struct book book;
    struct dialler dialler;
    struct view view;
    struct member *pending[PENDING_MAX];
    uint32_t pending_count, pending_at;
    uint32_t words_count;            /* members that something is said against */
    struct linked linked[LINKS_MAX]; /* in the order in which they came */
    struct member *kept[LINKS_MAX];  /* those that are is_kept, sorted by id */
    STAILQ_HEAD(, member) suspects;
    uint32_t linked_count, kept_count, suspects_count, hangups_count;
    struct inquiry inquiries[INQUIRIES_MAX];
    struct relay relays[RELAYS_MAX];
    uint32_t inquiries_count, relays_count;
    uint64_t inquiry_seq;
    uint64_t tick_ns; /* of the last tick */
    uint64_t next_ns; /* earliest of all but dials */
    uint64_t
        period_ns; /* between probes: the option's, or thrice that where round trips are long */
    uint64_t period_check_ns;
    uint64_t gossip_ns, sync_ns, sync_interval_ns, heal_ns, health_ns;
    uint64_t asked_ns;                 /* when a book was last asked for */
    uint64_t worse_ns;                 /* when health last fell */
    uint64_t refuted_ns, refute_at_ns; /* our own: last refutation, and when the next is due */
    uint64_t doubted_ns;               /* when a word against us last made our health worse ... */
    struct peer_id doubted_by;         /* ... and whose it was */
    uint32_t health; /* how little our own judgement is to be trusted: 0 .. HEALTH_MAX */
    struct membership_counts counts;
    bool is_leaving;
    struct rng rng;
};

/* book.c */
/** As the options ask for. RC_NOMEM. */
MUST_USE enum rc book_init(struct membership *m);
void book_deinit(struct membership *m);
struct member *book_find(const struct book *book, struct peer_id id);
/** A new KNOWN member, NULL: no room. In a full book the longest dead or gone makes room, and for
 *  one with a link (`from` NULL) also one that is known by hearsay only. `from`: who told of it; a
 *  source that filled its share is not believed. */
struct member *book_add(struct membership *m, struct peer_id id, const struct peer_id *from,
                        uint64_t now_ns);
/** Would book_add() refuse hearsay of this source? */
bool book_is_full_for(const struct membership *m, struct peer_id from);
void book_remove(struct membership *m, struct member *member);
/** Note whether it has a dial_ns. */
void book_set_dial(struct book *book, const struct member *member, bool has_dial);
/** It had a link: hearsay no more. */
void book_proved(struct book *book, struct member *member);
/** What its record says of it; of somebody whose record is not known: nothing, incarnation 0. */
const struct record_brief *member_brief(const struct member *member);
/** Keep a verified record as the newest of a member of the book; takes the reference. */
void book_keep(struct membership *m, struct member *member, struct signed_record *record);
/** A dial of somebody never linked failed. */
void book_tried_in_vain(struct book *book, struct member *member);
/** See membership_likely(). */
bool member_is_likely(const struct member *member);
/** After any change of a member's state or record: is it part of the digest? */
void book_count(struct book *book, struct member *member);
/** Its address number `index` of ADDRESSES_MAX; NULL: none. Until its record changes. */
const char *member_address(const struct member *member, uint32_t index);
/** Put the record, or what is said against it, on its way to everyone. */
void pending_add(struct membership *m, struct member *member);
void pending_add_words(struct membership *m, struct member *member);
/** Off the list if there is nothing to tell of it. */
void pending_settle(struct membership *m, struct member *member);
/** Up to `max` records for `to`, each counted as sent once. */
uint32_t pending_take(struct membership *m, struct peer_id to, struct record_ref *refs,
                      uint32_t max);
/** Likewise accusations, up to ACCUSATIONS_MAX of them; how many. */
uint32_t pending_take_words(struct membership *m, uint8_t bytes[ACCUSATIONS_MAX * ACCUSATION_BYTES],
                            uint32_t max);
void rtt_sample(struct rtt *rtt, uint64_t sample_ns);

/* host.c */
void hosts_count(struct book *book, const struct member *member, bool is_added);
/** What a dial to an address that a member's record names may cost: nothing where somebody was met,
 *  else so much a second for each host. */
enum host_standing {
    HOST_FREE,    /* dial it: somebody proved to be there, or the user named it */
    HOST_STRANGE, /* dial it, on the host's budget */
    HOST_LATER,   /* not before a time */
    HOST_SPENT    /* nobody was there, again and again: counts as dialled in vain */
};
enum host_standing host_standing(struct membership *m, const char *address, uint64_t now_ns,
                                 uint64_t *at_ns);
/** A dial on a host's budget begins; it found nobody; it found somebody. */
void host_on_dial(struct membership *m, struct dial *dial, uint64_t now_ns);
void host_on_failed(struct membership *m, const struct dial *dial, uint64_t now_ns);
void host_on_reached(struct membership *m, const char *address, uint64_t now_ns);
/** Our own network has changed: nobody is given up for what was before. */
void hosts_forgive(struct membership *m);

/* dial.c */
/** `base` times a random factor in [0.75, 1.25). */
uint64_t membership_jitter(struct membership *m, uint64_t base_ns);
/** Dial it then; UINT64_MAX: not by itself. */
void dialler_at(struct membership *m, struct member *member, uint64_t at_ns);
/** Dial `member` now if we are the one to dial first, else a little later. */
void dialler_call(struct membership *m, struct member *member, uint64_t now_ns);
/** Others reach it: dial it again, with the back-off it has but not too late. */
void dialler_retry(struct membership *m, struct member *member, uint64_t now_ns);
/** How long the other side is given to dial us before we do. */
uint64_t dialler_turn_ns(const struct membership *m, const struct member *member);
/** Dial it as soon as there is a slot. */
void dialler_pick(struct membership *m, struct member *member, uint64_t now_ns);
/** Does its host's budget allow a dial now? */
bool dialler_may_dial(struct membership *m, struct member *member, uint64_t now_ns);
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
/** Learn from records that `from` sent, up to the first bad one. `out`: they were asked for, and
 *  what it should know better goes there. NULL: news, of which a link may tell so much a second.
 *  RC_FORMAT, RC_AUTH. */
MUST_USE enum rc membership_absorb(struct membership *m, struct peer_id from,
                                   const struct record_ref *refs, uint32_t count, uint64_t now_ns,
                                   struct outbox *out);
/** May a signature be checked for what `from` tells unasked? Counted, whatever the check will say:
 *  so many a second for each link. */
bool membership_may_check(struct member *from, uint64_t now_ns);
void membership_wake(struct membership *m, uint64_t at_ns);
void membership_become(struct membership *m, struct member *member, enum member_state state,
                       uint64_t now_ns);
void membership_hangup(struct membership *m, struct member *member);
/** Of its link, if it has one, something may be due sooner than it was. */
void membership_look(struct membership *m, const struct member *member);
void membership_on_news(struct membership *m, uint64_t now_ns);
/** Rise above what is said against us; false: not now, or never. */
bool membership_refute(struct membership *m, uint64_t claimed, uint64_t now_ns);
/** One to another, by itself. */
void membership_send_record(struct membership *m, struct peer_id to, const struct member *of,
                            struct outbox *out);

/* suspect.c */
/** `is_direct`: our own probes failed; `was_reset`: the other side ended the link. */
void suspect(struct membership *m, struct member *member, bool is_direct, bool was_reset,
             uint64_t now_ns);
/** Somebody reaches it. */
void suspect_vouched(struct membership *m, struct member *member, uint64_t now_ns);
void suspect_tick(struct membership *m, struct member *member, uint64_t now_ns, struct outbox *out);
uint64_t suspect_next(const struct membership *m, const struct member *member);
void words_free(struct membership *m, struct member *member);
/** Nothing is said against it any more. */
void words_clear(struct membership *m, struct member *member);
/** What is held against `member`, to `to`. */
void words_send(struct membership *m, struct peer_id to, const struct member *member,
                struct outbox *out);
MUST_USE enum rc suspect_on_words(struct membership *m, struct member *from,
                                  const struct message_accuse *accuse, uint64_t now_ns,
                                  struct outbox *out);

/* inquiry.c */
/** Ask others whether they reach `member`. */
void inquiry_begin(struct membership *m, struct member *member, uint64_t now_ns,
                   struct outbox *out);
void inquiry_on_answer(struct membership *m, struct peer_id from, uint64_t seq, bool is_ack,
                       uint64_t now_ns);
MUST_USE enum rc inquiry_on_request(struct membership *m, struct member *asker,
                                    const struct message_ping_req *request, uint64_t now_ns,
                                    struct outbox *out);
/** `target` answered our PING `seq`. */
void inquiry_on_ack(struct membership *m, const struct member *target, uint64_t seq,
                    struct outbox *out);
void inquiry_tick(struct membership *m, uint64_t now_ns, struct outbox *out);
uint64_t inquiry_next(const struct membership *m);

/* sync.c */
/** Ask a linked member for what differs between its book and ours, from the first page. */
void sync_ask(struct membership *m, struct member *member, uint64_t now_ns, struct outbox *out);
MUST_USE enum rc sync_on_request(struct membership *m, struct member *from,
                                 const struct message_sync_req *request, uint64_t now_ns,
                                 struct outbox *out);
MUST_USE enum rc sync_on_page(struct membership *m, struct member *from,
                              const struct message_sync *sync, uint64_t now_ns, struct outbox *out);
void sync_tick(struct membership *m, uint64_t now_ns, struct outbox *out);

/* probe.c */
/** PING a linked member now; the number of the PING. */
uint64_t probe_ping(struct membership *m, struct member *member, uint64_t now_ns,
                    struct outbox *out);
/** How long an answer may take. */
uint64_t probe_timeout(const struct membership *m, const struct member *member);
/** A sign that we ourselves are slow or cut off. */
void health_worse(struct membership *m, uint64_t now_ns);
/** A random linked member among those not chosen yet and not `except`; NULL: none is left. */
struct member *probe_random(struct membership *m, struct member *const *chosen,
                            uint32_t chosen_count, const struct member *except);
/** Random members to ask whether they reach `target`: of those that answer us, since the silence of
 *  others would look like ours. If none does it may well be ours: any. How many. */
uint32_t probe_proxies(struct membership *m, struct member *proxies[PROXIES],
                       const struct member *target, uint64_t now_ns);

/* keep.c */
/** It leaves the book. */
void kept_forget(struct membership *m, const struct member *member);
/** Who is to be linked, is dialled by nobody and does not come: it may not exist. */
void kept_tick(struct membership *m, uint64_t now_ns);

/* view.c */
/** Is the swarm too large to be linked with everyone? */
void view_check(struct membership *m);
/** Members to reckon with when that is decided, this peer not counted. */
uint32_t view_members(const struct membership *m);
void view_tick(struct membership *m, uint64_t now_ns, struct outbox *out);
void view_soon(struct membership *m, uint64_t now_ns); /* tick now */
uint64_t view_next(const struct membership *m);
void view_on_pruned(struct membership *m, struct member *member, uint32_t wait_ms, uint64_t now_ns);

#endif
