/* discover: see discover.h. The loop's, but for discover_look(), which comes before it. */
#include "peer/session/discover.h"

#include "peer/times.h"

#include <stdio.h>
#include <string.h>

enum { AT_ONCE_MAX = 16 };

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
    log_warn(
        discover->log,
        "--discover %s: a peer at %s has this name and another --swarm-key or --swarm-name, or "
        "sends again what it heard; it is left alone",
        discover->name, host);
}

/* Each address once in a while: it may have answered by then, or be that of nobody any more. False:
 * it was taken lately, or as many others were. */
static bool take(struct discover *discover, const char *address, uint64_t now_ns)
{
    struct discover_taken *place = NULL;

    for (uint32_t i = 0; i < DISCOVER_ADDRESSES_MAX; i++) {
        struct discover_taken *taken = &discover->taken[i];
        const bool is_over =
            taken->address[0] == '\0' || now_ns - taken->at_ns >= DISCOVER_AGAIN_NS;

        if (is_over && place == NULL) place = taken;
        if (strcmp(taken->address, address) != 0) continue;
        if (!is_over) return false;
        place = taken;
    }
    if (place == NULL) return false;
    place->at_ns = now_ns;
    snprintf(place->address, sizeof place->address, "%s", address);
    return true;
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
    if (*is_empty) return false;
    rc = beacon_read(bytes, count, discover->name, discover->swarm, host, &beacon);
    if (rc == RC_AUTH) tell_other(discover, host);
    if (rc != RC_OK) return false;
    if (discover->has_own && memcmp(beacon.start, discover->own.start, BEACON_START_BYTES) == 0) {
        return false;
    }
    snprintf(address, ADDRESS_BYTES_MAX, "%s:%u", host, beacon.port);
    return take(discover, address, uv_clock_ns());
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
    char hosts[UV_HOSTS_MAX][UV_HOST_BYTES];
    uint8_t bytes[BEACON_BYTES];
    uint32_t count;

    if (now_ns - discover->sent_ns < DISCOVER_BEACON_NS) return;
    discover->sent_ns = now_ns;
    uv_multicast_join(discover->fd); /* interfaces come and go */
    count = uv_multicast_hosts(discover->host, hosts);
    for (uint32_t i = 0; i < count; i++) {
        beacon_write(&discover->own, discover->name, discover->swarm, hosts[i], bytes);
        (void)uv_multicast_send(discover->fd, bytes, sizeof bytes, hosts[i]);
    }
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
