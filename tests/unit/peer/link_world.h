/*
 * link_world: peers that are nothing but links, in one simulated world, for the tests of peer/link.
 * Each side notes what it is told and checks that it is never told anything inside a call of its
 * own. A side without links is a stranger: it notes raw frames.
 */
#ifndef GRAPEVINE_TESTS_UNIT_PEER_LINK_WORLD_H
#define GRAPEVINE_TESTS_UNIT_PEER_LINK_WORLD_H

#include "tests/check.h"

#include "base/bytes.h"
#include "base/mem.h"
#include "peer/env/sim/env.h"
#include "peer/link/internal.h"

enum { SIDES_MAX = 20, NOTED_MAX = 8192, WHY_BYTES = 800 };
#define TICK_NS (20 * NS_PER_MS)

struct noted_record { /* of DATA: the header; of a control message: type and its number */
    uint8_t type;
    uint8_t flags;
    uint16_t stream;
    uint64_t number;
    size_t count;
};

struct side {
    struct env *env;
    uint32_t host;
    char address[ADDRESS_BYTES_MAX];
    struct links *links; /* NULL: a stranger */
    struct identity identity;
    struct swarm_secret swarm;
    struct hello hello;
    struct peer_id id;
    struct link_rekey rekey;
    bool is_clear;
    bool is_calling;
    bool is_deaf; /* does not answer pings */
    /* what its links told */
    unsigned opened, closed, failed, heard, drained, violations;
    bool is_dialled;
    struct hello remote;
    struct peer_id peer;
    enum rc rc;
    char why[WHY_BYTES];
    bool has_failed_peer;
    struct peer_id failed_peer;
    struct noted_record records[NOTED_MAX];
    unsigned records_count;
    size_t queued_at_drain;
    /* what a stranger's env told */
    uint64_t number;
    unsigned frames, lost;
    uint64_t lost_ns;
    uint8_t frame[HANDSHAKE_BYTES_MAX];
    size_t frame_count;
    const char *greeting; /* sent as soon as it is connected or accepted */
};

struct link_world {
    struct sim_world *sim;
    struct side sides[SIDES_MAX];
    unsigned count;
};

static inline struct side *told(void *context)
{
    struct side *side = context;

    assert_false(side->is_calling);
    return side;
}

static inline void note_open(void *context, struct peer_id peer, const struct hello *hello,
                             const char *address, bool is_dialled)
{
    struct side *side = told(context);

    assert_non_null(strchr(address, ':'));
    assert_true(links_peer(side->links, peer, NULL));
    side->opened++;
    side->peer = peer;
    side->remote = *hello;
    side->is_dialled = is_dialled;
}

static inline struct noted_record *note_record(struct side *side)
{
    assert_true(side->records_count < NOTED_MAX);
    return &side->records[side->records_count++];
}

static inline void note_message(void *context, struct peer_id peer, const struct message *message)
{
    struct side *side = told(context);
    struct message ack = {.type = MESSAGE_ACK};
    struct noted_record *record;

    assert_true(peer_id_is_equal(peer, side->peer));
    if (message->type == MESSAGE_PING) { /* as membership would */
        ack.as.ping.seq = message->as.ping.seq;
        if (!side->is_deaf) assert_int_equal(links_send(side->links, peer, &ack), RC_OK);
        return;
    }
    record = note_record(side);
    *record = (struct noted_record){.type = (uint8_t)message->type};
    if (message->type == MESSAGE_SYNC_REQ) record->number = message->as.sync_req.page;
}

static inline void note_data(void *context, struct peer_id peer, const struct inner_header *header,
                             const uint8_t *body, size_t count)
{
    struct side *side = told(context);

    assert_true(peer_id_is_equal(peer, side->peer));
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(body[i], 0xb0);
    }
    *note_record(side) = (struct noted_record){.type = MESSAGE_DATA,
                                               .flags = header->flags,
                                               .stream = header->stream,
                                               .number = header->arg,
                                               .count = count};
}

static inline void note_heard(void *context, struct peer_id peer)
{
    (void)peer;
    told(context)->heard++;
}

/* DATA of `links` for `peer` that is not with the env yet. */
static inline size_t bulk_queued(const struct links *links, struct peer_id peer)
{
    struct link_view link;

    (void)links_peer(links, peer, &link);
    return link.bulk_queued;
}

