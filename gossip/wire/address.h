/* address: the form "host:port" that peers tell each other and dial. */
#ifndef GRAPEVINE_GOSSIP_WIRE_ADDRESS_H
#define GRAPEVINE_GOSSIP_WIRE_ADDRESS_H

#include <stdbool.h>

/** True for NAME:PORT, V4:PORT and [V6]:PORT with a port of 1 to 65535 without leading zeros,
 * shorter than ADDRESS_BYTES_MAX; a name has letters, digits, '.', '-', '_' and does not begin with
 * '-'. A form only: whether it leads anywhere is for who dials to find out. */
bool address_is_valid(const char *address);

#endif
