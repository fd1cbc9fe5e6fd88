/* Any bytes as all six files of CIFAR-10. Every byte stands for 512 of them, as a record has 3,073;
 * the first says how many bytes are left over. */
#include "tests/fuzz/data_fuzz.h"

#include <stdlib.h>

enum { TIMES = 512, RECORD = 3073, BYTES_MAX = 64 * TIMES };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static const char *const names[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                        "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};
    char folder[] = "/tmp/grapevine-fuzz-XXXXXX", path[DATA_FUZZ_PATH_BYTES], spec[128];
    char name[128];
    uint8_t *grown = mem_alloc(BYTES_MAX + RECORD);
    size_t filled = 0;
    int fd;

    if (count == 0 || count > BYTES_MAX / TIMES) {
        mem_free(grown);
        return 0;
    }
    for (size_t i = 1; i < count; i++, filled += TIMES) {
        memset(grown + filled, bytes[i], TIMES);
    }
    if (bytes[0] % 4 != 0) filled += RECORD - filled % RECORD; /* most of the time whole records */
    for (size_t at = 0; bytes[0] % 4 > 1 && at < filled; at += RECORD) {
        grown[at] = (uint8_t)(grown[at] % 10);
    }
    fd = data_fuzz_file(grown, filled, path);
    CHECK(mkdtemp(folder) != NULL);
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        snprintf(name, sizeof name, "%s/%s", folder, names[i]);
        CHECK(symlink(path, name) == 0);
    }
    snprintf(spec, sizeof spec, "cifar10:%s", folder);
    data_fuzz_read(spec);
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        snprintf(name, sizeof name, "%s/%s", folder, names[i]);
        CHECK(unlink(name) == 0);
    }
    CHECK(rmdir(folder) == 0);
    close(fd);
    mem_free(grown);
    return 0;
}
