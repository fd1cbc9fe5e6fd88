/* What a round does with its buffers at bad moments; exchange and env are played by hand. */
#include "tests/unit/peer/round_stage.h"

/* A doubt that is resolved while its difference is still being computed frees nothing under the
 * job, and its place is free again afterwards. */
static void a_doubt_may_end_while_its_difference_is_computed(void **state)
{
    uint64_t blocks = mem_blocks();
    struct stage stage;

    (void)state;
    stage_set(&stage, "f32");
    for (int i = 0; i < 2 * ROUND_DOUBTS_MAX; i++) {
        stage_snapshot(&stage);
        say(&stage, over(OVER_IN_DOUBT, false));
        say(&stage, over(OVER_ABORTED, true));
        assert_non_null(stage.round->doubts[0].difference); /* the job writes it */
        stage_work(&stage);
        assert_false(stage.round->doubts[0].is_used);
        assert_false(round_has_difference(stage.round));
    }
    round_destroy(stage.round);
    assert_int_equal(mem_blocks(), blocks);
}

/* Of a plane that lies partly in the live model and partly in the buffer others get what they would
 * get of a copy of it; one that is given up half way, for a value that is none, leaves nothing. */
static void a_live_plane_is_encoded_as_its_copy_would_be(void **state)
{
    static const char *const codecs[] = {"f32", "f16", "bf16"};
    static const size_t counts[] = {VALUES, VALUES / 2 + 1, VALUES};
    static float live[VALUES], expected[VALUES];
    uint64_t blocks = mem_blocks();

    (void)state;
    for (size_t k = 0; k < sizeof codecs / sizeof codecs[0]; k++) {
        struct stage stage;
        const struct blob *offer;

        stage_set(&stage, codecs[k]);
        for (size_t turn = 0; turn < sizeof counts / sizeof counts[0]; turn++) {
            float *buffer;

            say(&stage, (struct command){.type = COMMAND_SNAPSHOT});
            buffer = round_snapshot_buffer(stage.round);
            assert_true(round_encodes_live(stage.round));
            for (size_t i = 0; i < VALUES; i++) {
                expected[i] = (float)i - 0.3f * (float)turn;
                live[i] = i < counts[turn] ? expected[i] : NAN;
                if (i >= counts[turn]) buffer[i] = expected[i];
            }
            live[counts[turn] / 3] = turn == 0 ? INFINITY : expected[counts[turn] / 3];
            assert_int_equal(round_encode(stage.round, live, counts[turn]),
                             turn == 0 ? RC_NONFINITE : RC_OK);
            if (turn == 0) say(&stage, over(OVER_ABORTED, false));
            round_on_snapshot(stage.round, turn == 0 ? RC_NONFINITE : RC_OK);
            stage_work(&stage);
            offer = stage.round->offer[0];
            if (turn == 0) {
                assert_null(offer);
                continue;
            }
            stage.round->codec->ops->encode(stage.round->codec, 0, expected, VALUES,
                                            (uint8_t *)live);
            assert_int_equal(offer->count,
                             stage.round->codec->ops->bytes_max(stage.round->codec, VALUES));
            assert_memory_equal(offer->bytes, live, offer->count);
            say(&stage, over(OVER_ABORTED, false));
            stage_work(&stage);
        }
        round_destroy(stage.round);
    }
    assert_int_equal(mem_blocks(), blocks);
}

/* What was settled for a model that is replaced is never applied to the new one. */
static void a_replaced_model_gets_no_old_difference(void **state)
{
    struct stage stage;

    (void)state;
    stage_set(&stage, "f32");
    stage_snapshot(&stage);
    say(&stage, over(OVER_COMMITTED, false));
    assert_true(round_is_settling(stage.round));
    round_discard(stage.round);
    stage_work(&stage);
    assert_false(round_has_difference(stage.round));
    stage_snapshot(&stage);
    say(&stage, over(OVER_COMMITTED, false));
    stage_work(&stage);
    assert_true(round_has_difference(stage.round));
    round_discard(stage.round);
    assert_false(round_has_difference(stage.round));
    round_destroy(stage.round);
}

/* A part whose chunks all came, but not with the hash of its mean, is not what the group agreed on:
 * it is not given to whoever joins. */
