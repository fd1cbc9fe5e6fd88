/*
 * membership_net: thousands of memberships in one process, without links and crypto between them.
 * Messages take a latency each and keep their order; a lost one comes later, and so does all behind
 * it, as on TCP: 200 ms for the first repetition, twice that for the next. A killed peer's links
 * break and dials to it are refused; a silent machine lets everything hang.
 */
#ifndef GRAPEVINE_TESTS_SIM_MEMBERSHIP_NET_H
#define GRAPEVINE_TESTS_SIM_MEMBERSHIP_NET_H

#include "tests/check.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "gossip/membership/membership.h"

enum net_kind { NET_WAKE, NET_DIALLED, NET_DELIVER, NET_LOST };
enum { NET_OVERHEAD = RECORD_HEADER_BYTES + RECORD_TAG_BYTES };

#define NET_DIAL_HANGS (5 * NS_PER_S)
#define NET_RTO        (200 * NS_PER_MS)

struct net_event {
    uint64_t at_ns, order, link;
    enum net_kind kind;
    uint32_t from, to;
    struct blob *inner;
};

struct net_path { /* one direction between two peers */
    uint64_t link, free_ns;
};

struct net_peer {
    struct membership *membership; /* NULL: killed */
    struct identity identity;
    struct peer_id id;
    struct boot_id boot;
    bool is_silent; /* nothing goes in or out any more */
    uint64_t wake_ns, bytes, messages;
    struct outbox outbox;
};

struct net {
    struct net_peer *peers;
    struct net_path *paths;             /* [from * count + to] */
    bool *is_dialler;                   /* likewise: the open link was dialled by `from` */
    uint8_t *side;                      /* of a cut; equal: connected */
    uint32_t count, *by_id, by_id_mask; /* by_id: index + 1, 0 is free */
    struct net_event *events;           /* a heap by (at_ns, order) */
    uint32_t events_count, events_max;
    uint64_t order, now_ns, links, latency_ns, dials, bad;
    double loss;
    struct verified *verified;
    struct rng rng;
    struct digest run_id;
};

/* --- events ---------------------------------------------------------------------------------- */

