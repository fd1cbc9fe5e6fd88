/* One circuit: a window each way, segments out, segments in and into frames. Loop thread. */
#include "peer/env/relay/internal.h"

#include "base/check.h"
#include "gossip/secure/secure.h"

void circuit_say_stop(struct relay_env *relay_env, const struct circuit *circuit,
                      enum relay_code code)
{
    struct message message = {.type = MESSAGE_RELAY_STOP};

    message.as.relay_stop.circuit = circuit->id;
    message.as.relay_stop.code = code;
    outbox_add(relay_env->options.outbox, circuit->relay, &message);
}

static void circuit_offer(struct relay_env *relay_env, struct circuit *circuit)
{
    struct message message = {.type = MESSAGE_RELAY_WINDOW};
    uint64_t offer = circuit->read + RELAY_WINDOW_BYTES;

    if (offer < circuit->offered + RELAY_WINDOW_BYTES / 4) return;
    circuit->offered = offer;
    message.as.relay_window.circuit = circuit->id;
    message.as.relay_window.bytes = offer;
    outbox_add(relay_env->options.outbox, circuit->relay, &message);
}

void circuit_open(struct relay_env *relay_env, struct circuit *circuit)
{
    framer_init(&circuit->framer, HANDSHAKE_BYTES_MAX);
    circuit_offer(relay_env, circuit);
}

void circuit_free(struct circuit *circuit)
{
    frame_queue_deinit(&circuit->queue);
    frame_queue_deinit(&circuit->inbox);
    for (int i = 0; i < EARLY_MAX; i++) {
        blob_unref(circuit->early[i].body);
    }
    framer_deinit(&circuit->framer);
    *circuit = (struct circuit){.state = CIRCUIT_FREE};
}

void circuit_lose(struct circuit *circuit, enum relay_code code)
{
    if (circuit->wants_lost) return;
    circuit->wants_lost = true;
    circuit->lost_code = code;
}

/* ---- out ---- */

enum rc circuit_queue(struct circuit *circuit, struct blob *frame)
{
    enum rc rc;

    if (circuit->queued_bytes + frame->count > LINK_QUEUE_BYTES_MAX) {
        circuit->is_drain_due = true;
        return RC_LIMIT;
    }
    rc = frame_queue_push(&circuit->queue, blob_ref(frame));
    if (rc != RC_OK) {
        blob_unref(frame);
        return rc;
    }
    circuit->queued_bytes += frame->count;
    return RC_OK;
}

/* The next bytes of the queue: the first frame itself where that is all, else a copy of as much of
 * the next ones as goes into a record, so that small frames do not become many records. */
static struct blob *next_segment(const struct circuit *circuit)
{
    const struct frame_queue *queue = &circuit->queue;
    size_t want = circuit->queued_bytes - circuit->front_sent, from = circuit->front_sent, done = 0;
    struct blob *segment;

    if (want > RELAY_SEGMENT_BYTES) want = RELAY_SEGMENT_BYTES;
    if (want > circuit->may_send - circuit->sent) {
        want = (size_t)(circuit->may_send - circuit->sent);
    }
    if (from == 0 && frame_queue_first(queue)->count == want) {
        return blob_ref(frame_queue_first(queue));
    }
    segment = blob_create(want);
    for (size_t i = 0; segment != NULL && done < want; i++) {
        const struct blob *frame = queue->frames[(queue->first + i) % queue->capacity];
        size_t count = frame->count - from;

        if (count > want - done) count = want - done;
        memcpy(segment->bytes + done, frame->bytes + from, count);
        done += count;
        from = 0;
    }
    return segment;
}

static void consume(struct circuit *circuit, size_t count)
{
    circuit->sent += count;
    circuit->front_sent += count;
    while (circuit->queue.count > 0 &&
           circuit->front_sent >= frame_queue_first(&circuit->queue)->count) {
        struct blob *frame = frame_queue_pop(&circuit->queue);

        circuit->front_sent -= frame->count;
        circuit->queued_bytes -= frame->count;
        blob_unref(frame);
    }
}

