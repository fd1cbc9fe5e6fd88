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
 *   clip  --robust clip. Beyond a radius, some times the usual distance, what comes loses weight
 * with the third power of its distance (robust_weight()), a redescending estimator: what it moves
 * us by falls to nothing, where at the radius it would be the same step in the same direction each
 * round, which adds up. To whoever was alone all others are far, and so usual: it comes to them by
 * what it takes, and they do not go to it.
 *
 *   Pairs and edges weigh the plane as a whole, each end by its own radius (self-centred, as in
 * ClippedGossip: He, Karimireddy, Jaggi 2022, arXiv:2202.01545), of 1.5 times the usual distance.
 * So while one of them clips the mean of the two does not stay where it was. What rules keep of
 * rounds must add up over all: of an edge that either end clips exact diffusion keeps nothing, as
 * it follows for ever what pulls one way, and a tracker what the smaller radius leaves.
 *
 *   Shares that are pushed are weighed chunk by chunk, by 1.25 times the usual distance. The radius
 * of planes and shares is 1/8 of our norm at least: where all others have come to be equal, one
 * that alone knows a class of the data is far from usual, and would be shut out with it. An
 * unrelated model is eleven such radii away.
 *
 *   In groups what all held before is the centre, as in centred clipping (Karimireddy, He, Jaggi
 * 2021, arXiv:2012.10333; peer/round/centre.c). Around that a member is as far away as its own
 * steps led it, and a mean several times less, so a model that nobody trained is a hundred radii
 * away. The radius is 2 times the usual distance for members, 4 times for means. Means that owners
 * of parts return have a usual distance of their own. Beyond the radius a mean is not taken over:
 * its part stays as it is, for all who judge alike, and they do as a rule, since all have the same
 * centre. It is 1/256 of our norm at least for members, so that one which alone has something to
 * learn counts, and 1/32 for means, which hold what one that is far from the others taught, or 1/64
 * at the goal, where it has taught it. There a round with a mean that is not taken over was not the
 * last one.
 *
 *   What is usual is no measure where it is as large as the model: who is kept from learning takes
 * long steps, and a liar that has grown usual makes room for the next one. So the radius of members
 * is at most 1/3 of our norm as long as we train ourselves, that of planes and shares 2/5. That of
 * means is not bounded, as whoever was alone comes to the others by theirs.
 *
 *   Before anything is known groups and pushes take the largest radius, pairs and edges the least
 * (in their first round of all nothing, as no norm is measured yet): one round with a liar that is
 * let in whole leaves its neighbours so far from all others that these clip each other from then
 * on, and eight rounds that mix nothing lead two neighbours whose data are unlike as far apart.
 *
 *   Around a centre the gate's norm, and until something is known the radius's, is the larger one
 * of the centre's and our own now: a young model grows to several times its norm within a few
 * missed rounds, and two that both grew could never meet again if what they grew from was the
 * measure. Later a radius goes by the centre alone, which is the same for all.
 *
 *   Whoever took more steps than usual since its last round may have missed some, and has as many
 * times the radius; and a mean has once more the radius for each that came before it for its chunk
 * and was not taken over, as the others have moved on by those. At the goal nothing is learned any
 * more, as those who stand still are no measure for who comes with steps; a mean may be as far then
 * as a member, as most contribute no step and some their last ones, or twice as far: so far one of
 * two leads it that missed eight rounds (four times the usual distance). 4 radii is all that means
 * may move us by from then on.
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

/* Distances seen lately, one a peer. All zero: nothing yet. Of means, an owner that returned none
 * while four times as many came as there are owners is forgotten: one of two that is gone would be
 * the lower one for ever. */
struct robust_history {
    uint32_t tags[ROBUST_PEERS]; /* of peer ids; two that share one share an entry */
    float distances[ROBUST_PEERS];
    uint8_t ages[ROBUST_PEERS]; /* distances noted of others since */
    uint8_t count, next, seen;
};

