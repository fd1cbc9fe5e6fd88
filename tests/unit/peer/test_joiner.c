/* Joiner and donors over a pipe in memory: messages in order, buckets when the test lets them go.
 */
#include "tests/unit/peer/joiner_scene.h"

static void flip_a_bit(uint8_t *bytes, size_t count)
{
    bytes[count / 2] ^= 1;
}

/* The bucket with the buffers. */
static void flip_a_bit_of_the_last(uint8_t *bytes, size_t count)
{
    if (count == BUFFER_VALUES * sizeof(float)) flip_a_bit(bytes, count);
}

/* Every value arrives as it was, with the manifest's facts, and the donor is free again. */
static void a_model_is_downloaded_whole(void **state)
{
    struct scene *scene = scene_create();
    size_t count = 1;

    (void)state;
    assert_int_equal(joiner_state(scene->joiner), JOINER_IDLE);
    assert_int_equal(begin(scene, lineage()), RC_OK);
    assert_int_equal(begin(scene, lineage()), RC_BUSY);
    scene_run(scene);
    assert_model(scene, 0);
    assert_int_equal(joiner_manifest(scene->joiner)->step, 70);
    assert_int_equal(joiner_manifest(scene->joiner)->samples, 7000);
    assert_int_equal(joiner_manifest(scene->joiner)->round, 7);
    assert_null(joiner_section(scene->joiner, SECTION_MOMENTS, &count)); /* was not asked for */
    assert_int_equal(count, 0);
    assert_float_equal(joiner_stats(scene->joiner).progress, 1.0, 0);
    assert_int_equal(scene->buckets_sent, BUCKETS);
    joiner_finish(scene->joiner, &scene->to_donors);
    assert_int_equal(joiner_state(scene->joiner), JOINER_IDLE);
    scene_run(scene); /* which tells the donor */
    assert_false(send_bucket(scene, &scene->sites[0]));
    assert_true(donor_next_ns(scene->sites[0].donor) == UINT64_MAX);
    scene_destroy(scene);
}

/* A donor that dies half-way costs nothing if the next one holds the same model, and a new start if
 * it holds another; never a mixture. */
static void a_donor_may_die_half_way(void **state)
{
    (void)state;
    for (uint64_t other = 0; other < 2; other++) {
        struct scene *scene = scene_create();

        scene->sites[0].buckets_left = 3;
        scene->sites[1].fill = other;
        assert_int_equal(begin(scene, lineage()), RC_OK);
        scene_run(scene);
        assert_model(scene, 1);
        assert_int_equal(scene->buckets_sent, other == 0 ? BUCKETS : BUCKETS + 3);
        scene_destroy(scene);
    }
}

/* Where no two members hold the same, what a donor gave before it died stays, and the next one
 * gives the rest. If others do not confirm that mixture, the first one's part is fetched anew, of
 * the second. What a liar gave before it was caught does not stay. */
static void the_next_donor_goes_on_where_the_first_one_was(void **state)
{
    (void)state;
    for (int is_lie = 0; is_lie < 2; is_lie++) {
        struct scene *scene = scene_create();

        joiner_options(scene->joiner)->mixes = true;
        scene->sites[0].buckets_left = 3;
        if (is_lie) {
            scene->sites[0].buckets_left = UINT32_MAX;
            scene->sites[0].spoil = flip_a_bit_of_the_last;
        }
        scene->sites[1].fill = 1;
        scene->sites[2].fill = 2;
        assert_int_equal(begin(scene, lineage()), RC_OK);
        scene_run(scene);
        assert_int_equal(joiner_state(scene->joiner), JOINER_COMPLETE);
        assert_int_equal(site_of(scene, donor_of(scene)), 1);
        assert_int_equal(joiner_stats(scene->joiner).is_mixed, !is_lie);
        if (!is_lie) {
            assert_int_equal(scene->buckets_sent, BUCKETS);
            assert_int_equal(joiner_catch_up(scene->joiner, scene->now_ns, &scene->to_donors),
                             RC_NOT_FOUND); /* it is not the donor's own */
            joiner_refuse(scene->joiner, scene->now_ns, &scene->to_donors);
            assert_int_equal(joiner_state(scene->joiner), JOINER_LOADING);
            scene_run(scene);
            assert_false(joiner_stats(scene->joiner).is_mixed);
            assert_int_equal(scene->buckets_sent, BUCKETS + 3);
        }
        assert_model(scene, 1);
        scene_destroy(scene);
    }
}

