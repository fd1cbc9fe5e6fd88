/*
 * A joiner and three donors with the fuzzer as the network: it chooses what is delivered, twice,
 * late, changed or never, who dies and when time passes. A download that completes is exactly one
 * donor's model, whatever happened. One donor's moments are of another method than the joiner's:
 * what it lists has another shape where moments are wanted.
 */
#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "gossip/signed/manifest.h"
#include "peer/download/donor.h"
#include "peer/download/joiner.h"

enum { DONORS = 3, VALUES = CHUNK_VALUES + 8, BUFFER_VALUES = 4, MOMENTS = 6, HELD_MAX = 64 };

struct input {
    const uint8_t *bytes;
    size_t left;
};

struct world {
    struct schema schema;
    struct donor_snapshot snapshots[2]; /* donors 0 and 1 hold the first, donor 2 the second */
};

struct scene {
    const struct world *world;
    struct input input;
    struct joiner *joiner;
    bool is_refused; /* by a check, once */
    struct donor *donors[DONORS];
    struct outbox requests;        /* joiner to donors, not delivered yet */
    struct outbox answers[DONORS]; /* and back */
    uint64_t now_ns;
};

static uint8_t next(struct input *input)
{
    if (input->left == 0) return 0;
    input->left--;
    return *input->bytes++;
}

static const struct peer_id joiner_id = {{99}};
static struct identity identities[DONORS];
static struct peer_id ids[DONORS];

static void world_make(struct world *world)
{
    const uint32_t shape[] = {VALUES}, buffer[] = {BUFFER_VALUES};

    CHECK(secure_start() == RC_OK);
    for (uint8_t i = 0; i < DONORS; i++) {
        const uint8_t seed[SECRET_BYTES] = {i};

        identity_from_seed(seed, &identities[i]);
        ids[i] = identity_peer_id(identities[i].public_key);
    }
    schema_init(&world->schema);
    CHECK(schema_add(&world->schema, "w", SECTION_PARAMETERS, shape, 1) == RC_OK);
    CHECK(schema_add(&world->schema, "b", SECTION_BUFFERS, buffer, 1) == RC_OK);
    world->schema.values[SECTION_MOMENTS] = MOMENTS;
    for (uint64_t k = 0; k < 2; k++) {
        struct donor_snapshot *snapshot = &world->snapshots[k];

        *snapshot = (struct donor_snapshot){
            .step = k,
            .lineage = hash_of("l", 1),
            .sections_count = 3,
            .sections = {SECTION_PARAMETERS, SECTION_BUFFERS, SECTION_MOMENTS},
            .counts = {VALUES, BUFFER_VALUES, MOMENTS}};
        for (size_t s = 0; s < 3; s++) {
            snapshot->values[s] = mem_array(snapshot->counts[s], sizeof(float));
            for (size_t i = 0; i < snapshot->counts[s]; i++) { /* the first bucket is the same */
                snapshot->values[s][i] =
                    (float)(rng_mix(i < CHUNK_VALUES && s == 0 ? 0 : k, i) % 97);
            }
        }
        CHECK(donor_snapshot_hash(snapshot) == RC_OK);
    }
}

static struct donor_snapshot snapshot_copy(const struct donor_snapshot *from)
{
    struct donor_snapshot copy = *from;

    for (size_t s = 0; s < from->sections_count; s++) {
        copy.values[s] = mem_array(from->counts[s], sizeof(float));
        memcpy(copy.values[s], from->values[s], from->counts[s] * sizeof(float));
    }
    copy.hashes = mem_array(from->buckets, sizeof(copy.hashes[0]));
    memcpy(copy.hashes, from->hashes, from->buckets * sizeof(copy.hashes[0]));
    return copy;
}

/* The message of an entry, as it is or, for some inputs, with a byte of it changed. */
static bool decode(struct scene *scene, const struct outbox_entry *entry, uint8_t *bytes,
                   struct message *message)
{
    struct inner_header header;
    uint8_t change = next(&scene->input);

    memcpy(bytes, entry->inner->bytes, entry->inner->count);
    if (change >= 0xc0) bytes[next(&scene->input) % entry->inner->count] ^= change;
    if (inner_header_decode(bytes, entry->inner->count, &header) != RC_OK) return false;
    return message_decode(header.type, bytes + INNER_HEADER_BYTES,
                          entry->inner->count - INNER_HEADER_BYTES, message) == RC_OK;
}

