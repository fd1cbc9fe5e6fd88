/*
 * The env in front of the real one: links with numbers of its own are circuits, all others are
 * passed through. One slot a circuit. Loop thread.
 */
#include "peer/env/relay/internal.h"

#include "base/check.h"
#include "base/mem.h"
#include "peer/env/times.h"

#include <stdio.h>

#define NUMBER_FIRST (UINT64_C(1) << 63) /* no env counts its links that far */

static const char prefix[] = "relay:";

bool relay_is_address(const char *address)
{
    return strncmp(address, prefix, sizeof prefix - 1) == 0;
}

static void address_of(struct peer_id peer, char address[ADDRESS_BYTES_MAX])
{
    char id[PEER_ID_TEXT];

    peer_id_format(peer, id);
    snprintf(address, ADDRESS_BYTES_MAX, "%s%s", prefix, id);
}

static struct relay_env *of(struct env *env)
{
    return (struct relay_env *)env;
}

static struct env *base_of(struct env *env)
{
    return of(env)->options.base;
}

static uint64_t now(const struct relay_env *relay_env)
{
    return relay_env->options.base->ops->now_ns(relay_env->options.base);
}

static struct circuit *by_number(struct relay_env *relay_env, uint64_t number)
{
    for (int i = 0; i < RELAY_ENV_CIRCUITS_MAX; i++) {
        struct circuit *circuit = &relay_env->circuits[i];

        if (circuit->state != CIRCUIT_FREE && circuit->number == number) return circuit;
    }
    return NULL;
}

static struct circuit *by_id(struct relay_env *relay_env, struct peer_id relay, uint32_t id)
{
    for (int i = 0; i < RELAY_ENV_CIRCUITS_MAX; i++) {
        struct circuit *circuit = &relay_env->circuits[i];

        if (circuit->state <= CIRCUIT_ROUTED || circuit->id != id) continue;
        if (peer_id_is_equal(circuit->relay, relay)) return circuit;
    }
    return NULL;
}

static struct circuit *circuit_add(struct relay_env *relay_env, struct peer_id peer,
                                   struct peer_id relay)
{
    for (int i = 0; i < RELAY_ENV_CIRCUITS_MAX; i++) {
        struct circuit *circuit = &relay_env->circuits[i];

        if (circuit->state != CIRCUIT_FREE) continue;
        relay_env->is_used = true;
        *circuit = (struct circuit){
            .number = NUMBER_FIRST | ++relay_env->next_number, .peer = peer, .relay = relay};
        return circuit;
    }
    return NULL;
}

static uint32_t circuits_with(const struct relay_env *relay_env, struct peer_id peer)
{
    uint32_t count = 0;

    for (int i = 0; i < RELAY_ENV_CIRCUITS_MAX; i++) {
        const struct circuit *circuit = &relay_env->circuits[i];

        if (circuit->state == CIRCUIT_FREE || circuit->state == CIRCUIT_LEAVING) continue;
        count += peer_id_is_equal(circuit->peer, peer) && !circuit->wants_lost;
    }
    return count;
}

/* How many circuits this relay has brought us that live. An honest one keeps to the limit. */
static uint32_t circuits_by(const struct relay_env *relay_env, struct peer_id relay)
{
    uint32_t count = 0;

    for (int i = 0; i < RELAY_ENV_CIRCUITS_MAX; i++) {
        const struct circuit *circuit = &relay_env->circuits[i];

        if (circuit->state < CIRCUIT_OPEN || circuit->is_dialled || circuit->wants_lost) continue;
        count += peer_id_is_equal(circuit->relay, relay);
    }
    return count;
}

/* ---- the env's operations ---- */

static uint64_t env_now(struct env *env)
{
    return base_of(env)->ops->now_ns(base_of(env));
}

static void env_entropy(struct env *env, void *out, size_t count)
{
    base_of(env)->ops->entropy(base_of(env), out, count);
}

static void env_set_events(struct env *env, const struct env_events *events)
{
    of(env)->events = *events;
    base_of(env)->ops->set_events(base_of(env), events);
}

static enum rc env_listen(struct env *env, const char *address, char *bound, size_t cap,
                          struct fault *why)
{
    return base_of(env)->ops->listen(base_of(env), address, bound, cap, why);
}

static enum rc env_dial(struct env *env, const char *address, uint64_t *link)
{
    struct relay_env *relay_env = of(env);

