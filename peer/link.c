/*
 * Links: handshake and records over env connections.
 *
 *  dialled:   DIALING --connected--> GREETING --H2 fine, H3 sent--> PROVING --HELLO_OK--> OPEN
 *  accepted:  GREETING --gate, H1 fine, H2 sent--> PROVING --H3 fine, HELLO_OK sent------> OPEN
 *  any state --lost, refused, deadline, hang-up--> GONE (freed at the end of the event)
 *
 * A stranger costs a slot and 72 bytes until the gate MAC holds; every state before OPEN has a
 * deadline. One link per peer id is current: of two connections of one pair and one boot, the one
 * dialled by the smaller id stays, because both ends can tell that without a word.
 *
 * Loop thread. Events from the env come in through links_on_*(); nothing here blocks.
 */
#include "peer/link.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"

#include <stdio.h>
#include <sys/queue.h>

enum link_state { LINK_DIALING, LINK_GREETING, LINK_PROVING, LINK_OPEN, LINK_GONE };

#define TO(state) (1u << LINK_##state)
static const unsigned may_become[LINK_GONE + 1] = {
    [LINK_DIALING] = TO(GREETING) | TO(GONE),
    [LINK_GREETING] = TO(PROVING) | TO(GONE),
    [LINK_PROVING] = TO(OPEN) | TO(GONE),
    [LINK_OPEN] = TO(GONE),
    [LINK_GONE] = 0,
};

enum { REPLAY_CACHE = 4096, BULK_COMPACT = 64 };

struct bulk_item {
    struct inner_header header;
    struct blob *body;
};

struct link {
    TAILQ_ENTRY(link) siblings;
    uint64_t number; /* the env's */
    enum link_state state;
    bool is_dialled;
    bool is_current;      /* OPEN, and the one link of its peer */
    bool is_closing;      /* hang up once the event is over */
    uint64_t deadline_ns; /* of the states before OPEN */
    char address[ADDRESS_BYTES_MAX];
    struct secure *secure;
    struct hello remote;
    struct peer_id peer;
    struct blob *sealed;   /* refused by the env, goes first when it drains */
    struct blob **control; /* ring of inner records waiting */
    uint32_t control_first, control_count;
    struct bulk_item *bulk; /* queue: [bulk_first, bulk_count) */
    size_t bulk_first, bulk_count, bulk_max;
};

struct links {
    struct links_options options;
    struct links_events events;
    TAILQ_HEAD(, link) all;
    uint32_t count;
    struct static_key key;
    struct peer_id self;
    uint64_t replay[REPLAY_CACHE]; /* first 8 bytes of ephemeral keys seen; 0: free */
    uint32_t replay_next;
    struct links_counts counts;
};

static void link_become(struct link *link, enum link_state next)
{
    CHECK((may_become[link->state] & (1u << next)) != 0);
    link->state = next;
}

static uint64_t now_of(struct links *links)
{
    return links->options.env->ops->now_ns(links->options.env);
}

struct links *links_create(const struct links_options *options, const struct links_events *events)
{
    struct links *links = mem_alloc(sizeof *links);
    uint8_t seed[SECRET_BYTES];

    if (links == NULL) return NULL;
    links->options = *options;
    links->events = *events;
    links->options.hello.suites = secure_suites();
    links->self = identity_peer_id(options->identity->public_key);
    TAILQ_INIT(&links->all);
    options->env->ops->entropy(options->env, seed, sizeof seed);
    static_key_from_seed(seed, &links->key);
    memset(seed, 0, sizeof seed);
    return links;
}

static void link_free(struct links *links, struct link *link)
{
    TAILQ_REMOVE(&links->all, link, siblings);
    links->count--;
    blob_unref(link->sealed);
    for (uint32_t i = 0; i < link->control_count; i++) {
        blob_unref(link->control[(link->control_first + i) % LINK_CONTROL_QUEUE_MAX]);
    }
    for (size_t i = link->bulk_first; i < link->bulk_count; i++) {
        blob_unref(link->bulk[i].body);
    }
    mem_free(link->control);
    mem_free(link->bulk);
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
    memset(&links->key, 0, sizeof links->key);
    mem_free(links);
}

static struct link *find_number(const struct links *links, uint64_t number)
{
    struct link *link;

