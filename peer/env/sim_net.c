/*
 * sim_net: simulated connections; the model is described in sim_world.h. Frames are shared by
 * reference all the way and copied only for a reader that is not their last holder.
 *
 * Faults. A cut loses what is under way, and both ends hear of it. A blocked direction delays
 * everything as retransmissions would; since acknowledgements are lost with it, data sent either
 * way is given up after 20 s and an idle connection after 25 s, as the real sockets are configured
 * to.
 */
#include "peer/env/sim_world.h"

#include "base/check.h"
#include "base/mem.h"
#include "gossip/wire/secure.h"
#include "peer/env/address.h"

#include <stdio.h>
#include <string.h>

enum { SLOT_BITS = 23, CONNS_CAPACITY_FIRST = 64 };

static struct sim_end *end_other(const struct sim_end *end)
{
    return &end->conn->ends[end == &end->conn->ends[0] ? 1 : 0];
}

static struct sim_host *end_host(struct sim_world *world, const struct sim_end *end)
{
    return world->hosts[end->host];
}

static struct sim_end *end_find(struct sim_world *world, uint64_t number)
{
    uint64_t slot = number >> 1 & ((UINT64_C(1) << SLOT_BITS) - 1);
    struct sim_conn *conn = slot < world->conns_capacity ? world->conns[slot] : NULL;

    if (conn == NULL || conn->serial != number >> (SLOT_BITS + 1)) return NULL;
    return &conn->ends[number & 1];
}

/* The end that the node of `env` may mean by `number`. */
static struct sim_end *end_named(struct env *env, uint64_t number)
{
    struct sim_end *end = end_find(sim_env_of(env)->world, number);

    if (!sim_env_of(env)->is_alive || end == NULL || end->host != sim_env_of(env)->host)
        return NULL;
    return end->state == SIM_OPEN || end->state == SIM_DIALLING ? end : NULL;
}

static bool is_blocked(const struct sim_world *world, uint32_t from, uint32_t to)
{
    size_t bit = (size_t)from * world->options.hosts_max + to;

    return world->blocked != NULL && (world->blocked[bit / 8] >> bit % 8 & 1) != 0;
}

static uint64_t draw_latency(struct sim_world *world, struct sim_host *from)
{
    uint64_t jitter = world->options.jitter_ns;

    return world->options.latency_ns + (jitter == 0 ? 0 : rng_below(&from->network, jitter + 1));
}

static void push_end(struct sim_world *world, uint64_t at_ns, enum sim_kind kind,
                     const struct sim_end *end, uint64_t number)
{
    sim_push(
        world, at_ns,
        (struct sim_event){.kind = kind, .host = end->host, .link = end->number, .number = number});
}

/* ---- life of a connection ---- */

static uint32_t slot_take(struct sim_world *world)
{
    if (world->free_slots_count == 0) {
        uint32_t before = world->conns_capacity;
        uint32_t after = before == 0 ? CONNS_CAPACITY_FIRST : before * 2;

        CHECK(after <= 1u << SLOT_BITS);
        world->conns = sim_grow(world->conns, after * sizeof(struct sim_conn *));
        world->free_slots = sim_grow(world->free_slots, after * sizeof *world->free_slots);
        for (uint32_t slot = after; slot-- > before;) {
            world->conns[slot] = NULL;
            world->free_slots[world->free_slots_count++] = slot;
        }
        world->conns_capacity = after;
    }
    return world->free_slots[--world->free_slots_count];
}

static struct sim_conn *conn_create(struct sim_world *world)
{
    struct sim_conn *conn = sim_grow(NULL, sizeof *conn);

    memset(conn, 0, sizeof *conn);
    conn->slot = slot_take(world);
    conn->serial = ++world->serial;
    world->conns[conn->slot] = conn;
    for (unsigned i = 0; i < 2; i++) {
        conn->ends[i].conn = conn;
        conn->ends[i].number = conn->serial << (SLOT_BITS + 1) | (uint64_t)conn->slot << 1 | i;
        framer_init(&conn->ends[i].framer, HANDSHAKE_BYTES_MAX);
    }
    return conn;
}

