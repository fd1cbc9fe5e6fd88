/*
 * node_model: what the files of a node share that give, fetch, judge and choose models; part of
 * internal.h, which they include.
 */
#ifndef GRAPEVINE_PEER_NODE_MODEL_H
#define GRAPEVINE_PEER_NODE_MODEL_H

#include "peer/download/donor.h"
#include "peer/download/joiner.h"
#include "peer/download/sketch.h"
#include "peer/round/round.h"

struct neighbour;
struct node;

enum {
    NODE_SKETCHES_MAX = 8,   /* that wait to be answered */
    NODE_CHECK_ASKED_MAX = 8 /* about one download */
};

/* A snapshot for joiners on its way: copied in the training lane, hashed in the store lane. */
struct node_donation {
    struct job job; /* first */
    struct node *node;
    bool is_running;
    struct donor_snapshot snapshot;
    const struct donor_snapshot *base;
    float *agreed; /* parameters as a group round left them, or NULL */
    uint64_t agreed_round;
    const float *rule[RULE_STATE_MAX]; /* what the rule keeps, which stands still for the copy */
    size_t rule_count;
    enum rc rc;
    uint32_t turn; /* whose it is to be served first */
};

/* Sketches that others asked for, oldest first, and the answer to that. */
struct node_sketching {
    struct {
        struct peer_id from;
        uint64_t seed;
    } asks[NODE_SKETCHES_MAX];
    uint32_t count;
    struct sketch_answer answer;
};

/* Of all models that members hold, the one to download: of those with its lineage, who says less
 * does not have it. */
struct node_wanted {
    struct digest lineage;
    uint64_t samples_least, step_least;
};

enum node_chosen { CHOSEN_OURS, CHOSEN_OTHER, CHOSEN_LATER };

/* Which model wins: node/model/choice.c. */
struct node_choice {
    struct digest by;          /* more hold this one ... */
    uint64_t since_ns;         /* ... since then; 0: none is held by more */
    uint64_t heard_ns;         /* when somebody was heard first */
    uint64_t told_ns, stay_ns; /* about those with another; not before: give ours up again */
    uint32_t given_up;         /* times it was */
    bool has_taken;            /* one of others, in this life */
};

/* What others say of the model that is being downloaded. */
struct node_check {
    struct peer_id donor; /* whose listing it is about */
    uint32_t lease;
    uint64_t seed;
    uint64_t round, floor; /* of the listing; no honest one was of an older round then */
    uint64_t asked_ns;     /* the latest question */
    uint64_t complete_ns;  /* all buckets were here; 0: not yet */
    struct peer_id asked_of[NODE_CHECK_ASKED_MAX]; /* those who answered come first */
    struct sketch_answer answers[SKETCH_ANSWERS_MAX];
    uint32_t asked, answered;
    uint32_t overdue; /* of those asked, who take too long */
};

/* The download that is being taken over, as all of it was when the job began: the lane reads this,
 * while answers may still come in on the loop. */
struct node_taking {
    struct node_check check;
    uint32_t others;       /* that could confirm it */
    uint32_t agreed_least; /* must */
    uint64_t step, samples, round;
    bool is_mixed;       /* of several donors' models */
    bool keeps;          /* what is given up is written down first */
    bool has_kept;       /* it was */
    bool leaves_moments; /* the donor's are out of all proportion */
    struct sketch_opinion opinion;
};

/* node/model/model.c: downloads, and what is told of ours */
/** What a download asks for, and how much of it at a time. */
void node_model_prepare(struct node *node);
void node_send_progress(struct node *node, const struct peer_id *to); /* NULL: to all */
void node_decide(struct node *node);
void node_on_model_message(struct node *node, struct peer_id from, const struct message *message);
void node_on_bucket(struct node *node, struct peer_id from, const struct inner_header *header,
                    const uint8_t *body, size_t count);
void node_model_tick(struct node *node, uint64_t now_ns);
uint64_t node_model_next_ns(const struct node *node);
/** A download is complete, and neither is newer to be had nor more to be heard about it. */
bool node_model_is_ready(struct node *node);
/** What was downloaded is not the swarm's, or nobody says that it is; the next donor is asked. */
void node_refuse_model(struct node *node, bool is_lie);
/** Nothing is downloaded for now: training goes on with what we have. */
void node_put_off_model(struct node *node);

/* node/model/choice.c: which model wins */
enum node_chosen node_choose(struct node *node, struct node_wanted *wanted);
/** While a model is downloaded: members that were met since speak against it. */
bool node_chose_wrong(struct node *node);
/** A download was taken over. */
void node_chose(struct node *node);
uint64_t node_choice_next_ns(const struct node *node);
/** Neighbours that have said which model they hold. */
uint32_t node_heard(const struct node *node);
/** The lower one; sorts the items. */
uint64_t node_median(uint64_t *items, size_t count);
/** What counts as one host of an address: see struct neighbour. */
uint64_t node_place(const char *address);

/* node/model/donor.c: snapshots and sketches for others */
/** The model was replaced at a step border: what rounds agreed on before is not of it. */
void node_donation_forget(struct node *node);
/** A download is being taken over: what came of the donor's rule is for ours. */
void node_adopt_rule(struct node *node);
void node_donation_deinit(struct node *node);
/** Send `to` the buckets it asked for, as far as there is room. */
void node_donate(struct node *node, struct peer_id to);
void node_donate_all(struct node *node);
void node_on_sketch_req(struct node *node, struct peer_id from,
                        const struct message_sketch_req *request);

/* node/model/copy.c: in the training lane */
MUST_USE enum rc node_donation_copy(struct node_donation *donation);
MUST_USE enum rc node_sketch_copy(struct node *node); /* for the one asked first */

/* node/model/check.c: does the donor lie, and how far is the download */
/** It has a model of `lineage`, and gives it, as far as it says. */
bool neighbour_holds(const struct neighbour *neighbour, struct digest lineage);
bool node_holds(const struct neighbour *neighbour, const struct node_wanted *wanted);
void node_hear_progress(struct node *node, struct neighbour *neighbour,
                        const struct message_progress *progress);
/** The group round that members with this model are at, as they said last; 0: none. */
uint64_t node_round_now(const struct node *node, struct digest lineage);
/** The round that at least half of our neighbours with our model say they have come to; 0: none. */
uint64_t node_round_believed(const struct node *node);
void node_on_sketch(struct node *node, struct peer_id from, const struct message_sketch *message);
/** Complete; and answers are on their way that may decide. */
bool node_check_is_pending(struct node *node);
/** It is about to be taken over: what the job needs to know, into node->taking. */
void node_check_begin(struct node *node);
MUST_USE enum rc node_check_run(struct node *node); /* in the training lane; RC_AUTH: refused */
void node_check_told(struct node *node);
void node_check_tick(struct node *node, uint64_t now_ns);
uint64_t node_check_next_ns(const struct node *node);

#endif
