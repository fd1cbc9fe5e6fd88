/*
 * proxy: bad lines between processes on one machine. Each process gets a gate, an address that the
 * others dial in its place; what passes a gate is carried late, slowly, or not at all for a while.
 * On the loop of a process_host, which must outlive it. The testnet's loop thread.
 *
 * Bytes of one way between two processes share one line, whichever connection they are of. What
 * lost segments cost is in peer/env/loss.h.
 */
#ifndef GRAPEVINE_PEER_ENV_PROXY_H
#define GRAPEVINE_PEER_ENV_PROXY_H

#include "base/fault.h"
#include "base/rc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct process_host;
struct proxy;

enum { PROXY_ADDRESS_BYTES = 32, PROXY_UNKNOWN = UINT32_MAX };

struct proxy_options {
    uint32_t gates;
    uint64_t latency_ns, jitter_ns; /* one way */
    uint64_t bytes_per_s;           /* of each way between two; 0: no limit */
    double loss;                    /* of a segment, in [0, 1) */
    uint64_t seed;
    void *context;
    /** Which gate's process dialled from this port of this machine; PROXY_UNKNOWN: none. */
    uint32_t (*who)(void *context, uint16_t port);
};

MUST_USE enum rc proxy_create(struct process_host *host, const struct proxy_options *options,
                              struct proxy **proxy, struct fault *why);
/** Closes all connections. NULL is fine. */
void proxy_destroy(struct proxy *proxy);
/** "127.0.0.1:PORT", what others dial to reach the process behind it. Lives as long as the proxy.
 */
const char *proxy_address(const struct proxy *proxy, uint32_t gate);
/** Where that process really listens; who dials before is turned away. */
void proxy_set_target(struct proxy *proxy, uint32_t gate, const char *address);
/** Nothing passes between those whose side differs, until the next call; NULL: all passes. Copied.
 *  Connections stay, as over a real line that is cut. */
void proxy_set_sides(struct proxy *proxy, const bool *sides);

#endif
