/*
 * The serving side of relayed links, after the circuit relay of libp2p (specs/relay, version 2):
 * reservations first, then circuits, both capped in number, time, bytes and rate. Unlike there the
 * rate is kept by the windows (gossip/reach/relay.h), so a fast sender waits instead of being cut.
 *
 *   circuit:  ASKED --target's first window--> OPEN      either --stop, loss, cap, lease--> free
 *
 * Loop thread.
 */
#include "gossip/reach/relay.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "gossip/times.h"

enum { RESERVATIONS_MAX = 256, CIRCUITS_MAX = 64, GRANT_BYTES_MIN = 16 * 1024 };

struct reservation {
    struct peer_id peer;
    uint64_t until_ns; /* 0: free */
};

struct end {
    struct peer_id peer;
    uint32_t id;      /* the circuit's number on its link */
    uint64_t takes;   /* bytes it takes in all, as it says */
    uint64_t granted; /* bytes it may send in all, as it was told */
    uint64_t sent;
};

struct circuit {
    bool is_used, is_open;
    uint64_t asked_ns;
    struct end ends[2]; /* the source's first */
};

struct relay {
    struct relay_options options;
    struct peer_id self;
    bool is_relaying;
    struct reservation reservations[RESERVATIONS_MAX];
    struct circuit circuits[CIRCUITS_MAX];
    uint32_t next_id, turn;
    uint64_t tokens, tokens_ns; /* bytes that may be granted, and as of when */
    uint64_t bytes;
    uint64_t next_ns;
};

struct relay_options relay_options_default(void)
{
    return (struct relay_options){.bytes_per_s = 20 * 1000 * 1000 / 8,
                                  .circuit_bytes_max = UINT64_C(1) << 30,
                                  .lease_ns = RELAY_LEASE_NS,
                                  .reservations_max = 64,
                                  .circuits_max = 16};
}

struct relay *relay_create(const struct relay_options *options, struct peer_id self)
{
    struct relay *relay = mem_alloc(sizeof *relay);

    CHECK(options->reservations_max <= RESERVATIONS_MAX && options->circuits_max <= CIRCUITS_MAX);
    if (relay == NULL) return NULL;
    relay->options = *options;
    relay->self = self;
    relay->next_ns = UINT64_MAX;
    return relay;
}

void relay_destroy(struct relay *relay)
{
    mem_free(relay);
}

/* ---- what is said ---- */

static void say_stop(struct outbox *out, struct peer_id to, uint32_t id, enum relay_code code)
{
    struct message message = {.type = MESSAGE_RELAY_STOP};

    message.as.relay_stop.circuit = id;
    message.as.relay_stop.code = code;
    message.as.relay_stop.is_from_relay = true;
    outbox_add(out, to, &message);
}

static void say_window(struct outbox *out, const struct end *end)
{
    struct message message = {.type = MESSAGE_RELAY_WINDOW};

    message.as.relay_window.circuit = end->id;
    message.as.relay_window.bytes = end->granted;
    message.as.relay_window.is_from_relay = true;
    outbox_add(out, end->peer, &message);
}

static void say_lease(const struct relay *relay, struct outbox *out, struct peer_id to,
                      enum relay_code code)
{
    struct message message = {.type = MESSAGE_RELAY_LEASE};

    message.as.relay_lease.code = code;
    if (code == RELAY_GRANTED) {
        message.as.relay_lease.lease_ms = (uint32_t)(relay->options.lease_ns / NS_PER_MS);
    }
    outbox_add(out, to, &message);
}

/* Both ends hear of it, but for `but` (NULL: nobody is left out). */
static void circuit_end(struct circuit *circuit, enum relay_code code, const struct end *but,
                        struct outbox *out)
{
    for (int i = 0; i < 2; i++) {
        const struct end *end = &circuit->ends[i];

        if (end != but) say_stop(out, end->peer, end->id, code);
    }
    circuit->is_used = false;
}

/* ---- finding ---- */

static struct reservation *reservation_find(struct relay *relay, struct peer_id peer)
{
    for (uint32_t i = 0; i < relay->options.reservations_max; i++) {
        struct reservation *reservation = &relay->reservations[i];

        if (reservation->until_ns != 0 && peer_id_is_equal(reservation->peer, peer)) {
            return reservation;
        }
    }
    return NULL;
}

