/* AdaComm without a centre: see period.h. */
#include "averaging/strategy/period.h"

#include "base/check.h"

#include <math.h>

static const double unknown = -1;

static bool is_known(double loss)
{
    return isfinite(loss) && loss >= 0;
}

/* What is said travels as float32. */
static double rounded(double loss)
{
    return is_known(loss) ? (double)(float)loss : unknown;
}

/* ---- medians ---- */

enum said { SAID_LOSS, SAID_FIRST, SAID_STEPS };

/* Below 0: it says nothing of it. Who says nothing of H is for what it is now: or before all have
 * spoken, the first would decide. A count of steps is exact, as there are none above 2^53. */
static double said_by(const struct period *period, const struct period_told *told, enum said what)
{
    const double now = (double)period->steps, most = (double)period->first_steps;

    if (what == SAID_STEPS) return told->steps == 0 ? now : fmin((double)told->steps, most);
    if (!is_known(told->first) || told->first <= 0) return unknown;
    return what == SAID_FIRST ? told->first : is_known(told->loss) ? told->loss : unknown;
}

/* The lower median of who says something; below 0: nobody does. `own`: NULL: only of others. */
static double median(const struct period *period, const struct period_told *own,
                     const struct period_told *others, size_t count, enum said what)
{
    double values[LINKS_MAX + 1];
    size_t known = 0;

    for (size_t i = 0; i <= count; i++) {
        const struct period_told *told = i < count ? &others[i] : own;
        double value = told == NULL ? unknown : said_by(period, told, what);
        size_t at = known;

        if (value < 0) continue;
        for (; at > 0 && values[at - 1] > value; at--) {
            values[at] = values[at - 1];
        }
        values[at] = value;
        known++;
    }
    return known == 0 ? unknown : values[(known - 1) / 2];
}

/* ---- life ---- */

void period_init(struct period *period, uint64_t first_steps, uint64_t block_steps)
{
    CHECK(first_steps > 0 && block_steps > 0);
    *period = (struct period){.first_steps = first_steps,
                              .block_steps = block_steps,
                              .steps = first_steps,
                              .own = {.loss = unknown, .first = unknown}};
}

void period_join(struct period *period)
{
    period_init(period, period->first_steps, period->block_steps);
    period->is_late = true;
}

bool period_resume(struct period *period, const struct period *kept)
{
    const uint64_t first_steps = period->first_steps, block_steps = period->block_steps;

    if (kept->steps == 0 || !isfinite(kept->loss_sum)) return false;
    if (isnan(kept->own.loss) || isnan(kept->own.first)) return false;
    *period = *kept;
    period->first_steps = first_steps;
    period->block_steps = block_steps;
    if (period->steps > first_steps) period->steps = first_steps;
    if (period->own.steps > first_steps) period->own.steps = first_steps;
    return true;
}

void period_stepped(struct period *period, double loss_sum, uint64_t steps)
{
    if (!isfinite(loss_sum)) return;
    period->loss_sum += loss_sum;
    period->loss_steps += steps;
}

bool period_may_say(const struct period *period)
{
    return is_known(period->own.loss) && period->own.first > 0 && period->own.steps > 0;
}

/* ---- what follows ---- */

/* F_0: of the first steps of all, or what others say. */
static void note_first(struct period *period, const struct period_told *others, size_t count)
{
    struct period_told *own = &period->own;
    const double mean = rounded(period->loss_sum / (double)period->loss_steps);

    if (own->first > 0 || period->loss_steps == 0) return;
    own->first = period->is_late ? median(period, NULL, others, count, SAID_FIRST) : mean;
    if (own->first < 0) own->first = mean;
    if (own->loss < 0) own->loss = mean;
}

static uint64_t steps_by(const struct period *period, double loss, double first)
{
    const uint64_t now = period->steps;
    double steps;

    if (loss < 0 || first <= 0) return now;
    steps = ceil((double)period->first_steps * sqrt(loss / first));
    if (!(steps < (double)now)) return (now + 1) / 2;
    return steps < 1 ? 1 : (uint64_t)steps;
}

bool period_turn(struct period *period, const struct period_told *others, size_t count)
{
    const struct period_told before = period->own;
    struct period_told *own = &period->own;
    const bool is_silent = period->is_late && own->steps == 0;
    double steps;

    CHECK(count <= LINKS_MAX);
    note_first(period, others, count);
    steps = median(period, is_silent ? NULL : own, others, count, SAID_STEPS);
    if (steps >= 1) period->steps = (uint64_t)steps;
    if (own->steps == 0) own->steps = period->steps;
    if (period->is_owed) {
        own->steps = steps_by(period, median(period, own, others, count, SAID_LOSS),
                              median(period, own, others, count, SAID_FIRST));
        period->is_owed = false;
    } else if (period->loss_steps >= period->block_steps) {
        own->loss = rounded(period->loss_sum / (double)period->loss_steps);
        period->loss_sum = 0;
        period->loss_steps = 0;
        period->is_owed = true;
    }
    return own->loss != before.loss || own->first != before.first || own->steps != before.steps;
}
