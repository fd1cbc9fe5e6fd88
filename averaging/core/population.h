/*
 * population: population-based training (Jaderberg et al. 2017, arXiv:1711.09846) as one member
 * sees it, without a coordinator. Each trains with rates of its own. At equal distances of steps it
 * scores its model on samples that all members keep apart, and meets one other, drawn at random: if
 * that one is clearly better, its model, optimizer state and rates are copied (exploit), and the
 * rates are then changed (explore): each times 0.8 or 1.2, or drawn anew from where it began.
 *
 * The paper names three ways to say "clearly better". This is the binary tournament, by a margin:
 * it needs two scores and nothing else. Truncation needs the ranks of all, which no member here
 * knows; Welch's test needs ten scores of each before the first copy, and takes them to scatter
 * around one value, while those of models in training fall. What a test is for, that noise is no
 * reason to copy, has other grounds here: both were scored on the same samples, and smoothed.
 *
 * A score is a loss: lower is better. It is the word of who says it, so a copy is taken only when
 * its own score, measured here, is better than ours (peer/node/models/population.c); who
 * gave a worse one is left alone, longer each time. Pure; any thread.
 */
#ifndef GRAPEVINE_AVERAGING_CORE_POPULATION_H
#define GRAPEVINE_AVERAGING_CORE_POPULATION_H

#include "base/hash.h"
#include "base/peer_id.h"
#include "base/rng.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { POPULATION_WATCHED_MAX = 64, POPULATION_DOUBLINGS_MAX = 8 };

/* What is explored; both may change between two steps. */
struct population_rates {
    double rate;  /* of learning, > 0, before its schedule */
    double decay; /* of weights, >= 0 */
};

struct population_settings {
    uint64_t every_steps; /* from score to score, > 0 */
    double margin;        /* another is better whose loss is below (1 - margin) of ours; [0, 1) */
    double spread;   /* rates begin at what was given, times 1/spread to spread, and are drawn anew
                        likewise around what was copied; >= 1: 1 is none */
    double resample; /* the probability that one is drawn anew after a copy, [0, 1] */
};

/* What a member says of its model. */
struct population_told {
    double loss;        /* smoothed */
    uint64_t step;      /* of the model, when it was scored */
    struct digest part; /* of the data, by whose samples; other ones cannot be compared */
    struct population_rates rates;
    uint64_t line; /* who has it copied from whom, to the beginning, has the same */
};

/* Whose copies came to nothing, since the last one that did not. */
struct population_watched {
    struct peer_id id;
    uint32_t refused;
    uint64_t until; /* scores of ours: not before */
};

struct population {
    struct population_settings settings;
    struct population_rates given; /* by the user */
    struct population_told own;    /* loss NaN: not scored; infinite: it ran away */
    uint64_t scores;               /* of this peer, in this life */
    uint64_t copies, refused;      /* taken, over restarts; and not taken */
    struct population_watched watched[POPULATION_WATCHED_MAX];
    uint32_t watched_count;
    struct rng rng;
};

/** `given`: as above; `line`: this member's. The first rates are drawn. */
void population_init(struct population *population, const struct population_settings *settings,
                     struct population_rates given, uint64_t line, uint64_t seed);
/** Go on as before a restart. False: no sound ones. */
bool population_resume(struct population *population, struct population_rates rates, uint64_t line,
                       uint64_t copies);
/** The model was scored at `step`, on the samples of `part`. Not finite: it ran away. */
void population_score(struct population *population, double loss, uint64_t step,
                      struct digest part);
/** Steps to the next score, from `step` on; 0: now. */
uint64_t population_steps_left(const struct population *population, uint64_t step);
/** Both have been scored at such steps that the tournament can be held. */
bool population_is_comparable(const struct population *population,
                              const struct population_told *other);
/** ...and the other one is to be copied. */
bool population_prefers(const struct population *population, const struct population_told *other);
/** What it gave is not taken, as it is not better than ours: it is of loss `loss` here, NaN: none
 *  came. If that is worse than was `told`, it is left alone for 4, 16, 64... scores; 64 at most
 *  where none came, as who is asked by many is busy. True: so it is. */
bool population_refuse(struct population *population, struct peer_id from,
                       const struct population_told *told, double loss);
bool population_is_watched(const struct population *population, struct peer_id from);
/** Its model was taken: its rates are ours, as far as they are in bounds, and are explored. `loss`:
 *  as measured here, at `step`. */
void population_take(struct population *population, struct peer_id from,
                     const struct population_told *told, double loss, uint64_t step);
/** The loss is no number any more, and the last good model is back: with half of the rate. Whoever
 *  is not lost is better. */
void population_ran_away(struct population *population);
/** A step or a count of samples that another says of its model: no less than this peer's, so that
 *  schedules and goals never go back, and no more than `slack` beyond that and the `median` of what
 *  others than that one say, UINT64_MAX: there are no others. */
uint64_t population_bound_count(uint64_t said, uint64_t own, uint64_t median, uint64_t slack);

#endif