    TAILQ_FOREACH (link, &links->all, siblings) {
        if (link->number == number) return link;
    }
    return NULL;
}

static struct link *find_peer(const struct links *links, struct peer_id peer)
{
    struct link *link;

    TAILQ_FOREACH (link, &links->all, siblings) {
        if (link->is_current && peer_id_is_equal(link->peer, peer)) return link;
    }
    return NULL;
}

/* Count the bytes, take it out of the table; the caller tells whom it concerns. */
static void link_retire(struct links *links, struct link *link)
{
    uint64_t sent = 0, received = 0;

    links->options.env->ops->link_bytes(links->options.env, link->number, &sent, &received);
    links->counts.bytes_sent += sent;
    links->counts.bytes_received += received;
    link_become(link, LINK_GONE);
    link_free(links, link);
}

/* The end of a link for a reason: tell the node what it needs to know, once. */
static void link_end(struct links *links, struct link *link, enum rc rc, const char *why,
                     const struct peer_id *peer)
{
    struct peer_id id = link->peer;
    bool was_current = link->is_current;
    bool was_dial = link->is_dialled && link->state != LINK_OPEN;
    char address[ADDRESS_BYTES_MAX];

    memcpy(address, link->address, sizeof address);
    if (!link->is_dialled && link->state != LINK_OPEN) links->counts.handshakes_refused++;
    link_retire(links, link);
    if (was_current) links->events.on_closed(links->events.context, id, rc, why);
    if (was_dial) links->events.on_dial_failed(links->events.context, address, rc, why, peer);
}

static void link_hangup(struct links *links, struct link *link, enum rc rc, const char *why)
{
    links->options.env->ops->hangup(links->options.env, link->number);
    link_end(links, link, rc, why, NULL);
}

static struct link *link_add(struct links *links, uint64_t number, const char *address,
                             bool is_dialled)
{
    struct link *link;

    if (links->count >= LINKS_MAX) return NULL;
    link = mem_alloc(sizeof *link);
    if (link == NULL) return NULL;
    link->number = number;
    link->is_dialled = is_dialled;
    link->state = is_dialled ? LINK_DIALING : LINK_GREETING;
    link->deadline_ns = now_of(links) + (is_dialled ? LINK_HANDSHAKE_NS : LINK_GATE_NS);
    snprintf(link->address, sizeof link->address, "%s", address);
    TAILQ_INSERT_TAIL(&links->all, link, siblings);
    links->count++;
    return link;
}

/* ---- handshake ---- */

static enum rc link_secure(struct links *links, struct link *link)
{
    struct secure_options options = {
        .is_initiator = link->is_dialled, .swarm = links->options.swarm, .key = &links->key};
    struct hello hello = links->options.hello;
    uint8_t payload[HELLO_BYTES_MAX];
    enum rc rc;

    snprintf(hello.observed, sizeof hello.observed, "%s", link->address);
    rc = hello_encode(&hello, links->options.identity, links->options.swarm->run_id,
                      links->key.public_key, payload, sizeof payload, &options.payload_bytes);
    if (rc != RC_OK) return rc;
    options.payload = payload;
    links->options.env->ops->entropy(links->options.env, options.ephemeral_seed,
                                     sizeof options.ephemeral_seed);
    link->secure = secure_create(&options);
    memset(options.ephemeral_seed, 0, sizeof options.ephemeral_seed);
    return link->secure == NULL ? RC_NOMEM : RC_OK;
}

static enum rc link_send_frame(struct links *links, struct link *link, const uint8_t *bytes,
                               size_t count)
{
    struct blob *frame = blob_copy(bytes, count);
    enum rc rc;

    if (frame == NULL) return RC_NOMEM;
    rc = links->options.env->ops->send(links->options.env, link->number, frame);
    blob_unref(frame);
    return rc;
}

void links_on_connected(struct links *links, uint64_t number)
{
    struct link *link = find_number(links, number);
    uint8_t out[HANDSHAKE_BYTES_MAX];
    size_t count = 0;
    enum rc rc;

    if (link == NULL) return;
    link_become(link, LINK_GREETING);
    rc = link_secure(links, link);
    if (rc == RC_OK) rc = secure_greet(link->secure, out, &count);
    if (rc == RC_OK) rc = link_send_frame(links, link, out, count);
    if (rc != RC_OK) link_hangup(links, link, rc, "cannot begin the handshake");
}

