/* rounds_internal: what the files share that say when there are rounds and with whom. Nobody else
 * includes it. */
#ifndef GRAPEVINE_PEER_NODE_ROUNDS_INTERNAL_H
#define GRAPEVINE_PEER_NODE_ROUNDS_INTERNAL_H

#include "averaging/core/patience.h"
#include "averaging/strategy/period.h"
#include "gossip/overlay/graph.h"
#include "gossip/overlay/matching.h"
#include "gossip/overlay/topology.h"
#include "peer/node/internal.h"
#include "peer/node/rounds/pace.h"

/* Rounds that pass a peer by, see overdue.c. */
struct rounds_overdue {
    bool is_begun;
    uint64_t passed_before; /* rounds of the swarm that were over when this peer began */
    uint64_t ok, ok_ns,
        ok_step;       /* rounds committed; when that last changed, about, and at which step */
    uint64_t after_ns; /* so long after that it is said, or said again */
};

/* What is long in the training lane, see busy.c. */
struct rounds_busy {
    uint8_t told;                   /* enum progress_busy: as neighbours were told */
    uint64_t took_ns[BORDER_KINDS]; /* how long the last job of each kind did; 0: none */
    uint64_t long_jobs;             /* so many took longer than a step, but for steps */
    uint64_t moved_ns;              /* when an evaluation was last brought forward; 0: never */
};

/* How far this peer may run ahead of others, see lead.c. */
struct rounds_lead {
    struct patience patience;
    bool is_held;
    uint64_t told;     /* all have heard of this step */
    uint64_t usual_ns; /* a wait may take without being charged, half of it */
};

struct rounds {
    const struct pace_ops *inner, *outer;
    void *inner_state, *outer_state;
    struct masks *masks; /* what a round carries; NULL: all */
    bool is_done;        /* the goal is reached, no step is taken, and periods do not count */
    uint32_t last_made;  /* last rounds that were made since, each of which is a period */
    uint64_t mixed_step; /* a period counts from here: of the last round, or of an attempt */
    uint64_t mixed_ns;
    uint64_t period_ns;        /* smoothed time from one round's begin to the next; 0: not known */
    uint64_t snapshot_step;    /* of the last round's snapshot */
    uint64_t snapshot_samples; /* taken before that */
    uint64_t samples_of_round; /* of the last that had any */
    bool has_round_started;    /* START came, and the snapshot is not taken yet */
    uint64_t start_step;       /* then */
    bool has_started, is_wait_told; /* training: see start_with */
    struct rounds_overdue overdue;
    struct rounds_busy busy;
    struct rounds_lead lead;
    struct period period;               /* where it follows the loss, see adapt.c */
    uint64_t periods, turned;           /* begun in this life; as of its last turn */
    struct period_told told[LINKS_MAX]; /* by others, as the period began */
    uint32_t told_count;
};

/* Groups of a swarm that is not linked in full, those of the rounds to come; see draws.c. All zero:
 * none. */
struct draws {
    struct draw { /* the group of one draw, this peer included, in proposing order */
        uint64_t number;
        uint64_t changes, made_ns; /* membership_changes() when it was drawn */
        uint32_t count;            /* 0: none drawn */
        struct peer_id ids[GROUP_MEMBERS_MAX];
    } drawn[TOPOLOGY_AHEAD_MAX];
};

/* This peer's row of the topology's graph (gossip/overlay/graph.h): its neighbours in it, as long
 * as they are there; see own_row.c. All zero: not made yet. */
struct own_row {
    struct peer_id ids[GRAPH_EDGES_MAX]; /* neighbours, ascending */
    float weights[GRAPH_EDGES_MAX];
    struct matchings matchings; /* where rounds have a part of the edges */
    struct matching_edge matched[GRAPH_EDGES_MAX];
    uint32_t count;
    uint32_t members;    /* of all to reckon with, this peer included */
    struct digest epoch; /* name of that set; peers see unlike ones for a while */
    uint64_t changes;    /* membership_changes() then */
    uint64_t made_ns;
    bool is_large_told; /* that complete is not */
};

/* round.c */
/** At a step border, or between two: begin a round if one is due. */
void rounds_begin(struct node *node);
/** There may be a round with it now. */
bool rounds_may_mix(const struct node *node, const struct neighbour *other);
/** Samples of this peer's model since the snapshot of the last round. */
uint64_t rounds_samples_since(const struct node *node);

/* carried.c */
/** RC_NOMEM. */
MUST_USE enum rc rounds_create_masks(struct node *node);

/* adapt.c */
void adapt_create(struct rounds *rounds, const struct strategy *strategy);
/** A period begins: what others have said by then is what counts. */
void adapt_hear(struct node *node);
/** At a step border: what follows from it, once a period. */
void adapt_turn(struct node *node);
/** Another model was taken. */
void adapt_join(struct node *node);
void adapt_keep(const struct node *node, struct checkpoint *checkpoint);
MUST_USE enum rc adapt_resume(struct node *node, const struct checkpoint *checkpoint,
                              struct fault *why);

/* lead.c */
/** After every event: who is how far, and who is waited for no longer. */
void lead_tick(struct node *node);
/** So many steps may be taken now. UINT64_MAX: any number. */
uint64_t lead_steps_left(const struct node *node);
/** When a wait ends without an event. */
uint64_t lead_next_ns(const struct node *node);

/* busy.c */
/** There is no round with it just now. */
bool rounds_busy_leaves(const struct node *node, const struct neighbour *other);

/* preference.c: whom to meet the more often */
/** How rare each of `ids` [count, sorted, may hold this peer] is to be, into `rarity` [count], by
 *  what their lines carry; see preference.h. NULL: all are alike, or are to be taken so. */
const uint8_t *rounds_preference(struct node *node, const struct peer_id *ids, size_t count,
                                 uint8_t *rarity);

/* sites.c: two levels */
/** Round (or, of pairs, period) `round`: among whom, and its number there. */
struct topology_level rounds_level(const struct node *node, uint64_t round);
/** Leave of `ids` [count] those that say they are where this peer is; the count. */
size_t rounds_keep_near(const struct node *node, struct peer_id *ids, size_t count);

/* draws.c */
/** More members are believed to be there than a full mesh has. */
bool draws_are_needed(const struct node *node);
/** The node's group in `round`, itself included, in proposing order; its links and those of the
 *  next are asked for. Whoever is not linked yet is among them. Returns the count; 0: no memory. */
size_t draws_find(struct draws *draws, struct node *node, uint64_t round,
                  struct peer_id group[GROUP_MEMBERS_MAX]);

/* own_row.c */
/** As of now; as before while no memory can be had. */
void own_row_refresh(struct own_row *own, struct node *node);
/** Is `id` one of `ids` [count]? */
bool rounds_has_id(const struct peer_id *ids, size_t count, struct peer_id id);

#endif
