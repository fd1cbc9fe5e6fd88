/*
 * evil: members of the swarm that run the shipping node and lie in what they send. The linker
 * hands the calls below to us (--wrap, tests/CMakeLists.txt); what honest peers send passes
 * unchanged. So an attacker joins, trains and answers as a real peer does, up to the one thing its
 * behaviour changes.
 */
#ifndef GRAPEVINE_TESTS_SIM_EVIL_H
#define GRAPEVINE_TESTS_SIM_EVIL_H

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "peer/node/door/internal.h"
#include "peer/node/models/internal.h"

#include <math.h>
#include <string.h>

enum { EVIL_HELD_MAX = 256, EVIL_MAX = 8 };

struct evil;

struct evil_behaviour {
    const char *name;
    const char *exchange; /* "group", "pair"; NULL: against both */
    /** May change `message`, say more with evil_say(); false: it is not sent. */
    bool (*on_send)(struct evil *evil, struct peer_id to, struct message *message);
    /** The same for a chunk; a new body replaces *body, whose reference is then dropped. */
    bool (*on_chunk)(struct evil *evil, struct peer_id to, struct inner_header *header,
                     struct blob **body);
    void (*each_second)(struct evil *evil);
    bool is_poison; /* finite lies: what honest planes become is not looked at here */
    bool is_gate;   /* part of the short form */
    /* Of lies.h, where more of the node is in our hands. */
    unsigned exchanges; /* against which: bits of enum evil_exchange */
    /** What its rounds take for its model; `truth` is in there. In the training lane. */
    void (*on_plane)(struct evil *evil, float *plane, size_t count);
    /** What joiners are given; values, and the numbers beside them. In the training lane. */
    void (*on_donation)(struct evil *evil, struct donor_snapshot *snapshot);
    /** Its START, before anybody has it: what each member is said to have stated. */
    void (*on_start)(struct evil *evil, struct message_form *start, uint8_t *statements);
    /** With every event. */
    void (*on_tick)(struct evil *evil, uint64_t now_ns);
    /** A message of a round for it; false: it is not heard. */
    bool (*on_round)(struct evil *evil, struct peer_id from, const struct message *message);
    bool proposes; /* every round, and above everybody else's ballot */
    bool refuses;  /* everybody who comes is told ERROR */
    bool is_mean;  /* who asks for its model gets no answer */
};

enum evil_exchange {
    EVIL_GROUP = 1,
    EVIL_PAIR = 2,
    EVIL_EDGES = 4,
    EVIL_MIRROR = 8,
    EVIL_PUSH = 16,
    EVIL_ALL = 31
};

struct evil_held {
    struct peer_id to;
    struct inner_header header;
    struct blob *body;
};

struct evil {
    const struct evil_behaviour *behaviour;
    struct node *node;
    struct evil_held held[EVIL_HELD_MAX];
    uint32_t held_count;
    uint64_t acts;
    struct message offer; /* the latest of ours */
    /* Of lies.h. Planes are [count], of the training lane. */
    size_t count;
    float *lied, *base, *first, *direction; /* plane - truth; our model after the last round; the
                                               first plane; a unit vector */
    bool has_base;
    uint64_t due_ns; /* of on_tick */
    uint32_t proposed;
    uint32_t asked; /* for its model */
    struct {
        struct peer_id to;
        struct message message;
        uint64_t due_ns;
    } late[32];
    uint32_t late_count;
    struct {
        struct peer_id donor;
        uint32_t lease;
    } leases[16];
    uint32_t leases_count;
};

static struct evil evils[EVIL_MAX]; /* the first evils_count in use */
static uint32_t evils_count;
static struct evil *evil; /* the one that acts just now */

enum rc __real_links_send(struct links *links, struct peer_id to, const struct message *message);
void __real_links_send_all(struct links *links, const struct message *message);
enum rc __real_links_send_bulk(struct links *links, struct peer_id to,
                               const struct inner_header *header, struct blob *body);
void __real_trust_note(struct trust *trust, struct peer_id peer, enum score_reason reason,
                       uint64_t now_ns);
enum rc __wrap_links_send(struct links *links, struct peer_id to, const struct message *message);
void __wrap_links_send_all(struct links *links, const struct message *message);
enum rc __wrap_links_send_bulk(struct links *links, struct peer_id to,
                               const struct inner_header *header, struct blob *body);
void __wrap_trust_note(struct trust *trust, struct peer_id peer, enum score_reason reason,
                       uint64_t now_ns);

