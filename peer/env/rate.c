/* rate: whole bytes are credited and the time they took; the rest of the time is kept, so that no
 * rounding adds up. */
#include "peer/env/rate.h"

#include "base/bytes.h"
#include "base/check.h"

#include <string.h>

enum { BURSTS_PER_S = 20, PORTIONS_PER_S = 100, PORTION_MIN = 1024, PORTION_MAX = 64 * 1024 };

void rate_init(struct rate *rate, uint64_t bytes_per_s, uint64_t now_ns)
{
    memset(rate, 0, sizeof *rate);
    if (bytes_per_s == 0 || bytes_per_s > RATE_BYTES_PER_S_MAX) return;
    rate->bytes_per_s = bytes_per_s;
    rate->burst = (int64_t)(bytes_per_s / BURSTS_PER_S);
    if (rate->burst < RATE_BURST_BYTES_MIN) rate->burst = RATE_BURST_BYTES_MIN;
    rate->level = rate->burst;
    rate->at_ns = now_ns;
}

static uint64_t time_of(const struct rate *rate, uint64_t bytes)
{
    return (uint64_t)((double)bytes * (double)NS_PER_S / (double)rate->bytes_per_s);
}

static void refill(struct rate *rate, uint64_t now_ns)
{
    uint64_t missing = (uint64_t)(rate->burst - rate->level);
    uint64_t elapsed_ns, bytes;

    if (now_ns <= rate->at_ns) return;
    elapsed_ns = now_ns - rate->at_ns;
    if (elapsed_ns >= time_of(rate, missing) + 1) {
        rate->level = rate->burst;
        rate->at_ns = now_ns;
        return;
    }
    bytes = (uint64_t)((double)elapsed_ns * (double)rate->bytes_per_s / (double)NS_PER_S);
    rate->level += (int64_t)bytes;
    rate->at_ns += time_of(rate, bytes);
}

size_t rate_allows(struct rate *rate, uint64_t now_ns, int64_t floor)
{
    CHECK(floor <= 0 && floor >= -rate->burst);
    if (!rate_is_limited(rate)) return SIZE_MAX;
    refill(rate, now_ns);
    return rate->level > floor ? (size_t)(rate->level - floor) : 0;
}

void rate_take(struct rate *rate, size_t bytes)
{
    if (rate_is_limited(rate)) rate->level -= (int64_t)bytes;
}

uint64_t rate_ready_ns(const struct rate *rate, int64_t floor, int64_t bytes)
{
    int64_t missing = floor + bytes - rate->level;

    CHECK(rate_is_limited(rate) && floor <= 0 && bytes <= rate->burst);
    return missing <= 0 ? rate->at_ns : rate->at_ns + time_of(rate, (uint64_t)missing) + 1;
}

size_t rate_portion(const struct rate *rate)
{
    uint64_t bytes = rate->bytes_per_s / PORTIONS_PER_S;

    if (!rate_is_limited(rate) || bytes > PORTION_MAX) return PORTION_MAX;
    return bytes < PORTION_MIN ? PORTION_MIN : (size_t)bytes;
}
