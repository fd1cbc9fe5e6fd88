/*
 * Links: handshake and records over env connections.
 *
 *  dialled:   DIALING --connected--> GREETING --H2 fine, H3 sent--> PROVING --HELLO_OK--> OPEN
 *  accepted:  GREETING --gate, H1 fine, H2 sent--> PROVING --H3 fine, HELLO_OK sent------> OPEN
 *  any state --lost, refused, deadline, hang-up--> GONE (freed at the end of the event)
 *
 * A stranger costs a slot and 72 bytes until the gate MAC holds; every state before OPEN has a
 * deadline. This file holds the table and its deadlines; see handshake.c and send.c.
 *
 * Loop thread. Events from the env come in through links_on_*(); nothing here blocks.
 */
#include "peer/link/internal.h"

#include "base/check.h"
#include "base/mem.h"

#include <stdio.h>

#define TO(state) (1u << LINK_##state)
static const unsigned may_become[LINK_GONE + 1] = {
    [LINK_DIALING] = TO(GREETING) | TO(GONE),
    [LINK_GREETING] = TO(PROVING) | TO(GONE),
    [LINK_PROVING] = TO(OPEN) | TO(GONE),
    [LINK_OPEN] = TO(GONE),
    [LINK_GONE] = 0,
};

void link_become(struct link *link, enum link_state next)
{
    CHECK((may_become[link->state] & (1u << next)) != 0);
    link->state = next;
}

uint64_t link_now(const struct links *links)
{
    return links->options.env->ops->now_ns(links->options.env);
}

void link_name(const struct links *links, const struct link *link, uint64_t number)
{
    struct env *env = links->options.env;

    if (env->ops->link_set_partner != NULL) env->ops->link_set_partner(env, number, link->peer);
}

struct links *links_create(const struct links_options *options, const struct links_events *events)
{
    struct links *links = mem_alloc(sizeof *links);
    uint8_t seed[SECRET_BYTES];

    if (links == NULL) return NULL;
    links->options = *options;
    links->events = *events;
    links->options.hello.suites = secure_suites() | (options->is_clear ? (uint32_t)SUITE_CLEAR : 0);
    if (links->options.quick_bytes == 0) links->options.quick_bytes = LINK_QUICK_BYTES;
    if (links->options.rekey.ns == 0) links->options.rekey.ns = LINK_REKEY_NS;
    if (links->options.rekey.bytes == 0) links->options.rekey.bytes = LINK_REKEY_BYTES;
    if (links->options.rekey.records == 0) links->options.rekey.records = LINK_REKEY_RECORDS;
    links->self = identity_peer_id(options->identity->public_key);
    TAILQ_INIT(&links->all);
    TAILQ_INIT(&links->bulks);
    TAILQ_INIT(&links->bulks_gone);
    TAILQ_INIT(&links->seals);
    options->env->ops->entropy(options->env, seed, sizeof seed);
    static_key_from_seed(seed, &links->key);
    mem_wipe(seed, sizeof seed);
    mem_lock(&links->key, sizeof links->key);
    hello_sign(&links->options.hello, options->identity, options->swarm->run_id,
               links->key.public_key, links->hello_signature);
    links->gate = gate_create();
    if (links->gate != NULL) return links;
    mem_wipe(&links->key, sizeof links->key);
    mem_free(links);
    return NULL;
}

/* A duel may be over with the end of any link. */
static void touch_duels(struct links *links)
{
    struct link *link;

    TAILQ_FOREACH (link, &links->all, siblings) {
        if (link->duel_seq != 0) link_touch(links, link);
    }
}

static void link_free(struct links *links, struct link *link)
{
    bulks_end(links, link);
    touch_duels(links);
    if (!link->is_dialled) gate_leave(links->gate, link->number, false, link_now(links));
    link_set_current(links, link, false);
    if (link->is_touched) LIST_REMOVE(link, in_touched);
    TAILQ_REMOVE(&links->all, link, siblings);
    LIST_REMOVE(link, in_bucket);
    links->count--;
    link_queues_free(link);
    secure_destroy(link->secure);
    mem_free(link);
}