/* Donors that hold the same give at once, each a part; one that dies costs what it had under way,
 * and one that lies about a bucket is caught by the others' hashes. */
static void several_donors_that_agree_give_at_once(void **state)
{
    (void)state;
    for (int fault = 0; fault < 3; fault++) {
        struct scene *scene = scene_create();
        struct joiner_stats stats;

        joiner_options(scene->joiner)->width = DONORS;
        if (fault == 1) scene->sites[2].buckets_left = 0;
        if (fault == 2) scene->sites[1].spoil = flip_a_bit;
        for (size_t i = 0; i < DONORS; i++) {
            scene->sites[i].every = 2; /* all have the time to be listed */
        }
        assert_int_equal(begin(scene, lineage()), RC_OK);
        scene_run(scene);
        assert_int_equal(joiner_state(scene->joiner), JOINER_COMPLETE);
        assert_true(scene->buckets_sent <= BUCKETS + (fault == 2));
        stats = joiner_stats(scene->joiner);
        assert_true(stats.held_bytes == stats.total_bytes);
        scene_destroy(scene);
    }
}

/* Those that hold something else are let go, and are there when the first one dies. */
static void donors_that_do_not_agree_wait_for_their_turn(void **state)
{
    struct scene *scene = scene_create();

    (void)state;
    joiner_options(scene->joiner)->width = DONORS;
    scene->sites[0].every = 3;
    scene->sites[0].buckets_left = 3;
    scene->sites[1].fill = 1;
    scene->sites[2].fill = 2;
    assert_int_equal(begin(scene, lineage()), RC_OK);
    scene_run(scene);
    assert_model(scene, 1);
    assert_int_equal(scene->buckets_sent, 3 + BUCKETS);
    scene_destroy(scene);
}

/* A donor that gives a bucket every four seconds is not stuck, yet left for one that is faster; if
 * the other is slower still, the first one goes on. */
static void a_dripping_donor_is_left_for_a_faster_one(void **state)
{
    (void)state;
    for (int is_other_worse = 0; is_other_worse < 2; is_other_worse++) {
        struct scene *scene = scene_create_of(40 * CHUNK_VALUES);

        joiner_options(scene->joiner)->width = 1;
        scene->sites[0].every = 4000; /* turns of a millisecond */
        scene->sites[1].fill = 1;
        scene->sites[1].every = is_other_worse ? 4900 : 10;
        scene->sites[2].is_gone = true;
        scene->sites[2].is_mute = true;
        assert_int_equal(begin(scene, lineage()), RC_OK);
        scene_run(scene);
        assert_model(scene, is_other_worse ? 0 : 1);
        assert_true(scene->buckets_sent <= 41 + 8);
        if (!is_other_worse) assert_true(scene->now_ns < 30 * NS_PER_S);
        scene_destroy(scene);
    }
}

/* Near the end, what a slow donor owes is asked of the fast one. */
static void the_end_does_not_wait_for_the_slowest(void **state)
{
    struct scene *scene = scene_create_of(40 * CHUNK_VALUES);

    (void)state;
    joiner_options(scene->joiner)->width = 2;
    scene->sites[0].every = 5;
    scene->sites[1].every = 1500;
    assert_int_equal(begin(scene, lineage()), RC_OK);
    scene_run(scene);
    assert_int_equal(joiner_state(scene->joiner), JOINER_COMPLETE);
    assert_true(scene->now_ns < 4 * NS_PER_S); /* a window of the slow one alone takes twelve */
    assert_true(scene->buckets_sent <= 41 + 8);
    scene_destroy(scene);
}

/* Donors of which one has moments to give and the other none list unlike many buckets: they are
 * compared by what each of them lists. */
