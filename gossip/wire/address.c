/*
 * Which addresses we repeat to others and hand to the resolver: only letters, digits and a few
 * signs, so nothing that a shell, a terminal or a log could take for more. Runs on any thread.
 */
#include "gossip/wire/address.h"

#include "gossip/wire/limits.h"

#include <string.h>

static const char name_signs[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
static const char v6_signs[] = "0123456789abcdefABCDEF:.";

static bool is_port(const char *text)
{
    unsigned value = 0;
    size_t digits = strspn(text, "0123456789");

    if (digits == 0 || digits > 5 || text[digits] != '\0' || text[0] == '0') return false;
    for (size_t i = 0; i < digits; i++) {
        value = value * 10 + (unsigned)(text[i] - '0');
    }
    return value <= 65535;
}

/* What follows the opening bracket. */
static bool is_v6_and_port(const char *text)
{
    size_t count = strspn(text, v6_signs);

    if (count < 2 || memchr(text, ':', count) == NULL) return false;
    text += count;
    if (*text == '%') {
        count = strspn(text + 1, name_signs);
        if (count == 0) return false;
        text += 1 + count;
    }
    return text[0] == ']' && text[1] == ':' && is_port(text + 2);
}

bool address_is_valid(const char *address)
{
    size_t count;

    if (strnlen(address, ADDRESS_BYTES_MAX) == ADDRESS_BYTES_MAX) return false;
    if (address[0] == '[') return is_v6_and_port(address + 1);
    count = strspn(address, name_signs);
    if (count == 0 || address[0] == '-') return false;
    return address[count] == ':' && is_port(address + count + 1);
}
