/*
 * Which addresses we repeat to others and hand to the resolver: only letters, digits and a few
 * signs, so nothing that a shell, a terminal or a log could take for more. Runs on any thread.
 */
#include "gossip/wire/address.h"

#include "base/check.h"
#include "gossip/wire/limits.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

static const char name_letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                   "0123456789.-_";
static const char ip6_letters[] = "0123456789abcdefABCDEF:.";

/* "fe80::1%eth0" has a zone, which is a name. */
static bool is_ip6_literal(const char *host, size_t bytes)
{
    size_t plain = strspn(host, ip6_letters);

    if (plain < 2 || memchr(host, ':', plain) == NULL) return false;
    if (plain == bytes) return true;
    return host[plain] == '%' && plain + 1 < bytes &&
           plain + 1 + strspn(host + plain + 1, name_letters) == bytes;
}

static enum rc parse_port(const char *text, struct address *address)
{
    size_t bytes = strlen(text);
    unsigned long port;

    if (bytes == 0 || bytes >= sizeof address->port_text || strspn(text, "0123456789") != bytes) {
        return RC_PARSE;
    }
    port = strtoul(text, NULL, 10);
    if (port > UINT16_MAX) return RC_PARSE;
    address->port = (uint16_t)port;
    memcpy(address->port_text, text, bytes + 1);
    return RC_OK;
}

enum rc address_parse(const char *text, struct address *address)
{
    struct address parsed = {.port = 0};
    const char *host = text, *colon = strrchr(text, ':');
    size_t bytes;

    CHECK(address != NULL);
    if (colon == NULL) return RC_PARSE;
    bytes = (size_t)(colon - host);
    if (text[0] == '[') {
        if (bytes < 3 || colon[-1] != ']') return RC_PARSE;
        host = text + 1;
        bytes -= 2;
        if (!is_ip6_literal(host, bytes)) return RC_PARSE;
    } else if (bytes == 0 || strspn(host, name_letters) < bytes) {
        return RC_PARSE;
    }
    if (bytes >= sizeof parsed.host) return RC_PARSE;
    memcpy(parsed.host, host, bytes);
    if (parse_port(colon + 1, &parsed) != RC_OK) return RC_PARSE;
    *address = parsed;
    return RC_OK;
}

bool address_is_valid(const char *text)
{
    struct address address;

    return strnlen(text, ADDRESS_BYTES_MAX) < ADDRESS_BYTES_MAX && text[0] != '-' &&
           address_parse(text, &address) == RC_OK && address.port_text[0] != '0';
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
