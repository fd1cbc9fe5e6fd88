/* Any bytes as two .npy files; the first two bytes say where one ends and the other begins. */
#include "tests/fuzz/data_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    char paths[2][DATA_FUZZ_PATH_BYTES], spec[3 * DATA_FUZZ_PATH_BYTES];
    size_t cut;
    int x, y;

    if (count < 2) return 0;
    cut = ((size_t)bytes[0] | (size_t)bytes[1] << 8) % (count - 1);
    x = data_fuzz_file(bytes + 2, cut, paths[0]);
    y = data_fuzz_file(bytes + 2 + cut, count - 2 - cut, paths[1]);
    snprintf(spec, sizeof spec, "npy:%s,%s", paths[0], paths[1]);
    data_fuzz_read(spec);
    close(x);
    close(y);
    return 0;
}
