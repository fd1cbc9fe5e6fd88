/*
 * The timers of a membership: probes on idle links, silence, our own health, rounds of gossip,
 * and which message goes where. See membership.c for the whole. Loop thread.
 */
#include "gossip/membership/internal.h"

#include "base/check.h"
#include "gossip/times.h"

#include <stdlib.h>

enum { GOSSIP_FANOUT = 3, MEASURE_EVERY = 5, PING_WORDS_MAX = 8, WAN_PERIODS = 3 };
enum { PINGS_TOGETHER = 16 }; /* such a part of the period apart they go out in one tick */

/* --- messages -------------------------------------------------------------------------------- */

/* Accusations ride along, in a message of their own. */
static void send_words(struct membership *m, struct peer_id to, uint32_t max, struct outbox *out)
{
    struct message message = {.type = MESSAGE_ACCUSE};
    uint8_t bytes[ACCUSATIONS_MAX * ACCUSATION_BYTES];
    uint32_t count;

    if (m->pending_count == 0) return;
    count = pending_take_words(m, bytes, max);
    if (count == 0) return;
    message.as.accuse.accusations = bytes;
    message.as.accuse.accusations_bytes = count * ACCUSATION_BYTES;
    outbox_add(out, to, &message);
}

/* News rides along. */
static void send_probe(struct membership *m, enum message_type type, struct peer_id to,
                       uint64_t seq, struct outbox *out)
{
    struct message message = {.type = type};

    message.as.ping.seq = seq;
    message.as.ping.updates_count = pending_take(m, to, message.as.ping.updates, PING_UPDATES_MAX);
    outbox_add(out, to, &message);
    send_words(m, to, PING_WORDS_MAX, out);
}

/* News rides along with the answers to an honest rhythm of pings only: each record is told a few
 * times in all, and a flood of pings would use those up on one link. */
static void send_ack(struct membership *m, struct member *member, uint64_t seq, uint64_t now_ns,
                     struct outbox *out)
{
    struct contact *contact = member->contact;
    struct message message = {.type = MESSAGE_ACK};

    if (contact->fed_ns == 0 || now_ns >= contact->fed_ns + m->options.probe_interval_ns / 2) {
        contact->fed_ns = now_ns;
        send_probe(m, MESSAGE_ACK, member->id, seq, out);
        return;
    }
    message.as.ping.seq = seq;
    outbox_add(out, member->id, &message);
}

uint64_t probe_ping(struct membership *m, struct member *member, uint64_t now_ns,
                    struct outbox *out)
{
    struct contact *contact = member->contact;

    contact->ping_seq++;
    contact->ping_sent_ns[contact->ping_seq % PINGS_MAX] = now_ns;
    contact->measured_ns = now_ns;
    if (member->heard_ns >= contact->asked_ns) contact->asked_ns = now_ns;
    membership_look(m, member);
    send_probe(m, MESSAGE_PING, member->id, contact->ping_seq, out);
    return contact->ping_seq;
}

static void on_ack(struct membership *m, struct member *member, uint64_t seq, uint64_t now_ns,
                   struct outbox *out)
{
    struct contact *contact = member->contact;
    uint64_t *sent_ns = &contact->ping_sent_ns[seq % PINGS_MAX];

    inquiry_on_answer(m, member->id, seq, true, now_ns);
    if (seq > contact->ping_seq || contact->ping_seq - seq >= PINGS_MAX || *sent_ns == 0) return;
    rtt_sample(&member->rtt, now_ns - *sent_ns);
    membership_look(m, member);
    *sent_ns = 0;
    inquiry_on_ack(m, member, seq, out);
}

enum rc membership_on_message(struct membership *m, struct peer_id from,
                              const struct message *message, uint64_t now_ns, struct outbox *out)
{
    struct member *member = book_find(&m->book, from);
    enum rc rc;

    if (member == NULL || member->contact == NULL) return RC_NOT_FOUND;
    membership_on_heard(m, from, now_ns);
    switch (message->type) {
    case MESSAGE_PING:
        rc = membership_absorb(m, from, message->as.ping.updates, message->as.ping.updates_count,
                               now_ns, NULL);
        if (rc == RC_OK && !m->is_leaving) {
            send_ack(m, member, message->as.ping.seq, now_ns, out);
        }
        return rc;
    case MESSAGE_ACK:
        on_ack(m, member, message->as.ping.seq, now_ns, out);
        return membership_absorb(m, from, message->as.ping.updates, message->as.ping.updates_count,
                                 now_ns, NULL);
    case MESSAGE_PING_REQ:
        if (m->is_leaving) return RC_OK;
        return inquiry_on_request(m, member, &message->as.ping_req, now_ns, out);
    case MESSAGE_NACK:
        inquiry_on_answer(m, from, message->as.nack.seq, false, now_ns);
        return RC_OK;
    case MESSAGE_GOSSIP:
        return membership_absorb(m, from, message->as.gossip.updates,
                                 message->as.gossip.updates_count, now_ns, NULL);
    case MESSAGE_SYNC_REQ:
        return sync_on_request(m, member, &message->as.sync_req, now_ns, out);
    case MESSAGE_SYNC:
        return sync_on_page(m, member, &message->as.sync, now_ns, out);
    case MESSAGE_ACCUSE:
        return suspect_on_words(m, member, &message->as.accuse, now_ns, out);
    case MESSAGE_PRUNE:
        view_on_pruned(m, member, message->as.prune.wait_ms, now_ns);
        return RC_OK;
    default:
        return RC_UNSUPPORTED;
    }
}

