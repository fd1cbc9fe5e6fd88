/* Any text as a `--data` spec or as `--augment`, and any bytes as a text to learn; the first byte
 * chooses. Specs that name a file of this machine are left alone. */
#include "tests/fuzz/data_fuzz.h"

#include "replica/data/augment.h"

static void fuzz_spec(const char *text)
{
    struct dataset_options options = {.seed = 1, .context = 8};
    struct dataset *dataset = NULL;
    struct fault why = {""};

    if (strchr(text, '/') != NULL || strncmp(text, "fashion", 7) == 0) return;
    if (dataset_open(text, &options, &dataset, &why) == RC_OK) {
        CHECK(dataset_info(dataset)->blocks > 0 && dataset_info(dataset)->outputs > 0);
        dataset_close(dataset);
    } else {
        CHECK(why.text[0] != '\0');
    }
}

static void fuzz_augment(const char *text)
{
    struct augment augment = {0};
    struct fault why = {""};

    CHECK(augment_parse(text, &augment, &why) == RC_OK || why.text[0] != '\0');
    CHECK(augment.crop <= 64);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    char path[DATA_FUZZ_PATH_BYTES], spec[2 * DATA_FUZZ_PATH_BYTES];
    char *text;
    int fd;

    if (count == 0) return 0;
    text = mem_alloc(count);
    memcpy(text, bytes + 1, count - 1);
    if (bytes[0] % 4 == 0) fuzz_augment(text);
    if (bytes[0] % 4 == 1) fuzz_spec(text);
    if (bytes[0] % 4 >= 2) {
        fd = data_fuzz_file(bytes + 1, count - 1, path);
        snprintf(spec, sizeof spec, "text:%s,context=%d", path, bytes[0] / 16 + 1);
        data_fuzz_read(spec);
        close(fd);
    }
    mem_free(text);
    return 0;
}
