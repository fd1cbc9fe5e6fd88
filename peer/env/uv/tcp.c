/*
 * uv_tcp: one established connection: reading frames, a bounded queue of frames to write, loss and
 * farewell. A link is unknown to the node from the moment it is reported lost or hung up; its
 * memory goes in its last close callback, so no callback can free what it stands on.
 *
 * Writing. send() only queues; uv_prepare starts the writes of one turn of the loop together, up to
 * 64 frames and 256 KiB in one uv_write, at most two of them in flight, because libuv's own queue
 * has no limit. Links that only talk come before those that carry bulk, which take turns
 * (rate.c). Farewell. After a hang-up the queue is flushed, our end is shut down, and what still
 * comes in is read and thrown away until the other side closes too: closing a socket with unread
 * bytes would reset the connection and could destroy the farewell before it is read. Loop thread
 * only.
 */
#include "peer/env/uv/env.h"

#include "base/check.h"
#include "base/mem.h"
#include "peer/env/tcp_path.h"

#include <string.h>

enum { LINK_SLOT_BITS = 10 };
_Static_assert(CONNECTIONS_MAX <= 1 << LINK_SLOT_BITS, "a slot must fit below the serial number");

static struct tcp_link *tcp_link_find(struct uv_env *env, uint64_t number)
{
    size_t slot = (size_t)(number & ((1u << LINK_SLOT_BITS) - 1));
    struct tcp_link *link = slot < CONNECTIONS_MAX ? env->slots[slot] : NULL;

    return link != NULL && link->number == number ? link : NULL;
}

enum rc tcp_link_create(struct uv_env *env, enum tcp_state state, struct tcp_link **out)
{
    struct tcp_link *link;
    unsigned slot = 0;

    while (slot < CONNECTIONS_MAX && env->slots[slot] != NULL) {
        slot++;
    }
    if (slot == CONNECTIONS_MAX) return RC_LIMIT;
    link = mem_alloc(sizeof *link);
    if (link == NULL) return RC_NOMEM;
    link->env = env;
    link->state = state;
    link->number = ++env->links_made << LINK_SLOT_BITS | slot;
    CHECK(uv_tcp_init(&env->loop, &link->tcp) == 0);
    CHECK(uv_timer_init(&env->loop, &link->timer) == 0);
    link->tcp.data = link->timer.data = link->shutdown.data = link;
    link->pending = 2;
    framer_init(&link->framer, HANDSHAKE_BYTES_MAX);
    for (int i = 0; i < LINK_WRITES_MAX; i++) {
        link->writes[i].request.data = link;
    }
    env->slots[slot] = link;
    TAILQ_INSERT_TAIL(&env->links, link, entry);
    env->links_alive++;
    *out = link;
    return RC_OK;
}

/* From here on the node cannot name it. */
static void link_forget(struct tcp_link *link)
{
    struct uv_env *env = link->env;
    struct tcp_link **slot = &env->slots[link->number & ((1u << LINK_SLOT_BITS) - 1)];

    CHECK(*slot == link);
    *slot = NULL;
    TAILQ_REMOVE(&env->links, link, entry);
    TAILQ_INSERT_TAIL(&env->leaving, link, entry);
}

static void queue_drop(struct tcp_link *link)
{
    frame_queue_clear(&link->queue);
    if (link->is_dirty) TAILQ_REMOVE(&link->env->dirty[link->is_bulk], link, dirty);
    link->is_dirty = false;
    link->first_started = 0;
}

void tcp_link_release(struct tcp_link *link)
{
    struct uv_env *env = link->env;

    CHECK(link->pending > 0);
    if (--link->pending > 0) {
        if (link->pending > 1 || link->state != TCP_CLOSED || !tcp_dial_is_resolving(link)) return;
        link->is_left = true;
        env->links_left++;
        uv_env_check_stopped(env);
        return;
    }
    CHECK(link->state == TCP_CLOSED);
    env->links_left -= link->is_left;
    TAILQ_REMOVE(&env->leaving, link, entry);
    framer_deinit(&link->framer);
    frame_queue_deinit(&link->queue);
    mem_free(link->dial);
    tcp_way_destroy(link->way);
    mem_free(link);
    CHECK(env->links_alive > 0);
    env->links_alive--;
    uv_env_check_stopped(env);
}

