/*
 * snapshot: a copy of a plane as it was at one moment, which leaves the device, encoded, while the
 * device goes on computing; and the way back of a difference. Only encoded bytes are copied to the
 * host. For devices whose memory is not the host's.
 *
 *   compute thread: take ... take, seal   then steps        apply
 *   another thread:                       fetch, chunk, put
 *
 * take() and apply() only queue work behind the steps that were called before; fetch() and put()
 * wait on streams of their own and may run at the same time as steps. One of fetch(), chunk() and
 * put() at a time, and none between take() and seal(). RC_DEVICE as everywhere.
 */
#ifndef GRAPEVINE_KERNELS_SNAPSHOT_H
#define GRAPEVINE_KERNELS_SNAPSHOT_H

#include "base/rc.h"
#include "kernels/codec.h"

struct snapshot_options {
    size_t values;       /* of the plane */
    size_t chunk_values; /* encoded one after the other; the last may be shorter */
    enum codec_format format;
};

struct snapshot {
    const struct snapshot_ops *ops;
};

struct snapshot_ops {
    void (*destroy)(struct snapshot *snapshot);
    /** Values [first, first + count) = `from`, on the device. */
    MUST_USE enum rc (*take)(struct snapshot *snapshot, size_t first, const float *from,
                             size_t count);
    /** The same, from the host; for few values: waits. */
    MUST_USE enum rc (*take_host)(struct snapshot *snapshot, size_t first, const float *from,
                                  size_t count);
    MUST_USE enum rc (*seal)(struct snapshot *snapshot);
    /** Encode what was sealed and bring it to the host. RC_NONFINITE if a value is no number. */
    MUST_USE enum rc (*fetch)(struct snapshot *snapshot);
    /** Encoded chunk `i` in page-locked host memory, valid until the next fetch() but one: there
     * are two such buffers, used in turn. */
    const uint8_t *(*chunk)(struct snapshot *snapshot, size_t i, size_t *bytes);
    /** Bring `values` float32 to the device, beside the plane. `difference` may be changed on
     *  return. */
    MUST_USE enum rc (*put)(struct snapshot *snapshot, const float *difference, size_t values);
    /** y += what was put at [first, first + count), bit by bit as the host adds. */
    MUST_USE enum rc (*apply)(struct snapshot *snapshot, size_t first, float *y, size_t count);
};

#endif
