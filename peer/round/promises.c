/*
 * Memory for what a promise may lead to. A snapshot precedes every promise of an exchange (READY
 * and COMMIT of pairs and edges, a share that leaves, an acknowledgement), so it is got there: jobs
 * to settle, to take edges and to keep a share, and a plane for each promise that may be in doubt
 * when the round ends. Where there is none the snapshot fails, and with it a round in which nothing
 * is promised yet. Loop thread.
 */
#include "peer/round/internal.h"

#include "base/mem.h"

static uint32_t promises_of(const struct round *round)
{
    uint32_t most = round->ops->promises_max;

    return round->partners < most ? round->partners : most;
}

static uint32_t planes_wanted(const struct round *round)
{
    uint32_t promises = promises_of(round), most = PROMISE_DOUBTS_MAX;

    return promises < most ? promises : most;
}

MUST_USE bool round_reserve(struct round *round)
{
    struct round_reserve *reserve = &round->reserve;

    while (reserve->jobs_count < promises_of(round) + 1) {
        struct round_job *job = mem_alloc(sizeof *job);

        if (job == NULL) return false;
        TAILQ_INSERT_TAIL(&reserve->jobs, job, siblings);
        reserve->jobs_count++;
    }
    while (reserve->planes_count < planes_wanted(round)) {
        float *plane = mem_aligned(round->capacity * sizeof(float));

        if (plane == NULL) return false;
        reserve->planes[reserve->planes_count++] = plane;
    }
    return true;
}

struct round_job *round_job_promised(struct round *round, enum round_work work, size_t values)
{
    struct round_job *job = TAILQ_FIRST(&round->reserve.jobs);

    if (job == NULL) return round_job_create(round, work, values);
    TAILQ_REMOVE(&round->reserve.jobs, job, siblings);
    round->reserve.jobs_count--;
    round_job_init(round, job, work, values);
    return job;
}

float *round_plane_promised(struct round *round)
{
    struct round_reserve *reserve = &round->reserve;

    if (reserve->planes_count > 0) return reserve->planes[--reserve->planes_count];
    return mem_aligned(round->capacity * sizeof(float));
}

void round_plane_back(struct round *round, float *plane)
{
    struct round_reserve *reserve = &round->reserve;

    if (plane != NULL && reserve->planes_count < planes_wanted(round)) {
        reserve->planes[reserve->planes_count++] = plane;
    } else {
        mem_free(plane);
    }
}

void round_reserve_deinit(struct round *round)
{
    round_jobs_clear(&round->reserve.jobs);
    while (round->reserve.planes_count > 0) {
        mem_free(round->reserve.planes[--round->reserve.planes_count]);
    }
}

/* ---- in doubt ---- */

void round_bitmap_take(const struct round *round, const struct command_over *over, uint8_t *bitmap)
{
    size_t bytes = (round->chunks + 7) / 8;
    bool is_all = over->bitmap == NULL;

    memset(bitmap, is_all ? 0xff : 0, bytes);
    if (is_all) return;
    memcpy(bitmap, over->bitmap, over->bitmap_bytes < bytes ? over->bitmap_bytes : bytes);
}

void round_doubt_clear(struct round *round, struct round_doubt *doubt)
{
    round_plane_back(round, doubt->difference);
    *doubt = (struct round_doubt){.bitmap = doubt->bitmap};
}

static struct round_doubt *round_doubt_find(struct round *round, const struct round_key *key)
{
    for (int i = 0; i < ROUND_DOUBTS_MAX; i++) {
        struct round_doubt *doubt = &round->doubts[i];

        if (doubt->is_used && !doubt->is_dropped && doubt->key.counter == key->counter &&
            peer_id_is_equal(doubt->key.initiator, key->initiator) &&
            boot_id_is_equal(doubt->key.boot, key->boot)) {
            return doubt;
        }
    }
    return NULL;
}

void round_doubt_drop(struct round *round, struct round_doubt *doubt)
{
    if (doubt->is_settling) {
        doubt->is_dropped = true;
    } else {
        round_doubt_clear(round, doubt);
    }
}

struct round_doubt *round_doubt_add(struct round *round, const struct round_key *key)
{
    for (int i = 0; i < ROUND_DOUBTS_MAX; i++) {
        struct round_doubt *doubt = &round->doubts[i];

        if (doubt->is_used) continue;
        doubt->difference = round_plane_promised(round);
        if (doubt->difference == NULL) return NULL;
        doubt->is_used = true;
        doubt->key = *key;
        doubt->weight = 1;
        doubt->replaced = round->replaced;
        doubt->mask = round->mask;
        doubt->layout = round->layout;
        return doubt;
    }
    return NULL;
}

void round_doubt_over(struct round *round, const struct command_over *over)
{
    struct round_doubt *doubt = round_doubt_find(round, &over->key);

    if (doubt == NULL) return;
    if (over->result == OVER_COMMITTED) {
        round_bitmap_take(round, over, doubt->bitmap);
        doubt->scale = over->scale;
        doubt->is_resolved = true;
        return;
    }
    round_doubt_drop(round, doubt);
}
