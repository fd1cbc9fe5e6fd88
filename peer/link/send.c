/*
 * Sending on links: control records in a ring; DATA by its own connection, or behind the control
 * records where there is none. A record of the control connection is sealed only when the env can
 * take it: its nonce is spent in the order of sealing, so the one frame the env refused is kept and
 * goes first when it drains. Loop thread.
 */
#include "peer/link/internal.h"

#include "base/check.h"
#include "base/mem.h"
#include "peer/link/crash_messages.h"
#include "peer/times.h"

static enum rc frame_to_env(struct links *links, struct link *link, struct blob *frame)
{
    enum rc rc = links->options.env->ops->send(links->options.env, link->number, frame);

    if (rc != RC_OK) return rc;
    link->is_used = true;
    link->bytes_sent += frame->count;
    links->counts.bytes_sent += frame->count;
    return RC_OK;
}

bool link_frame_stays(struct links *links, struct link *link, enum rc rc)
{
    if (rc == RC_NOMEM) {
        link_touch(links, link);
        link->retry_ns = link_now(links) + SEAL_RETRY_NS;
    }
    return rc == RC_NOMEM || rc == RC_LIMIT;
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
    } else if (link_frame_stays(links, link, frame_to_env(links, link, frame))) {
        link->sealed = frame;
        return true; /* taken, though not sent */
    }
    blob_unref(frame);
    return true;
}

static bool link_pump_control(struct links *links, struct link *link)
{
    while (link->control.count > 0 && link->sealed == NULL) {
        struct blob *inner = frame_queue_first(&link->control);
        bool is_last_of_epoch = inner->count > 0 && inner->bytes[0] == MESSAGE_REKEY_ACK;

        if (!link_push(links, link, inner->bytes, inner->count, NULL, 0)) return false;
        if (is_last_of_epoch) secure_rekey_send(link->secure);
        link->control_bytes -= inner->count;
        blob_unref(frame_queue_pop(&link->control));
    }
    return true;
}

/* DATA over the control connection. False: no room, or no memory. */
static bool link_push_bulk(struct links *links, struct link *link, const struct link_bulk *item)
{
    struct inner_header header = item->header;
    uint8_t head[INNER_HEADER_BYTES];

    if (link->sealed != NULL) return false;
    header.after = 0; /* it is in order by itself */
    inner_header_encode(&header, head);
    if (!link_push(links, link, head, sizeof head, item->body->bytes, item->body->count)) {
        return false;
    }
    link->control_queued++; /* a record of this connection as others are: nothing waits in the ring
                             */
    return true;
}

static void link_pump(struct links *links, struct link *link)
{
    struct link_bulk *item;
    struct bulk *bulk;
    bool is_again = link->retry_ns != UINT64_MAX;

    link_touch(links, link);
    link->retry_ns = UINT64_MAX;
    if (link->sealed != NULL) {
        if (!link_frame_stays(links, link, frame_to_env(links, link, link->sealed))) {
            blob_unref(link->sealed);
            link->sealed = NULL;
        }
    }
    if (is_again) bulks_flush(links, link);
    if (!link_pump_control(links, link)) return;
    while ((item = link_queue_first(link)) != NULL && !link->is_closing) {
        switch (bulk_way(links, link, &item->header, &bulk)) {
        case BULK_WAIT:
            return;
        case BULK_SEND:
            if (!bulk_send(links, bulk, &item->header, item->body)) {
                link->retry_ns = link_now(links) + SEAL_RETRY_NS;
                return;
            }
            break;
        case BULK_NONE:
            if (!link_push_bulk(links, link, item)) return;
            break;
        }
        link_queue_pop(link);
    }
}

static bool has_bulk_waiting(const struct link *link)
{
    const struct bulk *bulk;

    if (link->sealed != NULL || link_queued(link) > 0) return true;
    TAILQ_FOREACH (bulk, &link->bulks, of_link) {
        if (bulk_is_sending(bulk)) return true;
    }
    return false;
}

void link_resume(struct links *links, struct link *link)
{
    link_pump(links, link);
    if (!link->is_drain_due || has_bulk_waiting(link)) return;
    link->is_drain_due = false;
    if (link->is_current && links->events.on_bulk_drained != NULL) {
        links->events.on_bulk_drained(links->events.context, link->peer);
    }
}

void links_on_drain(struct links *links, uint64_t number)
{
    struct link *link = link_find(links, number);
    struct bulk *bulk = bulk_find(links, number);

    if (bulk != NULL) bulk_on_drain(links, bulk);
    if (link != NULL && link->state == LINK_OPEN) link_resume(links, link);
}

enum rc links_send_inner(struct links *links, struct peer_id to, struct blob *inner)
{
    struct link *link = link_find_peer(links, to);

    if (link == NULL) return RC_CLOSED;
    link_touch(links, link);
    if (link->control.count == LINK_CONTROL_QUEUE_MAX ||
        inner->count > LINK_CONTROL_BYTES_MAX - link->control_bytes) {
        link->is_closing = true; /* it stopped reading */
        return RC_LIMIT;
    }
    if (frame_queue_push(&link->control, inner) != RC_OK) return RC_NOMEM;
    (void)blob_ref(inner);
    link->control_queued++;
    link->control_bytes += inner->count;
    link_pump(links, link);
    if (inner->count > 0) crash_message_sent(inner->bytes[0]);
    return RC_OK;
}

enum rc links_send(struct links *links, struct peer_id to, const struct message *message)
{
    uint8_t scratch[CONTROL_BYTES_MAX];
    struct blob *inner;
    size_t count;
    enum rc rc;

    if (link_find_peer(links, to) == NULL) return RC_CLOSED;
    rc = message_encode(message, scratch, sizeof scratch, &count);
    if (rc != RC_OK) return rc;
    inner = blob_copy(scratch, count);
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

enum rc links_send_bulk(struct links *links, struct peer_id to, const struct inner_header *header,
                        struct blob *body)
{
    struct link *link = link_find_peer(links, to);

    CHECK(header->type == MESSAGE_DATA);
    if (link == NULL) return RC_CLOSED;
    link_touch(links, link);
    if (links->options.bulk_records_max > 0 &&
        link_queued(link) >= links->options.bulk_records_max) {
        link->is_closing = true;
        return RC_LIMIT;
    }
    if (!link_queue_push(link, header, body)) return RC_LIMIT;
    link_pump(links, link);
    crash_data_queued(header->flags);
    if (has_bulk_waiting(link)) link->is_drain_due = true;
    return RC_OK;
}

bool links_relay_has_room(const struct links *links, struct peer_id to, size_t records_max,
                          size_t bytes_max)
{
    const struct link *link = link_find_peer(links, to);

    return link == NULL || link_queue_has_room(link, records_max, bytes_max);
}

void links_drop_bulk(struct links *links, enum data_kind kind, uint64_t stream)
{
    struct link *link;

    TAILQ_FOREACH (link, &links->all, siblings) {
        link_queue_drop(link, kind, stream);
    }
}
