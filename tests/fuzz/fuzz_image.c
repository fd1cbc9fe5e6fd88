/* Any bytes as a picture; every pixel of one that is accepted is read. */
#include "base/check.h"
#include "base/mem.h"
#include "replica/readers/image_file.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct image image = {0};
    struct fault why = {""};
    float *values;

    if (image_decode("fuzz", bytes, count, &image, &why) != RC_OK) {
        CHECK(why.text[0] != '\0' && strchr(why.text, '\n') == NULL && image.bytes == NULL);
        return 0;
    }
    CHECK(image.channels == 1 || image.channels == 3);
    if ((size_t)image.height * image.width <= 1 << 20) {
        size_t pixels = (size_t)image.height * image.width;
        values = mem_array(3 * pixels, sizeof *values);
        for (uint32_t channels = 1; channels <= 3; channels += 2) {
            image_values(&image, channels, values);
            for (size_t i = 0; i < channels * pixels; i++) {
                CHECK(values[i] >= 0.0F && values[i] <= 1.0F);
            }
        }
        mem_free(values);
    }
    image_deinit(&image);
    return 0;
}
