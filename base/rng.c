/*
 * xoshiro256** 1.0 by David Blackman and Sebastiano Vigna ("Scrambled linear pseudorandom number
 * generators", 2018), written from the paper's recurrences. Pure; any thread may own a stream.
 */
#include "base/rng.h"

#include "base/check.h"

#include <math.h>

static uint64_t rotate_left(uint64_t x, unsigned k)
{
    return x << k | x >> (64 - k);
}

static uint64_t finalise(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint64_t rng_mix(uint64_t a, uint64_t b)
{
    return finalise(finalise(a + UINT64_C(0x9e3779b97f4a7c15)) ^
                    (b + UINT64_C(0x632be59bd9b4e019)));
}

void rng_init(struct rng *rng, uint64_t seed, uint64_t purpose)
{
    uint64_t counter = rng_mix(seed, purpose);

    for (int i = 0; i < 4; i++) {
        counter += UINT64_C(0x9e3779b97f4a7c15);
        rng->state[i] = finalise(counter);
    }
}

uint64_t rng_u64(struct rng *rng)
{
    uint64_t *s = rng->state;
    uint64_t result = rotate_left(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

uint64_t rng_below(struct rng *rng, uint64_t bound)
{
    uint64_t limit, draw;

    CHECK(bound > 0);
    limit = UINT64_MAX - UINT64_MAX % bound; /* the largest multiple of bound: above it, bias */
    do {
        draw = rng_u64(rng);
    } while (draw >= limit);
    return draw % bound;
}

double rng_unit(struct rng *rng)
{
    return (double)(rng_u64(rng) >> 11) * 0x1.0p-53;
}

double rng_normal(struct rng *rng)
{
    double u, v, s;

    do {
        u = 2.0 * rng_unit(rng) - 1.0;
        v = 2.0 * rng_unit(rng) - 1.0;
        s = u * u + v * v;
    } while (s >= 1.0 || s == 0.0);
    return u * sqrt(-2.0 * log(s) / s);
}

double rng_gamma(struct rng *rng, double shape)
{
    double boost = 1.0, d, c;

    CHECK(shape > 0.0);
    if (shape < 1.0) { /* Gamma(a) = Gamma(a + 1) U^(1/a) */
        boost = pow(1.0 - rng_unit(rng), 1.0 / shape);
        shape += 1.0;
    }
    d = shape - 1.0 / 3.0;
    c = 1.0 / sqrt(9.0 * d);
    for (;;) {
        double x = rng_normal(rng);
        double v = 1.0 + c * x;
        double u = 1.0 - rng_unit(rng);

        if (v <= 0.0) continue;
        v = v * v * v;
        if (log(u) < 0.5 * x * x + d - d * v + d * log(v)) return boost * d * v;
    }
}

void rng_shuffle(struct rng *rng, uint32_t *items, size_t count)
{
    for (size_t i = count; i > 1; i--) {
        size_t j = (size_t)rng_below(rng, i);
        uint32_t held = items[i - 1];

        items[i - 1] = items[j];
        items[j] = held;
    }
}
