/*
 * times: every time constant of peer/env, real and simulated, with its unit (the name ends in it)
 * and its reason. It leans on nothing, so each folder of peer/env may include it.
 */
#ifndef GRAPEVINE_PEER_ENV_TIMES_H
#define GRAPEVINE_PEER_ENV_TIMES_H

#include "base/bytes.h"

/* libuv: connections (uv/env.h, uv/dial.c, uv/listen.c, uv/socket.c). Timers of libuv are in ms. */
#define LINK_STAGGER_MS     250                   /* ms between two attempts (RFC 8305) */
#define ACCEPT_PAUSE_MS     100                   /* ms without accepting, with every link taken */
#define LINK_DIAL_MS        5000                  /* ms for a dial, name look-up included */
#define LINK_LINGER_MS      500                   /* ms to flush after a hang-up */
#define WATCH_MS            1000                  /* ms between calls of an idle watcher */
#define ACCEPT_PACE_MS      8                     /* ms without accepting, beyond the rate below */
#define ACCEPT_GAP_NS       (NS_PER_S / 500)      /* 500 a second: strangers cost 1/20 core ... */
#define ACCEPT_BURST_NS     (500 * ACCEPT_GAP_NS) /* ... after 500: a swarm may start at once */
#define KEEPALIVE_IDLE_S    10                    /* s of silence before three probes ... */
#define KEEPALIVE_BETWEEN_S 5                     /* ... so many s apart */
#define UNACKNOWLEDGED_MS   20000                 /* ms: TCP_USER_TIMEOUT */

/* What is traced (trace.c) reaches the file, and so outlives a kill, after so long. */
#define TRACE_WRITE_NS (250 * NS_PER_MS)

/* What both worlds take for a long line (env.h). */
#define LINK_LONG_NS (10 * NS_PER_MS) /* a longer round trip fears loss: bulk spreads */

/* The simulated world (sim/world.h, loss.h): the same as of the kernel. */
#define SIM_DIAL_NS       (5 * NS_PER_S)    /* LINK_DIAL_MS */
#define SIM_LINGER_NS     (NS_PER_S / 2)    /* LINK_LINGER_MS */
#define SIM_UNANSWERED_NS (20 * NS_PER_S)   /* UNACKNOWLEDGED_MS */
#define SIM_KEEPALIVE_NS  (25 * NS_PER_S)   /* idle: 10 s and three probes 5 s apart */
#define LOSS_TIMEOUT_NS   (200 * NS_PER_MS) /* Linux's least retransmission timeout */

/* Circuits over relays (relay/env.c). */
#define RELAY_ROUTED_NS  NS_PER_S       /* for the node to ask a relay for a new circuit */
#define RELAY_LEAVING_NS (NS_PER_S / 2) /* as for every link: STOP may overtake DATA */

#endif
