/*
 * The handshake of a link: gate, Noise (gossip/secure/secure.h), who the other side is, and whether
 * it may come in. One link per peer id is current: of two connections of one pair and one boot, the
 * one dialled by the smaller id stays, because both ends can tell that without a word.
 *
 * A first message is answered once and only behind the gate, so a stranger costs a slot, 72 bytes
 * and one keyed hash. Loop thread.
 */
#include "peer/link/internal.h"

#include "base/mem.h"

#include <stdio.h>

static enum rc link_secure(struct links *links, struct link *link)
{
    struct secure_options options = {
        .is_initiator = link->is_dialled, .swarm = links->options.swarm, .key = &links->key};
    struct hello hello = links->options.hello;
    uint8_t payload[HELLO_BYTES_MAX];
    enum rc rc;

    snprintf(hello.observed, sizeof hello.observed, "%s", link->address);
    hello.dialback = link->probe;
    rc = hello_write(&hello, links->hello_signature, payload, sizeof payload,
                     &options.payload_bytes);
    if (rc != RC_OK) return rc;
    options.payload = payload;
    links->options.env->ops->entropy(links->options.env, options.ephemeral_seed,
                                     sizeof options.ephemeral_seed);
    link->secure = secure_create(&options);
    mem_wipe(options.ephemeral_seed, sizeof options.ephemeral_seed);
    return link->secure == NULL ? RC_NOMEM : RC_OK;
}

void links_on_connected(struct links *links, uint64_t number)
{
    struct link *link = link_find(links, number);
    struct bulk *bulk = link == NULL ? bulk_find(links, number) : NULL;
    uint8_t out[HANDSHAKE_BYTES_MAX];
    size_t count = 0;
    enum rc rc;

    if (bulk != NULL) bulk_on_connected(links, bulk);
    if (link == NULL) return;
    link_become(link, LINK_GREETING);
    rc = link_secure(links, link);
    if (rc == RC_OK) rc = secure_greet(link->secure, out, &count);
    if (rc == RC_OK) rc = link_send_frame(links, link, out, count);
    if (rc != RC_OK) link_hangup(links, link, rc, "cannot begin the handshake");
}

static enum rc link_open_gate(struct links *links, struct link *link, const uint8_t *frame,
                              size_t count)
{
    enum rc rc = secure_gate_check(links->options.swarm, frame, count);
    enum gate_verdict verdict;
    uint64_t evicted;
    bool is_known;

    if (rc != RC_OK) return rc;
    is_known = links->events.is_known != NULL &&
               links->events.is_known(links->events.context, link->address);
    verdict = gate_answer(links->gate, link->number, frame + PREFIX_BYTES, is_known,
                          link_now(links), &evicted);
    if (verdict != GATE_PASS) return verdict == GATE_REPLAYED ? RC_REPLAY : RC_BUSY;
    link_evict(links, evicted);
    link->deadline_ns = link_now(links) + LINK_HANDSHAKE_NS;
    return link_secure(links, link);
}

/* Who is at the other end, once Noise is done. */
static enum rc link_learn(struct links *links, struct link *link)
{
    const struct secure_session *session = secure_session(link->secure);
    enum rc rc = verified_hello(links->options.verified, session->remote_payload,
                                session->remote_payload_bytes, links->options.swarm->run_id,
                                session->remote_key, &link->remote);

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
    char line[ADDRESS_BYTES_MAX + sizeof(struct fault)];
    size_t count;

    message.as.error.code = code;
    snprintf(message.as.error.text, sizeof message.as.error.text, "%s", text);
    if (message_encode(&message, inner, sizeof inner, &count) == RC_OK &&
        secure_seal(link->secure, inner, count, NULL, 0, frame) == RC_OK) {
        (void)link_send_frame(links, link, frame, secure_record_bytes(count)); /* best effort */
    }
    snprintf(line, sizeof line, "refused %s with the words: %s", link->address, text);
    link_tell(links, LOG_INFO, line);
    link_hangup(links, link, RC_REFUSED, text);
}

/* The node's word on who is at the other end. */
static enum rc link_entry(const struct links *links, const struct link *link, struct fault *why)
{
    if (links->events.on_entry == NULL) return RC_OK;
    return links->events.on_entry(links->events.context, link->peer, &link->remote, link->address,
                                  link->is_dialled, why);
}

void links_judge(struct links *links)
{
    struct link *link;
    struct fault why;

again: /* ending a link may end others: start over after each */
    TAILQ_FOREACH (link, &links->all, siblings) {
        if (link->state != LINK_OPEN || link_entry(links, link, &why) == RC_OK) continue;
        link_refuse(links, link, ERROR_DENIED, why.text);
        goto again;
    }
}

