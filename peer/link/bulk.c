/*
 * Bulk connections: DATA of a link travels beside its control connection, so that a ping never
 * waits behind a chunk. They belong to the session of the control connection (ATTACH, see
 * gossip/secure/attach.h), are opened when there is DATA, by the side that dialled the session, and
 * end with it.
 *
 *  dialled:   DIALING --connected, ATTACH--> ATTACHING --ATTACH_OK--> OPEN
 *  accepted:                                     ATTACH, ATTACH_OK--> OPEN
 *  OPEN --idle for a minute, or of an old epoch: FIN--> LEAVING --their FIN--> gone   (dialler)
 *  OPEN --their FIN, all of ours is out: FIN--> LEFT --closed--> gone                 (other side)
 *  OPEN --idle for three minutes: closed; the link ends--> gone                       (other side)
 *
 * Only the dialler begins to leave (if it never does, it holds a place on purpose), and closes when
 * the other side's FIN is there: then nothing is under way in either direction. A connection that
 * ends otherwise may have swallowed DATA; the control connection follows it after a moment, in
 * which a farewell may still be read.
 *
 * Where no bulk connection can be had, DATA goes over the control connection, and it is tried again
 * later. An epoch of the session has bulk connections of its own: those of the last one leave. One
 * is enough but where spread.c says otherwise.
 *
 * Sealing and opening are in seal.c. Loop thread.
 */
#include "peer/env/framer.h"
#include "peer/link/internal.h"

#include "base/check.h"
#include "base/mem.h"
#include "gossip/wire/address.h"

#define TO(state) (1u << BULK_##state)
static const unsigned may_become[BULK_LEFT + 1] = {
    [BULK_DIALING] = TO(ATTACHING),
    [BULK_ATTACHING] = TO(OPEN),
    [BULK_OPEN] = TO(LEAVING) | TO(LEFT),
};

static void bulk_become(struct bulk *bulk, enum bulk_state next)
{
    CHECK((may_become[bulk->state] & (1u << next)) != 0);
    bulk->state = next;
}

struct bulk *bulk_find(const struct links *links, uint64_t number)
{
    struct bulk *bulk;

    LIST_FOREACH (bulk, &links->bulk_buckets[number % LINK_BUCKETS], in_bucket) {
        if (bulk->number == number) return bulk;
    }
    return NULL;
}

/* One of the two takes no part: nothing bulky is for it, and an observer's loop may end with jobs
 * under way. */
static bool is_for_observing(const struct links *links, const struct link *link)
{
    return links->options.hello.role == HELLO_OBSERVER || link->remote.role == HELLO_OBSERVER;
}

/* Not sooner: many a peer of a simulation never needs it. */
static const struct aes_gcm *fast_cipher(struct links *links)
{
    if (!links->has_aes) links->aes = aes_gcm_create();
    links->has_aes = true;
    return links->aes;
}

static struct bulk *bulk_add(struct links *links, struct link *link, uint64_t number,
                             enum bulk_state state)
{
    struct bulk *bulk;

    if (is_for_observing(links, link)) return NULL;
    if (!bulks_may_add(links, link)) return NULL;
    bulk = mem_alloc(sizeof *bulk);
    if (bulk == NULL) return NULL;
    bulk->send = sealer_create(fast_cipher(links));
    bulk->receive = sealer_create(fast_cipher(links));
    if (bulk->send == NULL || bulk->receive == NULL) {
        sealer_destroy(bulk->send);
        sealer_destroy(bulk->receive);
        mem_free(bulk);
        return NULL;
    }
    bulk->deadline_ns =
        link_now(links) + (bulks_in_epoch(link) > 0 ? LINK_SPREAD_NS : LINK_ATTACH_NS);
    bulk->link = link;
    bulk->number = number;
    bulk->state = state;
    TAILQ_INIT(&bulk->waiting);
    TAILQ_INSERT_TAIL(&links->bulks, bulk, siblings);
    TAILQ_INSERT_TAIL(&link->bulks, bulk, of_link);
    LIST_INSERT_HEAD(&links->bulk_buckets[number % LINK_BUCKETS], bulk, in_bucket);
    links->bulks_count++;
    link_touch(links, link);
    return bulk;
}

