/* rounds_internal: what the files share that say when there are rounds and with whom. Nobody else
 * includes it. */
#ifndef GRAPEVINE_PEER_NODE_ROUNDS_INTERNAL_H
#define GRAPEVINE_PEER_NODE_ROUNDS_INTERNAL_H

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

struct rounds {
    struct pace pace;
    uint64_t snapshot_step;    /* of the last round's snapshot */
    uint64_t snapshot_samples; /* taken before that */
    uint64_t samples_of_round; /* of the last that had any */
    uint64_t once_steps;       /* own_steps when the one average of one-shot was made, also before a
                                  restart; 0: it was not */
    bool has_round_started;    /* START came, and the snapshot is not taken yet */
    uint64_t start_step;       /* then */
    bool has_started, is_wait_told; /* training: see start_with */
    struct rounds_overdue overdue;
    struct rounds_busy busy;
};

/* round.c */
/** At a step border, or between two: begin a round if one is due. */
void rounds_begin(struct node *node);
/** As a callback of rounds. */
enum standing rounds_standing(void *node, struct peer_id peer);
/** Samples of this peer's model since the snapshot of the last round. */
uint64_t rounds_samples_since(const struct node *node);

/* busy.c */
/** There is no round with it just now. */
bool rounds_busy_leaves(const struct node *node, const struct neighbour *other);

/* preference.c: whom to meet the more often */
/** How rare each of `ids` [count, sorted, may hold this peer] is to be, into `rarity` [count], by
 *  what their lines carry; see preference.h. NULL: all are alike, or are to be taken so. */
const uint8_t *rounds_preference(struct node *node, const struct peer_id *ids, size_t count,
                                 uint8_t *rarity);

#endif