static void on_handle_closed(uv_handle_t *handle)
{
    tcp_link_release(handle->data);
}

void tcp_link_close(struct tcp_link *link)
{
    CHECK(link->state != TCP_CLOSED);
    if (link->state == TCP_LINGERING) {
        link->env->lingering_count--;
    } else {
        link_forget(link);
    }
    link->state = TCP_CLOSED;
    queue_drop(link);
    uv_rate_forget(link);
    tcp_dial_end(link);
    tcp_way_end(link);
    if (!uv_is_closing((uv_handle_t *)&link->tcp)) {
        uv_close((uv_handle_t *)&link->tcp, on_handle_closed);
    }
    uv_close((uv_handle_t *)&link->timer, on_handle_closed);
}

void tcp_link_fail(struct tcp_link *link, enum rc rc, const char *why)
{
    CHECK(rc != RC_OK && why != NULL);
    if (link->state == TCP_LINGERING) {
        tcp_link_close(link);
        return;
    }
    if (link->state == TCP_FAILED || link->state == TCP_CLOSED) return;
    link->lost_rc = rc;
    link->lost_why = why;
    if (link->state == TCP_OPEN || link->state == TCP_TUNNELLING) {
        (void)uv_read_stop((uv_stream_t *)&link->tcp);
    }
    link->state = TCP_FAILED;
    tcp_dial_end(link);
    queue_drop(link);
    uv_rate_forget(link);
    uv_env_defer(link->env);
}

void tcp_link_fail_status(struct tcp_link *link, int status)
{
    const char *why;
    enum rc rc = uv_env_rc(status, &why);

    tcp_way_explain(link, status, &rc, &why);
    tcp_link_fail(link, rc, why);
}

/* ---- reading ---- */

/* What the last read brought is, or ends before, the first of a frame. If the socket was never seen
 * empty while the one before came in, this may have lain there, for we do not know how long: after
 * a pause, or when this thread was busy with something else. */
static void frame_begins(struct tcp_link *link)
{
    link->begun_ns = link->is_drained ? link->read_ns : 0;
    if (framer_held(&link->framer) > 0) link->is_drained = !link->was_full;
}

/* Hand out whole frames until the node pauses, hangs up, or the bytes run out. */
static void link_deliver(struct tcp_link *link)
{
    struct uv_env *env = link->env;

    while (link->state == TCP_OPEN && !link->is_paused && !env->is_stopping) {
        uint8_t *frame;
        size_t count;
        enum rc rc = framer_next(&link->framer, &frame, &count);

        if (rc != RC_OK) {
            tcp_link_fail(link, rc,
                          rc == RC_LIMIT ? "sent a frame larger than allowed here"
                                         : "does not speak this protocol");
            return;
        }
        if (frame == NULL) break;
        env->events.on_frame(env->events.context, link->number, frame, count);
        if (!link->is_paused) frame_begins(link); /* what is left came with it */
    }
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buf);

static void on_read_room(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct tcp_link *link = handle->data;
    uint8_t *room = link->env->discard;
    size_t room_bytes = DISCARD_BYTES, most = uv_rate_may_read(link);

    (void)suggested;
    if (link->state == TCP_OPEN && most > 0 &&
        framer_room(&link->framer, &room, &room_bytes) != RC_OK) {
        most = 0;
    }
    /* Without any room libuv reports UV_ENOBUFS. */
    link->read_room = room_bytes;
    *buf = uv_buf_init((char *)room, (unsigned)(room_bytes < most ? room_bytes : most));
}

