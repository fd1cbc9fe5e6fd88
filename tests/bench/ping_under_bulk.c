/*
 * ping_under_bulk: how long a control message takes while bulk fills the line. Two peers, each in a
 * network namespace of its own, and between their TUN devices an emulator of a line with a rate, a
 * delay, a queue that drops what does not fit, and random loss. Needs root. Linux only.
 *
 *   ping_under_bulk [SECONDS [LOSS_PERCENT [MBIT_PER_S [DELAY_MS]]]]      10 0 100 20
 *
 * Prints the round trip of pings sent every 50 ms (delay both ways included), and what bulk
 * carried.
 */
#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "peer/env/env.h"
#include "peer/link/link.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    MTU = 1500,
    QUEUE_BYTES = 500 * 1000, /* of the line, each way */
    PACKETS_MAX = 8192,
    BODY = 256 * 1024,
    PINGS_MAX = 100000,
    WARM_UP_PINGS = 40
};
#define PING_NS (50 * NS_PER_MS)

struct setting {
    double seconds, loss;
    uint64_t bytes_per_s, delay_ns;
};

static void die(const char *what)
{
    fprintf(stderr, "ping_under_bulk: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- the line ---- */

struct packet {
    uint64_t due_ns;
    size_t count;
    uint8_t bytes[MTU];
};

struct direction {
    struct packet *packets; /* ring */
    size_t first, count;
    uint64_t free_ns; /* when the line has sent all that is queued */
    uint64_t dropped;
};

static void way_take(struct direction *way, int from, const struct setting *setting,
                     struct rng *rng)
{
    uint8_t bytes[MTU];
    ssize_t got;

    while ((got = read(from, bytes, sizeof bytes)) > 0) {
        uint64_t now = uv_clock_ns();
        struct packet *packet;

        if (way->free_ns < now) way->free_ns = now;
        if ((way->free_ns - now) * setting->bytes_per_s / NS_PER_S > QUEUE_BYTES ||
            way->count == PACKETS_MAX || rng_unit(rng) < setting->loss) {
            way->dropped++;
            continue;
        }
        way->free_ns += (uint64_t)got * NS_PER_S / setting->bytes_per_s;
        packet = &way->packets[(way->first + way->count++) % PACKETS_MAX];
        packet->due_ns = way->free_ns + setting->delay_ns;
        packet->count = (size_t)got;
        memcpy(packet->bytes, bytes, (size_t)got);
    }
}

static void way_give(struct direction *way, int to, uint64_t now)
{
    while (way->count > 0 && way->packets[way->first].due_ns <= now) {
        (void)!write(to, way->packets[way->first].bytes, way->packets[way->first].count);
        way->first = (way->first + 1) % PACKETS_MAX;
        way->count--;
    }
}

static void emulate(const int tuns[2], const struct setting *setting, uint64_t until)
{
    struct direction ways[2] = {0};
    struct rng rng;

    rng_init(&rng, 1, 1);
    for (int i = 0; i < 2; i++) {
        ways[i].packets = mem_array(PACKETS_MAX, sizeof(struct packet));
        CHECK(ways[i].packets != NULL);
        (void)fcntl(tuns[i], F_SETFL, O_NONBLOCK);
    }
    while (uv_clock_ns() < until) {
        struct pollfd fds[2] = {{tuns[0], POLLIN, 0}, {tuns[1], POLLIN, 0}};
        struct timespec wait = {0, (long)NS_PER_MS / 4};

        (void)ppoll(fds, 2, &wait, NULL);
        for (int i = 0; i < 2; i++) {
            way_take(&ways[i], tuns[i], setting, &rng);
            way_give(&ways[i], tuns[1 - i], uv_clock_ns());
        }
    }
    printf("packets dropped: %llu there, %llu back\n", (unsigned long long)ways[0].dropped,
           (unsigned long long)ways[1].dropped);
}

/* ---- a peer ---- */

struct side {
    struct env *env;
    struct links *links;
    struct identity identity;
    struct swarm_secret swarm;
    struct peer_id peer;
    bool is_first, is_open;
    uint64_t sent_ns[PINGS_MAX];
    double trips_ms[PINGS_MAX];
    uint32_t pings, trips;
    uint64_t data_bytes, opened_ns;
};

static void side_ping(struct side *side, uint32_t number)
{
    struct message message = {.type = MESSAGE_PING};

    message.as.ping.seq = number;
    (void)links_send(side->links, side->peer, &message);
}

static void on_open(void *context, struct peer_id peer, const struct hello *hello,
                    const char *address, bool is_dialled)
{
    struct side *side = context;

    (void)hello, (void)address, (void)is_dialled;
    side->peer = peer;
    side->is_open = true;
    side->opened_ns = uv_clock_ns();
}

static void on_message(void *context, struct peer_id peer, const struct message *message)
{
    struct side *side = context;
    uint64_t number = message->as.ping.seq;

    (void)peer;
    if (message->type != MESSAGE_PING || number >= PINGS_MAX) return;
    if (!side->is_first) {
        side_ping(side, (uint32_t)number);
    } else if (number >= WARM_UP_PINGS) {
        side->trips_ms[side->trips++] = (double)(uv_clock_ns() - side->sent_ns[number]) / 1e6;
    }
}

static void on_data(void *context, struct peer_id peer, const struct inner_header *header,
                    const uint8_t *body, size_t count)
{
    (void)peer, (void)header, (void)body;
    ((struct side *)context)->data_bytes += count;
}

static void on_peer(void *context, struct peer_id peer)
{
    (void)context, (void)peer;
}

static void on_closed(void *context, struct peer_id peer, enum rc rc, const char *why)
{
    (void)peer, (void)rc;
    ((struct side *)context)->is_open = false;
    fprintf(stderr, "link closed: %s\n", why);
}

static void on_dial_failed(void *context, const char *address, enum rc rc, const char *why,
                           const struct peer_id *peer)
{
    (void)context, (void)address, (void)rc, (void)peer;
    fprintf(stderr, "%s\n", why);
}

static void env_accepted(void *context, uint64_t link, const char *remote)
{
    links_on_accepted(((struct side *)context)->links, link, remote);
}

static void env_connected(void *context, uint64_t link)
{
    links_on_connected(((struct side *)context)->links, link);
}

static void env_frame(void *context, uint64_t link, uint8_t *frame, size_t count)
{
    links_on_frame(((struct side *)context)->links, link, frame, count);
}

static void env_drain(void *context, uint64_t link)
{
    links_on_drain(((struct side *)context)->links, link);
}

static void env_lost(void *context, uint64_t link, enum rc rc, const char *why)
{
    links_on_lost(((struct side *)context)->links, link, rc, why);
}

static void env_wake(void *context)
{
    (void)context;
}

static void side_start(struct side *side)
{
    struct env_events env_events = {side,      env_accepted, env_connected, env_frame,
                                    env_drain, env_lost,     env_wake,      NULL};
    struct links_events events = {.context = side,
                                  .on_open = on_open,
                                  .on_message = on_message,
                                  .on_data = on_data,
                                  .on_heard = on_peer,
                                  .on_bulk_drained = on_peer,
                                  .on_closed = on_closed,
                                  .on_dial_failed = on_dial_failed};
    struct uv_env_options env_options = {.folder = NULL};
    struct links_options options = {.identity = &side->identity, .swarm = &side->swarm};
    uint8_t seed[SECRET_BYTES] = {side->is_first};
    char bound[ADDRESS_BYTES_MAX];
    struct fault why = {""};

    CHECK(secure_start() == RC_OK && uv_env_create(&env_options, &side->env, &why) == RC_OK);
    identity_from_seed(seed, &side->identity);
    swarm_secret_derive("ping", NULL, &side->swarm);
    side->env->ops->set_events(side->env, &env_events);
    CHECK(side->env->ops->listen(side->env, "0.0.0.0:7077", bound, sizeof bound, &why) == RC_OK);
    options.env = side->env;
    options.hello = (struct hello){.incarnation = 1, .role = HELLO_PEER, .spec = "x"};
    memcpy(options.hello.public_key, side->identity.public_key, PUBLIC_KEY_BYTES);
    options.hello.boot.bytes[0] = side->is_first;
    side->links = links_create(&options, &events);
    CHECK(side->links != NULL);
}

/* Keep the line full. */
static void side_fill(struct side *side)
{
    struct inner_header header = {.type = MESSAGE_DATA, .flags = DATA_OFFER};
    struct link_view link;
    struct blob *body;

    (void)links_peer(side->links, side->peer, &link);
    if (link.bulk_queued > 8) return;
    body = blob_create(BODY);
    CHECK(body != NULL);
    memset(body->bytes, 7, BODY);
    while (links_peer(side->links, side->peer, &link) && link.bulk_queued < 16 &&
           links_send_bulk(side->links, side->peer, &header, body) == RC_OK) {
    }
    blob_unref(body);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void side_report(struct side *side)
{
    if (!side->is_first) {
        double seconds = (double)(uv_clock_ns() - side->opened_ns) / 1e9;

        printf("bulk %.1f Mbit/s\n", (double)side->data_bytes * 8 / 1e6 / seconds);
        return;
    }
    if (side->trips == 0) {
        printf("no ping was answered\n");
        return;
    }
    qsort(side->trips_ms, side->trips, sizeof(double), compare);
    printf("ping p50 %.1f ms, p99 %.1f ms, most %.1f ms (%u of %u answered)\n",
           side->trips_ms[side->trips / 2], side->trips_ms[side->trips * 99 / 100],
           side->trips_ms[side->trips - 1], side->trips, side->pings - WARM_UP_PINGS);
}

static void side_run(struct side *side, uint64_t until)
{
    uint64_t ping_ns = uv_clock_ns();

    side_start(side);
    if (side->is_first) CHECK(links_dial(side->links, "10.99.0.2:7077") == RC_OK);
    while (uv_clock_ns() < until) {
        uint64_t now = uv_clock_ns();

        uv_env_poll(side->env, NS_PER_MS);
        links_tick(side->links, now);
        if (!side->is_first || !side->is_open) continue;
        side_fill(side);
        if (now >= ping_ns && side->pings < PINGS_MAX && until - now > NS_PER_S) {
            ping_ns = now + PING_NS;
            side->sent_ns[side->pings] = now;
            side_ping(side, side->pings++);
        }
    }
    side_report(side);
}

/* ---- namespaces ---- */

static int tun_open(int number)
{
    int tun = open("/dev/net/tun", O_RDWR | O_CLOEXEC), control = socket(AF_INET, SOCK_DGRAM, 0);
    struct ifreq request = {.ifr_name = "line"};
    struct sockaddr_in address = {.sin_family = AF_INET};

    request.ifr_flags = IFF_TUN | IFF_NO_PI;
    if (tun < 0 || ioctl(tun, TUNSETIFF, &request) != 0) die("no TUN device");
    address.sin_addr.s_addr = htonl(0x0a630000u + (uint32_t)number); /* 10.99.0.NUMBER */
    memcpy(&request.ifr_addr, &address, sizeof address);
    if (ioctl(control, SIOCSIFADDR, &request) != 0) die("no address");
    address.sin_addr.s_addr = htonl(0xffffff00u);
    memcpy(&request.ifr_netmask, &address, sizeof address);
    if (ioctl(control, SIOCSIFNETMASK, &request) != 0) die("no netmask");
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    if (ioctl(control, SIOCSIFFLAGS, &request) != 0) die("the device does not come up");
    close(control);
    return tun;
}

static void fd_send(int socket, int fd)
{
    char control[CMSG_SPACE(sizeof(int))] = {0}, byte = 0;
    struct iovec io = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);

    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    if (sendmsg(socket, &message, 0) != 1) die("sendmsg");
}

static int fd_receive(int socket)
{
    char control[CMSG_SPACE(sizeof(int))], byte;
    struct iovec io = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    int fd;

    if (recvmsg(socket, &message, 0) != 1) die("a peer did not start");
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

static void child(int socket, int number, uint64_t until)
{
    struct side *side = mem_alloc(sizeof *side);

    CHECK(side != NULL);
    if (unshare(CLONE_NEWNET) != 0) die("no namespace (root is needed)");
    fd_send(socket, tun_open(number));
    side->is_first = number == 1;
    side_run(side, until);
    (void)fflush(stdout);
    _exit(0);
}

int main(int argc, char **argv)
{
    struct setting setting = {.seconds = argc > 1 ? atof(argv[1]) : 10,
                              .loss = argc > 2 ? atof(argv[2]) / 100 : 0,
                              .bytes_per_s = (uint64_t)((argc > 3 ? atof(argv[3]) : 100) * 1e6 / 8),
                              .delay_ns =
                                  (uint64_t)((argc > 4 ? atof(argv[4]) : 20) * (double)NS_PER_MS)};
    uint64_t until = uv_clock_ns() + (uint64_t)(setting.seconds * 1e9) + 3 * NS_PER_S;
    int sockets[2], tuns[2];

    (void)signal(SIGPIPE, SIG_IGN);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) != 0) die("socketpair");
    for (int i = 0; i < 2; i++) { /* the one that listens first */
        (void)fflush(stdout);
        if (fork() == 0) child(sockets[1], 2 - i, until);
        tuns[1 - i] = fd_receive(sockets[0]);
    }
    emulate(tuns, &setting, until + NS_PER_S / 2);
    while (wait(NULL) > 0) {
    }
    return 0;
}
