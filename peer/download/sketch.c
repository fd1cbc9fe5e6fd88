/* Count-sketches and what their distances mean. Medians, so that one liar among three decides
 * nothing. */
#include "peer/download/sketch.h"

#include "base/check.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

void sketch_make(const float *values, size_t count, uint64_t seed, struct sketch *sketch)
{
    double sums[SKETCH_VALUES] = {0};

    for (size_t i = 0; i < count; i++) {
        uint64_t mixed = rng_mix(seed, i);
        double value = (double)values[i];

        sums[mixed % SKETCH_VALUES] += (mixed >> 63) != 0 ? value : -value;
    }
    for (size_t i = 0; i < SKETCH_VALUES; i++) { /* a sum of floats may be more than one */
        sketch->values[i] = (float)fmax(-3.0e38, fmin(3.0e38, sums[i]));
    }
}

static double distance(const struct sketch *a, const struct sketch *b)
{
    double squares = 0;

    for (size_t i = 0; i < SKETCH_VALUES; i++) {
        double apart = (double)a->values[i] - (b == NULL ? 0.0 : (double)b->values[i]);

        squares += apart * apart;
    }
    return sqrt(squares);
}

/* The lower one: of two members one may lie. */
static double median(double *items, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        for (size_t j = i; j > 0 && items[j - 1] > items[j]; j--) {
            double held = items[j];

            items[j] = items[j - 1];
            items[j - 1] = held;
        }
    }
    return items[(count - 1) / 2];
}

/* How far members are from the nearest other. */
static double spread(const struct sketch *const *sketches, size_t count, double norm)
{
    double nearest[SKETCH_ANSWERS_MAX];

    for (size_t i = 0; i < count; i++) {
        nearest[i] = HUGE_VAL;
        for (size_t j = 0; j < i; j++) {
            double gap = distance(sketches[i], sketches[j]);

            nearest[i] = fmin(nearest[i], gap);
            nearest[j] = fmin(nearest[j], gap);
        }
    }
    return count == 2 ? fmin(4 * nearest[0], norm) : 4 * median(nearest, count);
}

static double norm_of(const struct sketch *const *sketches, size_t count)
{
    double norms[SKETCH_ANSWERS_MAX];

    for (size_t i = 0; i < count; i++) {
        norms[i] = distance(sketches[i], NULL);
    }
    return median(norms, count);
}

/* opinion->norm and opinion->allowed are known: who agrees? */
static void judge(const struct sketch *own, const struct sketch *const *sketches, size_t count,
                  struct sketch_opinion *opinion)
{
    double apart[SKETCH_ANSWERS_MAX];

    for (size_t i = 0; i < count; i++) {
        apart[i] = distance(own, sketches[i]);
        opinion->agreed += apart[i] <= opinion->allowed;
    }
    opinion->distance = median(apart, count);
    opinion->verdict =
        opinion->agreed >= 2 && 2 * opinion->agreed > count ? SKETCH_FITS : SKETCH_REFUSED;
}

struct sketch_opinion sketch_judge(const struct sketch *own, uint64_t round,
                                   const struct sketch_answer *answers, size_t count)
{
    const struct sketch *sketches[SKETCH_ANSWERS_MAX];
    double moves[SKETCH_ANSWERS_MAX], rounds[SKETCH_ANSWERS_MAX], moved;
    struct sketch_opinion opinion = {SKETCH_UNCHECKED, 0, 0, 0, 0};

    CHECK(count <= SKETCH_ANSWERS_MAX);
    if (count < 2) return opinion;
    for (size_t i = 0; i < count; i++) {
        sketches[i] = &answers[i].sketch;
        moves[i] = answers[i].moved;
        rounds[i] = answers[i].round > round ? (double)(answers[i].round - round) : 0.0;
    }
    opinion.norm = norm_of(sketches, count);
    moved = median(moves, count);
    opinion.allowed = fmax(spread(sketches, count, opinion.norm), 0.05 * opinion.norm);
    opinion.allowed =
        fmax(opinion.allowed, moved > 0 ? 2 * moved * (1 + median(rounds, count)) : opinion.norm);
    judge(own, sketches, count, &opinion);
    return opinion;
}

struct sketch_opinion sketch_judge_buffers(const struct sketch *own,
                                           const struct sketch_answer *answers, size_t count)
{
    const struct sketch *sketches[SKETCH_ANSWERS_MAX];
    struct sketch_opinion opinion = {SKETCH_UNCHECKED, 0, 0, 0, 0};

    CHECK(count <= SKETCH_ANSWERS_MAX);
    if (count < 2) return opinion;
    for (size_t i = 0; i < count; i++) {
        sketches[i] = &answers[i].buffers;
    }
    opinion.norm = norm_of(sketches, count);
    opinion.allowed = fmax(spread(sketches, count, opinion.norm), opinion.norm);
    judge(own, sketches, count, &opinion);
    return opinion;
}

double sketch_moments(const struct sketch_answer *answers, size_t count)
{
    double norms[SKETCH_ANSWERS_MAX];

    CHECK(count > 0 && count <= SKETCH_ANSWERS_MAX);
    for (size_t i = 0; i < count; i++) {
        norms[i] = answers[i].moments;
    }
    return median(norms, count);
}
