/*
 * sim_stream: what flows over a simulated connection: sending, receiving, farewell. The model is
 * described in world.h. Frames are shared by reference all the way and copied only for a reader
 * that is not their last holder.
 */
#include "peer/env/sim/world.h"

#include "base/check.h"
#include "base/mem.h"
#include "gossip/secure/secure.h"

#include <string.h>

/* ---- sending ---- */

/* `count`: 0 for the end of the stream. Into `spent_us`: how long it took to come in. Frames that
 * share a line are taken for interleaved there, so that all of them are as slow as the last. */
static uint64_t arrival_ns(struct sim_world *world, struct sim_end *end, size_t count,
                           uint32_t *spent_us)
{
    struct sim_host *from = sim_end_host(world, end);
    uint32_t to = sim_end_other(end)->host;
    uint64_t at_ns = world->now_ns + sim_draw_latency(world, from, to), came_ns, spent_ns;

    at_ns += sim_draw_loss(world, from, to, count);
    came_ns = at_ns;
    at_ns = sim_landing_ns(sim_host_at(world, to), at_ns, count);
    spent_ns = world->now_ns - end->begun_ns;
    if (spent_ns < at_ns - came_ns) spent_ns = at_ns - came_ns;
    *spent_us = spent_ns / NS_PER_US < UINT32_MAX ? (uint32_t)(spent_ns / NS_PER_US) : UINT32_MAX;
    if (at_ns < end->last_arrival_ns) at_ns = end->last_arrival_ns;
    end->last_arrival_ns = at_ns;
    return at_ns;
}

/* Start the next frame on its way, if the other side's window has room. */
void sim_end_pump(struct sim_world *world, struct sim_end *end)
{
    struct sim_end *other = sim_end_other(end);
    size_t count;

    if (end->is_sending || end->queue.count == 0 || end->conn->is_cut) return;
    if (end->state != SIM_OPEN && end->state != SIM_LINGERING) return;
    count = frame_queue_first(&end->queue)->count;
    if (other->unread_bytes > 0 && other->unread_bytes + count > SIM_WINDOW_BYTES) return;
    end->is_sending = true;
    end->begun_ns = world->now_ns;
    other->unread_bytes += count;
    sim_push_end(world, sim_departure_ns(world, sim_end_host(world, end), other->host, count),
                 SIM_SENT, end, 0);
}

/* All that was queued is on its way. */
static void end_trace(struct sim_world *world, struct sim_end *end)
{
    uint64_t bytes = end->sent_bytes - end->busy_from;
    struct sim_host *host = sim_end_host(world, end);
    const struct tracer *tracer = &host->tracer;

    if (world->options.trace == NULL || bytes < TRACE_SEND_BYTES) return;
    trace_span(tracer, TRACE_LOOP, TRACE_LINKS + end->number,
               &(struct trace_span){.name = "send",
                                    .begin_ns = sim_clock_show(&host->clock, end->busy_ns),
                                    .end_ns = sim_clock_show(&host->clock, world->now_ns),
                                    .round = tracer->round,
                                    .partner = end->partner,
                                    .bytes = bytes});
}

void sim_on_sent(struct sim_world *world, struct sim_end *end)
{
    struct blob *frame;
    uint64_t at_ns;
    uint32_t spent_us;

    if (sim_end_is_over(end) || end->conn->is_cut) return;
    frame = frame_queue_pop(&end->queue);
    end->is_sending = false;
    end->queued_bytes -= frame->count;
    end->sent_bytes += frame->count;
    if (end->queued_bytes == 0) end_trace(world, end);
    at_ns = arrival_ns(world, end, frame->count, &spent_us);
    sim_push(world, at_ns,
             (struct sim_event){.kind = SIM_ARRIVED,
                                .host = sim_end_other(end)->host,
                                .link = sim_end_other(end)->number,
                                .spent_us = spent_us,
                                .frame = frame});
    sim_end_pump(world, end);
    if (end->state == SIM_LINGERING) {
        if (end->queue.count == 0) sim_end_finish(world, end);
    } else if (end->was_refused && end->queued_bytes < LINK_QUEUE_BYTES_MAX / 2) {
        end->was_refused = false;
        sim_push_end(world, world->now_ns, SIM_DRAIN, end, 0);
    }
}

/* All is sent: the end of the stream follows. */
void sim_end_finish(struct sim_world *world, struct sim_end *end)
{
    struct sim_end *other = sim_end_other(end);
    uint32_t spent_us;

    if (!sim_end_is_over(other) && !end->conn->is_cut) {
        sim_push(
            world, arrival_ns(world, end, 0, &spent_us),
            (struct sim_event){.kind = SIM_ARRIVED, .host = other->host, .link = other->number});
    }
    sim_end_gone(world, end);
}

void sim_end_hangup(struct sim_world *world, struct sim_end *end)
{
    if (end->state == SIM_DIALLING || end->conn->is_cut) {
        sim_end_finish(world, end);
        return;
    }
    end->state = SIM_LINGERING;
    sim_end_host(world, end)->ends_count--;
    while (end->inbox.count > 0) {
        struct blob *unread = frame_queue_pop(&end->inbox);

        if (unread != NULL) end->unread_bytes -= unread->count;
        blob_unref(unread);
    }
    sim_end_pump(world, sim_end_other(end));
    if (end->queue.count == 0) {
        sim_end_finish(world, end);
    } else {
        sim_push_end(world, world->now_ns + SIM_LINGER_NS, SIM_LATE, end, 0);
    }
}

/* ---- receiving ---- */