static void deliver_request(struct scene *scene, uint8_t which)
{
    struct message message;
    uint8_t bytes[CONTROL_BYTES_MAX];
    const struct outbox_entry *entry;
    struct donor_wish wish;
    uint32_t to = 0;
    enum rc rc;

    if (scene->requests.count == 0) return;
    entry = &scene->requests.entries[which % scene->requests.count];
    while (to + 1 < DONORS && !peer_id_is_equal(ids[to], entry->to)) {
        to++;
    }
    if (!decode(scene, entry, bytes, &message)) return;
    if (message.type != MESSAGE_STATE_REQ) {
        rc = donor_on_message(scene->donors[to], joiner_id, &message, scene->now_ns,
                              &scene->answers[to]);
        (void)rc;
        return;
    }
    rc = donor_on_request(scene->donors[to], joiner_id, &message.as.state_req, scene->now_ns,
                          &scene->answers[to]);
    if (rc == RC_OK && donor_wants_snapshot(scene->donors[to], &wish)) {
        struct donor_snapshot snapshot = snapshot_copy(&scene->world->snapshots[to == 2]);

        rc = RC_OK;
        donor_begin_snapshot(scene->donors[to]);
        if (wish.base != NULL) { /* the change to the same: nothing moves */
            mem_free(snapshot.hashes);
            snapshot.hashes = NULL;
            rc = donor_snapshot_change(&snapshot, wish.base);
            if (rc == RC_OK) rc = donor_snapshot_hash(&snapshot);
        }
        if ((which & 0x40) != 0) rc = RC_NOMEM;
        donor_on_snapshot(scene->donors[to], rc, &snapshot, scene->now_ns, &scene->answers[to]);
    }
}

static void deliver_answer(struct scene *scene, uint8_t which)
{
    struct outbox *answers = &scene->answers[which % DONORS];
    struct peer_id from = ids[which % DONORS];
    struct message message;
    uint8_t bytes[CONTROL_BYTES_MAX];
    enum rc rc;

    if (answers->count == 0) return;
    if (!decode(scene, &answers->entries[(which >> 2) % answers->count], bytes, &message)) return;
    if (message.type == MESSAGE_STATE_MANIFEST && (which & 0x80) != 0) { /* its own lie */
        manifest_sign(&message.as.state_manifest, &identities[which % DONORS], hash_of("run", 3));
    }
    rc = joiner_on_message(scene->joiner, from, &message, scene->now_ns, &scene->requests);
    (void)rc;
}

static void deliver_bucket(struct scene *scene, uint8_t which)
{
    struct peer_id from = ids[which % DONORS];
    static uint8_t bytes[CHUNK_VALUES * sizeof(float)];
    const uint8_t *sent;
    uint16_t stream;
    uint32_t bucket;
    size_t count;

    if (!donor_next_bucket(scene->donors[which % DONORS], joiner_id, scene->now_ns, &stream,
                           &bucket, &sent, &count)) {
        return;
    }
    memcpy(bytes, sent, count);
    if ((which & 0xe0) == 0xe0) bytes[next(&scene->input) % count] ^= 1;
    if ((which & 0xe0) == 0xc0) bucket ^= next(&scene->input);
    if ((which & 0xe0) == 0xa0) count -= next(&scene->input) % count;
    for (int i = 0; i < ((which & 0x10) != 0 ? 2 : 1); i++) {
        enum rc rc = joiner_on_bucket(scene->joiner, from, stream, bucket, bytes, count,
                                      scene->now_ns, &scene->requests);
        (void)rc;
    }
}

/* Each value is that of one of the models. */
static void check_mixture(const struct scene *scene)
{
    const struct donor_snapshot *models = scene->world->snapshots;

    for (size_t s = 0; s < models[0].sections_count; s++) {
        size_t count;
        const float *values = joiner_section(scene->joiner, models[0].sections[s], &count);

        for (size_t i = 0; values != NULL && i < count; i++) {
            CHECK(values[i] == models[0].values[s][i] || values[i] == models[1].values[s][i]);
        }
    }
}

