/* A round that carries a part of the plane: what of it is gathered, what the rule keeps of it, and
 * where the difference goes. One member, whose own values are the mean. */
#include "tests/unit/peer/round_stage.h"

#include "averaging/codec/mask.h"

enum { FRAGMENTS = 2 };

static struct masks *masks_of_stage(void)
{
    static const size_t ends[] = {VALUES / 2, VALUES};
    const struct masks_options options = {.values = VALUES,
                                          .parameters = VALUES,
                                          .ends = ends,
                                          .ends_count = 2,
                                          .fragments = FRAGMENTS};
    struct masks *masks = masks_create(&options);

    assert_non_null(masks);
    return masks;
}

static void set_up(struct stage *stage, const struct masks *masks, const char *averaging)
{
    const struct strategy_specs specs = {.averaging = averaging, .robust = "none"};
    struct round_options options = {.env = &stage->env,
                                    .values = VALUES,
                                    .parameters = VALUES,
                                    .masks = masks,
                                    .log = &stage->log,
                                    .on_change = on_change};
    struct fault why;

    *stage = (struct stage){.env.ops = &stage_ops, .log = {LOG_ERROR, on_line, NULL}};
    assert_int_equal(strategy_parse(&specs, &stage->strategy, &why), RC_OK);
    stage->strategy.exchange = &group_ops;
    options.strategy = &stage->strategy;
    stage->round = round_create(&options);
    assert_non_null(stage->round);
    stage->puppet = the_puppet(stage->round->exchange);
    stage->puppet->base.ops = &group_ops;
}

/* Round `number` of the model x, up to its settled difference. */
static void run_round(struct stage *stage, uint64_t number, const float *x)
{
    struct command own = {.type = COMMAND_ABSORB_OWN, .count = 1, .weight = 1};
    struct command mean = {.type = COMMAND_REDUCE};

    say(stage, (struct command){.type = COMMAND_SNAPSHOT, .key.counter = number});
    assert_true(round_wants_snapshot(stage->round));
    memcpy(round_snapshot_buffer(stage->round), x, VALUES * sizeof(float));
    assert_int_equal(round_take(stage->round, NULL, 0), RC_OK);
    round_on_step(stage->round, number, false);
    round_on_snapshot(stage->round, RC_OK);
    stage_work(stage);
    say(stage, own);
    stage_work(stage);
    say(stage, mean);
    stage_work(stage);
    say(stage, over(OVER_COMMITTED, false));
    stage_work(stage);
    assert_true(round_has_difference(stage->round));
}

static bool is_nothing(float value)
{
    const float nothing = -0.0f;

    return memcmp(&value, &nothing, sizeof value) == 0;
}

static void fill(float *x, float value)
{
    for (size_t i = 0; i < VALUES; i++) {
        x[i] = value + (float)i / VALUES;
    }
}

/* diloco's step of each fragment from its own anchor, and nothing elsewhere: by hand, u = d, and
 * the anchor moves by 0.5 (d + 0.9 d) for d = anchor - x. */
static void each_fragment_steps_from_its_own_anchor(void **state)
{
    (void)state;
    struct masks *masks = masks_of_stage();
    struct stage stage;
    float x[VALUES], first[VALUES];
    const float *planes[RULE_STATE_MAX];

    set_up(&stage, masks, "streaming-diloco:H=8,P=2,tau=0,a=0,lr=0.5,momentum=0.9");
    fill(first, 1);
    for (uint64_t r = 0; r < FRAGMENTS; r++) { /* anchors are laid where it stands */
        assert_int_equal(round_rule_state(stage.round, planes), 0); /* of a part: not whole */
        run_round(&stage, r, first);
        for (size_t i = 0; i < VALUES; i++) {
            assert_true(round_difference(stage.round)[i] == 0);
        }
        round_applied(stage.round);
    }
    assert_int_equal(round_rule_state(stage.round, planes), 2);
    assert_memory_equal(planes[0], first, sizeof first);
    for (uint64_t r = 2; r < 2 + FRAGMENTS; r++) {
        const float *difference;

        fill(x, 0); /* everywhere 1 below the anchor */
        run_round(&stage, r, x);
        difference = round_difference(stage.round);
        for (size_t i = 0; i < VALUES; i++) {
            if ((i < VALUES / 2) == (r == 2)) {
                assert_true(fabsf(difference[i] - (1 - 0.95f)) < 1e-5f);
            } else {
                assert_true(is_nothing(difference[i]));
            }
        }
        round_applied(stage.round);
    }
    round_destroy(stage.round);
    masks_destroy(masks);
}

/* What is kept between rounds, given to another peer or taken from a checkpoint, leads to the same
 * bits; planes that do not fit are refused, and change nothing. */
