/*
 * The prefetching thread: see prefetch.h. A ring with three counters that only grow: orders
 * submitted, batches made, batches taken. A slot belongs to the caller until it is submitted, then
 * to the thread until it is made, then to the caller again; counters change under the lock, slots
 * outside of it. The caller never waits while a batch is ready, the thread never while there is an
 * order.
 */
#include "replica/data/prefetch.h"

#include "base/check.h"
#include "base/cpu.h"
#include "base/mem.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

/* Values of a batch below which handing it over costs as much as making it. */
enum { WORTHWHILE_VALUES = 1 << 20, STACK_BYTES = 256 * 1024 };

struct slot {
    struct prefetch_order order;
    struct batch batch;
};

struct prefetch {
    struct prefetch_options options;
    struct slot slots[PREFETCH_DEPTH];
    float *image; /* the thread's */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t is_submitted, is_made;
    uint64_t submitted, made, taken; /* submitted and taken are written by the caller only */
    bool is_ending;
};

bool prefetch_parse(const char *text, enum prefetch_mode *mode)
{
    static const char *const names[] = {"off", "auto", "on"};

    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        if (strcmp(text, names[i]) != 0) continue;
        *mode = (enum prefetch_mode)i;
        return true;
    }
    return false;
}

bool prefetch_is_useful(enum prefetch_mode mode, const struct dataset_info *info, uint32_t rows,
                        const struct augment *augment, uint32_t threads)
{
    size_t values = dataset_values(info) * rows;

    if (mode != PREFETCH_AUTO) return mode == PREFETCH_ON;
    if (info->is_in_files) return true; /* who waits for a disk takes no processor */
    /* Moving an image costs some four times what copying it does. */
    if (!augment_is_empty(augment)) values *= 4;
    if (values < WORTHWHILE_VALUES) return false;
    return cpu_cores() > threads;
}

enum rc prefetch_order_init(struct prefetch_order *order, const struct prefetch_options *options)
{
    bool has_keys = !augment_is_empty(options->augment);
    struct prefetch_order made = {.picked = mem_array(options->rows, sizeof *made.picked)};

    if (has_keys) made.keys = mem_array(options->rows, sizeof *made.keys);
    *order = made;
    if (made.picked != NULL && (made.keys != NULL || !has_keys)) return RC_OK;
    prefetch_order_deinit(order);
    return RC_NOMEM;
}

void prefetch_order_deinit(struct prefetch_order *order)
{
    mem_free(order->picked);
    mem_free(order->keys);
    *order = (struct prefetch_order){NULL, NULL};
}

void prefetch_fill(const struct prefetch_options *options, const struct prefetch_order *order,
                   float *image, struct batch *batch)
{
    const struct pick pick = {order->picked, 0, options->rows};

    if (samples_gather(options->samples, options->info, pick, batch) != RC_OK)
        return; /* batch->rc */
    if (order->keys != NULL) {
        augment_batch(options->augment, options->info, order->keys, image, batch);
    }
}

static void *run(void *context)
{
    struct prefetch *p = context;

    pthread_mutex_lock(&p->lock);
    for (;;) {
        struct slot *slot = &p->slots[p->made % PREFETCH_DEPTH];
        while (!p->is_ending && p->made == p->submitted) {
            pthread_cond_wait(&p->is_submitted, &p->lock);
        }
        if (p->is_ending) break;
        pthread_mutex_unlock(&p->lock);
        prefetch_fill(&p->options, &slot->order, p->image, &slot->batch);
        pthread_mutex_lock(&p->lock);
        p->made++;
        pthread_cond_signal(&p->is_made);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* Signals are for the loop's thread. */
static int start_thread(struct prefetch *p)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    int error;

    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&p->thread, &attributes, run, p);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error;
}

static void release(struct prefetch *p)
{
    for (int i = 0; i < PREFETCH_DEPTH; i++) {
        prefetch_order_deinit(&p->slots[i].order);
        batch_deinit(&p->slots[i].batch);
    }
    mem_free(p->image);
    mem_free(p);
}

enum rc prefetch_create(const struct prefetch_options *options, struct prefetch **prefetch,
                        struct fault *why)
{
    struct prefetch *p = mem_alloc(sizeof *p);
    enum rc rc = p == NULL ? RC_NOMEM : RC_OK;

    for (int i = 0; rc == RC_OK && i < PREFETCH_DEPTH; i++) {
        rc = prefetch_order_init(&p->slots[i].order, options);
        if (rc == RC_OK) rc = batch_init(&p->slots[i].batch, options->info, options->rows);
    }
    if (rc == RC_OK) {
        p->options = *options;
        p->image = mem_array(dataset_values(options->info), sizeof *p->image);
        if (p->image == NULL) rc = RC_NOMEM;
    }
    if (rc != RC_OK) {
        if (p != NULL) release(p);
        return fault_set(why, rc, "cannot prefetch: out of memory; pass --prefetch off");
    }
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->is_submitted, NULL);
    pthread_cond_init(&p->is_made, NULL);
    if (start_thread(p) != 0) {
        release(p);
        return fault_set(why, RC_LIMIT, "cannot start another thread; pass --prefetch off");
    }
    *prefetch = p;
    return RC_OK;
}

void prefetch_destroy(struct prefetch *prefetch)
{
    if (prefetch == NULL) return;
    pthread_mutex_lock(&prefetch->lock);
    prefetch->is_ending = true;
    pthread_cond_signal(&prefetch->is_submitted);
    pthread_mutex_unlock(&prefetch->lock);
    pthread_join(prefetch->thread, NULL);
    pthread_cond_destroy(&prefetch->is_made);
    pthread_cond_destroy(&prefetch->is_submitted);
    pthread_mutex_destroy(&prefetch->lock);
    release(prefetch);
}

uint32_t prefetch_outstanding(const struct prefetch *prefetch)
{
    return (uint32_t)(prefetch->submitted - prefetch->taken);
}

struct prefetch_order *prefetch_next(struct prefetch *prefetch)
{
    CHECK(prefetch_outstanding(prefetch) < PREFETCH_DEPTH);
    return &prefetch->slots[prefetch->submitted % PREFETCH_DEPTH].order;
}

void prefetch_submit(struct prefetch *prefetch)
{
    pthread_mutex_lock(&prefetch->lock);
    prefetch->submitted++;
    pthread_cond_signal(&prefetch->is_submitted);
    pthread_mutex_unlock(&prefetch->lock);
}

/* Until `made` batches are there. */
static void wait_for(struct prefetch *prefetch, uint64_t made)
{
    pthread_mutex_lock(&prefetch->lock);
    while (prefetch->made < made) {
        pthread_cond_wait(&prefetch->is_made, &prefetch->lock);
    }
    pthread_mutex_unlock(&prefetch->lock);
}

void prefetch_take(struct prefetch *prefetch, struct batch *batch)
{
    struct slot *slot = &prefetch->slots[prefetch->taken % PREFETCH_DEPTH];
    struct batch ready;

    CHECK(prefetch_outstanding(prefetch) > 0 && batch->rows_max == prefetch->options.rows);
    wait_for(prefetch, prefetch->taken + 1);
    ready = slot->batch;
    slot->batch = *batch;
    *batch = ready;
    prefetch->taken++;
}

void prefetch_drain(struct prefetch *prefetch)
{
    wait_for(prefetch, prefetch->submitted);
    prefetch->taken = prefetch->submitted;
}
