/* rounds_run: commands obeyed, events in order, and what can be measured. Include this one. */
#ifndef GRAPEVINE_TESTS_ROUNDS_RUN_H
#define GRAPEVINE_TESTS_ROUNDS_RUN_H

#include "tests/property/rounds_lane.h"

#include "averaging/group/group.h"

/* ---- commands ---- */

static inline void rounds_over(struct rounds *r, uint32_t index, const struct command_over *over)
{
    struct round_peer *p = &r->peers[index];
    enum lane_job kind = over->is_late                  ? LANE_LATE
                         : over->result == OVER_ABORTED ? LANE_CANCEL
                                                        : LANE_SETTLE;
    struct event *job = lane_submit(r, index, kind);

    job->over = *over;
    job->bytes = malloc(r->chunks / 8 + 1u);
    assert_non_null(job->bytes);
    memset(job->bytes, 0xff, r->chunks / 8 + 1u); /* all chunks, unless it says which */
    if (over->bitmap_bytes > 0) memcpy(job->bytes, over->bitmap, over->bitmap_bytes);
    if (over->is_late) return;
    p->generation++;
    p->is_settling = kind == LANE_SETTLE;
    if (over->result == OVER_ABORTED) assert_non_null(over->reason);
}

static inline void rounds_obey(struct rounds *r, uint32_t index)
{
    assert_false(r->commands.is_short_of_memory);
    for (uint32_t i = 0; i < r->commands.count; i++) {
        const struct command *command = &r->commands.items[i];
        struct event *job;

        switch (command->type) {
        case COMMAND_SEND:
            rounds_send(r, index, command);
            break;
        case COMMAND_SEND_RANGE:
            rounds_send_range(r, index, command);
            break;
        case COMMAND_SNAPSHOT:
            (void)lane_submit(r, index, LANE_SNAPSHOT);
            break;
        case COMMAND_ABSORB_OWN:
            job = lane_submit(r, index, LANE_OWN);
            job->first = command->first;
            job->count = command->count;
            break;
        case COMMAND_REDUCE:
            job = lane_submit(r, index, LANE_REDUCE);
            job->first = command->first;
            job->is_partial = command->is_partial;
            job->over.round = ((const struct group *)(const void *)r->peers[index].exchange)->round;
            break;
        case COMMAND_EDGE:
            job = lane_submit(r, index, LANE_EDGE);
            job->edge = command->edge;
            job->from = peer_of(r, command->to);
            break;
        case COMMAND_FORGET:
            break;
        case COMMAND_OVER:
            rounds_over(r, index, &command->over);
            break;
        case COMMAND_HOLD: /* of the push exchange: tests/property/test_push.c */
        case COMMAND_RELEASE:
        case COMMAND_ABSORB_HELD:
        case COMMAND_STOP_RANGE:
            fail_msg("a plane is to be held");
            break;
        case COMMAND_SCORE:
            r->scores += score_is_fault(command->score);
            break;
        }
    }
    commands_clear(&r->commands);
}

/* ---- events ---- */

static inline uint64_t order_of(struct peer_id id, uint64_t round)
{
    return rng_mix(load_le64(id.bytes), round);
}

/* Self and all linked peers in the order of the round. */
static inline uint32_t rounds_members(struct rounds *r, uint32_t index, uint64_t round,
                                      struct peer_id *ids, struct boot_id *boots)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < r->peers_count; i++) {
        uint32_t at = count;

        if (i != index && !r->links[i][index].is_up) continue;
        for (; at > 0 && order_of(ids[at - 1], round) > order_of(r->peers[i].id, round); at--) {
            ids[at] = ids[at - 1];
            boots[at] = boots[at - 1];
        }
        ids[at] = r->peers[i].id;
        boots[at] = r->peers[i].boot;
        count++;
    }
    return count;
}

/* Linked neighbours in the graph, with its weights. */
static inline uint32_t rounds_neighbours(struct rounds *r, uint32_t index, struct peer_id *ids,
                                         struct boot_id *boots, float *weights)
{
    uint32_t n = r->peers_count, count = 0;

    for (uint32_t i = 0; i < n; i++) {
        bool is_next = (i + 1) % n == index || (index + 1) % n == i;

        if (i == index || !r->links[i][index].is_up || (r->is_ring && !is_next)) continue;
        ids[count] = r->peers[i].id;
        boots[count] = r->peers[i].boot;
        weights[count++] = 1.0f / (float)(r->is_ring && n > 2 ? 3 : n);
    }
    return count;
}

static inline void rounds_begin(struct rounds *r, uint32_t index)
{
    struct round_peer *p = &r->peers[index];
    struct peer_id ids[ROUND_PEERS_MAX];
    struct boot_id boots[ROUND_PEERS_MAX];
    float weights[ROUND_PEERS_MAX];
    struct round_members members = {.ids = ids, .boots = boots, .weights = weights};
    struct exchange_counts counts;
    struct event *again =
        event_new(EVENT_BEGIN, index, r->now_ns + r->pace_ns / 2 + rng_below(&r->rng, r->pace_ns));
    enum rc rc;

    again->epoch = p->life;
    rounds_push(r, again);
    if (p->is_settling || !r->is_learning) return;
    r->ops->counts(p->exchange, &counts);
    members.count = rounds_members(r, index, counts.next_round, ids, boots);
    if (r->ops->is_graph) {
        members.count = rounds_neighbours(r, index, ids, boots, weights);
    } else if (!r->ops->is_group) {
        uint32_t partner = (uint32_t)rng_below(&r->rng, r->peers_count);

        if (partner == index || !r->links[partner][index].is_up) return;
        ids[0] = r->peers[partner].id;
        boots[0] = r->peers[partner].boot;
        members.count = 1;
    }
    rc = r->ops->begin(p->exchange, &members, 100, r->now_ns, &r->commands);
    assert_true(rc == RC_OK || rc == RC_BUSY || rc == RC_NOT_FOUND);
    rounds_obey(r, index);
}

