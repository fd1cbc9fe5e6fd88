/* What follows from a promise: it needs no more memory, and no checkpoint lies in between. */
#include "tests/unit/peer/round_stage.h"

/* A neighbour that asks hears that an edge counts as soon as it does; the model has it only when
 * the round is over. A checkpoint in between would answer for what its model lacks. */
static void no_checkpoint_falls_between_an_edge_and_the_model(void **state)
{
    static const struct strategy_specs specs = {.averaging = "dpsgd"};
    struct command edge = {.type = COMMAND_EDGE, .edge.weight = 0.5f};
    float theirs[VALUES] = {1}, distance;
    struct stage stage;

    (void)state;
    stage_set_up(&stage, &specs, &graph_ops);
    stage_snapshot(&stage);
    assert_int_equal(stage.strategy.rule->stage(stage.round->rule, 0, (struct range){0, VALUES},
                                                theirs, &distance),
                     RC_OK);
    say(&stage, torn_edge(1)); /* not yet */
    stage_work(&stage);
    assert_false(round_is_settling(stage.round));
    say(&stage, edge);
    assert_true(round_is_settling(stage.round));
    stage_work(&stage);
    assert_true(round_is_settling(stage.round));
    say(&stage, over(OVER_COMMITTED, false));
    assert_true(round_is_settling(stage.round));
    stage_work(&stage);
    assert_true(round_has_difference(stage.round)); /* applied before anything else is done */
    round_applied(stage.round);
    assert_false(round_is_settling(stage.round));
    round_destroy(stage.round);
}

/* From the snapshot on every allocation fails, in each kind of round that promises something. */
static void what_was_promised_needs_no_more_memory(void **state)
{
    static const struct strategy_specs pair = {.averaging = "local-sgd", .exchange = "pair"};
    static const struct strategy_specs graph = {.averaging = "dpsgd"};
    struct command edge = {.type = COMMAND_EDGE, .edge.weight = 0.5f};
    struct command hold = {.type = COMMAND_HOLD, .key.counter = 9};
    float theirs[VALUES] = {1}, distance;
    uint64_t blocks = mem_blocks();
    struct stage stage;

    (void)state;
    stage_set_up(&stage, &pair, &puppet_ops); /* decided at once */
    stage_snapshot(&stage);
    mem_fail_after(0);
    say(&stage, over(OVER_COMMITTED, false));
    stage_work(&stage);
    mem_fail_after(UINT64_MAX);
    assert_true(round_has_difference(stage.round));
    assert_int_equal(stage.puppet->cancels, 0);
    round_applied(stage.round);

    stage_snapshot(&stage); /* in doubt, and committed late */
    mem_fail_after(0);
    say(&stage, over(OVER_IN_DOUBT, false));
    stage_work(&stage);
    say(&stage, over(OVER_COMMITTED, true));
    mem_fail_after(UINT64_MAX);
    round_tick(stage.round); /* what is not promised for a moment is tried again */
    stage_work(&stage);
    assert_true(round_has_difference(stage.round));
    round_applied(stage.round);

    stage_snapshot(&stage); /* a share leaves, and is kept */
    mem_fail_after(0);
    say(&stage, hold);
    stage_work(&stage);
    mem_fail_after(UINT64_MAX);
    assert_non_null(stage.round->planes[0].plane);
    round_destroy(stage.round);

    stage_set_up(&stage, &graph, &graph_ops); /* an edge counts, another is in doubt */
    stage.round->partners = 2;
    stage_snapshot(&stage);
    assert_int_equal(stage.strategy.rule->stage(stage.round->rule, 0, (struct range){0, VALUES},
                                                theirs, &distance),
                     RC_OK);
    mem_fail_after(0);
    say(&stage, edge);
    say(&stage, torn_edge(1));
    stage_work(&stage);
    say(&stage, over(OVER_COMMITTED, false));
    stage_work(&stage);
    mem_fail_after(UINT64_MAX);
    assert_false(stage.round->begins_anew);
    assert_true(round_has_difference(stage.round));
    round_destroy(stage.round);
    assert_int_equal(mem_blocks(), blocks);
}

/* Before it nothing is promised: a round that cannot have what it may need does not begin. */
static void a_snapshot_without_memory_for_promises_fails(void **state)
{
    struct stage stage;

    (void)state;
    stage_set(&stage, "f32");
    say(&stage, (struct command){.type = COMMAND_SNAPSHOT});
    assert_non_null(round_snapshot_buffer(stage.round));
    stage.puppet->wants_rc = RC_NOMEM;
    mem_fail_after(1);
    round_on_snapshot(stage.round, RC_OK);
    mem_fail_after(UINT64_MAX);
    assert_int_equal(stage.jobs_count, 0);
    assert_false(round_has_snapshot(stage.round));
    round_destroy(stage.round);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_checkpoint_falls_between_an_edge_and_the_model),
        cmocka_unit_test(what_was_promised_needs_no_more_memory),
        cmocka_unit_test(a_snapshot_without_memory_for_promises_fails),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
