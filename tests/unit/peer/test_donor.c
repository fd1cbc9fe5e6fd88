/* The donor alone: leases, sharing, and what a greedy or confused joiner gets. */
#include "tests/check.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "peer/download/donor.h"

#include <math.h>

enum { VALUES = 3 * CHUNK_VALUES + 100, BUCKETS = 4 };

struct scene {
    struct schema schema;
    struct identity identity;
    struct donor *donor;
    struct outbox out;
    uint64_t blocks;
};

static struct peer_id make_id(uint8_t number)
{
    struct peer_id id = {{number}};

    return id;
}

static void scene_create(struct scene *scene)
{
    const uint8_t seed[SECRET_BYTES] = {7};
    const uint32_t shape[] = {VALUES};

    scene->blocks = mem_blocks();
    schema_init(&scene->schema);
    assert_int_equal(schema_add(&scene->schema, "w", SECTION_PARAMETERS, shape, 1), RC_OK);
    assert_int_equal(secure_start(), RC_OK);
    identity_from_seed(seed, &scene->identity);
    scene->donor = donor_create(&scene->schema, &scene->identity, hash_of("run", 3));
    assert_non_null(scene->donor);
    outbox_init(&scene->out);
}

static void scene_destroy(struct scene *scene)
{
    donor_destroy(scene->donor);
    outbox_deinit(&scene->out);
    schema_deinit(&scene->schema);
    assert_int_equal(mem_blocks(), scene->blocks);
}

static struct donor_snapshot make_snapshot(void)
{
    struct donor_snapshot snapshot = {.lineage = hash_of("l", 1),
                                      .sections_count = 1,
                                      .sections = {SECTION_PARAMETERS},
                                      .counts = {VALUES}};

    snapshot.values[0] = mem_array(VALUES, sizeof(float));
    assert_non_null(snapshot.values[0]);
    return snapshot;
}

/* Hand over a snapshot at `now_ns`. */
static void give_snapshot(struct scene *scene, uint64_t now_ns)
{
    struct donor_snapshot snapshot = make_snapshot();

    assert_int_equal(donor_snapshot_hash(&snapshot), RC_OK);
    donor_begin_snapshot(scene->donor);
    donor_on_snapshot(scene->donor, RC_OK, &snapshot, now_ns, &scene->out);
}

static enum rc request(struct scene *scene, uint8_t who, uint32_t want, uint64_t now_ns,
                       bool *wants_snapshot)
{
    const struct message_state_req message = {.want = want};
    struct donor_wish wish;
    enum rc rc = donor_on_request(scene->donor, make_id(who), &message, now_ns, &scene->out);

    *wants_snapshot = donor_wants_snapshot(scene->donor, &wish);
    return rc;
}

static enum message_type said_to(const struct scene *scene, uint32_t entry, uint8_t who)
{
    struct inner_header header;

    assert_true(entry < scene->out.count);
    assert_int_equal(scene->out.entries[entry].to.bytes[0], who);
    assert_int_equal(inner_header_decode(scene->out.entries[entry].inner->bytes,
                                         scene->out.entries[entry].inner->count, &header),
                     RC_OK);
    return header.type;
}

static enum rc ask_at(struct scene *scene, uint8_t who, struct message_bucket_req request,
                      uint64_t now_ns)
{
    struct message message = {.type = MESSAGE_BUCKET_REQ};

    message.as.bucket_req = request;
    return donor_on_message(scene->donor, make_id(who), &message, now_ns, &scene->out);
}

static enum rc ask(struct scene *scene, uint8_t who, uint32_t lease, uint32_t index, uint32_t count)
{
    return ask_at(scene, who, (struct message_bucket_req){lease, index, count}, 2 * NS_PER_S);
}

static enum rc ask_page_at(struct scene *scene, uint8_t who, struct message_manifest_req request,
                           uint64_t now_ns)
{
    struct message message = {.type = MESSAGE_MANIFEST_REQ};

    message.as.manifest_req = request;
    return donor_on_message(scene->donor, make_id(who), &message, now_ns, &scene->out);
}

static enum rc ask_page(struct scene *scene, uint8_t who, uint32_t lease, uint32_t page)
{
    return ask_page_at(scene, who, (struct message_manifest_req){lease, page}, 2 * NS_PER_S);
}

/* Eight joiners share the snapshot that is being taken, a ninth is denied; unused leases run out.
 */
