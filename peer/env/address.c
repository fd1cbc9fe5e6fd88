/* address: a strict parser; it is told text from users and, in member records, from other peers. */
#include "peer/env/address.h"

#include "base/check.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static const char name_letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                   "0123456789.-_";
static const char ip6_letters[] = "0123456789abcdefABCDEF:.";
static const char digits[] = "0123456789";

/* "fe80::1%eth0" has a zone, which is a name. */
static bool is_ip6_literal(const char *host, size_t bytes)
{
    size_t plain = strspn(host, ip6_letters);

    if (plain >= bytes) return memchr(host, ':', bytes) != NULL;
    if (plain == 0 || host[plain] != '%') return false;
    return plain + 1 < bytes && plain + 1 + strspn(host + plain + 1, name_letters) >= bytes;
}

static enum rc parse_port(const char *text, struct address *address)
{
    size_t bytes = strlen(text);
    uint32_t port = 0;

    if (bytes == 0 || bytes >= sizeof address->port_text || strspn(text, digits) != bytes) {
        return RC_PARSE;
    }
    for (size_t i = 0; i < bytes; i++) {
        port = port * 10 + (uint32_t)(text[i] - '0');
    }
    if (port > UINT16_MAX) return RC_PARSE;
    address->port = (uint16_t)port;
    memcpy(address->port_text, text, bytes + 1);
    return RC_OK;
}

enum rc address_parse(const char *text, struct address *address)
{
    struct address parsed = {.port = 0};
    const char *host = text;
    const char *colon = strrchr(text, ':');
    size_t bytes;

    CHECK(text != NULL && address != NULL);
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
