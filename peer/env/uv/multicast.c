/*
 * uv_multicast: datagrams to and from this machine and those on its local networks, for --discover
 * (peer/session/discover.c). One group of the range for private use (RFC 2365), IPv4, never routed
 * (TTL 1). The socket is bound to the group's address, so nothing that is sent to this machine
 * alone comes in, and shared, so that several peers on a machine hear the same. Its buffer is
 * small: of a flood the kernel drops most. Interfaces come and go, so who sends joins again. Any
 * thread, one at a time.
 */
#include "base/file.h"
#include "peer/env/env.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

enum { PORT = 7077, BUFFER_BYTES = 16 * 1024 };

static const char group[] = "239.71.86.1";

static struct sockaddr_in group_address(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(PORT)};

    (void)inet_pton(AF_INET, group, &to.sin_addr);
    return to;
}

uint32_t uv_multicast_hosts(const char *host, char hosts[UV_HOSTS_MAX][UV_HOST_BYTES])
{
    const bool is_any = strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
    uv_interface_address_t *all = NULL;
    uint32_t count = 0;
    int found = 0;

    if (uv_interface_addresses(&all, &found) != 0) return 0;
    for (int i = 0; i < found && count < UV_HOSTS_MAX; i++) {
        if (all[i].address.address4.sin_family != AF_INET) continue;
        if (uv_ip4_name(&all[i].address.address4, hosts[count], UV_HOST_BYTES) != 0) continue;
        count += is_any || strcmp(hosts[count], host) == 0;
    }
    uv_free_interface_addresses(all, found);
    return count;
}

void uv_multicast_join(int fd)
{
    char hosts[UV_HOSTS_MAX][UV_HOST_BYTES];
    const uint32_t count = uv_multicast_hosts("0.0.0.0", hosts);
    struct ip_mreq request = {.imr_multiaddr = group_address().sin_addr};

    for (uint32_t i = 0; i < count; i++) {
        if (inet_pton(AF_INET, hosts[i], &request.imr_interface) != 1) continue;
        /* Which it may be in already. */
        (void)setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &request, sizeof request);
    }
}

enum rc uv_multicast_open(int *fd, struct fault *why)
{
    const struct sockaddr_in to = group_address();
    const int yes = 1, bytes = BUFFER_BYTES;
    const unsigned char one = 1;
    int made = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (made >= 0 && setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
        setsockopt(made, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes) == 0 &&
        setsockopt(made, IPPROTO_IP, IP_MULTICAST_TTL, &one, sizeof one) == 0 &&
        setsockopt(made, IPPROTO_IP, IP_MULTICAST_LOOP, &one, sizeof one) == 0 &&
        bind(made, (const struct sockaddr *)&to, sizeof to) == 0) {
        *fd = made;
        uv_multicast_join(made);
        return RC_OK;
    }
    (void)file_fault(why, "listen to", "239.71.86.1:7077 (UDP multicast)", errno);
    if (made >= 0) close(made);
    return RC_IO;
}

void uv_multicast_close(int fd)
{
    if (fd >= 0) close(fd);
}

bool uv_multicast_send(int fd, const void *bytes, size_t count, const char *host)
{
    const struct sockaddr_in to = group_address();
    struct in_addr from;

    return inet_pton(AF_INET, host, &from) == 1 &&
           setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &from, sizeof from) == 0 &&
           sendto(fd, bytes, count, 0, (const struct sockaddr *)&to, sizeof to) == (ssize_t)count;
}

bool uv_multicast_receive(int fd, uint64_t wait_ns, void *bytes, size_t cap, size_t *count,
                          char host[UV_HOST_BYTES])
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    struct sockaddr_in from = {.sin_family = AF_INET};
    socklen_t from_bytes = sizeof from;
    ssize_t got;

    if (wait_ns > 0 && poll(&ready, 1, (int)(wait_ns / NS_PER_MS) + 1) <= 0) return false;
    /* MSG_TRUNC: of a longer one its true length, which no reader takes. */
    got = recvfrom(fd, bytes, cap, MSG_TRUNC, (struct sockaddr *)&from, &from_bytes);
    if (got < 0 || uv_ip4_name(&from, host, UV_HOST_BYTES) != 0) return false;
    *count = (size_t)got;
    return true;
}