static void conn_destroy(struct sim_conn *conn)
{
    for (int i = 0; i < 2; i++) {
        frame_queue_deinit(&conn->ends[i].queue);
        frame_queue_deinit(&conn->ends[i].inbox);
        framer_deinit(&conn->ends[i].framer);
    }
    mem_free(conn);
}

void sim_net_bury(struct sim_world *world)
{
    struct sim_conn *conn;

    while ((conn = TAILQ_FIRST(&world->graves)) != NULL) {
        TAILQ_REMOVE(&world->graves, conn, grave);
        world->conns[conn->slot] = NULL;
        world->free_slots[world->free_slots_count++] = conn->slot;
        conn_destroy(conn);
    }
}

void sim_net_deinit(struct sim_world *world)
{
    sim_net_bury(world);
    for (uint32_t slot = 0; slot < world->conns_capacity; slot++) {
        if (world->conns[slot] != NULL) conn_destroy(world->conns[slot]);
    }
    mem_free(world->conns);
    mem_free(world->free_slots);
}

static void end_open(struct sim_world *world, struct sim_end *end, uint32_t host,
                     enum sim_end_state state)
{
    end->host = host;
    end->state = state;
    TAILQ_INSERT_TAIL(&world->hosts[host]->ends, end, entry);
    world->hosts[host]->ends_count++;
}

static bool is_over(const struct sim_end *end)
{
    return end->state == SIM_GONE || end->state == SIM_NONE;
}

static void end_gone(struct sim_world *world, struct sim_end *end)
{
    struct sim_conn *conn = end->conn;

    CHECK(!is_over(end));
    if (end->state != SIM_LINGERING) end_host(world, end)->ends_count--;
    TAILQ_REMOVE(&end_host(world, end)->ends, end, entry);
    end->state = SIM_GONE;
    if (is_over(end_other(end)) && !conn->is_buried) {
        conn->is_buried = true; /* freed after the step: someone may be standing on it */
        TAILQ_INSERT_TAIL(&world->graves, conn, grave);
    }
}

static const char *lost_text(enum rc rc)
{
    switch (rc) {
    case RC_REFUSED:
        return "connection refused";
    case RC_TIMEOUT:
        return "no answer";
    case RC_NOT_FOUND:
        return "host name not found";
    case RC_LIMIT:
        return "sent a frame larger than allowed here";
    case RC_NOMEM:
        return "memory is short";
    case RC_FORMAT:
        return "does not speak this protocol";
    default:
        return "connection reset by the other side";
    }
}

/* Not from inside a call: this tells the node. */
static void end_lost(struct sim_world *world, struct sim_end *end, enum rc rc, const char *why)
{
    struct sim_host *host = end_host(world, end);
    bool is_known = end->state == SIM_DIALLING ||
                    (end->state == SIM_OPEN && (end->was_told || !end->is_accepted));

    end_gone(world, end);
    if (is_known && sim_host_hears(host)) {
        host->events.on_lost(host->events.context, end->number, rc, why);
    }
}

/* The other end will see a reset. */
static void reset_other(struct sim_world *world, struct sim_end *end)
{
    struct sim_end *other = end_other(end);

    if (is_over(other) || end->conn->is_cut) return;
    push_end(world, world->now_ns + draw_latency(world, end_host(world, end)), SIM_LOST, other,
             RC_CLOSED);
}

/* ---- sending ---- */

static void end_finish(struct sim_world *world, struct sim_end *end);

static uint64_t arrival_ns(struct sim_world *world, struct sim_end *end)
{
    uint64_t at_ns = world->now_ns + draw_latency(world, end_host(world, end));

    if (at_ns < end->last_arrival_ns) at_ns = end->last_arrival_ns;
    end->last_arrival_ns = at_ns;
    return at_ns;
}

