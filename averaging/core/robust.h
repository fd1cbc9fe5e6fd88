/*
 * robust: how far from our own values a neighbour's may be before they are not mixed in, or only a
 * part of the way. What is usual is learned from what comes: the median of the latest distance of
 * each of up to ROBUST_PEERS peers, so that one peer counts once, however often it speaks, and
 * fewer than half of them cannot move it far.
 *
 *   gate  Always on. A chunk farther than 10 times the usual distance, and than 1.5 times the
 *         largest norm our own has had, is refused, and with it its round or its sender's part in
 *         it. Before anything is known: than 15 times the norm. An unrelated model of the same size
 *         is sqrt(2) norms away, so whoever was alone for a while can come back; ours with its
 *         signs turned is 2. In a chunk of few values, as the last one may be, chance makes more of
 *         the sqrt(2), so there it is sqrt(2) + 3 / sqrt(values), up to 1.9.
 *
 *   trackers  Of gradient tracking, behind the model in the plane. Refused if their own norm is
 *         above 10 times that of our largest chunk of a fresh gradient, of which 1/1024 is
 *         forgotten each round. Where peers' data are unlike, gradients differ by more than models
 *         do, and where one has next to nothing another may have much; but neither our tracker nor
 *         what is usual tells how much, as both hold what others sent before.
 *
 *   clip  --robust clip. What is farther than the radius, 1.25 times the usual distance, counts as
 * if it were on the sphere around us (self-centred clipping, ClippedGossip: He, Karimireddy, Jaggi
 * 2022, arXiv:2202.01545). What one gives into a group's mean, or pushes, counts the less the
 * farther it is, k radii away as if a k-th of one away, as in redescending estimators: one radius
 * in the same direction each round adds up, and where data are unlike a radius is long. To whoever
 * was alone all others are far, and so usual. The two ends of a pair or an edge use the smaller of
 * their radii for the whole plane, so that they move by opposite amounts; whoever was alone would
 * not come back if that shrank, too. Before anything is known the gate is that of
 * unrelated models; groups take a quarter of the norm for radius, pairs and edges only measure: one
 * round with a liar that is let in whole leaves its neighbours so far from all others that these
 * clip each other from then on, and two swarms are what clipping keeps.
 * Their radius is 1/512 of our norm at least, no more than bf16 rounds by: both ends go by the
 * smaller one, so peers that have come to be equal, as when rates are nearly 0, would else clip one
 * that was away to nothing for ever. In groups it goes by its own radius, and comes.
 * A round that comes later than usual, maybe as some were missed, has as many times the radius.
 * At the goal nothing is learned any more, as those who stand still are no measure for who comes
 * with steps; what means may move us by is then used up by what they moved us by, and comes back
 * with time, so that rounds without steps, however many, do not add up.
 * Means that owners of parts return are nearer to us than members are, and alike: their usual
 * distance is learned apart, and the radius is 2 times that, however far they are. Honest means are
 * almost never beyond it, so members agree to the bit as a rule; at 4 times a liar's parts were
 * seen to lead the usual distance ever farther.
 *
 * Pure; one thread at a time.
 */
#ifndef GRAPEVINE_AVERAGING_CORE_ROBUST_H
#define GRAPEVINE_AVERAGING_CORE_ROBUST_H

#include "base/peer_id.h"
#include "base/rc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ROBUST_PEERS = 16 };

/* Distances seen lately, one a peer. All zero: nothing yet. */
struct robust_history {
    uint32_t tags[ROBUST_PEERS]; /* of peer ids; two that share one share an entry */
    float distances[ROBUST_PEERS];
    uint8_t count, next, seen;
};

/** `distance`: finite, >= 0; others are left out. */
void robust_note(struct robust_history *history, struct peer_id peer, float distance);
/** Three peers, or eight times the same few: enough to go by. */
bool robust_is_learned(const struct robust_history *history);
/** Of the entries, the lower one of two in the middle; 0 of none. */
float robust_median(const struct robust_history *history);
/** Clip radius; 0: none is known yet. */
float robust_radius(const struct robust_history *history);

/** What an end that clips tells the other: its radius, `near` at least, and before it knows one
 * that nothing is to be taken yet: then a round only measures. > 0. */
float robust_radius_told(const struct robust_history *history, float near);
/** The one that both ends of a pair or an edge go by; 0: neither clips. */
float robust_smaller_radius(float a, float b);
/** What a radius leaves of a step over a distance of `squared`, in [0, 1]; 1 of radius 0. */
float robust_scale(float radius, double squared);
/** A scale that was said is the one measured here, but for the order of sums. */
bool robust_scale_agrees(float said, float measured);

/** sqrt(sum (a_i - b_i)^2), double inside; b NULL: of zeros. */
float robust_distance(const float *a, const float *b, size_t count);
/** out = weight * (in - own), `out` being none of the others; returns the square of their distance.
 *  `own` is finite; then the result is, too, if and only if all of `in` is. `streams`: `out` passes
 *  the cache by, see base/stream.h. */
double robust_apart(const float *in, const float *own, size_t count, float weight, float *out,
                    bool streams);
/** to: what `in` becomes when clipped to `radius` around own, at `distance` from it; inside, `to`
 * is left alone. `to` may be `in`. */
void robust_clip(const float *own, const float *in, size_t count, float distance, float radius,
                 float *to);

/* The gate of a plane, with a history for each chunk. */
struct robust;

struct robust_chunk {
    struct peer_id from;
    uint32_t chunk;
    const float *own; /* [count] what we told the others */
    float *in;        /* [count] finite; clipped in place, unless there is `to` */
    float *to;        /* [count] what it is when clipped; NULL: in place */
    size_t count;
    bool is_mean;  /* what the owner of its part returned */
    bool may_clip; /* false: where both ends agree on a radius for the plane */
};

/** clips: --robust clip. NULL: no memory. */
struct robust *robust_create(uint32_t chunks, bool clips);
void robust_destroy(struct robust *robust);
/** The plane holds `model` values of the model, and behind them a tracker of gradients. */
void robust_set_trackers(struct robust *robust, size_t model);
/** The largest norm of a chunk of `values`, of which the first is number `first` of the plane. */
float robust_largest_chunk(const float *values, size_t first, size_t count);
/** Of our own latest gradient, once a round: what trackers are held against. */
void robust_note_gradient(struct robust *robust, float largest);
/** A round begins, so long after the one before that counted; 0: there was none. `is_last`: we take
 *  no more steps. */
void robust_begin(struct robust *robust, uint64_t since_ns, bool is_last);
struct robust_verdict {
    float distance;   /* before clipping */
    bool was_clipped; /* then `to`, or `in`, is what counts */
};

/** So far apart are models that are as good as the same: 1/512 of the largest norm that ours has
 * had. */
float robust_near(const struct robust *robust);
/** RC_LIMIT: refuse it. Notes the distance either way. */
MUST_USE enum rc robust_check(struct robust *robust, const struct robust_chunk *chunk,
                              struct robust_verdict *verdict);
/** A mean that we are about to return, is no farther from ours than we would let it be if another
 *  returned it. */
void robust_hold(struct robust *robust, struct robust_chunk *mean);
/** The same of a distance already measured. */
MUST_USE enum rc robust_judge(struct robust *robust, const struct robust_chunk *chunk,
                              float distance, struct robust_verdict *verdict);

#endif