static inline void note_drained(void *context, struct peer_id peer)
{
    struct side *side = told(context);

    side->drained++;
    side->queued_at_drain = bulk_queued(side->links, peer);
}

static inline void note_closed(void *context, struct peer_id peer, enum rc rc, const char *why)
{
    struct side *side = told(context);

    assert_false(links_peer(side->links, peer, NULL));
    side->closed++;
    side->rc = rc;
    snprintf(side->why, sizeof side->why, "%s", why);
}

static inline void note_dial_failed(void *context, const char *address, enum rc rc, const char *why,
                                    const struct peer_id *peer)
{
    struct side *side = told(context);

    assert_true(strncmp(address, "sim:", 4) == 0);
    side->failed++;
    side->rc = rc;
    snprintf(side->why, sizeof side->why, "%s", why);
    side->has_failed_peer = peer != NULL;
    if (peer != NULL) side->failed_peer = *peer;
}

static inline void stranger_send(struct side *side, const void *bytes, size_t count)
{
    struct blob *blob = blob_copy(bytes, count);

    assert_non_null(blob);
    assert_int_equal(side->env->ops->send(side->env, side->number, blob), RC_OK);
    blob_unref(blob);
}

static inline void env_accepted(void *context, uint64_t number, const char *remote)
{
    struct side *side = told(context);

    if (side->links != NULL) {
        links_on_accepted(side->links, number, remote);
        return;
    }
    side->number = number;
    if (side->greeting != NULL) stranger_send(side, side->greeting, strlen(side->greeting));
}

static inline void env_connected(void *context, uint64_t number)
{
    struct side *side = told(context);

    if (side->links != NULL) {
        links_on_connected(side->links, number);
        return;
    }
    side->number = number;
    if (side->greeting != NULL) stranger_send(side, side->greeting, strlen(side->greeting));
}

static inline void env_frame(void *context, uint64_t number, uint8_t *frame, size_t count)
{
    struct side *side = told(context);

    if (side->links != NULL) {
        links_on_frame(side->links, number, frame, count);
        return;
    }
    side->frames++;
    assert_true(count <= sizeof side->frame);
    memcpy(side->frame, frame, count);
    side->frame_count = count;
}

static inline void env_drain(void *context, uint64_t number)
{
    struct side *side = told(context);

    if (side->links != NULL) links_on_drain(side->links, number);
}

static inline void env_lost(void *context, uint64_t number, enum rc rc, const char *why)
{
    struct side *side = told(context);

    if (side->links != NULL) {
        links_on_lost(side->links, number, rc, why);
        return;
    }
    side->lost++;
    side->lost_ns = side->env->ops->now_ns(side->env);
}

static inline void note_violation(void *context, struct peer_id peer)
{
    (void)peer;
    told(context)->violations++;
}

/* A host that listens; no links yet. */
static inline struct side *world_stranger(struct link_world *world)
{
    struct side *side = &world->sides[world->count++];
    struct env_events events = {.context = side,
                                .on_accepted = env_accepted,
                                .on_connected = env_connected,
                                .on_frame = env_frame,
                                .on_drain = env_drain,
                                .on_lost = env_lost};
    struct fault why = {""};

    assert_true(world->count <= SIDES_MAX);
    side->env = sim_host_create(world->sim, &side->host);
    assert_non_null(side->env);
    side->env->ops->set_events(side->env, &events);
    assert_int_equal(
        side->env->ops->listen(side->env, "sim:1", side->address, sizeof side->address, &why),
        RC_OK);
    return side;
}

/* Identity and model as every peer of these tests has them, but for the number. */
static inline void side_describe(struct side *side, uint8_t number)
{
    uint8_t seed[SECRET_BYTES] = {number};

    identity_from_seed(seed, &side->identity);
    side->id = identity_peer_id(side->identity.public_key);
    swarm_secret_derive("test", NULL, &side->swarm);
    side->hello = (struct hello){.incarnation = 1,
                                 .role = HELLO_PEER,
                                 .spec = "mlp",
                                 .method = "wire 2, exchange group, codec f32, rule mean"};
    memcpy(side->hello.public_key, side->identity.public_key, PUBLIC_KEY_BYTES);
    memset(side->hello.boot.bytes, number, BOOT_ID_BYTES);
    side->hello.schema = hash_of("mlp", 3);
}