static void donors_of_unlike_shapes_are_compared(void **state)
{
    (void)state;
    for (size_t without = 0; without < 2; without++) {
        struct scene *scene = scene_create_of(40 * CHUNK_VALUES);
        size_t count = 0;

        joiner_options(scene->joiner)->want = 7;
        joiner_options(scene->joiner)->width = 1;
        donor_set_methods(scene->sites[without].donor, hash_of("another", 7), any_lineage());
        scene->sites[0].every = 2000; /* turns of a millisecond */
        scene->sites[1].fill = 1;
        scene->sites[1].every = 150; /* more than a trial is long */
        scene->sites[2].is_mute = true;
        assert_int_equal(begin(scene, lineage()), RC_OK);
        scene_run(scene);
        assert_model(scene, 1);
        assert_true((joiner_section(scene->joiner, SECTION_MOMENTS, &count) == NULL) ==
                    (without == 1));
        scene_destroy(scene);
    }
}

/* What a helper owed when it went is asked of the one donor that is left, which had nothing more to
 * do. */
static void a_helper_may_go_at_the_very_end(void **state)
{
    struct scene *scene = scene_create_of(40 * CHUNK_VALUES);

    (void)state;
    joiner_options(scene->joiner)->width = 2;
    scene->sites[1].every = 20; /* not so slow that it would be relieved */
    scene->sites[1].buckets_left = 3;
    scene->sites[2].is_mute = true;
    assert_int_equal(begin(scene, lineage()), RC_OK);
    scene_run(scene);
    assert_true(scene->sites[1].is_gone);
    assert_model(scene, 0);
    scene_destroy(scene);
}

/* What changed since comes encoded, and the result is what the donor says it is, near what it has;
 * a donor that goes, or lies, leaves the model of before, whole. */
static void what_changed_is_fetched(void **state)
{
    (void)state;
    for (int fault = 0; fault < 4; fault++) {
        struct scene *scene = scene_create();
        struct joiner_stats stats;
        const float *values;
        size_t count;

        assert_int_equal(begin(scene, lineage()), RC_OK);
        scene_run(scene);
        assert_model(scene, 0);
        scene->now_ns += 50 * NS_PER_S;
        scene->sites[0].fill = 3;
        if (fault == 1) scene->sites[0].buckets_left = 2;
        if (fault == 2) scene->sites[0].spoil = flip_a_bit;
        if (fault == 3) scene->sites[0].is_mute = true;
        assert_int_equal(joiner_catch_up(scene->joiner, scene->now_ns, &scene->to_donors), RC_OK);
        assert_int_equal(joiner_state(scene->joiner), JOINER_ASKING);
        scene_run(scene);
        if (fault > 0) {
            scene->sites[0].fill = 0;
            assert_model(scene, 0);
            assert_int_equal(joiner_manifest(scene->joiner)->lease, 1);
            assert_int_equal(joiner_catch_up(scene->joiner, scene->now_ns, &scene->to_donors),
                             RC_NOT_FOUND);
            scene_destroy(scene);
            continue;
        }
        assert_int_equal(joiner_state(scene->joiner), JOINER_COMPLETE);
        assert_int_equal(joiner_manifest(scene->joiner)->lease, 2);
        stats = joiner_stats(scene->joiner);
        assert_true(stats.received_bytes < stats.total_bytes + stats.total_bytes / 3);
        values = joiner_section(scene->joiner, SECTION_PARAMETERS, &count);
        for (size_t i = 0; i < count; i++) { /* values differ by up to 143: half a 127th of that */
            assert_float_equal(values[i], model_value(3, SECTION_PARAMETERS, i), 0.6);
        }
        scene_destroy(scene);
    }
}

/* Where nothing changed there is nothing to fetch, as often as it is asked. */
static void nothing_changed(void **state)
{
    struct scene *scene = scene_create();

    (void)state;
    assert_int_equal(begin(scene, lineage()), RC_OK);
    scene_run(scene);
    for (uint32_t i = 0; i < 3; i++) {
        scene->now_ns += 50 * NS_PER_S;
        assert_int_equal(joiner_catch_up(scene->joiner, scene->now_ns, &scene->to_donors), RC_OK);
        scene_run(scene);
        assert_model(scene, 0);
    }
    assert_int_equal(scene->buckets_sent, BUCKETS);
    scene_destroy(scene); /* which counts what was not freed */
}

