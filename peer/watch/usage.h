/* usage: how much memory this process uses. */
#ifndef GRAPEVINE_PEER_WATCH_USAGE_H
#define GRAPEVINE_PEER_WATCH_USAGE_H

#include <stdint.h>

/** Resident now, in bytes; 0 if the system does not tell. */
uint64_t usage_rss_bytes(void);
/** The largest it has been. */
uint64_t usage_peak_rss_bytes(void);

#endif
