/* node_internal: what the node's own files share. Nobody else includes it. */
#ifndef GRAPEVINE_PEER_NODE_INTERNAL_H
#define GRAPEVINE_PEER_NODE_INTERNAL_H

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "gossip/membership/membership.h"
#include "peer/link/link.h"
#include "peer/node/door.h"
#include "peer/node/lane.h"
#include "peer/node/model.h"
#include "peer/node/node.h"
#include "peer/node/pace.h"
#include "peer/node/trust.h"
#include "peer/round/round.h"

enum {
    NODE_ROUNDS_MISSED_MAX = 50, /* a restarted peer that missed more takes the swarm's model */
    NODE_HANDSHAKE_TRIES = 3, /* of each bootstrap address, before it is said to be another swarm */
    NODE_RATE_STEPS = 200,    /* in which --lr-scaling brings in its rate */
    NODE_DONOR_QUEUE = 8,     /* buckets queued for one joiner */
    NODE_DOUBLINGS_MAX = 9    /* of NODE_RETRY_NS: about nine minutes */
};
#define NODE_ALARM_NS     NS_PER_MS        /* between two wake-ups */
#define NODE_PROGRESS_NS  NS_PER_S         /* how often neighbours hear how far we are */
#define NODE_TRAIN_JOB_NS (5 * NS_PER_MS)  /* aimed length of a training job */
#define NODE_GRAPH_NS     (NS_PER_S / 5)   /* between two looks at the graph of the topology */
#define NODE_AHEAD_NS     (2 * NS_PER_S)   /* between two at the groups of later rounds */
#define NODE_BEGUN_NS     (120 * NS_PER_S) /* later than that after our start we are not new */
#define NODE_JUDGE_NS     (60 * NS_PER_S)  /* certificates run out: are all still let in? */
#define NODE_RETRY_NS     NS_PER_S         /* before a failed download is begun again */
#define NODE_AVOID_NS     (5 * NS_PER_S)   /* others are asked before those it failed with */

/* A peer with an open link. */
struct neighbour {
    struct peer_id id;
    struct boot_id boot;
    bool has_progress;
    struct message_progress progress;
    bool is_relayed;   /* linked through a relay */
    uint64_t place;    /* the host that it is on, as far as its address tells */
    bool has_met;      /* it took part in a round of ours that came to something */
    bool has_met_last; /* in one of the last, see node/rounds/finish.c */
    uint8_t line_step; /* of preference.h; 0: none yet */
    double odds;       /* at the last draw, of meeting it, 1 being usual; 0: none was made */
    uint64_t linked_ns;
    uint64_t progress_ns; /* when it was heard */
    uint64_t first_step;  /* of the model, when it was first heard over this link */
    uint64_t moved_ns;    /* when it was last heard at another step than before */
    double rounds_per_s;  /* between its last two */
    uint64_t outcomes_ns; /* questions about outcomes, and answers, since then */
    uint32_t outcomes;
    uint64_t sketch_minute_ns; /* sketches answered since then */
    uint32_t sketches;
    uint64_t asked_minute_ns; /* since then it asked for the model so often */
    uint32_t asked;
    uint64_t avoid_ns; /* until then its model is not wanted: a download just failed */
    uint64_t far_ns; /* when one of us last refused the other's values as too far away; 0: never */
    uint64_t stray_bytes,
        stray_ns; /* DATA it was not allowed to send, and when the last of it came */
    uint64_t late_bytes, late_after; /* DATA of no round that runs, after so many of our rounds */
};

/* Rounds that pass a peer by, see node/rounds/overdue.c. */
struct node_overdue {
    bool is_begun;
    uint64_t passed_before; /* rounds of the swarm that were over when this peer began */
    uint64_t ok, ok_ns,
        ok_step;       /* rounds committed; when that last changed, about, and at which step */
    uint64_t after_ns; /* so long after that it is said, or said again */
};

/* What is long in the training lane, see busy.c. */
struct node_busy {
    uint8_t told;                   /* enum progress_busy: as neighbours were told */
    uint64_t took_ns[BORDER_KINDS]; /* how long the last job of each kind did; 0: none */
    uint64_t long_jobs;             /* so many took longer than a step, but for steps */
    uint64_t moved_ns;              /* when an evaluation was last brought forward; 0: never */
};