static struct circuit *circuit_find(struct relay *relay, struct peer_id peer, uint32_t id,
                                    unsigned *which)
{
    for (uint32_t i = 0; i < relay->options.circuits_max; i++) {
        struct circuit *circuit = &relay->circuits[i];

        for (unsigned e = 0; e < 2 && circuit->is_used; e++) {
            if (circuit->ends[e].id != id) continue;
            if (!peer_id_is_equal(circuit->ends[e].peer, peer)) continue;
            *which = e;
            return circuit;
        }
    }
    return NULL;
}

static uint32_t circuits_of(const struct relay *relay, struct peer_id peer)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < relay->options.circuits_max; i++) {
        const struct circuit *circuit = &relay->circuits[i];

        if (!circuit->is_used) continue;
        count += peer_id_is_equal(circuit->ends[0].peer, peer) ||
                 peer_id_is_equal(circuit->ends[1].peer, peer);
    }
    return count;
}

static struct circuit *circuit_free_slot(struct relay *relay)
{
    for (uint32_t i = 0; i < relay->options.circuits_max; i++) {
        if (!relay->circuits[i].is_used) return &relay->circuits[i];
    }
    return NULL;
}

static void wake(struct relay *relay, uint64_t at_ns)
{
    if (at_ns < relay->next_ns) relay->next_ns = at_ns;
}

/* ---- asked of us ---- */

static void on_reserve(struct relay *relay, struct peer_id from, bool is_direct, uint64_t now_ns,
                       struct outbox *out)
{
    struct reservation *reservation = reservation_find(relay, from);

    if (!relay->is_relaying || !is_direct) {
        say_lease(relay, out, from, RELAY_FORBIDDEN);
        return;
    }
    for (uint32_t i = 0; i < relay->options.reservations_max && reservation == NULL; i++) {
        if (relay->reservations[i].until_ns == 0) reservation = &relay->reservations[i];
    }
    if (reservation == NULL) {
        say_lease(relay, out, from, RELAY_FULL);
        return;
    }
    reservation->peer = from;
    reservation->until_ns = now_ns + relay->options.lease_ns;
    wake(relay, reservation->until_ns);
    say_lease(relay, out, from, RELAY_GRANTED);
}

/* May `from` be connected with `target`? */
static enum relay_code judge(struct relay *relay, struct peer_id from, bool is_direct,
                             struct peer_id target)
{
    if (!relay->is_relaying || !is_direct) return RELAY_FORBIDDEN;
    if (peer_id_is_equal(from, target) || peer_id_is_equal(target, relay->self)) {
        return RELAY_FORBIDDEN;
    }
    if (reservation_find(relay, target) == NULL) return RELAY_UNRESERVED;
    if (circuit_free_slot(relay) == NULL) return RELAY_FULL;
    if (circuits_of(relay, from) >= RELAY_CIRCUITS_PER_PEER ||
        circuits_of(relay, target) >= RELAY_CIRCUITS_PER_PEER) {
        return RELAY_FULL;
    }
    return RELAY_GRANTED;
}

static void on_connect(struct relay *relay, struct peer_id from, bool is_direct,
                       const struct message_relay_connect *connect, uint64_t now_ns,
                       struct outbox *out)
{
    enum relay_code code = judge(relay, from, is_direct, connect->peer);
    struct message message = {.type = MESSAGE_RELAY_CONNECT};
    struct circuit *circuit;
    unsigned which;

    if ((connect->circuit & (uint32_t)RELAY_ID_FROM_RELAY) != 0 ||
        circuit_find(relay, from, connect->circuit, &which) != NULL) {
        code = RELAY_BROKEN;
    }
    if (code != RELAY_GRANTED) {
        say_stop(out, from, connect->circuit, code);
        return;
    }
    circuit = circuit_free_slot(relay);
    CHECK(circuit != NULL);
    *circuit = (struct circuit){.is_used = true, .asked_ns = now_ns};
    circuit->ends[0] = (struct end){.peer = from, .id = connect->circuit};
    circuit->ends[1] =
        (struct end){.peer = connect->peer, .id = relay->next_id++ | (uint32_t)RELAY_ID_FROM_RELAY};
    message.as.relay_connect.circuit = circuit->ends[1].id;
    message.as.relay_connect.peer = from;
    message.as.relay_connect.is_from_relay = true;
    outbox_add(out, connect->peer, &message);
    wake(relay, now_ns + RELAY_ACCEPT_NS);
}

