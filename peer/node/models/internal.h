/* models_internal: what the files share that give, fetch, judge and choose models. Nobody else
 * includes it. */
#ifndef GRAPEVINE_PEER_NODE_MODELS_INTERNAL_H
#define GRAPEVINE_PEER_NODE_MODELS_INTERNAL_H

#include "averaging/core/population.h"
#include "peer/download/donor.h"
#include "peer/download/joiner.h"
#include "peer/download/sketch.h"
#include "peer/node/internal.h"

enum {
    MODELS_SKETCHES_MAX = 8, /* that wait to be answered */
    MODELS_ASKED_MAX = 8     /* about one download */
};

/* A snapshot for joiners on its way: copied in the training lane, hashed in the store lane. */
struct models_donation {
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
struct models_sketching {
    struct {
        struct peer_id from;
        uint64_t seed;
    } asks[MODELS_SKETCHES_MAX];
    uint32_t count;
    struct sketch_answer answer;
};

/* Of all models that members hold, the one to download: of those with its lineage, who says less
 * does not have it. */
struct models_wanted {
    struct digest lineage;
    uint64_t samples_least, step_least;
};

enum models_chosen { CHOSEN_OURS, CHOSEN_OTHER, CHOSEN_LATER };

/* Which model wins: node/models/choice.c. */
struct models_choice {
    struct digest by;          /* more hold this one ... */
    uint64_t since_ns;         /* ... since then; 0: none is held by more */
    uint64_t heard_ns;         /* when somebody was heard first */
    uint64_t told_ns, stay_ns; /* about those with another; not before: give ours up again */
    uint32_t given_up;         /* times it was */
    bool has_taken;            /* one of others, in this life */
};

/* What neighbours say of their models, taken together: it is asked for after every event, and
 * changes when somebody says something or goes, or may be asked again. All zero: not known. */
struct models_said {
    uint64_t until_ns;      /* it is so, as far as time goes */
    struct digest lineage;  /* of ours */
    uint32_t heard, unlike; /* who said something; who offers another lineage */
    uint64_t samples_most;  /* behind a model of our lineage */
    uint64_t step_most;     /* of one, also when it was first heard of */
};

/* What others say of the model that is being downloaded. */
struct models_check {
    struct peer_id donor; /* whose listing it is about */
    uint32_t lease;
    uint64_t seed;
    uint64_t round, floor; /* of the listing; no honest one was of an older round then */
    uint64_t asked_ns;     /* the latest question */
    uint64_t complete_ns;  /* all buckets were here; 0: not yet */
    struct peer_id asked_of[MODELS_ASKED_MAX]; /* those who answered come first */
    struct sketch_answer answers[SKETCH_ANSWERS_MAX];
    uint32_t asked, answered;
    uint32_t overdue; /* of those asked, who take too long */
};

/* The download that is being taken over, as all of it was when the job began: the lane reads this,
 * while answers may still come in on the loop. */
struct models_taking {
    struct models_check check;
    uint32_t others;       /* that could confirm it */
    uint32_t agreed_least; /* must */
    uint64_t step, samples, round;
    bool is_mixed;       /* of several donors' models */
    bool keeps;          /* what is given up is written down first */
    bool has_kept;       /* it was */
    bool leaves_moments; /* the donor's are out of all proportion */
    bool is_forged;      /* its input is not normalised as the lineage says, or by one alone */
    struct sketch_opinion opinion;
};

/* What a neighbour told of its own data. */
struct models_measured {
    struct peer_id id;
    uint64_t samples;
    float *values; /* [2][channels]; owned */
};

/* The normalisation of the input, until the first step: node/models/input.c. */
struct models_input {
    size_t channels;           /* 0: it is nothing that is agreed on */
    float *initial, *assigned; /* whole sections: of this peer's data alone, and the job's */
    float *wanted;             /* by all that told */
    struct models_measured told[LINKS_MAX];
    uint32_t told_count;
    bool is_changed;          /* `told` is, since it was merged */
    bool is_due;              /* `wanted` is to be assigned */
    bool is_over;             /* it stays as it is */
    uint64_t unlike_ns;       /* since then members hold another model than ours; 0: none does */
    uint64_t since_ns;        /* ... though enough have told; 0: not yet */
    struct digest parameters; /* of the initial ones */
    bool has_parameters, has_initial;
};

/* Population-based training: node/models/population.c. */
struct models_population {
    struct population machine;
    bool has_rival, is_copying;
    struct peer_id rival; /* met since the last score */
    /* A copy: from whom, what it said, what has come, and for how many scores nothing more has. */
    struct peer_id from;
    struct population_told told;
    uint64_t held_bytes;
    uint32_t idle_scores, patience;
    /* In the job that takes it. */
    uint64_t step, samples;
    double ours, theirs; /* losses as measured here; NaN: not */
    bool leaves_moments, is_replacing;
    bool is_unlike_told;
};

/* Of a keeper: node/models/keeper.c. */
struct models_following {
    uint64_t begun_ns, took_ns; /* the latest download */
    uint64_t next_ns;           /* not before */
    bool takes_last, has_last;  /* it is, or was, of one who has nothing to add to it */
};

struct models {
    struct joiner *joiner;
    struct donor *donor;
    struct ration visits; /* requests of all who are no members */
    uint64_t retry_ns;    /* not before: begin a download */
    uint64_t answered_ns; /* when somebody was last there, or something came */
    struct models_choice choice;
    struct models_said said;
    struct models_wanted wanted; /* LOADING: what was asked for */
    bool gave_way;               /* LOADING: our own model is good enough to go back to */
    uint32_t doubts;             /* downloads refused in a row, for lack of agreement */
    uint32_t load_failures;      /* of giving way, in a row */
    struct models_following following;
    uint64_t hand_over_ns; /* at the goal, since then; 0: nothing is handed over */
    uint64_t gather_ns;    /* since when there are donors, for a download from several */
    uint64_t catch_up_ns;  /* how long the last download took; 0: none yet */
    uint32_t catch_ups;
    struct models_donation donation;
    struct models_sketching sketching;
    struct models_check check;
    struct models_taking taking;
    struct models_input input;
    struct models_population population;
    uint64_t told_ns, told_bytes; /* of a download, to people */
    uint64_t progress_due_ns;     /* neighbours hear how far we are */
};

/* models.c */
/** A download is complete, and neither is newer to be had nor more to be heard about it. */
bool models_is_ready(struct node *node);
/** What was downloaded is not the swarm's, or nobody says that it is; the next donor is asked. */
void models_refuse(struct node *node, bool is_lie);
/** Nothing is downloaded for now: training goes on with what we have. */
void models_put_off(struct node *node);

/* input.c: how the input is normalised */
MUST_USE enum rc models_input_create(struct node *node);
void models_input_destroy(struct node *node);
/** This peer's own numbers, if they are still to be told. */
void models_input_fill(const struct node *node, struct message_progress *progress);
void models_input_hear(struct node *node, struct peer_id from,
                       const struct message_progress *progress);
void models_input_forget(struct node *node, struct peer_id peer);
void models_input_tick(struct node *node, uint64_t now_ns);
/** It has the model of its own data, and no step was taken with it. */
bool models_input_is_open(const struct node *node);
/** Likewise, or the initial model is nobody else's: it may still be given up for another. */
bool models_are_open(const struct node *node);
/** ...and waits for what others tell of theirs, rather than take a model that is there. */
bool models_input_is_agreeing(const struct node *node);
/** Another one is to be assigned. */
bool models_input_is_due(const struct node *node);
/** In the lane: assign what is due, and say what the model is known by, of its initial parameters.
 */
MUST_USE enum rc models_input_run(struct node *node, struct digest *lineage);
void models_input_prepare(struct node *node);
/** Before a download is taken over: does its normalisation belong to the lineage, and could it be a
 *  merge of what this peer was told? Otherwise `taking.is_forged` is set. */
void models_input_judge(struct node *node);
/** Enough have told of their data for what one alone says to count for nothing. */
bool models_input_doubts(const struct node *node);
/** A download was taken over. */
void models_input_taken(struct node *node);

/* population.c */
MUST_USE enum rc models_population_create(struct node *node);
void models_population_hear(struct node *node, struct peer_id from,
                            const struct message_score *score);
void models_population_tell(struct node *node, const struct peer_id *to); /* NULL: to all */
/** A download is a copy of another member's model, and it was seen to; false: it is none. */
bool models_population_moved(struct node *node);
bool models_population_copies(const struct node *node);
void models_population_tick(struct node *node);

/* choice.c: which model wins */
/** Neighbours that offer another lineage than ours. */
uint32_t models_unlike(const struct node *node);
/** How many others offer this lineage. */
uint32_t models_holders(const struct node *node, struct digest lineage);
enum models_chosen models_choose(struct node *node, struct models_wanted *wanted);
/** While a model is downloaded: members that were met since speak against it. */
bool models_chose_wrong(struct node *node);
/** A download was taken over. */
void models_chose(struct node *node);
/** Is the model just begun too far from most? Anybody can say that it is ahead and that our values
 * are too far from its own: two must, more than there are with whom rounds went well; or all. */
bool models_most_are_far(const struct node *node);
uint64_t models_choice_next_ns(const struct node *node);
/** Neighbours that have said which model they hold. */
uint32_t models_heard(const struct node *node);
/** A neighbour said something, is avoided, or is gone: what they say together is no longer known.
 */
void models_said_changed(struct node *node);
/** The lower one; sorts the items. */
uint64_t models_median(uint64_t *items, size_t count);

/* keeper.c: who keeps the model and does not train */
/** Of a keeper, which has the model as it was some time ago: the others' is to be fetched once it
 *  has come to this step. UINT64_MAX: not now. */
uint64_t models_follow_least(const struct node *node);
/** A download begins; it was taken. */
void models_follow(struct node *node);
void models_followed(struct node *node);
/** Nothing more comes of this peer's model: it is at its goal, or it is a keeper's and of such. */
bool models_are_last(const struct node *node);

/* donor.c: snapshots and sketches for others */
/** The model was replaced at a step border: what rounds agreed on before is not of it. */
void models_forget_agreed(struct node *node);
/** A download is being taken over: what came of the donor's rule is for ours. */
void models_adopt_rule(struct node *node);
void models_donation_deinit(struct node *node);
void models_on_sketch_req(struct node *node, struct peer_id from,
                          const struct message_sketch_req *request);

/* copy.c: in the training lane */
MUST_USE enum rc models_copy(struct models_donation *donation);
void models_sketch(struct border_job *job); /* for the one asked first */

/* check.c: does the donor lie, and how far is the download */
bool models_holds_wanted(const struct neighbour *neighbour, const struct models_wanted *wanted);
/** ...and is to be asked for it: who keeps the model has it as it was some time ago, so it is asked
 *  where nobody who trains has it. */
bool models_gives_wanted(const struct node *node, const struct neighbour *neighbour,
                         const struct models_wanted *wanted);
/** The group round that members with this model are at, as they said last; 0: none. */
uint64_t models_round_now(const struct node *node, struct digest lineage);
void models_on_sketch(struct node *node, struct peer_id from, const struct message_sketch *message);
/** Complete; and answers are on their way that may decide. */
bool models_check_is_pending(struct node *node);
/** It is about to be taken over: what the job needs to know, into `taking`. */
void models_check_begin(struct node *node);
MUST_USE enum rc models_check_run(struct node *node); /* in the training lane; RC_AUTH: refused */
void models_check_told(struct node *node);
void models_check_tick(struct node *node, uint64_t now_ns);
uint64_t models_check_next_ns(const struct node *node);

#endif
