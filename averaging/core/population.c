/* Population-based training: see population.h. */
#include "averaging/core/population.h"

#include "base/check.h"

#include <math.h>
#include <string.h>

enum { PURPOSE_POPULATION = 0x706f7075, SMOOTHED_OVER = 2, DOUBLINGS_SILENT = 3 };

static const double up = 1.2, down = 0.8;
/* Rates are within so many times what this peer was given. What a copy brings counts only within so
 * many times what it had, or the square of the spread, by which the first ones of two may differ:
 * who gives a better model with an absurd rate may be a liar. */
static const double bound = 1e3, bound_copied = 4;

/* ---- rates ---- */

/* Even in its logarithm. */
static double draw(struct population *population, double around)
{
    const double width = log(population->settings.spread);

    return around * exp(width * (2 * rng_unit(&population->rng) - 1));
}

/* Anew around what was copied, which has proved itself: what each was given is no prior of all. */
static double explore(struct population *population, double rate)
{
    if (rng_unit(&population->rng) < population->settings.resample &&
        population->settings.spread > 1) {
        return draw(population, rate);
    }
    return rate * (rng_below(&population->rng, 2) == 0 ? down : up);
}

/* Within `times` of `around`. */
static double bounded(double rate, double around, double times)
{
    if (!(rate > around / times)) return around / times; /* NaN, too */
    return rate < around * times ? rate : around * times;
}

static bool is_within(double rate, double around, double times)
{
    return rate >= around / times && rate <= around * times; /* not NaN */
}

/* Where none was given there is none: 0 times anything is 0. */
static struct population_rates bounded_rates(const struct population *population,
                                             struct population_rates rates)
{
    return (struct population_rates){bounded(rates.rate, population->given.rate, bound),
                                     bounded(rates.decay, population->given.decay, bound)};
}

static void explore_rates(struct population *population)
{
    struct population_rates *own = &population->own.rates;
    const struct population_rates next = {explore(population, own->rate),
                                          explore(population, own->decay)};

    *own = bounded_rates(population, next);
}

/* ---- life ---- */

void population_init(struct population *population, const struct population_settings *settings,
                     struct population_rates given, uint64_t line, uint64_t seed)
{
    CHECK(settings->every_steps > 0 && settings->spread >= 1);
    CHECK(settings->margin >= 0 && settings->margin < 1);
    CHECK(given.rate > 0 && given.decay >= 0);
    *population = (struct population){.settings = *settings, .given = given};
    population->own = (struct population_told){.loss = (double)NAN, .line = line};
    rng_init(&population->rng, seed, PURPOSE_POPULATION);
    population->own.rates.rate = draw(population, given.rate);
    population->own.rates.decay = draw(population, given.decay);
}

bool population_resume(struct population *population, struct population_rates rates, uint64_t line,
                       uint64_t copies)
{
    if (!isfinite(rates.rate) || rates.rate <= 0) return false;
    if (!isfinite(rates.decay) || rates.decay < 0) return false;
    population->own.rates = bounded_rates(population, rates);
    population->own.line = line;
    population->copies = copies;
    return true;
}

/* ---- scores ---- */

void population_score(struct population *population, double loss, uint64_t step, struct digest part)
{
    struct population_told *own = &population->own;
    const bool has_both = isfinite(own->loss) && isfinite(loss);

    population->scores++;
    own->step = step;
    own->part = part;
    own->loss = has_both         ? own->loss + (loss - own->loss) / SMOOTHED_OVER
                : isfinite(loss) ? loss
                                 : (double)INFINITY;
}

uint64_t population_steps_left(const struct population *population, uint64_t step)
{
    const uint64_t every = population->settings.every_steps;
    const uint64_t next = (population->own.step / every + 1) * every;

    return step < next ? next - step : 0;
}

/* ---- the tournament ---- */

bool population_is_comparable(const struct population *population,
                              const struct population_told *other)
{
    return !isnan(population->own.loss) && !isnan(other->loss) &&
           other->step >= population->own.step &&
           digest_is_equal(other->part, population->own.part);
}

bool population_prefers(const struct population *population, const struct population_told *other)
{
    if (!population_is_comparable(population, other) || !isfinite(other->loss)) return false;
    return other->loss < (1 - population->settings.margin) * population->own.loss;
}

/* ---- copies ---- */

static struct population_watched *find(struct population *population, struct peer_id id)
{
    for (uint32_t i = 0; i < population->watched_count; i++) {
        if (peer_id_is_equal(population->watched[i].id, id)) return &population->watched[i];
    }
    return NULL;
}

/* In a full table the one that is free soonest makes room. */
static struct population_watched *find_or_add(struct population *population, struct peer_id id)
{
    struct population_watched *found = find(population, id);

    if (found != NULL) return found;
    if (population->watched_count < POPULATION_WATCHED_MAX) {
        found = &population->watched[population->watched_count++];
    } else {
        found = &population->watched[0];
        for (uint32_t i = 1; i < POPULATION_WATCHED_MAX; i++) {
            if (population->watched[i].until < found->until) found = &population->watched[i];
        }
    }
    *found = (struct population_watched){.id = id};
    return found;
}

bool population_refuse(struct population *population, struct peer_id from,
                       const struct population_told *told, double loss)
{
    /* Who gave nothing may be busy with others, and a liar may see to that. */
    const uint32_t most = isnan(loss) ? DOUBLINGS_SILENT : POPULATION_DOUBLINGS_MAX;
    struct population_watched *watched;

    population->refused++;
    if (loss <= (1 + population->settings.margin) * told->loss) return false; /* we got on */
    watched = find_or_add(population, from);
    if (watched->refused < most) watched->refused++;
    watched->until = population->scores + (UINT64_C(1) << (2 * watched->refused));
    return true;
}

bool population_is_watched(const struct population *population, struct peer_id from)
{
    for (uint32_t i = 0; i < population->watched_count; i++) {
        if (!peer_id_is_equal(population->watched[i].id, from)) continue;
        return population->scores < population->watched[i].until;
    }
    return false;
}

void population_take(struct population *population, struct peer_id from,
                     const struct population_told *told, double loss, uint64_t step)
{
    struct population_watched *watched = find(population, from);
    struct population_rates *own = &population->own.rates;
    const double spread = population->settings.spread;
    const double times = fmax(bound_copied, spread * spread);

    if (watched != NULL) *watched = population->watched[--population->watched_count];
    if (is_within(told->rates.rate, own->rate, times)) own->rate = told->rates.rate;
    if (is_within(told->rates.decay, own->decay, times)) own->decay = told->rates.decay;
    explore_rates(population);
    population->own.line = told->line;
    population->own.loss = loss;
    population->own.step = step;
    population->copies++;
}

void population_ran_away(struct population *population)
{
    struct population_rates slower = population->own.rates;

    slower.rate /= 2;
    population->own.rates = bounded_rates(population, slower);
    population->own.loss = (double)INFINITY;
}

uint64_t population_bound_count(uint64_t said, uint64_t own, uint64_t median, uint64_t slack)
{
    const uint64_t middle = own > median ? own : median;
    uint64_t most;

    if (__builtin_add_overflow(middle, slack, &most)) most = UINT64_MAX;
    if (said < own) return own;
    return said < most ? said : most;
}
