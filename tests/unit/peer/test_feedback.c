/* What a peer keeps of its differences through rounds that count, that do not, and that leave it
 * out; exchange and env are played by hand. */
#include "tests/unit/peer/round_stage.h"

#include "averaging/codec/delta.h"
#include "base/bytes.h"

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

/* The own part is all there is, and nobody else sends: what is agreed is what we sent. */
static void reduce(struct stage *stage)
{
    say(stage, (struct command){.type = COMMAND_REDUCE, .first = 0, .count = 1, .member = 0});
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

static void stage_begin(struct stage *stage, float *x)
{
    stage_set_up(stage, &specs, &group_ops);
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
        cmocka_unit_test(without_memory_there_is_no_round),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
