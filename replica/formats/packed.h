/*
 * packed: weights of a model file in less room than float32 takes, as `compact` writes them and all
 * that reads model files reads them. Weights are the parameters of two or more extents; their first
 * extent is the channel. A weight NAME of a file is one of
 *
 *   NAME                      F32, the tensor's shape: as it is
 *   NAME, NAME.scale          I8 q of the tensor's shape, F32 s a channel: the value is q s
 *   NAME.mask, NAME.values    a mask, U8, a bit a value, and in order the values whose bit is 1,
 *                             F32 or (with NAME.scale) I8: the others are 0
 *
 * In a mask the lowest bit of a byte comes first, and bits behind the last value are 0.
 *
 * Symmetric, by the largest magnitude of a channel: s = max |w| / 127, so |w - q s| <= s / 2 (Jacob
 * et al. 2018, arXiv:1712.05877; Krishnamoorthi 2018, arXiv:1806.08342). -128 does not occur.
 */
#ifndef GRAPEVINE_REPLICA_FORMATS_PACKED_H
#define GRAPEVINE_REPLICA_FORMATS_PACKED_H

#include "base/fault.h"
#include "base/rc.h"
#include "replica/plane/plane.h"

struct tensor_file;
struct tensor_view;

enum { PACKED_MOST = 127 };

/** Whether it is a weight. */
bool packed_may(const struct tensor *tensor);
/** Add a weight's finite values, as int8 or as they are, and with a mask where zeros are so many
 *  that it saves room. Copies. RC_NOMEM, RC_LIMIT. */
MUST_USE enum rc packed_add(struct tensor_file *file, const struct tensor *tensor,
                            const float *values, bool is_int8);
/** Whether the file has this weight in another form than F32. */
bool packed_is(const struct tensor_file *file, const struct tensor *tensor);
/** Its values, of a file from anybody: RC_FORMAT, RC_SHAPE or RC_NONFINITE where a part is missing,
 *  does not fit or holds what the form does not have. F32 values themselves are not judged. */
MUST_USE enum rc packed_read(const struct tensor_file *file, const char *name,
                             const struct tensor *tensor, float *values, struct fault *why);
/** Of a weight that packed_read() read: its int8 values, all of them, and the scale of each
 *  channel, borrowed from the file. False: they are none. */
bool packed_int8(const struct tensor_file *file, const struct tensor *tensor, int8_t *values,
                 const float **scales);
/** Whether any entry of the file is int8. */
bool packed_has_int8(const struct tensor_file *file);
/** How many values an entry of a file can stand for at most. */
uint64_t packed_values_max(const struct tensor_view *view);

#endif
