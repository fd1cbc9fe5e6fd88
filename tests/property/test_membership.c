/*
 * A small network in memory for many memberships: virtual time, dials with latency, links that
 * carry messages in order, peers that start late, die or freeze. What is proved: whatever the order
 * of starts, everyone ends up linked to everyone, and stays so.
 */
#include "tests/check.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "gossip/membership/membership.h"

enum { PEERS_MAX = 24, EVENTS_MAX = 65536 };
enum event_kind { EVENT_DIALLED, EVENT_DELIVER, EVENT_LOST, EVENT_START };

struct event {
    uint64_t at_ns, order;
    enum event_kind kind;
    uint32_t from, to;
    uint64_t link; /* the link a message or loss belongs to */
    struct blob *inner;
    char address[ADDRESS_BYTES_MAX];
};

struct peer {
    struct membership *membership; /* NULL: not running */
    struct identity identity;
    struct peer_id id;
    struct boot_id boot;
    uint64_t incarnation;
    bool is_frozen;
    uint64_t thaw_ns;
    uint64_t links[PEERS_MAX]; /* number of the link to each; 0: none */
    uint32_t dialler[PEERS_MAX];
};

struct net {
    struct peer peers[PEERS_MAX];
    uint32_t count;
    struct event *events; /* a heap by (at_ns, order) */
    uint32_t events_count;
    uint64_t order, now_ns, link_last, latency_ns, messages, dials, duplicates, bad;
    bool blocked[PEERS_MAX][PEERS_MAX];
    struct outbox outbox;
    struct rng rng;
    struct digest run_id;
};

/* --- heap ------------------------------------------------------------------------------------ */