static void joiners_get_nothing_that_was_not_committed(void **state)
{
    static const struct strategy_specs specs = {.averaging = "local-sgd"};
    uint64_t blocks = mem_blocks();
    struct stage stage;

    (void)state;
    stage_set_up(&stage, &specs, &group_ops);
    round_keep_agreed(stage.round, true, UINT64_MAX);
    for (uint8_t committed = 0; committed < 2; committed++) {
        struct command end = over(OVER_COMMITTED, false);
        float mean[VALUES] = {1}, *agreed;
        uint64_t number = 0;

        stage_snapshot(&stage);
        assert_int_equal(
            stage.strategy.rule->agree(stage.round->rule, (struct range){0, VALUES}, mean), RC_OK);
        end.over.bitmap = &committed;
        end.over.round = 8;
        say(&stage, end);
        stage_work(&stage);
        agreed = round_take_agreed(stage.round, 1, &number);
        assert_int_equal(agreed != NULL, committed);
        assert_int_equal(number, committed ? 8 : 0);
        if (agreed != NULL) assert_memory_equal(agreed, mean, sizeof mean);
        mem_free(agreed);
        if (round_has_difference(stage.round)) round_applied(stage.round);
        stage_work(&stage);
    }
    round_destroy(stage.round);
    assert_int_equal(mem_blocks(), blocks);
}

/* What a donor called the rule's planes must be as large as ours: shorter ones are never read. */
static void planes_of_another_size_are_not_adopted(void **state)
{
    static const struct strategy_specs specs = {.averaging = "diloco"};
    static const size_t sizes[] = {VALUES, VALUES / 10};
    uint64_t blocks = mem_blocks();

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        float *planes[] = {mem_aligned(sizes[i] * sizeof(float)),
                           mem_aligned(sizes[i] * sizeof(float))};
        const float *kept[RULE_STATE_MAX];
        struct stage stage;

        stage_set_up(&stage, &specs, &puppet_ops);
        for (size_t k = 0; k < sizes[i]; k++) {
            planes[0][k] = planes[1][k] = 3;
        }
        round_discard(stage.round);
        round_rule_adopt(stage.round, planes, 2, sizes[i]);
        stage_snapshot(&stage);
        assert_int_equal(round_rule_state(stage.round, kept), i == 0 ? 2 : 0);
        if (i == 0) assert_true(kept[0][VALUES - 1] == 3 && kept[1][VALUES - 1] == 3);
        say(&stage, over(OVER_ABORTED, false));
        stage_work(&stage);
        round_destroy(stage.round);
    }
    assert_int_equal(mem_blocks(), blocks);
}

/* The snapshot buffer is not written while a job of a round given up may read it. */
static void a_snapshot_waits_for_the_jobs_of_the_round_before(void **state)
{
    struct stage stage;

    (void)state;
    stage_set(&stage, "f32");
    stage_snapshot(&stage);
    say(&stage, over(OVER_ABORTED, false));
    say(&stage, (struct command){.type = COMMAND_SNAPSHOT});
    assert_int_equal(round_jobs(stage.round), 1);
    assert_false(round_wants_snapshot(stage.round));
    stage_work(&stage);
    assert_true(round_wants_snapshot(stage.round));
    round_destroy(stage.round);
}

/* With every codec, "our values" in the rule's arithmetic are those that the others decode. */
static void what_counts_as_our_own_is_what_the_others_decode(void **state)
{
    static float snapshot[VALUES], decoded[VALUES];
    const struct codec *codec;

    (void)state;
    for (size_t i = 0; i < VALUES; i++) {
        snapshot[i] = (float)(i % 37) * 0.0123f - (float)(i % 11) * 0.1f;
    }
    for (size_t index = 0; (codec = codec_at(index)) != NULL; index++) {
        struct stage stage;
        const struct blob *offer;

        stage_set(&stage, codec->name);
        say(&stage, (struct command){.type = COMMAND_SNAPSHOT});
        memcpy(round_snapshot_buffer(stage.round), snapshot, sizeof snapshot);
        round_on_snapshot(stage.round, RC_OK);
        stage_work(&stage);
        offer = stage.round->offer[0];
        assert_int_equal(offer->count, codec->ops->bytes_max(codec, VALUES));
        assert_int_equal(codec->ops->decode(codec, offer->bytes, offer->count, decoded, VALUES),
                         RC_OK);
        assert_memory_equal(stage.round->own, decoded, sizeof decoded);
        assert_memory_equal(stage.round->snapshot, snapshot, sizeof snapshot);
        assert_int_equal(memcmp(decoded, snapshot, sizeof decoded) == 0, codec->traits.is_lossless);
        say(&stage, over(OVER_ABORTED, false));
        stage_work(&stage);
        round_destroy(stage.round);
    }
}

