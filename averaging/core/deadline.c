/* Running median and median absolute deviation over a small ring, sorted on demand. Pure. */
#include "averaging/core/deadline.h"

#include <string.h>

enum { SPREAD = 4 };

void deadline_add(struct deadline *deadline, uint64_t took_ns)
{
    deadline->samples[deadline->next] = took_ns;
    deadline->next = (deadline->next + 1) % DEADLINE_SAMPLES;
    if (deadline->count < DEADLINE_SAMPLES) deadline->count++;
}

void deadline_sort(uint64_t *values, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        uint64_t value = values[i];
        uint32_t at = i;

        for (; at > 0 && values[at - 1] > value; at--) {
            values[at] = values[at - 1];
        }
        values[at] = value;
    }
}

static uint64_t quantile_of(const uint64_t *samples, uint32_t count, uint32_t index)
{
    uint64_t sorted[DEADLINE_SAMPLES];

    memcpy(sorted, samples, count * sizeof *sorted);
    deadline_sort(sorted, count);
    return sorted[index];
}

/* The upper one of two: waiting a little longer is the safe side. */
static uint64_t median_of(const uint64_t *samples, uint32_t count)
{
    return quantile_of(samples, count, count / 2);
}

uint64_t deadline_lower(const struct deadline *deadline, uint64_t otherwise)
{
    if (deadline->count == 0) return otherwise;
    return quantile_of(deadline->samples, deadline->count, (deadline->count - 1) / 2);
}

uint64_t deadline_median(const struct deadline *deadline, uint64_t otherwise)
{
    return deadline->count == 0 ? otherwise : median_of(deadline->samples, deadline->count);
}

/* Where all take about as long their spread says nothing, and half take longer than the median. */
static uint64_t learned_ns(const struct deadline *usual)
{
    uint64_t median = median_of(usual->samples, usual->count), apart[DEADLINE_SAMPLES], wait;

    for (uint32_t i = 0; i < usual->count; i++) {
        uint64_t x = usual->samples[i];

        apart[i] = x > median ? x - median : median - x;
    }
    if (__builtin_mul_overflow(median_of(apart, usual->count), (uint64_t)SPREAD, &wait)) {
        return UINT64_MAX;
    }
    return deadline_after(median, deadline_most(wait, median));
}

uint64_t deadline_wait_ns(const struct deadline *usual, const struct deadline_bounds *bounds,
                          bool is_proven, uint64_t least_ns)
{
    bool is_few = usual->count < DEADLINE_FEW;
    uint64_t floor = is_proven || is_few ? bounds->floor_ns : bounds->new_ns, wait;

    wait = usual->count < bounds->few ? bounds->first_ns : learned_ns(usual);
    return deadline_most(deadline_least(wait, bounds->cap_ns), deadline_most(floor, least_ns));
}

uint64_t deadline_after(uint64_t now_ns, uint64_t wait_ns)
{
    return now_ns > UINT64_MAX - wait_ns ? UINT64_MAX : now_ns + wait_ns;
}

uint64_t deadline_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t deadline_most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}
