/* frame_queue: shared by the real links and the simulated ones. */
#include "peer/env/frame_queue.h"

#include "base/check.h"
#include "base/mem.h"

#include <string.h>

enum { CAPACITY_FIRST = 16 };

static enum rc queue_grow(struct frame_queue *queue)
{
    size_t capacity = queue->capacity == 0 ? CAPACITY_FIRST : queue->capacity * 2;
    struct blob **larger = mem_array(capacity, sizeof(struct blob *));

    if (larger == NULL) return RC_NOMEM;
    for (size_t i = 0; i < queue->count; i++) {
        larger[i] = queue->frames[(queue->first + i) % queue->capacity];
    }
    mem_free(queue->frames);
    queue->frames = larger;
    queue->first = 0;
    queue->capacity = capacity;
    return RC_OK;
}

enum rc frame_queue_push(struct frame_queue *queue, struct blob *frame)
{
    enum rc rc = queue->count < queue->capacity ? RC_OK : queue_grow(queue);

    if (rc != RC_OK) return rc;
    queue->frames[(queue->first + queue->count) % queue->capacity] = frame;
    queue->count++;
    return RC_OK;
}

enum rc frame_queue_push_first(struct frame_queue *queue, struct blob *frame)
{
    enum rc rc = queue->count < queue->capacity ? RC_OK : queue_grow(queue);

    if (rc != RC_OK) return rc;
    queue->first = (queue->first + queue->capacity - 1) % queue->capacity;
    queue->frames[queue->first] = frame;
    queue->count++;
    return RC_OK;
}

struct blob *frame_queue_first(const struct frame_queue *queue)
{
    CHECK(queue->count > 0);
    return queue->frames[queue->first];
}

struct blob *frame_queue_pop(struct frame_queue *queue)
{
    struct blob *frame = frame_queue_first(queue);

    queue->first = (queue->first + 1) % queue->capacity;
    queue->count--;
    return frame;
}

void frame_queue_clear(struct frame_queue *queue)
{
    while (queue->count > 0) {
        blob_unref(frame_queue_pop(queue));
    }
}

void frame_queue_deinit(struct frame_queue *queue)
{
    frame_queue_clear(queue);
    mem_free(queue->frames);
    memset(queue, 0, sizeof *queue);
}
