/* What a peer keeps of its differences through rounds that count, that do not, and that leave it
 * out; exchange and env are played by hand. */
#include "tests/unit/peer/round_stage.h"

#include "averaging/codec/delta.h"
#include "base/bytes.h"
#include "base/floats.h"

static const struct strategy_specs specs = {
    .averaging = "sparseloco:beta=1,lr=1", .codec = "topk:0.01", .robust = "none"};

static void tell(struct stage *stage, const float *x)
{
    say(stage, (struct command){.type = COMMAND_SNAPSHOT});
    assert_true(round_wants_snapshot(stage->round));
    memcpy(round_snapshot_buffer(stage->round), x, VALUES * sizeof(float));
    round_on_snapshot(stage->round, RC_OK);
    stage_work(stage);
}

static void checked(struct exchange *exchange, const struct chunk_ref *chunk, enum rc rc,
                    struct digest hash, float distance, uint64_t now_ns, struct commands *out)
{
    (void)chunk;
    (void)hash;
    (void)distance;
    (void)now_ns;
    (void)out;
    the_puppet(exchange)->wants_rc = rc;
}

/* The own part is all there is; if nobody else sends, what is agreed is what we sent. */
static void reduce(struct stage *stage)
{
    say(stage, (struct command){.type = COMMAND_REDUCE, .count = 1, .round = 7});
    stage_work(stage);
}

static void commit(struct stage *stage, float *x)
{
    say(stage, over(OVER_COMMITTED, false));
    stage_work(stage);
    assert_true(round_has_difference(stage->round));
    for (size_t i = 0; i < VALUES; i++) {
        x[i] += round_difference(stage->round)[i];
    }
    round_applied(stage->round);
    stage_work(stage);
}

static const float *anchor_of(const struct stage *stage)
{
    const float *planes[RULE_STATE_MAX] = {NULL};

    return round_rule_state(stage->round, planes) == 0 ? NULL : planes[0];
}

static struct exchange_ops ops_of_group(void)
{
    struct exchange_ops ops = group_ops;

    ops.on_chunk_checked = checked;
    return ops;
}

static void stage_begin(struct stage *stage, float *x)
{
    static struct exchange_ops ops;

    ops = ops_of_group();
    stage_set_up(stage, &specs, &ops);
    for (size_t i = 0; i < VALUES; i++) {
        x[i] = 0.01f * (float)i;
    }
    tell(stage, x);
    reduce(stage);
    commit(stage, x);
    assert_memory_equal(anchor_of(stage), x, VALUES * sizeof(float)); /* it is laid */
}

static void steps(float *x, int round)
{
    for (size_t i = 0; i < VALUES; i++) {
        x[i] -= (float)((i * 7 + (size_t)round * 13) % 101) * 0.001f;
    }
}

/* Over many rounds: where the anchor has gone and what is left are all steps that were taken. */
static void what_counts_and_what_is_left_are_all_steps(void **state)
{
    uint64_t blocks = mem_blocks();
    static float x[VALUES], begun[VALUES], total[VALUES];
    struct stage stage;

    (void)state;
    stage_begin(&stage, x);
    memcpy(begun, x, sizeof begun);
    memset(total, 0, sizeof total);
    for (int round = 0; round < 60; round++) {
        float before[VALUES];

        memcpy(before, x, sizeof before);
        steps(x, round);
        for (size_t i = 0; i < VALUES; i++) {
            total[i] += before[i] - x[i];
        }
        tell(&stage, x);
        if (round % 3 == 1) { /* abort: all of it is sent again, once */
            const float *residual = round_residual(stage.round);
            float kept[VALUES];

            memcpy(kept, residual, sizeof kept);
            say(&stage, over(OVER_ABORTED, false));
            stage_work(&stage);
            assert_memory_equal(residual, kept, sizeof kept);
            continue;
        }
        reduce(&stage);
        commit(&stage, x);
        assert_true(fabsf(x[3] - anchor_of(&stage)[3]) < 1e-5f);
    }
    tell(&stage, x); /* the last ones, after an abort or not */
    reduce(&stage);
    commit(&stage, x);
    for (size_t i = 0; i < VALUES; i++) {
        float moved = begun[i] - anchor_of(&stage)[i];

        assert_true(fabsf(moved + round_residual(stage.round)[i] - total[i]) < 1e-3f);
    }
    round_destroy(stage.round);
    assert_int_equal(mem_blocks(), blocks);
}