/* Start the next frame on its way, if the other side's window has room. */
static void end_pump(struct sim_world *world, struct sim_end *end)
{
    struct sim_end *other = end_other(end);
    uint64_t cost_ns = 0;
    size_t count;

    if (end->is_sending || end->queue.count == 0 || end->conn->is_cut) return;
    if (end->state != SIM_OPEN && end->state != SIM_LINGERING) return;
    count = frame_queue_first(&end->queue)->count;
    if (other->unread_bytes > 0 && other->unread_bytes + count > SIM_WINDOW_BYTES) return;
    if (world->options.bytes_per_s > 0) {
        cost_ns = (uint64_t)((double)count * (double)NS_PER_S / (double)world->options.bytes_per_s);
    }
    end->is_sending = true;
    other->unread_bytes += count;
    push_end(world, world->now_ns + cost_ns, SIM_SENT, end, 0);
}

static void on_sent(struct sim_world *world, struct sim_end *end)
{
    struct blob *frame;

    if (is_over(end) || end->conn->is_cut) return;
    frame = frame_queue_pop(&end->queue);
    end->is_sending = false;
    end->queued_bytes -= frame->count;
    end->sent_bytes += frame->count;
    sim_push(world, arrival_ns(world, end),
             (struct sim_event){.kind = SIM_ARRIVED,
                                .host = end_other(end)->host,
                                .link = end_other(end)->number,
                                .frame = frame});
    end_pump(world, end);
    if (end->state == SIM_LINGERING) {
        if (end->queue.count == 0) end_finish(world, end);
    } else if (end->was_refused && end->queued_bytes < LINK_QUEUE_BYTES_MAX / 2) {
        end->was_refused = false;
        push_end(world, world->now_ns, SIM_DRAIN, end, 0);
    }
}

/* All is sent: the end of the stream follows. */
static void end_finish(struct sim_world *world, struct sim_end *end)
{
    struct sim_end *other = end_other(end);

    if (!is_over(other) && !end->conn->is_cut) {
        sim_push(
            world, arrival_ns(world, end),
            (struct sim_event){.kind = SIM_ARRIVED, .host = other->host, .link = other->number});
    }
    end_gone(world, end);
}

static void end_hangup(struct sim_world *world, struct sim_end *end)
{
    if (end->state == SIM_DIALLING || end->conn->is_cut) {
        end_finish(world, end);
        return;
    }
    end->state = SIM_LINGERING;
    end_host(world, end)->ends_count--;
    while (end->inbox.count > 0) {
        struct blob *unread = frame_queue_pop(&end->inbox);

        if (unread != NULL) end->unread_bytes -= unread->count;
        blob_unref(unread);
    }
    end_pump(world, end_other(end));
    if (end->queue.count == 0) {
        end_finish(world, end);
    } else {
        push_end(world, world->now_ns + SIM_LINGER_NS, SIM_LATE, end, 0);
    }
}

/* ---- receiving ---- */

static bool may_read(const struct sim_world *world, const struct sim_end *end)
{
    return end->state == SIM_OPEN && !end->is_paused &&
           !is_blocked(world, end_other(end)->host, end->host);
}

static void tell_frame(struct sim_world *world, struct sim_end *end, uint8_t *bytes, size_t count)
{
    struct sim_host *host = end_host(world, end);
    struct sim_event event = {.kind = SIM_ARRIVED, .host = end->host, .link = end->number};

    if (!sim_host_hears(host)) return;
    sim_note(world, &event, bytes, count);
    host->events.on_frame(host->events.context, end->number, bytes, count);
}

static void end_broke_rules(struct sim_world *world, struct sim_end *end, enum rc rc)
{
    reset_other(world, end);
    end_lost(world, end, rc, lost_text(rc));
}

/* Frames held by the framer, until the node pauses or hangs up. */
static void framer_read(struct sim_world *world, struct sim_end *end)
{
    while (may_read(world, end)) {
        uint8_t *frame;
        size_t count;
        enum rc rc = framer_next(&end->framer, &frame, &count);

        if (rc != RC_OK) {
            end_broke_rules(world, end, rc);
            return;
        }
        if (frame == NULL) return;
        tell_frame(world, end, frame, count);
    }
}

