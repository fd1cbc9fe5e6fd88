/* exchange_push: the state shared by the files of the push exchange, and no one else. */
#ifndef GRAPEVINE_AVERAGING_PUSH_PUSH_H
#define GRAPEVINE_AVERAGING_PUSH_PUSH_H

#include "averaging/core/deadline.h"
#include "averaging/core/exchange.h"
#include "averaging/core/roster.h"
#include "averaging/core/transfer.h"

enum {
    PUSH_MARKS_MAX = 256,  /* senders remembered */
    PUSH_MARK_DEPTH = 4,   /* shares remembered of each */
    PUSH_GONE_MAX = 256,   /* senders of whom is remembered that they were */
    PUSH_PUT_OFF_MAX = 32, /* senders that kept us waiting */
    PUSH_ACCOUNTS_MAX = LINKS_MAX
};

/* Beyond this no weight of an honest swarm is: they sum to its number of peers. No share is taken
 * that would make a peer hold more, so that what it saves can always be loaded. */
#define WEIGHT_MOST ((double)(1 << 20))

/* What leaves in a round. */
enum push_out { OUT_NONE, OUT_OFFERED, OUT_ACCEPTED, OUT_SENDING, OUT_SENT, OUT_ACKED };
/* What comes in. */
enum push_in { IN_NONE, IN_OPEN, IN_RETURN, IN_DONE, IN_FAILED };
enum push_snapshot { SNAPSHOT_NONE, SNAPSHOT_WANTED, SNAPSHOT_HERE };

/* A share that was sent and not acknowledged: no longer ours, not known to be another's. */
struct push_custody {
    bool is_used;
    bool is_returned; /* it is ours again, and waits for a round that adds it back */
    bool was_asked;   /* and has not been answered since */
    bool was_scored;  /* for that: once, for it may be taking a model meanwhile */
    struct round_key key;
    struct peer_id to;
    float weight;
    uint64_t since_ns; /* 0: just loaded, set at the next tick */
    uint64_t ask_ns;
};

/* What was applied of one start of a peer. */
struct push_mark {
    struct peer_id id;
    struct boot_id boot;
    bool is_heir;  /* of an earlier start's mark, which is forgotten */
    uint64_t high; /* no share of a number up to this one is taken any more */
    uint64_t applied[PUSH_MARK_DEPTH];
    uint32_t applied_count; /* in all; the last PUSH_MARK_DEPTH are remembered */
    uint64_t used;          /* when it was last touched, on a clock of its own */
};

/* Who promised a share that did not come is not let in again for a while. */
struct push_put_off {
    struct peer_id id;
    uint64_t until_ns; /* 0: unused */
    uint32_t times;    /* in a row, less those made up for */
    uint32_t kept;     /* promises since */
};

/* What a peer and we have given each other, of late. */
struct push_account {
    struct peer_id id;
    double given, had; /* by it, and by us */
    double claimed;    /* what it said to have, when it offered last */
    uint64_t used;     /* push->given when it gave last */
};

struct push {
    struct exchange base;
    struct exchange_options options;
    struct digest lineage;
    struct exchange_counts counts;
    uint64_t now_ns, counter;
    double weight; /* omega: of the live model. Shares in custody are not in it */
    struct roster roster;

    bool is_running;
    enum push_snapshot snapshot;

    enum push_out out;
    struct round_key out_key;
    struct member_ref to;
    float out_weight;
    struct transfer_out sending;
    uint64_t out_begun_ns, out_deadline_ns;

    enum push_in in;
    struct round_key in_key;
    struct member_ref from;
    float in_weight;
    struct transfer_in receiving;
    uint8_t *chunks; /* [chunks] what is receiving keeps of each */
    uint64_t in_begun_ns, in_deadline_ns;
    uint64_t in_granted_ns; /* UINT64_MAX: no chunk yet */
    uint64_t in_first_ns;   /* from then to the first of them */

    uint8_t *empty; /* bitmap of a round in which nothing came: else a share counts whole */
    uint32_t empty_bytes;

    struct push_custody custody[SHARES_MAX];
    struct push_mark *marks; /* [PUSH_MARKS_MAX] */
    uint32_t marks_count;
    uint64_t marks_clock;
    uint64_t gone[PUSH_GONE_MAX]; /* a ring: of marks that gave way to others, see start_print() */
    uint32_t gone_count;          /* in all */
    struct deadline rounds;       /* how long a share took to arrive */
    struct deadline answers;      /* SHARE to its answer */
    struct deadline firsts;       /* CREDIT to the first chunk */
    struct push_put_off put_off[PUSH_PUT_OFF_MAX];
    struct push_account accounts[PUSH_ACCOUNTS_MAX];
    uint32_t accounts_count;
    uint64_t given;     /* shares of ours that arrived: the accounts' clock */
    uint32_t broken;    /* promises since the last one that was kept; of strangers only where no
                           proven peer's shares come */
    uint64_t proven_ns; /* when a proven peer last kept one; 0: never */
};

