/* exchange_pair: the state shared by the files of the pair exchange, and no one else. */
#ifndef GRAPEVINE_AVERAGING_PAIR_PAIR_H
#define GRAPEVINE_AVERAGING_PAIR_PAIR_H

#include "averaging/core/deadline.h"
#include "averaging/core/exchange.h"
#include "averaging/core/roster.h"
#include "averaging/core/swap.h"

enum { PAIR_SEEN_MAX = 1024 };

enum pair_state { PAIR_IDLE, PAIR_OFFERED, PAIR_SNAPSHOT, PAIR_DATA, PAIR_PREPARED };

/* The last counter of a start of a peer: offers rise. */
struct pair_seen {
    struct peer_id id;
    struct boot_id boot;
    uint64_t counter;
};

struct pair {
    struct exchange base;
    struct exchange_options options;
    struct digest lineage;
    struct exchange_counts counts;
    uint64_t now_ns, counter;
    struct roster roster;

    enum pair_state state;
    struct swap swap; /* of the round that runs, or ran last */
    uint64_t begun_ns, deadline_ns;
    uint8_t *chunks; /* [chunks] the swap's */

    struct promises promises;
    struct pair_seen *seen; /* [PAIR_SEEN_MAX], a ring */
    uint32_t seen_count, seen_next;
    struct robust_history distances; /* of partners' planes from ours */
    struct deadline rounds;          /* how long rounds took */
    struct deadline answers;         /* OFFER to its answer */
    struct deadline decisions;       /* READY to COMMIT */
    uint64_t ready_ns;               /* when READY was sent */
};

/* pair.c */
void pair_become(struct pair *pair, enum pair_state next);
/** The round that runs is with `from`, in its present life; and it is the round `key`. */
bool pair_is_partner(const struct pair *pair, struct member_ref from);
bool pair_is_running(const struct pair *pair, struct member_ref from, const struct round_key *key);
/** The round is over. */
void pair_over(struct pair *pair, enum over_result result, float scale, const char *reason,
               struct commands *out);

/* offer.c: how a round begins */
MUST_USE enum rc pair_begin(struct exchange *exchange, const struct round_members *members,
                            uint64_t samples, uint64_t now_ns, struct commands *out);
MUST_USE enum rc pair_on_offer(struct pair *pair, struct member_ref from,
                               const struct message_offer *offer, struct commands *out);
MUST_USE enum rc pair_on_accept(struct pair *pair, struct member_ref from,
                                const struct message_accept *accept, struct commands *out);
MUST_USE enum rc pair_on_reject(struct pair *pair, struct member_ref from,
                                const struct message_reject *reject, struct commands *out);

/* wait.c: how long we wait for whom */
/** OFFERED: for an answer. */
uint64_t pair_answer_wait_ns(const struct pair *pair);
/** Of a whole round with `partner`, and of one that it offers and would wait `offered_ms` for. */
uint64_t pair_round_wait_ns(const struct pair *pair, struct peer_id partner);
uint64_t pair_offered_wait_ns(const struct pair *pair, struct peer_id from, uint32_t offered_ms);
/** PREPARED: for the decision. */
uint64_t pair_decision_wait_ns(const struct pair *pair);
/** For one that came while we were busy: when to ask again. */
uint32_t pair_retry_ms(const struct pair *pair);

#endif
