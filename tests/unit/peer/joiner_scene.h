/* What tests of the joiner share: donors and a joiner, and the messages between them. */
#ifndef GRAPEVINE_TESTS_JOINER_SCENE_H
#define GRAPEVINE_TESTS_JOINER_SCENE_H

#include "tests/check.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "gossip/signed/manifest.h"
#include "peer/download/buckets.h"
#include "peer/download/donor.h"
#include "peer/download/joiner.h"

#include <math.h>

enum { DONORS = 3, VALUES = 3 * CHUNK_VALUES + 100, BUFFER_VALUES = 40, BUCKETS = 5 };

struct site { /* one donor and what may be wrong with it */
    struct donor *donor;
    struct identity identity;
    struct peer_id id;
    uint32_t owed;  /* buckets asked for and not sent */
    bool is_forged; /* what it twists it does not sign again */
    uint32_t every; /* gives a bucket at each so manyeth turn only; 0: at each */
    bool is_gone, is_mute;
    uint32_t buckets_left;                  /* then it dies */
    uint64_t fill;                          /* its model */
    void (*twist)(struct message *message); /* change what it says */
    void (*spoil)(uint8_t *bytes, size_t count);
    enum rc snapshot_rc;
};

struct scene {
    struct schema schema;
    struct joiner *joiner;
    struct peer_id id;
    struct site sites[DONORS];
    struct outbox to_donors, to_joiner;
    uint64_t now_ns;
    uint32_t buckets_sent, turn;
    size_t rule_values; /* of each of the two planes of the donors' rule; 0: they have none */
    enum rc last_rc;    /* what the joiner said to the last refused thing that was not just late */
    uint64_t blocks;    /* alive before the scene */
};

static inline struct digest lineage(void)
{
    return hash_of("lineage", 7);
}

static inline struct digest any_lineage(void)
{
    return (struct digest){{0}};
}

static inline struct digest run_id(void)
{
    return hash_of("run", 3);
}

static inline struct peer_id make_id(uint8_t number)
{
    struct peer_id id = {{number}};

    return id;
}

static inline void make_schema_of(struct schema *schema, uint32_t values)
{
    const uint32_t shape[] = {values}, buffer[] = {BUFFER_VALUES};

    schema_init(schema);
    assert_int_equal(schema_add(schema, "w", SECTION_PARAMETERS, shape, 1), RC_OK);
    assert_int_equal(schema_add(schema, "b", SECTION_BUFFERS, buffer, 1), RC_OK);
    schema->values[SECTION_MOMENTS] = values;
}

static inline void make_schema(struct schema *schema)
{
    make_schema_of(schema, VALUES);
}

static inline struct scene *scene_create_of(uint32_t values)
{
    struct scene *scene = calloc(1, sizeof(*scene));

    assert_int_equal(secure_start(), RC_OK);
    scene->blocks = mem_blocks();
    make_schema_of(&scene->schema, values);
    scene->joiner = joiner_create(&scene->schema, run_id(), 5);
    scene->id = make_id(100);
    scene->now_ns = NS_PER_S;
    outbox_init(&scene->to_donors);
    outbox_init(&scene->to_joiner);
    for (uint8_t i = 0; i < DONORS; i++) {
        const uint8_t seed[SECRET_BYTES] = {(uint8_t)(i + 1)};

        identity_from_seed(seed, &scene->sites[i].identity);
        scene->sites[i].donor = donor_create(&scene->schema, &scene->sites[i].identity, run_id());
        scene->sites[i].id = identity_peer_id(scene->sites[i].identity.public_key);
        scene->sites[i].buckets_left = UINT32_MAX;
    }
    return scene;
}

static inline struct scene *scene_create(void)
{
    return scene_create_of(VALUES);
}

static inline void scene_destroy(struct scene *scene)
{
    uint64_t blocks = scene->blocks;

    for (size_t i = 0; i < DONORS; i++) {
        donor_destroy(scene->sites[i].donor);
    }
    joiner_destroy(scene->joiner);
    outbox_deinit(&scene->to_donors);
    outbox_deinit(&scene->to_joiner);
    schema_deinit(&scene->schema);
    free(scene);
    assert_int_equal(mem_blocks(), blocks);
}

