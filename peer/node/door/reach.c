/*
 * Reachability of a node: dial-backs asked for and given, and what it tells the others about itself
 * once it knows. Loop thread only.
 */
#include "peer/env/relay/env.h"
#include "peer/node/door/internal.h"
#include "peer/times.h"

#include <stdio.h>
#include <stdlib.h>

const char *node_address(const struct node *node)
{
    return node->door->address;
}

/* "0.0.0.0:7077" is where we listen, not where others find us. */
void door_own_address(const struct node *node, char address[ADDRESS_BYTES_MAX])
{
    const char *bound = node->door->address;
    bool is_wildcard = strncmp(bound, "0.0.0.0:", 8) == 0 || strncmp(bound, "[::]:", 5) == 0;
    const char *port = strrchr(bound, ':');

    if (node->options.advertise != NULL) {
        snprintf(address, ADDRESS_BYTES_MAX, "%s", node->options.advertise);
    } else if (is_wildcard && port != NULL) { /* without a network: for this machine */
        const char *host = node->options.host;

        snprintf(address, ADDRESS_BYTES_MAX, "%s%s", host != NULL ? host : "127.0.0.1", port);
    } else {
        snprintf(address, ADDRESS_BYTES_MAX, "%s", bound);
    }
}

enum rc door_reach_create(struct node *node)
{
    struct reach_options options = {.seed =
                                        rng_mix(node->options.seed, load_le64(node->self.bytes)),
                                    .ask_after_ns = REACH_ASK_AFTER_NS};

    node->door->reach = reach_create(&options);
    return node->door->reach == NULL ? RC_NOMEM : RC_OK;
}

uint16_t door_reach_port(const struct node *node)
{
    const char *told = node->options.advertise;
    const char *colon = strrchr(told != NULL ? told : node->door->address, ':');
    unsigned long port = colon == NULL ? 0 : strtoul(colon + 1, NULL, 10);

    return port <= UINT16_MAX ? (uint16_t)port : 0;
}

void door_reach_on_open(struct node *node, struct peer_id peer, const struct hello *hello,
                        const char *address, bool is_dialled)
{
    struct reach_link link = {.peer = peer,
                              .listen_port = hello->listen_port,
                              .is_dialled = is_dialled,
                              .is_asked = hello->role == HELLO_PEER && !relay_is_address(address)};

    snprintf(link.remote, sizeof link.remote, "%s", address);
    snprintf(link.observed, sizeof link.observed, "%s", hello->observed);
    reach_on_link(node->door->reach, &link, node_now(node));
}

bool door_reach_on_message(struct node *node, struct peer_id from, const struct message *message)
{
    if (message->type != MESSAGE_DIALBACK_REQ && message->type != MESSAGE_DIALBACK) return false;
    reach_on_message(node->door->reach, from, message, node_now(node), &node->outbox);
    return true;
}

void door_reach_on_dialback(void *context, struct peer_id peer, uint64_t nonce)
{
    struct node *node = context;

    reach_on_arrived(node->door->reach, peer, nonce, node_now(node));
}

void door_reach_on_probe_ended(void *context, struct peer_id peer, uint64_t nonce, enum rc rc)
{
    struct node *node = context;

    reach_on_probe_ended(node->door->reach, peer, nonce, rc == RC_OK, &node->outbox);
}

/* Where others can dial us, best first: as we were told to say, else where we listen, and then
 * under the name most neighbours see us by, if they can dial it. */
static void tell_others(struct node *node, uint64_t now_ns)
{
    char addresses[RECORD_ADDRESSES_MAX][ADDRESS_BYTES_MAX];
    struct reach_view view;
    uint32_t count = 1;

    memset(addresses, 0, sizeof addresses);
    reach_view(node->door->reach, &view);
    door_own_address(node, addresses[0]);
    if (node->options.advertise == NULL && view.nat == NAT_PUBLIC && view.observed[0] != '\0') {
        int length = snprintf(addresses[1], sizeof addresses[1], "%s:%u", view.observed,
                              (unsigned)door_reach_port(node));
        bool is_new = strcmp(addresses[0], addresses[1]) != 0;

        if (is_new && length < (int)sizeof addresses[1]) count++;
    }
    if (count == 1) memset(addresses[1], 0, sizeof addresses[1]);
    membership_set_reach(node->membership, view.nat, addresses, count, now_ns);
}