/* A model that others say is not theirs is forgotten, and another donor asked. */
static void a_refused_model_is_downloaded_elsewhere(void **state)
{
    struct scene *scene = scene_create();

    (void)state;
    scene->sites[1].fill = 1;
    assert_int_equal(begin(scene, lineage()), RC_OK);
    scene_run(scene);
    assert_model(scene, 0);
    joiner_refuse(scene->joiner, scene->now_ns, &scene->to_donors);
    assert_int_equal(joiner_state(scene->joiner), JOINER_ASKING);
    scene_run(scene);
    assert_model(scene, 1);
    joiner_refuse(scene->joiner, scene->now_ns, &scene->to_donors);
    scene_run(scene);
    assert_model(scene, 2);
    joiner_refuse(scene->joiner, scene->now_ns, &scene->to_donors);
    assert_int_equal(joiner_state(scene->joiner), JOINER_FAILED);
    scene_destroy(scene);
}

/* When all donors die the joiner fails, and begun again it still has what was verified. */
static void what_was_verified_outlives_a_failure(void **state)
{
    struct scene *scene = scene_create();

    (void)state;
    for (size_t i = 0; i < DONORS; i++) {
        scene->sites[i].buckets_left = 1;
    }
    assert_int_equal(begin(scene, lineage()), RC_OK);
    scene_run(scene);
    assert_int_equal(joiner_state(scene->joiner), JOINER_FAILED);
    assert_int_equal(scene->buckets_sent, 3);
    scene->sites[0].is_gone = false;
    scene->sites[0].buckets_left = UINT32_MAX;
    assert_int_equal(begin(scene, lineage()), RC_OK);
    scene_run(scene);
    assert_model(scene, 0);
    assert_int_equal(scene->buckets_sent, BUCKETS);
    scene_destroy(scene);
}

/* A donor that never answers, or stops in the middle, is left after a while. */
static void a_silent_donor_is_left(void **state)
{
    struct scene *scene = scene_create();

    (void)state;
    scene->sites[0].is_mute = true;
    assert_int_equal(begin(scene, lineage()), RC_OK);
    scene_run(scene);
    assert_model(scene, 1);
    scene_destroy(scene);
}

/* One wrong bit in a bucket: that donor is done with, the next one gives the model. */
static void a_corrupt_bucket_costs_the_donor(void **state)
{
    struct scene *scene = scene_create();

    (void)state;
    scene->sites[0].spoil = flip_a_bit;
    scene->sites[1].spoil = flip_a_bit;
    assert_int_equal(begin(scene, lineage()), RC_OK);
    scene_run(scene);
    assert_int_equal(scene->last_rc, RC_AUTH);
    assert_model(scene, 2);
    scene_destroy(scene);
}

static void lie_root(struct message *message)
{
    if (message->type == MESSAGE_STATE_MANIFEST) message->as.state_manifest.root.bytes[0] ^= 1;
}
static void lie_schema(struct message *message)
{
    if (message->type == MESSAGE_STATE_MANIFEST) message->as.state_manifest.schema.bytes[0] ^= 1;
}
static void lie_lineage(struct message *message)
{
    if (message->type == MESSAGE_STATE_MANIFEST) message->as.state_manifest.lineage.bytes[0] ^= 1;
}
static void lie_no_lineage(struct message *message)
{
    if (message->type == MESSAGE_STATE_MANIFEST) message->as.state_manifest.lineage = any_lineage();
}
static void lie_updates(struct message *message)
{
    if (message->type == MESSAGE_STATE_MANIFEST) message->as.state_manifest.updates = UINT64_MAX;
}
static void lie_values(struct message *message)
{
    if (message->type == MESSAGE_STATE_MANIFEST) message->as.state_manifest.values[0] = 1ULL << 40;
}
static void lie_buckets(struct message *message)
{
    if (message->type == MESSAGE_STATE_MANIFEST) message->as.state_manifest.buckets = CHUNKS_MAX;
}
static void lie_pages(struct message *message)
{
    if (message->type == MESSAGE_STATE_MANIFEST) message->as.state_manifest.pages = 60;
}
static void lie_no_sections(struct message *message)
{
    if (message->type == MESSAGE_STATE_MANIFEST) message->as.state_manifest.sections_count = 0;
}
static void lie_missing_section(struct message *message)
{
    if (message->type != MESSAGE_STATE_MANIFEST) return;
    message->as.state_manifest.sections_count = 1;
    message->as.state_manifest.buckets = BUCKETS - 1;
}
static void lie_double_section(struct message *message)
{
    if (message->type == MESSAGE_STATE_MANIFEST) message->as.state_manifest.sections[1] = 0;
}
static void lie_unasked_section(struct message *message)
{
    if (message->type != MESSAGE_STATE_MANIFEST) return;
    message->as.state_manifest.sections[1] = SECTION_GRADIENT;
}
static void lie_lease(struct message *message)
{
    if (message->type == MESSAGE_STATE_MANIFEST) message->as.state_manifest.lease ^= 1;
}
static void lie_short_page(struct message *message)
{
    if (message->type == MESSAGE_MANIFEST_PAGE) message->as.manifest_page.hashes_bytes = 32;
}

