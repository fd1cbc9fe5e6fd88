/* Any bytes as a file of tokens, by its header or by what the spec says. */
#include "tests/fuzz/data_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static const char *const rest[] = {"", ",symbols=300", ",symbols=70000,bits=32"};
    char path[DATA_FUZZ_PATH_BYTES], spec[2 * DATA_FUZZ_PATH_BYTES];
    int file = data_fuzz_file(bytes, count, path);

    for (size_t i = 0; i < sizeof rest / sizeof rest[0]; i++) {
        snprintf(spec, sizeof spec, "tokens:%s,context=4%s", path, rest[i]);
        data_fuzz_read(spec);
    }
    close(file);
    return 0;
}
