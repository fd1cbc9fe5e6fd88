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
    if (--blob->references == 0) mem_free(blob);
}
