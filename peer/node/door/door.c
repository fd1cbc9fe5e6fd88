/*
 * The door as a whole: links, who is there, who can dial whom, relays. Whom to dial first is what
 * --bootstrap says, and what was remembered. Loop thread only.
 */
#include "peer/node/door/internal.h"

#include <stdio.h>

enum rc node_door_create(struct node *node, const struct env_events *events, struct env **env)
{
    enum rc rc;

    node->door = mem_alloc(sizeof *node->door);
    if (node->door == NULL) return RC_NOMEM;
    rc = node_relay_create(node, events, env);
    return rc == RC_OK ? node_reach_create(node) : rc;
}

void node_door_destroy(struct node *node)
{
    if (node->door == NULL) return;
    reach_destroy(node->door->reach);
    node_relay_destroy(node);
    mem_free(node->door);
}

enum rc node_membership_create(struct node *node)
{
    struct membership_options options = {.probe_interval_ns = NS_PER_S,
                                         .members_max = MEMBERS_MAX,
                                         .identity = node->options.identity,
                                         .run_id = node->options.swarm->run_id,
                                         .boot = node->options.boot,
                                         .incarnation = node->options.incarnation,
                                         .addresses_count = 1,
                                         .seed = rng_u64(&node->rng),
                                         .verified = node->options.verified};

    if (options.verified == NULL) {
        node->env->ops->entropy(node->env, &options.shelf_seed, sizeof options.shelf_seed);
    }
    node_own_address(node, options.addresses[0]);
    node->membership = membership_create(&options);
    if (node->membership == NULL) return RC_NOMEM;
    for (size_t i = 0; i < node->options.bootstrap_count && i < NODE_ADDRESSES_MAX; i++) {
        snprintf(node->door->bootstrap[i].address, sizeof node->door->bootstrap[i].address, "%s",
                 node->options.bootstrap[i]);
        node->door->bootstrap_count++;
        membership_add_bootstrap(node->membership, node->door->bootstrap[i].address);
    }
    for (size_t i = 0; i < node->options.book_count && i < NODE_ADDRESSES_MAX; i++) {
        membership_add_bootstrap(node->membership, node->options.book[i]);
    }
    return RC_OK;
}

bool node_has_no_bootstrap(const struct node *node)
{
    for (uint32_t i = 0; i < node->door->bootstrap_count; i++) {
        if (!node->door->bootstrap[i].is_self) return false;
    }
    return true;
}

bool node_is_bootstrap(const struct node *node)
{
    for (uint32_t i = 0; i < node->door->bootstrap_count; i++) {
        if (node->door->bootstrap[i].is_self) return true;
    }
    return node->door->bootstrap_count == 0;
}

/* ---- time ---- */

void node_door_tick(struct node *node, uint64_t now_ns)
{
    struct peer_id silent;

    links_tick(node->links, now_ns);
    node_admission_tick(node, now_ns);
    membership_tick(node->membership, now_ns, &node->outbox);
    while (membership_next_hangup(node->membership, &silent)) {
        links_hangup(node->links, silent,
                     "it was silent for too long, or a swarm this large does not need the link");
    }
    if (node->state < NODE_LEAVING) {
        node_reach_tick(node, now_ns);
        node_relay_tick(node, now_ns);
    }
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t node_door_next_ns(const struct node *node)
{
    uint64_t next = earlier(links_next_ns(node->links), membership_next_ns(node->membership));

    next = earlier(next, node_relay_next_ns(node));
    return node->state < NODE_LEAVING ? earlier(next, reach_next_ns(node->door->reach)) : next;
}