void links_destroy(struct links *links)
{
    struct link *link;

    if (links == NULL) return;
    while ((link = TAILQ_FIRST(&links->all)) != NULL) {
        links->options.env->ops->hangup(links->options.env, link->number);
        link_free(links, link);
    }
    links_seals_clear(links);
    mem_wipe(&links->key, sizeof links->key);
    gate_destroy(links->gate);
    aes_gcm_destroy(links->aes);
    mem_free(links);
}

struct link *link_find(const struct links *links, uint64_t number)
{
    struct link *link;

    LIST_FOREACH (link, &links->buckets[number % LINK_BUCKETS], in_bucket) {
        if (link->number == number) return link;
    }
    return NULL;
}

struct link *link_find_peer(const struct links *links, struct peer_id peer)
{
    struct link *link;

    LIST_FOREACH (link, &links->peers[peer.bytes[0] % LINK_BUCKETS], in_peers) {
        if (peer_id_is_equal(link->peer, peer)) return link;
    }
    return NULL;
}

void link_touch(struct links *links, struct link *link)
{
    if (link->is_touched) return;
    link->is_touched = true;
    LIST_INSERT_HEAD(&links->touched, link, in_touched);
}

void link_set_current(struct links *links, struct link *link, bool is_current)
{
    uint32_t *count = link->remote.role == HELLO_OBSERVER ? &links->current_observers
                                                          : &links->current_neighbours;

    if (link->is_current == is_current) return;
    link_touch(links, link);
    link->is_current = is_current;
    *count = is_current ? *count + 1 : *count - 1;
    if (is_current) {
        LIST_INSERT_HEAD(&links->peers[link->peer.bytes[0] % LINK_BUCKETS], link, in_peers);
    } else {
        LIST_REMOVE(link, in_peers);
    }
}

/* Take it out of the table; the caller tells whom it concerns. */
void link_retire(struct links *links, struct link *link)
{
    link_become(link, LINK_GONE);
    link_free(links, link);
}

/* The end of a link for a reason: tell the node what it needs to know, once. */
void link_end(struct links *links, struct link *link, enum rc rc, const char *why,
              const struct peer_id *peer)
{
    struct peer_id id = link->peer;
    bool was_current = link->is_current;
    bool was_dial = link->is_dialled && link->state != LINK_OPEN;
    char address[ADDRESS_BYTES_MAX];

    if (link->probe != 0) {
        link_probe_end(links, link, rc == RC_OK ? RC_CLOSED : rc);
        return;
    }
    memcpy(address, link->address, sizeof address);
    if (!link->is_dialled && link->state != LINK_OPEN) links->counts.handshakes_refused++;
    link_retire(links, link);
    if (was_current) links->events.on_closed(links->events.context, id, rc, why);
    if (was_dial) links->events.on_dial_failed(links->events.context, address, rc, why, peer);
}

void link_hangup(struct links *links, struct link *link, enum rc rc, const char *why)
{
    links->options.env->ops->hangup(links->options.env, link->number);
    link_end(links, link, rc, why, NULL);
}

static struct link *link_add(struct links *links, uint64_t number, const char *address,
                             bool is_dialled)
{
    struct link *link;

    if (links->count >= CONNECTIONS_MAX) return NULL;
    link = mem_alloc(sizeof *link);
    if (link == NULL) return NULL;
    link->number = number;
    link->is_dialled = is_dialled;
    link->retry_ns = link->cut_ns = UINT64_MAX;
    link->state = is_dialled ? LINK_DIALING : LINK_GREETING;
    link->deadline_ns = link_now(links) + (is_dialled ? LINK_HANDSHAKE_NS : LINK_GATE_NS);
    snprintf(link->address, sizeof link->address, "%s", address);
    TAILQ_INIT(&link->bulks);
    TAILQ_INSERT_TAIL(&links->all, link, siblings);
    LIST_INSERT_HEAD(&links->buckets[number % LINK_BUCKETS], link, in_bucket);
    links->count++;
    link_touch(links, link);
    return link;
}

void link_cut(struct links *links, struct link *link)
{
    link_touch(links, link);
    if (link->cut_ns == UINT64_MAX) link->cut_ns = link_now(links) + LINK_CUT_NS;
}

void link_violated(struct links *links, const struct link *link)
{
    if (link->is_current && links->events.on_violation != NULL) {
        links->events.on_violation(links->events.context, link->peer);
    }
}

