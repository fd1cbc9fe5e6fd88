/*
 * blob: an immutable byte string with counted references, so that one encoded chunk goes to eight
 * neighbours as one allocation. Counts are changed on the loop thread only.
 */
#ifndef GRAPEVINE_BASE_BLOB_H
#define GRAPEVINE_BASE_BLOB_H

#include <stddef.h>
#include <stdint.h>

struct blob {
    uint32_t references;
    size_t count; /* bytes */
    uint8_t bytes[];
};

/** One reference, `count` bytes still to be filled by the creator. NULL when memory is short. */
struct blob *blob_create(size_t count);
struct blob *blob_copy(const void *bytes, size_t count);
struct blob *blob_ref(struct blob *blob);
/** Releases the memory with the last reference. NULL is fine. */
void blob_unref(struct blob *blob);

#endif