static void on_window(struct relay *relay, struct peer_id from,
                      const struct message_relay_window *window, uint64_t now_ns,
                      struct outbox *out)
{
    unsigned which;
    struct circuit *circuit = circuit_find(relay, from, window->circuit, &which);

    if (circuit == NULL) return; /* it ended while this was under way */
    if (window->bytes > circuit->ends[1 - which].sent + RELAY_WINDOW_BYTES) {
        circuit_end(circuit, RELAY_BROKEN, NULL, out); /* it cannot have read so much */
        return;
    }
    if (window->bytes <= circuit->ends[which].takes) return;
    circuit->ends[which].takes = window->bytes;
    if (which == 1) circuit->is_open = true;
    wake(relay, now_ns);
}

static void on_stop(struct relay *relay, struct peer_id from, const struct message_relay_stop *stop,
                    struct outbox *out)
{
    unsigned which;
    struct circuit *circuit = circuit_find(relay, from, stop->circuit, &which);

    if (circuit == NULL) return;
    circuit_end(circuit, (enum relay_code)stop->code, &circuit->ends[which], out);
}

void relay_on_message(struct relay *relay, struct peer_id from, bool is_direct,
                      const struct message *message, uint64_t now_ns, struct outbox *out)
{
    switch (message->type) {
    case MESSAGE_RELAY_RESERVE:
        on_reserve(relay, from, is_direct, now_ns, out);
        break;
    case MESSAGE_RELAY_CONNECT:
        CHECK(!message->as.relay_connect.is_from_relay);
        on_connect(relay, from, is_direct, &message->as.relay_connect, now_ns, out);
        break;
    case MESSAGE_RELAY_WINDOW:
        CHECK(!message->as.relay_window.is_from_relay);
        on_window(relay, from, &message->as.relay_window, now_ns, out);
        break;
    case MESSAGE_RELAY_STOP:
        CHECK(!message->as.relay_stop.is_from_relay);
        on_stop(relay, from, &message->as.relay_stop, out);
        break;
    default:
        CHECK(false);
    }
}

bool relay_on_data(struct relay *relay, struct peer_id from, const struct inner_header *header,
                   size_t count, struct peer_id *to, struct inner_header *onward,
                   struct outbox *out)
{
    unsigned which;
    struct circuit *circuit = circuit_find(relay, from, header->arg, &which);
    struct end *end;

    if (circuit == NULL) return false; /* it ended while this was under way */
    end = &circuit->ends[which];
    if (count == 0 || count > RELAY_SEGMENT_BYTES || count > end->granted - end->sent) {
        circuit_end(circuit, RELAY_BROKEN, NULL, out);
        return false;
    }
    end->sent += count;
    relay->bytes += count;
    if (circuit->ends[0].sent + circuit->ends[1].sent > relay->options.circuit_bytes_max) {
        circuit_end(circuit, RELAY_SPENT, NULL, out);
        return false;
    }
    if (circuit->ends[1 - which].takes > end->granted) relay->next_ns = 0; /* grant more */
    *to = circuit->ends[1 - which].peer;
    *onward = *header;
    onward->arg = circuit->ends[1 - which].id;
    onward->stream = 1; /* from the relay */
    onward->after = 0;
    return true;
}

void relay_on_link_lost(struct relay *relay, struct peer_id peer, struct outbox *out)
{
    struct reservation *reservation = reservation_find(relay, peer);

    if (reservation != NULL) reservation->until_ns = 0;
    for (uint32_t i = 0; i < relay->options.circuits_max; i++) {
        struct circuit *circuit = &relay->circuits[i];

        for (int e = 0; e < 2 && circuit->is_used; e++) {
            if (!peer_id_is_equal(circuit->ends[e].peer, peer)) continue;
            circuit_end(circuit, RELAY_CLOSED, &circuit->ends[e], out);
        }
    }
}

