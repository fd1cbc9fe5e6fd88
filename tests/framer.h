/* framer: what tests look at in a framer. */
#ifndef GRAPEVINE_TESTS_FRAMER_H
#define GRAPEVINE_TESTS_FRAMER_H

#include "peer/env/framer.h"

/** Memory held. */
static inline size_t framer_capacity(const struct framer *framer)
{
    size_t bytes = framer->buffer_bytes;

    if (framer->big != NULL) bytes += framer->big->count;
    if (framer->out != NULL) bytes += framer->out->count;
    return bytes;
}

#endif
