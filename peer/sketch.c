/* Count-sketches and what their distances mean. Medians, so that one liar among three decides
 * nothing. */
#include "peer/sketch.h"

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

static double median(double *items, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        for (size_t j = i; j > 0 && items[j - 1] > items[j]; j--) {
            double held = items[j];

            items[j] = items[j - 1];
            items[j - 1] = held;
        }
    }
    return count % 2 != 0 ? items[count / 2] : (items[count / 2 - 1] + items[count / 2]) / 2;
}

struct sketch_opinion sketch_judge(const struct sketch *own, uint64_t round,
                                   const struct sketch_answer *answers, size_t count)
{
    double apart[SKETCH_ANSWERS_MAX], norms[SKETCH_ANSWERS_MAX], moves[SKETCH_ANSWERS_MAX];
    double rounds[SKETCH_ANSWERS_MAX], nearest[SKETCH_ANSWERS_MAX], moved;
    struct sketch_opinion opinion = {SKETCH_UNCHECKED, 0, 0, 0};

    CHECK(count <= SKETCH_ANSWERS_MAX);
    if (count < 2) return opinion;
    for (size_t i = 0; i < count; i++) {
        apart[i] = distance(own, &answers[i].sketch);
        norms[i] = distance(&answers[i].sketch, NULL);
        moves[i] = answers[i].moved;
        rounds[i] = answers[i].round > round ? (double)(answers[i].round - round) : 0.0;
        nearest[i] = HUGE_VAL;
        for (size_t j = 0; j < i; j++) {
            double gap = distance(&answers[i].sketch, &answers[j].sketch);

            nearest[i] = fmin(nearest[i], gap);
            nearest[j] = fmin(nearest[j], gap);
        }
    }
    opinion.distance = median(apart, count);
    opinion.norm = median(norms, count);
    moved = median(moves, count);
    opinion.allowed = fmax(4 * median(nearest, count), 0.05 * opinion.norm);
    opinion.allowed =
        fmax(opinion.allowed, moved > 0 ? 2 * moved * (1 + median(rounds, count)) : opinion.norm);
    opinion.verdict = opinion.distance <= opinion.allowed ? SKETCH_FITS : SKETCH_REFUSED;
    return opinion;
}
