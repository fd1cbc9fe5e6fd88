/*
 * uv_dial: connecting, in the way of RFC 8305 ("happy eyeballs"). A name's addresses are tried in
 * the system's order of preference, but with the families taking turns; each next one begins 250 ms
 * after the one before, or as soon as that has failed, and the first that stands wins. So a family
 * that leads nowhere costs a quarter of a second and not the whole deadline. Names are looked up in
 * libuv's threads, of which lookups may take half. Loop thread only.
 *
 * An attempt has a socket of its own; the winner's goes over to the link by its descriptor.
 */
#include "peer/env/uv/env.h"

#include "base/check.h"
#include "base/mem.h"
#include "gossip/wire/address.h"

#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

struct tcp_attempt {
    uv_tcp_t tcp;
    uv_connect_t connect;
    struct tcp_link *link;
    bool is_open; /* its handle is */
};

struct tcp_dial {
    uv_getaddrinfo_t resolve;
    bool is_over;
    bool is_resolving; /* the lookup's callback is still to come */
    struct sockaddr_storage targets[LINK_TARGETS_MAX];
    struct tcp_attempt attempts[LINK_TARGETS_MAX];
    unsigned targets_count, begun, failed;
    int status; /* why: of the attempt that says most */
};

/* ---- which addresses, in which order ---- */

static bool is_connectable(const struct addrinfo *info)
{
    return (info->ai_family == AF_INET || info->ai_family == AF_INET6) &&
           info->ai_addrlen <= sizeof(struct sockaddr_storage);
}

/* The next one of `family`, or of any other than it, from `info` on. */
static const struct addrinfo *next_of(const struct addrinfo *info, int family, bool is_same)
{
    while (info != NULL && (!is_connectable(info) || (info->ai_family == family) != is_same)) {
        info = info->ai_next;
    }
    return info;
}

unsigned tcp_targets_choose(const struct addrinfo *found, struct sockaddr_storage *targets,
                            unsigned max)
{
    const struct addrinfo *lists[2];
    unsigned count = 0;
    int family;

    while (found != NULL && !is_connectable(found)) {
        found = found->ai_next;
    }
    if (found == NULL) return 0;
    family = found->ai_family; /* the preferred one begins */
    lists[0] = found;
    lists[1] = next_of(found, family, false);
    for (unsigned turn = 0; count < max && (lists[0] != NULL || lists[1] != NULL); turn ^= 1) {
        const struct addrinfo *info = lists[turn];

        if (info == NULL) continue;
        memset(&targets[count], 0, sizeof targets[count]);
        memcpy(&targets[count++], info->ai_addr, info->ai_addrlen);
        lists[turn] = next_of(info->ai_next, family, turn == 0);
    }
    return count;
}

/* ---- attempts ---- */

static void on_attempt_closed(uv_handle_t *handle)
{
    struct tcp_attempt *attempt = handle->data;

    tcp_link_release(attempt->link);
}

static void attempt_close(struct tcp_attempt *attempt)
{
    if (!attempt->is_open) return;
    attempt->is_open = false;
    uv_close((uv_handle_t *)&attempt->tcp, on_attempt_closed);
}

void tcp_dial_end(struct tcp_link *link)
{
    struct tcp_dial *dial = link->dial;

    if (dial == NULL) return;
    /* A lookup that runs cannot be cancelled: its callback is waited for. */
    if (dial->is_resolving && !dial->is_over) (void)uv_cancel((uv_req_t *)&dial->resolve);
    dial->is_over = true;
    for (unsigned i = 0; i < dial->begun; i++) {
        attempt_close(&dial->attempts[i]);
    }
    dial->targets_count = dial->begun;
}

bool tcp_dial_is_resolving(const struct tcp_link *link)
{
    return link->dial != NULL && link->dial->is_resolving;
}

/* "No way there" says less than what an address that was reached answered. */
static bool says_little(int status)
{
    return status == 0 || status == UV_ENETUNREACH || status == UV_EHOSTUNREACH ||
           status == UV_EADDRNOTAVAIL || status == UV_EAFNOSUPPORT;
}

