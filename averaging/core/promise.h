/*
 * promise: what outlives a swap of two peers (swap.h), and how the end that promised learns what
 * the other end decided.
 *
 * Of the two ends of a swap one decides: the initiator of its key. The other end promises with
 * READY to go along with whatever that is, and may not abort by itself from then on. If the
 * decision does not come, the swap is in doubt: the round goes on without it, and the decision is
 * asked for (OUTCOME_REQ) whenever there is a link, at most every two seconds; where there is none,
 * or no answer came over it, three other neighbours at a time are asked to ask (OUTCOME_ASK, and
 * the decider signs what they bring: peer/node/rounds/outcome.c). After T_doubt the peer presumes
 * abort (Mohan, Lindsay 1983). A difference can be applied at any time, so a late COMMIT does no
 * harm.
 *
 * A peer in doubt about another takes part in no further swap that this one decides. So the last
 * swap that was committed with each peer is all that a decider must remember, also in checkpoints.
 * A decider that has no record of a key of its present or an earlier life, which is not undecided,
 * has not committed it: it came back without it.
 *
 * Pure; no allocation but for promise_save(). Loop thread.
 */
#ifndef GRAPEVINE_AVERAGING_CORE_PROMISE_H
#define GRAPEVINE_AVERAGING_CORE_PROMISE_H

#include "averaging/core/exchange.h"
#include "averaging/core/roster.h"

enum { PROMISE_DOUBTS_MAX = 4 }; /* promised and undecided, of this round and earlier ones */

/* A promise of ours whose decision we do not know. */
struct promise_doubt {
    bool is_used, was_answered, was_scored, was_asked;
    uint32_t asked;       /* how many other peers have been asked to ask */
    struct round_key key; /* its initiator knows */
    float weight; /* of the other's plane: of what the difference that is kept is to count */
    uint64_t until_ns, ask_ns;
};

/* The last swap that we, who decide, committed with a peer. */
struct promise_kept {
    struct peer_id peer;
    struct boot_id boot; /* ours, then */
    uint64_t counter;
};

/* The owner's options, links and counts are read and counted in where they are. */
struct promises {
    const struct exchange_options *options;
    const struct roster *roster;
    struct exchange_counts *counts;
    struct promise_doubt doubts[PROMISE_DOUBTS_MAX];
    struct promise_kept kept[LINKS_MAX];
    uint32_t kept_count;
};

/* ---- decisions of ours ---- */

/** We committed the swap `key` with `peer`. With the table full the oldest gives way. */
void promise_keep(struct promises *promises, struct peer_id peer, const struct round_key *key);
/** What became of the swap `key` of ours with `peer`, said for good: of no round of this life from
 *  `next` on. `undecided`: the key of one that runs, or NULL. False: nothing can be said. */
bool promise_outcome(const struct promises *promises, struct peer_id peer,
                     const struct round_key *key, const struct round_key *undecided, uint64_t next,
                     enum outcome_state *state);
/** OUTCOME_REQ came: OUTCOME goes back. RC_MISMATCH: we do not decide that. */
MUST_USE enum rc promise_on_req(const struct promises *promises, struct peer_id from,
                                const struct round_key *key, const struct round_key *undecided,
                                struct commands *out);

/* ---- doubts of ours ---- */

bool promise_is_in_doubt_with(const struct promises *promises, struct peer_id decider);
/** Promises that may still be made. */
uint32_t promise_free(const struct promises *promises);
/** The decision about a promise does not come: from now on it is asked for. */
void promise_doubt(struct promises *promises, const struct promise_doubt *doubt, uint64_t now_ns,
                   struct commands *out);
/** `from` has decided so. RC_STALE: nobody waits for that; RC_REFUSED: it is not its to say. */
MUST_USE enum rc promise_resolve(struct promises *promises, struct peer_id from,
                                 const struct round_key *key, enum outcome_state state,
                                 struct commands *out);
/** The model was replaced: all doubts are given up. False: there were none. */
bool promise_give_up(struct promises *promises, struct commands *out);
/** There is a link to `peer`: it is asked. */
void promise_ask(struct promises *promises, struct peer_id peer, uint64_t now_ns,
                 struct commands *out);
/** True: a doubt was given up. */
bool promise_tick(struct promises *promises, uint64_t now_ns, struct commands *out);
uint64_t promise_next_ns(const struct promises *promises);

/* ---- in checkpoints ---- */

/** Decisions, with two numbers of the exchange. RC_NOMEM. */
MUST_USE enum rc promise_save(const struct promises *promises, const uint64_t numbers[2],
                              uint8_t **bytes, size_t *count);
/** Hostile bytes. RC_MISMATCH: of an earlier build; RC_FORMAT. Then nothing changed. */
MUST_USE enum rc promise_load(struct promises *promises, const uint8_t *bytes, size_t count,
                              uint64_t numbers[2]);

#endif