static bool is_before(const struct event *a, const struct event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

static void push(struct net *net, struct event event)
{
    uint32_t i = net->events_count++;

    CHECK(net->events_count < EVENTS_MAX);
    event.order = net->order++;
    while (i > 0 && is_before(&event, &net->events[(i - 1) / 2])) {
        net->events[i] = net->events[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    net->events[i] = event;
}

static struct event pop(struct net *net)
{
    struct event top = net->events[0], last = net->events[--net->events_count];
    uint32_t i = 0;

    for (;;) {
        uint32_t child = 2 * i + 1;

        if (child >= net->events_count) break;
        if (child + 1 < net->events_count &&
            is_before(&net->events[child + 1], &net->events[child])) {
            child++;
        }
        if (!is_before(&net->events[child], &last)) break;
        net->events[i] = net->events[child];
        i = child;
    }
    net->events[i] = last;
    return top;
}

/* --- the network ----------------------------------------------------------------------------- */

static uint64_t latency(struct net *net)
{
    return net->latency_ns / 2 + rng_below(&net->rng, net->latency_ns + 1);
}

static uint32_t peer_by_id(const struct net *net, struct peer_id id)
{
    for (uint32_t i = 0; i < net->count; i++) {
        if (peer_id_is_equal(net->peers[i].id, id)) return i;
    }
    CHECK(false);
    return 0;
}

/* Messages take one fixed time, and equal times are delivered as sent: a link keeps its order. */
static void send_all(struct net *net, uint32_t from)
{
    for (uint32_t i = 0; i < net->outbox.count; i++) {
        uint32_t to = peer_by_id(net, net->outbox.entries[i].to);
        struct blob *inner = net->outbox.entries[i].inner;

        if (net->peers[from].links[to] == 0 || net->blocked[from][to]) continue;
        net->messages++;
        push(net, (struct event){.at_ns = net->now_ns + net->latency_ns,
                                 .kind = EVENT_DELIVER,
                                 .from = from,
                                 .to = to,
                                 .link = net->peers[from].links[to],
                                 .inner = blob_ref(inner)});
    }
    CHECK(net->outbox.dropped == 0);
    outbox_clear(&net->outbox);
}

static void link_up(struct net *net, uint32_t a, uint32_t b, uint32_t dialler, const char *address)
{
    struct peer *peer = &net->peers[a], *other = &net->peers[b];

    peer->links[b] = net->link_last;
    peer->dialler[b] = dialler;
    membership_on_link_up(peer->membership, other->id, other->identity.public_key, other->boot,
                          address, net->now_ns, &net->outbox);
    send_all(net, a);
}

static void link_cut(struct net *net, uint32_t a, uint32_t b)
{
    uint64_t link = net->peers[a].links[b];

    if (link == 0) return;
    net->peers[a].links[b] = 0;
    push(net, (struct event){.at_ns = net->now_ns + latency(net),
                             .kind = EVENT_LOST,
                             .from = a,
                             .to = b,
                             .link = link});
}

static void on_dialled(struct net *net, const struct event *event)
{
    struct peer *from = &net->peers[event->from];
    uint32_t to = (uint32_t)strtoul(event->address + 1, NULL, 10);
    struct peer *other = to < net->count ? &net->peers[to] : NULL;
    bool is_smaller;

    if (from->membership == NULL) return;
    if (other == NULL || other->membership == NULL || other->is_frozen ||
        net->blocked[event->from][to] || net->blocked[to][event->from]) {
        membership_on_dial_failed(from->membership, event->address, net->now_ns);
        return;
    }
    /* Two dials at once: the link dialled by the smaller id stays. */
    is_smaller = peer_id_compare(from->id, other->id) < 0;
    if (to == event->from || (from->links[to] != 0 && other->links[event->from] != 0 &&
                              !(is_smaller && from->dialler[to] != event->from))) {
        net->duplicates++;
        membership_on_link_duplicate(from->membership, event->address, other->id, net->now_ns);
        return;
    }
    net->link_last++;
    link_up(net, event->from, to, event->from, event->address);
    link_up(net, to, event->from, event->from, "");
}

static void on_deliver(struct net *net, const struct event *event)
{
    struct peer *to = &net->peers[event->to], *from = &net->peers[event->from];
    struct inner_header header;
    struct message message;
    enum rc rc;

    if (to->is_frozen && to->membership != NULL) { /* it waits in the socket */
        struct event later = *event;

        later.at_ns = to->thaw_ns > net->now_ns ? to->thaw_ns : net->now_ns;
        later.inner = blob_ref(event->inner);
        push(net, later);
        return;
    }
    if (to->membership == NULL || to->links[event->from] != event->link) return;
    assert_int_equal(inner_header_decode(event->inner->bytes, event->inner->count, &header), RC_OK);
    assert_int_equal(message_decode(header.type, event->inner->bytes + INNER_HEADER_BYTES,
                                    event->inner->count - INNER_HEADER_BYTES, &message),
                     RC_OK);
    rc = membership_on_message(to->membership, from->id, &message, net->now_ns, &net->outbox);
    if (rc != RC_OK) net->bad++;
    send_all(net, event->to);
}

static void start(struct net *net, uint32_t index);

static void on_event(struct net *net, const struct event *event)
{
    switch (event->kind) {
    case EVENT_DIALLED:
        on_dialled(net, event);
        break;
    case EVENT_DELIVER:
        on_deliver(net, event);
        break;
    case EVENT_LOST:
        if (net->peers[event->to].links[event->from] != event->link) break;
        net->peers[event->to].links[event->from] = 0;
        if (net->peers[event->to].membership == NULL) break;
        membership_on_link_lost(net->peers[event->to].membership, net->peers[event->from].id,
                                net->now_ns);
        break;
    case EVENT_START:
        start(net, event->to);
        break;
    }
    blob_unref(event->inner);
}

static void drain(struct net *net, uint32_t index)
{
    struct peer *peer = &net->peers[index];
    char address[ADDRESS_BYTES_MAX];
    struct peer_id silent;

    membership_tick(peer->membership, net->now_ns, &net->outbox);
    send_all(net, index);
    while (membership_next_hangup(peer->membership, &silent)) {
        link_cut(net, index, peer_by_id(net, silent));
    }
    while (membership_next_dial(peer->membership, net->now_ns, address)) {
        struct event event = {
            .at_ns = net->now_ns + latency(net), .kind = EVENT_DIALLED, .from = index};

        net->dials++;
        memcpy(event.address, address, sizeof(address));
        push(net, event);
    }
    CHECK(membership_next_ns(peer->membership) > net->now_ns);
}

/* Run until virtual time `until_ns`. */
static void run(struct net *net, uint64_t until_ns)
{
    for (;;) {
        uint64_t next_ns = net->events_count > 0 ? net->events[0].at_ns : UINT64_MAX;
        uint32_t who = PEERS_MAX;

        for (uint32_t i = 0; i < net->count; i++) {
            struct peer *peer = &net->peers[i];
            uint64_t at_ns;

            if (peer->membership == NULL) continue;
            at_ns = membership_next_ns(peer->membership);
            if (peer->is_frozen && at_ns < peer->thaw_ns) at_ns = peer->thaw_ns;
            if (at_ns < next_ns) {
                next_ns = at_ns;
                who = i;
            }
        }
        if (next_ns > until_ns) break;
        if (next_ns > net->now_ns) net->now_ns = next_ns;
        for (uint32_t i = 0; i < net->count; i++) {
            if (net->now_ns >= net->peers[i].thaw_ns) net->peers[i].is_frozen = false;
        }
        if (who < PEERS_MAX) {
            drain(net, who);
        } else {
            struct event event = pop(net);

            on_event(net, &event);
        }
    }
    net->now_ns = until_ns;
}

/* --- peers ----------------------------------------------------------------------------------- */

static struct net *net_create(uint32_t count, uint64_t seed)
{
    struct net *net = calloc(1, sizeof(*net));

    assert_int_equal(secure_start(), RC_OK);
    net->events = calloc(EVENTS_MAX, sizeof(net->events[0]));
    net->count = count;
    net->latency_ns = 20 * NS_PER_MS;
    net->run_id = hash_of("test", 4);
    outbox_init(&net->outbox);
    rng_init(&net->rng, seed, 77);
    for (uint32_t i = 0; i < count; i++) {
        uint8_t key[SECRET_BYTES];

        for (size_t k = 0; k < sizeof(key); k++) {
            key[k] = (uint8_t)rng_u64(&net->rng);
        }
        identity_from_seed(key, &net->peers[i].identity);
        net->peers[i].id = identity_peer_id(net->peers[i].identity.public_key);
    }
    return net;
}

static void start(struct net *net, uint32_t index)
{
    struct peer *peer = &net->peers[index];
    struct membership_options options = {.probe_interval_ns = NS_PER_S,
                                         .members_max = 256,
                                         .identity = &peer->identity,
                                         .run_id = net->run_id,
                                         .addresses_count = 1,
                                         .seed = rng_u64(&net->rng)};

    for (size_t k = 0; k < BOOT_ID_BYTES; k++) {
        peer->boot.bytes[k] = (uint8_t)rng_u64(&net->rng);
    }
    options.boot = peer->boot;
    options.incarnation = ++peer->incarnation;
    snprintf(options.addresses[0], ADDRESS_BYTES_MAX, "p%u:7", index);
    peer->membership = membership_create(&options);
    assert_non_null(peer->membership);
}

static void bootstrap(struct net *net, uint32_t index, uint32_t to)
{
    char address[ADDRESS_BYTES_MAX];

    snprintf(address, sizeof(address), "p%u:7", to);
    membership_add_bootstrap(net->peers[index].membership, address);
}

/* SIGKILL: links break, the others see it a latency later. */
static void kill_peer(struct net *net, uint32_t index)
{
    for (uint32_t i = 0; i < net->count; i++) {
        link_cut(net, index, i);
    }
    membership_destroy(net->peers[index].membership);
    net->peers[index].membership = NULL;
}

static void net_destroy(struct net *net)
{
    while (net->events_count > 0) {
        struct event event = pop(net);

        blob_unref(event.inner);
    }
    for (uint32_t i = 0; i < net->count; i++) {
        membership_destroy(net->peers[i].membership);
    }
    outbox_deinit(&net->outbox);
    free(net->events);
    free(net);
}

static enum member_state state_of(const struct net *net, uint32_t index, uint32_t of)
{
    struct member_view views[PEERS_MAX];
    size_t count = membership_list(net->peers[index].membership, views, PEERS_MAX);

    for (size_t i = 0; i < count; i++) {
        if (peer_id_is_equal(views[i].id, net->peers[of].id)) return views[i].state;
    }
    return MEMBER_LEFT;
}

/* How often a peer has come to suspect another. */
static uint64_t suspicions(const struct net *net, uint32_t index)
{
    struct membership_counts counts;

    membership_counts(net->peers[index].membership, &counts);
    return counts.suspected;
}

/* Everyone who runs has everyone else who runs alive, and nobody besides. */
static bool is_full_mesh(const struct net *net)
{
    uint32_t running = 0;

    for (uint32_t i = 0; i < net->count; i++) {
        running += net->peers[i].membership != NULL;
    }
    for (uint32_t i = 0; i < net->count; i++) {
        struct member_view views[PEERS_MAX];
        size_t count, alive = 0;

        if (net->peers[i].membership == NULL) continue;
        count = membership_list(net->peers[i].membership, views, PEERS_MAX);
        for (size_t k = 0; k < count; k++) {
            alive += views[k].state == MEMBER_ALIVE;
        }
        if (alive != running - 1) return false;
    }
    return true;
}

/* --- properties ------------------------------------------------------------------------------ */

/* 16 peers started within three seconds in any order, first bootstrap dead for half of the seeds,
 * are one full mesh within four seconds of the last start. */
static void sixteen_peers_started_in_any_order_form_one_mesh(void **state)
{
    uint64_t worst_ns = 0, dials = 0, duplicates = 0, messages = 0;

    (void)state;
    FOR_EACH_SEED (seed, 100) {
        struct net *net = net_create(17, seed); /* the last one never starts */
        uint64_t last_ns = 0;

        net->latency_ns = NS_PER_MS << rng_below(&net->rng, 8);
        for (uint32_t i = 0; i < 16; i++) {
            uint64_t at_ns = rng_below(&net->rng, 3 * NS_PER_S);

            push(net, (struct event){.at_ns = at_ns, .kind = EVENT_START, .to = i});
            if (at_ns > last_ns) last_ns = at_ns;
        }
        for (uint64_t at_ns = 0, added = 0; added < 16; at_ns += NS_PER_MS) {
            run(net, at_ns);
            for (uint32_t i = 0; i < 16; i++) {
                struct peer *peer = &net->peers[i];

                if (peer->membership == NULL || peer->thaw_ns == 1) continue;
                peer->thaw_ns = 1; /* bootstrapped */
                added++;
                if (seed % 2 == 0) bootstrap(net, i, 16);
                bootstrap(net, i, 0);
                bootstrap(net, i, 1 + (uint32_t)rng_below(&net->rng, 15));
            }
        }
        while (!is_full_mesh(net) && net->now_ns < last_ns + 4 * NS_PER_S) {
            run(net, net->now_ns + 10 * NS_PER_MS);
        }
        check_seed(seed, is_full_mesh(net));
        if (net->now_ns - last_ns > worst_ns) worst_ns = net->now_ns - last_ns;
        dials += net->dials;
        duplicates += net->duplicates;
        run(net, net->now_ns + 20 * NS_PER_S);
        check_seed(seed, is_full_mesh(net));
        check_seed(seed, net->bad == 0);
        messages += net->messages;
        net_destroy(net);
    }
    print_message("worst %.2f s after the last start; a seed: %.0f dials, %.0f in vain, %.0f "
                  "messages\n",
                  (double)worst_ns / 1e9, (double)dials / 100, (double)duplicates / 100,
                  (double)messages / 100);
}

static struct net *mesh_create(uint32_t count, uint64_t seed)
{
    struct net *net = net_create(count, seed);

    for (uint32_t i = 0; i < count; i++) {
        start(net, i);
        bootstrap(net, i, 0);
    }
    run(net, 5 * NS_PER_S);
    check_seed(seed, is_full_mesh(net));
    return net;
}

/* A killed process is dead for all within 10 s, the others stay alive, and restarted with a lost
 * counter and one live address it is a member again everywhere. */
static void a_killed_peer_is_noticed_and_comes_back(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 40) {
        struct net *net = mesh_create(8, seed);
        uint32_t victim = (uint32_t)(seed % 8);

        kill_peer(net, victim);
        run(net, net->now_ns + 10 * NS_PER_S);
        check_seed(seed, is_full_mesh(net));
        for (uint32_t i = 0; i < 8; i++) {
            if (i != victim) check_seed(seed, state_of(net, i, victim) == MEMBER_DEAD);
        }
        run(net, net->now_ns + rng_below(&net->rng, 200) * NS_PER_S);
        if (seed % 2 == 0) net->peers[victim].incarnation = 0;
        start(net, victim);
        bootstrap(net, victim, (victim + 1) % 8);
        run(net, net->now_ns + 5 * NS_PER_S);
        check_seed(seed, is_full_mesh(net));
        net_destroy(net);
    }
}

/* A machine gone silent, its links still open, is dead for all within 15 s. */
static void a_silent_machine_is_dead_within_fifteen_seconds(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 20) {
        struct net *net = mesh_create(8, seed);

        net->peers[3].is_frozen = true;
        net->peers[3].thaw_ns = UINT64_MAX;
        run(net, net->now_ns + 15 * NS_PER_S);
        for (uint32_t i = 0; i < 8; i++) {
            if (i != 3) check_seed(seed, state_of(net, i, 3) == MEMBER_DEAD);
        }
        net_destroy(net);
    }
}

/* Stopped for three seconds a peer is nobody's suspect for long and accuses nobody; stopped for
 * thirty it is back within ten of waking. */
static void a_stopped_process_accuses_nobody_and_returns(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 20) {
        struct net *net = mesh_create(8, seed);
        uint64_t suspected[8];

        for (uint32_t i = 0; i < 8; i++) {
            suspected[i] = suspicions(net, i);
        }
        net->peers[5].is_frozen = true;
        net->peers[5].thaw_ns = net->now_ns + 3 * NS_PER_S;
        run(net, net->now_ns + 8 * NS_PER_S);
        check_seed(seed, is_full_mesh(net));
        for (uint32_t i = 0; i < 8; i++) {
            check_seed(seed, suspicions(net, i) == suspected[i]);
        }
        net->peers[5].is_frozen = true;
        net->peers[5].thaw_ns = net->now_ns + 30 * NS_PER_S;
        run(net, net->now_ns + 40 * NS_PER_S);
        check_seed(seed, is_full_mesh(net));
        net_destroy(net);
    }
}

