/*
 * http: a peer's status for browsers and monitors, over libmicrohttpd on the peer's own loop: `/` a
 * page, `/status.json`, `/metrics`, `/events`. Read only, unencrypted, for whoever can reach the
 * address: off unless asked for, and on loopback unless said otherwise. Loop thread.
 */
#ifndef GRAPEVINE_PEER_WATCH_HTTP_H
#define GRAPEVINE_PEER_WATCH_HTTP_H

#include "base/fault.h"
#include "base/rc.h"

#include <stddef.h>

struct env;
struct http;
struct json;
struct node_report;

enum {
    HTTP_CONNECTIONS_MAX = 16,
    HTTP_IDLE_S = 10,                 /* a connection that says nothing for so long is closed */
    HTTP_STATUS_S = 1,                /* /events tells the status so often */
    HTTP_CONNECTION_BYTES = 16 * 1024 /* memory of one, request line and headers included */
};

struct http_source {
    void *context;
    struct json *(*status)(void *context); /* what is true now; the caller destroys it */
};

/** `address`: "PORT" (of 127.0.0.1) or "ADDR:PORT" with an address in digits; port 0 picks one. The
 *  bound one goes to `bound`. RC_USAGE, RC_IO with a reason (the port is taken), RC_UNSUPPORTED in
 * a build without libmicrohttpd. */
MUST_USE enum rc http_create(struct env *env, const char *address, const struct http_source *source,
                             struct http **http, char *bound, size_t cap, struct fault *why);
/** One more point of the curves, for those who listen to /events, now or later. NULL is fine. */
void http_report(struct http *http, const struct node_report *report);
/** Before the env goes. NULL is fine. */
void http_destroy(struct http *http);

#endif