void tcp_link_read(struct tcp_link *link)
{
    bool is_wanted = link->state == TCP_LINGERING || (link->state == TCP_OPEN && !link->is_paused);

    if (link->has_ended || (link->state != TCP_OPEN && link->state != TCP_LINGERING)) return;
    if (!is_wanted || link->is_throttled) {
        (void)uv_read_stop((uv_stream_t *)&link->tcp);
    } else {
        int status = uv_read_start((uv_stream_t *)&link->tcp, on_read_room, on_read);

        CHECK(status == 0 || status == UV_EALREADY);
    }
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buf)
{
    struct tcp_link *link = stream->data;
    bool is_first;

    (void)buf;
    if (count == UV_ENOBUFS && link->is_throttled) {
        tcp_link_read(link);
        return;
    }
    if (count > 0) uv_rate_has_read(link, (size_t)count);
    if (count < 0) {
        if (link->state == TCP_OPEN) {
            tcp_link_fail_status(link, (int)count);
        } else if (link->state == TCP_LINGERING) {
            (void)uv_read_stop(stream);
            link->has_ended = true;
            if (link->is_shut || count != UV_EOF) tcp_link_close(link);
        }
        return;
    }
    if (link->state != TCP_OPEN) return;
    link->received_bytes += (uint64_t)count;
    link->read_ns = uv_hrtime();
    link->was_full = (size_t)count == link->read_room; /* of 0 bytes: the socket is empty */
    is_first = count > 0 && framer_held(&link->framer) == 0;
    framer_fill(&link->framer, (size_t)count);
    if (is_first) frame_begins(link);
    if (!link->was_full) link->is_drained = true;
    link_deliver(link);
}

static void link_mark_dirty(struct tcp_link *link)
{
    if (link->is_dirty) return;
    link->is_dirty = true;
    TAILQ_INSERT_TAIL(&link->env->dirty[link->is_bulk], link, dirty);
}

void tcp_link_opened(struct tcp_link *link)
{
    link->state = TCP_OPEN;
    (void)uv_timer_stop(&link->timer);
    if (!link->is_accepted) tcp_options_set(link->env, &link->tcp);
    if (link->is_bulk) tcp_options_bulk(&link->tcp);
    tcp_link_read(link);
    if (link->queue.count > 0) link_mark_dirty(link);
}

/* ---- writing ---- */

static void on_shutdown(uv_shutdown_t *request, int status)
{
    struct tcp_link *link = request->data;

    if (link->state != TCP_LINGERING) return;
    link->is_shut = true;
    if (status != 0 || link->has_ended) tcp_link_close(link);
}

static void link_flushed(struct tcp_link *link)
{
    if (link->state != TCP_LINGERING || link->queued_bytes > 0 || link->is_shutting) return;
    link->is_shutting = true;
    if (uv_shutdown(&link->shutdown, (uv_stream_t *)&link->tcp, on_shutdown) != 0) {
        tcp_link_close(link);
    }
}

/* All that was queued is with the system. */
static void link_trace(const struct tcp_link *link)
{
    const struct tracer *tracer = link->env->env.tracer;
    uint64_t bytes = link->sent_bytes - link->busy_from;

    if (tracer == NULL || bytes < TRACE_SEND_BYTES) return;
    trace_span(tracer, TRACE_LOOP, TRACE_LINKS + link->number,
               &(struct trace_span){.name = "send",
                                    .begin_ns = link->busy_ns,
                                    .end_ns = uv_hrtime(),
                                    .round = tracer->round,
                                    .partner = link->partner,
                                    .bytes = bytes});
}

static void on_written(uv_write_t *request, int status)
{
    struct tcp_link *link = request->data;
    struct tcp_write *write = &link->writes[request == &link->writes[0].request ? 0 : 1];
    struct uv_env *env = link->env;

    for (unsigned i = 0; i < write->frames_count; i++) {
        blob_unref(write->frames[i]);
    }
    write->frames_count = 0;
    CHECK(link->queued_bytes >= write->bytes);
    link->queued_bytes -= write->bytes;
    if (link->state != TCP_OPEN && link->state != TCP_LINGERING) return;
    if (status != 0) {
        tcp_link_fail_status(link, status);
        return;
    }
    link->sent_bytes += write->bytes;
    if (link->queued_bytes == 0) link_trace(link);
    if (link->queue.count > 0) link_mark_dirty(link);
    link_flushed(link);
    if (link->was_refused && link->state == TCP_OPEN && !env->is_stopping &&
        link->queued_bytes < LINK_QUEUE_BYTES_MAX / 2 && uv_rate_has_room(link, 1)) {
        link->was_refused = false;
        env->events.on_drain(env->events.context, link->number);
    }
}

