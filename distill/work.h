/*
 * work: how much of a long job is done, told as it goes: in samples that models run over, or steps.
 * Told by one thread, the command's.
 */
#ifndef GRAPEVINE_DISTILL_WORK_H
#define GRAPEVINE_DISTILL_WORK_H

#include <stddef.h>
#include <stdint.h>

typedef void (*work_told)(void *context, uint64_t done, uint64_t total);

struct work {
    uint64_t done, total;
    work_told told; /* NULL: nobody listens */
    void *context;
};

/** `more` than has been counted is done by now, but not finished for good: nothing is added. */
static inline void work_tell(const struct work *work, uint64_t more)
{
    if (work == NULL || work->told == NULL) return;
    work->told(work->context, work->done + more, work->total);
}

/** `more` is done. */
static inline void work_add(struct work *work, uint64_t more)
{
    if (work == NULL) return;
    work->done += more;
    work_tell(work, 0);
}

#endif
