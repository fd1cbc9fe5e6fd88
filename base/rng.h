/*
 * rng: seeded chance. xoshiro256** (Blackman, Vigna 2018) seeded through splitmix64; the same on
 * every machine. A stream is split by purpose, so that one consumer more does not shift another's
 * numbers.
 */
#ifndef GRAPEVINE_BASE_RNG_H
#define GRAPEVINE_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

struct rng {
    uint64_t state[4]; /* all of it: copying the struct saves and restores the stream */
};

/** The stream number `purpose` of `seed`. */
void rng_init(struct rng *rng, uint64_t seed, uint64_t purpose);
uint64_t rng_u64(struct rng *rng);
/** Uniform in [0, bound), without bias; bound > 0. */
uint64_t rng_below(struct rng *rng, uint64_t bound);
/** Uniform in [0, 1) with 53 bits. */
double rng_unit(struct rng *rng);
/** Standard normal (polar method; consumes a varying count of draws). */
double rng_normal(struct rng *rng);
/** Gamma(shape, 1), shape > 0 (Marsaglia, Tsang 2000), for Dirichlet splits. */
double rng_gamma(struct rng *rng, double shape);
/** Fisher-Yates over `count` numbers. */
void rng_shuffle(struct rng *rng, uint32_t *items, size_t count);
/** A stateless 64-bit mixer (splitmix64's finaliser) of two words: same inputs, same output. */
uint64_t rng_mix(uint64_t a, uint64_t b);

#endif
