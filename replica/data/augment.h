/*
 * augment: training images moved and mirrored at random, `--augment crop:4,flip`. What happens to a
 * sample is a function of a key (which seed, which epoch, which place in it), so a resumed run and
 * a prefetching one see the same images to the bit. Pure; any thread.
 */
#ifndef GRAPEVINE_REPLICA_DATA_AUGMENT_H
#define GRAPEVINE_REPLICA_DATA_AUGMENT_H

#include "base/fault.h"
#include "base/rc.h"
#include "replica/data/dataset.h"

#include <stdbool.h>
#include <stdint.h>

struct augment {
    uint32_t crop; /* pad so many pixels on each side with black, then cut out at random; 0: no */
    bool flip;     /* mirror left and right, every second time */
};

/** NULL or "": nothing. Words are separated by commas or blanks. RC_PARSE with the column. */
MUST_USE enum rc augment_parse(const char *text, struct augment *augment, struct fault *why);
/** That these images can be treated so; RC_USAGE. */
MUST_USE enum rc augment_check(const struct augment *augment, const struct dataset_info *info,
                               struct fault *why);
bool augment_is_empty(const struct augment *augment);
/** The key of the sample taken at `place` of epoch number `epoch`. */
uint64_t augment_key(uint64_t seed, uint64_t epoch, uint64_t place);
/** Change every image of the batch by its key: keys[rows]. `image`: room for one. */
void augment_batch(const struct augment *augment, const struct dataset_info *info,
                   const uint64_t *keys, float *image, struct batch *batch);

#endif