void links_on_accepted(struct links *links, uint64_t number, const char *remote)
{
    if (link_add(links, number, remote, false) == NULL) {
        links->options.env->ops->hangup(links->options.env, number);
    }
}

MUST_USE enum rc links_dial(struct links *links, const char *address)
{
    uint64_t number;
    enum rc rc;

    if (links->count >= LINKS_MAX) return RC_LIMIT;
    rc = links->options.env->ops->dial(links->options.env, address, &number);
    if (rc != RC_OK) return rc;
    if (link_add(links, number, address, true) == NULL) {
        links->options.env->ops->hangup(links->options.env, number);
        return RC_NOMEM;
    }
    return RC_OK;
}

/* A first message is answered once: the ephemeral key of an honest dialler never repeats. */
static bool is_replayed(struct links *links, const uint8_t *frame)
{
    uint64_t mark = load_le64(frame + PREFIX_BYTES) | 1;

    for (uint32_t i = 0; i < REPLAY_CACHE; i++) {
        if (links->replay[i] == mark) return true;
    }
    links->replay[links->replay_next] = mark;
    links->replay_next = (links->replay_next + 1) % REPLAY_CACHE;
    return false;
}

static enum rc link_open_gate(struct links *links, struct link *link, const uint8_t *frame,
                              size_t count)
{
    enum rc rc = secure_gate_check(links->options.swarm, frame, count);

    if (rc != RC_OK) return rc;
    if (is_replayed(links, frame)) {
        links->counts.replays++;
        return RC_REPLAY;
    }
    link->deadline_ns = now_of(links) + LINK_HANDSHAKE_NS;
    return link_secure(links, link);
}

/* Who is at the other end, once Noise is done. */
static enum rc link_learn(struct links *links, struct link *link)
{
    size_t bytes;
    const uint8_t *payload = secure_remote_payload(link->secure, &bytes);
    enum rc rc = hello_decode(payload, bytes, links->options.swarm->run_id,
                              secure_remote_key(link->secure), &link->remote);

    if (rc != RC_OK) return rc;
    link->peer = identity_peer_id(link->remote.public_key);
    secure_choose_suite(link->secure, link->remote.suites);
    links->options.env->ops->link_set_frame_max(links->options.env, link->number,
                                                secure_record_bytes(BULK_BYTES_MAX));
    return RC_OK;
}

static void link_refuse(struct links *links, struct link *link, enum error_code code,
                        const char *text)
{
    struct message message = {.type = MESSAGE_ERROR};
    uint8_t inner[INNER_HEADER_BYTES + ERROR_TEXT_MAX + 64];
    uint8_t frame[sizeof inner + RECORD_HEADER_BYTES + RECORD_TAG_BYTES];
    size_t count;

    message.as.error.code = code;
    snprintf(message.as.error.text, sizeof message.as.error.text, "%s", text);
    if (message_encode(&message, inner, sizeof inner, &count) == RC_OK &&
        secure_seal(link->secure, inner, count, NULL, 0, frame) == RC_OK) {
        (void)link_send_frame(links, link, frame, secure_record_bytes(count)); /* best effort */
    }
    log_info(links->options.log, "refused %s: %s", link->address, text);
    link_hangup(links, link, RC_REFUSED, text);
}

/* May this one come in? Otherwise it has been told why and is gone. */
static bool link_admit(struct links *links, struct link *link)
{
    const struct hello *ours = &links->options.hello;
    char text[ERROR_TEXT_MAX];
    struct link *old;

    if (link->remote.role == HELLO_PEER && ours->role == HELLO_PEER &&
        !digest_is_equal(link->remote.schema, ours->schema)) {
        snprintf(text, sizeof text, "this swarm trains the model '%s', you train '%s'", ours->spec,
                 link->remote.spec);
        link_refuse(links, link, ERROR_MODEL, text);
        return false;
    }
    old = find_peer(links, link->peer);
    if (old != NULL && !boot_id_is_equal(old->remote.boot, link->remote.boot)) {
        if (link->remote.incarnation <= old->remote.incarnation) {
            link_refuse(links, link, ERROR_DUPLICATE_ID,
                        "another process with the same identity key is in the swarm; give this "
                        "one its own --identity or --out");
            return false;
        }
        link_hangup(links, old, RC_CLOSED, "the peer was started again");
    }
    return true;
}