static void connect_next(struct tcp_link *link);

static void attempt_failed(struct tcp_attempt *attempt, int status)
{
    struct tcp_link *link = attempt->link;
    struct tcp_dial *dial = link->dial;

    attempt_close(attempt);
    dial->failed++;
    if (says_little(dial->status)) dial->status = status;
    if (dial->begun < dial->targets_count) {
        connect_next(link);
    } else if (dial->failed == dial->targets_count) {
        tcp_link_fail_status(link, dial->status);
    }
}

/* The attempt's handle takes its own descriptor with it. */
static int take_over(struct tcp_link *link, uv_os_fd_t socket)
{
    int own = dup(socket);

    if (own >= 0 && !tcp_is_kept_for_files(own)) return uv_tcp_open(&link->tcp, own);
    if (own >= 0) (void)close(own);
    return UV_EMFILE;
}

static void set_timer(struct tcp_link *link);

static void on_connect(uv_connect_t *request, int status)
{
    struct tcp_attempt *attempt = request->data;
    struct tcp_link *link = attempt->link;
    struct uv_env *env = link->env;
    uv_os_fd_t socket;

    if (!attempt->is_open || link->state != TCP_CONNECTING || env->is_stopping) return;
    if (status == 0) status = uv_fileno((uv_handle_t *)&attempt->tcp, &socket);
    if (status == 0) {
        status = take_over(link, socket);
    }
    if (status != 0) {
        attempt_failed(attempt, status);
        return;
    }
    tcp_dial_end(link);
    if (link->way != NULL) {
        set_timer(link); /* what is left of the time is for the proxy's answer */
        tcp_way_begin(link);
        return;
    }
    tcp_link_opened(link);
    env->events.on_connected(env->events.context, link->number);
}

static void on_dial_late(uv_timer_t *timer)
{
    tcp_link_fail_status(timer->data, UV_ETIMEDOUT);
}

/* One timer for both: the next attempt, then the deadline of all. */
static void on_dial_timer(uv_timer_t *timer)
{
    connect_next(timer->data);
}

static void set_timer(struct tcp_link *link)
{
    const struct tcp_dial *dial = link->dial;
    uint64_t now_ms = uv_now(&link->env->loop);
    uint64_t left_ms = link->dial_until_ms > now_ms ? link->dial_until_ms - now_ms : 1;
    bool has_next = dial->begun < dial->targets_count && left_ms > LINK_STAGGER_MS;

    CHECK(uv_timer_start(&link->timer, has_next ? on_dial_timer : on_dial_late,
                         has_next ? LINK_STAGGER_MS : left_ms, 0) == 0);
}

static void connect_next(struct tcp_link *link)
{
    struct tcp_dial *dial = link->dial;
    struct tcp_attempt *attempt = &dial->attempts[dial->begun];
    const struct sockaddr_storage *target = &dial->targets[dial->begun];
    uv_os_fd_t socket;
    int status;

    CHECK(dial->begun < dial->targets_count);
    dial->begun++;
    link->state = TCP_CONNECTING;
    CHECK(uv_tcp_init(&link->env->loop, &attempt->tcp) == 0);
    attempt->tcp.data = attempt->connect.data = attempt;
    attempt->link = link;
    attempt->is_open = true;
    link->pending++;
    set_timer(link);
    status = uv_tcp_connect(&attempt->connect, &attempt->tcp, (const struct sockaddr *)target,
                            on_connect);
    if (status == 0 && uv_fileno((uv_handle_t *)&attempt->tcp, &socket) == 0 &&
        tcp_is_kept_for_files(socket)) {
        status = UV_EMFILE;
    }
    if (status != 0) attempt_failed(attempt, status);
}

/* ---- looking up ---- */

