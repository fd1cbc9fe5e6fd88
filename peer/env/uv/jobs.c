/*
 * uv_jobs: lanes, each a thread and a queue; the only file with a lock. A lane's thread
 * starts with its first job. A job travels: submit (loop) -> lane queue -> run (lane thread) ->
 * done list -> done (loop, woken by uv_async_send). While short jobs follow each other the loop is
 * woken for several of them at a time, and so is a lane for those of one turn of the loop: waking a
 * thread costs as much as sealing a record.
 */
#include "peer/env/uv/env.h"

#include "base/check.h"

#include <pthread.h>

enum { UNTOLD_MAX = 8, UNWOKEN_MAX = 4 };
#define SHORT_NS UINT64_C(100000) /* modelled */

static const char *const lane_names[LANE_COUNT] = {[LANE_TRAINING] = "training",
                                                   [LANE_EXCHANGE] = "exchange",
                                                   [LANE_STORE] = "store",
                                                   [LANE_SEALING] = "sealing",
                                                   [LANE_OPENING] = "opening"};

/* The next job of the lane, or NULL when the env is being closed; jobs not begun are then dropped.
 * Called with the lock held. */
static struct job *lane_take(struct uv_lane *lane)
{
    struct job *job;

    while (lane->first == NULL && !lane->jobs->is_stopping) {
        uv_cond_wait(&lane->wake, &lane->jobs->lock);
    }
    if (lane->jobs->is_stopping) return NULL;
    job = lane->first;
    lane->first = job->next;
    if (lane->first == NULL) lane->last = &lane->first;
    job->next = NULL;
    return job;
}

/* May the loop hear of what is done together with the next job? */
static bool tells_later(const struct uv_lane *lane, unsigned untold)
{
    return lane->first != NULL && lane->first->cost_ns < SHORT_NS && untold < UNTOLD_MAX;
}

/* In the lane's thread. */
static void job_run(struct uv_lane *lane, struct job *job)
{
    const struct tracer *tracer = lane->jobs->tracer;
    unsigned number = (unsigned)(lane - lane->jobs->lanes);
    uint64_t begin_ns;

    if (tracer == NULL || job->name == NULL) {
        job->run(job);
        return;
    }
    begin_ns = uv_hrtime();
    job->run(job);
    trace_span(tracer, TRACE_LANES + number, TRACE_LANES + number,
               &(struct trace_span){.name = job->name,
                                    .begin_ns = begin_ns,
                                    .end_ns = uv_hrtime(),
                                    .round = job->round,
                                    .partner = job->partner});
}

static void lane_main(void *argument)
{
    struct uv_lane *lane = argument;
    struct uv_jobs *jobs = lane->jobs;
    unsigned untold = 0;
    struct job *job;

    (void)pthread_setname_np(pthread_self(), lane_names[lane - jobs->lanes]);
    uv_mutex_lock(&jobs->lock);
    while ((job = lane_take(lane)) != NULL) {
        uv_mutex_unlock(&jobs->lock);
        job_run(lane, job);
        uv_mutex_lock(&jobs->lock);
        *jobs->done_last = job;
        jobs->done_last = &job->next;
        if (tells_later(lane, ++untold)) continue;
        untold = 0;
        CHECK(uv_async_send(&jobs->async) == 0);
    }
    uv_mutex_unlock(&jobs->lock);
}

static void on_jobs_done(uv_async_t *async)
{
    struct uv_env *env = async->data;
    struct uv_jobs *jobs = &env->jobs;
    struct job *job;

    uv_mutex_lock(&jobs->lock);
    job = jobs->done_first;
    jobs->done_first = NULL;
    jobs->done_last = &jobs->done_first;
    uv_mutex_unlock(&jobs->lock);
    while (job != NULL && !env->is_stopping) {
        struct job *next = job->next; /* done() may free the job or submit it again */

        job->next = NULL;
        job->done(job);
        job = next;
    }
}

enum rc uv_jobs_init(struct uv_env *env)
{
    struct uv_jobs *jobs = &env->jobs;

    if (uv_async_init(&env->loop, &jobs->async, on_jobs_done) != 0) return RC_IO;
    jobs->async.data = env;
    jobs->tracer = env->env.tracer;
    CHECK(uv_mutex_init(&jobs->lock) == 0);
    jobs->done_last = &jobs->done_first;
    for (int i = 0; i < LANE_COUNT; i++) {
        jobs->lanes[i].jobs = jobs;
        jobs->lanes[i].last = &jobs->lanes[i].first;
        CHECK(uv_cond_init(&jobs->lanes[i].wake) == 0);
    }
    return RC_OK;
}

static void lane_wake(struct uv_lane *lane)
{
    lane->unwoken = 0;
    uv_cond_signal(&lane->wake);
}

void uv_jobs_wake(struct uv_env *env)
{
    for (int i = 0; i < LANE_COUNT; i++) {
        if (env->jobs.lanes[i].unwoken > 0) lane_wake(&env->jobs.lanes[i]);
    }
}

void uv_env_submit(struct env *env, enum lane lane_number, struct job *job)
{
    struct uv_jobs *jobs = &uv_env_of(env)->jobs;
    struct uv_lane *lane = &jobs->lanes[lane_number];

    CHECK(lane_number < LANE_COUNT && job->run != NULL && job->done != NULL);
    job->next = NULL;
    if (jobs->tracer != NULL) job->round = jobs->tracer->round;
    uv_mutex_lock(&jobs->lock);
    *lane->last = job;
    lane->last = &job->next;
    uv_mutex_unlock(&jobs->lock);
    if (++lane->unwoken >= UNWOKEN_MAX) lane_wake(lane); /* there is work beside this turn's */
    if (!lane->has_thread) {
        /* A process that cannot start a few threads cannot train. */
        CHECK(uv_thread_create(&lane->thread, lane_main, lane) == 0);
        lane->has_thread = true;
    }
}

void uv_jobs_stop(struct uv_env *env)
{
    struct uv_jobs *jobs = &env->jobs;

    uv_mutex_lock(&jobs->lock);
    jobs->is_stopping = true;
    for (int i = 0; i < LANE_COUNT; i++) {
        uv_cond_signal(&jobs->lanes[i].wake);
    }
    uv_mutex_unlock(&jobs->lock);
    for (int i = 0; i < LANE_COUNT; i++) {
        if (jobs->lanes[i].has_thread) CHECK(uv_thread_join(&jobs->lanes[i].thread) == 0);
        jobs->lanes[i].has_thread = false;
    }
}

void uv_jobs_deinit(struct uv_env *env)
{
    for (int i = 0; i < LANE_COUNT; i++) {
        uv_cond_destroy(&env->jobs.lanes[i].wake);
    }
    uv_mutex_destroy(&env->jobs.lock);
}