static void eight_leases_share_a_snapshot_and_a_ninth_is_denied(void **state)
{
    struct scene scene;
    bool wants_snapshot = true;

    (void)state;
    scene_create(&scene);
    assert_int_equal(request(&scene, 50, 2, NS_PER_S, &wants_snapshot), RC_FORMAT);
    assert_false(wants_snapshot);
    for (uint8_t i = 0; i < DONOR_LEASES_MAX; i++) {
        assert_int_equal(request(&scene, (uint8_t)(50 + i), 1, NS_PER_S, &wants_snapshot), RC_OK);
        assert_true(wants_snapshot);
    }
    assert_int_equal(request(&scene, 70, 1, NS_PER_S, &wants_snapshot), RC_BUSY);
    assert_int_equal(said_to(&scene, 0, 70), MESSAGE_STATE_DENY);
    give_snapshot(&scene, NS_PER_S);
    for (uint8_t i = 0; i < DONOR_LEASES_MAX; i++) {
        assert_int_equal(said_to(&scene, 1U + i, (uint8_t)(50 + i)), MESSAGE_STATE_MANIFEST);
    }
    assert_int_equal(donor_leases(scene.donor), DONOR_LEASES_MAX);
    assert_true(donor_next_ns(scene.donor) == NS_PER_S + DONOR_LEASE_MS * NS_PER_MS);
    donor_tick(scene.donor, donor_next_ns(scene.donor) - 1);
    assert_int_equal(ask(&scene, 50, 1, 0, 1), RC_OK);
    donor_tick(scene.donor, UINT64_MAX);
    assert_int_equal(donor_leases(scene.donor), 0);
    outbox_clear(&scene.out);
    assert_int_equal(ask(&scene, 50, 1, 0, 1), RC_STALE); /* and it is told so */
    assert_int_equal(said_to(&scene, 0, 50), MESSAGE_STATE_DENY);
    scene_destroy(&scene);
}

/* Two snapshots at most: a third wave of joiners shares the younger, as long as it is young. */
static void a_third_snapshot_is_not_taken(void **state)
{
    struct scene scene;
    bool wants_snapshot;

    (void)state;
    scene_create(&scene);
    for (uint8_t i = 0; i < DONOR_SNAPSHOTS_MAX; i++) {
        uint64_t now_ns = (1 + 4U * i) * NS_PER_S;

        assert_int_equal(request(&scene, (uint8_t)(50 + i), 1, now_ns, &wants_snapshot), RC_OK);
        assert_true(wants_snapshot);
        give_snapshot(&scene, now_ns);
    }
    assert_int_equal(request(&scene, 60, 1, 8 * NS_PER_S, &wants_snapshot), RC_OK);
    assert_false(wants_snapshot);
    assert_int_equal(said_to(&scene, 2, 60), MESSAGE_STATE_MANIFEST);
    scene_destroy(&scene);
}

static uint32_t take_all(struct scene *scene, uint8_t who, uint64_t now_ns)
{
    const uint8_t *bytes;
    uint32_t taken = 0, bucket;
    uint16_t stream;
    size_t count;

    while (
        donor_next_bucket(scene->donor, make_id(who), now_ns, &stream, &bucket, &bytes, &count)) {
        taken++;
    }
    return taken;
}