/* push.c */
struct push *push_of(struct exchange *exchange);
const struct push *push_seen_of(const struct exchange *exchange);
void push_out_become(struct push *push, enum push_out next);
void push_in_become(struct push *push, enum push_in next);
void push_snapshot_become(struct push *push, enum push_snapshot next);
void push_snapshot_want(struct push *push, struct commands *out);
/** The share on its way out is given up; its weight is ours again. `code` 0: the receiver knows. */
void push_out_fail(struct push *push, enum abort_code code, const char *reason,
                   struct commands *out);
/** The same of the one that comes in. */
void push_in_fail(struct push *push, enum abort_code code, const char *reason,
                  struct commands *out);
/** End the round if nothing of it is under way any more. */
void push_advance(struct push *push, struct commands *out);

/* wait.c: how long we wait for whom */
/** From SHARE to its answer. */
uint64_t push_answer_wait_ns(const struct push *push, struct peer_id peer);
/** From ACCEPT to the last chunk. */
uint64_t push_share_wait_ns(const struct push *push, struct peer_id peer);
/** When the share that comes in is given up. */
uint64_t push_in_deadline_ns(const struct push *push);
/** It is: what that says of its sender, and of how long to wait. */
void push_kept_waiting(struct push *push);
/** It has come: that says the same. */
void push_has_come(struct push *push);
bool push_is_put_off(const struct push *push, struct peer_id peer);

/* accounts.c: how much of whose weight is taken */
/** It says that it has so much; it has given us so much; we have given it so much, and it has it.
 */
void push_account_claimed(struct push *push, struct peer_id from, double weight);
void push_account_given(struct push *push, struct peer_id from, double weight);
void push_account_had(struct push *push, struct peer_id to, double weight);
/** How much more may be taken of it now; may be below 0. */
double push_account_allows(const struct push *push, struct peer_id from);
/** Less for ourselves, if all around us weigh more than honest peers can. */
void push_account_weigh(struct push *push);

/* data.c */
void push_start_sending(struct push *push, struct commands *out);
/** The share is ours again: what is still queued of it is not to be sent. */
void push_stop_sending(struct push *push, struct commands *out);
void push_grant(struct push *push, struct commands *out);
MUST_USE enum rc push_on_credit(struct push *push, struct member_ref from,
                                const struct message_credit *credit, struct commands *out);
MUST_USE enum rc push_on_chunk(struct exchange *exchange, const struct chunk_ref *chunk,
                               struct chunk_use *use);
void push_on_chunk_checked(struct exchange *exchange, const struct chunk_ref *chunk, enum rc rc,
                           struct digest hash, float squared_distance, uint64_t now_ns,
                           struct commands *out);
void push_on_job_done(struct exchange *exchange, enum exchange_job job, uint32_t first, enum rc rc,
                      struct digest hash, uint64_t now_ns, struct commands *out);

/* custody.c */
/** A free slot for a share to `to`, an old doubt's if need be. NULL: no share may leave now. */
struct push_custody *push_custody_free(struct push *push, struct peer_id to, struct commands *out);
/** The share that was sent stays with us until it is known what became of it. */
void push_custody_keep(struct push *push, struct commands *out);
void push_custody_drop(struct push *push, struct push_custody *custody, struct commands *out);
struct push_custody *push_custody_find(struct push *push, const struct round_key *key);
MUST_USE enum rc push_on_ack(struct push *push, struct peer_id from, const struct round_key *key,
                             struct commands *out);
MUST_USE enum rc push_on_applied_req(struct push *push, struct member_ref from,
                                     const struct round_key *key, struct commands *out);
MUST_USE enum rc push_on_applied(struct push *push, struct peer_id from,
                                 const struct message_applied *applied, struct commands *out);
/** The receiver says that it will not take a share. False: it is none of those in custody. */
bool push_custody_refused(struct push *push, struct peer_id from, const struct round_key *key);
bool push_mark_is_old(const struct push *push, const struct round_key *key);
void push_mark_applied(struct push *push, const struct round_key *key);
void push_custody_on_link_up(struct push *push, struct peer_id peer, struct commands *out);
void push_custody_tick(struct push *push, struct commands *out);
uint64_t push_custody_next_ns(const struct push *push);
void push_custody_lose_all(struct push *push, struct commands *out);
MUST_USE enum rc push_save(const struct exchange *exchange, uint8_t **bytes, size_t *count);
MUST_USE enum rc push_load(struct exchange *exchange, const uint8_t *bytes, size_t count);
/** What is held, and what would have to be if the round ended now. */
void push_custody_count(const struct push *push, struct exchange_counts *counts);
/** The live model's, and of all shares sent that may still come back. */
double push_held_weight(const struct push *push);

#endif