/* Paused in the middle: the rest is unread again. */
static void stream_put_back(struct sim_end *end, const uint8_t *bytes, size_t count)
{
    struct blob *rest = blob_copy(bytes, count);

    if (rest == NULL) rest = blob_copy(bytes, count); /* see sim_grow() */
    CHECK(rest != NULL);
    end->unread_bytes += count;
    end->received_bytes -= count;
    if (frame_queue_push_first(&end->inbox, rest) != RC_OK) {
        CHECK(frame_queue_push_first(&end->inbox, rest) == RC_OK);
    }
}

/* Bytes that are not one whole frame go through the framer, as all bytes do on a real socket. */
static void stream_read(struct sim_world *world, struct sim_end *end, const struct blob *blob)
{
    size_t done = 0;

    while (done < blob->count && end->state == SIM_OPEN) {
        uint8_t *room;
        size_t room_bytes, part = blob->count - done;

        if (framer_room(&end->framer, &room, &room_bytes) != RC_OK) {
            end_broke_rules(world, end, RC_NOMEM);
            return;
        }
        if (part > room_bytes) part = room_bytes;
        memcpy(room, blob->bytes + done, part);
        framer_fill(&end->framer, part);
        done += part;
        framer_read(world, end);
        if (end->state == SIM_OPEN && !may_read(world, end) && done < blob->count) {
            stream_put_back(end, blob->bytes + done, blob->count - done);
            return;
        }
    }
}

static uint8_t *scratch_copy(struct sim_world *world, const struct blob *blob)
{
    if (world->scratch_bytes < blob->count) {
        world->scratch_bytes = blob->count * 2;
        world->scratch = sim_grow(world->scratch, world->scratch_bytes);
    }
    memcpy(world->scratch, blob->bytes, blob->count);
    return world->scratch;
}

/* Takes the reference. */
static void end_read(struct sim_world *world, struct sim_end *end, struct blob *blob)
{
    size_t whole = 0;

    if (blob == NULL) {
        end_lost(world, end, RC_CLOSED, "closed by the other side");
        return;
    }
    CHECK(end->unread_bytes >= blob->count);
    end->unread_bytes -= blob->count;
    end->received_bytes += blob->count;
    end_pump(world, end_other(end));
    if (framer_held(&end->framer) == 0 && blob->count >= PREFIX_BYTES &&
        frame_bytes(blob->bytes, end->framer.frame_max, &whole) == RC_OK && whole == blob->count) {
        /* The node may write into the frame: into the blob itself only if nobody else holds it. */
        tell_frame(world, end, blob->references == 1 ? blob->bytes : scratch_copy(world, blob),
                   blob->count);
    } else {
        stream_read(world, end, blob);
    }
    blob_unref(blob);
}

static void on_arrived(struct sim_world *world, struct sim_end *end, struct blob *blob)
{
    if (end->conn->is_cut || end->state != SIM_OPEN) {
        if (blob != NULL && !end->conn->is_cut) {
            end->unread_bytes -= blob->count; /* read and thrown away */
            end_pump(world, end_other(end));
        }
        if (blob == NULL && end->state == SIM_LINGERING && end->queue.count == 0) {
            end_gone(world, end);
        }
        blob_unref(blob);
    } else if (end->inbox.count > 0 || !may_read(world, end)) {
        if (frame_queue_push(&end->inbox, blob) != RC_OK) {
            CHECK(frame_queue_push(&end->inbox, blob) == RC_OK); /* see sim_grow() */
        }
    } else {
        end_read(world, end, blob);
    }
}

static void on_resume(struct sim_world *world, struct sim_end *end)
{
    if (end->state == SIM_OPEN) framer_read(world, end);
    while (end->inbox.count > 0 && may_read(world, end)) {
        end_read(world, end, frame_queue_pop(&end->inbox));
    }
}

/* ---- dialling ---- */

