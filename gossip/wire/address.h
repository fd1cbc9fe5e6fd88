/* address: the form "host:port" that peers tell each other and dial. */
#ifndef GRAPEVINE_GOSSIP_WIRE_ADDRESS_H
#define GRAPEVINE_GOSSIP_WIRE_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** True for NAME:PORT, V4:PORT and [V6]:PORT with a port of 1 to 65535 without leading zeros,
 * shorter than ADDRESS_BYTES_MAX; a name has letters, digits, '.', '-', '_' and does not begin with
 * '-'. A form only: whether it leads anywhere is for who dials to find out. */
bool address_is_valid(const char *address);

enum { HOST_NUMBER_BYTES_MAX = 16 };

/** The host of V4:PORT or [V6]:PORT as a number: four bytes, or sixteen; of IPv4 in IPv6 those
 * four. A zone is not part of it. 0: it is a name, which may lead anywhere. */
size_t address_host_number(const char *address, uint8_t number[HOST_NUMBER_BYTES_MAX]);
/** Is the host a number that means this machine? A name never is. */
bool address_is_loopback(const char *address);

#endif