void bulk_free(struct bulk *bulk)
{
    sealer_destroy(bulk->send);
    sealer_destroy(bulk->receive);
    frame_queue_deinit(&bulk->sealed);
    mem_free(bulk);
}

/* Jobs under way still use the sealers: the last one frees it. */
static void bulk_end(struct links *links, struct bulk *bulk)
{
    TAILQ_REMOVE(&links->bulks, bulk, siblings);
    TAILQ_REMOVE(&bulk->link->bulks, bulk, of_link);
    LIST_REMOVE(bulk, in_bucket);
    links->bulks_count--;
    link_touch(links, bulk->link);
    bulk_waiting_clear(links, bulk);
    bulk->link = NULL;
    if (bulk->jobs == 0) {
        bulk_free(bulk);
    } else {
        TAILQ_INSERT_TAIL(&links->bulks_gone, bulk, siblings);
    }
}

static void bulk_hangup(struct links *links, struct bulk *bulk)
{
    links->options.env->ops->hangup(links->options.env, bulk->number);
    bulk_end(links, bulk);
}

void bulks_end(struct links *links, struct link *link)
{
    struct bulk *bulk;

    while ((bulk = TAILQ_FIRST(&link->bulks)) != NULL) {
        bulk_hangup(links, bulk);
    }
}

/* ---- opening ---- */

static uint32_t bulk_suite(const struct links *links, const struct link *link)
{
    if (links->options.is_clear && (link->remote.suites & SUITE_CLEAR) != 0 &&
        address_is_loopback(link->address)) {
        return SUITE_CLEAR;
    }
    return secure_session(link->secure)->suite;
}

/* Both nonces are known: keys, and DATA may flow. */
static void bulk_opened(struct links *links, struct bulk *bulk, const uint8_t *exporter)
{
    struct link *link = bulk->link;
    uint32_t suite = bulk_suite(links, link);
    uint8_t of_initiator[SECRET_BYTES], of_responder[SECRET_BYTES];
    uint8_t epoch = (uint8_t)bulk->attach.epoch;

    attach_roots(&bulk->attach, exporter, of_initiator, of_responder);
    sealer_set(bulk->send, suite, link->is_dialled ? of_initiator : of_responder, epoch);
    sealer_set(bulk->receive, suite, link->is_dialled ? of_responder : of_initiator, epoch);
    mem_wipe(of_initiator, sizeof of_initiator);
    mem_wipe(of_responder, sizeof of_responder);
    bulk->used_ns = link_now(links);
    bulk->opened = ++link->bulk_turns;
    bulk_become(bulk, BULK_OPEN);
    link->is_bulk_asked = false;
    links->options.env->ops->link_set_frame_max(links->options.env, bulk->number,
                                                secure_record_bytes(BULK_BYTES_MAX));
    links->options.env->ops->link_set_bulk(links->options.env, bulk->number);
    link_name(links, link, bulk->number);
}

/* It could not be opened: DATA goes another way for a while. */
static void bulk_failed(struct links *links, struct bulk *bulk)
{
    struct link *link = bulk->link;

    log_debug(links->options.log, "no bulk connection to %s", link->address);
    bulk_hangup(links, bulk);
    if (bulks_in_epoch(link) == 0) {
        link->bulk_retry_ns = link_now(links) + LINK_BULK_RETRY_NS;
    }
    link_resume(links, link);
}

static bool bulk_dial(struct links *links, struct link *link)
{
    uint64_t number;
    struct bulk *bulk;

    if (is_for_observing(links, link)) return false;
    if (links->options.env->ops->dial(links->options.env, link->address, &number) != RC_OK) {
        return false;
    }
    bulk = bulk_add(links, link, number, BULK_DIALING);
    if (bulk == NULL) {
        links->options.env->ops->hangup(links->options.env, number);
        return false;
    }
    bulk->is_dialled = true;
    return true;
}

static bool bulk_ask(struct links *links, struct link *link)
{
    struct message message = {.type = MESSAGE_OPEN_REQ};

    message.as.open_req.count = 1;
    link->is_bulk_asked = true; /* first: sending comes back here while DATA waits */
    link->bulk_asked_ns = link_now(links);
    if (links_send(links, link->peer, &message) == RC_OK) return true;
    link->is_bulk_asked = false;
    return false;
}

