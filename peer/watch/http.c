/*
 * http: libmicrohttpd in its external mode: it keeps its sockets in an epoll descriptor of its own,
 * which the env watches, and does its work when called. No thread, no second loop. What it is asked
 * for is made at once; connections are bounded in number, memory and idle time.
 *
 * /events is a stream that does not end (server-sent events, WHATWG HTML 9.2): a few browsers at a
 * time listen, each with a bounded queue. One that reads too slowly is cut off, and its browser
 * asks anew. Between events its connection is suspended, which costs nothing.
 *
 * The library is loaded when the first page is asked for: with what it brings along (a TLS library
 * that is not used here) it costs 4 MiB, which the many peers without --http need not pay.
 *
 * A page of somebody else, opened on this machine, could have a name of its own resolve to
 * 127.0.0.1 and read us as if we were its own server; on loopback only requests to an address in
 * digits or to localhost are therefore answered.
 */
#include "peer/watch/http.h"

#include "base/check.h"

#ifdef GRAPEVINE_HAS_HTTP

#include "base/json.h"
#include "base/mem.h"
#include "gossip/wire/limits.h"
#include "gossip/wire/address.h"
#include "peer/env/env.h"
#include "peer/watch/metrics_text.h"
#include "peer/watch/page/page.h"
#include "peer/watch/points.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum {
    HTTP_BACKLOG = 16,
    STREAMS_MAX = HTTP_CONNECTIONS_MAX / 2, /* the other half is for those who only ask */
    STREAM_BYTES_MAX = 4 * 1024 * 1024,     /* queued for one that reads slowly */
    STREAM_BLOCK_BYTES = 16 * 1024
};

#define MHD_FILE "libmicrohttpd.so.12"

/* What is used of it. */
#define MHD_FUNCTIONS(DO)                                                                          \
    DO(start_daemon)                                                                               \
    DO(stop_daemon)                                                                                \
    DO(run)                                                                                        \
    DO(get_daemon_info)                                                                            \
    DO(create_response_from_buffer)                                                                \
    DO(create_response_from_callback)                                                              \
    DO(suspend_connection)                                                                         \
    DO(resume_connection)                                                                          \
    DO(add_response_header)                                                                        \
    DO(queue_response)                                                                             \
    DO(destroy_response)                                                                           \
    DO(lookup_connection_value)
#define MHD_FIELD(name) __typeof__(MHD_##name) *name;

struct mhd {
    MHD_FUNCTIONS(MHD_FIELD)
};

struct stream {
    struct http *http;
    struct MHD_Connection *connection;
    char *text; /* what is still to be sent: from `sent` to `count` */
    size_t sent, count;
    bool is_suspended;
    bool is_over; /* after that it ends */
};

struct http {
    struct mhd mhd;
    void *library;
    struct env *env;
    struct http_source source;
    struct MHD_Daemon *daemon;
    int epoll; /* -1: not watched */
    int timer; /* says when streams are due; -1: none */
    bool is_loopback;
    struct stream *streams[STREAMS_MAX]; /* NULL: free */
    struct points points;
};

/* ---- answering ---- */

/* Takes the response over; NULL: out of memory. */
static enum MHD_Result queue(struct http *http, struct MHD_Connection *connection, unsigned code,
                             const char *type, struct MHD_Response *response)
{
    enum MHD_Result result;

    if (response == NULL) return MHD_NO;
    (void)http->mhd.add_response_header(response, "Content-Type", type);
    (void)http->mhd.add_response_header(response, "Cache-Control", "no-store");
    (void)http->mhd.add_response_header(response, "X-Content-Type-Options", "nosniff");
    (void)http->mhd.add_response_header(response, "Content-Security-Policy",
                                        "default-src 'none'; connect-src 'self'; "
                                        "style-src 'unsafe-inline'; script-src 'unsafe-inline'");
    if (code == MHD_HTTP_METHOD_NOT_ALLOWED) {
        (void)http->mhd.add_response_header(response, "Allow", "GET, HEAD");
    }
    result = http->mhd.queue_response(connection, code, response);
    http->mhd.destroy_response(response);
    return result;
}

static enum MHD_Result answer(struct http *http, struct MHD_Connection *connection, unsigned code,
                              const char *type, const char *text, size_t bytes)
{
    return queue(http, connection, code, type,
                 http->mhd.create_response_from_buffer(bytes, (void *)text, MHD_RESPMEM_MUST_COPY));
}

static enum MHD_Result answer_words(struct http *http, struct MHD_Connection *connection,
                                    unsigned code, const char *words)
{
    return answer(http, connection, code, "text/plain; charset=utf-8", words, strlen(words));
}