    if (!relay_is_address(address)) {
        return base_of(env)->ops->dial(base_of(env), address, link);
    }
    for (int i = 0; i < RELAY_ENV_CIRCUITS_MAX; i++) {
        struct circuit *circuit = &relay_env->circuits[i];
        struct message message = {.type = MESSAGE_RELAY_CONNECT};
        char own[ADDRESS_BYTES_MAX];

        address_of(circuit->peer, own);
        if (circuit->state != CIRCUIT_ROUTED || strcmp(own, address) != 0) continue;
        circuit->state = CIRCUIT_ASKED;
        circuit->is_dialled = true;
        message.as.relay_connect.circuit = circuit->id;
        message.as.relay_connect.peer = circuit->peer;
        outbox_add(relay_env->options.outbox, circuit->relay, &message);
        circuit_open(relay_env, circuit);
        *link = circuit->number;
        return RC_OK;
    }
    return RC_NOT_FOUND;
}

static enum rc env_send(struct env *env, uint64_t link, struct blob *frame)
{
    struct circuit *circuit;

    if (link < NUMBER_FIRST) return base_of(env)->ops->send(base_of(env), link, frame);
    circuit = by_number(of(env), link);
    if (circuit == NULL || circuit->state == CIRCUIT_LEAVING || circuit->wants_lost) {
        return RC_CLOSED;
    }
    return circuit_queue(circuit, frame);
}

static void env_hangup(struct env *env, uint64_t link)
{
    struct circuit *circuit;

    if (link < NUMBER_FIRST) {
        base_of(env)->ops->hangup(base_of(env), link);
        return;
    }
    circuit = by_number(of(env), link);
    if (circuit == NULL) return;
    circuit->state = CIRCUIT_LEAVING; /* freed later: someone may be reading a frame of it */
    circuit->wants_told = false;
    circuit->deadline_ns = now(of(env)) + RELAY_LEAVING_NS;
}

static void env_set_frame_max(struct env *env, uint64_t link, size_t frame_max)
{
    struct circuit *circuit;

    if (link < NUMBER_FIRST) {
        base_of(env)->ops->link_set_frame_max(base_of(env), link, frame_max);
        return;
    }
    circuit = by_number(of(env), link);
    if (circuit != NULL) circuit->framer.frame_max = frame_max;
}

static void env_pause(struct env *env, uint64_t link, bool is_paused)
{
    struct circuit *circuit;

    if (link < NUMBER_FIRST) {
        base_of(env)->ops->link_pause(base_of(env), link, is_paused);
        return;
    }
    circuit = by_number(of(env), link);
    if (circuit == NULL) return;
    circuit->is_paused = is_paused;
    circuit->wants_read = !is_paused;
}

static void env_set_bulk(struct env *env, uint64_t link)
{
    if (link < NUMBER_FIRST) base_of(env)->ops->link_set_bulk(base_of(env), link);
}

static void env_set_partner(struct env *env, uint64_t link, struct peer_id partner)
{
    const struct env_ops *below = base_of(env)->ops;

    if (link >= NUMBER_FIRST || below->link_set_partner == NULL) return;
    below->link_set_partner(base_of(env), link, partner);
}

static bool env_gains_by_more(struct env *env, uint64_t link)
{
    return link < NUMBER_FIRST && base_of(env)->ops->link_gains_by_more(base_of(env), link);
}

static void env_link_bytes(struct env *env, uint64_t link, uint64_t *sent, uint64_t *received)
{
    const struct circuit *circuit;

    if (link < NUMBER_FIRST) {
        base_of(env)->ops->link_bytes(base_of(env), link, sent, received);
        return;
    }
    circuit = by_number(of(env), link);
    *sent = circuit == NULL ? 0 : circuit->sent;
    *received = circuit == NULL ? 0 : circuit->received;
}

static struct blob *env_frame_keep(struct env *env, uint64_t link)
{
    const struct circuit *circuit;

    if (link < NUMBER_FIRST) {
        const struct env_ops *below = base_of(env)->ops;

        return below->frame_keep == NULL ? NULL : below->frame_keep(base_of(env), link);
    }
    circuit = by_number(of(env), link);
    return circuit == NULL ? NULL : framer_keep(&circuit->framer);
}