/* Whatever a manifest lies about, nothing is loaded and the next donor is asked. */
static void a_lying_manifest_is_refused(void **state)
{
    static const struct {
        void (*twist)(struct message *message);
        enum rc rc;
        bool is_forged;
    } lies[] = {{lie_root, RC_AUTH, false},
                {lie_schema, RC_MISMATCH, false},
                {lie_lineage, RC_MISMATCH, false},
                {lie_no_lineage, RC_MISMATCH, false},
                {lie_updates, RC_FORMAT, false},
                {lie_values, RC_MISMATCH, false},
                {lie_buckets, RC_FORMAT, false},
                {lie_pages, RC_FORMAT, false},
                {lie_no_sections, RC_FORMAT, false},
                {lie_missing_section, RC_FORMAT, false},
                {lie_double_section, RC_FORMAT, false},
                {lie_unasked_section, RC_FORMAT, false},
                {lie_short_page, RC_FORMAT, false},
                {lie_lease, RC_AUTH, true},
                {lie_root, RC_AUTH, true},
                {lie_schema, RC_AUTH, true}};

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(lies); i++) {
        struct scene *scene = scene_create();

        for (size_t s = 0; s < DONORS - 1; s++) {
            scene->sites[s].twist = lies[i].twist;
            scene->sites[s].is_forged = lies[i].is_forged;
        }
        assert_int_equal(begin(scene, lineage()), RC_OK);
        scene_run(scene);
        assert_int_equal(scene->last_rc, lies[i].rc);
        assert_model(scene, DONORS - 1);
        assert_int_equal(scene->buckets_sent, BUCKETS);
        scene_destroy(scene);
    }
}

/* A donor whose own snapshot is not finite gives nothing away. */
static void a_nonfinite_snapshot_is_not_given_away(void **state)
{
    struct scene *scene = scene_create();
    struct donor_snapshot snapshot = {0};

    (void)state;
    assert_int_equal(take_snapshot(scene, 0, NULL, &snapshot), RC_OK);
    mem_free(snapshot.hashes);
    snapshot.hashes = NULL;
    snapshot.values[0][VALUES - 1] = NAN;
    assert_int_equal(donor_snapshot_hash(&snapshot), RC_NONFINITE);
    donor_snapshot_deinit(&snapshot);
    scene->sites[0].snapshot_rc = RC_NONFINITE;
    assert_int_equal(begin(scene, lineage()), RC_OK);
    scene_run(scene);
    assert_model(scene, 1);
    scene_destroy(scene);
}