/* Who is no member has a place at two of eight, no change, and makes way at once for who is one. */
static void visitors_make_way(void **state)
{
    const struct message_state_req all = {.want = 1}, change = {.want = 1, .base = 1};
    struct scene scene;
    struct peer_id owed;
    bool wants_snapshot;
    uint64_t now_ns = NS_PER_S;

    (void)state;
    scene_create(&scene);
    assert_int_equal(donor_on_visit(scene.donor, make_id(1), &change, now_ns, &scene.out),
                     RC_FORMAT);
    for (uint8_t i = 1; i <= DONOR_VISITORS_MAX; i++) {
        now_ns += 10 * NS_PER_S; /* each pins a snapshot of its own */
        assert_int_equal(donor_on_visit(scene.donor, make_id(i), &all, now_ns, &scene.out), RC_OK);
        give_snapshot(&scene, now_ns);
    }
    assert_int_equal(donor_on_visit(scene.donor, make_id(9), &all, now_ns, &scene.out), RC_BUSY);
    assert_int_equal(donor_leases(scene.donor), DONOR_VISITORS_MAX);
    outbox_clear(&scene.out);
    now_ns += DONOR_CROWD_NS;
    assert_int_equal(request(&scene, 50, 1, now_ns, &wants_snapshot), RC_OK);
    assert_true(wants_snapshot);
    assert_int_equal(said_to(&scene, 0, 1), MESSAGE_STATE_DENY);
    give_snapshot(&scene, now_ns);
    outbox_clear(&scene.out);
    assert_int_equal(donor_on_visit(scene.donor, make_id(3), &all, now_ns, &scene.out), RC_OK);
    assert_int_equal(said_to(&scene, 0, 3), MESSAGE_STATE_MANIFEST); /* the member's is young */
    assert_int_equal(ask_at(&scene, 3, (struct message_bucket_req){4, 0, 1}, now_ns), RC_OK);
    for (uint32_t i = 0, owing = 0; i < DONOR_LEASES_MAX; i++) {
        if (!donor_owes(scene.donor, i, &owed)) continue;
        assert_true(owing++ == 0 && owed.bytes[0] == 3);
    }
    assert_int_equal(take_all(&scene, 3, now_ns), 1);
    donor_on_link_lost(scene.donor, make_id(3), now_ns); /* nothing is kept for it */
    assert_int_equal(donor_leases(scene.donor), 2);
    scene_destroy(&scene);
}

/* Two that take a snapshot each and never end: whatever they go on asking for, a third is given one
 * whenever it asks, and so it goes on when they come again and again. */
static void nobody_pins_both_snapshots(void **state)
{
    struct scene scene;
    bool wants_snapshot;
    uint32_t lease = 0, denied = 0;

    (void)state;
    scene_create(&scene);
    for (uint64_t s = 1; s < 600; s++) {
        uint64_t now_ns = s * NS_PER_S;

        for (uint8_t i = 0; i < 2; i++) {
            if (s % 150 == 1 + 4U * i) {
                if (request(&scene, (uint8_t)(50 + i), 1, now_ns, &wants_snapshot) == RC_OK) {
                    lease++;
                }
                if (wants_snapshot) give_snapshot(&scene, now_ns);
            }
            if (s % 9 != 0) continue; /* one of them drips, the other asks for the same page */
            for (uint32_t k = 1; k <= lease; k++) {
                (void)ask_page_at(&scene, (uint8_t)(50 + i), (struct message_manifest_req){k, 0},
                                  now_ns);
                if (i == 0) {
                    (void)ask_at(&scene, 50, (struct message_bucket_req){k, s / 9 % BUCKETS, 1},
                                 now_ns);
                }
            }
            (void)take_all(&scene, 50, now_ns);
        }
        outbox_clear(&scene.out);
        if (s % 20 != 0) continue;
        if (request(&scene, 60, 1, now_ns, &wants_snapshot) != RC_OK) {
            denied++;
            continue;
        }
        lease++;
        if (wants_snapshot) give_snapshot(&scene, now_ns);
        donor_on_link_lost(scene.donor, make_id(60), now_ns);
    }
    assert_int_equal(denied, 0);
    scene_destroy(&scene);
}

/* Of eight places the least advanced of those that stand still is given to a ninth joiner; those
 * that are being sent something keep theirs. */
static void the_least_advanced_makes_place(void **state)
{
    struct scene scene;
    bool wants_snapshot;

    (void)state;
    scene_create(&scene);
    for (uint8_t i = 0; i < DONOR_LEASES_MAX; i++) {
        assert_int_equal(request(&scene, (uint8_t)(50 + i), 1, NS_PER_S, &wants_snapshot), RC_OK);
    }
    give_snapshot(&scene, NS_PER_S);
    for (uint8_t i = 0; i < DONOR_LEASES_MAX; i++) {
        uint64_t at_ns = (i == 0 ? 9 : 2) * NS_PER_S;

        assert_int_equal(ask(&scene, (uint8_t)(50 + i), i + 1U, 0, i == 3 ? 1 : 2), RC_OK);
        assert_int_equal(take_all(&scene, (uint8_t)(50 + i), at_ns), i == 3 ? 1 : 2);
    }
    assert_int_equal(request(&scene, 70, 1, 11 * NS_PER_S, &wants_snapshot), RC_BUSY);
    outbox_clear(&scene.out);
    assert_int_equal(request(&scene, 70, 1, 12 * NS_PER_S, &wants_snapshot), RC_OK);
    assert_int_equal(said_to(&scene, 0, 53), MESSAGE_STATE_DENY);
    assert_int_equal(ask(&scene, 50, 1, 3, 1), RC_OK);
    scene_destroy(&scene);
}

