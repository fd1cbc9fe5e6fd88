/*
 * node: one complete peer, over any env and any learner. peer/session/command_peer.c gives it
 * sockets and a real replica, the simulator gives it a virtual world and a toy.
 *
 *  JOINING --alone, or a model agreed--> TRAINING --goal or stop--> LEAVING --> ENDED
 *     |  ^                                 |   ^
 *     v  '--no donor left--  LOADING <-----'   |   (an unrelated, smaller model gives way)
 *     '--------------------->   '--complete----'
 *
 * Loop thread only.
 */
#ifndef GRAPEVINE_PEER_NODE_NODE_H
#define GRAPEVINE_PEER_NODE_NODE_H

#include "averaging/strategy/strategy.h"
#include "base/json.h"
#include "base/log.h"
#include "gossip/door/admission.h"
#include "gossip/membership/verified.h"
#include "gossip/reach/relay.h"
#include "gossip/signed/hello.h"
#include "gossip/signed/record.h"
#include "peer/env/env.h"
#include "peer/files/address_book.h"
#include "peer/files/checkpoint.h"
#include "replica/learners/learner.h"

struct node;

enum node_state { NODE_JOINING, NODE_LOADING, NODE_TRAINING, NODE_LEAVING, NODE_ENDED };

enum { NODE_ADDRESSES_MAX = 64 };

struct node_goal {  /* the first one reached ends the run; 0: not set */
    uint64_t steps; /* that this peer takes itself, over restarts */
    double epochs;  /* of this peer's share */
    uint64_t time_ns;
    double target_accuracy; /* share in [0, 1], on the fixed evaluation samples */
    double target_loss;
};

/* How the learning rate grows with the members n that averaged in the last round. */
enum rate_scaling { RATE_AS_GIVEN, RATE_SQRT, RATE_LINEAR };

struct node_options {
    const struct identity *identity; /* borrowed, as everything by pointer here */
    const struct swarm_secret *swarm;
    const struct strategy *strategy;
    const struct log *log;
    struct boot_id boot;
    uint64_t incarnation;
    const char *listen;    /* "host:port" */
    const char *advertise; /* what others should dial; NULL: what was bound */
    const char *host;      /* stands in for a wildcard address that was bound; NULL: not known */
    const char *const *bootstrap;
    size_t bootstrap_count;
    bool is_bootstrap_heard; /* on the local network: nobody's word, who does not answer ends
                                nothing */
    const char *const *book; /* addresses remembered from an earlier run */
    size_t book_count;
    char spec[HELLO_SPEC_MAX];   /* of the model, for messages */
    const char *classes;         /* of a table, as far as they are short; NULL or "": none */
    const struct json *settings; /* told to who asks: peer/session/settings.h; NULL: nothing */
    char site[SITE_BYTES];       /* where this peer is; all NUL: it does not say */
    const char *listen_else;     /* where `listen` cannot be had; NULL: that is an error */
    uint64_t seed;
    bool begins_unlike; /* its initial values are nobody else's, and no loss */
    bool has_program;   /* steps are those of another thread: each job of them wakes it up */
    bool is_keeper;     /* it takes no step and is in no round: it has what others made of the model
                           (node/models/choice.c), for who comes when they are gone */
    struct node_goal goal;
    enum rate_scaling rate_scaling;
    uint32_t batch;
    uint32_t start_with; /* no step before so many have one model, this one included; 0: none */
    uint64_t report_every_ns, checkpoint_every_ns, join_timeout_ns;
    uint64_t evaluate_samples; /* of a report; 0: none */
    bool evaluates_sparingly;  /* with so few reports that it takes 2 % of the time */
    bool evaluates_at_end;     /* on the full test set */
    uint64_t test_samples;     /* in it, for messages */
    bool keeps_files;
    double verify;           /* share of the training time, to repeat steps of others: verify.h */
    bool serves_predictions; /* to who asks by PROBE */
    bool serves_models;      /* also to who is no member, but could be one */
    struct audit *audit;     /* see peer/round/audit.h; NULL: nobody watches */
    size_t quick_bytes;      /* see struct links_options */
    bool is_clear;           /* see struct links_options: benchmarks only */
    uint64_t bytes_per_s;    /* that the user allows it, each way; 0: no limit */
    uint64_t relay_bytes_per_s; /* passed on for peers that cannot be dialled; 0: nothing */
    uint64_t step_cost_ns;      /* of modelled training */
    uint64_t evaluate_cost_ns;  /* the same of an evaluation */
    uint64_t step_ns;           /* at least so long a step takes, on a faster machine, too; 0: as it
                                   comes */
    checkpoint_model_fn model;  /* for model.safetensors; may be NULL */
    void *model_context;
    /* Where the data's own numbers normalise the input, SECTION_INPUT: [2][channels] means and
     * deviations of this peer's training samples, how many these are, and what the channels are
     * called, NULL: by number. NULL: there is nothing to agree on. `names_count`: how many
     * names there are, without numbers, too. */
    const float *measured;
    uint64_t measured_samples;
    const char *const *measured_names;
    uint32_t names_count;
    uint32_t tokens_a_sample;          /* of a text; 0: its data are none */
    const struct checkpoint *resume;   /* NULL: a fresh start */
    const struct admission *admission; /* may change in on_reload(); NULL: the swarm's key is all */
    uint64_t (*wall_s)(void);          /* time of day, for certificates; with `admission` */
    struct verified *verified;  /* see gossip/membership/verified.h: simulations; else NULL */
    const uint8_t *certificate; /* that we show; encoded */
    size_t certificate_bytes;   /* 0: none */
};

