/*
 * sim_net: how simulated connections come about and break. What flows over them is stream.c.
 *
 * Who breaks them on purpose is fault.c.
 */
#include "peer/env/sim/world.h"

#include "base/check.h"
#include "base/mem.h"
#include "gossip/wire/address.h"

#include <stdio.h>
#include <string.h>

enum { SLOT_BITS = 23, CONNS_CAPACITY_FIRST = 64 };

struct sim_end *sim_end_find(struct sim_world *world, uint64_t number)
{
    uint64_t slot = number >> 1 & ((UINT64_C(1) << SLOT_BITS) - 1);
    struct sim_conn *conn = slot < world->conns_capacity ? world->conns[slot] : NULL;

    if (conn == NULL || conn->serial != number >> (SLOT_BITS + 1)) return NULL;
    return &conn->ends[number & 1];
}

void sim_push_end(struct sim_world *world, uint64_t at_ns, enum sim_kind kind,
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
    if (world->hosts[host]->ends_count > world->counts.connections_max) {
        world->counts.connections_max = world->hosts[host]->ends_count;
    }
}

void sim_end_gone(struct sim_world *world, struct sim_end *end)
{
    struct sim_conn *conn = end->conn;

    CHECK(!sim_end_is_over(end));
    if (end->state != SIM_LINGERING) sim_end_host(world, end)->ends_count--;
    TAILQ_REMOVE(&sim_end_host(world, end)->ends, end, entry);
    end->state = SIM_GONE;
    if (sim_end_is_over(sim_end_other(end)) && !conn->is_buried) {
        conn->is_buried = true; /* freed after the step: someone may be standing on it */
        TAILQ_INSERT_TAIL(&world->graves, conn, grave);
    }
}

const char *sim_lost_text(enum rc rc)
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
        return "out of memory";
    case RC_FORMAT:
        return "does not speak this protocol";
    default:
        return "connection reset by the other side";
    }
}

/* Not from inside a call: this tells the node. */
void sim_end_lost(struct sim_world *world, struct sim_end *end, enum rc rc, const char *why)
{
    struct sim_host *host = sim_end_host(world, end);
    bool is_known = end->state == SIM_DIALLING ||
                    (end->state == SIM_OPEN && (end->was_told || !end->is_accepted));

    sim_end_gone(world, end);
    if (is_known && sim_host_hears(host)) {
        host->events.on_lost(host->events.context, end->number, rc, why);
    }
}

/* The other end will see a reset. */
void sim_reset_other(struct sim_world *world, struct sim_end *end)
{
    struct sim_end *other = sim_end_other(end);

    if (sim_end_is_over(other) || end->conn->is_cut) return;
    sim_push_end(world,
                 world->now_ns + sim_draw_latency(world, sim_end_host(world, end), other->host),
                 SIM_LOST, other, RC_CLOSED);
}

/* ---- dialling ---- */

/* As on the real listener: the stranger that has waited longest makes room. */
static bool make_room(struct sim_world *world, struct sim_host *host)
{
    struct sim_end *end;

    if (host->ends_count < CONNECTIONS_MAX) return true;
    TAILQ_FOREACH (end, &host->ends, entry) {
        if (end->is_accepted && end->state == SIM_OPEN &&
            end->framer.frame_max == HANDSHAKE_BYTES_MAX) {
            sim_reset_other(world, end);
            sim_end_lost(world, end, RC_LIMIT, "too many connections");
            break;
        }
    }
    return host->ends_count < CONNECTIONS_MAX;
}

static void on_syn(struct sim_world *world, struct sim_event *event)
{
    struct sim_end *dialler = sim_end_find(world, event->link);
    struct sim_host *host = world->hosts[event->host];
    struct sim_end *end;
    uint64_t back_ns;

    if (dialler == NULL || dialler->state != SIM_DIALLING) return;
    if (dialler->conn->is_cut || dialler->conn->is_dark) return;
    if (sim_is_blocked(world, dialler->host, event->host) ||
        sim_is_blocked(world, event->host, dialler->host)) {
        return; /* the dialler's deadline will tell */
    }
    if (host->faults.refuses_inbound) return; /* as most firewalls do it: without a word */
    back_ns = world->now_ns + sim_draw_latency(world, host, dialler->host);
    if (!sim_host_hears(host) || !host->is_listening) {
        sim_push_end(world, back_ns, SIM_LOST, dialler, RC_REFUSED);
        return;
    }
    if (!make_room(world, host)) {
        sim_push_end(world, back_ns, SIM_LOST, dialler, RC_CLOSED);
        return;
    }
    end = sim_end_other(dialler);
    end_open(world, end, event->host, SIM_OPEN);
    end->is_accepted = true;
    end->last_arrival_ns = back_ns;
    sim_push_end(world, world->now_ns, SIM_ACCEPTED, end, 0);
    sim_push_end(world, back_ns, SIM_CONNECTED, dialler, 0);
}

