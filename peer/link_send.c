/*
 * Sending on links: control records in a ring, bulk in a growing queue behind it; control overtakes
 * bulk. A record is sealed only when the env can take it: its nonce is spent in the order of
 * sealing, so the one frame the env refused is kept and goes first when it drains. Loop thread.
 */
#include "peer/link_internal.h"

#include "base/check.h"
#include "base/mem.h"

enum { BULK_COMPACT = 64 };
#define SEAL_RETRY_NS (100 * NS_PER_MS)

void link_queues_free(struct link *link)
{
    blob_unref(link->sealed);
    for (uint32_t i = 0; i < link->control_count; i++) {
        blob_unref(link->control[(link->control_first + i) % LINK_CONTROL_QUEUE_MAX]);
    }
    for (size_t i = link->bulk_first; i < link->bulk_count; i++) {
        blob_unref(link->bulk[i].body);
    }
    mem_free(link->control);
    mem_free(link->bulk);
}

static enum rc frame_to_env(struct links *links, struct link *link, struct blob *frame)
{
    enum rc rc = links->options.env->ops->send(links->options.env, link->number, frame);

    if (rc != RC_OK) return rc;
    link->bytes_sent += frame->count;
    links->counts.bytes_sent += frame->count;
    return RC_OK;
}

enum rc link_send_frame(struct links *links, struct link *link, const uint8_t *bytes, size_t count)
{
    struct blob *frame = blob_copy(bytes, count);
    enum rc rc;

    if (frame == NULL) return RC_NOMEM;
    rc = frame_to_env(links, link, frame);
    blob_unref(frame);
    return rc;
}

/* Seal one record and hand it to the env. A frame the env has no room for is kept: its nonce is
 * spent. False: no memory, so stop for now; links_tick() comes back to it. */
static bool link_push(struct links *links, struct link *link, const void *head, size_t head_count,
                      const void *tail, size_t tail_count)
{
    struct blob *frame = blob_create(secure_record_bytes(head_count + tail_count));
    enum rc rc;

    if (frame == NULL) {
        link->retry_ns = link_now(links) + SEAL_RETRY_NS;
        return false;
    }
    rc = secure_seal(link->secure, head, head_count, tail, tail_count, frame->bytes);
    if (rc != RC_OK) {
        link->is_closing = true; /* the key is used up, or the session has failed: dial again */
    } else if (frame_to_env(links, link, frame) == RC_LIMIT) {
        link->sealed = frame;
        return true; /* taken, though not sent */
    }
    blob_unref(frame);
    return true;
}

static void link_pump(struct links *links, struct link *link)
{
    uint8_t head[INNER_HEADER_BYTES];

    link->retry_ns = UINT64_MAX;
    if (link->sealed != NULL) {
        if (frame_to_env(links, link, link->sealed) == RC_LIMIT) return;
        blob_unref(link->sealed);
        link->sealed = NULL;
    }
    while (link->control_count > 0 && link->sealed == NULL) {
        struct blob *inner = link->control[link->control_first];

        if (!link_push(links, link, inner->bytes, inner->count, NULL, 0)) return;
        blob_unref(inner);
        link->control_first = (link->control_first + 1) % LINK_CONTROL_QUEUE_MAX;
        link->control_count--;
    }
    while (link->bulk_first < link->bulk_count && link->sealed == NULL) {
        struct link_bulk *item = &link->bulk[link->bulk_first];

        inner_header_encode(&item->header, head);
        if (!link_push(links, link, head, sizeof head, item->body->bytes, item->body->count)) {
            return;
        }
        blob_unref(item->body);
        link->bulk_first++;
    }
    if (link->bulk_first == link->bulk_count) link->bulk_first = link->bulk_count = 0;
}

static bool has_bulk_waiting(const struct link *link)
{
    return link->sealed != NULL || link->bulk_count > link->bulk_first;
}

void link_resume(struct links *links, struct link *link)
{
    link_pump(links, link);
    if (!link->is_drain_due || has_bulk_waiting(link)) return;
    link->is_drain_due = false;
    if (link->is_current) links->events.on_bulk_drained(links->events.context, link->peer);
}

void links_on_drain(struct links *links, uint64_t number)
{
    struct link *link = link_find(links, number);

    if (link != NULL && link->state == LINK_OPEN) link_resume(links, link);
}

