/* exchange_edges: the state shared by the files of the exchange of neighbours, and no one else. */
#ifndef GRAPEVINE_AVERAGING_EDGE_EDGES_H
#define GRAPEVINE_AVERAGING_EDGE_EDGES_H

#include "averaging/core/deadline.h"
#include "averaging/core/exchange.h"
#include "averaging/core/patience.h"
#include "averaging/core/robust.h"

enum {
    EDGES_MAX = GROUP_MEMBERS_MAX,  /* neighbours */
    EDGES_SLOTS = 4,                /* planes of neighbours staged at once */
    EDGES_CREDIT_CHUNKS = 32,       /* on the way at once, from one neighbour */
    EDGES_OUTCOMES_MAX = LINKS_MAX, /* neighbours whose last committed round we know */
    EDGES_RAISERS_MAX = EDGES_MAX   /* who made us begin our recursion anew, and how often */
};
#define EDGES_NO_SLOT UINT32_MAX
/* How far one message may move us ahead, see group/group.h. */
#define EDGES_ROUND_LEAP (UINT64_C(1) << 32)

enum edge_state {
    EDGE_WAITING,   /* for its OPEN */
    EDGE_OPEN,      /* both are in this round; no slot yet */
    EDGE_DATA,      /* it has a slot */
    EDGE_STAGED,    /* all of its plane is here; who decides waits for READY */
    EDGE_PREPARED,  /* READY sent: the other end decides */
    EDGE_COMMITTED, /* from here on nothing more is to happen in this round */
    EDGE_DROPPED,
    EDGE_IN_DOUBT
};

struct edge {
    struct member_ref ref;
    uint64_t stream; /* of what it sends */
    enum edge_state state;
    float weight; /* ours; from OPEN on the smaller of both */
    float tau;    /* clip radius: likewise; 0: none */
    bool is_decider;
    bool is_late;      /* DROPPED because it was not there in time: may still come */
    bool is_measure;   /* whether others are late shows beside it */
    uint64_t slack_ns; /* so much longer it may be waited for; 0: not for it alone */
    bool has_ready;
    float squared_heard; /* READY's */
    double squared;
    uint32_t slot;
    enum data_kind kind;              /* mirrors: of the chunks that come */
    uint32_t mirror;                  /* and where they go */
    bool has_mirror;                  /* which is its own, and stays so after the round */
    uint32_t credit, sent;            /* chunks it allows, that we sent */
    uint32_t granted, received, done; /* chunks we allow, begun to arrive, staged */
    uint64_t open_ns, ready_ns, deadline_ns;
};

/* A neighbour's copy; the values are in the lane, at the same index. */
struct edge_mirror {
    bool is_used;
    struct peer_id peer;
    struct digest digest; /* all zero: not whole */
    uint64_t round;       /* in which the peer was a neighbour last */
};

/* What a linked peer said last of where it is. */
struct edge_link {
    struct member_ref ref;
    bool has_open;
    uint64_t mirror_round; /* of what follows */
    struct digest mirror;  /* the copy it holds of us */
    uint64_t round, recursion;
    float weight, tau;
    bool is_refused; /* we had told it that we do without it there */
    uint32_t missed; /* rounds in a row that it did not come to, and not a word from it */
};

/* A neighbour that made us begin anew: how often it may again, see begin.c. Kept
 * when its link is lost, or a new one would be a new allowance. */
struct edge_raiser {
    bool is_used, is_scored;
    struct peer_id peer;
    uint32_t left;       /* it may at once */
    uint64_t since;      /* the round of ours, counted by `begins`, from which on it earns more */
    uint64_t last, wait; /* when it did last; without any left: rounds until it may again */
    struct digest epoch; /* of the members, when it was last allowed more for that */
    uint64_t epoch_next; /* from this round of ours on it may be once more ... */
    uint64_t epoch_wait; /* ... and then not for so many */
};

/* A neighbour that took us to a later round although another one was still with us: how often it
 * may again, see begin.c. Kept when its link is lost. */
struct edge_leader {
    bool is_used;
    struct peer_id peer;
    uint32_t left;
    uint64_t since; /* the round of ours, counted by `begins`, from which on it earns more */
};

/* The last round that we, who decide, committed with a peer. */
struct edge_outcome {
    struct peer_id peer;
    struct boot_id boot; /* ours, then */
    uint64_t round;
    float scale;
};