static inline float model_value(uint64_t fill, uint32_t section, size_t index)
{
    return (float)(rng_mix(fill + section, index) % 1000) / 7.0F;
}

static inline enum rc take_snapshot(const struct scene *scene, uint64_t fill,
                                    const struct donor_snapshot *base,
                                    struct donor_snapshot *snapshot)
{
    static const uint32_t sections[] = {SECTION_PARAMETERS, SECTION_BUFFERS, SECTION_MOMENTS,
                                        SECTION_RULE, SECTION_RULE_SECOND};

    *snapshot = (struct donor_snapshot){.step = 70,
                                        .samples = 7000,
                                        .round = 7,
                                        .lineage = lineage(),
                                        .sections_count = scene->rule_values > 0 ? 5 : 3};
    for (size_t s = 0; s < snapshot->sections_count; s++) {
        size_t count =
            sections[s] < SECTION_RULE ? scene->schema.values[sections[s]] : scene->rule_values;

        snapshot->sections[s] = sections[s];
        snapshot->counts[s] = count;
        snapshot->values[s] = mem_array(count, sizeof(float));
        if (snapshot->values[s] == NULL) return RC_NOMEM;
        for (size_t i = 0; i < count; i++) {
            snapshot->values[s][i] = model_value(fill, sections[s], i);
        }
    }
    if (base != NULL) {
        enum rc rc = donor_snapshot_change(snapshot, base);

        if (rc != RC_OK) return rc;
    }
    return donor_snapshot_hash(snapshot);
}

static inline void decode(const struct outbox_entry *entry, struct message *message)
{
    struct inner_header header;

    assert_int_equal(inner_header_decode(entry->inner->bytes, entry->inner->count, &header), RC_OK);
    assert_int_equal(message_decode(header.type, entry->inner->bytes + INNER_HEADER_BYTES,
                                    entry->inner->count - INNER_HEADER_BYTES, message),
                     RC_OK);
}

static inline void site_hears(struct scene *scene, struct site *site, const struct message *message)
{
    struct donor_wish wish;
    enum rc rc;

    if (site->is_gone || site->is_mute) return;
    if (message->type != MESSAGE_STATE_REQ) {
        rc = donor_on_message(site->donor, scene->id, message, scene->now_ns, &scene->to_joiner);
        assert_true(rc == RC_OK || rc == RC_STALE);
        if (rc == RC_OK && message->type == MESSAGE_BUCKET_REQ) {
            site->owed += message->as.bucket_req.count;
        }
        return;
    }
    rc = donor_on_request(site->donor, scene->id, &message->as.state_req, scene->now_ns,
                          &scene->to_joiner);
    assert_true(rc == RC_OK || rc == RC_BUSY);
    if (donor_wants_snapshot(site->donor, &wish)) {
        struct donor_snapshot snapshot = {0};

        donor_begin_snapshot(site->donor);
        rc = site->snapshot_rc != RC_OK ? site->snapshot_rc
                                        : take_snapshot(scene, site->fill, wish.base, &snapshot);
        donor_on_snapshot(site->donor, rc, &snapshot, scene->now_ns, &scene->to_joiner);
    }
}

static inline void joiner_hears(struct scene *scene, struct site *site, struct outbox *from_site)
{
    struct outbox held = *from_site;

    outbox_init(from_site);
    for (uint32_t i = 0; i < held.count; i++) {
        struct message message;
        enum rc rc;

        if (site->is_gone || !peer_id_is_equal(held.entries[i].to, scene->id)) continue;
        decode(&held.entries[i], &message);
        if (site->twist != NULL) site->twist(&message);
        if (site->twist != NULL && !site->is_forged && message.type == MESSAGE_STATE_MANIFEST) {
            manifest_sign(&message.as.state_manifest, &site->identity, run_id());
        }
        rc = joiner_on_message(scene->joiner, site->id, &message, scene->now_ns, &scene->to_donors);
        if (rc != RC_OK && rc != RC_STALE) scene->last_rc = rc;
    }
    outbox_deinit(&held);
}