static enum MHD_Result answer_status(struct http *http, struct MHD_Connection *connection,
                                     bool is_metrics)
{
    struct json *status = http->source.status(http->source.context);
    char *text = is_metrics ? metrics_text(status) : json_format(status);
    enum MHD_Result result;

    json_destroy(status);
    if (text == NULL) {
        return answer_words(http, connection, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory\n");
    }
    result = answer(http, connection, MHD_HTTP_OK,
                    is_metrics ? "text/plain; version=0.0.4; charset=utf-8" : "application/json",
                    text, strlen(text));
    mem_free(text);
    return result;
}

/* ---- streams ---- */

static ssize_t stream_read(void *context, uint64_t position, char *to, size_t most)
{
    struct stream *stream = context;
    size_t left = stream->count - stream->sent, take = left < most ? left : most;

    (void)position;
    if (take == 0 && stream->is_over) return MHD_CONTENT_READER_END_OF_STREAM;
    if (take == 0) {
        stream->is_suspended = true;
        stream->http->mhd.suspend_connection(stream->connection);
        return 0;
    }
    memcpy(to, stream->text + stream->sent, take);
    stream->sent += take;
    return (ssize_t)take;
}

static void stream_free(void *context)
{
    struct stream *stream = context;

    for (size_t i = 0; i < STREAMS_MAX; i++) {
        if (stream->http->streams[i] == stream) stream->http->streams[i] = NULL;
    }
    mem_free(stream->text);
    mem_free(stream);
}

static void stream_resume(struct stream *stream)
{
    if (stream->is_suspended) stream->http->mhd.resume_connection(stream->connection);
    stream->is_suspended = false;
}

static void stream_end(struct stream *stream)
{
    stream->is_over = true;
    stream->sent = stream->count = 0;
    stream_resume(stream);
}

/* Without what was sent. */
static void stream_add(struct stream *stream, const char *event, const char *data)
{
    size_t left = stream->count - stream->sent, more = strlen(event) + strlen(data) + 32;
    char *text;

    if (stream->is_over) return;
    text = left + more > STREAM_BYTES_MAX ? NULL : mem_alloc(left + more);
    if (text == NULL) {
        stream_end(stream);
        return;
    }
    if (left > 0) memcpy(text, stream->text + stream->sent, left);
    stream->sent = 0;
    stream->count =
        left + (size_t)snprintf(text + left, more, "event: %s\ndata: %s\n\n", event, data);
    mem_free(stream->text);
    stream->text = text;
    stream_resume(stream);
}

/* To one, or to all (NULL). Takes `json`. */
static void streams_tell(struct http *http, struct stream *one, const char *event,
                         struct json *json)
{
    char *text = json_format(json);

    json_destroy(json);
    for (size_t i = 0; i < STREAMS_MAX && text != NULL; i++) {
        struct stream *stream = http->streams[i];

        if (stream != NULL && (one == NULL || one == stream)) stream_add(stream, event, text);
    }
    mem_free(text);
}

static bool has_streams(const struct http *http)
{
    for (size_t i = 0; i < STREAMS_MAX; i++) {
        if (http->streams[i] != NULL) return true;
    }
    return false;
}

static void timer_set(struct http *http, bool is_on)
{
    const struct itimerspec every = {.it_interval.tv_sec = is_on ? HTTP_STATUS_S : 0,
                                     .it_value.tv_sec = is_on ? HTTP_STATUS_S : 0};

    if (http->timer >= 0) (void)timerfd_settime(http->timer, 0, &every, NULL);
}

static enum MHD_Result answer_stream(struct http *http, struct MHD_Connection *connection)
{
    size_t place = 0;
    struct stream *stream;
    enum MHD_Result result;

    while (place < STREAMS_MAX && http->streams[place] != NULL)
        place++;
    stream = place < STREAMS_MAX ? mem_alloc(sizeof *stream) : NULL;
    if (stream == NULL) {
        return answer_words(http, connection, MHD_HTTP_SERVICE_UNAVAILABLE,
                            "too many pages of this peer are open\n");
    }
    *stream = (struct stream){.http = http, .connection = connection};
    http->streams[place] = stream;
    streams_tell(http, stream, "points", points_json(&http->points));
    streams_tell(http, stream, "status", http->source.status(http->source.context));
    result = queue(http, connection, MHD_HTTP_OK, "text/event-stream",
                   http->mhd.create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK_BYTES,
                                                           stream_read, stream, stream_free));
    if (result == MHD_YES) timer_set(http, true);
    return result;
}