/* Of two links of one pair and boot, does the new one stay? Both ends decide alike. */
static bool is_kept(const struct links *links, const struct link *old, const struct link *new)
{
    bool self_is_smaller = peer_id_compare(links->self, new->peer) < 0;

    if (old->is_dialled == new->is_dialled) return true; /* a reconnect: the newer one is real */
    return new->is_dialled == self_is_smaller;
}

static void link_opened(struct links *links, struct link *link)
{
    struct link *old = find_peer(links, link->peer);

    link_become(link, LINK_OPEN);
    if (old != NULL && boot_id_is_equal(old->remote.boot, link->remote.boot)) {
        struct link *loser = is_kept(links, old, link) ? old : link;

        if (loser == link) {
            struct peer_id peer = link->peer;
            char address[ADDRESS_BYTES_MAX];
            bool is_dialled = link->is_dialled;

            memcpy(address, link->address, sizeof address);
            links->options.env->ops->hangup(links->options.env, link->number);
            link_retire(links, link);
            if (is_dialled) {
                links->events.on_dial_failed(links->events.context, address, RC_REPLAY,
                                             "already linked", &peer);
            }
            return;
        }
        old->is_current = false;
        links->options.env->ops->hangup(links->options.env, old->number);
        link_retire(links, old);
    } else if (old != NULL) {
        link_hangup(links, old, RC_CLOSED, "the peer was started again");
    }
    link->is_current = true;
    links->events.on_open(links->events.context, link->peer, &link->remote, link->address,
                          link->is_dialled);
}

static void link_is_self(struct links *links, struct link *link)
{
    struct peer_id self = links->self;

    links->options.env->ops->hangup(links->options.env, link->number);
    link_end(links, link, RC_REPLAY, "that is this peer itself", &self);
}

static void answered_as_initiator(struct links *links, struct link *link)
{
    enum rc rc = link_learn(links, link);

    if (rc != RC_OK) {
        link_hangup(links, link, rc, "the other side could not prove who it is");
        return;
    }
    link_become(link, LINK_PROVING); /* until HELLO_OK or ERROR */
    if (peer_id_is_equal(link->peer, links->self)) link_is_self(links, link);
}

static void answered_as_responder(struct links *links, struct link *link)
{
    struct message message = {.type = MESSAGE_HELLO_OK};
    uint8_t inner[INNER_HEADER_BYTES + 16], frame[sizeof inner + 64];
    size_t count;
    enum rc rc = link_learn(links, link);

    if (rc != RC_OK) {
        link_hangup(links, link, rc, "the other side could not prove who it is");
        return;
    }
    if (peer_id_is_equal(link->peer, links->self)) {
        link_is_self(links, link);
        return;
    }
    if (!link_admit(links, link)) return;
    rc = message_encode(&message, inner, sizeof inner, &count);
    if (rc == RC_OK) rc = secure_seal(link->secure, inner, count, NULL, 0, frame);
    if (rc == RC_OK) rc = link_send_frame(links, link, frame, secure_record_bytes(count));
    if (rc != RC_OK) {
        link_hangup(links, link, rc, "cannot answer the handshake");
        return;
    }
    link_opened(links, link);
}

static void handshake_frame(struct links *links, struct link *link, const uint8_t *frame,
                            size_t count)
{
    uint8_t out[HANDSHAKE_BYTES_MAX];
    size_t out_count = 0;
    enum rc rc = RC_OK;

    if (link->secure == NULL) rc = link_open_gate(links, link, frame, count);
    if (rc == RC_OK) rc = secure_answer(link->secure, frame, count, out, &out_count);
    if (rc == RC_OK && out_count > 0) rc = link_send_frame(links, link, out, out_count);
    if (rc != RC_OK) {
        links->counts.frames_refused++;
        link_hangup(links, link, rc, "the handshake failed: a wrong --swarm-key or --swarm-name");
        return;
    }
    if (secure_state(link->secure) != SECURE_OPEN) {
        if (link->state == LINK_GREETING) link_become(link, LINK_PROVING);
        return;
    }
    if (link->is_dialled) {
        answered_as_initiator(links, link);
    } else {
        answered_as_responder(links, link);
    }
}