/* --- our own health -------------------------------------------------------------------------- */

void health_worse(struct membership *m, uint64_t now_ns)
{
    if (m->worse_ns > 0 && now_ns < m->worse_ns + m->period_ns) return;
    m->worse_ns = now_ns;
    if (m->health < HEALTH_MAX) m->health++;
    m->health_ns = now_ns + HEALTH_STEP_NS;
    membership_wake(m, m->health_ns);
}

/* Limits are others than they were. */
static void look_at_all(struct membership *m)
{
    for (uint32_t i = 0; i < m->linked_count; i++) {
        m->linked[i].due_ns = 0;
    }
}

/* We slept for `late_ns`: nobody's silence in that time proves anything. */
static void on_late(struct membership *m, uint64_t late_ns, uint64_t now_ns)
{
    struct member *member;

    m->worse_ns = 0;
    health_worse(m, now_ns);
    look_at_all(m);
    for (uint32_t i = 0; i < m->linked_count; i++) {
        struct contact *contact = m->linked[i].member->contact;

        contact->silent_ns += late_ns;
        if (contact->silent_ns > now_ns) contact->silent_ns = now_ns;
        contact->asked_ns += late_ns;
        if (contact->asked_ns > now_ns) contact->asked_ns = now_ns;
    }
    STAILQ_FOREACH (member, &m->suspects, in_suspects) {
        member->since_ns += late_ns;
        if (member->since_ns > now_ns) member->since_ns = now_ns;
    }
}

static void health_tick(struct membership *m, uint64_t now_ns)
{
    uint64_t late_ns = m->next_ns < now_ns ? now_ns - m->next_ns : 0;

    if (late_ns > m->options.probe_interval_ns / 2) {
        on_late(m, late_ns, now_ns);
    } else if (m->health > 0 && now_ns >= m->health_ns) {
        m->health--;
        look_at_all(m);
        m->health_ns = now_ns + HEALTH_STEP_NS;
    }
}

/* --- probes ---------------------------------------------------------------------------------- */

