/* strategy_methods: the table of published methods; private to averaging/strategy. */
#ifndef GRAPEVINE_AVERAGING_STRATEGY_METHODS_H
#define GRAPEVINE_AVERAGING_STRATEGY_METHODS_H

#include "averaging/strategy/strategy.h"

enum { METHOD_KEYS_MAX = 7 };
/* A method that is sized: complete up to so many peers, groups of so many beyond. */
enum { COMPLETE_MAX = 16, GROUP_DEFAULT = 8 };

enum setting_kind {
    SETTING_EVERY,     /* steps between rounds */
    SETTING_PUSH,      /* elastic: steps between rounds, where pulls have a period of their own */
    SETTING_PULL,      /* elastic: of the pulls */
    SETTING_SWITCH,    /* steps before which every step has a round */
    SETTING_BLOCK,     /* steps of which the loss says what the period is */
    SETTING_LEAD,      /* steps that nobody is ahead by */
    SETTING_RATE,      /* of the rule */
    SETTING_MOMENTUM,  /* of the rule */
    SETTING_QUASI,     /* momentum of the mixed model's movement */
    SETTING_DELAY,     /* of the rule: rounds from one that moves momentum to the next */
    SETTING_DECAY,     /* of what error feedback keeps */
    SETTING_SHARE,     /* of the rule, in place of a rate */
    SETTING_WAY,       /* of the rule: how much of the way to the others */
    SETTING_ORDER,     /* adapt, then combine (atc), or the other way round (cta) */
    SETTING_ALPHA,     /* of springs */
    SETTING_BETA,      /* the same, as a share of the graph's weights */
    SETTING_BESIDE,    /* steps beside a round; 0: it is waited for */
    SETTING_FRAGMENTS, /* a round carries one of */
    SETTING_CARRIED,   /* the share of the values that a round carries */
    SETTING_FIRST,     /* rounds from one that carries first moments to the next */
    SETTING_SECOND,    /* the same of second moments */
    SETTING_QUORUM,    /* members without whom no round begins */
    SETTING_LOCAL,     /* what the steps beside a round count of what they would */
    SETTING_STALE,     /* steps between snapshot and result */
    SETTING_CHANCE,    /* of a round */
    SETTING_BUDGET,    /* the share of a graph's matchings that a round has */
    SETTING_MARGIN,    /* population: another is better by that */
    SETTING_SPREAD,    /* population: rates begin at what was given, times 1/X to X */
    SETTING_RESAMPLE,  /* population: the probability that a rate is drawn anew */
    SETTING_WEIGHT,    /* of others' answers in the loss */
    SETTING_SAMPLES,   /* asked about */
    SETTING_PART,      /* of the training data that is asked about */
    SETTING_BURN,      /* steps before which nothing is learned from answers */
    SETTING_COMPRESS   /* steps after a round in which something is */
};

struct setting {
    const char *key; /* NULL ends a method's list */
    enum setting_kind kind;
    double min, max; /* of a number that is not a count of steps */
};

struct method {
    const char *name;
    bool is_averaging, is_population;
    bool waits, overlaps;
    float beta; /* of edges */
    uint32_t fragments, slots;
    uint32_t first_rounds, second_rounds;
    bool blends;
    bool joins_others;
    uint32_t quorum;
    const struct aggregate_ops *aggregate; /* in place of the mean, unless --robust says another */
    float local_share;
    bool tracks;
    float quasi_global;
    const char *optimizer; /* that goes with it, if none is given; or NULL */
    uint64_t every_steps, block_steps, switch_steps, stale_steps;
    bool is_bounded;
    uint64_t lead_steps;
    double chance, budget;
    bool steps_by_weight, at_end;
    bool mixes_answers;
    struct strategy_answers answers;
    const struct exchange_ops *exchange;
    const struct codec *codec; /* NULL: f32, or */
    const char *codec_name;
    float feedback_decay; /* 0: it has no error feedback */
    const struct rule_ops *rule;
    struct rule_settings rule_settings;
    struct topology topology;
    struct setting settings[METHOD_KEYS_MAX];
};

/** Fills in `text`. */
void strategy_describe(struct strategy *strategy);
/** Fills in `codec_text`. */
void strategy_name_codec(struct strategy *strategy);
/** NULL past the end. */
const struct method *method_at(size_t index);
/** The rules of `--rule`, with the settings they have without a method; NULL past the end. */
const struct rule_ops *rule_at(size_t index, struct rule_settings *settings);

#endif