/* As on the real listener: the stranger that has waited longest makes room. */
static bool make_room(struct sim_world *world, struct sim_host *host)
{
    struct sim_end *end;

    if (host->ends_count < LINKS_MAX) return true;
    TAILQ_FOREACH (end, &host->ends, entry) {
        if (end->is_accepted && end->state == SIM_OPEN &&
            end->framer.frame_max == HANDSHAKE_BYTES_MAX) {
            reset_other(world, end);
            end_lost(world, end, RC_LIMIT, "too many connections");
            break;
        }
    }
    return host->ends_count < LINKS_MAX;
}

static void on_syn(struct sim_world *world, struct sim_event *event)
{
    struct sim_end *dialler = end_find(world, event->link);
    struct sim_host *host = world->hosts[event->host];
    struct sim_end *end;
    uint64_t back_ns;

    if (dialler == NULL || dialler->state != SIM_DIALLING || dialler->conn->is_cut) return;
    if (is_blocked(world, dialler->host, event->host) ||
        is_blocked(world, event->host, dialler->host)) {
        return; /* the dialler's deadline will tell */
    }
    back_ns = world->now_ns + draw_latency(world, host);
    if (!sim_host_hears(host) || !host->is_listening) {
        push_end(world, back_ns, SIM_LOST, dialler, RC_REFUSED);
        return;
    }
    if (!make_room(world, host)) {
        push_end(world, back_ns, SIM_LOST, dialler, RC_CLOSED);
        return;
    }
    end = end_other(dialler);
    end_open(world, end, event->host, SIM_OPEN);
    end->is_accepted = true;
    end->last_arrival_ns = back_ns;
    push_end(world, world->now_ns, SIM_ACCEPTED, end, 0);
    push_end(world, back_ns, SIM_CONNECTED, dialler, 0);
}

static void on_accepted(struct sim_world *world, struct sim_event *event, struct sim_end *end)
{
    struct sim_host *host = end_host(world, end);
    char remote[ADDRESS_BYTES_MAX];

    if (end->state != SIM_OPEN || !sim_host_hears(host)) return;
    end->was_told = true;
    sim_note(world, event, NULL, 0);
    (void)snprintf(remote, sizeof remote, "sim:%u", end_other(end)->host);
    host->events.on_accepted(host->events.context, end->number, remote);
}

static void on_connected(struct sim_world *world, struct sim_event *event, struct sim_end *end)
{
    struct sim_host *host = end_host(world, end);

    if (end->state != SIM_DIALLING || end->conn->is_cut) return;
    end->state = SIM_OPEN;
    end_pump(world, end);
    if (!sim_host_hears(host)) return;
    sim_note(world, event, NULL, 0);
    host->events.on_connected(host->events.context, end->number);
}

enum rc sim_env_dial(struct env *env, const char *text, uint64_t *number)
{
    struct sim_world *world = sim_env_of(env)->world;
    struct sim_host *host = sim_env_host(env);
    struct address address;
    struct sim_conn *conn;
    bool is_sim;

    CHECK(text != NULL && number != NULL);
    if (!sim_env_of(env)->is_alive || sim_env_of(env)->is_stopped) return RC_CLOSED;
    if (address_parse(text, &address) != RC_OK) return RC_PARSE;
    is_sim = strcmp(address.host, "sim") == 0;
    if (!is_sim && address.port == 0) return RC_PARSE;
    if (host->ends_count >= LINKS_MAX) return RC_LIMIT;
    conn = conn_create(world);
    end_open(world, &conn->ends[0], host->number, SIM_DIALLING);
    if (is_sim && address.port < world->hosts_count) {
        conn->ends[1].host = address.port;
        sim_push(world, world->now_ns + draw_latency(world, host),
                 (struct sim_event){
                     .kind = SIM_SYN, .host = address.port, .link = conn->ends[0].number});
        push_end(world, world->now_ns + SIM_DIAL_NS, SIM_LATE, &conn->ends[0], 0);
    } else {
        conn->ends[1].host = host->number;
        push_end(world, world->now_ns, SIM_LOST, &conn->ends[0], RC_NOT_FOUND);
    }
    *number = conn->ends[0].number;
    return RC_OK;
}

/* ---- trouble ---- */

