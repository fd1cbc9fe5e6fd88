/* Tests of testnet/table and testnet/text: what people see while a testnet runs. */
#include "tests/check.h"

#include "base/mem.h"
#include "testnet/table.h"

#include <math.h>

static size_t lines_of(const struct text *text)
{
    size_t lines = 0;

    for (size_t i = 0; i < text->count; i++) {
        lines += text->bytes[i] == '\n';
    }
    return lines;
}

static void the_table_has_a_line_a_peer_and_says_how_many_it_cut(void **state)
{
    /* Proves: the count returned is the count of lines, within the screen, whatever its size. */
    (void)state;
    struct table_row rows[40] = {{.state = "training"}};

    for (uint32_t i = 0; i < 40; i++) {
        rows[i] = (struct table_row){.peer = i, .state = "training", .loss = NAN, .accuracy = 0.5};
    }
    for (size_t lines = 1; lines < 60; lines++) {
        struct text text = TEXT_EMPTY;
        const size_t added = table_add(&text, rows, 40, 60, lines);
        assert_int_equal(added, lines_of(&text));
        if (lines > 4) assert_true(added <= lines);
        assert_true((strstr(text.bytes, "more") != NULL) == (added < 41));
        text_deinit(&text);
    }
}

static void no_line_is_longer_than_the_screen(void **state)
{
    /* Proves: columns cut lines, so that drawing over them works. */
    (void)state;
    const struct table_row row = {.peer = 1, .state = "training", .loss = 0.25, .accuracy = 0.9};
    struct text text = TEXT_EMPTY;
    size_t length = 0;

    table_add(&text, &row, 1, 20, 10);
    for (size_t i = 0; i < text.count; i++) {
        length = text.bytes[i] == '\n' ? 0 : length + 1;
        assert_true(length <= 20);
    }
    text_deinit(&text);
}

static void what_is_not_known_is_a_dash(void **state)
{
    /* Proves: NaN is not printed as a number. */
    (void)state;
    const struct table_row row = {.state = "training", .loss = NAN, .accuracy = NAN};
    struct text text = TEXT_EMPTY;

    table_add_line(&text, &row);
    assert_non_null(strstr(text.bytes, "loss -"));
    assert_null(strstr(text.bytes, "nan"));
    text_deinit(&text);
}

static void markup_is_escaped(void **state)
{
    /* Proves: text from outside cannot become markup. */
    (void)state;
    struct text text = TEXT_EMPTY;

    text_add_escaped(&text, "<b a=\"1\">&'");
    text_add_escaped(&text, NULL);
    assert_string_equal(text.bytes, "&lt;b a=&quot;1&quot;&gt;&amp;&#39;");
    text_deinit(&text);
}

static void lost_memory_is_remembered(void **state)
{
    /* Proves: a text that could not grow says so at the end and keeps what it had. */
    (void)state;
    struct text text = TEXT_EMPTY;

    assert_false(text_is_whole(&text));
    text_add(&text, "%s", "kept");
    assert_true(text_is_whole(&text));
    mem_fail_after(0);
    text_add(&text, "%5000d", 1);
    mem_fail_after(UINT64_MAX);
    text_add(&text, "more");
    assert_false(text_is_whole(&text));
    assert_string_equal(text.bytes, "kept");
    text_deinit(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_has_a_line_a_peer_and_says_how_many_it_cut),
        cmocka_unit_test(no_line_is_longer_than_the_screen),
        cmocka_unit_test(what_is_not_known_is_a_dash),
        cmocka_unit_test(markup_is_escaped),
        cmocka_unit_test(lost_memory_is_remembered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
