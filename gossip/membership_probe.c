/*
 * The clockwork of a membership: probes on idle links, silence and suspicion, rounds of gossip and
 * of anti-entropy, and the messages these exchange. See membership.c for the whole. Loop thread.
 */
#include "gossip/membership_internal.h"

#include "base/check.h"

enum { GOSSIP_FANOUT = 3, HEALTH_MAX = 7, SYNC_PAGES_PER_S = 160, MEASURE_EVERY = 5 };

#define GOSSIP_INTERVAL    (200 * NS_PER_MS)
#define SYNC_MAX           (30 * NS_PER_S)
#define SILENT_MIN         (3 * NS_PER_S)
#define SILENT_MAX         (20 * NS_PER_S) /* before the health factor */
#define SUSPECT_REFUSED    (2 * NS_PER_S)  /* dead after this if a dial failed meanwhile ... */
#define SUSPECT_UNANSWERED (6 * NS_PER_S)  /* ... and after this if none has ended */
#define HEALTH_RECOVERS    (10 * NS_PER_S) /* for one step of punctuality regained */
#define FORGET_AFTER       (24 * 3600 * NS_PER_S)

/* --- messages -------------------------------------------------------------------------------- */

static void send_probe(struct membership *m, enum message_type type, struct peer_id to,
                       uint64_t seq, struct outbox *out)
{
    struct message message = {.type = type};

    message.as.ping.seq = seq;
    message.as.ping.updates_count = pending_take(m, to, message.as.ping.updates, PING_UPDATES_MAX);
    outbox_add(out, to, &message);
}

/* Records worth giving away: not those of the dead, or they would never be forgotten; but a member
 * may always see what is said about itself. */
static bool is_shared(const struct member *member, struct peer_id with)
{
    if (member->bytes_count == 0) return false;
    if (peer_id_is_equal(member->id, with)) return true;
    return !member->has_left && member->state != MEMBER_DEAD && member->state != MEMBER_LEFT;
}

/* Each second of a link serves so many pages: more than a book has, less than a flood. */
static bool may_serve(struct member *member, uint64_t now_ns)
{
    if (now_ns - member->serve_ns >= NS_PER_S) {
        member->serve_ns = now_ns;
        member->served = 0;
    }
    return member->served++ < SYNC_PAGES_PER_S;
}

static void send_page(struct membership *m, struct member *to, uint32_t page, struct outbox *out)
{
    struct message message = {.type = MESSAGE_SYNC};
    struct message_sync *sync = &message.as.sync;
    uint64_t first = (uint64_t)page * SYNC_RECORDS_MAX;
    uint32_t shared = 0;

    for (uint32_t i = 0; i <= m->book.count; i++) { /* our own record, then the book's */
        const struct member *member = i == 0 ? &m->self : m->book.members[i - 1];

        if (!is_shared(member, to->id)) continue;
        if (shared >= first && shared < first + SYNC_RECORDS_MAX) {
            sync->records[sync->records_count].bytes = member->bytes;
            sync->records[sync->records_count].bytes_count = (uint16_t)member->bytes_count;
            sync->records_count++;
        }
        shared++;
    }
    sync->page = page;
    sync->pages = (shared + SYNC_RECORDS_MAX - 1) / SYNC_RECORDS_MAX;
    if (page < sync->pages) outbox_add(out, to->id, &message);
}

static enum rc on_page(struct membership *m, struct member *from, const struct message_sync *sync,
                       uint64_t now_ns, struct outbox *out)
{
    uint32_t pages_max = MEMBERS_MAX / SYNC_RECORDS_MAX + 1;
    bool is_asked = sync->page == from->sync_page;
    enum rc rc;

    if (sync->page >= sync->pages || sync->pages > pages_max) return RC_FORMAT;
    rc = membership_absorb(m, from->id, sync->records, sync->records_count, now_ns);
    if (rc == RC_OK && is_asked && sync->page + 1 < sync->pages) {
        membership_ask_page(from, sync->page + 1, out);
    }
    return rc;
}

static void on_ack(struct member *member, uint64_t seq, uint64_t now_ns)
{
    uint64_t *sent_ns = &member->ping_sent_ns[seq % PINGS_MAX];

    if (seq > member->ping_seq || member->ping_seq - seq >= PINGS_MAX || *sent_ns == 0) return;
    rtt_sample(&member->rtt, now_ns - *sent_ns);
    *sent_ns = 0;
}

