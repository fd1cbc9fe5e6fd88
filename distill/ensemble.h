/*
 * ensemble: one answer out of many models' logits. Members are absorbed one at a time and in any
 * order, so that a single extra model is in memory; what is kept is a few numbers per row and
 * class. Three ways to combine M members, all on the same sums:
 *
 *   mean    p = 1/M sum softmax(z_m / T)         arithmetic mean of probabilities
 *   logits  p = softmax(1/M sum z_m / T)         their normalised geometric mean
 *   vote    p = share of members whose argmax it is; ties by summed probability, then lowest class
 *
 * Members may weigh differently in `mean` and `logits`, in all rows or by how sure they are of
 * each: the sums are then weighted ones, divided by the sum of weights. In a vote each has one.
 *
 * In `mean` the `trim` largest and smallest values of each row and class can be left out (a trimmed
 * mean: Yin et al. 2018, arXiv:1803.01498), as many as leave one where fewer answered; what is left
 * is scaled to add up to 1. So up to `trim` liars among 2 trim + 1 members or more can move a value
 * only within what honest ones say of it. All weigh the same then.
 *
 * A row is what one softmax is over: a sample, or one step of a text. Models of real values have
 * the mean alone, of the values themselves.
 *
 * Per row the cross-entropy of `mean` and of `logits` is at most the mean of the members'
 * (Jensen; log-sum-exp is convex). Accuracy has no such guarantee. Any thread, one at a time.
 */
#ifndef GRAPEVINE_DISTILL_ENSEMBLE_H
#define GRAPEVINE_DISTILL_ENSEMBLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum vote { VOTE_MEAN, VOTE_LOGITS, VOTE_MAJORITY, VOTE_COUNT };

/** `mean`, `logits` or `vote`; false for anything else. */
bool vote_parse(const char *text, enum vote *vote);
const char *vote_name(enum vote vote);

struct ensemble_options {
    size_t rows;
    uint32_t classes;
    double temperature;     /* T above, > 0; probabilities for evaluation: 1 */
    bool wants[VOTE_COUNT]; /* memory is reserved for these only */
    bool is_real;           /* `classes` real values; only VOTE_MEAN is wanted */
    bool is_said;           /* probabilities come in place of logits; likewise */
    /* In each row a member weighs, on top of ensemble_weigh(), its confidence there: the
     * probability at temperature 1 of the class it decides for. */
    bool by_confidence;
    uint32_t trim; /* of VOTE_MEAN; above 0 members weigh the same */
};

/** Bytes that a row takes. */
size_t ensemble_row_bytes(const struct ensemble_options *options);

struct ensemble;

/** NULL only when out of memory. */
struct ensemble *ensemble_create(const struct ensemble_options *options);
void ensemble_destroy(struct ensemble *ensemble);
/** Forget all answers. */
void ensemble_clear(struct ensemble *ensemble);
/** What the next members weigh, > 0; 1 from the beginning on. */
void ensemble_weigh(struct ensemble *ensemble, double weight);
/** One member's logits [rows, classes] for the rows from `first` on. A row is averaged over the
 *  members that answered it. Logits are finite (the caller saw to it). */
void ensemble_absorb(struct ensemble *ensemble, size_t first, size_t rows, const float *logits);
/** Probabilities (or real values) [rows, classes] of the rows from `first` on, each of which has
 *  been absorbed at least once. `vote` was wanted. */
void ensemble_settle(const struct ensemble *ensemble, enum vote vote, size_t first, size_t rows,
                     float *probabilities);
/** The class the ensemble decides for. */
uint32_t ensemble_winner(const struct ensemble *ensemble, enum vote vote, size_t row);

/** softmax(logits / temperature) by rows, with the maximum subtracted first; may be in place. */
void ensemble_softmax(const float *logits, size_t rows, uint32_t classes, double temperature,
                      float *probabilities);

#endif