static void tell_bad_record(struct links *links, const struct link *link, enum rc rc)
{
    char line[ADDRESS_BYTES_MAX + 96];

    snprintf(line, sizeof line, "%s sent a bad record: %s", link->address, rc_text(rc));
    link_tell(links, LOG_WARN, line);
}

void bulk_refused(struct links *links, struct bulk *bulk, enum rc rc)
{
    struct link *link = bulk->link;

    links->counts.frames_refused++;
    tell_bad_record(links, link, rc);
    link_hangup(links, link, rc, "it sent a bad record");
}

void link_evict(struct links *links, uint64_t number)
{
    struct link *link = number == 0 ? NULL : link_find(links, number);

    if (link != NULL) link_hangup(links, link, RC_LIMIT, "too many strangers");
}

void links_on_accepted(struct links *links, uint64_t number, const char *remote)
{
    uint64_t evicted = gate_enter(links->gate, number, remote, link_now(links));

    link_evict(links, evicted);
    if (link_add(links, number, remote, false) == NULL) {
        gate_leave(links->gate, number, false, link_now(links));
        links->options.env->ops->hangup(links->options.env, number);
    }
}

MUST_USE enum rc links_dial(struct links *links, const char *address)
{
    uint64_t number;
    enum rc rc;

    if (links->count >= CONNECTIONS_MAX || links_are_full(links)) return RC_LIMIT;
    rc = links->options.env->ops->dial(links->options.env, address, &number);
    if (rc != RC_OK) return rc;
    if (link_add(links, number, address, true) == NULL) {
        links->options.env->ops->hangup(links->options.env, number);
        return RC_NOMEM;
    }
    return RC_OK;
}

/* ---- records ---- */

void link_heard(const struct links *links, struct peer_id peer)
{
    if (links->events.on_heard != NULL) links->events.on_heard(links->events.context, peer);
}

void link_data(const struct links *links, struct peer_id peer, const struct inner_header *header,
               const uint8_t *body, size_t count)
{
    if (links->events.on_data == NULL) return;
    links->events.on_data(links->events.context, peer, header, body, count);
}

/* An observer that asks such is not idle; questions after the status are counted (observer.c). */
static bool is_question(uint8_t type)
{
    return type == MESSAGE_PROBE || type == MESSAGE_STATE_REQ || type == MESSAGE_MANIFEST_REQ ||
           type == MESSAGE_BUCKET_REQ;
}

static void record_frame(struct links *links, struct link *link, uint8_t *frame, size_t count)
{
    struct inner_header header;
    struct message message;
    const uint8_t *inner;
    struct peer_id peer = link->peer;
    uint64_t number = link->number;
    size_t inner_count;
    enum rc rc = secure_open(link->secure, frame, count, &inner, &inner_count);
    bool is_its_own = rc == RC_OK; /* else anybody on the path may have sent it */

    if (rc == RC_OK) rc = inner_header_decode(inner, inner_count, &header);
    if (rc == RC_OK && header.type != MESSAGE_DATA) {
        rc = inner_count > CONTROL_BYTES_MAX
                 ? RC_LIMIT
                 : message_decode((enum message_type)header.type, inner + INNER_HEADER_BYTES,
                                  inner_count - INNER_HEADER_BYTES, &message);
    }
    if (rc != RC_OK) {
        links->counts.frames_refused++;
        tell_bad_record(links, link, rc);
        if (is_its_own) link_violated(links, link);
        link_hangup(links, link, rc, "it sent a bad record");
        return;
    }
    if (link->state == LINK_PROVING) {
        if (header.type == MESSAGE_DATA) {
            link_hangup(links, link, RC_FORMAT, "the other side broke the protocol");
        } else {
            link_on_answer(links, link, &message);
        }
        return;
    }
    link->control_received++;
    link_heard(links, peer);
    link = link_find(links, number);
    if (link == NULL) return;
    link_touch(links, link);
    if (is_question(header.type)) link->asked_ns = link_now(links);
    if (header.type == MESSAGE_DATA) {
        link_data(links, peer, &header, inner + INNER_HEADER_BYTES,
                  inner_count - INNER_HEADER_BYTES);
        bulks_release(links, number);
        return;
    }
    if (message.type == MESSAGE_ACK && link_duel_heard(links, link, message.as.ping.seq)) {
        ; /* it was ours, not membership's */
    } else if (message.type == MESSAGE_STATUS_REQ && !link_may_ask(links, link)) {
        ; /* it asks too often: no answer */
    } else if (message.type == MESSAGE_OPEN_REQ) {
        bulk_on_asked(links, link, (uint32_t)message.as.open_req.count);
    } else if (message.type == MESSAGE_REKEY || message.type == MESSAGE_REKEY_ACK) {
        link_on_rekey(links, link, &message);
    } else {
        links->events.on_message(links->events.context, peer, &message);
    }
    bulks_release(links, number);
}

