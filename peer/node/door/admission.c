/*
 * Who may be linked with this node: the lists behind --allow, --authority, --deny, and the faults
 * it remembers. Asked at every handshake, after SIGHUP, and once a minute, since certificates run
 * out. Loop thread only.
 */
#include "peer/node/door/internal.h"

#include "gossip/door/gate.h"
#include "gossip/wire/address.h"

#include <signal.h>

enum rc door_on_entry(void *context, struct peer_id peer, const struct hello *hello,
                      const char *address, bool is_dialled, struct fault *why)
{
    const struct node *node = context;
    const struct admission *admission = node->options.admission;

    if (trust_is_refused(node->trust, peer, node_now(node))) {
        return fault_set(why, RC_BUSY, "too many faults of this peer: not for some minutes");
    }
    if (admission == NULL) return RC_OK;
    /* Whoever sits at this machine and holds the swarm's key may ask for the status; not who was
     * dialled because somebody told of an address here. */
    if (hello->role == HELLO_OBSERVER && !is_dialled && address_is_loopback(address)) return RC_OK;
    return admission_check(admission, hello, node->options.wall_s(), why);
}

bool door_may_join(const struct node *node, const struct hello *hello)
{
    struct hello as_member = *hello;
    struct fault why;

    if (node->options.admission == NULL) return true;
    as_member.role = HELLO_PEER;
    return admission_check(node->options.admission, &as_member, node->options.wall_s(), &why) ==
           RC_OK;
}

void door_score(struct node *node, struct peer_id peer, enum score_reason reason)
{
    trust_note(node->trust, peer, reason, node_now(node));
    if (trust_is_refused(node->trust, peer, node_now(node))) {
        links_hangup(node->links, peer,
                     "it broke the rules too often, and is shut out for a while");
    }
}

/* A host, as far as an address tells: of IPv4 the address, of IPv6 the network it is in. Names and
 * relays, which cost nothing, are all one. */
uint64_t door_place(const char *address)
{
    size_t digits = strspn(address, "0123456789.");
    uint64_t place;

    if (address[0] == '[') return gate_prefix(address);
    if (digits == 0 || address[digits] != ':') return 1;
    memcpy(&place, hash_of(address, digits).bytes, sizeof place);
    return place;
}

/* Not door_score(): the link ends by itself. */
void door_on_violation(void *context, struct peer_id peer)
{
    struct node *node = context;

    trust_note(node->trust, peer, SCORE_BROKE, node_now(node));
}

bool door_is_known(void *context, const char *address)
{
    return membership_knows_host(((struct node *)context)->membership, address);
}

static void judge(struct node *node, uint64_t now_ns)
{
    node->door->judge_due_ns = now_ns + NODE_JUDGE_NS;
    links_judge(node->links);
}

void door_on_signal(void *context, int signal)
{
    struct node *node = context;

    if (signal == SIGUSR1) {
        watch_dump(node);
        return;
    }
    if (signal != SIGHUP) {
        node_stop(node, signal);
        return;
    }
    if (node->events.on_reload != NULL) node->events.on_reload(node->events.context);
    judge(node, node_now(node));
    node_continue(node);
}

void door_admission_tick(struct node *node, uint64_t now_ns)
{
    if (node->options.admission != NULL && now_ns >= node->door->judge_due_ns) judge(node, now_ns);
}
