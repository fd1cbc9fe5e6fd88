/* Counted, immutable byte strings. */
#include "base/blob.h"

#include "base/check.h"
#include "base/mem.h"

#include <string.h>

struct blob *blob_create(size_t count)
{
    struct blob *blob;

    if (count > SIZE_MAX / 2) return NULL;
    blob = mem_raw(sizeof *blob + count);
    if (blob == NULL) return NULL;
    blob->references = 1;
    blob->count = count;
    blob->bytes = (uint8_t *)(blob + 1);
    blob->whole = NULL;
    return blob;
}

struct blob *blob_aligned(size_t count)
{
    enum { ALIGNMENT = 64 };
    struct blob *blob;

    _Static_assert(sizeof *blob <= ALIGNMENT, "the head fits before the bytes");
    if (count > SIZE_MAX / 2) return NULL;
    blob = mem_aligned(ALIGNMENT + count);
    if (blob == NULL) return NULL;
    blob->references = 1;
    blob->count = count;
    blob->bytes = (uint8_t *)blob + ALIGNMENT;
    return blob;
}

struct blob *blob_slice(struct blob *whole, size_t first, size_t count)
{
    struct blob *blob;

    CHECK(first <= whole->count && count <= whole->count - first);
    blob = mem_raw(sizeof *blob);
    if (blob == NULL) return NULL;
    blob->references = 1;
    blob->count = count;
    blob->bytes = whole->bytes + first;
    blob->whole = blob_ref(whole);
    return blob;
}

struct blob *blob_copy(const void *bytes, size_t count)
{
    struct blob *blob = blob_create(count);

    if (blob != NULL && count > 0) memcpy(blob->bytes, bytes, count);
    return blob;
}

struct blob *blob_ref(struct blob *blob)
{
    CHECK(blob != NULL && blob->references > 0);
    blob->references++;
    return blob;
}

void blob_unref(struct blob *blob)
{
    if (blob == NULL) return;
    CHECK(blob->references > 0);
    if (--blob->references > 0) return;
    blob_unref(blob->whole);
    mem_free(blob);
}
