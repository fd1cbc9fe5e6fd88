/*
 * image_file: one picture from a file: PNG, or binary PGM and PPM, told apart by how they begin.
 * Commands.
 */
#ifndef GRAPEVINE_REPLICA_READERS_IMAGE_FILE_H
#define GRAPEVINE_REPLICA_READERS_IMAGE_FILE_H

#include "base/fault.h"
#include "base/rc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { IMAGE_SIDE_MAX = 1 << 14, IMAGE_FILE_BYTES_MAX = 1 << 28, IMAGE_PIXELS_MAX = 1 << 26 };

struct image {
    uint32_t channels; /* 1: grey, 3: red, green, blue */
    uint32_t height, width;
    uint8_t *bytes; /* [height][width][channels]; owned */
};

/** By the ending of its name. */
bool image_is_path(const char *path);
/** What is transparent gets a black ground. RC_NOT_FOUND, RC_IO; RC_FORMAT: damaged, or of another
 *  kind; RC_LIMIT: larger than the bounds above; RC_UNSUPPORTED: PNG, where the program was built
 *  without libpng; RC_NOMEM. */
MUST_USE enum rc image_read(const char *path, struct image *image, struct fault *why);
/** The same of a file's bytes; `name` is for messages. */
MUST_USE enum rc image_decode(const char *name, const uint8_t *bytes, size_t count,
                              struct image *image, struct fault *why);
/** Fine for an empty one ({0}). */
void image_deinit(struct image *image);
/** values[channels][height][width] from 0 to 1. Colours become grey by their luma (ITU-R BT.601),
 *  grey becomes three equal colours. `channels` is 1 or 3. */
void image_values(const struct image *image, uint32_t channels, float *values);

#endif