void relay_set_open(struct relay *relay, bool is_open, struct outbox *out)
{
    is_open = is_open && relay->options.bytes_per_s > 0;
    if (relay->is_relaying == is_open) return;
    relay->is_relaying = is_open;
    if (is_open) return;
    for (uint32_t i = 0; i < relay->options.circuits_max; i++) {
        if (relay->circuits[i].is_used) circuit_end(&relay->circuits[i], RELAY_CLOSED, NULL, out);
    }
    memset(relay->reservations, 0, sizeof relay->reservations);
}

/* ---- time ---- */

static void expire(struct relay *relay, uint64_t now_ns, struct outbox *out)
{
    for (uint32_t i = 0; i < relay->options.reservations_max; i++) {
        struct reservation *reservation = &relay->reservations[i];

        if (reservation->until_ns == 0) continue;
        if (now_ns >= reservation->until_ns) {
            reservation->until_ns = 0;
        } else {
            wake(relay, reservation->until_ns);
        }
    }
    for (uint32_t i = 0; i < relay->options.circuits_max; i++) {
        struct circuit *circuit = &relay->circuits[i];

        if (!circuit->is_used) continue;
        if (reservation_find(relay, circuit->ends[1].peer) == NULL) {
            circuit_end(circuit, RELAY_SPENT, NULL, out);
        } else if (!circuit->is_open && now_ns >= circuit->asked_ns + RELAY_ACCEPT_NS) {
            circuit_end(circuit, RELAY_CLOSED, NULL, out);
        } else if (!circuit->is_open) {
            wake(relay, circuit->asked_ns + RELAY_ACCEPT_NS);
        }
    }
}

/* Tokens are saved up for a window at most, so that what is granted in a second is what the rate
 * says and one window more. */
static void refill(struct relay *relay, uint64_t now_ns)
{
    uint64_t passed_ns = now_ns - relay->tokens_ns;

    if (passed_ns > NS_PER_S) passed_ns = NS_PER_S;
    relay->tokens += (uint64_t)((double)relay->options.bytes_per_s * (double)passed_ns / 1e9);
    if (relay->tokens > RELAY_WINDOW_BYTES) relay->tokens = RELAY_WINDOW_BYTES;
    relay->tokens_ns = now_ns;
}

/* Grant what the other end takes, as far as tokens go. True: more is wanted than there is. */
static bool grant(struct relay *relay, struct end *end, const struct end *other, struct outbox *out)
{
    uint64_t missing = other->takes > end->granted ? other->takes - end->granted : 0;
    uint64_t least = missing < GRANT_BYTES_MIN ? missing : GRANT_BYTES_MIN;

    if (missing > RELAY_WINDOW_BYTES) missing = RELAY_WINDOW_BYTES;
    if (end->granted - end->sent >= RELAY_WINDOW_BYTES) missing = 0; /* enough on the way */
    if (missing == 0 || relay->tokens < least) return missing > 0;
    if (missing > relay->tokens) missing = relay->tokens;
    end->granted += missing;
    relay->tokens -= missing;
    say_window(out, end);
    return false;
}

void relay_tick(struct relay *relay, uint64_t now_ns, struct outbox *out)
{
    bool is_short = false;

    if (now_ns < relay->next_ns) return;
    relay->next_ns = UINT64_MAX;
    expire(relay, now_ns, out);
    refill(relay, now_ns);
    for (uint32_t i = 0; i < relay->options.circuits_max; i++) {
        struct circuit *circuit = &relay->circuits[relay->turn % relay->options.circuits_max];

        if (circuit->is_used && circuit->is_open) {
            is_short |= grant(relay, &circuit->ends[0], &circuit->ends[1], out);
            is_short |= grant(relay, &circuit->ends[1], &circuit->ends[0], out);
        }
        if (is_short) break; /* it is the first to be served next time */
        relay->turn++;
    }
    if (is_short) wake(relay, now_ns + RELAY_GRANT_NS);
}

uint64_t relay_next_ns(const struct relay *relay)
{
    return relay->next_ns;
}

void relay_view(const struct relay *relay, struct relay_view *view)
{
    *view = (struct relay_view){.bytes = relay->bytes};
    for (uint32_t i = 0; i < relay->options.reservations_max; i++) {
        view->reservations += relay->reservations[i].until_ns != 0;
    }
    for (uint32_t i = 0; i < relay->options.circuits_max; i++) {
        view->circuits += relay->circuits[i].is_used;
    }
}
