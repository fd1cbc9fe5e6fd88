/* Running median and median absolute deviation over a small ring, sorted on demand. Pure. */
#include "averaging/core/deadline.h"

#include <string.h>

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

uint64_t deadline_window(const struct deadline *deadline, uint32_t spread, uint64_t first_ns,
                         uint64_t floor_ns, uint64_t cap_ns)
{
    uint64_t window = first_ns;

    if (deadline->count > 0) {
        uint64_t apart[DEADLINE_SAMPLES];
        uint64_t median = median_of(deadline->samples, deadline->count);

        for (uint32_t i = 0; i < deadline->count; i++) {
            uint64_t x = deadline->samples[i];

            apart[i] = x > median ? x - median : median - x;
        }
        if (__builtin_mul_overflow(median_of(apart, deadline->count), (uint64_t)spread, &window) ||
            __builtin_add_overflow(window, median, &window)) {
            window = UINT64_MAX;
        }
    }
    if (window > cap_ns) window = cap_ns;
    return window < floor_ns ? floor_ns : window;
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
