/* tcp_path: see the header. What the kernel does not say is no reason to do anything. */
#include "peer/env/tcp_path.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

enum { NAME_BYTES = 16 }; /* the kernel's TCP_CA_NAME_MAX */
#define NS_PER_US 1000U

bool tcp_path_fears_loss(int socket)
{
    char name[NAME_BYTES + 1] = "";
    socklen_t count = NAME_BYTES;

    if (getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name, &count) != 0) return false;
    return strncmp(name, "bbr", 3) != 0;
}

uint64_t tcp_path_round_trip_ns(int socket)
{
    struct tcp_info info;
    socklen_t count = sizeof info;

    memset(&info, 0, sizeof info);
    if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &count) != 0) return 0;
    if (count < offsetof(struct tcp_info, tcpi_min_rtt) + sizeof info.tcpi_min_rtt) return 0;
    /* Of no sample yet the kernel says all ones. */
    return info.tcpi_min_rtt == UINT32_MAX ? 0 : (uint64_t)info.tcpi_min_rtt * NS_PER_US;
}
