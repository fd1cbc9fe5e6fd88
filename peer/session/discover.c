/* discover: see discover.h. The loop's, but for discover_look(), which comes before it. */
#include "peer/session/discover.h"

#include "peer/times.h"

#include <stdio.h>
#include <string.h>

enum { A_SECOND_MAX = 64, AT_ONCE_MAX = 16 };

enum rc discover_open(struct discover *discover, const char *name, const struct swarm_secret *swarm,
                      const struct log *log, struct fault *why)
{
    *discover = (struct discover){.name = name, .swarm = swarm, .log = log, .fd = -1};
    if (name[0] == '\0' || strlen(name) > BEACON_NAME_MAX) {
        return fault_set(why, RC_USAGE, "--discover: a name has 1 to %d letters", BEACON_NAME_MAX);
    }
    return uv_multicast_open(&discover->fd, why);
}

void discover_close(struct discover *discover)
{
    if (discover->env != NULL) uv_env_unwatch(discover->env, discover->fd);
    if (discover->name != NULL) uv_multicast_close(discover->fd);
    *discover = (struct discover){.fd = -1};
}

static void tell_other(struct discover *discover, const char *host)
{
    if (discover->is_other_told) return;
    discover->is_other_told = true;
    log_warn(discover->log,
             "--discover %s: a peer at %s has this name and another --swarm-key or --swarm-name; "
             "it is left alone",
             discover->name, host);
}

static bool is_known(const struct discover *discover, const char *address)
{
    for (uint32_t i = 0; i < discover->addresses_count; i++) {
        if (strcmp(discover->addresses[i], address) == 0) return true;
    }
    return false;
}

/* Before the sum over its bytes is computed: a flood costs no more than to be read. */
static bool is_too_much(struct discover *discover, uint64_t now_ns)
{
    if (now_ns - discover->counted_ns >= NS_PER_S) {
        discover->counted_ns = now_ns;
        discover->counted = 0;
    }
    return ++discover->counted > A_SECOND_MAX;
}

/* The next beacon, waited for at most so long. True: `address` is one that is new. */
static bool hear(struct discover *discover, uint64_t wait_ns, char address[ADDRESS_BYTES_MAX],
                 bool *is_empty)
{
    uint8_t bytes[BEACON_BYTES];
    char host[UV_HOST_BYTES];
    struct beacon beacon;
    size_t count;
    enum rc rc;

    *is_empty = !uv_multicast_receive(discover->fd, wait_ns, bytes, sizeof bytes, &count, host);
    if (*is_empty || is_too_much(discover, uv_clock_ns())) return false;
    rc = beacon_read(bytes, count, discover->name, discover->swarm, &beacon);
    if (rc == RC_AUTH) tell_other(discover, host);
    if (rc != RC_OK) return false;
    if (discover->has_own && memcmp(beacon.start, discover->own.start, BEACON_START_BYTES) == 0) {
        return false;
    }
    snprintf(address, ADDRESS_BYTES_MAX, "%s:%u", host, beacon.port);
    if (is_known(discover, address) || discover->addresses_count == DISCOVER_ADDRESSES_MAX) {
        return false;
    }
    memcpy(discover->addresses[discover->addresses_count++], address, ADDRESS_BYTES_MAX);
    return true;
}

bool discover_look(struct discover *discover, uint64_t limit_ns, char address[ADDRESS_BYTES_MAX])
{
    const uint64_t end_ns = uv_clock_ns() + limit_ns;

    for (;;) {
        const uint64_t now_ns = uv_clock_ns();
        bool is_empty;

        if (now_ns >= end_ns) return false;
        if (hear(discover, end_ns - now_ns, address, &is_empty)) return true;
    }
}

static void announce(struct discover *discover)
{
    const uint64_t now_ns = uv_clock_ns();
    uint8_t bytes[BEACON_BYTES];

    if (now_ns - discover->sent_ns < DISCOVER_BEACON_NS) return;
    discover->sent_ns = now_ns;
    beacon_write(&discover->own, discover->name, discover->swarm, bytes);
    (void)uv_multicast_send(discover->fd, bytes, sizeof bytes, discover->host);
}

static void on_ready(void *context)
{
    struct discover *discover = context;
    char address[ADDRESS_BYTES_MAX];
    bool is_empty = false;

    for (int i = 0; i < AT_ONCE_MAX && !is_empty; i++) {
        if (hear(discover, 0, address, &is_empty)) discover->on_found(discover->context, address);
    }
    announce(discover);
}

enum rc discover_watch(struct discover *discover, struct env *env, const char *listening,
                       void (*on_found)(void *context, const char *address), void *context)
{
    struct address address;
    enum rc rc = address_parse(listening, &address);

    if (rc != RC_OK) return rc;
    discover->own.port = address.port;
    memcpy(discover->host, address.host, sizeof discover->host);
    env->ops->entropy(env, discover->own.start, sizeof discover->own.start);
    discover->has_own = true;
    discover->on_found = on_found;
    discover->context = context;
    rc = uv_env_watch(env, discover->fd, on_ready, discover);
    if (rc != RC_OK) return rc;
    discover->env = env;
    announce(discover);
    return RC_OK;
}