void circuit_pump(struct relay_env *relay_env, struct circuit *circuit)
{
    while (circuit->queue.count > 0 && circuit->sent < circuit->may_send && !circuit->wants_lost) {
        struct inner_header header = {.type = MESSAGE_DATA,
                                      .flags = DATA_RELAY,
                                      .arg = circuit->id,
                                      .offset = (uint32_t)circuit->sent};
        struct blob *segment;
        enum rc rc;

        if (circuit->sent > UINT32_MAX - RELAY_SEGMENT_BYTES) { /* no relay carries that much */
            circuit_lose(circuit, RELAY_SPENT);
            return;
        }
        segment = next_segment(circuit);
        if (segment == NULL) return; /* no memory now; the next event tries again */
        rc = relay_env->options.send_data(relay_env->options.context, circuit->relay, &header,
                                          segment);
        if (rc == RC_OK) {
            consume(circuit, segment->count);
        } else {
            circuit_lose(circuit, RELAY_CLOSED);
        }
        blob_unref(segment);
    }
}

/* ---- in ---- */

static bool into_inbox(struct circuit *circuit, struct blob *body)
{
    if (frame_queue_push(&circuit->inbox, body) != RC_OK) return false;
    circuit->received += body->count;
    return true;
}

static bool keep_early(struct circuit *circuit, uint64_t offset, struct blob *body)
{
    for (int i = 0; i < EARLY_MAX; i++) {
        struct early *early = &circuit->early[i];

        if (early->body != NULL) continue;
        *early = (struct early){offset, body};
        return true;
    }
    return false;
}

/* Those whose turn has come. */
static bool drain_early(struct circuit *circuit)
{
    for (int i = 0; i < EARLY_MAX; i++) {
        struct early *early = &circuit->early[i];

        if (early->body == NULL || early->offset != circuit->received) continue;
        if (!into_inbox(circuit, early->body)) return false;
        early->body = NULL;
        i = -1; /* the next one may lie anywhere */
    }
    return true;
}

void circuit_take(struct relay_env *relay_env, struct circuit *circuit,
                  const struct inner_header *header, const uint8_t *body, size_t count)
{
    bool is_in_window = count > 0 && count <= RELAY_SEGMENT_BYTES &&
                        header->offset >= circuit->received && header->offset <= circuit->offered &&
                        count <= circuit->offered - header->offset;
    struct blob *copy = is_in_window ? blob_copy(body, count) : NULL;
    bool is_kept = false;

    if (copy != NULL && header->offset == circuit->received) {
        is_kept = into_inbox(circuit, copy);
        if (is_kept) copy = NULL;
        is_kept = is_kept && drain_early(circuit);
    } else if (copy != NULL) {
        is_kept = keep_early(circuit, header->offset, copy);
        if (is_kept) copy = NULL;
    }
    blob_unref(copy);
    if (is_kept) return;
    circuit_say_stop(relay_env, circuit, RELAY_BROKEN);
    circuit_lose(circuit, RELAY_BROKEN);
}

/* Fill the framer from the first segment; false: there is none, or no memory. */
static bool feed(struct circuit *circuit)
{
    struct blob *segment;
    uint8_t *room;
    size_t count;

    if (circuit->inbox.count == 0) return false;
    if (framer_room(&circuit->framer, &room, &count) != RC_OK) return false;
    segment = frame_queue_pop(&circuit->inbox);
    if (count >= segment->count) {
        memcpy(room, segment->bytes, segment->count);
        framer_fill(&circuit->framer, segment->count);
        circuit->read += segment->count;
    } else {
        struct blob *rest = blob_slice(segment, count, segment->count - count);

        if (rest == NULL || frame_queue_push_first(&circuit->inbox, rest) != RC_OK) {
            blob_unref(rest);
            blob_unref(segment);
            circuit_lose(circuit, RELAY_CLOSED); /* a stream with a hole is of no use */
            return false;
        }
        memcpy(room, segment->bytes, count);
        framer_fill(&circuit->framer, count);
        circuit->read += count;
    }
    blob_unref(segment);
    return true;
}

void circuit_read(struct relay_env *relay_env, struct circuit *circuit)
{
    uint64_t number = circuit->number;

    for (;;) {
        uint8_t *frame;
        size_t count;

        if (circuit->number != number || circuit->state != CIRCUIT_OPEN || circuit->is_paused) {
            return;
        }
        if (framer_next(&circuit->framer, &frame, &count) != RC_OK) {
            circuit_say_stop(relay_env, circuit, RELAY_BROKEN);
            circuit_lose(circuit, RELAY_BROKEN);
            return;
        }
        if (frame != NULL) {
            relay_env->events.on_frame(relay_env->events.context, number, frame, count);
        } else if (!feed(circuit)) {
            break;
        }
    }
    if (!circuit->wants_lost) circuit_offer(relay_env, circuit);
}
