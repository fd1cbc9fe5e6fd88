/* split: the passes over rows that are worth more than one core, on the pool of the libraries. */
#ifndef GRAPEVINE_KERNELS_CPU_SPLIT_H
#define GRAPEVINE_KERNELS_CPU_SPLIT_H

#include <stddef.h>

struct backend;

/** Items [from, to), as part number `part` (below the backend's threads). */
typedef void (*split_run)(void *data, size_t part, size_t from, size_t to);

/** How many parts cpu_split() makes of `count` items, of which fewer than `grain` are not worth a
 *  thread: 1 to the backend's threads. The same on every call. */
size_t cpu_split_parts(const struct backend *backend, size_t count, size_t grain);
/** Run all items, in equal parts side by side; returns when all are done. */
void cpu_split(const struct backend *backend, size_t count, size_t grain, split_run run,
               void *data);

#endif
