/*
 * Relays of a node. One that can be dialled passes bytes on for others (gossip/reach/relay.h); one
 * that can only dial out keeps reservations with some of those, and reaches others of its kind
 * through them, as long as it has few neighbours. Which relay: the order of a hash over relay and
 * target, which all compute alike, so that who looks for a target asks where the target has
 * reserved. Loop thread only.
 */
#include "peer/node/door/internal.h"

#include "peer/env/relay/env.h"
#include "peer/times.h"

enum {
    SEATS = 3,       /* relays to keep reservations with */
    WISHES = 64,     /* members that back-off is remembered for */
    TARGETS_MAX = 8, /* members tried in one look */
    NEIGHBOURS_ENOUGH = 8,
    CIRCUITS_WANTED = 4,
    TRIES_DOUBLING = 4,
    QUEUED_RECORDS_MAX = 8192, /* passed on to one end and not yet sent */
    QUEUED_BYTES_MAX = 2 * RELAY_CIRCUITS_PER_PEER * RELAY_WINDOW_BYTES
};

struct seat { /* a reservation of ours */
    struct peer_id relay;
    uint64_t until_ns; /* 0: none */
    uint64_t ask_ns;   /* not before */
    bool is_used;
};

struct wish {
    struct peer_id peer;
    uint64_t next_ns; /* 0: free */
    uint32_t tries;
};

struct door_relay {
    struct relay *serving;
    struct relay_env *env;
    struct seat seats[SEATS];
    struct wish wishes[WISHES];
    uint64_t look_ns;
    uint32_t turn;     /* the member that the next look begins with */
    uint64_t alone_ns; /* since when there is no reservation; 0: there is one */
    bool has_told;     /* ... and that was said */
};

static enum rc send_data(void *context, struct peer_id relay, const struct inner_header *header,
                         struct blob *body)
{
    struct node *node = context;

    return links_send_bulk(node->links, relay, header, body);
}

enum rc door_relay_create(struct node *node)
{
    struct env_events events = door_env_events(node);
    struct relay_options options = relay_options_default();
    struct relay_env_options env_options = {.base = node->env,
                                            .self = node->self,
                                            .outbox = &node->outbox,
                                            .send_data = send_data,
                                            .context = node};

    node->door->relay = mem_alloc(sizeof *node->door->relay);
    if (node->door->relay == NULL) return RC_NOMEM;
    options.bytes_per_s = node->options.relay_bytes_per_s;
    node->door->relay->serving = relay_create(&options, node->self);
    node->door->relay->env = relay_env_create(&env_options);
    if (node->door->relay->serving == NULL || node->door->relay->env == NULL) return RC_NOMEM;
    node->door->env = relay_env_env(node->door->relay->env);
    node->door->env->ops->set_events(node->door->env, &events);
    return RC_OK;
}

void door_relay_destroy(struct node *node)
{
    if (node->door->relay == NULL) return;
    relay_destroy(node->door->relay->serving);
    relay_env_destroy(node->door->relay->env);
    mem_free(node->door->relay);
}

/* ---- what comes in ---- */

static struct seat *seat_find(struct door_relay *relay, struct peer_id peer)
{
    for (int i = 0; i < SEATS; i++) {
        struct seat *seat = &relay->seats[i];

        if (seat->is_used && peer_id_is_equal(seat->relay, peer)) return seat;
    }
    return NULL;
}

static void on_lease(struct node *node, struct peer_id from,
                     const struct message_relay_lease *lease)
{
    struct seat *seat = seat_find(node->door->relay, from);
    uint64_t now_ns = node_now(node);

    if (seat == NULL) return; /* not asked */
    if (lease->code == RELAY_GRANTED) {
        seat->until_ns = now_ns + (uint64_t)lease->lease_ms * NS_PER_MS;
        seat->ask_ns = now_ns + (uint64_t)lease->lease_ms * NS_PER_MS / 2;
    } else {
        seat->until_ns = 0;
        seat->ask_ns = now_ns + RELAY_REFUSED_NS;
    }
}

static bool is_from_relay(const struct message *message)
{
    switch (message->type) {
    case MESSAGE_RELAY_CONNECT:
        return message->as.relay_connect.is_from_relay;
    case MESSAGE_RELAY_WINDOW:
        return message->as.relay_window.is_from_relay;
    case MESSAGE_RELAY_STOP:
        return message->as.relay_stop.is_from_relay;
    default:
        return false;
    }
}

bool door_relay_on_message(struct node *node, struct peer_id from, const struct message *message)
{
    const struct neighbour *neighbour = door_neighbour(node, from);
    const struct seat *seat;

    if (message->type < MESSAGE_RELAY_RESERVE || message->type > MESSAGE_RELAY_STOP) return false;
    if (neighbour == NULL) return true; /* an observer: not for it */
    if (message->type == MESSAGE_RELAY_LEASE) {
        on_lease(node, from, &message->as.relay_lease);
    } else if (is_from_relay(message)) {
        seat = seat_find(node->door->relay, from);
        relay_env_on_message(node->door->relay->env, from,
                             seat != NULL && seat->until_ns > 0 && !neighbour->is_relayed, message);
    } else {
        relay_on_message(node->door->relay->serving, from, !neighbour->is_relayed, message,
                         node_now(node), &node->outbox);
    }
    return true;
}