/* A promise of ours whose decision we do not know. */
struct edge_doubt {
    bool is_used;
    struct round_key key; /* its initiator knows */
    float weight, expected_scale;
    uint64_t until_ns, ask_ns;
};

struct edges {
    struct exchange base;
    struct exchange_options options;
    struct digest lineage;
    struct exchange_counts counts; /* next_round is what begin() will use at least */
    uint64_t now_ns;
    struct edge_link links[LINKS_MAX];
    uint32_t links_count;

    bool is_active, has_snapshot;
    bool is_catching_up; /* this round's number is a neighbour's */
    bool is_ahead;       /* or the one after it */
    bool goes_ahead;     /* the last time we caught up, that round was over */
    uint64_t round, begun_ns;
    uint64_t answer_ns; /* over the lines of half of the neighbours; 0: not known */
    uint64_t pace_ns;   /* until this peer begins the next, as far as is known */
    uint64_t half_come_ns, half_over_ns; /* when half of the neighbours were; 0: not yet */
    struct patience patience;
    uint64_t stream;              /* of what we send in it */
    struct edge edges[EDGES_MAX]; /* sorted by id: see grant_slots() */
    uint32_t edges_count;
    uint8_t *chunks[EDGES_SLOTS]; /* [chunks] each, of data.c */
    bool slot_used[EDGES_SLOTS];
    uint8_t *bitmap; /* all chunks: edges commit whole */
    uint32_t bitmap_bytes;
    const char *last_drop; /* of this round; string literal */

    struct edge_mirror mirrors[MIRRORS_MAX];
    struct digest *hashes[EDGES_SLOTS];  /* mirrors: [chunks] each, of the chunks that came */
    struct digest own_before, own_after; /* our copy of ourselves, around this round's step */

    uint64_t recursion, begins; /* rounds begun in this life */
    bool wants_restart;
    struct edge_raiser raisers[EDGES_RAISERS_MAX];
    struct edge_leader leaders[EDGES_MAX];
    struct digest graph; /* of the last round's neighbours and weights */
    struct digest epoch; /* of this round's members */
    bool has_graph;

    struct edge_doubt doubts[EDGES_DOUBTS_MAX];
    struct edge_outcome outcomes[EDGES_OUTCOMES_MAX];
    uint32_t outcomes_count;
    struct robust_history distances; /* of neighbours' planes from ours */
    struct deadline opens;           /* begin to a neighbour's OPEN */
    struct deadline exchanges;       /* both open to committed */
    struct deadline decisions;       /* READY to COMMIT */
};

/* edges.c */
struct edge *edges_find(struct edges *edges, struct peer_id id);
struct edge_link *edges_link_find(struct edges *edges, struct peer_id id);
struct round_key edges_key(const struct edges *edges, const struct edge *edge);
bool edge_key_is_equal(const struct round_key *a, const struct round_key *b);
bool edges_is_proven(const struct edges *edges, struct peer_id id);
/** A zeroed message to `to`, or NULL. */
struct message *edges_send(struct peer_id to, enum message_type type, struct commands *out);
void edges_score(struct peer_id to, int32_t score, const char *reason, struct commands *out);
void edges_send_abort(struct peer_id to, const struct round_key *key, enum abort_code code,
                      struct commands *out);
/** The key of an edge with `from` in its round. */
struct round_key edges_key_with(const struct edges *edges, struct member_ref from, uint64_t round);
/** What clipping leaves of it, as we measured. */
float edges_clip_scale(const struct edge *edge);
/** Do without this neighbour in this round. */
void edges_drop(struct edges *edges, struct edge *edge, enum abort_code code, const char *reason,
                bool tells, struct commands *out);
/** End the round if nothing is awaited any more. */
void edges_finish(struct edges *edges, struct commands *out);

/** NULL: more links than there can be. */
struct edge_link *edges_link_add(struct edges *edges, struct member_ref ref);

/* begin.c */
MUST_USE enum rc edges_begin(struct exchange *exchange, const struct round_members *members,
                             uint64_t samples, uint64_t now_ns, struct commands *out);
bool edges_may_reopen(const struct edges *edges, const struct edge *edge);
/** Both ends are in this round, if the neighbour has come to it. */
void edges_open(struct edges *edges, struct edge *edge, struct commands *out);

