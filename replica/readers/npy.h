/*
 * data_npy: headers of NumPy's .npy files, versions 1 to 3. Pure but for the stream it reads.
 */
#ifndef GRAPEVINE_REPLICA_READERS_NPY_H
#define GRAPEVINE_REPLICA_READERS_NPY_H

#include "base/fault.h"
#include "base/rc.h"
#include "replica/readers/stream.h"

#include <stddef.h>
#include <stdint.h>

enum { NPY_DIMENSIONS_MAX = 4, NPY_HEADER_BYTES_MAX = 1 << 16 };

enum npy_type { NPY_U8, NPY_I32, NPY_I64, NPY_F32, NPY_F64, NPY_TYPES };

struct npy_header {
    enum npy_type type;
    uint32_t dimensions;                /* 1 to NPY_DIMENSIONS_MAX */
    uint64_t shape[NPY_DIMENSIONS_MAX]; /* each at least 1; 1 beyond `dimensions` */
    size_t item_bytes;
};

/** Read the header of an open file; the values follow. Little-endian, in C order, and as many as
 *  the file can hold, or RC_FORMAT. */
MUST_USE enum rc npy_read_header(struct data_stream *stream, struct npy_header *header,
                                 struct fault *why);
/** Value number `i` of `bytes`. */
double npy_value(const struct npy_header *header, const uint8_t *bytes, size_t i);

#endif