static void on_lost(struct sim_world *world, struct sim_event *event, struct sim_end *end)
{
    enum rc rc = (enum rc)event->number;

    if (is_over(end)) return;
    /* A reset cannot cross a blocked way; the stall will end this one. */
    if (rc == RC_CLOSED && !end->conn->is_cut &&
        is_blocked(world, end_other(end)->host, end->host)) {
        return;
    }
    sim_note(world, event, NULL, 0);
    end_lost(world, end, rc, lost_text(rc));
}

static void on_late(struct sim_world *world, struct sim_event *event, struct sim_end *end)
{
    if (end->state == SIM_DIALLING) {
        sim_note(world, event, NULL, 0);
        if (end_other(end)->state == SIM_OPEN) reset_other(world, end);
        end_lost(world, end, RC_TIMEOUT, lost_text(RC_TIMEOUT));
    } else if (end->state == SIM_LINGERING) {
        frame_queue_clear(&end->queue);
        end_finish(world, end);
    }
}

static void on_stall(struct sim_world *world, struct sim_event *event, struct sim_end *end)
{
    uint64_t generation = event->number >> 1;
    bool is_idle_too_long = (event->number & 1) != 0;

    if (is_over(end) || generation != end->conn->stall) return;
    if (is_idle_too_long || end->sent_bytes != end->sent_at_stall_bytes ||
        end_other(end)->unread_bytes > 0) {
        sim_note(world, event, NULL, 0);
        end_lost(world, end, RC_TIMEOUT, lost_text(RC_TIMEOUT));
        return;
    }
    push_end(world, world->now_ns + SIM_KEEPALIVE_NS - SIM_UNANSWERED_NS, SIM_STALL, end,
             event->number | 1);
}

/* A connection's way in one direction was blocked or freed. */
static void conn_stall(struct sim_world *world, struct sim_conn *conn, bool is_stalled)
{
    conn->stall++;
    for (int i = 0; i < 2; i++) {
        struct sim_end *end = &conn->ends[i];

        if (is_over(end)) continue;
        if (is_stalled) {
            end->sent_at_stall_bytes = end->sent_bytes;
            push_end(world, world->now_ns + SIM_UNANSWERED_NS, SIM_STALL, end, conn->stall << 1);
        } else {
            push_end(world, world->now_ns, SIM_RESUME, end, 0);
            /* A retransmission now meets a host that does not know this connection any more. */
            if (end_other(end)->state == SIM_GONE) reset_other(world, end_other(end));
        }
    }
}

void sim_block(struct sim_world *world, uint32_t from, uint32_t to, bool blocks)
{
    size_t bit = (size_t)from * world->options.hosts_max + to;
    size_t bytes = ((size_t)world->options.hosts_max * world->options.hosts_max + 7) / 8;
    struct sim_end *end;
    bool is_stalled;

    CHECK(from < world->hosts_count && to < world->hosts_count);
    if (is_blocked(world, from, to) == blocks) return;
    if (world->blocked == NULL) {
        world->blocked = sim_grow(NULL, bytes);
        memset(world->blocked, 0, bytes);
    }
    world->blocked[bit / 8] = (uint8_t)(world->blocked[bit / 8] ^ 1u << bit % 8);
    is_stalled = blocks || is_blocked(world, to, from);
    TAILQ_FOREACH (end, &world->hosts[from]->ends, entry) {
        if (end_other(end)->host == to) conn_stall(world, end->conn, is_stalled);
    }
    TAILQ_FOREACH (end, &world->hosts[to]->ends, entry) {
        if (end_other(end)->host == from && is_over(end_other(end))) {
            conn_stall(world, end->conn, is_stalled);
        }
    }
}

void sim_cut(struct sim_world *world, uint32_t a, uint32_t b)
{
    struct sim_end *end;

    CHECK(a < world->hosts_count && b < world->hosts_count);
    TAILQ_FOREACH (end, &world->hosts[a]->ends, entry) {
        struct sim_end *other = end_other(end);

        if (other->host != b || end->conn->is_cut) continue;
        end->conn->is_cut = true;
        push_end(world, world->now_ns, SIM_LOST, end, RC_CLOSED);
        if (!is_over(other)) push_end(world, world->now_ns, SIM_LOST, other, RC_CLOSED);
    }
}

