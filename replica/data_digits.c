/* Unpacking of the embedded digits. Pure; any thread. */
#include "replica/data_digits.h"

#include "base/check.h"

#include <string.h>

enum { RUN_MIN = 2 };

void digits_unpack(uint8_t *values, uint8_t *labels)
{
    const char *at = digits_text;

    for (int i = 0; i < DIGITS_SAMPLES; i++) {
        uint8_t *image = values + (size_t)i * DIGITS_PIXELS;
        int filled = 0;

        CHECK(*at >= '0' && *at <= '9');
        labels[i] = (uint8_t)(*at++ - '0');
        while (filled < DIGITS_PIXELS) {
            char c = *at++;

            if (c >= 'h') {
                int run = c - 'h' + RUN_MIN;

                CHECK(c <= 'z' && filled + run <= DIGITS_PIXELS);
                memset(image + filled, 0, (size_t)run);
                filled += run;
            } else {
                CHECK((c >= '0' && c <= '9') || (c >= 'a' && c <= 'g'));
                image[filled++] = (uint8_t)(c <= '9' ? c - '0' : c - 'a' + 10);
            }
        }
    }
    CHECK(*at == '\0');
}