static inline bool net_is_before(const struct net_event *a, const struct net_event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

static inline void net_push(struct net *net, struct net_event event)
{
    uint32_t i = net->events_count++;

    if (net->events_count > net->events_max) {
        net->events_max = net->events_max == 0 ? 4096 : 2 * net->events_max;
        net->events = realloc(net->events, net->events_max * sizeof net->events[0]);
        assert_non_null(net->events);
    }
    event.order = net->order++;
    while (i > 0 && net_is_before(&event, &net->events[(i - 1) / 2])) {
        net->events[i] = net->events[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    net->events[i] = event;
}

static inline struct net_event net_pop(struct net *net)
{
    struct net_event top = net->events[0], last = net->events[--net->events_count];
    uint32_t i = 0;

    for (;;) {
        uint32_t child = 2 * i + 1;

        if (child >= net->events_count) break;
        if (child + 1 < net->events_count &&
            net_is_before(&net->events[child + 1], &net->events[child])) {
            child++;
        }
        if (!net_is_before(&net->events[child], &last)) break;
        net->events[i] = net->events[child];
        i = child;
    }
    net->events[i] = last;
    return top;
}

/* --- the network ----------------------------------------------------------------------------- */

static inline uint32_t net_index(const struct net *net, struct peer_id id)
{
    uint32_t slot = load_le32(id.bytes) & net->by_id_mask;

    while (!peer_id_is_equal(net->peers[net->by_id[slot] - 1].id, id)) {
        slot = (slot + 1) & net->by_id_mask;
        CHECK(net->by_id[slot] != 0);
    }
    return net->by_id[slot] - 1;
}

static inline struct net_path *net_path(const struct net *net, uint32_t from, uint32_t to)
{
    return &net->paths[(size_t)from * net->count + to];
}

static inline uint64_t net_latency(struct net *net)
{
    uint64_t latency = net->latency_ns / 2 + rng_below(&net->rng, net->latency_ns + 1);
    uint64_t again = NET_RTO;

    while (net->loss > 0 && rng_unit(&net->rng) < net->loss) {
        latency += again;
        again *= 2;
    }
    return latency;
}

static inline bool net_is_cut(const struct net *net, uint32_t a, uint32_t b)
{
    return net->peers[a].is_silent || net->peers[b].is_silent || net->side[a] != net->side[b];
}

static inline void net_send_all(struct net *net, uint32_t from)
{
    struct net_peer *peer = &net->peers[from];

    CHECK(peer->outbox.dropped == 0);
    for (uint32_t i = 0; i < peer->outbox.count; i++) {
        uint32_t to = net_index(net, peer->outbox.entries[i].to);
        struct net_path *path = net_path(net, from, to);
        struct blob *inner = peer->outbox.entries[i].inner;
        uint64_t at_ns = net->now_ns + net_latency(net);

        if (path->link == 0) continue;
        peer->bytes += inner->count + NET_OVERHEAD;
        peer->messages++;
        if (at_ns <= path->free_ns) at_ns = path->free_ns + 1;
        path->free_ns = at_ns;
        net_push(net, (struct net_event){.at_ns = at_ns,
                                         .kind = NET_DELIVER,
                                         .from = from,
                                         .to = to,
                                         .link = path->link,
                                         .inner = blob_ref(inner)});
    }
    outbox_clear(&peer->outbox);
}

/* After anything happened to a peer: what it wants, and when it wants to be woken. */
static inline void net_settle(struct net *net, uint32_t index)
{
    struct net_peer *peer = &net->peers[index];
    char address[ADDRESS_BYTES_MAX];
    struct peer_id silent;
    uint64_t next_ns;

    membership_tick(peer->membership, net->now_ns, &peer->outbox);
    net_send_all(net, index);
    while (membership_next_hangup(peer->membership, &silent)) {
        uint32_t other = net_index(net, silent);
        struct net_path *path = net_path(net, index, other);

        if (path->link == 0) continue;
        net_push(net, (struct net_event){.at_ns = net->now_ns + net_latency(net),
                                         .kind = NET_LOST,
                                         .from = index,
                                         .to = other,
                                         .link = path->link});
        path->link = 0;
    }
    while (membership_next_dial(peer->membership, net->now_ns, address)) {
        uint32_t to = (uint32_t)strtoul(address + 1, NULL, 10);
        bool hangs = to < net->count && net_is_cut(net, index, to);

        net->dials++;
        net_push(net, (struct net_event){.at_ns = net->now_ns +
                                                  (hangs ? NET_DIAL_HANGS : 2 * net_latency(net)),
                                         .kind = NET_DIALLED,
                                         .from = index,
                                         .to = to});
    }
    next_ns = membership_next_ns(peer->membership);
    CHECK(next_ns > net->now_ns);
    if (next_ns == peer->wake_ns) return;
    peer->wake_ns = next_ns;
    net_push(net, (struct net_event){.at_ns = next_ns, .kind = NET_WAKE, .to = index});
}

static inline void net_link_up(struct net *net, uint32_t a, uint32_t b, const char *address)
{
    struct net_peer *peer = &net->peers[a], *other = &net->peers[b];

    *net_path(net, a, b) = (struct net_path){.link = net->links, .free_ns = net->now_ns};
    net->is_dialler[(size_t)a * net->count + b] = address[0] != '\0';
    membership_on_link_up(peer->membership, other->id, other->identity.public_key, other->boot,
                          address, net->now_ns, &peer->outbox);
    net_settle(net, a);
}

static inline void net_on_dialled(struct net *net, const struct net_event *event)
{
    struct net_peer *from = &net->peers[event->from];
    struct net_peer *other = event->to < net->count ? &net->peers[event->to] : NULL;
    char address[ADDRESS_BYTES_MAX];
    uint32_t to = event->to;

    if (from->membership == NULL) return;
    snprintf(address, sizeof address, "p%u:7", to);
    if (other == NULL || other->membership == NULL || net_is_cut(net, event->from, to)) {
        membership_on_dial_failed(from->membership, address, net->now_ns);
    } else if (to == event->from || (net_path(net, event->from, to)->link != 0 &&
                                     net_path(net, to, event->from)->link != 0 &&
                                     !(peer_id_compare(from->id, other->id) < 0 &&
                                       !net->is_dialler[(size_t)event->from * net->count + to]))) {
        membership_on_link_duplicate(from->membership, address, other->id, net->now_ns);
    } else {
        net->links++;
        net_link_up(net, event->from, to, address);
        net_link_up(net, to, event->from, "");
        return;
    }
    net_settle(net, event->from);
}

static inline void net_on_deliver(struct net *net, const struct net_event *event)
{
    struct net_peer *to = &net->peers[event->to];
    struct inner_header header;
    struct message message;

    if (to->membership == NULL || net_is_cut(net, event->from, event->to)) return;
    if (net_path(net, event->to, event->from)->link != event->link) return;
    assert_int_equal(inner_header_decode(event->inner->bytes, event->inner->count, &header), RC_OK);
    assert_int_equal(message_decode(header.type, event->inner->bytes + INNER_HEADER_BYTES,
                                    event->inner->count - INNER_HEADER_BYTES, &message),
                     RC_OK);
    if (membership_on_message(to->membership, net->peers[event->from].id, &message, net->now_ns,
                              &to->outbox) != RC_OK) {
        net->bad++;
    }
    net_settle(net, event->to);
}

static inline void net_on_lost(struct net *net, const struct net_event *event)
{
    struct net_peer *to = &net->peers[event->to];

    if (net_is_cut(net, event->from, event->to)) return;
    if (net_path(net, event->to, event->from)->link != event->link) return;
    net_path(net, event->to, event->from)->link = 0;
    if (to->membership == NULL) return;
    membership_on_link_lost(to->membership, net->peers[event->from].id, net->now_ns);
    net_settle(net, event->to);
}

/* Run until virtual time `until_ns`. */
static inline void net_run(struct net *net, uint64_t until_ns)
{
    while (net->events_count > 0 && net->events[0].at_ns <= until_ns) {
        struct net_event event = net_pop(net);
        struct net_peer *peer = &net->peers[event.to < net->count ? event.to : 0];

        net->now_ns = event.at_ns;
        switch (event.kind) {
        case NET_WAKE:
            if (peer->membership == NULL || peer->wake_ns != event.at_ns) break;
            net_settle(net, event.to);
            break;
        case NET_DIALLED:
            net_on_dialled(net, &event);
            break;
        case NET_DELIVER:
            net_on_deliver(net, &event);
            break;
        case NET_LOST:
            net_on_lost(net, &event);
            break;
        }
        blob_unref(event.inner);
    }
    net->now_ns = until_ns;
}

/* --- peers ----------------------------------------------------------------------------------- */

static inline struct net *net_create(uint32_t count, uint64_t seed)
{
    struct net *net = calloc(1, sizeof *net);

    assert_int_equal(secure_start(), RC_OK);
    net->count = count;
    net->peers = calloc(count, sizeof net->peers[0]);
    net->paths = calloc((size_t)count * count, sizeof net->paths[0]);
    net->is_dialler = calloc((size_t)count * count, sizeof net->is_dialler[0]);
    net->side = calloc(count, 1);
    for (net->by_id_mask = 1; net->by_id_mask < 4 * count; net->by_id_mask *= 2) {
    }
    net->by_id = calloc(net->by_id_mask, sizeof net->by_id[0]);
    net->by_id_mask--;
    net->latency_ns = 5 * NS_PER_MS;
    net->run_id = hash_of("scale", 5);
    net->verified = verified_create(1 << 16);
    rng_init(&net->rng, seed, 78);
    for (uint32_t i = 0; i < count; i++) {
        struct net_peer *peer = &net->peers[i];
        uint8_t key[SECRET_BYTES];
        uint32_t slot;

        for (size_t k = 0; k < sizeof key; k++) {
            key[k] = (uint8_t)rng_u64(&net->rng);
        }
        identity_from_seed(key, &peer->identity);
        peer->id = identity_peer_id(peer->identity.public_key);
        slot = load_le32(peer->id.bytes) & net->by_id_mask;
        while (net->by_id[slot] != 0) {
            slot = (slot + 1) & net->by_id_mask;
        }
        net->by_id[slot] = i + 1;
        outbox_init(&peer->outbox);
    }
    return net;
}

/* Start peer `index` with the address of peer `known`. */
static inline void net_start(struct net *net, uint32_t index, uint32_t known)
{
    struct net_peer *peer = &net->peers[index];
    struct membership_options options = {
        .probe_interval_ns = NS_PER_S,
        .members_max = net->count + 64 < MEMBERS_MAX ? net->count + 64 : MEMBERS_MAX,
        .identity = &peer->identity,
        .run_id = net->run_id,
        .incarnation = 1,
        .addresses_count = 1,
        .seed = rng_u64(&net->rng),
        .verified = net->verified};
    char address[ADDRESS_BYTES_MAX];

    for (size_t k = 0; k < BOOT_ID_BYTES; k++) {
        peer->boot.bytes[k] = (uint8_t)rng_u64(&net->rng);
    }
    options.boot = peer->boot;
    snprintf(options.addresses[0], ADDRESS_BYTES_MAX, "p%u:7", index);
    peer->membership = membership_create(&options);
    assert_non_null(peer->membership);
    snprintf(address, sizeof address, "p%u:7", known);
    membership_add_bootstrap(peer->membership, address);
    net_settle(net, index);
}

/* SIGKILL: links break, the others see it a latency later. */
static inline void net_kill(struct net *net, uint32_t index)
{
    for (uint32_t i = 0; i < net->count; i++) {
        struct net_path *path = net_path(net, index, i);

        if (path->link == 0) continue;
        net_push(net, (struct net_event){.at_ns = net->now_ns + net_latency(net),
                                         .kind = NET_LOST,
                                         .from = index,
                                         .to = i,
                                         .link = path->link});
        path->link = 0;
    }
    membership_destroy(net->peers[index].membership);
    net->peers[index].membership = NULL;
}

static inline void net_destroy(struct net *net)
{
    while (net->events_count > 0) {
        struct net_event event = net_pop(net);

        blob_unref(event.inner);
    }
    for (uint32_t i = 0; i < net->count; i++) {
        membership_destroy(net->peers[i].membership);
        outbox_deinit(&net->peers[i].outbox);
    }
    verified_destroy(net->verified);
    free(net->events);
    free(net->by_id);
    free(net->side);
    free(net->is_dialler);
    free(net->paths);
    free(net->peers);
    free(net);
}

#endif