/* A chunk that does not count leaves what is kept of it alone, though the round counts. */
static void a_part_that_is_lost_leaves_its_residual(void **state)
{
    static const uint8_t nothing[1] = {0};
    static float x[VALUES];
    struct stage stage;
    struct command end = over(OVER_COMMITTED, false);
    float kept[VALUES], anchor[VALUES];

    (void)state;
    stage_begin(&stage, x);
    steps(x, 0);
    tell(&stage, x);
    reduce(&stage);
    commit(&stage, x);
    memcpy(kept, round_residual(stage.round), sizeof kept);
    memcpy(anchor, anchor_of(&stage), sizeof anchor);
    steps(x, 1);
    tell(&stage, x);
    reduce(&stage);
    end.over.bitmap = nothing;
    say(&stage, end);
    stage_work(&stage);
    assert_memory_equal(round_residual(stage.round), kept, sizeof kept);
    assert_memory_equal(anchor_of(&stage), anchor, sizeof anchor);
    for (size_t i = 0; i < VALUES; i++) {
        assert_true(round_difference(stage.round)[i] == 0);
    }
    round_destroy(stage.round);
}

/* Another model, another anchor: nothing of the old one's is sent with it. */
static void a_replaced_model_takes_no_residual_along(void **state)
{
    static float x[VALUES];
    struct stage stage;

    (void)state;
    stage_begin(&stage, x);
    steps(x, 0);
    tell(&stage, x);
    reduce(&stage);
    commit(&stage, x);
    assert_non_null(round_residual(stage.round));
    round_discard(stage.round);
    assert_null(round_residual(stage.round)); /* nor in a checkpoint */
    tell(&stage, x);
    for (size_t i = 0; i < VALUES; i++) {
        assert_true(round_residual(stage.round)[i] == 0);
    }
    assert_null(anchor_of(&stage));
    say(&stage, over(OVER_ABORTED, false));
    stage_work(&stage);
    round_destroy(stage.round);
}

/* From a checkpoint it is what it was; a method that keeps none has no use for it. */
static void it_comes_back_from_a_checkpoint(void **state)
{
    static float x[VALUES], residual[VALUES];
    struct stage stage, again;
    const float *planes[RULE_STATE_MAX];

    (void)state;
    stage_begin(&stage, x);
    steps(x, 0);
    tell(&stage, x);
    reduce(&stage);
    commit(&stage, x);
    assert_int_equal(round_rule_state(stage.round, planes), 1);
    memcpy(residual, round_residual(stage.round), sizeof residual);
    stage_set_up(&again, &specs, &group_ops);
    assert_int_equal(round_rule_restore(again.round, planes, 1), RC_OK);
    assert_int_equal(round_residual_restore(again.round, residual), RC_OK);
    assert_memory_equal(round_residual(again.round), residual, sizeof residual);
    residual[5] = NAN;
    assert_int_equal(round_residual_restore(again.round, residual), RC_NONFINITE);
    assert_int_equal(round_residual_restore(again.round, NULL), RC_OK);
    round_destroy(again.round);
    stage_set(&again, "f32");
    assert_int_equal(round_residual_restore(again.round, residual), RC_SHAPE);
    round_destroy(again.round);
    round_destroy(stage.round);
}

/* ---- liars ---- */

/* What an owner returns: one other member's difference, `pull` at place 0 and 0 at others that it
 * sends, and planes of what its rule keeps. */
static void hear_mean(struct stage *stage, float pull, const float *const *planes, size_t count)
{
    enum { SENT = VALUES / 100, BODY = SENT * (2 + 4) };
    struct round_job *job = round_job_create(stage->round, WORK_DECODE, VALUES);
    struct blob *blob =
        blob_create(DELTA_MEAN_HEAD + DELTA_BODY_HEAD + BODY + count * VALUES * sizeof(float));
    uint8_t *at;

    assert_non_null(job);
    assert_non_null(blob);
    memset(blob->bytes, 0, blob->count);
    store_le64(blob->bytes, 2);
    blob->bytes[8] = (uint8_t)count;
    at = blob->bytes + DELTA_MEAN_HEAD;
    store_le32(at, BODY);
    at += DELTA_BODY_HEAD;
    for (uint16_t i = 0; i < SENT; i++) {
        store_le16(at + 2 * i, i);
    }
    store_le_float(at + 2 * SENT, pull);
    at += BODY;
    for (size_t i = 0; i < count * VALUES; i++) {
        store_le_float(at + 4 * i, planes[i / VALUES][i % VALUES]);
    }
    job->chunk = (struct chunk_ref){.kind = DATA_MEAN};
    job->blob = blob;
    job->body = blob->bytes;
    job->body_count = blob->count;
    job->told = blob_ref(stage->round->offer[0]);
    round_job_submit(stage->round, job);
    stage_work(stage);
}

/* Who says that it has stepped in a round that is yet to come does not have the anchor that counts.
 */
