/*
 * membership: who is in the swarm and who is alive, learned from any first address. Pure: time,
 * chance and evidence come in; messages go to the outbox; dialling is asked for by query.
 * A control link to every live member of up to 128; of more, to an active view of some 32.
 */
#ifndef GRAPEVINE_GOSSIP_MEMBERSHIP_MEMBERSHIP_H
#define GRAPEVINE_GOSSIP_MEMBERSHIP_MEMBERSHIP_H

#include "base/rng.h"
#include "gossip/flow/outbox.h"
#include "gossip/membership/verified.h"

enum member_state {
    MEMBER_KNOWN,   /* a record, no link, and no reason to doubt it */
    MEMBER_ALIVE,   /* an open link, answers in time */
    MEMBER_SUSPECT, /* link lost or silent, or others say so; redialled */
    MEMBER_DEAD,    /* given up; redialled rarely, so that partitions heal */
    MEMBER_LEFT     /* said goodbye */
};

struct member_view { /* a copy for readers */
    struct peer_id id;
    struct boot_id boot;
    uint64_t incarnation;
    enum member_state state;
    char address[ADDRESS_BYTES_MAX]; /* the one that last worked, else the first */
    uint64_t rtt_ns;                 /* smoothed; 0: not measured */
    uint64_t heard_ns;               /* last authenticated record from it */
    bool is_linked;
    enum nat_class nat; /* as it says itself, like what follows */
    bool is_keeper;
    char site[SITE_BYTES];
};

struct membership_counts {
    uint64_t suspected; /* members that became SUSPECT */
    uint64_t died;      /* ... and DEAD */
    uint64_t accused;   /* accusations signed by this peer */
    uint64_t refuted;   /* times this peer rose above what was said of it */
    uint32_t believed;  /* members believed to be there, this peer not counted */
    uint32_t likely;    /* those of them to reckon with: see membership_likely() */
    uint32_t linked;
    uint32_t health; /* 0: our own judgement is good; limits are 1 + health times as wide */
};

struct membership;

enum {
    MEMBERSHIP_BOOTSTRAPS_MAX = 128,
    /* So many are linked all with all, however many there were before; more are perhaps not. */
    MEMBERSHIP_MESH = 112
};

struct membership_options {
    uint64_t probe_interval_ns; /* 1 s */
    uint32_t members_max;
    const struct identity *identity; /* borrowed: to sign our own record */
    struct digest run_id;
    struct boot_id boot;
    uint64_t incarnation; /* at most 2^63: the persisted one + 1 */
    char addresses[RECORD_ADDRESSES_MAX][ADDRESS_BYTES_MAX];
    uint32_t addresses_count;
    char site[SITE_BYTES];     /* all NUL: none */
    uint32_t features;         /* of our record */
    uint64_t seed;             /* for probe order and back-off jitter */
    uint64_t shelf_seed;       /* for the places of records; nobody else may know it */
    struct verified *verified; /* borrowed; NULL: of this peer alone */
};

/** NULL only when out of memory. Copies `options`. */
struct membership *membership_create(const struct membership_options *options);
void membership_destroy(struct membership *membership);

/** Addresses to reach the swarm by, before anyone is known and to heal partitions later. Twice the
 *  same, one of our own, or more than MEMBERSHIP_BOOTSTRAPS_MAX: ignored. */
void membership_add_bootstrap(struct membership *membership, const char *address);
/** An authenticated link to `id` opened: direct evidence. Sends SYNC_REQ and our own record.
 *  `address`: the one dialled, or, for a link the other side dialled, where it says it listens; ""
 *  if that is not known. Again for a linked peer (the link was replaced): fine. */
void membership_on_link_up(struct membership *membership, struct peer_id id,
                           const uint8_t *public_key, struct boot_id boot, const char *address,
                           uint64_t now_ns, struct outbox *out);
/** The link is gone, whoever closed it. Not for a link that was replaced by another. */
void membership_on_link_lost(struct membership *membership, struct peer_id id, uint64_t now_ns);
/** A dial asked for by membership_next_dial() failed. */
void membership_on_dial_failed(struct membership *membership, const char *address, uint64_t now_ns);
/** It could not be tried, for a reason that is ours: says nothing of who is there. */
void membership_on_dial_put_off(struct membership *membership, const char *address,
                                uint64_t now_ns);
/** A dial asked for by membership_next_dial() reached `id`, and the link was not kept: it is linked
 *  already, or `id` is this peer itself (such an address is not dialled again). */