static inline void side_start(struct side *side)
{
    struct links_options options = {.env = side->env,
                                    .identity = &side->identity,
                                    .swarm = &side->swarm,
                                    .hello = side->hello,
                                    .rekey = side->rekey,
                                    .is_clear = side->is_clear};
    struct links_events events = {.context = side,
                                  .on_open = note_open,
                                  .on_message = note_message,
                                  .on_data = note_data,
                                  .on_heard = note_heard,
                                  .on_bulk_drained = note_drained,
                                  .on_closed = note_closed,
                                  .on_dial_failed = note_dial_failed,
                                  .on_violation = note_violation};

    side->links = links_create(&options, &events);
    assert_non_null(side->links);
}

static inline struct side *world_peer(struct link_world *world, uint8_t number)
{
    struct side *side = world_stranger(world);

    side_describe(side, number);
    side_start(side);
    return side;
}

static inline struct link_world *world_create(uint64_t seed, uint64_t bytes_per_s)
{
    struct link_world *world = calloc(1, sizeof *world);
    struct sim_options options = {.seed = seed,
                                  .latency_ns = NS_PER_MS,
                                  .jitter_ns = 3 * NS_PER_MS,
                                  .bytes_per_s = bytes_per_s,
                                  .hosts_max = SIDES_MAX};

    assert_non_null(world);
    assert_int_equal(secure_start(), RC_OK);
    world->sim = sim_world_create(&options);
    assert_non_null(world->sim);
    return world;
}

static inline void world_destroy(struct link_world *world)
{
    for (unsigned i = 0; i < world->count; i++) {
        links_destroy(world->sides[i].links);
    }
    sim_world_destroy(world->sim);
    free(world);
}

/* Time passes; each peer is ticked as a node would. */
static inline void world_run(struct link_world *world, uint64_t ns)
{
    uint64_t until = sim_now_ns(world->sim) + ns;

    while (sim_now_ns(world->sim) < until) {
        uint64_t next = sim_now_ns(world->sim) + TICK_NS;

        (void)sim_run(world->sim, next < until ? next : until);
        for (unsigned i = 0; i < world->count; i++) {
            struct side *side = &world->sides[i];

            if (side->links == NULL) continue;
            if (links_next_ns(side->links) > sim_now_ns(world->sim)) continue;
            links_tick(side->links, sim_now_ns(world->sim));
        }
    }
}

/* Calls into links, during which nothing may be told. */
#define CALL(side, call)                                                                           \
    __extension__({                                                                                \
        (side)->is_calling = true;                                                                 \
        __typeof__(call) result_ = (call);                                                         \
        (side)->is_calling = false;                                                                \
        result_;                                                                                   \
    })

static inline void side_dial(struct side *side, const struct side *to)
{
    assert_int_equal(CALL(side, links_dial(side->links, to->address)), RC_OK);
}

static inline void stranger_dial(struct side *side, const struct side *to)
{
    assert_int_equal(side->env->ops->dial(side->env, to->address, &side->number), RC_OK);
}

/* Two peers with one link, dialled by the first. */
static inline struct link_world *world_of_two(uint64_t bytes_per_s)
{
    struct link_world *world = world_create(1, bytes_per_s);
    struct side *a = world_peer(world, 1), *b = world_peer(world, 2);

    side_dial(a, b);
    world_run(world, NS_PER_S);
    assert_true(links_peer(a->links, b->id, NULL) && links_peer(b->links, a->id, NULL));
    return world;
}

/* A message that carries a number. */
static inline enum rc side_send(struct side *side, const struct side *to, uint32_t number)
{
    struct message message = {.type = MESSAGE_SYNC_REQ};

    message.as.sync_req.page = number;
    return CALL(side, links_send(side->links, to->id, &message));
}

static inline enum rc side_send_bulk(struct side *side, const struct side *to, enum data_kind kind,
                                     uint16_t stream, uint32_t number, size_t bytes)
{
    struct inner_header header = {
        .type = MESSAGE_DATA, .flags = (uint8_t)kind, .stream = stream, .arg = number};
    struct blob *body = blob_create(bytes);
    enum rc rc;

    assert_non_null(body);
    memset(body->bytes, 0xb0, bytes);
    rc = CALL(side, links_send_bulk(side->links, to->id, &header, body));
    blob_unref(body);
    return rc;
}

#endif
