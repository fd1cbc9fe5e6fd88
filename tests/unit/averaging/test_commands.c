/* The list of commands. */
#include "tests/check.h"

#include "averaging/core/exchange.h"
#include "base/bytes.h"
#include "base/mem.h"

static void commands_keep_their_order_and_start_zeroed(void **state)
{
    (void)state;
    /* However often the list grows, commands are as they were added; clearing keeps the memory. */
    struct commands commands;

    commands_init(&commands);
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < 100; i++) {
            struct command *command = commands_add(&commands, COMMAND_SEND);

            assert_non_null(command);
            assert_int_equal(command->first, 0);
            command->first = i + 1;
        }
        assert_int_equal(commands.count, 100);
        for (uint32_t i = 0; i < 100; i++) {
            assert_int_equal(commands.items[i].first, i + 1);
        }
        commands_clear(&commands);
        assert_int_equal(commands.count, 0);
    }
    commands_deinit(&commands);
    commands_deinit(&commands); /* the empty value is fine */
}

static void a_command_that_does_not_fit_is_flagged(void **state)
{
    (void)state;
    /* Short memory loses the command, says so, and leaves what was there. */
    struct commands commands;

    commands_init(&commands);
    mem_fail_after(0);
    assert_null(commands_add(&commands, COMMAND_OVER));
    mem_fail_after(UINT64_MAX);
    assert_true(commands.is_short_of_memory);
    commands_clear(&commands);
    assert_false(commands.is_short_of_memory);
    assert_non_null(commands_add(&commands, COMMAND_OVER));
    commands_deinit(&commands);
}

static void what_is_decided_has_a_place(void **state)
{
    (void)state;
    /* However much is said before it, and whether or not that fits: OVER takes the last place. */
    struct commands commands;

    commands_init(&commands);
    assert_true(commands_reserve(&commands, 4));
    for (int i = 0; i < 9; i++) {
        mem_fail_after(0);
        assert_int_equal(commands_add(&commands, COMMAND_SEND) != NULL, i < 3);
    }
    mem_fail_after(0);
    assert_non_null(commands_add(&commands, COMMAND_OVER));
    mem_fail_after(UINT64_MAX);
    assert_int_equal(commands.items[3].type, COMMAND_OVER);
    commands_deinit(&commands);
}

static uint64_t line(void *context, struct peer_id peer)
{
    return peer.bytes[0] == 1 ? *(uint64_t *)context : 0;
}

static void a_slow_line_is_waited_for(void **state)
{
    (void)state;
    /* Four times as long as the chunks take, up to a limit; nothing where nothing is known. */
    const struct peer_id known = {{1}}, unknown = {{2}};
    uint64_t rate = 1000000;
    struct exchange_options options = {.chunk_bytes = 125000};

    assert_int_equal(exchange_line_wait_ns(&options, known, 10, NS_PER_S), 0);
    options.line = line;
    options.context = &rate;
    assert_int_equal(exchange_line_wait_ns(&options, unknown, 10, 60 * NS_PER_S), 0);
    assert_int_equal(exchange_line_wait_ns(&options, known, 10, 60 * NS_PER_S), 5 * NS_PER_S);
    assert_int_equal(exchange_line_wait_ns(&options, known, 10, 4 * NS_PER_S), 4 * NS_PER_S);
    rate = 1;
    assert_int_equal(exchange_line_wait_ns(&options, known, UINT32_MAX, UINT64_MAX / 2),
                     UINT64_MAX / 2);
    rate = UINT64_MAX;
    assert_int_equal(exchange_line_wait_ns(&options, known, 10, 4 * NS_PER_S), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands_keep_their_order_and_start_zeroed),
        cmocka_unit_test(a_command_that_does_not_fit_is_flagged),
        cmocka_unit_test(what_is_decided_has_a_place),
        cmocka_unit_test(a_slow_line_is_waited_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