static void on_resolved(uv_getaddrinfo_t *request, int status, struct addrinfo *found)
{
    struct tcp_link *link = request->data;
    struct tcp_dial *dial = link->dial;

    dial->is_resolving = false;
    if (link->state == TCP_RESOLVING) {
        dial->targets_count = tcp_targets_choose(found, dial->targets, LINK_TARGETS_MAX);
        if (status == 0 && dial->targets_count == 0) status = UV_EAI_NODATA;
        if (status == 0) {
            uv_update_time(&link->env->loop);
            connect_next(link);
        } else {
            tcp_link_fail_status(link, status);
        }
    }
    uv_freeaddrinfo(found);
    tcp_link_release(link);
}

/* An address in digits needs no lookup, and no thread. */
static bool is_numeric(const struct address *address, struct sockaddr_storage *target)
{
    return uv_ip4_addr(address->host, address->port, (struct sockaddr_in *)target) == 0 ||
           uv_ip6_addr(address->host, address->port, (struct sockaddr_in6 *)target) == 0;
}

static int lookup_start(struct tcp_link *link, const struct address *address)
{
    static const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct tcp_dial *dial = link->dial;
    int status;

    dial->resolve.data = link;
    status = uv_getaddrinfo(&link->env->loop, &dial->resolve, on_resolved, address->host,
                            address->port_text, &hints);
    if (status != 0) return status;
    dial->is_resolving = true;
    link->pending++;
    return 0;
}

static enum rc dial_create(struct uv_env *env, struct tcp_link **out)
{
    struct tcp_dial *dial;
    enum rc rc;

    if (env->is_stopping) return RC_CLOSED;
    dial = mem_alloc(sizeof *dial);
    if (dial == NULL) return RC_NOMEM;
    rc = tcp_link_create(env, TCP_RESOLVING, out);
    if (rc != RC_OK) {
        mem_free(dial);
        return rc;
    }
    (*out)->dial = dial;
    uv_update_time(&env->loop);
    (*out)->dial_until_ms = uv_now(&env->loop) + LINK_DIAL_MS;
    set_timer(*out);
    return RC_OK;
}

enum rc tcp_dial_targets(struct uv_env *env, const struct sockaddr_storage *targets, unsigned count,
                         uint64_t *number)
{
    struct tcp_link *link;
    enum rc rc = dial_create(env, &link);

    CHECK(count > 0 && count <= LINK_TARGETS_MAX);
    if (rc != RC_OK) return rc;
    memcpy(link->dial->targets, targets, count * sizeof *targets);
    link->dial->targets_count = count;
    *number = link->number;
    connect_next(link);
    return RC_OK;
}

/* To the proxy, or by the command: nobody here looks the target's name up. */
static enum rc dial_by_way(struct uv_env *env, const struct address *address, uint64_t *number)
{
    const struct address *proxy = &env->way.proxy;
    struct tcp_link *link;
    enum rc rc = dial_create(env, &link);
    int status = 0;

    if (rc != RC_OK) return rc;
    if (!tcp_way_create(link, address)) {
        tcp_link_close(link);
        return RC_NOMEM;
    }
    *number = link->number;
    if (env->way.kind == WAY_COMMAND) {
        tcp_way_command(link, address);
    } else if (is_numeric(proxy, &link->dial->targets[0])) {
        link->dial->targets_count = 1;
        connect_next(link);
    } else {
        status = lookup_start(link, proxy);
    }
    if (status != 0) tcp_link_fail_status(link, status);
    return RC_OK;
}

enum rc uv_env_dial(struct env *base, const char *text, uint64_t *number)
{
    struct uv_env *env = uv_env_of(base);
    struct sockaddr_storage target;
    struct address address;
    struct tcp_link *link;
    enum rc rc;
    int status;

    CHECK(text != NULL && number != NULL);
    if (env->is_stopping) return RC_CLOSED;
    if (address_parse(text, &address) != RC_OK || address.port == 0) return RC_PARSE;
    memset(&target, 0, sizeof target);
    if (env->way.kind != WAY_DIRECT) return dial_by_way(env, &address, number);
    if (is_numeric(&address, &target)) return tcp_dial_targets(env, &target, 1, number);
    rc = dial_create(env, &link);
    if (rc != RC_OK) return rc;
    *number = link->number;
    status = lookup_start(link, &address);
    if (status != 0) tcp_link_fail_status(link, status);
    return RC_OK;
}
