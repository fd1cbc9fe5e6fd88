/*
 * store_safetensors: named tensors and string metadata in the safetensors form (8-byte header
 * length, JSON header, raw little-endian values), the form of every model and checkpoint file.
 * Every file we write carries "digest" in its metadata: BLAKE2b-256 in hexadecimal over the value
 * bytes; it is checked on load when present. Header limit 16 MiB, tensors limit 65,536.
 */
#ifndef GRAPEVINE_REPLICA_PLANE_STORE_SAFETENSORS_H
#define GRAPEVINE_REPLICA_PLANE_STORE_SAFETENSORS_H

#include "base/fault.h"
#include "base/file.h"
#include "base/rc.h"
#include "replica/plane/plane.h"

struct tensor_file;

/* A view of one entry. `dtype` is the safetensors name: "F32", "F16", "BF16", "U8", "I64", "U64"...
 */
struct tensor_view {
    const char *name;
    const char *dtype;
    uint32_t rank;
    uint64_t shape[TENSOR_RANK_MAX + 4];
    const void *bytes;
    size_t bytes_count;
};

struct tensor_file *tensor_file_create(void);
void tensor_file_destroy(struct tensor_file *file);
/** Borrow `bytes` until tensor_file_destroy(). RC_LIMIT, RC_NOMEM; a name twice is RC_MISMATCH. */
MUST_USE enum rc tensor_file_add(struct tensor_file *file, const struct tensor_view *view);
/** The same, of a copy of `bytes`. */
MUST_USE enum rc tensor_file_add_copy(struct tensor_file *file, const struct tensor_view *view);
/** Shorthand for one-dimensional float32 / uint64 values. The _copy form copies `values`. */
MUST_USE enum rc tensor_file_add_f32(struct tensor_file *file, const char *name,
                                     const float *values, size_t count);
MUST_USE enum rc tensor_file_add_u64_copy(struct tensor_file *file, const char *name,
                                          const uint64_t *values, size_t count);
MUST_USE enum rc tensor_file_set(struct tensor_file *file, const char *key, const char *value);
/** NULL if absent. */
const char *tensor_file_get(const struct tensor_file *file, const char *key);
const struct tensor_view *tensor_file_find(const struct tensor_file *file, const char *name);
size_t tensor_file_count(const struct tensor_file *file);
const struct tensor_view *tensor_file_at(const struct tensor_file *file, size_t index);
/** Metadata by index, for `inspect`; false past the end. */
bool tensor_file_metadata_at(const struct tensor_file *file, size_t index, const char **key,
                             const char **value);

/** The file as pieces for file_replace() or env store put: computes the digest, builds the header.
 *  Pieces stay valid until tensor_file_destroy() or the next change. */
MUST_USE enum rc tensor_file_encode(struct tensor_file *file, const struct piece **pieces,
                                    size_t *pieces_count);
/** Parse hostile bytes; on RC_OK the file owns `bytes` (from mem_*) and frees it. On error the
 *  caller still owns `bytes`. `name` is for messages. RC_FORMAT, RC_LIMIT, RC_MISMATCH (digest). */
MUST_USE enum rc tensor_file_decode(const char *name, void *bytes, size_t count,
                                    struct tensor_file **file, struct fault *why);
MUST_USE enum rc tensor_file_save(struct tensor_file *file, const char *path, struct fault *why);
MUST_USE enum rc tensor_file_load(const char *path, struct tensor_file **file, struct fault *why);

#endif
