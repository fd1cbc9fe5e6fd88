/* Any bytes as a CSV file, its columns used in several ways; the first byte chooses. */
#include "tests/fuzz/data_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static const char *const uses[] = {"label=1",  "label=2,header=yes", "label=c",
                                       "target=1", "target=a,target=2",  "label=3,header=no"};
    char path[DATA_FUZZ_PATH_BYTES], spec[2 * DATA_FUZZ_PATH_BYTES];
    int fd;

    if (count == 0) return 0;
    fd = data_fuzz_file(bytes + 1, count - 1, path);
    snprintf(spec, sizeof spec, "csv:%s,%s", path, uses[bytes[0] % ARRAY_COUNT(uses)]);
    data_fuzz_read(spec);
    close(fd);
    return 0;
}