/* Does one of ours send here? Then it is the one that acts. */
static inline bool evil_is(const struct links *links)
{
    for (uint32_t i = 0; i < evils_count; i++) {
        if (evils[i].node->links != links) continue;
        evil = &evils[i];
        return true;
    }
    return false;
}

static inline void evil_say(struct peer_id to, const struct message *message)
{
    (void)__real_links_send(evil->node->links, to, message);
}

static inline void evil_say_all(const struct message *message)
{
    __real_links_send_all(evil->node->links, message);
}

enum rc __wrap_links_send(struct links *links, struct peer_id to, const struct message *message)
{
    struct message changed = *message;

    if (!evil_is(links)) return __real_links_send(links, to, message);
    evil->acts++;
    if (message->type == MESSAGE_OFFER) evil->offer = *message;
    if (evil->behaviour->on_send != NULL && !evil->behaviour->on_send(evil, to, &changed)) {
        return RC_OK;
    }
    return __real_links_send(links, to, &changed);
}

void __wrap_links_send_all(struct links *links, const struct message *message)
{
    struct message changed = *message;

    if (evil_is(links)) {
        evil->acts++;
        if (evil->behaviour->each_second != NULL && message->type == MESSAGE_PROGRESS) {
            evil->behaviour->each_second(evil);
        }
        if (evil->behaviour->on_send != NULL &&
            !evil->behaviour->on_send(evil, (struct peer_id){{0}}, &changed)) {
            return;
        }
    }
    __real_links_send_all(links, &changed);
}

enum rc __wrap_links_send_bulk(struct links *links, struct peer_id to,
                               const struct inner_header *header, struct blob *body)
{
    struct inner_header changed = *header;
    struct blob *sent = body;
    enum rc rc = RC_OK;

    if (!evil_is(links) || evil->behaviour->on_chunk == NULL || header->flags == DATA_STATE) {
        return __real_links_send_bulk(links, to, header, body);
    }
    if (evil->behaviour->on_chunk(evil, to, &changed, &sent)) {
        rc = __real_links_send_bulk(links, to, &changed, sent);
    }
    if (sent != body) blob_unref(sent);
    return rc;
}

/* It holds nothing against those who leave it out. */
void __wrap_trust_note(struct trust *trust, struct peer_id peer, enum score_reason reason,
                       uint64_t now_ns)
{
    for (uint32_t i = 0; i < evils_count; i++) {
        if (evils[i].node->trust == trust) return;
    }
    __real_trust_note(trust, peer, reason, now_ns);
}

/* ---- small things for behaviours ---- */

static inline struct blob *evil_floats(size_t bytes, float value)
{
    struct blob *blob = blob_create(bytes);

    CHECK(blob != NULL);
    for (size_t i = 0; i + sizeof value <= bytes; i += sizeof value) {
        memcpy(blob->bytes + i, &value, sizeof value);
    }
    return blob;
}

static inline uint32_t evil_chunks(void)
{
    return (uint32_t)((evil->node->mixed + CHUNK_VALUES - 1) / CHUNK_VALUES);
}

/* A FORM for `round` to everyone linked. */
static inline struct message evil_form(uint64_t round, uint32_t ballot)
{
    const struct node *node = evil->node;
    struct message message = {.type = MESSAGE_FORM};
    struct message_form *form = &message.as.form;

    form->round = round;
    form->ballot = ballot;
    form->schema = hash_of("", 0);
    form->lineage = node->lineage;
    memcpy(form->codec, "f32.", 5);
    form->chunks = evil_chunks();
    form->deadline_ms = 600000;
    form->members[form->members_count++] = (struct member_ref){node->self, node->options.boot};
    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        form->members[form->members_count++] =
            (struct member_ref){node->neighbours[i].id, node->neighbours[i].boot};
    }
    form->schema = schema_digest(node->schema);
    return message;
}

static inline uint64_t evil_round(void)
{
    struct round_stats stats;

    round_stats(evil->node->round, &stats);
    return stats.counts.next_round;
}

/* One more that lies from now on. */
static inline void evil_begin(struct node *node, const struct evil_behaviour *behaviour)
{
    CHECK(evils_count < EVIL_MAX);
    evils[evils_count++] = (struct evil){.behaviour = behaviour, .node = node};
}

static inline void evil_end(void)
{
    for (uint32_t i = 0; i < evils_count; i++) {
        for (uint32_t k = 0; k < evils[i].held_count; k++) {
            blob_unref(evils[i].held[k].body);
        }
        mem_free(evils[i].lied);
        mem_free(evils[i].base);
        mem_free(evils[i].first);
        mem_free(evils[i].direction);
    }
    memset(evils, 0, sizeof evils);
    evils_count = 0;
}

#endif
