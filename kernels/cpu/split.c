/*
 * What a compiler makes of a parallel loop, without the pragma: the calls of libgomp, whose pool
 * the matrix libraries use, too. Cuts depend on counts and threads only, so that sums that are made
 * of the parts' sums come out the same each time.
 */
#include "kernels/cpu/split.h"

#include "kernels/backend.h"

/* From libgomp; <omp.h> comes with gcc only. */
void GOMP_parallel(void (*function)(void *), void *data, unsigned threads, unsigned flags);
int omp_get_thread_num(void);
int omp_get_num_threads(void);

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

/* The pool may be smaller than asked for. */
static void on_thread(void *data)
{
    const struct split *split = data;
    size_t threads = (size_t)omp_get_num_threads();

    for (size_t part = (size_t)omp_get_thread_num(); part < split->parts; part += threads) {
        run_part(split, part);
    }
}

size_t cpu_split_parts(const struct backend *backend, size_t count, size_t grain)
{
    size_t parts = count / (grain > 0 ? grain : 1), threads = backend->threads;

#if defined(__SANITIZE_THREAD__)
    threads = 1; /* libgomp's barriers are unknown to it */
#endif
    if (parts > threads) parts = threads;
    return parts > 0 ? parts : 1;
}

void cpu_split(const struct backend *backend, size_t count, size_t grain, split_run run, void *data)
{
    struct split split = {count, cpu_split_parts(backend, count, grain), run, data};

    if (split.parts > 1) {
        GOMP_parallel(on_thread, &split, (unsigned)split.parts, 0);
    } else {
        run_part(&split, 0);
    }
}
