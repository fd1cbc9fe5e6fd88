/* hetero_spec: see hetero_spec.h. */
#include "testnet/hetero_spec.h"

#include "base/check.h"
#include "base/rng.h"
#include "base/units.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { PURPOSE = 0x6865746572 }; /* a stream of its own: speeds shift nobody else's numbers */
#define SPREAD_MAX 3.0

static const char lognormal[] = "lognormal:", list[] = "list:";

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static enum rc complain(struct fault *why, const char *spec, const char *at, const char *what)
{
    return fault_set(why, RC_PARSE,
                     "--hetero, column %zu: %s; for example uniform, lognormal:0.5 or list:1,1,0.1",
                     (size_t)(at - spec) + 1, what);
}

/* One speed of a list: up to the next comma. */
static bool parse_speed(const char *at, size_t length, double *speed)
{
    char text[32];

    if (length == 0 || length >= sizeof text) return false;
    memcpy(text, at, length);
    text[length] = '\0';
    return units_parse_share(text, speed) && *speed >= HETERO_SPEED_MIN &&
           *speed <= HETERO_SPEED_MAX;
}

/* Counted first, then taken: an error at the end leaves what was there. NULL: only count. */
static enum rc parse_list(const char *spec, double *speeds, size_t *count, struct fault *why)
{
    const char *at = spec + strlen(list);

    *count = 0;
    for (;;) {
        size_t length = strcspn(at, ",");
        double speed;

        if (!parse_speed(at, length, &speed)) {
            return complain(why, spec, at, "not a speed from 0.0001 to 10000");
        }
        if (speeds != NULL) speeds[*count] = speed;
        (*count)++;
        if (at[length] == '\0') return RC_OK;
        at += length + 1;
    }
}

static enum rc take_list(const char *spec, double *speeds, size_t peers, struct fault *why)
{
    size_t count;
    enum rc rc = parse_list(spec, NULL, &count, why);

    if (rc != RC_OK) return rc;
    if (count > peers) {
        return fault_set(why, RC_USAGE, "--hetero lists %zu speeds, and there are %zu peers", count,
                         peers);
    }
    for (size_t i = 0; i < peers; i++) {
        speeds[i] = 1;
    }
    return parse_list(spec, speeds, &count, why);
}

static enum rc draw(const char *spec, uint64_t seed, double *speeds, size_t peers,
                    struct fault *why)
{
    struct rng rng;
    double spread;
    const char *at = spec + strlen(lognormal);

    if (!units_parse_share(at, &spread) || spread < 0 || spread > SPREAD_MAX) {
        return complain(why, spec, at, "not a spread from 0 to 3");
    }
    rng_init(&rng, seed, PURPOSE);
    for (size_t i = 0; i < peers; i++) {
        double speed = exp(spread * rng_normal(&rng));

        speeds[i] = fmin(fmax(speed, HETERO_SPEED_MIN), HETERO_SPEED_MAX);
    }
    return RC_OK;
}

enum rc hetero_spec_parse(const char *spec, uint64_t seed, double *speeds, size_t peers,
                          struct fault *why)
{
    if (spec != NULL && begins(spec, list)) return take_list(spec, speeds, peers, why);
    if (spec != NULL && begins(spec, lognormal)) return draw(spec, seed, speeds, peers, why);
    if (spec != NULL && spec[0] != '\0' && strcmp(spec, "uniform") != 0) {
        return complain(why, spec, spec, "unknown; known are uniform, lognormal and list");
    }
    for (size_t i = 0; i < peers; i++) {
        speeds[i] = 1;
    }
    return RC_OK;
}

uint64_t hetero_step_ns(uint64_t step_ns, double speed)
{
    double ns = (double)step_ns / speed;

    CHECK(speed >= HETERO_SPEED_MIN && speed <= HETERO_SPEED_MAX);
    return ns < 1 ? 1 : ns > 1e18 ? (uint64_t)1e18 : (uint64_t)ns;
}