/* How far it is to the goal, see node/rounds/left.c. */
struct node_left {
    uint64_t mark_ns, mark_steps; /* own steps then */
    uint64_t wall_ns;             /* smoothed, from one step to the next; 0: not known */
};

struct node {
    struct node_options options;
    struct node_events events;
    struct env *env;
    struct learner *learner;
    const struct schema *schema;
    size_t values; /* parameters */
    size_t mixed;  /* what a round exchanges: they and running statistics */
    enum node_state state;
    struct peer_id self;
    char address[ADDRESS_BYTES_MAX];
    uint64_t begun_ns;

    struct node_lane *lane;
    struct links *links;
    struct membership *membership;
    struct round *round; /* NULL: `none` */
    struct pace pace;    /* when there is a round */
    struct node_model *model;
    struct node_door *door;
    struct trust *trust;
    struct outbox outbox;
    struct rng rng;
    struct neighbour neighbours[LINKS_MAX];
    uint32_t
        neighbour_keys[LINKS_MAX]; /* the first bytes of their ids: they are looked for often */
    uint32_t neighbours_count;
    bool is_continuing; /* inside node_continue(): do not nest */
    bool is_listening_told;

    /* the model */
    struct digest lineage;
    bool has_lineage;
    uint64_t model_samples; /* behind the model when this peer took or made it, plus our own */

    /* training */
    uint64_t step, samples, own_steps;
    double loss_sum, loss;
    uint32_t loss_steps;
    uint64_t step_ns;    /* smoothed length of one step */
    uint64_t mixed_step; /* from which the pace counts: of the last round, or of an attempt */
    uint64_t mixed_ns;
    uint64_t period_ns; /* smoothed time from one round's begin to the next; 0: not known */
    struct node_overdue overdue;
    struct node_busy busy;
    uint64_t samples_since_round, samples_of_round; /* the latter: of the last that had any */
    uint64_t once_steps; /* own_steps when the one average of one-shot was made, also before a
                            restart; 0: it was not */
    struct node_left left;
    bool has_round_started;         /* START came, and the snapshot is not taken yet */
    uint64_t start_step;            /* then */
    uint64_t snapshot_step;         /* of the last round's snapshot */
    bool has_started, is_wait_told; /* training: see start_with */
    uint64_t goal_steps;            /* resolved; UINT64_MAX: none */
    bool is_goal_resolved;
    uint64_t epoch_samples; /* of the share when training began; 0: not yet */

    /* reports and checkpoints */
    uint64_t report_due_ns;
    uint64_t report_samples, report_ns;
    double accuracy, samples_per_s;
    uint64_t evaluation_ns; /* spent on evaluation so far */

    /* the end */
    bool is_goal_reached;
    struct node_result result;
};

/* node.c */
uint64_t node_now(const struct node *node);
void node_continue(struct node *node); /* after every event: do what is now possible */
void node_fail(struct node *node, enum rc rc, const char *text);
void node_leave(struct node *node, uint32_t goaway_reason);
void node_own_address(const struct node *node, char address[ADDRESS_BYTES_MAX]);
struct neighbour *node_neighbour(struct node *node, struct peer_id id);

/* busy.c: what is long in the training lane, and what others make of it */
void node_busy_begin(struct node *node, enum border_kind kind); /* a job is about to be submitted */
void node_busy_end(struct node *node, enum border_kind kind, uint64_t took_ns); /* it is back */
/** Before `progress` replaces what `from` said last. */
void node_busy_hear(struct node *node, const struct neighbour *from,
                    const struct message_progress *progress);
/** So long after it is due a long job still leaves way to a group that forms; 0: none does. */
uint64_t node_busy_put_off_ns(const struct node *node);
/** There is no round with it just now. */
bool node_busy_leaves(const struct node *node, const struct neighbour *other);