/* A push that nothing came in for still moves the model by what its codec had lost of it, and that
 * is told as the distance. */
static void a_push_is_as_far_as_what_its_codec_lost(void **state)
{
    static const struct strategy_specs specs = {.averaging = "push-sum:H=2", .codec = "int8"};
    static const uint8_t nothing[1] = {0};
    struct command end = over(OVER_COMMITTED, false);
    struct stage stage;
    float *snapshot;

    (void)state;
    end.over.bitmap = nothing;
    end.over.scale = 0;
    end.over.sent = 0.5f;
    stage_set_up(&stage, &specs, &puppet_ops);
    say(&stage, (struct command){.type = COMMAND_SNAPSHOT});
    snapshot = round_snapshot_buffer(stage.round);
    for (size_t i = 0; i < VALUES; i++) {
        snapshot[i] = (float)(i % 37) * 0.0123f - (float)(i % 11) * 0.1f;
    }
    round_on_snapshot(stage.round, RC_OK);
    stage_work(&stage);
    say(&stage, end);
    stage_work(&stage);
    assert_true(round_has_difference(stage.round));
    assert_true(stage.round->stats.has_distance && stage.round->stats.distance > 0);
    assert_true(fabs(stage.round->stats.distance -
                     sqrt(norm_squared(stage.round->difference, VALUES))) < 1e-9);
    round_destroy(stage.round);
}

/* Bytes that a device encoded wrongly are an error of ours, found when the partner's chunk meets
 * them: the round ends by it, and not the peer. */
static void what_a_device_encoded_wrongly_ends_the_round(void **state)
{
    static const struct strategy_specs specs = {
        .averaging = "local-sgd", .exchange = "pair", .codec = "int8"};
    uint64_t blocks = mem_blocks();
    struct round_job job = {.scale = 0.5f};
    struct stage stage;

    (void)state;
    stage_set_up(&stage, &specs, &exchange_pair);
    assert_null(stage.round->own);
    job.told = blob_create(stage.round->codec->ops->bytes_max(stage.round->codec, VALUES));
    memset(job.told->bytes, 0xff, job.told->count);
    job.blob = job.told;
    job.body = job.blob->bytes;
    job.body_count = job.blob->count;
    job.round = stage.round;
    job.work = WORK_DECODE;
    round_job_run(&job.job);
    assert_int_equal(job.rc, RC_DEVICE);
    blob_unref(job.told);
    round_destroy(stage.round);
    assert_int_equal(mem_blocks(), blocks);
}

/* Neighbours without our copy share one buffer of it, for which the memory may be short: then the
 * round is given up, rather than that one of them waits for what never comes. */
static void a_whole_copy_is_sent_by_all_from_one_place(void **state)
{
    static const struct strategy_specs specs = {.averaging = "choco", .codec = "int8"};
    uint64_t blocks = mem_blocks();
    struct stage stage;
    const struct blob *blob;

    (void)state;
    stage_set_up(&stage, &specs, &graph_ops);
    stage_snapshot(&stage);
    mem_fail_after(0);
    say(&stage, (struct command){.type = COMMAND_SEND_RANGE, .buffer = DATA_FULL, .count = 1});
    mem_fail_after(UINT64_MAX);
    assert_int_equal(stage.puppet->cancels, 1);
    stage.round->has_stream = false; /* there are no links to take it back from */
    blob = round_mirror_whole(stage.round, 0);
    assert_non_null(blob);
    assert_int_equal(blob->count, VALUES * sizeof(float));
    assert_memory_equal(blob->bytes, stage.round->own, VALUES * sizeof(float));
    assert_ptr_equal(round_mirror_whole(stage.round, 0), blob);
    say(&stage, over(OVER_ABORTED, false));
    stage_work(&stage);
    assert_null(round_mirror_whole(stage.round, 0));
    round_destroy(stage.round);
    assert_int_equal(mem_blocks(), blocks);
}

/* Edges in doubt that were resolved wait for the round to end, and others come into doubt
 * meanwhile. Beyond what there is room for the rule begins anew, and people are told why. */