/* Whoever is cut off finds the snapshot of before when it is back within a minute, and does not
 * begin anew; nothing that was sent before makes the lease last. */
static void who_was_cut_off_goes_on(void **state)
{
    struct scene scene;
    bool wants_snapshot;

    (void)state;
    scene_create(&scene);
    assert_int_equal(request(&scene, 50, 1, NS_PER_S, &wants_snapshot), RC_OK);
    give_snapshot(&scene, NS_PER_S);
    assert_int_equal(ask(&scene, 50, 1, 0, 2), RC_OK);
    assert_int_equal(take_all(&scene, 50, 2 * NS_PER_S), 2);
    donor_on_link_lost(scene.donor, make_id(50), 3 * NS_PER_S);
    assert_int_equal(take_all(&scene, 50, 3 * NS_PER_S), 0);
    outbox_clear(&scene.out);
    assert_int_equal(request(&scene, 50, 1, 60 * NS_PER_S, &wants_snapshot), RC_OK);
    assert_false(wants_snapshot);
    assert_int_equal(said_to(&scene, 0, 50), MESSAGE_STATE_MANIFEST);
    assert_int_equal(ask_at(&scene, 50, (struct message_bucket_req){2, 2, 2}, 61 * NS_PER_S),
                     RC_OK);
    assert_int_equal(take_all(&scene, 50, 61 * NS_PER_S), 2);
    for (uint64_t s = 62; s < 61 + DONOR_LEASE_MS / 1000; s++) { /* the same again and again */
        assert_int_equal(ask_at(&scene, 50, (struct message_bucket_req){2, 0, 4}, s * NS_PER_S),
                         RC_OK);
        assert_int_equal(take_all(&scene, 50, s * NS_PER_S), 4);
    }
    donor_tick(scene.donor, (61 + DONOR_LEASE_MS / 1000) * NS_PER_S);
    assert_int_equal(donor_leases(scene.donor), 0);
    assert_int_equal(request(&scene, 50, 1, 300 * NS_PER_S, &wants_snapshot), RC_OK);
    assert_true(wants_snapshot);
    give_snapshot(&scene, 300 * NS_PER_S);
    assert_int_equal(ask_at(&scene, 50, (struct message_bucket_req){3, 0, 1}, 300 * NS_PER_S),
                     RC_OK);
    assert_int_equal(take_all(&scene, 50, 300 * NS_PER_S), 1);
    donor_on_link_lost(scene.donor, make_id(50), 301 * NS_PER_S);
    assert_int_equal(request(&scene, 50, 1, 362 * NS_PER_S, &wants_snapshot), RC_OK);
    assert_true(wants_snapshot); /* too late */
    scene_destroy(&scene);
}

/* While a round runs a joiner gets the first megabyte at once and then at the pace; without one
 * all it asks for. */
static void a_round_sets_the_pace(void **state)
{
    enum { BUCKET = CHUNK_VALUES * 4, BURST = 8 };
    struct scene scene;
    bool wants_snapshot;

    (void)state;
    scene_create(&scene);
    assert_int_equal(request(&scene, 50, 1, NS_PER_S, &wants_snapshot), RC_OK);
    give_snapshot(&scene, NS_PER_S);
    donor_set_pace(scene.donor, BUCKET, 3 * BUCKET, 2 * NS_PER_S); /* one a second */
    for (uint32_t i = 0; i < 10; i++) {
        assert_int_equal(ask(&scene, 50, 1, 0, 3), RC_OK);
    }
    assert_int_equal(take_all(&scene, 50, 2 * NS_PER_S), BURST);
    assert_int_equal(take_all(&scene, 50, 2 * NS_PER_S + NS_PER_S / 2), 0);
    assert_in_range(donor_next_ns(scene.donor), 3 * NS_PER_S - 1000, 3 * NS_PER_S + 1000);
    assert_int_equal(take_all(&scene, 50, 3 * NS_PER_S + 1000), 1);
    assert_int_equal(take_all(&scene, 50, 9 * NS_PER_S + 2000), 3); /* no more is saved up */
    donor_set_pace(scene.donor, 0, 0, 9 * NS_PER_S + 2000);
    assert_int_equal(take_all(&scene, 50, 9 * NS_PER_S + 2000), 30 - BURST - 4);
    assert_int_equal(ask(&scene, 50, 1, 0, 3), RC_OK); /* the next round finds nothing saved up */
    donor_set_pace(scene.donor, BUCKET, BUCKET, 20 * NS_PER_S);
    assert_int_equal(take_all(&scene, 50, 20 * NS_PER_S), 0);
    assert_int_equal(take_all(&scene, 50, 21 * NS_PER_S + 1000), 1);
    scene_destroy(&scene);
}

