/*
 * The door as a whole: links, who is there, who can dial whom, relays. Whom to dial first is what
 * --bootstrap says, and what was remembered. Loop thread only.
 */
#include "peer/node/door/internal.h"

#include "base/hash.h"
#include "peer/times.h"

#include <stdio.h>

enum rc door_listen(struct node *node, struct fault *why)
{
    struct door *door = node->door = mem_alloc(sizeof *door);
    const char *elsewhere = node->options.listen_else;
    enum rc rc;

    if (door == NULL || door_relay_create(node) != RC_OK) {
        return fault_set(why, RC_NOMEM, "cannot start the peer: out of memory");
    }
    rc = node->env->ops->listen(node->env, node->options.listen, door->address,
                                sizeof door->address, why);
    if (rc == RC_OK || elsewhere == NULL) return rc;
    return node->env->ops->listen(node->env, elsewhere, door->address, sizeof door->address, why);
}

/* What may be the reason why two are unlike: columns, whose names stay here, or a label. As far as
 * there is room. */
static void tell_data(const struct node_options *options, struct hello *hello)
{
    size_t used = strlen(hello->spec);
    char digest[DIGEST_TEXT];
    struct hash hash;

    hash_init(&hash);
    for (uint32_t i = 0; i < options->names_count; i++) {
        hash_update(&hash, options->measured_names[i], strlen(options->measured_names[i]) + 1);
    }
    digest_format(hash_final(&hash), digest);
    if (options->names_count > 0) {
        snprintf(hello->spec + used, sizeof hello->spec - used, "; %u columns, names' hash %.8s",
                 options->names_count, digest);
        used = strlen(hello->spec);
    }
    if (options->classes != NULL && options->classes[0] != '\0') {
        snprintf(hello->spec + used, sizeof hello->spec - used, "; classes %s", options->classes);
    }
}

static void fill_hello(const struct node *node, struct hello *hello)
{
    const struct node_options *options = &node->options;

    memcpy(hello->public_key, options->identity->public_key, sizeof hello->public_key);
    hello->boot = options->boot;
    hello->incarnation = options->incarnation;
    hello->role = HELLO_PEER;
    hello->features = options->is_keeper ? FEATURE_KEEPER : 0;
    hello->listen_port = door_reach_port(node);
    hello->certificate_bytes = (uint32_t)options->certificate_bytes;
    CHECK(hello->certificate_bytes <= sizeof hello->certificate);
    if (hello->certificate_bytes > 0) {
        memcpy(hello->certificate, options->certificate, hello->certificate_bytes);
    }
    hello->schema = schema_digest(node->schema);
    memcpy(hello->spec, options->spec, sizeof hello->spec);
    tell_data(options, hello);
    strategy_method(options->strategy, lane_moments_name(node), hello->method,
                    sizeof hello->method);
    if (!lane_shares_all(node)) {
        const size_t length = strlen(hello->method);

        snprintf(hello->method + length, sizeof hello->method - length, ", trunk of %zu",
                 node->schema->shared_parameters);
    }
}

enum rc door_create(struct node *node)
{
    struct links_events events = door_links_events(node);
    /* Two planes for rounds, as many for a download, and some slack for small planes. */
    const size_t records = 4 * (node->mixed / CHUNK_VALUES + 1) + 64;
    struct links_options options = {.env = node->door->env,
                                    .identity = node->options.identity,
                                    .swarm = node->options.swarm,
                                    .log = node->options.log,
                                    .quick_bytes = node->options.quick_bytes,
                                    .is_clear = node->options.is_clear,
                                    .bulk_records_max = records,
                                    .verified = node->options.verified};

    fill_hello(node, &options.hello);
    node->links = links_create(&options, &events);
    node->trust = trust_create();
    if (node->links == NULL || node->trust == NULL) return RC_NOMEM;
    return door_reach_create(node);
}

void door_destroy(struct node *node)
{
    trust_destroy(node->trust);
    membership_destroy(node->membership);
    links_destroy(node->links);
    if (node->door == NULL) return;
    reach_destroy(node->door->reach);
    door_relay_destroy(node);
    mem_free(node->door);
}

enum rc door_membership_create(struct node *node)
{
    struct membership_options options = {.probe_interval_ns = NODE_PROBE_NS,
                                         .members_max = MEMBERS_MAX,
                                         .identity = node->options.identity,
                                         .run_id = node->options.swarm->run_id,
                                         .boot = node->options.boot,
                                         .incarnation = node->options.incarnation,
                                         .addresses_count = 1,
                                         .seed = rng_u64(&node->rng),
                                         .features = node->options.is_keeper ? FEATURE_KEEPER : 0,
                                         .verified = node->options.verified};

    if (options.verified == NULL) {
        node->env->ops->entropy(node->env, &options.shelf_seed, sizeof options.shelf_seed);
    }
    memcpy(options.site, node->options.site, SITE_BYTES);
    door_own_address(node, options.addresses[0]);
    node->membership = membership_create(&options);
    if (node->membership == NULL) return RC_NOMEM;
    for (size_t i = 0; i < node->options.bootstrap_count && i < NODE_ADDRESSES_MAX; i++) {
        node->door->bootstrap[i].address = node->options.bootstrap[i];
        node->door->bootstrap_count++;
        membership_add_bootstrap(node->membership, node->door->bootstrap[i].address);
    }
    for (size_t i = 0; i < node->options.book_count && i < NODE_ADDRESSES_MAX; i++) {
        membership_add_bootstrap(node->membership, node->options.book[i]);
    }
    return RC_OK;
}

/* Addresses of --bootstrap that led back to this peer. */
static uint32_t count_own(const struct node *node)
{
    uint32_t own = 0;

    for (uint32_t i = 0; i < node->door->bootstrap_count; i++) {
        own += node->door->bootstrap[i].is_self;
    }
    return own;
}

bool door_has_no_bootstrap(const struct node *node)
{
    return count_own(node) == node->door->bootstrap_count;
}

bool door_is_bootstrap(const struct node *node)
{
    return node->options.is_bootstrap_heard || count_own(node) > 0 ||
           node->door->bootstrap_count == 0;
}

/* ---- time ---- */

void door_tick(struct node *node, uint64_t now_ns)
{
    struct peer_id silent;

    door_relay_deliver(node);
    links_tick(node->links, now_ns);
    door_admission_tick(node, now_ns);
    membership_tick(node->membership, now_ns, &node->outbox);
    while (membership_next_hangup(node->membership, &silent)) {
        links_hangup(node->links, silent,
                     "it was silent for too long, or a swarm this large does not need the link");
    }
    if (node->state < NODE_LEAVING) {
        door_reach_tick(node, now_ns);
        door_relay_tick(node, now_ns);
    }
}

uint64_t door_next_ns(const struct node *node)
{
    uint64_t next = node_earlier(links_next_ns(node->links), membership_next_ns(node->membership));

    next = node_earlier(next, door_relay_next_ns(node));
    return node->state < NODE_LEAVING ? node_earlier(next, reach_next_ns(node->door->reach)) : next;
}
