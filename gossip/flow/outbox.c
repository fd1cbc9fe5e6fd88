/*
 * The outbox grows to what one call of a state machine needs and keeps that. A message that cannot
 * be kept (too many, no memory, too large) is counted: the machines that use it repeat themselves.
 * Runs on the loop thread.
 */
#include "gossip/flow/outbox.h"

#include "base/check.h"
#include "base/mem.h"

enum { OUTBOX_FIRST = 16 };

void outbox_init(struct outbox *outbox)
{
    *outbox = (struct outbox){.entries = NULL};
}

void outbox_deinit(struct outbox *outbox)
{
    outbox_clear(outbox);
    mem_free(outbox->entries);
    *outbox = (struct outbox){.entries = NULL};
}

static bool make_room(struct outbox *outbox)
{
    uint32_t max = outbox->max == 0 ? OUTBOX_FIRST : 2 * outbox->max;
    struct outbox_entry *entries;

    if (outbox->count < outbox->max) return true;
    if (outbox->count == OUTBOX_MAX) return false;
    if (max > OUTBOX_MAX) max = OUTBOX_MAX;
    entries = mem_resize(outbox->entries, max * sizeof *entries);
    if (entries == NULL) return false;
    outbox->entries = entries;
    outbox->max = max;
    return true;
}

void outbox_add(struct outbox *outbox, struct peer_id to, const struct message *message)
{
    uint8_t inner[CONTROL_BYTES_MAX];
    struct blob *blob = NULL;
    size_t count = 0;

    CHECK(outbox->count <= outbox->max && outbox->max <= OUTBOX_MAX);
    if (make_room(outbox) && message_encode(message, inner, sizeof inner, &count) == RC_OK) {
        blob = blob_copy(inner, count);
    }
    if (blob == NULL) {
        outbox->dropped++;
        return;
    }
    outbox->entries[outbox->count++] = (struct outbox_entry){.to = to, .inner = blob};
}

void outbox_clear(struct outbox *outbox)
{
    for (uint32_t i = 0; i < outbox->count; i++) {
        blob_unref(outbox->entries[i].inner); /* NULL where it was taken */
        outbox->entries[i].inner = NULL;
    }
    outbox->count = 0;
}
