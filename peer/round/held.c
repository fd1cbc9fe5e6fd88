/*
 * Planes a push round leaves behind: what was sent and not acknowledged, as the receiver decoded
 * it. The exchange names them by the share's key and says when one is needed no longer, or is to be
 * absorbed like a share that came in. Loop thread, but for the copying.
 */
#include "peer/round/internal.h"

#include "base/check.h"
#include "base/floats.h"
#include "base/mem.h"

_Static_assert((int)SHARES_MAX <= (int)ROUND_HELD_MAX, "all shares under way are held");

static const struct round_held *held_at(const struct round *round, const struct round_key *key)
{
    for (int i = 0; i < ROUND_HELD_MAX; i++) {
        const struct round_held *held = &round->planes[i];

        if (held->is_used && !held->is_dropped && round_key_is_equal(&held->key, key)) return held;
    }
    return NULL;
}

static struct round_held *held_find(struct round *round, const struct round_key *key)
{
    const struct round_held *held = held_at(round, key);

    return held == NULL ? NULL : &round->planes[held - round->planes];
}

static void held_clear(struct round *round, struct round_held *held)
{
    round_plane_back(round, held->plane);
    *held = (struct round_held){0};
}

static struct round_held *held_add(struct round *round, const struct round_key *key)
{
    for (int i = 0; i < ROUND_HELD_MAX; i++) {
        struct round_held *held = &round->planes[i];

        if (held->is_used) continue;
        held->plane = round_plane_promised(round);
        held->is_used = true;
        held->key = *key;
        return held;
    }
    CHECK(false); /* the exchange keeps fewer */
    return NULL;
}

void round_hold_plane(struct round *round, const struct round_key *key)
{
    struct round_held *held = held_add(round, key);
    struct round_job *job =
        held->plane == NULL ? NULL : round_job_promised(round, WORK_HOLD, round->options.values);

    if (job == NULL) { /* if it comes back it is lost */
        mem_free(held->plane);
        held->plane = NULL;
        log_warn(round->options.log, "what was sent is not kept: out of memory");
        return;
    }
    job->held = held;
    held->jobs++;
    held->is_copying = true;
    round_job_submit(round, job);
}

void round_release_plane(struct round *round, const struct round_key *key)
{
    struct round_held *held = held_find(round, key);

    if (held == NULL) return;
    held->is_dropped = true;
    round_held_sweep(round);
}

void round_held_sweep(struct round *round)
{
    for (int i = 0; i < ROUND_HELD_MAX; i++) {
        struct round_held *held = &round->planes[i];

        if (held->is_dropped && held->jobs == 0 && !round->is_held) held_clear(round, held);
    }
}

void round_absorb_plane(struct round *round, const struct round_key *key)
{
    struct round_job *job = round_job_create(round, WORK_ABSORB_HELD, round->options.values);

    if (job == NULL) {
        round->commands.is_short_of_memory = true;
        return;
    }
    job->held = held_find(round, key);
    if (job->held != NULL) job->held->jobs++;
    round_job_submit(round, job);
}

void round_held_run(struct round *round, struct round_job *job)
{
    const struct rule_ops *rule = round->options.strategy->rule;

    if (job->work == WORK_HOLD) {
        memcpy(job->held->plane, round->own, round->options.values * sizeof(float));
        return;
    }
    job->rc = job->held == NULL || job->held->plane == NULL ? RC_NOT_FOUND : RC_OK;
    for (uint32_t chunk = 0; chunk < round->chunks && job->rc == RC_OK; chunk++) {
        struct range range = round_chunk_range(round, chunk);

        job->rc = rule->absorb(round->rule, range, 1, job->held->plane + range.first);
    }
}

void round_held_done(struct round *round, struct round_job *job)
{
    if (job->held != NULL) {
        CHECK(job->held->jobs > 0);
        job->held->jobs--;
        if (job->work == WORK_HOLD) job->held->is_copying = false;
        round_held_sweep(round);
    }
    if (job->work != WORK_ABSORB_HELD || job->generation != round->generation) return;
    round->ops->on_job_done(round->exchange, JOB_ABSORB_HELD, 0, job->rc, job->hash,
                            round_now(round), &round->commands);
}

void round_held_deinit(struct round *round)
{
    for (int i = 0; i < ROUND_HELD_MAX; i++) {
        held_clear(round, &round->planes[i]);
    }
}

/* ---- in checkpoints ---- */

bool round_held_planes(const struct round *round, const float *planes[ROUND_HELD_MAX],
                       size_t *count)
{
    struct exchange_counts counts;

    round->ops->counts(round->exchange, &counts);
    *count = 0;
    for (uint32_t i = 0; i < counts.custody; i++) {
        const struct round_held *held = held_at(round, &counts.held[i]);

        if (held != NULL && held->plane == NULL) return false;
        /* The share of the round that runs, or one that is just being copied from there. */
        planes[i] = held == NULL || held->is_copying ? round->own : held->plane;
    }
    *count = counts.custody;
    return true;
}

MUST_USE enum rc round_held_restore(struct round *round, const float *const *planes, size_t count)
{
    struct exchange_counts counts;

    round->ops->counts(round->exchange, &counts);
    if (count != counts.custody) return RC_SHAPE;
    for (size_t i = 0; i < count; i++) {
        struct round_held *held;

        if (!floats_are_finite(planes[i], round->options.values)) return RC_NONFINITE;
        held = held_add(round, &counts.held[i]);
        if (held->plane == NULL) return RC_NOMEM;
        memcpy(held->plane, planes[i], round->options.values * sizeof(float));
    }
    return RC_OK;
}