/* A joiner that became slow asks for the change since its snapshot: a quarter of the bytes, and the
 * base stays while it is computed. Only the lease it holds will do. */
static void the_change_since_a_lease_can_be_had(void **state)
{
    const struct message_state_req change = {.want = 1, .base = 1}, other = {.want = 1, .base = 9};
    struct scene scene;
    struct donor_snapshot snapshot;
    struct donor_wish wish;
    bool wants_snapshot;
    const uint8_t *bytes;
    uint32_t bucket;
    uint16_t stream;
    size_t count;

    (void)state;
    scene_create(&scene);
    assert_int_equal(request(&scene, 50, 1, NS_PER_S, &wants_snapshot), RC_OK);
    give_snapshot(&scene, NS_PER_S);
    assert_int_equal(donor_on_request(scene.donor, make_id(50), &other, 40 * NS_PER_S, &scene.out),
                     RC_BUSY);
    assert_int_equal(said_to(&scene, 1, 50), MESSAGE_STATE_DENY);
    assert_int_equal(donor_on_request(scene.donor, make_id(50), &change, 40 * NS_PER_S, &scene.out),
                     RC_OK);
    assert_true(donor_wants_snapshot(scene.donor, &wish));
    assert_non_null(wish.base);
    donor_begin_snapshot(scene.donor);
    snapshot = make_snapshot();
    for (size_t i = 0; i < VALUES; i++) {
        snapshot.values[0][i] = 0.25F + (float)(i % 5);
    }
    donor_on_link_lost(scene.donor, make_id(51), NS_PER_S); /* nobody */
    assert_int_equal(donor_snapshot_change(&snapshot, wish.base), RC_OK);
    assert_int_equal(donor_snapshot_hash(&snapshot), RC_OK);
    donor_on_snapshot(scene.donor, RC_OK, &snapshot, 40 * NS_PER_S, &scene.out);
    assert_int_equal(said_to(&scene, 2, 50), MESSAGE_STATE_MANIFEST);
    assert_int_equal(ask(&scene, 50, 2, 0, 1), RC_OK);
    assert_true(donor_next_bucket(scene.donor, make_id(50), 41 * NS_PER_S, &stream, &bucket, &bytes,
                                  &count));
    assert_in_range(count, CHUNK_VALUES, CHUNK_VALUES + CHUNK_VALUES / 8);
    /* Nobody else is given a change for a whole. */
    assert_int_equal(request(&scene, 52, 1, 41 * NS_PER_S, &wants_snapshot), RC_OK);
    assert_true(wants_snapshot);
    scene_destroy(&scene);
}

/* A young snapshot serves the next joiner, and the same one that asks again; an old one does not.
 */
static void a_young_snapshot_is_shared(void **state)
{
    struct scene scene;
    bool wants_snapshot;

    (void)state;
    scene_create(&scene);
    assert_int_equal(request(&scene, 50, 1, NS_PER_S, &wants_snapshot), RC_OK);
    give_snapshot(&scene, NS_PER_S);
    assert_int_equal(request(&scene, 50, 1, 2 * NS_PER_S, &wants_snapshot), RC_OK);
    assert_false(wants_snapshot);
    assert_int_equal(said_to(&scene, 1, 50), MESSAGE_STATE_MANIFEST);
    assert_int_equal(ask(&scene, 50, 1, 0, 1), RC_STALE); /* the lease of before */
    assert_int_equal(ask(&scene, 50, 2, 0, 1), RC_OK);
    assert_int_equal(request(&scene, 51, 1, 4 * NS_PER_S, &wants_snapshot), RC_OK);
    assert_true(wants_snapshot);
    give_snapshot(&scene, 4 * NS_PER_S);
    assert_int_equal(ask(&scene, 51, 3, 0, 1), RC_OK);
    scene_destroy(&scene);
}