static bool env_frame_spent_ns(struct env *env, uint64_t link, uint64_t *spent_ns)
{
    const struct env_ops *below = base_of(env)->ops;

    if (link >= NUMBER_FIRST || below->frame_spent_ns == NULL) return false;
    return below->frame_spent_ns(base_of(env), link, spent_ns);
}

static void env_wake_at(struct env *env, uint64_t at_ns)
{
    base_of(env)->ops->wake_at(base_of(env), at_ns);
}

static void env_submit(struct env *env, enum lane lane, struct job *job)
{
    base_of(env)->ops->submit(base_of(env), lane, job);
}

static enum rc env_store_put(struct env *env, const char *name, const struct piece *pieces,
                             size_t pieces_count, struct fault *why)
{
    return base_of(env)->ops->store_put(base_of(env), name, pieces, pieces_count, why);
}

static enum rc env_store_get(struct env *env, const char *name, size_t bytes_max, void **bytes,
                             size_t *count, struct fault *why)
{
    return base_of(env)->ops->store_get(base_of(env), name, bytes_max, bytes, count, why);
}

static enum rc env_store_append(struct env *env, const char *name, const void *bytes, size_t count,
                                size_t bytes_max, struct fault *why)
{
    return base_of(env)->ops->store_append(base_of(env), name, bytes, count, bytes_max, why);
}

static void env_stop(struct env *env)
{
    base_of(env)->ops->stop(base_of(env));
}

static const struct env_ops ops = {
    .name = "relay",
    .now_ns = env_now,
    .entropy = env_entropy,
    .set_events = env_set_events,
    .listen = env_listen,
    .dial = env_dial,
    .send = env_send,
    .hangup = env_hangup,
    .link_set_frame_max = env_set_frame_max,
    .link_pause = env_pause,
    .link_set_bulk = env_set_bulk,
    .link_set_partner = env_set_partner,
    .link_gains_by_more = env_gains_by_more,
    .link_bytes = env_link_bytes,
    .frame_keep = env_frame_keep,
    .frame_spent_ns = env_frame_spent_ns,
    .wake_at = env_wake_at,
    .submit = env_submit,
    .store_put = env_store_put,
    .store_get = env_store_get,
    .store_append = env_store_append,
    .stop = env_stop,
};

_Static_assert(sizeof ops == 22 * sizeof(void *),
               "a new operation of env has to be passed on here");

/* ---- life ---- */

struct relay_env *relay_env_create(const struct relay_env_options *options)
{
    struct relay_env *relay_env = mem_alloc(sizeof *relay_env);

    CHECK(options->outbox != NULL && options->send_data != NULL);
    if (relay_env == NULL) return NULL;
    relay_env->env.ops = &ops;
    relay_env->env.tracer = options->base->tracer;
    relay_env->options = *options;
    return relay_env;
}

void relay_env_destroy(struct relay_env *relay_env)
{
    if (relay_env == NULL) return;
    for (int i = 0; i < RELAY_ENV_CIRCUITS_MAX; i++) {
        circuit_free(&relay_env->circuits[i]);
    }
    mem_free(relay_env);
}

struct env *relay_env_env(struct relay_env *relay_env)
{
    return &relay_env->env;
}

enum rc relay_env_route(struct relay_env *relay_env, struct peer_id peer, struct peer_id relay,
                        char address[ADDRESS_BYTES_MAX])
{
    struct circuit *circuit;

    if (peer_id_is_equal(peer, relay) || peer_id_is_equal(peer, relay_env->options.self)) {
        return RC_REFUSED;
    }
    if (circuits_with(relay_env, peer) > 0) return RC_BUSY;
    circuit = circuit_add(relay_env, peer, relay);
    if (circuit == NULL) return RC_LIMIT;
    circuit->state = CIRCUIT_ROUTED;
    circuit->deadline_ns = now(relay_env) + RELAY_ROUTED_NS;
    circuit->id = relay_env->next_id++ & INT32_MAX;
    address_of(peer, address);
    return RC_OK;
}

/* ---- from relays ---- */

static void refuse(struct relay_env *relay_env, struct peer_id relay, uint32_t id,
                   enum relay_code code)
{
    struct circuit none = {.relay = relay, .id = id};

    circuit_say_stop(relay_env, &none, code);
}