static void resolved_doubts_leave_room_for_others(void **state)
{
    static const struct strategy_specs specs = {.averaging = "d2"};
    struct stage stage;
    float theirs[VALUES] = {1}, distance;

    (void)state;
    stage_set_up(&stage, &specs, &graph_ops);
    stage_snapshot(&stage);
    for (uint64_t i = 0; i <= 2 * (uint64_t)PROMISE_DOUBTS_MAX; i++) {
        struct command late = over(OVER_COMMITTED, true);

        assert_false(stage.round->begins_anew);
        assert_int_equal(stage.strategy.rule->stage(stage.round->rule, 0, (struct range){0, VALUES},
                                                    theirs, &distance),
                         RC_OK);
        say(&stage, torn_edge(i));
        stage_work(&stage);
        late.over.key.counter = i;
        say(&stage, late);
    }
    assert_true(stage.round->begins_anew);
    say(&stage, over(OVER_COMMITTED, false));
    stage_work(&stage);
    for (int i = 0; i <= 2 * PROMISE_DOUBTS_MAX; i++) {
        assert_true(round_has_difference(stage.round));
        round_applied(stage.round);
        stage_work(&stage);
    }
    assert_false(round_has_difference(stage.round));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(round_begin(stage.round, &(struct round_members){.count = 0}, 0), RC_OK);
        assert_int_equal(stage.puppet->restarts, 1); /* of the first alone */
    }
    round_destroy(stage.round);
}

/* Whatever is averaged by whatever rule with whatever moments, peers can say so in what a proposal
 * holds of it; and rules that are set in unlike ways say unlike things. */
static void every_method_has_a_name_of_its_own(void **state)
{
    enum { SETTINGS = 400 };
    static char said[SETTINGS][ROUND_METHOD_BYTES], words[SETTINGS][HELLO_METHOD_MAX];
    char text[ROUND_METHOD_BYTES], averaging[40];
    struct rule_settings settings;
    struct strategy strategy;
    struct fault why;
    size_t tried = 0, longest = 0;

    (void)state;
    for (size_t r = 0; rule_at(r, &settings) != NULL; r++) {
        for (size_t c = 0;; c++) {
            const char *codec =
                c < CODEC_FORMATS ? codec_at(c)->name : codec_example(c - CODEC_FORMATS);

            if (codec == NULL) break;
            for (int kind = -1; kind < OPTIMIZER_COUNT; kind++) {
                struct strategy_specs specs = {.rule = rule_at(r, &settings)->name,
                                               .codec = codec,
                                               .moments = kind < 0 ? "keep" : "average"};

                if (strategy_parse(&specs, &strategy, &why) != RC_OK) continue;
                round_method(&strategy, kind < 0 ? NULL : optimizer_name((enum update_kind)kind),
                             text);
                if (strlen(text) > longest) longest = strlen(text);
                strategy_method(&strategy, optimizer_name((enum update_kind)(kind < 0 ? 0 : kind)),
                                words[0], sizeof words[0]); /* checks that it fits */
                tried++;
            }
        }
    }
    assert_in_range(tried, 40, 1000);
    assert_in_range(longest, 20, ROUND_METHOD_BYTES - 1);
    for (size_t i = 0; i < SETTINGS; i++) {
        struct strategy_specs specs = {.averaging = averaging};

        snprintf(averaging, sizeof averaging, "diloco:momentum=0.%04zu", 9000 + i);
        assert_int_equal(strategy_parse(&specs, &strategy, &why), RC_OK);
        round_method(&strategy, NULL, said[i]);
        strategy_method(&strategy, NULL, words[i], sizeof words[i]);
        for (size_t k = 0; k < i; k++) {
            assert_string_not_equal(words[i], words[k]);
            assert_string_not_equal(said[i], said[k]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_doubt_may_end_while_its_difference_is_computed),
        cmocka_unit_test(a_live_plane_is_encoded_as_its_copy_would_be),
        cmocka_unit_test(a_replaced_model_gets_no_old_difference),
        cmocka_unit_test(joiners_get_nothing_that_was_not_committed),
        cmocka_unit_test(planes_of_another_size_are_not_adopted),
        cmocka_unit_test(a_snapshot_waits_for_the_jobs_of_the_round_before),
        cmocka_unit_test(what_counts_as_our_own_is_what_the_others_decode),
        cmocka_unit_test(a_push_is_as_far_as_what_its_codec_lost),
        cmocka_unit_test(what_a_device_encoded_wrongly_ends_the_round),
        cmocka_unit_test(a_whole_copy_is_sent_by_all_from_one_place),
        cmocka_unit_test(resolved_doubts_leave_room_for_others),
        cmocka_unit_test(every_method_has_a_name_of_its_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