static void check_model(const struct scene *scene)
{
    const struct donor_snapshot *model;

    model = &scene->world->snapshots[0];
    for (uint32_t k = 0; k < 2; k++) {
        size_t count;
        const float *values = joiner_section(scene->joiner, SECTION_PARAMETERS, &count);

        if (memcmp(values, scene->world->snapshots[k].values[0], count * sizeof(float)) == 0) {
            model = &scene->world->snapshots[k];
        }
    }
    for (size_t s = 0; s < model->sections_count; s++) {
        size_t count;
        const float *values = joiner_section(scene->joiner, model->sections[s], &count);

        CHECK(s > 0 || values != NULL); /* a changed request may have asked for less */
        if (values == NULL) continue;
        CHECK(count == model->counts[s]);
        CHECK(memcmp(values, model->values[s], count * sizeof(float)) == 0);
    }
}

static void check(struct scene *scene)
{
    if (joiner_state(scene->joiner) != JOINER_COMPLETE) return;
    if (joiner_stats(scene->joiner).is_mixed) {
        check_mixture(scene);
    } else {
        check_model(scene);
    }
    if (!scene->is_refused) {
        scene->is_refused = true;
        joiner_refuse(scene->joiner, scene->now_ns, &scene->requests);
    } else if (joiner_catch_up(scene->joiner, scene->now_ns, &scene->requests) != RC_OK) {
        joiner_finish(scene->joiner, &scene->requests);
    }
}

static void step(struct scene *scene)
{
    uint8_t what = next(&scene->input), which = next(&scene->input);
    enum rc rc;

    switch (what % 8) {
    case 0:
        joiner_options(scene->joiner)->width = which >> 4 & 3;
        joiner_options(scene->joiner)->want = (which & 0x40) != 0 ? 7 : 3;
        joiner_options(scene->joiner)->mixes = (which & 0x80) != 0;
        rc = joiner_begin(scene->joiner, ids, which % (DONORS + 1), hash_of("l", which & 1), which,
                          scene->now_ns, &scene->requests);
        (void)rc;
        break;
    case 1:
        deliver_request(scene, which);
        break;
    case 2:
        deliver_answer(scene, which);
        break;
    case 3:
    case 4:
        deliver_bucket(scene, which);
        break;
    case 5:
        joiner_on_link_lost(scene->joiner, ids[which % DONORS], scene->now_ns, &scene->requests);
        donor_on_link_lost(scene->donors[which % DONORS], joiner_id, scene->now_ns);
        break;
    case 6:
        scene->now_ns += (uint64_t)which * 100 * NS_PER_MS;
        joiner_tick(scene->joiner, scene->now_ns, &scene->requests);
        donor_tick(scene->donors[which % DONORS], scene->now_ns);
        break;
    default: /* keep the newest of what is under way */
        outbox_clear(&scene->requests);
        outbox_clear(&scene->answers[which % DONORS]);
        break;
    }
    CHECK(joiner_stats(scene->joiner).progress >= 0 && joiner_stats(scene->joiner).progress <= 1);
    if (scene->requests.count > HELD_MAX) outbox_clear(&scene->requests);
    for (size_t i = 0; i < DONORS; i++) {
        if (scene->answers[i].count > HELD_MAX) outbox_clear(&scene->answers[i]);
    }
    check(scene);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static struct world world;
    static bool is_made;
    struct scene scene = {.world = &world, .input = {bytes, count}, .now_ns = NS_PER_S};
    uint64_t blocks;

    if (!is_made) world_make(&world);
    is_made = true;
    blocks = mem_blocks();
    scene.joiner = joiner_create(&world.schema, hash_of("run", 3), 1);
    outbox_init(&scene.requests);
    for (size_t i = 0; i < DONORS; i++) {
        scene.donors[i] = donor_create(&world.schema, &identities[i], hash_of("run", 3));
        outbox_init(&scene.answers[i]);
    }
    donor_set_methods(scene.donors[1], hash_of("another", 7), (struct digest){{0}});
    while (scene.input.left > 0) {
        step(&scene);
    }
    joiner_destroy(scene.joiner);
    outbox_deinit(&scene.requests);
    for (size_t i = 0; i < DONORS; i++) {
        donor_destroy(scene.donors[i]);
        outbox_deinit(&scene.answers[i]);
    }
    CHECK(mem_blocks() == blocks);
    return 0;
}
