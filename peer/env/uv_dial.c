/*
 * uv_dial: how connections come about: listening, accepting, looking up names, connecting. The
 * addresses of a name are tried in turn under one deadline; a socket that failed to connect cannot
 * be used again, so its handle is closed and made anew between two of them. Loop thread only.
 */
#include "peer/env/uv_env.h"

#include "base/check.h"
#include "base/mem.h"
#include "peer/env/address.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

enum { LISTEN_BACKLOG = 128 };

/* "192.0.2.1:7000" or "[2001:db8::1]:7000". */
static void format_endpoint(const struct sockaddr_storage *from, char *text, size_t cap)
{
    char host[INET6_ADDRSTRLEN] = "?";
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)from;
    const struct sockaddr_in *four = (const struct sockaddr_in *)from;

    if (from->ss_family == AF_INET) {
        (void)uv_ip4_name(four, host, sizeof host);
        (void)snprintf(text, cap, "%s:%u", host, ntohs(four->sin_port));
    } else if (IN6_IS_ADDR_V4MAPPED(&six->sin6_addr)) {
        (void)uv_inet_ntop(AF_INET, &six->sin6_addr.s6_addr[12], host, sizeof host);
        (void)snprintf(text, cap, "%s:%u", host, ntohs(six->sin6_port));
    } else {
        (void)uv_ip6_name(six, host, sizeof host);
        (void)snprintf(text, cap, "[%s]:%u", host, ntohs(six->sin6_port));
    }
}

/* ---- listening ---- */

static void on_listener_closed(uv_handle_t *handle)
{
    mem_free(handle);
}

static void listener_close(uv_tcp_t *listener)
{
    uv_close((uv_handle_t *)listener, on_listener_closed);
}

void tcp_unlisten(struct uv_env *env)
{
    if (env->listener != NULL) listener_close(env->listener);
    env->listener = NULL;
}

/* Make room among the strangers: the one that has waited longest without proving anything goes. */
static void evict_stranger(struct uv_env *env)
{
    struct tcp_link *link;
    uint64_t number;

    TAILQ_FOREACH (link, &env->links, entry) {
        if (link->is_accepted && link->state == TCP_OPEN &&
            link->framer.frame_max == HANDSHAKE_BYTES_MAX) {
            break;
        }
    }
    if (link == NULL) return;
    number = link->number;
    tcp_link_close(link);
    env->events.on_lost(env->events.context, number, RC_LIMIT, "too many connections");
}

static void on_refused_closed(uv_handle_t *handle)
{
    mem_free(handle);
}

/* Take the connection off the backlog only to close it. */
static void refuse(struct uv_env *env, uv_stream_t *server)
{
    uv_tcp_t *tcp = mem_alloc(sizeof *tcp);

    if (tcp == NULL) return; /* it stays in the backlog until the next one arrives */
    CHECK(uv_tcp_init(&env->loop, tcp) == 0);
    (void)uv_accept(server, (uv_stream_t *)tcp);
    uv_close((uv_handle_t *)tcp, on_refused_closed);
}

static void on_connection(uv_stream_t *server, int status)
{
    struct uv_env *env = server->data;
    struct tcp_link *link;
    struct sockaddr_storage peer;
    int peer_bytes = sizeof peer;
    char remote[ADDRESS_BYTES_MAX] = "unknown";
    enum rc rc;

    if (status != 0 || env->is_stopping) return; /* out of files: libuv sheds the connection */
    rc = tcp_link_create(env, TCP_CONNECTING, &link);
    if (rc == RC_LIMIT) {
        evict_stranger(env);
        if (env->is_stopping) return;
        rc = tcp_link_create(env, TCP_CONNECTING, &link);
    }
    if (rc != RC_OK) {
        refuse(env, server);
        return;
    }
    link->is_accepted = true;
    if (uv_accept(server, (uv_stream_t *)&link->tcp) != 0) {
        tcp_link_close(link);
        return;
    }
    if (uv_tcp_getpeername(&link->tcp, (struct sockaddr *)&peer, &peer_bytes) == 0) {
        format_endpoint(&peer, remote, sizeof remote);
    }
    tcp_link_opened(link);
    env->events.on_accepted(env->events.context, link->number, remote);
}

static int resolve_now(struct uv_env *env, const struct address *address,
                       struct sockaddr_storage *out)
{
    static const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    uv_getaddrinfo_t request;
    int status =
        uv_getaddrinfo(&env->loop, &request, NULL, address->host, address->port_text, &hints);

    if (status != 0) return status;
    memcpy(out, request.addrinfo->ai_addr, request.addrinfo->ai_addrlen);
    uv_freeaddrinfo(request.addrinfo);
    return 0;
}

static int listener_start(uv_tcp_t *listener, const struct sockaddr_storage *target, char *bound,
                          size_t cap)
{
    struct sockaddr_storage name;
    int name_bytes = sizeof name;
    int status = uv_tcp_bind(listener, (const struct sockaddr *)target, 0);

    if (status == 0) status = uv_listen((uv_stream_t *)listener, LISTEN_BACKLOG, on_connection);
    if (status == 0) status = uv_tcp_getsockname(listener, (struct sockaddr *)&name, &name_bytes);
    if (status == 0) format_endpoint(&name, bound, cap);
    return status;
}