/* Two halves cut from each other for minutes go on as two swarms and are one again within 30 s. */
static void a_partition_heals(void **state)
{
    uint64_t worst_ns = 0;

    (void)state;
    FOR_EACH_SEED (seed, 20) {
        struct net *net = mesh_create(10, seed);
        uint32_t cut = seed % 2 == 0 ? 5 : 1; /* halves, or one against all */
        uint64_t healed_ns, cut_ns;

        for (uint32_t a = 0; a < cut; a++) {
            for (uint32_t b = cut; b < 10; b++) {
                net->blocked[a][b] = net->blocked[b][a] = true;
            }
        }
        cut_ns = (10 + rng_below(&net->rng, 600)) * NS_PER_S;
        run(net, net->now_ns + cut_ns);
        if (cut_ns > 120 * NS_PER_S) { /* who is all alone distrusts itself, and takes longer */
            check_seed(seed, state_of(net, 0, 9) == MEMBER_DEAD);
            check_seed(seed, state_of(net, 9, 0) == MEMBER_DEAD);
        }
        memset(net->blocked, 0, sizeof(net->blocked));
        healed_ns = net->now_ns;
        while (!is_full_mesh(net) && net->now_ns < healed_ns + 60 * NS_PER_S) {
            run(net, net->now_ns + 100 * NS_PER_MS);
        }
        check_seed(seed, is_full_mesh(net));
        if (net->now_ns - healed_ns > worst_ns) worst_ns = net->now_ns - healed_ns;
        net_destroy(net);
    }
    print_message("healed %.1f s after the cut ended, at worst\n", (double)worst_ns / 1e9);
}

