/*
 * sketch: a plane of any size as 64 numbers whose distances are about the planes' distances
 * (count-sketch: Charikar, Chen, Farach-Colton 2002; one row, of which only norms are used). Who
 * joins compares what its donor gave with what other members say they hold, without downloading
 * it from them; the seed is fresh each time, so that nobody can make a plane for a sketch. Pure.
 */
#ifndef GRAPEVINE_PEER_SKETCH_H
#define GRAPEVINE_PEER_SKETCH_H

#include "gossip/wire/limits.h"

#include <stddef.h>
#include <stdint.h>

struct sketch {
    float values[SKETCH_VALUES];
};

/* What a member answered. */
struct sketch_answer {
    struct sketch sketch;
    uint64_t round; /* its next group round then */
    double moved;   /* how far a round moves it; 0: not known */
};

enum sketch_verdict { SKETCH_UNCHECKED, SKETCH_FITS, SKETCH_REFUSED };

enum { SKETCH_ANSWERS_MAX = 3 };

struct sketch_opinion {
    enum sketch_verdict verdict;
    double distance, allowed, norm; /* of what was checked from the members; their own norm */
};

/** `values`: [count], finite. */
void sketch_make(const float *values, size_t count, uint64_t seed, struct sketch *sketch);
/** Is `own`, a snapshot of `round` or later, what the members hold? Allowed is the largest of four
 *  times the median of members' distances to the nearest other, 5 % of their norm, and twice what
 * they move in a round for each round that may lie between; where nobody can say how far rounds
 * move, their whole norm. Fewer than two answers: not checked. */
struct sketch_opinion sketch_judge(const struct sketch *own, uint64_t round,
                                   const struct sketch_answer *answers, size_t count);

#endif