enum rc membership_on_message(struct membership *m, struct peer_id from,
                              const struct message *message, uint64_t now_ns, struct outbox *out)
{
    struct member *member = book_find(&m->book, from);
    enum rc rc = RC_OK;

    if (member == NULL || !member->is_linked) return RC_NOT_FOUND;
    membership_on_heard(m, from, now_ns);
    switch (message->type) {
    case MESSAGE_PING:
        rc = membership_absorb(m, from, message->as.ping.updates, message->as.ping.updates_count,
                               now_ns);
        if (rc == RC_OK && !m->is_leaving) {
            send_probe(m, MESSAGE_ACK, from, message->as.ping.seq, out);
        }
        return rc;
    case MESSAGE_ACK:
        on_ack(member, message->as.ping.seq, now_ns);
        return membership_absorb(m, from, message->as.ping.updates, message->as.ping.updates_count,
                                 now_ns);
    case MESSAGE_GOSSIP:
        return membership_absorb(m, from, message->as.gossip.updates,
                                 message->as.gossip.updates_count, now_ns);
    case MESSAGE_SYNC_REQ:
        if (!may_serve(member, now_ns)) return RC_LIMIT;
        send_page(m, member, message->as.sync_req.page, out);
        return RC_OK;
    case MESSAGE_SYNC:
        return on_page(m, member, &message->as.sync, now_ns, out);
    default:
        return RC_UNSUPPORTED;
    }
}

/* --- time ------------------------------------------------------------------------------------ */

/* How long a link may be silent before its member is suspected. */
static uint64_t silent_limit(const struct membership *m, const struct member *member)
{
    uint64_t rtt = member->rtt.srtt_ns + 4 * member->rtt.rttvar_ns;
    uint64_t limit = 4 * m->options.probe_interval_ns + 8 * rtt;

    if (limit < SILENT_MIN) limit = SILENT_MIN;
    if (limit > SILENT_MAX) limit = SILENT_MAX;
    return limit * (1 + m->health);
}

uint64_t membership_dead_ns(const struct membership *m, const struct member *member)
{
    uint64_t wait = member->failures > 0 ? SUSPECT_REFUSED : SUSPECT_UNANSWERED;

    return member->since_ns + wait * (1 + m->health);
}

/* We slept for `late_ns`: nobody's silence in that time proves anything. */
static void on_late(struct membership *m, uint64_t late_ns, uint64_t now_ns)
{
    if (m->health < HEALTH_MAX) m->health++;
    m->health_ns = now_ns + HEALTH_RECOVERS;
    for (uint32_t i = 0; i < m->book.count; i++) {
        struct member *member = m->book.members[i];

        if (member->is_linked) {
            member->silent_ns += late_ns;
            if (member->silent_ns > now_ns) member->silent_ns = now_ns;
        } else if (member->state == MEMBER_SUSPECT) {
            member->since_ns += late_ns;
            if (member->since_ns > now_ns) member->since_ns = now_ns;
        }
    }
}

static void health_tick(struct membership *m, uint64_t now_ns)
{
    uint64_t late_ns = m->next_ns < now_ns ? now_ns - m->next_ns : 0;

    if (late_ns > m->options.probe_interval_ns / 2) {
        on_late(m, late_ns, now_ns);
    } else if (m->health > 0 && now_ns >= m->health_ns) {
        m->health--;
        m->health_ns = now_ns + HEALTH_RECOVERS;
    }
}

static void ping_tick(struct membership *m, struct member *member, uint64_t now_ns,
                      struct outbox *out)
{
    uint64_t interval = m->options.probe_interval_ns;
    bool is_idle = now_ns - member->heard_ns >= interval;
    bool is_measured = member->ping_seq > 0 &&
                       member->ping_sent_ns[member->ping_seq % PINGS_MAX] == 0 &&
                       now_ns - member->measured_ns < MEASURE_EVERY * interval;

    if (member->ping_ns > now_ns + interval / 16) return; /* pings near in time share a tick */
    member->ping_ns = now_ns + interval;
    if (!is_idle && is_measured) {
        member->ping_ns = member->heard_ns + interval;
        if (member->ping_ns <= now_ns) member->ping_ns = now_ns + interval;
        return;
    }
    member->ping_seq++;
    member->ping_sent_ns[member->ping_seq % PINGS_MAX] = now_ns;
    member->measured_ns = now_ns;
    send_probe(m, MESSAGE_PING, member->id, member->ping_seq, out);
}

static void member_tick(struct membership *m, struct member *member, uint64_t now_ns,
                        struct outbox *out)
{
    if (member->is_linked && member->state == MEMBER_ALIVE) {
        if (now_ns >= member->silent_ns + silent_limit(m, member)) {
            membership_become(m, member, MEMBER_SUSPECT, now_ns);
            member->wants_hangup = true;
            m->hangups_count++;
            return;
        }
        ping_tick(m, member, now_ns, out);
    } else if (member->is_linked && member->state == MEMBER_LEFT && !member->wants_hangup) {
        if (now_ns < member->since_ns + SILENT_MIN) return; /* it hangs up itself, as a rule */
        member->wants_hangup = true;
        m->hangups_count++;
    } else if (!member->is_linked && member->state == MEMBER_SUSPECT) {
        if (now_ns >= membership_dead_ns(m, member))
            membership_become(m, member, MEMBER_DEAD, now_ns);
    }
}

