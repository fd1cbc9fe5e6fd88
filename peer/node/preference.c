/* See preference.h. Loop thread. */
#include "peer/node/preference.h"

#include "base/bytes.h"
#include "base/check.h"

enum { STEP_BITS = 2, TOP_STEP = 13 }; /* step s: from 4^(s - 1) bytes a second on */

static uint64_t floor_of(unsigned step)
{
    return UINT64_C(1) << STEP_BITS * (step - 1);
}

static uint8_t step_of(uint64_t rate)
{
    uint8_t step = 1;

    while (step < TOP_STEP && rate >= floor_of(step + 1u)) {
        step++;
    }
    return step;
}

/* A step is left when the rate is half as much again beyond it. */
static uint8_t step_after(uint8_t before, uint64_t rate)
{
    uint8_t step = step_of(rate);

    if (before == 0 || step == before) return step;
    if (step > before && rate / 3 < floor_of(before + 1u) / 2) return before;
    if (step < before && rate >= floor_of(before) * 2 / 3) return before;
    return step;
}

/* Of lines of which little is known: as good as the best that is known, or as the least that all
 * who took no time are known to carry. */
static uint8_t step_unknown(const struct preference_line *lines, size_t count)
{
    uint8_t best = 0, least = TOP_STEP;
    bool has_least = false;

    for (size_t i = 0; i < count; i++) {
        if (lines[i].rate == 0) continue;
        if (!lines[i].is_least) {
            if (lines[i].step > best) best = lines[i].step;
        } else {
            uint8_t step = step_of(lines[i].rate);

            has_least = true;
            if (step < least) least = step;
        }
    }
    return has_least && least > best ? least : best;
}

/* The step that at most a quarter of the lines exceed. */
static uint8_t upper_quarter(const uint32_t per_step[TOP_STEP + 1], size_t count)
{
    size_t above = 0;

    for (uint8_t step = TOP_STEP; step > 0; step--) {
        above += per_step[step];
        if (above > (count - 1) / 4) return step;
    }
    return 0;
}

bool preference_weigh(struct preference_line *lines, size_t count, uint8_t *rarity)
{
    uint8_t steps[PREFERENCE_LINES_MAX], unknown, usual, slowest = TOP_STEP, quickest = 0;
    uint32_t per_step[TOP_STEP + 1] = {0};
    size_t seen = 0;

    CHECK(count <= PREFERENCE_LINES_MAX);
    for (size_t i = 0; i < count; i++) {
        bool is_known = lines[i].rate > 0 && !lines[i].is_least;

        lines[i].step = is_known ? step_after(lines[i].step, lines[i].rate) : 0;
    }
    unknown = step_unknown(lines, count);
    for (size_t i = 0; i < count; i++) {
        if (lines[i].rate == 0) continue; /* who carries nothing does not move the measure */
        seen++;
        steps[i] = lines[i].step > 0 ? lines[i].step : unknown;
        per_step[steps[i]]++;
        if (steps[i] < slowest) slowest = steps[i];
        if (steps[i] > quickest) quickest = steps[i];
    }
    if (slowest >= quickest) return false;
    usual = upper_quarter(per_step, seen);
    for (size_t i = 0; i < count; i++) {
        int below = lines[i].rate == 0 ? 1 : 1 + usual - steps[i];

        rarity[i] = (uint8_t)(below < 0                   ? 0
                              : below > PREFERENCE_RAREST ? PREFERENCE_RAREST
                                                          : below);
    }
    return true;
}

bool preference_is_off(struct digest run_id, uint64_t period, uint64_t one_in)
{
    return rng_mix(load_le64(run_id.bytes + 8), period) % one_in == 0;
}

static uint64_t weight_of(uint8_t rarity)
{
    return UINT64_C(1) << STEP_BITS * (PREFERENCE_RAREST - rarity);
}

size_t preference_pick(const uint8_t *rarity, size_t count, struct rng *rng)
{
    uint64_t total = 0, place;
    size_t i = 0;

    CHECK(count > 0);
    for (size_t k = 0; k < count; k++) {
        total += weight_of(rarity[k]);
    }
    for (place = rng_below(rng, total); place >= weight_of(rarity[i]); i++) {
        place -= weight_of(rarity[i]);
    }
    return i;
}