/* Somebody wants a circuit with us. Who it is the handshake will prove. */
static void on_connect(struct relay_env *relay_env, struct peer_id relay, bool is_expected,
                       const struct message_relay_connect *connect)
{
    struct circuit *circuit = by_id(relay_env, relay, connect->circuit);
    enum relay_code code = RELAY_GRANTED;

    if (circuit != NULL || (connect->circuit & (uint32_t)RELAY_ID_FROM_RELAY) == 0) {
        code = RELAY_BROKEN;
    } else if (!is_expected || peer_id_is_equal(connect->peer, relay_env->options.self) ||
               peer_id_is_equal(connect->peer, relay)) {
        code = RELAY_FORBIDDEN;
    } else if (circuits_with(relay_env, connect->peer) >= 2 || /* an old one may be dead */
               circuits_by(relay_env, relay) >= RELAY_CIRCUITS_PER_PEER) {
        code = RELAY_FULL;
    } else {
        circuit = circuit_add(relay_env, connect->peer, relay);
        if (circuit == NULL) code = RELAY_FULL;
    }
    if (code != RELAY_GRANTED) {
        refuse(relay_env, relay, connect->circuit, code);
        return;
    }
    circuit->state = CIRCUIT_OPEN;
    circuit->id = connect->circuit;
    circuit->wants_told = true;
    circuit_open(relay_env, circuit);
}

void relay_env_on_message(struct relay_env *relay_env, struct peer_id relay, bool is_expected,
                          const struct message *message)
{
    struct circuit *circuit;

    switch (message->type) {
    case MESSAGE_RELAY_CONNECT:
        on_connect(relay_env, relay, is_expected, &message->as.relay_connect);
        return;
    case MESSAGE_RELAY_WINDOW:
        circuit = by_id(relay_env, relay, message->as.relay_window.circuit);
        if (circuit == NULL) return; /* it ended while this was under way */
        if (message->as.relay_window.bytes > circuit->sent + RELAY_WINDOW_BYTES) {
            circuit_say_stop(relay_env, circuit, RELAY_BROKEN);
            circuit_lose(circuit, RELAY_BROKEN);
            return;
        }
        if (message->as.relay_window.bytes > circuit->may_send) {
            circuit->may_send = message->as.relay_window.bytes;
        }
        if (circuit->state != CIRCUIT_ASKED) return;
        circuit->state = CIRCUIT_OPEN;
        circuit->wants_told = true;
        return;
    default:
        CHECK(message->type == MESSAGE_RELAY_STOP);
        circuit = by_id(relay_env, relay, message->as.relay_stop.circuit);
        if (circuit != NULL) circuit_lose(circuit, (enum relay_code)message->as.relay_stop.code);
    }
}

void relay_env_on_data(struct relay_env *relay_env, struct peer_id relay,
                       const struct inner_header *header, const uint8_t *body, size_t count)
{
    struct circuit *circuit = by_id(relay_env, relay, header->arg);

    if (circuit == NULL || circuit->state == CIRCUIT_LEAVING || circuit->wants_lost) return;
    circuit_take(relay_env, circuit, header, body, count);
}

void relay_env_on_link_lost(struct relay_env *relay_env, struct peer_id relay)
{
    for (int i = 0; i < RELAY_ENV_CIRCUITS_MAX; i++) {
        struct circuit *circuit = &relay_env->circuits[i];

        if (circuit->state == CIRCUIT_FREE || !peer_id_is_equal(circuit->relay, relay)) continue;
        circuit_lose(circuit, RELAY_CLOSED);
    }
}

/* ---- to the node ---- */

static const char *lost_text(enum relay_code code)
{
    static const char *const texts[] = {[RELAY_GRANTED] = "the relay closed the connection",
                                        [RELAY_FULL] = "the relay has no room for more",
                                        [RELAY_UNRESERVED] = "the relay does not reach it",
                                        [RELAY_FORBIDDEN] = "the relay does not do that",
                                        [RELAY_SPENT] = "the relay carries no more of it",
                                        [RELAY_CLOSED] =
                                            "connection closed at the other side of the relay",
                                        [RELAY_BROKEN] = "the protocol of relays was broken"};

    return texts[code];
}

static void tell_birth(struct relay_env *relay_env, struct circuit *circuit)
{
    char address[ADDRESS_BYTES_MAX];

    circuit->wants_told = false;
    if (circuit->is_dialled) {
        relay_env->events.on_connected(relay_env->events.context, circuit->number);
    } else {
        address_of(circuit->peer, address);
        relay_env->events.on_accepted(relay_env->events.context, circuit->number, address);
    }
}