/* See the top of this file. */
static bool host_is_ours(const struct http *http, struct MHD_Connection *connection)
{
    const char *host = http->mhd.lookup_connection_value(connection, MHD_HEADER_KIND, "Host");
    size_t count = host == NULL ? 0 : strlen(host);

    if (!http->is_loopback || count == 0 || host[0] == '[') return true;
    count = strcspn(host, ":");
    return (count == 9 && strncasecmp(host, "localhost", count) == 0) ||
           strspn(host, "0123456789.") == count;
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_bytes, void **state)
{
    struct http *http = context;

    (void)version, (void)upload, (void)upload_bytes, (void)state;
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
        return answer_words(http, connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD\n");
    }
    if (!host_is_ours(http, connection)) {
        return answer_words(http, connection, MHD_HTTP_FORBIDDEN,
                            "ask for localhost, or an address in digits\n");
    }
    if (strcmp(url, "/") == 0) {
        return answer(http, connection, MHD_HTTP_OK, "text/html; charset=utf-8", page_live,
                      strlen(page_live));
    }
    if (strcmp(url, "/events") == 0 && strcmp(method, "GET") == 0) {
        return answer_stream(http, connection);
    }
    if (strcmp(url, "/status.json") == 0) return answer_status(http, connection, false);
    if (strcmp(url, "/metrics") == 0) return answer_status(http, connection, true);
    return answer_words(http, connection, MHD_HTTP_NOT_FOUND,
                        "there are /, /status.json, /events and /metrics\n");
}

/* ---- the loop ---- */

static void on_ready(void *context)
{
    struct http *http = context;

    (void)http->mhd.run(http->daemon);
}

static void on_timer(void *context)
{
    struct http *http = context;
    uint64_t times;

    if (read(http->timer, &times, sizeof times) < 0) return;
    if (!has_streams(http)) {
        timer_set(http, false);
        return;
    }
    streams_tell(http, NULL, "status", http->source.status(http->source.context));
    (void)http->mhd.run(http->daemon);
}

void http_report(struct http *http, const struct node_report *report)
{
    if (http == NULL) return;
    points_add(&http->points, report);
    if (!has_streams(http)) return;
    streams_tell(http, NULL, "point", points_json_of(report));
    (void)http->mhd.run(http->daemon);
}

/* ---- listening ---- */

/* Named by its socket address, so that no name is ever looked up for it. */
static enum rc parse_listen(const char *text, struct sockaddr_storage *to, socklen_t *bytes,
                            struct fault *why)
{
    struct sockaddr_in *four = (struct sockaddr_in *)to;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)to;
    char whole[ADDRESS_BYTES_MAX];
    struct address address;
    const char *host = address.host;
    bool is_port = text[strspn(text, "0123456789")] == '\0';

    (void)snprintf(whole, sizeof whole, "%s%s", is_port ? "127.0.0.1:" : "", text);
    memset(to, 0, sizeof *to);
    if (address_parse(whole, &address) == RC_OK) {
        if (strcmp(host, "localhost") == 0) host = "127.0.0.1";
        if (inet_pton(AF_INET, host, &four->sin_addr) == 1) {
            four->sin_family = AF_INET;
            four->sin_port = htons(address.port);
            *bytes = sizeof *four;
            return RC_OK;
        }
        if (inet_pton(AF_INET6, host, &six->sin6_addr) == 1) {
            six->sin6_family = AF_INET6;
            six->sin6_port = htons(address.port);
            *bytes = sizeof *six;
            return RC_OK;
        }
    }
    return fault_set(why, RC_USAGE,
                     "--http %.80s: not an address; write 8080 for this machine only, or "
                     "ADDR:PORT such as 0.0.0.0:8080",
                     text);
}

static bool is_loopback(const struct sockaddr_storage *to)
{
    const struct sockaddr_in *four = (const struct sockaddr_in *)to;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)to;

    if (to->ss_family == AF_INET) return ntohl(four->sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
}

static void format_bound(int socket, char *bound, size_t cap)
{
    struct sockaddr_storage name;
    socklen_t bytes = sizeof name;
    char host[INET6_ADDRSTRLEN] = "?";

    memset(&name, 0, sizeof name);
    (void)getsockname(socket, (struct sockaddr *)&name, &bytes);
    if (name.ss_family == AF_INET) {
        const struct sockaddr_in *four = (const struct sockaddr_in *)&name;

        (void)inet_ntop(AF_INET, &four->sin_addr, host, sizeof host);
        (void)snprintf(bound, cap, "%s:%u", host, ntohs(four->sin_port));
    } else {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)&name;

        (void)inet_ntop(AF_INET6, &six->sin6_addr, host, sizeof host);
        (void)snprintf(bound, cap, "[%s]:%u", host, ntohs(six->sin6_port));
    }
}

/* Made here and handed over: libmicrohttpd does not tell why it could not. -1 with errno set. */
static int listen_on(const struct sockaddr_storage *to, socklen_t bytes)
{
    int one = 1, failure;
    int listener = socket(to->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (listener < 0) return -1;
    (void)setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (const struct sockaddr *)to, bytes) == 0 &&
        listen(listener, HTTP_BACKLOG) == 0) {
        return listener;
    }
    failure = errno;
    (void)close(listener);
    errno = failure;
    return -1;
}

