/*
 * uv_socket: what we ask of the kernel for a connection. All of it is best effort: a system without
 * one of the options still has a working link. Loop thread only.
 *
 * Accepted connections have what their listener had: nine calls to the kernel fewer for each that a
 * stranger opens.
 * Dead links. Keepalive finds a silent partner within 10 + 3 * 5 s, the user timeout one that does
 * not acknowledge what we send within 20 s.
 * Conversation. No Nagle delay, and at most 16 KiB in the kernel that are not yet on the wire: what
 * is said next must not queue behind what was said before where nobody can reorder it any more.
 * Bulk. BBR where the kernel has it: at 0.5 % loss and 40 ms one loss-driven connection carries a
 * twentieth of a 100 Mbit/s link, BBR nearly all of it. Whoever gets none is told so by
 * uv_env_gains_by_more().
 */
#include "peer/env/uv/env.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>

enum {
    KEEPALIVE_PROBES = 3,
    UNSENT_BYTES = 16 * 1024,
    UNSENT_BULK_BYTES = 1024 * 1024,
    RECEIVE_BYTES_MIN = 256 * 1024,     /* under a rate limit: 0.4 s worth, at least this; */
    RECEIVE_BYTES_MAX = 2 * 1024 * 1024 /* above this, what the kernel thinks best */
};

static void option_set(int socket, int level, int option, int value)
{
    (void)setsockopt(socket, level, option, &value, sizeof value);
}

void tcp_options_set(struct uv_env *env, uv_tcp_t *tcp)
{
    uv_os_fd_t socket;

    (void)uv_tcp_nodelay(tcp, 1);
    if (uv_tcp_keepalive(tcp, 1, KEEPALIVE_IDLE_S) != 0 ||
        uv_fileno((uv_handle_t *)tcp, &socket) != 0) {
        return;
    }
    option_set(socket, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_BETWEEN_S);
    option_set(socket, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES);
    option_set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS);
    option_set(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, UNSENT_BYTES);
    if (rate_is_limited(&env->receive_rate)) {
        int64_t bytes = 8 * env->receive_rate.burst;

        if (bytes < RECEIVE_BYTES_MIN) bytes = RECEIVE_BYTES_MIN;
        if (bytes < RECEIVE_BYTES_MAX) option_set(socket, SOL_SOCKET, SO_RCVBUF, (int)bytes);
    }
}

/* The kernel gives the lowest number that is free, so those from here on are free but for files. */
bool tcp_is_kept_for_files(uv_os_fd_t socket)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
           (rlim_t)socket + FILES_KEPT >= limit.rlim_cur;
}

void tcp_options_bulk(uv_tcp_t *tcp)
{
    static const char bbr[] = "bbr";
    uv_os_fd_t socket;

    if (uv_fileno((uv_handle_t *)tcp, &socket) != 0) return;
    option_set(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, UNSENT_BULK_BYTES);
    (void)setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, bbr, sizeof bbr - 1);
}
