/* See lazy.h. Counters, samples and losses are as true steps leave them; a replica has one way to
 * take steps, which is replaced here. */
#include "tests/sim/lazy.h"

#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "replica/learners/replica_internal.h"

#include <string.h>

static const char *const names[LIES] = {"honest",     "sleeps",   "noise",
                                        "one in ten", "old step", "other data"};

static struct {
    enum lie lie;
    struct rng rng;
    float *before, *old; /* of OLD_STEP: scratch, and what a step once came to */
    size_t values;
} lazy;

const char *lazy_name(enum lie lie)
{
    return names[lie];
}

void lazy_forget(void)
{
    mem_free(lazy.before);
    mem_free(lazy.old);
    lazy.before = lazy.old = NULL;
}

/* As steps leave it, but for what they do to the model: samples, counters. */
static enum rc sleep_steps(struct replica *r, uint32_t steps, const atomic_bool *stop,
                           struct train_report *done, struct task_score *total)
{
    (void)stop;
    (void)total;
    for (uint32_t i = 0; i < steps; i++) {
        CHECK(shard_batch(r->shard, &r->next) == RC_OK);
        r->samples_seen += r->batch;
        r->step++;
        r->updates++;
        done->steps++;
        done->loss_sum += 1;
    }
    return RC_OK;
}

static float *plane(struct replica *r)
{
    return model_plane(r->model, SECTION_PARAMETERS);
}

/* About as far as a step goes. */
static void add_noise(struct replica *r)
{
    for (size_t i = 0; i < lazy.values; i++) {
        plane(r)[i] += (float)(1e-3 * rng_normal(&lazy.rng));
    }
}

static enum rc old_step(struct replica *r, const atomic_bool *stop, struct train_report *done,
                        struct task_score *total)
{
    const size_t bytes = lazy.values * sizeof(float);
    enum rc rc;

    if (lazy.old != NULL) {
        for (size_t i = 0; i < lazy.values; i++) {
            plane(r)[i] += lazy.old[i];
        }
        return sleep_steps(r, 1, stop, done, total);
    }
    lazy.before = mem_aligned(bytes);
    lazy.old = mem_aligned(bytes);
    memcpy(lazy.before, plane(r), bytes);
    rc = replica_host_steps(r, done->steps + 1, stop, done, total);
    for (size_t i = 0; i < lazy.values; i++) {
        lazy.old[i] = plane(r)[i] - lazy.before[i];
    }
    return rc;
}

/* True steps, on labels that are not those of the data. */
static enum rc poisoned_step(struct replica *r, const atomic_bool *stop, struct train_report *done,
                             struct task_score *total)
{
    struct samples *samples = (struct samples *)(uintptr_t)shard_set(r->shard);
    enum rc rc;

    for (size_t i = 0; i < samples->count; i++) {
        samples->small_labels[i] = (uint8_t)((samples->small_labels[i] + 1) % 10);
    }
    rc = replica_host_steps(r, done->steps + 1, stop, done, total);
    for (size_t i = 0; i < samples->count; i++) {
        samples->small_labels[i] = (uint8_t)((samples->small_labels[i] + 9) % 10);
    }
    return rc;
}

static enum rc lying_steps(struct replica *r, uint32_t steps, const atomic_bool *stop,
                           struct train_report *done, struct task_score *total)
{
    enum rc rc = RC_OK;

    lazy.values = model_schema(r->model)->values[SECTION_PARAMETERS];
    for (uint32_t i = 0; i < steps && rc == RC_OK; i++) {
        if (lazy.lie == ONE_IN_TEN && r->step % 10 == 0) {
            rc = replica_host_steps(r, done->steps + 1, stop, done, total);
        } else if (lazy.lie == OLD_STEP) {
            rc = old_step(r, stop, done, total);
        } else if (lazy.lie == OTHER_DATA) {
            rc = poisoned_step(r, stop, done, total);
        } else {
            rc = sleep_steps(r, 1, stop, done, total);
            if (lazy.lie == NOISE) add_noise(r);
        }
    }
    return rc;
}

void lazy_make(struct learner *learner, enum lie lie)
{
    if (lie == HONEST) return;
    lazy.lie = lie;
    rng_init(&lazy.rng, 1, 3);
    replica_of(learner)->run = lying_steps;
}
