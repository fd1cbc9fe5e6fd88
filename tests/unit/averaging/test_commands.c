/* The list of commands. */
#include "tests/check.h"

#include "averaging/exchange.h"
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands_keep_their_order_and_start_zeroed),
        cmocka_unit_test(a_command_that_does_not_fit_is_flagged),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