/* A snapshot that could not be taken, or holds nothing that was wanted, is a denial. */
static void a_failed_snapshot_is_a_denial(void **state)
{
    struct scene scene;
    struct donor_snapshot snapshot = make_snapshot();
    bool wants_snapshot;

    (void)state;
    donor_snapshot_deinit(&snapshot);
    scene_create(&scene);
    assert_int_equal(request(&scene, 50, 1, NS_PER_S, &wants_snapshot), RC_OK);
    snapshot = make_snapshot(); /* half made */
    donor_begin_snapshot(scene.donor);
    donor_on_snapshot(scene.donor, RC_NOMEM, &snapshot, NS_PER_S, &scene.out);
    assert_int_equal(said_to(&scene, 0, 50), MESSAGE_STATE_DENY);
    assert_int_equal(request(&scene, 50, 1, NS_PER_S, &wants_snapshot), RC_OK);
    assert_true(wants_snapshot);
    snapshot = make_snapshot();
    snapshot.sections[0] = SECTION_BUFFERS;
    assert_int_equal(donor_snapshot_hash(&snapshot), RC_OK);
    donor_begin_snapshot(scene.donor);
    donor_on_snapshot(scene.donor, RC_OK, &snapshot, NS_PER_S, &scene.out);
    assert_int_equal(said_to(&scene, 1, 50), MESSAGE_STATE_DENY);
    assert_true(donor_next_ns(scene.donor) == UINT64_MAX);
    assert_int_equal(request(&scene, 50, 1, NS_PER_S, &wants_snapshot), RC_OK);
    snapshot = make_snapshot();
    assert_int_equal(donor_snapshot_hash(&snapshot), RC_OK);
    donor_begin_snapshot(scene.donor);
    donor_on_link_lost(scene.donor, make_id(50), NS_PER_S);
    donor_on_snapshot(scene.donor, RC_OK, &snapshot, NS_PER_S,
                      &scene.out); /* nobody waits for it any more: it is freed */
    scene_destroy(&scene);
}

/* What cannot be given away is found where the hashes are made. */
static void a_snapshot_that_cannot_be_hashed_says_why(void **state)
{
    struct donor_snapshot snapshot = make_snapshot();

    (void)state;
    snapshot.values[0][VALUES - 1] = NAN;
    assert_int_equal(donor_snapshot_hash(&snapshot), RC_NONFINITE);
    snapshot.values[0][VALUES - 1] = -INFINITY;
    assert_int_equal(donor_snapshot_hash(&snapshot), RC_NONFINITE);
    snapshot.values[0][VALUES - 1] = 1.0e-40F;
    mem_fail_after(0);
    assert_int_equal(donor_snapshot_hash(&snapshot), RC_NOMEM);
    mem_fail_after(UINT64_MAX);
    snapshot.counts[0] = 0;
    assert_int_equal(donor_snapshot_hash(&snapshot), RC_LIMIT);
    snapshot.counts[0] = (size_t)CHUNKS_MAX * CHUNK_VALUES + 1;
    assert_int_equal(donor_snapshot_hash(&snapshot), RC_LIMIT);
    donor_snapshot_deinit(&snapshot);
}

/* Requests of strangers, of old leases or out of range are refused; of requests without end the
 * newest few are kept, for a joiner whose listing changed has asked anew for what it wants. */
static void a_donor_queues_only_what_a_window_needs(void **state)
{
    struct scene scene;
    struct message deny = {.type = MESSAGE_STATE_DENY};
    bool wants_snapshot;
    const uint8_t *bytes;
    uint16_t stream;
    uint32_t bucket, queued = 0;
    size_t count;

    (void)state;
    scene_create(&scene);
    assert_int_equal(ask(&scene, 50, 1, 0, 1), RC_STALE);
    assert_int_equal(request(&scene, 50, 1, NS_PER_S, &wants_snapshot), RC_OK);
    assert_int_equal(ask(&scene, 50, 1, 0, 1), RC_STALE); /* no snapshot yet */
    give_snapshot(&scene, NS_PER_S);
    assert_int_equal(ask(&scene, 50, 2, 0, 1), RC_STALE);
    assert_int_equal(ask(&scene, 51, 1, 0, 1), RC_STALE);
    assert_int_equal(ask(&scene, 50, 1, 0, 0), RC_FORMAT);
    assert_int_equal(ask(&scene, 50, 1, BUCKETS, 1), RC_FORMAT);
    assert_int_equal(ask(&scene, 50, 1, BUCKETS - 1, UINT32_MAX), RC_FORMAT);
    assert_int_equal(ask_page(&scene, 50, 1, 1), RC_FORMAT);
    assert_int_equal(ask_page(&scene, 50, 7, 0), RC_STALE);
    assert_int_equal(ask_page(&scene, 50, 1, 0), RC_OK);
    assert_int_equal(donor_on_message(scene.donor, make_id(50), &deny, NS_PER_S, &scene.out),
                     RC_UNSUPPORTED);
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(ask(&scene, 50, 1, 0, BUCKETS), RC_OK);
    }
    assert_int_equal(ask(&scene, 50, 1, BUCKETS - 1, 1), RC_OK);
    while (donor_next_bucket(scene.donor, make_id(50), 2 * NS_PER_S, &stream, &bucket, &bytes,
                             &count)) {
        queued++;
    }
    assert_in_range(queued, 2 * 8, 64);    /* several windows, but no more */
    assert_int_equal(bucket, BUCKETS - 1); /* the newest is among them */
    donor_on_link_lost(scene.donor, make_id(50), NS_PER_S);
    assert_int_equal(ask(&scene, 50, 1, 0, 1), RC_STALE);
    scene_destroy(&scene);
}

