/*
 * hostile: a member that means harm. It holds the swarm's key, so handshake and sealing are real;
 * what it says inside is the test's. It keeps itself alive for the others (answers pings, tells its
 * progress) and dials again whoever hung up. One env host, driven by that env's events.
 */
#ifndef GRAPEVINE_TESTS_SIM_HOSTILE_H
#define GRAPEVINE_TESTS_SIM_HOSTILE_H

#include "averaging/strategy/strategy.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "gossip/signed/record.h"
#include "peer/link/link.h"
#include "replica/plane/plane.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { HOSTILE_TARGETS_MAX = 4, HOSTILE_ACT_NS = 200 * 1000 * 1000 };

struct hostile;

struct hostile_target {
    char address[ADDRESS_BYTES_MAX];
    struct peer_id id;
    struct boot_id boot;
    bool is_open;
    uint64_t link; /* the env's number, while open */
};

struct hostile_behaviour {
    const char *name;
    /** Five times a second, for each target with an open link. */
    void (*act)(struct hostile *hostile, const struct hostile_target *to);
    /** Everything said to us but pings; may be NULL. */
    void (*on_message)(struct hostile *hostile, struct peer_id from, const struct message *message);
    bool is_dropped; /* the victims can tell, and must hang up */
    bool is_silent;  /* no progress, no answers to pings: only what act() says */
};

struct hostile {
    const struct hostile_behaviour *behaviour;
    struct env *env;
    struct links *links;
    struct identity identity;
    struct swarm_secret swarm;
    struct boot_id boot;
    struct digest schema;
    struct log log;
    uint32_t values;
    struct hostile_target targets[HOSTILE_TARGETS_MAX];
    uint32_t targets_count;
    struct message_progress heard; /* the newest honest progress */
    struct message_progress said;  /* what we tell instead, once has_lie */
    bool has_lie;
    struct message_form form; /* the latest START or FORM, for those who play along */
    bool has_form;
    uint32_t dropped; /* links the others closed */
    uint32_t refused; /* by our own env */
    uint32_t acts;    /* counts up, to vary what is said */
    uint64_t act_ns, dial_ns;
    uint64_t link; /* whose frame is being read */
};

/* ---- saying things ---- */

static inline void hostile_raw(struct hostile *hostile, struct peer_id to, uint8_t type,
                               const void *body, size_t count)
{
    struct inner_header header = {.type = MESSAGE_PING}; /* a type that may be written */
    struct blob *inner = blob_create(INNER_HEADER_BYTES + count);

    CHECK(inner != NULL);
    inner_header_encode(&header, inner->bytes);
    inner->bytes[0] = type;
    if (count > 0) memcpy(inner->bytes + INNER_HEADER_BYTES, body, count);
    (void)links_send_inner(hostile->links, to, inner);
    blob_unref(inner);
}

static inline void hostile_say(struct hostile *hostile, struct peer_id to,
                               const struct message *message)
{
    (void)links_send(hostile->links, to, message);
}

/* Like hostile_say(), but each float32 in the map becomes `lie`. */
static inline void hostile_say_float(struct hostile *hostile, struct peer_id to,
                                     const struct message *message, float lie)
{
    uint8_t inner[4096], be[4];
    struct blob *blob;
    size_t count;
    uint32_t bits;

    CHECK(message_encode(message, inner, sizeof inner, &count) == RC_OK);
    memcpy(&bits, &lie, sizeof bits);
    for (int i = 0; i < 4; i++) {
        be[i] = (uint8_t)(bits >> (24 - 8 * i));
    }
    for (size_t i = INNER_HEADER_BYTES; i + 5 <= count; i++) {
        if (inner[i] != 0xca) continue; /* float32 */
        memcpy(inner + i + 1, be, 4);
        i += 4;
    }
    blob = blob_copy(inner, count);
    CHECK(blob != NULL);
    (void)links_send_inner(hostile->links, to, blob);
    blob_unref(blob);
}

/* A chunk of `count` floats, all `value`. */
static inline void hostile_data(struct hostile *hostile, struct peer_id to,
                                const struct inner_header *header, size_t count, float value)
{
    struct blob *body = blob_create(count * sizeof(float));

    CHECK(body != NULL);
    for (size_t i = 0; i < count; i++) {
        memcpy(body->bytes + i * sizeof value, &value, sizeof value);
    }
    (void)links_send_bulk(hostile->links, to, header, body);
    blob_unref(body);
}

