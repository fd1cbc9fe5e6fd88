/*
 * membership_scene: one membership and others whose messages are made by hand.
 */
#ifndef GRAPEVINE_TESTS_UNIT_GOSSIP_MEMBERSHIP_SCENE_H
#define GRAPEVINE_TESTS_UNIT_GOSSIP_MEMBERSHIP_SCENE_H

#include "tests/check.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "gossip/membership/membership.h"

enum { OTHERS = 100 };

struct other {
    struct identity identity;
    struct peer_id id;
    struct boot_id boot;
};

struct scene {
    struct other self, others[OTHERS];
    struct membership *membership;
    struct membership_options options;
    struct outbox out;
    uint64_t now_ns;
    struct digest run_id;
};

static inline void make_other(struct other *other, uint8_t number)
{
    uint8_t seed[SECRET_BYTES] = {number, 7};

    identity_from_seed(seed, &other->identity);
    other->id = identity_peer_id(other->identity.public_key);
    other->boot.bytes[0] = number;
}

static inline void scene_create(struct scene *scene, uint32_t members_max)
{
    memset(scene, 0, sizeof(*scene));
    assert_int_equal(secure_start(), RC_OK);
    scene->run_id = hash_of("swarm", 5);
    scene->now_ns = 1000 * NS_PER_S;
    make_other(&scene->self, 255);
    for (uint8_t i = 0; i < OTHERS; i++) {
        make_other(&scene->others[i], i);
    }
    outbox_init(&scene->out);
    scene->options = (struct membership_options){.probe_interval_ns = NS_PER_S,
                                                 .members_max = members_max,
                                                 .identity = &scene->self.identity,
                                                 .run_id = scene->run_id,
                                                 .boot = scene->self.boot,
                                                 .incarnation = 10,
                                                 .addresses = {"self.example:7000"},
                                                 .addresses_count = 1,
                                                 .seed = 3};
    scene->membership = membership_create(&scene->options);
    assert_non_null(scene->membership);
}

static inline void scene_destroy(struct scene *scene)
{
    membership_destroy(scene->membership);
    outbox_deinit(&scene->out);
}

struct scene_record {
    uint8_t bytes[SIGNED_RECORD_BYTES_MAX];
    size_t count;
};

static inline void sign(const struct scene *scene, const struct other *other, uint64_t incarnation,
                        bool has_left, const char *address, struct scene_record *out)
{
    struct member_record record = {.boot = other->boot,
                                   .incarnation = incarnation,
                                   .has_left = has_left,
                                   .addresses_count = 1};

    memcpy(record.public_key, other->identity.public_key, PUBLIC_KEY_BYTES);
    snprintf(record.addresses[0], ADDRESS_BYTES_MAX, "%s", address);
    assert_int_equal(record_sign(&record, &other->identity, scene->run_id, out->bytes,
                                 sizeof(out->bytes), &out->count),
                     RC_OK);
}

static inline enum rc gossip(struct scene *scene, const struct other *from,
                             const struct scene_record *record)
{
    struct message message = {.type = MESSAGE_GOSSIP};

    message.as.gossip.updates_count = 1;
    message.as.gossip.updates[0].bytes = record->bytes;
    message.as.gossip.updates[0].bytes_count = (uint16_t)record->count;
    return membership_on_message(scene->membership, from->id, &message, scene->now_ns, &scene->out);
}

static inline void tell(struct scene *scene, const struct other *from, const struct other *about,
                        uint64_t incarnation, bool has_left, const char *address)
{
    struct scene_record record;

    sign(scene, about, incarnation, has_left, address, &record);
    assert_int_equal(gossip(scene, from, &record), RC_OK);
}

static inline void link_up(struct scene *scene, const struct other *other, const char *address)
{
    membership_on_link_up(scene->membership, other->id, other->identity.public_key, other->boot,
                          address, scene->now_ns, &scene->out);
}

static inline bool find(const struct scene *scene, const struct other *other,
                        struct member_view *view)
{
    size_t max = membership_count(scene->membership);
    struct member_view *views = calloc(max + 1, sizeof views[0]);
    size_t count = membership_list(scene->membership, views, max);
    bool is_there = false;

    for (size_t i = 0; i < count && !is_there; i++) {
        is_there = peer_id_is_equal(views[i].id, other->id);
        if (is_there) *view = views[i];
    }
    free(views);
    return is_there;
}

static inline enum member_state state_of(const struct scene *scene, const struct other *other)
{
    struct member_view view = {0};

    assert_true(find(scene, other, &view));
    return view.state;
}

/* Take the first message of a type out of the outbox. The blob stays alive until scene_destroy().
 */
static inline bool said(struct scene *scene, const struct other *to, enum message_type type,
                        struct message *message)
{
    for (uint32_t i = 0; i < scene->out.count; i++) {
        const struct blob *inner = scene->out.entries[i].inner;
        struct inner_header header;

        assert_int_equal(inner_header_decode(inner->bytes, inner->count, &header), RC_OK);
        if (header.type != type || !peer_id_is_equal(scene->out.entries[i].to, to->id)) continue;
        assert_int_equal(message_decode(type, inner->bytes + INNER_HEADER_BYTES,
                                        inner->count - INNER_HEADER_BYTES, message),
                         RC_OK);
        return true;
    }
    return false;
}

/* Tick at the planned times until `until_ns`; dials and hang-ups are taken and counted. */
static inline void run(struct scene *scene, uint64_t until_ns, uint32_t *dials, uint32_t *hangups)
{
    char address[ADDRESS_BYTES_MAX];
    struct peer_id silent;

    for (;;) {
        uint64_t next_ns = membership_next_ns(scene->membership);

        if (next_ns > until_ns) break;
        if (next_ns > scene->now_ns) scene->now_ns = next_ns;
        outbox_clear(&scene->out);
        membership_tick(scene->membership, scene->now_ns, &scene->out);
        while (membership_next_dial(scene->membership, scene->now_ns, address)) {
            membership_on_dial_failed(scene->membership, address, scene->now_ns);
            if (dials != NULL) (*dials)++;
        }
        while (membership_next_hangup(scene->membership, &silent)) {
            if (hangups != NULL) (*hangups)++;
        }
    }
    scene->now_ns = until_ns;
}

#endif