/* Buckets come in the order asked for, and the lease is over when the joiner says so. */
static void a_joiner_that_is_done_ends_the_lease(void **state)
{
    struct scene scene;
    struct message done = {.type = MESSAGE_STATE_DONE};
    bool wants_snapshot;
    const uint32_t order[BUCKETS] = {2, 3, 0, 1};
    const uint8_t *bytes;
    uint16_t stream;
    uint32_t bucket;
    size_t count;

    (void)state;
    scene_create(&scene);
    assert_false(donor_next_bucket(scene.donor, make_id(50), 2 * NS_PER_S, &stream, &bucket, &bytes,
                                   &count));
    assert_int_equal(request(&scene, 50, 1, NS_PER_S, &wants_snapshot), RC_OK);
    give_snapshot(&scene, NS_PER_S);
    assert_int_equal(ask(&scene, 50, 1, 2, 2), RC_OK);
    assert_int_equal(ask(&scene, 50, 1, 0, 2), RC_OK);
    for (size_t i = 0; i < BUCKETS; i++) {
        assert_true(donor_next_bucket(scene.donor, make_id(50), 2 * NS_PER_S, &stream, &bucket,
                                      &bytes, &count));
        assert_int_equal(stream, 1);
        assert_int_equal(bucket, order[i]);
        assert_int_equal(count, (bucket == 3 ? 100 : CHUNK_VALUES) * sizeof(float));
        assert_int_equal(bytes[count - 1], 0); /* still there */
    }
    assert_false(donor_next_bucket(scene.donor, make_id(50), 2 * NS_PER_S, &stream, &bucket, &bytes,
                                   &count));
    done.as.state_done.lease = 2; /* not this one */
    assert_int_equal(donor_on_message(scene.donor, make_id(50), &done, 2 * NS_PER_S, &scene.out),
                     RC_STALE);
    assert_int_equal(ask(&scene, 50, 1, 0, 1), RC_OK);
    done.as.state_done.lease = 1;
    assert_int_equal(donor_on_message(scene.donor, make_id(50), &done, 2 * NS_PER_S, &scene.out),
                     RC_OK);
    assert_int_equal(ask(&scene, 50, 1, 0, 1), RC_STALE);
    assert_true(donor_next_ns(scene.donor) == UINT64_MAX);
    scene_destroy(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_leases_share_a_snapshot_and_a_ninth_is_denied),
        cmocka_unit_test(a_third_snapshot_is_not_taken),
        cmocka_unit_test(nobody_pins_both_snapshots),
        cmocka_unit_test(visitors_make_way),
        cmocka_unit_test(the_least_advanced_makes_place),
        cmocka_unit_test(who_was_cut_off_goes_on),
        cmocka_unit_test(a_round_sets_the_pace),
        cmocka_unit_test(the_change_since_a_lease_can_be_had),
        cmocka_unit_test(a_young_snapshot_is_shared),
        cmocka_unit_test(a_failed_snapshot_is_a_denial),
        cmocka_unit_test(a_snapshot_that_cannot_be_hashed_says_why),
        cmocka_unit_test(a_donor_queues_only_what_a_window_needs),
        cmocka_unit_test(a_joiner_that_is_done_ends_the_lease),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