void door_reach_tick(struct node *node, uint64_t now_ns)
{
    enum nat_class before = node->door->told_nat;
    struct reach_probe probe;

    reach_tick(node->door->reach, now_ns, &node->outbox);
    while (reach_next_probe(node->door->reach, &probe)) {
        enum rc rc = links_probe(node->links, probe.address, probe.peer, probe.nonce);

        if (rc == RC_LIMIT || rc == RC_NOMEM) {
            reach_on_probe_unmade(node->door->reach, probe.peer, probe.nonce, &node->outbox);
        } else if (rc != RC_OK) {
            reach_on_probe_ended(node->door->reach, probe.peer, probe.nonce, false, &node->outbox);
        }
    }
    node->door->told_nat = reach_class(node->door->reach);
    if (node->door->told_nat == before) return;
    log_info(node->options.log, "others %s connect to this peer directly",
             node->door->told_nat == NAT_PUBLIC     ? "can"
             : node->door->told_nat == NAT_OUTBOUND ? "cannot"
                                                    : "may or may not be able to");
    tell_others(node, now_ns);
}

enum nat_class node_nat(const struct node *node)
{
    return node->door->told_nat;
}

/* Worth a dial after a restart, the best first: linked, then alive a moment ago, then whoever was
 * not given up; those who cannot be dialled come last. */
static uint32_t rank_of(const struct node *node, const struct member_view *view)
{
    uint32_t rank = view->is_linked ? 0 : view->state == MEMBER_DEAD ? 2 : 1;

    if (view->nat == NAT_OUTBOUND || node_is_relayed(node, view->id)) rank = 3;
    return rank;
}

/* Those linked longest, the oldest link first. */
static void add_anchors(const struct node *node, const struct member_view *views, size_t count,
                        struct address_book *book)
{
    uint64_t after_ns = 0;

    while (book->anchors_count < ADDRESS_BOOK_ANCHORS_MAX) {
        const struct member_view *oldest = NULL;
        uint64_t oldest_ns = UINT64_MAX;

        for (uint32_t i = 0; i < node->neighbours_count; i++) {
            const struct neighbour *neighbour = &node->neighbours[i];

            if (neighbour->linked_ns < after_ns || neighbour->linked_ns >= oldest_ns) continue;
            for (size_t v = 0; v < count; v++) {
                if (!peer_id_is_equal(views[v].id, neighbour->id)) continue;
                if (rank_of(node, &views[v]) != 0) break;
                oldest = &views[v];
                oldest_ns = neighbour->linked_ns;
            }
        }
        if (oldest == NULL) return;
        (void)address_book_add_anchor(book, oldest->address);
        after_ns = oldest_ns + 1;
    }
}

void node_book(const struct node *node, const struct address_book *before,
               struct address_book *book)
{
    size_t max = membership_count(node->membership);
    struct member_view *views = mem_array(max, sizeof *views);
    size_t count = views == NULL ? 0 : membership_list(node->membership, views, max);

    *book = (struct address_book){.incarnation = membership_incarnation(node->membership)};
    add_anchors(node, views, count, book);
    for (uint32_t rank = 0; rank <= 3; rank++) {
        for (size_t v = 0; v < count; v++) {
            if (views[v].state == MEMBER_LEFT || rank_of(node, &views[v]) != rank) continue;
            (void)address_book_add(book, views[v].address);
        }
    }
    mem_free(views);
    for (size_t i = 0; i < before->anchors_count; i++) {
        (void)address_book_add(book, before->anchors[i]);
    }
    for (size_t i = 0; i < before->count; i++) {
        (void)address_book_add(book, before->addresses[i]);
    }
}

void door_tell_tried(const struct node *node, char *text, size_t cap)
{
    enum { SHOWN_MAX = 3 };
    size_t used = strlen(text);

    for (uint32_t i = 0; i < node->door->bootstrap_count && used < cap; i++) {
        const struct bootstrap_try *tried = &node->door->bootstrap[i];

        if (i == SHOWN_MAX && node->door->bootstrap_count > SHOWN_MAX + 1) {
            snprintf(text + used, cap - used, "; and %u others", node->door->bootstrap_count - i);
            used = strlen(text);
            break;
        }
        if (tried->failures > 0) {
            snprintf(text + used, cap - used, "; %s", tried->why);
        } else {
            snprintf(text + used, cap - used, "; %s has not answered yet", tried->address);
        }
        used = strlen(text);
    }
    if (node->options.book_count > 0 && used < cap) {
        snprintf(text + used, cap - used,
                 "; nor did any of %zu addresses remembered from earlier runs answer",
                 node->options.book_count);
    }
}
