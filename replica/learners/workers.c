/* See workers.h. One lock; a generation counter tells the crew that there is work. */
#include "replica/learners/workers.h"

#include "base/check.h"
#include "base/mem.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

struct worker {
    struct workers *crew;
    uint32_t number;
    pthread_t thread;
};

struct workers {
    uint32_t count, started; /* started: threads to join */
    struct worker crew[WORKERS_MAX];
    pthread_mutex_t lock, room; /* room: of those who ask to be alone */
    pthread_cond_t is_called, is_done;
    pthread_barrier_t meeting;
    uint64_t generation; /* of work called for */
    uint32_t busy;       /* threads still at it */
    bool is_ending;
    void (*function)(void *context, uint32_t number);
    void *context;
};

static void *work(void *context)
{
    struct worker *self = context;
    struct workers *w = self->crew;
    uint64_t seen = 0;

    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (!w->is_ending && w->generation == seen) {
            pthread_cond_wait(&w->is_called, &w->lock);
        }
        if (w->is_ending) break;
        seen = w->generation;
        pthread_mutex_unlock(&w->lock);
        w->function(w->context, self->number);
        pthread_mutex_lock(&w->lock);
        if (--w->busy == 0) pthread_cond_signal(&w->is_done);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* Signals are for the loop's thread. */
static bool start_threads(struct workers *w)
{
    sigset_t all, before;
    bool is_started = true;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (uint32_t i = 1; is_started && i < w->count; i++) {
        w->crew[i] = (struct worker){.crew = w, .number = i};
        is_started = pthread_create(&w->crew[i].thread, NULL, work, &w->crew[i]) == 0;
        if (is_started) w->started = i;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return is_started;
}

enum rc workers_create(uint32_t count, struct workers **workers)
{
    struct workers *w = mem_alloc(sizeof(*w));

    CHECK(count > 0 && count <= WORKERS_MAX);
    if (w == NULL) return RC_NOMEM;
    w->count = count;
    CHECK(pthread_mutex_init(&w->lock, NULL) == 0 && pthread_mutex_init(&w->room, NULL) == 0);
    CHECK(pthread_cond_init(&w->is_called, NULL) == 0 && pthread_cond_init(&w->is_done, NULL) == 0);
    CHECK(pthread_barrier_init(&w->meeting, NULL, count) == 0);
    if (!start_threads(w)) {
        workers_destroy(w);
        return RC_NOMEM;
    }
    *workers = w;
    return RC_OK;
}

void workers_destroy(struct workers *workers)
{
    if (workers == NULL) return;
    pthread_mutex_lock(&workers->lock);
    workers->is_ending = true;
    pthread_cond_broadcast(&workers->is_called);
    pthread_mutex_unlock(&workers->lock);
    for (uint32_t i = 1; i <= workers->started; i++) {
        pthread_join(workers->crew[i].thread, NULL);
    }
    pthread_barrier_destroy(&workers->meeting);
    pthread_cond_destroy(&workers->is_done);
    pthread_cond_destroy(&workers->is_called);
    pthread_mutex_destroy(&workers->room);
    pthread_mutex_destroy(&workers->lock);
    mem_free(workers);
}

uint32_t workers_count(const struct workers *workers)
{
    return workers->count;
}

void workers_run(struct workers *workers, void (*function)(void *context, uint32_t number),
                 void *context)
{
    if (workers->count > 1) {
        pthread_mutex_lock(&workers->lock);
        CHECK(workers->busy == 0);
        workers->function = function;
        workers->context = context;
        workers->busy = workers->count - 1;
        workers->generation++;
        pthread_cond_broadcast(&workers->is_called);
        pthread_mutex_unlock(&workers->lock);
    }
    function(context, 0);
    if (workers->count == 1) return;
    pthread_mutex_lock(&workers->lock);
    while (workers->busy > 0) {
        pthread_cond_wait(&workers->is_done, &workers->lock);
    }
    pthread_mutex_unlock(&workers->lock);
}

void workers_meet(struct workers *workers)
{
    if (workers->count > 1) pthread_barrier_wait(&workers->meeting);
}

void workers_enter(struct workers *workers)
{
    pthread_mutex_lock(&workers->room);
}

void workers_leave(struct workers *workers)
{
    pthread_mutex_unlock(&workers->room);
}
