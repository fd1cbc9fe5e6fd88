/*
 * deadline: how long to wait, learned from how long things took: median + 4 MAD of the last
 * samples, twice the median at least, between a floor and a cap. Robust against a few outliers;
 * nothing to configure. The bounds of all that exchanges wait for are in times.h.
 */
#ifndef GRAPEVINE_AVERAGING_CORE_DEADLINE_H
#define GRAPEVINE_AVERAGING_CORE_DEADLINE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    DEADLINE_SAMPLES = 32,
    DEADLINE_FEW = 8 /* fewer samples say little about how far they spread */
};

/* Zeroed is empty. */
struct deadline {
    uint64_t samples[DEADLINE_SAMPLES]; /* ns; the oldest is overwritten */
    uint32_t count, next;
};

/* Of one thing that is waited for. */
struct deadline_bounds {
    uint64_t first_ns; /* before `few` samples are there */
    uint64_t floor_ns; /* always */
    uint64_t new_ns;   /* ...of peers that are not proven, once it is known what is usual */
    uint64_t cap_ns;   /* of what is learned */
    uint32_t few;      /* 1 at least */
};

void deadline_add(struct deadline *deadline, uint64_t took_ns);
/** `otherwise` without samples. */
uint64_t deadline_median(const struct deadline *deadline, uint64_t otherwise);
/** The lower median, which half of the samples cannot move. */
uint64_t deadline_lower(const struct deadline *deadline, uint64_t otherwise);
/** How long to wait for what took as long as `usual` says, of a peer that is proven or not. It is
 *  `least_ns` at least, which is what is known otherwise, as of lines; neither that nor the floor
 *  is held to the cap. */
uint64_t deadline_wait_ns(const struct deadline *usual, const struct deadline_bounds *bounds,
                          bool is_proven, uint64_t least_ns);
/** `now_ns` + `wait_ns`, UINT64_MAX where that overflows. */
uint64_t deadline_after(uint64_t now_ns, uint64_t wait_ns);
uint64_t deadline_least(uint64_t a, uint64_t b);
uint64_t deadline_most(uint64_t a, uint64_t b);
/** Of few values: by insertion. */
void deadline_sort(uint64_t *values, uint32_t count);

#endif