static void what_the_rule_keeps_goes_on_elsewhere(void **state)
{
    (void)state;
    static const char *const averaging = "streaming-diloco:H=8,P=2,tau=0,a=0";
    struct masks *masks = masks_of_stage();
    struct stage stage, other;
    float x[VALUES], saved[2][VALUES], difference[VALUES], bad[VALUES];
    const float *planes[RULE_STATE_MAX], *wrong[RULE_STATE_MAX];

    set_up(&stage, masks, averaging);
    for (uint64_t r = 0; r < 6; r++) {
        fill(x, (float)r * 0.1f);
        run_round(&stage, r, x);
        round_applied(stage.round);
    }
    assert_int_equal(round_rule_state(stage.round, planes), 2);
    memcpy(saved[0], planes[0], sizeof saved[0]);
    memcpy(saved[1], planes[1], sizeof saved[1]);
    planes[0] = saved[0];
    planes[1] = saved[1];

    set_up(&other, masks, averaging);
    fill(bad, 0);
    bad[VALUES - 1] = NAN;
    wrong[0] = planes[0];
    wrong[1] = bad;
    assert_int_equal(round_rule_restore(other.round, wrong, 2), RC_NONFINITE);
    assert_int_equal(round_rule_restore(other.round, planes, 1), RC_SHAPE);
    assert_int_equal(round_rule_state(other.round, wrong), 0);
    assert_int_equal(round_rule_restore(other.round, planes, 2), RC_OK);
    for (uint64_t r = 6; r < 8; r++) {
        fill(x, (float)r * 0.2f);
        run_round(&stage, r, x);
        memcpy(difference, round_difference(stage.round), sizeof difference);
        round_applied(stage.round);
        run_round(&other, r, x);
        assert_memory_equal(round_difference(other.round), difference, sizeof difference);
        round_applied(other.round);
    }
    round_destroy(stage.round);
    round_destroy(other.round);
    masks_destroy(masks);
}

/* A model that was replaced has no anchor: the next round of each fragment lays one. */
static void a_replaced_model_begins_anew(void **state)
{
    (void)state;
    struct masks *masks = masks_of_stage();
    struct stage stage;
    float x[VALUES];
    const float *planes[RULE_STATE_MAX];

    set_up(&stage, masks, "streaming-diloco:H=8,P=2,tau=0,a=0");
    for (uint64_t r = 0; r < 4; r++) {
        fill(x, (float)r);
        run_round(&stage, r, x);
        round_applied(stage.round);
    }
    round_discard(stage.round);
    assert_int_equal(round_rule_state(stage.round, planes), 0);
    for (uint64_t r = 4; r < 6; r++) {
        fill(x, 100);
        run_round(&stage, r, x);
        for (size_t i = 0; i < VALUES; i++) {
            assert_true(round_difference(stage.round)[i] == 0);
        }
        round_applied(stage.round);
    }
    round_destroy(stage.round);
    masks_destroy(masks);
}

/* x = a x + (1 - a) y of the fragment, x as it is now; of the whole with one fragment; and not at
 * the goal, where there are no steps that would count. */
static void steps_beside_a_round_count_a_share(void **state)
{
    (void)state;
    struct masks *masks = masks_of_stage();

    for (int is_whole = 0; is_whole <= 1; is_whole++) {
        for (size_t split = 0; split <= VALUES; split += VALUES / 4) {
            struct stage stage;
            float x[VALUES], now[VALUES];

            set_up(&stage, is_whole ? NULL : masks,
                   is_whole ? "streaming-diloco:H=8,P=1,tau=2,a=0.25"
                            : "streaming-diloco:H=8,P=2,tau=2,a=0.25");
            fill(x, 1);
            run_round(&stage, 0, x); /* y = x: the anchor is laid there */
            fill(now, 5);
            memcpy(round_blend_buffer(stage.round), now, sizeof now);
            round_blend(stage.round, now, split);
            for (size_t i = 0; i < VALUES; i++) {
                float difference = round_difference(stage.round)[i];

                if (is_whole || i < VALUES / 2) { /* 4 away, of which 3/4 go */
                    assert_true(fabsf(difference + 3) < 1e-5f);
                } else {
                    assert_true(is_nothing(difference));
                }
            }
            stage.round->is_last = true;
            assert_null(round_blend_buffer(stage.round));
            round_applied(stage.round);
            round_destroy(stage.round);
        }
    }
    masks_destroy(masks);
}

static void memory_may_run_out(void **state)
{
    (void)state;
    struct masks *masks = masks_of_stage();
    const struct strategy_specs specs = {.averaging = "streaming-diloco:H=8,P=2,tau=1"};
    struct stage stage = {.env.ops = &stage_ops, .log = {LOG_ERROR, on_line, NULL}};
    struct round_options options = {.env = &stage.env,
                                    .values = VALUES,
                                    .parameters = VALUES,
                                    .masks = masks,
                                    .strategy = &stage.strategy,
                                    .log = &stage.log,
                                    .on_change = on_change};
    struct fault why;
    uint64_t n = 0;

    assert_int_equal(strategy_parse(&specs, &stage.strategy, &why), RC_OK);
    stage.strategy.exchange = &group_ops;
    for (;; n++) {
        struct round *round;

        mem_fail_after(n);
        round = round_create(&options);
        mem_fail_after(UINT64_MAX);
        round_destroy(round);
        if (round != NULL) break;
    }
    assert_true(n > 20);
    masks_destroy(masks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_fragment_steps_from_its_own_anchor),
        cmocka_unit_test(what_the_rule_keeps_goes_on_elsewhere),
        cmocka_unit_test(a_replaced_model_begins_anew),
        cmocka_unit_test(steps_beside_a_round_count_a_share),
        cmocka_unit_test(memory_may_run_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
