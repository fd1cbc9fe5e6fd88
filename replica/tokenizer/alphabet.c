/*
 * The alphabet of byte-level BPE files. GPT-2's encoder.py writes each byte as one printable
 * character: those of Latin-1 that can be seen stand for themselves, the other 68 bytes become
 * U+0100, U+0101 and so on, in order. GPT-2 also numbers the bytes so: first those that can be
 * seen.
 */
#include "replica/tokenizer/internal.h"

#include "base/plain.h"

#include <string.h>

enum { ALPHABET_END = 0x100 + 68 };

static bool is_seen(unsigned byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

void spelling_order(uint8_t order[256])
{
    size_t at = 0;

    for (int seen = 1; seen >= 0; seen--) {
        for (unsigned byte = 0; byte < 256; byte++) {
            if (is_seen(byte) == (seen == 1)) order[at++] = (uint8_t)byte;
        }
    }
}

/* -1: it is no character of the alphabet. */
static int byte_of(uint32_t code)
{
    unsigned byte = 0;

    if (code < 0x100) return is_seen(code) ? (int)code : -1;
    if (code >= ALPHABET_END) return -1;
    for (uint32_t next = 0x100;; byte++) {
        if (is_seen(byte)) continue;
        if (next++ == code) return (int)byte;
    }
}

size_t tokenizer_spell(const uint8_t *bytes, size_t count, char *text)
{
    size_t at = 0;

    for (size_t i = 0; i < count; i++) {
        uint32_t code = bytes[i];
        if (!is_seen(code)) {
            code = 0x100;
            for (unsigned byte = 0; byte < bytes[i]; byte++)
                code += !is_seen(byte);
        }
        if (code < 0x80) {
            text[at++] = (char)code;
            continue;
        }
        text[at++] = (char)(0xC0 | code >> 6);
        text[at++] = (char)(0x80 | (code & 0x3F));
    }
    return at;
}

bool spelling_read(const char *text, size_t count, struct spelling *spelling)
{
    const uint8_t *from = (const uint8_t *)text;

    spelling->count = 0;
    spelling->is_literal = false;
    for (size_t i = 0; i < count && !spelling->is_literal;) {
        const size_t taken = utf8_character(from + i, count - i);
        const uint32_t code = taken == 1   ? from[i]
                              : taken == 2 ? (from[i] & 0x1FU) << 6 | (from[i + 1] & 0x3FU)
                                           : UINT32_MAX;
        const int byte = byte_of(code);

        spelling->is_literal = byte < 0;
        if (byte < 0) break;
        if (spelling->count == sizeof spelling->bytes) return false;
        spelling->bytes[spelling->count++] = (uint8_t)byte;
        i += taken;
    }
    if (spelling->is_literal) {
        if (count > sizeof spelling->bytes) return false;
        memcpy(spelling->bytes, text, count);
        spelling->count = count;
    }
    return spelling->count > 0;
}