static bool mixes_answers(const struct hello *hello)
{
    return strstr(hello->method, ", " METHOD_ANSWERS) != NULL;
}

static const char *exchanged(const struct hello *hello)
{
    return mixes_answers(hello) ? "answers" : "models";
}

/* Values of the layers that it shares; 0: all are. */
static unsigned long long trunk_of(const struct hello *hello)
{
    const char *trunk = strstr(hello->method, ", trunk of ");
    unsigned long long values;

    return trunk != NULL && sscanf(trunk, ", trunk of %20llu", &values) == 1 ? values : 0;
}

/* Two peers that could never average. 0: they can; else why not. */
static enum error_code unlike(const struct hello *ours, const struct hello *theirs)
{
    if (ours->role != HELLO_PEER || theirs->role != HELLO_PEER) return 0;
    if (mixes_answers(ours) != mixes_answers(theirs)) return ERROR_METHOD;
    if (!digest_is_equal(ours->schema, theirs->schema)) return ERROR_MODEL;
    return strcmp(ours->method, theirs->method) == 0 ? 0 : ERROR_METHOD;
}

/* Methods begin with the version of the wire; those of the first one did not say it. */
static unsigned wire_version(const struct hello *hello)
{
    unsigned version;

    return sscanf(hello->method, "wire %4u,", &version) == 1 ? version : 1;
}

/* To the reader of `text`, `it` is `who` ("this swarm", an address), and `other` is `whom` ("you",
 * "this peer"). */
static void tell_unlike(enum error_code code, const char *who, const struct hello *it,
                        const char *whom, const struct hello *other, char *text, size_t cap)
{
    if (code == ERROR_METHOD && wire_version(it) != wire_version(other)) {
        snprintf(text, cap,
                 "%s speaks version %u of the wire, %s version %u: these are unlike builds of "
                 "grapevine; give all peers of a swarm the same one",
                 who, wire_version(it), whom, wire_version(other));
    } else if (code == ERROR_METHOD && mixes_answers(it) != mixes_answers(other)) {
        snprintf(
            text, cap,
            "%s exchanges %s, %s %s; give all peers of a swarm the same --averaging (codistill "
            "and ec-dnn exchange answers)",
            who, exchanged(it), whom, exchanged(other));
    } else if (code == ERROR_METHOD && trunk_of(it) != trunk_of(other)) {
        snprintf(text, cap,
                 "%s shares %s of its model, %s %s; give all peers of a swarm the same --share",
                 who, trunk_of(it) == 0 ? "all" : "the first layers", whom,
                 trunk_of(other) == 0 ? "all"
                 : trunk_of(it) == 0  ? "the first layers"
                                      : "others");
    } else if (code == ERROR_METHOD) {
        snprintf(text, cap,
                 "%s averages with '%s', %s with '%s'; give all peers of a swarm the same "
                 "--averaging, --exchange, --codec, --rule and --moments",
                 who, it->method, whom, other->method);
    } else if (mixes_answers(it) && mixes_answers(other)) {
        snprintf(text, cap,
                 "%s answers other samples than %s, or in other classes, so their answers have no "
                 "mean; give all peers the same --data, or --probe, the same --seed, as many "
                 "samples, and of a text as many tokens a sample",
                 who, whom);
    } else if (strcmp(it->spec, other->spec) != 0) {
        snprintf(text, cap, "%s trains the model '%s', %s '%s'", who, it->spec, whom, other->spec);
    } else {
        snprintf(text, cap,
                 "%s trains the model '%s' on data of another shape, or with other columns, "
                 "symbols, classes or targets, than %s",
                 who, it->spec, whom);
    }
}

/* ---- two processes with one identity ---- */

/* Membership's own numbers of PINGs rise from 1, those of indirect probes have the highest bit. */
#define DUEL (UINT64_C(1) << 62)

/* A copied key file, or a peer that was started again and whose former life nobody has buried yet?
 * The link that is there decides: if it answers a ping in time, the newcomer is the copy. Until
 * then nothing is read from the newcomer. False: there is no other one. */
static bool link_duel_begin(struct links *links, struct link *link)
{
    struct link *old = link_find_peer(links, link->peer);
    struct env *env = links->options.env;
    struct message message = {.type = MESSAGE_PING};
    uint32_t random;

    if (old == NULL || boot_id_is_equal(old->remote.boot, link->remote.boot)) return false;
    env->ops->entropy(env, &random, sizeof random);
    link->duel_seq = message.as.ping.seq = DUEL | random;
    link->duel_with = old->number;
    link->deadline_ns = link_now(links) + LINK_DUEL_NS;
    env->ops->link_pause(env, link->number, true);
    (void)links_send(links, link->peer, &message); /* a link that takes none will not answer */
    return true;
}

