/*
 * sim_fault: connections and ways that break because a test wants them to.
 *
 * A cut loses what is under way, and both ends hear of it. A blocked direction delays everything as
 * retransmissions would; since acknowledgements are lost with it, data sent either way is given up
 * after 20 s and an idle connection after 25 s, as the real sockets are configured to. A dark
 * connection is one that is blocked both ways and never freed.
 */
#include "peer/env/sim/world.h"

#include "base/check.h"

#include <string.h>

bool sim_is_blocked(const struct sim_world *world, uint32_t from, uint32_t to)
{
    size_t bit = (size_t)from * world->options.hosts_max + to;

    return world->blocked != NULL && (world->blocked[bit / 8] >> bit % 8 & 1) != 0;
}

/* A connection's way in one direction was blocked or freed. */
static void sim_conn_stall(struct sim_world *world, struct sim_conn *conn, bool is_stalled)
{
    if (conn->is_dark) return; /* for good, since then */
    conn->stall++;
    for (int i = 0; i < 2; i++) {
        struct sim_end *end = &conn->ends[i];

        if (sim_end_is_over(end)) continue;
        if (is_stalled) {
            end->sent_at_stall_bytes = end->sent_bytes;
            sim_push_end(world, world->now_ns + SIM_UNANSWERED_NS, SIM_STALL, end,
                         conn->stall << 1);
        } else {
            sim_push_end(world, world->now_ns, SIM_RESUME, end, 0);
            /* A retransmission now meets a host that does not know this connection any more. */
            if (sim_end_other(end)->state == SIM_GONE) sim_reset_other(world, sim_end_other(end));
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
    if (sim_is_blocked(world, from, to) == blocks) return;
    if (world->blocked == NULL) {
        world->blocked = sim_grow(NULL, bytes);
        memset(world->blocked, 0, bytes);
    }
    world->blocked[bit / 8] = (uint8_t)(world->blocked[bit / 8] ^ 1u << bit % 8);
    is_stalled = blocks || sim_is_blocked(world, to, from);
    TAILQ_FOREACH (end, &world->hosts[from]->ends, entry) {
        if (sim_end_other(end)->host == to) sim_conn_stall(world, end->conn, is_stalled);
    }
    TAILQ_FOREACH (end, &world->hosts[to]->ends, entry) {
        if (sim_end_other(end)->host == from && sim_end_is_over(sim_end_other(end))) {
            sim_conn_stall(world, end->conn, is_stalled);
        }
    }
}

void sim_cut(struct sim_world *world, uint32_t a, uint32_t b)
{
    struct sim_end *end;

    CHECK(a < world->hosts_count && b < world->hosts_count);
    TAILQ_FOREACH (end, &world->hosts[a]->ends, entry) {
        struct sim_end *other = sim_end_other(end);

        if (other->host != b || end->conn->is_cut) continue;
        end->conn->is_cut = true;
        sim_push_end(world, world->now_ns, SIM_LOST, end, RC_CLOSED);
        if (!sim_end_is_over(other)) sim_push_end(world, world->now_ns, SIM_LOST, other, RC_CLOSED);
    }
}

/* The frame on its way out has left, for the tear to take its part of. */
static void flush_sending(struct sim_world *world, struct sim_end *end)
{
    if (!sim_end_is_over(end) && end->is_sending) sim_on_sent(world, end);
}

static void conn_tear(struct sim_world *world, struct sim_conn *conn, uint64_t notice_ns)
{
    struct rng *rng = &sim_end_host(world, &conn->ends[0])->network;

    for (int i = 0; i < 2; i++) {
        flush_sending(world, &conn->ends[i]);
    }
    conn->is_cut = true;
    for (int i = 0; i < 2; i++) {
        struct sim_end *end = &conn->ends[i];

        if (sim_end_is_over(end)) continue;
        end->torn_bytes = (size_t)rng_below(rng, end->unread_bytes + 1);
        sim_push_end(world, world->now_ns + rng_below(rng, notice_ns + 1), SIM_LOST, end,
                     RC_CLOSED);
    }
}

void sim_cut_torn(struct sim_world *world, uint32_t a, uint32_t b, uint64_t notice_ns)
{
    struct sim_end *end, *next;

    CHECK(a < world->hosts_count && b < world->hosts_count);
    for (end = TAILQ_FIRST(&world->hosts[a]->ends); end != NULL; end = next) {
        next = TAILQ_NEXT(end, entry); /* flushing may end a farewell */
        if (sim_end_other(end)->host == b && !end->conn->is_cut) {
            conn_tear(world, end->conn, notice_ns);
        }
    }
}

void sim_darken(struct sim_world *world, uint32_t a, uint32_t b)
{
    struct sim_end *end;

    CHECK(a < world->hosts_count && b < world->hosts_count);
    TAILQ_FOREACH (end, &world->hosts[a]->ends, entry) {
        if (sim_end_other(end)->host != b || end->conn->is_cut || end->conn->is_dark) continue;
        sim_conn_stall(world, end->conn, true);
        end->conn->is_dark = true;
    }
}

uint32_t sim_dark_count(const struct sim_world *world)
{
    uint32_t count = 0;

    for (uint32_t slot = 0; slot < world->conns_capacity; slot++) {
        count += world->conns[slot] != NULL && world->conns[slot]->is_dark;
    }
    return count;
}
