/*
 * Indirect probes (SWIM, section 3.1; the negative answers are Lifeguard's): a member that does not
 * answer is asked for through others. Who is asked says ACK as soon as the target answers it, or
 * NACK when it does not; who says neither tells that it is us who are not heard. Loop thread.
 */
#include "gossip/membership/internal.h"

#include "base/check.h"

enum { RELAYED_PER_S = 64 };

#define INDIRECT (UINT64_C(1) << 63) /* these numbers are no PING's */

void inquiry_begin(struct membership *m, struct member *member, uint64_t now_ns, struct outbox *out)
{
    struct message message = {.type = MESSAGE_PING_REQ};
    struct member *chosen[PROXIES];
    struct inquiry *inquiry = NULL;
    uint32_t count;

    for (uint32_t i = 0; i < INQUIRIES_MAX && inquiry == NULL; i++) {
        if (m->inquiries[i].seq == 0) inquiry = &m->inquiries[i];
    }
    if (inquiry == NULL) return; /* the next period asks again */
    count = probe_proxies(m, chosen, member, now_ns);
    if (count == 0) return;
    *inquiry = (struct inquiry){.seq = INDIRECT | ++m->inquiry_seq,
                                .target = member->id,
                                .asked = count,
                                .until_ns = now_ns + m->period_ns};
    m->inquiries_count++;
    message.as.ping_req.seq = inquiry->seq;
    message.as.ping_req.target = member->id;
    for (uint32_t i = 0; i < count; i++) {
        inquiry->proxies[i] = chosen[i]->id;
        outbox_add(out, chosen[i]->id, &message);
    }
    if (member->state == MEMBER_SUSPECT) member->asked = (uint16_t)(member->asked + count);
    membership_wake(m, inquiry->until_ns);
}

void inquiry_on_answer(struct membership *m, struct peer_id from, uint64_t seq, bool is_ack,
                       uint64_t now_ns)
{
    for (uint32_t i = 0; i < INQUIRIES_MAX && m->inquiries_count > 0; i++) {
        struct inquiry *inquiry = &m->inquiries[i];
        struct member *target;

        if (inquiry->seq != seq || seq == 0) continue;
        for (uint32_t k = 0; k < inquiry->asked; k++) {
            if (!peer_id_is_equal(inquiry->proxies[k], from)) continue;
            if ((inquiry->answered & 1U << k) != 0) return;
            inquiry->answered |= 1U << k;
            target = book_find(&m->book, inquiry->target);
            if (is_ack) inquiry->is_acked = true;
            if (target == NULL) return;
            if (!is_ack) {
                if (target->state == MEMBER_SUSPECT) target->denied++;
                membership_wake(m, now_ns);
                return;
            }
            target->vouched_ns = now_ns;
            suspect_vouched(m, target, now_ns);
            return;
        }
    }
}

static void answer(struct peer_id to, uint64_t seq, bool is_ack, struct outbox *out)
{
    struct message message = {.type = is_ack ? MESSAGE_ACK : MESSAGE_NACK};

    if (is_ack) {
        message.as.ping.seq = seq;
    } else {
        message.as.nack.seq = seq;
    }
    outbox_add(out, to, &message);
}

enum rc inquiry_on_request(struct membership *m, struct member *asker,
                           const struct message_ping_req *request, uint64_t now_ns,
                           struct outbox *out)
{
    struct member *target = book_find(&m->book, request->target);
    struct contact *contact = asker->contact;
    struct relay *relay = NULL;

    if ((request->seq & INDIRECT) == 0) return RC_FORMAT;
    if (now_ns - contact->serve_ns >= NS_PER_S) {
        contact->serve_ns = now_ns;
        contact->served = contact->relayed = 0;
    }
    if (contact->relayed++ >= RELAYED_PER_S) return RC_LIMIT;
    for (uint32_t i = 0; i < RELAYS_MAX && relay == NULL; i++) {
        if (m->relays[i].until_ns == 0) relay = &m->relays[i];
    }
    if (peer_id_is_equal(request->target, m->self_id)) {
        answer(asker->id, request->seq, true, out); /* it lost us, but not altogether */
        return RC_OK;
    }
    if (target == NULL || target->contact == NULL || target == asker || relay == NULL ||
        target->state != MEMBER_ALIVE) {
        answer(asker->id, request->seq, false, out);
        return RC_OK;
    }
    *relay = (struct relay){.until_ns = now_ns + probe_timeout(m, target),
                            .asker = asker->id,
                            .target = target->id,
                            .seq = request->seq,
                            .ping_seq = probe_ping(m, target, now_ns, out)};
    m->relays_count++;
    membership_wake(m, relay->until_ns);
    return RC_OK;
}

void inquiry_on_ack(struct membership *m, const struct member *target, uint64_t seq,
                    struct outbox *out)
{
    for (uint32_t i = 0; i < RELAYS_MAX && m->relays_count > 0; i++) {
        struct relay *relay = &m->relays[i];

        if (relay->until_ns == 0 || seq < relay->ping_seq) continue;
        if (!peer_id_is_equal(relay->target, target->id)) continue;
        answer(relay->asker, relay->seq, true, out);
        relay->until_ns = 0;
        m->relays_count--;
    }
}

void inquiry_tick(struct membership *m, uint64_t now_ns, struct outbox *out)
{
    for (uint32_t i = 0; i < RELAYS_MAX && m->relays_count > 0; i++) {
        struct relay *relay = &m->relays[i];

        if (relay->until_ns == 0 || now_ns < relay->until_ns) continue;
        answer(relay->asker, relay->seq, false, out);
        relay->until_ns = 0;
        m->relays_count--;
    }
    for (uint32_t i = 0; i < INQUIRIES_MAX && m->inquiries_count > 0; i++) {
        struct inquiry *inquiry = &m->inquiries[i];

        if (inquiry->seq == 0 || now_ns < inquiry->until_ns) continue;
        if (!inquiry->is_acked && inquiry->answered == 0) health_worse(m, now_ns);
        inquiry->seq = 0;
        m->inquiries_count--;
    }
}

uint64_t inquiry_next(const struct membership *m)
{
    uint64_t next_ns = UINT64_MAX;

    for (uint32_t i = 0; i < RELAYS_MAX && m->relays_count > 0; i++) {
        if (m->relays[i].until_ns != 0 && m->relays[i].until_ns < next_ns) {
            next_ns = m->relays[i].until_ns;
        }
    }
    for (uint32_t i = 0; i < INQUIRIES_MAX && m->inquiries_count > 0; i++) {
        if (m->inquiries[i].seq != 0 && m->inquiries[i].until_ns < next_ns) {
            next_ns = m->inquiries[i].until_ns;
        }
    }
    return next_ns;
}