void links_on_frame(struct links *links, uint64_t number, uint8_t *frame, size_t count)
{
    struct link *link = link_find(links, number);
    struct bulk *bulk = link == NULL ? bulk_find(links, number) : NULL;

    if (bulk != NULL) bulk_on_frame(links, bulk, frame, count);
    if (link == NULL) return; /* or hung up a moment ago */
    link_touch(links, link);
    link->is_used = true;
    link->bytes_received += count;
    links->counts.bytes_received += count;
    if (link->secure != NULL && secure_session(link->secure)->state == SECURE_OPEN) {
        record_frame(links, link, frame, count);
    } else {
        link_on_handshake(links, link, frame, count);
    }
}

void links_on_lost(struct links *links, uint64_t number, enum rc rc, const char *why)
{
    struct link *link = link_find(links, number);
    struct bulk *bulk = link == NULL ? bulk_find(links, number) : NULL;
    char text[ADDRESS_BYTES_MAX + 160];

    if (bulk != NULL) bulk_on_lost(links, bulk);
    if (link == NULL) return;
    /* Refused after all: by what was to carry the connection, see --dial-command. */
    if (link->state == LINK_DIALING || rc == RC_REFUSED) {
        snprintf(text, sizeof text, "%s cannot be reached: %s", link->address, why);
        rc = RC_IO; /* it may be there later */
    } else if (link->state == LINK_OPEN) {
        snprintf(text, sizeof text, "%s", why);
    } else if (rc == RC_FORMAT || rc == RC_LIMIT) {
        snprintf(text, sizeof text, "%s answers, but is not a grapevine peer", link->address);
        rc = RC_AUTH;
    } else {
        snprintf(text, sizeof text,
                 "%s closed the handshake: another --swarm-name, a wrong --swarm-key, or not a "
                 "grapevine peer",
                 link->address);
        rc = RC_AUTH;
    }
    link_end(links, link, rc, text, NULL);
}

/* ---- the rest ---- */

bool links_peer(const struct links *links, struct peer_id peer, struct link_view *view)
{
    const struct link *link = link_find_peer(links, peer);

    if (view == NULL) return link != NULL;
    *view = (struct link_view){0};
    if (link == NULL) return false;
    view->remote = &link->remote;
    view->boot = link->remote.boot;
    view->bulk_queued = link_queued(link);
    view->bytes_sent = link->bytes_sent;
    view->bytes_received = link->bytes_received;
    (void)rate_meter_read(&link->meter, link_now(links), &view->rate, &view->is_rate_least);
    return true;
}

void links_hangup(struct links *links, struct peer_id peer, const char *why)
{
    struct link *link = link_find_peer(links, peer);

    if (link == NULL) return;
    link_touch(links, link);
    link->is_closing = true; /* ends in links_tick(), not inside this call */
    link->closing_why = why;
}

static void link_expired(struct links *links, struct link *link)
{
    char text[ADDRESS_BYTES_MAX + 96];

    snprintf(text, sizeof text, "%s %s", link->address,
             link->state == LINK_DIALING
                 ? "cannot be reached: no answer"
                 : "accepted the connection but did not answer the handshake in 5 s: not a "
                   "grapevine peer?");
    link_hangup(links, link, link->state == LINK_DIALING ? RC_TIMEOUT : RC_AUTH, text);
}

