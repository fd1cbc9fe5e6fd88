/* text: see text.h. Any thread, one at a time. */
#include "testnet/text.h"

#include "base/check.h"
#include "base/mem.h"
#include "base/plain.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void text_deinit(struct text *text)
{
    mem_free(text->bytes);
    *text = TEXT_EMPTY;
}

void text_clear(struct text *text)
{
    text->count = 0;
    if (text->bytes != NULL) text->bytes[0] = '\0';
}

/* Room for `more` bytes and a NUL. */
static bool text_reserve(struct text *text, size_t more)
{
    if (text->is_short) return false;
    if (text->room - text->count > more) return true;
    const size_t room = 2 * (text->count + more) + 256;
    char *bytes = mem_resize(text->bytes, room);
    if (bytes == NULL) {
        text->is_short = true;
        return false;
    }
    text->bytes = bytes;
    text->room = room;
    return true;
}

void text_add(struct text *text, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    const int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    CHECK(length >= 0);
    if (!text_reserve(text, (size_t)length)) return;
    va_start(arguments, format);
    vsnprintf(text->bytes + text->count, text->room - text->count, format, arguments);
    va_end(arguments);
    text->count += (size_t)length;
}

static void add_escaped(struct text *text, const char *plain)
{
    for (const char *at = plain; *at != '\0'; at++) {
        switch (*at) {
        case '&':
            text_add(text, "&amp;");
            break;
        case '<':
            text_add(text, "&lt;");
            break;
        case '>':
            text_add(text, "&gt;");
            break;
        case '"':
            text_add(text, "&quot;");
            break;
        case '\'':
            text_add(text, "&#39;");
            break;
        default:
            text_add(text, "%c", *at);
            break;
        }
    }
}

void text_add_escaped(struct text *text, const char *raw)
{
    size_t left = raw == NULL ? 0 : strlen(raw), taken;
    char plain[PLAIN_STEP_BYTES];

    for (; left > 0; left -= taken, raw += taken) {
        taken = utf8_character((const uint8_t *)raw, left);
        if (taken == 0) taken = 1;
        add_escaped(text, plain_bytes(raw, taken, plain, sizeof plain));
    }
}

bool text_is_whole(const struct text *text)
{
    return !text->is_short && text->bytes != NULL;
}
