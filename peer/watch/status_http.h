/* status_http: /status.json of a peer's --http address, for `status` where its port for peers does
 * not answer. */
#ifndef GRAPEVINE_PEER_WATCH_STATUS_HTTP_H
#define GRAPEVINE_PEER_WATCH_STATUS_HTTP_H

#include "base/fault.h"

#include <stdint.h>

/** Asks `address` ("host:port") for an answer that is all there by `until_ns` (uv_clock_ns()).
 * `text`: JSON, NUL-terminated, from mem_*. RC_IO: nobody there; RC_FORMAT: no status page, or more
 * than 16 MiB of it; RC_NOMEM.
 */
MUST_USE enum rc status_http_fetch(const char *address, uint64_t until_ns, char **text);

#endif
