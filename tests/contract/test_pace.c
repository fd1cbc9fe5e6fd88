/* Paces, all of them beside their contract: which one a method has, and what its period is. */
#include "tests/check.h"

#include "base/mem.h"
#include "peer/node/rounds/internal.h"

static const struct row {
    const char *averaging, *pace;
    const struct pace_ops *inner, *outer;
} rows[] = {
    {"none", NULL, &pace_group, &pace_finish},
    {"one-shot", NULL, &pace_group, &pace_once},
    {"local-sgd", NULL, &pace_group, &pace_finish},
    {"des-loc", NULL, &pace_group, &pace_finish},
    {"local-sgd", "time=5s", &pace_group, &pace_finish},
    {"adacomm", NULL, &pace_group, &pace_finish},
    {"moshpit", NULL, &pace_group, &pace_finish},
    {"ad-psgd", NULL, &pace_pair, &pace_finish},
    {"ssp", NULL, &pace_pair, &pace_finish},
    {"noloco", NULL, &pace_pair, &pace_finish},
    {"async-diloco", NULL, &pace_pair, &pace_finish},
    {"swarmsgd", NULL, &pace_pair, &pace_finish},
    {"gasloc", NULL, &pace_pair, &pace_finish},
    {"push-sum", NULL, &pace_push, &pace_finish},
    {"osgp", NULL, &pace_push, &pace_finish},
    {"gossipgrad", NULL, &pace_push, &pace_finish},
    {"gosgd", "time=5s", &pace_push, &pace_finish},
    {"dpsgd:H=4", NULL, &pace_graph, &pace_finish},
    {"qg-dsgdm", NULL, &pace_graph, &pace_finish},
    {"matcha", NULL, &pace_graph, &pace_finish},
    {"choco", NULL, &pace_graph, &pace_finish},
};

static uint64_t the_time_ns;

static uint64_t now_ns(struct env *env)
{
    (void)env;
    return the_time_ns;
}

static const struct env_ops ops = {.now_ns = now_ns};

struct stage {
    struct env env;
    struct strategy strategy;
    struct rounds rounds;
    struct node node;
};

static struct stage *stage_create(const struct row *row)
{
    const struct strategy_specs specs = {.averaging = row->averaging, .pace = row->pace};
    struct stage *stage = mem_alloc(sizeof *stage);
    struct fault why = {""};

    assert_non_null(stage);
    assert_int_equal(strategy_parse(&specs, &stage->strategy, &why), RC_OK);
    stage->env.ops = &ops;
    stage->node.env = &stage->env;
    stage->node.rounds = &stage->rounds;
    stage->node.options.strategy = &stage->strategy;
    return stage;
}

static void stage_destroy(struct stage *stage)
{
    pace_destroy(&stage->rounds);
    mem_free(stage);
}

/* Each method has the pace of its exchange, and that has all that is not said to be optional. */
static void methods_have_the_pace_of_their_exchange(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct stage *stage = stage_create(&rows[i]);
        const struct rounds *pace = &stage->rounds;

        assert_int_equal(pace_create(&stage->rounds, &stage->strategy), RC_OK);
        assert_ptr_equal(pace->inner, rows[i].inner);
        assert_ptr_equal(pace->outer, rows[i].outer);
        assert_true(pace->inner->due != NULL && pace->inner->begin != NULL);
        assert_true(pace->inner->waits != NULL && pace->inner->steps_until != NULL);
        assert_true(pace->outer->due != NULL && pace->outer->begin != NULL);
        assert_true(pace->outer->stays != NULL);
        assert_false(pace->is_done);
        stage_destroy(stage);
    }
}

/* A pace without memory is an error, whichever of its states is missing. */
static void memory_that_is_short_is_told(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 2; n++) {
        struct stage *stage = stage_create(&rows[0]);

        mem_fail_after(n);
        assert_int_equal(pace_create(&stage->rounds, &stage->strategy), RC_NOMEM);
        mem_fail_after(UINT64_MAX);
        stage_destroy(stage);
    }
}

/* By steps: up to the last of a period nothing is due, and steps lead to its end and not beyond.
 * By time: whatever the steps, when it is over. One-shot has no period, and nothing before the
 * goal.
 */
static void rounds_are_due_when_a_period_is_over(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct stage *stage = stage_create(&rows[i]);
        struct node *node = &stage->node;
        uint64_t every;

        if (!stage->strategy.is_averaging) {
            mem_free(stage);
            continue;
        }
        assert_int_equal(pace_create(&stage->rounds, &stage->strategy), RC_OK);
        every = strategy_every(&stage->strategy, 0);
        the_time_ns = 100 * NS_PER_S;
        pace_begin_period(node);
        assert_int_equal(pace_has_periods(node), !stage->strategy.at_end);
        if (every > 0) {
            assert_int_equal(pace_steps_left(node), every);
            node->step += every - 1;
            assert_false(stage->rounds.outer->due(node));
            assert_int_equal(pace_steps_left(node), 1);
            node->step++;
            assert_int_equal(pace_count(node), 1);
        } else {
            assert_int_equal(pace_steps_left(node), UINT64_MAX);
            node->step += 1000;
            assert_false(stage->rounds.outer->due(node));
        }
        the_time_ns += stage->strategy.every_ns;
        assert_int_equal(stage->rounds.outer->due(node), pace_has_periods(node));
        stage_destroy(stage);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(methods_have_the_pace_of_their_exchange),
        cmocka_unit_test(memory_that_is_short_is_told),
        cmocka_unit_test(rounds_are_due_when_a_period_is_over),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