/** `distance`: finite, >= 0; others are left out. */
void robust_note(struct robust_history *history, struct peer_id peer, float distance);
/** Three peers, or eight times the same few: enough to go by. */
bool robust_is_learned(const struct robust_history *history);
/** Of the entries, the lower one of two in the middle; 0 of none. */
float robust_median(const struct robust_history *history);

/* Of the radius of a plane: 1/8 of the largest norm that our chunks had when something absurd could
 * have come, so mostly as they began, up to 2/5 of our norm now. Of zeros: none. */
struct robust_bounds {
    float least, most;
};

/** Clip radius of a plane: the least one before something is known. `bounds` NULL: none. */
float robust_radius(const struct robust_history *history, const struct robust_bounds *bounds);

/** What a contribution counts for, of 1: all within the radius, (radius / distance)^3 beyond. */
float robust_weight(float distance, float radius);
/** sqrt(sum (a_i - b_i)^2), double inside; b NULL: of zeros. */
float robust_distance(const float *a, const float *b, size_t count);
/** out = weight * (in - own), `out` being none of the others; returns the square of their distance.
 *  `own` is finite; then the result is, too, if and only if all of `in` is. `streams`: `out` passes
 *  the cache by, see base/stream.h. */
double robust_apart(const float *in, const float *own, size_t count, float weight, float *out,
                    bool streams);
/** to = own + weight * (in - own); `to` may be `in`. */
void robust_draw_near(const float *own, const float *in, size_t count, float weight, float *to);

/* The gate of a plane, with a history for each chunk. */
struct robust;

struct robust_chunk {
    struct peer_id from;
    uint32_t chunk;
    const float *own;  /* [count] what it is judged around: what we told the others, or a centre */
    const float *ours; /* [count] our values now, where `own` is a centre; else NULL */
    const float *in;   /* [count] finite */
    size_t count;
    bool is_centred; /* `own` is what all held when the last round ended */
    bool is_mean;    /* what the owner of its part returned; centred */
    bool may_clip;   /* false: where both ends agree on a radius for the plane */
};

/** clips: --robust clip. NULL: no memory. */
struct robust *robust_create(uint32_t chunks, bool clips);
void robust_destroy(struct robust *robust);
/** The plane holds `model` values of the model, and behind them a tracker of gradients. */
void robust_set_trackers(struct robust *robust, size_t model);
/** The plane holds distributions of so many values each. None is farther than sqrt(2) from another,
 *  and one that knows nothing has a small norm beside one that does: the norm that distances are
 *  held against is that of certainty, 1 a distribution. */
void robust_set_distributions(struct robust *robust, size_t outputs);
/** The largest norm of a chunk of `values`, of which the first is number `first` of the plane. */
float robust_largest_chunk(const float *values, size_t first, size_t count);
/** Of our own latest gradient, once a round: what trackers are held against. */
void robust_note_gradient(struct robust *robust, float largest);
/** A round begins, so many own steps after the one before that counted; 0: there was none.
 *  `is_last`: we take no more steps. */
void robust_begin(struct robust *robust, uint64_t steps, bool is_last);
/** As the plane is now; a tracker counts, as it does in distances. */
struct robust_bounds robust_bounds(const struct robust *robust, const float *own, size_t count);

struct robust_verdict {
    float distance;
    float weight; /* of a usual one that it counts for: 0 to 1 */
};

/** RC_LIMIT: refuse it, and hold it against who sent it. RC_REFUSED: a mean that is not to be taken
 *  over. Notes the distance either way. */
MUST_USE enum rc robust_check(struct robust *robust, const struct robust_chunk *chunk,
                              struct robust_verdict *verdict);
/** Within which a member's contribution to a chunk counts whole, around what all held before:
 *  `centre` [count]. FLT_MAX: anything does, as nothing is known. */
float robust_members_radius(struct robust *robust, uint32_t chunk, const float *centre,
                            size_t count);
/** The same of a distance already measured. */
MUST_USE enum rc robust_judge(struct robust *robust, const struct robust_chunk *chunk,
                              float distance, struct robust_verdict *verdict);

#endif
