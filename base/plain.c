/* plain: see plain.h. */
#include "base/plain.h"

#include "base/check.h"

#include <string.h>

static uint32_t code_of(const uint8_t *text, size_t count)
{
    static const uint8_t masks[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    uint32_t code = text[0] & masks[count];

    for (size_t i = 1; i < count; i++) {
        code = code << 6 | (text[i] & 0x3F);
    }
    return code;
}

/* As the first byte says; 0: it cannot begin a character. */
static size_t character_bytes(uint8_t first)
{
    if (first < 0x80) return 1;
    if (first < 0xC2) return 0; /* goes on with one, or writes an ASCII one in two bytes */
    if (first < 0xE0) return 2;
    if (first < 0xF0) return 3;
    return first < 0xF5 ? 4 : 0;
}

size_t utf8_character(const uint8_t *text, size_t left)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t count = character_bytes(text[0]);
    uint32_t code;

    if (count == 0 || count > left) return 0;
    for (size_t i = 1; i < count; i++) {
        if (text[i] >> 6 != 2) return 0;
    }
    code = code_of(text, count);
    if (code < least[count] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return 0;
    return count;
}

static bool is_obeyed(uint32_t code)
{
    if (code < 0x20 || (code >= 0x7F && code < 0xA0)) return true;
    if (code == 0x61C || code == 0x200E || code == 0x200F) return true; /* direction marks */
    return (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

/* The next character of `left` > 0 bytes, or one byte that is none, made plain into `to`, which
 * holds PLAIN_STEP_BYTES. Returns how many bytes were taken. */
static size_t take(const uint8_t *text, size_t left, char *to)
{
    static const char digits[] = "0123456789abcdef";
    size_t count = utf8_character(text, left), n = 0;

    if (count > 0 && !is_obeyed(code_of(text, count))) {
        memcpy(to, text, count);
        to[count] = '\0';
        return count;
    }
    if (count == 0) count = 1;
    for (size_t i = 0; i < count; i++) {
        to[n++] = '\\';
        to[n++] = 'x';
        to[n++] = digits[text[i] >> 4];
        to[n++] = digits[text[i] & 15];
    }
    to[n] = '\0';
    return count;
}

bool plain_is_so(const char *text)
{
    const size_t count = strlen(text);
    char step[PLAIN_STEP_BYTES];

    for (size_t i = 0; i < count;) {
        const size_t taken = take((const uint8_t *)text + i, count - i, step);
        if (strlen(step) != taken) return false;
        i += taken;
    }
    return true;
}

const char *plain_bytes(const void *bytes, size_t count, char *to, size_t cap)
{
    const uint8_t *text = bytes;
    char step[PLAIN_STEP_BYTES];
    size_t n = 0;

    CHECK(cap > 0);
    for (size_t i = 0; i < count;) {
        size_t taken = take(text + i, count - i, step), length = strlen(step);
        if (n + length >= cap) break;
        memcpy(to + n, step, length);
        n += length;
        i += taken;
    }
    to[n] = '\0';
    return to;
}

const char *plain_text(const char *text, char *to, size_t cap)
{
    return plain_bytes(text, strlen(text), to, cap);
}

/* More bytes may make a character of what is held. */
static bool is_begun(const struct plain_stream *stream)
{
    if (stream->count >= character_bytes(stream->held[0])) return false;
    for (size_t i = 1; i < stream->count; i++) {
        if (stream->held[i] >> 6 != 2) return false;
    }
    return true;
}

void plain_stream_take(struct plain_stream *stream, uint8_t byte, char *to)
{
    size_t n = 0;

    stream->held[stream->count++] = byte;
    while (stream->count > 0 && !is_begun(stream)) {
        const char first = (char)stream->held[0];
        const size_t taken = take(stream->held, stream->count, to + n);
        if (first == '\n' || first == '\t') {
            to[n++] = first;
        } else {
            n += strlen(to + n);
        }
        stream->count = (uint8_t)(stream->count - taken);
        memmove(stream->held, stream->held + taken, stream->count);
    }
    to[n] = '\0';
}

void plain_stream_end(struct plain_stream *stream, char *to)
{
    plain_bytes(stream->held, stream->count, to, PLAIN_STEP_BYTES);
    stream->count = 0;
}