static uint64_t member_next(const struct membership *m, const struct member *member)
{
    uint64_t silent_ns;

    if (member->is_linked && member->state == MEMBER_ALIVE) {
        silent_ns = member->silent_ns + silent_limit(m, member);
        return member->ping_ns < silent_ns ? member->ping_ns : silent_ns;
    }
    if (member->is_linked && member->state == MEMBER_LEFT && !member->wants_hangup) {
        return member->since_ns + SILENT_MIN;
    }
    if (!member->is_linked && member->state == MEMBER_SUSPECT) return membership_dead_ns(m, member);
    return UINT64_MAX;
}

/* A random linked member among those not chosen yet; NULL: none is left. */
static struct member *random_linked(struct membership *m, struct member *const *chosen,
                                    uint32_t chosen_count)
{
    struct member *pick = NULL;
    uint64_t candidates = 0;

    for (uint32_t i = 0; i < m->book.count; i++) {
        struct member *member = m->book.members[i];
        bool is_chosen = false;

        for (uint32_t k = 0; k < chosen_count; k++) {
            is_chosen = is_chosen || chosen[k] == member;
        }
        if (is_chosen || member->state != MEMBER_ALIVE) continue;
        candidates++;
        if (rng_below(&m->rng, candidates) == 0) pick = member;
    }
    return pick;
}

static void gossip_tick(struct membership *m, uint64_t now_ns, struct outbox *out)
{
    struct member *chosen[GOSSIP_FANOUT];
    uint32_t count = 0;

    if (m->pending_count == 0 || m->linked_count == 0 || now_ns < m->gossip_ns) return;
    m->gossip_ns = now_ns + GOSSIP_INTERVAL;
    while (count < GOSSIP_FANOUT) {
        struct message message = {.type = MESSAGE_GOSSIP};
        struct member *member = random_linked(m, chosen, count);

        if (member == NULL) return;
        chosen[count++] = member;
        message.as.gossip.updates_count =
            pending_take(m, member->id, message.as.gossip.updates, GOSSIP_UPDATES_MAX);
        if (message.as.gossip.updates_count > 0) outbox_add(out, member->id, &message);
    }
}

static void sync_tick(struct membership *m, uint64_t now_ns, struct outbox *out)
{
    struct member *member;

    if (now_ns < m->sync_ns) return;
    member = random_linked(m, NULL, 0);
    if (member != NULL) membership_ask_page(member, 0, out);
    m->sync_ns = now_ns + membership_jitter(m, m->sync_interval_ns);
    if (m->sync_interval_ns < SYNC_MAX) m->sync_interval_ns *= 2;
    if (m->sync_interval_ns > SYNC_MAX) m->sync_interval_ns = SYNC_MAX;
}

static void forget_tick(struct membership *m, uint64_t now_ns)
{
    for (uint32_t i = m->book.count; i > 0; i--) {
        struct member *member = m->book.members[i - 1];

        if (member->is_linked || now_ns - member->since_ns < FORGET_AFTER) continue;
        if (member->state == MEMBER_DEAD || member->state == MEMBER_LEFT) book_remove(m, member);
    }
}

void membership_tick(struct membership *m, uint64_t now_ns, struct outbox *out)
{
    if (m->is_leaving) return;
    m->tick_ns = now_ns;
    health_tick(m, now_ns);
    dialler_expire(m, now_ns);
    for (uint32_t i = 0; i < m->book.count; i++) {
        member_tick(m, m->book.members[i], now_ns, out);
    }
    gossip_tick(m, now_ns, out);
    sync_tick(m, now_ns, out);
    if (now_ns >= m->heal_ns) {
        forget_tick(m, now_ns);
        dialler_heal(m, now_ns);
    }
    m->next_ns = m->heal_ns < m->sync_ns ? m->heal_ns : m->sync_ns;
    if (m->pending_count > 0 && m->linked_count > 0) membership_wake(m, m->gossip_ns);
    if (m->health > 0) membership_wake(m, m->health_ns);
    for (uint32_t i = 0; i < m->book.count; i++) {
        membership_wake(m, member_next(m, m->book.members[i]));
    }
}

uint64_t membership_next_ns(const struct membership *m)
{
    if (m->is_leaving) return UINT64_MAX;
    return m->next_ns < m->dialler.next_ns ? m->next_ns : m->dialler.next_ns;
}