/* A NaN under a correct hash, from a donor that lies consistently, is still refused. */
static void a_nan_with_a_correct_hash_is_refused(void **state)
{
    struct scene *scene = scene_create();
    float bad[CHUNK_VALUES] = {0};
    struct digest hashes[BUCKETS];
    struct message message = {.type = MESSAGE_STATE_MANIFEST};
    struct message_state_manifest *manifest = &message.as.state_manifest;

    (void)state;
    bad[17] = INFINITY;
    for (size_t i = 0; i < BUCKETS; i++) {
        hashes[i] = hash_of(bad, sizeof(bad));
    }
    *manifest = (struct message_state_manifest){.lease = 9,
                                                .schema = schema_digest(&scene->schema),
                                                .lineage = lineage(),
                                                .sections_count = 2,
                                                .sections = {SECTION_PARAMETERS, SECTION_BUFFERS},
                                                .values = {VALUES, BUFFER_VALUES},
                                                .root = hash_of(hashes, sizeof(hashes)),
                                                .pages = 1,
                                                .buckets = BUCKETS};
    manifest_sign(manifest, &scene->sites[0].identity, run_id());
    assert_int_equal(begin(scene, any_lineage()), RC_OK);
    assert_int_equal(joiner_on_message(scene->joiner, scene->sites[0].id, &message, scene->now_ns,
                                       &scene->to_donors),
                     RC_OK);
    assert_int_equal(joiner_state(scene->joiner), JOINER_LISTING);
    message = (struct message){.type = MESSAGE_MANIFEST_PAGE};
    message.as.manifest_page.lease = 9;
    message.as.manifest_page.hashes = hashes[0].bytes;
    message.as.manifest_page.hashes_bytes = sizeof(hashes);
    assert_int_equal(joiner_on_message(scene->joiner, scene->sites[0].id, &message, scene->now_ns,
                                       &scene->to_donors),
                     RC_OK);
    assert_int_equal(joiner_state(scene->joiner), JOINER_LOADING);
    /* Not from the donor, of another lease, too short: none of it counts. */
    assert_int_equal(joiner_on_bucket(scene->joiner, scene->sites[1].id, 9, 0, (uint8_t *)bad,
                                      sizeof(bad), scene->now_ns, &scene->to_donors),
                     RC_STALE);
    assert_int_equal(joiner_on_bucket(scene->joiner, scene->sites[0].id, 8, 0, (uint8_t *)bad,
                                      sizeof(bad), scene->now_ns, &scene->to_donors),
                     RC_STALE);
    assert_int_equal(joiner_on_bucket(scene->joiner, scene->sites[0].id, 9, 0, (uint8_t *)bad,
                                      sizeof(bad), scene->now_ns, &scene->to_donors),
                     RC_NONFINITE);
    assert_int_equal(joiner_state(scene->joiner), JOINER_ASKING);
    outbox_clear(&scene->to_donors);
    scene_destroy(scene);
}

/* A donor whose leases are taken says so, and the next one is asked. */
static void a_busy_donor_is_passed_over(void **state)
{
    struct scene *scene = scene_create();
    const struct message_state_req all = {.want = 7};

    (void)state;
    for (uint8_t who = 50; who < 50 + DONOR_LEASES_MAX; who++) {
        assert_int_equal(donor_on_request(scene->sites[0].donor, make_id(who), &all, scene->now_ns,
                                          &scene->to_joiner),
                         RC_OK);
    }
    assert_int_equal(begin(scene, lineage()), RC_OK);
    scene_run(scene);
    assert_model(scene, 1);
    scene_destroy(scene);
}

/* Whichever allocation fails, the joiner says so, loses nothing, and works later. */
static void short_memory_is_an_error_and_no_crash(void **state)
{
    bool has_failed = true;

    (void)state;
    for (uint64_t after = 0; has_failed && after < 300; after++) {
        struct scene *scene = scene_create();

        assert_int_equal(begin(scene, lineage()), RC_OK);
        mem_fail_after(after);
        scene_run(scene);
        mem_fail_after(UINT64_MAX);
        has_failed = joiner_state(scene->joiner) != JOINER_COMPLETE || scene->last_rc != RC_OK ||
                     scene->to_donors.dropped + scene->to_joiner.dropped > 0;
        if (joiner_state(scene->joiner) == JOINER_FAILED) {
            assert_int_equal(begin(scene, lineage()), RC_OK);
            scene->now_ns += 200 * NS_PER_S;
            scene_run(scene);
        }
        assert_int_equal(joiner_state(scene->joiner), JOINER_COMPLETE);
        scene_destroy(scene);
    }
    assert_false(has_failed); /* the last pass met no failure: all places were tried */
}