static enum rc daemon_start(struct http *http, int listener, struct fault *why)
{
    const union MHD_DaemonInfo *info;

    http->daemon = http->mhd.start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request, http,
        MHD_OPTION_LISTEN_SOCKET, listener, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)HTTP_CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)HTTP_IDLE_S,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HTTP_CONNECTION_BYTES, MHD_OPTION_END);
    if (http->daemon == NULL) {
        (void)close(listener);
        return fault_set(why, RC_IO, "--http: the server does not start: %s", strerror(errno));
    }
    info = http->mhd.get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    CHECK(info != NULL);
    if (uv_env_watch(http->env, info->epoll_fd, on_ready, http) != RC_OK) {
        return fault_set(why, RC_LIMIT, "--http: too much is watched already");
    }
    http->epoll = info->epoll_fd;
    http->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (http->timer < 0 || uv_env_watch(http->env, http->timer, on_timer, http) != RC_OK) {
        return fault_set(why, RC_LIMIT, "--http: no timer: %s", strerror(errno));
    }
    return RC_OK;
}

/* The library and all functions of it that are used. */
static enum rc library_open(struct http *http, struct fault *why)
{
    bool is_whole = true;

    http->library = dlopen(MHD_FILE, RTLD_NOW | RTLD_LOCAL);
    if (http->library == NULL) {
        return fault_set(why, RC_UNSUPPORTED,
                         "--http needs libmicrohttpd: %s; install the package "
                         "libmicrohttpd12",
                         dlerror());
    }
#define MHD_LOAD(name)                                                                             \
    {                                                                                              \
        void *found = dlsym(http->library, "MHD_" #name);                                          \
                                                                                                   \
        memcpy(&http->mhd.name, &found, sizeof found);                                             \
        is_whole = is_whole && found != NULL;                                                      \
    }
    MHD_FUNCTIONS(MHD_LOAD)
    return is_whole ? RC_OK : fault_set(why, RC_UNSUPPORTED, "--http: " MHD_FILE " is another one");
}

enum rc http_create(struct env *env, const char *address, const struct http_source *source,
                    struct http **out, char *bound, size_t cap, struct fault *why)
{
    struct sockaddr_storage to;
    socklen_t bytes = 0;
    struct http *http;
    int listener;
    enum rc rc = parse_listen(address, &to, &bytes, why);

    CHECK(source != NULL && out != NULL && bound != NULL);
    if (rc != RC_OK) return rc;
    listener = listen_on(&to, bytes);
    if (listener < 0) {
        return fault_set(why, RC_IO, "cannot listen on --http %.80s: %s; choose another port",
                         address, strerror(errno));
    }
    http = mem_alloc(sizeof *http);
    if (http == NULL) {
        (void)close(listener);
        return fault_set(why, RC_NOMEM, "--http: out of memory");
    }
    *http = (struct http){
        .env = env, .source = *source, .epoll = -1, .timer = -1, .is_loopback = is_loopback(&to)};
    format_bound(listener, bound, cap);
    rc = library_open(http, why);
    if (rc == RC_OK) {
        rc = daemon_start(http, listener, why);
    } else {
        (void)close(listener);
    }
    if (rc == RC_OK) {
        *out = http;
    } else {
        http_destroy(http);
    }
    return rc;
}

void http_destroy(struct http *http)
{
    if (http == NULL) return;
    if (http->epoll >= 0) uv_env_unwatch(http->env, http->epoll);
    if (http->timer >= 0) {
        uv_env_unwatch(http->env, http->timer);
        (void)close(http->timer);
    }
    for (size_t i = 0; i < STREAMS_MAX; i++) { /* a daemon with suspended ones does not stop */
        if (http->streams[i] != NULL) stream_end(http->streams[i]);
    }
    if (http->daemon != NULL) {
        (void)http->mhd.run(http->daemon);
        http->mhd.stop_daemon(http->daemon);
    }
    /* Stays loaded: what it brought along has registered itself with the C library. */
    mem_free(http);
}

#else

enum rc http_create(struct env *env, const char *address, const struct http_source *source,
                    struct http **out, char *bound, size_t cap, struct fault *why)
{
    (void)env, (void)source, (void)out, (void)bound, (void)cap;
    return fault_set(why, RC_UNSUPPORTED,
                     "--http %.80s: this program was built without libmicrohttpd; install "
                     "libmicrohttpd-dev and build it again",
                     address);
}

void http_report(struct http *http, const struct node_report *report)
{
    CHECK(http == NULL);
    (void)report;
}

void http_destroy(struct http *http)
{
    CHECK(http == NULL);
}

#endif