/* Bytes on the wire, past the sealing. */
static inline void hostile_wire(struct hostile *hostile, const struct hostile_target *to,
                                const void *bytes, size_t count)
{
    struct blob *frame = blob_copy(bytes, count);

    CHECK(frame != NULL);
    /* refused while its queue is full: said often enough */
    hostile->refused += hostile->env->ops->send(hostile->env, to->link, frame) != RC_OK;
    blob_unref(frame);
}

static inline uint32_t hostile_chunks(const struct hostile *hostile)
{
    return (hostile->values + CHUNK_VALUES - 1) / CHUNK_VALUES;
}

/* ---- what the links tell ---- */

static inline void hostile_on_open(void *context, struct peer_id peer, const struct hello *hello,
                                   const char *address, bool is_dialled)
{
    struct hostile *hostile = context;

    (void)is_dialled;
    for (uint32_t i = 0; i < hostile->targets_count; i++) {
        struct hostile_target *target = &hostile->targets[i];

        if (strcmp(target->address, address) != 0 && !peer_id_is_equal(target->id, peer)) continue;
        target->id = peer;
        target->boot = hello->boot;
        target->is_open = true;
        target->link = hostile->link;
    }
}

static inline void hostile_on_closed(void *context, struct peer_id peer, enum rc rc,
                                     const char *why)
{
    struct hostile *hostile = context;

    (void)rc, (void)why;
    hostile->dropped++;
    for (uint32_t i = 0; i < hostile->targets_count; i++) {
        if (peer_id_is_equal(hostile->targets[i].id, peer)) hostile->targets[i].is_open = false;
    }
}

static inline void hostile_on_message(void *context, struct peer_id peer,
                                      const struct message *message)
{
    struct hostile *hostile = context;

    if (message->type == MESSAGE_PROGRESS) hostile->heard = message->as.progress;
    if (message->type == MESSAGE_PING && !hostile->behaviour->is_silent) {
        struct message ack = {.type = MESSAGE_ACK};

        ack.as.ping.seq = message->as.ping.seq;
        hostile_say(hostile, peer, &ack);
    } else if (hostile->behaviour->on_message != NULL) {
        hostile->behaviour->on_message(hostile, peer, message);
    }
}

static inline void hostile_on_data(void *context, struct peer_id peer,
                                   const struct inner_header *header, const uint8_t *body,
                                   size_t count)
{
    (void)context, (void)peer, (void)header, (void)body, (void)count;
}

static inline void hostile_on_peer(void *context, struct peer_id peer)
{
    (void)context, (void)peer;
}

static inline void hostile_on_dial_failed(void *context, const char *address, enum rc rc,
                                          const char *why, const struct peer_id *peer)
{
    (void)context, (void)address, (void)rc, (void)why, (void)peer;
}

/* ---- time ---- */

static inline void hostile_dial(struct hostile *hostile)
{
    for (uint32_t i = 0; i < hostile->targets_count; i++) {
        if (!hostile->targets[i].is_open) {
            hostile->refused += links_dial(hostile->links, hostile->targets[i].address) != RC_OK;
        }
    }
}

static inline void hostile_act(struct hostile *hostile)
{
    struct message progress = {.type = MESSAGE_PROGRESS};

    hostile->acts++;
    progress.as.progress = hostile->has_lie ? hostile->said : hostile->heard;
    for (uint32_t i = 0; i < hostile->targets_count; i++) {
        const struct hostile_target *target = &hostile->targets[i];

        if (!target->is_open) continue;
        if (hostile->acts % 3 == 0 && !hostile->behaviour->is_silent) {
            hostile_say(hostile, target->id, &progress);
        }
        hostile->behaviour->act(hostile, target);
    }
}

static inline void hostile_continue(struct hostile *hostile)
{
    uint64_t now_ns = hostile->env->ops->now_ns(hostile->env);

    links_tick(hostile->links, now_ns);
    if (now_ns >= hostile->dial_ns) {
        hostile->dial_ns = now_ns + NS_PER_S;
        hostile_dial(hostile);
    }
    if (now_ns >= hostile->act_ns) {
        hostile->act_ns = now_ns + HOSTILE_ACT_NS;
        hostile_act(hostile);
    }
    hostile->env->ops->wake_at(hostile->env, hostile->act_ns);
}

static inline void hostile_env_accepted(void *context, uint64_t link, const char *remote)
{
    struct hostile *hostile = context;

    links_on_accepted(hostile->links, link, remote);
    hostile_continue(hostile);
}