/* Of the link's connections in its newest epoch: is one open, is one being opened? */
static bool is_bulk_open(const struct link *link, bool *is_opening)
{
    const struct bulk *bulk;
    bool is_open = false;

    *is_opening = false;
    TAILQ_FOREACH (bulk, &link->bulks, of_link) {
        bool is_new = bulk->attach.epoch == secure_session(link->secure)->epoch;

        if (bulk->state < BULK_OPEN) *is_opening = true;
        if (bulk->state == BULK_OPEN && is_new && !bulk->has_left) is_open = true;
    }
    return is_open;
}

/* One that is being left, or will be: what it carries comes first, so nothing is sent. */
static bool has_old_bulk(const struct link *link)
{
    const struct bulk *bulk;

    TAILQ_FOREACH (bulk, &link->bulks, of_link) {
        if (bulk->state < BULK_OPEN) continue;
        if (bulk->state > BULK_OPEN || bulk->has_left ||
            bulk->attach.epoch != secure_session(link->secure)->epoch) {
            return true;
        }
    }
    return false;
}

enum bulk_way bulk_way(struct links *links, struct link *link, const struct inner_header *header,
                       struct bulk **out)
{
    uint64_t now_ns = link_now(links);
    bool is_opening;

    if (link->cut_ns != UINT64_MAX) return BULK_WAIT; /* it is about to end */
    if (is_for_observing(links, link)) return BULK_NONE;
    if (has_old_bulk(link)) return BULK_WAIT;
    if (is_bulk_open(link, &is_opening)) {
        *out = bulk_pick(link, header);
        return *out != NULL ? BULK_SEND : BULK_WAIT;
    }
    if (is_opening) return BULK_WAIT;
    if (link->is_bulk_asked) {
        if (now_ns < link->bulk_asked_ns + LINK_ATTACH_NS) return BULK_WAIT;
        link->is_bulk_asked = false;
        link->bulk_retry_ns = now_ns + LINK_BULK_RETRY_NS;
    }
    if (now_ns < link->bulk_retry_ns) return BULK_NONE;
    if (secure_session(link->secure)->is_rekeying) return BULK_WAIT; /* a new epoch begins soon */
    if (link->is_dialled ? bulk_dial(links, link) : bulk_ask(links, link)) return BULK_WAIT;
    link->bulk_retry_ns = now_ns + LINK_BULK_RETRY_NS;
    return BULK_NONE;
}

void bulk_on_asked(struct links *links, struct link *link, uint32_t count)
{
    uint32_t had = bulks_in_epoch(link);
    bool is_opening;

    if (!link->is_dialled || secure_session(link->secure)->is_rekeying) return; /* they ask again */
    if (!is_bulk_open(link, &is_opening)) count = 1; /* the first one alone */
    if (count > LINK_BULKS_SPREAD) count = LINK_BULKS_SPREAD;
    if (count > 1 && has_old_bulk(link)) return;
    while (had < count && bulks_may_add(links, link) && bulk_dial(links, link)) {
        had++;
    }
}

void bulk_on_connected(struct links *links, struct bulk *bulk)
{
    struct link *link = bulk->link;
    struct attach *attach = &bulk->attach;
    uint8_t frame[ATTACH_BYTES];

    link_touch(links, link);
    attach->epoch = secure_session(link->secure)->epoch;
    if (link->attach_epoch != attach->epoch) link->attach_next = 0;
    link->attach_epoch = attach->epoch;
    attach->number = link->attach_next;
    link->attach_next += 2;
    memcpy(attach->session_id, secure_session(link->secure)->session_id, SESSION_ID_BYTES);
    links->options.env->ops->entropy(links->options.env, attach->nonces[0], ATTACH_NONCE_BYTES);
    attach_ask(attach, secure_exporter(link->secure, attach->epoch), true, frame);
    bulk_become(bulk, BULK_ATTACHING);
    if (bulk_send_frame(links, bulk, frame, sizeof frame) != RC_OK) bulk_failed(links, bulk);
}

static void bulk_on_answer(struct links *links, struct bulk *bulk, const uint8_t *frame,
                           size_t count)
{
    struct link *link = bulk->link;
    const uint8_t *exporter = secure_exporter(link->secure, bulk->attach.epoch);

    if (exporter == NULL || attach_finish(&bulk->attach, frame, count, exporter, true) != RC_OK) {
        links->counts.frames_refused++;
        bulk_failed(links, bulk);
        return;
    }
    bulk_opened(links, bulk, exporter);
    link_resume(links, link);
}

