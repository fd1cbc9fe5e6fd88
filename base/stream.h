/*
 * stream: copies of planes. Those that are larger than the cache and are not read again soon pass
 * it by: the processor then does not fetch what it is about to overwrite, and keeps what else it
 * has at hand.
 */
#ifndef GRAPEVINE_BASE_STREAM_H
#define GRAPEVINE_BASE_STREAM_H

#include <stdbool.h>
#include <stddef.h>

/** Is a plane of so many values one of those? */
bool stream_is_worth_it(size_t plane_values);
/** Copies `count` values, not overlapping, past the cache where the processor can; any alignment.
 */
void stream_copy(float *to, const float *from, size_t count);
/** The same, past the cache if `streams`; and were all of them finite? All are copied either way.
 */
bool stream_copy_finite(float *to, const float *from, size_t count, bool streams);

#endif