/* ---- records ---- */

/* The first record a dialler gets: may it come in? */
static void proving_message(struct links *links, struct link *link, const struct message *message)
{
    char why[ERROR_TEXT_MAX + ADDRESS_BYTES_MAX + 32];
    enum rc rc;

    if (message->type == MESSAGE_HELLO_OK) {
        link_opened(links, link);
        return;
    }
    if (message->type != MESSAGE_ERROR) {
        link_hangup(links, link, RC_FORMAT, "the other side broke the protocol");
        return;
    }
    rc = message->as.error.code == ERROR_MODEL          ? RC_MISMATCH
         : message->as.error.code == ERROR_DUPLICATE_ID ? RC_REFUSED
                                                        : RC_BUSY;
    snprintf(why, sizeof why, "%s refused us: %s", link->address, message->as.error.text);
    link_hangup(links, link, rc, why);
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

    if (rc == RC_OK) rc = inner_header_decode(inner, inner_count, &header);
    if (rc == RC_OK && header.type != MESSAGE_DATA) {
        rc = inner_count > CONTROL_BYTES_MAX
                 ? RC_LIMIT
                 : message_decode((enum message_type)header.type, inner + INNER_HEADER_BYTES,
                                  inner_count - INNER_HEADER_BYTES, &message);
    }
    if (rc != RC_OK) {
        links->counts.frames_refused++;
        log_warn(links->options.log, "%s sent a bad record: %s", link->address, rc_text(rc));
        link_hangup(links, link, rc, "it sent a bad record");
        return;
    }
    if (link->state == LINK_PROVING) {
        if (header.type == MESSAGE_DATA) {
            link_hangup(links, link, RC_FORMAT, "the other side broke the protocol");
        } else {
            proving_message(links, link, &message);
        }
        return;
    }
    links->events.on_heard(links->events.context, peer);
    if (find_number(links, number) == NULL) return;
    if (header.type == MESSAGE_DATA) {
        links->events.on_data(links->events.context, peer, &header, inner + INNER_HEADER_BYTES,
                              inner_count - INNER_HEADER_BYTES);
    } else {
        links->events.on_message(links->events.context, peer, &message);
    }
}

void links_on_frame(struct links *links, uint64_t number, uint8_t *frame, size_t count)
{
    struct link *link = find_number(links, number);

    if (link == NULL) return; /* hung up a moment ago */
    if (link->secure != NULL && secure_state(link->secure) == SECURE_OPEN) {
        record_frame(links, link, frame, count);
    } else {
        handshake_frame(links, link, frame, count);
    }
}

void links_on_lost(struct links *links, uint64_t number, enum rc rc, const char *why)
{
    struct link *link = find_number(links, number);
    char text[ADDRESS_BYTES_MAX + 160];

    if (link == NULL) return;
    if (link->state == LINK_DIALING) {
        snprintf(text, sizeof text, "%s cannot be reached: %s", link->address, why);
        rc = RC_IO; /* it may be there later */
    } else if (rc == RC_FORMAT || rc == RC_LIMIT) {
        snprintf(text, sizeof text, "%s answers, but is not a grapevine peer", link->address);
        rc = RC_AUTH;
    } else if (link->state == LINK_GREETING || link->state == LINK_PROVING) {
        snprintf(text, sizeof text,
                 "%s closed the handshake: another --swarm-name, a wrong --swarm-key, or not a "
                 "grapevine peer",
                 link->address);
        rc = RC_AUTH;
    } else {
        snprintf(text, sizeof text, "%s", why);
    }
    link_end(links, link, rc, text, NULL);
}

/* ---- sending ---- */

/* Seal one record and hand it to the env. A frame the env has no room for is kept: its nonce is
 * spent. False: stop for now. */
static bool link_push(struct links *links, struct link *link, const void *head, size_t head_count,
                      const void *tail, size_t tail_count)
{
    struct blob *frame = blob_create(secure_record_bytes(head_count + tail_count));
    enum rc rc;

    if (frame == NULL) return false;
    rc = secure_seal(link->secure, head, head_count, tail, tail_count, frame->bytes);
    if (rc == RC_OK) rc = links->options.env->ops->send(links->options.env, link->number, frame);
    if (rc == RC_LIMIT) {
        link->sealed = frame;
        return true; /* taken, though not sent */
    }
    blob_unref(frame);
    if (rc != RC_OK && rc != RC_CLOSED) link->is_closing = true;
    return true;
}