/* What --verify did. */
struct verify_counts {
    bool is_on;
    const char *why_not; /* nobody can check this peer, nor it others: a literal; NULL: it can be */
    uint32_t members, others; /* neighbours that can be checked, and that cannot */
    uint64_t equal, unlike;   /* intervals taken again: as was claimed, or not */
    uint64_t refused, missed; /* that were not shown: gone or busy; silent, or the link is lost */
    uint64_t unclear;         /* nothing can be said: what it takes is not here */
    double repeat_s, claim_s; /* of the training time */
};

/* One line of metrics.jsonl. Values that are not known are NaN. */
struct node_report {
    double t_s;
    const char *state;   /* in a word: of enum node_state, or "waiting" */
    uint32_t waits_for;  /* --start-with: so many more peers; 0: it does not wait */
    uint64_t own_steps;  /* taken by this peer itself, over restarts: what goals count */
    uint64_t goal_steps; /* of own_steps; 0: not known, or no such goal */
    double left_s;       /* to the goal, at the pace of the last steps; NaN: not known */
    uint64_t step, samples, round;
    double epoch, loss, accuracy, samples_per_s, consensus_distance;
    double tokens_per_s; /* of a text; NaN: it trains on none */
    uint32_t neighbours;
    uint64_t bytes_sent, bytes_received, rounds_ok, rounds_aborted;
    uint64_t rounds_missed; /* of the swarm, without this peer: groups and neighbours */
    uint64_t staleness;     /* steps since the last mixing */
    double evaluation_s;    /* of t_s, spent on evaluation */
    const char *last_abort_reason;
    bool is_population; /* --averaging pbt: what is trained with, and what became of copies */
    double rate, decay, score; /* the latter a loss; NaN: none yet */
    char line[20];             /* who has copied from whom, to the beginning, has the same */
    uint64_t copies, copies_refused;
    uint64_t period_steps; /* from round to round, where that follows the loss; 0: it does not */
    bool has_weight;       /* the method pushes; see exchange_counts */
    double weight, custody_weight;
    uint64_t shares_returned, shares_lost;
    struct round_guard guard; /* what --robust did */
    struct verify_counts verify;
};

/** What --verify did, as status and metrics.jsonl have it; nothing without. */
void node_report_verify(const struct node_report *report, struct json *json);
/** What --robust did, as status and metrics.jsonl have it. */
void node_report_guard(const struct node_report *report, struct json *json);
/** Likewise of a period that follows the loss; nothing with other methods. */
void node_report_period(const struct node_report *report, struct json *json);
/** Likewise of population-based training; nothing with other methods. */
void node_report_population(const struct node_report *report, struct json *json);

struct node_result {
    enum rc rc; /* RC_OK: goal reached or stopped on request */
    int signal; /* that stopped it, or 0 */
    bool is_goal_reached;
    bool never_averaged; /* at its goal, though it could have: `why` says more. With RC_OK */
    struct evaluation evaluation; /* full test set; samples 0 if not evaluated */
    struct node_report report;
    struct fault why; /* of rc != RC_OK, or never_averaged */
};

struct node_events {
    void *context;
    void (*on_listening)(void *context, const char *address);
    void (*on_report)(void *context, const struct node_report *report);
    /** SIGHUP: read again what the user has in files, as the lists behind `admission`. NULL: there
     *  is nothing. */
    void (*on_reload)(void *context);
    /** What node_ask_state() wanted: takes `bytes`, from mem_*. NULL: `why` it cannot be had. */
    void (*on_state)(void *context, uint8_t *bytes, size_t count, const struct fault *why);
    /** The node is done; stop the env, then destroy the node. */
    void (*on_ended)(void *context, const struct node_result *result);
};

/** Takes over the env's events. The learner stays the caller's. RC_IO with a reason if the address
 *  cannot be bound. */
MUST_USE enum rc node_create(struct env *env, struct learner *learner,
                             const struct node_options *options, const struct node_events *events,
                             struct node **node, struct fault *why);
void node_destroy(struct node *node);
/** Goodbye, last checkpoint, end. A second call gives up the checkpoint. */
void node_stop(struct node *node, int signal);
/** What a checkpoint would hold, at the next step border, by events.on_state(): no step is taken
 *  before. Never, where the node ends first. */
void node_ask_state(struct node *node);
/** Somebody of this swarm may be at `address`: worth a dial while this peer is alone. */
void node_meet(struct node *node, const char *address);

enum node_state node_state(const struct node *node);
const char *node_address(const struct node *node);
struct peer_id node_id(const struct node *node);
struct digest node_lineage(const struct node *node);
uint64_t node_step(const struct node *node);
/** Is the link to `peer` one through a relay? And what this peer relays for others. */
bool node_is_relayed(const struct node *node, struct peer_id peer);
void node_relay_view(const struct node *node, struct relay_view *view);
enum nat_class node_nat(const struct node *node); /* can others dial this peer? */
size_t node_neighbours(const struct node *node);  /* peers with an open link */
void node_report(const struct node *node, struct node_report *report);
/** What /status.json says (docs/network.md), of at most `members_max` members, SIZE_MAX: all;
 *  destroy with json_destroy(). */
struct json *node_status(const struct node *node, size_t members_max);
/** The same as text of at most `bytes_max`, of as many members as that allows; from mem_*, NULL
 * when out of memory. */
char *node_status_text(const struct node *node, size_t bytes_max);
/** What to remember: whom this peer knows now, and after them the addresses of `before`. */
void node_book(const struct node *node, const struct address_book *before,
               struct address_book *book);

#endif