/* Creation is the one place where short memory is the caller's news. */
static void nothing_is_created_without_memory(void **state)
{
    const uint8_t seed[SECRET_BYTES] = {1};
    struct identity identity;
    struct schema schema;

    (void)state;
    identity_from_seed(seed, &identity);
    make_schema(&schema);
    mem_fail_after(0);
    assert_null(joiner_create(&schema, run_id(), 1));
    mem_fail_after(0);
    assert_null(donor_create(&schema, &identity, run_id()));
    mem_fail_after(UINT64_MAX);
    joiner_destroy(NULL);
    donor_destroy(NULL);
    schema_deinit(&schema);
}

/* Without donors there is nothing to begin, and what nobody asked for is ignored. */
static void idle_joiners_ignore_everything(void **state)
{
    struct scene *scene = scene_create();
    const struct message message = {.type = MESSAGE_STATE_DENY};

    (void)state;
    assert_int_equal(joiner_begin(scene->joiner, NULL, 0, lineage(), 0, 0, &scene->to_donors),
                     RC_NOT_FOUND);
    assert_int_equal(joiner_on_message(scene->joiner, make_id(1), &message, 0, &scene->to_donors),
                     RC_STALE);
    joiner_on_link_lost(scene->joiner, make_id(1), 0, &scene->to_donors);
    assert_false(joiner_stats(scene->joiner).has_donor);
    assert_float_equal(joiner_stats(scene->joiner).progress, 0.0, 0);
    assert_true(joiner_next_ns(scene->joiner) == UINT64_MAX);
    assert_int_equal(scene->to_donors.count, 0);
    scene_destroy(scene);
}

/* A donor whose link is lost before its turn is not asked when the one of now fails. */
static void a_donor_that_is_gone_is_not_asked_later(void **state)
{
    struct scene *scene = scene_create();
    struct peer_id donors[] = {make_id(1), make_id(2), make_id(3)};

    (void)state;
    assert_int_equal(joiner_begin(scene->joiner, donors, 3, any_lineage(), 0, 0, &scene->to_donors),
                     RC_OK);
    joiner_on_link_lost(scene->joiner, make_id(2), 0, &scene->to_donors);
    assert_true(peer_id_is_equal(donor_of(scene), make_id(1)));
    joiner_on_link_lost(scene->joiner, make_id(1), 0, &scene->to_donors);
    assert_true(peer_id_is_equal(donor_of(scene), make_id(3)));
    joiner_on_link_lost(scene->joiner, make_id(3), 0, &scene->to_donors);
    assert_int_equal(joiner_state(scene->joiner), JOINER_FAILED);
    scene_destroy(scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_is_downloaded_whole),
        cmocka_unit_test(a_donor_may_die_half_way),
        cmocka_unit_test(the_next_donor_goes_on_where_the_first_one_was),
        cmocka_unit_test(several_donors_that_agree_give_at_once),
        cmocka_unit_test(donors_that_do_not_agree_wait_for_their_turn),
        cmocka_unit_test(a_dripping_donor_is_left_for_a_faster_one),
        cmocka_unit_test(the_end_does_not_wait_for_the_slowest),
        cmocka_unit_test(donors_of_unlike_shapes_are_compared),
        cmocka_unit_test(a_helper_may_go_at_the_very_end),
        cmocka_unit_test(what_changed_is_fetched),
        cmocka_unit_test(nothing_changed),
        cmocka_unit_test(a_refused_model_is_downloaded_elsewhere),
        cmocka_unit_test(what_was_verified_outlives_a_failure),
        cmocka_unit_test(a_silent_donor_is_left),
        cmocka_unit_test(a_corrupt_bucket_costs_the_donor),
        cmocka_unit_test(a_lying_manifest_is_refused),
        cmocka_unit_test(a_nonfinite_snapshot_is_not_given_away),
        cmocka_unit_test(a_nan_with_a_correct_hash_is_refused),
        cmocka_unit_test(a_busy_donor_is_passed_over),
        cmocka_unit_test(short_memory_is_an_error_and_no_crash),
        cmocka_unit_test(nothing_is_created_without_memory),
        cmocka_unit_test(idle_joiners_ignore_everything),
        cmocka_unit_test(a_donor_that_is_gone_is_not_asked_later),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