void membership_on_link_duplicate(struct membership *membership, const char *address,
                                  struct peer_id id, uint64_t now_ns);
/** What this peer has found out about itself (gossip/reach/reach.h): whether others can dial it,
 * and the addresses it can be dialled at, at most RECORD_ADDRESSES_MAX. A change is signed and
 * told. */
void membership_set_reach(struct membership *membership, enum nat_class nat,
                          const char (*addresses)[ADDRESS_BYTES_MAX], uint32_t count,
                          uint64_t now_ns);
/** Anything authentic arrived from `id`: it is alive. Cheap; call for every record. */
void membership_on_heard(struct membership *membership, struct peer_id id, uint64_t now_ns);
/** PING to PRUNE, but for PROGRESS. RC_FORMAT/RC_AUTH: a record in it was bad (count it). */
MUST_USE enum rc membership_on_message(struct membership *membership, struct peer_id from,
                                       const struct message *message, uint64_t now_ns,
                                       struct outbox *out);
/** GOAWAY from `id`: it has left. */
void membership_on_goodbye(struct membership *membership, struct peer_id id, uint64_t now_ns);

/** Due probes, suspicions, redials as of `now_ns`. Afterwards take what membership_next_dial() and
 *  membership_next_hangup() have; then membership_next_ns() lies in the future, unless a dial
 *  failed at once. */
void membership_tick(struct membership *membership, uint64_t now_ns, struct outbox *out);
/** When to tick next; UINT64_MAX: nothing pending. Never later than due. */
uint64_t membership_next_ns(const struct membership *membership);
/** Take one address that should be dialled now; false: none. Bounded rate, exponential back-off
 *  with jitter (1 s to 60 s; bootstrap while alone: 100 ms growing to 2 s). */
bool membership_next_dial(struct membership *membership, uint64_t now_ns,
                          char address[ADDRESS_BYTES_MAX]);
/** Take one peer whose link should be hung up (silent past its adaptive limit); false: none. The
 *  peer counts as not linked from here on. */
bool membership_next_hangup(struct membership *membership, struct peer_id *id);

/** All members known, this peer excluded, sorted by id; and how many there are. */
size_t membership_list(const struct membership *membership, struct member_view *views, size_t max);
size_t membership_count(const struct membership *membership);
/** How long an answer of `id` takes, but for rare ones: a quarter more than the longest round trip
 *  of late. ns; 0: not measured. */
uint64_t membership_answer_ns(const struct membership *membership, struct peer_id id);
/** Somebody who proved to be a member is at the other end of a connection from or to `address`: to
 *  dial its host is to dial nobody who did not ask for it. */
void membership_met_at(struct membership *membership, const char *address, uint64_t now_ns);
/** Is `address` ("host:port", any port) where a member or a bootstrap lives, as far as known? */
bool membership_knows_host(const struct membership *membership, const char *address);
/** Does `id` say that it is where this peer is (or say nothing, as this one)? False of who is not
 *  known. */
bool membership_is_near(const struct membership *membership, struct peer_id id);
/** The members to reckon with, linked or not, this peer excluded, sorted by id. As anybody can tell
 * of members that do not exist: in a swarm that was small enough for a full mesh those that were
 * linked once, in others all that are believed to be there, but for those that were only told of
 * and dialled in vain, and those that keep the model and do not train. Returns how many were
 * written; `likely` of the counts is how many there are, with those that do not train. */
size_t membership_likely(const struct membership *membership, struct peer_id *ids, size_t max);
/** Changes whenever this set does. */
uint64_t membership_changes(const struct membership *membership);
/** Links to `ids` (sorted; those before are forgotten) are wanted for as long as they are believed
 *  to be there: in a large swarm they are dialled first and not given up for others. */
void membership_keep(struct membership *membership, const struct peer_id *ids, size_t count,
                     uint64_t now_ns);
/** The link to `id` was seen to carry much less than others: in a large swarm it is among the first
 *  to be given up for another, unless it is to be kept. */
void membership_set_slow(struct membership *membership, struct peer_id id, bool is_slow);
/** What happened here so far, for reports. */
void membership_counts(const struct membership *membership, struct membership_counts *counts);
/** Tell every linked peer, signed, that we have left; from here on nothing is dialled or probed. */
void membership_farewell(struct membership *membership, struct outbox *out);
/** Ours now, to be persisted: it rises when we leave or have to contradict an old record of us. */
uint64_t membership_incarnation(const struct membership *membership);

#endif
