/*
 * Whoever averages in groups begins its steps where the last round left all members. What comes is
 * judged around that, as in centred clipping (Karimireddy, He, Jaggi 2021, arXiv:2012.10333, where
 * the centre is the last aggregate). Around one's own model, steps and all, two honest members are
 * as far apart as both have moved, and a mean is nearly as far as a member: where data are unlike a
 * liar has many times the room. And it is the same for all, so that they judge alike. Jobs of the
 * exchange lane.
 */
#include "peer/round/internal.h"

#include <string.h>

bool round_keeps_centre(const struct round *round)
{
    return round->ops->has_mean && round->options.strategy->clips;
}

void round_centre_begin(struct round *round)
{
    if (round->centre == NULL || round->has_centre) return;
    memcpy(round->centre, round->own, round->layout.values * sizeof(float));
    round->has_centre = true;
}

/* Where settle() has led: `own` plus the difference, but where others were told something else than
 * the model. */
static const float *left_at(const struct round *round)
{
    const struct rule_ops *rule = round->options.strategy->rule;
    const float *planes[RULE_STATE_MAX];

    return rule->prepare != NULL && rule->state(round->rule, planes) > 0 ? planes[0] : NULL;
}

void round_centre_move(struct round *round, const uint8_t *bitmap, const float *difference)
{
    const float *there = round->centre == NULL ? NULL : left_at(round);

    if (round->centre == NULL) return;
    for (uint32_t chunk = 0; chunk < round->chunks; chunk++) {
        struct range range = round_chunk_range(round, chunk);
        const float *own = round->own + range.first, *step = difference + range.first;
        float *centre = round->centre + range.first;

        if ((bitmap[chunk / 8] >> chunk % 8 & 1) == 0) continue;
        for (size_t i = 0; i < range.count; i++) {
            centre[i] = there != NULL ? there[range.first + i] : own[i] + step[i];
        }
    }
}

const float *round_centre(const struct round *round, struct range range, const float *own)
{
    return round->centre == NULL ? own : round->centre + range.first;
}
