/*
 * DATA waiting on a link, in one queue for each kind of stream, taken by deficit round-robin
 * (Shreedhar and Varghese, SIGCOMM 1995): averaging gets four parts of the bytes, a model download
 * two, whatever else one, and an idle kind leaves its parts to the others. Loop thread.
 */
#include "peer/link/internal.h"

#include "base/check.h"
#include "base/mem.h"

enum { COMPACT_MIN = 64, QUANTUM_BYTES = 128 * 1024 };

static const uint32_t parts[LINK_KINDS] = {4, 2, 1};

static enum link_kind kind_of(const struct inner_header *header)
{
    if (header->flags == DATA_OFFER || header->flags == DATA_MEAN || header->flags == DATA_FULL) {
        return KIND_AVERAGING;
    }
    return header->flags == DATA_STATE ? KIND_STATE : KIND_OTHER;
}

static size_t left(const struct link_queue *queue)
{
    return queue->count - queue->first;
}

size_t link_queued(const struct link *link)
{
    size_t count = 0;

    for (int i = 0; i < LINK_KINDS; i++) {
        count += left(&link->queues[i]);
    }
    return count;
}

bool link_queue_has_room(const struct link *link, size_t records_max, size_t bytes_max)
{
    const struct link_queue *queue = &link->queues[KIND_OTHER];

    return left(queue) < records_max && queue->bytes < bytes_max;
}

/* Room for one more; taken items at the front are given up first. */
static bool queue_reserve(struct link_queue *queue)
{
    struct link_bulk *grown;
    size_t max;

    if (queue->count < queue->max) return true;
    if (queue->first > COMPACT_MIN && queue->first >= queue->max / 2) {
        memmove(queue->items, queue->items + queue->first, left(queue) * sizeof *queue->items);
        queue->count = left(queue);
        queue->first = 0;
        return true;
    }
    max = queue->max == 0 ? 256 : queue->max * 2;
    if (max > LINK_BULK_QUEUE_MAX) return false;
    grown = mem_resize(queue->items, max * sizeof *grown);
    if (grown == NULL) return false;
    queue->items = grown;
    queue->max = max;
    return true;
}

bool link_queue_push(struct link *link, const struct inner_header *header, struct blob *body)
{
    struct link_queue *queue = &link->queues[kind_of(header)];

    if (!queue_reserve(queue)) return false;
    queue->items[queue->count++] = (struct link_bulk){*header, blob_ref(body)};
    queue->bytes += body->count;
    return true;
}

struct link_bulk *link_queue_first(struct link *link)
{
    if (link_queued(link) == 0) return NULL;
    for (;;) {
        struct link_queue *queue = &link->queues[link->turn];

        if (left(queue) > 0 && queue->deficit_bytes > 0) return &queue->items[queue->first];
        if (left(queue) == 0) queue->deficit_bytes = 0;
        link->turn = (link->turn + 1) % LINK_KINDS;
        queue = &link->queues[link->turn];
        if (left(queue) > 0) queue->deficit_bytes += (int64_t)parts[link->turn] * QUANTUM_BYTES;
    }
}

void link_queue_pop(struct link *link)
{
    struct link_queue *queue = &link->queues[link->turn];

    CHECK(left(queue) > 0);
    queue->deficit_bytes -= (int64_t)queue->items[queue->first].body->count + INNER_HEADER_BYTES;
    queue->bytes -= queue->items[queue->first].body->count;
    blob_unref(queue->items[queue->first++].body);
    if (left(queue) == 0) queue->first = queue->count = 0;
}

void link_queue_drop(struct link *link, enum data_kind kind, uint64_t stream)
{
    for (int k = 0; k < LINK_KINDS; k++) {
        struct link_queue *queue = &link->queues[k];
        size_t kept = queue->first;

        for (size_t i = queue->first; i < queue->count; i++) {
            if (queue->items[i].header.flags == kind &&
                inner_header_stream(&queue->items[i].header) == stream) {
                queue->bytes -= queue->items[i].body->count;
                blob_unref(queue->items[i].body);
            } else {
                queue->items[kept++] = queue->items[i];
            }
        }
        queue->count = kept;
    }
}

void link_queues_free(struct link *link)
{
    blob_unref(link->sealed);
    frame_queue_deinit(&link->control);
    for (int k = 0; k < LINK_KINDS; k++) {
        for (size_t i = link->queues[k].first; i < link->queues[k].count; i++) {
            blob_unref(link->queues[k].items[i].body);
        }
        mem_free(link->queues[k].items);
    }
}
