/*
 * strategy: a named point in pace x topology x exchange+codec x rule, with its published defaults.
 * `--averaging NAME:key=value,...` picks the point; --topology, --exchange, --codec, --rule and
 * --pace each override one coordinate.
 */
#ifndef GRAPEVINE_AVERAGING_STRATEGY_STRATEGY_H
#define GRAPEVINE_AVERAGING_STRATEGY_STRATEGY_H

#include "averaging/aggregate/aggregate.h"
#include "averaging/codec/codec.h"
#include "averaging/core/exchange.h"
#include "averaging/core/population.h"
#include "averaging/rule/rule.h"
#include "base/fault.h"
#include "gossip/overlay/topology.h"

/* What becomes of the optimizer's own buffers where rounds replace the model. */
enum moments {
    MOMENTS_KEEP,    /* each peer's stay as they are */
    MOMENTS_RESET,   /* zero after each round */
    MOMENTS_AVERAGE, /* they travel behind the model, and become means */
    MOMENTS_MASK     /* those of values of which nothing is left to be told are zero */
};

/* Rounds mix what members answer to a probe set, and each learns from the mean of the answers
 * (replica/learners/mutual.h): what of it is the learner's. */
struct strategy_answers {
    bool relabels;           /* they are labels of the own data, beside the true ones */
    float weight;            /* of what others say in the loss */
    uint64_t burn_steps;     /* before this step it is none */
    uint64_t compress_steps; /* so many steps after a round; 0: all */
    uint64_t samples;        /* asked about; 0: as many as the learner thinks right */
    float share;             /* of the training data, instead; 0: not said */
};

enum { STRATEGY_CODEC_TEXT = 48 };

struct strategy {
    const char *name;
    bool is_averaging;  /* false: `none`, and `pbt` */
    bool is_population; /* models are never averaged, but copied: averaging/core/population.h */
    struct population_settings population; /* of that; every_steps is below */
    uint64_t every_steps;                  /* pace: a round every so many optimizer steps (H) */
    uint64_t switch_steps;                 /* post-local: a round at every step before this one */
    uint64_t block_steps; /* the period follows the loss, from block to block of so many steps, and
                             every_steps is the first: averaging/strategy/period.h; 0: it stays */
    uint64_t pull_steps;  /* elastic: the model is pulled between rounds as well, at every so
                             manieth step after one; 0: it is not */
    bool waits;           /* no step is taken between a round's snapshot and its result */
    bool overlaps;        /* steps are, but none past the border at which the next round is due */
    bool is_bounded;      /* nobody begins a step that is more than `lead_steps` after the last of
                             the slowest neighbour: peer/node/rounds/lead.c */
    uint64_t lead_steps;
    bool joins_others;    /* group: what another proposes is joined after a few own steps: H is of
                             whoever is first */
    uint32_t quorum;      /* group: a round that fewer members join is not begun; 0: two do */
    bool at_end;          /* one round, when all have reached their goals; no pace */
    uint64_t stale_steps; /* steps are, but at most so many; 0: any number */
    double chance;        /* push, pair: a round is begun with this probability; 0: always */
    bool steps_by_weight; /* push: the learning rate is divided by the peer's weight */
    float alpha; /* of the springs of a graph's edges; 0: the graph's weights times `beta` */
    float beta;
    double budget; /* edges: of the graph's matchings so many are active in a round, as a share:
                      gossip/overlay/matching.h; 0: all edges are */
    enum moments moments;
    uint32_t first_rounds, second_rounds; /* of moments that are averaged: the optimizer's first
                                             buffer travels in every so manieth round, what is
                                             behind it likewise; 0: in each */
    bool mixes_answers;                   /* and no parameters: `answers` */
    struct strategy_answers answers;
    uint32_t fragments; /* a round carries one of so many (averaging/codec/mask.h); 0: all */
    uint32_t slots;     /* or one of so many values; 0: all */
    bool blends; /* what steps beside a round add counts `local_share`, what it says the rest */
    float local_share;  /* in [0, 1) */
    bool tracks;        /* a gradient tracker is mixed with the model: peer/node/lane/tracking.c */
    float quasi_global; /* momentum formed from how the mixed model moves, in (0, 1):
                           peer/node/lane/quasi_global.c; 0: there is none */
    const char *optimizer;    /* the learner's, if none is given; NULL: the model's */
    uint64_t every_ns;        /* pace: or every so long; 0: by steps */
    struct topology topology; /* as given; strategy_topology() says what to use */
    bool topology_is_default; /* not given: complete up to 16 peers, groups:8 beyond */
    const struct exchange_ops *exchange;
    struct codec codec;
    bool has_feedback; /* what travels are differences, and what the codec leaves out of them comes
                          later: averaging/codec/delta.h */
    float feedback_decay;                 /* of what is left out, each round */
    char codec_text[STRATEGY_CODEC_TEXT]; /* as --codec names all of this */
    const struct rule_ops *rule;
    struct rule_settings rule_settings;
    bool clips; /* how far away values are counts: --robust clip, or auto where the method can;
                   beside an aggregate, for the means that owners return */
    struct aggregate aggregate; /* --robust, else: in place of the mean. ops NULL: it is the mean */
    bool lacks_guard;           /* it cannot clip, or has too few neighbours: the start says so */
    enum schedule schedule;     /* group exchange: of the rounds it proposes */
    char text[1024]; /* all coordinates in words, printed at the start and stored with the run */
};

struct strategy_specs { /* NULL or "": not given */
    const char *averaging, *topology, *exchange, *codec, *rule, *pace, *robust, *moments;
};

/** RC_PARSE / RC_USAGE: the column, or the nearest known name. The methods, their settings and
 *  papers: docs/methods.md. */
MUST_USE enum rc strategy_parse(const struct strategy_specs *specs, struct strategy *strategy,
                                struct fault *why);
/** RC_USAGE: in a swarm of so many somebody would have more neighbours than rounds of neighbours
 * can have, and most would be left out. */
MUST_USE enum rc strategy_check_peers(const struct strategy *strategy, uint64_t peers,
                                      struct fault *why);
/** Does its rule take a step with a rate from an anchor, so that all need the same settings? */
bool strategy_steps(const struct strategy *strategy);
/** The most that a member may send of a chunk. */
size_t strategy_chunk_bytes(const struct strategy *strategy);
/** May sums of several members be encoded again on their way? Only then are schedules other than
 *  direct of use: not where a codec rounds to few levels, or each clips around its own values. */
bool strategy_may_relay(const struct strategy *strategy);
/** Steps are taken while a group forms, without end: who waits for the others loses nothing. */
bool strategy_is_patient(const struct strategy *strategy);
/** So many rounds carry the whole of the model. */
uint32_t strategy_cover(const struct strategy *strategy);
/** Do rounds carry unlike parts of the plane (averaging/codec/mask.h)? */
bool strategy_has_masks(const struct strategy *strategy);
/** Steps from one round to the next for a peer at `step`; 0: rounds go by time. */
uint64_t strategy_every(const struct strategy *strategy, uint64_t step);
/** The topology for a swarm of so many live members, this peer included: a pure function, so that
 *  peers with equal views agree. */
struct topology strategy_topology(const struct strategy *strategy, size_t members);
/** What peers must have in common to average, in words, WIRE_VERSION first: equal texts, and only
 * those, fit. `moments`: the optimizer whose buffers travel; NULL: none do. `cap`: 192 is always
 * enough. */
void strategy_method(const struct strategy *strategy, const char *moments, char *text, size_t cap);

#endif
