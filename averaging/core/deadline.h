/*
 * deadline: how long to wait, learned from how long things took: median + k * MAD of the last
 * samples, between a floor and a cap. Robust against a few outliers; nothing to configure.
 */
#ifndef GRAPEVINE_AVERAGING_CORE_DEADLINE_H
#define GRAPEVINE_AVERAGING_CORE_DEADLINE_H

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

void deadline_add(struct deadline *deadline, uint64_t took_ns);
/** `otherwise` without samples. */
uint64_t deadline_median(const struct deadline *deadline, uint64_t otherwise);
/** The lower median, which half of the samples cannot move: see edge/wait.c. */
uint64_t deadline_lower(const struct deadline *deadline, uint64_t otherwise);
/** Median + spread * MAD; without samples `first_ns`; then held between floor and cap (the floor
 *  wins where they cross). */
uint64_t deadline_window(const struct deadline *deadline, uint32_t spread, uint64_t first_ns,
                         uint64_t floor_ns, uint64_t cap_ns);
/** `now_ns` + `wait_ns`, UINT64_MAX where that overflows. */
uint64_t deadline_after(uint64_t now_ns, uint64_t wait_ns);
uint64_t deadline_least(uint64_t a, uint64_t b);
uint64_t deadline_most(uint64_t a, uint64_t b);
/** Of few values: by insertion. */
void deadline_sort(uint64_t *values, uint32_t count);

#endif
