/*
 * A parallel region of OpenMP, whose pool the matrix libraries use, too. Cuts depend on counts and
 * threads only, so that sums that are made of the parts' sums come out the same each time.
 */
#include "kernels/cpu/split.h"

#include "kernels/backend.h"

#include <omp.h>

struct split {
    size_t count, parts;
    split_run run;
    void *data;
};

static void run_part(const struct split *split, size_t part)
{
    split->run(split->data, part, split->count * part / split->parts,
               split->count * (part + 1) / split->parts);
}

size_t cpu_split_parts(const struct backend *backend, size_t count, size_t grain)
{
    size_t parts = count / (grain > 0 ? grain : 1), threads = backend->threads;

#if defined(__SANITIZE_THREAD__)
    threads = 1; /* the pool's barriers are unknown to it */
#endif
    if (parts > threads) parts = threads;
    return parts > 0 ? parts : 1;
}

void cpu_split(const struct backend *backend, size_t count, size_t grain, split_run run, void *data)
{
    struct split split = {count, cpu_split_parts(backend, count, grain), run, data};

    if (split.parts == 1) {
        run_part(&split, 0);
        return;
    }
#pragma omp parallel num_threads((int)split.parts) default(none) shared(split)
    {
        size_t threads = (size_t)omp_get_num_threads(); /* may be fewer than were asked for */

        for (size_t i = (size_t)omp_get_thread_num(); i < split.parts; i += threads) {
            run_part(&split, i);
        }
    }
}
