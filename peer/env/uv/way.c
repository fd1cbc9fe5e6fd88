/*
 * uv_way: a dial that does not go straight there (peer/env/way.h): what is said with a proxy over
 * a connection that has just been made, and commands whose standard input and output are one end
 * of a socket pair. For the link it is a connection like others, later. Loop thread only.
 *
 * A command is a child in a group of its own, so that a terminal's Ctrl-C does not cut the farewell
 * off, and is killed with its group when the link closes. The link's memory stays until the child
 * has been reaped, and so does its place among the children: there are never more than links.
 */
#include "peer/env/uv/env.h"

#include "base/check.h"
#include "base/mem.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { WAY_READ_BYTES = 1024 }; /* of a proxy's answer in one go */

struct tcp_way {
    struct way_talk talk; /* with a proxy */
    uv_write_t write;
    bool is_writing;
    char room[WAY_READ_BYTES];
    uv_process_t process; /* of a command */
    bool is_running;      /* not reaped yet */
};

static bool is_before(const struct tcp_link *link)
{
    return link->state == TCP_RESOLVING || link->state == TCP_CONNECTING ||
           link->state == TCP_TUNNELLING;
}

void tcp_way_explain(const struct tcp_link *link, int status, enum rc *rc, const char **why)
{
    const enum way_kind kind = link->dial != NULL ? link->env->way.kind : WAY_DIRECT;

    if (kind == WAY_COMMAND) {
        if (link->received_bytes > 0 || link->state == TCP_LINGERING) return;
        *rc = RC_REFUSED;
        *why = status == UV_ENOENT || status == UV_EACCES
                   ? "the program of --dial-command is not there, or may not be run"
               : status == UV_EMFILE ? "too many open files"
                                     : "--dial-command ended without a byte from there; what it "
                                       "said itself is on standard error";
    } else if (kind != WAY_DIRECT && is_before(link)) {
        if (link->state == TCP_TUNNELLING) {
            *why = *rc == RC_TIMEOUT ? "no answer through the proxy" : "the proxy hung up";
        } else if (*rc == RC_REFUSED) {
            *why = "the proxy's port refuses connections: is it running there?";
        } else if (*rc == RC_NOT_FOUND) {
            *why = "the name of the proxy's host is not found";
        } else if (*rc != RC_LIMIT && *rc != RC_NOMEM) {
            *why = "the proxy cannot be reached";
        }
    }
}

/* ---- proxies ---- */

static void on_way_written(uv_write_t *request, int status)
{
    struct tcp_link *link = request->data;

    link->way->is_writing = false;
    if (status != 0 && link->state == TCP_TUNNELLING) tcp_link_fail_status(link, status);
}

static void way_say(struct tcp_link *link)
{
    struct tcp_way *way = link->way;
    uv_buf_t buf = uv_buf_init((char *)way->talk.say, (unsigned)way->talk.say_count);
    int status;

    if (way->talk.say_count == 0) return;
    /* The proxy answers what it has read, so the write before is over but for its callback. */
    if (way->is_writing) {
        tcp_link_fail(link, RC_FORMAT, "the proxy answers what it was not asked yet");
        return;
    }
    way->talk.say_count = 0;
    way->write.data = link;
    way->is_writing = true;
    status = uv_write(&way->write, (uv_stream_t *)&link->tcp, &buf, 1, on_way_written);
    if (status == 0) return;
    way->is_writing = false;
    tcp_link_fail_status(link, status);
}

static void on_way_room(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct tcp_link *link = handle->data;

    (void)suggested;
    *buf = uv_buf_init(link->way->room, sizeof link->way->room);
}

static void on_way_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buf)
{
    struct tcp_link *link = stream->data;
    struct uv_env *env = link->env;
    struct tcp_way *way = link->way;
    const char *why;
    enum rc rc;

    if (link->state != TCP_TUNNELLING || env->is_stopping || count == 0) return;
    if (count < 0) {
        tcp_link_fail_status(link, (int)count);
        return;
    }
    rc = way_talk_hear(&way->talk, (const uint8_t *)buf->base, (size_t)count, &why);
    if (rc != RC_OK) {
        tcp_link_fail(link, rc, why);
    } else if (way->talk.state != WAY_OPEN) {
        way_say(link);
    } else {
        (void)uv_read_stop(stream);
        tcp_link_opened(link);
        env->events.on_connected(env->events.context, link->number);
    }
}