/* Two quiet hours with links that lose nothing: nobody is ever suspected, traffic stays small. */
static void a_quiet_swarm_stays_as_it_is(void **state)
{
    struct net *net = mesh_create(6, 1);
    uint64_t suspected = suspicions(net, 0), messages = net->messages;

    (void)state;
    net->latency_ns = 150 * NS_PER_MS;
    run(net, net->now_ns + 2 * 3600 * NS_PER_S);
    assert_int_equal(suspicions(net, 0), suspected);
    messages = net->messages - messages;
    print_message("%.2f messages a second and peer\n", (double)messages / 7200 / 6);
    assert_true(messages < UINT64_C(7200) * 6 * 16);
    net_destroy(net);
}

/* Two swarms that never met merge when one peer is given an address of the other. */
static void two_swarms_merge_at_a_common_address(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 20) {
        struct net *net = net_create(12, seed);

        for (uint32_t i = 0; i < 12; i++) {
            start(net, i);
            bootstrap(net, i, i < 6 ? 0 : 6);
        }
        run(net, 5 * NS_PER_S);
        check_seed(seed, state_of(net, 0, 11) == MEMBER_LEFT); /* unknown */
        bootstrap(net, 3, 9);
        membership_tick(net->peers[3].membership, net->now_ns, &net->outbox);
        run(net, net->now_ns + 5 * NS_PER_S);
        check_seed(seed, is_full_mesh(net));
        net_destroy(net);
    }
}

