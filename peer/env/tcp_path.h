/*
 * tcp_path: what the kernel knows of the way of a TCP connection. Apart from uv_socket, since the
 * system's two descriptions of TCP_INFO, of which only one has the shortest round trip, exclude
 * each other. Pure but for system calls on the socket.
 */
#ifndef GRAPEVINE_PEER_ENV_TCP_PATH_H
#define GRAPEVINE_PEER_ENV_TCP_PATH_H

#include <stdbool.h>
#include <stdint.h>

/** Is its congestion control one that takes loss for congestion, as all but BBR are? False where
 * the system does not say. */
bool tcp_path_fears_loss(int socket);
/** The shortest round trip so far, in nanoseconds; 0: not known. */
uint64_t tcp_path_round_trip_ns(int socket);

#endif