static void link_duel_lost(struct links *links, struct link *link)
{
    char why[ADDRESS_BYTES_MAX + 128];

    if (!link->is_dialled) {
        link_refuse(links, link, ERROR_DUPLICATE_ID,
                    "another process with the same identity key is in the swarm; give this one its "
                    "own --identity or --out");
        return;
    }
    snprintf(why, sizeof why, "%s has the same identity key as a peer that is already linked",
             link->address);
    link_hangup(links, link, RC_REFUSED, why);
}

bool link_duel_heard(struct links *links, struct link *old, uint64_t seq)
{
    struct link *link;

    if ((seq & DUEL) == 0) return false;
    TAILQ_FOREACH (link, &links->all, siblings) {
        if (link->duel_seq != seq || link->duel_with != old->number) continue;
        link_duel_lost(links, link);
        return true;
    }
    return false;
}

bool link_duel_is_won(const struct links *links, const struct link *link, uint64_t now_ns)
{
    return link->duel_seq != 0 &&
           (now_ns >= link->deadline_ns || link_find(links, link->duel_with) == NULL);
}

static void link_welcome(struct links *links, struct link *link);
static void link_opened(struct links *links, struct link *link);

/* Is there a place for it? Otherwise it is gone. */
static bool has_place(struct links *links, struct link *link)
{
    if (link_has_room(links, link)) return true;
    if (link->is_dialled) {
        link_hangup(links, link, RC_LIMIT, "there are as many neighbours as there can be");
    } else {
        link_refuse(links, link, ERROR_FULL,
                    link->remote.role == HELLO_OBSERVER ? "it has as many observers as it can"
                                                        : "it has as many neighbours as it can");
    }
    return false;
}

void link_duel_win(struct links *links, struct link *link)
{
    struct env *env = links->options.env;
    struct link *old = link_find_peer(links, link->peer);
    uint64_t number = link->number;

    if (old != NULL && old->number != link->duel_with) { /* a third one was faster */
        link_duel_lost(links, link);
        return;
    }
    link->duel_seq = 0;
    if (old != NULL) link_hangup(links, old, RC_CLOSED, "the peer was started again");
    link = link_find(links, number);
    if (link == NULL) return;
    link_touch(links, link);
    if (!has_place(links, link)) return; /* that of the old one may have been taken meanwhile */
    env->ops->link_pause(env, number, false);
    if (link->is_dialled) {
        link_opened(links, link);
    } else {
        link_welcome(links, link);
    }
}

/* May this one come in? Otherwise it has been told why and is gone. */
static bool link_admit(struct links *links, struct link *link)
{
    const struct hello *ours = &links->options.hello;
    enum error_code code = unlike(ours, &link->remote);
    char text[ERROR_TEXT_MAX];
    struct fault why;
    enum rc rc = link_entry(links, link, &why);

    if (rc != RC_OK) {
        link_refuse(links, link, rc == RC_BUSY ? ERROR_FULL : ERROR_DENIED, why.text);
        return false;
    }
    if (!has_place(links, link)) return false;
    if (code != 0) {
        tell_unlike(code, "this swarm", ours, "you", &link->remote, text, sizeof text);
        link_refuse(links, link, code, text);
        return false;
    }
    return true;
}

/* It let us in, but is it one we can be linked with? The other side may judge by other facts, or
 * not at all. Otherwise the dial has failed. */
static bool link_accept(struct links *links, struct link *link)
{
    enum error_code code = unlike(&links->options.hello, &link->remote);
    char why[ADDRESS_BYTES_MAX + ERROR_TEXT_MAX + 128];
    struct fault reason;
    enum rc rc = link_entry(links, link, &reason);

    if (rc != RC_OK) {
        snprintf(why, sizeof why, "%s is not one we link with: %s", link->address, reason.text);
        link_hangup(links, link, rc, why);
        return false;
    }
    if (!has_place(links, link)) return false;
    if (code != 0) {
        tell_unlike(code, link->address, &link->remote, "this peer", &links->options.hello, why,
                    sizeof why);
        link_hangup(links, link, RC_MISMATCH, why);
        return false;
    }
    return true;
}

/* Of two links of one pair and boot, does the new one stay? Both ends decide alike. An old link
 * that was no part of a simultaneous dial is dead at the other end, or there would be no new one.
 */