static struct link *session_find(const struct links *links, const struct attach *attach)
{
    struct link *link;

    TAILQ_FOREACH (link, &links->all, siblings) {
        if (link->is_current && secure_session(link->secure)->state == SECURE_OPEN &&
            memcmp(secure_session(link->secure)->session_id, attach->session_id,
                   SESSION_ID_BYTES) == 0) {
            return link;
        }
    }
    return NULL;
}

/* Whose connection is this? NULL: nobody's that we know, or it was there before. */
static struct link *attach_owner(struct links *links, const uint8_t *frame, struct attach *attach)
{
    struct link *link = session_find(links, attach);
    const uint8_t *exporter = link == NULL ? NULL : secure_exporter(link->secure, attach->epoch);

    if (exporter == NULL || link->is_dialled) return NULL; /* the dialler opens all of them */
    if (attach_verify(frame, exporter, true) != RC_OK) return NULL;
    if (!attach_window_accept(&link->window, attach->epoch, attach->number)) {
        links->counts.replays++;
        return NULL;
    }
    return link;
}

bool bulk_on_attach(struct links *links, struct link *stranger, const uint8_t *frame, size_t count)
{
    uint64_t number = stranger->number;
    struct attach attach;
    uint8_t answer[ATTACH_BYTES];
    const uint8_t *exporter;
    struct link *link;
    struct bulk *bulk;

    if (stranger->is_dialled || stranger->secure != NULL || !attach_parse(frame, count, &attach)) {
        return false;
    }
    link = attach_owner(links, frame, &attach);
    bulk = link == NULL ? NULL : bulk_add(links, link, number, BULK_ATTACHING);
    if (bulk == NULL) {
        links->counts.frames_refused++;
        link_hangup(links, stranger, RC_AUTH, "it belongs to no session here");
        return true;
    }
    link_retire(links, stranger); /* the connection lives on as the link's */
    exporter = secure_exporter(link->secure, attach.epoch);
    links->options.env->ops->entropy(links->options.env, attach.nonces[1], ATTACH_NONCE_BYTES);
    bulk->attach = attach;
    attach_answer(&attach, frame, exporter, false, answer);
    if (bulk_send_frame(links, bulk, answer, sizeof answer) != RC_OK) {
        bulk_failed(links, bulk);
        return true;
    }
    bulk_opened(links, bulk, exporter);
    link_resume(links, link);
    return true;
}

/* ---- leaving ---- */

bool bulk_leave(struct links *links, struct bulk *bulk)
{
    bool is_answer = bulk->has_left;

    if (bulk->state != BULK_OPEN || bulk->jobs_sealing > 0 || bulk->sealed.count > 0) return false;
    if (!bulk_send_fin(links, bulk)) return false; /* no memory: later */
    bulk->deadline_ns = link_now(links) + LINK_BULK_IDLE_NS;
    bulk_become(bulk, is_answer ? BULK_LEFT : BULK_LEAVING);
    return true;
}

void bulk_on_fin(struct links *links, struct bulk *bulk)
{
    struct link *link = bulk->link;

    bulk->has_left = true;
    if (bulk->state == BULK_LEAVING) {
        bulk_hangup(links, bulk);
        link_resume(links, link); /* DATA may have waited for this */
    } else if (bulk->is_dialled || bulk->state != BULK_OPEN) {
        link_cut(links, bulk->link); /* not theirs to begin */
    } else {
        (void)bulk_leave(links, bulk); /* or with the last record that is being sealed */
    }
}

/* ---- events ---- */

/* Large frames alone: a small one comes in one piece, and says nothing of the line. */
static void measure(struct links *links, const struct bulk *bulk, size_t count)
{
    const struct env_ops *ops = links->options.env->ops;
    uint64_t spent_ns;

    if (count <= FRAMER_BYTES_SMALL || ops->frame_spent_ns == NULL) return;
    if (!ops->frame_spent_ns(links->options.env, bulk->number, &spent_ns)) return;
    rate_meter_note(&bulk->link->meter, count, spent_ns, link_now(links));
    rate_meter_note(&links->meter, count, spent_ns, link_now(links));
}