/* Hand frames from the queue, or pieces of them, to one write of at most `most` bytes. */
static int write_start(struct tcp_link *link, struct tcp_write *write, size_t most)
{
    uv_buf_t bufs[LINK_WRITE_FRAMES_MAX];
    unsigned count = 0;
    int status;

    write->bytes = 0;
    while (link->queue.count > 0 && count < LINK_WRITE_FRAMES_MAX && write->bytes < most) {
        struct blob *frame = frame_queue_first(&link->queue);
        size_t part = frame->count - link->first_started, room = most - write->bytes;
        uint8_t *from = frame->bytes + link->first_started;

        if (part <= room) {
            (void)frame_queue_pop(&link->queue);
            link->first_started = 0;
        } else {
            part = room;
            (void)blob_ref(frame);
            link->first_started += part;
        }
        bufs[count] = uv_buf_init((char *)from, (unsigned)part);
        write->frames[count++] = frame;
        write->bytes += part;
    }
    CHECK(count > 0);
    write->frames_count = count;
    status = uv_write(&write->request, (uv_stream_t *)&link->tcp, bufs, count, on_written);
    if (status == 0) return 0;
    for (unsigned i = 0; i < count; i++) {
        blob_unref(write->frames[i]);
    }
    write->frames_count = 0;
    link->queued_bytes -= write->bytes;
    return status;
}

/* One write, if one of the two is free; the link's next turn comes after the others'. */
static void link_write(struct tcp_link *link, size_t most)
{
    struct tcp_write *write = link->writes;
    int status;

    while (write < link->writes + LINK_WRITES_MAX && write->frames_count > 0) {
        write++;
    }
    if (write == link->writes + LINK_WRITES_MAX) return; /* on_written() will come */
    if (most > LINK_WRITE_BYTES_MAX) most = LINK_WRITE_BYTES_MAX;
    status = write_start(link, write, most);
    rate_take(&link->env->send_rate, write->bytes);
    if (status != 0) {
        tcp_link_fail_status(link, status);
    } else {
        CHECK(link->tcp.write_queue_size <= LINK_WRITES_MAX * LINK_WRITE_BYTES_MAX);
        if (link->queue.count > 0) link_mark_dirty(link);
    }
}

void tcp_flush(struct uv_env *env)
{
    for (int bulk = 0; bulk < 2; bulk++) {
        struct tcp_link *link;

        while ((link = TAILQ_FIRST(&env->dirty[bulk])) != NULL) {
            size_t most = uv_rate_may_send(env, link);

            if (most == 0) break;
            TAILQ_REMOVE(&env->dirty[bulk], link, dirty);
            link->is_dirty = false;
            link_write(link, most);
        }
    }
}

enum rc uv_env_send(struct env *base, uint64_t number, struct blob *frame)
{
    struct tcp_link *link = tcp_link_find(uv_env_of(base), number);

    CHECK(frame != NULL && frame->count > 0);
    if (link == NULL || link->state == TCP_FAILED) return RC_CLOSED;
    if (frame->count > LINK_QUEUE_BYTES_MAX - link->queued_bytes ||
        !uv_rate_has_room(link, frame->count)) {
        link->was_refused = true;
        return RC_LIMIT;
    }
    if (frame_queue_push(&link->queue, frame) != RC_OK) return RC_NOMEM;
    (void)blob_ref(frame);
    if (link->env->env.tracer != NULL && link->queued_bytes == 0) {
        link->busy_ns = uv_hrtime();
        link->busy_from = link->sent_bytes;
    }
    link->queued_bytes += frame->count;
    if (link->state == TCP_OPEN) link_mark_dirty(link);
    return RC_OK;
}

/* ---- farewell ---- */

static void on_linger_over(uv_timer_t *timer)
{
    tcp_link_close(timer->data);
}

void tcp_link_hangup(struct tcp_link *link)
{
    struct uv_env *env = link->env;

    if (link->state != TCP_OPEN) {
        tcp_link_close(link);
        return;
    }
    if (env->lingering_count >= LINGERING_MAX) {
        struct tcp_link *oldest = TAILQ_FIRST(&env->leaving);

        while (oldest->state != TCP_LINGERING) {
            oldest = TAILQ_NEXT(oldest, entry);
        }
        tcp_link_close(oldest);
    }
    link_forget(link);
    link->state = TCP_LINGERING;
    env->lingering_count++;
    CHECK(uv_timer_start(&link->timer, on_linger_over, LINK_LINGER_MS, 0) == 0);
    tcp_link_read(link);
    link_flushed(link);
}

