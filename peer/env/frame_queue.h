/* frame_queue: frames waiting, first in, first out; a ring that doubles when it is full. */
#ifndef GRAPEVINE_PEER_ENV_FRAME_QUEUE_H
#define GRAPEVINE_PEER_ENV_FRAME_QUEUE_H

#include "base/blob.h"
#include "base/rc.h"

struct frame_queue { /* all zero is an empty queue */
    struct blob **frames;
    size_t capacity, first, count;
};

/** Takes the caller's reference (NULL is a frame like others), or, on RC_NOMEM, leaves it. */
MUST_USE enum rc frame_queue_push(struct frame_queue *queue, struct blob *frame);
/** Likewise, before all others. */
MUST_USE enum rc frame_queue_push_first(struct frame_queue *queue, struct blob *frame);
/** The reference becomes the caller's. Not on an empty queue. */
struct blob *frame_queue_pop(struct frame_queue *queue);
/** Borrowed. Not on an empty queue. */
struct blob *frame_queue_first(const struct frame_queue *queue);
/** Release all frames, keep the ring. */
void frame_queue_clear(struct frame_queue *queue);
void frame_queue_deinit(struct frame_queue *queue);

#endif
