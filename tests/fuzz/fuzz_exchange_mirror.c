/* Three endpoints of the exchange of neighbours that keep copies of each other, all linked, with
 * the fuzzer between them. */
#include "tests/fuzz/exchange_scene.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    if (count > 4096) return 0;
    scene_run(&exchange_mirror, bytes, count);
    return 0;
}
