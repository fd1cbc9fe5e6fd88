/* address: "host:port" as people write it, taken apart. IPv6 in brackets: "[::1]:7000". */
#ifndef GRAPEVINE_PEER_ENV_ADDRESS_H
#define GRAPEVINE_PEER_ENV_ADDRESS_H

#include "base/rc.h"

#include <stdint.h>

enum { HOST_NAME_BYTES = 254, PORT_TEXT_BYTES = 6 }; /* with NUL */

struct address {
    char host[HOST_NAME_BYTES]; /* without brackets */
    char port_text[PORT_TEXT_BYTES];
    uint16_t port;
};

/** RC_PARSE unless `text` is host:port with a decimal port up to 65535 and a host of letters,
 *  digits, '.', '-', '_' (or, in brackets, hexadecimal digits, ':', '.', and '%' with a zone). */
MUST_USE enum rc address_parse(const char *text, struct address *address);

#endif