void door_relay_on_data(struct node *node, struct peer_id from, const struct inner_header *header,
                        const uint8_t *body, size_t count)
{
    struct inner_header onward;
    struct peer_id to;
    struct blob *copy;
    enum rc rc = RC_NOMEM;

    if (header->stream == 1) {
        relay_env_on_data(node->door->relay->env, from, header, body, count);
        return;
    }
    if (!relay_on_data(node->door->relay->serving, from, header, count, &to, &onward,
                       &node->outbox)) {
        door_stray(node, from, count);
        return;
    }
    /* An end that says it takes more than it reads would have us keep the rest. */
    if (!links_relay_has_room(node->links, to, QUEUED_RECORDS_MAX, QUEUED_BYTES_MAX)) {
        relay_on_link_lost(node->door->relay->serving, to, &node->outbox);
        return;
    }
    copy = blob_copy(body, count);
    if (copy != NULL) rc = links_send_bulk(node->links, to, &onward, copy);
    blob_unref(copy);
    if (rc != RC_OK) relay_on_link_lost(node->door->relay->serving, to, &node->outbox); /* a hole */
}

void door_relay_on_closed(struct node *node, struct peer_id peer)
{
    struct seat *seat = seat_find(node->door->relay, peer);

    if (seat != NULL) seat->is_used = false;
    relay_on_link_lost(node->door->relay->serving, peer, &node->outbox);
    relay_env_on_link_lost(node->door->relay->env, peer);
}

/* ---- what we look for ---- */

/* Those who could relay for us, best first for `target`. */
static uint32_t relays_for(const struct node *node, const struct member_view *views, size_t count,
                           struct peer_id target, struct peer_id *relays)
{
    uint64_t ranks[LINKS_MAX];
    uint32_t found = 0;

    for (size_t i = 0; i < count && found < LINKS_MAX; i++) {
        const struct member_view *view = &views[i];
        uint64_t rank = rng_mix(load_le64(view->id.bytes), load_le64(target.bytes));
        struct peer_id unused;
        uint32_t at = found;

        if (!view->is_linked || view->nat != NAT_PUBLIC) continue;
        if (relay_env_relay_of(node->door->relay->env, view->id, &unused)) continue;
        while (at > 0 && ranks[at - 1] > rank) {
            ranks[at] = ranks[at - 1];
            relays[at] = relays[at - 1];
            at--;
        }
        ranks[at] = rank;
        relays[at] = view->id;
        found++;
    }
    return found;
}

static void keep_seats(struct node *node, const struct peer_id *relays, uint32_t count,
                       uint64_t now_ns)
{
    struct message message = {.type = MESSAGE_RELAY_RESERVE};

    for (uint32_t i = 0; i < count && i < SEATS; i++) {
        struct seat *seat = seat_find(node->door->relay, relays[i]);

        for (int s = 0; s < SEATS && seat == NULL; s++) {
            if (node->door->relay->seats[s].is_used) continue;
            seat = &node->door->relay->seats[s];
            *seat = (struct seat){.relay = relays[i], .is_used = true};
        }
        if (seat == NULL || now_ns < seat->ask_ns) continue;
        seat->ask_ns = now_ns + RELAY_ANSWER_NS;
        outbox_add(&node->outbox, relays[i], &message);
    }
}

/* Its entry, if it may be tried now; a new one takes the place of the one that is due first. NULL:
 * its time has not come, or all entries wait for theirs. */
static struct wish *wish_due(struct door_relay *relay, struct peer_id peer, uint64_t now_ns)
{
    struct wish *wish = &relay->wishes[0];

    for (int i = 0; i < WISHES; i++) {
        struct wish *other = &relay->wishes[i];

        if (other->next_ns != 0 && peer_id_is_equal(other->peer, peer)) {
            return now_ns < other->next_ns ? NULL : other;
        }
        if (other->next_ns < wish->next_ns) wish = other;
    }
    if (now_ns < wish->next_ns) return NULL;
    *wish = (struct wish){.peer = peer, .next_ns = 1};
    return wish;
}

static void reach_for(struct node *node, struct peer_id target, struct wish *wish,
                      const struct peer_id *relays, uint32_t count, uint64_t now_ns)
{
    uint32_t doublings = wish->tries < TRIES_DOUBLING ? wish->tries : TRIES_DOUBLING;
    char address[ADDRESS_BYTES_MAX];

    if (count == 0) return;
    wish->next_ns = now_ns + (RELAY_WISH_NS << doublings);
    if (relay_env_route(node->door->relay->env, target, relays[wish->tries++ % count], address) !=
        RC_OK) {
        return;
    }
    if (links_dial(node->links, address) != RC_OK) return; /* the route lapses by itself */
    log_debug(node->options.log, "dialling %s through a relay", address);
}