void tcp_way_begin(struct tcp_link *link)
{
    int status;

    link->state = TCP_TUNNELLING;
    way_say(link);
    if (link->state != TCP_TUNNELLING) return;
    status = uv_read_start((uv_stream_t *)&link->tcp, on_way_room, on_way_read);
    if (status != 0) tcp_link_fail_status(link, status);
}

/* ---- commands ---- */

static void on_child_closed(uv_handle_t *handle)
{
    struct tcp_link *link = handle->data;

    link->env->children--;
    tcp_link_release(link);
}

static void on_child_exit(uv_process_t *process, int64_t code, int number)
{
    struct tcp_link *link = process->data;

    (void)code; /* the connection ends with it, unless it left it to somebody else */
    (void)number;
    link->way->is_running = false;
    uv_close((uv_handle_t *)process, on_child_closed);
}

/* Our end of a pair becomes the link's, the other the child's standard input and output. */
static int command_start(struct tcp_link *link, char *words[])
{
    struct tcp_way *way = link->way;
    uv_stdio_container_t stdio[3];
    uv_process_options_t options = {.file = words[0],
                                    .args = words,
                                    .exit_cb = on_child_exit,
                                    .flags = UV_PROCESS_DETACHED,
                                    .stdio = stdio,
                                    .stdio_count = 3};
    int ends[2], status = UV_EMFILE;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return UV_EMFILE;
    if (!tcp_is_kept_for_files(ends[0]) && !tcp_is_kept_for_files(ends[1])) {
        status = uv_tcp_open(&link->tcp, ends[0]);
    }
    if (status != 0) {
        (void)close(ends[0]);
        (void)close(ends[1]);
        return status;
    }
    stdio[0] = stdio[1] = (uv_stdio_container_t){.flags = UV_INHERIT_FD, .data = {.fd = ends[1]}};
    stdio[2] = (uv_stdio_container_t){.flags = UV_INHERIT_FD, .data = {.fd = STDERR_FILENO}};
    way->process.data = link;
    link->pending++;
    link->env->children++;
    status = uv_spawn(&link->env->loop, &way->process, &options);
    way->is_running = status == 0;
    if (status != 0) uv_close((uv_handle_t *)&way->process, on_child_closed);
    (void)close(ends[1]);
    return status;
}

/* Never from inside dial(). */
static void on_command_ready(uv_timer_t *timer)
{
    struct tcp_link *link = timer->data;
    struct uv_env *env = link->env;

    if (link->state != TCP_CONNECTING || env->is_stopping) return;
    tcp_link_opened(link);
    env->events.on_connected(env->events.context, link->number);
}

void tcp_way_command(struct tcp_link *link, const struct address *target)
{
    char room[WAY_WORDS_BYTES], *words[WAY_WORDS_MAX + 1];
    int status = UV_EMFILE;

    link->state = TCP_CONNECTING;
    if (target->host[0] == '-') { /* it would be read as a flag */
        tcp_link_fail(link, RC_PARSE, "not a host's name");
        return;
    }
    CHECK(way_command_words(&link->env->way, target, room, words) == RC_OK);
    if (link->env->children < CONNECTIONS_MAX) status = command_start(link, words);
    if (status != 0) {
        tcp_link_fail_status(link, status);
    } else {
        CHECK(uv_timer_start(&link->timer, on_command_ready, 0, 0) == 0);
    }
}

/* ---- both ---- */

bool tcp_way_create(struct tcp_link *link, const struct address *target)
{
    const struct way *way = &link->env->way;

    CHECK(way->kind != WAY_DIRECT);
    link->way = mem_alloc(sizeof *link->way);
    if (link->way == NULL) return false;
    if (way->kind != WAY_COMMAND) way_talk_begin(&link->way->talk, way, target);
    return true;
}

void tcp_way_end(struct tcp_link *link)
{
    if (link->way == NULL || !link->way->is_running) return;
    /* It is not reaped yet, so the number is still its own. */
    (void)kill(-link->way->process.pid, SIGKILL);
}

void tcp_way_destroy(struct tcp_way *way)
{
    if (way == NULL) return;
    CHECK(!way->is_running);
    mem_wipe(&way->talk, sizeof way->talk); /* a password was said */
    mem_free(way);
}