static int compare_u64(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

/* The rhythm follows the median round trip: near ones once a second, far ones once in three. */
static void period_tick(struct membership *m, uint64_t now_ns)
{
    uint64_t rtts[LINKS_MAX];
    uint32_t count = 0;

    if (now_ns < m->period_check_ns) return;
    m->period_check_ns = now_ns + PERIOD_CHECK_NS;
    for (uint32_t i = 0; i < m->linked_count; i++) {
        uint64_t rtt_ns = m->linked[i].member->rtt.srtt_ns;

        if (rtt_ns > 0) rtts[count++] = rtt_ns;
    }
    if (count == 0) return;
    qsort(rtts, count, sizeof(rtts[0]), compare_u64);
    if (rtts[count / 2] > RTT_WAN_NS) m->period_ns = WAN_PERIODS * m->options.probe_interval_ns;
    if (rtts[count / 2] < RTT_LAN_NS) m->period_ns = m->options.probe_interval_ns;
    look_at_all(m);
}

/* How long a link may be silent before its member is suspected. */
static uint64_t silent_limit(const struct membership *m, const struct member *member)
{
    uint64_t rtt = member->rtt.srtt_ns + 4 * member->rtt.rttvar_ns;
    uint64_t limit = 4 * m->period_ns + 8 * rtt;

    if (limit < SILENT_MIN_NS) limit = SILENT_MIN_NS;
    if (limit > SILENT_MAX_NS) limit = SILENT_MAX_NS;
    return limit * (1 + m->health);
}

uint64_t probe_timeout(const struct membership *m, const struct member *member)
{
    uint64_t limit = 4 * member->rtt.srtt_ns;

    if (limit < PING_TIMEOUT_MIN_NS) limit = PING_TIMEOUT_MIN_NS;
    return limit * (1 + m->health);
}

/* When others are to be asked for it; UINT64_MAX: it has answered all. */
static uint64_t inquire_ns(const struct membership *m, const struct member *member)
{
    const struct contact *contact = member->contact;
    uint64_t at_ns = contact->asked_ns + probe_timeout(m, member);

    if (contact->asked_ns == 0 || member->heard_ns >= contact->asked_ns) return UINT64_MAX;
    return at_ns > contact->inquire_ns ? at_ns : contact->inquire_ns;
}

static void ping_tick(struct membership *m, struct member *member, uint64_t now_ns,
                      struct outbox *out)
{
    struct contact *contact = member->contact;
    uint64_t interval = m->period_ns;
    bool is_idle = now_ns - member->heard_ns >= interval;
    bool is_measured = contact->ping_seq > 0 &&
                       contact->ping_sent_ns[contact->ping_seq % PINGS_MAX] == 0 &&
                       now_ns - contact->measured_ns < MEASURE_EVERY * interval;

    if (contact->ping_ns > now_ns + interval / PINGS_TOGETHER) return;
    contact->ping_ns = now_ns + interval;
    if (!is_idle && is_measured) {
        contact->ping_ns = member->heard_ns + interval;
        if (contact->ping_ns <= now_ns) contact->ping_ns = now_ns + interval;
        return;
    }
    (void)probe_ping(m, member, now_ns, out);
}

static void linked_tick(struct membership *m, struct member *member, uint64_t now_ns,
                        struct outbox *out)
{
    struct contact *contact = member->contact;

    if (contact->wants_hangup) return;
    if (now_ns >= contact->part_ns) {
        membership_hangup(m, member);
    } else if (member->state == MEMBER_LEFT) {
        if (now_ns >= member->since_ns + SILENT_MIN_NS) membership_hangup(m, member);
    } else if (now_ns >= contact->silent_ns + silent_limit(m, member)) {
        bool is_vouched = member->vouched_ns + 2 * m->period_ns > now_ns &&
                          member->vouched_ns > contact->silent_ns;

        if (is_vouched) {
            contact->is_parting = true; /* the path between us is broken, the member is not */
        } else {
            suspect(m, member, true, false, now_ns);
        }
        membership_hangup(m, member);
    } else {
        if (now_ns >= inquire_ns(m, member)) {
            contact->inquire_ns = now_ns + m->period_ns;
            inquiry_begin(m, member, now_ns, out);
        }
        ping_tick(m, member, now_ns, out);
    }
}

static uint64_t linked_next(const struct membership *m, const struct member *member)
{
    const struct contact *contact = member->contact;
    uint64_t next_ns = contact->part_ns, silent_ns, ask_ns;

    if (contact->wants_hangup) return UINT64_MAX;
    if (member->state == MEMBER_LEFT) { /* it hangs up itself */
        silent_ns = member->since_ns + SILENT_MIN_NS;
        return silent_ns < next_ns ? silent_ns : next_ns;
    }
    silent_ns = contact->silent_ns + silent_limit(m, member);
    ask_ns = inquire_ns(m, member);
    if (silent_ns < next_ns) next_ns = silent_ns;
    if (ask_ns < next_ns) next_ns = ask_ns;
    return contact->ping_ns < next_ns ? contact->ping_ns : next_ns;
}

/* Whoever is heard is due later than was thought, never sooner, so only the first is looked at. */
static uint64_t links_next(struct membership *m)
{
    for (;;) {
        struct linked *first = NULL;
        uint64_t next_ns;

        for (uint32_t i = 0; i < m->linked_count; i++) {
            if (first == NULL || m->linked[i].due_ns < first->due_ns) first = &m->linked[i];
        }
        if (first == NULL) return UINT64_MAX;
        next_ns = linked_next(m, first->member);
        if (next_ns == first->due_ns) return next_ns;
        first->due_ns = next_ns;
    }
}

/* Does it answer? It has been heard since it was asked last, and not long ago. */
static bool is_answering(const struct membership *m, const struct member *member, uint64_t now_ns)
{
    return member->heard_ns >= member->contact->asked_ns &&
           now_ns <= member->heard_ns + m->period_ns + PING_TIMEOUT_MIN_NS;
}

static bool is_one_of(const struct member *member, struct member *const *chosen, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (chosen[i] == member) return true;
    }
    return false;
}

static struct member *random_of(struct membership *m, struct member *const *chosen,
                                uint32_t chosen_count, const struct member *except,
                                bool must_answer, uint64_t now_ns)
{
    struct member *pick = NULL;
    uint64_t candidates = 0;

    for (uint32_t i = 0; i < m->linked_count; i++) {
        struct member *member = m->linked[i].member;

        if (member == except || is_one_of(member, chosen, chosen_count)) continue;
        if (member->state != MEMBER_ALIVE || member->contact->wants_hangup) continue;
        if (must_answer && !is_answering(m, member, now_ns)) continue;
        candidates++;
        if (rng_below(&m->rng, candidates) == 0) pick = member;
    }
    return pick;
}