enum rc links_send_inner(struct links *links, struct peer_id to, struct blob *inner)
{
    struct link *link = link_find_peer(links, to);

    if (link == NULL) return RC_CLOSED;
    if (link->control == NULL) {
        link->control = mem_array(LINK_CONTROL_QUEUE_MAX, sizeof(struct blob *));
        if (link->control == NULL) return RC_NOMEM;
    }
    if (link->control_count == LINK_CONTROL_QUEUE_MAX) {
        link->is_closing = true; /* it stopped reading */
        return RC_LIMIT;
    }
    link->control[(link->control_first + link->control_count) % LINK_CONTROL_QUEUE_MAX] =
        blob_ref(inner);
    link->control_count++;
    link_pump(links, link);
    return RC_OK;
}

enum rc links_send(struct links *links, struct peer_id to, const struct message *message)
{
    uint8_t *scratch;
    struct blob *inner;
    size_t count;
    enum rc rc;

    if (link_find_peer(links, to) == NULL) return RC_CLOSED;
    scratch = mem_alloc(CONTROL_BYTES_MAX);
    if (scratch == NULL) return RC_NOMEM;
    rc = message_encode(message, scratch, CONTROL_BYTES_MAX, &count);
    inner = rc == RC_OK ? blob_copy(scratch, count) : NULL;
    mem_free(scratch);
    if (rc != RC_OK) return rc;
    if (inner == NULL) return RC_NOMEM;
    rc = links_send_inner(links, to, inner);
    blob_unref(inner);
    return rc;
}

void links_send_all(struct links *links, const struct message *message)
{
    struct link *link;

    TAILQ_FOREACH (link, &links->all, siblings) {
        if (link->is_current) (void)links_send(links, link->peer, message); /* best effort */
    }
}

/* Room for one more; sent items at the front are given up first. */
static bool bulk_reserve(struct link *link)
{
    size_t left = link->bulk_count - link->bulk_first;
    struct link_bulk *grown;
    size_t max;

    if (link->bulk_count < link->bulk_max) return true;
    if (link->bulk_first > BULK_COMPACT && link->bulk_first >= link->bulk_max / 2) {
        memmove(link->bulk, link->bulk + link->bulk_first, left * sizeof *link->bulk);
        link->bulk_first = 0;
        link->bulk_count = left;
        return true;
    }
    max = link->bulk_max == 0 ? 256 : link->bulk_max * 2;
    if (max > LINK_BULK_QUEUE_MAX) return false;
    grown = mem_resize(link->bulk, max * sizeof *grown);
    if (grown == NULL) return false;
    link->bulk = grown;
    link->bulk_max = max;
    return true;
}

enum rc links_send_bulk(struct links *links, struct peer_id to, const struct inner_header *header,
                        struct blob *body)
{
    struct link *link = link_find_peer(links, to);

    CHECK(header->type == MESSAGE_DATA);
    if (link == NULL) return RC_CLOSED;
    if (links->options.bulk_records_max > 0 &&
        link->bulk_count - link->bulk_first >= links->options.bulk_records_max) {
        link->is_closing = true;
        return RC_LIMIT;
    }
    if (!bulk_reserve(link)) return RC_LIMIT;
    link->bulk[link->bulk_count++] = (struct link_bulk){*header, blob_ref(body)};
    link_pump(links, link);
    if (has_bulk_waiting(link)) link->is_drain_due = true;
    return RC_OK;
}

size_t links_bulk_queued(const struct links *links, struct peer_id to)
{
    const struct link *link = link_find_peer(links, to);

    return link == NULL ? 0 : link->bulk_count - link->bulk_first;
}

static void link_drop_bulk(struct link *link, enum data_kind kind, uint16_t stream)
{
    size_t kept = link->bulk_first;

    for (size_t i = link->bulk_first; i < link->bulk_count; i++) {
        if (link->bulk[i].header.flags == kind && link->bulk[i].header.stream == stream) {
            blob_unref(link->bulk[i].body);
        } else {
            link->bulk[kept++] = link->bulk[i];
        }
    }
    link->bulk_count = kept;
}

void links_drop_bulk(struct links *links, enum data_kind kind, uint16_t stream)
{
    struct link *link;

    TAILQ_FOREACH (link, &links->all, siblings) {
        link_drop_bulk(link, kind, stream);
    }
}