static inline bool send_bucket(struct scene *scene, struct site *site)
{
    uint16_t stream;
    uint32_t bucket;
    const uint8_t *bytes;
    size_t count;
    uint8_t *copy;
    enum rc rc;

    if (site->is_gone) return false;
    if (site->every != 0 && scene->turn % site->every != 0) return site->owed > 0;
    if (!donor_next_bucket(site->donor, scene->id, scene->now_ns, &stream, &bucket, &bytes,
                           &count)) {
        site->owed = 0;
        return false;
    }
    site->owed--;
    if (site->buckets_left == 0) {
        site->is_gone = true;
        donor_on_link_lost(site->donor, scene->id, scene->now_ns);
        joiner_on_link_lost(scene->joiner, site->id, scene->now_ns, &scene->to_donors);
        return true;
    }
    site->buckets_left--;
    scene->buckets_sent++;
    copy = malloc(count);
    memcpy(copy, bytes, count);
    if (site->spoil != NULL) site->spoil(copy, count);
    rc = joiner_on_bucket(scene->joiner, site->id, stream, bucket, copy, count, scene->now_ns,
                          &scene->to_donors);
    if (rc != RC_OK && rc != RC_STALE) scene->last_rc = rc;
    free(copy);
    return true;
}

static inline size_t site_of(const struct scene *scene, struct peer_id id)
{
    for (size_t i = 0; i < DONORS; i++) {
        if (peer_id_is_equal(scene->sites[i].id, id)) return i;
    }
    return DONORS;
}

/* Let everything happen that can happen without time passing; then let time pass. */
static inline void scene_run(struct scene *scene)
{
    for (scene->turn = 0; scene->turn < 300000; scene->turn++) {
        bool is_moving = false;
        struct outbox held = scene->to_donors;

        scene->now_ns += NS_PER_MS;
        outbox_init(&scene->to_donors);
        for (uint32_t i = 0; i < held.count; i++) {
            struct message message;
            size_t site = site_of(scene, held.entries[i].to);

            is_moving = true;
            decode(&held.entries[i], &message);
            assert_true(site < DONORS);
            site_hears(scene, &scene->sites[site], &message);
            joiner_hears(scene, &scene->sites[site], &scene->to_joiner);
        }
        outbox_deinit(&held);
        for (size_t i = 0; i < DONORS; i++) {
            is_moving |= send_bucket(scene, &scene->sites[i]);
        }
        if (is_moving) continue;
        if (joiner_next_ns(scene->joiner) == UINT64_MAX) return;
        scene->now_ns = joiner_next_ns(scene->joiner);
        joiner_tick(scene->joiner, scene->now_ns, &scene->to_donors);
    }
    fail_msg("the download never ends");
}

static inline enum rc begin(struct scene *scene, struct digest wanted)
{
    struct peer_id donors[DONORS];

    for (size_t i = 0; i < DONORS; i++) {
        donors[i] = scene->sites[i].id;
    }
    return joiner_begin(scene->joiner, donors, DONORS, wanted, 0, scene->now_ns, &scene->to_donors);
}

static inline struct peer_id donor_of(const struct scene *scene)
{
    struct joiner_stats stats = joiner_stats(scene->joiner);

    assert_true(stats.has_donor);
    return stats.donor;
}

static inline void assert_model(struct scene *scene, size_t site)
{
    static const enum section sections[] = {SECTION_PARAMETERS, SECTION_BUFFERS};

    assert_int_equal(joiner_state(scene->joiner), JOINER_COMPLETE);
    assert_int_equal(site_of(scene, donor_of(scene)), site);
    for (size_t s = 0; s < 2; s++) {
        size_t count = 0;
        const float *values = joiner_section(scene->joiner, sections[s], &count);

        assert_non_null(values);
        assert_int_equal(count, scene->schema.values[sections[s]]);
        for (size_t i = 0; i < count; i++) {
            assert_true(values[i] == model_value(scene->sites[site].fill, sections[s], i));
        }
    }
}

#endif