void uv_env_hangup(struct env *base, uint64_t number)
{
    struct tcp_link *link = tcp_link_find(uv_env_of(base), number);

    if (link != NULL) tcp_link_hangup(link);
}

/* ---- the rest of the link calls ---- */

void uv_env_set_frame_max(struct env *base, uint64_t number, size_t frame_max)
{
    struct tcp_link *link = tcp_link_find(uv_env_of(base), number);

    CHECK(frame_max >= PREFIX_BYTES);
    if (link != NULL) link->framer.frame_max = frame_max;
}

void uv_env_pause(struct env *base, uint64_t number, bool is_paused)
{
    struct tcp_link *link = tcp_link_find(uv_env_of(base), number);

    if (link == NULL || link->is_paused == is_paused) return;
    link->is_paused = is_paused;
    if (link->state != TCP_OPEN) return;
    if (is_paused) {
        link->begun_ns = 0;
        link->is_drained = false;
        link->was_full = true; /* as it may be by the time somebody reads again */
        tcp_link_read(link);
    } else {
        link->must_resume = true;
        uv_env_defer(link->env);
    }
}

void uv_env_set_bulk(struct env *base, uint64_t number)
{
    struct tcp_link *link = tcp_link_find(uv_env_of(base), number);

    if (link == NULL || link->is_bulk) return;
    if (link->is_dirty) TAILQ_REMOVE(&link->env->dirty[0], link, dirty);
    if (link->is_dirty) TAILQ_INSERT_TAIL(&link->env->dirty[1], link, dirty);
    link->is_bulk = true;
    if (link->state == TCP_OPEN) tcp_options_bulk(&link->tcp);
}

void uv_env_set_partner(struct env *base, uint64_t number, struct peer_id partner)
{
    struct tcp_link *link = tcp_link_find(uv_env_of(base), number);

    if (link == NULL || base->tracer == NULL) return;
    link->partner = trace_partner(partner);
    trace_link(base->tracer, number, link->partner);
}

bool uv_env_gains_by_more(struct env *base, uint64_t number)
{
    struct tcp_link *link = tcp_link_find(uv_env_of(base), number);
    uv_os_fd_t socket;

    if (link == NULL || !link->is_bulk || link->state != TCP_OPEN) return false;
    if (uv_fileno((uv_handle_t *)&link->tcp, &socket) != 0) return false;
    return tcp_path_fears_loss(socket) && tcp_path_round_trip_ns(socket) > LINK_LONG_NS;
}

struct blob *uv_env_frame_keep(struct env *base, uint64_t number)
{
    const struct tcp_link *link = tcp_link_find(uv_env_of(base), number);

    return link == NULL ? NULL : framer_keep(&link->framer);
}

bool uv_env_frame_spent_ns(struct env *base, uint64_t number, uint64_t *spent_ns)
{
    const struct tcp_link *link = tcp_link_find(uv_env_of(base), number);

    if (link == NULL || link->begun_ns == 0) return false;
    *spent_ns = link->read_ns - link->begun_ns;
    return true;
}

void uv_env_link_bytes(struct env *base, uint64_t number, uint64_t *sent, uint64_t *received)
{
    const struct tcp_link *link = tcp_link_find(uv_env_of(base), number);

    *sent = link == NULL ? 0 : link->sent_bytes;
    *received = link == NULL ? 0 : link->received_bytes;
}

/* Frames that were held while paused come before anything newly read. */
static void link_resume(struct tcp_link *link)
{
    link->must_resume = false;
    if (link->state != TCP_OPEN || link->is_paused) return;
    link_deliver(link);
    tcp_link_read(link);
}

void tcp_report_deferred(struct uv_env *env)
{
    for (unsigned i = 0; i < CONNECTIONS_MAX; i++) {
        struct tcp_link *link = env->slots[i];

        if (link == NULL) continue;
        if (link->must_resume) link_resume(link);
        if (link->state == TCP_FAILED) {
            uint64_t number = link->number;
            enum rc rc = link->lost_rc;
            const char *why = link->lost_why;

            tcp_link_close(link);
            if (!env->is_stopping) env->events.on_lost(env->events.context, number, rc, why);
        }
    }
}