struct member *probe_random(struct membership *m, struct member *const *chosen,
                            uint32_t chosen_count, const struct member *except)
{
    return random_of(m, chosen, chosen_count, except, false, 0);
}

uint32_t probe_proxies(struct membership *m, struct member *proxies[PROXIES],
                       const struct member *target, uint64_t now_ns)
{
    uint32_t count = 0;

    for (int must_answer = 1; must_answer >= 0 && count == 0; must_answer--) {
        while (count < PROXIES) {
            proxies[count] = random_of(m, proxies, count, target, must_answer, now_ns);
            if (proxies[count] == NULL) break;
            count++;
        }
    }
    return count;
}

/* --- time ------------------------------------------------------------------------------------ */

static void gossip_tick(struct membership *m, uint64_t now_ns, struct outbox *out)
{
    struct member *chosen[GOSSIP_FANOUT];
    uint32_t count = 0;

    if (m->pending_count == 0 || m->linked_count == 0 || now_ns < m->gossip_ns) return;
    m->gossip_ns = now_ns + GOSSIP_INTERVAL_NS;
    while (count < GOSSIP_FANOUT) {
        struct message message = {.type = MESSAGE_GOSSIP};
        struct member *member = probe_random(m, chosen, count, NULL);

        if (member == NULL) return;
        chosen[count++] = member;
        message.as.gossip.updates_count =
            pending_take(m, member->id, message.as.gossip.updates, GOSSIP_UPDATES_MAX);
        if (message.as.gossip.updates_count > 0) outbox_add(out, member->id, &message);
        send_words(m, member->id, ACCUSATIONS_MAX, out);
    }
}

static void forget_tick(struct membership *m, uint64_t now_ns)
{
    for (uint32_t i = m->book.count; i > 0; i--) {
        struct member *member = m->book.entries[i - 1].member;

        if (member->contact != NULL || now_ns - member->since_ns < DEAD_FORGOTTEN_NS) continue;
        if (member->state == MEMBER_DEAD || member->state == MEMBER_LEFT) book_remove(m, member);
    }
}

static void plan(struct membership *m, uint64_t now_ns)
{
    struct member *member;

    m->next_ns = m->heal_ns < m->sync_ns ? m->heal_ns : m->sync_ns;
    if (m->pending_count > 0 && m->linked_count > 0) membership_wake(m, m->gossip_ns);
    if (m->health > 0) membership_wake(m, m->health_ns);
    membership_wake(m, m->refute_at_ns);
    membership_wake(m, inquiry_next(m));
    membership_wake(m, view_next(m));
    membership_wake(m, links_next(m));
    STAILQ_FOREACH (member, &m->suspects, in_suspects) {
        membership_wake(m, suspect_next(m, member));
    }
    /* One suspect's end may have brought another's forward. */
    if (m->next_ns <= now_ns) m->next_ns = now_ns + 1;
}

void membership_tick(struct membership *m, uint64_t now_ns, struct outbox *out)
{
    struct member *member, *next;

    m->tick_ns = now_ns;
    if (m->is_leaving || now_ns < m->next_ns) return;
    health_tick(m, now_ns);
    dialler_expire(m, now_ns);
    period_tick(m, now_ns);
    inquiry_tick(m, now_ns, out);
    for (uint32_t i = 0; i < m->linked_count; i++) { /* pings near in time share a tick */
        if (m->linked[i].due_ns > now_ns + m->period_ns / PINGS_TOGETHER) continue;
        linked_tick(m, m->linked[i].member, now_ns, out);
        m->linked[i].due_ns = 0;
    }
    for (member = STAILQ_FIRST(&m->suspects); member != NULL; member = next) {
        next = STAILQ_NEXT(member, in_suspects);
        suspect_tick(m, member, now_ns, out);
    }
    if (now_ns >= m->refute_at_ns) {
        m->refute_at_ns = UINT64_MAX;
        (void)membership_refute(m, m->options.incarnation, now_ns);
    }
    view_tick(m, now_ns, out);
    gossip_tick(m, now_ns, out);
    sync_tick(m, now_ns, out);
    if (now_ns >= m->heal_ns) {
        forget_tick(m, now_ns);
        dialler_heal(m, now_ns);
    }
    plan(m, now_ns);
}

uint64_t membership_next_ns(const struct membership *m)
{
    if (m->is_leaving) return UINT64_MAX;
    return m->next_ns < m->dialler.next_ns ? m->next_ns : m->dialler.next_ns;
}
