/*
 * data_idx: files of MNIST's IDX form (magic, big-endian dimensions, bytes), gzipped or not, read
 * as a stream so that memory follows what is kept and not what the file claims.
 */
#ifndef GRAPEVINE_REPLICA_READERS_IDX_H
#define GRAPEVINE_REPLICA_READERS_IDX_H

#include "base/fault.h"
#include "base/rc.h"
#include "replica/readers/stream.h"

#include <stddef.h>
#include <stdint.h>

enum { IDX_PATH_BYTES = DATA_PATH_BYTES, IDX_SIDE_MAX = 1024, IDX_SAMPLES_MAX = 1 << 24 };

struct idx_header {
    uint32_t count;         /* samples, 1 to IDX_SAMPLES_MAX */
    uint32_t height, width; /* 1 to IDX_SIDE_MAX; both 1 for labels */
};

/* Which of the four files. */
enum idx_file { IDX_TRAIN_IMAGES, IDX_TRAIN_LABELS, IDX_TEST_IMAGES, IDX_TEST_LABELS, IDX_FILES };

/** Open and read the header; the bytes follow. The file is large enough to hold what the header
 *  claims. RC_NOT_FOUND, RC_FORMAT, RC_IO, RC_NOMEM. */
MUST_USE enum rc idx_open(const char *path, enum idx_file file, struct data_stream **stream,
                          struct idx_header *header, struct fault *why);

#endif