static void on_accepted(struct sim_world *world, struct sim_event *event, struct sim_end *end)
{
    struct sim_host *host = sim_end_host(world, end);
    char remote[ADDRESS_BYTES_MAX];

    if (end->state != SIM_OPEN || !sim_host_hears(host)) return;
    end->was_told = true;
    sim_note(world, event, NULL, 0);
    (void)snprintf(remote, sizeof remote, "sim:%u", sim_end_other(end)->host);
    host->events.on_accepted(host->events.context, end->number, remote);
}

static void on_connected(struct sim_world *world, struct sim_event *event, struct sim_end *end)
{
    struct sim_host *host = sim_end_host(world, end);

    if (end->state != SIM_DIALLING || end->conn->is_cut || end->conn->is_dark) return;
    end->state = SIM_OPEN;
    sim_end_pump(world, end);
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
    if (host->ends_count >= CONNECTIONS_MAX) return RC_LIMIT;
    conn = conn_create(world);
    end_open(world, &conn->ends[0], host->number, SIM_DIALLING);
    if (is_sim && address.port < world->hosts_count) {
        conn->ends[1].host = address.port;
        sim_push(world,
                 world->now_ns + sim_draw_latency(world, host, address.port) +
                     sim_draw_loss(world, host, address.port, 1),
                 (struct sim_event){
                     .kind = SIM_SYN, .host = address.port, .link = conn->ends[0].number});
        sim_push_end(world, world->now_ns + SIM_DIAL_NS, SIM_LATE, &conn->ends[0], 0);
    } else {
        conn->ends[1].host = host->number;
        sim_push_end(world, world->now_ns, SIM_LOST, &conn->ends[0], RC_NOT_FOUND);
    }
    *number = conn->ends[0].number;
    return RC_OK;
}

/* ---- trouble ---- */

static void on_lost(struct sim_world *world, struct sim_event *event, struct sim_end *end)
{
    enum rc rc = (enum rc)event->number;

    if (sim_end_is_over(end)) return;
    /* A reset cannot cross a blocked way; the stall will end this one. */
    if (rc == RC_CLOSED && !end->conn->is_cut &&
        (end->conn->is_dark || sim_is_blocked(world, sim_end_other(end)->host, end->host))) {
        return;
    }
    sim_note(world, event, NULL, 0);
    sim_end_lost(world, end, rc, sim_lost_text(rc));
}

static void on_late(struct sim_world *world, struct sim_event *event, struct sim_end *end)
{
    if (end->state == SIM_DIALLING) {
        sim_note(world, event, NULL, 0);
        if (sim_end_other(end)->state == SIM_OPEN) sim_reset_other(world, end);
        sim_end_lost(world, end, RC_TIMEOUT, sim_lost_text(RC_TIMEOUT));
    } else if (end->state == SIM_LINGERING) {
        frame_queue_clear(&end->queue);
        sim_end_finish(world, end);
    }
}

static void on_stall(struct sim_world *world, struct sim_event *event, struct sim_end *end)
{
    uint64_t generation = event->number >> 1;
    bool is_idle_too_long = (event->number & 1) != 0;

    if (sim_end_is_over(end) || generation != end->conn->stall) return;
    if (is_idle_too_long || end->sent_bytes != end->sent_at_stall_bytes ||
        sim_end_other(end)->unread_bytes > 0) {
        sim_note(world, event, NULL, 0);
        sim_end_lost(world, end, RC_TIMEOUT, sim_lost_text(RC_TIMEOUT));
        return;
    }
    sim_push_end(world, world->now_ns + SIM_KEEPALIVE_NS - SIM_UNANSWERED_NS, SIM_STALL, end,
                 event->number | 1);
}

void sim_net_host_off(struct sim_world *world, struct sim_host *host)
{
    struct sim_end *end;

    while ((end = TAILQ_FIRST(&host->ends)) != NULL) {
        sim_reset_other(world, end);
        sim_end_gone(world, end);
    }
}

void sim_net_stop(struct sim_world *world, struct sim_host *host)
{
    struct sim_end *end, *next;

    for (end = TAILQ_FIRST(&host->ends); end != NULL; end = next) {
        next = TAILQ_NEXT(end, entry);
        if (end->state != SIM_LINGERING) sim_end_hangup(world, end);
    }
}

void sim_net_on_event(struct sim_world *world, struct sim_event *event)
{
    struct sim_end *end = sim_end_find(world, event->link);
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
        sim_on_sent(world, end);
        break;
    case SIM_DRAIN:
        if (end->state != SIM_OPEN || !sim_host_hears(host)) return;
        sim_note(world, event, NULL, 0);
        host->events.on_drain(host->events.context, end->number);
        break;
    case SIM_ARRIVED:
        sim_on_arrived(world, end, event);
        break;
    case SIM_RESUME:
        sim_on_resume(world, end);
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
