/* See score.h. */
#include "gossip/door/score.h"

#include "base/bytes.h"
#include "base/check.h"
#include "gossip/times.h"

#include <math.h>

static const struct {
    int32_t points;
    const char *name;
} reasons[SCORE_REASONS] = {
    [SCORE_COMMITTED] = {1, "committed"},     [SCORE_LATE] = {-1, "late"},
    [SCORE_CLIPPED] = {-2, "clipped"},        [SCORE_SILENT] = {-20, "silent"},
    [SCORE_NOT_FINITE] = {-50, "not_finite"}, [SCORE_UNREPEATED] = {-50, "unrepeated"},
    [SCORE_BROKE] = {-100, "broke_protocol"},
};

int32_t score_points(enum score_reason reason)
{
    return reasons[reason].points;
}

const char *score_reason_name(enum score_reason reason)
{
    return reasons[reason].name;
}

double score_now(const struct score_sum *score, uint64_t now_ns)
{
    uint64_t age_ns = now_ns > score->at_ns ? now_ns - score->at_ns : 0;

    return score->points * exp2(-(double)age_ns / (double)SCORE_HALF_LIFE_NS);
}

void score_note(struct score_sum *score, enum score_reason reason, uint64_t now_ns)
{
    CHECK(reason < SCORE_REASONS);
    score->points = score_now(score, now_ns) + reasons[reason].points;
    if (score->points > SCORE_BEST) score->points = SCORE_BEST;
    score->at_ns = now_ns;
    if (score->counts[reason] < UINT32_MAX) score->counts[reason]++;
}

bool score_is_fault(enum score_reason reason)
{
    return reason != SCORE_COMMITTED && reason != SCORE_NO_FAULT;
}