static bool may_read(const struct sim_world *world, const struct sim_end *end)
{
    return end->state == SIM_OPEN && !end->is_paused &&
           !sim_is_blocked(world, sim_end_other(end)->host, end->host);
}

static void tell_frame(struct sim_world *world, struct sim_end *end, uint8_t *bytes, size_t count)
{
    struct sim_host *host = sim_end_host(world, end);
    struct sim_event event = {.kind = SIM_ARRIVED, .host = end->host, .link = end->number};

    if (!sim_host_hears(host)) return;
    sim_note(world, &event, bytes, count);
    world->counts.frames++;
    world->counts.bytes += count;
    if (sim_end_host(world, sim_end_other(end))->site != host->site) {
        world->counts.bytes_across += count;
    }
    host->events.on_frame(host->events.context, end->number, bytes, count);
}

static void end_broke_rules(struct sim_world *world, struct sim_end *end, enum rc rc)
{
    sim_reset_other(world, end);
    sim_end_lost(world, end, rc, sim_lost_text(rc));
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
        sim_end_lost(world, end, RC_CLOSED, "closed by the other side");
        return;
    }
    CHECK(end->unread_bytes >= blob->count);
    end->unread_bytes -= blob->count;
    end->received_bytes += blob->count;
    sim_end_pump(world, sim_end_other(end));
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

/* Of a torn connection: what of this still comes through. Takes the reference; NULL: nothing. */
static struct blob *torn(struct sim_end *end, struct blob *blob)
{
    size_t part = blob == NULL || end->state != SIM_OPEN ? 0 : end->torn_bytes;
    struct blob *rest;

    if (part >= (blob == NULL ? 1 : blob->count)) {
        end->torn_bytes -= blob->count;
        return blob;
    }
    end->torn_bytes = 0;
    rest = part == 0 ? NULL : blob_copy(blob->bytes, part);
    if (blob != NULL) end->unread_bytes -= blob->count - part;
    blob_unref(blob);
    return rest;
}

void sim_on_arrived(struct sim_world *world, struct sim_end *end, const struct sim_event *event)
{
    struct blob *blob = event->frame;

    end->spent_ns = event->spent_us * NS_PER_US;
    if (end->conn->is_dark) {
        blob_unref(blob);
        return;
    }
    if (end->conn->is_cut) {
        blob = torn(end, blob);
        if (blob == NULL) return;
    }
    if (end->state != SIM_OPEN) {
        if (blob != NULL) {
            end->unread_bytes -= blob->count; /* read and thrown away */
            sim_end_pump(world, sim_end_other(end));
        }
        if (blob == NULL && end->state == SIM_LINGERING && end->queue.count == 0) {
            sim_end_gone(world, end);
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

void sim_on_resume(struct sim_world *world, struct sim_end *end)
{
    end->spent_ns = UINT64_MAX; /* it had come before */
    if (end->state == SIM_OPEN) framer_read(world, end);
    while (end->inbox.count > 0 && may_read(world, end)) {
        end_read(world, end, frame_queue_pop(&end->inbox));
    }
}

/* ---- the node's calls ---- */

/* The end that the node of `env` may mean by `number`. */
static struct sim_end *end_named(struct env *env, uint64_t number)
{
    struct sim_end *end = sim_end_find(sim_env_of(env)->world, number);

    if (!sim_env_of(env)->is_alive || end == NULL || end->host != sim_env_of(env)->host)
        return NULL;
    return end->state == SIM_OPEN || end->state == SIM_DIALLING ? end : NULL;
}

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
    if (end->queued_bytes == 0) {
        end->busy_ns = sim_env_of(env)->world->now_ns;
        end->busy_from = end->sent_bytes;
    }
    end->queued_bytes += frame->count;
    sim_count_queued(sim_env_of(env)->world, end->queued_bytes);
    sim_end_pump(sim_env_of(env)->world, end);
    return RC_OK;
}

void sim_env_set_partner(struct env *env, uint64_t number, struct peer_id partner)
{
    struct sim_end *end = end_named(env, number);

    if (end == NULL || env->tracer == NULL) return;
    end->partner = trace_partner(partner);
    trace_link(env->tracer, number, end->partner);
}

void sim_env_hangup(struct env *env, uint64_t number)
{
    struct sim_end *end = end_named(env, number);

    if (end != NULL) sim_end_hangup(sim_env_of(env)->world, end);
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
        sim_push_end(sim_env_of(env)->world, sim_now_ns(sim_env_of(env)->world), SIM_RESUME, end,
                     0);
}

void sim_env_set_bulk(struct env *env, uint64_t number)
{
    struct sim_end *end = end_named(env, number);

    if (end != NULL) end->is_bulk = true;
}

bool sim_env_gains_by_more(struct env *env, uint64_t number)
{
    const struct sim_end *end = end_named(env, number);
    struct sim_world *world = sim_env_of(env)->world;

    if (end == NULL || !end->is_bulk || !sim_host_at(world, end->host)->faults.refuses_bbr)
        return false;
    return sim_round_trip_ns(world, end->host, sim_end_other(end)->host) > LINK_LONG_NS;
}

bool sim_env_frame_spent_ns(struct env *env, uint64_t number, uint64_t *spent_ns)
{
    const struct sim_end *end = end_named(env, number);

    if (end == NULL || end->spent_ns == UINT64_MAX) return false;
    *spent_ns = end->spent_ns;
    return true;
}

void sim_env_link_bytes(struct env *env, uint64_t number, uint64_t *sent, uint64_t *received)
{
    const struct sim_end *end = end_named(env, number);

    *sent = end == NULL ? 0 : end->sent_bytes;
    *received = end == NULL ? 0 : end->received_bytes;
}