/* What came before it was lost is read first. */
static void tell_lost(struct relay_env *relay_env, struct circuit *circuit)
{
    uint64_t number = circuit->number;
    enum relay_code code = circuit->lost_code;
    bool is_known = circuit->state != CIRCUIT_ROUTED && circuit->state != CIRCUIT_LEAVING;

    circuit_free(circuit);
    if (is_known) {
        relay_env->events.on_lost(relay_env->events.context, number, RC_CLOSED, lost_text(code));
    }
}

static void deliver(struct relay_env *relay_env, struct circuit *circuit)
{
    uint64_t number = circuit->number;

    if (circuit->state == CIRCUIT_OPEN && circuit->wants_told) tell_birth(relay_env, circuit);
    if (circuit->number == number && circuit->state == CIRCUIT_OPEN) {
        circuit->wants_read = false;
        circuit_read(relay_env, circuit);
    }
    if (circuit->number == number && circuit->state >= CIRCUIT_OPEN) {
        circuit_pump(relay_env, circuit);
    }
    if (circuit->number == number && circuit->state == CIRCUIT_OPEN && circuit->is_drain_due &&
        circuit->queued_bytes <= LINK_QUEUE_BYTES_MAX / 2 && !circuit->wants_lost) {
        circuit->is_drain_due = false;
        relay_env->events.on_drain(relay_env->events.context, number);
    }
    if (circuit->number != number || circuit->state == CIRCUIT_FREE) return;
    if (circuit->wants_lost) {
        tell_lost(relay_env, circuit);
    } else if ((circuit->state == CIRCUIT_LEAVING || circuit->state == CIRCUIT_ROUTED) &&
               now(relay_env) >= circuit->deadline_ns) {
        if (circuit->state == CIRCUIT_LEAVING) circuit_say_stop(relay_env, circuit, RELAY_CLOSED);
        circuit_free(circuit);
    }
}

void relay_env_deliver(struct relay_env *relay_env)
{
    bool is_used = false;

    for (int i = 0; i < RELAY_ENV_CIRCUITS_MAX && relay_env->is_used; i++) {
        struct circuit *circuit = &relay_env->circuits[i];

        if (circuit->state == CIRCUIT_FREE) continue;
        is_used = true;
        deliver(relay_env, circuit);
    }
    relay_env->is_used = is_used;
}

static bool is_due(const struct circuit *circuit)
{
    if (circuit->wants_told || circuit->wants_lost) return true;
    if (circuit->state == CIRCUIT_OPEN && !circuit->is_paused &&
        (circuit->inbox.count > 0 || circuit->wants_read)) {
        return true;
    }
    return circuit->queue.count > 0 && circuit->sent < circuit->may_send;
}

uint64_t relay_env_next_ns(const struct relay_env *relay_env)
{
    uint64_t next_ns = UINT64_MAX;

    for (int i = 0; i < RELAY_ENV_CIRCUITS_MAX && relay_env->is_used; i++) {
        const struct circuit *circuit = &relay_env->circuits[i];

        if (circuit->state == CIRCUIT_FREE) continue;
        if (is_due(circuit)) return 0;
        if (circuit->state != CIRCUIT_LEAVING && circuit->state != CIRCUIT_ROUTED) continue;
        if (circuit->deadline_ns < next_ns) next_ns = circuit->deadline_ns;
    }
    return next_ns;
}

bool relay_env_relay_of(const struct relay_env *relay_env, struct peer_id peer,
                        struct peer_id *relay)
{
    for (int i = 0; i < RELAY_ENV_CIRCUITS_MAX; i++) {
        const struct circuit *circuit = &relay_env->circuits[i];

        if (circuit->state != CIRCUIT_OPEN || !peer_id_is_equal(circuit->peer, peer)) continue;
        *relay = circuit->relay;
        return true;
    }
    return false;
}

uint32_t relay_env_circuits(const struct relay_env *relay_env)
{
    uint32_t count = 0;

    for (int i = 0; i < RELAY_ENV_CIRCUITS_MAX && relay_env->is_used; i++) {
        count += relay_env->circuits[i].state == CIRCUIT_OPEN;
    }
    return count;
}
