/*
 * --robust in a round: an aggregate (averaging/aggregate) takes the place of the sums that a rule
 * makes, and everything after that is as ever: what the owner of a part got is what all agree on,
 * and an outer rule steps from it. And what guards did is counted. The first functions are jobs of
 * the exchange lane.
 */
#include "peer/round/internal.h"

bool round_guard_allocate(struct round *round)
{
    const struct aggregate *aggregate = &round->options.strategy->aggregate;
    size_t values = round->ops->is_graph ? round->options.values : 0;

    if (aggregate->ops == NULL) return true;
    round->gather = gather_create(aggregate, round->chunks, values);
    return round->gather != NULL;
}

enum rc round_guard_add(struct round *round, struct round_job *job, struct peer_id from,
                        uint32_t chunk, const float *values, float share)
{
    const struct gather_member member = {.id = from, .weight = job->weight, .share = share};
    bool is_own = job->work == WORK_OWN; /* there until the round is over */

    return gather_add(round->gather, chunk, &member, values, round_chunk_range(round, chunk).count,
                      is_own);
}

/* What the rule steps from; NULL before its first round. */
static const float *anchor_of(const struct round *round, struct range range)
{
    const float *planes[RULE_STATE_MAX];

    if (round->options.strategy->rule->state(round->rule, planes) == 0) return NULL;
    return planes[0] + range.first;
}

enum rc round_guard_reduce(struct round *round, struct round_job *job, float *out)
{
    struct range range = round_chunk_range(round, job->first);
    bool is_defenceless = round->options.strategy->aggregate.ops->is_defenceless;
    const float *centre =
        is_defenceless ? anchor_of(round, range) : round_centre(round, range, NULL);
    float radius = 0;

    if (centre != NULL && !is_defenceless)
        radius = robust_members_radius(round->robust, job->first, centre, range.count);

    return gather_reduce(round->gather, job->first, centre, radius, range.count, out,
                         &job->guarded);
}

void round_guard_take(struct round *round, const struct round_job *job)
{
    const struct gather_member member = {
        .id = job->chunk.from, .weight = job->whole, .share = job->weight / job->whole};

    gather_take(round->gather, job->slot, &member, job->radius);
}

void round_guard_settle(struct round *round, struct round_job *job, float *difference)
{
    if (round->gather == NULL || !round->ops->is_graph) return;
    gather_settle(round->gather, round->options.self, round->own, difference, &job->guarded);
}

/* ---- on the loop ---- */

static void note_chunk(struct round_guard *guard, const struct round_job *job)
{
    guard->refused += job->rc == RC_LIMIT || job->rc == RC_NONFINITE;
    if (job->chunk.kind != DATA_MEAN || (job->rc != RC_OK && job->rc != RC_REFUSED)) return;
    guard->means++;
    guard->means_refused += job->rc == RC_REFUSED;
}

void round_guard_note(struct round *round, const struct round_job *job)
{
    struct round_guard *guard = &round->stats.guard;

    if (job->work == WORK_DECODE) note_chunk(guard, job);
    guard->judged += job->guarded.judged;
    guard->reduced += job->guarded.reduced;
}
