/*
 * uv_listen: listening and accepting. A [::] listener takes IPv4 too. With every link taken the
 * stranger that has waited longest makes room; if there is none, accepting stops for a moment, so
 * that a flood waits in the kernel and not in our loop. So does one that is faster than 500 a
 * second: taking, reading and closing a connection costs 40 to 90 us, and strangers shall not have
 * more than a twentieth of a core. A member among them waits with them, and dials again. Out of
 * file descriptors libuv takes what waits with one it keeps in reserve, and closes it. Loop thread
 * only.
 */
#include "peer/env/uv/env.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "gossip/flow/ration.h"
#include "gossip/wire/address.h"
#include "peer/env/times.h"

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
    if (env->listener != NULL) {
        listener_close(env->listener);
        (void)uv_timer_stop(&env->accept_timer);
        env->accept_is_paced = false;
    }
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

static void on_accept_again(uv_timer_t *timer);

static void on_refused_closed(uv_handle_t *handle)
{
    mem_free(handle);
}

/* Take the connection off the backlog only to close it. */
static void refuse(struct uv_env *env, uv_stream_t *server)
{
    uv_tcp_t *tcp = mem_alloc(sizeof *tcp);

    if (tcp == NULL) { /* it waits on */
        CHECK(uv_timer_start(&env->accept_timer, on_accept_again, ACCEPT_PAUSE_MS, 0) == 0);
        return;
    }
    CHECK(uv_tcp_init(&env->loop, tcp) == 0);
    (void)uv_accept(server, (uv_stream_t *)tcp);
    uv_close((uv_handle_t *)tcp, on_refused_closed);
}

static void accept_next(struct uv_env *env, bool may_wait)
{
    uv_stream_t *server = (uv_stream_t *)env->listener;
    struct tcp_link *link;
    uv_os_fd_t socket;
    struct sockaddr_storage peer;
    int peer_bytes = sizeof peer;
    char remote[ADDRESS_BYTES_MAX] = "unknown";
    enum rc rc;

    rc = tcp_link_create(env, TCP_CONNECTING, &link);
    if (rc == RC_LIMIT) {
        evict_stranger(env);
        if (env->is_stopping) return;
        rc = tcp_link_create(env, TCP_CONNECTING, &link);
    }
    if (rc == RC_LIMIT && may_wait) { /* until uv_accept() libuv takes no other */
        CHECK(uv_timer_start(&env->accept_timer, on_accept_again, ACCEPT_PAUSE_MS, 0) == 0);
        return;
    }
    if (rc != RC_OK) {
        refuse(env, server);
        return;
    }
    link->is_accepted = true;
    if (uv_accept(server, (uv_stream_t *)&link->tcp) != 0 ||
        uv_fileno((uv_handle_t *)&link->tcp, &socket) != 0 || tcp_is_kept_for_files(socket)) {
        tcp_link_close(link);
        return;
    }
    if (uv_tcp_getpeername(&link->tcp, (struct sockaddr *)&peer, &peer_bytes) == 0) {
        format_endpoint(&peer, remote, sizeof remote);
    }
    tcp_link_opened(link);
    env->events.on_accepted(env->events.context, link->number, remote);
}

/* Takes one of the accepts that have come in since the last. */
static bool accept_is_due(struct uv_env *env)
{
    uint64_t now_ns = uv_hrtime();

    if (!ration_has(env->accepts_full_ns, now_ns, 0, ACCEPT_BURST_NS)) return false;
    ration_take(&env->accepts_full_ns, now_ns, ACCEPT_GAP_NS);
    return true;
}

/* The pause is over: who waited is taken or told, and the next one may wait. */
static void on_accept_again(uv_timer_t *timer)
{
    struct uv_env *env = timer->data;
    bool was_paced = env->accept_is_paced;

    env->accept_is_paced = false;
    if (env->listener == NULL || env->is_stopping) return;
    if (was_paced) (void)accept_is_due(env);
    accept_next(env, was_paced);
}

static void on_connection(uv_stream_t *server, int status)
{
    struct uv_env *env = server->data;

    if (status != 0 || env->is_stopping) return;
    if (accept_is_due(env)) {
        accept_next(env, true);
    } else { /* until uv_accept() libuv takes no other */
        env->accept_is_paced = true;
        CHECK(uv_timer_start(&env->accept_timer, on_accept_again, ACCEPT_PACE_MS, 0) == 0);
    }
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

    if (status == 0) tcp_options_set(listener->data, listener);
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
    if (listener == NULL) return fault_set(why, RC_NOMEM, "cannot listen: out of memory");
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