static bool is_kept(const struct links *links, const struct link *old, const struct link *new)
{
    bool self_is_smaller = peer_id_compare(links->self, new->peer) < 0;

    if (old->is_dialled == new->is_dialled) return true; /* a reconnect: the newer one is real */
    if (link_now(links) > old->opened_ns + LINK_HANDSHAKE_NS) return true;
    return new->is_dialled == self_is_smaller;
}

static void link_opened(struct links *links, struct link *link)
{
    struct link *old = link_find_peer(links, link->peer);

    link_become(link, LINK_OPEN);
    link_name(links, link, link->number);
    link->opened_ns = link->epoch_ns = link->asked_ns = link_now(links);
    if (old != NULL && boot_id_is_equal(old->remote.boot, link->remote.boot) &&
        old->remote.role == link->remote.role) { /* else the node must part with the old one */
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
        link_set_current(links, old, false);
        links->options.env->ops->hangup(links->options.env, old->number);
        link_retire(links, old);
    } else if (old != NULL) {
        link_hangup(links, old, RC_CLOSED, "the peer was started again");
    }
    link_set_current(links, link, true);
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
    if (link->probe != 0) {
        link_probe_answered(links, link);
        return;
    }
    link_become(link, LINK_PROVING); /* until HELLO_OK or ERROR */
    if (peer_id_is_equal(link->peer, links->self)) link_is_self(links, link);
}

/* It may come in, and hears so. */
static void link_welcome(struct links *links, struct link *link)
{
    struct message message = {.type = MESSAGE_HELLO_OK};
    uint8_t inner[INNER_HEADER_BYTES + 16], frame[sizeof inner + 64];
    size_t count;
    enum rc rc = message_encode(&message, inner, sizeof inner, &count);

    if (rc == RC_OK) rc = secure_seal(link->secure, inner, count, NULL, 0, frame);
    if (rc == RC_OK) rc = link_send_frame(links, link, frame, secure_record_bytes(count));
    if (rc != RC_OK) {
        link_hangup(links, link, rc, "cannot answer the handshake");
        return;
    }
    link_opened(links, link);
}

static void answered_as_responder(struct links *links, struct link *link)
{
    enum rc rc = link_learn(links, link);

    if (rc != RC_OK) {
        link_hangup(links, link, rc, "the other side could not prove who it is");
        return;
    }
    gate_leave(links->gate, link->number, true, link_now(links));
    if (peer_id_is_equal(link->peer, links->self)) {
        link_is_self(links, link);
        return;
    }
    if (link->remote.dialback != 0) {
        link_probe_arrived(links, link);
        return;
    }
    if (link_admit(links, link) && !link_duel_begin(links, link)) link_welcome(links, link);
}

void link_on_handshake(struct links *links, struct link *link, const uint8_t *frame, size_t count)
{
    uint8_t out[HANDSHAKE_BYTES_MAX];
    size_t out_count = 0;
    enum rc rc = RC_OK;

    if (bulk_on_attach(links, link, frame, count)) return;
    if (link->secure == NULL) rc = link_open_gate(links, link, frame, count);
    if (rc == RC_OK) rc = secure_answer(link->secure, frame, count, out, &out_count);
    if (rc == RC_OK && out_count > 0) rc = link_send_frame(links, link, out, out_count);
    if (rc != RC_OK) {
        links->counts.frames_refused++;
        link_hangup(links, link, rc, "the handshake failed: a wrong --swarm-key or --swarm-name");
        return;
    }
    if (secure_session(link->secure)->state != SECURE_OPEN) {
        if (link->state == LINK_GREETING) link_become(link, LINK_PROVING);
        return;
    }
    if (link->is_dialled) {
        answered_as_initiator(links, link);
    } else {
        answered_as_responder(links, link);
    }
}

void link_on_answer(struct links *links, struct link *link, const struct message *message)
{
    char why[ERROR_TEXT_MAX + ADDRESS_BYTES_MAX + 32];
    enum rc rc;

    if (message->type == MESSAGE_HELLO_OK) {
        if (link_accept(links, link) && !link_duel_begin(links, link)) link_opened(links, link);
        return;
    }
    if (message->type != MESSAGE_ERROR) {
        link_hangup(links, link, RC_FORMAT, "the other side broke the protocol");
        return;
    }
    rc = message->as.error.code == ERROR_MODEL          ? RC_MISMATCH
         : message->as.error.code == ERROR_METHOD       ? RC_MISMATCH
         : message->as.error.code == ERROR_DUPLICATE_ID ? RC_REFUSED
         : message->as.error.code == ERROR_DENIED       ? RC_REFUSED
                                                        : RC_BUSY;
    snprintf(why, sizeof why, "%s refused this peer: %s", link->address, message->as.error.text);
    link_hangup(links, link, rc, why);
}
