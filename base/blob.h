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
    uint8_t *bytes;
    struct blob *whole; /* a slice: whose bytes these are; NULL: they are its own */
};

/** One reference, `count` bytes still to be filled by the creator. NULL when out of memory. */
struct blob *blob_create(size_t count);
/** `count` bytes of `whole` from `first` on, which lives as long as they do. NULL when memory is
 *  short. Loop thread. */
struct blob *blob_slice(struct blob *whole, size_t first, size_t count);
/** Zeros at an address that is a multiple of 64. NULL when out of memory. */
struct blob *blob_aligned(size_t count);
struct blob *blob_copy(const void *bytes, size_t count);
struct blob *blob_ref(struct blob *blob);
/** Releases the memory with the last reference. NULL is fine. */
void blob_unref(struct blob *blob);

#endif