/* A relayed link is for those who have no other way. */
static void leave_needless(struct node *node, const struct member_view *views, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct neighbour *neighbour = door_neighbour(node, views[i].id);

        if (neighbour == NULL || !neighbour->is_relayed) continue;
        if (node->door->told_nat == NAT_PUBLIC || views[i].nat == NAT_PUBLIC) {
            links_hangup(node->links, views[i].id,
                         "a direct link takes the place of a relayed one");
        }
    }
}

/* Is it of our kind, and ours to dial? */
static bool is_target(const struct node *node, const struct member_view *view, bool are_dead)
{
    return view->nat == NAT_OUTBOUND && !view->is_linked && view->state != MEMBER_LEFT &&
           (view->state == MEMBER_DEAD) == are_dead && peer_id_compare(node->self, view->id) < 0;
}

/* Try those that are due, up to `max`, each look from where the last one ended. How many were. */
static uint32_t reach_some(struct node *node, const struct member_view *views, size_t count,
                           bool are_dead, uint32_t max, uint64_t now_ns)
{
    struct peer_id relays[LINKS_MAX];
    uint32_t tried = 0, turn = node->door->relay->turn;

    for (size_t i = 0; i < count && tried < max; i++) {
        const struct member_view *view = &views[(turn + i) % count];
        struct wish *wish;
        uint32_t found;

        node->door->relay->turn = (uint32_t)((turn + i + 1) % count);
        if (!is_target(node, view, are_dead)) continue;
        if (node->neighbours_count >= NEIGHBOURS_ENOUGH) break;
        if (relay_env_circuits(node->door->relay->env) >= CIRCUITS_WANTED) break;
        wish = wish_due(node->door->relay, view->id, now_ns);
        if (wish == NULL) continue;
        tried++;
        found = relays_for(node, views, count, view->id, relays);
        reach_for(node, view->id, wish, relays, found < SEATS ? found : SEATS, now_ns);
    }
    return tried;
}

/* A few of those believed to be there, else one of the dead: nobody else dials those, and all are
 * dead to each other after a while without any relay. */
static void reach_others(struct node *node, const struct member_view *views, size_t count,
                         uint64_t now_ns)
{
    if (reach_some(node, views, count, false, TARGETS_MAX, now_ns) > 0) return;
    (void)reach_some(node, views, count, true, 1, now_ns);
}

static void tell_if_alone(struct node *node, uint64_t now_ns)
{
    struct door_relay *relay = node->door->relay;

    for (int i = 0; i < SEATS; i++) {
        if (!relay->seats[i].is_used || relay->seats[i].until_ns <= now_ns) continue;
        relay->alone_ns = 0;
        relay->has_told = false;
        return;
    }
    if (relay->alone_ns == 0) relay->alone_ns = now_ns;
    if (relay->has_told || now_ns < relay->alone_ns + RELAY_ALONE_NS) return;
    relay->has_told = true;
    log_warn(node->options.log,
             "others cannot dial this peer, and no neighbour relays for it: it is not linked with "
             "members that cannot be dialled either; forward its port, or start one more peer that "
             "can be dialled");
}

static void look(struct node *node, uint64_t now_ns)
{
    size_t max = membership_count(node->membership), count;
    struct member_view *views = mem_array(max, sizeof *views);
    struct peer_id relays[LINKS_MAX];
    uint32_t found;

    if (views == NULL) return;
    count = membership_list(node->membership, views, max);
    leave_needless(node, views, count);
    if (node->door->told_nat == NAT_OUTBOUND) {
        found = relays_for(node, views, count, node->self, relays);
        keep_seats(node, relays, found, now_ns);
        reach_others(node, views, count, now_ns);
        tell_if_alone(node, now_ns);
    }
    mem_free(views);
}

/* ---- time ---- */

void door_relay_deliver(struct node *node)
{
    relay_env_deliver(node->door->relay->env);
}

void door_relay_tick(struct node *node, uint64_t now_ns)
{
    struct door_relay *relay = node->door->relay;

    relay_set_open(relay->serving, node->door->told_nat == NAT_PUBLIC, &node->outbox);
    relay_tick(relay->serving, now_ns, &node->outbox);
    if (node->door->told_nat != NAT_OUTBOUND && relay_env_circuits(relay->env) == 0) {
        relay->look_ns = UINT64_MAX;
        return;
    }
    if (relay->look_ns != UINT64_MAX && now_ns < relay->look_ns) return;
    relay->look_ns = now_ns + RELAY_LOOK_NS;
    look(node, now_ns);
}

uint64_t door_relay_next_ns(const struct node *node)
{
    const struct door_relay *relay = node->door->relay;
    uint64_t next_ns = node_earlier(relay_env_next_ns(relay->env), relay_next_ns(relay->serving));

    return node_earlier(next_ns, relay->look_ns);
}

bool node_is_relayed(const struct node *node, struct peer_id peer)
{
    const struct neighbour *neighbour = door_neighbour(node, peer);

    return neighbour != NULL && neighbour->is_relayed;
}

void node_relay_view(const struct node *node, struct relay_view *view)
{
    relay_view(node->door->relay->serving, view);
}
