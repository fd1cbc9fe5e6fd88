/* base64: three bytes are four characters. */
#include "base/base64.h"

#include <stdint.h>

void base64_encode(const void *bytes, size_t count, char *text)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *at = bytes;

    for (; count > 0; text += 4) {
        const uint32_t three = (uint32_t)at[0] << 16 | (count > 1 ? (uint32_t)at[1] << 8 : 0) |
                               (count > 2 ? at[2] : 0);

        text[0] = digits[three >> 18];
        text[1] = digits[three >> 12 & 63];
        text[2] = digits[three >> 6 & 63];
        text[3] = digits[three & 63];
        if (count < 3) {
            text[3] = '=';
            if (count < 2) text[2] = '=';
            return;
        }
        at += 3;
        count -= 3;
    }
}