/* wait.c: how long a round waits, and for whom */
/** A round begins: what each may be waited for. */
void edges_wait_begin(struct edges *edges, uint64_t period_ns);
/** An edge begins to wait for its OPEN. */
void edges_wait_open(struct edges *edges, struct edge *edge);
/** It has come, and waits for its data. */
void edges_wait_data(struct edges *edges, struct edge *edge);
/** The other end decides. */
void edges_wait_decision(struct edges *edges, struct edge *edge);
/** It has come, or is over: whoever had the others wait is charged. Before its state changes. */
void edges_wait_over(struct edges *edges, struct edge *edge);
/** How far the round is, after that. */
void edges_wait_note(struct edges *edges);
/** When an edge that is not over is given up. */
uint64_t edges_wait_until_ns(const struct edges *edges, const struct edge *edge);

/* data.c */
void edges_slot_free(struct edges *edges, struct edge *edge);
/** Allow the neighbour more, if it is worth a message and there is credit. */
void edges_grant(struct edges *edges, struct edge *edge, struct commands *out);
/** Whatever can happen now: slots, credit, READY, decisions. */
void edges_advance(struct edges *edges, struct commands *out);
MUST_USE enum rc edges_on_credit(struct edges *edges, struct peer_id from,
                                 const struct message_credit *credit, struct commands *out);
MUST_USE enum rc edges_on_ready(struct edges *edges, struct peer_id from,
                                const struct message_edge_ready *ready, struct commands *out);
MUST_USE enum rc edges_on_commit(struct edges *edges, struct peer_id from,
                                 const struct message_edge_commit *said, struct commands *out);
MUST_USE enum rc edges_on_chunk(struct exchange *exchange, const struct chunk_ref *chunk,
                                float *weight);
uint32_t edges_slot(const struct exchange *exchange, struct peer_id from);
void edges_on_chunk_checked(struct exchange *exchange, const struct chunk_ref *chunk, enum rc rc,
                            struct digest hash, float squared_distance, uint64_t now_ns,
                            struct commands *out);
void edges_on_job_done(struct exchange *exchange, enum exchange_job job, uint32_t first, enum rc rc,
                       struct digest hash, uint64_t now_ns, struct commands *out);

/* mirror.c */
/** At the begin of a round: who has a place for its copy. */
void edges_mirror_begin(struct edges *edges);
void edges_mirror_say(struct edges *edges, const struct edge *edge, struct commands *out);
MUST_USE enum rc edges_on_mirror(struct edges *edges, struct peer_id from,
                                 const struct message_mirror *mirror);
void edges_mirror_own(struct exchange *exchange, struct digest before, struct digest after);
/** What `to` gets in this round. */
enum data_kind edges_mirror_kind(struct edges *edges, struct peer_id to);
/** Before a chunk of `edge` is let in. */
MUST_USE enum rc edges_mirror_receive(struct edges *edges, struct edge *edge,
                                      const struct chunk_ref *chunk);
/** A chunk of its copy is in, and counted. */
void edges_mirror_checked(struct edges *edges, struct edge *edge, uint32_t chunk,
                          struct digest hash);
uint32_t edges_mirror_place(const struct exchange *exchange, struct peer_id from);

/* outcomes.c */
bool edges_is_in_doubt_with(const struct edges *edges, struct peer_id id);
/** Promises that may be made on top of those in doubt. */
uint32_t edges_doubts_free(const struct edges *edges);
/** A promise is not decided in time: the edge is over for this round. */
void edges_enter_doubt(struct edges *edges, struct edge *edge, struct commands *out);
void edges_outcome_keep(struct edges *edges, struct peer_id peer, float scale);
/** What `from` decided, or RC_STALE if nobody waits for that. */
MUST_USE enum rc edges_doubt_resolve(struct edges *edges, struct peer_id from,
                                     const struct round_key *key, enum outcome_state state,
                                     float scale, struct commands *out);
MUST_USE enum rc edges_on_ask(struct edges *edges, struct member_ref from,
                              const struct round_key *key, struct commands *out);
MUST_USE enum rc edges_on_tell(struct edges *edges, struct member_ref from,
                               const struct message_edge_tell *tell, struct commands *out);
void edges_doubts_drop(struct edges *edges, struct commands *out);
void edges_doubts_ask(struct edges *edges, struct peer_id peer, struct commands *out);
void edges_doubts_tick(struct edges *edges, struct commands *out);
uint64_t edges_doubts_next_ns(const struct edges *edges);
MUST_USE enum rc edges_save(const struct edges *edges, uint8_t **bytes, size_t *count);
MUST_USE enum rc edges_load(struct edges *edges, const uint8_t *bytes, size_t count);

#endif
