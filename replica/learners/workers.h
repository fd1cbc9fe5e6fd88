/*
 * workers: a fixed crew of threads that run one function at the same time, each with its number,
 * and can meet in the middle of it. Number 0 is the caller. Waiting costs no processor time.
 */
#ifndef GRAPEVINE_REPLICA_LEARNERS_WORKERS_H
#define GRAPEVINE_REPLICA_LEARNERS_WORKERS_H

#include "base/rc.h"

#include <stdint.h>

struct workers;

enum { WORKERS_MAX = 64 };

/** `count` from 1 to WORKERS_MAX, the caller included. RC_NOMEM: no memory or no thread. */
MUST_USE enum rc workers_create(uint32_t count, struct workers **workers);
/** NULL is fine. */
void workers_destroy(struct workers *workers);
uint32_t workers_count(const struct workers *workers);
/** function(context, i) for i below the count, all at once; returns when all are done. */
void workers_run(struct workers *workers, void (*function)(void *context, uint32_t number),
                 void *context);
/** Inside of such a function: wait until all have come here. Every one has to, equally often. */
void workers_meet(struct workers *workers);
/** Inside of such a function: between these two, one at a time. Not around workers_meet(). */
void workers_enter(struct workers *workers);
void workers_leave(struct workers *workers);

#endif