static inline void hostile_env_connected(void *context, uint64_t link)
{
    struct hostile *hostile = context;

    links_on_connected(hostile->links, link);
    hostile_continue(hostile);
}

static inline void hostile_env_frame(void *context, uint64_t link, uint8_t *frame, size_t count)
{
    struct hostile *hostile = context;

    hostile->link = link;
    links_on_frame(hostile->links, link, frame, count);
    hostile_continue(hostile);
}

static inline void hostile_env_drain(void *context, uint64_t link)
{
    struct hostile *hostile = context;

    links_on_drain(hostile->links, link);
    hostile_continue(hostile);
}

static inline void hostile_env_lost(void *context, uint64_t link, enum rc rc, const char *why)
{
    struct hostile *hostile = context;

    links_on_lost(hostile->links, link, rc, why);
    hostile_continue(hostile);
}

static inline void hostile_env_wake(void *context)
{
    hostile_continue(context);
}

static inline void hostile_env_signal(void *context, int signal)
{
    (void)context, (void)signal;
}

/* ---- life ---- */

/* What a peer that trains a quadratic of `values` says of itself. */
static inline struct digest hostile_schema(uint32_t values)
{
    struct schema schema;
    struct digest digest;

    schema_init(&schema);
    CHECK(schema_add(&schema, "x", SECTION_PARAMETERS, &values, 1) == RC_OK);
    digest = schema_digest(&schema);
    schema_deinit(&schema);
    return digest;
}

/* `strategy`: the victims', or they would not let it in. */
static inline struct hostile *hostile_create(struct env *env, const struct swarm_secret *swarm,
                                             const struct strategy *strategy, uint32_t values,
                                             uint32_t first_host, uint32_t targets,
                                             const struct hostile_behaviour *behaviour)
{
    struct hostile *hostile = mem_alloc(sizeof *hostile);
    uint8_t seed[SECRET_BYTES];
    struct links_events links_events = {.context = hostile,
                                        .on_open = hostile_on_open,
                                        .on_message = hostile_on_message,
                                        .on_data = hostile_on_data,
                                        .on_heard = hostile_on_peer,
                                        .on_bulk_drained = hostile_on_peer,
                                        .on_closed = hostile_on_closed,
                                        .on_dial_failed = hostile_on_dial_failed};
    struct env_events events = {.context = hostile,
                                .on_accepted = hostile_env_accepted,
                                .on_connected = hostile_env_connected,
                                .on_frame = hostile_env_frame,
                                .on_drain = hostile_env_drain,
                                .on_lost = hostile_env_lost,
                                .on_wake = hostile_env_wake,
                                .on_signal = hostile_env_signal};
    struct links_options options = {.env = env, .hello = {.role = HELLO_PEER, .incarnation = 1}};

    CHECK(hostile != NULL && targets <= HOSTILE_TARGETS_MAX);
    hostile->behaviour = behaviour;
    hostile->env = env;
    hostile->swarm = *swarm;
    hostile->values = values;
    hostile->schema = hostile_schema(values);
    env->ops->set_events(env, &events);
    env->ops->entropy(env, seed, sizeof seed);
    env->ops->entropy(env, hostile->boot.bytes, sizeof hostile->boot.bytes);
    identity_from_seed(seed, &hostile->identity);
    options.identity = &hostile->identity;
    options.swarm = &hostile->swarm;
    options.log = &hostile->log;
    options.hello.boot = hostile->boot;
    options.hello.schema = hostile->schema;
    memcpy(options.hello.public_key, hostile->identity.public_key, PUBLIC_KEY_BYTES);
    snprintf(options.hello.spec, sizeof options.hello.spec, "quadratic");
    strategy_method(strategy, NULL, options.hello.method, sizeof options.hello.method);
    for (uint32_t i = 0; i < targets; i++) {
        snprintf(hostile->targets[i].address, ADDRESS_BYTES_MAX, "sim:%u", first_host + i);
    }
    hostile->targets_count = targets;
    hostile->links = links_create(&options, &links_events);
    CHECK(hostile->links != NULL);
    env->ops->wake_at(env, 0);
    return hostile;
}

static inline void hostile_destroy(struct hostile *hostile)
{
    links_destroy(hostile->links);
    hostile->env->ops->stop(hostile->env);
    mem_free(hostile);
}

#endif
