/*
 * One GET by blocking sockets: HTTP/1.0, so that the body ends with the connection (RFC
 * 1945, 7.2.2) and nothing has to be parsed but the first line and the empty one.
 */
#include "peer/watch/status_http.h"

#include "base/bytes.h"
#include "base/mem.h"
#include "gossip/wire/address.h"
#include "peer/env/env.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { ANSWER_BYTES_MAX = 16 << 20, PIECE_BYTES = 64 << 10, READS_MAX = 4096 };

/* What blocks next does so no longer than that. False: the time is over. */
static bool set_wait(int fd, uint64_t until_ns)
{
    uint64_t now_ns = uv_clock_ns(), left_ns = until_ns > now_ns ? until_ns - now_ns : 0;
    struct timeval wait = {.tv_sec = (time_t)(left_ns / NS_PER_S),
                           .tv_usec = (suseconds_t)(left_ns % NS_PER_S / 1000)};

    if (wait.tv_sec == 0 && wait.tv_usec == 0) return false; /* zeros would mean: for ever */
    return setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) == 0 &&
           setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait) == 0;
}

static int dial(const struct address *address, uint64_t until_ns)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int fd = -1;

    if (getaddrinfo(address->host, address->port_text, &hints, &found) != 0) return -1;
    for (const struct addrinfo *at = found; at != NULL && fd < 0; at = at->ai_next) {
        fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
        if (fd < 0) continue;
        if (!set_wait(fd, until_ns) || connect(fd, at->ai_addr, at->ai_addrlen) != 0) {
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(found);
    return fd;
}

/* To the end, or a limit. */
static enum rc read_all(int fd, uint64_t until_ns, char **bytes, size_t *count)
{
    char *held = NULL;
    size_t used = 0;

    for (uint32_t reads = 0;; reads++) {
        char *grown = mem_resize(held, used + PIECE_BYTES + 1);
        ssize_t got;

        if (grown == NULL) {
            mem_free(held);
            return RC_NOMEM;
        }
        held = grown;
        got = set_wait(fd, until_ns) ? recv(fd, held + used, PIECE_BYTES, 0) : -1;
        if (got > 0) used += (size_t)got;
        if (got < 0 || used > ANSWER_BYTES_MAX || reads == READS_MAX) {
            mem_free(held);
            return got < 0 ? RC_IO : RC_FORMAT;
        }
        if (got == 0) break;
    }
    held[used] = '\0';
    *bytes = held;
    *count = used;
    return RC_OK;
}

static enum rc body_of(char *answer, size_t count)
{
    char *body = strstr(answer, "\r\n\r\n");

    if (count < 12 || strncmp(answer, "HTTP/1.", 7) != 0) return RC_FORMAT;
    if (strncmp(answer + 8, " 200", 4) != 0 || body == NULL) return RC_FORMAT;
    body += 4;
    memmove(answer, body, strlen(body) + 1);
    return RC_OK;
}

enum rc status_http_fetch(const char *address, uint64_t until_ns, char **text)
{
    char request[HOST_NAME_BYTES + 64], *answer = NULL;
    struct address parsed;
    size_t count = 0;
    enum rc rc = RC_IO;
    int fd, length;

    if (address_parse(address, &parsed) != RC_OK) return RC_FORMAT;
    fd = dial(&parsed, until_ns);
    if (fd < 0) return RC_IO;
    length = snprintf(request, sizeof request, "GET /status.json HTTP/1.0\r\nHost: %s\r\n\r\n",
                      strchr(parsed.host, ':') == NULL ? parsed.host : "localhost");
    if (send(fd, request, (size_t)length, MSG_NOSIGNAL) == length) {
        rc = read_all(fd, until_ns, &answer, &count);
    }
    close(fd);
    if (rc == RC_OK) rc = body_of(answer, count);
    if (rc != RC_OK) {
        mem_free(answer);
        return rc;
    }
    *text = answer;
    return RC_OK;
}
