/* address: the form "host:port" that people write and peers tell each other and dial. IPv6 in
 * brackets, perhaps with a zone: "[fe80::1%eth0]:7000". */
#ifndef GRAPEVINE_GOSSIP_WIRE_ADDRESS_H
#define GRAPEVINE_GOSSIP_WIRE_ADDRESS_H

#include "base/rc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HOST_NAME_BYTES = 254, PORT_TEXT_BYTES = 6, HOST_NUMBER_BYTES_MAX = 16 }; /* with NUL */

struct address {
    char host[HOST_NAME_BYTES]; /* without brackets */
    char port_text[PORT_TEXT_BYTES];
    uint16_t port;
};

/** RC_PARSE unless `text` is host:port with a decimal port up to 65535 and a host of letters,
 *  digits, '.', '-', '_' (or, in brackets, hexadecimal digits, ':', '.', and '%' with a zone). */
MUST_USE enum rc address_parse(const char *text, struct address *address);
/** What peers may tell each other: of that form, with a port of 1 to 65535 without leading zeros, a
 *  name that does not begin with '-', shorter than ADDRESS_BYTES_MAX. A form only: whether it leads
 *  anywhere is for who dials to find out. */
bool address_is_valid(const char *address);

/** The host of V4:PORT or [V6]:PORT as a number: four bytes, or sixteen; of IPv4 in IPv6 those
 * four. A zone is not part of it. 0: it is a name, which may lead anywhere. */
size_t address_host_number(const char *address, uint8_t number[HOST_NUMBER_BYTES_MAX]);
/** Is the host a number that means this machine? A name never is. */
bool address_is_loopback(const char *address);

#endif
