/* exchange_pair: the state shared by the files of the pair exchange, and no one else. */
#ifndef GRAPEVINE_AVERAGING_PAIR_PAIR_H
#define GRAPEVINE_AVERAGING_PAIR_PAIR_H

#include "averaging/core/deadline.h"
#include "averaging/core/exchange.h"
#include "averaging/core/robust.h"

enum {
    PAIR_CREDIT_CHUNKS = 32, /* on the way at once, each way */
    PAIR_NORMS_MAX = 4096,   /* squared norms in READY; beyond, several chunks share one */
    PAIR_DOUBTS_MAX = 2,     /* at most one a partner */
    PAIR_OUTCOMES_MAX = 1024,
    PAIR_SEEN_MAX = 1024
};

enum pair_state { PAIR_IDLE, PAIR_OFFERED, PAIR_SNAPSHOT, PAIR_DATA, PAIR_PREPARED };

/* A decision of ours the participant has not acknowledged. */
struct pair_outcome {
    struct round_key key;
    struct peer_id partner;
    float scale;
    uint64_t until_ns; /* 0: just loaded, set at the next tick */
};

/* A round we promised to and whose decision we do not know. */
struct pair_doubt {
    bool is_used, was_answered, was_scored, was_asked;
    uint32_t asked;       /* how many links have been asked to ask */
    struct round_key key; /* its initiator is who knows */
    float alpha, expected_scale;
    uint64_t until_ns, ask_ns;
};

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
    struct member_ref links[LINKS_MAX];
    uint32_t links_count;

    enum pair_state state;
    bool is_initiator;
    struct round_key key;
    uint64_t stream; /* of `key` */
    struct member_ref partner;
    float alpha, tau;
    uint64_t begun_ns, deadline_ns;
    uint32_t credit, sent;            /* chunks the partner allows, that we sent */
    uint32_t granted, received, done; /* chunks we allow, begun to arrive, staged */
    uint8_t *chunks;                  /* [chunks] enum of data.c; 0: none */
    uint32_t stride, norms_count;     /* chunks a norm; norms in READY */
    double *norms;                    /* [norms_count] squared, ours */
    uint8_t *norms_sent;              /* the same as little-endian float32 */
    float *norms_heard;               /* READY's */
    bool has_ready;
    uint8_t *bitmap; /* all chunks: rounds commit whole */
    uint32_t bitmap_bytes;

    struct pair_doubt doubts[PAIR_DOUBTS_MAX];
    struct pair_outcome *outcomes; /* [PAIR_OUTCOMES_MAX], the first outcomes_count in use */
    uint32_t outcomes_count;
    struct pair_seen *seen; /* [PAIR_SEEN_MAX], a ring */
    uint32_t seen_count, seen_next;
    struct robust_history distances; /* of partners' planes from ours */
    struct deadline rounds;          /* how long rounds took */
    struct deadline answers;         /* OFFER to its answer */
    struct deadline decisions;       /* READY to COMMIT */
    uint64_t ready_ns;               /* when READY was sent */
};

/* pair.c */
bool pair_is_linked(const struct pair *pair, struct peer_id id);
bool round_key_is_equal(const struct round_key *a, const struct round_key *b);
bool pair_is_partner(const struct pair *pair, struct member_ref from);
bool pair_is_running(const struct pair *pair, struct member_ref from, const struct round_key *key);
void pair_abort(struct pair *pair, enum abort_code code, const char *reason, struct commands *out);
void pair_commit(struct pair *pair, float scale, struct commands *out);
/** A zeroed message to `to`, or NULL. */
struct message *pair_send(struct peer_id to, enum message_type type, struct commands *out);
void pair_score(struct peer_id to, int32_t score, const char *reason, struct commands *out);
/* data.c */
/** Allow the partner more, if it is worth a message and there is credit. DATA. */
void pair_grant(struct pair *pair, struct commands *out);
/** What the clip radius makes of the distance we measured. */
float pair_clip_scale(const struct pair *pair);
MUST_USE enum rc pair_on_credit(struct pair *pair, struct member_ref from,
                                const struct message_credit *credit, struct commands *out);
MUST_USE enum rc pair_on_ready(struct pair *pair, struct member_ref from,
                               const struct message_ready *ready, struct commands *out);
MUST_USE enum rc pair_on_chunk(struct exchange *exchange, const struct chunk_ref *chunk,
                               float *weight);
/** See exchange.h. */
float pair_likely_scale(const struct exchange *exchange);
void pair_on_chunk_checked(struct exchange *exchange, const struct chunk_ref *chunk, enum rc rc,
                           struct digest hash, float squared_distance, uint64_t now_ns,
                           struct commands *out);
void pair_on_job_done(struct exchange *exchange, enum exchange_job job, uint32_t first, enum rc rc,
                      struct digest hash, uint64_t now_ns, struct commands *out);
/** RC_FORMAT unless the bitmap is full and the scale is what our own norms give. */
MUST_USE enum rc pair_check_decision(const struct pair *pair, const uint8_t *bitmap,
                                     uint32_t bitmap_bytes, float scale, float expected);

/* wait.c: how long we wait for whom */
bool pair_is_proven(const struct pair *pair, struct peer_id id);
/** OFFERED: for an answer. */
uint64_t pair_answer_wait_ns(const struct pair *pair);
/** Of a whole round with `partner`, and of one that it offers and would wait `offered_ms` for. */
uint64_t pair_round_wait_ns(const struct pair *pair, struct peer_id partner);
uint64_t pair_offered_wait_ns(const struct pair *pair, struct peer_id from, uint32_t offered_ms);
/** PREPARED: for the decision. */
uint64_t pair_decision_wait_ns(const struct pair *pair);
/** For one that came while we were busy: when to ask again. */
uint32_t pair_retry_ms(const struct pair *pair);

/* outcomes.c: decisions kept for others, and doubts about others' decisions */
void pair_outcome_keep(struct pair *pair, float scale);
void pair_doubt_add(struct pair *pair, float expected_scale, struct commands *out);
struct pair_doubt *pair_doubt_free(struct pair *pair); /* NULL: all in use */
bool pair_is_in_doubt_with(const struct pair *pair, struct peer_id partner);
/** The initiator's decision about a doubt; false: there is no such doubt. */
bool pair_doubt_resolve(struct pair *pair, struct peer_id from, const struct round_key *key,
                        enum outcome_state state, float scale, struct commands *out);
const struct pair_doubt *pair_doubt_find(const struct pair *pair, const struct round_key *key);
void pair_doubts_drop(struct pair *pair, struct commands *out);
MUST_USE enum rc pair_on_outcome_req(struct pair *pair, struct peer_id from,
                                     const struct round_key *key, struct commands *out);
bool pair_outcome(const struct pair *pair, const struct round_key *key, struct peer_id participant,
                  enum outcome_state *state, float *scale);
MUST_USE enum rc pair_on_done(struct pair *pair, struct peer_id from, const struct round_key *key);
void pair_outcomes_on_link_up(struct pair *pair, struct peer_id peer, struct commands *out);
void pair_outcomes_tick(struct pair *pair, struct commands *out);
uint64_t pair_outcomes_next_ns(const struct pair *pair);
MUST_USE enum rc pair_save(const struct pair *pair, uint8_t **bytes, size_t *count);
MUST_USE enum rc pair_load(struct pair *pair, const uint8_t *bytes, size_t count);

#endif