/* A farewell makes the member LEFT everywhere, and it is not dialled any more. */
static void a_farewell_is_believed_by_all(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 10) {
        struct net *net = mesh_create(6, seed);

        membership_farewell(net->peers[2].membership, &net->outbox);
        send_all(net, 2);
        run(net, net->now_ns + 200 * NS_PER_MS);
        kill_peer(net, 2);
        run(net, net->now_ns + NS_PER_S);
        net->dials = 0;
        run(net, net->now_ns + 300 * NS_PER_S);
        check_seed(seed, is_full_mesh(net));
        for (uint32_t i = 0; i < 6; i++) {
            if (i != 2) check_seed(seed, state_of(net, i, 2) == MEMBER_LEFT);
        }
        check_seed(seed,
                   net->dials <= 5 * 6); /* its bootstrap address, once a minute, if it was 0 */
        net_destroy(net);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sixteen_peers_started_in_any_order_form_one_mesh),
        cmocka_unit_test(a_killed_peer_is_noticed_and_comes_back),
        cmocka_unit_test(a_silent_machine_is_dead_within_fifteen_seconds),
        cmocka_unit_test(a_stopped_process_accuses_nobody_and_returns),
        cmocka_unit_test(a_partition_heals),
        cmocka_unit_test(a_quiet_swarm_stays_as_it_is),
        cmocka_unit_test(two_swarms_merge_at_a_common_address),
        cmocka_unit_test(a_farewell_is_believed_by_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