static void a_member_from_the_future_has_no_say(void **state)
{
    enum { SENT = VALUES / 100 };
    static float x[VALUES];
    struct delta_offer offer = {.anchor = 1234, .round = UINT32_MAX};
    struct stage stage;
    struct round_job *job;

    (void)state;
    stage_begin(&stage, x);
    tell(&stage, x);
    job = round_job_create(stage.round, WORK_DECODE, VALUES);
    assert_non_null(job);
    job->blob = blob_create(DELTA_OFFER_HEAD + SENT * (2 + 4));
    assert_non_null(job->blob);
    memset(job->blob->bytes, 0, job->blob->count);
    delta_offer_write(&offer, job->blob->bytes);
    for (uint16_t i = 0; i < SENT; i++) {
        store_le16(job->blob->bytes + DELTA_OFFER_HEAD + 2 * i, i);
    }
    job->chunk = (struct chunk_ref){.kind = DATA_OFFER};
    job->slot = 1;
    job->body = job->blob->bytes;
    job->body_count = job->blob->count;
    round_job_submit(stage.round, job);
    stage_work(&stage);
    assert_int_equal(stage.puppet->wants_rc, RC_OK);
    reduce(&stage);
    assert_int_equal(load_le64(stage.round->mean[0]->bytes), 2); /* it is astray */
    commit(&stage, x);
    round_destroy(stage.round);
}

/* A mean that is right because the anchor that comes with it is as wrong as the difference: what
 * the step makes of the two would be anything. And momentum of which no mean tells. */
static void an_owner_that_lies_about_what_it_keeps_moves_nothing(void **state)
{
    static const struct strategy_specs methods[] = {
        {.averaging = "sparseloco:beta=1,lr=0.7", .codec = "topk:0.01", .robust = "none"},
        {.averaging = "diloco", .codec = "topk:0.01+ef", .robust = "none"}};
    const struct exchange_ops ops = ops_of_group();

    (void)state;
    for (int lie = 0; lie < 3; lie++) {
        static float x[VALUES], anchor[VALUES], momentum[VALUES], told[2][VALUES];
        const float *const planes[] = {told[0], told[1]}, *kept[RULE_STATE_MAX];
        const bool is_of_anchor = lie == 1, is_of_momentum = lie == 2;
        struct stage stage;
        size_t count;

        stage_set_up(&stage, &methods[is_of_momentum], &ops);
        for (size_t i = 0; i < VALUES; i++) {
            x[i] = 0.01f * (float)i;
        }
        tell(&stage, x);
        reduce(&stage);
        commit(&stage, x);
        tell(&stage, x);
        count = round_rule_state(stage.round, kept);
        assert_int_equal(count, is_of_momentum ? 2 : 1);
        memcpy(anchor, kept[0], sizeof anchor);
        memcpy(told[0], anchor, sizeof anchor);
        memset(momentum, 0, sizeof momentum);
        memset(told[1], 0, sizeof told[1]);
        told[0][0] += is_of_anchor ? 1e6f : 0.5f;
        told[1][1] = is_of_momentum ? 1e6f : 0;
        hear_mean(&stage, is_of_anchor ? 1e6f : 0.5f, planes, count);
        assert_int_equal(stage.puppet->wants_rc, is_of_anchor ? RC_LIMIT : RC_OK);
        stage.puppet->wants_rc = RC_OK;
        say(&stage, over(OVER_COMMITTED, false));
        stage_work(&stage);
        assert_int_equal(round_rule_state(stage.round, kept), count);
        for (size_t i = 0; i < VALUES; i++) {
            assert_true(fabsf(kept[0][i] - anchor[i]) < 1);
            assert_true(count < 2 || fabsf(kept[1][i] - momentum[i]) < 1);
            assert_true(fabsf(round_difference(stage.round)[i]) < 1);
        }
        if (!is_of_anchor) assert_true(kept[0][0] != anchor[0]); /* what is no lie is taken over */
        round_destroy(stage.round);
    }
}

/* Too little memory for any of it: no round, no leak, and the model stays. */
static void without_memory_there_is_no_round(void **state)
{
    uint64_t blocks = mem_blocks();

    (void)state;
    for (uint64_t n = 0; n < 200; n++) {
        struct round_options options = {.values = VALUES, .parameters = VALUES};
        struct strategy strategy;
        struct round *round;

        assert_int_equal(strategy_parse(&specs, &strategy, NULL), RC_OK);
        strategy.exchange = &group_ops;
        options.strategy = &strategy;
        mem_fail_after(n);
        round = round_create(&options);
        mem_fail_after(UINT64_MAX);
        if (round != NULL) {
            round_destroy(round);
            assert_int_equal(mem_blocks(), blocks);
            return;
        }
        assert_int_equal(mem_blocks(), blocks);
    }
    fail_msg("it needs more than 200 allocations");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_counts_and_what_is_left_are_all_steps),
        cmocka_unit_test(a_part_that_is_lost_leaves_its_residual),
        cmocka_unit_test(a_replaced_model_takes_no_residual_along),
        cmocka_unit_test(it_comes_back_from_a_checkpoint),
        cmocka_unit_test(a_member_from_the_future_has_no_say),
        cmocka_unit_test(an_owner_that_lies_about_what_it_keeps_moves_nothing),
        cmocka_unit_test(without_memory_there_is_no_round),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