enum rc uv_env_listen(struct env *base, const char *text, char *bound, size_t cap,
                      struct fault *why)
{
    struct uv_env *env = uv_env_of(base);
    struct address address;
    struct sockaddr_storage target;
    const char *reason;
    uv_tcp_t *listener;
    enum rc rc;
    int status;

    CHECK(bound != NULL && cap > 0);
    if (env->listener != NULL) return fault_set(why, RC_BUSY, "already listening");
    if (address_parse(text, &address) != RC_OK) {
        return fault_set(why, RC_PARSE,
                         "cannot listen on '%.100s': not an address; write host:port, "
                         "such as 0.0.0.0:7000 or [::]:7000",
                         text);
    }
    listener = mem_alloc(sizeof *listener);
    if (listener == NULL) return fault_set(why, RC_NOMEM, "cannot listen: memory is short");
    CHECK(uv_tcp_init(&env->loop, listener) == 0);
    listener->data = env;
    status = resolve_now(env, &address, &target);
    if (status == 0) status = listener_start(listener, &target, bound, cap);
    if (status == 0) {
        env->listener = listener;
        return RC_OK;
    }
    listener_close(listener);
    rc = uv_env_rc(status, &reason);
    return fault_set(why, rc, "cannot listen on %.100s: %s", text, reason);
}

/* ---- dialling ---- */

static void on_connect(uv_connect_t *request, int status);

static void on_dial_late(uv_timer_t *timer)
{
    tcp_link_fail(timer->data, RC_TIMEOUT, "no answer");
}

/* One address did not work: the next one, or give up with this one's reason. */
static void target_failed(struct tcp_link *link, int status)
{
    const char *why;
    enum rc rc = uv_env_rc(status, &why);

    if (link->targets_next == link->targets_count) {
        tcp_link_fail(link, rc, why);
        return;
    }
    link->state = TCP_RETRYING;
    uv_close((uv_handle_t *)&link->tcp, on_tcp_closed);
}

static void connect_target(struct tcp_link *link)
{
    int status;

    CHECK(link->targets_next < link->targets_count);
    link->state = TCP_CONNECTING;
    status =
        uv_tcp_connect(&link->connect, &link->tcp,
                       (const struct sockaddr *)&link->targets[link->targets_next++], on_connect);
    if (status != 0) target_failed(link, status);
}

void tcp_link_try_next(struct tcp_link *link)
{
    CHECK(uv_tcp_init(&link->env->loop, &link->tcp) == 0);
    connect_target(link);
}

static void on_connect(uv_connect_t *request, int status)
{
    struct tcp_link *link = request->data;
    struct uv_env *env = link->env;

    if (link->state != TCP_CONNECTING || env->is_stopping) return; /* given up meanwhile */
    if (status != 0) {
        target_failed(link, status);
        return;
    }
    tcp_link_opened(link);
    env->events.on_connected(env->events.context, link->number);
}

static void on_resolved(uv_getaddrinfo_t *request, int status, struct addrinfo *found)
{
    struct tcp_link *link = request->data;

    link->is_resolving = false;
    if (link->state == TCP_RESOLVING) {
        for (struct addrinfo *i = found; i != NULL && link->targets_count < LINK_TARGETS_MAX;
             i = i->ai_next) {
            memcpy(&link->targets[link->targets_count++], i->ai_addr, i->ai_addrlen);
        }
        if (status == 0 && link->targets_count == 0) status = UV_EAI_NODATA;
        if (status == 0) {
            connect_target(link);
        } else {
            link->targets_next = link->targets_count;
            target_failed(link, status);
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
    int status = uv_getaddrinfo(&link->env->loop, &link->resolve, on_resolved, address->host,
                                address->port_text, &hints);

    if (status != 0) return status;
    link->is_resolving = true;
    link->pending++;
    return 0;
}

enum rc uv_env_dial(struct env *base, const char *text, uint64_t *number)
{
    struct uv_env *env = uv_env_of(base);
    struct address address;
    struct tcp_link *link;
    enum rc rc;

    CHECK(text != NULL && number != NULL);
    if (env->is_stopping) return RC_CLOSED;
    if (address_parse(text, &address) != RC_OK || address.port == 0) return RC_PARSE;
    rc = tcp_link_create(env, TCP_RESOLVING, &link);
    if (rc != RC_OK) return rc;
    uv_update_time(&env->loop);
    CHECK(uv_timer_start(&link->timer, on_dial_late, LINK_DIAL_MS, 0) == 0);
    if (is_numeric(&address, &link->targets[0])) {
        link->targets_count = 1;
        connect_target(link);
    } else {
        int status = lookup_start(link, &address);

        if (status != 0) target_failed(link, status);
    }
    *number = link->number;
    return RC_OK;
}