/* node/rounds/round.c: with whom we average */
void node_begin_round(struct node *node);
/** Between two step borders: the next partner, if the last one was busy. */
void node_offer_again(struct node *node);
/** When to try again whom to mix with. */
uint64_t node_round_next_ns(const struct node *node);
/** The step at which the others mixed last, by the pace and this peer's step. */
uint64_t node_last_mixed(const struct node *node);
/** The method lets no step be taken now: a round is under way. */
bool node_waits_for_round(const struct node *node);
/** The goal is reached: may the peer not leave yet? It takes no step meanwhile. */
bool node_stays(struct node *node);
/** After every event: note the step at which a round has started. */
void node_round_note(struct node *node);
bool node_round_is_settling(const struct node *node);
/** Everyone to reckon with, linked or not, this peer included, sorted by id; the caller frees it.
 *  NULL: no memory. */
struct peer_id *node_everyone(const struct node *node, size_t *count);
/** Is anybody linked with whom this peer may average now? */
bool node_has_partners(struct node *node);
/** Fewer peers than the first step is to be taken with. Says so once. */
bool node_waits_for_peers(struct node *node);
/** For how many more, as was told; 0: it does not wait. */
uint32_t node_waits_for_more(const struct node *node);
/** Was a round with this neighbour refused lately, as our models are too far apart? */
bool node_is_far(const struct node *node, const struct neighbour *neighbour);
/** It is no longer so, or is not known to be: one of the two models was replaced. */
void node_far_is_over(struct node *node, struct neighbour *neighbour);
/** A message of the round family from a neighbour, if it may be heard. */
void node_on_round_message(struct node *node, struct peer_id from, const struct message *message);
/** `peer` failed us or misbehaved: no rounds with it for a while, or no link. */
void node_score(struct node *node, struct peer_id peer, enum score_reason reason);
/** The same, as a round's callback. */
void node_round_scored(void *node, struct peer_id peer, enum score_reason score);
enum standing node_standing(void *node, struct peer_id peer);

/* node/rounds/left.c: how far it is to the goal */
/** Steps were taken. */
void node_left_stepped(struct node *node);
/** Until this peer expects to be at its goal, at least 1; 0: not known, or it is. */
uint32_t node_left_ms(const struct node *node);

/* node/rounds/saved.c: rounds in a checkpoint */
/** What it holds of them. From here on they are held: round_hold(). */
void node_round_checkpoint(struct node *node, struct checkpoint *checkpoint);
/** Before the first round: go on from it. */
MUST_USE enum rc node_round_resume(struct node *node, const struct checkpoint *checkpoint,
                                   struct fault *why);

/* node/rounds/preference.c: whom to meet the more often */
/** How rare each of `ids` [count, sorted, may hold this peer] is to be, into `rarity` [count], by
 *  what their lines carry; see preference.h. NULL: all are alike, or are to be taken so. */
const uint8_t *node_preference(struct node *node, const struct peer_id *ids, size_t count,
                               uint8_t *rarity);
/** Bytes a second that the line of `peer` was seen to carry to this `node`; 0: it is not linked, or
 *  nothing took long enough to tell. */
uint64_t node_line_rate(const struct node *node, struct peer_id peer);
/** The same, as a callback of rounds. */
uint64_t node_round_line(void *node, struct peer_id peer);
/** How long an answer of `peer` takes over its line, as a callback of rounds. */
uint64_t node_round_answer(void *node, struct peer_id peer);
/** NaN: nobody was chosen by it. */
double node_odds(const struct node *node, struct peer_id peer);

/* node/rounds/overdue.c: rounds that pass this peer by */
/** Rounds of the swarm, since this peer began, that it took no part in; 0 where rounds are not
 *  numbered in common (pairs, pushes). */
uint64_t node_overdue_missed(const struct node *node);
/** With each report: say so if there was no round for long, and why. */
void node_overdue_look(struct node *node);
/** Before it leaves: the result says so if there was no round at all although there could have
 * been. */
void node_overdue_at_goal(struct node *node);

/* node/rounds/outcome.c: what became of pair rounds, through a common neighbour */
/** A message of that kind, which is then used up. */
bool node_outcome_on_message(struct node *node, struct peer_id from, const struct message *message);

/* status.c */
void node_count_report(struct node *node, uint64_t now_ns);

#endif