/* When to try again to send what waits. */
static uint64_t resume_ns(const struct link *link)
{
    uint64_t asked_ns = link->bulk_asked_ns + LINK_ATTACH_NS;

    if (!link->is_bulk_asked || link_queued(link) == 0) return link->retry_ns;
    return asked_ns < link->retry_ns ? asked_ns : link->retry_ns;
}

/* When this one has something to do, if nothing happens to it. */
static uint64_t link_next_ns(const struct links *links, const struct link *link, uint64_t now_ns)
{
    uint64_t next = resume_ns(link), rekey_ns = link_rekey_next_ns(links, link, now_ns);
    uint64_t bulks_ns = bulks_next_ns(link);

    if (link->is_closing || link->wants_spread) return 0;
    if (link->state < LINK_OPEN && link->deadline_ns < next) next = link->deadline_ns;
    if (link->cut_ns < next) next = link->cut_ns;
    if (bulks_ns < next) next = bulks_ns;
    if (link_observer_ends_ns(link) < next) next = link_observer_ends_ns(link);
    return rekey_ns < next ? rekey_ns : next;
}

/* False: it ended, and others may have ended with it. */
static bool link_tick(struct links *links, struct link *link, uint64_t now_ns)
{
    if (link->is_closing) {
        link_hangup(links, link, RC_CLOSED,
                    link->closing_why != NULL ? link->closing_why : "closed by this peer");
    } else if (now_ns >= link->cut_ns) {
        link_hangup(links, link, RC_CLOSED, "its bulk connection was lost");
    } else if (now_ns >= link_observer_ends_ns(link)) {
        link_hangup(links, link, RC_TIMEOUT, "it asked nothing for a while");
    } else if (link_duel_is_won(links, link, now_ns)) {
        link_duel_win(links, link);
    } else if (link->state < LINK_OPEN && now_ns >= link->deadline_ns) {
        link_expired(links, link);
    } else {
        return true;
    }
    return false;
}

static void touch_all(struct links *links)
{
    struct link *link;

    TAILQ_FOREACH (link, &links->all, siblings) {
        link_touch(links, link);
    }
    links->due_ns = UINT64_MAX; /* until each of them has been looked at */
}

/* In the order in which they were touched. */
static void take_turn(struct links *links, struct links_touched *turn)
{
    struct link *link;

    LIST_INIT(turn);
    while ((link = LIST_FIRST(&links->touched)) != NULL) {
        LIST_REMOVE(link, in_touched);
        LIST_INSERT_HEAD(turn, link, in_touched);
    }
}

/* Most links rest most of the time: after an event only those are looked at that it may have
 * concerned, all of them when one is due. */
void links_tick(struct links *links, uint64_t now_ns)
{
    struct links_touched turn; /* what is touched meanwhile waits for the next tick */
    struct link *link;
    bool has_ended;

    if (now_ns >= links->due_ns) touch_all(links);
    do { /* what ends may have concerned others */
        has_ended = false;
        take_turn(links, &turn);
        while ((link = LIST_FIRST(&turn)) != NULL) {
            uint64_t next_ns;

            LIST_REMOVE(link, in_touched);
            link->is_touched = false;
            if (!link_tick(links, link, now_ns)) {
                has_ended = true;
                continue;
            }
            if (now_ns >= resume_ns(link)) link_resume(links, link);
            if (link->wants_spread) bulk_spread(links, link);
            link_rekey_tick(links, link, now_ns);
            bulks_tick(links, link, now_ns);
            next_ns = link_next_ns(links, link, now_ns);
            if (next_ns < links->due_ns) links->due_ns = next_ns;
        }
    } while (has_ended);
}

uint64_t links_next_ns(const struct links *links)
{
    uint64_t next = links->due_ns, now_ns = link_now(links);
    const struct link *link;

    LIST_FOREACH (link, &links->touched, in_touched) {
        uint64_t due_ns = link_next_ns(links, link, now_ns);

        if (due_ns < next) next = due_ns;
    }
    return next;
}

void links_counts(const struct links *links, struct links_counts *counts)
{
    *counts = links->counts;
    gate_counts(links->gate, &counts->gate);
}

uint32_t links_jobs(const struct links *links)
{
    return links->jobs_count;
}

bool links_rate(const struct links *links, uint64_t *rate, bool *is_least)
{
    return rate_meter_read(&links->meter, link_now(links), rate, is_least);
}