static void link_pump(struct links *links, struct link *link)
{
    uint8_t head[INNER_HEADER_BYTES];

    if (link->sealed != NULL) {
        if (links->options.env->ops->send(links->options.env, link->number, link->sealed) ==
            RC_LIMIT) {
            return;
        }
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
        struct bulk_item *item = &link->bulk[link->bulk_first];

        inner_header_encode(&item->header, head);
        if (!link_push(links, link, head, sizeof head, item->body->bytes, item->body->count)) {
            return;
        }
        blob_unref(item->body);
        link->bulk_first++;
    }
    if (link->bulk_first == link->bulk_count) link->bulk_first = link->bulk_count = 0;
}

void links_on_drain(struct links *links, uint64_t number)
{
    struct link *link = find_number(links, number);
    bool had_bulk;

    if (link == NULL || link->state != LINK_OPEN) return;
    had_bulk = link->bulk_count > 0;
    link_pump(links, link);
    if (had_bulk && link->bulk_count == 0 && link->is_current) {
        links->events.on_bulk_drained(links->events.context, link->peer);
    }
}

enum rc links_send_inner(struct links *links, struct peer_id to, struct blob *inner)
{
    struct link *link = find_peer(links, to);

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

    if (find_peer(links, to) == NULL) return RC_CLOSED;
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
    struct bulk_item *grown;
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
    struct link *link = find_peer(links, to);

    CHECK(header->type == MESSAGE_DATA);
    if (link == NULL) return RC_CLOSED;
    if (!bulk_reserve(link)) return RC_LIMIT;
    link->bulk[link->bulk_count++] = (struct bulk_item){*header, blob_ref(body)};
    link_pump(links, link);
    return RC_OK;
}

size_t links_bulk_queued(const struct links *links, struct peer_id to)
{
    const struct link *link = find_peer(links, to);

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

/* ---- the rest ---- */

bool links_is_open(const struct links *links, struct peer_id peer)
{
    return find_peer(links, peer) != NULL;
}

bool links_boot(const struct links *links, struct peer_id peer, struct boot_id *boot)
{
    const struct link *link = find_peer(links, peer);

    if (link == NULL) return false;
    *boot = link->remote.boot;
    return true;
}

void links_hangup(struct links *links, struct peer_id peer)
{
    struct link *link = find_peer(links, peer);

    if (link != NULL) link->is_closing = true; /* ends in links_tick(), not inside this call */
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

void links_tick(struct links *links, uint64_t now_ns)
{
    struct link *link;

again: /* ending a link may end others: start over after each */
    TAILQ_FOREACH (link, &links->all, siblings) {
        if (link->is_closing) {
            link_hangup(links, link, RC_CLOSED, "we hung up");
            goto again;
        }
        if (link->state < LINK_OPEN && now_ns >= link->deadline_ns) {
            link_expired(links, link);
            goto again;
        }
    }
}

uint64_t links_next_ns(const struct links *links)
{
    uint64_t next = UINT64_MAX;
    const struct link *link;

    TAILQ_FOREACH (link, &links->all, siblings) {
        if (link->is_closing) return 0;
        if (link->state < LINK_OPEN && link->deadline_ns < next) next = link->deadline_ns;
    }
    return next;
}

void links_counts(const struct links *links, struct links_counts *counts)
{
    const struct link *link;

    *counts = links->counts;
    TAILQ_FOREACH (link, &links->all, siblings) {
        uint64_t sent = 0, received = 0;

        links->options.env->ops->link_bytes(links->options.env, link->number, &sent, &received);
        counts->bytes_sent += sent;
        counts->bytes_received += received;
    }
}

void links_peer_bytes(const struct links *links, struct peer_id peer, uint64_t *sent,
                      uint64_t *received)
{
    const struct link *link = find_peer(links, peer);

    *sent = *received = 0;
    if (link == NULL) return;
    links->options.env->ops->link_bytes(links->options.env, link->number, sent, received);
}
