/*
 * Which addresses we repeat to others and hand to the resolver: only letters, digits and a few
 * signs, so nothing that a shell, a terminal or a log could take for more. Runs on any thread.
 */
#include "gossip/wire/address.h"

#include "gossip/wire/limits.h"

#include <arpa/inet.h>
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

size_t address_host_number(const char *address, uint8_t number[HOST_NUMBER_BYTES_MAX])
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    const char *end = strrchr(address, ':');
    bool is_bracketed = address[0] == '[';
    char text[ADDRESS_BYTES_MAX];
    size_t count;

    if (end == NULL) return 0;
    if (is_bracketed) address++;
    count = strcspn(address, is_bracketed ? "%]" : ":");
    if (address + count > end || count >= sizeof text) return 0;
    memcpy(text, address, count);
    text[count] = '\0';
    if (!is_bracketed) return inet_pton(AF_INET, text, number) == 1 ? 4 : 0;
    if (inet_pton(AF_INET6, text, number) != 1) return 0;
    if (memcmp(number, mapped, sizeof mapped) != 0) return HOST_NUMBER_BYTES_MAX;
    memmove(number, number + sizeof mapped, 4);
    return 4;
}

bool address_is_loopback(const char *address)
{
    static const uint8_t one[HOST_NUMBER_BYTES_MAX] = {[HOST_NUMBER_BYTES_MAX - 1] = 1};
    uint8_t number[HOST_NUMBER_BYTES_MAX];
    size_t count = address_host_number(address, number);

    return count == 4 ? number[0] == 127 : count > 0 && memcmp(number, one, sizeof one) == 0;
}