static inline void rounds_data(struct rounds *r, struct event *event)
{
    struct round_peer *p = &r->peers[event->to];
    struct chunk_use use = {.weight = 1};
    struct event *job;

    if (r->ops->on_chunk(p->exchange, &event->chunk, &use) != RC_OK) {
        r->refused++;
        return;
    }
    job = lane_submit(r, event->to, LANE_CHECK);
    job->chunk = event->chunk;
    job->weight = use.weight;
    job->edge.slot = use.slot;
    job->first = (uint32_t)event->generation;
    job->from = event->first;
    job->is_partial = use.is_passed_on;
    job->bytes = event->bytes;
    job->bytes_count = event->bytes_count;
    event->bytes = NULL;
}

static inline void rounds_event(struct rounds *r, struct event *event)
{
    struct round_peer *p = &r->peers[event->to], *from = &r->peers[event->from];

    if (!p->is_alive) return;
    if (event->type == EVENT_MESSAGE || event->type == EVENT_DATA) {
        if (event->epoch != r->links[event->from][event->to].epoch) return;
    } else if (event->epoch != p->life && event->epoch != 0) {
        return;
    }
    switch (event->type) {
    case EVENT_MESSAGE:
        r->refused += r->ops->on_message(p->exchange, from->id, from->boot, &event->message,
                                         r->now_ns, &r->commands) != RC_OK;
        rounds_obey(r, event->to);
        break;
    case EVENT_DATA:
        rounds_data(r, event);
        break;
    case EVENT_JOB:
        rounds_job(r, event);
        break;
    case EVENT_BEGIN:
        rounds_begin(r, event->to);
        break;
    case EVENT_LOST:
        r->ops->on_link_lost(p->exchange, from->id, r->now_ns, &r->commands);
        rounds_obey(r, event->to);
        break;
    case EVENT_UP:
        if (!r->links[event->from][event->to].is_up) break;
        r->ops->on_link_up(p->exchange, from->id, from->boot, r->now_ns, &r->commands);
        rounds_obey(r, event->to);
        break;
    }
}

/* One event or one tick, whichever is due first; false past `until_ns`. */
static inline bool rounds_step(struct rounds *r, uint64_t until_ns)
{
    uint64_t due = r->heap_count > 0 ? r->heap[0]->at_ns : UINT64_MAX;
    uint32_t ticks = UINT32_MAX;
    struct event *event;

    for (uint32_t i = 0; i < r->peers_count; i++) {
        uint64_t next = r->peers[i].is_alive ? r->ops->next_ns(r->peers[i].exchange) : UINT64_MAX;

        if (next < due) {
            due = next;
            ticks = i;
        }
    }
    if (due > until_ns) {
        r->now_ns = until_ns;
        return false;
    }
    if (due > r->now_ns) r->now_ns = due;
    if (ticks != UINT32_MAX) {
        r->ops->tick(r->peers[ticks].exchange, r->now_ns, &r->commands);
        rounds_obey(r, ticks);
        return true;
    }
    event = rounds_pop(r);
    rounds_event(r, event);
    event_free(event);
    return true;
}

static inline void rounds_run(struct rounds *r, uint64_t for_ns)
{
    uint64_t until = r->now_ns + for_ns;

    while (rounds_step(r, until)) {
    }
}

/* ---- what can be measured ---- */

static inline double rounds_sum(const struct rounds *r)
{
    double sum = 0;

    for (uint32_t i = 0; i < r->peers_count; i++) {
        for (size_t j = 0; j < r->values; j++) {
            sum += (double)r->peers[i].model[j];
        }
    }
    return sum;
}

static inline double rounds_local(const struct rounds *r)
{
    double sum = 0;

    for (uint32_t i = 0; i < r->peers_count; i++) {
        sum += r->peers[i].local;
    }
    return sum;
}

/* What a value of [0, 1] may be off after encoding, and a little more. */
static inline double rounds_loss(const struct rounds *r)
{
    switch (r->codec->ops->format) {
    case CODEC_BF16:
        return 0x1p-9 + 0.001;
    case CODEC_INT8:
        return 0.5 / 127 + 0.001;
    default:
        return 0.001;
    }
}

/* The largest distance of two live peers in one coordinate. */
static inline double rounds_spread(const struct rounds *r)
{
    double spread = 0;

    for (size_t j = 0; j < r->values; j++) {
        float least = INFINITY, most = -INFINITY;

        for (uint32_t i = 0; i < r->peers_count; i++) {
            if (!r->peers[i].is_alive) continue;
            least = fminf(least, r->peers[i].model[j]);
            most = fmaxf(most, r->peers[i].model[j]);
        }
        spread = fmax(spread, (double)most - (double)least);
    }
    return spread;
}

static inline bool rounds_is_inside(const struct rounds *r, double least, double most)
{
    for (uint32_t i = 0; i < r->peers_count; i++) {
        for (size_t j = 0; j < r->values; j++) {
            double x = (double)r->peers[i].model[j];

            if (!(x >= least && x <= most)) return false;
        }
    }
    return true;
}

static inline struct exchange_counts rounds_counts(const struct rounds *r, uint32_t index)
{
    struct exchange_counts counts;

    r->ops->counts(r->peers[index].exchange, &counts);
    return counts;
}

#endif