void sim_net_host_off(struct sim_world *world, struct sim_host *host)
{
    struct sim_end *end;

    while ((end = TAILQ_FIRST(&host->ends)) != NULL) {
        reset_other(world, end);
        end_gone(world, end);
    }
}

void sim_net_stop(struct sim_world *world, struct sim_host *host)
{
    struct sim_end *end, *next;

    for (end = TAILQ_FIRST(&host->ends); end != NULL; end = next) {
        next = TAILQ_NEXT(end, entry);
        if (end->state != SIM_LINGERING) end_hangup(world, end);
    }
}

void sim_net_on_event(struct sim_world *world, struct sim_event *event)
{
    struct sim_end *end = end_find(world, event->link);
    struct sim_host *host = world->hosts[event->host];

    if (event->kind == SIM_SYN) {
        on_syn(world, event);
        return;
    }
    if (end == NULL) { /* gone on both sides */
        if (event->kind == SIM_ARRIVED) blob_unref(event->frame);
        return;
    }
    switch (event->kind) {
    case SIM_ACCEPTED:
        on_accepted(world, event, end);
        break;
    case SIM_CONNECTED:
        on_connected(world, event, end);
        break;
    case SIM_SENT:
        on_sent(world, end);
        break;
    case SIM_DRAIN:
        if (end->state != SIM_OPEN || !sim_host_hears(host)) return;
        sim_note(world, event, NULL, 0);
        host->events.on_drain(host->events.context, end->number);
        break;
    case SIM_ARRIVED:
        on_arrived(world, end, event->frame);
        break;
    case SIM_RESUME:
        on_resume(world, end);
        break;
    case SIM_LOST:
        on_lost(world, event, end);
        break;
    case SIM_LATE:
        on_late(world, event, end);
        break;
    case SIM_STALL:
        on_stall(world, event, end);
        break;
    default:
        CHECK(false);
    }
}

/* ---- the node's calls ---- */

enum rc sim_env_send(struct env *env, uint64_t number, struct blob *frame)
{
    struct sim_end *end = end_named(env, number);

    CHECK(frame != NULL && frame->count > 0);
    if (end == NULL) return RC_CLOSED;
    if (end->conn->is_cut) return RC_OK; /* nobody knows yet, and nothing will arrive */
    if (frame->count > LINK_QUEUE_BYTES_MAX - end->queued_bytes) {
        end->was_refused = true;
        return RC_LIMIT;
    }
    if (frame_queue_push(&end->queue, frame) != RC_OK) return RC_NOMEM;
    (void)blob_ref(frame);
    end->queued_bytes += frame->count;
    end_pump(sim_env_of(env)->world, end);
    return RC_OK;
}

void sim_env_hangup(struct env *env, uint64_t number)
{
    struct sim_end *end = end_named(env, number);

    if (end != NULL) end_hangup(sim_env_of(env)->world, end);
}

void sim_env_set_frame_max(struct env *env, uint64_t number, size_t frame_max)
{
    struct sim_end *end = end_named(env, number);

    CHECK(frame_max >= PREFIX_BYTES);
    if (end != NULL) end->framer.frame_max = frame_max;
}

void sim_env_pause(struct env *env, uint64_t number, bool is_paused)
{
    struct sim_end *end = end_named(env, number);

    if (end == NULL || end->is_paused == is_paused) return;
    end->is_paused = is_paused;
    if (!is_paused)
        push_end(sim_env_of(env)->world, sim_now_ns(sim_env_of(env)->world), SIM_RESUME, end, 0);
}

void sim_env_link_bytes(struct env *env, uint64_t number, uint64_t *sent, uint64_t *received)
{
    const struct sim_end *end = end_named(env, number);

    *sent = end == NULL ? 0 : end->sent_bytes;
    *received = end == NULL ? 0 : end->received_bytes;
}
