/* Whatever the scan lets pass, msgpack-c decodes to the last byte, in memory bounded by the input.
 */
#include "base/check.h"
#include "gossip/wire/scan.h"

#include <msgpack.h>
#include <sanitizer/allocator_interface.h>

enum { MEMORY_FACTOR = 64, MEMORY_FIXED = 32 * 1024 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    msgpack_unpacked unpacked;
    msgpack_unpack_return got;
    size_t off = 0, before, object_bytes = 0;

    if (scan_skip(data, size, &object_bytes) == RC_OK) {
        CHECK(object_bytes <= size);
        CHECK(scan_check(data, object_bytes) == RC_OK);
    }
    if (scan_check(data, size) != RC_OK) return 0;
    before = __sanitizer_get_current_allocated_bytes();
    msgpack_unpacked_init(&unpacked);
    got = msgpack_unpack_next(&unpacked, (const char *)data, size, &off);
    CHECK(got == MSGPACK_UNPACK_SUCCESS && off == size);
    CHECK(__sanitizer_get_current_allocated_bytes() - before <=
          MEMORY_FACTOR * size + MEMORY_FIXED);
    msgpack_unpacked_destroy(&unpacked);
    return 0;
}