void bulk_on_frame(struct links *links, struct bulk *bulk, uint8_t *frame, size_t count)
{
    struct link *link = bulk->link;

    link_touch(links, link);
    link->bytes_received += count;
    links->counts.bytes_received += count;
    if (bulk->state == BULK_ATTACHING) {
        bulk_on_answer(links, bulk, frame, count);
    } else if (bulk->state == BULK_DIALING || bulk->has_left) {
        link_cut(links, link);
    } else {
        bulk->used_ns = link_now(links);
        measure(links, bulk, count);
        bulk_open_record(links, bulk, frame, count);
    }
}

void bulk_on_lost(struct links *links, struct bulk *bulk)
{
    struct link *link = bulk->link;

    link_touch(links, link);
    if (bulk->state < BULK_OPEN) {
        bulk_failed(links, bulk);
        return;
    }
    if (bulk->state != BULK_LEFT) link_cut(links, link);
    bulk_end(links, bulk);
    link_resume(links, link); /* DATA may have waited for this */
}

/* Of an epoch that is over, and all of ours is out. */
static bool is_due_to_leave(const struct bulk *bulk)
{
    return bulk->state == BULK_OPEN && bulk->is_dialled && !bulk_is_sending(bulk) &&
           bulk->attach.epoch != secure_session(bulk->link->secure)->epoch;
}

/* The other side should have closed it long ago. */
static bool is_left_open(const struct bulk *bulk, uint64_t now_ns)
{
    if (bulk->state == BULK_LEAVING) {
        return now_ns >= bulk->deadline_ns && now_ns >= bulk->used_ns + LINK_BULK_IDLE_NS;
    }
    return bulk->state == BULK_OPEN && !bulk->is_dialled &&
           now_ns >= bulk->used_ns + LINK_BULK_STALE_NS;
}

/* True: it changed the table, so start over. */
static bool bulk_tick(struct links *links, struct bulk *bulk, uint64_t now_ns)
{
    struct link *link = bulk->link;

    if (bulk->state < BULK_OPEN && now_ns >= bulk->deadline_ns) {
        bulk_failed(links, bulk);
        return true;
    }
    if (is_left_open(bulk, now_ns)) {
        link_cut(links, link);
        bulk_hangup(links, bulk);
        return true;
    }
    if (bulk->state == BULK_LEFT && now_ns >= bulk->deadline_ns) {
        bulk_hangup(links, bulk);
        link_resume(links, link);
        return true;
    }
    if (is_due_to_leave(bulk) || (bulk->state == BULK_OPEN && bulk->is_dialled &&
                                  now_ns >= bulk->used_ns + LINK_BULK_IDLE_NS)) {
        /* What is still being sealed goes first; look again in a moment. */
        if (!bulk_leave(links, bulk)) bulk->used_ns = now_ns - LINK_BULK_IDLE_NS + NS_PER_S;
    }
    if (bulk->waiting_ns != UINT64_MAX && !TAILQ_EMPTY(&bulk->waiting) &&
        now_ns >= bulk->waiting_ns) {
        link_cut(links, link); /* what it waits for does not come */
    }
    return false;
}

void bulks_tick(struct links *links, struct link *link, uint64_t now_ns)
{
    struct bulk *bulk;

again:
    TAILQ_FOREACH (bulk, &link->bulks, of_link) {
        if (bulk_tick(links, bulk, now_ns)) goto again;
    }
}

uint64_t bulks_next_ns(const struct link *link)
{
    uint64_t next = UINT64_MAX;
    const struct bulk *bulk;

    TAILQ_FOREACH (bulk, &link->bulks, of_link) {
        uint64_t due = bulk->deadline_ns;

        if (bulk->state == BULK_OPEN) {
            due = bulk->used_ns + (bulk->is_dialled ? LINK_BULK_IDLE_NS : LINK_BULK_STALE_NS);
            if (is_due_to_leave(bulk)) due = 0;
        } else if (bulk->state == BULK_LEAVING && due < bulk->used_ns + LINK_BULK_IDLE_NS) {
            due = bulk->used_ns + LINK_BULK_IDLE_NS;
        }
        if (!TAILQ_EMPTY(&bulk->waiting) && bulk->waiting_ns < due) due = bulk->waiting_ns;
        if (due < next) next = due;
    }
    return next;
}
