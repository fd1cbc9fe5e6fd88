/* Three endpoints of the push exchange with the fuzzer between them. */
#include "tests/fuzz/exchange_scene.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    if (count > 4096) return 0;
    scene_run(&exchange_push, bytes, count);
    return 0;
}
