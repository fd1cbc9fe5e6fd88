/* exchange_edges: the state shared by the files of the exchange of neighbours, and no one else. */
#ifndef GRAPEVINE_AVERAGING_EDGE_EDGES_H
#define GRAPEVINE_AVERAGING_EDGE_EDGES_H

#include "averaging/core/deadline.h"
#include "averaging/core/exchange.h"
#include "averaging/core/patience.h"
#include "averaging/core/robust.h"
#include "averaging/core/roster.h"
#include "averaging/core/swap.h"

enum {
    EDGES_MAX = GROUP_MEMBERS_MAX, /* neighbours */
    EDGES_SLOTS = 4,               /* planes of neighbours staged at once */
    EDGES_RAISERS_MAX = EDGES_MAX  /* who made us begin our generation anew, and how often */
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
    struct swap swap; /* weight and radius: ours; from OPEN on the smaller of both */
    enum edge_state state;
    struct matching_edge matched; /* says in which rounds it is, with the round's matchings */
    bool is_late;                 /* DROPPED because it was not there in time: may still come */
    bool is_measure;              /* whether others are late shows beside it */
    uint64_t credit_ns;           /* so much longer it may be waited for; 0: not for it alone */
    uint32_t slot;
    enum data_kind kind; /* mirrors: of the chunks that come */
    uint32_t mirror;     /* and where they go */
    bool has_mirror;     /* which is its own, and stays so after the round */
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
    bool has_open;
    uint64_t mirror_round; /* of what follows */
    struct digest mirror;  /* the copy it holds of us */
    uint64_t round, generation;
    float weight, radius;
    bool is_answered; /* we were there with it, or had told it that we do without it */
    uint32_t missed;  /* rounds in a row that it did not come to, and not a word from it */
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

struct edges {
    struct exchange base;
    struct exchange_options options;
    struct digest lineage;
    struct exchange_counts counts; /* next_round is what begin() will use at least */
    uint64_t now_ns;
    struct roster roster;
    struct edge_link links[LINKS_MAX]; /* in the roster's places */

    bool is_active, has_snapshot;
    bool is_catching_up;        /* this round's number is a neighbour's */
    bool is_ahead;              /* or the one after it */
    bool goes_ahead;            /* the last time we caught up, that round was over */
    struct matchings matchings; /* of the graph of the last begin(); count 0: there are none */
    uint64_t round, begun_ns;
    uint64_t answer_ns; /* over the lines of half of the neighbours; 0: not known */
    uint64_t half_come_ns, half_over_ns; /* when half of the neighbours were; 0: not yet */
    struct patience patience;
    uint64_t stream;              /* of what we send in it */
    struct edge edges[EDGES_MAX]; /* sorted by id: see grant_slots() */
    uint32_t edges_count;
    uint8_t *chunks[EDGES_SLOTS]; /* [chunks] each, of data.c */
    bool slot_used[EDGES_SLOTS];
    const char *last_drop; /* of this round; string literal */

    struct edge_mirror mirrors[MIRRORS_MAX];
    struct digest *hashes[EDGES_SLOTS]; /* mirrors: [chunks] each, of the chunks that came */

    uint64_t generation, begins; /* rounds begun in this life */
    bool wants_restart;
    struct edge_raiser raisers[EDGES_RAISERS_MAX];
    struct edge_leader leaders[EDGES_MAX];
    struct digest graph; /* of the last round's neighbours and weights */
    struct digest epoch; /* of this round's members */
    bool has_graph;

    struct promises promises;
    struct robust_history distances; /* of neighbours' planes from ours */
    struct deadline opens;           /* begin to a neighbour's OPEN */
    struct deadline exchanges;       /* both open to committed */
    struct deadline decisions;       /* READY to COMMIT */
};

/* edges.c */
void edges_become(struct edge *edge, enum edge_state next);
struct edge *edges_find(struct edges *edges, struct peer_id id);
struct edge_link *edges_link_find(struct edges *edges, struct peer_id id);
/** The key of an edge with `from` in its round. */
struct round_key edges_key_with(const struct edges *edges, struct member_ref from, uint64_t round);
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
/** Allow the neighbour more, if it has a slot, and it is worth a message. */
void edges_grant(struct edges *edges, struct edge *edge, struct commands *out);
/** Whatever can happen now: slots, credit, READY, decisions. */
void edges_advance(struct edges *edges, struct commands *out);
MUST_USE enum rc edges_on_credit(struct edges *edges, struct peer_id from,
                                 const struct message_credit *credit, struct commands *out);
MUST_USE enum rc edges_on_ready(struct edges *edges, struct peer_id from,
                                const struct message_ready *ready, struct commands *out);
/** By COMMIT or OUTCOME, in time or late; `state` is not UNKNOWN where the edge is in this round.
 */
MUST_USE enum rc edges_on_decided(struct edges *edges, struct peer_id from,
                                  const struct round_key *key, enum outcome_state state,
                                  struct commands *out);
MUST_USE enum rc edges_on_chunk(struct exchange *exchange, const struct chunk_ref *chunk,
                                struct chunk_use *use);
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
/** What `to` gets in this round. */
enum data_kind edges_mirror_kind(struct edges *edges, struct peer_id to);
/** Before a chunk of `edge` is let in. */
MUST_USE enum rc edges_mirror_receive(struct edges *edges, struct edge *edge,
                                      const struct chunk_ref *chunk);
/** A chunk of its copy is in, and counted. */
void edges_mirror_checked(struct edges *edges, struct edge *edge, uint32_t chunk,
                          struct digest hash);

#endif
