/*
 * sketch: a plane of any size as 64 numbers whose distances are about the planes' distances
 * (count-sketch: Charikar, Chen, Farach-Colton 2002; one row, of which only norms are used). Who
 * joins compares what its donor gave with what other members say they hold, without downloading
 * it from them; the seed is fresh each time, so that nobody can make a plane for a sketch. Pure.
 */
#ifndef GRAPEVINE_PEER_DOWNLOAD_SKETCH_H
#define GRAPEVINE_PEER_DOWNLOAD_SKETCH_H

#include "gossip/wire/limits.h"

#include <stddef.h>
#include <stdint.h>

struct sketch {
    float values[SKETCH_VALUES];
};

/* What a member answered. */
struct sketch_answer {
    struct sketch sketch, buffers; /* of its parameters, and of its running statistics */
    uint64_t round;                /* its next group round then */
    double moved;                  /* how far a round moves it; 0: not known */
    double moments;                /* norm of its optimizer's buffers; 0: it has none */
};

enum sketch_verdict { SKETCH_UNCHECKED, SKETCH_FITS, SKETCH_REFUSED };

enum { SKETCH_ANSWERS_MAX = 3 };

struct sketch_opinion {
    enum sketch_verdict verdict;
    double distance, allowed, norm; /* of what was checked from the members; their own norm */
    uint32_t agreed;                /* members it is near to */
};

/** `values`: [count], finite. */
void sketch_make(const float *values, size_t count, uint64_t seed, struct sketch *sketch);
/** Is `own`, a snapshot of `round` or later, what the members hold? It is, where it is near two of
 *  them and more than half. Near is the largest of 5 % of their norm, twice what they move in a
 *  round for each round that may lie between, and four times the median of members' distances to
 *  the nearest other (of two members, who may be one and a liar, their norm at most); where
 *  nobody can say how far rounds move, their whole norm. Of all these the lower medians. Fewer than
 *  two answers: not checked. */
struct sketch_opinion sketch_judge(const struct sketch *own, uint64_t round,
                                   const struct sketch_answer *answers, size_t count);
/** The same of running statistics: near is their norm, or four times such a distance. */
struct sketch_opinion sketch_judge_buffers(const struct sketch *own,
                                           const struct sketch_answer *answers, size_t count);
/** Of the members' optimizer buffers, the median norm. */
double sketch_moments(const struct sketch_answer *answers, size_t count);

#endif
